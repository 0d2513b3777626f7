//! The place of an output, its work in progress, and what must hold before a run begins there.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::commit::{LOCK, PLAN};
pub use crate::inputs::INPUTS_HEADER;
pub use crate::names::{FAILURES, INPUTS};
use crate::names::{STAGING, shards_of};
pub use crate::publish::{parent_of, remove_if_there};
use crate::rows;
use crate::site::{CLAIM, FORMER_JOURNAL, RunSite};
use crate::{
    Layout, OutputManifest, OutputNames, Prefix, RunManifest, SinkError, SinkOptions, create_folders, push_csv_field,
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

/// Whether an output, or a run that was interrupted, is at the options' place.
///
/// # Errors
/// If a store cannot be asked.
pub fn is_begun(options: &SinkOptions) -> Result<bool, SinkError> {
    let Some(prefix) = &options.prefix else {
        let names = OutputNames::new(options);
        return Ok(names.main().exists() || names.staging().exists());
    };
    let names = OutputNames::find_below(prefix.as_ref(), options)?;
    let is_there = |start: &str| prefix.list(start).map(|found| !found.is_empty());
    Ok(is_there(&names.main().to_string_lossy())? || is_there(&format!("{}/", names.staging().display()))?)
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

/// Checks that no other command's output is there, complete or not: shards of images and vectors never replace each
/// other.
///
/// # Errors
/// [`SinkError::OtherCommand`].
pub fn check_maker(options: &SinkOptions, manifest: &RunManifest) -> Result<(), SinkError> {
    let site = RunSite::of(&SinkOptions { shard: None, ..options.clone() })?;
    let found = site.manifest()?.map(OutputManifest::run);
    let begun = || site.claim().ok().flatten().map(|claim| claim.settings);
    match found.or_else(begun) {
        Some(found) if (found.made_by() == RunManifest::PACK) != (manifest.made_by() == RunManifest::PACK) => {
            Err(SinkError::OtherCommand { path: options.output.clone(), command: found.made_by().to_owned() })
        }
        _ => Ok(()),
    }
}

/// Checks that the output can be where the options put it: no folder where a file is requested, and no file where a
/// folder is requested. Missing folders are created when the run begins; this creates nothing, so a program may call it
/// long before. A store is asked for its objects, so this shows whether it can be reached.
pub fn check_place(options: &SinkOptions) -> Result<(), SinkError> {
    if let Some(prefix) = &options.prefix {
        return check_prefix(prefix.as_ref(), options);
    }
    let output = &options.output;
    let bad = |reason: &str| Err(SinkError::BadOutput { path: output.clone(), source: reason.into() });
    if let Some(above) = output.ancestors().skip(1).find(|above| above.exists()).filter(|above| !above.is_dir()) {
        return bad(&format!("{} is not a folder", above.display()));
    }
    match options.layout {
        Layout::File if output.is_dir() => bad("it is a folder; name a file in it"),
        Layout::Folder if output.exists() && !output.is_dir() => bad("a folder is needed there, but it is a file"),
        Layout::Folder => check_division(options),
        Layout::File => Ok(()),
    }
}

/// Checks that a folder's other runs, complete or interrupted, divide the inputs as this one does. Otherwise readers of
/// the whole folder would find inputs twice.
fn check_division(options: &SinkOptions) -> Result<(), SinkError> {
    let staging = options.output.join(STAGING);
    let is_run = |name: &String| [FORMER_JOURNAL, CLAIM].iter().any(|file| staging.join(name).join(file).exists());
    let begun = file_names(&staging).filter(is_run);
    check_names(options, file_names(&options.output), begun)
}

/// Does the same below a prefix.
fn check_prefix(prefix: &dyn Prefix, options: &SinkOptions) -> Result<(), SinkError> {
    let staging = format!("{STAGING}/");
    let own = prefix.list(&staging)?;
    let begun = own.keys().filter_map(|name| name.strip_prefix(&staging)?.strip_suffix(CLAIM)?.strip_suffix('/'));
    let found = [prefix.list("part")?, prefix.list("_manifest")?, prefix.list("manifest")?];
    check_names(options, found.into_iter().flatten().map(|(name, _)| name), begun.map(str::to_owned))
}

/// Checks the names of files and of runs that were begun.
fn check_names(
    options: &SinkOptions,
    files: impl Iterator<Item = String>,
    mut begun: impl Iterator<Item = String>,
) -> Result<(), SinkError> {
    let ours = options.shard.map(|(_, count)| count);
    let shards = |run: &str| run.split_once("-of-").and_then(|(_, count)| count.parse().ok());
    let mut others = files.filter(|name| shards_of(name).is_some_and(|shards| shards != ours));
    let Some(name) = others.next().or_else(|| begun.find(|run| shards(run) != ours)) else { return Ok(()) };
    let own = ours.map_or_else(|| "a whole run".to_owned(), |count| format!("one of {count} shards"));
    let source =
        format!("it holds a run that divides the inputs otherwise ({name}), and {own} would mix with it; name another");
    Err(SinkError::BadOutput { path: options.output.clone(), source: source.into() })
}

/// The names in a folder; none if it cannot be read.
pub(crate) fn file_names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
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
    if !options.columns.is_empty() {
        set("columns", options.columns.join(","));
    }
    if !options.column_kinds.is_empty() {
        set("column_kinds", rows::kinds_text(&options.column_kinds));
    }
    options.settings.iter().for_each(|(name, value)| drop(set(name, value.clone())));
    settings
}

/// A folder for one run's work in progress, locked by this process for the value's lifetime.
#[derive(Debug)]
pub struct Staging {
    folder: PathBuf,
    /// The folder that holds all shards' staging folders.
    common: Option<PathBuf>,
    lock: Lock,
}

impl Staging {
    /// Creates the folder ([`OutputNames::staging`]) if needed and locks it; an error says that another process holds
    /// it.
    pub fn take(options: &SinkOptions, names: &OutputNames) -> Result<Self, SinkError> {
        let folder = names.staging();
        let common = (options.layout == Layout::Folder).then(|| parent_of(&folder).to_owned());
        Self::take_at(folder, common, options)
    }

    /// The same for work of another kind in `folder`.
    pub(crate) fn take_at(folder: PathBuf, common: Option<PathBuf>, options: &SinkOptions) -> Result<Self, SinkError> {
        // A run that finishes at this moment may remove the folder or the lock file at any point.
        for _ in 0..RETRIES {
            match create_folders(&folder) {
                Err(SinkError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                created => created?,
            }
            if let Some(lock) = Lock::take(&folder.join(LOCK), &options.output)? {
                return Ok(Self { folder, common, lock });
            }
        }
        Err(SinkError::Locked(options.output.clone()))
    }

    /// The folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Removes everything in it but the lock.
    pub fn clear(&self) -> Result<(), SinkError> {
        remove_if_there(&self.join(FORMER_JOURNAL))?;
        remove_if_there(&self.join(CLAIM))?;
        for entry in fs::read_dir(&self.folder).map_err(SinkError::io("list", &self.folder))? {
            let path = entry.map_err(SinkError::io("list", &self.folder))?.path();
            if path.file_name().is_some_and(|name| name != LOCK && name != PLAN) {
                remove_if_there(&path)?;
            }
        }
        remove_if_there(&self.join(PLAN))
    }

    /// Removes a finished run's folder. No file in it may be open any more: FUSE and NFS keep a removed file under
    /// another name until it is closed, and so the folder with it.
    pub fn remove(self) -> Result<(), SinkError> {
        self.clear()?;
        let Self { folder, common, lock, .. } = self;
        let path = folder.join(LOCK);
        remove_if_there(&path)?; // while it is locked, so that it is nobody else's
        drop(lock);
        remove_emptied(&folder, &path)?;
        if let Some(common) = common {
            // Fails while other shards are running, which is fine.
            let _ = fs::remove_dir(common);
        }
        Ok(())
    }

    /// Removes the folder if no run was begun in it. Ignores its own errors, because the error at hand matters more.
    pub fn discard_unused(self) {
        if ![FORMER_JOURNAL, CLAIM, PLAN].iter().any(|name| self.join(name).exists()) {
            let _ = self.remove();
        }
    }
}

const RETRIES: u32 = 50;
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Removes a folder without files. FUSE forgets a closed file a moment after `close` returns.
fn remove_emptied(folder: &Path, lock: &Path) -> Result<(), SinkError> {
    let mut retries = 0..RETRIES;
    loop {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Another process has begun in it.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && lock.exists() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && retries.next().is_some() => {
                std::thread::sleep(RETRY_AFTER);
            }
            result => return result.map_err(SinkError::io("remove", folder)),
        }
    }
}

/// A locked file.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    /// Locks the file at `path`; `None` if it was removed meanwhile.
    fn take(path: &Path, output: &Path) -> Result<Option<Self>, SinkError> {
        let file = match File::options().create(true).truncate(false).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(SinkError::io("create", path))?,
        };
        match file.try_lock() {
            Ok(()) if is_file_at(&file, path) => Ok(Some(Self(file))),
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Err(SinkError::Locked(output.to_owned())),
            Err(TryLockError::Error(error)) => Err(SinkError::io("lock", path)(error)),
        }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a child process that is being started at this moment has it open, too, and would
    /// hold the lock until it executes its own program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Returns true if the open file is still the one at `path`: the previous owner of the lock may have removed it, and a
/// third process may have created the next one.
#[cfg(unix)]
fn is_file_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_file_at(_file: &File, path: &Path) -> bool {
    path.exists()
}
