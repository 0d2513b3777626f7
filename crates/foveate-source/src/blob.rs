//! Containers' bytes, wherever they are.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;

use crate::FetchError;

/// A file or an object whose bytes are read in pieces.
#[allow(clippy::len_without_is_empty, reason = "no caller asks for empty containers")]
pub trait Blob: Send + Sync {
    /// Its path or address, for messages.
    fn name(&self) -> &str;

    /// Its length in bytes; `None` for a stream that can be read only once, from its start.
    fn len(&self) -> Option<u64>;

    /// Its time of modification, if it has one.
    fn modified(&self) -> Option<SystemTime>;

    /// Reads exactly the bytes from `offset` on that fill `out`.
    ///
    /// # Errors
    /// [`FetchError::Damaged`] if the blob ends before; the error that keeps it from being read.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError>;

    /// Opens a reader of the bytes from `offset` on. Its errors convert to [`FetchError`].
    ///
    /// # Errors
    /// If it cannot be opened, or is a stream that was opened before.
    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError>;
}

/// A local file.
pub struct FileBlob {
    name: String,
    path: PathBuf,
    file: Mutex<File>,
    len: u64,
    modified: Option<SystemTime>,
}

impl FileBlob {
    /// Opens the file at `path`, which messages call `name`.
    ///
    /// # Errors
    /// If it cannot be opened, or is no regular file.
    pub fn open(path: &Path, name: impl Into<String>) -> Result<Self, FetchError> {
        let file = crate::fetch::open_regular(path)?;
        let data = file.metadata()?;
        let len = data.len();
        let modified = data.modified().ok();
        Ok(Self { name: name.into(), path: path.to_owned(), file: Mutex::new(file), len, modified })
    }
}

impl Blob for FileBlob {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        let mut file = foveate_core::lock(&self.file);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ends_before(offset + out.len() as u64),
            _ => error.into(),
        })
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Box::new(file))
    }
}

/// Bytes in memory.
#[derive(Clone, Debug)]
pub struct MemoryBlob {
    name: String,
    bytes: Bytes,
    is_stream: bool,
}

impl MemoryBlob {
    /// The file `name` with these `bytes`.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into().into(), is_stream: false }
    }

    /// The same as a stream of unknown length, which is read from its start.
    pub fn stream_of(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { is_stream: true, ..Self::new(name, bytes) }
    }
}

impl Blob for MemoryBlob {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        (!self.is_stream).then_some(self.bytes.len() as u64)
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        if self.is_stream {
            return Err(only_from_the_start(self.name()));
        }
        let end = offset.saturating_add(out.len() as u64);
        let bytes = self.bytes.get(to_index(offset)..to_index(end)).ok_or_else(|| ends_before(end))?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        if self.is_stream && offset > 0 {
            return Err(only_from_the_start(self.name()));
        }
        Ok(Box::new(io::Cursor::new(self.bytes.slice(to_index(offset).min(self.bytes.len())..))))
    }
}

fn to_index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn ends_before(byte: u64) -> FetchError {
    FetchError::Damaged(format!("it ends before byte {byte}"))
}

fn only_from_the_start(name: &str) -> FetchError {
    FetchError::Refused(format!("{name} can only be read from its start"))
}

/// Standard input.
#[derive(Debug, Default)]
pub struct StandardInput(Mutex<bool>);

impl Blob for StandardInput {
    fn name(&self) -> &str {
        "-"
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), FetchError> {
        Err(only_from_the_start("standard input"))
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        let was_read = std::mem::replace(&mut *foveate_core::lock(&self.0), true);
        match (offset, was_read) {
            (0, false) => Ok(Box::new(io::stdin())),
            (0, true) => Err(FetchError::Refused("standard input can be read only once".to_owned())),
            _ => Err(only_from_the_start("standard input")),
        }
    }
}
