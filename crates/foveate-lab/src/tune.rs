//! `foveate tune`: finds the best workers, threads, batch, readers and prefetch for this machine and these photos by
//! measurement.
//!
//! The model proposes candidates, and runs decide. First the parts are measured. Then the model's best settings and the
//! requested one run in rounds, and the slowest drop out. From the winner, the search lowers and raises one value at a
//! time; each change is compared in runs that alternate with the winner's. Among settings that are equally fast, within
//! the noise or a few percent, it takes the one with fewer threads, then the smaller batch.

pub mod budget;
mod runs;

use std::collections::BTreeSet;
use std::time::Duration;

use foveate_core::error_chain;

use self::runs::{LabRuns, Runs};
use crate::stats::{Spread, mean};
use crate::{Calibration, Lab, LabError, PhotoSet, Setting, Table, Watch, schema};

/// Rates within this fraction of each other count as equal.
const ALIKE: f64 = 0.025;
/// A setting whose predicted rate is lower than the best by this fraction is not tried.
const HOPELESS: f64 = 0.15;
/// A run below this fraction of the best rate needs no second one.
const HOPELESS_RUN: f64 = 0.8;
/// A setting that is slower than the best by this fraction drops out in the first round.
const DROPS_OUT: f64 = 0.10;
/// Rounds of the settings that the search begins with.
const ROUNDS: usize = 3;
/// Minimum number of rounds, even beyond the budget: a single run is no evidence.
const LEAST_ROUNDS: usize = 2;
/// Maximum pairs of runs that compare two settings; a setting that needs more resources must win all of them.
const PAIRS: usize = 3;
/// Batch sizes to consider, besides the requested one.
const BATCHES: [usize; 5] = [8, 16, 32, 64, 128];
/// Maximum batch size on a CPU, unless requested: larger ones gain little there and are slow to measure.
const MOST_ON_CPU: usize = 32;
/// Maximum number of readers.
const MOST_READERS: usize = 32;
/// Maximum number of workers, unless there are more cores.
const MOST_WORKERS: usize = 16;
/// Number of runs that share the budget after calibration; their maximum and minimum length in seconds.
const RUNS: f64 = 24.0;
const RUN_SECONDS: [f64; 2] = [0.25, 4.0];
/// Minimum batches of a run. Its rate counts from the first one stored to the last, so there is one interval less.
const FEWEST_BATCHES: usize = 4;
/// The knee is the smallest batch size whose forward is slower than the best by at most this fraction.
const KNEE: f64 = 0.05;

/// A value of a setting that the search lowers and raises, with its setter and getter.
type Count = (fn(&Setting, usize) -> Setting, fn(&Setting) -> usize);
const COUNTS: [Count; 2] = [
    (|setting, workers| Setting { workers, ..setting.clone() }, |setting| setting.workers),
    (|setting, prefetch| Setting { prefetch, ..setting.clone() }, |setting| setting.prefetch),
];
const READERS: Count = (|setting, readers| Setting { readers, ..setting.clone() }, |setting| setting.readers);

/// The result of tuning.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// All trials, [`schema::TUNING`].
    pub table: Table,
    /// The chosen setting.
    pub setting: Setting,
    /// Its median images per second.
    pub images_per_second: f64,
    /// Median images per second of the requested setting.
    pub before: f64,
    /// The choice and its reasons, in a few lines of text.
    pub why: String,
}

/// Searches for about `budget`, starting from the rig's [`base`](crate::Rig::base). It changes workers, threads, batch,
/// readers and prefetch. It takes longer if the requested setting alone needs longer to measure.
///
/// # Errors
/// The errors of [`Calibration::measure`] and [`Lab::run`].
pub fn run(lab: &Lab<'_>, photos: &PhotoSet, budget: Duration) -> Result<Tuned, LabError> {
    run_from(lab, photos, lab.rig.base(), budget)
}

/// Searches for about `budget`, starting from `base`.
fn run_from(lab: &Lab<'_>, photos: &PhotoSet, base: Setting, budget: Duration) -> Result<Tuned, LabError> {
    let context = lab.rig.context();
    let machine =
        TuningMachine { cores: context.cores, on_cpu: context.is_on_cpu(), has_readers: !photos.is_delivered() };
    search(&mut LabRuns::new(lab, photos), lab.watch, base, machine, budget).map(|tuner| tuner.tuned(&photos.name))
}

fn search<'a>(
    runs: &'a mut dyn Runs,
    watch: &'a dyn Watch,
    base: Setting,
    machine: TuningMachine,
    budget: Duration,
) -> Result<Tuner<'a>, LabError> {
    let mut tuner = Tuner::new(runs, watch, base, machine, budget)?;
    let start = tuner.start()?;
    tuner.climb(start)?;
    Ok(tuner)
}

/// The resources that settings may use.
#[derive(Clone, Copy, Debug)]
struct TuningMachine {
    cores: usize,
    /// True if the forward runs on the cores that decode.
    on_cpu: bool,
    /// True if reader threads read the photos. Containers and objects are read ahead without them.
    has_readers: bool,
}

/// A setting that was run.
struct Trial {
    setting: Setting,
    images: u64,
    rates: Vec<f64>,
    /// The trial that it took turns with, and its rate ÷ that one's in each turn.
    beside: Option<(usize, Vec<f64>)>,
    why: String,
}

impl Trial {
    fn rate(&self) -> f64 {
        Spread::of(&self.rates).map_or(0.0, |spread| spread.median)
    }
}

struct Tuner<'a> {
    runs: &'a mut dyn Runs,
    watch: &'a dyn Watch,
    cores: usize,
    has_readers: bool,
    budget: Duration,
    run_seconds: f64,
    base: Setting,
    calibration: Calibration,
    /// Calibrated numbers of forward threads.
    threads: Vec<usize>,
    /// Batch sizes to consider.
    batches: Vec<usize>,
    trials: Vec<Trial>,
    /// Index of the best trial so far.
    best: usize,
    notes: Vec<String>,
}

/// The result of a challenger against the best so far.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Faster(f64),
    Alike(f64),
    Slower(f64),
}

impl<'a> Tuner<'a> {
    /// Calibrates the model and prepares the search.
    fn new(
        runs: &'a mut dyn Runs,
        watch: &'a dyn Watch,
        base: Setting,
        TuningMachine { cores, on_cpu, has_readers }: TuningMachine,
        budget: Duration,
    ) -> Result<Self, LabError> {
        let threads = if on_cpu { thread_choices(cores, base.threads) } else { vec![base.threads] };
        let workers = base.workers.max(1);
        let most = if on_cpu { MOST_ON_CPU } else { BATCHES[BATCHES.len() - 1] };
        let mut batches: BTreeSet<usize> = BATCHES.into_iter().filter(|&batch| batch <= most).collect();
        batches.insert(base.batch);
        let mut settings = Vec::new();
        for &batch in &batches {
            settings.extend(threads.iter().map(|&threads| Setting { threads, workers, batch, ..base.clone() }));
        }
        let mut notes = Vec::new();
        let calibration = match runs.calibrate(&settings) {
            // The requested batch size may still work: a larger one can exceed a device's memory.
            Err(LabError::Encode(error)) => {
                notes.push(format!("no other batch than {}: {}", base.batch, error_chain(&error)));
                batches = BTreeSet::from([base.batch]);
                settings.retain(|setting| setting.batch == base.batch);
                runs.calibrate(&settings)?
            }
            measured => measured?,
        };
        let run_seconds = seconds_of_run(budget.saturating_sub(runs.elapsed()));
        let batches = batches.into_iter().collect();
        let trials = Vec::new();
        Ok(Self {
            runs,
            watch,
            cores,
            has_readers,
            budget,
            run_seconds,
            base,
            calibration,
            threads,
            batches,
            trials,
            best: 0,
            notes,
        })
    }

    // ---- where the search begins

    /// Returns the winner of rounds between the requested setting and the model's best.
    fn start(&mut self) -> Result<usize, LabError> {
        let asked = self.base.clone();
        let mut runners = vec![self.trial(asked, "the configuration asked for".to_owned())];
        for (setting, expected) in self.expected_best()? {
            if !runners.iter().any(|&trial| self.trials[trial].setting == setting) {
                let why = format!("the model expects {expected:.1} images/s of it");
                runners.push(self.trial(setting, why));
            }
        }
        for round in 0..ROUNDS {
            if round >= LEAST_ROUNDS && (runners.len() == 1 || !self.has_time_for(&runners)) {
                break;
            }
            let images = self.images(&runners);
            for &trial in &runners {
                self.sample(trial, images)?;
            }
            let best = runners.iter().map(|&trial| self.trials[trial].rate()).fold(0.0, f64::max);
            runners.retain(|&trial| trial == 0 || self.trials[trial].rate() >= best * (1.0 - DROPS_OUT));
        }
        // The configuration asked for is the first trial, and has run in every round that another has.
        let asked = self.trials[0].rates.clone();
        for trial in &mut self.trials[1..] {
            let ratios = trial.rates.iter().zip(&asked).map(|(rate, asked)| rate / asked).collect();
            trial.beside = Some((0, ratios));
        }
        let best = runners.iter().map(|&trial| self.trials[trial].rate()).fold(0.0, f64::max);
        runners.retain(|&trial| self.trials[trial].rate() >= best * (1.0 - ALIKE));
        runners.sort_by_key(|&trial| cost(&self.trials[trial].setting));
        Ok(runners[0])
    }

    /// For each number of forward threads, returns the cheapest of the settings that the model predicts to be best,
    /// with its predicted rate. Hopeless ones are omitted.
    fn expected_best(&self) -> Result<Vec<(Setting, f64)>, LabError> {
        let mut best = Vec::new();
        for &threads in &self.threads {
            let batch = self.knee(threads)?;
            let mut expected = Vec::new();
            for workers in doublings(MOST_WORKERS.max(self.cores)) {
                for readers in self.readers() {
                    let setting = Setting { threads, workers, readers, batch, ..self.base.clone() };
                    expected.push((self.calibration.predict(&setting)?.images_per_second, setting));
                }
            }
            let most = expected.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
            expected.retain(|(rate, _)| *rate >= most * (1.0 - ALIKE / 2.0));
            expected.sort_by_key(|(_, setting)| cost(setting));
            best.extend(expected.into_iter().next().map(|(rate, setting)| (setting, rate)));
        }
        let most = best.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        best.retain(|(_, rate)| *rate >= most * (1.0 - HOPELESS));
        Ok(best)
    }

    /// Returns the numbers of readers to consider.
    fn readers(&self) -> Vec<usize> {
        if self.has_readers { doublings(MOST_READERS).collect() } else { vec![self.base.readers] }
    }

    /// Returns the smallest batch size whose forward takes nearly as little time per image as any.
    fn knee(&self, threads: usize) -> Result<usize, LabError> {
        let mut seconds = Vec::new();
        for &batch in &self.batches {
            let setting = Setting { threads, batch, ..self.base.clone() };
            let measured = self.calibration.measured(&setting)?;
            let cost = measured.forward.iter().find(|cost| cost.batch as usize == batch);
            seconds.extend(cost.map(|cost| (batch, cost.seconds / batch as f64)));
        }
        let least = seconds.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
        let knee = seconds.iter().find(|(_, seconds)| *seconds <= least * (1.0 + KNEE));
        Ok(knee.map_or(self.base.batch, |(batch, _)| *batch))
    }

    // ---- one value after the other

    /// Starting from `best`, lowers and raises one value at a time while that helps and time is left.
    fn climb(&mut self, mut best: usize) -> Result<(), LabError> {
        let mut next = self.neighbours(best)?;
        while !next.is_empty() && self.has_time_for(&[best, best, best, best]) {
            let (what, setting) = next.remove(0);
            if self.trials.iter().any(|trial| trial.setting == setting) {
                continue;
            }
            let cheaper = cost(&setting) < cost(&self.trials[best].setting);
            let challenger = self.trial(setting, what);
            let verdict = self.compare(best, challenger, if cheaper { 2 } else { PAIRS })?;
            let taken =
                matches!(verdict, Comparison::Faster(_)) || (cheaper && matches!(verdict, Comparison::Alike(_)));
            let says = verdict.says(taken);
            let why = &mut self.trials[challenger].why;
            *why = format!("{why}: {says}");
            if taken {
                best = challenger;
                next = self.neighbours(best)?;
            }
        }
        self.best = best;
        Ok(())
    }

    /// Returns settings that differ from a trial's in one value and may be better. Cheaper ones come first, unless the
    /// model predicts them to be hopeless. Dearer ones follow, unless the model predicts them to be slower.
    fn neighbours(&self, trial: usize) -> Result<Vec<(String, Setting)>, LabError> {
        let best = &self.trials[trial].setting;
        let now = self.calibration.predict(best)?.images_per_second;
        let mut fewer = Vec::new();
        let mut more = Vec::new();
        for (with, count) in COUNTS.into_iter().chain(self.has_readers.then_some(READERS)) {
            let count = count(best);
            for few in doublings(count.saturating_sub(1)) {
                // Jumps to the smallest value that the model predicts to suffice.
                let setting = with(best, few);
                if few < count && self.calibration.predict(&setting)?.images_per_second / now >= 1.0 - ALIKE / 2.0 {
                    fewer.push(setting);
                    break;
                }
            }
            fewer.extend((count > 1).then(|| with(best, count / 2)));
            more.push(with(best, count + count.div_ceil(2).max(1)));
        }
        if let Some(&batch) = self.batches.iter().rfind(|&&batch| batch < best.batch) {
            fewer.push(Setting { batch, ..best.clone() });
        }
        if let Some(&batch) = self.batches.iter().find(|&&batch| batch > best.batch) {
            more.push(Setting { batch, ..best.clone() });
        }
        let mut neighbours = Vec::new();
        for (settings, least) in [(fewer, 1.0 - HOPELESS), (more, 1.0 - ALIKE)] {
            for setting in settings {
                if self.calibration.predict(&setting)?.images_per_second / now >= least {
                    neighbours.push((best.changes_to(&setting), setting));
                }
            }
        }
        Ok(neighbours)
    }

    /// Alternates runs of both: `least` pairs, and more until they differ clearly or the maximum is reached.
    fn compare(&mut self, best: usize, challenger: usize, least: usize) -> Result<Comparison, LabError> {
        let images = self.images(&[best, challenger]);
        let mut ratios = Vec::new();
        while ratios.len() < PAIRS {
            let theirs = self.sample(challenger, images)?;
            let ours = self.sample(best, images)?;
            ratios.push(theirs / ours);
            let clearly = ratios.iter().all(|&ratio| ratio < 1.0 - 2.0 * ALIKE)
                || ratios.iter().all(|&ratio| ratio > 1.0 + 2.0 * ALIKE);
            if (ratios.len() >= least && (clearly || !self.has_time_for(&[best, challenger])))
                || ratios[0] < HOPELESS_RUN
            {
                break;
            }
        }
        let verdict = Comparison::of(&ratios);
        self.trials[challenger].beside = Some((best, ratios));
        Ok(verdict)
    }

    // ---- runs

    fn trial(&mut self, setting: Setting, why: String) -> usize {
        self.trials.push(Trial { setting, images: 0, rates: Vec::new(), beside: None, why });
        self.trials.len() - 1
    }

    /// Returns the images of a run that compares these trials, the same for each.
    fn images(&self, trials: &[usize]) -> u64 {
        let settings = trials.iter().map(|&trial| &self.trials[trial].setting);
        let largest = settings.clone().map(|setting| setting.batch).max().unwrap_or(1);
        let rates = settings.filter_map(|setting| self.calibration.predict(setting).ok());
        let slowest = rates.map(|prediction| prediction.images_per_second).fold(f64::INFINITY, f64::min);
        let batches = (slowest * self.run_seconds / largest as f64).round().clamp(1.0, 1e6) as usize;
        (batches.max(FEWEST_BATCHES) * largest) as u64
    }

    fn sample(&mut self, trial: usize, images: u64) -> Result<f64, LabError> {
        let Trial { setting, why, .. } = &self.trials[trial];
        let Setting { workers, threads, batch, readers, prefetch, .. } = setting;
        self.watch.doing(&format!(
            "{workers} workers, {threads} forward threads, batch {batch}, {readers} readers, prefetch {prefetch} ({why})"
        ));
        let most_batch = self.batches.last().copied().unwrap_or(*batch);
        let rate = self.runs.rate(setting, most_batch, images)?;
        let trial = &mut self.trials[trial];
        trial.images = images;
        trial.rates.push(rate);
        Ok(rate)
    }

    /// Returns true if one run of each still fits the budget, going by their earlier runs.
    fn has_time_for(&self, trials: &[usize]) -> bool {
        let images = self.images(trials) as f64;
        let seconds = trials.iter().map(|&trial| {
            let rate = self.trials[trial].rate();
            if rate > 0.0 { images / rate } else { self.run_seconds }
        });
        self.runs.elapsed() + Duration::from_secs_f64(seconds.sum::<f64>()) <= self.budget
    }

    // ---- the outcome

    fn tuned(self, photos: &str) -> Tuned {
        let best = self.best;
        let mut table = Table::new(&schema::TUNING);
        for (at, Trial { setting, images, rates, beside, why }) in self.trials.iter().enumerate() {
            let spread = Spread::of(rates);
            let beside = beside.as_ref();
            let times = beside.and_then(|(_, ratios)| mean(ratios)).or((at == 0).then_some(1.0));
            let turns = beside.and_then(|(_, ratios)| Spread::of(ratios));
            table.push([
                ("photos", photos.into()),
                ("workers", setting.workers.into()),
                ("threads", setting.threads.into()),
                ("batch", setting.batch.into()),
                ("prefetch", setting.prefetch.into()),
                ("readers", setting.readers.into()),
                ("images", (*images).into()),
                ("samples", rates.len().into()),
                ("images_per_second", spread.map(|spread| spread.median).into()),
                ("images_per_second_min", spread.map(|spread| spread.min).into()),
                ("images_per_second_max", spread.map(|spread| spread.max).into()),
                ("beside", beside.map(|(other, _)| other + 1).into()),
                ("times", times.into()),
                ("times_low", turns.map(|turns| turns.min).into()),
                ("times_high", turns.map(|turns| turns.max).into()),
                ("chosen", (at == best).into()),
                ("why", why.as_str().into()),
            ]);
        }
        let chosen = &self.trials[best];
        // Runs that took turns tell how much faster it is; rates of other minutes do not.
        let before = chosen.rate() / self.times_asked(best);
        let why = self.explain(best);
        Tuned { table, setting: chosen.setting.clone(), images_per_second: chosen.rate(), before, why }
    }

    /// Returns how many times as fast a trial is as the configuration asked for: along the trials that each took turns
    /// with.
    fn times_asked(&self, mut trial: usize) -> f64 {
        let mut times = 1.0;
        while let Some((beside, ratios)) = &self.trials[trial].beside {
            times *= mean(ratios).unwrap_or(1.0);
            trial = *beside;
        }
        times
    }

    fn explain(&self, best: usize) -> String {
        let Trial { setting, .. } = &self.trials[best];
        let times = self.times_asked(best);
        let now = self.trials[best].rate();
        let changes = self.base.changes_to(setting);
        let mut lines = vec![match changes.as_str() {
            "" => format!("the configuration asked for is as good as any that was tried: {now:.3} images/s"),
            changes => format!("{changes}: {now:.3} images/s, {times:.2} times as fast as before, in turns"),
        }];
        if let Ok(prediction) = self.calibration.predict(setting) {
            lines.push(format!("limit: {}; {}", prediction.limit, prediction.why));
        }
        let percent = ALIKE * 100.0;
        lines.push(format!("of settings within {percent} % of each other: fewer threads, then the smaller batch"));
        lines.extend(self.notes.iter().cloned());
        lines.join("\n")
    }
}

impl Comparison {
    /// Decides by the challenger's rates ÷ the best's: it is faster if every ratio says so, slower if their average
    /// does.
    fn of(ratios: &[f64]) -> Self {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = mean(ratios).unwrap_or(1.0);
        if least > 1.0 + ALIKE {
            Self::Faster(ratio)
        } else if ratio < 1.0 - ALIKE {
            Self::Slower(ratio)
        } else {
            Self::Alike(ratio)
        }
    }

    fn says(self, taken: bool) -> String {
        match self {
            Self::Faster(ratio) => format!("{:.1} % faster, taken", (ratio - 1.0).abs() * 100.0),
            Self::Slower(ratio) => format!("{:.1} % slower", (ratio - 1.0).abs() * 100.0),
            Self::Alike(_) if taken => "as fast within the noise, and takes less: taken".to_owned(),
            Self::Alike(_) => "no faster than the noise, and takes more".to_owned(),
        }
    }
}

/// Returns the seconds of each run that shares the time that is left.
fn seconds_of_run(left: Duration) -> f64 {
    (left.as_secs_f64() / RUNS).clamp(RUN_SECONDS[0], RUN_SECONDS[1])
}

/// Returns the resources that a setting takes, dearest first.
fn cost(setting: &Setting) -> [usize; 4] {
    [setting.workers + setting.threads, setting.batch, setting.readers, setting.prefetch]
}

/// Returns the numbers of forward threads to try: every core, every core but one, half of them, and the requested
/// number.
fn thread_choices(cores: usize, asked: usize) -> Vec<usize> {
    let choices = BTreeSet::from([cores, cores - cores.min(1), cores / 2, asked]);
    choices.into_iter().filter(|&threads| threads > 0).collect()
}

/// Yields 1, 2, 4, … up to `most`.
pub(crate) fn doublings(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1_usize), |n| n.checked_mul(2)).take_while(move |&n| n <= most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cell;
    use crate::calibrate::KnownCosts;

    /// Runs that take what the model predicts, on their own clock.
    struct Predicted {
        costs: KnownCosts,
        calibration: Option<Calibration>,
        seconds: f64,
    }

    impl Runs for Predicted {
        fn calibrate(&mut self, settings: &[Setting]) -> Result<Calibration, LabError> {
            let known = Calibration::known(2, &self.costs, settings);
            Ok(self.calibration.insert(known).clone())
        }

        fn rate(&mut self, setting: &Setting, _: usize, images: u64) -> Result<f64, LabError> {
            let calibration = self.calibration.as_ref().expect("calibrated first");
            let prediction = calibration.predict(setting)?;
            self.seconds += images as f64 / prediction.over(images);
            Ok(prediction.images_per_second)
        }

        fn elapsed(&self) -> Duration {
            Duration::from_secs_f64(self.seconds)
        }
    }

    struct Silent;

    impl Watch for Silent {
        fn doing(&self, _: &str) {}
    }

    /// Tunes for `budget` predicted seconds, and returns the seconds that it took.
    fn tuned(costs: KnownCosts, workers: usize, budget: u64) -> (Tuned, f64) {
        let mut runs = Predicted { costs, calibration: None, seconds: 0.0 };
        let machine = TuningMachine { cores: 2, on_cpu: false, has_readers: true };
        let tuner = search(
            &mut runs,
            &Silent,
            Setting { workers, readers: 8, ..Setting::plain() },
            machine,
            Duration::from_secs(budget),
        )
        .unwrap();
        let tuned = tuner.tuned("none");
        (tuned, runs.seconds)
    }

    #[test]
    fn a_slow_decoder_is_given_the_workers_that_it_needs() {
        let costs = KnownCosts { decode: 12e-3, forward: 3e-3, ..KnownCosts::default() };
        let (tuned, _) = tuned(costs, 1, 60);
        assert!((4..=5).contains(&tuned.setting.workers), "{tuned:?}");
        assert!(tuned.images_per_second > 3.5 * tuned.before, "{tuned:?}");
        let is_chosen = |row: &usize| *tuned.table.get(*row, "chosen") == Cell::Flag(true);
        let chosen: Vec<usize> = (0..tuned.table.len()).filter(is_chosen).collect();
        assert_eq!(chosen.len(), 1);
        assert_eq!(tuned.table.number(chosen[0], "workers"), Some(tuned.setting.workers as f64));
        assert!(tuned.why.contains("workers 1 to "), "{tuned:?}");
    }

    #[test]
    fn no_more_is_taken_than_a_healthy_job_needs() {
        let costs = KnownCosts { decode: 1e-3, forward: 4e-3, ..KnownCosts::default() };
        let (tuned, _) = tuned(costs, 8, 60);
        assert!(tuned.setting.workers <= 2 && tuned.setting.readers <= 2, "{tuned:?}");
        assert!(tuned.images_per_second > 0.97 * tuned.before, "{tuned:?}");
    }

    #[test]
    fn the_search_ends_with_its_budget() {
        let costs = KnownCosts { decode: 12e-3, forward: 3e-3, ..KnownCosts::default() };
        let (few, seconds) = tuned(costs, 1, 10);
        assert!(seconds < 20.0, "{seconds} s");
        assert!(few.table.len() < tuned(costs, 1, 200).0.table.len());
    }

    #[test]
    fn a_difference_counts_only_beyond_the_noise() {
        assert!(matches!(Comparison::of(&[1.10, 1.12]), Comparison::Faster(_)));
        assert!(matches!(Comparison::of(&[0.90, 0.91]), Comparison::Slower(_)));
        assert!(matches!(Comparison::of(&[1.01, 0.99]), Comparison::Alike(_)));
        // Faster on average, but the runs disagree.
        assert!(matches!(Comparison::of(&[1.30, 0.90]), Comparison::Alike(_)));
    }

    #[test]
    fn choices_are_few_and_above_zero() {
        assert_eq!(thread_choices(1, 1), [1]);
        assert_eq!(thread_choices(2, 2), [1, 2]);
        assert_eq!(thread_choices(16, 4), [4, 8, 15, 16]);
        assert_eq!(doublings(6).collect::<Vec<_>>(), [1, 2, 4]);
    }
}
