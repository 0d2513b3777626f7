use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

/// Failure of a request.
///
/// It keeps no source: the errors of the HTTP library may repeat URLs, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NetError {
    /// The reason in one line, with a remedy if there is one. It names hosts, but never the rest of a URL.
    pub reason: String,
    /// True if a retry may succeed.
    pub transient: bool,
    /// The pause before a retry that the server asked for, at most an hour.
    pub retry_after: Option<Duration>,
    /// True if another machine answered: with a status, a refused connection, a TLS alert, or that there is no such
    /// name. `Some(false)` after a timeout, and if the network is unreachable or the resolver fails. `None` if nothing
    /// was asked.
    pub reached: Option<bool>,
    /// The status of the answer, if that is the reason.
    pub status: Option<u16>,
    /// True if a resolver says that there is no such name.
    pub no_such_name: bool,
    /// The client's rule that refuses the address, if one does. Other options may allow it.
    pub rule: Option<Rule>,
}

/// A rule of [`ClientOptions`](crate::ClientOptions) that refuses addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `https_only`.
    HttpsOnly,
    /// `only_hosts`.
    OnlyHosts,
    /// `ports`.
    Ports,
    /// `allow_private`.
    AllowPrivate,
}

impl NetError {
    /// A failure that every retry would repeat.
    pub(crate) fn permanent(reason: impl Display) -> Self {
        Self {
            reason: one_line(&reason.to_string()),
            transient: false,
            retry_after: None,
            reached: None,
            status: None,
            no_such_name: false,
            rule: None,
        }
    }

    /// An address that `rule` refuses.
    pub(crate) fn refused(rule: Rule, reason: impl Display) -> Self {
        Self { rule: Some(rule), ..Self::permanent(reason) }
    }

    /// A failure that a retry may not meet.
    pub(crate) fn transient(reason: impl Display) -> Self {
        Self { transient: true, ..Self::permanent(reason) }
    }

    /// A failure that a retry may not meet; see [`NetError::reached`].
    pub(crate) fn on_the_way(reached: bool, reason: impl Display) -> Self {
        Self { reached: Some(reached), ..Self::transient(reason) }
    }
}

/// An error in the options.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A setting is out of range, a name is not a host, or a webhook secret is malformed (it is not repeated).
    #[error("{0}")]
    Setting(String),
    /// The file of certificates cannot be used.
    #[error("certificates in {}: {source}", .path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Limits a reason, which may quote a server, to one line of bounded length.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut line: String = text.chars().take(LONGEST).collect();
    line = line.replace(char::is_control, " ");
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}
