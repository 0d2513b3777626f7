//! Objects read in pieces: containers.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::core::Core;
use crate::read::{ByteTaker, ObjectTarget};

/// Size of the parts of a stream.
const PART: u64 = 8 << 20;

/// Parts of one stream in flight.
const PARALLEL: usize = 8;

/// An object of known length.
pub(crate) struct ObjectBlob {
    core: Arc<Core>,
    target: ObjectTarget,
    len: u64,
}

impl ObjectBlob {
    /// Asks for the object's length if that is not known yet.
    pub(crate) fn open(core: &Arc<Core>, mut target: ObjectTarget) -> Result<Self, FetchError> {
        if target.version.len.is_none() {
            target.version = core.block_on(target.examine())?;
        }
        let len = target.version.len.unwrap_or_default();
        Ok(Self { core: Arc::clone(core), target, len })
    }
}

impl Blob for ObjectBlob {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn modified(&self) -> Option<SystemTime> {
        self.target.version.modified
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        let len = out.len() as u64;
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {}
            _ => return Err(FetchError::Damaged(format!("it ends before byte {}", offset.saturating_add(len)))),
        }
        if len > 0 {
            self.core.block_on(self.target.clone().part(offset, len, &mut &mut *out))?;
        }
        Ok(())
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        Ok(Box::new(ParallelRead {
            core: Arc::clone(&self.core),
            target: self.target.clone(),
            next: offset.min(self.len),
            end: self.len,
            coming: VecDeque::new(),
            bytes: Bytes::new(),
        }))
    }
}

/// Reads ahead, several parts at a time.
struct ParallelRead {
    core: Arc<Core>,
    target: ObjectTarget,
    /// The start of the next part that is not asked for yet.
    next: u64,
    end: u64,
    coming: VecDeque<PartRead>,
    /// Bytes that came and are not read yet.
    bytes: Bytes,
}

/// A part on its way.
struct PartRead {
    /// Bytes that did not come yet.
    left: u64,
    bytes: mpsc::UnboundedReceiver<Result<Bytes, FetchError>>,
    reading: AbortHandle,
}

impl Drop for PartRead {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl ParallelRead {
    fn ask(&mut self) {
        while self.coming.len() < PARALLEL && self.next < self.end {
            let start = self.next;
            let left = PART.min(self.end - self.next);
            let (mut sender, bytes) = mpsc::unbounded_channel();
            let mut target = self.target.clone();
            let reading = self.core.spawn(async move {
                if let Err(error) = target.part(start, left, &mut sender).await {
                    // The reader may be gone.
                    let _ = sender.send(Err(error));
                }
            });
            self.coming.push_back(PartRead { left, bytes, reading: reading.abort_handle() });
            self.next += left;
        }
    }

    /// The next bytes, as soon as they are there; none at the end.
    fn advance(&mut self) -> Result<Bytes, FetchError> {
        if self.coming.front().is_some_and(|part| part.left == 0) {
            self.coming.pop_front();
        }
        self.ask();
        let Some(part) = self.coming.front_mut() else { return Ok(Bytes::new()) };
        match part.bytes.blocking_recv() {
            Some(bytes) => {
                let bytes = bytes?;
                part.left -= bytes.len() as u64;
                Ok(bytes)
            }
            None => Err(FetchError::Unreachable(format!("{}: reading stopped", self.target.name))),
        }
    }
}

impl Read for ParallelRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.bytes = self.advance()?;
        }
        let count = out.len().min(self.bytes.len());
        self.bytes.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

/// Hands bytes over as they come. None is the end, so there are always some.
impl ByteTaker for mpsc::UnboundedSender<Result<Bytes, FetchError>> {
    fn take(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            // The reader may be gone.
            let _ = self.send(Ok(bytes));
        }
    }
}

/// Fills memory, which has room for all that was asked for.
impl ByteTaker for &mut [u8] {
    fn take(&mut self, bytes: Bytes) {
        let (filled, rest) = std::mem::take(self).split_at_mut(bytes.len());
        filled.copy_from_slice(&bytes);
        *self = rest;
    }
}
