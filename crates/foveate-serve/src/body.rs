//! Reads bodies within their limits, undoes their codings, and finds out what they are.

use std::io::{Cursor, Read};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use foveate_net::Codings;
use http_body_util::BodyExt;

use crate::memory::MemoryClaim;
use crate::problem::ApiProblem;
use crate::serving::Serving;

/// The time for which a refused client may continue to send.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes that are decoded at once.
const CHUNK: usize = 64 << 10;
/// Longest boundary of a form (RFC 2046).
const MAX_BOUNDARY: usize = 70;
/// The first bytes of image files, other than the brands of ISO files. This decides only whether a body without a
/// useful `Content-Type` is taken for an image; the engine looks closer.
const SIGNATURES: [&[u8]; 10] =
    [b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*", b"\xff\x0a", b"qoif", b"\0\0\0"];

/// The kind of a body.
pub(crate) enum BodyKind {
    Json,
    Multipart { boundary: String },
    Image,
}

/// Reads the body, and undoes its codings.
pub(crate) async fn read(
    serving: &Serving,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<(Vec<u8>, MemoryClaim), ApiProblem> {
    let header = headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let codings = Codings::parse(header).and_then(|codings| match codings.len() {
        0 | 1 => Ok(codings),
        // What is small before and after may be huge between two.
        _ => Err(codings.to_string()),
    });
    let codings = codings.map_err(|coding| {
        unsupported(format!("a body in {coding} is not understood"), "send it as it is, or in gzip, deflate or br")
    })?;
    let reading = tokio::time::timeout(serving.api.read_timeout, receive(serving, headers, body));
    let received = reading.await.map_err(|_| {
        let detail = format!("the body was not there within {} s", serving.api.read_timeout.as_secs_f64());
        ApiProblem::new(StatusCode::REQUEST_TIMEOUT, detail, "send fewer images, or their URLs")
    })??;
    match codings.is_empty() {
        true => Ok((received.bytes, received.claim)),
        false => tokio::task::block_in_place(|| decode(serving, &codings, received)),
    }
}

/// Bytes that come in pieces, and their room.
struct Growing {
    bytes: Vec<u8>,
    claim: MemoryClaim,
    most: u64,
}

impl Growing {
    fn new(serving: &Serving) -> Self {
        Self { bytes: Vec::new(), claim: serving.memory.claim(), most: serving.api.max_body_bytes }
    }

    /// Adds a piece. Grows to twice the size, but not beyond the expected one.
    fn add(&mut self, piece: &[u8], expected: u64) -> Result<(), ApiProblem> {
        let needed = self.bytes.len() + piece.len();
        if needed as u64 > self.most {
            return Err(too_large(self.most));
        }
        if needed > self.bytes.capacity() {
            let size = (2 * self.bytes.len()).min(expected as usize).max(needed);
            self.claim.grow_to(size as u64)?;
            self.bytes.reserve_exact(size - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// Receives the whole body within its limits. Claims room for the bytes that came, because announcing bytes costs a
/// client nothing.
async fn receive(serving: &Serving, headers: &HeaderMap, body: &mut Body) -> Result<Growing, ApiProblem> {
    let mut received = Growing::new(serving);
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > received.most) {
        return Err(too_large(received.most));
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiProblem::malformed(format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        received.add(&data, announced.unwrap_or(received.most))?;
    }
    Ok(received)
}

/// Undoes a body's codings. What comes out has the limit of a body that is not encoded.
fn decode(serving: &Serving, codings: &Codings, encoded: Growing) -> Result<(Vec<u8>, MemoryClaim), ApiProblem> {
    let mut decoded = Growing::new(serving);
    let mut reader = codings.decode(Box::new(Cursor::new(&encoded.bytes)));
    let mut chunk = vec![0; CHUNK];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok((decoded.bytes, decoded.claim)),
            Ok(read) => decoded.add(&chunk[..read], decoded.most)?,
            Err(error) => return Err(ApiProblem::malformed(format!("the body is damaged {codings}: {error}"))),
        }
    }
}

/// Reads on after a problem, for a while, because clients that are still sending miss the answer if the connection
/// closes. Does not read what a client sends only after a 100 Continue.
pub(crate) async fn linger(serving: &Serving, headers: &HeaderMap, body: &mut Body) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let rest = async {
        let mut left = 2 * serving.api.max_body_bytes;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            if left == 0 {
                break;
            }
        }
    };
    // Slower clients may miss the answer.
    let _ = tokio::time::timeout(LINGER.min(serving.api.read_timeout), rest).await;
}

fn too_large(most: u64) -> ApiProblem {
    let detail = format!("the body is larger than {most} bytes");
    ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, detail, "send fewer images, or their URLs")
}

fn unsupported(detail: String, remedy: &'static str) -> ApiProblem {
    ApiProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail, remedy)
}

impl BodyKind {
    /// The kind by `Content-Type`; by the first bytes if that is absent or says nothing. Many clients send JSON as a
    /// form (curl's `-d`), as text (pages without a preflight request), or without a type.
    pub(crate) fn of(headers: &HeaderMap, body: &[u8]) -> Result<Self, ApiProblem> {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if body.is_empty() {
            return Err(ApiProblem::malformed("the body is empty"));
        }
        match essence.as_str() {
            "application/json" | "text/json" => return Ok(Self::Json),
            "multipart/form-data" => {
                return match multer::parse_boundary(content_type).ok().or_else(|| boundary(body)) {
                    Some(boundary) => Ok(Self::Multipart { boundary }),
                    None => Err(ApiProblem::malformed("Content-Type: a form without a boundary")),
                };
            }
            json if json.ends_with("+json") => return Ok(Self::Json),
            image if image.starts_with("image/") => return Ok(Self::Image),
            _ => {}
        }
        let start = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        if matches!(start.first(), Some(b'{' | b'[')) {
            return Ok(Self::Json);
        }
        if let Some(boundary) = boundary(body) {
            return Ok(Self::Multipart { boundary });
        }
        if essence == "application/octet-stream" || SIGNATURES.iter().any(|signature| body.starts_with(signature)) {
            return Ok(Self::Image);
        }
        let remedy = "send application/json, multipart/form-data, or an image as image/* or application/octet-stream";
        Err(match essence.as_str() {
            "" => {
                unsupported("a body without Content-Type that is neither JSON, a form nor an image".to_owned(), remedy)
            }
            other => unsupported(format!("a body of type '{other}' is not understood"), remedy),
        })
    }
}

/// The boundary of a form, by its first line.
fn boundary(body: &[u8]) -> Option<String> {
    let line = body.strip_prefix(b"--")?.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    let is_one = (1..=MAX_BOUNDARY).contains(&line.len()) && line.iter().all(u8::is_ascii_graphic);
    is_one.then(|| String::from_utf8_lossy(line).into_owned())
}
