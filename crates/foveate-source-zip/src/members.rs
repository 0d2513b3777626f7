use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::vec::IntoIter;

use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerOptions, Member, MemberContent, MemberName, Members};

use crate::entry::{LOCAL_HEADER, LOCAL_SIGNATURE, ZipEntry};

/// Bytes between two members that are read and dropped rather than skipped, which takes another request of a store.
const GAP: u64 = 1 << 20;

/// The images of an archive, in the order of their offsets.
pub(crate) struct ZipMembers {
    blob: Arc<dyn Blob>,
    entries: IntoIter<ZipEntry>,
    reader: Option<ForwardReader>,
    max_bytes: u64,
    columns: usize,
}

/// A reader with its position in the archive.
struct ForwardReader {
    reader: BufReader<Box<dyn Read + Send>>,
    position: u64,
}

impl ZipMembers {
    pub(crate) fn new(blob: Arc<dyn Blob>, entries: Vec<ZipEntry>, options: &ContainerOptions) -> Self {
        let max_bytes = options.max_bytes;
        let columns = options.columns.len();
        Self { blob, entries: entries.into_iter(), reader: None, max_bytes, columns }
    }

    /// Returns an entry's content. An error is one of the storage.
    fn content(&mut self, entry: &ZipEntry) -> Result<MemberContent, FetchError> {
        if let Err(error) = entry.check(self.blob.len().unwrap_or(0), self.max_bytes) {
            return Ok(MemberContent::Failed(error));
        }
        match self.packed(entry) {
            Ok(packed) => Ok(entry.unpack(packed).map_or_else(MemberContent::Failed, MemberContent::Here)),
            Err(error @ FetchError::Damaged(_)) => Ok(MemberContent::Failed(error)),
            Err(error) => Err(error),
        }
    }

    /// Reads an entry's bytes in the archive. Continues with the reader only after a success.
    fn packed(&mut self, entry: &ZipEntry) -> Result<Vec<u8>, FetchError> {
        let mut reader = match self.reader.take().filter(|reader| reader.is_near(entry.offset)) {
            Some(reader) => reader,
            None => ForwardReader::open(self.blob.as_ref(), entry.offset)?,
        };
        let packed = reader.member(entry).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FetchError::Damaged("the archive ends within it".to_owned()),
            _ => error.into(),
        })?;
        self.reader = Some(reader);
        Ok(packed)
    }
}

impl Members for ZipMembers {
    fn next(&mut self) -> Result<Option<Member>, FetchError> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let content = self.content(&entry)?;
        let version = entry.version();
        let columns = vec![None; self.columns].into();
        Ok(Some(Member { name: MemberName::Key(entry.name.into()), content, version, columns }))
    }

    fn skip(&mut self, count: u64) -> Result<(), FetchError> {
        self.entries.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX)).for_each(drop);
        Ok(())
    }
}

impl ForwardReader {
    fn open(blob: &dyn Blob, position: u64) -> Result<Self, FetchError> {
        Ok(Self { reader: BufReader::with_capacity(256 << 10, blob.stream(position)?), position })
    }

    fn is_near(&self, offset: u64) -> bool {
        offset.checked_sub(self.position).is_some_and(|gap| gap <= GAP)
    }

    /// Reads the member at or after this position: its local header, which repeats the name and the extra field, and
    /// its bytes.
    fn member(&mut self, entry: &ZipEntry) -> io::Result<Vec<u8>> {
        self.pass(entry.offset - self.position)?;
        let mut header = [0; LOCAL_HEADER];
        self.reader.read_exact(&mut header)?;
        if !header.starts_with(LOCAL_SIGNATURE) {
            return Err(FetchError::Damaged("its header is damaged".to_owned()).into());
        }
        self.position += LOCAL_HEADER as u64;
        let [name, extra] = [26, 28].map(|at| u64::from(u16::from_le_bytes([header[at], header[at + 1]])));
        self.pass(name + extra)?;
        // Checked to be within the archive and the limit.
        let mut packed = Vec::new();
        packed.try_reserve_exact(usize::try_from(entry.packed).unwrap_or(usize::MAX))?;
        self.reader.by_ref().take(entry.packed).read_to_end(&mut packed)?;
        self.position += packed.len() as u64;
        if (packed.len() as u64) < entry.packed { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(packed) }
    }

    /// Reads and drops `count` bytes.
    fn pass(&mut self, count: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.reader.by_ref().take(count), &mut io::sink())?;
        self.position += passed;
        if passed < count { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}
