//! Shared code of sinks that write a run to a staging folder and rename the files at the end.
//!
//! [`PartSink`](crate::parts::PartSink) uses it, and so does a sink whose library has its own transactions. Both have
//! the same checks, the same refusals and the same order in which files appear.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

pub use crate::publish::{parent_of, remove_if_there};
use crate::{
    Existing, Failure, Layout, OutputManifest, OutputNames, Rows, RunManifest, SinkError, SinkOptions, publish,
    push_csv_field, sync_folder,
};

/// First line of a failures file.
pub const FAILURES_HEADER: &str = "id,stage,reason,bytes\n";

/// Appends one failure to `lines`, in the failures file's format.
pub fn push_failure(lines: &mut String, id: &str, stage: &str, reason: &str, bytes: Option<u64>) {
    for field in [id, stage, reason] {
        push_csv_field(lines, field);
        lines.push(',');
    }
    if let Some(bytes) = bytes {
        lines.push_str(&bytes.to_string());
    }
    lines.push('\n');
}

/// Announces every step that changes the disk to a test, before the step, so that the test can see the state after a
/// crash there. Silent by default.
#[derive(Default)]
pub struct Steps(Option<Box<dyn FnMut(&'static str) + Send>>);

impl Steps {
    /// Calls `probe` with the name of each step.
    pub fn seen_by(probe: impl FnMut(&'static str) + Send + 'static) -> Self {
        Self(Some(Box::new(probe)))
    }

    /// Announces a step.
    pub fn step(&mut self, name: &'static str) {
        if let Some(probe) = &mut self.0 {
            probe(name);
        }
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Steps").field(&self.0.is_some()).finish()
    }
}

/// Checks a run's options and its output's location, before creating anything there.
pub fn check(options: &SinkOptions, manifest: &RunManifest) -> Result<(), SinkError> {
    let misuse = |reason: &str| Err(SinkError::Misuse(reason.to_owned()));
    if manifest.dim == 0 {
        return misuse("vectors have no components");
    }
    if options.part_items == 0 {
        return misuse("a part covers no items");
    }
    if options.shard.is_some_and(|(i, n)| i >= n) {
        return misuse("shard i of n needs i < n");
    }
    check_place(options)
}

/// Checks that the output can be where the options put it: no folder where a file is requested, no file where a folder
/// is requested, and an existing folder for the file. Creates nothing, so a program may call it long before it begins.
pub fn check_place(options: &SinkOptions) -> Result<(), SinkError> {
    let output = &options.output;
    let bad = |reason: &str| Err(SinkError::BadOutput { path: output.clone(), source: reason.into() });
    match options.layout {
        Layout::File if output.is_dir() => bad("it is a folder; name a file in it"),
        Layout::File if !parent_of(output).is_dir() => {
            bad(&format!("there is no folder {}; create it first", parent_of(output).display()))
        }
        Layout::Folder if output.exists() && !output.is_dir() => bad("a folder is needed there, but it is a file"),
        _ => Ok(()),
    }
}

/// The caller's settings plus the options that must not change within a run.
pub fn settings(options: &SinkOptions, format: &str, manifest: &RunManifest) -> RunManifest {
    let mut settings = manifest.clone();
    let mut set = |name: &str, value: String| settings.fingerprint.insert(format!("sink.{name}"), value);
    set("format", format.to_owned());
    set("element", options.element.name().to_owned());
    set("first_index", options.first_index.to_string());
    if let Some((i, n)) = options.shard {
        set("shard", format!("{i}/{n}"));
    }
    options.settings.iter().for_each(|(name, value)| drop(set(name, value.clone())));
    settings
}

/// The error for a complete output: this same job is `done`, or another output is in the way.
pub fn finished(main: PathBuf, done: Option<RunManifest>, settings: &RunManifest, existing: Existing) -> SinkError {
    let is_this_job = done.is_some_and(|done| done.difference(settings).is_none());
    if existing == Existing::Resume && is_this_job { SinkError::AlreadyComplete(main) } else { SinkError::Exists(main) }
}

/// The run described by a `manifest.json`; `None` if the file is missing or unreadable.
pub fn read_manifest(path: &Path) -> Option<RunManifest> {
    OutputManifest::parse(&fs::read(path).ok()?).ok().map(OutputManifest::run)
}

/// A folder for one run's work in progress, locked by this process for the value's lifetime.
#[derive(Debug)]
pub struct Staging {
    folder: PathBuf,
    /// The folder that holds all shards' staging folders.
    common: Option<PathBuf>,
    lock: File,
}

impl Staging {
    const LOCK: &str = "lock";

    /// Creates the folder ([`OutputNames::staging`]) if needed and locks it; an error says that another process holds
    /// it.
    pub fn take(options: &SinkOptions, names: &OutputNames) -> Result<Self, SinkError> {
        let folder = names.staging();
        fs::create_dir_all(&folder).map_err(SinkError::io("create", &folder))?;
        let lock = lock(&folder, &options.output)?;
        let common = (options.layout == Layout::Folder).then(|| parent_of(&folder).to_owned());
        Ok(Self { folder, common, lock })
    }

    /// The folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Removes everything in it but the lock. `first`, without which the rest is meaningless, is removed first.
    pub fn clear(&self, first: &str) -> Result<(), SinkError> {
        remove_if_there(&self.join(first))?;
        for entry in fs::read_dir(&self.folder).map_err(SinkError::io("list", &self.folder))? {
            let path = entry.map_err(SinkError::io("list", &self.folder))?.path();
            if path.file_name().is_some_and(|name| name != Self::LOCK) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    /// Removes a finished run's folder. `first` as in [`clear`](Self::clear).
    pub fn remove(&self, first: &str) -> Result<(), SinkError> {
        self.clear(first)?;
        remove_if_there(&self.join(Self::LOCK))?;
        fs::remove_dir(&self.folder).map_err(SinkError::io("remove", &self.folder))?;
        self.remove_common();
        Ok(())
    }

    /// Removes the folder if no run was begun in it (there is no `first`). Ignores its own errors, because the error at
    /// hand matters more.
    pub fn discard_unused(&self, first: &str) {
        if !self.join(first).exists() {
            let _ = self.clear(first);
            let _ = remove_if_there(&self.join(Self::LOCK));
            let _ = fs::remove_dir(&self.folder);
            self.remove_common();
        }
    }

    fn remove_common(&self) {
        if let Some(common) = &self.common {
            // Fails while other shards are running, which is fine.
            let _ = fs::remove_dir(common);
        }
    }
}

impl Drop for Staging {
    /// Closing the file is not enough: a child process that is being started at this moment has it open, too, and would
    /// hold the lock until it executes its own program.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Locks the staging folder for this process.
fn lock(staging: &Path, output: &Path) -> Result<File, SinkError> {
    let path = staging.join(Staging::LOCK);
    let file =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(SinkError::io("create", &path))?;
    match file.try_lock() {
        // The run that held the lock may have finished and removed the folder between our opening and our locking it.
        Ok(()) if !path.exists() => Err(SinkError::Locked(output.to_owned())),
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SinkError::Locked(output.to_owned())),
        Err(TryLockError::Error(error)) => Err(SinkError::io("lock", &path)(error)),
    }
}

/// Removes an earlier run's files from an output folder, or returns an error if there are any. `extensions` are those
/// of the sink's own part files.
pub fn clear_folder(
    folder: &Path,
    names: &OutputNames,
    extensions: &[String],
    existing: Existing,
    steps: &mut Steps,
) -> Result<(), SinkError> {
    let mut old = list_parts(folder, names, extensions)?;
    if existing != Existing::Overwrite {
        return old.pop().map_or(Ok(()), |path| Err(SinkError::Exists(path)));
    }
    // Another format's parts are known only from the old manifest.
    if let Some(manifest) = fs::read(names.main()).ok().and_then(|bytes| OutputManifest::parse(&bytes).ok()) {
        let files = manifest.parts.into_iter().flat_map(|part| part.files);
        old.extend(files.map(|file| folder.join(file.name)));
    }
    steps.step("remove old manifest");
    remove_if_there(&names.main())?;
    sync_folder(folder)?;
    for path in old {
        steps.step("remove old part");
        remove_if_there(&path)?;
    }
    remove_if_there(&names.beside("failures.csv"))
}

/// This run's part files in an output folder.
fn list_parts(folder: &Path, names: &OutputNames, extensions: &[String]) -> Result<Vec<PathBuf>, SinkError> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder).map_err(SinkError::io("list", folder))? {
        let path = entry.map_err(SinkError::io("list", folder))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.is_part(name, extensions)) {
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

/// Gives complete, synced files (`from`, `to`) their final names, in order. The last one means "complete", so an output
/// that is being overwritten is removed first and its main file never stands beside new sidecars. Files that already
/// have their final name are left alone (a crash may have happened in between).
pub fn publish_all(moves: &[(PathBuf, PathBuf)], steps: &mut Steps) -> Result<(), SinkError> {
    let Some((main_staged, main)) = moves.last() else { return Ok(()) };
    if main_staged.exists() {
        steps.step("remove old output");
        remove_if_there(main)?;
        sync_folder(parent_of(main))?;
    }
    for (staged, target) in moves {
        if staged.exists() {
            steps.step("publish");
            publish(staged, target)?;
        } else if !target.exists() {
            return Err(SinkError::damaged(target, "it was being published and is gone"));
        }
    }
    Ok(())
}

/// Removes an overwritten single-file output's files. Needed if the run that replaces it has no rows and so publishes
/// nothing in its place. The main file goes first, because without it the others are meaningless.
pub fn remove_overwritten(names: &OutputNames, sidecars: &[&str], steps: &mut Steps) -> Result<(), SinkError> {
    let main = names.main();
    if !main.exists() {
        return Ok(());
    }
    steps.step("remove old output");
    remove_if_there(&main)?;
    sidecars.iter().try_for_each(|sidecar| remove_if_there(&names.beside(sidecar)))
}

/// XXH3-64 of a file, 16 lower-case hexadecimal digits.
pub fn hash_file(path: &Path) -> Result<String, SinkError> {
    let mut file = File::open(path).map_err(SinkError::io("open", path))?;
    let (mut hash, mut buffer) = (Xxh3::new(), vec![0; 1 << 18]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(format!("{:016x}", hash.digest())),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SinkError::io("read", path)(error)),
        }
    }
}

/// What a run has accepted so far, to refuse calls that do not follow from it.
#[derive(Clone, Debug)]
pub struct Taken {
    dim: usize,
    watermark: u64,
    /// Lowest index that may still be appended or recorded as failed.
    next_row: u64,
    next_failure: u64,
    /// Rows and failures accepted since the last commit.
    pending: u64,
    closed: bool,
}

impl Taken {
    /// Everything below `watermark`, and nothing else. A `closed` run (interrupted while finishing) accepts no more
    /// rows.
    pub fn up_to(watermark: u64, dim: usize, closed: bool) -> Self {
        Self { dim, watermark, next_row: watermark, next_failure: watermark, pending: 0, closed }
    }

    /// Whether these rows may come next.
    pub fn check_rows(&self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let n = rows.index.len();
        let lengths = [rows.id.len(), rows.width.len(), rows.height.len(), rows.xxh3.len()];
        if lengths.iter().any(|&len| len != n) || rows.vectors.len() != n * self.dim {
            return Err(SinkError::Misuse(format!(
                "{n} rows of {} components come with {} vector components and columns of {lengths:?}",
                self.dim,
                rows.vectors.len()
            )));
        }
        self.check_order(rows.index.iter().copied(), self.next_row, "row")
    }

    /// Whether these failures may come next.
    pub fn check_failures(&self, failures: &[Failure]) -> Result<(), SinkError> {
        self.check_order(failures.iter().map(|failure| failure.index), self.next_failure, "failure")
    }

    fn check_order(&self, indexes: impl Iterator<Item = u64>, lowest: u64, what: &str) -> Result<(), SinkError> {
        let mut lowest = lowest;
        for index in indexes {
            if index < lowest {
                return Err(SinkError::Misuse(format!(
                    "{what} {index} comes out of order: {lowest} is the lowest that may follow"
                )));
            }
            if self.closed {
                return Err(SinkError::Misuse(format!("{what} {index} comes after the run was finishing")));
            }
            lowest = index.saturating_add(1);
        }
        Ok(())
    }

    /// Whether this watermark may be committed.
    pub fn check_watermark(&self, watermark: u64) -> Result<(), SinkError> {
        let lowest = self.watermark.max(self.next_row).max(self.next_failure);
        if watermark < lowest {
            return Err(SinkError::Misuse(format!("commit of {watermark}, but items below {lowest} were taken")));
        }
        Ok(())
    }

    /// Whether the run may be finished.
    pub fn check_finish(&self) -> Result<(), SinkError> {
        match self.pending {
            0 => Ok(()),
            n => Err(SinkError::Misuse(format!("finish with {n} rows or failures not committed"))),
        }
    }

    /// Whether a commit of `watermark` has anything to make durable.
    pub fn is_news(&self, watermark: u64) -> bool {
        self.pending > 0 || watermark != self.watermark
    }

    /// Records accepted rows.
    pub fn rows(&mut self, rows: &Rows<'_>) {
        if let Some(&last) = rows.index.last() {
            self.next_row = last.saturating_add(1);
            self.pending += rows.index.len() as u64;
        }
    }

    /// Records accepted failures.
    pub fn failures(&mut self, failures: &[Failure]) {
        if let Some(last) = failures.last() {
            self.next_failure = last.index.saturating_add(1);
            self.pending += failures.len() as u64;
        }
    }

    /// Records a commit.
    pub fn commit(&mut self, watermark: u64) {
        self.watermark = watermark;
        self.pending = 0;
    }

    /// Records that the run is finishing.
    pub fn close(&mut self) {
        self.closed = true;
    }
}

/// A sink's life cycle, around the state of its open run.
#[derive(Debug)]
pub enum Phase<R> {
    /// Before `begin`.
    New,
    /// Between `begin` and `finish`.
    Open(Box<R>),
    /// After `finish`.
    Done,
    /// After an error that may have left files half-written.
    Broken,
}

impl<R> Phase<R> {
    /// Takes the open run out, leaving [`Broken`](Self::Broken) until it is put back; misuse if no run is open.
    pub fn take(&mut self, call: &str) -> Result<Box<R>, SinkError> {
        match std::mem::replace(self, Self::Broken) {
            Self::Open(run) => Ok(run),
            other => {
                let when = match &other {
                    Self::New => "before begin",
                    Self::Done => "after finish",
                    _ => "after an error",
                };
                *self = other;
                Err(SinkError::Misuse(format!("{call} {when}")))
            }
        }
    }

    /// Puts the run back, unless `result` is an error that may have left files half-written.
    pub fn put_back<T>(&mut self, run: Box<R>, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if matches!(result, Ok(_) | Err(SinkError::Misuse(_))) {
            *self = Self::Open(run);
        }
        result
    }

    /// Misuse if a run was already begun.
    pub fn check_new(&self) -> Result<(), SinkError> {
        match self {
            Self::New => Ok(()),
            _ => Err(SinkError::Misuse("begin is called once".to_owned())),
        }
    }
}
