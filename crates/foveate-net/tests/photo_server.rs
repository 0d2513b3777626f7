//! The photo server, queried over plain sockets.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::PixelBuf;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions};
use foveate_decode_image::GenericDecoder;
use foveate_net::Client;
use foveate_net::photo_server::{Latency, PhotoServer, PhotoServerOptions};

const PHOTOS: [&str; 2] = ["camera_gray.jpg", "retina.png"];

fn photos() -> Vec<Arc<[u8]>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/photos/");
    PHOTOS.map(|name| std::fs::read(format!("{folder}{name}")).unwrap().into()).into()
}

fn server(options: PhotoServerOptions) -> PhotoServer {
    PhotoServer::start(photos(), options).unwrap()
}

/// A connection for successive requests.
struct Socket(BufReader<TcpStream>);

#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl Socket {
    fn new(server: &PhotoServer) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, request: &str) {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    fn get(&mut self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        self.reply()
    }

    fn call_back(&mut self, id: &str, body: &str) -> u16 {
        let length = body.len();
        self.send(&format!("POST /callback HTTP/1.1\r\nHost: x\r\nWebhook-Id: {id}\r\nwebhook-timestamp: 12\r\nwebhook-signature: v1,x=\r\nContent-Length: {length}\r\n\r\n{body}"));
        self.reply().status
    }

    fn head(&mut self) -> Reply {
        let mut line = || {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the server hung up");
            line.trim_end().to_owned()
        };
        let status = line().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            match line().split_once(": ") {
                Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
                None => return Reply { status, headers, body: Vec::new() },
            }
        }
    }

    fn reply(&mut self) -> Reply {
        let mut reply = self.head();
        // An answer without content, 204, has no length.
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        reply.body.resize(length, 0);
        self.0.read_exact(&mut reply.body).unwrap();
        reply
    }

    /// Returns true if the server has closed the connection.
    fn is_over(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn decode(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut decoder = GenericDecoder::new(DecoderOptions::default());
    decoder.decode(bytes, DecodeHint::default(), &mut PixelBuf::default()).map(drop)
}

#[test]
fn photos_come_over_one_connection_and_are_counted() {
    let server = server(PhotoServerOptions::default());
    let mut client = Socket::new(&server);
    for (path, photo) in [("/photo/0", 0), ("/photo/1", 1), ("/photo/2?size=large", 0), ("/photo/1", 1)] {
        let reply = client.get(path);
        assert_eq!((reply.status, &reply.body[..]), (200, &photos()[photo][..]), "{path}");
        decode(&reply.body).unwrap();
    }
    assert_eq!(["/photo/0", "/photo/1", "/photo/2", "/photo/3"].map(|path| server.requests(path)), [1, 2, 1, 0]);
    assert_eq!(server.all_requests().len(), 3);
    assert_eq!(server.url("/photo/0"), format!("http://127.0.0.1:{}/photo/0", server.address().port()));
}

#[test]
fn broken_photos_are_refused_by_decoders() {
    let server = server(PhotoServerOptions::default());
    let mut client = Socket::new(&server);
    for (n, photo) in photos().iter().enumerate() {
        let corrupt = client.get(&format!("/corrupt/{n}")).body;
        assert_eq!(corrupt.len(), photo.len());
        assert_eq!(corrupt[..photo.len() / 2], photo[..photo.len() / 2]);
        let error = decode(&corrupt).unwrap_err();
        assert!(matches!(error, DecodeError::Corrupt { .. }), "{}: {error}", PHOTOS[n]);
    }
    for n in 0..2 {
        let bomb = client.get(&format!("/bomb/{n}")).body;
        assert!(bomb.len() < 1000 && bomb.starts_with([b"\x89PNG", &[0xff, 0xd8, 0xff, 0xe0]][n]), "{bomb:?}");
        let error = decode(&bomb).unwrap_err();
        assert!(matches!(error, DecodeError::Limit(_)) && error.to_string().contains("60000"), "{error}");
    }
}

#[test]
fn errors_are_told_as_servers_tell_them() {
    let server = server(PhotoServerOptions::default());
    let mut client = Socket::new(&server);
    assert_eq!(client.get("/missing/1").status, 404);
    assert_eq!(client.get("/no/such/path").status, 404);
    let error = client.get("/error/1");
    assert_eq!((error.status, error.header("retry-after")), (503, Some("1")));
    let flaky: Vec<u16> = (0..4).map(|_| client.get("/flaky/5/2").status).collect();
    assert_eq!(flaky, [503, 503, 200, 200]);
    assert_eq!(client.get("/flaky/6/0").status, 200, "each path is counted on its own");
    assert_eq!(client.get("/callback").status, 405);
    client.send("GET / nonsense\r\n\r\n");
    assert_eq!(client.reply().status, 400);
    assert!(client.is_over());
    let mut client = Socket::new(&server);
    client.send("GET /photo/0 HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!((client.reply().status, client.is_over()), (200, true));
}

#[test]
fn a_server_that_stalls_answers_later_and_takes_callbacks_all_the_time() {
    let server = server(PhotoServerOptions::default());
    server.set_stalled(true);
    let mut client = Socket::new(&server);
    client.send("GET /photo/0 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(Socket::new(&server).call_back("a", "{}"), 204);
    let asked = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            server.set_stalled(false);
        });
        assert_eq!(client.reply().status, 200);
    });
    assert!(asked.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_stalled_request_holds_up_no_other_and_nobody_at_the_end() {
    let server = server(PhotoServerOptions { latency: Latency::NONE, ..PhotoServerOptions::default() });
    let mut stalled = Socket::new(&server);
    stalled.send("GET /stall/0 HTTP/1.1\r\n\r\n");
    assert_eq!(Socket::new(&server).get("/photo/0").status, 200);
    stalled.0.get_mut().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = stalled.0.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    drop(server);
    stalled.0.get_mut().set_read_timeout(None).unwrap();
    assert!(stalled.is_over());
}

#[test]
fn a_slow_photo_takes_its_time_and_is_whole() {
    let server = server(PhotoServerOptions { drip: Duration::from_millis(300), ..PhotoServerOptions::default() });
    let mut client = Socket::new(&server);
    let started = Instant::now();
    assert_eq!(client.get("/slow/0").body[..], photos()[0][..]);
    assert!(started.elapsed() >= Duration::from_millis(290), "{:?}", started.elapsed());
}

#[test]
fn a_body_without_end_goes_on_until_the_client_has_enough() {
    let server = server(PhotoServerOptions::default());
    let mut client = Socket::new(&server);
    client.send("GET /huge/0 HTTP/1.1\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, None));
    let mut body = vec![0; 20 << 20];
    client.0.read_exact(&mut body).unwrap();
    let first_chunk = body.windows(2).position(|end| end == b"\r\n").unwrap() + 2;
    assert!(body[first_chunk..].starts_with(&[0xff, 0xd8]));
}

#[test]
fn answers_take_the_latency_asked_for() {
    let steady = |ms| Latency::new(Duration::from_millis(ms), Duration::from_millis(ms)).unwrap();
    let server = server(PhotoServerOptions {
        latency: steady(30),
        callback_latency: steady(60),
        ..PhotoServerOptions::default()
    });
    let mut client = Socket::new(&server);
    let mut timed = |ask: &dyn Fn(&mut Socket)| {
        let started = Instant::now();
        ask(&mut client);
        started.elapsed()
    };
    assert!(timed(&|client| assert_eq!(client.get("/photo/0").status, 200)) >= Duration::from_millis(30));
    assert!(timed(&|client| assert_eq!(client.get("/missing/0").status, 404)) >= Duration::from_millis(30));
    assert!(timed(&|client| assert_eq!(client.call_back("a", "{}"), 204)) >= Duration::from_millis(60));
    server.callbacks().set_slow(Duration::from_millis(40));
    assert!(timed(&|client| assert_eq!(client.call_back("b", "{}"), 204)) >= Duration::from_millis(100));
}

#[test]
fn callbacks_are_kept_and_refused_while_the_receiver_is_down() {
    let server = server(PhotoServerOptions::default());
    let mut client = Socket::new(&server);
    let callbacks = server.callbacks();
    assert_eq!(client.call_back("a", "one"), 204);
    callbacks.set_down(true);
    assert_eq!(client.call_back("b", "two"), 503);
    callbacks.set_down(false);
    assert_eq!([client.call_back("b", "two"), client.call_back("a", "one")], [204, 204]);
    let told = callbacks.received();
    let told: Vec<(&str, &[u8])> = told.iter().map(|(id, body)| (id.as_str(), &body[..])).collect();
    assert_eq!(told, [("a", &b"one"[..]), ("b", b"two"), ("a", b"one")]);
    assert_eq!((callbacks.count(), server.requests("/callback")), (3, 4));
    let refused = callbacks.calls().remove(1);
    assert_eq!((refused.id.as_str(), refused.bytes, refused.status, refused.body.len()), ("b", 3, 503, 0));
    assert_eq!((refused.timestamp.as_str(), refused.signature.as_str()), ("12", "v1,x="));
}

#[test]
fn many_clients_at_once_each_get_what_they_asked_for() {
    let server = server(PhotoServerOptions::default());
    thread::scope(|scope| {
        for client in 0..32 {
            let server = &server;
            scope.spawn(move || {
                let mut connection = Socket::new(server);
                for n in 0..20 {
                    let path = format!("/photo/{}", client * 20 + n);
                    assert_eq!(connection.get(&path).body[..], photos()[n % 2][..]);
                    assert_eq!(connection.call_back(&path, &path), 204);
                }
            });
        }
    });
    let mut ids: Vec<String> = server.callbacks().received().into_iter().map(|(id, _)| id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), server.all_requests().len()), (640, 641));
}

/// The worker's own client classifies each fault correctly.
#[test]
fn the_guarded_client_tells_the_faults_apart() {
    let server = server(PhotoServerOptions::default());
    let timeout = Duration::from_millis(500);
    let client = Client::new(foveate_net::ClientOptions {
        allow_private: vec!["127.0.0.1".to_owned()],
        max_bytes: 1 << 20,
        timeout,
        ..foveate_net::ClientOptions::default()
    })
    .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut body = Vec::new();
    let mut get =
        |path: &str| runtime.block_on(client.get(&server.url(path), &mut |_| true, &mut body)).map(|_| body.clone());
    assert_eq!(get("/photo/0").unwrap()[..], photos()[0][..]);
    assert!(!get("/missing/0").unwrap_err().transient);
    let error = get("/error/0").unwrap_err();
    assert_eq!((error.transient, error.retry_after), (true, Some(Duration::from_secs(1))));
    assert_eq!([get("/flaky/0/1").unwrap_err().transient, get("/flaky/0/1").is_err()], [true, false]);
    for path in ["/stall/0", "/slow/0"] {
        let started = Instant::now();
        assert!(get(path).unwrap_err().transient, "{path}");
        assert!(started.elapsed() >= timeout, "{path}");
    }
    assert!(!get("/huge/0").unwrap_err().transient, "more than it may be");
    let headers = [("webhook-id", "a")];
    let callback = server.url("/callback");
    assert_eq!(runtime.block_on(client.post(&callback, &headers, b"{}")).unwrap().status, 204);
    server.callbacks().set_down(true);
    assert!(runtime.block_on(client.post(&callback, &headers, b"{}")).unwrap_err().transient);
    assert_eq!(server.callbacks().received(), [("a".to_owned(), b"{}".to_vec())]);
}

#[test]
fn a_server_without_photos_is_refused() {
    assert!(PhotoServer::start(Vec::new(), PhotoServerOptions::default()).is_err());
}
