//! The bytes of a tar: decompressed, and without those that are not needed.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use foveate_core::lock;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::store::scheme_of;

use crate::buffers::Buffers;
use crate::compression::{Compression, MAGIC, is_end, sniff};

/// Bytes read at once: a few small members, and little of a large one, because what is read here is copied.
const BUFFER: usize = 16 << 10;

/// Bytes read at once where only headers are wanted.
const PAGE: usize = 4 << 10;

/// Reading on past this many bytes takes a store about as long as answering another request.
const REQUEST: u64 = 8 << 20;

/// Memory that a member gets on its header's word.
const TRUSTED: u64 = 16 << 20;

type Stream = Box<dyn Read + Send>;

/// The bytes of a tar, in order.
pub(crate) struct TarInput {
    bytes: BufReader<Stream>,
    buffers: Buffers,
    position: u64,
    /// The blob and its length if it is the tar itself, so that any position can be reached.
    plain: Option<(Arc<dyn Blob>, u64)>,
    compressed: Option<(Compression, Fault)>,
}

impl TarInput {
    pub(crate) fn open(blob: Arc<dyn Blob>, buffers: Buffers) -> Result<Self, FetchError> {
        let mut stream = blob.stream(0)?;
        let mut head = Vec::new();
        (&mut stream).take(MAGIC).read_to_end(&mut head)?;
        let compression = sniff(&head).map_err(FetchError::Damaged)?;
        let whole = Cursor::new(head).chain(stream);
        let Some(compression) = compression else {
            let plain = blob.len().map(|len| (blob, len));
            let bytes = BufReader::with_capacity(BUFFER, Box::new(whole) as Stream);
            return Ok(Self { bytes, buffers, position: 0, plain, compressed: None });
        };
        let fault = Fault::default();
        let source = Guarded { source: whole, fault: Arc::clone(&fault) };
        let decoded = compression.decode(BufReader::with_capacity(BUFFER, source));
        let bytes = BufReader::with_capacity(BUFFER, decoded);
        Ok(Self { bytes, buffers, position: 0, plain: None, compressed: Some((compression, fault)) })
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Fills `out` as far as there are bytes, and returns their number.
    pub(crate) fn fill(&mut self, out: &mut [u8]) -> Result<usize, FetchError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.bytes.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        self.position += filled as u64;
        Ok(filled)
    }

    /// The next `len` bytes, or `None` if there are fewer.
    pub(crate) fn read(&mut self, len: u64) -> Result<Option<Bytes>, FetchError> {
        if !self.may_have(len) {
            return Ok(None);
        }
        let mut out = self.buffers.take(len.min(TRUSTED) as usize);
        let mut read = 0;
        loop {
            read += self.fill(&mut out[read..])?;
            match usize::try_from(len) {
                _ if read < out.len() => return Ok(None),
                Ok(len) if read == len => return Ok(Some(self.buffers.lend(out))),
                // No more than what came already.
                len => out.grow(len.unwrap_or(usize::MAX).min(2 * read))?,
            }
        }
    }

    /// Leaves `len` bytes out; `false` if there are fewer.
    pub(crate) fn pass(&mut self, len: u64) -> Result<bool, FetchError> {
        if !self.may_have(len) {
            return Ok(false);
        }
        if self.plain.as_ref().is_some_and(|(blob, _)| len > self.near(blob.as_ref())) {
            self.seek(self.position + len, self.bytes.capacity())?;
            return Ok(true);
        }
        let mut left = len;
        while left > 0 {
            let here = match self.bytes.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(here) => left.min(here.len() as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failure(error)),
            };
            self.bytes.consume(here as usize);
            self.position += here;
            left -= here;
        }
        Ok(true)
    }

    /// Reads little at once, for headers alone, or much again.
    pub(crate) fn skim(&mut self, little: bool) -> Result<(), FetchError> {
        match &self.plain {
            Some((blob, _)) if scheme_of(blob.name().as_bytes()).is_none() => {
                self.seek(self.position, if little { PAGE } else { BUFFER })
            }
            _ => Ok(()),
        }
    }

    /// The distance over which reading on takes no longer than opening the blob again.
    fn near(&self, blob: &dyn Blob) -> u64 {
        let buffered = self.bytes.buffer().len() as u64;
        match scheme_of(blob.name().as_bytes()) {
            Some(_) => buffered.max(REQUEST),
            None => buffered + self.bytes.capacity() as u64,
        }
    }

    fn seek(&mut self, position: u64, capacity: usize) -> Result<(), FetchError> {
        if let Some((blob, _)) = &self.plain {
            self.bytes = BufReader::with_capacity(capacity, blob.stream(position)?);
            self.position = position;
        }
        Ok(())
    }

    /// Returns true if a blob of known length has `len` more bytes. Others may have any number.
    fn may_have(&self, len: u64) -> bool {
        let end = self.position.checked_add(len);
        self.plain.as_ref().is_none_or(|(_, whole)| end.is_some_and(|end| end <= *whole))
    }

    /// An error of the storage, or the damage that a decoder found.
    fn failure(&self, error: io::Error) -> FetchError {
        let Some((compression, fault)) = &self.compressed else { return error.into() };
        let name = compression.name();
        let is_cut = is_end(&error);
        match lock(fault).take() {
            Some(fault) => fault,
            None if is_cut => FetchError::Damaged(format!("its {name} stream is cut short")),
            None => FetchError::Damaged(format!("its {name} stream is damaged: {error}")),
        }
    }
}

/// The storage's error, which a decoder may report as its own.
type Fault = Arc<Mutex<Option<FetchError>>>;

/// Keeps the storage's errors apart from the decoders'.
struct Guarded<R> {
    source: R,
    fault: Fault,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.source.read(out) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                *lock(&self.fault) = Some(error.into());
                Err(io::Error::other("the storage failed"))
            }
            read => read,
        }
    }
}
