//! Frames: what segments are made of. Each has a kind, a payload and its checksum.

use std::io::Read;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::SinkError;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Rows = 0,
    Failures = 1,
    Inputs = 2,
    End = 3,
}

impl FrameKind {
    const ALL: [Self; 4] = [Self::Rows, Self::Failures, Self::Inputs, Self::End];
}

/// Bytes before each payload.
pub(super) const FRAME_HEAD: u64 = 17;

/// Bytes of a payload's fixed start.
pub(super) const PAYLOAD_HEAD: usize = 8;
/// Bytes per row in a payload, apart from columns and text.
pub(super) const PER_ROW: usize = 8 + 8 + 4 + 4 + 4;
/// The length of a null.
pub(super) const NULL: u32 = u32::MAX;

/// The reason why a frame cannot be read.
#[derive(Debug)]
pub(crate) enum FrameError {
    Io(std::io::Error),
    Damaged(&'static str),
}

impl FrameError {
    pub(crate) fn into_sink_error(self, path: &Path) -> SinkError {
        match self {
            Self::Io(error) => SinkError::io("read", path)(error),
            Self::Damaged(reason) => SinkError::damaged(path, reason),
        }
    }
}

/// Reads successive frames.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    reader: R,
    left: u64,
    /// Of the frame that was read last.
    pub(crate) payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Frames in the first `len` bytes of `reader`.
    pub(crate) fn new(reader: R, len: u64) -> Self {
        Self { reader, left: len, payload: Vec::new() }
    }

    /// Reads the next frame's payload and returns its kind; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<FrameKind>, FrameError> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut head = [0; FRAME_HEAD as usize];
        self.left = self.left.checked_sub(FRAME_HEAD).ok_or(FrameError::Damaged("a frame is cut off"))?;
        self.reader.read_exact(&mut head).map_err(FrameError::Io)?;
        let mut fields = Fields(&head[1..]);
        let len = fields.u64().unwrap_or(0);
        let checksum = fields.u64().unwrap_or(0);
        // Check against the actual length before allocating memory.
        self.left = self.left.checked_sub(len).ok_or(FrameError::Damaged("a frame is cut off"))?;
        self.payload.resize(len as usize, 0);
        self.reader.read_exact(&mut self.payload).map_err(FrameError::Io)?;
        if xxh3_64_with_seed(&self.payload, u64::from(head[0])) != checksum {
            return Err(FrameError::Damaged("a frame does not match its checksum"));
        }
        let kind = FrameKind::ALL.into_iter().find(|kind| *kind as u8 == head[0]);
        kind.map(Some).ok_or(FrameError::Damaged("a frame is of an unknown kind"))
    }
}

/// Takes little-endian fields from the front of a slice.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
