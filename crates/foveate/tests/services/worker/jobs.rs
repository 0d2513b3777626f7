//! The messages, and the required outcome of each.

use foveate::queue::{Callback, ImageRef, Job};

use super::stage::{QUERY, Stage};

/// The photo server's answer for a message's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Photo,
    /// Answered slowly, in small pieces.
    Slow,
    /// Not answered at first.
    Flaky,
    Corrupt,
    Missing,
    /// Never answered.
    Stall,
    Bomb,
    /// Larger than the size limit.
    Huge,
}

impl Kind {
    /// Returns stage and reason of the dead letter that such a message becomes, in several variants; none if it is
    /// called back.
    pub(crate) fn dies_of(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Photo | Self::Slow | Self::Flaky => &[],
            Self::Corrupt => &[("decode", "")],
            Self::Missing => &[("download", "404")],
            // A worker that is killed during the last attempt reports nothing.
            Self::Stall => &[("download", "tries)"), ("receive", "times without an outcome")],
            Self::Bomb => &[("decode", "60000")],
            Self::Huge => &[("download", "more than")],
        }
    }
}

/// A message, by the kind and number of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) number: usize,
}

impl Item {
    /// Returns `count` messages with different numbers.
    pub(crate) fn all(kind: Kind, count: usize) -> Vec<Self> {
        (0..count).map(|number| Self { kind, number }).collect()
    }

    /// Returns `count` messages of mixed kinds, evenly interleaved. Each share is per hundred; the rest are photos.
    pub(crate) fn mixed(count: usize, shares: &[(Kind, usize)]) -> Vec<Self> {
        let of_hundred: Vec<Kind> = shares.iter().flat_map(|&(kind, share)| std::iter::repeat_n(kind, share)).collect();
        let kind = |number: usize| of_hundred.get(number * 37 % 100).copied().unwrap_or(Kind::Photo);
        (0..count).map(|number| Self { kind: kind(number), number }).collect()
    }

    pub(crate) fn id(self) -> String {
        format!("{:?}-{}", self.kind, self.number)
    }

    pub(crate) fn path(self) -> String {
        let n = self.number;
        match self.kind {
            Kind::Photo => format!("/photo/{n}"),
            Kind::Slow => format!("/slow/{n}"),
            Kind::Flaky => format!("/flaky/{n}/{}", 1 + n % 2),
            Kind::Corrupt => format!("/corrupt/{n}"),
            Kind::Missing => format!("/missing/{n}"),
            Kind::Stall => format!("/stall/{n}"),
            Kind::Bomb => format!("/bomb/{n}"),
            Kind::Huge => format!("/huge/{n}"),
        }
    }

    /// Returns the job, with secrets where users put them. It names a callback or a sink.
    pub(crate) fn job(self, stage: &Stage, calls_back: bool) -> String {
        let url = |path: &str| stage.photos.url(&format!("{path}?{QUERY}"));
        let job = Job {
            id: Some(self.id()),
            callback: calls_back.then(|| Callback { url: url("/callback") }),
            metadata: Some(self.number.to_string()),
            ..Job::new(ImageRef::Url(url(&self.path())))
        };
        String::from_utf8(job.to_json().unwrap()).unwrap()
    }
}
