//! The shards on disk, and the journal by which a job continues.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use foveate_core::error_chain;
use foveate_sink::staging::{
    FAILURES, FAILURES_HEADER, JOURNAL, Ledger, LedgerExtent, Staging, parent_of, push_failure, remove_if_there,
};
use foveate_sink::{
    AtomicFile, Failure, Layout, ManifestFile, OtherRun, OutputNames, RunManifest, RunState, SinkError, SinkOptions,
    StoredRun, publish, sync_file, sync_folder,
};
use foveate_source::Item;
use foveate_source::container::{MemberWriter, NewMember};
use serde::{Deserialize, Serialize};

use super::drift::Drift;
use super::options::PackOptions;
use super::record::{PackManifest, PackedShard, check_name, is_shard_name};

const MANIFEST: &str = "_manifest.json";

/// How far a job has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Journal {
    manifest: PackManifest,
    /// Inputs below this index are in complete shards or failures.
    index: u64,
    /// The last one's place in the source.
    place: u64,
    failures: LedgerExtent,
    /// Shards of the output that this job replaces, some of which may still be there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    replaced: BTreeSet<String>,
}

impl Journal {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let journal: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        journal.manifest.check_names()?;
        journal.replaced.iter().try_for_each(|name| check_name(name))?;
        Ok(journal)
    }

    /// The shards that the job made or was to replace. One that got its name just before a crash is not in the
    /// manifest.
    fn shards(&self) -> impl Iterator<Item = String> {
        shard_names(&self.manifest).chain(self.replaced.iter().cloned()).chain([self.manifest.next_name()])
    }
}

/// A shard in progress.
struct Open {
    writer: Box<dyn MemberWriter>,
    staged: PathBuf,
    target: PathBuf,
    members: u64,
    bytes: u64,
}

/// Where images go, one after the other.
pub(super) struct Shards {
    output: PathBuf,
    columns: Vec<String>,
    shard_bytes: u64,
    staging: Staging,
    ledger: Ledger,
    journal: Journal,
    open: Option<Open>,
}

/// The shards to continue with, or the manifest of complete ones.
type Begun = Result<Shards, Box<PackManifest>>;

impl Shards {
    pub(super) fn begin(
        options: &PackOptions,
        fingerprint: BTreeMap<String, String>,
        overwrite: bool,
    ) -> Result<Begun, SinkError> {
        let output = options.job.output.clone();
        let fresh = PackManifest {
            version: PackManifest::VERSION,
            format: options.format.clone(),
            fingerprint,
            ..PackManifest::default()
        };
        let place = SinkOptions { layout: Layout::Folder, ..SinkOptions::new(&output) };
        check_no_vectors(&output)?;
        foveate_sink::staging::check_place(&place)?;
        let names = OutputNames::new(&place);
        let done = read(&output, &output.join(MANIFEST), PackManifest::parse)?.filter(|_| !overwrite);
        if let Some(done) = &done {
            check_done(&output, done, &fresh)?;
        }
        if let Some(done) = done.as_ref().filter(|_| !names.staging().exists()) {
            // A job that was killed at its very end leaves this folder empty.
            let _ = fs::remove_dir(parent_of(&names.staging()));
            return Ok(Err(Box::new(done.clone())));
        }
        let staging = match (Staging::take(&place, &names), done) {
            (Ok(staging), _) => staging,
            // The job that has completed them removes its work in progress at this moment.
            (Err(SinkError::Locked(_)), Some(done)) => return Ok(Err(Box::new(done))),
            (Err(error), _) => return Err(error),
        };
        let (journal, ledger) = match begin_in(&output, &staging, fresh, overwrite) {
            Ok(Ok(begun)) => begun,
            Ok(Err(done)) => {
                // What an interrupted end has left; it is there again at the next command if it cannot be removed now.
                let _ = staging.remove();
                return Ok(Err(done));
            }
            Err(error) => {
                staging.discard_unused();
                return Err(error);
            }
        };
        let (columns, shard_bytes) = (options.job.columns.clone(), options.shard_bytes);
        let mut shards = Self { output, columns, shard_bytes, staging, ledger, journal, open: None };
        // Before the first shard has its name, so that it is known as this job's.
        shards.write_journal()?;
        shards.remove_replaced()?;
        Ok(Ok(shards))
    }

    /// Removes the output that the job replaces. The journal names its shards by then, so that a job that is killed
    /// here goes on with the plain command.
    fn remove_replaced(&mut self) -> Result<(), SinkError> {
        if self.journal.replaced.is_empty() {
            return Ok(());
        }
        // What speaks of shards goes before them.
        remove_if_there(&self.output.join(MANIFEST))?;
        sync_folder(&self.output)?;
        self.journal.replaced.iter().try_for_each(|name| remove_if_there(&self.output.join(name)))?;
        self.journal.replaced.clear();
        self.write_journal()
    }

    /// The index of the first input that is not in complete shards or failures, and the place of the one before.
    pub(super) fn watermark(&self) -> (u64, u64) {
        (self.journal.index, self.journal.place)
    }

    pub(super) fn add(&mut self, item: &Item, bytes: &[u8], extension: &str) -> Result<(), SinkError> {
        let len = bytes.len() as u64;
        if self.open.as_ref().is_some_and(|open| open.bytes + len > self.shard_bytes) {
            self.close()?;
        }
        let mut open = self.open.take().map_or_else(|| self.next(), Ok)?;
        let key = format!("{:09}", item.index);
        // Files have no columns.
        let nulls = vec![None; self.columns.len()];
        let columns = if item.columns.is_empty() { &nulls } else { &item.columns[..] };
        let member = NewMember { key: &key, extension, id: &item.id, bytes, columns };
        open.writer.add(&member).map_err(SinkError::io("write", &open.staged))?;
        (open.members, open.bytes) = (open.members + 1, open.bytes + len);
        self.open = Some(open);
        Ok(())
    }

    pub(super) fn fail(&mut self, failure: &Failure) -> Result<(), SinkError> {
        let mut line = String::new();
        push_failure(&mut line, &failure.id, failure.stage.name(), &failure.reason, failure.bytes);
        self.ledger.append(&line)?;
        self.journal.manifest.failures += 1;
        Ok(())
    }

    /// Notes that this item was added or has failed, and so have all before it.
    pub(super) fn settled(&mut self, index: u64, place: u64) {
        (self.journal.index, self.journal.place) = (index + 1, place);
    }

    /// Completes the shard in progress. Everything that was added or has failed is durable then.
    pub(super) fn close(&mut self) -> Result<(), SinkError> {
        if let Some(Open { writer, staged, target, members, .. }) = self.open.take() {
            writer.finish().map_err(SinkError::io("write", &staged))?;
            sync_file(&staged)?;
            let file = ManifestFile::describe(&staged, &target)?;
            publish(&staged, &target)?;
            self.journal.manifest.members += members;
            self.journal.manifest.shards.push(PackedShard { members, file });
        }
        self.journal.failures = self.ledger.sync()?;
        self.write_journal()
    }

    /// Notes the drift for the manifest.
    pub(super) fn drift(&mut self, drift: Option<Drift>) {
        self.journal.manifest.drift = drift;
    }

    /// Publishes the failures and the manifest. Returns also what could not be removed of the work in progress.
    pub(super) fn finish(mut self) -> Result<(PackManifest, Option<String>), SinkError> {
        let (staged, target) = (self.staging.join(FAILURES), self.output.join(format!("_{FAILURES}")));
        // A copy, so that a crash before the manifest leaves the job as it was.
        let failures = fs::read(&staged).map_err(SinkError::io("read", &staged))?;
        write(&target, &failures)?;
        let manifest = &mut self.journal.manifest;
        manifest.records = vec![self.journal.failures.describe(&target)];
        write(&self.output.join(MANIFEST), &manifest.to_json())?;
        let Self { staging, ledger, journal, .. } = self;
        drop(ledger);
        Ok((journal.manifest, staging.remove().err().map(|error| error_chain(&error))))
    }

    /// Begins the next shard.
    fn next(&self) -> Result<Open, SinkError> {
        let manifest = &self.journal.manifest;
        let name = manifest.next_name();
        let staged = self.staging.join(&name);
        let file = File::create(&staged).map_err(SinkError::io("create", &staged))?;
        let formats = crate::backends::containers();
        let format = formats.get(&manifest.format).ok();
        let created = format.and_then(|format| format.create(Box::new(BufWriter::new(file)), &self.columns));
        let created = created.ok_or_else(|| SinkError::Unsupported(format!("shards of {}", manifest.format)))?;
        let writer = created.map_err(SinkError::io("write", &staged))?;
        Ok(Open { writer, target: self.output.join(&name), staged, members: 0, bytes: 0 })
    }

    fn write_journal(&self) -> Result<(), SinkError> {
        let json = serde_json::to_vec(&self.journal).expect("a journal is plain data and always has a JSON form");
        write(&self.staging.join(JOURNAL), &json)
    }
}

/// A folder of shards as it is found.
#[derive(Clone, Debug)]
pub struct StoredShards {
    folder: PathBuf,
    /// False for a job that was interrupted, or is still packing.
    pub is_complete: bool,
    /// The folder's manifest. That of an unfinished job has the shards that are complete so far.
    pub manifest: PackManifest,
}

impl StoredShards {
    /// Finds the shards in `folder`; `None` if `pack` has made none there.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn find(folder: &Path) -> Result<Option<Self>, SinkError> {
        let found = |is_complete, manifest| Some(Self { folder: folder.to_owned(), is_complete, manifest });
        if let Some(manifest) = read_bytes(&folder.join(MANIFEST))?.and_then(|json| PackManifest::parse(&json).ok()) {
            return Ok(found(true, manifest));
        }
        let place = SinkOptions { layout: Layout::Folder, ..SinkOptions::new(folder) };
        let journal = OutputNames::new(&place).staging().join(JOURNAL);
        let begun = read_bytes(&journal)?.and_then(|json| Journal::parse(&json).ok());
        Ok(begun.and_then(|begun| found(false, begun.manifest)))
    }

    /// Compares each file with its recorded length and, with `contents`, its recorded hash.
    ///
    /// # Errors
    /// [`SinkError::Damaged`], which names the first file that differs.
    pub fn check(&self, contents: bool) -> Result<(), SinkError> {
        check_files(&self.folder, &self.manifest, contents)
    }
}

/// Refuses a folder of vectors, complete or not, even if it is to be replaced.
fn check_no_vectors(output: &Path) -> Result<(), SinkError> {
    // What cannot be read as vectors is looked at as shards.
    let found = StoredRun::find(output).unwrap_or_default();
    let Some(run) = found.first() else { return Ok(()) };
    let is_merged = run.manifest.fingerprint.contains_key(RunManifest::MERGED);
    let command = if is_merged { "merge" } else { "embed" };
    Err(SinkError::OtherCommand { path: output.to_owned(), command })
}

/// Checks that complete shards are those of this job, and that all are there.
fn check_done(output: &Path, done: &PackManifest, fresh: &PackManifest) -> Result<(), SinkError> {
    check_same(output, RunState::Complete, done, fresh)?;
    check_files(output, done, false)
}

/// Continues the job in `staging`, or starts one that replaces what the folder's manifest and journal record. The
/// shards may have become complete since they were last looked at.
fn begin_in(
    output: &Path,
    staging: &Staging,
    fresh: PackManifest,
    overwrite: bool,
) -> Result<Result<(Journal, Ledger), Box<PackManifest>>, SinkError> {
    let done = read(output, &output.join(MANIFEST), PackManifest::parse)?;
    if !overwrite && let Some(done) = &done {
        check_done(output, done, &fresh)?;
        return Ok(Err(Box::new(done.clone())));
    }
    let begun = read(output, &staging.join(JOURNAL), Journal::parse)?;
    let own: BTreeSet<String> =
        done.iter().flat_map(shard_names).chain(begun.iter().flat_map(Journal::shards)).collect();
    check_strangers(output, &own, done.is_some() || begun.is_some())?;
    if let Some(journal) = begun.filter(|_| !overwrite) {
        check_same(output, RunState::Interrupted, &journal.manifest, &fresh)?;
        check_files(output, &journal.manifest, false)?;
        let ledger = Ledger::reopen(staging.join(FAILURES), journal.failures)?;
        return Ok(Ok((journal, ledger)));
    }
    let ledger = Ledger::create(staging.join(FAILURES), FAILURES_HEADER)?;
    let failures = LedgerExtent::of(FAILURES_HEADER);
    Ok(Ok((Journal { manifest: fresh, index: 0, place: 0, failures, replaced: own }, ledger)))
}

/// Refuses a folder with files that have the names of shards or failures and are not those of `pack`.
fn check_strangers(output: &Path, own: &BTreeSet<String>, is_recorded: bool) -> Result<(), SinkError> {
    let failures = format!("_{FAILURES}");
    let mut strangers = Vec::new();
    for entry in fs::read_dir(output).map_err(SinkError::io("list", output))? {
        let entry = entry.map_err(SinkError::io("list", output))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_named_like_ours = is_shard_name(&name) && !is_folder || name == failures && !is_recorded;
        if is_named_like_ours && !own.contains(&name) {
            strangers.push(name);
        }
    }
    let Some(first) = strangers.iter().min() else { return Ok(()) };
    let why = format!("{first} in it was not made by `foveate pack`; choose another folder");
    Err(SinkError::BadOutput { path: output.to_owned(), source: why.into() })
}

fn shard_names(manifest: &PackManifest) -> impl Iterator<Item = String> {
    manifest.shards.iter().map(|shard| shard.file.name.clone())
}

fn check_same(output: &Path, state: RunState, was: &PackManifest, now: &PackManifest) -> Result<(), SinkError> {
    let Some(difference) = was.run().difference(&now.run()) else { return Ok(()) };
    Err(SinkError::OtherRun(Box::new(OtherRun { path: output.to_owned(), state, difference, inputs: None })))
}

/// Checks that the files are there with their lengths and, with `contents`, their hashes.
fn check_files(output: &Path, manifest: &PackManifest, contents: bool) -> Result<(), SinkError> {
    let mut files = manifest.shards.iter().map(|shard| &shard.file).chain(&manifest.records);
    files.try_for_each(|file| file.check(&output.join(&file.name), contents))
}

/// Reads a record of an output; `None` if there is none.
fn read<T>(output: &Path, path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<Option<T>, SinkError> {
    let Some(bytes) = read_bytes(path)? else { return Ok(None) };
    parse(&bytes).map(Some).map_err(|reason| {
        let why = format!("{} is not that of shards ({reason}); choose another folder", path.display());
        SinkError::BadOutput { path: output.to_owned(), source: why.into() }
    })
}

fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, SinkError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        // A file in place of the folder, too.
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
        Err(error) => Err(SinkError::io("read", path)(error)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SinkError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(SinkError::io("write", path))?;
    file.publish()
}
