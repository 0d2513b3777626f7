//! Outputs as they are found: complete, or as far as an interrupted run came.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::Stage;
use tempfile::TempDir;

use crate::commit::check_in_place;
use crate::names::{FAILURES, INPUTS, STAGING, shards_of};
use crate::parts::RowReader;
use crate::parts::frame::FrameKind;
use crate::parts::segment::Segment;
use crate::place::SinkPlace;
use crate::publish::parent_of;
use crate::restored::{restore, write_lines};
use crate::site::{CLAIM, Claim, RunSite};
use crate::{
    ActOnRow, Failure, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, Prefix, RecordedInputs,
    RunManifest, Shape, SinkError, SinkOptions, VectorReader,
};

/// Rows of a segment in memory at a time.
const BLOCK: usize = 1024;

/// Times that the work in progress of a running job is read.
const ATTEMPTS: usize = 5;

/// The progress of an output's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// The output is complete.
    Complete,
    /// The run was interrupted, or is still writing.
    Unfinished,
    /// A file without the output's manifest; its rows and failures were not recorded.
    Alone,
}

/// A run's stored part of an output. Reading it takes no lock and changes nothing.
#[derive(Debug)]
pub struct StoredRun {
    /// The progress of the run.
    pub state: StoredState,
    /// The output's manifest. That of an unfinished run has the parts that are complete so far, and counts the rows and
    /// failures of its last commit.
    pub manifest: OutputManifest,
    parts: SinkPlace,
    records: SinkPlace,
    /// The rows of parts that are not complete.
    pending: Vec<Segment>,
    /// The folder of an unfinished run's records, and of copies of its segments.
    copies: Option<TempDir>,
}

/// Files that can be read as long as the value lives.
struct ReadableFiles {
    folder: PathBuf,
    _copies: Option<TempDir>,
}

/// Makes files readable: those of a store are copied.
fn readable(place: &SinkPlace, files: &[ManifestFile]) -> Result<ReadableFiles, SinkError> {
    if let SinkPlace::Folder(folder) = place {
        return Ok(ReadableFiles { folder: folder.clone(), _copies: None });
    }
    let copies = temporary_folder()?;
    for file in files {
        let content = place.read(&file.name)?;
        let path = copies.path().join(&file.name);
        file.check_len(&place.path(&file.name), content.as_ref().map(|content| content.len() as u64))?;
        fs::write(&path, content.unwrap_or_default()).map_err(SinkError::io("write", &path))?;
    }
    Ok(ReadableFiles { folder: copies.path().to_owned(), _copies: Some(copies) })
}

fn temporary_folder() -> Result<TempDir, SinkError> {
    TempDir::with_prefix("foveate-").map_err(SinkError::io("create a folder in", &std::env::temp_dir()))
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

/// The name of the run that wrote a manifest: the shard's, or `run`.
fn run_of(manifest: &str) -> Option<&str> {
    let rest = manifest.trim_start_matches('_').strip_prefix("manifest")?.strip_suffix(".json")?;
    shards_of(manifest).map(|_| rest.strip_prefix('-').unwrap_or("run"))
}

impl StoredRun {
    fn new(state: StoredState, manifest: OutputManifest, parts: SinkPlace, records: SinkPlace) -> Self {
        Self { state, manifest, parts, records, pending: Vec::new(), copies: None }
    }

    /// Finds the runs below a prefix.
    ///
    /// # Errors
    /// [`SinkError::Updating`] while an output is put in place.
    pub fn find_below(prefix: &Arc<dyn Prefix>) -> Result<Vec<Self>, SinkError> {
        let output = SinkPlace::Objects { prefix: Arc::clone(prefix), start: String::new() };
        Self::find_in(&output, Path::new(prefix.address()))
    }

    /// Finds the runs that wrote vectors to `output`: one, several shards of a folder, or none.
    ///
    /// # Errors
    /// [`SinkError::Updating`] while an output is put in place, [`SinkError::OtherCommand`] for shards of images.
    pub fn find(output: &Path) -> Result<Vec<Self>, SinkError> {
        let found = Self::find_any(output)?;
        match found.iter().any(Self::is_packed) {
            true => Err(SinkError::OtherCommand { path: output.to_owned(), command: RunManifest::PACK.to_owned() }),
            false => Ok(found),
        }
    }

    /// Finds the shards of images in a folder; `None` if `foveate pack` has made none there.
    ///
    /// # Errors
    /// [`SinkError::Updating`] while they are put in place.
    pub fn packed(folder: &Path) -> Result<Option<Self>, SinkError> {
        Ok(Self::find_any(folder)?.into_iter().find(Self::is_packed))
    }

    fn is_packed(&self) -> bool {
        self.manifest.made_by() == RunManifest::PACK
    }

    fn find_any(output: &Path) -> Result<Vec<Self>, SinkError> {
        if Layout::of(output) == Layout::Folder {
            return Self::find_in(&SinkPlace::Folder(output.to_owned()), output);
        }
        let site = RunSite::of(&SinkOptions::new(output))?;
        Ok(Self::at(&site, output)?.into_iter().collect())
    }

    fn find_in(output: &SinkPlace, path: &Path) -> Result<Vec<Self>, SinkError> {
        // Before the manifests: a run that ends meanwhile is among these.
        let begun = output.below(STAGING).list()?;
        let mut runs = BTreeMap::new();
        for name in begun.into_keys() {
            // In a folder, the list has the runs' folders; in a store, their objects. An update's run is further below.
            let run = match output {
                SinkPlace::Folder(_) => Some(name.as_str()),
                SinkPlace::Objects { .. } => name.strip_suffix(CLAIM).and_then(|name| name.strip_suffix('/')),
            };
            if let Some(run) = run.filter(|run| *run == "run" || run.contains("-of-") && !run.contains('/')) {
                runs.insert(run.to_owned(), false);
            }
        }
        for name in output.list()?.into_keys() {
            if let Some(run) = run_of(&name) {
                runs.insert(run.to_owned(), !name.starts_with('_'));
            }
        }
        let mut found = Vec::new();
        for (run, is_former) in runs {
            let site = RunSite::of_names(OutputNames::of_run(&run, is_former), output.clone());
            found.extend(Self::at(&site, path)?);
        }
        Ok(found)
    }

    /// Finds the complete output of an unsharded run with these options.
    ///
    /// # Errors
    /// [`SinkError::Updating`] while the output is put in place.
    pub fn complete(options: &SinkOptions) -> Result<Option<Self>, SinkError> {
        let site = RunSite::of(&SinkOptions { shard: None, ..options.clone() })?;
        check_in_place(&site, &options.output)?;
        Self::complete_at(&site)
    }

    pub(crate) fn complete_at(site: &RunSite) -> Result<Option<Self>, SinkError> {
        let manifest = site.manifest()?;
        Ok(manifest
            .map(|manifest| Self::new(StoredState::Complete, manifest, site.output.clone(), site.output.clone())))
    }

    /// The complete output of a run, or what it has so far. A run that replaces an output leaves it to its readers.
    fn at(site: &RunSite, output: &Path) -> Result<Option<Self>, SinkError> {
        check_in_place(site, output)?;
        let mut attempts = 1..ATTEMPTS;
        loop {
            if let Some(complete) = Self::complete_at(site)? {
                return Ok(Some(complete));
            }
            let Some(claim) = site.claim()?.filter(|claim| claim.can_continue) else { return Ok(None) };
            match Self::unfinished(site, &claim) {
                // A running job has completed a part, and removed its segments, since they were listed.
                Err(SinkError::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && attempts.next().is_some() => {}
                found => return found.map(Some),
            }
        }
    }

    fn unfinished(site: &RunSite, claim: &Claim) -> Result<Self, SinkError> {
        let copies = temporary_folder()?;
        let local = match &site.work {
            SinkPlace::Folder(folder) => folder.clone(),
            SinkPlace::Objects { .. } => copies.path().to_owned(),
        };
        let first = claim.settings.fingerprint.get("sink.first_index").and_then(|first| first.parse().ok());
        let restored = restore(site, claim, &local, first.unwrap_or(0))?;
        let mut records = Vec::new();
        for (name, kind) in [(INPUTS, FrameKind::Inputs), (FAILURES, FrameKind::Failures)] {
            let path = copies.path().join(name);
            let file = File::create(&path).map_err(SinkError::io("create", &path))?;
            let (bytes, hash) = write_lines(&file, &path, kind, restored.all())?;
            records.push(ManifestFile { name: name.to_owned(), bytes, xxh3: format!("{hash:016x}") });
        }
        let sealed = restored.sealed.iter().filter_map(|segment| segment.end.sealed.clone());
        let parts: Vec<ManifestPart> = sealed.filter(|part| !part.files.is_empty()).collect();
        let pending: u64 = restored.pending.iter().map(|segment| segment.end.rows).sum();
        let manifest = OutputManifest {
            rows: parts.iter().map(|part| part.rows).sum::<u64>() + pending,
            failures: restored.all().map(|segment| segment.end.failed).sum(),
            watermark: restored.all().last().map_or(first.unwrap_or(0), |segment| segment.end.end),
            parts,
            records,
            ..OutputManifest::begun(claim.settings.clone())
        };
        let parts = match &site.work {
            SinkPlace::Folder(_) => site.work.clone(),
            SinkPlace::Objects { .. } => site.output.clone(),
        };
        let records = SinkPlace::Folder(copies.path().to_owned());
        let run = Self::new(StoredState::Unfinished, manifest, parts, records);
        Ok(Self { pending: restored.pending, copies: Some(copies), ..run })
    }

    /// Describes a file of vectors without its output's manifest, such as a copy; `None` if the file holds no manifest.
    pub fn alone(path: &Path, reader: &dyn VectorReader) -> Result<Option<Self>, SinkError> {
        let Some(settings) = reader.manifest(path)? else { return Ok(None) };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::metadata(path).map_err(SinkError::io("inspect", path))?.len();
        let part = ManifestPart { part: 0, rows: 0, files: vec![ManifestFile { name, bytes, xxh3: String::new() }] };
        let manifest = OutputManifest { parts: vec![part], ..OutputManifest::begun(settings) };
        let parts = SinkPlace::Folder(parent_of(path).to_owned());
        Ok(Some(Self::new(StoredState::Alone, manifest, parts, SinkPlace::Folder(PathBuf::new()))))
    }

    /// Returns the paths and lengths of the files that count.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let parts = self.manifest.parts.iter().flat_map(|part| &part.files);
        let mut files: Vec<_> = parts.map(|file| (self.parts.path(&file.name), file.bytes)).collect();
        for segment in &self.pending {
            let bytes = fs::metadata(&segment.path).map_or(0, |data| data.len());
            files.push((segment.path.clone(), bytes));
        }
        // Those of an unfinished run are in its segments.
        let records = self.manifest.records.iter().filter(|_| self.copies.is_none());
        files.extend(records.map(|file| (self.records.path(&file.name), file.bytes)));
        files
    }

    /// Compares each file of a complete run with its recorded length.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] or [`SinkError::Missing`], which names the first file that differs.
    pub fn check_lengths(&self) -> Result<(), SinkError> {
        check_lengths(&self.parts, self.manifest.files())
    }

    /// Compares each file with its recorded length and hash. Segments have checksums, which [`Self::rows`] compares.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] or [`SinkError::Missing`], which names the first file that differs.
    pub fn check(&self) -> Result<(), SinkError> {
        self.manifest.parts.iter().try_for_each(|part| self.check_part(part))?;
        let local = readable(&self.records, &self.manifest.records)?;
        self.manifest.records.iter().try_for_each(|file| file.check(&local.folder.join(&file.name), true))
    }

    pub(crate) fn check_part(&self, part: &ManifestPart) -> Result<(), SinkError> {
        let local = readable(&self.parts, &part.files)?;
        part.files.iter().try_for_each(|file| file.check(&local.folder.join(&file.name), true))
    }

    /// Calls `act` with each row, in the order in which they were stored, and returns their number.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if a part holds more or fewer rows than were recorded.
    pub fn rows(&mut self, reader: &dyn VectorReader, act: &mut ActOnRow<'_>) -> Result<u64, SinkError> {
        let shape = Shape::of(&self.manifest)?;
        let mut all = 0;
        for part in &self.manifest.parts {
            all += self.part_rows(part, &shape, reader, act)?;
        }
        let row_bytes = shape.dim * shape.element.bytes();
        let mut pending = RowReader::new(self.pending.clone(), row_bytes, shape.columns.len());
        while let Some(block) = pending.next_block(BLOCK)? {
            block.for_each(&shape, act)?;
            all += block.len() as u64;
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
        let local = readable(&self.parts, &part.files)?;
        let mut rows = 0;
        reader.for_each(&local.folder.join(&file.name), shape, &mut |row| {
            rows += 1;
            act(row)
        })?;
        if self.state != StoredState::Alone {
            check_count(&self.parts.path(&file.name), "rows", rows, part.rows)?;
        }
        Ok(rows)
    }

    /// The path of the record of inputs, of a run that has one.
    pub(crate) fn record_of_inputs(&self) -> PathBuf {
        self.records.path(self.manifest.records.first().map_or("", |record| record.name.as_str()))
    }

    /// Returns true if the inputs were recorded.
    pub fn has_inputs(&self) -> bool {
        self.manifest.records.len() > 1
    }

    /// The record of the inputs; `None` if there is none.
    pub fn inputs(&self) -> Result<Option<RecordedInputs>, SinkError> {
        let [record, _failures] = &self.manifest.records[..] else { return Ok(None) };
        match &self.records {
            SinkPlace::Folder(folder) => {
                Ok(RecordedInputs::new(folder.join(&record.name), record.bytes, self.manifest.complete))
            }
            SinkPlace::Objects { .. } => {
                let content = self.records.read(&record.name)?.unwrap_or_default();
                RecordedInputs::keep(&std::env::temp_dir(), &content, self.manifest.complete)
            }
        }
    }

    /// Reads the failures, in source order. The last result is [`SinkError::Damaged`] if there are more or fewer than
    /// were recorded.
    pub fn failures(&self) -> Result<impl Iterator<Item = Result<StoredFailure, SinkError>> + use<>, SinkError> {
        let recorded = self.manifest.failures;
        let open = |record: &ManifestFile| {
            let local = readable(&self.records, std::slice::from_ref(record))?;
            let name = self.records.path(&record.name);
            let path = local.folder.join(&record.name);
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
                        let [id, stage, reason, bytes] =
                            std::array::from_fn(|field| line.get(field).unwrap_or_default().to_owned());
                        StoredFailure { id, stage, reason, bytes: bytes.parse().ok() }
                    }))
                }
            }))
        };
        let read = self.manifest.records.last().map(open).transpose()?;
        Ok(read.into_iter().flatten())
    }
}

/// Compares the files in a place with their recorded lengths.
pub(crate) fn check_lengths<'a>(
    place: &SinkPlace,
    files: impl IntoIterator<Item = &'a ManifestFile>,
) -> Result<(), SinkError> {
    let SinkPlace::Objects { .. } = place else {
        return files.into_iter().try_for_each(|file| file.check(&place.path(&file.name), false));
    };
    let found = place.list()?;
    files.into_iter().try_for_each(|file| file.check_len(&place.path(&file.name), found.get(&file.name).copied()))
}

fn check_count(path: &Path, what: &str, found: u64, recorded: u64) -> Result<(), SinkError> {
    match found == recorded {
        true => Ok(()),
        false => Err(SinkError::damaged(path, format!("it has {found} {what}, but {recorded} were recorded"))),
    }
}
