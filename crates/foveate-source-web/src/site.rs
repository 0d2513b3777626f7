//! Requests, repeated while that makes sense.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::lock;
use foveate_net::{AnswerFacts, Client, NetError, server};
use foveate_source::FetchError;
use foveate_source::store::{StoreOptions, Version};

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Longest wait that a server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// Attempts for a file of a site that is busy or fails: the waits between them take 15 to 30 seconds together.
const ATTEMPTS: u32 = 9;
/// Attempts if there was no answer. Lists of addresses are full of sites that are gone for good.
const WITHOUT_ANSWER: u32 = 4;
/// Attempts if a machine refuses the connection.
const REFUSED: u32 = 2;

/// Servers whose last given file is known.
const MOST_GIVEN: usize = 1024;

/// The web, as one run reads it.
pub(crate) struct WebSites {
    client: Client,
    pub(crate) requests: usize,
    pub(crate) read_ahead_bytes: u64,
    deadline: Option<Duration>,
    /// The time for which failed requests are repeated, instead of a number of attempts.
    retry_for: Option<Duration>,
    /// Servers whose last file failed after all attempts: the next ones have one attempt each.
    failing: Mutex<BTreeSet<String>>,
    /// True if the user's headers may be credentials.
    has_headers: bool,
    /// By server, the signed address that it gave last. If it is refused too, no file is at fault.
    given: Mutex<BTreeMap<String, String>>,
}

impl WebSites {
    pub(crate) fn new(client: Client, options: &StoreOptions) -> Self {
        // The other settings are those of object stores, of which a list may name files, too.
        let retry_for = options.settings.get("retry-for").and_then(|seconds| seconds.parse().ok());
        Self {
            client,
            requests: options.requests.max(1),
            read_ahead_bytes: options.read_ahead_bytes,
            deadline: options.deadline,
            retry_for: retry_for.map(Duration::from_secs),
            failing: Mutex::default(),
            has_headers: options.headers.iter().next().is_some(),
            given: Mutex::default(),
        }
    }

    /// Reads a whole file. `admit` is asked for memory.
    ///
    /// # Errors
    /// The reason that it cannot be read, or that it is not of the `listed` version.
    pub(crate) fn get(
        &self,
        address: &str,
        listed: &Version,
        admit: &mut dyn FnMut(u64) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<Version, FetchError> {
        let read = self.repeated(address, &mut || self.client.get(address, admit, out));
        let facts = self.judged(address, read)?;
        check(address, listed, version(facts)).inspect_err(|_| out.clear())
    }

    /// Reads a part of a file.
    ///
    /// # Errors
    /// The reason that it cannot be read, or that it is not of the `listed` version.
    pub(crate) fn part(
        &self,
        address: &str,
        listed: &Version,
        part: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<Version, FetchError> {
        let facts = self.repeated(address, &mut || self.client.get_part(address, part.clone(), out))?;
        let version = check(address, listed, version(facts))?;
        if out.len() as u64 == part.end - part.start { Ok(version) } else { Err(FetchError::Changed(shown(address))) }
    }

    /// Asks what a server says of a file.
    ///
    /// # Errors
    /// The reason that there is no answer, or that there is no such file.
    pub(crate) fn examine(&self, address: &str) -> Result<Version, FetchError> {
        self.repeated(address, &mut || self.client.examine(address)).map(version)
    }

    /// Tells a file that is refused from signatures or credentials that have expired: then the server also refuses what
    /// it gave before.
    fn judged(&self, address: &str, read: Result<AnswerFacts, FetchError>) -> Result<AnswerFacts, FetchError> {
        if !self.has_headers && !address.contains(['?', '@']) {
            return read;
        }
        let site = server(address).unwrap_or_default();
        match read {
            Ok(facts) => {
                let mut given = lock(&self.given);
                if given.len() >= MOST_GIVEN {
                    given.clear();
                }
                given.insert(site, address.to_owned());
                Ok(facts)
            }
            Err(FetchError::Forbidden(why)) => {
                let last = lock(&self.given).get(&site).cloned();
                let again = last.map(|last| self.client.get_part(&last, 0..1, &mut Vec::new()));
                match again {
                    Some(Err(NetError { status: Some(400 | 401 | 403), .. })) => {
                        let remedy = "as what it gave before; renew the signatures of the addresses or the credentials";
                        Err(FetchError::StoreGone(format!("{why}, {remedy}")))
                    }
                    _ => Err(FetchError::Forbidden(why)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Repeats a request while another attempt may succeed.
    fn repeated(
        &self,
        address: &str,
        request: &mut dyn FnMut() -> Result<AnswerFacts, NetError>,
    ) -> Result<AnswerFacts, FetchError> {
        let began = Instant::now();
        let site = server(address).unwrap_or_default();
        let mut made = 0;
        loop {
            let error = match request() {
                Ok(facts) => {
                    lock(&self.failing).remove(&site);
                    return Ok(facts);
                }
                Err(error) => error,
            };
            made += 1;
            let backoff = FIRST_WAIT.saturating_mul(1 << made.min(16)).min(LONGEST_WAIT);
            let asked = error.retry_after.unwrap_or_default().min(LONGEST_ASKED);
            let wait = backoff.mul_f64(0.5 + fastrand::f64() / 2.0).max(asked);
            let end = began.elapsed() + wait;
            let may_repeat = match (error.status, self.retry_for) {
                _ if error.no_such_name || lock(&self.failing).contains(&site) => false,
                (_, Some(longest)) => end < longest,
                (Some(_), None) => made < ATTEMPTS,
                (None, None) if error.reached == Some(true) => made < REFUSED,
                (None, None) => made < WITHOUT_ANSWER,
            };
            if error.transient && may_repeat && self.deadline.is_none_or(|deadline| end < deadline) {
                thread::sleep(wait);
                continue;
            }
            if error.transient {
                lock(&self.failing).insert(site);
            }
            return Err(failure(address, error));
        }
    }
}

/// The meaning of a failure: of the site if another attempt may succeed, and otherwise of the file.
fn failure(address: &str, error: NetError) -> FetchError {
    match error.status {
        _ if error.transient => FetchError::Unreachable(error.reason),
        Some(200) => {
            let remedy = "the server sends whole files alone; copy the file, or serve it with range requests";
            FetchError::Refused(format!("{}: {remedy}", shown(address)))
        }
        Some(404 | 410) => FetchError::NotFound(error.reason),
        Some(400 | 401 | 403) => FetchError::Forbidden(error.reason),
        _ => FetchError::Refused(error.reason),
    }
}

fn version(facts: AnswerFacts) -> Version {
    Version { len: facts.len, modified: facts.modified, tag: facts.tag }
}

/// Compares an answer's version with the one that was listed, as far as both are known.
fn check(address: &str, listed: &Version, now: Version) -> Result<Version, FetchError> {
    let is_other_len = listed.len.zip(now.len).is_some_and(|(a, b)| a != b);
    let is_other_tag = listed.tag.as_ref().zip(now.tag.as_ref()).is_some_and(|(a, b)| a != b);
    if is_other_len || is_other_tag { Err(FetchError::Changed(shown(address))) } else { Ok(now) }
}

/// An address without what may be a secret.
pub(crate) fn shown(address: &str) -> String {
    const LONGEST: usize = 200;
    let public = foveate_source::store::public(address.as_bytes());
    String::from_utf8_lossy(&public).chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}
