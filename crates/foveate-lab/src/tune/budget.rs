//! `foveate tune --min-cosine`: the fastest configuration whose vectors stay near the default's.
//!
//! Changes of the default are measured one at a time: their drift on one half of a sample, and their rate in rounds.
//! Those within the budget are combined as long as that is faster, and each combination is measured too. The rest of a
//! collection has photos that drift more than any of the sample, so a candidate needs a margin: an upper tolerance
//! bound of its drifts has to be within the budget, too. The other half plays no part in the choice. It confirms the
//! fastest candidate, or else the next one.

use std::time::Duration;

use foveate_encode::DType;
use foveate_preprocess::DecodeScale;

use super::runs::{LabRuns, Runs};
use super::{ALIKE, FEWEST_BATCHES, Tuned, run_from, seconds_of_run};
use crate::order::order;
use crate::stats::{FEWEST_TOLERATED, Spread, mean, median, share_at_most, tolerance_factor, variance};
use crate::{Lab, LabError, PhotoSet, Setting, Table, Watch, schema};

/// Share of the photos, and confidence, of the tolerance bound that a candidate needs.
const TOLERATED: [f64; 2] = [0.9999, 0.99];
/// Share of drifting photos that a half shows at least one of, with 95 % confidence, if most photos do not drift.
const RARE: [f64; 2] = [0.01, 0.95];
/// A drift below this fraction of the budget counts as this fraction.
const NEGLIGIBLE: f64 = 1e-3;
/// 1 − the cosine of a vector and itself, at most.
const ROUNDING: f64 = 1e-12;
/// Rounds of the runs that compare rates.
const ROUNDS: usize = 3;
/// Maximum number of candidates that are compared with the held-out half.
const MOST_LOOKS: usize = 5;

/// The largest permitted distance of a configuration's vectors from the default's.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftBudget {
    /// Minimum cosine of a photo's two vectors.
    pub min_cosine: Option<f64>,
    /// Minimum recall@1, as a fraction of the default's on the same photos.
    pub min_recall: Option<f64>,
    /// Confidence of what the held-out half shows, 0 to 1.
    pub confidence: f64,
}

/// A half of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The photos that candidates are chosen by.
    Choice,
    /// The photos that confirm a candidate.
    HeldOut,
}

/// A configuration's drift on one half.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drift {
    /// 1 − cosine of each photo's vector and the default's; infinite for a photo that only the default embeds.
    pub distances: Vec<f64>,
    /// Recall@1, if there are labels.
    pub recall: Option<Recall>,
    /// True if the configuration changes pixels, by its decoder, decode scale or resizer.
    pub changes_pixels: bool,
}

/// Recall@1 among the labelled photos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Labelled photos.
    pub labelled: usize,
    /// Those whose nearest other one has the same label: under the default, under this configuration.
    pub hits: [usize; 2],
    /// Those that have it under the default alone.
    pub lost: usize,
}

impl Drift {
    /// Returns the largest drift of the photos with two vectors, and the number of the others.
    pub fn worst(&self) -> (f64, usize) {
        let finite = self.distances.iter().copied().filter(|distance| distance.is_finite());
        let count = finite.clone().count();
        (finite.fold(0.0, f64::max), self.distances.len() - count)
    }

    /// Returns the median drift of the photos with two vectors.
    pub fn median(&self) -> Option<f64> {
        let finite = self.distances.iter().copied().filter(|distance| distance.is_finite());
        median(&finite.collect::<Vec<_>>())
    }

    /// Returns the tolerance bound: with 99 % confidence, 99.99 % of such photos drift less, if the logarithms of their
    /// drifts are normally distributed. `None` for too few photos.
    ///
    /// The drift of other pixels depends on a photo's content, and few photos do not show the content of others: a
    /// change of pixels takes 299 photos, so that a share of 1 % is not missed. Another precision drifts alike on all
    /// photos.
    ///
    /// Some changes leave many photos as they are: a decode scale shrinks large ones only. The bound is therefore that
    /// of the photos with a noticeable drift, a thousandth of `budget` or more; at least the eight with the most. If
    /// fewer drift, it takes 299 photos too.
    pub fn bound(&self, budget: f64) -> Option<f64> {
        let least = budget * NEGLIGIBLE;
        let mut logs: Vec<f64> = self.distances.iter().map(|distance| distance.max(least).ln()).collect();
        logs.sort_by(|a, b| b.total_cmp(a));
        let noticeable = self.distances.iter().filter(|&&distance| distance > least).count();
        if (self.changes_pixels || noticeable < FEWEST_TOLERATED)
            && share_at_most(0, self.distances.len(), RARE[1]) > RARE[0]
        {
            return None;
        }
        logs.truncate(noticeable.max(FEWEST_TOLERATED));
        let factor = tolerance_factor(logs.len(), TOLERATED[0], TOLERATED[1])?;
        // NaN if a photo failed.
        let bound = (mean(&logs)? + factor * variance(&logs)?.sqrt()).exp();
        Some(if bound.is_nan() { f64::INFINITY } else { bound.max(logs[0].exp()) })
    }
}

impl DriftBudget {
    /// Returns the largest drift that the minimum cosine allows.
    pub fn most(&self) -> Option<f64> {
        self.min_cosine.map(|cosine| 1.0 - cosine)
    }

    /// Returns why a drift is beyond the budget, if it is.
    pub fn violation(&self, drift: &Drift) -> Option<String> {
        let (worst, failed) = drift.worst();
        if failed > 0 {
            return Some(format!("{failed} photos fail under it alone"));
        }
        if let Some(most) = self.most().filter(|&most| worst > most) {
            let beyond = drift.distances.iter().filter(|&&distance| distance > most).count();
            return Some(format!("{beyond} of {} photos drift more, up to {worst:.2e}", drift.distances.len()));
        }
        let (least, recall) = self.min_recall.zip(drift.recall)?;
        let [before, now] = recall.hits;
        ((now as f64) < least * before as f64).then(|| {
            let [before, now] = recall.hits.map(|hits| hits as f64 / recall.labelled as f64);
            format!("recall@1 is {now:.4}, the default's {before:.4}")
        })
    }

    /// Returns why a drift on the choice's half is not within the budget with a margin, if it is not.
    pub fn refusal(&self, drift: &Drift) -> Option<String> {
        let violation = self.violation(drift);
        if violation.is_some() {
            return violation;
        }
        let most = self.most()?;
        match drift.bound(most) {
            Some(bound) if bound <= most => None,
            Some(bound) => Some(format!("no photo drifts more, but the tolerance bound is {bound:.2e}")),
            None if drift.changes_pixels => {
                Some(format!("{} photos are too few to judge other pixels by", drift.distances.len()))
            }
            None => Some(format!("{} photos, most of which hardly drift, are too few", drift.distances.len())),
        }
    }

    /// Returns the confidence of a candidate's confirmation, which is the `look`th, from 0, on the same photos. The
    /// risks of all confirmations add up to at most that of the budget: a half of it for the first one, a quarter for
    /// the second, and so on.
    fn confidence_of(&self, look: usize) -> f64 {
        1.0 - (1.0 - self.confidence) / 2f64.powi(look as i32 + 1)
    }
}

/// A change of the default configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Another encoder or precision.
    Forward(String, DType),
    /// Another decoder.
    Decoder(String),
    /// Another decode scale.
    Scale(DecodeScale),
    /// Another resizer.
    Resizer(String),
}

impl Change {
    /// Returns every change of one backend, scale or precision that this build offers, and the reason of each that this
    /// machine cannot run.
    pub fn all(lab: &Lab<'_>) -> Vec<(Self, Option<String>)> {
        let rig = lab.rig;
        let base = lab.rig.base();
        let mut all = Vec::new();
        for encoder in rig.encoders() {
            for dtype in DType::ALL {
                all.push((Self::Forward(encoder.name.clone(), dtype), encoder.problem.clone()));
            }
        }
        for decoder in rig.decoders().into_iter().chain(rig.batched_decoders()) {
            all.push((Self::Decoder(decoder.name), decoder.problem));
        }
        all.extend([DecodeScale::Exact, DecodeScale::Fast, DecodeScale::Low].map(|scale| (Self::Scale(scale), None)));
        all.extend(rig.resizers().into_iter().map(|resizer| (Self::Resizer(resizer.name), resizer.problem)));
        all.retain(|(change, _)| change.of(&base) != base);
        all
    }

    /// Returns the setting with this change.
    fn of(&self, setting: &Setting) -> Setting {
        let setting = setting.clone();
        match self.clone() {
            Self::Forward(encoder, dtype) => Setting { encoder, dtype, ..setting },
            Self::Decoder(decoder) => Setting { decoder, ..setting },
            Self::Scale(scale) => Setting { scale, ..setting },
            Self::Resizer(resizer) => Setting { resizer, ..setting },
        }
    }
}

/// The configuration that was chosen, with the evidence.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// All trials, [`schema::DRIFT`].
    pub table: Table,
    /// The configuration, with workers, threads, batch and queues tuned.
    pub tuned: Tuned,
    /// Median images per second of the default configuration with the default's counts, and of the chosen setting, in
    /// rounds.
    pub rates: [f64; 2],
    /// The drift on the half that it was chosen by.
    pub choice: Drift,
    /// The drift on the other half, of exactly the setting that was chosen.
    pub held_out: Drift,
    /// Number of candidates that the held-out half was asked about, this one included.
    pub looks: usize,
    /// Confidence of this confirmation.
    pub confidence: f64,
}

impl Chosen {
    /// Returns the share of photos like the held-out ones that are within the budget, at least, with the budget's
    /// confidence.
    pub fn share(&self) -> f64 {
        1.0 - share_at_most(0, self.held_out.distances.len(), self.confidence)
    }

    /// Returns the share of labelled photos that lose their hit, at most, with the budget's confidence.
    pub fn lost(&self) -> Option<f64> {
        self.held_out.recall.map(|recall| share_at_most(recall.lost, recall.labelled, self.confidence))
    }
}

/// Measures a setting's drift on a half; the inner error is the reason why it cannot run.
pub type Measure<'a> = dyn FnMut(&Setting, Half) -> Result<Result<Drift, String>, LabError> + 'a;

/// Searches the changes of the rig's [`base`](crate::Rig::base), which is the default, for the fastest configuration
/// within `budget`. Then it tunes the counts for about `time`. Rates are those of `photos`.
///
/// # Errors
/// The errors of [`super::run`], and those of `drift`.
pub fn run(
    lab: &Lab<'_>,
    photos: &PhotoSet,
    changes: &[(Change, Option<String>)],
    budget: &DriftBudget,
    time: Duration,
    drift: &mut Measure<'_>,
) -> Result<Chosen, LabError> {
    let runs = LabRuns::new(lab, photos);
    let images = Vec::new();
    let mut trials = LabTrials { lab, photos, runs, images, time, drift };
    let search = BudgetSearch { trials: &mut trials, watch: lab.watch, seed: lab.seed, budget, seen: Vec::new() };
    search.choose(lab.rig.base(), changes, &photos.name)
}

/// The source of measurements.
trait Trials {
    fn drift(&mut self, setting: &Setting, half: Half) -> Result<Result<Drift, String>, LabError>;

    /// Returns the images of a run, and its images per second.
    fn rate(&mut self, setting: &Setting) -> Result<(u64, f64), LabError>;

    /// Tunes workers, threads, batch and queues.
    fn tune(&mut self, setting: &Setting) -> Result<Tuned, LabError>;
}

/// Measurements of the real engine.
struct LabTrials<'a, 'b> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    runs: LabRuns<'a>,
    /// Images of a setting's runs.
    images: Vec<(Setting, u64)>,
    time: Duration,
    drift: &'a mut Measure<'b>,
}

impl Trials for LabTrials<'_, '_> {
    fn drift(&mut self, setting: &Setting, half: Half) -> Result<Result<Drift, String>, LabError> {
        self.lab.go_on()?;
        (self.drift)(setting, half)
    }

    fn rate(&mut self, setting: &Setting) -> Result<(u64, f64), LabError> {
        let batch = setting.batch as u64;
        let images = match self.images.iter().find(|(other, _)| other == setting) {
            Some((_, images)) => *images,
            None => {
                let first = self.runs.rate(setting, setting.batch, 2 * batch)?;
                let batches = (first * seconds_of_run(self.time) / batch as f64).round() as u64;
                let images = batches.max(FEWEST_BATCHES as u64) * batch;
                self.images.push((setting.clone(), images));
                images
            }
        };
        Ok((images, self.runs.rate(setting, setting.batch, images)?))
    }

    fn tune(&mut self, setting: &Setting) -> Result<Tuned, LabError> {
        // Frees the encoders of the other candidates.
        self.runs = LabRuns::new(self.lab, self.photos);
        run_from(self.lab, self.photos, setting.clone(), self.time)
    }
}

/// A configuration that was tried.
struct Tried {
    setting: Setting,
    /// The drift on the choice's half, or the reason why it cannot run.
    drift: Result<Drift, String>,
    /// The reason why it is not within the budget.
    refusal: Option<String>,
    images: u64,
    rates: Vec<f64>,
    held_out: Option<Drift>,
    why: String,
}

impl Tried {
    fn is_within(&self) -> bool {
        self.drift.is_ok() && self.refusal.is_none()
    }

    fn rate(&self) -> f64 {
        median(&self.rates).unwrap_or(0.0)
    }
}

struct BudgetSearch<'a> {
    trials: &'a mut dyn Trials,
    watch: &'a dyn Watch,
    seed: u64,
    budget: &'a DriftBudget,
    seen: Vec<Tried>,
}

impl BudgetSearch<'_> {
    fn choose(mut self, base: Setting, changes: &[(Change, Option<String>)], photos: &str) -> Result<Chosen, LabError> {
        let first = self.look_at(&base)?;
        if let Err(why) = &self.seen[first].drift {
            return Err(LabError::Setting(format!("the default configuration cannot run: {why}")));
        }
        // It needs no margin.
        self.seen[first].refusal = None;
        self.seen[first].why = String::new();
        let mut alone = vec![first];
        for (change, problem) in changes {
            let setting = change.of(&base);
            match problem {
                Some(why) => self.note(setting, Err(why.clone())),
                None => alone.push(self.look_at(&setting)?),
            }
        }
        self.race(&alone)?;
        let mut usable = Vec::new();
        for (change, _) in changes {
            let setting = change.of(&base);
            if self.seen.iter().any(|seen| seen.is_within() && seen.setting == setting) {
                usable.push(change.clone());
            }
        }
        self.combine(first, &usable)?;
        self.confirm(first, photos)
    }

    /// Measures a setting's drift, unless that was done; returns its place.
    fn look_at(&mut self, setting: &Setting) -> Result<usize, LabError> {
        if let Some(at) = self.seen.iter().position(|seen| seen.setting == *setting) {
            return Ok(at);
        }
        self.watch.doing(&format!("drift of {setting}"));
        let changes_pixels = self.seen.first().is_some_and(|Tried { setting: default, .. }| {
            setting.decoder != default.decoder || setting.scale != default.scale || setting.resizer != default.resizer
        });
        let drift = self.trials.drift(setting, Half::Choice)?;
        self.note(setting.clone(), drift.map(|drift| Drift { changes_pixels, ..drift }));
        Ok(self.seen.len() - 1)
    }

    fn note(&mut self, setting: Setting, drift: Result<Drift, String>) {
        let scales = self.seen.first().is_some_and(|default| default.setting.scale != setting.scale);
        let refusal = drift.as_ref().ok().and_then(|drift| match drift.distances.iter().all(|&d| d <= ROUNDING) {
            true if scales => Some(format!("no photo is large enough for decode scale {}", setting.scale)),
            _ => self.budget.refusal(drift),
        });
        let why = refusal.clone().unwrap_or_default();
        self.seen.push(Tried { setting, drift, refusal, images: 0, rates: Vec::new(), held_out: None, why });
    }

    /// Measures the rates of these in rounds, unless none of them is new.
    fn race(&mut self, places: &[usize]) -> Result<(), LabError> {
        let places: Vec<usize> = places.iter().copied().filter(|&at| self.seen[at].drift.is_ok()).collect();
        if places.iter().all(|&at| !self.seen[at].rates.is_empty()) {
            return Ok(());
        }
        for round in 0..ROUNDS {
            for at in order(self.seed, places.len(), round) {
                let seen = &mut self.seen[places[at]];
                self.watch.doing(&format!("rate of {}", seen.setting));
                let (images, rate) = self.trials.rate(&seen.setting)?;
                seen.images = images;
                seen.rates.push(rate);
            }
        }
        Ok(())
    }

    /// Beginning with the default, takes the fastest change of each kind that is within the budget, until none is
    /// faster. The forward comes first, because it mostly takes the longest.
    fn combine(&mut self, first: usize, usable: &[Change]) -> Result<(), LabError> {
        let kinds = usable.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b));
        let kinds: Vec<&[Change]> = kinds.collect();
        let mut best = first;
        loop {
            let before = best;
            for kind in &kinds {
                let mut group = vec![best];
                for change in *kind {
                    let setting = change.of(&self.seen[best].setting);
                    let at = self.look_at(&setting)?;
                    group.extend((at != best).then_some(at));
                }
                self.race(&group)?;
                let within = group.into_iter().filter(|&at| self.seen[at].is_within());
                let fastest = within.max_by(|&a, &b| self.seen[a].rate().total_cmp(&self.seen[b].rate()));
                best = fastest.filter(|&at| self.is_faster(at, best)).unwrap_or(best);
            }
            if best == before {
                return Ok(());
            }
        }
    }

    fn is_faster(&self, at: usize, than: usize) -> bool {
        self.seen[at].rate() > self.seen[than].rate() * (1.0 + ALIKE)
    }

    /// Compares the fastest candidates with the held-out half, one after the other, until one is within the budget. The
    /// last is the default.
    fn confirm(mut self, first: usize, photos: &str) -> Result<Chosen, LabError> {
        let mut candidates: Vec<usize> = (0..self.seen.len()).collect();
        candidates.retain(|&at| self.seen[at].is_within() && self.is_faster(at, first));
        candidates.sort_by(|&a, &b| self.seen[b].rate().total_cmp(&self.seen[a].rate()));
        candidates.truncate(MOST_LOOKS);
        candidates.push(first);
        for (look, at) in candidates.into_iter().enumerate() {
            let tuned = self.trials.tune(&self.seen[at].setting)?;
            self.watch.doing(&format!("held-out photos under {}", tuned.setting));
            let held_out = self.trials.drift(&tuned.setting, Half::HeldOut)?.map_err(LabError::Setting)?;
            let refusal = self.budget.violation(&held_out);
            let seen = &mut self.seen[at];
            seen.held_out = Some(held_out.clone());
            if let Some(why) = refusal {
                seen.why = format!("held-out half: {why}");
                continue;
            }
            let photos_held = held_out.distances.len();
            seen.why = format!("all of {photos_held} held-out photos are within the budget");
            let choice = seen.drift.clone().unwrap_or_default();
            let confidence = self.budget.confidence_of(look);
            let looks = look + 1;
            let table = self.table(photos, at);
            let rates = self.compare(first, &tuned.setting)?;
            return Ok(Chosen { table, tuned, rates, choice, held_out, looks, confidence });
        }
        Err(LabError::Work("two runs of the default configuration differ by more than the budget".to_owned()))
    }

    /// Returns the median rates of the default and of a setting, in alternating runs.
    fn compare(&mut self, first: usize, setting: &Setting) -> Result<[f64; 2], LabError> {
        let settings = [self.seen[first].setting.clone(), setting.clone()];
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for at in order(self.seed, 2, round) {
                rates[at].push(self.trials.rate(&settings[at])?.1);
            }
        }
        Ok(rates.map(|rates| median(&rates).unwrap_or(0.0)))
    }

    fn table(&self, photos: &str, chosen: usize) -> Table {
        let mut table = Table::new(&schema::DRIFT);
        let most = self.budget.most();
        for (at, seen) in self.seen.iter().enumerate() {
            let Setting { decoder, resizer, encoder, dtype, .. } = &seen.setting;
            let drift = seen.drift.as_ref().ok();
            let spread = Spread::of(&seen.rates);
            let recall = drift.and_then(|drift| drift.recall);
            table.push([
                ("photos", photos.into()),
                ("decoder", decoder.as_str().into()),
                ("decode_scale", seen.setting.decode_scale().into()),
                ("resizer", resizer.as_str().into()),
                ("encoder", encoder.as_str().into()),
                ("dtype", dtype.name().into()),
                ("status", seen.drift.as_ref().map_or_else(|why| format!("n/a ({why})"), |_| "ok".to_owned()).into()),
                ("budget", most.into()),
                ("compared", drift.map(|drift| drift.distances.len()).into()),
                ("failed", drift.map(|drift| drift.worst().1).into()),
                ("drift_median", drift.and_then(Drift::median).into()),
                ("drift_max", drift.map(|drift| drift.worst().0).into()),
                ("drift_bound", most.and_then(|most| drift?.bound(most)).into()),
                ("recall", recall.map(|recall| recall.hits[1] as f64 / recall.labelled.max(1) as f64).into()),
                ("held_out", seen.held_out.as_ref().map(|drift| drift.distances.len()).into()),
                ("held_out_max", seen.held_out.as_ref().map(|drift| drift.worst().0).into()),
                ("images", drift.map(|_| seen.images).into()),
                ("samples", drift.map(|_| seen.rates.len()).into()),
                ("images_per_second", spread.map(|spread| spread.median).into()),
                ("images_per_second_min", spread.map(|spread| spread.min).into()),
                ("images_per_second_max", spread.map(|spread| spread.max).into()),
                ("within", seen.is_within().into()),
                ("chosen", (at == chosen).into()),
                ("why", seen.why.as_str().into()),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cell;

    /// Settings whose stages take as long as their backends' names say, and drift as much.
    #[derive(Default)]
    struct KnownTrials {
        /// Drift on the held-out half of settings with this decoder, in place of the choice's.
        held_out: Option<(&'static str, f64)>,
        looks: usize,
    }

    const BUDGET: DriftBudget = DriftBudget { min_cosine: Some(0.999), min_recall: None, confidence: 0.95 };

    /// Seconds and drift of a backend.
    fn known(name: &str) -> (f64, f64) {
        match name {
            "near" => (0.5, 1e-4),
            "far" => (0.1, 5e-3),
            "other" => (0.8, 2e-5),
            "halfway" => (0.5, 6e-4),
            "same" => (0.5, 0.0),
            _ => (1.0, 0.0),
        }
    }

    impl Trials for KnownTrials {
        fn drift(&mut self, setting: &Setting, half: Half) -> Result<Result<Drift, String>, LabError> {
            let names = [&setting.decoder, &setting.resizer, &setting.encoder];
            if names.iter().any(|name| *name == "absent") {
                return Ok(Err("no such library".to_owned()));
            }
            self.looks += usize::from(half == Half::HeldOut);
            let sum: f64 = names.iter().map(|name| known(name).1).sum();
            let worst = match self.held_out {
                Some((decoder, drift)) if half == Half::HeldOut && setting.decoder == decoder => drift,
                _ => sum,
            };
            Ok(Ok(Drift { distances: vec![worst; 400], ..Drift::default() }))
        }

        fn rate(&mut self, setting: &Setting) -> Result<(u64, f64), LabError> {
            let seconds = [&setting.decoder, &setting.resizer, &setting.encoder].map(|name| known(name).0);
            let noise = if setting.scale == DecodeScale::Exact { 1.0 } else { 1.2 };
            Ok((8, noise / seconds.iter().sum::<f64>()))
        }

        fn tune(&mut self, setting: &Setting) -> Result<Tuned, LabError> {
            let setting = Setting { workers: 7, ..setting.clone() };
            let table = Table::new(&schema::TUNING);
            let why = String::new();
            Ok(Tuned { table, setting, images_per_second: 1.0, before: 1.0, why })
        }
    }

    struct Silent;

    impl Watch for Silent {
        fn doing(&self, _: &str) {}
    }

    fn chosen(trials: &mut KnownTrials, changes: &[Change]) -> Chosen {
        let changes: Vec<_> = changes.iter().map(|change| (change.clone(), None)).collect();
        let search = BudgetSearch { trials, watch: &Silent, seed: 0, budget: &BUDGET, seen: Vec::new() };
        search.choose(Setting::plain(), &changes, "none").unwrap()
    }

    fn decoder(name: &str) -> Change {
        Change::Decoder(name.to_owned())
    }

    fn resizer(name: &str) -> Change {
        Change::Resizer(name.to_owned())
    }

    fn of(chosen: &Chosen) -> [&str; 3] {
        let Setting { decoder, resizer, encoder, .. } = &chosen.tuned.setting;
        [decoder, resizer, encoder]
    }

    #[test]
    fn the_fastest_within_the_budget_is_chosen_and_changes_are_combined() {
        let forward = Change::Forward("far".to_owned(), DType::F32);
        let chosen =
            chosen(&mut KnownTrials::default(), &[forward, decoder("near"), decoder("other"), resizer("other")]);
        assert_eq!(of(&chosen), ["near", "other", "plain"]);
        assert_eq!((chosen.tuned.setting.workers, chosen.looks), (7, 1));
        let rows = |column: &str, flag| {
            (0..chosen.table.len()).filter(|&row| *chosen.table.get(row, column) == Cell::Flag(flag)).count()
        };
        assert_eq!((rows("chosen", true), rows("within", false)), (1, 1));
        let [before, now] = chosen.rates;
        assert!((before - 1.0 / 3.0).abs() < 1e-9 && (now - 1.0 / 2.3).abs() < 1e-9, "{before} {now}");
    }

    /// Each is within the budget alone.
    #[test]
    fn a_combination_beyond_the_budget_is_not_chosen() {
        let chosen = chosen(&mut KnownTrials::default(), &[decoder("halfway"), resizer("halfway")]);
        assert_eq!(of(&chosen).iter().filter(|name| **name == "halfway").count(), 1);
        let both = (0..chosen.table.len())
            .find(|&row| ["decoder", "resizer"].iter().all(|name| *chosen.table.get(row, name) == "halfway".into()));
        assert_eq!(*chosen.table.get(both.unwrap(), "within"), Cell::Flag(false));
    }

    #[test]
    fn a_candidate_that_the_held_out_half_refuses_is_not_chosen_and_the_next_needs_more_confidence() {
        let mut trials = KnownTrials { held_out: Some(("near", 2e-3)), looks: 0 };
        let next = chosen(&mut trials, &[decoder("near"), decoder("other")]);
        assert_eq!((of(&next)[0], next.looks, trials.looks), ("other", 2, 2));
        assert!((next.confidence - 0.9875).abs() < 1e-12 && next.share() > 0.98);
        let default = chosen(&mut trials, &[decoder("near")]);
        assert_eq!(of(&default), ["plain"; 3]);
    }

    /// Its rate is that of the default, and noise may favour it.
    #[test]
    fn a_decode_scale_that_leaves_every_photo_alone_is_not_chosen() {
        let chosen = chosen(&mut KnownTrials::default(), &[Change::Scale(DecodeScale::Low), decoder("same")]);
        assert_eq!((chosen.tuned.setting.scale, of(&chosen)[0]), (DecodeScale::Exact, "same"));
        assert_eq!(*chosen.table.get(1, "within"), Cell::Flag(false));
        assert_eq!(*chosen.table.get(1, "why"), "no photo is large enough for decode scale low".into());
    }

    #[test]
    fn what_cannot_run_is_left_out_with_its_reason() {
        let chosen = chosen(&mut KnownTrials::default(), &[decoder("absent"), decoder("other")]);
        assert_eq!(*chosen.table.get(1, "status"), "n/a (no such library)".into());
        assert_eq!(of(&chosen)[0], "other");
    }

    fn drift(distances: &[f64]) -> Drift {
        Drift { distances: distances.to_vec(), ..Drift::default() }
    }

    /// Values of exp(mean + k · s), with k from the tables of `stats`.
    #[test]
    fn the_tolerance_bound_is_that_of_the_noticeable_drifts() {
        let spread: Vec<f64> = (0..20).map(|at| 1e-5 * 10f64.powf(f64::from(at % 2))).collect();
        // The mean of the logarithms is ln(√10 · 1e-5), s is √(20/19) · ln(√10).
        let expected = (10f64.sqrt() * 1e-5).ln() + 5.974 * (20.0_f64 / 19.0).sqrt() * 10f64.sqrt().ln();
        let bound = drift(&spread).bound(1e-3).unwrap();
        assert!((bound.ln() - expected).abs() < 0.15, "{bound}");
        // Photos that do not drift change nothing.
        let more = [spread.clone(), vec![0.0; 300]].concat();
        assert!((drift(&more).bound(1e-3).unwrap() / bound - 1.0).abs() < 1e-9);
        assert!(BUDGET.refusal(&drift(&spread)).unwrap().contains("tolerance bound"));
        assert_eq!(BUDGET.refusal(&drift(&[1e-5; 20])), None);
        // Other photos may have in them what makes other pixels drift.
        let pixels = |photos| Drift { changes_pixels: true, ..drift(&vec![1e-5; photos]) };
        assert!(BUDGET.refusal(&pixels(298)).unwrap().contains("other pixels"));
        assert_eq!(BUDGET.refusal(&pixels(299)), None);
        // A single photo that drifts may be the first of many.
        assert!(BUDGET.refusal(&drift(&[vec![9e-4], vec![0.0; 300]].concat())).is_some());
        assert_eq!(BUDGET.refusal(&drift(&[0.0; 300])), None);
        // The photos that it changes may be missing.
        assert!(BUDGET.refusal(&drift(&[0.0; 298])).unwrap().contains("too few"));
        assert_eq!(drift(&[0.0; 7]).bound(1e-3), None);
        assert!(BUDGET.refusal(&drift(&[0.0; 7])).is_some());
    }

    #[test]
    fn failures_and_lost_recall_are_beyond_the_budget() {
        let failed = drift(&[vec![1e-5; 30], vec![f64::INFINITY]].concat());
        assert!(BUDGET.violation(&failed).unwrap().contains("1 photos fail"));
        assert_eq!(failed.bound(1e-3), Some(f64::INFINITY));
        let budget = DriftBudget { min_cosine: None, min_recall: Some(0.99), confidence: 0.95 };
        let with =
            |now| Drift { recall: Some(Recall { labelled: 200, hits: [100, now], lost: 3 }), ..drift(&[0.5; 200]) };
        assert_eq!(budget.violation(&with(99)), None);
        assert!(budget.violation(&with(98)).unwrap().contains("0.4900"));
    }

    #[test]
    fn risks_of_all_looks_add_up_to_the_budgets() {
        let risks: f64 = (0..=MOST_LOOKS).map(|look| 1.0 - BUDGET.confidence_of(look)).sum();
        assert!(risks < 0.05 && risks > 0.045, "{risks}");
    }
}
