use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::checksum::{Checksum, is_hex};
use super::{HubError, Progress, Repository};
use crate::checkpoint::{INDEX_FILE, OPEN_CLIP_CONFIG, OPEN_CLIP_FILE, SINGLE_FILE, read_weight_map};
use crate::family::Family;

/// One repository's part of the cache that all Hugging Face libraries share:
///
/// ```text
/// models--owner--name/blobs/<checksum>            the files, each under its checksum
/// models--owner--name/snapshots/<commit>/<file>   links to them
/// models--owner--name/refs/<revision>             the commit that a branch or tag last pointed at
/// .locks/models--owner--name/<checksum>.lock      held while a file is downloaded
/// ```
pub(crate) struct RepoCache {
    folder: PathBuf,
    locks: PathBuf,
}

impl RepoCache {
    pub(crate) fn new(cache: &Path, repository: &Repository) -> Self {
        let name = format!("models--{}", repository.id.replace('/', "--"));
        Self { folder: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    pub(crate) fn blob(&self, checksum: &Checksum) -> PathBuf {
        self.folder.join("blobs").join(checksum.hex())
    }

    /// The path of a growing download. Other libraries use another name for theirs, which need not be a prefix of the
    /// file.
    pub(crate) fn partial(&self, checksum: &Checksum) -> PathBuf {
        self.folder.join("blobs").join(format!("{}.foveate.incomplete", checksum.hex()))
    }

    /// The commit of `revision`: itself if it is one, else the last known one.
    pub(crate) fn commit_of(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let text = fs::read_to_string(self.folder.join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// The snapshot of `commit`, if it has every file that a model needs.
    pub(crate) fn complete_snapshot(&self, commit: &str) -> Option<PathBuf> {
        let folder = self.snapshot(commit);
        let Ok(config) = fs::read(folder.join("config.json")) else {
            let files = [OPEN_CLIP_CONFIG, OPEN_CLIP_FILE];
            return files.iter().all(|file| folder.join(file).is_file()).then_some(folder);
        };
        let mut files = Vec::new();
        if !Family::has_recipe_in(&config) {
            files.push("preprocessor_config.json".to_owned());
        }
        if !folder.join(SINGLE_FILE).is_file() {
            files.extend(read_weight_map(&folder.join(INDEX_FILE)).ok()?.into_values());
        }
        files.iter().all(|file| folder.join(file).is_file()).then_some(folder)
    }

    /// Records that `revision` is `commit`.
    pub(crate) fn set_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if self.commit_of(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        replace_file(&path, |temporary| fs::write(temporary, commit)).map_err(|cause| HubError::cache(path, cause))
    }

    /// Waits until no other process downloads the same file, and holds the lock while the guard lives.
    pub(crate) fn lock(&self, checksum: &Checksum, progress: &dyn Progress) -> Result<File, HubError> {
        let path = self.locks.join(format!("{}.lock", checksum.hex()));
        let opened = fs::create_dir_all(&self.locks)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(&path));
        let file = opened.map_err(|cause| HubError::cache(&path, cause))?;
        let locked = match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                progress.notice("waiting for another process that downloads the same file");
                file.lock()
            }
            // Some network file systems have no locks; the checksum still guards the result.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(TryLockError::Error(e)) => Err(e),
        };
        locked.map_err(|cause| HubError::cache(&path, cause))?;
        Ok(file)
    }

    /// Gives the verified download its final name.
    pub(crate) fn publish(&self, checksum: &Checksum) -> Result<(), HubError> {
        let partial = self.partial(checksum);
        let blob = self.blob(checksum);
        let synced = File::open(&partial).and_then(|file| file.sync_all());
        synced.and_then(|()| fs::rename(&partial, &blob)).map_err(|cause| HubError::cache(&blob, cause))
    }

    /// Links `file` of the snapshot of `commit` to a blob.
    pub(crate) fn link(&self, commit: &str, file: &str, checksum: &Checksum) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        let blob = self.blob(checksum);
        replace_file(&path, |temporary| link_or_copy(&blob, checksum, temporary))
            .map_err(|cause| HubError::cache(path, cause))
    }

    /// Checks a snapshot's files against the checksums they are stored under, for those whose kind `kinds` accepts.
    pub(crate) fn verify(&self, commit: &str, kinds: impl Fn(&Checksum) -> bool) -> Result<(), HubError> {
        let folder = self.snapshot(commit);
        let entries = fs::read_dir(&folder).map_err(|cause| HubError::cache(&folder, cause))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let Some((blob, checksum)) = stored_checksum(&path).filter(|(_, checksum)| kinds(checksum)) else {
                continue;
            };
            let found = File::open(&blob).and_then(|mut file| checksum.of(&mut file));
            check_stored(&blob, &checksum, &found.map_err(|cause| HubError::cache(&blob, cause))?)?;
        }
        Ok(())
    }
}

/// Checks a snapshot's file, whose SHA-256 was just computed, against the one it is stored under.
pub(crate) fn verify_sha256(path: &Path, sha256: &str) -> Result<(), HubError> {
    match stored_checksum(path) {
        Some((blob, checksum @ Checksum::Sha256(_))) => check_stored(&blob, &checksum, sha256),
        _ => Ok(()),
    }
}

fn check_stored(blob: &Path, checksum: &Checksum, found: &str) -> Result<(), HubError> {
    if found == checksum.hex() {
        return Ok(());
    }
    Err(HubError::Altered { path: blob.to_owned(), kind: checksum.kind(), found: found.to_owned() })
}

/// The blob behind a snapshot's file. On file systems without links, the file is a copy and its checksum unknown.
fn stored_checksum(path: &Path) -> Option<(PathBuf, Checksum)> {
    let blob = path.canonicalize().ok()?;
    let checksum = Checksum::from_etag(blob.file_name()?.to_str()?)?;
    Some((blob, checksum))
}

pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && is_hex(revision)
}

#[cfg(unix)]
fn link_or_copy(_blob: &Path, checksum: &Checksum, link: &Path) -> io::Result<()> {
    // Relative, so that the cache may be moved: snapshots/<commit>/<file> to blobs/<checksum>.
    std::os::unix::fs::symlink(Path::new("../../blobs").join(checksum.hex()), link)
}

#[cfg(not(unix))]
fn link_or_copy(blob: &Path, _checksum: &Checksum, copy: &Path) -> io::Result<()> {
    fs::hard_link(blob, copy).or_else(|_| fs::copy(blob, copy).map(drop))
}

/// Writes a file under a temporary name and renames it, so that no reader sees a partial file.
fn replace_file(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", unique()));
    let temporary = PathBuf::from(temporary);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
    make(&temporary).and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Returns a name that no other thread, process or container uses in the same folder.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed), since_epoch.as_nanos())
}
