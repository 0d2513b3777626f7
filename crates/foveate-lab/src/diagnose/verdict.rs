//! What all of it comes to, in few words.

use std::fmt;

use super::depth::Depth;
use super::interval::Interval;
use super::ladder::{Drop, Ladder};
use super::remedies::{Remedies, Verified};
use crate::{PhotoSet, stats};

/// Share of the processor from which on it counts as saturated.
const SATURATED: f64 = 0.95;
/// Times between small and large photos (10th and 90th percentile of pixels) that count as varying.
const VARYING: f64 = 4.0;
/// Fewer photos than this fit into caches that a job's photos would not fit into.
const FEW_PHOTOS: usize = 64;
/// A gain below this is not worth a recommendation.
const WORTHWHILE: f64 = 1.02;
/// Remedies that the verdict names.
const NAMED: usize = 3;

/// What a diagnosis found.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The stage that holds the job back (`read`, `decode`, `resize`, `batch`, `write` or `copy-in`); `None` when no one does.
    pub culprit: Option<&'static str>,
    /// What bounds the job: the stage, or why there is none.
    pub bound: String,
    /// Figures that say so.
    pub why: Vec<String>,
    /// What to do, and what it should give.
    pub next: Vec<String>,
    /// What to keep in mind.
    pub caveats: Vec<String>,
}

/// What the ladder says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// This stage holds it back.
    Culprit(Drop),
    /// No single one does, yet together they cost this part.
    Together(Interval),
    /// Samples differ too much to tell.
    Unclear(Interval),
    /// The forward does.
    Forward(Interval),
}

impl Finding {
    pub(super) fn of(ladder: &Ladder, least_drop: f64) -> Self {
        let significant = ladder.drops().into_iter().filter(|drop| drop.significant);
        if let Some(culprit) = significant.max_by(|a, b| a.part.value.total_cmp(&b.part.value)) {
            return Self::Culprit(culprit);
        }
        let whole = ladder.whole_drop();
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

/// What surrounds a ladder.
pub(super) struct Findings<'a> {
    pub(super) finding: Finding,
    pub(super) ladder: &'a Ladder,
    pub(super) remedies: Option<&'a Remedies>,
    pub(super) verified: Option<&'a Verified>,
    /// Those used, of those given.
    pub(super) photos: [&'a PhotoSet; 2],
    pub(super) batch: usize,
}

impl Findings<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let whole = self.ladder.rate(self.ladder.whole());
        let [rate, low, high] = [whole.value, whole.low, whole.high].map(Figure);
        let now = format!("{rate} images/s as it is (95 % interval {low} to {high})");
        Verdict {
            culprit: self.finding.culprit().map(Depth::adds),
            bound: self.finding.bound(),
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
        let mut caveats = vec![
            "photos are read over and over: what the system keeps of their files in memory is not read from where they \
             are stored (warm reads)"
                .to_owned(),
        ];
        if let (Some(busy), Some(stage)) = (self.saturated(), self.finding.culprit()) {
            caveats.push(format!(
                "the processor is at work for {:.0} % of the time: {} may be innocent and only tip it over its limit; \
                 whatever needs less of the processor helps",
                busy * 100.0,
                stage.adds()
            ));
        }
        if used < given {
            caveats.push(format!("{used} of {given} photos: decoded pixels of more would take too much memory"));
        }
        if used < FEW_PHOTOS.max(self.batch) {
            caveats.push(format!("{used} photos over and over: caches hold more of them than of a job's"));
        }
        caveats.extend(self.varying());
        if matches!(self.finding, Finding::Unclear(_)) {
            caveats.push(
                "something else may be using this machine; more rounds or longer samples narrow it down".to_owned(),
            );
        }
        caveats
    }

    fn saturated(&self) -> Option<f64> {
        self.ladder.whole().cpu_busy().filter(|&busy| busy >= SATURATED)
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
        f.write_str(&crate::table::significant(self.0, 3))
    }
}

fn percent(part: Interval) -> String {
    format!("{:.0} % (95 % interval {:.0} to {:.0} %)", part.value * 100.0, part.low * 100.0, part.high * 100.0)
}
