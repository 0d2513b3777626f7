use std::io;
use std::path::PathBuf;

/// Why a model could not be fetched from the hub. Every message is one line that says what was tried and what would help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// No answer from the endpoint.
    #[error(
        "cannot fetch {repository}: {url} is out of reach ({reason}); set HF_ENDPOINT to a mirror, \
         or use a local folder or seeded:dinov2-small as the model"
    )]
    Unreachable {
        /// The repository asked for.
        repository: String,
        /// The address that was tried.
        url: String,
        /// What went wrong on the way.
        reason: String,
    },
    /// The hub wants a token, or does not accept the one it got.
    #[error("cannot fetch {repository}: the hub answered {status} to {url}; {}", token_remedy(*token_sent))]
    Denied {
        /// The repository asked for.
        repository: String,
        /// The address that was tried.
        url: String,
        /// HTTP status.
        status: u16,
        /// Whether a token was sent along.
        token_sent: bool,
    },
    /// The repository, the revision or a file that a model needs does not exist.
    #[error("cannot fetch {repository} at revision {revision}: {what} (404 from {url})")]
    NotFound {
        /// The repository asked for.
        repository: String,
        /// The revision asked for.
        revision: String,
        /// What of it does not exist.
        what: String,
        /// The address that was tried.
        url: String,
    },
    /// The endpoint answered, but not as the hub does.
    #[error("cannot fetch {repository}: unexpected answer from {url}: {problem}")]
    Protocol {
        /// The repository asked for.
        repository: String,
        /// The address that was tried.
        url: String,
        /// What is wrong with the answer.
        problem: String,
    },
    /// A download ended before the file did, again and again. What has arrived is kept.
    #[error("download of {url} stopped at {done} bytes{}: {reason}; run again to resume", of_total(*total))]
    Interrupted {
        /// The file's address.
        url: String,
        /// Bytes that have arrived.
        done: u64,
        /// Bytes of the whole file, if the hub said so.
        total: Option<u64>,
        /// What went wrong the last time.
        reason: String,
    },
    /// The bytes that arrived are not those the hub describes. They have been deleted.
    #[error(
        "download of {url} is damaged and was deleted: its {kind} is {found}, but the hub reports {expected}; \
         run again, and if it stays so, distrust the endpoint"
    )]
    Checksum {
        /// The file's address.
        url: String,
        /// Kind of checksum.
        kind: &'static str,
        /// What the hub reports.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// A file in the cache is not what it was when it was downloaded.
    #[error("{} was altered after its download: its {kind} is {found}, not its name; delete it and run again", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// Kind of checksum.
        kind: &'static str,
        /// What the file has.
        found: String,
    },
    /// The network is off limits and the cache does not have the model.
    #[error(
        "{repository} at revision {revision} is not in {} and HF_HUB_OFFLINE is set; unset it, \
         or use a local folder or seeded:dinov2-small as the model", cache.display()
    )]
    Offline {
        /// The repository asked for.
        repository: String,
        /// The revision asked for.
        revision: String,
        /// The cache that was searched.
        cache: PathBuf,
    },
    /// The cache cannot be read or written.
    #[error("cannot use {} in the model cache: {cause}; set HF_HOME or HF_HUB_CACHE to another folder", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file of additional certificates cannot be used.
    #[error("cannot use the certificates in {}: {problem}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl HubError {
    pub(crate) fn cache(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        Self::Cache { path: path.into(), cause }
    }

    /// Whether asking again later may help, so that a copy from the cache is a fair answer meanwhile.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

fn token_remedy(token_sent: bool) -> &'static str {
    match token_sent {
        true => "it does not exist, or the token in use (HF_TOKEN or the token file) may not read it",
        false => "it does not exist, or it needs a token: set HF_TOKEN",
    }
}

fn of_total(total: Option<u64>) -> String {
    total.map(|total| format!(" of {total}")).unwrap_or_default()
}
