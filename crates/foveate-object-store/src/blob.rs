//! Objects read in pieces: containers.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::SystemTime;

use foveate_source::FetchError;
use foveate_source::blob::Blob;
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::read::Target;

/// Size of the parts of a stream.
const PART: u64 = 8 << 20;

/// Size of the first part, which comes sooner.
const FIRST_PART: u64 = 1 << 20;

/// Parts of one stream in flight.
const PARALLEL: usize = 8;

/// An object of known length.
pub(crate) struct ObjectBlob {
    core: Arc<Core>,
    target: Target,
    len: u64,
}

impl ObjectBlob {
    /// Asks for the object's length if that is not known yet.
    pub(crate) fn open(core: &Arc<Core>, mut target: Target, head: bool) -> Result<Self, FetchError> {
        if target.version.len.is_none() {
            target.version = core.block_on(target.examine(head))?;
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
            out.copy_from_slice(&self.core.block_on(self.target.clone().part(offset, len))?);
        }
        Ok(())
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        Ok(Box::new(Parts {
            core: Arc::clone(&self.core),
            target: self.target.clone(),
            next: offset.min(self.len),
            end: self.len,
            size: FIRST_PART,
            coming: VecDeque::new(),
            part: Vec::new(),
            read: 0,
        }))
    }
}

/// Reads ahead, several parts at a time.
struct Parts {
    core: Arc<Core>,
    target: Target,
    /// Where the next part begins that is not asked for yet.
    next: u64,
    end: u64,
    size: u64,
    coming: VecDeque<JoinHandle<Result<Vec<u8>, FetchError>>>,
    part: Vec<u8>,
    /// How much of `part` was read.
    read: usize,
}

impl Parts {
    fn ask(&mut self) {
        while self.coming.len() < PARALLEL && self.next < self.end {
            let (start, len) = (self.next, self.size.min(self.end - self.next));
            let mut target = self.target.clone();
            self.coming.push_back(self.core.spawn(async move { target.part(start, len).await }));
            self.next += len;
            self.size = PART;
        }
    }
}

impl Read for Parts {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read == self.part.len() {
            self.part = Vec::new();
            self.read = 0;
            self.ask();
            if let Some(part) = self.coming.pop_front() {
                self.part = self.core.block_on(part).map_err(io::Error::other)??;
                self.ask();
            }
        }
        let count = out.len().min(self.part.len() - self.read);
        out[..count].copy_from_slice(&self.part[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.coming.iter().for_each(JoinHandle::abort);
    }
}
