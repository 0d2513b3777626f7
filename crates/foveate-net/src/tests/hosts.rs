use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::server::{Server, Then, answer};
use super::{client, get, gives_up, hasty, local, post, run, soon};
use crate::{Client, ClientOptions};

#[test]
fn this_machine_is_not_asked_unless_it_is_named() {
    let server = Server::fixed(answer("200 OK", "", b"inside"));
    let port = server.address.port();
    let guarded = client(ClientOptions { ports: Vec::new(), ..ClientOptions::default() });
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "localhost",
        "LOCALHOST.",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
    ] {
        let url = format!("http://{host}:{port}/");
        for error in [get(&guarded, &url).unwrap_err(), post(&guarded, &url, &[], b"").unwrap_err()] {
            assert!(error.reason.contains(", which may not be asked"), "{host}: {error}");
            assert!(!error.transient);
        }
    }
    assert_eq!(server.connections(), 0);
    for allowed in ["127.0.0.1".to_owned(), server.address.to_string()] {
        let open = client(ClientOptions { allow_private: vec![allowed], ..ClientOptions::default() });
        assert_eq!(get(&open, &format!("http://2130706433:{port}/")).unwrap(), b"inside");
    }
    let other = client(ClientOptions {
        allow_private: vec!["127.0.0.1:1".to_owned(), "localhost".to_owned()],
        ..ClientOptions::default()
    });
    assert!(get(&other, &server.url("/")).is_err());
}

#[test]
fn the_address_that_was_checked_is_the_one_that_is_asked() {
    let server = Server::fixed(answer("200 OK", "", b"picture"));
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    // A second look-up within a request would return another address, which has no listener.
    let rebinding = move |_: &str| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        Ok(vec![IpAddr::V4(if n == 0 { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(127, 0, 0, 99) })])
    };
    let options = ClientOptions {
        allow_private: vec!["rebind.test".to_owned()],
        dns_ttl: Duration::ZERO,
        ..ClientOptions::default()
    };
    let client = Client::with_lookup(options, Arc::new(rebinding)).unwrap();
    let url = format!("http://rebind.test:{}/", server.address.port());
    assert_eq!(get(&client, &url).unwrap(), b"picture");
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    assert_eq!(server.asked.lock().unwrap()[0].header("host"), Some(&url["http://".len()..url.len() - 1]));
}

#[test]
fn names_are_looked_up_once_in_their_time() {
    let server = Server::fixed(answer("200 OK", "", b"picture"));
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    let options = ClientOptions { allow_private: vec!["a.test".to_owned()], ..ClientOptions::default() };
    let lookup = move |_: &str| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    };
    let client = Client::with_lookup(options, Arc::new(lookup)).unwrap();
    for _ in 0..5 {
        get(&client, &format!("http://a.test:{}/", server.address.port())).unwrap();
    }
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
}

#[test]
fn no_host_is_asked_by_more_at_once_than_allowed() {
    let active = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let now = active.clone();
    let record = most.clone();
    let server = Server::start(move |_, stream| {
        record.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(30));
        now.fetch_sub(1, Ordering::SeqCst);
        stream.write_all(&answer("200 OK", "", b"picture")).unwrap();
        Then::Keep
    });
    let client = client(ClientOptions { per_host: 3, ..local() });
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| get(&client, &server.url("/")).unwrap());
        }
    });
    assert_eq!((most.load(Ordering::SeqCst), server.count()), (3, 12));
    // At most three are at work, and three on their way back to the pool, which a turn does not wait for.
    assert!((3..=6).contains(&server.connections()), "{} connections for 3 at once", server.connections());
}

#[test]
fn waiting_for_a_turn_does_not_count_and_who_gives_up_hands_it_on() {
    let server = Server::start(|asked, stream| {
        thread::sleep(Duration::from_millis(if asked.path() == "/never" { 60_000 } else { 1500 }));
        let _ = stream.write_all(&answer("200 OK", "", b"picture"));
        Then::Keep
    });
    // Each request takes 1.5 s, and they run one by one.
    let client = client(ClientOptions { per_host: 1, timeout: Duration::from_millis(2500), ..local() });
    thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| get(&client, &server.url("/"))));
        assert!(both.into_iter().all(|one| one.join().unwrap().is_ok()));
    });
    assert!(get(&client, &server.url("/never")).unwrap_err().reason.ends_with("not done within 2.5s"));
    assert!(get(&client, &server.url("/")).is_ok());
}

#[test]
fn a_turn_is_not_waited_for_for_ever() {
    let server = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    let client = client(ClientOptions { per_host: 1, ..hasty() });
    // A request that waits for room keeps its turn.
    let waiting_for_room = &mut |_| {
        let error = thread::scope(|scope| scope.spawn(|| get(&client, &server.url("/")).unwrap_err()).join().unwrap());
        let message = format!("{}: 1 requests are under way, and no turn came within 400ms", server.address);
        assert_eq!((error.reason, error.transient), (message, true));
        true
    };
    run(client.get(&server.url("/"), waiting_for_room, &mut Vec::new())).unwrap();
}

#[test]
fn a_host_without_a_listener_may_come_back() {
    let error = gives_up("http://127.0.0.1:1/");
    assert!(error.transient && error.reason.starts_with("127.0.0.1:1: Connection refused"), "{error}");
    assert_eq!(error.reached, Some(true), "it was refused by somebody");
}

#[test]
fn a_host_that_does_not_answer_is_given_up() {
    // This listener never accepts: when the system's queue is full, the next connection gets no answer.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    let mut unanswered = 0;
    while unanswered < 3 {
        match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            Ok(stream) => {
                queue.push(stream);
                unanswered = 0;
            }
            Err(_) => unanswered += 1,
        }
    }
    let url = format!("http://{address}/");
    let error = soon(ClientOptions { connect_timeout: Duration::from_millis(300), ..local() }, &url);
    assert_eq!((error.reason, error.transient), (format!("{address}: no connection within 300ms"), true));
    let hurried = soon(ClientOptions { connect_timeout: Duration::from_secs(60), ..hasty() }, &url);
    // An abandoned connection may have made room.
    let reasons = ["no connection", "not done"].map(|what| format!("{address}: {what} within 400ms"));
    assert!(reasons.contains(&hurried.reason), "{hurried}");
}

#[test]
fn an_address_can_be_checked_without_asking() {
    let client = client(ClientOptions { only_hosts: vec!["a.test".to_owned()], https_only: true, ..hasty() });
    assert_eq!(client.check("https://a.test/x"), Ok(()));
    assert_eq!(client.check("http://a.test/x").unwrap_err().reason, "a.test: only https may be asked");
    assert!(client.check("https://b.test/").is_err() && client.check("x").is_err());
}

#[test]
fn an_address_in_numbers_is_checked_as_one_is_asked() {
    let options = ClientOptions { allow_private: vec!["10.0.0.2:81".to_owned()], ..hasty() };
    let client = client(options.clone());
    assert_eq!(client.options(), &options);
    for (url, kind) in [
        ("http://10.0.0.1/", "a private"),
        ("https://169.254.169.254/latest/", "a link-local"),
        ("http://[::1]/", "a loopback"),
        ("http://0x7f.2/", "a loopback"),
        ("http://[64:ff9b::10.0.0.1]/", "a private"),
        ("http://10.0.0.2/", "a private"),
    ] {
        let error = client.check(url).unwrap_err();
        assert!(error.reason.contains(&format!(": has {kind} address, which may not be asked")), "{url}: {error}");
        assert!(!error.transient);
        assert_eq!(post(&client, url, &[], b"").unwrap_err(), error);
    }
    for url in ["http://10.0.0.2:81/", "https://1.1.1.1/", "https://a.test/"] {
        assert_eq!(client.check(url), Ok(()), "{url}");
    }
}
