//! A small HTTP server that behaves as a test requires, well or badly.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// One received request.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Asked {
    pub(super) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Fate of a connection after an answer.
pub(super) enum Then {
    Keep,
    Close,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    pub(super) asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers each request with `answer`, which may write anything to the connection.
    pub(super) fn start(answer: impl Fn(&Asked, &mut TcpStream) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Self { address: listener.local_addr().unwrap(), connections: Arc::default(), asked: Arc::default() };
        let connections = server.connections.clone();
        let asked = server.asked.clone();
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                connections.fetch_add(1, Ordering::SeqCst);
                let asked = asked.clone();
                let answer = answer.clone();
                thread::spawn(move || connection(stream, &asked, &*answer));
            }
        });
        server
    }

    /// Answers every request with these bytes, and keeps the connection open.
    pub(super) fn fixed(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| {
            let _ = stream.write_all(&answer);
            Then::Keep
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The number of requests so far.
    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// An answer with a content length.
pub(super) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn redirect(to: &str) -> Vec<u8> {
    answer("302 Found", &format!("Location: {to}\r\n"), b"moved")
}

fn connection(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked, &mut TcpStream) -> Then) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read_request(&mut reader) {
        asked.lock().unwrap().push(request.clone());
        if matches!(answer(&request, &mut stream), Then::Close) {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Asked> {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        Some(line.trim_end().to_owned())
    };
    let mut asked = Asked { line: line()?, ..Asked::default() };
    loop {
        match line()? {
            empty if empty.is_empty() => break,
            header => {
                let (name, value) = header.split_once(':')?;
                asked.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }
    let length = asked.header("content-length").map_or(0, |n| n.parse().unwrap());
    asked.body = vec![0; length];
    reader.read_exact(&mut asked.body).ok()?;
    Some(asked)
}
