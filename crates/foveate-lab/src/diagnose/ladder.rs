//! The job at successive depths, in rounds, until the intervals decide.

use serde::{Deserialize, Serialize};

use super::depth::CacheDepth;
use super::interval::{BootstrapInterval, median_of};
use super::job::DepthRun;
use super::options::{DiagnoseOptions, FEWEST_ROUNDS};
use super::sample::{Length, TimedSample};
use crate::order::order;
use crate::run::card_columns;
use crate::{Cell, LabError, Setting, Table, Watch, schema, stats};

/// The measurements at every depth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ladder {
    rungs: Vec<Rung>,
    seed: u64,
    least_drop: f64,
    /// Maximum number of looks at the intervals.
    looks: usize,
    /// Parts that the time budget cut, if any.
    cut: Option<String>,
}

/// The measurements at one depth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rung {
    pub(super) depth: CacheDepth,
    length: Length,
    samples: Vec<TimedSample>,
    /// The reason if nothing was measured.
    skipped: Option<String>,
}

/// The drop in throughput when one more stage works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StageDrop {
    /// The depth whose stage was added.
    pub(super) depth: CacheDepth,
    /// 1 − rate ÷ rate before.
    pub(super) part: BootstrapInterval,
    /// True if the interval lies above the smallest drop that matters.
    pub(super) significant: bool,
}

impl Ladder {
    /// Samples every depth of `job` in rounds, in an order that changes from round to round, until the verdict [is
    /// decided](Self::open), `options.most_rounds` is reached, or the time is over.
    pub(super) fn measure(
        job: &mut dyn DepthRun,
        watch: &dyn Watch,
        seed: u64,
        options: &DiagnoseOptions,
    ) -> Result<Self, LabError> {
        let mut rungs = Vec::new();
        // The deepest comes first: its vectors are the reference for the others.
        for depth in CacheDepth::ALL.into_iter().rev() {
            watch.doing(&format!("warming up, cached: {}", depth.cached()));
            let warm = job.warm_up(depth)?;
            let (length, sample) =
                warm.as_ref().map_or_else(|_| Default::default(), |&(length, sample)| (length, Some(sample)));
            if rungs.is_empty() {
                // The slowest depth: the others take as long at most.
                let most = (FEWEST_ROUNDS * CacheDepth::ALL.len()) as f64 * length.shortened(0.0).seconds;
                if most > options.seconds_for_limit() {
                    watch.note(&format!("finding the limit takes up to {}{}", about(most), beyond(options)));
                }
            }
            rungs.insert(0, Rung { depth, length, samples: sample.into_iter().collect(), skipped: warm.err() });
        }
        let looks = options.looks();
        let mut ladder = Self { rungs, seed, least_drop: options.least_drop, looks: looks.len(), cut: None };
        let time = options.seconds_for_limit();
        let (is_short, mut round) = ladder.fit(options, time - job.elapsed());
        watch.note(&ladder.estimate(options, round, time - job.elapsed()));
        let mut is_late = false;
        for look in looks {
            while round < look {
                is_late = round >= FEWEST_ROUNDS && job.elapsed() + ladder.round_seconds() > time;
                if is_late {
                    break;
                }
                round += 1;
                let progress = format!("round {round} of {look} to {}", options.most_rounds);
                ladder
                    .sample(job, round - 1, |depth| watch.doing(&format!("{progress}, cached: {}", depth.cached())))?;
            }
            if is_late || ladder.open().is_empty() {
                break;
            }
        }
        if round < options.rounds {
            ladder.looks = 1;
        }
        if is_short || is_late {
            ladder.cut = Some(ladder.told_cut(options, job.elapsed()));
        }
        Ok(ladder)
    }

    /// Shortens the samples so that `options.rounds` fit into the seconds `left`. If they are then no longer than those
    /// that warmed up, these are the first round. Returns whether samples are short, and the rounds done.
    fn fit(&mut self, options: &DiagnoseOptions, left: f64) -> (bool, usize) {
        let share = options.share(self.round_seconds(), left);
        let mut counts = share < 1.0 && !options.cold;
        for rung in self.rungs.iter_mut().filter(|rung| rung.skipped.is_none()) {
            rung.length = if share < 1.0 { rung.length.shortened(share) } else { rung.length };
            counts &= rung.length.is_shortest();
        }
        if !counts {
            self.rungs.iter_mut().for_each(|rung| rung.samples.clear());
        }
        (share < 1.0, usize::from(counts))
    }

    /// Says what the time budget cut.
    fn told_cut(&self, options: &DiagnoseOptions, elapsed: f64) -> String {
        let least = self.measured().map(|rung| rung.length.images).min().unwrap_or(0);
        format!(
            "for lack of time, samples are fewer or shorter than usual and intervals wider: {} rounds (usually {} to {}), \
             from {least} images on; finding the limit took {}, the time budget is {}; a longer one or smaller batches \
             narrow it down",
            self.rounds(),
            options.rounds,
            options.most_rounds,
            about(elapsed),
            about(options.budget.as_secs_f64()),
        )
    }

    /// Returns what the time budget cut, if anything.
    pub(super) fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn round_seconds(&self) -> f64 {
        self.rungs.iter().map(|rung| rung.length.seconds).sum()
    }

    /// Says how long the rounds after those `done` take, in the seconds `left`, and the trials.
    pub(super) fn estimate(&self, options: &DiagnoseOptions, done: usize, left: f64) -> String {
        let [fewest, least, most] = [FEWEST_ROUNDS, options.rounds, options.most_rounds]
            .map(|rounds| self.round_seconds() * (rounds - done.min(rounds)) as f64);
        let [least, most] = [least, most].map(|seconds| about(seconds.min(left.max(fewest))));
        let range = if least == most { most } else { format!("{least} to {most}") };
        let beyond = if fewest > left { beyond(options) } else { String::new() };
        let rounds = format!("finding the limit takes {range}{beyond}");
        match options.verify {
            None => rounds,
            Some(_) => {
                let trial = about(self.trial_seconds(options));
                format!("{rounds}, then trying a remedy {trial} (at most {} of them)", options.most_tries())
            }
        }
    }

    /// Returns the seconds that the trial of a remedy takes, if the job is as fast with it as without.
    pub(super) fn trial_seconds(&self, options: &DiagnoseOptions) -> f64 {
        let length = self.whole().length;
        // A round has a sample of either; so does warming up, nearly.
        let [wanted, fewest] = [(options.rounds, length), (FEWEST_ROUNDS, length.shortened(0.0))]
            .map(|(rounds, length)| 2.0 * (rounds + 1) as f64 * length.seconds);
        wanted.min(options.budget.as_secs_f64().max(fewest))
    }

    /// Takes a sample at each depth.
    fn sample(&mut self, job: &mut dyn DepthRun, round: usize, tell: impl Fn(CacheDepth)) -> Result<(), LabError> {
        for at in order(self.seed, self.rungs.len(), round) {
            let rung = &mut self.rungs[at];
            if rung.skipped.is_none() {
                tell(rung.depth);
                rung.samples.push(job.sample(rung.depth, rung.length.images)?);
            }
        }
        Ok(())
    }

    /// Creates a ladder with these rates at each depth, one value per round.
    #[cfg(test)]
    pub(super) fn of(rates: [Vec<f64>; 7], busy: f64) -> Self {
        let mut rungs = Vec::new();
        for (depth, rates) in CacheDepth::ALL.into_iter().zip(rates) {
            let mut samples = Vec::new();
            for rate in rates {
                samples.push(TimedSample {
                    rate,
                    overall: rate,
                    busy: Some(busy),
                    device_busy: None,
                    device_bytes: None,
                });
            }
            rungs.push(Rung { depth, length: Length { images: 8, batch: 4, seconds: 1.0 }, samples, skipped: None });
        }
        Self { rungs, seed: 1, least_drop: 0.05, looks: 1, cut: None }
    }

    fn measured(&self) -> impl DoubleEndedIterator<Item = &Rung> {
        self.rungs.iter().filter(|rung| rung.skipped.is_none())
    }

    /// Returns true if nothing stays on a device, because the forward runs on the cores that decode.
    pub(super) fn on_host(&self) -> bool {
        self.rungs[0].skipped.is_some()
    }

    /// Returns the smallest drop that matters.
    pub(super) fn least_drop(&self) -> f64 {
        self.least_drop
    }

    /// Returns the number of rounds so far.
    pub(super) fn rounds(&self) -> usize {
        self.whole().samples.len()
    }

    /// Returns the shallowest depth measured: the forward alone, or nearly.
    pub(super) fn reference(&self) -> &Rung {
        self.measured().next().unwrap_or(&self.rungs[0])
    }

    /// Describes how the ladder contradicts itself, if it does: with less to do, the job cannot be slower beyond noise.
    pub(super) fn contradiction(&self) -> Option<String> {
        let bound = self.reference();
        let faster = self.measured().skip(1).find(|rung| self.drop_between(bound, rung).high < -self.least_drop)?;
        Some(format!(
            "an error of the instrument: with {} the job is faster than with {}, which leaves it less to do",
            faster.depth.cached(),
            bound.depth.cached()
        ))
    }

    /// Returns the unchanged job.
    pub(super) fn whole(&self) -> &Rung {
        &self.rungs[self.rungs.len() - 1]
    }

    /// Returns the median rate of a depth.
    pub(super) fn rate(&self, rung: &Rung) -> BootstrapInterval {
        let rates = rung.rates();
        BootstrapInterval::over_rounds(rates.len(), self.looks, self.seed, |rounds| median_of(&rates, rounds))
    }

    fn drop_between(&self, before: &Rung, rung: &Rung) -> BootstrapInterval {
        let before = before.rates();
        let after = rung.rates();
        let BootstrapInterval { value, low, high } =
            BootstrapInterval::over_rounds(after.len(), self.looks, self.seed, |rounds| {
                median_of(&after, rounds) / median_of(&before, rounds)
            });
        BootstrapInterval { value: 1.0 - value, low: 1.0 - high, high: 1.0 - low }
    }

    /// Returns the cost of each stage, from one depth to the next.
    ///
    /// A stage with a real cost works at every deeper depth too, and at no shallower one. So the interval of a drop
    /// counts only under two conditions on the medians. The unchanged job must also be slower than the depth before,
    /// and the depth itself slower than the shallowest. One of six intervals is wrong by chance now and then, but
    /// hardly ever with both.
    pub(super) fn drops(&self) -> Vec<StageDrop> {
        let mut drops = Vec::new();
        for (before, rung) in self.measured().zip(self.measured().skip(1)) {
            let part = self.drop_between(before, rung);
            let confirmed = self.is_slower(self.whole(), before) && self.is_slower(rung, self.reference());
            drops.push(StageDrop { depth: rung.depth, part, significant: confirmed && part.low > self.least_drop });
        }
        drops
    }

    /// Returns true if the medians of `rung` and `than` differ by more than the least drop that matters.
    fn is_slower(&self, rung: &Rung, than: &Rung) -> bool {
        1.0 - rung.median_rate() / than.median_rate() > self.least_drop
    }

    /// Returns the drops that more rounds could still turn into the culprit. Their interval reaches that of the largest
    /// significant drop, or the smallest drop that matters if none is significant. The result is empty once the verdict
    /// is decided.
    pub(super) fn open(&self) -> Vec<StageDrop> {
        let mut drops = self.drops();
        let culprit = largest(&drops);
        let within_reach = culprit.map_or(self.least_drop, |culprit| culprit.part.low);
        drops
            .retain(|drop| culprit.is_none_or(|culprit| culprit.depth != drop.depth) && drop.part.high >= within_reach);
        drops
    }

    /// Returns the depth before `depth` with its median rate, and the median rate of `depth`.
    pub(super) fn around(&self, depth: CacheDepth) -> ((CacheDepth, f64), f64) {
        let before = self.measured().take_while(|rung| rung.depth < depth).last().unwrap_or(self.reference());
        let at = self.measured().find(|rung| rung.depth == depth).unwrap_or(self.whole());
        ((before.depth, before.median_rate()), at.median_rate())
    }

    /// Returns the total cost of all stages.
    pub(super) fn whole_drop(&self) -> BootstrapInterval {
        self.drop_between(self.reference(), self.whole())
    }

    /// Returns the rows of [`schema::DIAGNOSIS`].
    pub(super) fn table(&self, photos: &str, setting: &Setting, culprit: Option<CacheDepth>) -> Table {
        let mut table = Table::new(&schema::DIAGNOSIS);
        let drops = self.drops();
        for (at, rung) in self.rungs.iter().enumerate() {
            table.push([
                ("photos", photos.into()),
                ("step", 0_usize.into()),
                ("setting", setting.to_string().into()),
                ("depth", at.into()),
                ("cached", rung.depth.cached().into()),
                ("adds", rung.depth.adds().into()),
                ("culprit", (culprit == Some(rung.depth)).into()),
            ]);
            if let Some(reason) = &rung.skipped {
                table.set(at, "status", format!("n/a ({reason})").into());
                continue;
            }
            let rate = self.rate(rung);
            table.set(at, "status", "ok".into());
            table.set(at, "images", rung.length.images.into());
            table.set(at, "samples", rung.samples.len().into());
            table.set(at, "images_per_second", rate.value.into());
            table.set(at, "low", rate.low.into());
            table.set(at, "high", rate.high.into());
            table.set(at, "cpu_busy", rung.cpu_busy().map_or(Cell::Empty, Cell::from));
            for (column, cell) in card_columns(rung.samples.iter().map(TimedSample::cards)) {
                table.set(at, column, cell);
            }
            if let Some(drop) = drops.iter().find(|drop| drop.depth == rung.depth) {
                table.set(at, "drop", drop.part.value.into());
                table.set(at, "drop_low", drop.part.low.into());
                table.set(at, "drop_high", drop.part.high.into());
                table.set(at, "significant", drop.significant.into());
            }
        }
        table
    }
}

/// Formats an estimated time.
pub(super) fn about(seconds: f64) -> String {
    if seconds < 100.0 { format!("{:.0} s", seconds.ceil()) } else { format!("{:.0} min", (seconds / 60.0).ceil()) }
}

fn beyond(options: &DiagnoseOptions) -> String {
    let budget = about(options.budget.as_secs_f64());
    format!(", beyond its share of the time budget of {budget}: intervals need two samples at each depth")
}

/// Returns the largest of the significant drops.
pub(super) fn largest(drops: &[StageDrop]) -> Option<StageDrop> {
    let significant = drops.iter().filter(|drop| drop.significant);
    significant.max_by(|a, b| a.part.value.total_cmp(&b.part.value)).copied()
}

impl Rung {
    fn rates(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.rate).collect()
    }

    fn median_rate(&self) -> f64 {
        stats::median(&self.rates()).unwrap_or(0.0)
    }

    /// Returns the processor's median utilization, if the system reports it.
    pub(super) fn cpu_busy(&self) -> Option<f64> {
        let busy: Option<Vec<f64>> = self.samples.iter().map(|sample| sample.busy).collect();
        stats::median(&busy?)
    }
}
