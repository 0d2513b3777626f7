//! A proxy before a store that answers with the store's errors, loses answers and drops conditions.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// The fate of a request.
pub enum Act {
    /// It is passed on.
    Pass,
    /// It is answered with this status and code, and not passed on.
    Refuse(&'static str, &'static str),
    /// It is answered with this body, and not passed on.
    Answer(Vec<u8>),
    /// It is passed on, and its answer is lost.
    Lose,
    /// It is passed on without the condition that it has.
    Force,
}

/// Passes requests on to the HTTP `server` as `act` says, which gets their numbers. Returns its own address.
pub fn proxy(server: &str, act: impl Fn(usize, &[u8]) -> Act + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.trim_start_matches("http://").to_owned();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let mut client = client.unwrap();
            let Some(mut request) = request(&mut client) else { continue };
            let act = act(number, &request);
            let answer = match act {
                Act::Refuse(status, code) => Some((status, format!("<Error><Code>{code}</Code></Error>").into_bytes())),
                Act::Answer(ref body) => Some(("200 OK", body.clone())),
                _ => None,
            };
            if let Some((status, body)) = answer {
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close", body.len());
                let _ = client.write_all(&[format!("{head}\r\n\r\n").as_bytes(), &body].concat());
                continue;
            }
            if let (Act::Force, Some(at)) = (&act, request.windows(13).position(|name| name == b"if-none-match")) {
                request[at..at + 2].copy_from_slice(b"xx");
            }
            let mut upstream = TcpStream::connect(&server).unwrap();
            upstream.write_all(&request).unwrap();
            let mut answer = Vec::new();
            upstream.read_to_end(&mut answer).unwrap();
            if !matches!(act, Act::Lose) {
                let _ = client.write_all(&answer);
            }
        }
    });
    format!("http://{address}")
}

/// A whole request, for a connection that ends with its answer.
fn request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 1 << 16];
    loop {
        match client.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
        let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        if request.len() >= end + 4 + length.map_or(0, |length| length.parse().unwrap()) {
            request.splice(end..end, b"\r\nConnection: close".iter().copied());
            return Some(request);
        }
    }
}
