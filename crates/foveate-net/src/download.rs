//! Reads a body: memory in steps, and no slower than the minimum rate.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use crate::ClientOptions;
use crate::deadline::{self, Deadline};

/// Asks for memory: the bytes that a body is going to have so far. Returns false if there is none.
pub(crate) type Admit<'a> = dyn FnMut(u64) -> bool + 'a;

/// The first step of memory; most photos for the web fit in a few more.
const FIRST_STEP: u64 = 64 << 10;
/// Most bytes of one read.
const CHUNK: usize = 16 << 10;

/// Reason that a body was not read to its end.
pub(crate) enum Broken {
    NoRoom,
    Slow,
    Read(io::Error),
}

/// A body on its way.
pub(crate) struct BodyDownload<'a> {
    /// The declared size, or the limit.
    pub(crate) most: u64,
    /// Bytes that were admitted.
    pub(crate) room: u64,
    pub(crate) pace: Pace<'a>,
}

impl BodyDownload<'_> {
    pub(crate) fn read(
        &mut self,
        reader: &mut dyn Read,
        out: &mut Vec<u8>,
        admit: &mut Admit<'_>,
    ) -> Result<(), Broken> {
        let mut chunk = [0; CHUNK];
        loop {
            let have = out.len() as u64;
            if have >= self.room && self.room < self.most || self.room == 0 {
                self.grow(out, admit)?;
            }
            // One byte beyond the last step tells a body that is too large.
            let fits = self.room.saturating_sub(have).clamp(1, CHUNK as u64) as usize;
            match self.pace.read(reader, &mut chunk[..fits])? {
                0 => return Ok(()),
                read => out.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// Doubles the memory.
    fn grow(&mut self, out: &mut Vec<u8>, admit: &mut Admit<'_>) -> Result<(), Broken> {
        self.room = (2 * self.room).max(FIRST_STEP).min(self.most.max(1));
        if !admit(self.room) {
            return Err(Broken::NoRoom);
        }
        out.reserve_exact((self.room as usize).saturating_sub(out.len()));
        self.pace.restart();
        Ok(())
    }
}

/// Compares a body's rate with the minimum, window by window.
pub(crate) struct Pace<'a> {
    options: &'a ClientOptions,
    began: Instant,
    bytes: u64,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(options: &'a ClientOptions) -> Self {
        Self { options, began: Instant::now(), bytes: 0 }
    }

    fn restart(&mut self) {
        (self.began, self.bytes) = (Instant::now(), 0);
    }

    fn read(&mut self, reader: &mut dyn Read, chunk: &mut [u8]) -> Result<usize, Broken> {
        let elapsed = self.began.elapsed();
        let window = self.options.window;
        if elapsed >= window {
            if (self.bytes as f64) < self.options.min_rate as f64 * elapsed.as_secs_f64() {
                return Err(Broken::Slow);
            }
            self.restart();
        }
        let within_window = Deadline::within(window);
        let read = reader.read(chunk);
        drop(within_window);
        match read {
            Ok(read) => {
                self.bytes += read as u64;
                Ok(read)
            }
            Err(error) if is_timeout(&error) && deadline::left() > Duration::ZERO => Err(Broken::Slow),
            Err(error) => Err(Broken::Read(error)),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(ureq::Error::Timeout(_)))
}
