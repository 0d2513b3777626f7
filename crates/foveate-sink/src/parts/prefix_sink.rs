//! [`PrefixSink`]: an output below a prefix of an object store.

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use foveate_core::error_chain;
use tempfile::TempDir;

use super::objects::{MOST_OBJECT, Objects};
use super::records::{Claim, PartRecord, Restored, claim_name, json, own_objects, read_parsed, record_name, text};
use super::{PartFormat, PartSink};
use crate::fold::end_update;
use crate::staging::{self, FAILURES, INPUTS, Phase, Steps, push_failure};
use crate::{
    Existing, Failure, InputRecord, Layout, ManifestFile, ManifestPart, OutputManifest, OutputNames, Prefix, Published,
    RecordedInputs, Rows, RunManifest, RunState, SinkError, SinkOptions, VectorSink, Watermark,
};

/// A crash-safe [`VectorSink`] that stores parts of format `F` below a [`Prefix`].
///
/// The run is one in a local folder whose complete parts move to the store, each followed by a record of itself. So the
/// objects are the files of a local run, byte for byte. The folder is temporary: a run continues after the last part
/// that has a record, on any machine.
///
/// Several writers of the same job do no harm: an object is created once, and must have the bytes that every other
/// writer has for it.
pub struct PrefixSink<F> {
    objects: Objects,
    options: SinkOptions,
    /// Names of objects.
    names: OutputNames,
    local: PartSink<F>,
    phase: Phase<Run>,
    /// The local folder. After `local`, which has files open in it.
    folder: Option<TempDir>,
}

/// A run in progress.
struct Run {
    /// [`Claim::run`].
    id: String,
    /// The first part without a record.
    next_part: u64,
    /// The next item that [`VectorSink::record`] gets.
    next_input: u64,
    /// What the records of parts in progress will hold, by part.
    open: BTreeMap<u64, PartRecord>,
    /// The part on its way to the store.
    upload: Option<JoinHandle<Result<(), SinkError>>>,
}

impl Run {
    /// Waits until the part on its way is in the store.
    fn settle(&mut self) -> Result<(), SinkError> {
        let upload = self.upload.take().map(JoinHandle::join);
        upload.map_or(Ok(()), |ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn has_uploaded(&self) -> bool {
        self.upload.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Run {
    /// The part's files go with the folder, and a run that is stopped keeps the part.
    fn drop(&mut self) {
        // Its error would come too late: the run continues before this part.
        let _ = self.upload.take().map(JoinHandle::join);
    }
}

/// The sink for `options`: in files, or below a prefix if they name one.
pub fn open<F: PartFormat + 'static>(options: &SinkOptions, format: F) -> Box<dyn VectorSink> {
    match &options.prefix {
        None => Box::new(PartSink::new(options.clone(), format)),
        Some(prefix) => Box::new(PrefixSink::new(Arc::clone(prefix), options.clone(), format)),
    }
}

impl<F: PartFormat> PrefixSink<F> {
    /// A sink for `options` below `prefix`; makes no request and no folder before `begin`.
    pub fn new(prefix: Arc<dyn Prefix>, options: SinkOptions, format: F) -> Self {
        let options = SinkOptions { layout: Layout::Folder, ..options };
        let names = OutputNames::of_objects(&options);
        let mut local = PartSink::new(SinkOptions { prefix: None, ..options.clone() }, format);
        local.ships = true;
        let objects = Objects::new(prefix, Steps::default());
        Self { objects, options, names, local, phase: Phase::New, folder: None }
    }

    /// Calls `probe` before every request that changes the store, so that a test can see the state after a crash there.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn with_probe(mut self, probe: crate::conformance::Probe) -> Self {
        self.objects = Objects::new(self.objects.prefix, Steps::seen_by(probe));
        self
    }

    fn main(&self) -> String {
        text(&self.names.main())
    }

    fn claim_name(&self) -> String {
        claim_name(&self.names)
    }

    fn open(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Run, SinkError> {
        staging::check(&self.options, manifest)?;
        end_update(&self.options, existing)?;
        self.local.format.check_columns(&self.options)?;
        self.check_part_size(manifest.dim)?;
        self.names = OutputNames::find_below(self.objects.prefix.as_ref(), &self.options)?;
        let settings = self.local.settings(manifest);
        let claim = match existing {
            Existing::Overwrite => self.replace(&settings)?,
            _ => self.find_or_claim(&settings, existing)?,
        };
        let mut restored = self.restore(&claim)?;
        self.check_same_job(&claim, &restored, &settings)?;
        self.prove_claim(&claim)?;
        let claim = if claim.replaces { self.clear(claim)? } else { claim };
        self.check_parts(&restored.parts)?;
        restored.write_journal(claim.settings.clone(), self.options.first_index)?;
        let next_part = restored.parts.len() as u64;
        let next_input = restored.parts.last().map_or(self.options.first_index, |last| last.watermark);
        Ok(Run { id: claim.run(), next_part, next_input, open: BTreeMap::new(), upload: None })
    }

    /// A part is one request.
    fn check_part_size(&self, dim: usize) -> Result<(), SinkError> {
        let row = (dim * self.options.element.bytes()) as u64;
        if self.options.part_items.saturating_mul(row) <= MOST_OBJECT {
            return Ok(());
        }
        let most = MOST_OBJECT / row;
        Err(SinkError::Unsupported(format!(
            "parts of {} items in an object store, where a part is sent in one request; {most} items are the most",
            self.options.part_items
        )))
    }

    /// The claim of an interrupted run, or a new one.
    fn find_or_claim(&mut self, settings: &RunManifest, existing: Existing) -> Result<Claim, SinkError> {
        let claim = self.claim()?;
        if claim.as_ref().is_none_or(|claim| !claim.replaces)
            && let Some(manifest) = self.manifest()?
        {
            return Err(self.finished(manifest, settings, existing));
        }
        match claim {
            Some(_) if existing == Existing::Refuse => Err(SinkError::Interrupted(self.options.output.clone())),
            Some(claim) => Ok(claim),
            None => self.start(settings),
        }
    }

    fn start(&mut self, settings: &RunManifest) -> Result<Claim, SinkError> {
        if let Some(part) = self.parts()?.into_keys().next() {
            return Err(SinkError::Exists(self.objects.address(&part)));
        }
        // A run without any row leaves its failures, and nothing else.
        self.remove_records()?;
        let claim = Claim::new(settings.clone(), false);
        self.objects.step("claim");
        match self.objects.prefix.create(&self.claim_name(), json(&claim))? {
            true => Ok(claim),
            // Another writer came first, or this one did in a request whose answer was lost.
            false => Ok(self.claim()?.unwrap_or(claim)),
        }
    }

    fn claim(&self) -> Result<Option<Claim>, SinkError> {
        read_parsed(self.objects.prefix.as_ref(), &self.claim_name(), Claim::parse)
    }

    fn manifest(&self) -> Result<Option<OutputManifest>, SinkError> {
        read_parsed(self.objects.prefix.as_ref(), &self.main(), OutputManifest::parse)
    }

    /// Checks that the store keeps an object that exists. One that ignores the condition would let two writers mix.
    fn prove_claim(&self, claim: &Claim) -> Result<(), SinkError> {
        let (name, content) = (self.claim_name(), json(claim));
        // The first one succeeds if another writer of this job has just finished.
        if self.objects.prefix.create(&name, content.clone())? && self.objects.prefix.create(&name, content)? {
            self.objects.prefix.remove(&name)?;
            return Err(SinkError::Unconditional(self.objects.prefix.address().to_owned()));
        }
        Ok(())
    }

    /// Makes the prefix this run's own, whatever is there.
    fn replace(&mut self, settings: &RunManifest) -> Result<Claim, SinkError> {
        let claim = Claim::new(settings.clone(), true);
        self.objects.step("claim");
        self.objects.prefix.replace(&self.claim_name(), json(&claim))?;
        Ok(claim)
    }

    /// Removes the output that the run replaces. The claim exists by then, so that a run that is killed here goes on
    /// with the plain command.
    fn clear(&mut self, mut claim: Claim) -> Result<Claim, SinkError> {
        self.objects.remove(&self.main())?;
        self.remove_part_records()?;
        for name in self.parts()?.into_keys() {
            self.objects.remove(&name)?;
        }
        self.remove_records()?;
        self.names = OutputNames::of_objects(&self.options);
        claim.replaces = false;
        self.objects.step("cleared");
        self.objects.prefix.replace(&self.claim_name(), json(&claim))?;
        Ok(claim)
    }

    /// Removes the failures and the record of the inputs.
    fn remove_records(&self) -> Result<(), SinkError> {
        [FAILURES, INPUTS].iter().try_for_each(|name| self.objects.remove(&text(&self.names.beside(name))))
    }

    /// Removes the run's own objects in the store, but for the claim.
    fn remove_part_records(&self) -> Result<(), SinkError> {
        let (own, claim) = (own_objects(self.objects.prefix.as_ref(), &self.names)?, self.claim_name());
        own.keys().filter(|name| **name != claim).try_for_each(|name| self.objects.remove(name))
    }

    /// This run's part files, and their lengths.
    fn parts(&self) -> Result<BTreeMap<String, u64>, SinkError> {
        let mut parts = self.objects.prefix.list("part")?;
        parts.retain(|name, _| self.names.is_part(name));
        Ok(parts)
    }

    /// Makes a local run of the claim's run, as far as it came.
    fn restore(&mut self, claim: &Claim) -> Result<Restored, SinkError> {
        self.local.options.output = self.make_folder()?.join("output");
        let staging = OutputNames::new(&self.local.options).staging();
        Restored::read(self.objects.prefix.as_ref(), &self.names, claim, staging)
    }

    fn check_same_job(&self, claim: &Claim, restored: &Restored, now: &RunManifest) -> Result<(), SinkError> {
        let Some(difference) = claim.settings.difference(now) else { return Ok(()) };
        let state = if claim.replaces { RunState::Replacing } else { RunState::Interrupted };
        let path = restored.inputs();
        let content = fs::read(&path).map_err(SinkError::io("read", &path))?;
        let inputs = RecordedInputs::keep(&self.temporary(), &content, false)?;
        Err(staging::other_run(self.options.output.clone(), state, difference, inputs))
    }

    /// Checks that the files of complete parts are there.
    fn check_parts(&self, records: &[PartRecord]) -> Result<(), SinkError> {
        if records.is_empty() {
            return Ok(());
        }
        let found = self.parts()?;
        records.iter().flat_map(|record| &record.part.files).try_for_each(|file| self.check_length(file, &found))
    }

    fn check_length(&self, file: &ManifestFile, found: &BTreeMap<String, u64>) -> Result<(), SinkError> {
        file.check_len(&self.objects.address(&file.name), found.get(&file.name).copied())
    }

    /// The error for a complete output, as [`staging::finished`].
    fn finished(&mut self, manifest: OutputManifest, settings: &RunManifest, existing: Existing) -> SinkError {
        let path = self.objects.address(&self.main());
        if existing != Existing::Resume {
            return SinkError::Exists(path);
        }
        let inputs = match self.check_files(&manifest).and_then(|()| self.recorded_inputs(&manifest)) {
            Ok(inputs) => inputs,
            Err(error) => return error,
        };
        let published = manifest.published(Path::new(self.objects.prefix.address()));
        if let Some(difference) = manifest.difference(settings) {
            return staging::other_run(path, RunState::Complete, difference, inputs);
        }
        // A run that was killed at its very end leaves them.
        let _ = self.remove_own();
        SinkError::AlreadyComplete(Box::new(crate::Finished { path, published, inputs }))
    }

    fn check_files(&self, manifest: &OutputManifest) -> Result<(), SinkError> {
        let mut found = self.parts()?;
        for record in &manifest.records {
            found.extend(self.objects.prefix.list(&record.name)?);
        }
        for file in manifest.files() {
            self.check_length(file, &found)?;
            if self.options.check {
                let content = self.objects.prefix.read(&file.name)?.unwrap_or_default();
                file.check_content(&self.objects.address(&file.name), &content)?;
            }
        }
        Ok(())
    }

    fn recorded_inputs(&self, manifest: &OutputManifest) -> Result<Option<RecordedInputs>, SinkError> {
        let name = text(&self.names.beside(INPUTS));
        if !manifest.records.iter().any(|file| file.name == name) {
            return Ok(None);
        }
        let content = self.objects.prefix.read(&name)?.unwrap_or_default();
        RecordedInputs::keep(&self.temporary(), &content, true)
    }

    /// The folder for temporary files.
    fn temporary(&self) -> PathBuf {
        self.options.staging.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// A new folder for files that are on their way to the store.
    fn make_folder(&mut self) -> Result<PathBuf, SinkError> {
        let parent = self.temporary();
        let folder = tempfile::Builder::new().prefix("foveate-").tempdir_in(&parent);
        let folder = self.folder.insert(folder.map_err(SinkError::io("create a folder in", &parent))?);
        Ok(folder.path().to_owned())
    }

    fn take_failures(&mut self, run: &mut Run, failures: &[Failure]) -> Result<(), SinkError> {
        self.local.fail(failures)?;
        for Failure { index, id, stage, reason, bytes } in failures {
            let record = run.open.entry(self.local.part_of(*index)).or_default();
            push_failure(&mut record.failures, id, stage.name(), reason, *bytes);
            record.failed += 1;
        }
        Ok(())
    }

    fn take_inputs(&mut self, run: &mut Run, inputs: &[InputRecord]) -> Result<(), SinkError> {
        self.local.record(inputs)?;
        for input in inputs {
            let record = run.open.entry(self.local.part_of(run.next_input)).or_default();
            input.push_line(&mut record.inputs);
            record.place = input.place;
            run.next_input += 1;
        }
        Ok(())
    }

    /// Commits locally, and begins to move the parts that are complete now to the store.
    fn commit_run(&mut self, run: &mut Run, watermark: Watermark) -> Result<(), SinkError> {
        self.local.commit(watermark)?;
        if run.has_uploaded() {
            run.settle()?;
        }
        while self.local.part_end(run.next_part) <= watermark.index {
            run.settle()?;
            self.ship(run);
        }
        Ok(())
    }

    /// Begins to move the next part to the store, beside the run.
    fn ship(&mut self, run: &mut Run) {
        let number = run.next_part;
        let part = self.local.sealed(number).cloned();
        let part = part.unwrap_or(ManifestPart { part: number, ..ManifestPart::default() });
        let files: Vec<_> = part.files.iter().map(|file| self.local.options.output.join(&file.name)).collect();
        let open = run.open.remove(&number).unwrap_or_default();
        let record = PartRecord { run: run.id.clone(), part, watermark: self.local.part_end(number), ..open };
        let (objects, name) = (self.objects.clone(), record_name(&self.names, number));
        run.upload = Some(thread::spawn(move || objects.put_part(&files, &name, json(&record))));
        run.next_part += 1;
    }

    fn finish_run(&mut self, run: &mut Run) -> Result<Published, SinkError> {
        run.settle()?;
        let local = self.local.finish()?;
        let main = OutputNames::new(&self.local.options).main();
        // The parts that moved are not there any more. The manifest, which means "complete", comes last.
        for path in local.files.iter().filter(|path| **path != main && path.exists()) {
            self.objects.put_file("file", path)?;
        }
        if local.files.contains(&main) {
            self.objects.put_file("manifest", &main)?;
        }
        let names = local.files.iter().filter_map(|path| path.file_name());
        let files = names.map(|name| self.objects.address(&name.to_string_lossy())).collect();
        Ok(Published { files, ..local })
    }

    /// Removes the run's own objects, the claim at last.
    fn remove_own(&mut self) -> Result<(), SinkError> {
        self.remove_part_records()?;
        self.objects.remove(&self.claim_name())
    }

    /// Removes what the finished run needed. The output is complete by now, so an error is a note.
    fn clean_up(&mut self) -> Option<String> {
        let own = self.remove_own();
        let folder = self.folder.take().map_or(Ok(()), |folder| {
            let path = folder.path().to_owned();
            folder.close().map_err(SinkError::io("remove", &path))
        });
        own.and(folder).err().map(|error| error_chain(&error))
    }

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

impl<F: PartFormat> VectorSink for PrefixSink<F> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.phase.check_new()?;
        let run = self.open(manifest, existing)?;
        let watermark = self.local.begin(manifest, Existing::Resume)?;
        self.phase = Phase::Open(Box::new(run));
        Ok(watermark)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.on_run("failures", |sink, _| sink.local.failures())
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.on_run("append", |sink, _| sink.local.append(rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.on_run("fail", |sink, run| sink.take_failures(run, failures))
    }

    fn record(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        self.on_run("record", |sink, run| sink.take_inputs(run, inputs))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |sink, run| sink.commit_run(run, watermark))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.on_run("finish", Self::finish_run)?;
        self.phase = Phase::Done;
        let leftover = published.leftover.clone().or_else(|| self.clean_up());
        Ok(Published { leftover, ..published })
    }
}

impl<F: PartFormat> std::fmt::Debug for PrefixSink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixSink")
            .field("prefix", &self.objects.prefix)
            .field("format", &self.local.format.name())
            .finish()
    }
}
