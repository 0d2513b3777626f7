//! The options of a diagnosis.

use std::path::PathBuf;

use crate::{LabError, PhotoSet, Setting};

/// Minimum batches of a sample: the first one is not timed, and a rate needs two.
pub(super) const LEAST_BATCHES: u64 = 3;

/// The options of a diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagnoseOptions {
    /// Samples at each depth, one per round, before the first look at the intervals. If these do not decide, the number
    /// of rounds is doubled, up to `most_rounds`.
    pub rounds: usize,
    /// Number of rounds after which the diagnosis ends, decided or not.
    pub most_rounds: usize,
    /// Approximate length of a sample, in seconds; never less than three batches.
    pub seconds: f64,
    /// The smallest drop in throughput that matters, 0..1.
    pub least_drop: f64,
    /// Maximum bytes of decoded pixels in memory; further photos are left out.
    pub most_bytes: u64,
    /// The output's registry name.
    pub sink: String,
    /// True if the system drops the photos' files from its cache before each sample that reads them. Such a sample
    /// reads a photo at most once, so it is short.
    pub cold: bool,
    /// True if the remedies are evaluated, which measures every backend that they name.
    pub remedies: bool,
    /// The remedy to try.
    pub verify: Option<Verify>,
    /// The run's folder. Changes that its CSV files have measured are not predicted, and a diagnosis with a trial that
    /// was interrupted continues from its journal there.
    pub folder: Option<PathBuf>,
}

/// The remedy to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The one with the largest expected gain among those that change the vectors little or not at all.
    Best,
    /// The best, and if it gains nothing, the next ones.
    All,
    /// The one with this name, or with this change.
    Named(String),
}

impl DiagnoseOptions {
    /// Returns the defaults: seven to 28 rounds of a second, 5 %, a gigabyte of pixels, the remedies without a trial.
    pub fn new(sink: impl Into<String>) -> Self {
        let sink = sink.into();
        Self {
            rounds: 7,
            most_rounds: 28,
            seconds: 1.0,
            least_drop: 0.05,
            most_bytes: 1 << 30,
            sink,
            cold: false,
            remedies: true,
            verify: None,
            folder: None,
        }
    }

    /// Returns the same for less time: five to ten rounds of a third of a second.
    #[must_use]
    pub fn quick(self) -> Self {
        Self { rounds: 5, most_rounds: 10, seconds: 0.3, ..self }
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        let wrong = |what: &str| Err(LabError::Setting(what.to_owned()));
        if self.rounds == 0 || self.most_rounds < self.rounds {
            return wrong("a diagnosis needs at least one round, and no fewer at most");
        }
        if !(0.0..1.0).contains(&self.least_drop) {
            return wrong("the least drop that matters is a part of the throughput, 0 or more and less than 1");
        }
        if self.verify.is_some() && !self.remedies {
            return wrong("a remedy can be tried only with the checklist");
        }
        Ok(())
    }

    /// Returns the most remedies that one diagnosis tries.
    pub(super) fn most_tries(&self) -> usize {
        match self.verify {
            None => 0,
            Some(Verify::All) => 3,
            Some(_) => 1,
        }
    }

    /// Returns the numbers of rounds after which the intervals are looked at.
    pub(super) fn looks(&self) -> Vec<usize> {
        let next = |&rounds: &usize| (rounds < self.most_rounds).then(|| (2 * rounds).min(self.most_rounds));
        std::iter::successors(Some(self.rounds), next).collect()
    }

    /// Returns the images of a sample that reads stored photos: `images`, but for cold reads at most the number of
    /// photos.
    pub(super) fn images_stored(&self, images: u64, photos: &PhotoSet, setting: &Setting) -> Result<u64, LabError> {
        if !self.cold {
            return Ok(images);
        }
        let (photos, batch) = (photos.photos.len() as u64, setting.batch as u64);
        let once = images.min(photos / batch * batch);
        if once < LEAST_BATCHES * batch {
            let needed = LEAST_BATCHES * batch;
            return Err(LabError::Setting(format!(
                "cold reads need {needed} photos at this batch; there are {photos}"
            )));
        }
        Ok(once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_doubled_up_to_the_most() {
        let looks =
            |rounds, most_rounds| DiagnoseOptions { rounds, most_rounds, ..DiagnoseOptions::new("npy") }.looks();
        assert_eq!(looks(7, 28), [7, 14, 28]);
        assert_eq!(looks(7, 20), [7, 14, 20]);
        assert_eq!(looks(3, 3), [3]);
    }
}
