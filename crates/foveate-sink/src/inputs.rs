//! The record of what a run read, by which a later run notices that its inputs changed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use crate::runs::RecordFile;
use crate::{ContentId, RecordedInputs, SinkError, push_csv_field};

/// First line of the record.
pub const INPUTS_HEADER: &str = "id,bytes,modified_ns,xxh3,blake3\n";

/// What a file system says about a file without reading it. A change of the content nearly always changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl Stamp {
    /// The stamp of a file of this length and time; `None` for a time centuries away.
    pub fn new(bytes: u64, modified: SystemTime) -> Option<Self> {
        let modified_ns = match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).ok()?,
            Err(before) => -i64::try_from(before.duration().as_nanos()).ok()?,
        };
        Some(Self { bytes, modified_ns })
    }
}

/// An input as the run read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRecord {
    /// The item's id.
    pub id: String,
    /// Its size and time just before it was read; `None` if they could not be known.
    pub stamp: Option<Stamp>,
    /// XXH3-64 of its bytes; `None` if they could not be read.
    pub xxh3: Option<u64>,
    /// The identity of its bytes; `None` also in the records of older versions.
    pub content: Option<ContentId>,
    /// Where the source finds the item again ([`Watermark::place`](crate::Watermark::place)). It is not in the file of
    /// inputs.
    pub place: u64,
}

impl InputRecord {
    /// Appends one line to `lines`, in the format of the record.
    pub fn push_line(&self, lines: &mut String) {
        push_csv_field(lines, &self.id);
        let stamp = self.stamp.map_or_else(|| ",".to_owned(), |stamp| format!("{},{}", stamp.bytes, stamp.modified_ns));
        let xxh3 = self.xxh3.map_or_else(String::new, |xxh3| format!("{xxh3:016x}"));
        let content = self.content.map_or_else(String::new, |content| content.to_string());
        writeln!(lines, ",{stamp},{xxh3},{content}").expect("text in memory takes any line");
    }

    /// The hash that tells whether the input has the same bytes now; `None` if it could not be read.
    pub fn hash(&self) -> Option<RecordedHash> {
        self.content.map(RecordedHash::Content).or(self.xxh3.map(RecordedHash::Checksum))
    }

    fn parse(fields: &csv::StringRecord) -> Option<Self> {
        let [id, bytes, modified, xxh3] = [fields.get(0)?, fields.get(1)?, fields.get(2)?, fields.get(3)?];
        let stamp = match (bytes, modified) {
            ("", "") => None,
            _ => Some(Stamp { bytes: bytes.parse().ok()?, modified_ns: modified.parse().ok()? }),
        };
        let xxh3 = match xxh3 {
            "" => None,
            digits => Some(u64::from_str_radix(digits, 16).ok()?),
        };
        let content = match fields.get(4) {
            None | Some("") => None,
            Some(digits) => Some(ContentId::parse(digits)?),
        };
        Some(Self { id: id.to_owned(), stamp, xxh3, content, place: 0 })
    }
}

/// What a record says about the bytes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedHash {
    /// Their identity.
    Content(ContentId),
    /// XXH3-64, which is all that older versions recorded.
    Checksum(u64),
}

impl RecordedHash {
    /// Returns true if it is the hash of these bytes.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        match *self {
            Self::Content(content) => content == ContentId::of(bytes),
            Self::Checksum(xxh3) => xxh3 == xxh3_64(bytes),
        }
    }
}

impl RecordedInputs {
    /// The first `len` bytes of the file at `path`; `None` if they hold no input.
    pub fn new(path: PathBuf, len: u64, is_complete: bool) -> Option<Self> {
        Self::of(RecordFile::Lasting(path), len, is_complete)
    }

    /// The record with this content, in a new file in `folder` that is removed with the last copy of this value.
    pub(crate) fn keep(folder: &Path, content: &[u8], is_complete: bool) -> Result<Option<Self>, SinkError> {
        let file = tempfile::Builder::new().prefix("foveate-").tempfile_in(folder);
        let path = file.map_err(SinkError::io("create a file in", folder))?.into_temp_path();
        fs::write(&path, content).map_err(SinkError::io("write", &path))?;
        Ok(Self::of(RecordFile::Temporary(path.into()), content.len() as u64, is_complete))
    }

    /// The record in the first `len` bytes of a temporary file.
    pub(crate) fn written(path: tempfile::TempPath, len: u64, is_complete: bool) -> Option<Self> {
        Self::of(RecordFile::Temporary(path.into()), len, is_complete)
    }

    fn of(file: RecordFile, len: u64, is_complete: bool) -> Option<Self> {
        (len > INPUTS_HEADER.len() as u64).then_some(Self { file, len, is_complete })
    }

    /// Reads the inputs, in source order.
    pub fn read(&self) -> Result<impl Iterator<Item = Result<InputRecord, SinkError>> + use<>, SinkError> {
        let path = self.file.path().to_owned();
        let file = File::open(&path).map_err(SinkError::opening(&path))?;
        // Older versions wrote fewer columns.
        let lines = csv::ReaderBuilder::new().flexible(true).from_reader(BufReader::new(file).take(self.len));
        let lines = lines.into_records();
        Ok(lines.map(move |line| parse(&path, line)))
    }
}

fn parse(path: &Path, line: csv::Result<csv::StringRecord>) -> Result<InputRecord, SinkError> {
    let fields = line.map_err(|error| SinkError::damaged(path, error))?;
    InputRecord::parse(&fields).ok_or_else(|| {
        let line = fields.position().map_or(0, csv::Position::line);
        SinkError::damaged(path, format!("line {line} is no input"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_come_back_as_far_as_they_were_committed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inputs.csv");
        let stamp = Some(Stamp { bytes: 7, modified_ns: -3 });
        let inputs =
            [("a,\"b\"\n.jpg", stamp, Some(9)), ("", None, None), ("ż", stamp, None)].map(|(id, stamp, xxh3)| {
                let content = xxh3.map(|_| ContentId::of(id.as_bytes()));
                InputRecord { id: id.to_owned(), stamp, xxh3, content, place: 0 }
            });
        let mut text = INPUTS_HEADER.to_owned();
        inputs.iter().for_each(|input| input.push_line(&mut text));
        std::fs::write(&path, format!("{text}torn,1,")).unwrap();
        assert_eq!(RecordedInputs::new(path.clone(), INPUTS_HEADER.len() as u64, true), None);
        let recorded = RecordedInputs::new(path, text.len() as u64, false).unwrap();
        let read: Vec<_> = recorded.read().unwrap().map(Result::unwrap).collect();
        assert_eq!(read, inputs);
    }
}
