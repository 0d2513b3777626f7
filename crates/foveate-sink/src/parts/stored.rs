//! Outputs as they are found: complete, or as far as an interrupted run came.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::Stage;
use tempfile::TempDir;

use super::journal::State;
use super::log::{LogExtent, LogPaths, RowReader};
use super::records::{Claim, Restored, claim_name, read_parsed};
use crate::in_place::{check_in_place, check_in_place_below};
use crate::names::{STAGING, shards_of};
use crate::publish::parent_of;
use crate::staging::{FAILURES, INPUTS, JOURNAL, file_names};
use crate::{
    ActOnRow, Failure, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, Prefix, RecordedInputs, Shape,
    SinkError, SinkOptions, VectorReader,
};

/// Rows of a log in memory at a time.
const BLOCK: usize = 1024;

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
    parts: Place,
    records: Place,
    /// The rows of parts that are not complete. They are open, because a running job removes them.
    logs: Vec<(LogExtent, RowReader)>,
    /// The folder of `records`, if they are copies.
    copies: Option<TempDir>,
}

/// Where files are.
#[derive(Clone, Debug)]
enum Place {
    Folder(PathBuf),
    Prefix(Arc<dyn Prefix>),
}

/// Files that can be read as long as the value lives.
struct Local {
    folder: PathBuf,
    _copies: Option<TempDir>,
}

impl Place {
    fn join(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::Prefix(prefix) => Path::new(prefix.address()).join(name),
        }
    }

    /// Makes files readable: those of a store are copied.
    fn read(&self, files: &[ManifestFile]) -> Result<Local, SinkError> {
        let prefix = match self {
            Self::Folder(folder) => return Ok(Local { folder: folder.clone(), _copies: None }),
            Self::Prefix(prefix) => prefix,
        };
        let copies = temporary_folder()?;
        for file in files {
            let (content, path) = (prefix.read(&file.name)?, copies.path().join(&file.name));
            file.check_len(&self.join(&file.name), content.as_ref().map(|content| content.len() as u64))?;
            fs::write(&path, content.unwrap_or_default()).map_err(SinkError::io("write", &path))?;
        }
        Ok(Local { folder: copies.path().to_owned(), _copies: Some(copies) })
    }
}

fn temporary_folder() -> Result<TempDir, SinkError> {
    TempDir::with_prefix("foveate-").map_err(SinkError::io("create a folder in", &std::env::temp_dir()))
}

/// The name of the run that wrote a manifest: the shard's, or `run`.
fn run_of(manifest: &str) -> Option<&str> {
    let rest = manifest.trim_start_matches('_').strip_prefix("manifest")?.strip_suffix(".json")?;
    shards_of(manifest).map(|_| rest.strip_prefix('-').unwrap_or("run"))
}

/// An input without a row, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFailure {
    /// The item's id.
    pub id: String,
    /// The stage's name.
    pub stage: String,
    /// The reason.
    pub reason: String,
    /// Number of encoded bytes read, if reading succeeded.
    pub bytes: Option<u64>,
}

impl StoredFailure {
    /// The failure of the item at `index`.
    pub(crate) fn at(self, index: u64) -> Failure {
        let Self { id, stage, reason, bytes } = self;
        // A stage that a later version added.
        let stage = Stage::ALL.into_iter().find(|known| known.name() == stage).unwrap_or(Stage::Decode);
        Failure { index, id, stage, reason, bytes }
    }
}

impl StoredRun {
    fn new(state: StoredState, manifest: OutputManifest, parts: Place, records: Place) -> Self {
        Self { state, manifest, parts, records, logs: Vec::new(), copies: None }
    }

    /// Finds the runs below a prefix.
    pub fn find_below(prefix: &Arc<dyn Prefix>) -> Result<Vec<Self>, SinkError> {
        check_in_place_below(prefix.as_ref())?;
        // Before the manifests: a run that ends meanwhile is among these.
        let begun = prefix.list(&format!("{STAGING}/"))?;
        let mut found = Self::complete_below(prefix)?;
        let claims =
            begun.keys().filter_map(|name| name.strip_prefix(STAGING)?.strip_prefix('/')?.strip_suffix("/claim.json"));
        // An update's run is in a folder below.
        for run in claims.filter(|run| !run.contains('/')) {
            if !found.contains_key(run)
                && let Some(begun) = Self::begun_below(prefix, run)?
            {
                found.insert(run.to_owned(), begun);
            }
        }
        Ok(found.into_values().collect())
    }

    /// Finds the complete runs below a prefix, by their names.
    fn complete_below(prefix: &Arc<dyn Prefix>) -> Result<BTreeMap<String, Self>, SinkError> {
        let listed = [prefix.list("_manifest")?, prefix.list("manifest")?];
        let mut found = BTreeMap::new();
        for (name, _) in listed.into_iter().flatten() {
            let Some(run) = run_of(&name) else { continue };
            let place = || Place::Prefix(Arc::clone(prefix));
            if let Some(manifest) = read_parsed(prefix.as_ref(), &name, OutputManifest::parse)? {
                found.insert(run.to_owned(), Self::new(StoredState::Complete, manifest, place(), place()));
            }
        }
        Ok(found)
    }

    /// Describes the run with this name below a prefix, as far as it came; `None` if it is not there any more.
    fn begun_below(prefix: &Arc<dyn Prefix>, run: &str) -> Result<Option<Self>, SinkError> {
        let names = OutputNames::of_run(run);
        let Some(claim) = read_parsed(prefix.as_ref(), &claim_name(&names), Claim::parse)? else { return Ok(None) };
        let copies = temporary_folder()?;
        let staging = copies.path().to_owned();
        Restored::read(prefix.as_ref(), &names, &claim, staging.clone())?.write_journal(claim.settings, 0)?;
        let Some(state) = State::read(&staging.join(JOURNAL))? else { return Ok(None) };
        let found = Self::unfinished(state, &staging, Place::Prefix(Arc::clone(prefix)))?;
        Ok(Some(Self { copies: Some(copies), ..found }))
    }

    /// Finds the complete output of an unsharded run with these options.
    ///
    /// # Errors
    /// [`SinkError::Updating`] while an update is put in place.
    pub fn complete(options: &SinkOptions) -> Result<Option<Self>, SinkError> {
        match &options.prefix {
            Some(prefix) => check_in_place_below(prefix.as_ref())?,
            None => check_in_place(&options.output)?,
        }
        Self::complete_now(options)
    }

    /// Finds the complete output of an unsharded run with these options, even while an update is put in place.
    pub(crate) fn complete_now(options: &SinkOptions) -> Result<Option<Self>, SinkError> {
        let mut found = match &options.prefix {
            Some(prefix) => Self::complete_below(prefix)?.into_values().collect(),
            None => Self::found_now(&options.output)?,
        };
        found.retain(|run| run.state == StoredState::Complete && !run.manifest.fingerprint.contains_key("sink.shard"));
        Ok(found.pop())
    }

    /// Finds the runs that wrote to `output`: one, several shards of a folder, or none.
    pub fn find(output: &Path) -> Result<Vec<Self>, SinkError> {
        check_in_place(output)?;
        Self::found_now(output)
    }

    fn found_now(output: &Path) -> Result<Vec<Self>, SinkError> {
        if Layout::of(output) == Layout::File {
            let names = OutputNames::new(&SinkOptions::new(output));
            let (manifest, staging) = (names.manifest(), names.staging());
            let read = || OutputManifest::read_of(&manifest, output);
            return Ok(Self::at(parent_of(output), read, &staging, &staging)?.into_iter().collect());
        }
        let staging = output.join(STAGING);
        let of_manifest = |name: String| Some((run_of(&name)?.to_owned(), name));
        let begun = file_names(&staging).map(|run| match run.as_str() {
            "run" => (run, "_manifest.json".to_owned()),
            shard => (shard.to_owned(), format!("_manifest-{shard}.json")),
        });
        // By run: a manifest that is there has its name.
        let runs: BTreeMap<_, _> = begun.chain(file_names(output).filter_map(of_manifest)).collect();
        let find = |(run, name): (&String, &String)| {
            let read = || OutputManifest::read(&output.join(name));
            Self::at(output, read, &staging.join(run), output).transpose()
        };
        runs.iter().filter_map(find).collect()
    }

    fn at(
        folder: &Path,
        read_manifest: impl Fn() -> Result<Option<OutputManifest>, SinkError>,
        staging: &Path,
        parts: &Path,
    ) -> Result<Option<Self>, SinkError> {
        let complete = |manifest| {
            let place = || Place::Folder(folder.to_owned());
            Self::new(StoredState::Complete, manifest, place(), place())
        };
        let mut attempts = 1..ATTEMPTS;
        loop {
            let state = State::read(&staging.join(JOURNAL))?.filter(|state| !is_published(state, folder));
            let Some(state) = state else { return Ok(read_manifest()?.map(complete)) };
            match Self::unfinished(state, staging, Place::Folder(parts.to_owned())) {
                // A running job has completed the part, and removed its log, since its journal was read.
                Err(SinkError::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && attempts.next().is_some() => {}
                found => return found.map(Some),
            }
        }
    }

    fn unfinished(state: State, staging: &Path, parts: Place) -> Result<Self, SinkError> {
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
        let Shape { dim, element, columns } = Shape::of(&manifest)?;
        let row_bytes = dim * element.bytes();
        let open = |log: LogExtent| {
            // All but the rows are free bytes.
            let free = log.vectors_len.saturating_sub(log.rows.saturating_mul(row_bytes as u64));
            let reader = RowReader::open(&LogPaths::new(staging, log.part), &log, free, (row_bytes, columns.len()))?;
            Ok((log, reader))
        };
        let logs = state.logs.into_values().map(open).collect::<Result<_, SinkError>>()?;
        let records = Place::Folder(staging.to_owned());
        Ok(Self { logs, ..Self::new(StoredState::Unfinished, manifest, parts, records) })
    }

    /// Describes a file of vectors without its output's manifest, such as a copy; `None` if the file holds no manifest.
    pub fn alone(path: &Path, reader: &dyn VectorReader) -> Result<Option<Self>, SinkError> {
        let Some(settings) = reader.manifest(path)? else { return Ok(None) };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::metadata(path).map_err(SinkError::io("inspect", path))?.len();
        let part = ManifestPart { part: 0, rows: 0, files: vec![ManifestFile { name, bytes, xxh3: String::new() }] };
        let manifest = OutputManifest { parts: vec![part], ..OutputManifest::begun(settings) };
        let (parts, records) = (Place::Folder(parent_of(path).to_owned()), Place::Folder(PathBuf::new()));
        Ok(Some(Self::new(StoredState::Alone, manifest, parts, records)))
    }

    /// Returns the paths and lengths of the files that count.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let parts = self.manifest.parts.iter().flat_map(|part| &part.files);
        let parts = parts.map(|file| (self.parts.join(&file.name), file.bytes));
        let logs = self.logs.iter().flat_map(|(log, _)| {
            let LogPaths { vectors, frames } = LogPaths::new(&self.records.join(""), log.part);
            [(vectors, log.vectors_len), (frames, log.frames_len)]
        });
        let records = self.manifest.records.iter().filter(|_| self.copies.is_none());
        let records = records.map(|file| (self.records.join(&file.name), file.bytes));
        parts.chain(logs).chain(records).collect()
    }

    /// Compares each file of a complete run with its recorded length.
    ///
    /// # Errors
    /// [`SinkError::Damaged`], which names the first file that differs.
    pub fn check_lengths(&self) -> Result<(), SinkError> {
        let Place::Prefix(prefix) = &self.parts else {
            return self.manifest.files().try_for_each(|file| file.check(&self.parts.join(&file.name), false));
        };
        let found = prefix.list("")?;
        let len = |file: &ManifestFile| found.get(&file.name).copied();
        self.manifest.files().try_for_each(|file| file.check_len(&self.parts.join(&file.name), len(file)))
    }

    /// Compares each file with its recorded length and hash. Logs have checksums, which [`Self::rows`] compares.
    ///
    /// # Errors
    /// [`SinkError::Damaged`], which names the first file that differs.
    pub fn check(&self) -> Result<(), SinkError> {
        for part in &self.manifest.parts {
            let local = self.parts.read(&part.files)?;
            part.files.iter().try_for_each(|file| file.check(&local.folder.join(&file.name), true))?;
        }
        let local = self.records.read(&self.manifest.records)?;
        self.manifest.records.iter().try_for_each(|file| {
            let path = local.folder.join(&file.name);
            if self.manifest.complete { file.check(&path, true) } else { file.check_start(&path) }
        })
    }

    /// Calls `act` with each row, in the order in which they were stored, and returns their number. The rows of an
    /// incomplete part are read once only.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if a part holds more or fewer rows than were recorded.
    pub fn rows(&mut self, reader: &dyn VectorReader, act: &mut ActOnRow<'_>) -> Result<u64, SinkError> {
        let (shape, mut all) = (Shape::of(&self.manifest)?, 0);
        for part in &self.manifest.parts {
            all += self.part_rows(part, &shape, reader, act)?;
        }
        for (log, reader) in &mut self.logs {
            let mut rows = 0;
            while let Some(block) = reader.next_block(BLOCK)? {
                block.for_each(&shape, act)?;
                rows += block.len() as u64;
            }
            check_count(&LogPaths::new(&self.records.join(""), log.part).frames, "rows", rows, log.rows)?;
            all += rows;
        }
        Ok(all)
    }

    /// Calls `act` with each row of a part, and returns their number.
    pub(crate) fn part_rows(
        &self,
        part: &ManifestPart,
        shape: &Shape,
        reader: &dyn VectorReader,
        act: &mut ActOnRow<'_>,
    ) -> Result<u64, SinkError> {
        let Some(file) = part.files.first() else { return Ok(0) };
        let (local, mut rows) = (self.parts.read(&part.files)?, 0);
        reader.for_each(&local.folder.join(&file.name), shape, &mut |row| {
            rows += 1;
            act(row)
        })?;
        if self.state != StoredState::Alone {
            check_count(&self.parts.join(&file.name), "rows", rows, part.rows)?;
        }
        Ok(rows)
    }

    /// Returns true if the inputs were recorded.
    pub fn has_inputs(&self) -> bool {
        self.manifest.records.len() > 1
    }

    /// The record of the inputs; `None` if there is none.
    pub fn inputs(&self) -> Result<Option<RecordedInputs>, SinkError> {
        let [record, _failures] = &self.manifest.records[..] else { return Ok(None) };
        match &self.records {
            Place::Folder(folder) => {
                Ok(RecordedInputs::new(folder.join(&record.name), record.bytes, self.manifest.complete))
            }
            Place::Prefix(prefix) => {
                let content = prefix.read(&record.name)?.unwrap_or_default();
                RecordedInputs::keep(&std::env::temp_dir(), &content, self.manifest.complete)
            }
        }
    }

    /// Reads the failures, in source order. The last result is [`SinkError::Damaged`] if there are more or fewer than
    /// were recorded.
    pub fn failures(&self) -> Result<impl Iterator<Item = Result<StoredFailure, SinkError>> + use<>, SinkError> {
        let recorded = self.manifest.failures;
        let open = |record: &ManifestFile| {
            let local = self.records.read(std::slice::from_ref(record))?;
            let (name, path) = (self.records.join(&record.name), local.folder.join(&record.name));
            let file = File::open(&path).map_err(SinkError::opening(&path))?;
            let mut lines = csv::Reader::from_reader(BufReader::new(file).take(record.bytes)).into_records();
            let mut count = 0;
            Ok(std::iter::from_fn(move || match lines.next() {
                None if count == recorded => None,
                None => {
                    let damaged = check_count(&name, "failures", count, recorded);
                    count = recorded;
                    damaged.err().map(Err)
                }
                Some(line) => {
                    let _open = &local;
                    count += 1;
                    Some(line.map_err(|error| SinkError::damaged(&name, error)).map(|line| {
                        let text = |field: usize| line.get(field).unwrap_or_default().to_owned();
                        StoredFailure { id: text(0), stage: text(1), reason: text(2), bytes: text(3).parse().ok() }
                    }))
                }
            }))
        };
        let read = self.manifest.records.last().map(open).transpose()?;
        Ok(read.into_iter().flatten())
    }
}

/// Returns true if only the removal of the work in progress is left to do.
fn is_published(state: &State, folder: &Path) -> bool {
    let staged = state.staged.as_deref().unwrap_or_default();
    !staged.is_empty() && staged.iter().all(|file| file.check(&folder.join(&file.name), false).is_ok())
}

fn check_count(path: &Path, what: &str, found: u64, recorded: u64) -> Result<(), SinkError> {
    match found == recorded {
        true => Ok(()),
        false => Err(SinkError::damaged(path, format!("it has {found} {what}, but {recorded} were recorded"))),
    }
}
