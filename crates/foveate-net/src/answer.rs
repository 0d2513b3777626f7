//! Interprets an answer: its status, its `Retry-After`, and why a request failed.

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use hyper::body::Incoming;
use hyper::header::{AsHeaderName, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, RETRY_AFTER};
use hyper::{Method, Response, StatusCode};

use crate::NetError;
use crate::connect::NoConnection;
use crate::target::HttpTarget;

/// Longest `Retry-After` that is honoured.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The error of an unsuccessful answer to a request of this method.
pub(crate) fn refusal(target: &HttpTarget, method: &Method, response: &Response<Incoming>) -> NetError {
    let status = response.status();
    NetError {
        transient: if method == Method::POST { !refuses_body(status) } else { is_transient(status) },
        retry_after: header(response, RETRY_AFTER).and_then(|value| retry_after(value, SystemTime::now())),
        reached: Some(true),
        status: Some(status.as_u16()),
        ..NetError::permanent(format!("{target}: answered {status}"))
    }
}

/// The properties of a file that an answer names. Each may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    /// The length of the whole file in bytes.
    pub len: Option<u64>,
    /// The entity tag, in quotes.
    pub tag: Option<String>,
    /// The time of the last modification.
    pub modified: Option<SystemTime>,
}

impl AnswerFacts {
    pub(crate) fn of(response: &Response<Incoming>) -> Self {
        let declared = header(response, CONTENT_LENGTH).and_then(|bytes| bytes.trim().parse().ok());
        let len = match span(response) {
            Some(span) => span.of,
            // An encoded answer has another length than its file.
            None => declared.filter(|_| !is_encoded(response)),
        };
        let tag = header(response, ETAG).map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty());
        let modified = header(response, LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date.trim()).ok());
        Self { len, tag, modified }
    }
}

/// The part of a file that an answer holds.
pub(crate) struct AnswerSpan {
    pub(crate) start: u64,
    /// The whole file's length.
    pub(crate) of: Option<u64>,
}

/// The span of an answer with a part (`Content-Range: bytes 0-99/1000`).
pub(crate) fn span(response: &Response<Incoming>) -> Option<AnswerSpan> {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return None;
    }
    let (range, of) = header(response, CONTENT_RANGE)?.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    Some(AnswerSpan { start: range.split('-').next()?.trim().parse().ok()?, of: of.trim().parse().ok() })
}

pub(crate) fn is_encoded(response: &Response<Incoming>) -> bool {
    header(response, CONTENT_ENCODING).is_some_and(|coding| !coding.trim().eq_ignore_ascii_case("identity"))
}

/// Returns true if an answer is a web page and no image, even if it claims another type.
pub(crate) fn is_page(content_type: &str, body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    for html in [&b"<!doctype html"[..], b"<html"] {
        if start.get(..html.len()).is_some_and(|start| start.eq_ignore_ascii_case(html)) {
            return true;
        }
    }
    let is_html = content_type.trim().get(..9).is_some_and(|start| start.eq_ignore_ascii_case("text/html"));
    is_html && start.first() == Some(&b'<')
}

pub(crate) fn header(response: &Response<Incoming>, name: impl AsHeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// Returns true if a retry of a download may succeed.
fn is_transient(status: StatusCode) -> bool {
    match status.as_u16() {
        // 202 means not ready yet: services that make images on demand send it.
        202 => true,
        408 | 425 | 429 => true,
        501 | 505 => false,
        other => other >= 500,
    }
}

/// Returns true if a receiver refuses what was posted. Every other answer is about the receiver, and holds for a
/// moment: 404 while it is deployed, 401 while its keys change.
fn refuses_body(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 406 | 409 | 411..=417 | 422 | 431)
}

/// `Retry-After` is in seconds or a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // More seconds than the type can hold.
        Err(_) if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => LONGEST_WAIT,
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(LONGEST_WAIT))
}

/// The error of an answer that took too long.
pub(crate) fn late(target: &HttpTarget, patience: Duration) -> NetError {
    NetError::on_the_way(false, format!("{target}: not done within {patience:?}"))
}

/// The error of a missing or incomplete answer, in the order of `error` and its causes. `connect` is the time for a
/// connection.
pub(crate) fn failure(target: &HttpTarget, connect: Duration, error: &(dyn Error + 'static)) -> NetError {
    let mut socket = None;
    let mut last = error;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<NetError>() {
            return error.clone();
        }
        if error.is::<NoConnection>() {
            return NetError::on_the_way(false, format!("{target}: no connection within {connect:?}"));
        }
        // An untrusted or expired certificate, a wrong clock, or no TLS at all.
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return NetError::on_the_way(true, format!("{target}: no safe connection ({error})"));
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>().and_then(|error| of_http(target, error)) {
            return error;
        }
        socket = error.downcast_ref::<io::Error>().or(socket);
        last = error;
        cause = source(error);
    }
    match socket {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => early_end(target),
        Some(error) => NetError { reached: reached(error), ..NetError::transient(format!("{target}: {error}")) },
        None => NetError::permanent(format!("{target}: {last}")),
    }
}

/// The cause of an error. `source` skips the inner error of an `io::Error`.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn of_http(target: &HttpTarget, error: &hyper::Error) -> Option<NetError> {
    if error.is_parse() {
        return Some(NetError::permanent(format!("{target}: answered with no valid HTTP ({error})")));
    }
    (error.is_incomplete_message() || error.is_canceled()).then(|| early_end(target))
}

/// Returns true if a body's connection ended before the body did.
pub(crate) fn is_early_end(error: &hyper::Error) -> bool {
    let socket = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    error.is_incomplete_message() || socket.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

fn early_end(target: &HttpTarget) -> NetError {
    NetError::on_the_way(true, format!("{target}: the connection ended too early"))
}

/// Returns true if an answer of another machine caused an error of a socket.
fn reached(error: &io::Error) -> Option<bool> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            Some(true)
        }
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::TimedOut => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        let transient = |status| is_transient(StatusCode::from_u16(status).unwrap());
        assert!([202, 408, 425, 429, 500, 502, 503, 504, 520, 599].into_iter().all(transient));
        assert!(![201, 204, 206, 300, 304, 400, 401, 403, 404, 410, 418, 451, 501, 505].into_iter().any(transient));
    }

    #[test]
    fn only_what_is_posted_makes_a_post_permanent() {
        let refused = |status: &u16| refuses_body(StatusCode::from_u16(*status).unwrap());
        assert!([400, 413, 415, 422].iter().all(refused));
        assert!(![301, 401, 403, 404, 405, 408, 410, 429, 500, 501, 503].iter().any(refused));
    }

    #[test]
    fn waits_are_read_as_seconds_and_as_dates_and_bounded() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = |value| retry_after(value, now).map(|wait| wait.as_secs());
        assert_eq!((seconds("0"), seconds(" 120 "), seconds("99999")), (Some(0), Some(120), Some(3600)));
        assert_eq!(seconds("99999999999999999999999"), Some(3600));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:00 GMT"), Some(23));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:50:00 GMT"), Some(23));
        assert_eq!(
            (seconds("Sun, 06 Nov 1994 08:00:00 GMT"), seconds("Sun, 07 Nov 2094 08:00:00 GMT")),
            (Some(0), Some(3600))
        );
        assert_eq!((seconds(""), seconds("-1"), seconds("1.5"), seconds("soon")), (None, None, None, None));
    }
}
