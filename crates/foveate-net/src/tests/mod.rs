//! Tests the client against well-behaved and misbehaving servers on this machine.

mod bodies;
mod hosts;
mod redirects;
mod server;
mod tls;

use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::{Client, ClientOptions, NetError, Reply};
use server::{Server, answer};

/// Options that allow loopback.
fn local() -> ClientOptions {
    ClientOptions { allow_private: vec!["127.0.0.1".to_owned()], ..ClientOptions::default() }
}

/// Options that allow loopback, with short time limits.
fn hasty() -> ClientOptions {
    ClientOptions { timeout: Duration::from_millis(400), ..local() }
}

fn client(options: ClientOptions) -> Client {
    Client::new(options).unwrap()
}

/// Runs a request on a runtime that all tests share, and that outlives look-ups that hang.
pub(crate) fn run<T>(request: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    RUNTIME.block_on(request)
}

fn get(client: &Client, url: &str) -> Result<Vec<u8>, NetError> {
    let mut out = vec![1, 2, 3];
    let result = run(client.get(url, &mut |_| true, &mut out));
    assert!(result.is_ok() || out.is_empty(), "bytes are left of a failed request");
    result.map(|_| out)
}

fn post(client: &Client, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Reply, NetError> {
    run(client.post(url, headers, body))
}

/// Time that a busy machine may need for half a second's work. Without a limit it would take minutes, or never end.
const SOON: Duration = Duration::from_secs(8);

/// The error of a request that must fail soon.
fn soon(options: ClientOptions, url: &str) -> NetError {
    let begin = Instant::now();
    let error = get(&client(options), url).unwrap_err();
    assert!(begin.elapsed() < SOON, "{error} after {:?}", begin.elapsed());
    error
}

fn gives_up(url: &str) -> NetError {
    soon(hasty(), url)
}

#[test]
fn a_body_is_got_and_a_post_is_made() {
    let server = Server::fixed(answer("200 OK", "", b"picture"));
    let client = client(local());
    assert_eq!(get(&client, &server.url("/a?b=c#d")).unwrap(), b"picture");
    let reply = post(&client, &server.url("/hook"), &[("x-test", "1")], b"{}").unwrap();
    assert_eq!(reply.status, 200);
    let asked = server.asked.lock().unwrap();
    assert_eq!(asked[0].line, "GET /a?b=c HTTP/1.1");
    assert_eq!(asked[0].header("host"), Some(server.address.to_string().as_str()));
    assert_eq!(asked[0].header("accept-encoding"), Some("identity"));
    assert_eq!(asked[0].header("user-agent"), Some(concat!("foveate/", env!("CARGO_PKG_VERSION"))));
    assert_eq!((asked[1].line.as_str(), asked[1].body.as_slice()), ("POST /hook HTTP/1.1", b"{}".as_slice()));
    assert_eq!((asked[1].header("x-test"), asked[1].header("content-type")), (Some("1"), Some("application/json")));
}

#[test]
fn a_proxy_in_the_environment_is_not_asked() {
    let test = "tests::a_body_is_got_and_a_post_is_made";
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:1");
    }
    let output = command.args(["--exact", test]).env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn statuses_say_whether_and_when_to_come_back() {
    let client = client(local());
    let ask = |status: &str, headers: &str| {
        let server = Server::fixed(answer(status, headers, b"sorry"));
        let expected = |error: &NetError| error.reason == format!("{}: answered {status}", server.address);
        let got = get(&client, &server.url("/")).unwrap_err();
        let posted = post(&client, &server.url("/"), &[], b"");
        let posted = posted.unwrap_err();
        assert!(expected(&got) && expected(&posted) && posted.retry_after == got.retry_after, "{got}, {posted}");
        assert_eq!((got.reached, posted.reached), (Some(true), Some(true)));
        (got.transient, got.retry_after.map(|wait| wait.as_secs()))
    };
    assert_eq!(ask("404 Not Found", ""), (false, None));
    assert_eq!(ask("429 Too Many Requests", "Retry-After: 7\r\n"), (true, Some(7)));
    assert_eq!(ask("503 Service Unavailable", "Retry-After: 100000\r\n"), (true, Some(3600)));
    assert_eq!(ask("501 Not Implemented", ""), (false, None));
    // A post may be accepted and processed later; an image that is not ready yet is an error.
    let later = Server::fixed(answer("202 Accepted", "", b"wait"));
    assert_eq!(post(&client, &later.url("/"), &[], b"").unwrap().status, 202);
    assert!(get(&client, &later.url("/")).unwrap_err().transient);
    let nothing = Server::fixed("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(post(&client, &nothing.url("/"), &[], b"").unwrap().status, 204);
    assert!(!get(&client, &nothing.url("/")).unwrap_err().transient);
}

/// A receiver that is deployed, or whose keys change, answers anything for a minute.
#[test]
fn a_post_is_permanent_only_where_its_body_is_refused() {
    let client = client(local());
    let transient = |status: &str| {
        let server = Server::fixed(answer(status, "", b"sorry"));
        post(&client, &server.url("/"), &[], b"{}").unwrap_err().transient
    };
    for status in ["401 Unauthorized", "403 Forbidden", "404 Not Found", "405 Method Not Allowed", "410 Gone"] {
        assert!(transient(status), "{status}");
    }
    assert!(!transient("400 Bad Request") && !transient("413 Content Too Large"));
}

#[test]
fn a_post_follows_no_redirect() {
    let server = Server::fixed(server::redirect("/elsewhere"));
    let error = post(&client(local()), &server.url("/"), &[], b"{}").unwrap_err();
    let message =
        format!("{}: answered 302 Found; a post follows no redirect, so name the last address", server.address);
    assert_eq!((error.reason, error.transient, server.count()), (message, true, 1));
}

#[test]
fn headers_of_a_post_cannot_be_broken_out_of() {
    let server = Server::fixed(answer("200 OK", "", b""));
    let client = client(local());
    for (name, value) in [("x-a", "1\r\nx-b: 2"), ("x a", "1"), ("x-a", "\0")] {
        assert!(!post(&client, &server.url("/"), &[(name, value)], b"").unwrap_err().transient);
    }
    assert_eq!(server.count(), 0);
}

#[test]
fn connections_are_used_again() {
    let picture = Server::start(|asked, stream| {
        use std::io::Write;
        let reply = match asked.path() {
            "/missing" => answer("404 Not Found", "", &[b'x'; 2000]),
            "/moved" => server::redirect("/picture"),
            _ => answer("200 OK", "", b"picture"),
        };
        stream.write_all(&reply).unwrap();
        server::Then::Keep
    });
    let client = client(local());
    let ask = |path: &str| {
        // A connection that was just used is free a moment later.
        let _ = get(&client, &picture.url(path));
        std::thread::sleep(Duration::from_millis(50));
        post(&client, &picture.url(path), &[], b"{}").ok();
        std::thread::sleep(Duration::from_millis(50));
    };
    ["/picture", "/missing", "/picture", "/missing"].into_iter().for_each(ask);
    assert_eq!((picture.count(), picture.connections()), (8, 1));
    // The request after a redirect does not wait for that moment.
    ask("/moved");
    assert!(picture.count() == 11 && picture.connections() <= 2, "{} connections", picture.connections());
}

#[test]
fn a_connection_that_the_server_closed_is_not_used() {
    let closing = Server::start(|_, stream| {
        use std::io::Write;
        stream.write_all(&answer("200 OK", "", b"picture")).unwrap();
        server::Then::Close
    });
    let client = client(local());
    for _ in 0..3 {
        assert_eq!(get(&client, &closing.url("/")).unwrap(), b"picture");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(closing.connections(), 3);
}

#[test]
fn errors_do_not_tell_what_an_address_holds() {
    let loops = Server::fixed(server::redirect("/SECRET?signature=SECRET"));
    let away = Server::fixed(server::redirect("http://10.0.0.1/SECRET?signature=SECRET#SECRET"));
    let file = Server::fixed(server::redirect("file:///SECRET"));
    let cut = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123");
    let garbage = Server::fixed("SECRET\r\n\r\n");
    let missing = Server::fixed(answer("404 Not Found", "", b"SECRET"));
    let mut urls: Vec<String> = [&loops, &away, &file, &cut, &garbage, &missing]
        .iter()
        .map(|server| server.url("/SECRET.jpg?signature=SECRET#SECRET"))
        .collect();
    urls.extend(
        [
            "ftp://a/SECRET",
            "http://SECRET:SECRET@a/SECRET",
            "http://[SECRET",
            "http://10.0.0.1/SECRET?SECRET",
            "SECRET",
        ]
        .map(str::to_owned),
    );
    urls.push(format!("http://127.0.0.1:1/SECRET?{}", "SECRET".repeat(10)));
    urls.push(format!("http://127.0.0.1/SECRET?{}", "SECRET".repeat(2000)));
    let client = client(hasty());
    for url in urls {
        let error = get(&client, &url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
        assert!(!format!("{:?}", client.check(&url)).contains("SECRET"));
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |change: &dyn Fn(&mut ClientOptions)| {
        let mut options = ClientOptions::default();
        change(&mut options);
        Client::new(options).unwrap_err().to_string()
    };
    assert_eq!(refused(&|o| o.per_host = 0), "per_host is 0; it must be positive");
    assert_eq!(refused(&|o| o.max_bytes = 0), "max_bytes is 0; it must be positive");
    let message = "timeout is 0ns; it must be positive and at most a day";
    assert_eq!(refused(&|o| o.timeout = Duration::ZERO), message);
    assert!(refused(&|o| o.connect_timeout = Duration::MAX).starts_with("connect_timeout is "));
    assert!(refused(&|o| o.dns_ttl = Duration::MAX).starts_with("dns_ttl is "));
    assert!(
        refused(&|o| o.allow_private = vec!["http://a/".to_owned()])
            .contains("hosts with private addresses: \"http://a/\"")
    );
    let message = "certificates in /does/not/exist: No such file or directory (os error 2)";
    assert_eq!(refused(&|o| o.ca_file = Some("/does/not/exist".into())), message);
    assert!(refused(&|o| o.ca_file = Some("/dev/null".into())).ends_with("/dev/null: there is none"));
}
