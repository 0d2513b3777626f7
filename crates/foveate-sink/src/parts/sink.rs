//! [`PartSink`]: the store itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use foveate_core::error_chain;

use super::journal::{Journal, Record, State};
use super::log::{Block, LogExtent, LogPaths, PartLog, Scratch};
use super::{PartFiles, PartFormat, StoredPart};
use crate::fold::end_update;
use crate::publish::{parent_of, remove_if_there};
use crate::staging::{
    self, FAILURES, FAILURES_HEADER, INPUTS, INPUTS_HEADER, JOURNAL, Ledger, Phase, Staging, Steps, Taken, push_failure,
};
use crate::{
    Existing, Failure, InputRecord, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, Published, Rows,
    RunManifest, SinkError, SinkOptions, VectorSink, Watermark, publish, sidecar, sync_file, sync_folder,
};

/// A crash-safe [`VectorSink`] that stores parts of format `F`.
///
/// After any error but [`SinkError::Misuse`] the sink accepts no more calls; drop it and begin again with a new one.
pub struct PartSink<F> {
    pub(super) options: SinkOptions,
    pub(super) format: F,
    phase: Phase<Run>,
    steps: Steps,
    /// Complete parts leave the output folder.
    pub(super) ships: bool,
}

/// A run in progress.
struct Run {
    names: OutputNames,
    staging: Staging,
    journal: Journal,
    state: State,
    logs: BTreeMap<u64, PartLog>,
    /// `None` once every file is staged.
    records: Option<Records>,
    taken: Taken,
    new_files: bool,
    scratch: Scratch,
}

/// The files that grow beside the logs.
struct Records {
    failures: Ledger,
    /// Failures so far.
    failed: u64,
    inputs: Ledger,
    /// Lines to append; reused.
    lines: String,
}

impl<F: PartFormat> PartSink<F> {
    /// A sink for `options`; does not write to disk before `begin`.
    pub fn new(options: SinkOptions, format: F) -> Self {
        Self { options, format, phase: Phase::New, steps: Steps::default(), ships: false }
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
    pub(super) fn settings(&self, manifest: &RunManifest) -> RunManifest {
        let mut settings = staging::settings(&self.options, self.format.name(), manifest);
        if self.has_parts() {
            settings.fingerprint.insert("sink.part_items".to_owned(), self.options.part_items.to_string());
        }
        settings
    }

    /// Returns true if the run is divided into parts.
    fn has_parts(&self) -> bool {
        self.options.layout == Layout::Folder || self.format.assembles()
    }

    fn part_items(&self) -> u64 {
        if self.has_parts() { self.options.part_items } else { u64::MAX }
    }

    pub(super) fn part_of(&self, index: u64) -> u64 {
        (index - self.options.first_index) / self.part_items()
    }

    /// One past the last index of a part.
    pub(super) fn part_end(&self, part: u64) -> u64 {
        part.saturating_add(1).saturating_mul(self.part_items()).saturating_add(self.options.first_index)
    }

    fn open(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Run, SinkError> {
        staging::check(&self.options, manifest)?;
        end_update(&self.options, existing)?;
        self.format.check_columns(&self.options)?;
        let names = OutputNames::new(&self.options);
        let settings = self.settings(manifest);
        let is_complete = existing != Existing::Overwrite && names.main().exists();
        if is_complete && !names.staging().exists() {
            return Err(staging::finished(&self.options, &names, &settings, existing));
        }
        self.step("create staging folder");
        let staging = Staging::take(&self.options, &names)?;
        let found = if existing == Existing::Overwrite { None } else { State::read(&staging.join(JOURNAL))? };
        // Another run may have finished while this one waited for the lock.
        let is_complete = existing != Existing::Overwrite && names.main().exists();
        match (found, existing) {
            (Some(state), Existing::Resume) => self.resume(names, staging, state, &settings),
            (Some(_), Existing::Refuse) if !is_complete => Err(SinkError::Interrupted(self.options.output.clone())),
            _ if is_complete => {
                staging.discard_unused();
                Err(staging::finished(&self.options, &names, &settings, existing))
            }
            _ => match self.start(&names, &staging, settings, existing) {
                Ok((journal, state, records)) => Ok(Run::new(names, staging, journal, state, Some(records))),
                Err(error) => {
                    staging.discard_unused();
                    Err(error)
                }
            },
        }
    }

    fn start(
        &mut self,
        names: &OutputNames,
        staging: &Staging,
        settings: RunManifest,
        existing: Existing,
    ) -> Result<(Journal, State, Records), SinkError> {
        let replaces = existing == Existing::Overwrite && self.options.layout == Layout::Folder;
        if existing != Existing::Overwrite {
            staging::check_folder(&self.options, names)?;
        }
        self.step("empty staging folder");
        staging.clear()?;
        self.step("start records");
        let records = Records::create(staging)?;
        self.step("start journal");
        let mut state = State::begun(settings, self.options.first_index, replaces);
        let mut journal = Journal::create(&staging.join(JOURNAL), &state)?;
        sync_folder(parent_of(staging.folder()))?;
        self.clear_replaced(names, &mut journal, &mut state)?;
        Ok((journal, state, records))
    }

    /// Removes the output that the run replaces. The journal exists by then, so that a run that is killed here goes on
    /// with the plain command.
    fn clear_replaced(
        &mut self,
        names: &OutputNames,
        journal: &mut Journal,
        state: &mut State,
    ) -> Result<(), SinkError> {
        if !state.must_clear {
            return Ok(());
        }
        staging::clear_folder(&self.options, names, &mut self.steps)?;
        self.step("journal cleared");
        journal.append(&Record::Cleared)?;
        state.must_clear = false;
        Ok(())
    }

    fn resume(
        &mut self,
        names: OutputNames,
        staging: Staging,
        mut state: State,
        settings: &RunManifest,
    ) -> Result<Run, SinkError> {
        staging::check_same_job(&staging, &names, (&state.settings, state.inputs_file.len), settings)?;
        self.step("reopen journal");
        let mut journal = Journal::reopen(&staging.join(JOURNAL), &state)?;
        if state.staged.is_some() {
            // A folder's parts have their final names already; a file's are compared when they get theirs.
            if self.options.layout == Layout::Folder {
                self.check_parts(staging.folder(), &state, true)?;
            }
            return Ok(Run::new(names, staging, journal, state, None));
        }
        self.clear_replaced(&names, &mut journal, &mut state)?;
        self.check_parts(staging.folder(), &state, self.options.layout == Layout::Folder)?;
        let records = Records::reopen(&staging, &state)?;
        let mut run = Run::new(names, staging, journal, state, Some(records));
        for extent in run.state.logs.values() {
            self.step("reopen log");
            run.logs.insert(extent.part, PartLog::reopen(run.staging.folder(), extent.clone())?);
        }
        self.remove_uncommitted(&run)?;
        // A crash may have happened between a commit and the sealing of the parts that it completed.
        self.seal_complete(&mut run)?;
        Ok(run)
    }

    /// A complete part with rows, by its number.
    pub(super) fn sealed(&self, part: u64) -> Option<&ManifestPart> {
        let Phase::Open(run) = &self.phase else { return None };
        let sealed = &run.state.sealed;
        sealed.binary_search_by_key(&part, |sealed| sealed.part).ok().map(|at| &sealed[at])
    }

    /// Checks that every sealed part exists with its recorded length and, with `contents`, its recorded hash. The parts
    /// of a single file are read once more when they are joined, so their contents are compared there.
    fn check_parts(&self, staging: &Path, state: &State, contents: bool) -> Result<(), SinkError> {
        if self.ships {
            return Ok(());
        }
        let folder = self.part_folder(staging);
        state
            .sealed
            .iter()
            .flat_map(|part| &part.files)
            .try_for_each(|file| file.check(&folder.join(&file.name), contents))
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
        run.taken.check_rows(rows, self.options.columns.len())?;
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
            log.append(block, &mut run.scratch)?;
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
        let Some(records) = &mut run.records else { return Ok(()) };
        records.fail(failures)?;
        run.taken.failures(failures);
        Ok(())
    }

    fn take_inputs(run: &mut Run, inputs: &[InputRecord]) -> Result<(), SinkError> {
        let Some(Records { inputs: ledger, lines, .. }) = &mut run.records else { return Ok(()) };
        lines.clear();
        inputs.iter().for_each(|input| input.push_line(lines));
        ledger.append(lines)
    }

    fn commit_run(&mut self, run: &mut Run, watermark: Watermark) -> Result<(), SinkError> {
        run.taken.check_watermark(watermark.index)?;
        if !run.taken.is_news(watermark.index) {
            return Ok(());
        }
        self.step("sync logs");
        for log in run.logs.values_mut() {
            log.sync()?;
        }
        if let Some(records) = &mut run.records {
            (run.state.failures, run.state.failures_file) = (records.failed, records.failures.sync()?);
            run.state.inputs_file = records.inputs.sync()?;
        }
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
        let mut sealed = ManifestPart { part, rows: extent.rows, files: Vec::new() };
        for (from, to) in staged.publishing_order().zip(files.publishing_order()) {
            sealed.files.push(ManifestFile::describe(from, to)?);
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
            columns: &self.options.columns,
        };
        self.format.encode(&part, &run.state.settings, &staged)?;
        staged.publishing_order().try_for_each(|path| sync_file(path))?;
        Ok(staged)
    }

    fn finish_run(&mut self, run: &mut Run) -> Result<Published, SinkError> {
        run.taken.check_finish()?;
        if !run.state.finishing {
            self.step("journal finishing");
            run.journal.append(&Record::Finishing)?;
            run.state.finishing = true;
            run.taken.close();
        }
        if run.state.staged.is_none() {
            self.seal_rest(run)?;
            run.records = None;
            let files = self.stage(run)?;
            self.step("journal staged");
            sync_folder(run.staging.folder())?;
            run.journal.append(&Record::Staged { files: files.clone() })?;
            run.state.staged = Some(files);
        }
        if !run.has_output() {
            staging::remove_overwritten(&run.names, self.format.sidecars(), &mut self.steps)?;
        }
        staging::publish_all(&self.publication(run), run.state.staged.as_deref().unwrap_or_default(), &mut self.steps)?;
        Ok(self.published(run))
    }

    /// Seals the last part, which need not be full. A run without items is complete with one empty part.
    fn seal_rest(&mut self, run: &mut Run) -> Result<(), SinkError> {
        while let Some(&part) = run.logs.keys().next() {
            self.seal(run, part)?;
        }
        if run.state.sealed.is_empty() && (run.state.failures == 0 || self.options.publish_empty) {
            self.step("start log");
            let log = PartLog::create(run.staging.folder(), 0, self.format.free_bytes())?;
            run.logs.insert(0, log);
            self.seal(run, 0)?;
        }
        Ok(())
    }

    /// Prepares all files that do not have their final name yet, and describes them in the order of their renames.
    fn stage(&mut self, run: &mut Run) -> Result<Vec<ManifestFile>, SinkError> {
        if self.options.layout == Layout::File && run.state.sealed.len() > 1 {
            self.step("assemble");
            self.check_parts(run.staging.folder(), &run.state, true)?;
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
        let moves = self.publication(run);
        let manifest = run.names.manifest();
        let describe = |moves: &[(PathBuf, PathBuf)]| {
            moves.iter().map(|(from, to)| run.describe(from, to)).collect::<Result<Vec<_>, _>>()
        };
        let Some(at) = moves.iter().position(|(_, to)| *to == manifest) else { return describe(&moves) };
        let (records, vectors) = (describe(&moves[..at])?, describe(&moves[at + 1..])?);
        self.step("write manifest");
        let json = self.output_manifest(run, &records, &vectors).to_json();
        let path = run.staging.join("manifest.json");
        fs::write(&path, json).map_err(SinkError::io("write", &path))?;
        sync_file(&path)?;
        Ok([records, vec![ManifestFile::describe(&path, &manifest)?], vectors].concat())
    }

    fn assembled(&self, run: &Run) -> PathBuf {
        run.staging.join(&format!("whole.{}", self.format.extension()))
    }

    /// `records` and `vectors` are in the order of their renames; parts of a folder have their final names already.
    fn output_manifest(&self, run: &Run, records: &[ManifestFile], vectors: &[ManifestFile]) -> OutputManifest {
        let state = &run.state;
        let parts = match self.options.layout {
            Layout::Folder => state.sealed.clone(),
            Layout::File => {
                let files = vectors.iter().rev().cloned().collect();
                vec![ManifestPart { part: 0, rows: state.rows(), files }]
            }
        };
        OutputManifest {
            version: OutputManifest::VERSION,
            complete: true,
            format: self.format.name().to_owned(),
            dim: state.settings.dim,
            element: self.options.element.name().to_owned(),
            rows: state.rows(),
            failures: state.failures,
            watermark: state.watermark,
            parts,
            records: records.iter().rev().cloned().collect(),
            fingerprint: state.settings.fingerprint.clone(),
            info: state.settings.info.clone(),
        }
    }

    /// The final renames, in order: records, manifest, and the file that means "complete" as the last.
    fn publication(&self, run: &Run) -> Vec<(PathBuf, PathBuf)> {
        let staged = |name: &str| (run.staging.join(name), run.names.beside(name));
        let mut moves = vec![staged(FAILURES)];
        if !run.has_output() {
            return moves;
        }
        if run.state.inputs_file.len > INPUTS_HEADER.len() as u64 {
            moves.push(staged(INPUTS));
        }
        moves.push(staged("manifest.json"));
        if self.options.layout == Layout::File {
            let first = run.state.sealed.first().map_or(0, |part| part.part);
            let files = self.part_files(run, run.staging.folder(), first);
            let sidecars = files.sidecars.into_iter().zip(self.format.sidecars());
            moves.extend(sidecars.map(|(path, name)| (path, run.names.sidecar(name))));
            let vectors = if run.state.sealed.len() > 1 { self.assembled(run) } else { files.vectors };
            moves.push((vectors, run.names.main()));
        }
        moves
    }

    /// Removes the work in progress, every file of it closed. The output is complete by now, so an error is a note.
    fn remove_staging(&mut self, run: Run) -> Option<String> {
        self.step("remove staging folder");
        let Run { staging, names, journal, logs, records, .. } = run;
        drop((journal, logs, records));
        let removed = staging.remove().and_then(|()| sync_folder(parent_of(&names.main())));
        removed.err().map(|error| error_chain(&error))
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
        Published { files, rows: run.state.rows(), failures: run.state.failures, leftover: None }
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
        let watermark = Watermark { index: run.state.watermark, place: run.state.place };
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

    fn record(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        self.on_run("record", |_, run| Self::take_inputs(run, inputs))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |sink, run| sink.commit_run(run, watermark))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.on_run("finish", Self::finish_run)?;
        let run = self.phase.take("finish")?;
        let leftover = self.remove_staging(*run);
        self.phase = Phase::Done;
        Ok(Published { leftover, ..published })
    }
}

impl<F: PartFormat> std::fmt::Debug for PartSink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartSink").field("format", &self.format.name()).field("options", &self.options).finish()
    }
}

impl Run {
    fn new(names: OutputNames, staging: Staging, journal: Journal, state: State, records: Option<Records>) -> Self {
        Self {
            names,
            staging,
            journal,
            taken: Taken::up_to(state.watermark, state.settings.dim, state.finishing),
            state,
            logs: BTreeMap::new(),
            records,
            new_files: false,
            scratch: Scratch::default(),
        }
    }

    /// Returns true if anything but the failures is published once every part is sealed. If every item failed, an empty
    /// output would pass for a result and prevent a retry of the same run.
    fn has_output(&self) -> bool {
        !self.state.sealed.is_empty()
    }

    /// Describes a complete file of the work in progress as the journal has it, so that damage since then is found when
    /// the file is published.
    fn describe(&self, path: &Path, target: &Path) -> Result<ManifestFile, SinkError> {
        let name = path.file_name().unwrap_or_default();
        let mut files = self.state.sealed.iter().flat_map(|part| &part.files);
        match files.find(|file| name == file.name.as_str()) {
            _ if name == FAILURES => Ok(self.state.failures_file.describe(target)),
            _ if name == INPUTS => Ok(self.state.inputs_file.describe(target)),
            Some(sealed) => {
                let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok(ManifestFile { name, ..sealed.clone() })
            }
            None => ManifestFile::describe(path, target),
        }
    }

    fn journal_commit(&mut self, Watermark { index: watermark, place }: Watermark) -> Result<(), SinkError> {
        (self.state.watermark, self.state.place) = (watermark, place);
        self.taken.commit(watermark);
        let State { failures, failures_file, inputs_file, .. } = self.state;
        let logs = self.logs.values().map(|log| log.extent().clone()).collect();
        self.journal.append(&Record::Commit { watermark, place, failures, failures_file, inputs_file, logs })
    }
}

impl Records {
    fn create(staging: &Staging) -> Result<Self, SinkError> {
        let failures = Ledger::create(staging.join(FAILURES), FAILURES_HEADER)?;
        let inputs = Ledger::create(staging.join(INPUTS), INPUTS_HEADER)?;
        Ok(Self { failures, failed: 0, inputs, lines: String::new() })
    }

    fn reopen(staging: &Staging, state: &State) -> Result<Self, SinkError> {
        let failures = Ledger::reopen(staging.join(FAILURES), state.failures_file)?;
        let inputs = Ledger::reopen(staging.join(INPUTS), state.inputs_file)?;
        Ok(Self { failures, failed: state.failures, inputs, lines: String::new() })
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.lines.clear();
        for Failure { id, stage, reason, bytes, .. } in failures {
            push_failure(&mut self.lines, id, stage.name(), reason, *bytes);
        }
        self.failed += failures.len() as u64;
        self.failures.append(&self.lines)
    }
}
