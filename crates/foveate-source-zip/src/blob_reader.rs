use std::cell::RefCell;
use std::io;

use foveate_source::FetchError;
use foveate_source::blob::Blob;
use rawzip::ReaderAt;

/// Bytes of the end that are read at once: the end record with the longest comment, and the whole directory of a small
/// archive.
const TAIL: u64 = 128 << 10;

/// Bytes of the directory that are read at once: in an object store, each read is a request.
const AHEAD: u64 = 4 << 20;

/// Reads a blob at random places for the directory's parser, in few pieces.
pub(crate) struct BlobReader<'a> {
    blob: &'a dyn Blob,
    len: u64,
    tail: Piece,
    latest: RefCell<Piece>,
}

#[derive(Default)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> BlobReader<'a> {
    /// Reads the end of `blob`.
    pub(crate) fn new(blob: &'a dyn Blob) -> Result<Self, FetchError> {
        let Some(len) = blob.len() else {
            let why = "a zip archive has its directory at its end, which a stream does not reach; give it as a file";
            return Err(FetchError::Refused(why.to_owned()));
        };
        let tail = Piece::read(blob, len.saturating_sub(TAIL), len.min(TAIL))?;
        Ok(Self { blob, len, tail, latest: RefCell::default() })
    }

    /// The blob's last bytes.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail.bytes
    }

    /// Their start.
    pub(crate) fn tail_start(&self) -> u64 {
        self.tail.start
    }
}

impl ReaderAt for BlobReader<'_> {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.len || out.is_empty() {
            return Ok(0);
        }
        if let Some(copied) = self.tail.copy(offset, out) {
            return Ok(copied);
        }
        let mut latest = self.latest.borrow_mut();
        if let Some(copied) = latest.copy(offset, out) {
            return Ok(copied);
        }
        *latest = Piece::read(self.blob, offset, AHEAD.min(self.len - offset))?;
        Ok(latest.copy(offset, out).unwrap_or(0))
    }
}

impl Piece {
    fn read(blob: &dyn Blob, start: u64, len: u64) -> Result<Self, FetchError> {
        let mut bytes = vec![0; len as usize]; // at most AHEAD
        blob.read_at(start, &mut bytes)?;
        Ok(Self { start, bytes })
    }

    /// Copies the bytes from `offset` on, if they begin in this piece.
    fn copy(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..).filter(|bytes| !bytes.is_empty())?;
        let count = bytes.len().min(out.len());
        out[..count].copy_from_slice(&bytes[..count]);
        Some(count)
    }
}
