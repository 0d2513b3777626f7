//! [`PartSink`]: the sink itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use foveate_core::error_chain;
use tempfile::TempDir;

use super::segment::{Block, FrameKind, Scratch, Segment, SegmentEnd, SegmentWriter, sealed_name};
use super::{PartFiles, PartFormat, StoredPart};
use crate::commit::{CommitPlan, LOCK, PLAN, PlannedMove, clear_work, end_commit};
use crate::names::STAGING;
use crate::place::{MOST_OBJECT, Place};
use crate::publish::{parent_of, remove_if_there};
use crate::site::{CLAIM, Claim, RunSite, checked_json, name_of};
use crate::staging::{self, FAILURES, INPUTS, INPUTS_HEADER, Phase, Staging, Steps, Taken, push_failure};
use crate::stored::{StoredRun, check_lengths, restore, segments, write_lines};
use crate::{
    Existing, Failure, Finished, InputRecord, Layout, ManifestFile, ManifestPart, OtherRun, OutputManifest, Published,
    Rows, RunManifest, RunState, SinkError, SinkOptions, VectorSink, Watermark, publish, sidecar, sync_file,
    sync_folder,
};

/// A crash-safe [`VectorSink`] that stores parts of format `F`, in files or below a prefix of an object store.
///
/// After any error but [`SinkError::Misuse`] the sink accepts no more calls; drop it and begin again with a new one.
///
/// In a store, several writers of the same job do no harm: an object is created once, and must have the bytes that
/// every other writer has for it. There a run continues after its last complete part, on any machine.
pub struct PartSink<F> {
    options: SinkOptions,
    format: F,
    phase: Phase<OpenRun>,
    steps: Steps,
}

/// A run in progress.
struct OpenRun {
    site: RunSite,
    claim: Claim,
    /// Digest of the claim's settings.
    id: String,
    /// Segments of complete parts, in order.
    sealed: Vec<Segment>,
    /// Segments of what follows, in order.
    pending: Vec<Segment>,
    /// What the next commit makes segments of, by part.
    open: BTreeMap<u64, SegmentWriter>,
    watermark: Watermark,
    failed: u64,
    /// The next item that [`VectorSink::record`] gets.
    next_input: u64,
    /// The first item after the adopted parts, and the number of its part.
    origin: (u64, u64),
    /// The part that is adopted, until its records are committed.
    adopting: Option<u64>,
    /// Where files of adopted parts come from.
    adopted: Vec<PlannedMove>,
    taken: Taken,
    upload: Upload,
    lines: String,
    scratch: Scratch,
    /// After `open`, whose writers have files open in it.
    local: LocalWork,
}

/// The local folder of a run: the work in progress itself, or a temporary one for files on their way to a store.
enum LocalWork {
    Locked(Staging),
    Temporary(TempDir),
}

impl LocalWork {
    fn folder(&self) -> &Path {
        match self {
            Self::Locked(staging) => staging.folder(),
            Self::Temporary(folder) => folder.path(),
        }
    }
}

/// The part on its way to the store.
#[derive(Default)]
struct Upload(Option<JoinHandle<Result<(), SinkError>>>);

impl Upload {
    /// Waits until the part is in the store.
    fn settle(&mut self) -> Result<(), SinkError> {
        let ended = self.0.take().map(JoinHandle::join);
        ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for Upload {
    /// The part's files go with the folder, and a run that is stopped keeps the part.
    fn drop(&mut self) {
        // Its error would come too late: the run continues before this part.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl OpenRun {
    /// The segment in progress of a part.
    fn writer(&mut self, part: u64) -> Result<&mut SegmentWriter, SinkError> {
        if !self.open.contains_key(&part) {
            self.open.insert(part, SegmentWriter::create(self.local.folder(), part)?);
        }
        Ok(self.open.get_mut(&part).expect("the writer was just made"))
    }

    /// Makes a complete segment part of the work in progress.
    fn publish(&mut self, writer: SegmentWriter, name: &str) -> Result<Segment, SinkError> {
        let (written, end) = writer.finish()?;
        let path = self.local.folder().join(name);
        fs::rename(&written, &path).map_err(SinkError::io("publish", &path))?;
        Ok(Segment { path, end })
    }

    fn rows(&self) -> u64 {
        self.sealed.iter().filter_map(|segment| segment.end.sealed.as_ref()).map(|part| part.rows).sum()
    }
}

/// Opens the sink for `options`.
pub fn open<F: PartFormat + 'static>(options: &SinkOptions, format: F) -> Box<dyn VectorSink> {
    Box::new(PartSink::new(options.clone(), format))
}

impl<F: PartFormat> PartSink<F> {
    /// A sink for `options`; writes nothing and makes no request before `begin`.
    pub fn new(options: SinkOptions, format: F) -> Self {
        let layout = if options.prefix.is_some() { Layout::Folder } else { options.layout };
        Self { options: SinkOptions { layout, ..options }, format, phase: Phase::New, steps: Steps::default() }
    }

    /// Calls `probe` before every step that changes the disk, so that a test can see the state after a crash there.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn with_probe(mut self, probe: crate::conformance::Probe) -> Self {
        self.steps = Steps::seen_by(probe);
        self
    }

    /// The caller's settings plus the options that must not change within a run.
    fn settings(&self, manifest: &RunManifest) -> RunManifest {
        let mut settings = staging::settings(&self.options, self.format.name(), manifest);
        if self.options.layout == Layout::Folder {
            settings.fingerprint.insert(PART_ITEMS.to_owned(), self.options.part_items.to_string());
        }
        settings
    }

    /// Number of items that a part covers. A single file is one part.
    fn part_items(&self) -> u64 {
        if self.options.layout == Layout::Folder { self.options.part_items } else { u64::MAX }
    }

    fn part_of(&self, run: &OpenRun, index: u64) -> u64 {
        if let Some(part) = run.adopting {
            return part;
        }
        let (first, part) = run.origin;
        part + (index - first) / self.part_items()
    }

    /// One past the last index of a part.
    fn part_end(&self, run: &OpenRun, part: u64) -> u64 {
        let (first, first_part) = run.origin;
        (part - first_part).saturating_add(1).saturating_mul(self.part_items()).saturating_add(first)
    }

    fn open(&mut self, manifest: &RunManifest, existing: Existing) -> Result<OpenRun, SinkError> {
        staging::check(&self.options, manifest)?;
        self.format.check_columns(&self.options)?;
        self.check_part_size(manifest.dim)?;
        let site = RunSite::of(&self.options)?;
        let settings = self.settings(manifest);
        if let Some(prefix) = self.options.prefix.clone() {
            let parent = self.options.temporary();
            let folder = tempfile::Builder::new().prefix("foveate-").tempdir_in(&parent);
            let folder = folder.map_err(SinkError::io("create a folder in", &parent))?;
            let run = self.begin_at(site, LocalWork::Temporary(folder), settings, existing)?;
            let claim = checked_json(&run.claim);
            let is_created = |name: &str| prefix.create(name, claim.clone());
            // The store must keep an object that exists. One that ignores the condition would let two writers mix.
            let name = format!("{}/{CLAIM}", run.site.names.staging().display());
            // The first one succeeds if another writer of this job has just finished.
            if is_created(&name)? && is_created(&name)? {
                prefix.remove(&name)?;
                return Err(SinkError::Unconditional(prefix.address().to_owned()));
            }
            return Ok(run);
        }
        let is_fresh = matches!(existing, Existing::Overwrite | Existing::Update);
        if !is_fresh && site.names.main().exists() && !site.names.staging().exists() {
            return Err(self.finished(&site, &settings, existing));
        }
        self.steps.step("create staging folder");
        let staging = Staging::take(&self.options, &site.names)?;
        match self.begin_at(site.clone(), LocalWork::Locked(staging), settings, existing) {
            // Nothing is there that a claim does not name.
            Err(error) if !site.names.staging().join(CLAIM).exists() => {
                if let Ok(staging) = Staging::take(&self.options, &site.names) {
                    staging.discard_unused();
                }
                Err(error)
            }
            begun => begun,
        }
    }

    /// A part is one request.
    fn check_part_size(&self, dim: usize) -> Result<(), SinkError> {
        let row = (dim * self.options.element.bytes()) as u64;
        if self.options.prefix.is_none() || self.options.part_items.saturating_mul(row) <= MOST_OBJECT {
            return Ok(());
        }
        let most = MOST_OBJECT / row;
        Err(SinkError::Unsupported(format!(
            "parts of {} items in an object store, where a part is sent in one request; {most} items are the most",
            self.options.part_items
        )))
    }

    /// Continues the work in progress, or begins it.
    fn begin_at(
        &mut self,
        site: RunSite,
        local: LocalWork,
        settings: RunManifest,
        existing: Existing,
    ) -> Result<OpenRun, SinkError> {
        end_commit(&site, &mut |step| self.steps.step(step))?;
        let is_fresh = matches!(existing, Existing::Overwrite | Existing::Update);
        let base = site.manifest()?;
        let digest = base.as_ref().map(OutputManifest::digest);
        let claim = if is_fresh { None } else { site.claim()? };
        if let Some(claim) = claim.filter(|claim| claim.can_continue && (base.is_none() || claim.base == digest)) {
            if existing == Existing::Refuse {
                return Err(SinkError::Interrupted(self.options.output.clone()));
            }
            return self.resume(site, local, claim, &settings);
        }
        let is_there = base.is_some() || matches!(site.output, Place::Folder(_)) && site.names.main().exists();
        if is_there && !is_fresh {
            return Err(self.finished(&site, &settings, existing));
        }
        if is_there && base.is_none() {
            let source = "it is there, and no manifest of foveate names it; remove it, or name another output".into();
            return Err(SinkError::BadOutput { path: self.options.output.clone(), source });
        }
        self.start(site, local, settings, base.as_ref(), existing)
    }

    fn start(
        &mut self,
        site: RunSite,
        local: LocalWork,
        settings: RunManifest,
        base: Option<&OutputManifest>,
        existing: Existing,
    ) -> Result<OpenRun, SinkError> {
        // Parts that an interrupted run has put into the store.
        let mut waste = BTreeSet::new();
        if let LocalWork::Temporary(folder) = &local {
            for part in segments(&site, folder.path())?.into_iter().filter_map(|segment| segment.end.sealed) {
                waste.extend(part.files.into_iter().map(|file| file.name));
            }
        }
        for file in base.iter().flat_map(|base| base.files()) {
            waste.remove(&file.name);
        }
        if site.layout == Layout::Folder {
            let mut named: BTreeSet<&str> = waste.iter().map(String::as_str).collect();
            named.extend(base.iter().flat_map(|base| base.files()).map(|file| file.name.as_str()));
            let found = site.output.list()?;
            // Readers of the whole folder would take it for a part of this output.
            if let Some(stray) = found.keys().find(|name| site.names.is_part(name) && !named.contains(name.as_str())) {
                let source = format!("it holds {stray}, which no manifest names; remove it, or name another output");
                return Err(SinkError::BadOutput { path: self.options.output.clone(), source: source.into() });
            }
        }
        let mut claim = Claim::new(settings, base);
        claim.can_continue = existing != Existing::Update;
        // Parts that stand beside those of the replaced output for a while.
        if site.layout == Layout::Folder && (self.options.prefix.is_some() || existing == Existing::Update) {
            let parts = base.iter().flat_map(|base| &base.parts).map(|part| part.part + 1);
            claim.first_part = parts.max().unwrap_or(0);
        }
        match &local {
            LocalWork::Locked(staging) => {
                self.steps.step("empty staging folder");
                staging.clear()?;
                self.steps.step("claim");
                site.work.replace(CLAIM, checked_json(&claim))?;
                sync_folder(parent_of(staging.folder()))?;
            }
            LocalWork::Temporary(_) if existing != Existing::Resume && existing != Existing::Refuse => {
                site.work.replace(CLAIM, checked_json(&claim))?;
                for name in &waste {
                    site.output.remove(name)?;
                }
                for name in site.work.list()?.into_keys().filter(|name| name != CLAIM) {
                    site.work.remove(&name)?;
                }
            }
            LocalWork::Temporary(_) => {
                // Another writer came first, or this one did in a request whose answer was lost.
                match site.work.create(CLAIM, checked_json(&claim)) {
                    Err(SinkError::Differs(_)) => {
                        if let Some(claim) = site.claim()? {
                            let settings = claim.settings.clone();
                            return self.resume(site, local, claim, &settings);
                        }
                    }
                    created => created?,
                }
            }
        }
        Ok(self.run(site, local, claim))
    }

    fn run(&self, site: RunSite, local: LocalWork, claim: Claim) -> OpenRun {
        let first = self.options.first_index;
        OpenRun {
            id: claim.settings.digest(),
            sealed: Vec::new(),
            pending: Vec::new(),
            open: BTreeMap::new(),
            watermark: Watermark::from(first),
            failed: 0,
            next_input: first,
            origin: (first, claim.first_part),
            adopting: None,
            adopted: Vec::new(),
            taken: Taken::up_to(first, claim.settings.dim, false),
            upload: Upload::default(),
            lines: String::new(),
            scratch: Scratch::default(),
            site,
            claim,
            local,
        }
    }

    fn resume(
        &mut self,
        site: RunSite,
        local: LocalWork,
        claim: Claim,
        now: &RunManifest,
    ) -> Result<OpenRun, SinkError> {
        let restored = restore(&site, &claim, local.folder(), self.options.first_index)?;
        if let Some(difference) = claim.settings.difference(now) {
            let state = if site.manifest()?.is_some() { RunState::Replacing } else { RunState::Interrupted };
            let parent = self.options.temporary();
            let inputs = restored.inputs(&parent)?;
            let path = self.options.output.clone();
            return Err(SinkError::OtherRun(Box::new(OtherRun { path, state, difference, inputs })));
        }
        let mut run = self.run(site, local, claim);
        let all = restored.sealed.iter().chain(&restored.pending);
        run.failed = all.clone().map(|segment| segment.end.failed).sum();
        if let Some(last) = all.last() {
            run.watermark = Watermark { index: last.end.end, place: last.end.place };
        }
        run.next_input = run.watermark.index;
        run.sealed = restored.sealed;
        run.pending = restored.pending;
        // Only the last part of a run is short: it was sealed when the run was finishing.
        let last = run.sealed.last().map(|segment| &segment.end);
        let is_closed = last.is_some_and(|end| end.end < self.part_end(&run, end.part));
        run.taken = Taken::up_to(run.watermark.index, run.claim.settings.dim, is_closed);
        let parts = run.sealed.iter().filter_map(|segment| segment.end.sealed.as_ref());
        let mut files = parts.flat_map(|part| &part.files).peekable();
        if let LocalWork::Locked(staging) = &run.local {
            files.try_for_each(|file| match file.check(&staging.join(&file.name), true) {
                Err(SinkError::Missing { path, source }) => Err(SinkError::Damaged { path, source }),
                checked => checked,
            })?;
            self.remove_uncommitted(&run)?;
        } else if files.peek().is_some() {
            check_lengths(&run.site.output, files)?;
        }
        // A crash may have happened between a commit and the sealing of the parts that it completed.
        self.seal_complete(&mut run)?;
        Ok(run)
    }

    /// Removes what no segment names.
    fn remove_uncommitted(&mut self, run: &OpenRun) -> Result<(), SinkError> {
        let mut known = vec![CLAIM.to_owned(), LOCK.to_owned()];
        for segment in run.sealed.iter().chain(&run.pending) {
            known.extend(segment.path.file_name().map(|name| name.to_string_lossy().into_owned()));
            known.extend(segment.end.sealed.iter().flat_map(|part| &part.files).map(|file| file.name.clone()));
        }
        let found = Place::Folder(run.local.folder().to_owned()).list()?;
        for name in found.keys().filter(|name| !known.contains(name)) {
            self.steps.step("remove uncommitted file");
            remove_if_there(&run.local.folder().join(name))?;
        }
        Ok(())
    }

    fn take_rows(&mut self, run: &mut OpenRun, rows: &Rows<'_>) -> Result<(), SinkError> {
        run.taken.check_rows(rows, self.options.columns.len())?;
        let dim = run.claim.settings.dim;
        let mut start = 0;
        while start < rows.index.len() {
            let part = self.part_of(run, rows.index[start]);
            let end = self.part_end(run, part);
            let count = rows.index[start..].partition_point(|&index| index < end || end == u64::MAX);
            self.steps.step("append rows");
            let block = Block { rows, range: start..start + count, dim, element: self.options.element };
            let mut scratch = std::mem::take(&mut run.scratch);
            run.writer(part)?.rows(block, &mut scratch)?;
            run.scratch = scratch;
            start += count;
        }
        run.taken.rows(rows);
        Ok(())
    }

    fn take_failures(&mut self, run: &mut OpenRun, failures: &[Failure]) -> Result<(), SinkError> {
        run.taken.check_failures(failures)?;
        for Failure { index, id, stage, reason, bytes } in failures {
            let mut line = std::mem::take(&mut run.lines);
            line.clear();
            push_failure(&mut line, id, stage.name(), reason, *bytes);
            run.writer(self.part_of(run, *index))?.failures(&line, 1)?;
            run.lines = line;
        }
        run.failed += failures.len() as u64;
        run.taken.failures(failures);
        Ok(())
    }

    fn take_inputs(&mut self, run: &mut OpenRun, inputs: &[InputRecord]) -> Result<(), SinkError> {
        for input in inputs {
            let mut line = std::mem::take(&mut run.lines);
            line.clear();
            input.push_line(&mut line);
            let writer = run.writer(self.part_of(run, run.next_input))?;
            writer.inputs(&line)?;
            writer.end.place = input.place;
            run.lines = line;
            run.next_input += 1;
        }
        Ok(())
    }

    fn commit_run(&mut self, run: &mut OpenRun, watermark: Watermark) -> Result<(), SinkError> {
        run.taken.check_watermark(watermark.index)?;
        if !run.taken.is_news(watermark.index) {
            return Ok(());
        }
        if watermark.index > run.watermark.index {
            // The last segment ends at the watermark.
            run.writer(self.part_of(run, watermark.index - 1))?;
        }
        let mut start = run.watermark.index;
        for (part, mut writer) in std::mem::take(&mut run.open) {
            let end = self.part_end(run, part).min(watermark.index);
            let place = if end == watermark.index { watermark.place } else { writer.end.place };
            writer.end = SegmentEnd { run: run.id.clone(), start, end, place, ..writer.end };
            self.steps.step("publish segment");
            let segment = run.publish(writer, &format!("part-{part:05}-{start:012}.seg"))?;
            run.pending.push(segment);
            start = end;
        }
        sync_folder(run.local.folder())?;
        run.watermark = watermark;
        run.next_input = watermark.index;
        run.taken.commit(watermark.index);
        self.seal_complete(run)
    }

    /// Encodes all parts that the watermark has passed.
    fn seal_complete(&mut self, run: &mut OpenRun) -> Result<(), SinkError> {
        if run.upload.0.as_ref().is_some_and(JoinHandle::is_finished) {
            run.upload.settle()?;
        }
        while let Some(first) = run.pending.first() {
            let part = first.end.part;
            if self.part_end(run, part) > run.watermark.index {
                break;
            }
            self.seal(run, part)?;
        }
        Ok(())
    }

    /// Encodes a part, and replaces its segments by one that has the part's files.
    fn seal(&mut self, run: &mut OpenRun, part: u64) -> Result<(), SinkError> {
        let count = run.pending.iter().take_while(|segment| segment.end.part == part).count();
        let segments: Vec<Segment> = run.pending.drain(..count).collect();
        let rows = segments.iter().map(|segment| segment.end.rows).sum();
        let mut sealed = ManifestPart { part, rows, files: Vec::new() };
        // Without segments, it is the only part of an output without rows.
        if rows > 0 || segments.is_empty() {
            self.steps.step("encode part");
            sealed.files = self.encode(run, part, rows, &segments)?;
        }
        let first = segments.first().map_or(run.watermark.index, |first| first.end.start);
        let last = segments.last().map(|last| last.end.clone()).unwrap_or_default();
        let mut writer = SegmentWriter::create(run.local.folder(), part)?;
        for segment in &segments {
            segment.lines(FrameKind::Failures, &mut |lines| writer.failures(text(segment, lines)?, 0))?;
            segment.lines(FrameKind::Inputs, &mut |lines| writer.inputs(text(segment, lines)?))?;
        }
        writer.end = SegmentEnd {
            run: run.id.clone(),
            part,
            start: first,
            end: last.end.max(first),
            place: last.place,
            rows: 0,
            failed: segments.iter().map(|segment| segment.end.failed).sum(),
            sealed: Some(sealed.clone()),
        };
        self.publish_sealed(run, writer)?;
        for segment in segments {
            self.steps.step("remove segment");
            remove_if_there(&segment.path)?;
        }
        Ok(())
    }

    /// Records a complete part: from then on it has its files.
    fn publish_sealed(&mut self, run: &mut OpenRun, writer: SegmentWriter) -> Result<(), SinkError> {
        let part = writer.end.part;
        let name = sealed_name(part);
        self.steps.step("publish sealed part");
        let segment = run.publish(writer, &name)?;
        sync_folder(run.local.folder())?;
        if let LocalWork::Temporary(folder) = &run.local {
            let files = segment.end.sealed.iter().flat_map(|part| &part.files).map(|file| file.name.clone());
            let files: Vec<PathBuf> = files.map(|name| folder.path().join(name)).filter(|path| path.exists()).collect();
            let (output, work, path) = (run.site.output.clone(), run.site.work.clone(), segment.path.clone());
            run.upload.settle()?;
            run.upload.0 = Some(thread::spawn(move || {
                for file in files {
                    output.take(&file, &name_of(&file))?;
                }
                let record = fs::read(&path).map_err(SinkError::io("read", &path))?;
                work.create(&name, record.into())
            }));
        }
        run.sealed.push(segment);
        Ok(())
    }

    /// Encodes rows to a part's files in the work in progress.
    fn encode(
        &mut self,
        run: &OpenRun,
        part: u64,
        rows: u64,
        segments: &[Segment],
    ) -> Result<Vec<ManifestFile>, SinkError> {
        let folder = run.local.folder();
        let vectors = folder.join(run.site.part_name(part, self.format.extension()));
        let temporary = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!("new-{name}"))
        };
        let sidecars: Vec<PathBuf> = self.format.sidecars().iter().map(|name| sidecar(&vectors, name)).collect();
        let staged =
            PartFiles { vectors: temporary(&vectors), sidecars: sidecars.iter().map(|path| temporary(path)).collect() };
        let stored = StoredPart {
            segments,
            rows,
            dim: run.claim.settings.dim,
            element: self.options.element,
            columns: &self.options.columns,
        };
        let names: Vec<&PathBuf> = std::iter::once(&vectors).chain(&sidecars).collect();
        let written: Vec<&PathBuf> = std::iter::once(&staged.vectors).chain(&staged.sidecars).collect();
        for path in &written {
            remove_if_there(path)?;
        }
        self.format.encode(&stored, &run.claim.settings, &staged)?;
        let mut files = Vec::new();
        for (from, to) in written.into_iter().zip(names) {
            sync_file(from)?;
            files.push(ManifestFile::describe(from, to)?);
            self.steps.step("publish part");
            publish(from, to)?;
        }
        Ok(files)
    }

    fn adopt_part(&mut self, run: &mut OpenRun, part: &ManifestPart, is_later: bool) -> Result<(), SinkError> {
        if !run.open.is_empty() || run.adopting.is_some() || run.site.layout == Layout::File {
            return Err(SinkError::Misuse("a part is adopted between commits, in a folder".to_owned()));
        }
        self.seal_rest(run)?;
        let mut adopted = part.clone();
        if is_later {
            // Not `origin`'s: parts that became full since were sealed without moving it.
            adopted.part = self.part_of(run, run.watermark.index);
            let old = run.site.part_name(part.part, "");
            let new = run.site.part_name(adopted.part, "");
            for file in &mut adopted.files {
                let rest = file.name.strip_prefix(&old).unwrap_or_default();
                let to = format!("{new}{rest}");
                let from = std::mem::replace(&mut file.name, to.clone());
                run.adopted.push(PlannedMove { is_later, from, to });
            }
        }
        run.adopting = Some(adopted.part);
        run.writer(adopted.part)?.end.sealed = Some(adopted.clone());
        Ok(())
    }

    /// Seals the part that was adopted, with the records that came since.
    fn commit_adopted(&mut self, run: &mut OpenRun, watermark: Watermark) -> Result<(), SinkError> {
        let Some((part, mut writer)) = run.open.pop_first() else { return Ok(()) };
        let start = run.watermark.index;
        writer.end = SegmentEnd { run: run.id.clone(), start, end: watermark.index, ..writer.end };
        self.publish_sealed(run, writer)?;
        run.watermark = watermark;
        run.next_input = watermark.index;
        run.taken.commit(watermark.index);
        run.origin = (watermark.index, run.origin.1.max(part + 1));
        run.adopting = None;
        Ok(())
    }

    /// Seals the last part, which need not be full.
    fn seal_rest(&mut self, run: &mut OpenRun) -> Result<(), SinkError> {
        while let Some(first) = run.pending.first() {
            let part = first.end.part;
            self.seal(run, part)?;
            run.origin = (run.watermark.index, run.origin.1.max(part + 1));
        }
        Ok(())
    }

    fn finish_run(&mut self, run: &mut OpenRun) -> Result<Published, SinkError> {
        run.taken.check_finish()?;
        run.taken.close();
        self.seal_rest(run)?;
        // A run without items is complete with one empty part.
        if !run.sealed.iter().any(has_files) && (run.failed == 0 || self.options.publish_empty) {
            // Parts of failures alone were sealed without files, and keep their numbers.
            let part = run.sealed.last().map_or(run.origin.1, |last| last.end.part + 1);
            self.seal(run, part)?;
        }
        run.upload.settle()?;
        let plan = self.plan(run)?;
        self.steps.step("write plan");
        run.site.work.replace(PLAN, checked_json(&plan))?;
        plan.follow(&run.site, &mut |step| self.steps.step(step))?;
        let mut names: Vec<&String> = plan.moves.iter().rev().map(|step| &step.to).collect();
        if let (Layout::Folder, Some(manifest)) = (run.site.layout, &plan.manifest) {
            // All parts, those that stay included, and then the records.
            names.retain(|name| !run.site.names.is_part(name));
            let parts = manifest.parts.iter().flat_map(|part| &part.files).map(|file| &file.name);
            names = parts.chain(names).collect();
        }
        let files = names.into_iter().map(|name| run.site.output.path(name)).collect();
        Ok(Published { files, rows: run.rows(), failures: run.failed, leftover: None })
    }

    /// Prepares all files that do not have their final name yet, and says how they get it.
    fn plan(&mut self, run: &OpenRun) -> Result<CommitPlan, SinkError> {
        self.steps.step("write records");
        let base = run.site.manifest()?;
        if base.as_ref().map(OutputManifest::digest) != run.claim.base && run.claim.base.is_some() {
            return Err(SinkError::Replaced(self.options.output.clone()));
        }
        let failures = self.write_record(run, FAILURES, FrameKind::Failures)?;
        let inputs = self.write_record(run, INPUTS, FrameKind::Inputs)?;
        let has_inputs = inputs.bytes > INPUTS_HEADER.len() as u64;
        let sealed: Vec<ManifestPart> = run
            .sealed
            .iter()
            .filter(|segment| has_files(segment))
            .filter_map(|segment| segment.end.sealed.clone())
            .collect();
        let mut moves = vec![planned(FAILURES, &failures.name)];
        let mut manifest = None;
        if !sealed.is_empty() {
            let parts = match run.site.layout {
                Layout::Folder => sealed,
                Layout::File => vec![self.named_as_file(run, &sealed[0])],
            };
            let mut records = vec![failures];
            if has_inputs {
                moves.push(planned(INPUTS, &inputs.name));
                records.insert(0, inputs);
            }
            let written = self.output_manifest(run, parts, records);
            self.steps.step("write manifest");
            let json = written.to_json().into_bytes();
            run.site.work.replace(STAGED_MANIFEST, json.into())?;
            let last = planned(STAGED_MANIFEST, &name_of(&run.site.names.current().manifest()));
            match run.site.layout {
                Layout::File => {
                    moves.push(last);
                    let from = run.sealed.iter().filter_map(|segment| segment.end.sealed.as_ref());
                    let from = from.flat_map(|part| &part.files).map(|file| &file.name);
                    let to = written.parts.iter().flat_map(|part| &part.files).map(|file| &file.name);
                    // The main file is first there, and last here.
                    let pairs: Vec<_> = from.zip(to).collect();
                    moves.extend(pairs.into_iter().rev().map(|(from, to)| planned(from, to)));
                }
                Layout::Folder => {
                    moves.extend(run.adopted.iter().cloned());
                    if let Place::Folder(folder) = &run.site.work {
                        let files = written.parts.iter().flat_map(|part| &part.files).map(|file| &file.name);
                        moves.extend(files.filter(|name| folder.join(name).exists()).map(|name| planned(name, name)));
                    }
                    moves.push(last);
                }
            }
            manifest = Some(written);
        }
        let mut remove: BTreeSet<String> =
            base.iter().flat_map(|base| base.files()).map(|file| file.name.clone()).collect();
        if base.is_some() {
            remove.insert(run.site.manifest_name());
        }
        for kept in manifest.iter().flat_map(OutputManifest::files).map(|file| &file.name) {
            remove.remove(kept);
        }
        for PlannedMove { to, .. } in &moves {
            remove.remove(to);
        }
        Ok(CommitPlan { base: run.claim.base.clone(), moves, manifest, remove })
    }

    /// Writes a record of the whole output to the work in progress.
    fn write_record(&self, run: &OpenRun, name: &str, kind: FrameKind) -> Result<ManifestFile, SinkError> {
        let path = run.local.folder().join(name);
        let file = File::create(&path).map_err(SinkError::io("create", &path))?;
        let (bytes, hash) = write_lines(&file, &path, kind, run.sealed.iter())?;
        file.sync_all().map_err(SinkError::io("sync", &path))?;
        if let Place::Objects { .. } = run.site.work {
            let content = fs::read(&path).map_err(SinkError::io("read", &path))?;
            run.site.work.replace(name, content.into())?;
        }
        let name = name_of(&run.site.names.current().beside(name));
        Ok(ManifestFile { name, bytes, xxh3: format!("{hash:016x}") })
    }

    /// The only part of a single file, with the names that its files get.
    fn named_as_file(&self, run: &OpenRun, part: &ManifestPart) -> ManifestPart {
        let vectors = run.site.names.main();
        let sidecars = self.format.sidecars().iter().map(|name| sidecar(&vectors, name));
        let names = std::iter::once(vectors.clone()).chain(sidecars);
        let mut named = ManifestPart { part: 0, ..part.clone() };
        for (file, path) in named.files.iter_mut().zip(names) {
            file.name = name_of(&path);
        }
        named
    }

    fn output_manifest(&self, run: &OpenRun, parts: Vec<ManifestPart>, records: Vec<ManifestFile>) -> OutputManifest {
        OutputManifest {
            complete: true,
            format: self.format.name().to_owned(),
            element: self.options.element.name().to_owned(),
            rows: run.rows(),
            failures: run.failed,
            watermark: run.watermark.index,
            parts,
            records,
            ..OutputManifest::begun(run.claim.settings.clone())
        }
    }

    /// The error for a complete output: this same job is done, another job's output is in the way, or files of it are
    /// missing.
    fn finished(&self, site: &RunSite, settings: &RunManifest, existing: Existing) -> SinkError {
        let path = site.output.path(&site.main_name());
        if existing != Existing::Resume {
            return SinkError::Exists(path);
        }
        if site.layout == Layout::Folder && self.options.prefix.is_none() {
            // A run that is killed at its very end leaves this folder empty. Fails while other shards are running.
            let _ = fs::remove_dir(self.options.output.join(STAGING));
        }
        match self.describe_finished(site, settings, path) {
            Ok(error) | Err(error) => error,
        }
    }

    fn describe_finished(&self, site: &RunSite, settings: &RunManifest, path: PathBuf) -> Result<SinkError, SinkError> {
        let Some(run) = StoredRun::complete_at(site)? else {
            let record = site.output.path(&site.manifest_name());
            return Err(SinkError::missing(&record, format!("{} already exists", path.display())));
        };
        run.check_lengths()?;
        if self.options.check {
            run.check()?;
        }
        let inputs = run.inputs()?;
        let folder = site.output.path("");
        let published = run.manifest.published(&folder);
        let mut described = run.manifest.clone();
        if site.layout == Layout::File {
            // Earlier versions made a single file of parts.
            described.fingerprint.remove(PART_ITEMS);
        }
        Ok(match described.difference(settings) {
            Some(difference) => {
                SinkError::OtherRun(Box::new(OtherRun { path, state: RunState::Complete, difference, inputs }))
            }
            None => SinkError::AlreadyComplete(Box::new(Finished { path, published, inputs })),
        })
    }

    /// Removes the work in progress, every file of it closed. The output is complete by now, so an error is a note.
    fn remove_work(&mut self, run: OpenRun) -> Option<String> {
        self.steps.step("remove staging folder");
        let OpenRun { site, local, open, upload, .. } = run;
        drop((open, upload));
        let removed = match local {
            LocalWork::Locked(staging) => staging.remove().and_then(|()| sync_folder(parent_of(&site.names.main()))),
            LocalWork::Temporary(folder) => clear_work(&site).and_then(|()| {
                let path = folder.path().to_owned();
                folder.close().map_err(SinkError::io("remove", &path))
            }),
        };
        removed.err().map(|error| error_chain(&error))
    }

    /// Runs one call on the open run; an error that may have left files half-written ends the run.
    fn on_run<T>(
        &mut self,
        call: &str,
        act: impl FnOnce(&mut Self, &mut OpenRun) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        let mut run = self.phase.take(call)?;
        let result = act(self, &mut run);
        self.phase.put_back(run, result)
    }
}

fn has_files(segment: &Segment) -> bool {
    segment.end.sealed.as_ref().is_some_and(|part| !part.files.is_empty())
}

/// The setting with the number of items of a part.
const PART_ITEMS: &str = "sink.part_items";
/// The manifest in the work in progress.
const STAGED_MANIFEST: &str = "manifest.json";

fn planned(from: &str, to: &str) -> PlannedMove {
    PlannedMove { is_later: false, from: from.to_owned(), to: to.to_owned() }
}

fn text<'a>(segment: &Segment, lines: &'a [u8]) -> Result<&'a str, SinkError> {
    std::str::from_utf8(lines).map_err(|error| SinkError::damaged(&segment.path, error))
}

impl<F: PartFormat> VectorSink for PartSink<F> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.phase.check_new()?;
        let run = self.open(manifest, existing)?;
        let watermark = run.watermark;
        self.phase = Phase::Open(Box::new(run));
        Ok(watermark)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.on_run("failures", |_, run| Ok(run.failed))
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.on_run("append", |sink, run| sink.take_rows(run, rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.on_run("fail", |sink, run| sink.take_failures(run, failures))
    }

    fn record(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        self.on_run("record", |sink, run| sink.take_inputs(run, inputs))
    }

    fn adopt(&mut self, part: &ManifestPart, is_later: bool) -> Result<(), SinkError> {
        self.on_run("adopt", |sink, run| sink.adopt_part(run, part, is_later))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.on_run("commit", |sink, run| {
            if run.adopting.is_some() { sink.commit_adopted(run, watermark) } else { sink.commit_run(run, watermark) }
        })
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let published = self.on_run("finish", Self::finish_run)?;
        let run = self.phase.take("finish")?;
        let leftover = self.remove_work(*run);
        self.phase = Phase::Done;
        Ok(Published { leftover, ..published })
    }
}

impl<F: PartFormat> std::fmt::Debug for PartSink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartSink").field("format", &self.format.name()).field("options", &self.options).finish()
    }
}
