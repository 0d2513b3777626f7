//! The entries of a tar. The tar crate reads its headers; their order and their limits are kept here, because its own
//! reader takes any amount of memory for a name.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use tar::{EntryType, GnuExtSparseHeader, Header};

use crate::buffers::Buffers;
use crate::input::TarInput;

const BLOCK: u64 = 512;

/// Largest name or PAX header.
const MAX_EXTENSION: u64 = 1 << 20;

/// A member of an archive, of any kind. Its content comes next: it is [read](Archive::read) or [passed](Archive::pass).
#[derive(Debug)]
pub(crate) struct TarEntry {
    /// As it is written, without a leading `./`; any bytes.
    pub(crate) name: Vec<u8>,
    /// Length of its content.
    pub(crate) size: u64,
    pub(crate) modified: Option<SystemTime>,
    /// The name of the member that a hard link is.
    pub(crate) target: Vec<u8>,
    /// The reason that it has no content, if it is no file.
    pub(crate) special: Option<&'static str>,
}

impl TarEntry {
    pub(crate) fn is_hard_link(&self) -> bool {
        self.special == Some(HARD_LINK)
    }
}

pub(crate) struct Archive {
    input: TarInput,
    /// Bytes between the last content and the next header.
    padding: u64,
    /// True if the last block was of the end-of-archive marker.
    is_marked: bool,
    is_over: bool,
}

impl Archive {
    pub(crate) fn open(blob: Arc<dyn Blob>, buffers: Buffers) -> Result<Self, FetchError> {
        Ok(Self { input: TarInput::open(blob, buffers)?, padding: 0, is_marked: false, is_over: false })
    }

    /// The next entry, or `None` after the last one.
    pub(crate) fn next_entry(&mut self) -> Result<Option<TarEntry>, FetchError> {
        let mut extensions = Extensions::default();
        while let Some(header) = self.header()? {
            let size = size(&header).ok_or_else(|| self.bad_header("size"))?;
            match header.entry_type() {
                EntryType::GNULongName => extensions.name = Some(self.extension(size)?.into()),
                EntryType::XHeader => {
                    let records = self.extension(size)?;
                    extensions.read(&records).ok_or_else(|| self.bad_header("PAX header"))?;
                }
                EntryType::GNULongLink => extensions.target = Some(self.extension(size)?.into()),
                EntryType::XGlobalHeader => self.pass_by(b"a header", size)?,
                _ => return self.entry(&header, size, extensions).map(Some),
            }
        }
        Ok(None)
    }

    /// The content of `entry`, the last that was found.
    pub(crate) fn read(&mut self, entry: &TarEntry) -> Result<Bytes, FetchError> {
        let content = self.input.read(entry.size)?.ok_or_else(|| cut_short(&entry.name))?;
        self.padding = padding(entry.size);
        Ok(content)
    }

    /// `size` bytes from `position` on, if that lies before what comes next and there are so many.
    pub(crate) fn read_at(&mut self, position: u64, size: u64) -> Result<Option<Bytes>, FetchError> {
        self.input.pass(position)?;
        self.input.read(size)
    }

    /// Bytes of the tar before what comes next.
    pub(crate) fn position(&self) -> u64 {
        self.input.position()
    }

    /// Leaves out the content of `entry`, the last that was found.
    pub(crate) fn pass(&mut self, entry: &TarEntry) -> Result<(), FetchError> {
        self.pass_by(&entry.name, entry.size)
    }

    /// Prepares for entries that are passed, or for such that are read.
    pub(crate) fn skim(&mut self, passing: bool) -> Result<(), FetchError> {
        self.input.skim(passing)
    }

    fn pass_by(&mut self, name: &[u8], size: u64) -> Result<(), FetchError> {
        if !self.input.pass(size)? {
            return Err(cut_short(name));
        }
        self.padding = padding(size);
        Ok(())
    }

    /// The next header. Archives that are laid end to end are one: after an end-of-archive marker, which is blocks of
    /// zeros, there may be another header, and anything else is ignored.
    fn header(&mut self) -> Result<Option<Header>, FetchError> {
        let mut header = Header::new_old();
        let is_whole = self.input.pass(std::mem::take(&mut self.padding))?;
        while is_whole && !self.is_over {
            let is_first = self.input.position() == 0;
            let read = self.input.fill(header.as_mut_bytes())? as u64;
            if read == BLOCK && header.as_bytes().iter().all(|&byte| byte == 0) {
                self.is_marked = true;
                continue;
            }
            if read == BLOCK && is_sound(&header) {
                self.is_marked = false;
                return Ok(Some(header));
            }
            self.is_over = true;
            match read {
                _ if self.is_marked => {}
                0 if is_first => return Err(damaged("it is empty")),
                _ if is_first => return Err(damaged("it is no tar archive")),
                BLOCK => return Err(self.bad_header("header")),
                _ => return Err(damaged(NO_MARKER)),
            }
        }
        if is_whole { Ok(None) } else { Err(damaged(NO_MARKER)) }
    }

    /// The content of a header that extends the next one.
    fn extension(&mut self, size: u64) -> Result<Bytes, FetchError> {
        if size > MAX_EXTENSION {
            return Err(self.bad_header("header's length"));
        }
        let content = self.input.read(size)?.ok_or_else(|| cut_short(b"a header"))?;
        self.padding = padding(size);
        Ok(content)
    }

    fn entry(&mut self, header: &Header, size: u64, extensions: Extensions) -> Result<TarEntry, FetchError> {
        let kind = header.entry_type();
        if kind == EntryType::GNUSparse {
            self.sparse_headers(header)?;
        }
        let special = if extensions.is_sparse { Some(SPARSE) } else { special(kind) };
        // Whatever their headers say.
        let has_content = !matches!(special, Some(HARD_LINK | SYMBOLIC_LINK | DEVICE | PIPE | FOLDER));
        let name = tidy_name(extensions.name.unwrap_or_else(|| header.path_bytes().into_owned()), kind);
        let modified = header.mtime().ok().and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        let size = if has_content { extensions.size.unwrap_or(size) } else { 0 };
        let target = extensions.target.or_else(|| header.link_name_bytes().map(Cow::into_owned)).unwrap_or_default();
        Ok(TarEntry { name, size, modified, target: tidy_name(target, EntryType::Link), special })
    }

    /// Reads on past the headers that list a sparse file's pieces.
    fn sparse_headers(&mut self, header: &Header) -> Result<(), FetchError> {
        let mut more = header.as_gnu().is_some_and(tar::GnuHeader::is_extended);
        while more {
            let mut pieces = GnuExtSparseHeader::new();
            if self.input.fill(pieces.as_mut_bytes())? as u64 != BLOCK {
                return Err(cut_short(b"a header"));
            }
            more = pieces.is_extended();
        }
        Ok(())
    }

    fn bad_header(&self, what: &str) -> FetchError {
        damaged(&format!("a bad {what} before byte {}", self.input.position()))
    }
}

const NO_MARKER: &str = "it ends without an end-of-archive marker; it may be cut short";

const HARD_LINK: &str = "a hard link";
const SYMBOLIC_LINK: &str = "a symbolic link";
const DEVICE: &str = "a device";
const PIPE: &str = "a named pipe";
const FOLDER: &str = "a folder";
const SPARSE: &str = "a sparse file, of which the archive has pieces";

fn special(kind: EntryType) -> Option<&'static str> {
    match kind {
        EntryType::Regular | EntryType::Continuous => None,
        EntryType::Link => Some(HARD_LINK),
        EntryType::Symlink => Some(SYMBOLIC_LINK),
        EntryType::Char | EntryType::Block => Some(DEVICE),
        EntryType::Fifo => Some(PIPE),
        EntryType::Directory => Some(FOLDER),
        EntryType::GNUSparse => Some(SPARSE),
        _ => Some("of an unknown kind"),
    }
}

/// The length of the content. Old programs write blanks where they mean zero.
fn size(header: &Header) -> Option<u64> {
    let field = &header.as_old().size;
    let is_blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if is_blank { Some(0) } else { header.entry_size().ok() }
}

/// A name without its `./` and, if it is a folder's, with a slash at its end.
fn tidy_name(mut name: Vec<u8>, kind: EntryType) -> Vec<u8> {
    name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
    let dots = name.chunks_exact(2).take_while(|two| two == b"./").count();
    name.drain(..2 * dots);
    if kind == EntryType::Directory && !name.ends_with(b"/") {
        name.push(b'/');
    }
    name
}

/// The properties of a member that the headers before its own name.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Extensions {
    /// Reads PAX records: `length key=value\n`, where a value may be any bytes. (The tar crate takes a line end for the
    /// end of a record, but macOS writes binary attributes.)
    fn read(&mut self, mut records: &[u8]) -> Option<()> {
        while !records.is_empty() && records[0] != 0 {
            let space = records.iter().position(|&byte| byte == b' ')?;
            let len: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
            let record = records.get(space + 1..len)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&byte| byte == b'=')?;
            self.set(&record[..equals], &record[equals + 1..])?;
            records = &records[len..];
        }
        Some(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        self.is_sparse |= key.starts_with(b"GNU.sparse.");
        match key {
            b"path" | b"GNU.sparse.name" => self.name = Some(value.to_owned()),
            b"linkpath" => self.target = Some(value.to_owned()),
            b"size" => self.size = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
            _ => {}
        }
        Some(())
    }
}

/// Returns true if a header's checksum is right. Some old programs added its bytes as signed numbers.
fn is_sound(header: &Header) -> bool {
    let mut bytes = *header.as_bytes();
    // The checksum's own field counts as spaces.
    bytes[148..156].fill(b' ');
    let unsigned: i64 = bytes.iter().map(|&byte| i64::from(byte)).sum();
    let signed: i64 = bytes.iter().map(|byte| i64::from(byte.cast_signed())).sum();
    header.cksum().is_ok_and(|stored| [unsigned, signed].contains(&stored.into()))
}

fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK) - size
}

fn cut_short(name: &[u8]) -> FetchError {
    damaged(&format!("it ends in the middle of {}", String::from_utf8_lossy(name)))
}

fn damaged(why: &str) -> FetchError {
    FetchError::Damaged(why.to_owned())
}
