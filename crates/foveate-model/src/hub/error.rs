use std::io;
use std::path::PathBuf;

use foveate_core::BoxError;

/// Reason that a model could not be fetched from the hub. Every message is one line with the attempted action. It has
/// the remedy too, unless a cause follows: then [`HubError::remedy`] has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The endpoint did not answer.
    #[error("cannot fetch {repository}: {url} is out of reach")]
    Unreachable {
        /// The requested repository.
        repository: String,
        /// The requested address.
        url: String,
        /// The connection's error, or the server's status.
        #[source]
        reason: BoxError,
    },
    /// The hub requires a token, or rejects the one it got.
    #[error("cannot fetch {repository}: the hub answered {status} to {url}; {}", token_remedy(*token_sent))]
    Denied {
        /// The requested repository.
        repository: String,
        /// The requested address.
        url: String,
        /// HTTP status.
        status: u16,
        /// True if the request had a token.
        token_sent: bool,
    },
    /// The repository, the revision or a file that a model needs does not exist.
    #[error("cannot fetch {repository} at revision {revision}: {what} (404 from {url})")]
    NotFound {
        /// The requested repository.
        repository: String,
        /// The requested revision.
        revision: String,
        /// The missing part.
        what: String,
        /// The requested address.
        url: String,
    },
    /// The endpoint's answer does not follow the hub's protocol.
    #[error("cannot fetch {repository}: unexpected answer from {url}: {problem}")]
    Protocol {
        /// The requested repository.
        repository: String,
        /// The requested address.
        url: String,
        /// The fault of the answer.
        problem: String,
    },
    /// A download ended early, repeatedly. The bytes received so far are kept.
    #[error("download of {url} stopped at {done} bytes{}", of_total(*total))]
    Interrupted {
        /// The file's address.
        url: String,
        /// Bytes received so far.
        done: u64,
        /// The file's size in bytes, if the hub reported it.
        total: Option<u64>,
        /// The last attempt's error.
        #[source]
        reason: BoxError,
    },
    /// The downloaded file does not have the checksum that the hub reports. It has been deleted.
    #[error(
        "download of {url} is damaged and was deleted: its {kind} is {found}, but the hub reports {expected}; \
         run again, and if it stays so, distrust the endpoint"
    )]
    Checksum {
        /// The file's address.
        url: String,
        /// Kind of checksum.
        kind: &'static str,
        /// The hub's checksum.
        expected: String,
        /// The file's checksum.
        found: String,
    },
    /// A file in the cache was altered after its download.
    #[error("{} was altered after its download: its {kind} is {found}, not its name; delete it and run again", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// Kind of checksum.
        kind: &'static str,
        /// The file's checksum.
        found: String,
    },
    /// The endpoint's weights are not those of the model's card.
    #[error(
        "{} has the sha256 {found}, but the model's card has {expected}; distrust the endpoint, or name a revision \
         (owner/name@main) to take it as it is", path.display()
    )]
    Pinned {
        /// The file.
        path: PathBuf,
        /// The card's checksum.
        expected: String,
        /// The file's checksum.
        found: String,
    },
    /// The network must not be used, and the cache does not have the model.
    #[error(
        "{repository} at revision {revision} is not in {} and HF_HUB_OFFLINE is set; unset it, \
         or use a local folder or seeded:dinov2-small as the model", cache.display()
    )]
    Offline {
        /// The requested repository.
        repository: String,
        /// The requested revision.
        revision: String,
        /// The cache that was searched.
        cache: PathBuf,
    },
    /// The cache cannot be read or written.
    #[error("cannot use {} in the model cache", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// The file of additional certificates cannot be used.
    #[error("cannot use the certificates in {}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        problem: BoxError,
    },
}

impl HubError {
    pub(crate) fn cache(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        Self::Cache { path: path.into(), cause }
    }

    /// The remedy, for errors whose message does not have it because their cause follows.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => {
                Some("set HF_ENDPOINT to a mirror, or use a local folder or seeded:dinov2-small as the model")
            }
            Self::Interrupted { .. } => Some("run again to resume"),
            Self::Cache { .. } => Some("set HF_HOME or HF_HUB_CACHE to another folder"),
            _ => None,
        }
    }

    /// Returns true if a later retry may succeed, so that a cached copy is acceptable until then.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

fn token_remedy(token_sent: bool) -> &'static str {
    if token_sent {
        "it does not exist, or the token in use (HF_TOKEN or the token file) may not read it"
    } else {
        "it does not exist, or it needs a token: set HF_TOKEN"
    }
}

fn of_total(total: Option<u64>) -> String {
    total.map(|total| format!(" of {total}")).unwrap_or_default()
}
