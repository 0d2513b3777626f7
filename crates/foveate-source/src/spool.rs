//! A listing's snapshot: records in memory, or in an unnamed temporary file if there are many.

use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use sha2::{Digest, Sha256};
use tempfile::SpooledTempFile;

use crate::SourceError;
use crate::id::id_of;

/// Listings larger than this go to a temporary file.
const MEMORY_BYTES: usize = 4 << 20;

/// The spool remembers a position every this many records.
const STRIDE: u64 = 4096;

/// One line of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The path's bytes, or the text that is not a path.
    pub(crate) path: Vec<u8>,
    /// The reason that it cannot be read, if already known; empty otherwise.
    pub(crate) fault: String,
    /// The [`Version`](crate::store::Version) of a container or an object, as text; empty for files.
    pub(crate) version: String,
}

/// Collects records.
pub(crate) struct SpoolWriter {
    file: BufWriter<SpooledTempFile>,
    written: u64,
    limit: u64,
    marks: Vec<u64>,
    records: u64,
    hash: Sha256,
}

impl SpoolWriter {
    /// A spool of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            file: BufWriter::new(SpooledTempFile::new(MEMORY_BYTES)),
            written: 0,
            limit,
            marks: Vec::new(),
            records: 0,
            hash: Sha256::new_with_prefix(b"foveate listing 1\n"),
        }
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn push(&mut self, path: &[u8], fault: &str, version: &str) -> Result<(), SourceError> {
        self.hashed(id_of(path).as_bytes());
        if self.records.is_multiple_of(STRIDE) {
            self.marks.push(self.written);
        }
        self.records += 1;
        self.field(path)?;
        self.field(fault.as_bytes())?;
        self.field(version.as_bytes())
    }

    /// Makes `text` part of the hash.
    pub(crate) fn hashed(&mut self, text: &[u8]) {
        self.hash.update((text.len() as u64).to_le_bytes()); // so that no two listings have the same bytes
        self.hash.update(text);
    }

    fn field(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.written += 4 + bytes.len() as u64;
        if self.written > self.limit {
            return Err(SourceError::TooLarge { limit: self.limit });
        }
        write_field(&mut self.file, bytes).map_err(spool_error)
    }

    /// The complete listing, at its first record.
    pub(crate) fn finish(self) -> Result<Spool, SourceError> {
        let file = self.file.into_inner().map_err(|error| spool_error(error.into_error()))?;
        let hash = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut spool = Spool {
            on_disk: file.is_rolled(),
            file: BufReader::new(file),
            marks: self.marks,
            records: self.records,
            next: 0,
            hash,
        };
        spool.rewind_to(0, 0)?;
        Ok(spool)
    }
}

/// Returns records in order, from any position.
pub(crate) struct Spool {
    file: BufReader<SpooledTempFile>,
    marks: Vec<u64>,
    records: u64,
    next: u64,
    hash: String,
    on_disk: bool,
}

impl Spool {
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Number of the next record.
    pub(crate) fn position(&self) -> u64 {
        self.next
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.on_disk
    }

    /// Reads the next record into `record` and returns its number; `None` after the last.
    pub(crate) fn read(&mut self, record: &mut Record) -> Result<Option<u64>, SourceError> {
        if self.next >= self.records {
            return Ok(None);
        }
        read_field(&mut self.file, &mut record.path).map_err(spool_error)?;
        read_text(&mut self.file, &mut record.fault)?;
        read_text(&mut self.file, &mut record.version)?;
        self.next += 1;
        Ok(Some(self.next - 1))
    }

    /// Continues at record `index`, or at the end if there is no such record.
    pub(crate) fn seek(&mut self, index: u64) -> Result<(), SourceError> {
        if index >= self.records {
            self.next = self.records;
            return Ok(());
        }
        let mark = index / STRIDE;
        self.rewind_to(mark * STRIDE, self.marks[mark as usize])?; // one mark for every stride begun
        let mut skipped = Record::default();
        while self.next < index {
            self.read(&mut skipped)?;
        }
        Ok(())
    }

    fn rewind_to(&mut self, record: u64, offset: u64) -> Result<(), SourceError> {
        self.file.seek(SeekFrom::Start(offset)).map_err(spool_error)?;
        self.next = record;
        Ok(())
    }
}

/// Reads bytes after their number.
pub(crate) fn read_field(file: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut len = [0; 4];
    file.read_exact(&mut len)?;
    bytes.clear();
    bytes.resize(u32::from_le_bytes(len) as usize, 0);
    file.read_exact(bytes)
}

/// Writes what [`read_field`] reads.
pub(crate) fn write_field(file: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(|_| io::Error::other(format!("a path of {} bytes", bytes.len())))?;
    file.write_all(&len.to_le_bytes())?;
    file.write_all(bytes)
}

fn read_text(file: &mut impl Read, text: &mut String) -> Result<(), SourceError> {
    let mut bytes = std::mem::take(text).into_bytes();
    read_field(file, &mut bytes).map_err(spool_error)?;
    *text = String::from_utf8(bytes)
        .map_err(|_| SourceError::Invalid("the listing's temporary file is damaged".to_owned()))?;
    Ok(())
}

fn spool_error(source: std::io::Error) -> SourceError {
    SourceError::Io {
        action: format!("keep the listing in a temporary file under {}", std::env::temp_dir().display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(records: u64) -> Spool {
        let mut writer = SpoolWriter::new(u64::MAX);
        for i in 0..records {
            writer.push(format!("folder/{i:08}.jpg").as_bytes(), if i % 1000 == 7 { "gone" } else { "" }, "").unwrap();
        }
        writer.finish().unwrap()
    }

    fn expect(spool: &mut Spool, index: u64) {
        let mut record = Record::default();
        assert_eq!(spool.read(&mut record).unwrap(), Some(index));
        assert_eq!(record.path, format!("folder/{index:08}.jpg").as_bytes());
        assert_eq!(record.fault, if index % 1000 == 7 { "gone" } else { "" });
    }

    #[test]
    fn records_come_back_in_order_from_memory_and_from_disk() {
        for (records, on_disk) in [(0, false), (1, false), (10_000, false), (200_000, true)] {
            let mut spool = spool(records);
            assert_eq!((spool.records(), spool.is_on_disk()), (records, on_disk));
            for index in 0..records {
                expect(&mut spool, index);
            }
            assert_eq!(spool.read(&mut Record::default()).unwrap(), None);
        }
    }

    #[test]
    fn seeking_finds_every_place_and_the_end() {
        let mut spool = spool(2 * STRIDE + 5);
        for index in [STRIDE, 0, STRIDE - 1, 2 * STRIDE + 4, STRIDE + 1, 2 * STRIDE, 1] {
            spool.seek(index).unwrap();
            expect(&mut spool, index);
        }
        for beyond in [2 * STRIDE + 5, u64::MAX] {
            spool.seek(beyond).unwrap();
            assert_eq!(spool.read(&mut Record::default()).unwrap(), None);
        }
    }

    #[test]
    fn the_hash_tells_listings_apart() {
        let hash = |ids: &[&str]| {
            let mut writer = SpoolWriter::new(u64::MAX);
            ids.iter().for_each(|id| writer.push(id.as_bytes(), "", "").unwrap());
            writer.finish().unwrap().hash().to_owned()
        };
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        assert_eq!(hash(&[]).len(), 64);
        for other in [&["b", "a"][..], &["ab"], &["a", "b", ""], &["a"], &[]] {
            assert_ne!(hash(&["a", "b"]), hash(other), "{other:?}");
        }
    }
}
