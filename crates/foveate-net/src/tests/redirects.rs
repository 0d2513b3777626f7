use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::server::{Server, Then, answer, redirect};
use super::{client, get, local, run};
use crate::{AnswerFacts, Client, ClientOptions, RequestHeaders};

/// Redirects `/n` to `/n-1`, and `/0` to nowhere.
fn stairs() -> Server {
    Server::start(|asked, stream| {
        let step: usize = asked.path()[1..].parse().unwrap();
        let reply = match step {
            0 => answer("200 OK", "", b"ground"),
            _ => redirect(&format!("{}", step - 1)),
        };
        stream.write_all(&reply).unwrap();
        Then::Keep
    })
}

#[test]
fn redirects_are_followed_up_to_the_limit() {
    let server = stairs();
    let client = client(local());
    assert_eq!(get(&client, &server.url("/3")).unwrap(), b"ground");
    assert_eq!(server.count(), 4);
    let error = get(&client, &server.url("/4")).unwrap_err();
    assert_eq!(error.reason, format!("{}: more than 3 redirects on the way to it", server.address));
    assert!(!error.transient);
    assert_eq!(server.count(), 8);
}

#[test]
fn none_are_followed_where_none_are_allowed() {
    let server = stairs();
    let client = client(ClientOptions { max_redirects: 0, ..local() });
    assert_eq!(get(&client, &server.url("/0")).unwrap(), b"ground");
    assert!(get(&client, &server.url("/1")).unwrap_err().reason.contains("more than 0 redirects"));
}

#[test]
fn every_hop_is_checked() {
    let inner = Server::fixed(answer("200 OK", "", b"inside"));
    let port = inner.address.port();
    let named = |host: &str| match host {
        "private.test" => Ok(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5))]),
        _ => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
    };
    for (location, reason) in [
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254: has a link-local address"),
        ("http://[fd00:ec2::254]/", "fd00:ec2::254: has a private address"),
        ("http://[::ffff:127.0.0.1]/", "::ffff:7f00:1: has an IPv4-mapped address"),
        ("//10.0.0.1/x", "10.0.0.1: has a private address"),
        ("http://2130706434/", "127.0.0.2: has a loopback address"),
        ("http://private.test/", "private.test: has a private address, which may not be asked"),
        ("http://other.test:1234/", "other.test:1234: port 1234 is not among those that may be asked"),
        (&format!("http://other.test:{port}/"), &format!("other.test:{port}: port {port} is not among")),
        ("file:///etc/passwd", "redirects away: file: is neither http nor https"),
        ("gopher://127.0.0.1:70/_x", "redirects away: gopher: is neither http nor https"),
        ("http://user:word@outer.test/", "redirects away: outer.test: the address holds a user's name or password"),
        ("http://", "redirects to no address"),
    ] {
        let outer = Server::fixed(redirect(location));
        let options = ClientOptions { allow_private: vec!["outer.test".to_owned()], ..ClientOptions::default() };
        let client = Client::with_lookup(options, Arc::new(named)).unwrap();
        let error = get(&client, &format!("http://outer.test:{}/", outer.address.port())).unwrap_err();
        assert!(error.reason.contains(reason) && !error.transient, "{location}: {error}");
        assert!(!error.reason.contains("10.0.0.5"), "where a name leads inside is told: {error}");
        assert_eq!((outer.count(), inner.connections()), (1, 0), "{location}");
    }
}

#[test]
fn the_list_of_hosts_holds_for_redirects() {
    let inner = Server::fixed(answer("200 OK", "", b"inside"));
    let outer = Server::fixed(redirect(&inner.url("/")));
    let only = vec![outer.address.to_string()];
    let error = get(&client(ClientOptions { only_hosts: only.clone(), ..local() }), &outer.url("/")).unwrap_err();
    assert_eq!(error.reason, format!("{}: not among the hosts that may be asked", inner.address));
    assert_eq!(inner.connections(), 0);
    let both = vec![only[0].clone(), inner.address.to_string()];
    assert_eq!(get(&client(ClientOptions { only_hosts: both, ..local() }), &outer.url("/")).unwrap(), b"inside");
}

#[test]
fn a_redirect_to_nowhere_is_an_error() {
    let server = Server::fixed(answer("301 Moved Permanently", "", b""));
    let error = get(&client(local()), &server.url("/")).unwrap_err();
    assert_eq!(error.reason, format!("{}: answered 301 Moved Permanently without saying where", server.address));
    let other = Server::fixed(answer("304 Not Modified", "", b""));
    assert!(get(&client(local()), &other.url("/")).unwrap_err().reason.ends_with("answered 304 Not Modified"));
}

#[test]
fn a_redirect_may_have_letters_outside_of_ascii_and_be_relative() {
    for (location, path) in [
        ("/b\u{fc}cher/a b%.jpg", "/b%C3%BCcher/a%20b%.jpg"),
        ("../x//\u{65e5}.jpg?q=\u{fc}", "/x//%E6%97%A5.jpg?q=%C3%BC"),
        ("  c.jpg ", "/old/c.jpg"),
        ("HTTP:/d.jpg", "/d.jpg"),
    ] {
        let server = Server::start(move |asked, stream| {
            let reply = match asked.path() {
                "/old/a.jpg" => redirect(location),
                _ => answer("200 OK", "", b"picture"),
            };
            stream.write_all(&reply).unwrap();
            Then::Keep
        });
        assert_eq!(get(&client(local()), &server.url("/old/a.jpg")).unwrap(), b"picture", "{location}");
        assert_eq!(server.asked.lock().unwrap()[1].path(), path);
    }
    let latin = [&b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: /b\xfccher\r\n\r\n"[..]].concat();
    let server = Server::start(move |asked, stream| {
        let reply = if asked.path() == "/" { latin.clone() } else { answer("200 OK", "", b"picture") };
        stream.write_all(&reply).unwrap();
        Then::Keep
    });
    assert_eq!(get(&client(local()), &server.url("/")).unwrap(), b"picture");
}

#[test]
fn headers_and_passwords_go_to_their_own_host_alone() {
    let inner = Server::fixed(answer("200 OK", "", b"picture"));
    let outer = Server::fixed(redirect(&inner.url("/x")));
    let mut headers = RequestHeaders::default();
    for (name, value) in
        [("Authorization", "Bearer SECRET"), ("cookie", "s=SECRET"), ("X-Api-Key", "SECRET"), ("User-Agent", "shop/1")]
    {
        headers.add(name, value).unwrap();
    }
    let options = ClientOptions { trusted: true, headers: headers.clone(), ..ClientOptions::default() };
    assert!(!format!("{options:?}").contains("SECRET"));
    let client = Client::new(options).unwrap();
    assert_eq!(get(&client, &outer.url("/a")).unwrap(), b"picture");
    let first = outer.asked.lock().unwrap()[0].clone();
    let second = inner.asked.lock().unwrap()[0].clone();
    assert_eq!(first.header("authorization"), Some("Bearer SECRET"));
    assert_eq!((first.header("cookie"), first.header("user-agent")), (Some("s=SECRET"), Some("shop/1")));
    assert_eq!(second.header("user-agent"), Some("shop/1"));
    assert_eq!([second.header("authorization"), second.header("cookie"), second.header("x-api-key")], [None; 3]);
    let plain = Client::new(ClientOptions { trusted: true, ..ClientOptions::default() }).unwrap();
    get(&plain, &outer.url("/a").replace("//", "//us%40er:pass@")).unwrap();
    assert_eq!(outer.asked.lock().unwrap()[1].header("authorization"), Some("Basic dXNAZXI6cGFzcw=="));
    assert_eq!(inner.asked.lock().unwrap()[1].header("authorization"), None);
    for (name, value, why) in [
        ("Host", "a", "the header 'Host' is set by the client; leave it out"),
        ("a b", "a", "the header 'a b' has no possible name"),
        ("A", "from a file\n", ""),
        ("A", "SECRET\nB: c", "the header 'A' has a value with a control character"),
    ] {
        let added = headers.add(name, value).map_err(|error| error.to_string());
        assert_eq!(added.err().unwrap_or_default(), why);
    }
}

#[test]
fn what_is_said_of_a_file_is_read_by_head_or_by_get() {
    let facts = "ETag: \"a\"\r\nLast-Modified: yesterday\r\n";
    for refusal in [None, Some("405 Method Not Allowed"), Some("403 Forbidden"), Some("501 Not Implemented")] {
        let server = Server::start(move |asked, stream| {
            let is_head = asked.line.starts_with("HEAD");
            let reply = match refusal.filter(|_| is_head) {
                Some(status) => format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\n").into_bytes(),
                None => answer("200 OK", facts, if is_head { b"" } else { b"picture" }),
            };
            let reply = String::from_utf8(reply).unwrap();
            stream.write_all(reply.replace("Content-Length: 0", "Content-Length: 7").as_bytes()).unwrap();
            Then::Keep
        });
        let said = run(client(local()).examine(&server.url("/a"))).unwrap();
        assert_eq!(said, AnswerFacts { len: Some(7), tag: Some("\"a\"".to_owned()), modified: None });
        let lines: Vec<_> = server.asked.lock().unwrap().iter().map(|asked| asked.line[..4].to_owned()).collect();
        assert_eq!(lines, if refusal.is_none() { vec!["HEAD"] } else { vec!["HEAD", "GET "] });
    }
    let busy = Server::fixed(answer("503 Service Unavailable", "Retry-After: 2\r\n", b""));
    let error = run(client(local()).examine(&busy.url("/a"))).unwrap_err();
    assert_eq!((error.status, error.retry_after.map(|wait| wait.as_secs())), (Some(503), Some(2)));
    assert_eq!(busy.count(), 1);
}
