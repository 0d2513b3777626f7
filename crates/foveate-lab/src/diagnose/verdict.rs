//! The conclusion of a diagnosis, in a few words.

use std::fmt;

use super::depth::CacheDepth;
use super::interval::BootstrapInterval;
use super::known::KnownChange;
use super::ladder::{Ladder, StageDrop, largest};
use super::predictions::{Effect, Remedies, Verified};
use super::remedies::{REQUESTS, SMALL_PHOTOS};
use crate::{PhotoSet, Setting, fit, stats};

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
const STORE: &str = "reads from a store: the same objects over and over, which a store may hold in caches of its own";
/// Number of remedies that the verdict names.
const NAMED: usize = 3;

/// The conclusion of a diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The limiting stage (`read`, `decode`, `resize`, `batch`, `write` or `copy-in`); `None` if there is none.
    pub culprit: Option<&'static str>,
    /// The job's bound: the stage, or why there is none.
    pub bound: String,
    /// True if the samples decide. If not, rounds or time were used up, and a caveat names the open question.
    pub decided: bool,
    /// The supporting figures.
    pub why: Vec<String>,
    /// The result of the remedy that was tried.
    pub tried: Option<String>,
    /// The next steps, with their measured or expected gain.
    pub next: Vec<String>,
    /// Caveats.
    pub caveats: Vec<String>,
}

/// The conclusion from the ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// This stage is the limit.
    Culprit(StageDrop),
    /// No single stage is the limit, but together they cost this share.
    Together(BootstrapInterval),
    /// The samples differ too much to tell.
    Unclear(BootstrapInterval),
    /// The forward is the limit.
    Forward(BootstrapInterval),
}

impl Finding {
    pub(super) fn of(ladder: &Ladder) -> Self {
        if let Some(culprit) = largest(&ladder.drops()) {
            return Self::Culprit(culprit);
        }
        let whole = ladder.whole_drop();
        let least_drop = ladder.least_drop();
        if whole.low > least_drop {
            Self::Together(whole)
        } else if whole.high > 4.0 * least_drop {
            Self::Unclear(whole)
        } else {
            Self::Forward(whole)
        }
    }

    pub(super) fn culprit(self) -> Option<CacheDepth> {
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
                    RoundFigure(before),
                    cached.cached(),
                    RoundFigure(after),
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
    pub(super) setting: &'a Setting,
    pub(super) cold: bool,
    /// True if the photos are objects of a store.
    pub(super) in_store: bool,
}

impl Findings<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let whole = self.ladder.rate(self.ladder.whole());
        let [rate, low, high] = [whole.value, whole.low, whole.high].map(RoundFigure);
        let now = format!("{rate} images/s as it is (95 % interval {low} to {high})");
        Verdict {
            culprit: self.finding.culprit().map(CacheDepth::adds),
            bound: self.finding.bound(),
            decided: self.ladder.open().is_empty() && !matches!(self.finding, Finding::Unclear(_)),
            why: vec![now, self.finding.why(self.ladder)],
            tried: self.tried(),
            next: self.next(),
            caveats: self.caveats(),
        }
    }

    /// Describes the trial of a remedy.
    fn tried(&self) -> Option<String> {
        let Verified { change, before, after, rounds, times, predicted, error, effect } = self.verified?;
        let [before, after] = [before, after].map(|rate| {
            let BootstrapInterval { value, low, high } = *rate;
            format!("{} images/s ({} to {})", RoundFigure(value), RoundFigure(low), RoundFigure(high))
        });
        let effect = match effect {
            Effect::Gain => "a gain",
            Effect::Loss => "a loss",
            Effect::Unclear => "no difference that these samples can tell",
        };
        Some(format!(
            "{change}: {after}, {before} before: {:.2}x ({:.2} to {:.2}) in {rounds} rounds, {effect}; predicted {}, \
             {:+.1} % off",
            times.value,
            times.low,
            times.high,
            RoundFigure(*predicted),
            error * 100.0
        ))
    }

    fn next(&self) -> Vec<String> {
        let Some(remedies) = self.remedies else { return Vec::new() };
        let mut lines = Vec::new();
        if let Some(Verified { change, times, .. }) = self.verified.filter(|tried| tried.effect == Effect::Gain) {
            lines.push(format!("{change}: measured {:.2}x ({:.2} to {:.2})", times.value, times.low, times.high));
        }
        lines.extend(self.expected(remedies));
        lines.extend(self.smaller_photos(remedies));
        lines.extend(self.no_more_requests(remedies));
        if lines.is_empty() {
            let measured = if remedies.without_time() > 0 { " that there was time to measure" } else { "" };
            lines.push(format!(
                "nothing on the checklist{measured} is expected to gain {:.0} % or more, and more than this measurement leaves open",
                100.0 * (WORTHWHILE - 1.0)
            ));
        }
        lines
    }

    /// Describes what smaller photos would bring where reading, decoding or resizing is the limit. They are left to the
    /// user, because the vectors change.
    fn smaller_photos(&self, remedies: &Remedies) -> Option<String> {
        let is_limit = match self.finding {
            Finding::Culprit(drop) => {
                [CacheDepth::Nothing, CacheDepth::Bytes, CacheDepth::Pixels].contains(&drop.depth)
            }
            Finding::Together(_) => true,
            Finding::Unclear(_) | Finding::Forward(_) => false,
        };
        let (row, expected) = remedies.expected(SMALL_PHOTOS).filter(|_| is_limit)?;
        let least = self.ladder.rate(self.ladder.whole()).high;
        let times = remedies.times(expected);
        (times >= WORTHWHILE && expected.rate > least).then(|| {
            format!(
                "{}, which changes the vectors a little: {} images/s expected ({times:.2}x), then bound by {}",
                row.change,
                RoundFigure(expected.rate),
                expected.limit
            )
        })
    }

    /// Describes why more requests to a store that is the limit do not help.
    fn no_more_requests(&self, remedies: &Remedies) -> Option<String> {
        let is_limit = self.finding.culprit() == Some(CacheDepth::Nothing);
        remedies.refused(REQUESTS).filter(|_| is_limit && self.in_store).map(|why| format!("{REQUESTS}: {why}"))
    }

    /// Describes the remedies whose expected rate is above the interval of the current one. Of those that change the
    /// same value, only the best counts: the others would contradict it.
    fn expected(&self, remedies: &Remedies) -> Vec<String> {
        let least = self.ladder.rate(self.ladder.whole()).high;
        let mut settings: Vec<&Setting> = Vec::new();
        let mut lines = Vec::new();
        for (row, expected) in remedies.promising() {
            let rate = RoundFigure(expected.rate);
            let times = remedies.times(expected);
            let contradicts = settings.iter().any(|better| self.setting.contradict(better, &expected.setting));
            if times >= WORTHWHILE && expected.rate > least && !contradicts && lines.len() < NAMED {
                lines.push(match &expected.known {
                    Some(KnownChange { file, .. }) => format!("{}: measured {times:.2}x before ({file})", row.change),
                    None => format!(
                        "{}: {rate} images/s expected ({times:.2}x), then bound by {}",
                        row.change, expected.limit
                    ),
                });
                settings.push(&expected.setting);
            }
        }
        lines
    }

    fn caveats(&self) -> Vec<String> {
        let [used, given] = self.photos.map(|set| set.photos.len());
        let reads = match self.in_store {
            true => STORE,
            false if self.cold => COLD,
            false => WARM,
        };
        let mut caveats = vec![reads.to_owned()];
        caveats.extend(self.ladder.cut().map(str::to_owned));
        caveats.extend(self.ladder.contradiction());
        caveats.extend(self.undecided());
        caveats.extend(self.finding.saturation(self.ladder));
        if used < given {
            caveats.push(format!("{used} of {given} photos: decoded pixels of more would take too much memory"));
        }
        if used < FEW_PHOTOS.max(self.setting.batch) {
            caveats.push(format!("a sample of {used}, over and over: caches hold more of it than of a job"));
        }
        caveats.extend(self.varying());
        caveats.extend(self.refuted());
        let unmeasured = self.remedies.map_or(0, Remedies::without_time);
        if unmeasured > 0 {
            caveats.push(format!("for lack of time, {unmeasured} of the remedies were not measured, and may help too"));
        }
        if matches!(self.finding, Finding::Unclear(_)) {
            caveats.push("something else may be using this machine; longer samples narrow it down".to_owned());
        }
        caveats
    }

    /// Describes the doubt about the model if the trial did not bring what it had expected.
    fn refuted(&self) -> Option<String> {
        let Verified { change, error, effect, .. } = self.verified?;
        (*effect != Effect::Gain).then(|| {
            format!(
                "the model was {:+.0} % off about {change}, so its other expectations are doubtful too: `--verify REMEDY` \
                 measures one",
                error * 100.0
            )
        })
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
        let small = stats::quantile(&pixels, 0.1)?;
        let large = stats::quantile(&pixels, 0.9)?;
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
        let tried: Vec<String> = self.tried.iter().cloned().collect();
        for (head, lines) in [("why", &self.why), ("tried", &tried), ("next", &self.next), ("but", &self.caveats)] {
            for (at, line) in lines.iter().enumerate() {
                writeln!(f, "{}", fit(&format!("{:<8}  {line}", if at == 0 { head } else { "" }), 10))?;
            }
        }
        Ok(())
    }
}

/// A rate with three significant digits.
struct RoundFigure(f64);

impl fmt::Display for RoundFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::cell::significant(self.0, 3))
    }
}

fn percent(part: BootstrapInterval) -> String {
    format!("{:.0} % (95 % interval {})", part.value * 100.0, range(part))
}

fn range(part: BootstrapInterval) -> String {
    if part.low < -1.0 {
        return format!("at most {:.0} %", part.high * 100.0);
    }
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
        assert_eq!(found.culprit(), Some(CacheDepth::Bytes));
        assert_eq!(
            finding([1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 900.0, 700.0]).culprit(),
            Some(CacheDepth::Nothing)
        );
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

    /// Returns the verdict on a job of 93 images/s, after the first of these remedies was tried with these rates.
    fn verdict_after(remedies: &mut Remedies, after: [f64; 5]) -> Verdict {
        let ladder = ladder([93.0; 7], 0.5);
        let verified = remedies.tried(&[93.0, 92.0, 94.0, 93.0, 93.5], &after);
        let photos = PhotoSet::none();
        Findings {
            finding: Finding::of(&ladder),
            ladder: &ladder,
            remedies: Some(remedies),
            verified: Some(&verified),
            photos: [&photos, &photos],
            setting: &Setting::plain(),
            cold: false,
            in_store: false,
        }
        .verdict()
    }

    fn remedies() -> Remedies {
        let decoder = Setting { decoder: "quick".to_owned(), ..Setting::plain() };
        let workers = |workers| Setting { workers, ..Setting::plain() };
        let rows = [
            ("decoder", decoder, 163.0),
            ("more workers", workers(4), 120.0),
            ("fewer workers", workers(0), 110.0),
            ("batch", Setting { batch: 16, ..Setting::plain() }, 93.5),
        ];
        Remedies::of(&Setting::plain(), 93.0, &rows)
    }

    #[test]
    fn a_remedy_that_lost_is_not_recommended() {
        let verdict = verdict_after(&mut remedies(), [78.0, 77.0, 79.0, 78.5, 77.5]);
        let tried = verdict.tried.clone().unwrap_or_default();
        assert!(tried.starts_with("decoder quick: 78.0 images/s (77.0 to 79.0), 93.0 images/s"), "{tried}");
        assert!(tried.contains("a loss; predicted 163, +109.0 % off"), "{tried}");
        assert!(verdict.next.iter().all(|line| !line.contains("quick")), "{verdict}");
        assert!(verdict.caveats.iter().any(|line| line.starts_with("the model was +109 % off")), "{verdict}");
    }

    #[test]
    fn a_remedy_that_gained_comes_first_with_what_was_measured() {
        let verdict = verdict_after(&mut remedies(), [150.0, 152.0, 149.0, 151.0, 150.0]);
        assert!(verdict.next[0].starts_with("decoder quick: measured 1.61x ("), "{verdict}");
        assert!(!verdict.next[1..].iter().any(|line| line.contains("quick")), "{verdict}");
    }

    #[test]
    fn remedies_within_the_interval_or_against_a_better_one_are_not_named() {
        let verdict = verdict_after(&mut remedies(), [93.0, 92.0, 94.0, 93.0, 93.5]);
        assert!(verdict.tried.as_ref().is_some_and(|tried| tried.contains("no difference")), "{verdict}");
        let [workers] = &verdict.next[..] else { panic!("{verdict}") };
        assert!(workers.starts_with("workers 4: 120 images/s expected"), "{verdict}");
    }

    #[test]
    fn smaller_photos_are_named_where_decoding_is_the_limit() {
        let remedies = Remedies::of(&Setting::plain(), 500.0, &[("small photos", Setting::plain(), 900.0)]);
        let photos = PhotoSet::none();
        let named = |rates| {
            let ladder = ladder(rates, 0.5);
            let photos = &photos;
            let findings = Findings {
                finding: Finding::of(&ladder),
                ladder: &ladder,
                remedies: Some(&remedies),
                verified: None,
                photos: [photos, photos],
                setting: &Setting::plain(),
                cold: false,
                in_store: false,
            };
            findings
                .next()
                .iter()
                .any(|line| line.contains("changes the vectors a little: 900 images/s expected (1.80x)"))
        };
        assert!(named([1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 500.0, 500.0]));
        assert!(!named([1000.0, 500.0, 500.0, 500.0, 500.0, 500.0, 500.0]), "copying to the device is the limit");
    }

    #[test]
    fn a_busy_processor_casts_doubt_on_the_stage_named() {
        let rates = [1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 500.0, 500.0];
        let doubt = |busy| finding(rates).saturation(&ladder(rates, busy));
        assert_eq!(doubt(0.9), None);
        assert!(doubt(0.97).is_some_and(|told| told.contains("97 %") && told.contains("decode may be innocent")));
    }
}
