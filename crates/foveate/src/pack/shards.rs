//! The shards on disk, and the journal by which a job continues.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use foveate_sink::staging::{
    FAILURES, FAILURES_HEADER, JOURNAL, Ledger, LedgerExtent, Staging, push_failure, remove_if_there,
};
use foveate_sink::{
    AtomicFile, Failure, Layout, ManifestFile, OtherRun, OutputNames, RunState, SinkError, SinkOptions, publish,
    sync_file,
};
use foveate_source::Item;
use foveate_source::container::{MemberWriter, NewMember};
use serde::{Deserialize, Serialize};

use super::drift::Drift;
use super::options::PackOptions;
use super::record::{PackManifest, PackedShard};

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
        foveate_sink::staging::check_place(&place)?;
        let done = read::<PackManifest>(&output.join(MANIFEST)).map_err(|error| match error {
            SinkError::Damaged { path, source } => {
                let why = format!("{} is not that of shards ({source}); choose another folder", path.display());
                SinkError::BadOutput { path: output.clone(), source: why.into() }
            }
            error => error,
        })?;
        if let Some(done) = done.filter(|_| !overwrite) {
            check_same(&output, RunState::Complete, &done, &fresh)?;
            check_files(&output, &done)?;
            return Ok(Err(Box::new(done)));
        }
        let staging = Staging::take(&place, &OutputNames::new(&place))?;
        let journal = read::<Journal>(&staging.join(JOURNAL))?.filter(|_| !overwrite);
        if let Some(journal) = &journal {
            check_same(&output, RunState::Interrupted, &journal.manifest, &fresh)?;
            check_files(&output, &journal.manifest)?;
        }
        let (journal, ledger) = match journal {
            Some(journal) => {
                let ledger = Ledger::reopen(staging.join(FAILURES), journal.failures)?;
                (journal, ledger)
            }
            None => {
                let prepared = clear(&output, &staging, overwrite);
                if let Err(error) = prepared {
                    staging.discard_unused();
                    return Err(error);
                }
                let ledger = Ledger::create(staging.join(FAILURES), FAILURES_HEADER)?;
                let failures = LedgerExtent::of(FAILURES_HEADER);
                (Journal { manifest: fresh, index: 0, place: 0, failures }, ledger)
            }
        };
        let (columns, shard_bytes) = (options.job.columns.clone(), options.shard_bytes);
        let shards = Self { output, columns, shard_bytes, staging, ledger, journal, open: None };
        // Before the first shard has its name, so that it is known as this job's.
        shards.write_journal()?;
        Ok(Ok(shards))
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

    /// Publishes the failures and the manifest.
    pub(super) fn finish(mut self) -> Result<PackManifest, SinkError> {
        let (staged, target) = (self.staging.join(FAILURES), self.output.join(format!("_{FAILURES}")));
        // A copy, so that a crash before the manifest leaves the job as it was.
        let failures = fs::read(&staged).map_err(SinkError::io("read", &staged))?;
        write(&target, &failures)?;
        let manifest = &mut self.journal.manifest;
        manifest.records = vec![self.journal.failures.describe(&target)];
        write(&self.output.join(MANIFEST), &manifest.to_json())?;
        let Self { staging, ledger, journal, .. } = self;
        drop(ledger);
        staging.remove()?;
        Ok(journal.manifest)
    }

    /// Begins the next shard.
    fn next(&self) -> Result<Open, SinkError> {
        let manifest = &self.journal.manifest;
        let name = format!("{:05}.{}", manifest.shards.len(), manifest.format);
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

/// Prepares a folder without a journal of its own. Shards of another command stay, unless they are to be replaced.
fn clear(output: &Path, staging: &Staging, overwrite: bool) -> Result<(), SinkError> {
    let entries = fs::read_dir(output).map_err(SinkError::io("list", output))?;
    let is_shard = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        path.is_file() && stem.len() >= 5 && stem.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut shards: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_shard).collect();
    shards.sort();
    if let Some(first) = shards.first().filter(|_| !overwrite) {
        return Err(SinkError::Exists(first.clone()));
    }
    // What speaks of shards goes before them.
    staging.clear()?;
    remove_if_there(&output.join(MANIFEST))?;
    shards.iter().try_for_each(|shard| remove_if_there(shard))
}

fn check_same(output: &Path, state: RunState, was: &PackManifest, now: &PackManifest) -> Result<(), SinkError> {
    let Some(difference) = was.run().difference(&now.run()) else { return Ok(()) };
    Err(SinkError::OtherRun(Box::new(OtherRun { path: output.to_owned(), state, difference, inputs: None })))
}

/// Checks that the files are there, with their lengths.
fn check_files(output: &Path, manifest: &PackManifest) -> Result<(), SinkError> {
    let mut files = manifest.shards.iter().map(|shard| &shard.file).chain(&manifest.records);
    files.try_for_each(|file| file.check(&output.join(&file.name), false))
}

/// Reads a JSON file; `None` if there is none.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, SinkError> {
    match fs::read(path) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|error| SinkError::damaged(path, error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SinkError::io("read", path)(error)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SinkError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(SinkError::io("write", path))?;
    file.publish()
}
