//! One HTTP server for honest photos, hostile hosts and receivers of callbacks. It listens at every loopback address,
//! and the path says what it does:
//!
//! | path | answer |
//! |---|---|
//! | `/photo/N`, `/slow/N`, `/broken/N` | a photo soon, a photo after 3 seconds, no photo |
//! | `/silent/N` | none |
//! | `/drip/N` | headers, then a byte now and then |
//! | `/endless/N` | headers without end |
//! | `/bomb/N`, `/gzip/N` | a small PNG of 100 megapixels; a compressed body of 64 MiB |
//! | `/callback`, `/flaky` | 204; 503 for every fifth callback |
//! | `/missing/N` | 404 until the outage ends, then as `/callback` |
//! | `/once/…` | 8 times as an honest server, then the rest of the path |

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result};
use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Compression, Crc};
use serde_json::Value;

/// Small photos, so that a worker waits for the network and not for its processor.
const PHOTOS: [&str; 2] = ["24_exact_224.jpg", "23_thumb_256.jpg"];
/// Latency of a photo, as on the web.
const LATENCY: Duration = Duration::from_millis(50);
const SLOW: Duration = Duration::from_secs(3);
/// Honest answers of `/once/`.
const HONEST_ONCE: usize = 8;
/// Bytes that a `/gzip/` body inflates to: twice what a worker takes.
const INFLATED: usize = 64 << 20;
/// Pixels per side of a bomb. Workers take at most 100 megapixels.
const BOMB_SIDE: u32 = 10_000;

/// The outcome of one job, as its receiver sees it.
pub(super) struct AnsweredJob {
    pub(super) first: Instant,
    pub(super) times: usize,
    result: u64,
    /// True if a later callback had another result.
    pub(super) differs: bool,
}

/// Callbacks that were taken, by the job's id, and what the paths with a memory count.
#[derive(Default)]
pub(super) struct SiteRecord {
    pub(super) answered: BTreeMap<String, AnsweredJob>,
    once: usize,
    flaky: usize,
    is_recovered: bool,
}

impl SiteRecord {
    /// Jobs that were answered, of those whose id begins so.
    pub(super) fn count(&self, prefix: &str) -> usize {
        self.answered.keys().filter(|id| id.starts_with(prefix)).count()
    }

    fn take(&mut self, body: &[u8]) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        body["result"].to_string().hash(&mut hasher);
        let result = hasher.finish();
        let id = body["id"].as_str().unwrap_or_default().to_owned();
        let job =
            self.answered.entry(id).or_insert(AnsweredJob { first: Instant::now(), times: 0, result, differs: false });
        job.times += 1;
        job.differs |= job.result != result;
    }
}

/// The server. It lives as long as the process.
pub(super) struct HostileSite {
    pub(super) port: u16,
    record: Mutex<SiteRecord>,
    photos: Vec<Vec<u8>>,
    bomb: Vec<u8>,
    gzip: Vec<u8>,
}

impl HostileSite {
    pub(super) fn start(root: &Path) -> Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen")?;
        let mut photos = Vec::new();
        for name in PHOTOS {
            photos.push(fs::read(root.join("tests/fixtures/goldens/photos").join(name))?);
        }
        let port = listener.local_addr()?.port();
        let site = Arc::new(Self { port, record: Mutex::default(), photos, bomb: bomb()?, gzip: gzip()? });
        let serving = Arc::clone(&site);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // It listens everywhere, because no address stands for all of loopback.
                if !stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
                    continue;
                }
                let site = Arc::clone(&serving);
                // A worker that opens too many connections ends some of them.
                let _ = thread::Builder::new().stack_size(256 << 10).spawn(move || site.serve(stream));
            }
        });
        Ok(site)
    }

    pub(super) fn url(&self, address: &str, path: &str) -> String {
        format!("http://{address}:{}/{path}", self.port)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, SiteRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the outage of `/missing/`.
    pub(super) fn recover(&self) {
        self.record().is_recovered = true;
    }

    /// Answers requests until the client or an answer ends the connection.
    fn serve(&self, stream: TcpStream) {
        let Ok(mut answer) = stream.try_clone() else { return };
        let mut requests = BufReader::new(stream);
        while let Ok(Some(request)) = SiteRequest::read(&mut requests) {
            if self.answer(&request, &mut answer).is_err() {
                break;
            }
        }
    }

    fn answer(&self, request: &SiteRequest, stream: &mut TcpStream) -> io::Result<()> {
        let mut path = request.path.trim_start_matches('/');
        if let Some(then) = path.strip_prefix("once/") {
            let mut record = self.record();
            record.once += 1;
            path = match record.once <= HONEST_ONCE {
                true if request.is_post => "callback",
                true => "photo/0",
                false => then,
            };
        }
        let (what, n) = path.split_once('/').unwrap_or((path, "0"));
        let photo = &self.photos[n.parse::<usize>().unwrap_or(0) % self.photos.len()];
        match what {
            "photo" => {
                sleep(LATENCY);
                respond(stream, "200 OK", photo)
            }
            "slow" => {
                sleep(SLOW);
                respond(stream, "200 OK", photo)
            }
            "broken" => respond(stream, "200 OK", b"not a photo"),
            "bomb" => respond(stream, "200 OK", &self.bomb),
            "gzip" => respond(stream, "200 OK\r\nContent-Encoding: gzip", &self.gzip),
            "drip" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n")?;
                loop {
                    stream.write_all(b"x")?;
                    sleep(Duration::from_millis(100));
                }
            }
            "endless" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
                loop {
                    stream.write_all(format!("X-More: {}\r\n", "x".repeat(1000)).as_bytes())?;
                }
            }
            "silent" => {
                while stream.read(&mut [0; 4096])? > 0 {}
                Ok(())
            }
            "callback" | "flaky" | "missing" => {
                let mut record = self.record();
                record.flaky += usize::from(what == "flaky");
                let status = match what {
                    "missing" if !record.is_recovered => "404 Not Found",
                    "flaky" if record.flaky.is_multiple_of(5) => "503 Service Unavailable",
                    _ => "204 No Content",
                };
                if status.starts_with("204") {
                    record.take(&request.body);
                }
                drop(record);
                respond(stream, status, b"")
            }
            _ => respond(stream, "400 Bad Request", b""),
        }
    }
}

struct SiteRequest {
    is_post: bool,
    path: String,
    body: Vec<u8>,
}

impl SiteRequest {
    /// Reads a request with its body; `None` at the connection's end.
    fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut first = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end().split_once(':') {
                _ if first.is_empty() => first = line,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                None => break,
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        Ok(Some(Self { is_post: first.starts_with("POST"), path, body }))
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    // A 204 has no length.
    let length = if body.is_empty() && status.starts_with("204") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status}\r\n{length}\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())
}

/// A PNG of one colour with a bit per pixel.
fn bomb() -> Result<Vec<u8>> {
    let mut pixels = ZlibEncoder::new(Vec::new(), Compression::best());
    let row = vec![0; 1 + BOMB_SIDE.div_ceil(8) as usize];
    for _ in 0..BOMB_SIDE {
        pixels.write_all(&row)?;
    }
    let side = BOMB_SIDE.to_be_bytes();
    let header = [&side[..], &side, &[1, 0, 0, 0, 0]].concat();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in [(b"IHDR", header), (b"IDAT", pixels.finish()?), (b"IEND", Vec::new())] {
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(&data);
        let length = u32::try_from(data.len())?.to_be_bytes();
        png.extend([&length[..], name, &data, &crc.sum().to_be_bytes()].concat());
    }
    Ok(png)
}

fn gzip() -> Result<Vec<u8>> {
    let mut body = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..INFLATED / zeros.len() {
        body.write_all(&zeros)?;
    }
    Ok(body.finish()?)
}
