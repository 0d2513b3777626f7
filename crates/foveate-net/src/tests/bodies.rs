use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::server::{Server, Then, answer};
use super::{SOON, client, get, gives_up, hasty, local, post, run, soon};
use crate::ClientOptions;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Sends `head` at once and then one byte at a time, until the client disconnects.
fn drip(head: &'static str) -> Server {
    Server::start(move |_, stream| {
        let _ = stream.write_all(head.as_bytes());
        while stream.write_all(b"1").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
        Then::Close
    })
}

#[test]
fn drips_do_not_outlast_the_deadline() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Endless: ",
        "HTTP/1.1 200 ",
        "HTTP/1.1 302 Found\r\nLocation: http",
    ] {
        let server = drip(head);
        let error = gives_up(&server.url("/"));
        assert_eq!(error.reason, format!("{}: not done within 400ms", server.address), "{head:?}");
        assert!(error.transient);
    }
}

#[test]
fn silence_does_not_outlast_the_deadline() {
    for head in
        ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"]
    {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.read(&mut [0]);
            Then::Close
        });
        let error = gives_up(&server.url("/"));
        assert!(error.transient && error.reason.ends_with("not done within 400ms"), "{head:?}: {error}");
    }
}

#[test]
fn a_slow_or_long_body_that_nobody_wants_is_not_waited_for() {
    let slow = drip("HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n");
    assert!(soon(local(), &slow.url("/")).reason.ends_with("answered 404 Not Found"));
    let long = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n");
        while stream.write_all(&[0; 1000]).is_ok() {}
        Then::Close
    });
    assert!(soon(local(), &long.url("/")).reason.ends_with("answered 404 Not Found"));
}

#[test]
fn headers_without_end_are_not_read() {
    let endless = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X-More: of the same\r\n").is_ok() {}
        Then::Close
    });
    let error = get(&client(local()), &endless.url("/")).unwrap_err();
    assert!(!error.transient, "{error}");
    let huge = Server::fixed(format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "a".repeat(100_000)));
    let error = get(&client(local()), &huge.url("/")).unwrap_err();
    assert_eq!(error.reason, format!("{}: answered with no valid HTTP (message head is too large)", huge.address));
    let continued = Server::start(|_, stream| {
        while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_ok() {}
        Then::Close
    });
    gives_up(&continued.url("/"));
}

#[test]
fn what_is_no_http_is_an_error() {
    for reply in ["garbage\r\n\r\n", "HTTP/1.1 999999 Huh\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"] {
        let server = Server::fixed(reply);
        let error = get(&client(local()), &server.url("/")).unwrap_err();
        assert!(!error.transient && error.reason.starts_with(&server.address.to_string()), "{reply:?}: {error}");
    }
    let lengths = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd");
    assert!(get(&client(local()), &lengths.url("/")).is_err());
}

#[test]
fn a_body_that_says_it_is_too_large_is_not_read() {
    let server = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n");
    let client = client(ClientOptions { max_bytes: 1000, ..local() });
    let error = run(client.get(&server.url("/"), &mut |_| panic!("admitted"), &mut Vec::new())).unwrap_err();
    assert_eq!(error.reason, format!("{}: 1001 bytes, more than the limit of 1000", server.address));
    assert!(!error.transient);
}

#[test]
fn a_body_is_not_read_beyond_the_limit() {
    for head in ["HTTP/1.1 200 OK\r\n\r\n", CHUNKED] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = sent.clone();
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(head.as_bytes());
            let chunk = [b"100\r\n".as_slice(), &[b'x'; 256], b"\r\n"].concat();
            while stream.write_all(&chunk).is_ok() {
                counter.fetch_add(chunk.len(), Ordering::SeqCst);
            }
            Then::Close
        });
        let client = client(ClientOptions { max_bytes: 1000, ..local() });
        let error = get(&client, &server.url("/")).unwrap_err();
        assert_eq!(error.reason, format!("{}: over that many bytes, more than the limit of 1000", server.address));
        assert!(!error.transient);
        // No more than the two sockets' buffers hold.
        assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{sent:?}");
    }
}

#[test]
fn a_body_without_a_limit_is_read() {
    let server = Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\npicture").unwrap();
        Then::Close
    });
    assert_eq!(get(&client(ClientOptions { max_bytes: u64::MAX, ..local() }), &server.url("/")).unwrap(), b"picture");
}

#[test]
fn a_body_of_just_the_limit_is_read() {
    let client = client(ClientOptions { max_bytes: 5, ..local() });
    for reply in [&answer("200 OK", "", b"12345")[..], &format!("{CHUNKED}5\r\n12345\r\n0\r\n\r\n").into_bytes()] {
        assert_eq!(get(&client, &Server::fixed(reply).url("/")).unwrap(), b"12345");
    }
}

#[test]
fn a_body_that_ends_too_early_may_be_whole_next_time() {
    for (reply, reason) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234", "the connection ended after 4 of 10 bytes"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "the connection ended after 0 of 10 bytes"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
            "the connection ended after 5 of unknown bytes",
        ),
        ("HTTP/1.1 200 OK\r\nContent-", "the connection ended too early"),
        ("", "the connection ended too early"),
    ] {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(reply.as_bytes());
            Then::Close
        });
        let error = get(&client(local()), &server.url("/")).unwrap_err();
        assert_eq!(error.reason, format!("{}: {reason}", server.address));
        assert!(error.transient);
    }
}

#[test]
fn a_reset_is_no_end_of_a_body() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of a picture").unwrap();
        thread::sleep(Duration::from_millis(200));
        // The rest of the request was never read, so the system ends this connection with a reset.
        drop(stream);
    });
    let error = get(&client(local()), &format!("http://{address}/")).unwrap_err();
    assert!(error.transient && error.reason.contains("reset"), "{error}");
}

#[test]
fn a_data_url_is_its_own_answer_within_the_limit() {
    let client = client(ClientOptions { max_bytes: 5, ..local() });
    assert_eq!(get(&client, " DATA:image/png;base64,aGVs\nbG8 ").unwrap(), b"hello");
    for (url, reason) in [
        ("data:image/png;base64,aGVsbG8h", "a data: URL of 6 bytes, more than the limit of 5"),
        ("data:,", "a data: URL of no bytes"),
        ("data:image/png;base64,a", "not base64: "),
    ] {
        let error = get(&client, url).unwrap_err();
        assert!(!error.transient && error.reason.starts_with(reason), "{error}");
    }
    let error = run(client.get("data:,hello", &mut |_| false, &mut Vec::new())).unwrap_err();
    assert!(error.transient && error.reason.contains("no memory"), "{error}");
}

#[test]
fn codings_are_undone_within_the_limit() {
    let picture = b"a picture, a picture, a picture";
    let gzip = encoded(GzEncoder::new(Vec::new(), Compression::fast()), picture);
    let zlib = encoded(ZlibEncoder::new(Vec::new(), Compression::fast()), picture);
    let bare = encoded(DeflateEncoder::new(Vec::new(), Compression::fast()), picture);
    let twice = encoded(GzEncoder::new(Vec::new(), Compression::fast()), &zlib);
    // Made by Google's brotli 1.2.1.
    let brotli = b"\x1b\x1e\x00\xf8%\xc2\xaa\x91a*\x80\x9e$\x88\x02";
    let coded = [
        ("GZIP", &gzip[..]),
        ("x-gzip", &gzip),
        ("deflate", &zlib),
        ("Deflate", &bare),
        ("deflate, gzip", &twice),
        ("br", brotli),
        ("identity", picture),
        ("utf-8", picture),
    ];
    for (coding, body) in coded {
        let server = Server::fixed(answer("200 OK", &format!("Content-Encoding: {coding}\r\n"), body));
        assert_eq!(get(&client(local()), &server.url("/")).unwrap(), picture, "{coding}");
    }
    for (coding, body, reason) in [
        ("zstd", &gzip[..], "answered in zstd, which it was not asked for"),
        ("gzip, gzip, gzip", &gzip, "answered in gzip, which it was not asked for"),
        ("gzip", picture, "answered with damaged gzip"),
    ] {
        let server = Server::fixed(answer("200 OK", &format!("Content-Encoding: {coding}\r\n"), body));
        let error = get(&client(local()), &server.url("/")).unwrap_err();
        assert_eq!((error.reason, error.transient), (format!("{}: {reason}", server.address), false));
    }
    let bomb = encoded(GzEncoder::new(Vec::new(), Compression::fast()), &vec![0; 10 << 20]);
    let server = Server::fixed(answer("200 OK", "Content-Encoding: gzip\r\n", &bomb));
    let error = get(&client(ClientOptions { max_bytes: 1 << 20, ..local() }), &server.url("/")).unwrap_err();
    assert!(error.reason.ends_with("over that many bytes, more than the limit of 1048576"), "{error}");
    let error = get(&client(local()), &server.url("/")).unwrap_err();
    assert!(error.reason.ends_with("its gzip has more than 100 times the bytes that were sent"), "{error}");
}

fn encoded<W: FinishCoding>(mut encoder: W, bytes: &[u8]) -> Vec<u8> {
    encoder.write_all(bytes).unwrap();
    encoder.end()
}

trait FinishCoding: Write {
    fn end(self) -> Vec<u8>;
}

impl FinishCoding for GzEncoder<Vec<u8>> {
    fn end(self) -> Vec<u8> {
        self.finish().unwrap()
    }
}

impl FinishCoding for ZlibEncoder<Vec<u8>> {
    fn end(self) -> Vec<u8> {
        self.finish().unwrap()
    }
}

impl FinishCoding for DeflateEncoder<Vec<u8>> {
    fn end(self) -> Vec<u8> {
        self.finish().unwrap()
    }
}

#[test]
fn a_web_page_is_no_image() {
    for (content_type, body) in [
        ("text/html; charset=utf-8", &b"\n<head><title>Sign in</title>"[..]),
        ("image/jpeg", b"<!DOCTYPE html><html>"),
        ("application/octet-stream", b"\xef\xbb\xbf<HTML>"),
    ] {
        let server = Server::fixed(answer("200 OK", &format!("Content-Type: {content_type}\r\n"), body));
        let error = get(&client(local()), &server.url("/")).unwrap_err();
        let told = format!("answered with a web page ({} bytes of HTML), not with an image", body.len());
        assert_eq!((error.reason, error.transient), (format!("{}: {told}", server.address), false));
    }
    let mistyped = Server::fixed(answer("200 OK", "Content-Type: text/html\r\n", b"\xff\xd8\xff"));
    assert_eq!(get(&client(local()), &mistyped.url("/")).unwrap(), b"\xff\xd8\xff");
}

#[test]
fn nothing_is_no_body() {
    for reply in [&answer("200 OK", "", b"")[..], format!("{CHUNKED}0\r\n\r\n").as_bytes()] {
        let server = Server::fixed(reply);
        let error = get(&client(local()), &server.url("/")).unwrap_err();
        assert_eq!(error.reason, format!("{}: answered with nothing", server.address));
    }
}

#[test]
fn room_is_asked_for_before_the_body_and_waiting_for_it_does_not_count() {
    // The body comes only after `admit` was called: a client that read it first would wait forever.
    for (head, body, bytes) in
        [("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "picture", 7), (CHUNKED, "7\r\npicture\r\n0\r\n\r\n", 1000)]
    {
        let (admitted, admission) = mpsc::sync_channel(1);
        let admission = std::sync::Mutex::new(admission);
        let server = Server::start(move |_, stream| {
            stream.write_all(head.as_bytes()).unwrap();
            admission.lock().unwrap().recv().unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            Then::Keep
        });
        let mut asked = Vec::new();
        let mut admit = |bytes| {
            asked.push(bytes);
            thread::sleep(Duration::from_millis(1300));
            admitted.send(()).is_ok()
        };
        let mut out = Vec::new();
        let client = client(ClientOptions { max_bytes: 1000, timeout: Duration::from_secs(1), ..local() });
        run(client.get(&server.url("/"), &mut admit, &mut out)).unwrap();
        assert_eq!((out.as_slice(), asked), (b"picture".as_slice(), vec![bytes]));
    }
}

/// A server that declares much and sends little gets memory for little.
#[test]
fn room_grows_with_what_has_come_and_not_with_what_is_declared() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n");
        let _ = stream.write_all(&[7; 200_000]);
        Then::Close
    });
    let mut asked = Vec::new();
    let mut out = Vec::new();
    let mut admit = |bytes| {
        asked.push(bytes);
        true
    };
    let error = run(client(local()).get(&server.url("/"), &mut admit, &mut out)).unwrap_err();
    assert!(error.transient && error.reason.ends_with("after 200000 of 30000000 bytes"), "{error}");
    assert_eq!(asked, [64 << 10, 128 << 10, 256 << 10]);
    let error = run(client(local()).get(&server.url("/"), &mut |bytes| bytes < 100_000, &mut out)).unwrap_err();
    assert!(error.transient && error.reason.ends_with("there is no memory for its bytes now"), "{error}");
}

#[test]
fn a_body_below_the_minimum_rate_is_cut() {
    let options = ClientOptions { window: Duration::from_millis(300), ..local() };
    for head in ["HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", CHUNKED] {
        let drip = drip(head);
        assert_eq!(
            soon(options.clone(), &drip.url("/")).reason,
            format!("{}: sent less than 1024 bytes/s for 300ms", drip.address)
        );
        let silent = Server::start(move |_, stream| {
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.read(&mut [0]);
            Then::Close
        });
        assert!(soon(options.clone(), &silent.url("/")).reason.contains("sent less than 1024 bytes/s"));
    }
}

#[test]
fn a_post_that_nobody_reads_does_not_outlast_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let begin = Instant::now();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let error = post(&client(hasty()), &url, &[], &vec![0; 64 << 20]).unwrap_err();
    assert!(error.transient && error.reason.ends_with("not done within 400ms"), "{error}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}
