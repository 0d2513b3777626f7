use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::server::{Server, Then, answer, redirect};
use super::{client, get, local};
use crate::{Client, ClientOptions};

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
