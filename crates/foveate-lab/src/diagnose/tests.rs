//! Diagnoses of known costs: each stage in turn is slow, and the diagnosis must name it. Nothing runs: the conclusions
//! depend only on costs, noise and seeds.

use std::time::Duration;

use super::depth::CacheDepth;
use super::interval::BootstrapInterval;
use super::job::DepthRun;
use super::ladder::{Ladder, about};
use super::options::{DiagnoseOptions, Verify};
use super::sample::{Length, TimedSample};
use super::verdict::Finding;
use crate::{LabError, Watch};

/// Milliseconds per image in each stage, with two threads each for reading and preparing.
#[derive(Clone, Copy, Debug)]
struct Costs {
    read: f64,
    decode: f64,
    resize: f64,
    batch: f64,
    copy_in: f64,
    forward: f64,
    write: f64,
}

const QUICK: Costs =
    Costs { read: 0.05, decode: 0.05, resize: 0.05, batch: 0.05, copy_in: 0.0, forward: 1.0, write: 0.05 };

/// A job whose rates follow from its costs.
struct KnownJob {
    costs: Costs,
    workers: u32,
    /// The reason why no batch stays on the device.
    on_host: Option<String>,
    /// Standard deviation of a sample's rate, relative to the rate.
    noise: f64,
    random: fastrand::Rng,
    samples: usize,
    elapsed: f64,
}

impl KnownJob {
    fn new(costs: Costs, seed: u64) -> Self {
        Self {
            costs,
            workers: 2,
            on_host: None,
            noise: 0.02,
            random: fastrand::Rng::with_seed(seed),
            samples: 0,
            elapsed: 0.0,
        }
    }

    /// Returns the images per second if the work replaced at `depth` costs nothing: of the slowest stage, or of all in
    /// turn on one thread.
    fn rate(&self, depth: CacheDepth) -> f64 {
        let from = |first: CacheDepth, ms: f64| if depth >= first { ms } else { 0.0 };
        let Costs { read, decode, resize, batch, copy_in, forward, write } = self.costs;
        let prepare =
            from(CacheDepth::Samples, batch) + from(CacheDepth::Pixels, resize) + from(CacheDepth::Bytes, decode);
        let read = from(CacheDepth::Nothing, read);
        let write = from(CacheDepth::Written, write);
        let forward = forward + from(CacheDepth::OnHost, copy_in);
        let ms = match self.workers {
            0 => read + prepare + forward + write,
            workers => (read / 2.0).max(prepare / f64::from(workers)).max(forward).max(write),
        };
        1e3 / ms
    }

    /// Returns an approximately normal value with mean 0 and variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }
}

impl DepthRun for KnownJob {
    fn warm_up(&mut self, depth: CacheDepth) -> Result<Result<(Length, TimedSample), String>, LabError> {
        let skipped = self.on_host.clone().filter(|_| depth == CacheDepth::OnDevice);
        let length = Length { images: 64, batch: 8, seconds: 64.0 / self.rate(depth) };
        let sample = self.sample(depth, 16)?;
        self.samples = 0;
        Ok(skipped.map_or(Ok((length, sample)), Err))
    }

    fn elapsed(&self) -> f64 {
        self.elapsed
    }

    fn sample(&mut self, depth: CacheDepth, images: u64) -> Result<TimedSample, LabError> {
        self.elapsed += images as f64 / self.rate(depth);
        let rate = self.rate(depth) * (self.noise * self.normal()).exp();
        self.samples += 1;
        Ok(TimedSample { rate, overall: rate, busy: Some(0.5), device_busy: None, device_bytes: None })
    }
}

struct Silent;

impl Watch for Silent {
    fn doing(&self, _: &str) {}
}

fn measure(job: &mut KnownJob, seed: u64) -> Ladder {
    Ladder::measure(job, &Silent, seed, &DiagnoseOptions::new("none")).unwrap()
}

/// Number of seeds; each gives other noise and other orders.
const SEEDS: u64 = 12;

/// Checks that the stage is found for every seed, in the fewest rounds.
#[track_caller]
fn assert_named(stage: &str, change: impl Fn(&mut KnownJob)) {
    for seed in 0..SEEDS {
        let mut job = KnownJob::new(QUICK, seed);
        change(&mut job);
        let ladder = measure(&mut job, seed);
        let finding = Finding::of(&ladder);
        assert_eq!(finding.culprit().map(CacheDepth::adds), Some(stage), "seed {seed}: {:?}", ladder.drops());
        assert!(ladder.open().is_empty() && ladder.rounds() == 7, "seed {seed}: {} rounds", ladder.rounds());
    }
}

#[test]
fn each_stage_that_is_slow_is_named() {
    assert_named("read", |job| job.costs.read = 6.0);
    assert_named("decode", |job| job.costs.decode = 6.0);
    assert_named("resize", |job| job.costs.resize = 6.0);
    assert_named("batch", |job| job.costs.batch = 6.0);
    assert_named("copy-in", |job| job.costs.copy_in = 3.0);
    assert_named("write", |job| job.costs.write = 3.0);
}

#[test]
fn of_two_slow_stages_the_slower_is_named() {
    assert_named("decode", |job| (job.costs.resize, job.costs.decode) = (3.0, 15.0));
}

#[test]
fn one_thread_is_diagnosed_as_well() {
    assert_named("decode", |job| (job.workers, job.costs.decode) = (0, 3.0));
}

#[test]
fn where_nothing_stays_on_a_device_the_next_depth_is_the_reference() {
    assert_named("write", |job| {
        job.on_host = Some("no device".to_owned());
        job.costs.write = 3.0;
    });
}

#[test]
fn a_depth_that_beats_its_bound_is_an_error_of_the_instrument() {
    for seed in 0..SEEDS {
        assert_eq!(measure(&mut KnownJob::new(QUICK, seed), seed).contradiction(), None, "seed {seed}");
        // As if a batch on the device did not overlap with the next, and one that is copied did.
        let mut job = KnownJob::new(Costs { copy_in: -0.2, ..QUICK }, seed);
        let said = measure(&mut job, seed).contradiction().unwrap();
        assert!(
            said.contains("with one batch on the host the job is faster than with one batch on the device"),
            "{said}"
        );
    }
}

/// A sample of 64 images takes 0.064 s at each of seven depths.
#[test]
fn the_time_that_it_takes_is_told_from_what_warming_up_measured() {
    let mut options = DiagnoseOptions::new("none");
    let ladder = measure(&mut KnownJob::new(QUICK, 0), 0);
    let estimate = |options: &_, left| ladder.estimate(options, 0, left);
    assert_eq!(estimate(&options, 90.0), "finding the limit takes 4 s to 13 s");
    let beyond = "beyond its share of the time budget of 2 min: intervals need two samples at each depth";
    assert_eq!(estimate(&options, 0.5), format!("finding the limit takes 1 s, {beyond}"));
    options.verify = Some(Verify::All);
    let expected = "finding the limit takes 4 s to 13 s, then trying a remedy 2 s (at most 3 of them)";
    assert_eq!(estimate(&options, 90.0), expected);
    assert_eq!([99.0, 101.0, 3600.0].map(about), ["99 s", "2 min", "60 min"]);
}

/// Decoding takes most of the forward's time in parallel, and costs nothing.
#[test]
fn a_healthy_job_is_bound_by_the_forward() {
    for seed in 0..SEEDS {
        let mut job = KnownJob::new(Costs { decode: 1.6, ..QUICK }, seed);
        let ladder = measure(&mut job, seed);
        assert!(matches!(Finding::of(&ladder), Finding::Forward(_)), "seed {seed}: {:?}", ladder.drops());
    }
}

/// Differences between the machine's own runs are no stage's cost. One diagnosis in 20 may be wrong.
#[test]
fn noise_is_no_difference() {
    let named = |seed| {
        let mut job = KnownJob { noise: 0.3, ..KnownJob::new(QUICK, seed) };
        Finding::of(&measure(&mut job, seed)).culprit().is_some()
    };
    assert!((0..40).filter(|&seed| named(seed)).count() <= 2);
}

/// With too much noise for the first look, the diagnosis continues, and most results are right in the end.
#[test]
fn more_rounds_are_made_where_few_do_not_decide() {
    let mut more = 0;
    let mut right = 0;
    for seed in 0..SEEDS {
        let mut job = KnownJob { noise: 0.25, ..KnownJob::new(Costs { decode: 3.2, ..QUICK }, seed) };
        let ladder = measure(&mut job, seed);
        assert_eq!(job.samples, 7 * ladder.rounds(), "a sample a round at each depth");
        more += usize::from(ladder.rounds() > 7);
        right += usize::from(Finding::of(&ladder).culprit() == Some(CacheDepth::Bytes));
    }
    assert!(more >= 9 && right >= 9, "{more} went on, {right} are right of {SEEDS}");
}

#[test]
fn stages_that_cost_the_same_are_not_decided_and_the_verdict_says_so() {
    // Reading halves the rate that decoding left: both drops are one half.
    let mut job = KnownJob::new(Costs { decode: 3.9, read: 8.0, ..QUICK }, 3);
    let ladder = measure(&mut job, 3);
    assert_eq!(ladder.rounds(), 28, "the most rounds");
    let culprit = Finding::of(&ladder).culprit().unwrap();
    let open: Vec<CacheDepth> = ladder.open().iter().map(|drop| drop.depth).collect();
    let mut both = [&[culprit], &open[..]].concat();
    both.sort();
    assert_eq!(both, [CacheDepth::Bytes, CacheDepth::Nothing]);
}

/// A round of seven depths takes 0.7 s, with the shortest samples a quarter of that.
#[test]
fn a_time_budget_shortens_samples_and_then_leaves_out_rounds_but_no_depth() {
    let job = |seconds| {
        let mut job = KnownJob::new(Costs { decode: 6.0, ..QUICK }, 1);
        let budget = Duration::from_secs_f64(seconds);
        let options = DiagnoseOptions { budget, remedies: false, ..DiagnoseOptions::new("none") };
        let ladder = Ladder::measure(&mut job, &Silent, 1, &options).unwrap();
        assert_eq!(Finding::of(&ladder).culprit(), Some(CacheDepth::Bytes), "{:?}", ladder.drops());
        assert_eq!(ladder.cut().is_none(), seconds == 60.0, "{:?}", ladder.cut());
        assert!(job.elapsed <= seconds || ladder.rounds() == 2, "{} of {seconds} s", job.elapsed);
        (ladder.rounds(), job.samples)
    };
    // Where no more fits than the shortest samples, those that warmed up are the first round.
    assert_eq!([0.0, 1.0, 3.0, 60.0].map(job), [(2, 7), (5, 4 * 7), (7, 7 * 7), (7, 7 * 7)]);
}

/// An interval of 95 % misses once in twenty times, of few rounds too.
#[test]
fn the_interval_holds_the_true_drop() {
    [2, 3, 4, 7].into_iter().for_each(the_interval_of_rounds_holds_the_true_drop);
}

fn the_interval_of_rounds_holds_the_true_drop(rounds: usize) {
    const MEASURED: u64 = 60;
    let holds = |seed: &u64| {
        let job = || KnownJob::new(Costs { decode: 8.0, ..QUICK }, *seed);
        let options = DiagnoseOptions { rounds, most_rounds: rounds.max(5) * 4, ..DiagnoseOptions::new("none") };
        let ladder = Ladder::measure(&mut job(), &Silent, *seed, &options).unwrap();
        let BootstrapInterval { low, high, .. } =
            ladder.drops().iter().find(|drop| drop.depth == CacheDepth::Bytes).unwrap().part;
        let drop = 1.0 - job().rate(CacheDepth::Bytes) / job().rate(CacheDepth::Pixels);
        low <= drop && drop <= high
    };
    let held = (0..MEASURED).filter(holds).count();
    assert!(held >= 54, "{held} of {MEASURED} hold it with {rounds} rounds");
}
