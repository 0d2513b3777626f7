//! Outputs as they are found: complete, or as far as an interrupted run came.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::journal::State;
use super::log::{LogExtent, LogPaths, RowReader};
use crate::names::{STAGING, shards_of};
use crate::publish::parent_of;
use crate::staging::{FAILURES, INPUTS, JOURNAL, file_names};
use crate::{
    Element, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, SinkError, SinkOptions, VectorReader,
};

/// Rows of a log in memory at a time.
const BLOCK: usize = 1024;

/// Most components of a vector that is read: a bound for memory.
const MOST_DIM: usize = 1 << 24;

/// Times that the journal of a running job is read.
const ATTEMPTS: usize = 5;

/// How far an output's run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// The output is complete.
    Complete,
    /// The run was interrupted, or is still writing.
    Unfinished,
    /// A file without the output's manifest; its rows and failures were not recorded.
    Alone,
}

/// What one run has stored in an output. Reading it takes no lock and changes nothing.
#[derive(Debug)]
pub struct StoredRun {
    /// How far the run has come.
    pub state: StoredState,
    /// The output's manifest. That of an unfinished run has the parts that are complete so far, and counts the rows and
    /// failures of its last commit.
    pub manifest: OutputManifest,
    /// The folder with the parts.
    parts: PathBuf,
    /// The folder with the records.
    records: PathBuf,
    /// The rows of parts that are not complete. They are open, because a running job removes them.
    logs: Vec<(LogExtent, RowReader)>,
}

impl StoredRun {
    /// Finds the runs that wrote to `output`: one, several shards of a folder, or none.
    pub fn find(output: &Path) -> Result<Vec<Self>, SinkError> {
        if Layout::of(output) == Layout::File {
            let names = OutputNames::new(&SinkOptions::new(output));
            let (manifest, staging) = (names.beside("manifest.json"), names.staging());
            return Ok(Self::at(parent_of(output), &manifest, &staging, &staging)?.into_iter().collect());
        }
        let staging = output.join(STAGING);
        let manifests = file_names(output).filter(|name| name.starts_with("manifest") && shards_of(name).is_some());
        let begun = file_names(&staging).map(|run| match run.as_str() {
            "run" => "manifest.json".to_owned(),
            shard => format!("manifest-{shard}.json"),
        });
        let names: BTreeSet<String> = manifests.chain(begun).collect();
        let find = |name: &String| {
            let run = name.strip_prefix("manifest-").and_then(|name| name.strip_suffix(".json")).unwrap_or("run");
            Self::at(output, &output.join(name), &staging.join(run), output).transpose()
        };
        names.iter().filter_map(find).collect()
    }

    fn at(folder: &Path, manifest: &Path, staging: &Path, parts: &Path) -> Result<Option<Self>, SinkError> {
        let complete = |manifest| {
            let (parts, records) = (folder.to_owned(), folder.to_owned());
            Self { state: StoredState::Complete, manifest, parts, records, logs: Vec::new() }
        };
        let mut attempts = 1..ATTEMPTS;
        loop {
            let state = State::read(&staging.join(JOURNAL))?.filter(|state| !is_published(state, folder));
            let Some(state) = state else { return Ok(OutputManifest::read(manifest)?.map(complete)) };
            match Self::unfinished(state, staging, parts) {
                // A running job has completed the part, and removed its log, since its journal was read.
                Err(SinkError::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && attempts.next().is_some() => {}
                found => return found.map(Some),
            }
        }
    }

    fn unfinished(state: State, staging: &Path, parts: &Path) -> Result<Self, SinkError> {
        let rows = state.rows() + state.logs.values().map(|log| log.rows).sum::<u64>();
        let records = [(state.inputs_file, INPUTS), (state.failures_file, FAILURES)];
        let manifest = OutputManifest {
            rows,
            failures: state.failures,
            watermark: state.watermark,
            parts: state.sealed,
            records: records.map(|(extent, name)| extent.describe(Path::new(name))).into(),
            ..OutputManifest::begun(state.settings)
        };
        let (dim, element) = shape(&manifest)?;
        let row_bytes = dim * element.bytes();
        // No name of a column given on the command line has a comma.
        let columns = manifest.fingerprint.get("sink.columns").map_or(0, |names| names.split(',').count());
        let open = |log: LogExtent| {
            // All but the rows are free bytes.
            let free = log.vectors_len.saturating_sub(log.rows.saturating_mul(row_bytes as u64));
            let reader = RowReader::open(&LogPaths::new(staging, log.part), &log, free, (row_bytes, columns))?;
            Ok((log, reader))
        };
        let logs = state.logs.into_values().map(open).collect::<Result<_, SinkError>>()?;
        let (parts, records) = (parts.to_owned(), staging.to_owned());
        Ok(Self { state: StoredState::Unfinished, manifest, parts, records, logs })
    }

    /// Describes a file of vectors without its output's manifest, such as a copy; `None` if the file holds no manifest.
    pub fn alone(path: &Path, reader: &dyn VectorReader) -> Result<Option<Self>, SinkError> {
        let Some(settings) = reader.manifest(path)? else { return Ok(None) };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::metadata(path).map_err(SinkError::io("inspect", path))?.len();
        let part = ManifestPart { part: 0, rows: 0, files: vec![ManifestFile { name, bytes, xxh3: String::new() }] };
        let manifest = OutputManifest { parts: vec![part], ..OutputManifest::begun(settings) };
        let (parts, records) = (parent_of(path).to_owned(), PathBuf::new());
        Ok(Some(Self { state: StoredState::Alone, manifest, parts, records, logs: Vec::new() }))
    }

    /// Returns the paths and lengths of the files that count.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let parts = self.manifest.parts.iter().flat_map(|part| &part.files);
        let parts = parts.map(|file| (self.parts.join(&file.name), file.bytes));
        let logs = self.logs.iter().flat_map(|(log, _)| {
            let LogPaths { vectors, frames } = LogPaths::new(&self.records, log.part);
            [(vectors, log.vectors_len), (frames, log.frames_len)]
        });
        let records = self.manifest.records.iter().map(|file| (self.records.join(&file.name), file.bytes));
        parts.chain(logs).chain(records).collect()
    }

    /// Compares each file with its recorded length and hash. Logs have checksums, which [`Self::rows`] compares.
    ///
    /// # Errors
    /// [`SinkError::Damaged`], which names the first file that differs.
    pub fn check(&self) -> Result<(), SinkError> {
        let parts = self.manifest.parts.iter().flat_map(|part| &part.files);
        parts.into_iter().try_for_each(|file| file.check(&self.parts.join(&file.name), true))?;
        self.manifest.records.iter().try_for_each(|file| {
            let path = self.records.join(&file.name);
            if self.manifest.complete { file.check(&path, true) } else { file.check_start(&path) }
        })
    }

    /// Calls `act` with the id and the vector of each row, in source order, and returns the number of rows. The rows of
    /// an incomplete part are read once only.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if a part holds more or fewer rows than were recorded.
    pub fn rows(&mut self, reader: &dyn VectorReader, act: &mut dyn FnMut(&str, &[f32])) -> Result<u64, SinkError> {
        let ((dim, element), mut all) = (shape(&self.manifest)?, 0);
        for part in &self.manifest.parts {
            let Some(file) = part.files.first() else { continue };
            let (path, mut rows) = (self.parts.join(&file.name), 0);
            reader.for_each(&path, dim, element, &mut |id, vector| {
                rows += 1;
                act(id, vector);
            })?;
            if self.state != StoredState::Alone {
                check_count(&path, "rows", rows, part.rows)?;
            }
            all += rows;
        }
        for (log, reader) in &mut self.logs {
            let mut rows = 0;
            while let Some(block) = reader.next_block(BLOCK)? {
                let vectors = block.vectors().chunks_exact(dim * element.bytes());
                block.ids().zip(vectors).for_each(|(id, vector)| act(id, &element.floats(vector)));
                rows += block.len() as u64;
            }
            check_count(&LogPaths::new(&self.records, log.part).frames, "rows", rows, log.rows)?;
            all += rows;
        }
        Ok(all)
    }

    /// Calls `act` with the stage and the reason of each failure, in source order.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if there are more or fewer than were recorded.
    pub fn failures(&self, mut act: impl FnMut(&str, &str)) -> Result<(), SinkError> {
        let Some(record) = self.manifest.records.last() else { return Ok(()) };
        let path = self.records.join(&record.name);
        let file = File::open(&path).map_err(SinkError::io("open", &path))?;
        let mut lines = csv::Reader::from_reader(BufReader::new(file).take(record.bytes));
        let (mut line, mut count) = (csv::StringRecord::new(), 0);
        while lines.read_record(&mut line).map_err(|error| SinkError::damaged(&path, error))? {
            act(line.get(1).unwrap_or_default(), line.get(2).unwrap_or_default());
            count += 1;
        }
        check_count(&path, "failures", count, self.manifest.failures)
    }
}

/// Returns true if only the removal of the work in progress is left to do.
fn is_published(state: &State, folder: &Path) -> bool {
    let staged = state.staged.as_deref().unwrap_or_default();
    !staged.is_empty() && staged.iter().all(|file| file.check(&folder.join(&file.name), false).is_ok())
}

/// The components of each vector, and their type.
fn shape(manifest: &OutputManifest) -> Result<(usize, Element), SinkError> {
    let OutputManifest { dim, element, .. } = manifest;
    let known = Element::named(element).filter(|_| (1..=MOST_DIM).contains(dim));
    let unsupported = || SinkError::Unsupported(format!("vectors of {dim} components of type '{element}'"));
    known.map(|element| (*dim, element)).ok_or_else(unsupported)
}

fn check_count(path: &Path, what: &str, found: u64, recorded: u64) -> Result<(), SinkError> {
    match found == recorded {
        true => Ok(()),
        false => Err(SinkError::damaged(path, format!("it has {found} {what}, but {recorded} were recorded"))),
    }
}
