//! The conclusion of a diagnosis, in a few words.

use std::fmt;

use super::depth::Depth;
use super::interval::Interval;
use super::ladder::{Drop, Ladder, largest};
use super::remedies::{Remedies, Verified};
use crate::{PhotoSet, stats};

/// Utilization from which on the processor counts as saturated.
const SATURATED: f64 = 0.95;
/// Ratio of large to small photos (90th and 10th percentile of pixels) that counts as varying.
const VARYING: f64 = 4.0;
/// Number of photos below which they fit into caches that a job's photos would not fit into.
const FEW_PHOTOS: usize = 64;
/// A gain below this is not worth a recommendation.
const WORTHWHILE: f64 = 1.02;
/// The caveat about reads.
const WARM: &str = "warm reads: photos are read over and over, and what the system keeps of their files in memory is not \
                    read from where they are stored";
const COLD: &str =
    "cold reads: the system was asked to forget the photos' files before each sample, which reads none twice";
/// Number of remedies that the verdict names.
const NAMED: usize = 3;

/// The conclusion of a diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The limiting stage (`read`, `decode`, `resize`, `batch`, `write` or `copy-in`); `None` if there is none.
    pub culprit: Option<&'static str>,
    /// The job's bound: the stage, or why there is none.
    pub bound: String,
    /// Whether the samples decide. If not, the maximum number of rounds was run, and a caveat names the open question.
    pub decided: bool,
    /// The supporting figures.
    pub why: Vec<String>,
    /// The next steps, with their expected gain.
    pub next: Vec<String>,
    /// Caveats.
    pub caveats: Vec<String>,
}

/// The conclusion from the ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// This stage is the limit.
    Culprit(Drop),
    /// No single stage is the limit, but together they cost this share.
    Together(Interval),
    /// The samples differ too much to tell.
    Unclear(Interval),
    /// The forward is the limit.
    Forward(Interval),
}

impl Finding {
    pub(super) fn of(ladder: &Ladder) -> Self {
        if let Some(culprit) = largest(&ladder.drops()) {
            return Self::Culprit(culprit);
        }
        let (whole, least_drop) = (ladder.whole_drop(), ladder.least_drop());
        if whole.low > least_drop {
            Self::Together(whole)
        } else if whole.high > 4.0 * least_drop {
            Self::Unclear(whole)
        } else {
            Self::Forward(whole)
        }
    }

    pub(super) fn culprit(self) -> Option<Depth> {
        if let Self::Culprit(drop) = self { Some(drop.depth) } else { None }
    }

    fn bound(self) -> String {
        match self {
            Self::Culprit(drop) => drop.depth.adds().to_owned(),
            Self::Together(_) => "several stages together, none of them alone".to_owned(),
            Self::Unclear(_) => "not to be told: the samples differ too much".to_owned(),
            Self::Forward(_) => "none: bound by the forward".to_owned(),
        }
    }

    /// Returns the doubt about the named stage if the processor is saturated.
    fn saturation(self, ladder: &Ladder) -> Option<String> {
        let busy = ladder.whole().cpu_busy().filter(|&busy| busy >= SATURATED)?;
        let stage = self.culprit()?.adds();
        Some(format!(
            "the processor is at work for {:.0} % of the time: {stage} may be innocent and only tip it over its limit; \
             whatever needs less of the processor helps",
            busy * 100.0
        ))
    }

    fn why(self, ladder: &Ladder) -> String {
        match self {
            Self::Culprit(drop) => {
                let ((cached, before), after) = ladder.around(drop.depth);
                format!(
                    "{} images/s with {}, {} once {} works as well: {} less",
                    Figure(before),
                    cached.cached(),
                    Figure(after),
                    drop.depth.adds(),
                    percent(drop.part)
                )
            }
            Self::Together(part) => {
                format!("no significant difference at any one depth, but {} over all", percent(part))
            }
            Self::Unclear(part) => format!("no significant difference at any depth, {} over all", percent(part)),
            Self::Forward(part) => format!(
                "no significant difference at any depth: everything but the forward costs {} of its throughput",
                percent(part)
            ),
        }
    }
}

/// The context of a ladder.
pub(super) struct Findings<'a> {
    pub(super) finding: Finding,
    pub(super) ladder: &'a Ladder,
    pub(super) remedies: Option<&'a Remedies>,
    pub(super) verified: Option<&'a Verified>,
    /// The photos used, and the photos given.
    pub(super) photos: [&'a PhotoSet; 2],
    pub(super) batch: usize,
    pub(super) cold: bool,
}

impl Findings<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let whole = self.ladder.rate(self.ladder.whole());
        let [rate, low, high] = [whole.value, whole.low, whole.high].map(Figure);
        let now = format!("{rate} images/s as it is (95 % interval {low} to {high})");
        Verdict {
            culprit: self.finding.culprit().map(Depth::adds),
            bound: self.finding.bound(),
            decided: self.ladder.open().is_empty() && !matches!(self.finding, Finding::Unclear(_)),
            why: vec![now, self.finding.why(self.ladder)],
            next: self.next(),
            caveats: self.caveats(),
        }
    }

    fn next(&self) -> Vec<String> {
        let Some(remedies) = self.remedies else { return Vec::new() };
        let worthwhile = remedies.promising().filter(|(_, expected)| remedies.times(expected) >= WORTHWHILE);
        let mut lines: Vec<String> = worthwhile
            .take(NAMED)
            .map(|(row, expected)| {
                let (rate, times) = (Figure(expected.rate), remedies.times(expected));
                format!("{}: {rate} images/s expected ({times:.2}x), then bound by {}", row.change, expected.limit)
            })
            .collect();
        if lines.is_empty() {
            lines.push("nothing on the checklist is expected to gain 2 % or more".to_owned());
        }
        lines.extend(self.verified.map(|verified| {
            let Verified { change, before, after, times, predicted, error } = verified;
            format!(
                "verified {change}: {} images/s ({} to {}), {} before: {:.2}x ({:.2} to {:.2}); predicted {}, {:+.1} % off",
                Figure(after.value),
                Figure(after.low),
                Figure(after.high),
                Figure(before.value),
                times.value,
                times.low,
                times.high,
                Figure(*predicted),
                error * 100.0
            )
        }));
        lines
    }

    fn caveats(&self) -> Vec<String> {
        let [used, given] = self.photos.map(|set| set.photos.len());
        let reads = if self.cold { COLD } else { WARM };
        let mut caveats = vec![reads.to_owned()];
        caveats.extend(self.undecided());
        caveats.extend(self.finding.saturation(self.ladder));
        if used < given {
            caveats.push(format!("{used} of {given} photos: decoded pixels of more would take too much memory"));
        }
        if used < FEW_PHOTOS.max(self.batch) {
            caveats.push(format!("a sample of {used}, over and over: caches hold more of it than of a job"));
        }
        caveats.extend(self.varying());
        if matches!(self.finding, Finding::Unclear(_)) {
            caveats.push("something else may be using this machine; longer samples narrow it down".to_owned());
        }
        caveats
    }

    /// Describes what the samples leave open.
    fn undecided(&self) -> Option<String> {
        let open = self.ladder.open();
        let stages: Vec<String> =
            open.iter().map(|drop| format!("{} costs {}", drop.depth.adds(), range(drop.part))).collect();
        let against = match self.finding {
            Finding::Culprit(culprit) => format!(", {} {}", culprit.depth.adds(), range(culprit.part)),
            _ => String::new(),
        };
        let rounds = self.ladder.rounds();
        (!open.is_empty()).then(|| format!("undecided after {rounds} rounds: {}{against}", stages.join(", ")))
    }

    fn varying(&self) -> Option<String> {
        let pixels: Vec<f64> = self.photos[0].photos.iter().map(|photo| photo.size.pixels() as f64).collect();
        let (small, large) = (stats::quantile(&pixels, 0.1)?, stats::quantile(&pixels, 0.9)?);
        (large > VARYING * small).then(|| {
            format!(
                "photos differ in size ({:.2} to {:.2} megapixels for the middle 80 %): where large ones come together, \
                 another stage may hold the job back",
                small / 1e6,
                large / 1e6
            )
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bound by  {}", self.bound)?;
        for (head, lines) in [("why", &self.why), ("next", &self.next), ("but", &self.caveats)] {
            for (at, line) in lines.iter().enumerate() {
                writeln!(f, "{:<8}  {line}", if at == 0 { head } else { "" })?;
            }
        }
        Ok(())
    }
}

/// A rate with three significant digits.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::cell::significant(self.0, 3))
    }
}

fn percent(part: Interval) -> String {
    format!("{:.0} % (95 % interval {})", part.value * 100.0, range(part))
}

fn range(part: Interval) -> String {
    format!("{:.0} to {:.0} %", part.low * 100.0, part.high * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ladder with these rates, the shallowest first, each within 1 %, and the processor's utilization
    /// `busy`.
    fn ladder(rates: [f64; 7], busy: f64) -> Ladder {
        Ladder::of(rates.map(|rate| [0.99, 1.0, 1.01, 1.0, 1.0].map(|noise| rate * noise).to_vec()), busy)
    }

    fn finding(rates: [f64; 7]) -> Finding {
        Finding::of(&ladder(rates, 0.5))
    }

    #[test]
    fn the_largest_relative_drop_is_named() {
        // The second drop is the larger number of images, the last one the larger share.
        let found = finding([1000.0, 1000.0, 600.0, 600.0, 600.0, 300.0, 300.0]);
        assert_eq!(found.culprit(), Some(Depth::Bytes));
        assert_eq!(finding([1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 900.0, 700.0]).culprit(), Some(Depth::Nothing));
    }

    #[test]
    fn a_drop_that_deeper_depths_do_not_confirm_is_noise() {
        let found = finding([1000.0, 1000.0, 1000.0, 800.0, 1000.0, 1000.0, 1000.0]);
        assert!(matches!(found, Finding::Forward(_)), "{found:?}");
    }

    #[test]
    fn many_small_drops_are_told_from_none() {
        let together = finding([1000.0, 960.0, 922.0, 885.0, 850.0, 816.0, 783.0]);
        assert!(matches!(together, Finding::Together(part) if part.low > 0.2), "{together:?}");
        let none = finding([1000.0, 995.0, 1000.0, 990.0, 1000.0, 1000.0, 990.0]);
        assert_eq!(none.bound(), "none: bound by the forward");
    }

    #[test]
    fn samples_that_differ_much_tell_nothing() {
        let noisy = vec![500.0, 1000.0, 1400.0, 700.0, 1100.0];
        let found = Finding::of(&Ladder::of([(); 7].map(|()| noisy.clone()), 0.5));
        assert!(matches!(found, Finding::Forward(part) if part.value == 0.0), "the same in every round: {found:?}");
        let turned: Vec<f64> = noisy.iter().rev().map(|rate| rate * 0.97).collect();
        let mut rates = [(); 7].map(|()| noisy.clone());
        rates[6] = turned;
        let found = Finding::of(&Ladder::of(rates, 0.5));
        assert!(matches!(found, Finding::Unclear(_)), "{found:?}");
    }

    #[test]
    fn a_busy_processor_casts_doubt_on_the_stage_named() {
        let rates = [1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 500.0, 500.0];
        let doubt = |busy| finding(rates).saturation(&ladder(rates, busy));
        assert_eq!(doubt(0.9), None);
        assert!(doubt(0.97).is_some_and(|told| told.contains("97 %") && told.contains("decode may be innocent")));
    }
}
