//! Reads a body: memory in steps, and no slower than the minimum rate.

use std::future::{Future, ready};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};

use crate::ClientOptions;
use crate::time_left::TimeLeft;

/// Memory for a download. Any `FnMut(u64) -> bool` is one that answers at once.
pub trait DownloadRoom: Send {
    /// Waits for memory for `bytes` bytes in all: the size that a body is going to have so far. Returns false if there
    /// is none, which fails the download. This time does not count.
    fn grow(&mut self, bytes: u64) -> impl Future<Output = bool> + Send;
}

impl<F: FnMut(u64) -> bool + Send> DownloadRoom for F {
    fn grow(&mut self, bytes: u64) -> impl Future<Output = bool> + Send {
        ready(self(bytes))
    }
}

/// The first step of memory; most photos for the web fit in a few more.
const FIRST_STEP: u64 = 64 << 10;

/// Reason that a body was not read to its end.
pub(crate) enum Broken {
    NoRoom,
    Slow,
    Late,
    /// There are more bytes than allowed.
    TooLarge,
    Read(hyper::Error),
}

/// A body on its way.
pub(crate) struct BodyDownload<'a, R> {
    pub(crate) options: &'a ClientOptions,
    pub(crate) time: &'a mut TimeLeft,
    pub(crate) room: &'a mut R,
    /// The declared size, or the limit.
    pub(crate) most: u64,
    /// Bytes that there is room for.
    pub(crate) admitted: u64,
}

impl<R: DownloadRoom> BodyDownload<'_, R> {
    /// Appends the body to `out`.
    pub(crate) async fn read(&mut self, mut body: Incoming, out: &mut Vec<u8>) -> Result<(), Broken> {
        let mut pace = Pace::new(self.options);
        self.make_room(1, &mut pace).await?;
        while let Some(data) = self.next(&mut body, &mut pace).await? {
            let have = (out.len() + data.len()) as u64;
            if have > self.options.max_bytes {
                return Err(Broken::TooLarge);
            }
            self.make_room(have, &mut pace).await?;
            out.reserve_exact((self.admitted as usize).saturating_sub(out.len()));
            out.extend_from_slice(&data);
        }
        Ok(())
    }

    /// Doubles the memory until `have` bytes fit.
    async fn make_room(&mut self, have: u64, pace: &mut Pace<'_>) -> Result<(), Broken> {
        while have > self.admitted {
            let admitted = (2 * self.admitted).max(FIRST_STEP).min(self.most.max(have));
            if !self.room.grow(admitted).await {
                return Err(Broken::NoRoom);
            }
            self.admitted = admitted;
            pace.restart();
        }
        Ok(())
    }

    async fn next(&mut self, body: &mut Incoming, pace: &mut Pace<'_>) -> Result<Option<Bytes>, Broken> {
        pace.check()?;
        let frame = self.time.spend(self.options.window, body.frame()).await;
        let frame = frame.map_err(|_| if self.time.is_over() { Broken::Late } else { Broken::Slow })?;
        let Some(frame) = frame.transpose().map_err(Broken::Read)? else { return Ok(None) };
        // Trailers are no part of the file.
        let data = frame.into_data().unwrap_or_default();
        pace.bytes += data.len() as u64;
        Ok(Some(data))
    }
}

/// Reads a short rest of a body, so that its connection can be reused; a new connection costs less than a long rest.
pub(crate) async fn discard(mut body: Incoming) {
    /// Most bytes that are read.
    const MOST: u64 = 16 << 10;
    /// Longest time for that.
    const PATIENCE: Duration = Duration::from_millis(500);
    if body.size_hint().lower() > MOST {
        return;
    }
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
            if read > MOST {
                return;
            }
        }
    };
    // A failure only costs the connection.
    let _ = tokio::time::timeout(PATIENCE, reading).await;
}

/// Compares a body's rate with the minimum, window by window.
struct Pace<'a> {
    options: &'a ClientOptions,
    began: Instant,
    bytes: u64,
}

impl<'a> Pace<'a> {
    fn new(options: &'a ClientOptions) -> Self {
        Self { options, began: Instant::now(), bytes: 0 }
    }

    fn restart(&mut self) {
        (self.began, self.bytes) = (Instant::now(), 0);
    }

    fn check(&mut self) -> Result<(), Broken> {
        let elapsed = self.began.elapsed();
        if elapsed < self.options.window {
            return Ok(());
        }
        if (self.bytes as f64) < self.options.min_rate as f64 * elapsed.as_secs_f64() {
            return Err(Broken::Slow);
        }
        self.restart();
        Ok(())
    }
}
