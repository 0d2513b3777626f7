//! [`PartSink`]: the store itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::journal::{Journal, Record, SealedFile, SealedPart, State};
use super::log::{Block, LogExtent, LogPaths, PartLog, Scratch, open_at};
use super::{PartFiles, PartFormat, StoredPart};
use crate::publish::{parent_of, remove_if_there};
use crate::staging::{self, FAILURES_HEADER, Phase, Staging, Steps, Taken, push_failure};
use crate::{
    Element, Existing, Failure, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, Published, Rows,
    RunManifest, SinkError, SinkOptions, VectorSink, Watermark, publish, sidecar, sync_file, sync_folder,
};

/// The file without which the rest of a staging folder is meaningless.
const JOURNAL: &str = "journal";

/// A crash-safe [`VectorSink`] that stores parts of format `F`.
///
/// After any error but [`SinkError::Misuse`] the sink accepts no more calls; drop it and begin again with a new one.
pub struct PartSink<F> {
    options: SinkOptions,
    format: F,
    phase: Phase<Run>,
    steps: Steps,
}

/// A run in progress.
struct Run {
    names: OutputNames,
    staging: Staging,
    journal: Journal,
    state: State,
    logs: BTreeMap<u64, PartLog>,
    failures: FailureFile,
    taken: Taken,
    new_files: bool,
    scratch: Scratch,
}

/// The failures file, which grows in the staging folder.
struct FailureFile {
    path: PathBuf,
    file: File,
    len: u64,
    count: u64,
    dirty: bool,
    lines: String,
}

impl<F: PartFormat> PartSink<F> {
    /// A sink for `options`; does not write to disk before `begin`.
    pub fn new(options: SinkOptions, format: F) -> Self {
        Self { options, format, phase: Phase::New, steps: Steps::default() }
    }

    /// Calls `probe` before every step that changes the disk, so that a test can see the state after a crash there.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn with_probe(mut self, probe: crate::conformance::Probe) -> Self {
        self.steps = Steps::seen_by(probe);
        self
    }

    fn step(&mut self, name: &'static str) {
        self.steps.step(name);
    }

    /// The caller's settings plus the options that must not change within a run.
    fn settings(&self, manifest: &RunManifest) -> RunManifest {
        let mut settings = staging::settings(&self.options, self.format.name(), manifest);
        if self.has_parts() {
            settings.fingerprint.insert("sink.part_items".to_owned(), self.options.part_items.to_string());
        }
        settings
    }

    /// Whether the run is divided into parts.
    fn has_parts(&self) -> bool {
        self.options.layout == Layout::Folder || self.format.assembles()
    }

    fn part_items(&self) -> u64 {
        if self.has_parts() { self.options.part_items } else { u64::MAX }
    }

    fn part_of(&self, index: u64) -> u64 {
        (index - self.options.first_index) / self.part_items()
    }

    /// One past the last index of a part.
    fn part_end(&self, part: u64) -> u64 {
        part.saturating_add(1).saturating_mul(self.part_items()).saturating_add(self.options.first_index)
    }

    fn extensions(&self) -> Vec<String> {
        let extension = self.format.extension();
        let sidecars = self.format.sidecars().iter().map(|name| format!("{extension}.{name}"));
        std::iter::once(extension.to_owned()).chain(sidecars).collect()
    }

    fn open(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Run, SinkError> {
        staging::check(&self.options, manifest)?;
        let names = OutputNames::new(&self.options);
        let main = names.main();
        if existing != Existing::Overwrite && main.exists() && !names.staging().exists() {
            return Err(self.finished(&names, existing, manifest));
        }
        self.step("create staging folder");
        let staging = Staging::take(&self.options, &names)?;
        let settings = self.settings(manifest);
        let found = if existing == Existing::Overwrite { None } else { State::read(&staging.join(JOURNAL))? };
        match (found, existing) {
            (Some(state), Existing::Resume) => self.resume(names, staging, state, &settings),
            (Some(_), Existing::Refuse) if !main.exists() => Err(SinkError::Interrupted(self.options.output.clone())),
            (_, Existing::Resume | Existing::Refuse) if main.exists() => {
                staging.discard_unused(JOURNAL);
                Err(self.finished(&names, existing, manifest))
            }
            _ => match self.start(&names, &staging, settings, existing) {
                Ok((journal, state, failures)) => Ok(Run::new(names, staging, journal, state, failures)),
                Err(error) => {
                    staging.discard_unused(JOURNAL);
                    Err(error)
                }
            },
        }
    }

    /// The error for an existing output: this same job is complete, or another output is in the way.
    fn finished(&self, names: &OutputNames, existing: Existing, manifest: &RunManifest) -> SinkError {
        let main = names.main();
        let done = if self.writes_manifest() {
            staging::read_manifest(&names.beside("manifest.json"))
        } else {
            self.format.read_manifest(&main)
        };
        staging::finished(main, done, &self.settings(manifest), existing)
    }

    fn start(
        &mut self,
        names: &OutputNames,
        staging: &Staging,
        settings: RunManifest,
        existing: Existing,
    ) -> Result<(Journal, State, FailureFile), SinkError> {
        self.step("empty staging folder");
        staging.clear(JOURNAL)?;
        if self.options.layout == Layout::Folder {
            let extensions = self.extensions();
            staging::clear_folder(&self.options.output, names, &extensions, existing, &mut self.steps)?;
        }
        self.step("start failures file");
        let failures = FailureFile::create(staging.join("failures.csv"))?;
        self.step("start journal");
        let first = self.options.first_index;
        let journal = Journal::create(&staging.join(JOURNAL), &settings, first)?;
        sync_folder(parent_of(staging.folder()))?;
        Ok((journal, State { settings, watermark: first, ..State::default() }, failures))
    }

    fn resume(
        &mut self,
        names: OutputNames,
        staging: Staging,
        state: State,
        settings: &RunManifest,
    ) -> Result<Run, SinkError> {
        if let Some(difference) = state.settings.difference(settings) {
            return Err(SinkError::OtherRun { path: self.options.output.clone(), difference });
        }
        if !state.staged {
            self.check_parts(staging.folder(), &state)?;
        }
        self.step("reopen journal");
        let journal = Journal::reopen(&staging.join(JOURNAL), &state)?;
        let failures = FailureFile::reopen(staging.folder(), &names, &state)?;
        let mut run = Run::new(names, staging, journal, state, failures);
        for extent in run.state.logs.values() {
            self.step("reopen log");
            run.logs.insert(extent.part, PartLog::reopen(run.staging.folder(), extent.clone())?);
        }
        if !run.state.staged {
            self.remove_uncommitted(&run)?;
        }
        // A crash may have happened between a commit and the sealing of the parts that it completed.
        self.seal_complete(&mut run)?;
        Ok(run)
    }

    /// Checks that every sealed part exists with its recorded length.
    fn check_parts(&self, staging: &Path, state: &State) -> Result<(), SinkError> {
        for file in state.sealed.iter().flat_map(|part| &part.files) {
            let path = self.part_folder(staging).join(&file.name);
            let found = fs::metadata(&path).map(|metadata| metadata.len());
            if found.as_ref().ok() != Some(&file.bytes) {
                let what = found.map_or_else(|error| error.to_string(), |bytes| format!("{bytes} bytes long"));
                let reason = format!("it was completed with {} bytes and is now: {what}", file.bytes);
                return Err(SinkError::damaged(&path, reason));
            }
        }
        Ok(())
    }

    /// Removes logs of parts that were never committed.
    fn remove_uncommitted(&mut self, run: &Run) -> Result<(), SinkError> {
        let staging = run.staging.folder();
        let entries = fs::read_dir(staging).map_err(SinkError::io("list", staging))?;
        let kept: Vec<PathBuf> = run
            .logs
            .keys()
            .map(|&part| LogPaths::new(staging, part))
            .flat_map(|paths| [paths.vectors, paths.frames])
            .collect();
        for entry in entries {
            let path = entry.map_err(SinkError::io("list", staging))?.path();
            let is_log = path.extension().is_some_and(|extension| extension == "vectors" || extension == "rows");
            if is_log && !kept.contains(&path) {
                self.step("remove uncommitted log");
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    /// The folder of complete parts.
    fn part_folder<'a>(&'a self, staging: &'a Path) -> &'a Path {
        match self.options.layout {
            Layout::File => staging,
            Layout::Folder => &self.options.output,
        }
    }

    fn part_files(&self, run: &Run, folder: &Path, part: u64) -> PartFiles {
        let vectors = run.names.part(folder, part, self.format.extension());
        let sidecars = self.format.sidecars().iter().map(|name| sidecar(&vectors, name)).collect();
        PartFiles { vectors, sidecars }
    }

    fn take_rows(&mut self, run: &mut Run, rows: &Rows<'_>) -> Result<(), SinkError> {
        run.taken.check_rows(rows)?;
        let dim = run.state.settings.dim;
        let mut start = 0;
        while start < rows.index.len() {
            let part = self.part_of(rows.index[start]);
            let end = self.part_end(part);
            let count = rows.index[start..].partition_point(|&index| index < end || end == u64::MAX);
            if !run.logs.contains_key(&part) {
                self.step("start log");
                run.logs.insert(part, PartLog::create(run.staging.folder(), part, self.format.free_bytes())?);
                run.new_files = true;
            }
            self.step("append rows");
            let block = Block { rows, range: start..start + count, dim, element: self.options.element };
            let log = run.logs.get_mut(&part).expect("the log was just made");
            log.append(&block, &mut run.scratch)?;
            start += count;
        }
        run.taken.rows(rows);
        Ok(())
    }

    fn take_failures(&mut self, run: &mut Run, failures: &[Failure]) -> Result<(), SinkError> {
        run.taken.check_failures(failures)?;
        if failures.is_empty() {
            return Ok(());
        }
        self.step("append failures");
        run.failures.append(failures)?;
        run.taken.failures(failures);
        Ok(())
    }

    fn commit_run(&mut self, run: &mut Run, watermark: u64) -> Result<(), SinkError> {
        run.taken.check_watermark(watermark)?;
        if !run.taken.is_news(watermark) {
            return Ok(());
        }
        self.step("sync logs");
        for log in run.logs.values_mut() {
            log.sync()?;
        }
        run.failures.sync()?;
        if std::mem::take(&mut run.new_files) {
            sync_folder(run.staging.folder())?;
        }
        self.step("journal commit");
        run.journal_commit(watermark)?;
        self.seal_complete(run)
    }

    /// Encodes all parts that the watermark has passed.
    fn seal_complete(&mut self, run: &mut Run) -> Result<(), SinkError> {
        while let Some(&part) = run.logs.keys().next() {
            if self.part_end(part) > run.state.watermark {
                break;
            }
            self.seal(run, part)?;
        }
        Ok(())
    }

    fn seal(&mut self, run: &mut Run, part: u64) -> Result<(), SinkError> {
        let extent = run.logs.remove(&part).expect("only parts with a log are sealed").extent().clone();
        let paths = LogPaths::new(run.staging.folder(), part);
        self.step("encode part");
        let staged = self.encode(run, &paths, &extent)?;
        let files = self.part_files(run, self.part_folder(run.staging.folder()), part);
        let mut sealed = SealedPart { part, rows: extent.rows, files: Vec::new() };
        for (from, to) in staged.publishing_order().zip(files.publishing_order()) {
            sealed.files.push(self.describe(from, to)?);
            self.step("publish part");
            publish(from, to)?;
        }
        sealed.files.rotate_right(1); // the vectors, published last, are listed first
        self.step("journal sealed part");
        run.journal.append(&Record::Sealed { part: sealed.clone() })?;
        run.state.sealed.push(sealed);
        self.step("remove log");
        remove_if_there(&paths.vectors)?;
        self.step("remove log");
        remove_if_there(&paths.frames)
    }

    /// Encodes one part under temporary names and syncs it.
    fn encode(&mut self, run: &Run, paths: &LogPaths, extent: &LogExtent) -> Result<PartFiles, SinkError> {
        let staged = PartFiles {
            vectors: run.staging.join(&format!("new.{}", self.format.extension())),
            sidecars: self.format.sidecars().iter().map(|name| run.staging.join(&format!("new.{name}"))).collect(),
        };
        for path in staged.publishing_order() {
            remove_if_there(path)?;
        }
        let part = StoredPart {
            paths,
            extent,
            free: self.format.free_bytes(),
            dim: run.state.settings.dim,
            element: self.options.element,
        };
        self.format.encode(&part, &run.state.settings, &staged)?;
        staged.publishing_order().try_for_each(|path| sync_file(path))?;
        Ok(staged)
    }

    /// Describes a part's file for the journal. Hashing costs a pass over the data, so it is done only if a manifest
    /// will list the file beside other parts.
    fn describe(&self, staged: &Path, target: &Path) -> Result<SealedFile, SinkError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::metadata(staged).map_err(SinkError::io("inspect", staged))?.len();
        let xxh3 = match self.options.layout {
            Layout::File => None,
            Layout::Folder => Some(staging::hash_file(staged)?),
        };
        Ok(SealedFile { name, bytes, xxh3 })
    }

    fn finish_run(&mut self, run: &mut Run) -> Result<Published, SinkError> {
        run.taken.check_finish()?;
        if !run.state.finishing {
            self.step("journal finishing");
            run.journal.append(&Record::Finishing)?;
            run.state.finishing = true;
            run.taken.close();
        }
        if !run.state.staged {
            self.seal_rest(run)?;
            self.stage(run)?;
            self.step("journal staged");
            sync_folder(run.staging.folder())?;
            run.journal.append(&Record::Staged)?;
            run.state.staged = true;
        }
        if !run.has_output() {
            let sidecars = [self.format.sidecars(), &["manifest.json"]].concat();
            staging::remove_overwritten(&run.names, &sidecars, &mut self.steps)?;
        }
        staging::publish_all(&self.publication(run), &mut self.steps)?;
        self.step("remove staging folder");
        self.remove_staging(run)?;
        Ok(self.published(run))
    }

    /// Seals the last part, which need not be full. A run without items is complete with one empty part.
    fn seal_rest(&mut self, run: &mut Run) -> Result<(), SinkError> {
        while let Some(&part) = run.logs.keys().next() {
            self.seal(run, part)?;
        }
        if run.state.sealed.is_empty() && run.state.failures == 0 {
            self.step("start log");
            let log = PartLog::create(run.staging.folder(), 0, self.format.free_bytes())?;
            run.logs.insert(0, log);
            self.seal(run, 0)?;
        }
        Ok(())
    }

    /// Prepares all files that do not have their final name yet.
    fn stage(&mut self, run: &mut Run) -> Result<(), SinkError> {
        if self.options.layout == Layout::File && run.state.sealed.len() > 1 {
            self.step("assemble");
            let parts: Vec<PathBuf> = run
                .state
                .sealed
                .iter()
                .map(|part| self.part_files(run, run.staging.folder(), part.part).vectors)
                .collect();
            let whole = self.assembled(run);
            remove_if_there(&whole)?;
            self.format.assemble(&parts, &run.state.settings, &whole)?;
            sync_file(&whole)?;
        }
        if self.writes_manifest() && run.has_output() {
            self.step("write manifest");
            let path = run.staging.join("manifest.json");
            let mut file = File::create(&path).map_err(SinkError::io("create", &path))?;
            let json = self.output_manifest(run).to_json();
            file.write_all(json.as_bytes()).map_err(SinkError::io("write", &path))?;
            file.sync_all().map_err(SinkError::io("sync", &path))?;
        }
        Ok(())
    }

    fn assembled(&self, run: &Run) -> PathBuf {
        run.staging.join(&format!("whole.{}", self.format.extension()))
    }

    fn writes_manifest(&self) -> bool {
        self.options.layout == Layout::Folder || !self.format.embeds_manifest()
    }

    fn output_manifest(&self, run: &Run) -> OutputManifest {
        let state = &run.state;
        OutputManifest {
            version: OutputManifest::VERSION,
            complete: true,
            format: self.format.name().to_owned(),
            dim: state.settings.dim,
            element: self.options.element.name().to_owned(),
            rows: state.rows(),
            failures: state.failures,
            watermark: state.watermark,
            parts: state.sealed.iter().map(|part| self.manifest_part(run, part)).collect(),
            fingerprint: state.settings.fingerprint.clone(),
            info: state.settings.info.clone(),
        }
    }

    fn manifest_part(&self, run: &Run, part: &SealedPart) -> ManifestPart {
        let finals = match self.options.layout {
            Layout::Folder => part.files.iter().map(|file| file.name.clone()).collect(),
            Layout::File => self.final_names(run),
        };
        let files = part.files.iter().zip(finals);
        let files = files.map(|(file, name)| ManifestFile { name, bytes: file.bytes, xxh3: file.xxh3.clone() });
        ManifestPart { part: part.part, rows: part.rows, files: files.collect() }
    }

    /// Names of the vector file and its sidecars in a single-file output.
    fn final_names(&self, run: &Run) -> Vec<String> {
        let main = run.names.main();
        let sidecars = self.format.sidecars().iter().map(|name| sidecar(&main, name));
        let paths = std::iter::once(main.clone()).chain(sidecars);
        paths.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
    }

    /// The final renames, in order: the file that means "complete" is the last.
    fn publication(&self, run: &Run) -> Vec<(PathBuf, PathBuf)> {
        let mut moves = vec![(run.failures.path.clone(), run.names.beside("failures.csv"))];
        if !run.has_output() {
            return moves;
        }
        if self.writes_manifest() {
            moves.push((run.staging.join("manifest.json"), run.names.beside("manifest.json")));
        }
        if self.options.layout == Layout::File {
            let first = run.state.sealed.first().map_or(0, |part| part.part);
            let files = self.part_files(run, run.staging.folder(), first);
            let sidecars = files.sidecars.into_iter().zip(self.format.sidecars());
            moves.extend(sidecars.map(|(path, name)| (path, run.names.beside(name))));
            let vectors = if run.state.sealed.len() > 1 { self.assembled(run) } else { files.vectors };
            moves.push((vectors, run.names.main()));
        }
        moves
    }

    fn remove_staging(&self, run: &Run) -> Result<(), SinkError> {
        run.staging.remove(JOURNAL)?;
        sync_folder(parent_of(&run.names.main()))
    }

    fn published(&self, run: &Run) -> Published {
        let mut files = match self.options.layout {
            Layout::File => Vec::new(),
            Layout::Folder => {
                let names = run.state.sealed.iter().flat_map(|part| &part.files).map(|file| &file.name);
                names.map(|name| self.options.output.join(name)).collect()
            }
        };
        let published = self.publication(run).into_iter().rev().map(|(_, path)| path);
        files.extend(published);
        Published { files, rows: run.state.rows(), failures: run.state.failures }
    }

    /// Runs one call on the open run; an error that may have left files half-written ends the run.
    fn on_run<T>(
        &mut self,
        call: &str,
        act: impl FnOnce(&mut Self, &mut Run) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        let mut run = self.phase.take(call)?;
        let result = act(self, &mut run);
        self.phase.put_back(run, result)
    }
}

impl<F: PartFormat> VectorSink for PartSink<F> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.phase.check_new()?;
        let run = self.open(manifest, existing)?;
        let watermark = Watermark(run.state.watermark);
        self.phase = Phase::Open(Box::new(run));
        Ok(watermark)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.on_run("failures", |_, run| Ok(run.state.failures))
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.on_run("append", |sink, run| sink.take_rows(run, rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.on_run("fail", |sink, run| sink.take_failures(run, failures))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |sink, run| sink.commit_run(run, watermark.0))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.on_run("finish", Self::finish_run)?;
        self.phase = Phase::Done;
        Ok(published)
    }
}

impl<F: PartFormat> std::fmt::Debug for PartSink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartSink").field("format", &self.format.name()).field("options", &self.options).finish()
    }
}

impl Run {
    fn new(names: OutputNames, staging: Staging, journal: Journal, state: State, failures: FailureFile) -> Self {
        Self {
            names,
            staging,
            journal,
            taken: Taken::up_to(state.watermark, state.settings.dim, state.finishing),
            state,
            logs: BTreeMap::new(),
            failures,
            new_files: false,
            scratch: Scratch::default(),
        }
    }

    /// Whether anything but the failures is published once every part is sealed. If every item failed, an empty output
    /// would pass for a result and prevent a retry of the same run.
    fn has_output(&self) -> bool {
        !self.state.sealed.is_empty()
    }

    fn journal_commit(&mut self, watermark: u64) -> Result<(), SinkError> {
        let logs: Vec<LogExtent> = self.logs.values().map(|log| log.extent().clone()).collect();
        self.state.watermark = watermark;
        self.state.failures = self.failures.count;
        self.state.failures_len = self.failures.len;
        self.taken.commit(watermark);
        self.journal.append(&Record::Commit {
            watermark,
            failures: self.failures.count,
            failures_len: self.failures.len,
            logs,
        })
    }
}

impl FailureFile {
    fn create(path: PathBuf) -> Result<Self, SinkError> {
        let mut file = File::create(&path).map_err(SinkError::io("create", &path))?;
        file.write_all(FAILURES_HEADER.as_bytes()).map_err(SinkError::io("write", &path))?;
        file.sync_all().map_err(SinkError::io("sync", &path))?;
        Ok(Self { path, file, len: FAILURES_HEADER.len() as u64, count: 0, dirty: false, lines: String::new() })
    }

    fn reopen(staging: &Path, names: &OutputNames, state: &State) -> Result<Self, SinkError> {
        let path = staging.join("failures.csv");
        // Once everything is staged, the file may already have its final name.
        let there = if state.staged && !path.exists() { names.beside("failures.csv") } else { path.clone() };
        let file = open_at(&there, state.failures_len)?;
        Ok(Self { path, file, len: state.failures_len, count: state.failures, dirty: false, lines: String::new() })
    }

    fn append(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.lines.clear();
        for Failure { id, stage, reason, bytes, .. } in failures {
            push_failure(&mut self.lines, id, stage.name(), reason, *bytes);
        }
        self.dirty = true;
        self.file.write_all(self.lines.as_bytes()).map_err(SinkError::io("write", &self.path))?;
        self.len += self.lines.len() as u64;
        self.count += failures.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), SinkError> {
        if std::mem::take(&mut self.dirty) {
            self.file.sync_data().map_err(SinkError::io("sync", &self.path))?;
        }
        Ok(())
    }
}

impl Element {
    /// Bytes of one component.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}
