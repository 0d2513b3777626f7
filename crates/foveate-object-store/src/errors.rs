//! The meaning of a store's errors.

use std::error::Error;
use std::time::Duration;

use foveate_source::FetchError;
use object_store::client::HttpError;

/// Reason that an attempt to read failed.
#[derive(Debug)]
pub(crate) enum ReadFailure {
    /// Another attempt would fail too.
    Final(FetchError),
    /// Another attempt may succeed.
    Again {
        error: FetchError,
        /// The store asks to slow down.
        is_throttled: bool,
        /// The time that it asks to wait.
        wait: Duration,
    },
    /// The store refuses, or says something unknown, for a reason that may concern the object or the store: rights,
    /// credentials, a clock, a region.
    Doubtful(FetchError),
    /// The server sends no parts of files.
    NoParts,
    /// There is no memory for an object of this size yet.
    NoRoom,
}

impl ReadFailure {
    /// An attempt that brought nothing or not all, without an answer that says why.
    pub(crate) fn broken(address: &str, why: impl std::fmt::Display) -> Self {
        Self::again(FetchError::Unreachable(format!("{address}: {why}")), false)
    }

    fn again(error: FetchError, is_throttled: bool) -> Self {
        Self::Again { error, is_throttled, wait: Duration::ZERO }
    }

    /// The same of an answer that asks for a wait before the next attempt.
    pub(crate) fn after(mut self, asked: Duration) -> Self {
        if let Self::Again { wait, .. } = &mut self {
            *wait = asked;
        }
        self
    }

    /// Returns the meaning of `error` of a request for `address`.
    pub(crate) fn of(address: &str, error: &object_store::Error) -> Self {
        use object_store::Error::{
            Generic, InvalidPath, NotFound, NotModified, NotSupported, PermissionDenied, Precondition, Unauthenticated,
        };
        let why = cause(error);
        let unreachable = FetchError::Unreachable(format!("{address}: {why}"));
        let remedy = match (error, status(error)) {
            (NotFound { .. }, _) if is_bucket_gone(error) => "look at the bucket's name",
            (NotFound { .. }, _) => return Self::Final(FetchError::NotFound(address.to_owned())),
            (Precondition { .. } | NotModified { .. }, _) | (_, Some(416)) => {
                return Self::Final(FetchError::Changed(address.to_owned()));
            }
            (NotSupported { .. }, _) => return Self::NoParts,
            (Generic { .. }, _) if innermost(error) == WHOLE => return Self::NoParts,
            (InvalidPath { .. }, _) => return Self::Final(FetchError::Refused(format!("{address}: {why}"))),
            // An object that is not there is another error; this is of a listing.
            (_, Some(404)) => {
                return Self::Final(FetchError::Refused(format!("{address}: there is no such bucket ({why})")));
            }
            (_, Some(300..400)) => "look at the region and the endpoint",
            (_, Some(status @ (408 | 429 | 500.. | 200..300))) => {
                return Self::again(unreachable, matches!(status, 429 | 503));
            }
            (_, None) if innermost(error).ends_with(NO_SUCH_HOST) => {
                let why = format!("{address}: {NO_SUCH_HOST}; look at the endpoint's name");
                return Self::Final(FetchError::Unreachable(why));
            }
            (_, None) if is_of_transport(error) => return Self::again(unreachable, false),
            (PermissionDenied { .. } | Unauthenticated { .. }, _) | (_, Some(400..500)) => {
                "look at the credentials, their rights and the region"
            }
            _ => return Self::Doubtful(unreachable),
        };
        let has_expired = ["ExpiredToken", "TokenRefreshRequired"].iter().any(|code| why.ends_with(code));
        let remedy = if has_expired { "renew the credentials (`aws sso login`)" } else { remedy };
        Self::Doubtful(FetchError::Denied(format!("{address}: the store refuses it ({why}); {remedy}")))
    }

    /// Returns the meaning of `error` of a request to write `address`.
    pub(crate) fn of_change(address: &str, error: &object_store::Error) -> Self {
        let why = match (error, status(error)) {
            // There is nothing else that a new object needs.
            (object_store::Error::NotFound { .. }, _) => "there is no such bucket",
            (_, Some(501)) => {
                "the store has no conditional writes; with the setting conditional-writes=false it needs none, and has \
                 to have one writer at a time"
            }
            _ => return Self::of(address, error),
        };
        Self::Final(FetchError::Refused(format!("{address}: {why}")))
    }

    /// Returns true if the store asks to slow down.
    pub(crate) fn is_throttled(&self) -> bool {
        matches!(self, Self::Again { is_throttled: true, .. })
    }

    /// The same of an object that the store refuses while it gives others.
    pub(crate) fn of_object(self) -> Self {
        match self {
            Self::Doubtful(FetchError::Denied(why)) => Self::Final(FetchError::Forbidden(why)),
            failure => failure,
        }
    }

    /// The same of a store that refuses what it gave before.
    pub(crate) fn of_store(self) -> Self {
        match self {
            Self::Again { error, .. } | Self::Doubtful(error) => Self::Final(FetchError::StoreGone(error.to_string())),
            failure => failure,
        }
    }

    /// The error to report.
    pub(crate) fn into_error(self, address: &str) -> FetchError {
        match self {
            Self::Final(error) | Self::Again { error, .. } | Self::Doubtful(error) => error,
            Self::NoParts => {
                let remedy = "the server sends whole files alone; copy the file, or serve it with range requests";
                FetchError::Refused(format!("{address}: {remedy}"))
            }
            Self::NoRoom => FetchError::Unreachable(format!("{address}: no memory")),
        }
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// Returns true if the answer did not come, or came in part.
fn is_of_transport(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|error| error.is::<HttpError>() || error.is::<reqwest::Error>())
}

/// The innermost cause in one line, because the outer errors repeat the address.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let text = innermost(error);
    let text = answered(&text).unwrap_or(text);
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    line.trim().to_owned()
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

/// The message of the system's resolver for a host that does not exist.
const NO_SUCH_HOST: &str = "Name or service not known";

/// The library's error for an answer with the whole object instead of a part; its type is private.
const WHOLE: &str = "Received non-partial response when range requested";

/// The start of the library's quotation of an answer; its type is private.
const ANSWER: &str = "Server returned ";
const STATUS: &str = "non-2xx status code: ";

/// The library's error for a redirect that says not where to.
const BARE_REDIRECT: &str = "Received redirect without LOCATION";

/// Returns true if the error says that there is no such bucket, and not that it has no such object.
fn is_bucket_gone(error: &object_store::Error) -> bool {
    ["NoSuchBucket", "ContainerNotFound"].iter().any(|code| cause(error).ends_with(code))
}

/// The status of the answer that the error quotes; 200 for an error in an answer with a good status.
fn status(error: &object_store::Error) -> Option<u16> {
    let text = innermost(error);
    if text.starts_with(BARE_REDIRECT) {
        return Some(301);
    }
    match text.strip_prefix(ANSWER)?.strip_prefix(STATUS) {
        Some(status) => status.get(..3)?.parse().ok(),
        None => Some(200),
    }
}

/// The status and the code of a response that the library quotes in full. The rest of its body may repeat the request,
/// which has the key's id and possibly a session token.
fn answered(text: &str) -> Option<String> {
    const LONGEST: usize = 64;
    let answer = text.strip_prefix(ANSWER)?;
    let (status, body) =
        answer.strip_prefix(STATUS).and_then(|rest| rest.split_once(": ")).unwrap_or(("an error", answer));
    let code = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let is_code =
        |code: &&str| (1..=LONGEST).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    match code.filter(is_code) {
        Some(code) => Some(format!("{status}: {code}")),
        None => Some(status.to_owned()),
    }
}
