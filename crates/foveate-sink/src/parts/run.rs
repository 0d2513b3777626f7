//! A run in progress: its beginning, or its continuation. The content of its parts does not matter here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use tempfile::TempDir;

use super::segment::{NewSegment, Segment, SegmentScratch};
use super::taken::{AcceptedItems, StepProbe};
use crate::checks::check_maker;
use crate::commit::{LOCK, PlannedMove, end_commit};
use crate::failures::FAILURES_HEADER;
use crate::names::{FAILURES, STAGING};
use crate::place::SinkPlace;
use crate::publish::{parent_of, remove_if_there};
use crate::restored::{restore, segments};
use crate::site::{CLAIM, Claim, RunSite, checked_json, name_of};
use crate::staging::StagingFolder;
use crate::stored::{StoredRun, check_lengths};
use crate::{
    Existing, Finished, Layout, OtherRun, OutputManifest, RunManifest, RunState, SinkError, SinkOptions, Watermark,
    sync_folder,
};

/// A run in progress.
pub(super) struct OpenRun {
    pub(super) options: SinkOptions,
    pub(super) steps: StepProbe,
    pub(super) site: RunSite,
    pub(super) claim: Claim,
    /// Digest of the claim's settings.
    pub(super) id: String,
    /// Segments of complete parts, in order.
    pub(super) sealed: Vec<Segment>,
    /// Segments of what follows, in order.
    pub(super) pending: Vec<Segment>,
    /// The rows and lines that the next commit makes segments of, by part.
    pub(super) open: BTreeMap<u64, NewSegment>,
    pub(super) watermark: Watermark,
    pub(super) failed: u64,
    /// The next item whose input is recorded.
    pub(super) next_input: u64,
    /// The part that is adopted, until its records are committed.
    pub(super) adopting: Option<u64>,
    /// The origins of adopted parts' files.
    pub(super) adopted: Vec<PlannedMove>,
    pub(super) taken: AcceptedItems,
    pub(super) upload: PartUpload,
    pub(super) scratch: SegmentScratch,
    /// After `open`, whose writers have files open in it.
    pub(super) local: LocalWork,
}

/// The local folder of a run: the work in progress itself, or a temporary one for files on their way to a store.
pub(super) enum LocalWork {
    Locked(StagingFolder),
    Temporary(TempDir),
}

impl LocalWork {
    pub(super) fn folder(&self) -> &Path {
        match self {
            Self::Locked(staging) => staging.folder(),
            Self::Temporary(folder) => folder.path(),
        }
    }
}

/// The part on its way to the store.
#[derive(Default)]
pub(super) struct PartUpload(pub(super) Option<JoinHandle<Result<(), SinkError>>>);

impl PartUpload {
    /// Waits until the part is in the store.
    pub(super) fn settle(&mut self) -> Result<(), SinkError> {
        let ended = self.0.take().map(JoinHandle::join);
        ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for PartUpload {
    /// The part's files go with the folder, and a run that is stopped keeps the part.
    fn drop(&mut self) {
        // Its error would come too late: the run continues before this part.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl OpenRun {
    /// Continues the work in progress, or begins it. `settings` are all that decides the output's bytes.
    pub(super) fn begin(
        options: &SinkOptions,
        settings: RunManifest,
        existing: Existing,
        steps: StepProbe,
    ) -> Result<Self, SinkError> {
        check_maker(options, &settings)?;
        Beginning { options: options.clone(), steps, site: RunSite::of(options)?, settings, existing }.open()
    }

    /// Number of items that a part covers. A single file is one part.
    fn part_items(&self) -> u64 {
        if self.site.layout == Layout::Folder { self.options.part_items } else { u64::MAX }
    }

    /// The first item after the sealed parts, and the number of its part.
    pub(super) fn origin(&self) -> (u64, u64) {
        match self.sealed.last().map(|last| &last.end) {
            Some(last) => (last.end, self.claim.first_part.max(last.part + 1)),
            None => (self.options.first_index, self.claim.first_part),
        }
    }

    pub(super) fn part_of(&self, index: u64) -> u64 {
        if let Some(part) = self.adopting {
            return part;
        }
        let (first, part) = self.origin();
        part + (index - first) / self.part_items()
    }

    /// One past the last index of a part that is not sealed.
    pub(super) fn part_end(&self, part: u64) -> u64 {
        let (first, first_part) = self.origin();
        (part - first_part).saturating_add(1).saturating_mul(self.part_items()).saturating_add(first)
    }

    /// The segment in progress of a part.
    pub(super) fn writer(&mut self, part: u64) -> Result<&mut NewSegment, SinkError> {
        if !self.open.contains_key(&part) {
            self.open.insert(part, NewSegment::create(self.local.folder(), part)?);
        }
        Ok(self.open.get_mut(&part).expect("the writer was just made"))
    }

    /// Makes a complete segment part of the work in progress.
    pub(super) fn publish(&mut self, writer: NewSegment, name: &str) -> Result<Segment, SinkError> {
        let (written, end) = writer.finish()?;
        let path = self.local.folder().join(name);
        fs::rename(&written, &path).map_err(SinkError::io("publish", &path))?;
        Ok(Segment { path, end })
    }

    /// Takes the segments of an earlier session.
    fn restore(&mut self) -> Result<(), SinkError> {
        let restored = restore(&self.site, &self.claim, self.local.folder(), self.options.first_index)?;
        let all = restored.sealed.iter().chain(&restored.pending);
        self.failed = all.clone().map(|segment| segment.end.failed).sum();
        if let Some(last) = all.last() {
            self.watermark = Watermark { index: last.end.end, place: last.end.place };
        }
        self.next_input = self.watermark.index;
        // Only the last part of a run is short: it was sealed when the run was finishing.
        let is_short = restored.sealed.last().is_some_and(|last| last.end.end - last.end.start < self.part_items());
        let is_closed = !self.options.packed && is_short;
        self.taken = AcceptedItems::up_to(self.watermark.index, self.claim.settings.dim, is_closed);
        self.sealed = restored.sealed;
        self.pending = restored.pending;
        self.check_parts()?;
        if let LocalWork::Locked(_) = self.local { self.remove_uncommitted() } else { Ok(()) }
    }

    /// Compares the files of sealed parts with what was recorded: their hashes, or their lengths if it would take long
    /// to read them.
    fn check_parts(&self) -> Result<(), SinkError> {
        let parts = self.sealed.iter().filter_map(|segment| segment.end.sealed.as_ref());
        let mut files = parts.flat_map(|part| &part.files).peekable();
        match &self.local {
            LocalWork::Locked(staging) => {
                files.try_for_each(|file| match file.check(&staging.join(&file.name), !self.options.packed) {
                    Err(SinkError::Missing { path, source }) => Err(SinkError::Damaged { path, source }),
                    checked => checked,
                })
            }
            LocalWork::Temporary(_) if files.peek().is_some() => check_lengths(&self.site.output, files),
            LocalWork::Temporary(_) => Ok(()),
        }
    }

    /// Removes what no segment names.
    fn remove_uncommitted(&mut self) -> Result<(), SinkError> {
        let mut known = vec![CLAIM.to_owned(), LOCK.to_owned()];
        for segment in self.sealed.iter().chain(&self.pending) {
            known.extend(segment.path.file_name().map(|name| name.to_string_lossy().into_owned()));
            known.extend(segment.end.sealed.iter().flat_map(|part| &part.files).map(|file| file.name.clone()));
        }
        let found = SinkPlace::Folder(self.local.folder().to_owned()).list()?;
        for name in found.keys().filter(|name| !known.contains(name)) {
            self.steps.step("remove uncommitted file");
            remove_if_there(&self.local.folder().join(name))?;
        }
        Ok(())
    }
}

/// The arguments with which a run begins.
struct Beginning {
    options: SinkOptions,
    steps: StepProbe,
    site: RunSite,
    settings: RunManifest,
    existing: Existing,
}

impl Beginning {
    fn is_fresh(&self) -> bool {
        matches!(self.existing, Existing::Overwrite | Existing::Update)
    }

    fn open(self) -> Result<OpenRun, SinkError> {
        if self.options.prefix.is_some() {
            return self.open_in_store();
        }
        if !self.is_fresh() && self.site.names.main().exists() && !self.site.names.staging().exists() {
            return Err(self.finished());
        }
        self.steps.step("create staging folder");
        let options = self.options.clone();
        let names = self.site.names.clone();
        let staging = StagingFolder::take(&options, &names)?;
        match self.begin_at(LocalWork::Locked(staging)) {
            // Nothing is there that a claim does not name.
            Err(error) if !names.staging().join(CLAIM).exists() => {
                if let Ok(staging) = StagingFolder::take(&options, &names) {
                    staging.discard_unused();
                }
                Err(error)
            }
            begun => begun,
        }
    }

    fn open_in_store(self) -> Result<OpenRun, SinkError> {
        let parent = self.options.temporary();
        let folder = tempfile::Builder::new().prefix("foveate-").tempdir_in(&parent);
        let folder = folder.map_err(SinkError::io("create a folder in", &parent))?;
        let run = self.begin_at(LocalWork::Temporary(folder))?;
        let Some(prefix) = &run.options.prefix else { return Ok(run) };
        let claim = checked_json(&run.claim);
        // The store must keep an object that exists. One that ignores the condition would let two writers mix.
        let name = format!("{}/{CLAIM}", run.site.names.staging().display());
        // The first one succeeds if another writer of this job has just finished.
        if prefix.create(&name, claim.clone())? && prefix.create(&name, claim)? {
            prefix.remove(&name)?;
            return Err(SinkError::Unconditional(prefix.address().to_owned()));
        }
        Ok(run)
    }

    /// Continues the work in progress, or begins it.
    fn begin_at(self, local: LocalWork) -> Result<OpenRun, SinkError> {
        end_commit(&self.site, &mut |step| self.steps.step(step))?;
        let base = self.site.manifest()?;
        if let Some(file) = base.iter().flat_map(OutputManifest::files).find(|file| !self.site.names.owns(&file.name)) {
            let reason = format!("it names {:?}, which is no file of this output", file.name);
            return Err(SinkError::damaged(&self.site.output.path(&self.site.manifest_name()), reason));
        }
        let digest = base.as_ref().map(OutputManifest::digest);
        let claim = if self.is_fresh() { None } else { self.site.claim()? };
        if let Some(claim) = claim.filter(|claim| claim.can_continue && (base.is_none() || claim.base == digest)) {
            if self.existing == Existing::Refuse {
                return Err(SinkError::Interrupted(self.options.output.clone()));
            }
            self.check_same(&claim, &local)?;
            return self.resume(local, claim);
        }
        let is_there =
            base.is_some() || matches!(self.site.output, SinkPlace::Folder(_)) && self.site.names.main().exists();
        if is_there && !self.is_fresh() {
            return Err(self.finished());
        }
        if is_there && base.is_none() {
            return Err(self.is_strangers("it is there"));
        }
        self.start(local, base.as_ref())
    }

    fn is_strangers(&self, what: &str) -> SinkError {
        let source = format!("{what}, and no manifest of foveate names it; remove it, or name another output");
        SinkError::BadOutput { path: self.options.output.clone(), source: source.into() }
    }

    fn start(self, local: LocalWork, base: Option<&OutputManifest>) -> Result<OpenRun, SinkError> {
        let waste = self.waste(&local, base)?;
        let work = &self.site.work;
        if self.site.layout == Layout::Folder {
            self.check_no_stranger(&waste, base)?;
        }
        let mut claim = Claim::new(self.settings.clone(), base);
        claim.can_continue = self.existing != Existing::Update;
        // Its parts and those of the replaced output are in one place for a while.
        let is_beside = self.options.prefix.is_some() || self.existing == Existing::Update;
        if self.site.layout == Layout::Folder && is_beside {
            let parts = base.iter().flat_map(|base| &base.parts).map(|part| part.part + 1);
            claim.first_part = parts.max().unwrap_or(0);
        }
        match &local {
            LocalWork::Locked(staging) => {
                self.steps.step("remove parts of an interrupted run");
                waste.iter().try_for_each(|name| self.site.output.remove(name))?;
                self.steps.step("empty staging folder");
                staging.clear()?;
                self.steps.step("claim");
                work.replace(CLAIM, checked_json(&claim))?;
                sync_folder(parent_of(staging.folder()))?;
            }
            LocalWork::Temporary(_) if self.is_fresh() => {
                work.replace(CLAIM, checked_json(&claim))?;
                waste.iter().try_for_each(|name| self.site.output.remove(name))?;
                for name in work.list()?.into_keys().filter(|name| name != CLAIM) {
                    work.remove(&name)?;
                }
            }
            LocalWork::Temporary(_) => {
                // Another writer came first, or this one did in a request whose answer was lost.
                match work.create(CLAIM, checked_json(&claim)) {
                    Err(SinkError::Differs(_)) => {
                        if let Some(claim) = self.site.claim()? {
                            return self.resume(local, claim);
                        }
                    }
                    created => created?,
                }
            }
        }
        Ok(self.run(local, claim))
    }

    /// Parts that an interrupted run has put in place, and that the output does not have.
    fn waste(&self, local: &LocalWork, base: Option<&OutputManifest>) -> Result<BTreeSet<String>, SinkError> {
        let is_local = matches!(local, LocalWork::Locked(_));
        let segments = match segments(&self.site, local.folder()) {
            // The run starts over, whatever was damaged.
            Err(SinkError::Damaged { .. }) if is_local || self.is_fresh() => Vec::new(),
            found => found?,
        };
        let run = self.site.claim().ok().flatten().map(|claim| claim.settings.digest());
        let of_run = segments.into_iter().filter(|segment| !is_local || run.as_ref() == Some(&segment.end.run));
        let parts = of_run.filter_map(|segment| segment.end.sealed);
        let files = parts.flat_map(|part| part.files).map(|file| file.name);
        let mut waste: BTreeSet<String> = files.filter(|name| self.site.names.is_part(name)).collect();
        for file in base.iter().flat_map(|base| base.files()) {
            waste.remove(&file.name);
        }
        Ok(waste)
    }

    /// Refuses files that readers of the whole folder would take for parts of this output, and one of the user that
    /// has the name of the failures.
    fn check_no_stranger(&self, waste: &BTreeSet<String>, base: Option<&OutputManifest>) -> Result<(), SinkError> {
        let mut named: BTreeSet<&str> = waste.iter().map(String::as_str).collect();
        named.extend(base.iter().flat_map(|base| base.files()).map(|file| file.name.as_str()));
        let found = self.site.output.list()?;
        let stray = found.keys().find(|name| self.site.names.is_part(name) && !named.contains(name.as_str()));
        if let Some(stray) = stray {
            return Err(self.is_strangers(&format!("it holds {stray}")));
        }
        let failures = name_of(&self.site.names.current().beside(FAILURES));
        if !found.contains_key(&failures) || base.is_some() {
            return Ok(());
        }
        // All that a run without any vector leaves, and the first file that a commit moves.
        let may_be_ours = !self.options.packed || self.site.claim().is_ok_and(|claim| claim.is_some());
        match self.site.output.read(&failures)? {
            Some(content) if !may_be_ours || !content.starts_with(FAILURES_HEADER.as_bytes()) => {
                Err(self.is_strangers(&format!("it holds {failures}")))
            }
            _ => Ok(()),
        }
    }

    fn run(self, local: LocalWork, claim: Claim) -> OpenRun {
        let first = self.options.first_index;
        OpenRun {
            options: self.options,
            steps: self.steps,
            site: self.site,
            id: claim.settings.digest(),
            sealed: Vec::new(),
            pending: Vec::new(),
            open: BTreeMap::new(),
            watermark: Watermark::from(first),
            failed: 0,
            next_input: first,
            adopting: None,
            adopted: Vec::new(),
            taken: AcceptedItems::up_to(first, claim.settings.dim, false),
            upload: PartUpload::default(),
            scratch: SegmentScratch::default(),
            claim,
            local,
        }
    }

    fn resume(self, local: LocalWork, claim: Claim) -> Result<OpenRun, SinkError> {
        let mut run = self.run(local, claim);
        run.restore()?;
        Ok(run)
    }

    /// Refuses to continue another job.
    fn check_same(&self, claim: &Claim, local: &LocalWork) -> Result<(), SinkError> {
        let Some(difference) = claim.settings.difference(&self.settings) else { return Ok(()) };
        let state = if self.site.manifest()?.is_some() { RunState::Replacing } else { RunState::Interrupted };
        let restored = restore(&self.site, claim, local.folder(), self.options.first_index)?;
        let inputs = restored.inputs(&self.options.temporary())?;
        let path = self.options.output.clone();
        Err(SinkError::OtherRun(Box::new(OtherRun { path, state, difference, inputs })))
    }

    /// The error for a complete output: this same job is done, another job's output is in the way, or files of it are
    /// missing.
    fn finished(&self) -> SinkError {
        let path = self.site.output.path(&self.site.main_name());
        if self.existing != Existing::Resume {
            return SinkError::Exists(path);
        }
        if self.site.layout == Layout::Folder && self.options.prefix.is_none() {
            // A run that is killed at its very end leaves this folder empty. Fails while other shards are running.
            let _ = fs::remove_dir(self.options.output.join(STAGING));
        }
        match self.describe_finished(path) {
            Ok(error) | Err(error) => error,
        }
    }

    fn describe_finished(&self, path: PathBuf) -> Result<SinkError, SinkError> {
        let Some(run) = StoredRun::complete_at(&self.site)? else {
            let record = self.site.output.path(&self.site.manifest_name());
            return Err(SinkError::missing(&record, format!("{} already exists", path.display())));
        };
        run.check_lengths()?;
        if self.options.check {
            run.check()?;
        }
        let inputs = run.inputs()?;
        let published = run.manifest.published(&self.site.output.path(""));
        let mut described = run.manifest.clone();
        if self.site.layout == Layout::File {
            // Earlier versions made a single file of parts.
            described.fingerprint.remove(RunManifest::PART_ITEMS);
        }
        Ok(match described.difference(&self.settings) {
            Some(difference) => {
                SinkError::OtherRun(Box::new(OtherRun { path, state: RunState::Complete, difference, inputs }))
            }
            None => SinkError::AlreadyComplete(Box::new(Finished { path, published, inputs })),
        })
    }
}
