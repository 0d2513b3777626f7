//! Makes one output of an output and what a later run of some of its inputs stored.
//!
//! The later run is complete, and lies beside the output's work in progress. A folder's parts stay as they are unless
//! a row of theirs goes: then the rows that stay are written once more. New parts get numbers that no part had. A plan
//! says which files to move, and the manifest that names them all takes the old one's place; after that, the parts
//! that are not in it are removed. The next writer follows the plan of one that was killed in between, and a reader
//! refuses the output until then. A single file is written anew, and takes the old one's place in the same way.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use foveate_core::{Backend as _, error_chain};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::in_place::{PLAN, WORK, work_folder};
use crate::manifest::is_plain_name;
use crate::names::STAGING;
use crate::publish::parent_of;
use crate::staging::{self, Staging, file_names, is_begun};
use crate::{
    AtomicFile, Existing, Failure, InputRecord, Layout, ManifestPart, OutputManifest, OutputNames, Prefix, Published,
    RowBuffer, RunManifest, RunState, Shape, SinkBackend, SinkError, SinkOptions, StoredFailure, StoredRow, StoredRun,
    StoredState, VectorReader, VectorSink, Watermark, publish, sync_folder,
};

/// Rows, or records, between two calls of a sink.
const BLOCK: usize = 1024;
/// Items between two commits.
const COMMIT: u64 = 65_536;

/// Decides what becomes of an input of the output: its record from now on, or `None` if its row or failure goes.
pub type Keep<'a> = dyn Fn(&InputRecord) -> Option<InputRecord> + 'a;

/// Adds the further columns of the row with this id to its values.
pub type Join<'a> = dyn Fn(&str, &mut Vec<Option<String>>) + 'a;

/// An output, and the work of folding a later run into it, which this value keeps other processes from.
#[derive(Debug)]
pub struct Fold {
    options: SinkOptions,
    /// `None` in a store, and where no output is.
    work: Option<Staging>,
    /// Keeps plain runs away from an output that is updated; `None` where `work` is, and before [`Self::base`].
    plain: Option<Staging>,
    /// [`digest`] of the output that [`Self::base`] found.
    base: Option<String>,
}

/// What remains to be done once everything is written.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// [`digest`] of the manifest that the plan replaces.
    base: String,
    /// Files in the work in progress, and their names in the output.
    moves: Vec<(String, String)>,
    manifest: OutputManifest,
    /// Names of files that the manifest no longer has.
    remove: Vec<String>,
}

impl Drop for Fold {
    /// An interrupted update goes on later; one that has written nothing leaves nothing.
    fn drop(&mut self) {
        let is_empty = |work: &Staging| file_names(work.folder()).count() <= 1;
        if let Some(work) = self.work.take_if(|work| is_empty(work)) {
            let _ = work.remove();
        }
        if let Some(plain) = self.plain.take() {
            plain.discard_unused();
        }
    }
}

impl Fold {
    /// The output of `options`, which is no shard.
    ///
    /// # Errors
    /// [`SinkError::Locked`] if another process is at it.
    pub fn open(options: SinkOptions) -> Result<Self, SinkError> {
        let mut fold = Self { options, work: None, plain: None, base: None };
        if let Files::Folder(folder) = fold.files()
            && (folder.exists() || is_begun(&fold.options)?)
        {
            let common = (fold.options.layout == Layout::Folder).then(|| parent_of(&folder).to_owned());
            fold.work = Some(Staging::take_at(folder, common, &fold.options)?);
        }
        Ok(fold)
    }

    /// The output's options.
    pub fn options(&self) -> &SinkOptions {
        &self.options
    }

    /// The options of the later run.
    pub fn later(&self) -> SinkOptions {
        self.part_of_work("later", Layout::Folder)
    }

    /// The complete output as it is now, and a digest of it; `None` if there is none. Follows the plan of a fold that
    /// was interrupted, and ends an interrupted run of the job that `manifest` describes if its inputs were others.
    ///
    /// # Errors
    /// [`SinkError::OtherRun`] for an output of another job, [`SinkError::Damaged`] for files of another length.
    pub fn base(
        &mut self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        may_differ: impl Fn(&str) -> bool,
    ) -> Result<Option<(StoredRun, String)>, SinkError> {
        self.follow_plan()?;
        self.end_begun(backend, manifest, &may_differ)?;
        if self.work.is_some() && StoredRun::complete_now(&self.options)?.is_some() {
            self.plain = Some(Staging::take(&self.options, &OutputNames::new(&self.options))?);
        }
        let Some(run) = StoredRun::complete_now(&self.options)? else { return Ok(None) };
        self.check(backend, &run, manifest, may_differ)?;
        run.check_lengths()?;
        let digest = digest(&run.manifest);
        self.base = Some(digest.clone());
        Ok(Some((run, digest)))
    }

    fn end_begun(
        &self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        may_differ: &impl Fn(&str) -> bool,
    ) -> Result<(), SinkError> {
        let runs = if self.options.prefix.is_some() { Vec::new() } else { StoredRun::find(&self.options.output)? };
        let is_other = |run: &StoredRun| {
            let of = |run: &RunManifest| run.fingerprint.get(RunManifest::LISTING).cloned();
            run.state == StoredState::Unfinished && of(&run.manifest.clone().run()) != of(manifest)
        };
        let Some(begun) = runs.into_iter().find(is_other) else { return Ok(()) };
        self.check(backend, &begun, manifest, may_differ)?;
        let mut begun = begun.manifest.run();
        begun.fingerprint.retain(|name, _| !name.starts_with("sink."));
        let mut sink = backend.open(&self.options)?;
        sink.begin(&begun, Existing::Resume)?;
        sink.finish().map(drop)
    }

    /// Checks that the output's vectors are of the job that `manifest` describes, whatever its inputs are. Settings
    /// for which `may_differ` returns true are not compared.
    ///
    /// # Errors
    /// [`SinkError::OtherRun`] with what differs.
    fn check(
        &self,
        backend: &SinkBackend,
        base: &StoredRun,
        manifest: &RunManifest,
        may_differ: impl Fn(&str) -> bool,
    ) -> Result<(), SinkError> {
        let without = |mut run: RunManifest| {
            let inputs = [RunManifest::LISTING, RunManifest::ITEMS, RunManifest::MERGED, "sink.part_items"];
            run.fingerprint.retain(|name, _| !inputs.contains(&name.as_str()) && !may_differ(name));
            run
        };
        let now = staging::settings(&self.options, backend.name(), manifest);
        match without(base.manifest.clone().run()).difference(&without(now)) {
            None => Ok(()),
            Some(difference) => {
                Err(staging::other_run(self.options.output.clone(), RunState::Complete, difference, None))
            }
        }
    }

    /// Makes room for the later run of the job that `manifest` describes: what another one began is removed. Returns
    /// the later run if it is complete.
    pub fn make_room(&self, backend: &SinkBackend, manifest: &RunManifest) -> Result<Option<StoredRun>, SinkError> {
        let options = self.later();
        match backend.open(&options)?.begin(manifest, Existing::Resume) {
            Ok(_) => Ok(None),
            Err(SinkError::AlreadyComplete(_)) => StoredRun::complete_now(&options),
            // Or what is left of one that was removed in part.
            Err(
                SinkError::OtherRun(_) | SinkError::Damaged { .. } | SinkError::Missing { .. } | SinkError::Exists(_),
            ) => self.discard().map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Removes the later run.
    pub fn discard(&self) -> Result<(), SinkError> {
        self.clear()
    }

    /// Folds the later run into the output. `manifest` describes the result, `keep` what stays of the output, and
    /// `take` what of the later run follows. `take` may leave out failures, but no rows.
    ///
    /// # Errors
    /// [`SinkError::Replaced`] if the output is not the one that [`Self::base`] found.
    pub fn run(
        &mut self,
        backend: &SinkBackend,
        manifest: &RunManifest,
        keep: &Keep<'_>,
        take: &Keep<'_>,
    ) -> Result<Published, SinkError> {
        let whole = |options: &SinkOptions| {
            let missing = || SinkError::damaged(&options.output, "its manifest is gone");
            StoredRun::complete_now(options)?.ok_or_else(missing)
        };
        let (base, later) = (whole(&self.options)?, whole(&self.later())?);
        self.check_base(&base)?;
        let (options, reader) = (self.part_of_work("rewritten", self.options.layout), reader_of(backend)?);
        let none = BTreeSet::new();
        let mut sink = backend.open(&options)?;
        sink.begin(manifest, Existing::Overwrite)?;
        let mut copy = Copy::new(sink.as_mut(), 0);
        let plan = match self.options.layout {
            Layout::File => {
                copy.add(&base, &Which::All(reader), keep)?;
                copy.add(&later, &Which::All(reader), take)?;
                let names = copy.finish()?.files.into_iter().rev().filter_map(|path| path.file_name().map(text));
                let moves = names.map(|name| (format!("rewritten/{name}"), name)).collect();
                let manifest = whole(&options)?.manifest;
                let remove = self.old_names(&base, &manifest)?;
                Plan { base: digest(&base.manifest), moves, manifest, remove }
            }
            Layout::Folder => {
                let changed = changed_parts(&base, keep)?;
                copy.add(&base, &Which::RecordsExcept(&changed), keep)?;
                copy.add(&base, &Which::Only(&changed, reader), keep)?;
                copy.add(&later, &Which::RecordsExcept(&none), take)?;
                copy.finish()?;
                let rewritten = whole(&options)?.manifest;
                let plan = self.plan(&base, &changed, &rewritten, &later.manifest);
                let mut remove = self.old_names(&base, &rewritten)?;
                remove.extend(plan.remove);
                Plan { remove, ..plan }
            }
        };
        // In a store, another run may have replaced the output meanwhile.
        self.check_base(&whole(&self.options)?)?;
        self.files().put(PLAN, serde_json::to_vec(&plan).expect("a plan is plain data and has a JSON form"))?;
        self.follow(&plan)?;
        let published = plan.manifest.published(&self.output().path(""));
        let cleared = self.clear().and_then(|()| self.work.take().map_or(Ok(()), Staging::remove));
        // The output is complete by now, so an error is a note.
        Ok(Published { leftover: cleared.err().map(|error| error_chain(&error)), ..published })
    }

    fn check_base(&self, now: &StoredRun) -> Result<(), SinkError> {
        match self.base.as_ref() == Some(&digest(&now.manifest)) {
            true => Ok(()),
            false => Err(SinkError::Replaced(self.options.output.clone())),
        }
    }

    /// The records of an output of an earlier version, whose names are others.
    fn old_names(&self, base: &StoredRun, new: &OutputManifest) -> Result<Vec<String>, SinkError> {
        let names = match &self.options.prefix {
            Some(prefix) => OutputNames::find_below(prefix.as_ref(), &self.options)?,
            None => OutputNames::new(&self.options),
        };
        let manifest = names.manifest().file_name().map(text).filter(|name| !name.starts_with('_'));
        let records = base.manifest.records.iter().map(|file| &file.name);
        let records = records.filter(|name| !new.records.iter().any(|file| file.name == **name));
        Ok(records.cloned().chain(manifest).collect())
    }

    fn plan(
        &self,
        base: &StoredRun,
        changed: &BTreeSet<usize>,
        rewritten: &OutputManifest,
        later: &OutputManifest,
    ) -> Plan {
        let names = OutputNames::of_objects(&self.options);
        let (mut moves, mut parts, mut remove) = (Vec::new(), Vec::new(), Vec::new());
        for (number, part) in base.manifest.parts.iter().enumerate() {
            match changed.contains(&number) {
                true => remove.extend(part.files.iter().map(|file| file.name.clone())),
                false => parts.push(part.clone()),
            }
        }
        let mut next = base.manifest.parts.iter().map(|part| part.part + 1).max().unwrap_or(0);
        for (run, folder) in [(rewritten, "rewritten"), (later, "later")] {
            for part in run.parts.iter().filter(|part| part.rows > 0) {
                let mut part = part.clone();
                let old = OutputNames::of_objects(&self.later()).part(Path::new(""), part.part, "");
                let new = names.part(Path::new(""), next, "");
                for file in &mut part.files {
                    let rest = file.name.strip_prefix(&*old.to_string_lossy()).unwrap_or_default();
                    let name = format!("{}{rest}", new.to_string_lossy());
                    moves.push((format!("{folder}/{}", file.name), name.clone()));
                    file.name = name;
                }
                parts.push(ManifestPart { part: next, ..part });
                next += 1;
            }
        }
        moves.extend(rewritten.records.iter().map(|file| (format!("rewritten/{}", file.name), file.name.clone())));
        let rows = parts.iter().map(|part| part.rows).sum();
        let manifest = OutputManifest { parts, rows, ..rewritten.clone() };
        Plan { base: digest(&base.manifest), moves, manifest, remove }
    }

    fn follow_plan(&self) -> Result<(), SinkError> {
        let files = self.files();
        let Some(content) = files.get(PLAN)? else { return Ok(()) };
        let plan = self.parse(&content).map_err(|reason| SinkError::damaged(&files.path(PLAN), reason))?;
        let found = StoredRun::complete_now(&self.options)?.map(|run| digest(&run.manifest));
        // Otherwise the output was replaced since.
        if found.is_some_and(|found| found == plan.base || found == digest(&plan.manifest)) {
            self.follow(&plan)?;
        }
        self.clear()
    }

    /// Parses a plan, which may be a stranger's: it moves and removes files of this output alone.
    fn parse(&self, content: &[u8]) -> Result<Plan, String> {
        let plan: Plan = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        plan.manifest.check_names()?;
        let names = match &self.options.prefix {
            Some(_) => OutputNames::of_objects(&self.options),
            None => OutputNames::new(&self.options),
        };
        let from = plan.moves.iter().map(|(from, _)| from);
        for from in from {
            let name = WORK.iter().find_map(|folder| from.strip_prefix(folder)?.strip_prefix('/'));
            if !name.is_some_and(is_plain_name) {
                return Err(format!("it moves {from:?}, which no update writes"));
            }
        }
        for to in plan.moves.iter().map(|(_, to)| to).chain(&plan.remove) {
            if !names.owns(to) {
                return Err(format!("it changes {to:?}, which is no file of this output"));
            }
        }
        Ok(plan)
    }

    /// May run again after having been interrupted anywhere.
    fn follow(&self, plan: &Plan) -> Result<(), SinkError> {
        let (work, output) = (self.files(), self.output());
        // The main file of a single-file output comes last. Nothing is removed before everything has its name.
        plan.moves.iter().try_for_each(|(from, to)| work.move_to(from, &output, to))?;
        if self.options.layout == Layout::Folder {
            output.put("_manifest.json", plan.manifest.to_json().into_bytes())?;
        }
        plan.remove.iter().try_for_each(|name| output.remove(name))?;
        output.sync()
    }

    /// Removes all work, the plan last: without the rest, it does nothing.
    fn clear(&self) -> Result<(), SinkError> {
        let work = self.files();
        WORK.iter().try_for_each(|name| work.remove_all(name))?;
        work.remove(PLAN)
    }

    /// The options of an output in the work in progress.
    fn part_of_work(&self, name: &str, layout: Layout) -> SinkOptions {
        let work = self.files();
        let file = match layout {
            Layout::File => self.options.output.file_name().map(text).unwrap_or_default(),
            Layout::Folder => String::new(),
        };
        SinkOptions {
            output: work.path(&format!("{name}/{file}")),
            prefix: match &work {
                Files::Folder(_) => None,
                Files::Prefix(below) => Some(Arc::new(below.below(name))),
            },
            layout,
            shard: None,
            first_index: 0,
            publish_empty: true,
            ..self.options.clone()
        }
    }

    fn files(&self) -> Files {
        match &self.options.prefix {
            Some(prefix) => Files::Prefix(Below::new(Arc::clone(prefix), &format!("{STAGING}/update"))),
            None => Files::Folder(work_folder(&self.options.output, self.options.layout)),
        }
    }

    fn output(&self) -> Files {
        match &self.options.prefix {
            Some(prefix) => Files::Prefix(Below::new(Arc::clone(prefix), "")),
            None if self.options.layout == Layout::File => Files::Folder(parent_of(&self.options.output).to_owned()),
            None => Files::Folder(self.options.output.clone()),
        }
    }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Puts in place what an update of this output had ready when it was interrupted, or discards that for a run that
/// replaces the output.
pub(crate) fn end_update(options: &SinkOptions, existing: Existing) -> Result<(), SinkError> {
    let update = Fold { options: options.clone(), work: None, plain: None, base: None };
    if update.files().get(PLAN)?.is_none() {
        return Ok(());
    }
    let update = Fold::open(options.clone())?;
    if existing == Existing::Overwrite { update.clear() } else { update.follow_plan() }
}

fn reader_of(backend: &SinkBackend) -> Result<&dyn VectorReader, SinkError> {
    backend.reader().ok_or_else(|| SinkError::Unsupported("reading vectors of this format".to_owned()))
}

pub(crate) fn digest(manifest: &OutputManifest) -> String {
    format!("{:016x}", xxh3_64(manifest.to_json().as_bytes()))
}

/// An input of a run, and what became of it.
struct Entry {
    /// Number of its part in the manifest's order; of a failure, the part of the row before.
    part: usize,
    record: InputRecord,
    failure: Option<StoredFailure>,
}

/// A run's inputs, in the order in which they were stored.
fn entries(run: &StoredRun) -> Result<impl Iterator<Item = Result<Entry, SinkError>> + use<>, SinkError> {
    let mut failures = run.failures()?.peekable();
    let rows: Vec<u64> = run.manifest.parts.iter().map(|part| part.rows).collect();
    let (mut part, mut used) = (0, 0);
    let records = run.inputs()?.map(|inputs| inputs.read()).transpose()?;
    Ok(records.into_iter().flatten().map(move |record| {
        let record = record?;
        let is_next =
            |failure: &Result<StoredFailure, _>| failure.as_ref().is_ok_and(|failure| failure.id == record.id);
        let failure = failures.next_if(is_next).transpose()?;
        if failure.is_none() {
            while rows.get(part).is_some_and(|&rows| used == rows) {
                (part, used) = (part + 1, 0);
            }
            used += 1;
        }
        Ok(Entry { part, record, failure })
    }))
}

/// Calls `act` with the id of each row and failure, in the order in which [`Copy::add`] takes all; true stands for a
/// row.
pub(crate) fn each_id(
    run: &StoredRun,
    reader: &dyn VectorReader,
    act: &mut impl FnMut(&str, bool),
) -> Result<(), SinkError> {
    if run.has_inputs() {
        return entries(run)?.try_for_each(|entry| {
            let Entry { record, failure, .. } = entry?;
            act(&record.id, failure.is_none());
            Ok(())
        });
    }
    unrecorded(run, reader, &mut |record, outcome| {
        act(&record.id, outcome.is_ok());
        Ok(())
    })
}

type ActOnOutcome<'a> = dyn FnMut(InputRecord, Result<&StoredRow<'_>, StoredFailure>) -> Result<(), SinkError> + 'a;

/// Calls `act` with each row of a run without a record of its inputs, then with each failure.
fn unrecorded(run: &StoredRun, reader: &dyn VectorReader, act: &mut ActOnOutcome<'_>) -> Result<(), SinkError> {
    let shape = Shape::of(&run.manifest)?;
    let record = |id: &str, xxh3| InputRecord { id: id.to_owned(), stamp: None, xxh3, place: 0 };
    for part in &run.manifest.parts {
        run.part_rows(part, &shape, reader, &mut |row| act(record(row.id, Some(row.xxh3)), Ok(row)))?;
    }
    run.failures()?.try_for_each(|failure| failure.and_then(|failure| act(record(&failure.id, None), Err(failure))))
}

/// The parts that lose a row.
fn changed_parts(base: &StoredRun, keep: &Keep<'_>) -> Result<BTreeSet<usize>, SinkError> {
    let mut changed = BTreeSet::new();
    for entry in entries(base)? {
        let Entry { part, record, failure } = entry?;
        if failure.is_none() && keep(&record).is_none() {
            changed.insert(part);
        }
    }
    Ok(changed)
}

/// What to copy of a run.
pub(crate) enum Which<'a> {
    /// Records and rows.
    All(&'a dyn VectorReader),
    /// Records and rows of these parts.
    Only(&'a BTreeSet<usize>, &'a dyn VectorReader),
    /// The records of all other parts.
    RecordsExcept(&'a BTreeSet<usize>),
}

impl Which<'_> {
    fn has(&self, part: usize) -> bool {
        match self {
            Self::All(_) => true,
            Self::Only(parts, _) => parts.contains(&part),
            Self::RecordsExcept(parts) => !parts.contains(&part),
        }
    }
}

/// Copies rows, failures and records of inputs to a sink.
pub(crate) struct Copy<'a> {
    sink: &'a mut dyn VectorSink,
    /// The sink has what lies below this index.
    start: u64,
    next: u64,
    rows: RowBuffer,
    failures: Vec<Failure>,
    inputs: Vec<InputRecord>,
    join: Option<&'a Join<'a>>,
}

impl<'a> Copy<'a> {
    pub(crate) fn new(sink: &'a mut dyn VectorSink, start: u64) -> Self {
        let (rows, failures, inputs) = (RowBuffer::default(), Vec::new(), Vec::new());
        Self { sink, start, next: 0, rows, failures, inputs, join: None }
    }

    pub(crate) fn with_join(self, join: Option<&'a Join<'a>>) -> Self {
        Self { join, ..self }
    }

    pub(crate) fn add(&mut self, run: &StoredRun, which: &Which<'_>, keep: &Keep<'_>) -> Result<(), SinkError> {
        if let Which::All(reader) = which
            && !run.has_inputs()
        {
            return unrecorded(run, *reader, &mut |record, outcome| match outcome {
                Ok(row) => self.take_row(row, keep(&record)),
                Err(failure) => self.take_record(&record, Some(failure), keep),
            });
        }
        let mut entries =
            entries(run)?.filter(|entry| entry.as_ref().map_or(true, |entry| which.has(entry.part))).peekable();
        if let Which::All(reader) | Which::Only(_, reader) = which {
            let shape = Shape::of(&run.manifest)?;
            for part in
                run.manifest.parts.iter().enumerate().filter(|(number, _)| which.has(*number)).map(|(_, part)| part)
            {
                run.part_rows(part, &shape, *reader, &mut |row| {
                    self.failures(&mut entries, keep)?;
                    let entry = entries.next().transpose()?;
                    let Some(Entry { record, .. }) = entry.filter(|entry| entry.record.id == row.id) else {
                        let reason = format!("{} does not follow from the record of its inputs", row.id);
                        return Err(SinkError::damaged(Path::new(&part.files[0].name), reason));
                    };
                    self.take_row(row, keep(&record))
                })?;
            }
            return self.failures(&mut entries, keep);
        }
        for entry in entries {
            let Entry { record, failure, .. } = entry?;
            self.take_record(&record, failure, keep)?;
        }
        Ok(())
    }

    fn take_row(&mut self, row: &StoredRow<'_>, record: Option<InputRecord>) -> Result<(), SinkError> {
        let Some(record) = record else { return Ok(()) };
        let mut columns = row.columns.to_vec();
        self.join.iter().for_each(|join| join(row.id, &mut columns));
        if self.next >= self.start {
            self.rows.push(self.next, &StoredRow { columns: &columns, ..*row });
        }
        self.take(record)
    }

    /// Takes the failures before the next row.
    fn failures(
        &mut self,
        entries: &mut Peekable<impl Iterator<Item = Result<Entry, SinkError>>>,
        keep: &Keep<'_>,
    ) -> Result<(), SinkError> {
        while let Some(entry) = entries.next_if(|entry| entry.as_ref().is_ok_and(|entry| entry.failure.is_some())) {
            let Entry { record, failure, .. } = entry?;
            self.take_record(&record, failure, keep)?;
        }
        Ok(())
    }

    fn take_record(
        &mut self,
        record: &InputRecord,
        failure: Option<StoredFailure>,
        keep: &Keep<'_>,
    ) -> Result<(), SinkError> {
        let Some(record) = keep(record) else { return Ok(()) };
        if let Some(failure) = failure.filter(|_| self.next >= self.start) {
            self.failures.push(failure.at(self.next));
        }
        self.take(record)
    }

    /// Takes the record of the next index, whose row or failure is there.
    fn take(&mut self, record: InputRecord) -> Result<(), SinkError> {
        self.next += 1;
        if self.next <= self.start {
            return Ok(());
        }
        self.inputs.push(record);
        if self.inputs.len() >= BLOCK {
            self.flush()?;
        }
        if self.next.is_multiple_of(COMMIT) { self.commit() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if !self.rows.is_empty() {
            self.sink.append(&self.rows.rows())?;
        }
        if !self.failures.is_empty() {
            self.sink.fail(&self.failures)?;
        }
        self.sink.record(&self.inputs)?;
        self.rows.clear();
        self.failures.clear();
        self.inputs.clear();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        self.sink.commit(Watermark::from(self.next))
    }

    pub(crate) fn finish(mut self) -> Result<Published, SinkError> {
        if self.next > self.start {
            self.commit()?;
        }
        self.sink.finish()
    }
}

/// A folder, or the objects below a prefix.
enum Files {
    Folder(PathBuf),
    Prefix(Below),
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::Prefix(below) => Path::new(&below.address).join(name),
        }
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        match self {
            Self::Prefix(below) => below.read(name),
            Self::Folder(folder) => match fs::read(folder.join(name)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                read => read.map(Some).map_err(SinkError::io("read", &folder.join(name))),
            },
        }
    }

    /// Creates or replaces a file.
    fn put(&self, name: &str, content: Vec<u8>) -> Result<(), SinkError> {
        match self {
            Self::Prefix(below) => below.replace(name, content.into()),
            Self::Folder(folder) => {
                let path = folder.join(name);
                let mut file = AtomicFile::create(&path)?;
                file.write_all(&content).map_err(SinkError::io("write", &path))?;
                file.publish()
            }
        }
    }

    /// Moves a file, unless that was done before.
    fn move_to(&self, from: &str, to: &Self, name: &str) -> Result<(), SinkError> {
        match (self, to) {
            (Self::Folder(folder), Self::Folder(target)) => match folder.join(from) {
                path if path.exists() => publish(&path, &target.join(name)),
                _ => Ok(()),
            },
            _ => match self.get(from)? {
                Some(content) => to.put(name, content),
                None => Ok(()),
            },
        }
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        match self {
            Self::Prefix(below) => below.remove(name),
            Self::Folder(folder) => crate::publish::remove_if_there(&folder.join(name)),
        }
    }

    /// Makes removals durable.
    fn sync(&self) -> Result<(), SinkError> {
        match self {
            Self::Prefix(_) => Ok(()),
            Self::Folder(folder) => sync_folder(folder),
        }
    }

    /// Removes a folder with everything in it.
    fn remove_all(&self, name: &str) -> Result<(), SinkError> {
        match self {
            Self::Prefix(below) => {
                let names = below.list(&format!("{name}/"))?;
                names.keys().try_for_each(|name| below.remove(name))
            }
            Self::Folder(folder) => {
                let path = folder.join(name);
                match fs::remove_dir_all(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        Err(SinkError::io("remove", &path)(error))
                    }
                    _ if folder.exists() => sync_folder(folder),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The objects of a prefix whose names begin with a folder's.
#[derive(Debug)]
struct Below {
    prefix: Arc<dyn Prefix>,
    start: String,
    address: String,
}

impl Below {
    fn new(prefix: Arc<dyn Prefix>, folder: &str) -> Self {
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let address = format!("{}{start}", prefix.address());
        Self { prefix, start, address }
    }

    fn below(&self, folder: &str) -> Self {
        Self::new(Arc::clone(&self.prefix), &format!("{}{folder}", self.start))
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.start)
    }
}

impl Prefix for Below {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, name: &str, content: Bytes) -> Result<bool, SinkError> {
        self.prefix.create(&self.name(name), content)
    }

    fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.prefix.replace(&self.name(name), content)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        self.prefix.read(&self.name(name))
    }

    fn list(&self, start: &str) -> Result<std::collections::BTreeMap<String, u64>, SinkError> {
        let found = self.prefix.list(&self.name(start))?;
        Ok(found.into_iter().map(|(name, len)| (name[self.start.len()..].to_owned(), len)).collect())
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        self.prefix.remove(&self.name(name))
    }
}
