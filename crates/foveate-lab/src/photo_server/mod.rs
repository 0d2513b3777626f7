//! A web server on loopback that serves photos about as slowly as the web does, fails in all the ways that servers fail when
//! it is asked to, and takes callbacks: what a worker is measured and tested with.
//!
//! `GET` of these paths; `N` is any number, photos are counted round and round:
//!
//! | path | answer |
//! |---|---|
//! | `/photo/N` | a photo |
//! | `/corrupt/N` | a photo that is broken in its middle |
//! | `/missing/N` | 404 |
//! | `/stall/N` | the request is taken and never answered |
//! | `/slow/N` | a photo, whose bytes take [`Options::drip`] in all |
//! | `/error/N` | 503 with `Retry-After: 1` |
//! | `/flaky/N/K` | 503 the first `K` times that this path is asked for, then a photo |
//! | `/bomb/N` | a small file that claims 60 000 × 60 000 pixels: a PNG, for odd numbers a JPEG |
//! | `/huge/N` | a body that never ends, without `Content-Length` |
//!
//! and `POST /callback`, see [`Callbacks`]. Every answer but those of `/stall` comes after a [`Latency`].

mod callbacks;
mod connections;
mod http;
mod latency;
mod routes;

use std::collections::BTreeMap;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use callbacks::{Call, Callbacks};
use connections::Connections;
use http::{Answer, Request, Unread};
pub use latency::Latency;
use routes::Route;

/// How a server answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Time until anything but a callback is answered.
    pub latency: Latency,
    /// Time until a callback is answered.
    pub callback_latency: Latency,
    /// How long the bytes of `/slow/` take.
    pub drip: Duration,
    /// Connections at once, at least 1, a thread each; others are taken when one ends.
    pub max_connections: usize,
    /// What latencies depend on.
    pub seed: u64,
}

impl Default for Options {
    /// At once, but for the 10 seconds of `/slow/`; 512 connections.
    fn default() -> Self {
        let none = Latency::NONE;
        Self { latency: none, callback_latency: none, drip: Duration::from_secs(10), max_connections: 512, seed: 0 }
    }
}

/// How long a connection may be idle, or a client may take to read what it is sent.
const IDLE: Duration = Duration::from_secs(60);
/// When the system cannot take another connection.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// How soon a server that stands still notices that it may go on.
const LOOK: Duration = Duration::from_millis(20);
/// A connection's thread needs little.
const STACK: usize = 256 << 10;
/// In so many pieces the bytes of `/slow/` come.
const DRIPS: usize = 100;
/// Bytes of a piece of `/huge/`.
const CHUNK: usize = 64 << 10;
/// Most paths that are counted. Others are refused: nothing is forgotten without a word.
const MOST_PATHS: usize = 1 << 20;

/// A server that is running; it stops when it is dropped.
#[derive(Debug)]
pub struct PhotoServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    photos: Vec<Arc<[u8]>>,
    jpeg_bomb: Vec<u8>,
    options: Options,
    stalled: AtomicBool,
    counts: Mutex<BTreeMap<String, u64>>,
    callbacks: Callbacks,
    connections: Connections,
}

impl PhotoServer {
    /// Serves `photos`, at least one, on a free port of loopback.
    ///
    /// # Errors
    /// When there is no photo, or no port.
    pub fn start(photos: Vec<Arc<[u8]>>, options: Options) -> io::Result<Self> {
        if photos.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a photo server needs a photo"));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            photos,
            jpeg_bomb: routes::jpeg_bomb(),
            connections: Connections::new(options.max_connections),
            options,
            stalled: AtomicBool::new(false),
            counts: Mutex::default(),
            callbacks: Callbacks::default(),
        });
        let listening = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("photo-server".to_owned()).spawn(move || listening.listen(&listener))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often a path was asked for.
    pub fn requests(&self, path: &str) -> u64 {
        self.shared.counts().get(path).copied().unwrap_or(0)
    }

    /// How often each path was asked for.
    pub fn all_requests(&self) -> BTreeMap<String, u64> {
        self.shared.counts().clone()
    }

    /// From now on nothing but callbacks is answered, or everything again, what was asked in the meantime too.
    pub fn set_stalled(&self, stalled: bool) {
        self.shared.stalled.store(stalled, Ordering::SeqCst);
    }

    /// Who takes what is posted to `/callback`.
    pub fn callbacks(&self) -> &Callbacks {
        &self.shared.callbacks
    }
}

impl Drop for PhotoServer {
    fn drop(&mut self) {
        self.shared.connections.stop();
        // Somebody has to knock for the listener to notice. Where nobody can, its thread is left alone.
        if TcpStream::connect(self.address).is_ok() {
            // A panic of its own it has already told.
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

impl Shared {
    fn listen(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            while self.connections.wait_for_room() {
                let Ok((stream, _)) = listener.accept() else {
                    // Too many open files, most likely: there will be fewer.
                    self.connections.sleep(TRY_AGAIN);
                    continue;
                };
                let Some(number) = self.connections.begin(&stream) else { continue };
                let talk = move || {
                    // An error is the client's going away, or being too slow.
                    let _ = self.talk(&stream);
                    self.connections.end(number);
                };
                if thread::Builder::new().stack_size(STACK).spawn_scoped(scope, talk).is_err() {
                    self.connections.end(number);
                }
            }
        });
    }

    /// One request of a connection after the other.
    fn talk(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(IDLE))?;
        let mut reader = BufReader::new(stream);
        loop {
            match http::read(&mut reader) {
                Err(Unread::Over) => return Ok(()),
                Err(Unread::Refused(status)) => return write(stream, &Answer { status, ..Answer::default() }),
                Ok(request) => {
                    let keep_alive = request.keep_alive;
                    self.answer(request, stream)?;
                    if !keep_alive {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// An error ends the connection.
    fn answer(&self, request: Request, stream: &TcpStream) -> io::Result<()> {
        let answer = Answer { keep_alive: request.keep_alive, ..Answer::default() };
        let (method, route) = (request.method.as_str(), Route::parse(&request.path));
        let Some(route) = route else { return write(stream, &Answer { status: 404, ..answer }) };
        if method != if route == Route::Callback { "POST" } else { "GET" } {
            return write(stream, &Answer { status: 405, ..answer });
        }
        let Some(visit) = self.count(&request.path) else { return write(stream, &Answer { status: 507, ..answer }) };
        if route == Route::Callback {
            return self.take_callback(request, stream);
        }
        while self.stalled.load(Ordering::SeqCst) {
            self.wait(LOOK)?;
        }
        if route != Route::Stall {
            self.wait(self.options.latency.draw(self.options.seed, &request.path, visit))?;
        }
        self.send(route, visit, answer, stream)
    }

    fn send(&self, route: Route, visit: u64, answer: Answer<'_>, stream: &TcpStream) -> io::Result<()> {
        let ok = Answer { status: 200, ..answer };
        match route {
            Route::Flaky(_, times) if visit < times => write(stream, &Answer { status: 503, ..answer }),
            Route::Photo(n) | Route::Flaky(n, _) => write(stream, &Answer { body: self.photo(n), ..ok }),
            Route::Corrupt(n) => write(stream, &Answer { body: &routes::corrupt(self.photo(n)), ..ok }),
            Route::Bomb(n) if n % 2 == 1 => write(stream, &Answer { body: &self.jpeg_bomb, ..ok }),
            Route::Bomb(_) => write(stream, &Answer { body: routes::PNG_BOMB, ..ok }),
            Route::Error => write(stream, &Answer { status: 503, retry_after: Some(1), ..answer }),
            Route::Missing | Route::Callback => write(stream, &Answer { status: 404, ..answer }),
            Route::Slow(n) => self.drip(&Answer { body: self.photo(n), ..ok }, stream),
            Route::Huge => self.pour(stream),
            Route::Stall => stall(stream),
        }
    }

    fn take_callback(&self, request: Request, stream: &TcpStream) -> io::Result<()> {
        let answer = Answer { keep_alive: request.keep_alive, ..Answer::default() };
        let latency = self.options.callback_latency.draw(self.options.seed, request.header("webhook-id"), 0);
        self.wait(latency + self.callbacks.slow())?;
        write(stream, &Answer { status: self.callbacks.take(request), ..answer })
    }

    fn photo(&self, n: u64) -> &[u8] {
        &self.photos[(n % self.photos.len() as u64) as usize]
    }

    fn drip(&self, answer: &Answer<'_>, mut stream: &TcpStream) -> io::Result<()> {
        stream.write_all(&http::start(answer, Some(answer.body.len())))?;
        for piece in answer.body.chunks(answer.body.len().div_ceil(DRIPS).max(1)) {
            self.wait(self.options.drip / DRIPS as u32)?;
            stream.write_all(piece)?;
        }
        Ok(())
    }

    /// What looks like the beginning of a JPEG, and goes on until the client has enough.
    fn pour(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.write_all(&http::start(&Answer { status: 200, ..Answer::default() }, None))?;
        stream.write_all(&self.jpeg_bomb)?;
        loop {
            stream.write_all(&[0; CHUNK])?;
        }
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        let is_over = !time.is_zero() && !self.connections.sleep(time);
        if is_over { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// How often it was asked for before; `None` when there are too many paths to count.
    fn count(&self, path: &str) -> Option<u64> {
        let mut counts = self.counts();
        if counts.len() >= MOST_PATHS && !counts.contains_key(path) {
            return None;
        }
        let count = counts.entry(path.to_owned()).or_default();
        *count += 1;
        Some(*count - 1)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(mut stream: &TcpStream, answer: &Answer<'_>) -> io::Result<()> {
    http::write(&mut stream, answer)
}

/// Until the client goes away, or the server does.
fn stall(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    while stream.read(&mut [0; 512])? > 0 {}
    Err(ErrorKind::ConnectionAborted.into())
}
