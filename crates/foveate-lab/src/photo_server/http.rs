//! As much of HTTP/1.1 (RFC 9112) as a server needs that knows its clients.

use std::io::{self, BufRead, Read, Write};

/// Most bytes of a request's line and headers.
const MOST_HEAD: u64 = 16 << 10;
/// Most bytes of a request's body.
const MOST_BODY: usize = 16 << 20;

/// What was asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether another request may follow on this connection.
    pub(super) keep_alive: bool,
}

impl Request {
    /// A header's value; empty where there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum Unread {
    /// The client is done, or gone.
    Over,
    /// It is told with this status, and the connection ends.
    Refused(u16),
}

impl From<io::Error> for Unread {
    fn from(_: io::Error) -> Self {
        Self::Over
    }
}

/// The next request of a connection.
pub(super) fn read(reader: &mut impl BufRead) -> Result<Request, Unread> {
    let mut lines = head(reader)?.into_iter();
    let line = lines.next().ok_or(Unread::Over)?;
    let no_request = || Unread::Refused(400);
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(no_request()) };
    if !version.starts_with("HTTP/1.") {
        return Err(no_request());
    }
    let headers: Vec<(String, String)> =
        lines.map(|line| field(&line)).collect::<Option<_>>().ok_or_else(no_request)?;
    let keep_alive = version == "HTTP/1.1" && !header(&headers, "connection").eq_ignore_ascii_case("close");
    if !header(&headers, "transfer-encoding").is_empty() {
        return Err(Unread::Refused(411));
    }
    let length = match header(&headers, "content-length") {
        "" => 0,
        length => length.parse().map_err(|_| no_request())?,
    };
    if length > MOST_BODY {
        return Err(Unread::Refused(413));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Request { method: method.to_owned(), path, headers, body, keep_alive })
}

/// The lines before the empty one.
fn head(reader: &mut impl BufRead) -> Result<Vec<String>, Unread> {
    let mut head = reader.by_ref().take(MOST_HEAD);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        // No line at all, or no end of it: the client went away, or says too much.
        if head.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(if head.limit() == 0 { Unread::Refused(431) } else { Unread::Over });
        }
        match line.trim_end() {
            "" => return Ok(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

fn field(line: &str) -> Option<(String, String)> {
    line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// A whole answer, in one piece.
pub(super) fn write(writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
    let mut bytes = start(answer, Some(answer.body.len()));
    bytes.extend_from_slice(answer.body);
    writer.write_all(&bytes)
}

/// What is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    /// Seconds.
    pub(super) retry_after: Option<u64>,
    pub(super) body: &'a [u8],
    pub(super) keep_alive: bool,
}

/// An answer's status line and headers. Without a length its body ends with the connection.
pub(super) fn start(answer: &Answer<'_>, length: Option<usize>) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status));
    // Writing to a string cannot fail.
    let _ = length.map(|length| write!(head, "Content-Length: {length}\r\n"));
    let _ = answer.retry_after.map(|seconds| write!(head, "Retry-After: {seconds}\r\n"));
    if !answer.keep_alive {
        head.push_str("Connection: close\r\n");
    }
    // What it is, the client has to find out: servers say all sorts of things.
    head.push_str("Content-Type: application/octet-stream\r\n\r\n");
    head.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(request: &str) -> Option<u16> {
        match read(&mut request.as_bytes()) {
            Err(Unread::Refused(status)) => Some(status),
            Err(Unread::Over) => None,
            Ok(request) => panic!("{request:?}"),
        }
    }

    #[test]
    fn requests_follow_one_another() {
        let mut bytes = &b"POST /a?b=c HTTP/1.1\r\nWebhook-Id:  x \r\nContent-Length: 2\r\n\r\nhiGET /d HTTP/1.1\r\nconnection: Close\r\n\r\n"[..];
        let first = read(&mut bytes).unwrap();
        assert_eq!((first.method.as_str(), first.path.as_str(), &first.body[..]), ("POST", "/a", &b"hi"[..]));
        assert_eq!((first.header("webhook-id"), first.header("nothing"), first.keep_alive), ("x", "", true));
        let second = read(&mut bytes).unwrap();
        assert_eq!((second.path.as_str(), second.body.len(), second.keep_alive), ("/d", 0, false));
        assert!(matches!(read(&mut bytes), Err(Unread::Over)));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert_eq!(refused("GET /\r\n\r\n"), Some(400));
        assert_eq!(refused("GET / SPDY/1\r\n\r\n"), Some(400));
        assert_eq!(refused("GET / HTTP/1.1\r\nnonsense\r\n\r\n"), Some(400));
        assert_eq!(refused("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n"), Some(400));
        assert_eq!(refused("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), Some(411));
        assert_eq!(refused(&format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", MOST_BODY + 1)), Some(413));
        assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(MOST_HEAD as usize))), Some(431));
        for cut in ["", "GET / HT", "GET / HTTP/1.1\r\na: b\r\n", "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab"] {
            assert_eq!(refused(cut), None, "{cut:?}");
        }
    }
}
