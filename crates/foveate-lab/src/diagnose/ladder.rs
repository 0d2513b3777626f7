//! The job at successive depths, in rounds, until the intervals decide.

use serde::{Deserialize, Serialize};

use super::depth::Depth;
use super::interval::{Interval, median_of};
use super::job::DepthRun;
use super::options::DiagnoseOptions;
use super::sample::Sample;
use crate::order::order;
use crate::{Cell, LabError, Setting, Table, Watch, schema, stats};

/// The measurements at every depth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ladder {
    rungs: Vec<Rung>,
    seed: u64,
    least_drop: f64,
    /// Maximum number of looks at the intervals.
    looks: usize,
}

/// The measurements at one depth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rung {
    pub(super) depth: Depth,
    images: u64,
    /// Seconds that a sample takes, estimated while warming up.
    seconds: f64,
    samples: Vec<Sample>,
    /// The reason if nothing was measured.
    skipped: Option<String>,
}

/// The drop in throughput when one more stage works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drop {
    /// The depth whose stage was added.
    pub(super) depth: Depth,
    /// 1 − rate ÷ rate before.
    pub(super) part: Interval,
    /// True if the interval lies above the smallest drop that matters.
    pub(super) significant: bool,
}

impl Ladder {
    /// Samples every depth of `job` in rounds, in an order that changes from round to round, until the verdict [is
    /// decided](Self::open) or `options.most_rounds` is reached.
    pub(super) fn measure(
        job: &mut dyn DepthRun,
        watch: &dyn Watch,
        seed: u64,
        options: &DiagnoseOptions,
    ) -> Result<Self, LabError> {
        let mut rungs = Vec::new();
        // The deepest comes first: its vectors are the reference for the others.
        for depth in Depth::ALL.into_iter().rev() {
            watch.doing(&format!("warming up, cached: {}", depth.cached()));
            let warm = job.warm_up(depth)?;
            let (images, seconds) = *warm.as_ref().unwrap_or(&(0, 0.0));
            rungs.insert(0, Rung { depth, images, seconds, samples: Vec::new(), skipped: warm.err() });
        }
        let looks = options.looks();
        let mut ladder = Self { rungs, seed, least_drop: options.least_drop, looks: looks.len() };
        watch.note(&ladder.estimate(options));
        let mut round = 0;
        for look in looks {
            while round < look {
                round += 1;
                let progress = format!("round {round} of {look} to {}", options.most_rounds);
                ladder
                    .sample(job, round - 1, |depth| watch.doing(&format!("{progress}, cached: {}", depth.cached())))?;
            }
            if ladder.open().is_empty() {
                break;
            }
        }
        Ok(ladder)
    }

    /// Says how long the rounds take, and the trials.
    pub(super) fn estimate(&self, options: &DiagnoseOptions) -> String {
        let round: f64 = self.rungs.iter().map(|rung| rung.seconds).sum();
        let [least, most] = [options.rounds, options.most_rounds].map(|rounds| about(round * rounds as f64));
        let rounds = format!("finding the limit takes {least} to {most}");
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
        // A round has a sample of either; so does warming up, nearly.
        2.0 * (options.rounds + 1) as f64 * self.whole().seconds
    }

    /// Takes a sample at each depth.
    fn sample(&mut self, job: &mut dyn DepthRun, round: usize, tell: impl Fn(Depth)) -> Result<(), LabError> {
        for at in order(self.seed, self.rungs.len(), round) {
            let rung = &mut self.rungs[at];
            if rung.skipped.is_none() {
                tell(rung.depth);
                rung.samples.push(job.sample(rung.depth, rung.images)?);
            }
        }
        Ok(())
    }

    /// Creates a ladder with these rates at each depth, one value per round.
    #[cfg(test)]
    pub(super) fn of(rates: [Vec<f64>; 7], busy: f64) -> Self {
        let sample = |rate| Sample { rate, overall: rate, busy: Some(busy) };
        let rung = |(depth, rates): (Depth, Vec<f64>)| {
            let samples = rates.into_iter().map(sample).collect();
            Rung { depth, images: 8, seconds: 1.0, samples, skipped: None }
        };
        let rungs = Depth::ALL.into_iter().zip(rates).map(rung).collect();
        Self { rungs, seed: 1, least_drop: 0.05, looks: 1 }
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

    /// Returns the unchanged job.
    pub(super) fn whole(&self) -> &Rung {
        &self.rungs[self.rungs.len() - 1]
    }

    /// Returns the median rate of a depth.
    pub(super) fn rate(&self, rung: &Rung) -> Interval {
        let rates = rung.rates();
        Interval::over_rounds(rates.len(), self.looks, self.seed, |rounds| median_of(&rates, rounds))
    }

    fn drop_between(&self, before: &Rung, rung: &Rung) -> Interval {
        let (before, after) = (before.rates(), rung.rates());
        let part = |rounds: &[usize]| 1.0 - median_of(&after, rounds) / median_of(&before, rounds);
        Interval::over_rounds(after.len(), self.looks, self.seed, part)
    }

    /// Returns the cost of each stage, from one depth to the next.
    ///
    /// A stage with a real cost works at every deeper depth too, and at no shallower one. So the interval of a drop
    /// counts only under two conditions on the medians. The unchanged job must also be slower than the depth before,
    /// and the depth itself slower than the shallowest. One of six intervals is wrong by chance now and then, but
    /// hardly ever with both.
    pub(super) fn drops(&self) -> Vec<Drop> {
        let slower = |before: &Rung, rung: &Rung| 1.0 - rung.median_rate() / before.median_rate() > self.least_drop;
        let drop = |(before, rung): (&Rung, &Rung)| {
            let part = self.drop_between(before, rung);
            let confirmed = slower(before, self.whole()) && slower(self.reference(), rung);
            Drop { depth: rung.depth, part, significant: confirmed && part.low > self.least_drop }
        };
        self.measured().zip(self.measured().skip(1)).map(drop).collect()
    }

    /// Returns the drops that more rounds could still turn into the culprit. Their interval reaches that of the largest
    /// significant drop, or the smallest drop that matters if none is significant. The result is empty once the verdict
    /// is decided.
    pub(super) fn open(&self) -> Vec<Drop> {
        let drops = self.drops();
        let culprit = largest(&drops);
        let within_reach = culprit.map_or(self.least_drop, |culprit| culprit.part.low);
        let is_culprit = |drop: &Drop| culprit.is_some_and(|culprit| culprit.depth == drop.depth);
        drops.iter().filter(|drop| !is_culprit(drop) && drop.part.high >= within_reach).copied().collect()
    }

    /// Returns the depth before `depth` with its median rate, and the median rate of `depth`.
    pub(super) fn around(&self, depth: Depth) -> ((Depth, f64), f64) {
        let before = self.measured().take_while(|rung| rung.depth < depth).last().unwrap_or(self.reference());
        let at = self.measured().find(|rung| rung.depth == depth).unwrap_or(self.whole());
        ((before.depth, before.median_rate()), at.median_rate())
    }

    /// Returns the total cost of all stages.
    pub(super) fn whole_drop(&self) -> Interval {
        self.drop_between(self.reference(), self.whole())
    }

    /// Returns the rows of [`schema::DIAGNOSIS`].
    pub(super) fn table(&self, photos: &str, setting: &Setting, culprit: Option<Depth>) -> Table {
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
            let mut set = |name: &str, value: Cell| table.set(at, name, value);
            if let Some(reason) = &rung.skipped {
                set("status", format!("n/a ({reason})").into());
                continue;
            }
            let rate = self.rate(rung);
            set("status", "ok".into());
            set("images", rung.images.into());
            set("samples", rung.samples.len().into());
            set("images_per_second", rate.value.into());
            set("low", rate.low.into());
            set("high", rate.high.into());
            set("cpu_busy", rung.cpu_busy().map_or(Cell::Empty, Cell::from));
            if let Some(drop) = drops.iter().find(|drop| drop.depth == rung.depth) {
                set("drop", drop.part.value.into());
                set("drop_low", drop.part.low.into());
                set("drop_high", drop.part.high.into());
                set("significant", drop.significant.into());
            }
        }
        table
    }
}

/// Formats an estimated time.
pub(super) fn about(seconds: f64) -> String {
    if seconds < 100.0 { format!("{:.0} s", seconds.ceil()) } else { format!("{:.0} min", (seconds / 60.0).ceil()) }
}

/// Returns the largest of the significant drops.
pub(super) fn largest(drops: &[Drop]) -> Option<Drop> {
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
