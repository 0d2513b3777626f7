//! The record of what a run read, by which a later run notices that its inputs changed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use crate::runs::RecordFile;
use crate::{ContentId, RecordedInputs, SinkError, push_csv_field};

/// First line of the record. Earlier versions did not write the last columns.
pub const INPUTS_HEADER: &str = "id,bytes,modified_ns,xxh3,blake3,etag_xxh3\n";

/// A file's properties that a file system, a store or a web server knows without its content. Each part may be unknown.
/// A change of the content nearly always changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Length in bytes.
    pub bytes: Option<u64>,
    /// Time of the last modification, in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// XXH3-64 of the entity tag.
    pub etag: Option<u64>,
}

/// The likeness of two stamps, and so of their contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// They have the same entity tag.
    SameTag,
    /// They have the same time, and the same length if both have one.
    SameTime,
    /// They differ.
    Other,
    /// They have nothing in common that tells; a length alone does not.
    Unknown,
}

impl Stamp {
    /// The stamp of a file. A time centuries away is unknown. A tag counts without its quotes and its mark of weakness:
    /// listings leave out the ones, and servers that compress add the other.
    pub fn new(bytes: Option<u64>, modified: Option<SystemTime>, tag: Option<&str>) -> Self {
        let etag = tag.map(|tag| xxh3_64(tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"').as_bytes()));
        Self { bytes, modified_ns: modified.and_then(nanoseconds), etag }
    }

    /// Compares what both stamps know.
    pub fn compare(&self, other: &Self) -> Likeness {
        if self.bytes.zip(other.bytes).is_some_and(|(a, b)| a != b) {
            return Likeness::Other;
        }
        match (self.etag.zip(other.etag), self.modified_ns.zip(other.modified_ns)) {
            (Some((a, b)), _) if a == b => Likeness::SameTag,
            (None, Some((a, b))) if a == b => Likeness::SameTime,
            (None, None) => Likeness::Unknown,
            _ => Likeness::Other,
        }
    }

    /// Returns true if the stamps are of the same content for sure.
    pub fn is_same(&self, other: &Self) -> bool {
        matches!(self.compare(other), Likeness::SameTag | Likeness::SameTime)
    }

    /// The same, with what `other` knows of the rest.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.or(other.bytes),
            modified_ns: self.modified_ns.or(other.modified_ns),
            etag: self.etag.or(other.etag),
        }
    }
}

fn nanoseconds(time: SystemTime) -> Option<i64> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).ok(),
        Err(before) => i64::try_from(before.duration().as_nanos()).ok().map(|before| -before),
    }
}

/// An input as the run read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRecord {
    /// The item's id.
    pub id: String,
    /// Its properties just before it was read, or from the answer with its bytes.
    pub stamp: Stamp,
    /// XXH3-64 of its bytes; `None` if they could not be read.
    pub xxh3: Option<u64>,
    /// The identity of its bytes; `None` also in the records of older versions.
    pub content: Option<ContentId>,
    /// The place at which the source finds the item again ([`Watermark::place`](crate::Watermark::place)). It is not in
    /// the file of inputs.
    pub place: u64,
}

impl InputRecord {
    /// Appends one line to `lines`, in the format of the record.
    pub fn push_line(&self, lines: &mut String) {
        push_csv_field(lines, &self.id);
        let Stamp { bytes, modified_ns, etag } = self.stamp;
        let bytes = bytes.map_or_else(String::new, |bytes| bytes.to_string());
        let modified_ns = modified_ns.map_or_else(String::new, |modified| modified.to_string());
        let [xxh3, etag] = [self.xxh3, etag].map(|hash| hash.map_or_else(String::new, |hash| format!("{hash:016x}")));
        let content = self.content.map_or_else(String::new, |content| content.to_string());
        writeln!(lines, ",{bytes},{modified_ns},{xxh3},{content},{etag}").expect("text in memory takes any line");
    }

    /// The hash that tells whether the input has the same bytes now; `None` if it could not be read.
    pub fn hash(&self) -> Option<RecordedHash> {
        self.content.map(RecordedHash::Content).or(self.xxh3.map(RecordedHash::Checksum))
    }

    fn parse(fields: &csv::StringRecord) -> Option<Self> {
        let stamp = Stamp {
            bytes: parse_field(fields.get(1)?, |field| field.parse().ok())?,
            modified_ns: parse_field(fields.get(2)?, |field| field.parse().ok())?,
            etag: parse_field(fields.get(5).unwrap_or_default(), parse_hash)?,
        };
        let xxh3 = parse_field(fields.get(3)?, parse_hash)?;
        let content = parse_field(fields.get(4).unwrap_or_default(), ContentId::parse)?;
        Some(Self { id: fields.get(0)?.to_owned(), stamp, xxh3, content, place: 0 })
    }
}

/// The hash by which a record identifies the bytes of an input.
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

/// Parses a field that may be empty; the outer `None` is one that cannot be parsed.
/// Parses hexadecimal digits.
fn parse_hash(field: &str) -> Option<u64> {
    u64::from_str_radix(field, 16).ok()
}

fn parse_field<T>(field: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if field.is_empty() { Some(None) } else { parse(field).map(Some) }
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
        let stamp = Stamp { bytes: Some(7), modified_ns: Some(-3), etag: None };
        let tagged = Stamp { bytes: None, modified_ns: None, etag: Some(5) };
        let inputs = [
            ("a,\"b\"\n.jpg", stamp, Some(9)),
            ("", Stamp::default(), None),
            ("ż", tagged, None),
            ("old", stamp, None),
        ]
        .map(|(id, stamp, xxh3)| {
            let content = xxh3.map(|_| ContentId::of(id.as_bytes()));
            InputRecord { id: id.to_owned(), stamp, xxh3, content, place: 0 }
        });
        let mut text = INPUTS_HEADER.to_owned();
        inputs[..3].iter().for_each(|input| input.push_line(&mut text));
        text += "old,7,-3,\n";
        std::fs::write(&path, format!("{text}torn,1,")).unwrap();
        assert_eq!(RecordedInputs::new(path.clone(), INPUTS_HEADER.len() as u64, true), None);
        let recorded = RecordedInputs::new(path, text.len() as u64, false).unwrap();
        let read: Vec<_> = recorded.read().unwrap().map(Result::unwrap).collect();
        assert_eq!(read, inputs);
    }
    #[test]
    fn stamps_are_compared_by_what_both_know() {
        let at = |seconds| Some(UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        let stamp = |bytes, seconds: Option<u64>, tag| Stamp::new(bytes, seconds.and_then(at), tag);
        let both = stamp(Some(7), Some(1), Some("\"a\""));
        for (other, likeness) in [
            (stamp(Some(7), Some(2), Some("W/\"a\"")), Likeness::SameTag),
            (stamp(None, None, Some("a")), Likeness::SameTag),
            (stamp(Some(7), Some(1), Some("b")), Likeness::Other),
            (stamp(Some(8), Some(1), Some("a")), Likeness::Other),
            (stamp(Some(7), Some(1), None), Likeness::SameTime),
            (stamp(None, Some(1), None), Likeness::SameTime),
            (stamp(None, Some(2), None), Likeness::Other),
            (stamp(Some(7), None, None), Likeness::Unknown),
            (stamp(Some(8), None, None), Likeness::Other),
            (Stamp::default(), Likeness::Unknown),
        ] {
            assert_eq!((both.compare(&other), other.compare(&both)), (likeness, likeness), "{other:?}");
        }
        assert_eq!(Stamp::default().compare(&Stamp::default()), Likeness::Unknown);
        // In the year 2500.
        assert_eq!(stamp(Some(7), Some(16_725_225_600), None), stamp(Some(7), None, None));
    }
}
