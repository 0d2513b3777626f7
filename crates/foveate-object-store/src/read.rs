//! Reading an object or a part of it, over as many answers as it takes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foveate_source::FetchError;
use foveate_source::store::{Object, Version};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};
use tokio::time::{Instant, timeout_at};

use crate::address::{BucketPlace, shown};
use crate::bucket::Bucket;
use crate::errors::ReadFailure;
use crate::retry::Attempts;

/// Bytes that have to come within the time limit, so that a trickle ends too.
const LEAST_PROGRESS: u64 = 64 << 10;

/// Limits on reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// Largest object.
    pub(crate) max_bytes: u64,
    /// Longest time without progress.
    pub(crate) timeout: Duration,
    /// Longest time for a whole object.
    pub(crate) deadline: Option<Duration>,
    /// The time for which failed requests are repeated.
    pub(crate) retry_for: Option<Duration>,
}

impl ReadLimits {
    fn attempts(&self) -> Attempts {
        Attempts::within(self.deadline, self.retry_for)
    }
}

/// A part of an object; without a length, up to the end.
#[derive(Clone, Copy, Debug)]
struct ByteSpan {
    start: u64,
    len: Option<u64>,
}

/// An object, and where it is read from.
#[derive(Clone)]
pub(crate) struct ObjectTarget {
    bucket: Bucket,
    path: Path,
    /// Its address, for messages.
    pub(crate) name: Arc<str>,
    pub(crate) version: Version,
    limits: ReadLimits,
}

/// Calls that learn of a reading's course.
pub(crate) trait Course: Send {
    /// Returns true if there is memory for an object of `bytes`.
    fn has_room(&mut self, bytes: u64) -> bool;
}

/// Takes bytes in order.
pub(crate) trait ByteTaker: Send {
    fn take(&mut self, bytes: Bytes);

    /// Prepares for so many more.
    fn expect(&mut self, _bytes: u64) -> Result<(), FetchError> {
        Ok(())
    }

    /// Forgets what came, because it comes again. That happens to whole objects alone.
    fn restart(&mut self) {}
}

impl ByteTaker for Vec<u8> {
    fn take(&mut self, bytes: Bytes) {
        self.extend_from_slice(&bytes);
    }

    fn expect(&mut self, bytes: u64) -> Result<(), FetchError> {
        let reserved = usize::try_from(bytes).ok().and_then(|bytes| self.try_reserve_exact(bytes).ok());
        reserved.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory).into())
    }

    fn restart(&mut self) {
        self.clear();
    }
}

/// The course of a reading that always has room.
pub(crate) struct Alone;

impl Course for Alone {
    fn has_room(&mut self, _: u64) -> bool {
        true
    }
}

impl ObjectTarget {
    pub(crate) fn new(
        bucket: Bucket,
        place: &BucketPlace,
        object: &Object,
        limits: ReadLimits,
    ) -> Result<Self, FetchError> {
        let name = shown(&object.address).into();
        Ok(Self { bucket, path: place.path()?, name, version: object.version.clone(), limits })
    }

    /// Reads the whole object.
    pub(crate) async fn whole(&mut self, course: &mut dyn Course) -> Result<Vec<u8>, ReadFailure> {
        self.check_len(self.version.len.unwrap_or_default())?;
        let mut out = Vec::new();
        self.retried(ByteSpan { start: 0, len: None }, &mut out, course).await?;
        Ok(out)
    }

    /// Reads `len` bytes from `start` on.
    pub(crate) async fn part(&mut self, start: u64, len: u64, out: &mut dyn ByteTaker) -> Result<(), FetchError> {
        let name = Arc::clone(&self.name);
        let read = self.retried(ByteSpan { start, len: Some(len) }, out, &mut Alone).await;
        read.map_err(|failure| failure.into_error(&name))
    }

    /// Asks for the object's version without reading it.
    pub(crate) async fn examine(&mut self) -> Result<Version, FetchError> {
        let mut attempts = self.limits.attempts();
        loop {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let began = Instant::now();
            let control = &self.bucket.controls[1];
            let failure = match self.ask(options, &attempts).await {
                Ok(got) => {
                    control.gave(&self.bucket.objects, &self.path);
                    return Ok(version(&got.meta));
                }
                Err(failure) => failure,
            };
            let judged = attempts.judge(failure, control, began).await;
            judged.map_err(|failure| failure.into_error(&self.name))?;
        }
    }

    async fn retried(
        &mut self,
        span: ByteSpan,
        out: &mut dyn ByteTaker,
        course: &mut dyn Course,
    ) -> Result<(), ReadFailure> {
        let mut attempts = self.limits.attempts();
        let mut came = 0;
        let controls = Arc::clone(&self.bucket.controls);
        loop {
            let began = Instant::now();
            let mut failure = match self.attempt(span, &mut came, out, course, &attempts).await {
                Ok(()) => {
                    controls[0].gave(&self.bucket.objects, &self.path);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            if matches!(failure, ReadFailure::NoParts) && span.len.is_none() {
                came = 0;
                out.restart();
                failure = ReadFailure::broken(&self.name, "it came in part, and the server does not continue");
            }
            attempts.judge(failure, &controls[0], began).await?;
        }
    }

    /// Takes what is missing of a span after the bytes that `came`.
    async fn attempt(
        &mut self,
        ByteSpan { start, len }: ByteSpan,
        came: &mut u64,
        out: &mut dyn ByteTaker,
        course: &mut dyn Course,
        attempts: &Attempts,
    ) -> Result<(), ReadFailure> {
        let offset = start + *came;
        let range = match len {
            Some(len) => Some(GetRange::Bounded(offset..start + len)),
            None => (offset > 0).then_some(GetRange::Offset(offset)),
        };
        let got = self.ask(GetOptions { range, ..GetOptions::default() }, attempts).await?;
        if len.is_none() {
            self.check_len(got.meta.size)?;
            if !course.has_room(got.meta.size) {
                return Err(ReadFailure::NoRoom);
            }
        }
        // Later answers have to be of the same object.
        self.version = Version { len: Some(got.meta.size), ..version(&got.meta) };
        out.expect(got.range.end - got.range.start).map_err(ReadFailure::Final)?;
        self.body(got, came, out, attempts).await
    }

    /// Begins a request for this version of the object.
    async fn ask(&self, mut options: GetOptions, attempts: &Attempts) -> Result<GetResult, ReadFailure> {
        options.if_match = self.version.tag.as_deref().and_then(strong);
        let request = self.bucket.objects.get_opts(&self.path, options);
        let got = attempts.answer(&self.name, self.limits.timeout, ReadFailure::of, request).await?;
        if is_same(&self.version, &version(&got.meta)) {
            Ok(got)
        } else {
            Err(ReadFailure::Final(FetchError::Changed(self.name.to_string())))
        }
    }

    async fn body(
        &self,
        got: GetResult,
        came: &mut u64,
        out: &mut dyn ByteTaker,
        attempts: &Attempts,
    ) -> Result<(), ReadFailure> {
        let whole = *came + (got.range.end - got.range.start);
        let mut parts = got.into_stream();
        let mut end = attempts.end(self.limits.timeout);
        let mut mark = *came;
        loop {
            match timeout_at(end, parts.next()).await {
                Err(_) => {
                    return Err(ReadFailure::broken(&self.name, format!("{came} of {whole} bytes came in time")));
                }
                Ok(Some(Err(error))) => return Err(ReadFailure::of(&self.name, &error)),
                Ok(Some(Ok(part))) if *came + part.len() as u64 > whole => {
                    return Err(ReadFailure::broken(&self.name, format!("more than {whole} bytes came")));
                }
                Ok(Some(Ok(part))) => {
                    *came += part.len() as u64;
                    out.take(part);
                }
                Ok(None) if *came == whole => return Ok(()),
                Ok(None) => return Err(ReadFailure::broken(&self.name, format!("{came} of {whole} bytes came"))),
            }
            if *came - mark >= LEAST_PROGRESS {
                end = attempts.end(self.limits.timeout);
                mark = *came;
            }
        }
    }

    fn check_len(&self, bytes: u64) -> Result<(), ReadFailure> {
        let limit = self.limits.max_bytes;
        if bytes > limit { Err(ReadFailure::Final(FetchError::TooLarge { bytes, limit })) } else { Ok(()) }
    }
}

/// The version of an object, as its store reports it. A time of 0 stands for none.
pub(crate) fn version(meta: &ObjectMeta) -> Version {
    let modified = std::time::SystemTime::from(meta.last_modified);
    let modified = (modified != std::time::UNIX_EPOCH).then_some(modified);
    Version { len: Some(meta.size), modified, tag: meta.e_tag.clone() }
}

/// Returns true if an answer may be of the object that was listed. Stores quote tags in answers and not always in
/// listings.
fn is_same(listed: &Version, got: &Version) -> bool {
    if listed.len.zip(got.len).is_some_and(|(a, b)| a != b) {
        return false;
    }
    if let Some(tag) = &listed.tag {
        return got.tag.as_ref().is_none_or(|other| tag.trim_matches('"') == other.trim_matches('"'));
    }
    match listed.modified.zip(got.modified) {
        // Listings tell milliseconds, answers seconds.
        Some((a, b)) => {
            a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default() < Duration::from_secs(1)
        }
        None => true,
    }
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
