//! Requests, repeated while that makes sense.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use foveate_core::lock;
use foveate_net::{AnswerFacts, Client, DownloadRoom, NetError, server};
use foveate_source::FetchError;
use foveate_source::store::{StoreOptions, Version};
use tokio::runtime::Runtime;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Longest wait that a server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// WebAttempts for a file of a site that is busy or fails: the waits between them take 15 to 30 seconds together.
const ATTEMPTS: u32 = 9;
/// WebAttempts if there was no answer. Lists of addresses are full of sites that are gone for good.
const WITHOUT_ANSWER: u32 = 4;
/// WebAttempts if a machine refuses the connection.
const REFUSED: u32 = 2;

/// Servers whose last given file is known.
const MOST_GIVEN: usize = 1024;

/// The web, as one run reads it.
pub(crate) struct WebSites {
    client: Client,
    /// The runtime of the requests; `None` only while it is dropped.
    runtime: Option<Runtime>,
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
    pub(crate) fn new(client: Client, options: &StoreOptions) -> std::io::Result<Self> {
        // The other settings are those of object stores, of which a list may name files, too.
        let retry_for = options.settings.get("retry-for").and_then(|seconds| seconds.parse().ok());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("web").enable_all().build()?;
        Ok(Self {
            client,
            runtime: Some(runtime),
            requests: options.requests.max(1),
            read_ahead_bytes: options.read_ahead_bytes,
            deadline: options.deadline,
            retry_for: retry_for.map(Duration::from_secs),
            failing: Mutex::default(),
            has_headers: options.headers.iter().next().is_some(),
            given: Mutex::default(),
        })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap_or_else(|| unreachable!("taken by drop alone"))
    }

    /// Reads a whole file. `room` is asked for memory.
    ///
    /// # Errors
    /// The reason that it cannot be read, or that it is not of the `listed` version.
    pub(crate) async fn get(
        &self,
        address: &str,
        listed: &Version,
        room: &mut impl DownloadRoom,
        out: &mut Vec<u8>,
    ) -> Result<Version, FetchError> {
        let mut attempts = WebAttempts::of(self, address);
        let read = loop {
            match self.client.get(address, room, out).await {
                Ok(facts) => break Ok(attempts.succeeded(facts)),
                Err(error) => {
                    if let Err(error) = attempts.failed(error).await {
                        break Err(error);
                    }
                }
            }
        };
        let facts = self.judged(address, read).await?;
        check(address, listed, version(facts)).inspect_err(|_| out.clear())
    }

    /// Reads a part of a file.
    ///
    /// # Errors
    /// The reason that it cannot be read, or that it is not of the `listed` version.
    pub(crate) async fn part(
        &self,
        address: &str,
        listed: &Version,
        part: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<Version, FetchError> {
        let mut attempts = WebAttempts::of(self, address);
        let facts = loop {
            match self.client.get_part(address, part.clone(), out).await {
                Ok(facts) => break attempts.succeeded(facts),
                Err(error) => attempts.failed(error).await?,
            }
        };
        let version = check(address, listed, version(facts))?;
        if out.len() as u64 == part.end - part.start { Ok(version) } else { Err(FetchError::Changed(shown(address))) }
    }

    /// Asks what a server says of a file.
    ///
    /// # Errors
    /// The reason that there is no answer, or that there is no such file.
    pub(crate) async fn examine(&self, address: &str) -> Result<Version, FetchError> {
        let mut attempts = WebAttempts::of(self, address);
        loop {
            match self.client.examine(address).await {
                Ok(facts) => return Ok(version(attempts.succeeded(facts))),
                Err(error) => attempts.failed(error).await?,
            }
        }
    }

    /// Tells a file that is refused from signatures or credentials that have expired: then the server also refuses what
    /// it gave before.
    async fn judged(&self, address: &str, read: Result<AnswerFacts, FetchError>) -> Result<AnswerFacts, FetchError> {
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
                let Some(last) = last else { return Err(FetchError::Forbidden(why)) };
                match self.client.get_part(&last, 0..1, &mut Vec::new()).await {
                    Err(NetError { status: Some(400 | 401 | 403), .. }) => {
                        let remedy = "as what it gave before; renew the signatures of the addresses or the credentials";
                        Err(FetchError::StoreGone(format!("{why}, {remedy}")))
                    }
                    _ => Err(FetchError::Forbidden(why)),
                }
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for WebSites {
    fn drop(&mut self) {
        // Look-ups that hang would hold up the end.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// The attempts to make a request.
struct WebAttempts<'a> {
    web: &'a WebSites,
    address: &'a str,
    site: String,
    began: Instant,
    made: u32,
}

impl<'a> WebAttempts<'a> {
    fn of(web: &'a WebSites, address: &'a str) -> Self {
        Self { web, address, site: server(address).unwrap_or_default(), began: Instant::now(), made: 0 }
    }

    fn succeeded<T>(&mut self, answer: T) -> T {
        lock(&self.web.failing).remove(&self.site);
        answer
    }

    /// Waits until the next attempt, if it may succeed.
    ///
    /// # Errors
    /// The meaning of the last failure.
    async fn failed(&mut self, error: NetError) -> Result<(), FetchError> {
        self.made += 1;
        let backoff = FIRST_WAIT.saturating_mul(1 << self.made.min(16)).min(LONGEST_WAIT);
        let asked = error.retry_after.unwrap_or_default().min(LONGEST_ASKED);
        let wait = backoff.mul_f64(0.5 + fastrand::f64() / 2.0).max(asked);
        let end = self.began.elapsed() + wait;
        let may_repeat = match (error.status, self.web.retry_for) {
            _ if error.no_such_name || lock(&self.web.failing).contains(&self.site) => false,
            (_, Some(longest)) => end < longest,
            (Some(_), None) => self.made < ATTEMPTS,
            (None, None) if error.reached == Some(true) => self.made < REFUSED,
            (None, None) => self.made < WITHOUT_ANSWER,
        };
        if error.transient && may_repeat && self.web.deadline.is_none_or(|deadline| end < deadline) {
            tokio::time::sleep(wait).await;
            return Ok(());
        }
        if error.transient {
            lock(&self.web.failing).insert(self.site.clone());
        }
        Err(failure(self.address, error))
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
