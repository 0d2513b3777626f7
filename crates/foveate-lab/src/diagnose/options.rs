//! The options of a diagnosis, and what its time budget leaves of them.

use std::path::PathBuf;
use std::time::Duration;

use crate::{LabError, PhotoSet, Setting};

/// Minimum batches of a sample.
pub(super) const LEAST_BATCHES: u64 = 3;

/// The same while warming up, and where time is short: the first batch is not timed.
pub(super) const FEWEST_BATCHES: u64 = 2;

/// Rounds that no time budget prevents: an interval needs two.
pub(super) const FEWEST_ROUNDS: usize = 2;

/// Share of the time budget for finding the limit, if the rest is for the remedies.
const FOR_THE_LIMIT: f64 = 0.75;

/// The options of a diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagnoseOptions {
    /// Samples at each depth, one per round, before the first look at the intervals. If these do not decide, the number
    /// of rounds is doubled, up to `most_rounds`.
    pub rounds: usize,
    /// Number of rounds after which the diagnosis ends, decided or not.
    pub most_rounds: usize,
    /// Approximate length of a sample, in seconds; never less than three batches, or two where `budget` is short.
    pub seconds: f64,
    /// Time for finding the limit and evaluating the remedies; each trial of a remedy has as much again. Where it is
    /// short, samples are shorter and fewer, but at least two at each depth, and other backends may not be measured.
    pub budget: Duration,
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
    /// Returns the defaults: seven to 28 rounds of a second, two minutes, 5 %, a gigabyte of pixels, the remedies
    /// without a trial.
    pub fn new(sink: impl Into<String>) -> Self {
        let sink = sink.into();
        Self {
            rounds: 7,
            most_rounds: 28,
            seconds: 1.0,
            budget: Duration::from_secs(120),
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
        let wrong = if self.rounds == 0 || self.most_rounds < self.rounds {
            "a diagnosis needs at least one round, and no fewer at most"
        } else if !(0.0..1.0).contains(&self.least_drop) {
            "the least drop that matters is a part of the throughput, 0 or more and less than 1"
        } else if self.verify.is_some() && !self.remedies {
            "a remedy can be tried only with the checklist"
        } else {
            return Ok(());
        };
        Err(LabError::Setting(wrong.to_owned()))
    }

    /// Returns the most remedies that one diagnosis tries.
    pub(super) fn most_tries(&self) -> usize {
        match self.verify {
            None => 0,
            Some(Verify::All) => 3,
            Some(_) => 1,
        }
    }

    /// Returns the seconds for finding the limit.
    pub(super) fn seconds_for_limit(&self) -> f64 {
        self.budget.as_secs_f64() * if self.remedies { FOR_THE_LIMIT } else { 1.0 }
    }

    /// Returns the seconds for the remedies, if finding the limit took `elapsed`.
    pub(super) fn seconds_for_remedies(&self, elapsed: Duration) -> f64 {
        let budget = self.budget.as_secs_f64();
        (budget - elapsed.as_secs_f64()).max((1.0 - FOR_THE_LIMIT) * budget)
    }

    /// Returns the share of their usual length that samples can have so that `rounds` fit into the seconds `left`, if a
    /// round usually takes `seconds`.
    pub(super) fn share(&self, seconds: f64, left: f64) -> f64 {
        (left / (self.rounds as f64 * seconds).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    }

    /// Returns the numbers of rounds after which the intervals are looked at.
    pub(super) fn looks(&self) -> Vec<usize> {
        let mut rounds = self.rounds;
        let mut looks = vec![rounds];
        while rounds < self.most_rounds {
            rounds = (2 * rounds).min(self.most_rounds);
            looks.push(rounds);
        }
        looks
    }

    /// Returns the images of a sample that reads stored photos: `images`, but for cold reads at most the number of
    /// photos.
    pub(super) fn images_stored(&self, images: u64, photos: &PhotoSet, setting: &Setting) -> Result<u64, LabError> {
        if !self.cold {
            return Ok(images);
        }
        let photos = photos.photos.len() as u64;
        let batch = setting.batch as u64;
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
    use super::super::sample::Length;
    use super::*;

    #[test]
    fn samples_are_shortened_to_fit_but_not_below_two_batches() {
        let options = DiagnoseOptions::new("npy");
        assert_eq!(options.seconds_for_limit(), 90.0);
        let for_remedies = |elapsed| options.seconds_for_remedies(Duration::from_secs(elapsed));
        assert_eq!([20, 90, 300].map(for_remedies), [100.0, 30.0, 30.0]);
        assert_eq!([1.0, 20.0, 0.0].map(|seconds| options.share(seconds, 70.0)), [1.0, 0.5, 1.0]);
        assert_eq!(options.share(1.0, -3.0), 0.0, "overdrawn");
        let usual = Length { images: 80, batch: 8, seconds: 5.0 };
        assert_eq!(usual.shortened(0.55), Length { images: 40, seconds: 2.5, ..usual });
        assert_eq!(usual.shortened(0.0), Length { images: 16, seconds: 1.0, ..usual });
        let shortest = usual.shortened(0.0);
        assert_eq!(shortest.shortened(0.0), shortest);
    }

    #[test]
    fn rounds_are_doubled_up_to_the_most() {
        let looks =
            |rounds, most_rounds| DiagnoseOptions { rounds, most_rounds, ..DiagnoseOptions::new("npy") }.looks();
        assert_eq!(looks(7, 28), [7, 14, 28]);
        assert_eq!(looks(7, 20), [7, 14, 20]);
        assert_eq!(looks(3, 3), [3]);
    }
}
