//! The client against servers on this machine, and against names whose addresses a test makes up.

mod server;

use crate::{Client, NetError, Options};
use server::{Server, answer};

/// Loopback allowed, little patience.
fn local() -> Options {
    Options { allow_private: vec!["127.0.0.1".to_owned()], ..Options::default() }
}

fn get(client: &Client, url: &str) -> Result<Vec<u8>, NetError> {
    let mut out = vec![1, 2, 3];
    let result = client.get(url, &mut |_| (), &mut out);
    assert!(result.is_ok() || out.is_empty(), "bytes are left of a failed request");
    result.map(|()| out)
}

#[test]
fn a_body_is_got_and_a_post_is_made() {
    let server = Server::fixed(answer("200 OK", "", b"picture"));
    let client = Client::new(local()).unwrap();
    assert_eq!(get(&client, &server.url("/a?b=c#d")).unwrap(), b"picture");
    let reply = client.post(&server.url("/hook"), &[("x-test", "1")], b"{}").unwrap();
    assert_eq!(reply.status, 200);
    let asked = server.asked.lock().unwrap();
    assert_eq!(asked[0].line, "GET /a?b=c HTTP/1.1");
    assert_eq!((asked[1].line.as_str(), asked[1].body.as_slice()), ("POST /hook HTTP/1.1", b"{}".as_slice()));
    assert_eq!((asked[1].header("x-test"), asked[1].header("content-type")), (Some("1"), Some("application/json")));
}
