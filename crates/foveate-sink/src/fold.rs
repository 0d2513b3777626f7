//! Makes one output of an output and what a later run of some of its inputs stored.
//!
//! The later run is complete, and lies beside the output's work in progress. A folder's parts stay as they are unless
//! a row of theirs goes: then the rows that stay are written once more. New parts get numbers that no part had. A plan
//! says which files to move, and the manifest that names them all takes the old one's place; after that, the parts
//! that are not in it are removed. Whoever is killed in between finds the plan and follows it again. A single file is
//! written anew.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::names::STAGING;
use crate::publish::parent_of;
use crate::staging::{self, Staging};
use crate::{
    AtomicFile, Existing, Failure, InputRecord, Layout, ManifestPart, OutputManifest, OutputNames, Prefix, Published,
    RowBuffer, RunManifest, RunState, Shape, SinkBackend, SinkError, SinkOptions, StoredFailure, StoredRun,
    StoredState, VectorReader, VectorSink, Watermark, publish, sidecar, sync_folder,
};

/// Rows, or records, between two calls of a sink.
const BLOCK: usize = 1024;
/// Items between two commits.
const COMMIT: u64 = 65_536;

/// Decides what becomes of an input of the output: its record from now on, or `None` if its row or failure goes.
pub type Keep<'a> = dyn Fn(&InputRecord) -> Option<InputRecord> + 'a;

/// The place of an output and of what is to be folded into it.
#[derive(Clone, Debug)]
pub struct Fold<'a> {
    backend: &'a SinkBackend,
    options: &'a SinkOptions,
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

impl<'a> Fold<'a> {
    /// The output of `options`, which `backend` writes. It is no shard.
    pub fn new(backend: &'a SinkBackend, options: &'a SinkOptions) -> Self {
        Self { backend, options }
    }

    /// The options of the later run.
    pub fn later(&self) -> SinkOptions {
        self.part_of_work("later")
    }

    /// The complete output as it is now, and a digest of it; `None` if there is none. Follows the plan of a fold that
    /// was interrupted, and ends an interrupted run of the job that `manifest` describes if its inputs were others.
    ///
    /// # Errors
    /// [`SinkError::OtherRun`] for an output of another job; see [`Self::check`]. [`SinkError::Locked`] if another
    /// process is at it.
    pub fn base(
        &self,
        manifest: &RunManifest,
        may_differ: impl Fn(&str) -> bool,
    ) -> Result<Option<(StoredRun, String)>, SinkError> {
        self.follow_plan()?;
        self.end_begun(manifest, &may_differ)?;
        let Some(run) = StoredRun::complete(self.options)? else { return Ok(None) };
        self.check(&run, manifest, may_differ)?;
        let digest = digest(&run.manifest);
        Ok(Some((run, digest)))
    }

    fn end_begun(&self, manifest: &RunManifest, may_differ: &impl Fn(&str) -> bool) -> Result<(), SinkError> {
        let runs = if self.options.prefix.is_some() { Vec::new() } else { StoredRun::find(&self.options.output)? };
        let is_other = |run: &StoredRun| {
            let of = |run: &RunManifest| run.fingerprint.get(RunManifest::LISTING).cloned();
            run.state == StoredState::Unfinished && of(&run.manifest.clone().run()) != of(manifest)
        };
        let Some(begun) = runs.into_iter().find(is_other) else { return Ok(()) };
        self.check(&begun, manifest, may_differ)?;
        let mut begun = begun.manifest.run();
        begun.fingerprint.retain(|name, _| !name.starts_with("sink."));
        let mut sink = self.backend.open(self.options)?;
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
        base: &StoredRun,
        manifest: &RunManifest,
        may_differ: impl Fn(&str) -> bool,
    ) -> Result<(), SinkError> {
        let without = |mut run: RunManifest| {
            let inputs = [RunManifest::LISTING, RunManifest::ITEMS, "sink.part_items"];
            run.fingerprint.retain(|name, _| !inputs.contains(&name.as_str()) && !may_differ(name));
            run
        };
        let now = staging::settings(self.options, foveate_core::Backend::name(self.backend), manifest);
        match without(base.manifest.clone().run()).difference(&without(now)) {
            None => Ok(()),
            Some(difference) => {
                Err(staging::other_run(self.options.output.clone(), RunState::Complete, difference, None))
            }
        }
    }

    /// Makes room for the later run of the job that `manifest` describes: what another one began is removed. Returns
    /// the later run if it is complete.
    pub fn make_room(&self, manifest: &RunManifest) -> Result<Option<StoredRun>, SinkError> {
        let options = self.later();
        match self.backend.open(&options)?.begin(manifest, Existing::Resume) {
            Ok(_) => Ok(None),
            Err(SinkError::AlreadyComplete(_)) => StoredRun::complete(&options),
            Err(SinkError::OtherRun(_) | SinkError::Damaged { .. }) => self.discard().map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Removes the later run.
    pub fn discard(&self) -> Result<(), SinkError> {
        self.work().clear()
    }

    /// Folds the later run into the output. `manifest` describes the result. Rows that stay keep their order; those of
    /// the later run follow.
    pub fn run(&self, manifest: &RunManifest, keep: &Keep<'_>) -> Result<Published, SinkError> {
        let missing = |options: &SinkOptions| SinkError::damaged(&options.output, "its manifest is gone");
        let later_options = self.later();
        let base = StoredRun::complete(self.options)?.ok_or_else(|| missing(self.options))?;
        let later = StoredRun::complete(&later_options)?.ok_or_else(|| missing(&later_options))?;
        match self.options.layout {
            Layout::File => self.rewrite(manifest, &base, &later, keep),
            Layout::Folder => self.replace_parts(manifest, &base, &later, keep),
        }
    }

    fn rewrite(
        &self,
        manifest: &RunManifest,
        base: &StoredRun,
        later: &StoredRun,
        keep: &Keep<'_>,
    ) -> Result<Published, SinkError> {
        let reader = self.reader()?;
        let (mut sink, start) = self.resume_or_replace(self.options, manifest)?;
        let mut copy = Copy::new(sink.as_mut(), start);
        copy.add(base, &Which::All(reader), keep)?;
        copy.add(later, &Which::All(reader), &|record| Some(record.clone()))?;
        let published = copy.finish()?;
        self.work().clear()?;
        Ok(published)
    }

    fn replace_parts(
        &self,
        manifest: &RunManifest,
        base: &StoredRun,
        later: &StoredRun,
        keep: &Keep<'_>,
    ) -> Result<Published, SinkError> {
        let _lock = self.lock()?;
        let changed = changed_parts(base, keep)?;
        let options = self.part_of_work("rewritten");
        let mut sink = self.backend.open(&options)?;
        sink.begin(manifest, Existing::Overwrite)?;
        let mut copy = Copy::new(sink.as_mut(), 0);
        copy.add(base, &Which::RecordsExcept(&changed), keep)?;
        copy.add(base, &Which::Only(&changed, self.reader()?), keep)?;
        copy.add(later, &Which::RecordsExcept(&BTreeSet::new()), &|record| Some(record.clone()))?;
        copy.finish()?;
        let rewritten = StoredRun::complete(&options)?;
        let rewritten = rewritten.ok_or_else(|| SinkError::damaged(&options.output, "its manifest is gone"))?;
        let plan = self.plan(base, &changed, &rewritten.manifest, &later.manifest);
        self.work().put(PLAN, serde_json::to_vec(&plan).expect("a plan is plain data and has a JSON form"))?;
        self.follow(plan)
    }

    fn plan(
        &self,
        base: &StoredRun,
        changed: &BTreeSet<usize>,
        rewritten: &OutputManifest,
        later: &OutputManifest,
    ) -> Plan {
        let names = match self.options.prefix {
            Some(_) => OutputNames::of_objects(self.options),
            None => OutputNames::new(self.options),
        };
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
        let Some(content) = self.work().get(PLAN)? else { return Ok(()) };
        let _lock = self.lock()?;
        let plan: Plan =
            serde_json::from_slice(&content).map_err(|error| SinkError::damaged(&self.work().path(PLAN), error))?;
        let found = StoredRun::complete(self.options)?.map(|run| digest(&run.manifest));
        match found.is_some_and(|found| found == plan.base || found == digest(&plan.manifest)) {
            true => self.follow(plan).map(drop),
            // The output was replaced since.
            false => self.discard(),
        }
    }

    /// May run again after having been interrupted anywhere.
    fn follow(&self, plan: Plan) -> Result<Published, SinkError> {
        let (work, output) = (self.work(), self.output());
        for (from, to) in &plan.moves {
            work.move_to(from, &output, to)?;
        }
        output.put("manifest.json", plan.manifest.to_json().into_bytes())?;
        plan.remove.iter().try_for_each(|name| output.remove(name))?;
        let published = plan.manifest.published(&output.path(""));
        work.clear()?;
        Ok(published)
    }

    /// Begins a run that replaces an output, or continues one that was interrupted.
    fn resume_or_replace(
        &self,
        options: &SinkOptions,
        manifest: &RunManifest,
    ) -> Result<(Box<dyn VectorSink>, u64), SinkError> {
        let mut sink = self.backend.open(options)?;
        if OutputNames::new(options).staging().exists() {
            match sink.begin(manifest, Existing::Resume) {
                Ok(watermark) => return Ok((sink, watermark.index)),
                Err(SinkError::OtherRun(_) | SinkError::AlreadyComplete(_)) => {}
                Err(error) => return Err(error),
            }
            sink = self.backend.open(options)?;
        }
        let watermark = sink.begin(manifest, Existing::Overwrite)?;
        Ok((sink, watermark.index))
    }

    fn reader(&self) -> Result<&'a dyn VectorReader, SinkError> {
        self.backend.reader().ok_or_else(|| SinkError::Unsupported("reading vectors of this format".to_owned()))
    }

    fn lock(&self) -> Result<Option<Staging>, SinkError> {
        match self.options.prefix {
            Some(_) => Ok(None),
            None => Staging::take(self.options, &OutputNames::new(self.options)).map(Some),
        }
    }

    /// The options of an output in the work in progress.
    fn part_of_work(&self, name: &str) -> SinkOptions {
        let work = self.work();
        SinkOptions {
            output: work.path(&format!("{name}/")),
            prefix: match &work {
                Files::Folder(_) => None,
                Files::Prefix(below) => Some(Arc::new(below.below(name))),
            },
            layout: Layout::Folder,
            shard: None,
            first_index: 0,
            publish_empty: true,
            ..self.options.clone()
        }
    }

    fn work(&self) -> Files {
        match (&self.options.prefix, self.options.layout) {
            (Some(prefix), _) => Files::Prefix(Below::new(Arc::clone(prefix), &format!("{STAGING}/update"))),
            (None, Layout::Folder) => Files::Folder(self.options.output.join(STAGING).join("update")),
            (None, Layout::File) => Files::Folder(sidecar(&self.options.output, "update")),
        }
    }

    fn output(&self) -> Files {
        match &self.options.prefix {
            Some(prefix) => Files::Prefix(Below::new(Arc::clone(prefix), "")),
            None => Files::Folder(self.options.output.clone()),
        }
    }
}

const PLAN: &str = "plan.json";

fn digest(manifest: &OutputManifest) -> String {
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
enum Which<'a> {
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
}

impl<'a> Copy<'a> {
    fn new(sink: &'a mut dyn VectorSink, start: u64) -> Self {
        Self { sink, start, next: 0, rows: RowBuffer::default(), failures: Vec::new(), inputs: Vec::new() }
    }

    fn add(&mut self, run: &StoredRun, which: &Which<'_>, keep: &Keep<'_>) -> Result<(), SinkError> {
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
                    if let Some(record) = keep(&record) {
                        if self.next >= self.start {
                            self.rows.push(self.next, row);
                        }
                        self.take(record)?;
                    }
                    Ok(())
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

    fn finish(mut self) -> Result<Published, SinkError> {
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

    /// Removes all files, the plan last: without the rest, it does nothing.
    fn clear(&self) -> Result<(), SinkError> {
        match self {
            Self::Prefix(below) => {
                let names = below.list("")?.into_keys().filter(|name| name != PLAN);
                names.into_iter().try_for_each(|name| below.remove(&name))?;
                below.remove(PLAN)
            }
            Self::Folder(folder) if folder.exists() => {
                for entry in fs::read_dir(folder).map_err(SinkError::io("list", folder))? {
                    let path = entry.map_err(SinkError::io("list", folder))?.path();
                    if path.is_dir() {
                        fs::remove_dir_all(&path).map_err(SinkError::io("remove", &path))?;
                    }
                }
                sync_folder(folder)?;
                fs::remove_dir_all(folder).map_err(SinkError::io("remove", folder))?;
                let _ = fs::remove_dir(parent_of(folder)); // holds other shards' work, if there is any
                Ok(())
            }
            Self::Folder(_) => Ok(()),
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
