//! Models from the Hugging Face hub, through the cache that all Hugging Face libraries share.
//!
//! This module speaks the protocol directly over `ureq`, because it is small: metadata in the headers of a HEAD
//! request, content by GET, a well-known cache layout. `hf-hub` 1.0 needs an async runtime, the xet stack and aws-lc,
//! some 240 crates. Its 0.x line moves a download to its final name without verifying it, and sends the token to the
//! storage host.

mod cache;
mod checksum;
mod client;
mod error;
mod options;
mod progress;
mod repository;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use foveate_core::BoxError;

use cache::RepoCache;
use checksum::Checksum;
use client::{HubClient, HubContent, Metadata, Refusal, public};
pub use error::HubError;
pub use options::{HubOptions, Token};
pub use progress::{NoProgress, Progress};
pub(crate) use repository::Repository;

use crate::checkpoint::{INDEX_FILE, OPEN_CLIP_CONFIG, OPEN_CLIP_FILE, SINGLE_FILE, read_weight_map};
use crate::{Family, ModelError};

/// Bytes between two progress reports.
const REPORT_BYTES: usize = 1 << 18;

/// A model's files in the cache.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) folder: PathBuf,
    pub(crate) commit: String,
}

/// Returns the files of the model in `repository` at `revision`, and downloads those that the cache lacks.
pub(crate) fn fetch(
    repository: &Repository,
    revision: &str,
    options: &HubOptions,
    progress: &dyn Progress,
) -> Result<Snapshot, ModelError> {
    let cache = RepoCache::new(&options.cache, repository);
    if options.offline {
        return cached_snapshot(&cache, revision).ok_or_else(|| {
            ModelError::Hub(HubError::Offline {
                repository: repository.id.clone(),
                revision: revision.to_owned(),
                cache: options.cache.clone(),
            })
        });
    }
    // A commit never changes, so no request is needed.
    if cache::is_commit(revision)
        && let Some(snapshot) = cached_snapshot(&cache, revision)
    {
        return Ok(snapshot);
    }
    let client = HubClient::new(options)?;
    let mut config_file = "config.json";
    let mut config = client.metadata(repository, revision, config_file);
    if matches!(config, Err(HubError::NotFound { .. }))
        && let Ok(found) = client.metadata(repository, revision, OPEN_CLIP_CONFIG)
    {
        config_file = OPEN_CLIP_CONFIG;
        config = Ok(found);
    }
    let config = match config {
        Ok(config) => config,
        Err(error) if error.is_outage() => {
            let snapshot = cached_snapshot(&cache, revision).ok_or(error)?;
            let id = &repository.id;
            let commit = &snapshot.commit;
            progress.notice(&format!("the hub is out of reach; using {id} at commit {commit} from the cache"));
            return Ok(snapshot);
        }
        Err(error) => return Err(error.into()),
    };
    let commit = config.commit.clone();
    let download = FileDownload { repository, commit: &commit, cache: &cache, client: &client, options, progress };
    if cache.complete_snapshot(&commit).is_none() {
        download.model(config_file, &config)?;
    }
    cache.set_ref(revision, &commit)?;
    Ok(Snapshot { folder: cache.snapshot(&commit), commit })
}

/// Adds those of `files` to a snapshot that the repository has; offline, none.
pub(crate) fn fetch_present(
    repository: &Repository,
    snapshot: &Snapshot,
    files: &[&str],
    options: &HubOptions,
    progress: &dyn Progress,
) -> Result<(), HubError> {
    if options.offline {
        return Ok(());
    }
    let cache = RepoCache::new(&options.cache, repository);
    let client = HubClient::new(options)?;
    let commit = &snapshot.commit;
    let download = FileDownload { repository, commit, cache: &cache, client: &client, options, progress };
    for file in files {
        match download.file(file) {
            Ok(()) | Err(HubError::NotFound { .. }) => {}
            // The files that are there may be enough.
            Err(error) if error.is_outage() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Checks every file of a snapshot; an altered file explains why it could not be loaded.
pub(crate) fn verify_all(repository: &Repository, snapshot: &Snapshot, options: &HubOptions) -> Result<(), HubError> {
    RepoCache::new(&options.cache, repository).verify(&snapshot.commit, |_| true)
}

/// The complete snapshot of a revision in the cache.
fn cached_snapshot(cache: &RepoCache, revision: &str) -> Option<Snapshot> {
    let commit = cache.commit_of(revision)?;
    cache.complete_snapshot(&commit).map(|folder| Snapshot { folder, commit })
}

/// Checks a snapshot that was loaded: the small files, and the weights by the SHA-256 computed while loading, which is
/// also `pin` if the model's card has one.
pub(crate) fn verify_loaded<'a>(
    repository: &Repository,
    snapshot: &Snapshot,
    options: &HubOptions,
    pin: Option<&str>,
    weights: impl Iterator<Item = (&'a Path, &'a str)>,
) -> Result<(), HubError> {
    let cache = RepoCache::new(&options.cache, repository);
    cache.verify(&snapshot.commit, |checksum| matches!(checksum, Checksum::GitBlob(_)))?;
    for (path, sha256) in weights {
        cache::verify_sha256(path, sha256)?;
        if let Some(pin) = pin.filter(|pin| *pin != sha256) {
            return Err(HubError::Pinned { path: path.to_owned(), expected: pin.to_owned(), found: sha256.to_owned() });
        }
    }
    Ok(())
}

/// The download of one commit's files.
struct FileDownload<'a> {
    repository: &'a Repository,
    commit: &'a str,
    cache: &'a RepoCache,
    client: &'a HubClient,
    options: &'a HubOptions,
    progress: &'a dyn Progress,
}

impl FileDownload<'_> {
    fn model(&self, config_file: &str, config: &Metadata) -> Result<(), ModelError> {
        self.described(config_file, config)?;
        // Checked before gigabytes of another architecture are downloaded.
        let path = self.path(config_file);
        let json = fs::read(&path).map_err(|cause| HubError::cache(&path, cause))?;
        Family::of_json(&json, &path)?;
        if config_file == OPEN_CLIP_CONFIG {
            return Ok(self.file(OPEN_CLIP_FILE)?);
        }
        if !Family::has_recipe_in(&json) {
            self.file("preprocessor_config.json")?;
        }
        match self.file(SINGLE_FILE) {
            Err(HubError::NotFound { .. }) => self.shards(),
            result => Ok(result?),
        }
    }

    fn shards(&self) -> Result<(), ModelError> {
        self.file(INDEX_FILE).map_err(|error| match error {
            HubError::NotFound { repository, revision, url, .. } => {
                let what = format!("it has no weights ({SINGLE_FILE} or {INDEX_FILE})");
                HubError::NotFound { repository, revision, what, url }
            }
            error => error,
        })?;
        let weight_map = read_weight_map(&self.path(INDEX_FILE))?;
        let shards: BTreeSet<&String> = weight_map.values().collect();
        for shard in shards {
            self.file(shard)?;
        }
        Ok(())
    }

    fn path(&self, file: &str) -> PathBuf {
        self.cache.snapshot(self.commit).join(file)
    }

    fn file(&self, file: &str) -> Result<(), HubError> {
        if self.path(file).is_file() {
            return Ok(());
        }
        self.described(file, &self.client.metadata(self.repository, self.commit, file)?)
    }

    /// Adds a file, whose metadata the hub has sent, to the snapshot.
    fn described(&self, file: &str, metadata: &Metadata) -> Result<(), HubError> {
        let checksum = &metadata.checksum;
        if !self.cache.blob(checksum).is_file() {
            let _lock = self.cache.lock(checksum, self.progress)?;
            // The process that held the lock may have just downloaded it.
            if !self.cache.blob(checksum).is_file() {
                self.blob(file, metadata)?;
            }
        }
        self.cache.link(self.commit, file, checksum)
    }

    /// Downloads a file, verifies it and gives it its final name.
    fn blob(&self, file: &str, metadata: &Metadata) -> Result<(), HubError> {
        let partial = self.cache.partial(&metadata.checksum);
        fs::create_dir_all(partial.parent().unwrap_or(Path::new("")))
            .map_err(|cause| HubError::cache(&partial, cause))?;
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&partial);
        let mut transfer = Transfer {
            download: self,
            file,
            metadata,
            partial: &partial,
            output: open.map_err(|cause| HubError::cache(&partial, cause))?,
        };

        let resumed = transfer.have()? > 0;
        let mut found = transfer.run()?;
        if found != metadata.checksum.hex() && resumed {
            // The partial file of an earlier run may be corrupt, so the download restarts once from the beginning.
            transfer.output.set_len(0).map_err(|cause| HubError::cache(&partial, cause))?;
            found = transfer.run()?;
        }
        drop(transfer);
        if found == metadata.checksum.hex() {
            return self.cache.publish(&metadata.checksum);
        }
        fs::remove_file(&partial).map_err(|cause| HubError::cache(&partial, cause))?;
        Err(HubError::Checksum {
            url: public(&self.client.url(self.repository, self.commit, file)),
            kind: metadata.checksum.kind(),
            expected: metadata.checksum.hex().to_owned(),
            found,
        })
    }
}

/// The transfer of one file into its partial file.
struct Transfer<'a> {
    download: &'a FileDownload<'a>,
    file: &'a str,
    metadata: &'a Metadata,
    partial: &'a Path,
    output: File,
}

/// Reason that a request did not return the rest of a file.
enum Stop {
    /// The connection failed; another request may return more.
    Transient(BoxError),
    /// No retry can succeed.
    Final(HubError),
}

impl From<HubError> for Stop {
    fn from(error: HubError) -> Self {
        Self::Final(error)
    }
}

impl Transfer<'_> {
    /// Downloads the bytes that the partial file lacks and returns the whole file's checksum. Resumes a broken
    /// connection as long as each attempt makes progress.
    fn run(&mut self) -> Result<String, HubError> {
        let options = self.download.options;
        let mut failures = 0;
        let mut furthest = self.have()?;
        while let Err(stop) = self.request() {
            let reason = match stop {
                Stop::Transient(reason) => reason,
                Stop::Final(error) => return Err(error),
            };
            let done = self.have()?;
            failures = if done > furthest { 1 } else { failures + 1 };
            furthest = furthest.max(done);
            if failures >= options.attempts {
                let FileDownload { client, repository, commit, .. } = self.download;
                let url = public(&client.url(repository, commit, self.file));
                let total = self.metadata.size;
                return Err(HubError::Interrupted { url, done, total, reason });
            }
            std::thread::sleep(options.backoff * failures);
        }
        self.metadata.checksum.of(&mut self.output).map_err(|cause| HubError::cache(self.partial, cause))
    }

    /// The length of the partial file.
    fn have(&self) -> Result<u64, HubError> {
        self.output.metadata().map(|metadata| metadata.len()).map_err(|cause| HubError::cache(self.partial, cause))
    }

    /// Requests the missing bytes once.
    fn request(&mut self) -> Result<(), Stop> {
        let have = self.have()?;
        let size = self.metadata.size;
        if have > 0 && size == Some(have) {
            self.download.progress.bytes(self.file, have, size);
            return Ok(());
        }
        let resume_at = if size.is_some_and(|size| have > size) { 0 } else { have };
        let FileDownload { client, repository, commit, .. } = self.download;
        let content = client.content(repository, commit, self.file, resume_at).map_err(|refusal| match refusal {
            Refusal::Transient(reason) => Stop::Transient(reason),
            Refusal::Final(error) => Stop::Final(error),
        })?;
        let rewound =
            self.output.set_len(content.start).and_then(|()| self.output.seek(SeekFrom::Start(content.start)));
        rewound.map_err(|cause| HubError::cache(self.partial, cause))?;
        match (self.copy(content)?, size) {
            (done, Some(size)) if done < size => Err(Stop::Transient("the connection was closed early".into())),
            _ => Ok(()),
        }
    }

    /// Stores the received bytes; returns the length of the partial file afterwards.
    fn copy(&mut self, mut content: HubContent) -> Result<u64, Stop> {
        let progress = self.download.progress;
        let size = self.metadata.size;
        let mut buffer = vec![0; REPORT_BYTES];
        let mut done = content.start;
        loop {
            progress.bytes(self.file, done, size);
            // One byte beyond the announced size is enough to stop: the checksum will not match.
            if size.is_some_and(|size| done > size) {
                return Ok(done);
            }
            let n = match content.body.read(&mut buffer) {
                Ok(0) => return Ok(done),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Stop::Transient(e.into())),
            };
            self.output.write_all(&buffer[..n]).map_err(|cause| HubError::cache(self.partial, cause))?;
            done += n as u64;
        }
    }
}
