//! The journal of a run: one checksummed line per record, append-only.
//!
//! A line is 16 hexadecimal digits (XXH3-64 of the rest), a blank and a JSON record. A last line that is incomplete or
//! does not match its checksum was being written when the process died, so it is ignored. Any other such line means
//! damage.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::log::LogExtent;
use crate::manifest::{check_command, check_plain_names};
use crate::staging::{FAILURES_HEADER, INPUTS_HEADER, LedgerExtent, open_at};
use crate::{AtomicFile, ManifestFile, ManifestPart, RunManifest, SinkError};

/// Incremented when the meaning of the staging folder's files changes.
const VERSION: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// Always the first record. A run that `replaces` a folder's output removes it next.
    Begin { version: u32, watermark: u64, replaces: bool, settings: RunManifest },
    /// The replaced output is gone.
    Cleared,
    /// Everything below `watermark` is in sealed parts, in these logs or in the failures file.
    Commit {
        watermark: u64,
        /// [`Watermark::place`](crate::Watermark::place).
        #[serde(default)]
        place: u64,
        failures: u64,
        failures_file: LedgerExtent,
        inputs_file: LedgerExtent,
        logs: Vec<LogExtent>,
    },
    /// A part was encoded and has its final name; its log is no longer needed.
    Sealed { part: ManifestPart },
    /// No more rows will follow.
    Finishing,
    /// Every file is complete and synced; only the renames of these files remain.
    Staged { files: Vec<ManifestFile> },
}

/// The state that the records add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) settings: RunManifest,
    pub(crate) watermark: u64,
    pub(crate) place: u64,
    pub(crate) failures: u64,
    pub(crate) failures_file: LedgerExtent,
    pub(crate) inputs_file: LedgerExtent,
    pub(crate) logs: BTreeMap<u64, LogExtent>,
    pub(crate) sealed: Vec<ManifestPart>,
    /// An output that the run replaces may still be there.
    pub(crate) must_clear: bool,
    pub(crate) finishing: bool,
    /// The files to publish, once all of them are complete.
    pub(crate) staged: Option<Vec<ManifestFile>>,
    /// Length in bytes of the journal's valid records.
    pub(crate) len: u64,
}

impl State {
    /// A run that has begun.
    pub(crate) fn begun(settings: RunManifest, watermark: u64, must_clear: bool) -> Self {
        let [failures_file, inputs_file] = [FAILURES_HEADER, INPUTS_HEADER].map(LedgerExtent::of);
        Self { settings, watermark, failures_file, inputs_file, must_clear, ..Self::default() }
    }

    /// Parses a journal; `None` if not even its first record was written.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let mut state: Option<Self> = None;
        let mut rest = bytes;
        let mut number = 0;
        while !rest.is_empty() {
            number += 1;
            let end = rest.iter().position(|&b| b == b'\n');
            let (line, after) = end.map_or((rest, &[][..]), |end| (&rest[..end], &rest[end + 1..]));
            let record = end.and_then(|_| checked(line));
            match record {
                None if after.is_empty() => break, // it was being written
                None => return Err(format!("line {number} does not match its checksum")),
                Some(json) => {
                    let record =
                        serde_json::from_slice(json).map_err(|error| format!("line {number} is no record: {error}"))?;
                    let len = (bytes.len() - after.len()) as u64;
                    state = Some(advance(state, record, len).map_err(|reason| format!("line {number}: {reason}"))?);
                }
            }
            rest = after;
        }
        Ok(state)
    }

    /// Reads the journal at `path`; `None` if it is missing or empty.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, SinkError> {
        match fs::read(path) {
            Ok(bytes) => {
                check_command(path, &bytes)?;
                Self::parse(&bytes).map_err(|reason| SinkError::damaged(path, reason))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SinkError::io("read", path)(error)),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.sealed.iter().map(|part| part.rows).sum()
    }
}

/// The JSON of a line with a valid checksum.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (sum, json) = (line.get(..16)?, line.get(17..)?);
    let said = u64::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (line[16] == b' ' && said == xxh3_64(json)).then_some(json)
}

fn advance(state: Option<State>, record: Record, len: u64) -> Result<State, String> {
    let mut state = match (state, record) {
        (None, Record::Begin { version: VERSION, watermark, replaces, settings }) => {
            State::begun(settings, watermark, replaces)
        }
        (None, Record::Begin { version, .. }) => {
            return Err(format!("written by another version of this program (layout {version}, not {VERSION})"));
        }
        (None, _) | (Some(_), Record::Begin { .. }) => return Err("records are out of order".to_owned()),
        (Some(state), record) => apply(state, record)?,
    };
    state.len = len;
    Ok(state)
}

fn apply(mut state: State, record: Record) -> Result<State, String> {
    match record {
        Record::Begin { .. } => return Err("records are out of order".to_owned()),
        Record::Cleared => state.must_clear = false,
        Record::Commit { watermark, place, failures, failures_file, inputs_file, logs } => {
            let is_less = failures < state.failures || failures_file.len < state.failures_file.len;
            if watermark < state.watermark || is_less || inputs_file.len < state.inputs_file.len {
                return Err("a commit goes backwards".to_owned());
            }
            state.inputs_file = inputs_file;
            (state.watermark, state.place) = (watermark, place);
            state.failures = failures;
            state.failures_file = failures_file;
            state.logs = logs.into_iter().map(|log| (log.part, log)).collect();
        }
        Record::Sealed { part } => {
            check_plain_names(&part.files)?;
            state.logs.remove(&part.part);
            if state.sealed.last().is_some_and(|last| last.part >= part.part) {
                return Err("parts are out of order".to_owned());
            }
            state.sealed.push(part);
        }
        Record::Finishing => state.finishing = true,
        Record::Staged { files } => {
            check_plain_names(&files)?;
            state.staged = Some(files);
        }
    }
    Ok(state)
}

/// Appends records, each durable when [`append`](Self::append) returns.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Length in bytes of the durable records.
    len: u64,
    line: Vec<u8>,
}

impl Journal {
    /// Starts a fresh run's journal; the file appears with its first record in it.
    pub(crate) fn create(path: &Path, state: &State) -> Result<Self, SinkError> {
        let mut file = AtomicFile::create(path)?;
        let mut line = Vec::new();
        let State { watermark, must_clear: replaces, settings, .. } = state.clone();
        write_line(&mut line, &Record::Begin { version: VERSION, watermark, replaces, settings });
        file.write_all(&line).map_err(SinkError::io("write", path))?;
        file.publish()?;
        let len = line.len() as u64;
        Ok(Self { path: path.to_owned(), file: open_at(path, len)?, len, line })
    }

    /// Continues a journal after its last whole record.
    pub(crate) fn reopen(path: &Path, state: &State) -> Result<Self, SinkError> {
        Ok(Self { path: path.to_owned(), file: open_at(path, state.len)?, len: state.len, line: Vec::new() })
    }

    pub(crate) fn append(&mut self, record: &Record) -> Result<(), SinkError> {
        write_line(&mut self.line, record);
        let written = self.file.write_all(&self.line).map_err(SinkError::io("write", &self.path));
        let synced = written.and_then(|()| self.file.sync_data().map_err(SinkError::io("sync", &self.path)));
        self.conclude(synced)
    }

    /// Counts the record that was written, or cuts it off if it is not durable: the system may still show it to the
    /// next run, and lose it in a power failure after that run has built on it.
    fn conclude(&mut self, synced: Result<(), SinkError>) -> Result<(), SinkError> {
        match synced {
            Ok(()) => self.len += self.line.len() as u64,
            // The error at hand matters more than one of the repair.
            Err(_) => drop(self.cut_off()),
        }
        synced
    }

    fn cut_off(&mut self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.file.seek(SeekFrom::Start(self.len))?;
        self.file.sync_data()
    }
}

fn write_line(line: &mut Vec<u8>, record: &Record) {
    line.clear();
    line.extend_from_slice(&[b' '; 17]);
    serde_json::to_writer(&mut *line, record).expect("records are plain data and always have a JSON form");
    let sum = format!("{:016x}", xxh3_64(&line[17..]));
    line[..16].copy_from_slice(sum.as_bytes());
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(records: &[Record]) -> Vec<u8> {
        let mut line = Vec::new();
        let lines = records.iter().map(|record| {
            write_line(&mut line, record);
            line.clone()
        });
        lines.collect::<Vec<_>>().concat()
    }

    fn begin() -> Record {
        let settings = RunManifest { dim: 4, ..RunManifest::default() };
        Record::Begin { version: VERSION, watermark: 0, replaces: false, settings }
    }

    fn commit(watermark: u64) -> Record {
        let log = LogExtent { part: 0, rows: watermark, vectors_len: watermark * 16, frames_len: 9 };
        let file = LedgerExtent { len: 99, xxh3: 1 };
        Record::Commit { watermark, place: 0, failures: 0, failures_file: file, inputs_file: file, logs: vec![log] }
    }

    #[test]
    fn a_torn_last_line_never_counted() {
        let whole = journal(&[begin(), commit(3)]);
        let last = journal(&[commit(5)]);
        for torn in 0..last.len() {
            let bytes = [whole.as_slice(), &last[..torn]].concat();
            let state = State::parse(&bytes).unwrap().unwrap();
            assert_eq!((state.watermark, state.len), (3, whole.len() as u64), "torn at {torn}");
        }
        let state = State::parse(&[whole, last].concat()).unwrap().unwrap();
        assert_eq!((state.watermark, state.logs[&0].rows), (5, 5));
    }

    #[test]
    fn a_record_that_could_not_be_synced_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, &State::begun(RunManifest::default(), 0, false)).unwrap();
        journal.append(&commit(3)).unwrap();
        write_line(&mut journal.line, &commit(5));
        journal.file.write_all(&journal.line).unwrap();
        assert_eq!(State::read(&path).unwrap().unwrap().watermark, 5, "the next run would build on it");
        let failed = SinkError::io("sync", &path)(io::Error::from_raw_os_error(5));
        assert!(journal.conclude(Err(failed)).is_err());
        assert_eq!(State::read(&path).unwrap().unwrap().watermark, 3);
        journal.append(&commit(4)).unwrap();
        assert_eq!(State::read(&path).unwrap().unwrap().watermark, 4, "the journal goes on where it is durable");
    }

    #[test]
    fn a_journal_without_its_first_record_is_no_journal() {
        let whole = journal(&[begin()]);
        for torn in 0..whole.len() {
            assert_eq!(State::parse(&whole[..torn]), Ok(None));
        }
    }

    #[test]
    fn damage_before_the_last_line_is_an_error() {
        let whole = journal(&[begin(), commit(3), commit(5)]);
        let last = journal(&[commit(5)]).len();
        for at in 0..whole.len() - last {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            match State::parse(&damaged) {
                Err(_) => {}
                // A lost line end merges two lines into a torn last one, which gives an older commit, never a wrong
                // one.
                Ok(state) => assert!(whole[at] == b'\n' && state.is_none_or(|state| state.watermark < 5), "byte {at}"),
            }
        }
    }

    #[test]
    fn records_out_of_order_are_refused() {
        for records in [&[commit(1)][..], &[begin(), begin()], &[begin(), commit(5), commit(3)]] {
            assert!(State::parse(&journal(records)).is_err(), "{records:?}");
        }
    }
}
