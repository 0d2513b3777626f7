//! Reading an object or a part of it, over as many answers as it takes.

use std::sync::Arc;
use std::time::Duration;

use foveate_source::FetchError;
use foveate_source::store::{Object, Version};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};
use tokio::time::{Instant, timeout_at};

use crate::address::{Place, shown};
use crate::bucket::Bucket;
use crate::errors::Failure;
use crate::retry::Attempts;

/// Bytes that have to come within the time limit, so that a trickle ends too.
const LEAST_PROGRESS: usize = 64 << 10;

/// Limits on reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest object.
    pub(crate) max_bytes: u64,
    /// Longest time without progress.
    pub(crate) timeout: Duration,
    /// Longest time for a whole object.
    pub(crate) deadline: Option<Duration>,
}

/// An object, and where it is read from.
#[derive(Clone)]
pub(crate) struct Target {
    bucket: Bucket,
    path: Path,
    /// Its address, for messages.
    pub(crate) name: Arc<str>,
    pub(crate) version: Version,
    limits: Limits,
}

/// Calls that learn of a reading's course.
pub(crate) trait Course: Send {
    /// Whether there is memory for an object of `bytes`.
    fn has_room(&mut self, bytes: u64) -> bool;

    /// The store asks for fewer requests.
    fn throttled(&self) {}
}

/// Nobody asks.
pub(crate) struct Alone;

impl Course for Alone {
    fn has_room(&mut self, _: u64) -> bool {
        true
    }
}

impl Target {
    pub(crate) fn new(bucket: Bucket, place: &Place, object: &Object, limits: Limits) -> Result<Self, FetchError> {
        let name = shown(&object.address).into();
        Ok(Self { bucket, path: place.path()?, name, version: object.version.clone(), limits })
    }

    /// Reads the whole object.
    pub(crate) async fn whole(&mut self, course: &mut dyn Course) -> Result<Vec<u8>, Failure> {
        self.check_len(self.version.len.unwrap_or_default())?;
        self.retried(0, None, course).await
    }

    /// Reads `len` bytes from `start` on.
    pub(crate) async fn part(&mut self, start: u64, len: u64) -> Result<Vec<u8>, FetchError> {
        let name = Arc::clone(&self.name);
        self.retried(start, Some(len), &mut Alone).await.map_err(|failure| failure.into_error(&name))
    }

    /// Asks for the object's version without reading it.
    pub(crate) async fn examine(&mut self, head: bool) -> Result<Version, FetchError> {
        let mut attempts = Attempts::within(self.limits.deadline);
        loop {
            let options = GetOptions { head, ..GetOptions::default() };
            match self.ask(options, attempts.end(self.limits.timeout)).await {
                Ok(got) => return Ok(version(&got.meta)),
                Err(Failure::Again { .. }) if attempts.wait().await => {}
                Err(failure) => return Err(failure.into_error(&self.name)),
            }
        }
    }

    async fn retried(&mut self, start: u64, len: Option<u64>, course: &mut dyn Course) -> Result<Vec<u8>, Failure> {
        let mut attempts = Attempts::within(self.limits.deadline);
        let mut out = Vec::new();
        loop {
            let failure = match self.attempt(start, len, &mut out, course, &attempts).await {
                Ok(()) => return Ok(out),
                Err(Failure::NoParts) if len.is_none() => {
                    out.clear();
                    Failure::broken(&self.name, "it came in part, and the server does not continue")
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Again { is_throttled, .. } => {
                    if is_throttled {
                        course.throttled();
                    }
                    if !attempts.wait().await {
                        return Err(failure);
                    }
                }
                failure => return Err(failure),
            }
        }
    }

    /// Adds to `out` what it lacks of the bytes from `start` on.
    async fn attempt(
        &mut self,
        start: u64,
        len: Option<u64>,
        out: &mut Vec<u8>,
        course: &mut dyn Course,
        attempts: &Attempts,
    ) -> Result<(), Failure> {
        let offset = start + out.len() as u64;
        let range = match len {
            Some(len) => Some(GetRange::Bounded(offset..start + len)),
            None => (offset > 0).then_some(GetRange::Offset(offset)),
        };
        let end = attempts.end(self.limits.timeout);
        let got = self.ask(GetOptions { range, ..GetOptions::default() }, end).await?;
        let rest = got.range.end - got.range.start;
        if len.is_none() {
            self.check_len(got.meta.size)?;
            if !course.has_room(got.meta.size) {
                return Err(Failure::NoRoom);
            }
        }
        // Later answers have to be of the same object.
        self.version = Version { len: Some(got.meta.size), ..version(&got.meta) };
        self.body(got, rest, out, attempts).await
    }

    /// Begins a request for this version of the object.
    async fn ask(&self, mut options: GetOptions, end: Instant) -> Result<GetResult, Failure> {
        options.if_match = self.version.tag.as_deref().and_then(strong);
        let asked = timeout_at(end, self.bucket.objects.get_opts(&self.path, options)).await;
        let asked = asked.map_err(|_| Failure::broken(&self.name, "no answer in time"))?;
        let got = asked.map_err(|error| Failure::of(&self.name, &error))?;
        match is_same(&self.version, &version(&got.meta)) {
            true => Ok(got),
            false => Err(Failure::Final(FetchError::Changed(self.name.to_string()))),
        }
    }

    async fn body(&self, got: GetResult, rest: u64, out: &mut Vec<u8>, attempts: &Attempts) -> Result<(), Failure> {
        let whole = out.len() as u64 + rest;
        let reserved = usize::try_from(rest).ok().and_then(|rest| out.try_reserve_exact(rest).ok());
        reserved.ok_or_else(|| Failure::Final(std::io::Error::from(std::io::ErrorKind::OutOfMemory).into()))?;
        let mut parts = got.into_stream();
        let (mut end, mut mark) = (attempts.end(self.limits.timeout), out.len());
        loop {
            let came = |out: &Vec<u8>| format!("{} of {whole} bytes came", out.len());
            match timeout_at(end, parts.next()).await {
                Err(_) => return Err(Failure::broken(&self.name, format!("{} in time", came(out)))),
                Ok(Some(Err(error))) => return Err(Failure::of(&self.name, &error)),
                Ok(Some(Ok(part))) if (out.len() + part.len()) as u64 > whole => {
                    return Err(Failure::broken(&self.name, format!("more than {whole} bytes came")));
                }
                Ok(Some(Ok(part))) => out.extend_from_slice(&part),
                Ok(None) if out.len() as u64 == whole => return Ok(()),
                Ok(None) => return Err(Failure::broken(&self.name, came(out))),
            }
            if out.len() - mark >= LEAST_PROGRESS {
                (end, mark) = (attempts.end(self.limits.timeout), out.len());
            }
        }
    }

    fn check_len(&self, bytes: u64) -> Result<(), Failure> {
        let limit = self.limits.max_bytes;
        match bytes > limit {
            true => Err(Failure::Final(FetchError::TooLarge { bytes, limit })),
            false => Ok(()),
        }
    }
}

/// What a store says of an object. A time of 0 stands for none.
pub(crate) fn version(meta: &ObjectMeta) -> Version {
    let modified = std::time::SystemTime::from(meta.last_modified);
    let modified = (modified != std::time::UNIX_EPOCH).then_some(modified);
    Version { len: Some(meta.size), modified, tag: meta.e_tag.clone() }
}

/// Whether an answer may be of the object that was listed. Stores quote tags in answers and not always in listings.
fn is_same(listed: &Version, got: &Version) -> bool {
    let bare = |tag: &Option<String>| tag.as_deref().map(|tag| tag.trim_matches('"').to_owned());
    let differ = |pair: Option<(String, String)>| pair.is_some_and(|(a, b)| a != b);
    let is_len = listed.len.zip(got.len).is_none_or(|(a, b)| a == b);
    let is_time = || {
        let apart = |(a, b): (std::time::SystemTime, std::time::SystemTime)| {
            a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default()
        };
        // Listings tell milliseconds, answers seconds.
        listed.modified.zip(got.modified).is_none_or(|times| apart(times) < Duration::from_secs(1))
    };
    is_len && !differ(bare(&listed.tag).zip(bare(&got.tag))) && (listed.tag.is_some() || is_time())
}

/// The tag as a condition; a weak one never fits.
fn strong(tag: &str) -> Option<String> {
    (!tag.starts_with("W/")).then(|| format!("\"{}\"", tag.trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    fn at(millis: u64) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_millis(millis))
    }

    #[test]
    fn versions_are_compared_by_what_is_known_of_both() {
        let listed = Version { len: Some(7), modified: at(1_500), tag: Some("a".to_owned()) };
        let same = |got: Version| is_same(&listed, &got);
        assert!(same(Version { tag: Some("\"a\"".to_owned()), modified: at(9_000), len: Some(7) }));
        assert!(same(Version::default()));
        assert!(!same(Version { tag: Some("\"b\"".to_owned()), ..Version::default() }));
        assert!(!same(Version { len: Some(8), ..Version::default() }));
        let untagged = Version { tag: None, ..listed.clone() };
        assert!(is_same(&untagged, &Version { modified: at(1_000), ..Version::default() }));
        assert!(!is_same(&untagged, &Version { modified: at(3_000), ..Version::default() }));
    }

    #[test]
    fn a_weak_tag_is_no_condition() {
        assert_eq!(strong("W/\"a\""), None);
        assert_eq!((strong("\"a\""), strong("a")), (Some("\"a\"".to_owned()), Some("\"a\"".to_owned())));
    }
}
