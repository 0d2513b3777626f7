//! Stages that share one machine's cores: a configuration's throughput.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, positive};
use crate::measured::Cost;
use crate::{Configuration, Measured, Place, PlanError};

/// A configuration's expected throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Images per second once the pipeline is full.
    pub images_per_second: f64,
    /// The bottleneck.
    pub bound: Bottleneck,
    /// All groups of threads, in pipeline order.
    pub stages: Vec<StageLoad>,
    /// Core seconds in use ÷ available core seconds, 0..=1.
    pub cores_utilization: f64,
    /// The bound in a sentence, with its numbers.
    pub why: String,
    /// Images per batch.
    pub batch: u32,
    /// Seconds between batches once the pipeline is full.
    pub cycle_seconds: f64,
    /// Seconds before the first forward can begin: reading and decoding one batch with nothing else running.
    pub fill_seconds: f64,
    /// Seconds of the last forward and its writing, with nothing else running.
    pub drain_seconds: f64,
}

/// A configuration's bottleneck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The threads of one stage are always busy; more or faster ones would help.
    Stage {
        /// [`StageLoad::name`].
        stage: String,
    },
    /// Several stages keep the cores busy; only less work or more cores help.
    Cores {
        /// The stage with the largest share.
        largest: String,
    },
    /// One thread runs all stages in turn.
    Sequential {
        /// The stage with the largest share of the time.
        largest: String,
    },
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stage { stage } => f.write_str(stage),
            Self::Cores { largest } => write!(f, "cores (mostly {largest})"),
            Self::Sequential { largest } => write!(f, "one thread (mostly {largest})"),
        }
    }
}

/// One group of threads in a configuration, if it has a cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageLoad {
    /// [`Place::name`], or "storage".
    pub name: String,
    /// Threads; 0 for a store.
    pub threads: u32,
    /// Images per second of these threads alone.
    pub ceiling: f64,
    /// The fraction of the time that these threads work or wait for a device or disk, if no other work takes their
    /// cores: 0..=1.
    pub utilization: f64,
    /// Cores in use, on average over time.
    pub cores: f64,
}

impl Prediction {
    /// Seconds of a run of `images` images: filling, cycles and draining.
    pub fn seconds_for(&self, images: u64) -> f64 {
        let batches = images as f64 / f64::from(self.batch);
        if batches < 1.0 {
            return batches * (self.fill_seconds + self.drain_seconds);
        }
        self.fill_seconds + (batches - 1.0) * self.cycle_seconds + self.drain_seconds
    }

    /// Images per second of a run of `images` images, start and end included: the rate that a short measured run shows.
    pub fn images_per_second_over(&self, images: u64) -> f64 {
        images as f64 / self.seconds_for(images)
    }
}

/// A group of threads with its core use.
struct BatchLoad {
    name: &'static str,
    threads: u32,
    /// Seconds per batch, alone.
    seconds: f64,
    /// Cores in use during that time.
    cores: f64,
}

impl BatchLoad {
    /// `threads` threads that share work of `cost` perfectly.
    fn divided(name: &'static str, threads: u32, cost: Cost) -> Self {
        let threads_of_work = f64::from(threads);
        let cores = if cost.seconds > 0.0 { threads_of_work * cost.cpu_seconds / cost.seconds } else { 0.0 };
        Self { name, threads, seconds: cost.seconds / threads_of_work, cores }
    }
}

/// One stage is the bound if the cycle is at most this factor longer than that stage alone.
const ALONE: f64 = 1.03;

/// A measured run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// Its configuration.
    pub configuration: Configuration,
    /// Images of the run, start and end included; `None` if the rate is the full pipeline's.
    pub images: Option<u64>,
    /// Images per second.
    pub images_per_second: f64,
}

/// More interference than this means a wrong model.
const MOST_INTERFERENCE: f64 = 4.0;

impl Measured {
    /// Predicts the throughput of `configuration`.
    ///
    /// Between two batches every group of threads has a batch's worth of work. It begins when the last batch leaves,
    /// and rests when it is done. While the working groups want more cores than there are, all are slowed alike
    /// (processor sharing). Let `u` be each group's work (seconds alone) in ascending order and `N` the cores wanted by
    /// the groups not yet done. A cycle then takes `Σ (u_k − u_(k−1)) · max(1, N_k ÷ cores)`. With enough cores that is
    /// the slowest group; with too few it is the total of the core seconds ÷ cores.
    ///
    /// # Errors
    /// As [`Measured::check`]; also for no readers, batch or encoders, and for forward threads that were not measured.
    pub fn predict(&self, configuration: &Configuration) -> Result<Prediction, PlanError> {
        self.check()?;
        at_least_one("the batch", configuration.batch)?;
        if configuration.workers == 0 { self.sequential(configuration) } else { self.threaded(configuration) }
    }

    /// The images per second that [`Measured::predict`] gives for a measured run, start and end included as in that
    /// run.
    ///
    /// # Errors
    /// As [`Measured::predict`].
    pub fn predict_run(&self, run: &MeasuredRun) -> Result<f64, PlanError> {
        let prediction = self.predict(&run.configuration)?;
        Ok(run.images.map_or(prediction.images_per_second, |images| prediction.images_per_second_over(images)))
    }

    /// The measurements with the interference that fits `runs` best: the least sum of squared `ln(predicted ÷
    /// measured)`.
    ///
    /// One run in which threads outnumber cores is enough. Calibration runs are not evidence for the model; judge it by
    /// others.
    ///
    /// # Errors
    /// As [`Measured::predict`]; also without runs, and for a rate that is not positive and finite.
    pub fn calibrated(&self, runs: &[MeasuredRun]) -> Result<Self, PlanError> {
        if runs.is_empty() {
            return Err(PlanError::Impossible("no run to calibrate with".to_owned()));
        }
        let interference = least(0.0, MOST_INTERFERENCE, |interference| {
            let model = Self { interference, ..self.clone() };
            let mut squares = 0.0;
            for run in runs {
                let measured = positive("a run's images per second", run.images_per_second)?;
                squares += (model.predict_run(run)? / measured).ln().powi(2);
            }
            Ok(squares)
        })?;
        Ok(Self { interference, ..self.clone() })
    }

    fn per_batch(&self, place: Place, batch: u32) -> Cost {
        let cost = self.cost_at(place);
        let images = f64::from(batch);
        Cost { seconds: cost.seconds * images, cpu_seconds: cost.cpu_seconds * images }
    }

    /// The forward and its thread's other work, for one batch.
    fn encoder_cost(&self, configuration: &Configuration) -> Result<Cost, PlanError> {
        let forward = self.forward_cost(configuration.forward_threads, configuration.batch)?;
        let beside = self.per_batch(Place::Encoder, configuration.batch);
        Ok(Cost { seconds: forward.seconds + beside.seconds, cpu_seconds: forward.cpu_seconds + beside.cpu_seconds })
    }

    fn loads(&self, configuration: &Configuration) -> Result<Vec<BatchLoad>, PlanError> {
        let Configuration { readers, workers, batch, encoders, .. } = *configuration;
        at_least_one("the number of readers", readers)?;
        at_least_one("the number of encoders", encoders)?;
        let mut loads = Vec::new();
        if let Some(storage) = &self.storage {
            let seconds = f64::from(batch) / storage.images_per_second(self.bytes_per_image)?;
            loads.push(BatchLoad { name: "storage", threads: 0, seconds, cores: 0.0 });
        }
        let encoder = self.encoder_cost(configuration)?;
        for (place, threads, cost) in [
            (Place::Reader, readers, self.per_batch(Place::Reader, batch)),
            (Place::Worker, workers, self.per_batch(Place::Worker, batch)),
            (Place::Encoder, encoders, encoder),
            (Place::Writer, 1, self.per_batch(Place::Writer, batch)),
        ] {
            loads.push(BatchLoad::divided(place.name(), threads, cost));
        }
        Ok(worth_naming(loads))
    }

    fn threaded(&self, configuration: &Configuration) -> Result<Prediction, PlanError> {
        let loads = self.loads(configuration)?;
        let cores = f64::from(self.cores);
        let everything: Vec<&BatchLoad> = loads.iter().collect();
        let cycle = cycle_seconds(&everything, cores, self.interference);
        let before: Vec<&BatchLoad> = loads.iter().filter(|load| before_forward(load)).collect();
        let [encode, write] = [Place::Encoder, Place::Writer]
            .map(|place| loads.iter().filter(|load| load.name == place.name()).map(|load| load.seconds).sum::<f64>());
        let drain = encode * f64::from(configuration.encoders) + write;
        let bound = bound_of(&loads, cycle, cores);
        Ok(Prediction {
            images_per_second: f64::from(configuration.batch) / cycle,
            why: why_threaded(&loads, &bound, cycle, cores),
            bound,
            cores_utilization: loads.iter().map(|load| load.seconds * load.cores).sum::<f64>() / (cycle * cores),
            stages: loads.iter().map(|load| stage_load(load, configuration.batch, cycle)).collect(),
            batch: configuration.batch,
            cycle_seconds: cycle,
            fill_seconds: cycle_seconds(&before, cores, self.interference),
            drain_seconds: drain,
        })
    }

    /// All stages in turn on one thread (the forward may still have its own threads).
    fn sequential(&self, configuration: &Configuration) -> Result<Prediction, PlanError> {
        let batch = configuration.batch;
        let mut loads = Vec::new();
        for place in Place::ALL {
            let cost = match place {
                Place::Encoder => self.encoder_cost(configuration)?,
                place => self.per_batch(place, batch),
            };
            loads.push(BatchLoad::divided(place.name(), 1, cost));
        }
        let loads = worth_naming(loads);
        let cycle: f64 = positive("the seconds of a batch", loads.iter().map(|load| load.seconds).sum())?;
        let largest = largest_by(&loads, |load| load.seconds);
        let share = 100.0 * largest.seconds / cycle;
        let why = format!("one thread does everything in turn; {} is {share:.0} % of it", largest.name);
        Ok(Prediction {
            images_per_second: f64::from(batch) / cycle,
            bound: Bottleneck::Sequential { largest: largest.name.to_owned() },
            why,
            cores_utilization: loads.iter().map(|load| load.seconds * load.cores).sum::<f64>()
                / (cycle * f64::from(self.cores)),
            stages: loads.iter().map(|load| stage_load(load, batch, cycle)).collect(),
            batch,
            cycle_seconds: cycle,
            fill_seconds: 0.0,
            drain_seconds: cycle,
        })
    }
}

/// Drops the groups without cost. The forward always has a cost.
fn worth_naming(mut loads: Vec<BatchLoad>) -> Vec<BatchLoad> {
    loads.retain(|load| load.seconds > 0.0);
    loads
}

fn before_forward(load: &BatchLoad) -> bool {
    ![Place::Encoder.name(), Place::Writer.name()].contains(&load.name)
}

fn stage_load(load: &BatchLoad, batch: u32, cycle: f64) -> StageLoad {
    StageLoad {
        name: load.name.to_owned(),
        threads: load.threads,
        ceiling: f64::from(batch) / load.seconds,
        utilization: load.seconds / cycle,
        cores: load.seconds * load.cores / cycle,
    }
}

/// Seconds until every load is done if all begin at once and share `cores` cores equally.
///
/// `interference` lengthens phases with several loads on the cores, by the share of the cores' work that does not
/// belong to the largest load.
fn cycle_seconds(loads: &[&BatchLoad], cores: f64, interference: f64) -> f64 {
    let mut loads = loads.to_vec();
    loads.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let mut done = 0.0;
    let mut cycle = 0.0;
    for (k, load) in loads.iter().enumerate() {
        let active = &loads[k..];
        let wanted: f64 = active.iter().map(|load| load.cores).sum();
        let largest = active.iter().map(|load| load.cores).fold(0.0, f64::max);
        let others = if wanted > 0.0 { (wanted - largest) / wanted } else { 0.0 };
        cycle += (load.seconds - done) * (wanted / cores).max(1.0) * (1.0 + interference * others);
        done = load.seconds;
    }
    cycle
}

fn largest_by(loads: &[BatchLoad], key: impl Fn(&BatchLoad) -> f64) -> &BatchLoad {
    loads.iter().fold(&loads[0], |best, load| if key(load) > key(best) { load } else { best })
}

fn bound_of(loads: &[BatchLoad], cycle: f64, cores: f64) -> Bottleneck {
    let slowest = largest_by(loads, |load| load.seconds);
    let core_seconds: f64 = loads.iter().map(|load| load.seconds * load.cores).sum();
    // A store or a device is the limit as long as it takes longer than all work on the cores.
    let is_elsewhere = slowest.cores == 0.0 && slowest.seconds > core_seconds / cores;
    if cycle <= slowest.seconds * ALONE || is_elsewhere {
        return Bottleneck::Stage { stage: slowest.name.to_owned() };
    }
    Bottleneck::Cores { largest: largest_by(loads, |load| load.seconds * load.cores).name.to_owned() }
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

fn why_threaded(loads: &[BatchLoad], bound: &Bottleneck, cycle: f64, cores: f64) -> String {
    match bound {
        Bottleneck::Stage { stage } => {
            let next = loads.iter().filter(|load| load.name != stage).map(|load| (load.seconds, load.name));
            let (seconds, name) = next.fold((0.0, ""), |best, load| if load.0 > best.0 { load } else { best });
            let rest = if name.is_empty() { String::new() } else { format!("; next is {name} with {}", ms(seconds)) };
            format!("{stage} takes {} of the {} between batches{rest}", ms(slowest(loads)), ms(cycle))
        }
        _ => {
            let wanted: f64 = loads.iter().map(|load| load.cores).sum();
            let parts = loads.iter().filter(|load| load.seconds * load.cores > 0.01 * cycle);
            let parts: Vec<String> =
                parts.map(|load| format!("{} {}", load.name, ms(load.seconds * load.cores))).collect();
            format!(
                "{wanted:.1} busy threads share {cores} cores: a batch takes {} core time, {} at best",
                parts.join(" + "),
                ms(loads.iter().map(|load| load.seconds * load.cores).sum::<f64>() / cores),
            )
        }
    }
}

fn slowest(loads: &[BatchLoad]) -> f64 {
    loads.iter().map(|load| load.seconds).fold(0.0, f64::max)
}

/// The minimum of `f` between `low` and `high`, by golden section: exact if `f` falls and then rises.
fn least(mut low: f64, mut high: f64, f: impl Fn(f64) -> Result<f64, PlanError>) -> Result<f64, PlanError> {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    const ROUNDS: usize = 60;
    let ends = [low, high];
    for _ in 0..ROUNDS {
        let a = high - GOLDEN * (high - low);
        let b = low + GOLDEN * (high - low);
        if f(a)? <= f(b)? { high = b } else { low = a }
    }
    let mut best = f64::midpoint(low, high);
    for end in ends {
        best = if f(end)? <= f(best)? { end } else { best };
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ForwardCost, StageCost};

    /// The two-core machine of the project's notes: decode and resize 4.4 ms, forward 58 ms of CPU on two threads.
    pub(crate) fn two_cores() -> Measured {
        let stage = |name, place, seconds| StageCost::of_total(name, place, seconds, seconds, 1);
        let forward = |threads, batch, seconds: f64, cpu_seconds| ForwardCost { threads, batch, seconds, cpu_seconds };
        Measured {
            cores: 2,
            bytes_per_image: 300e3,
            bytes_per_vector: 1536.0,
            stages: vec![stage("decode", Place::Worker, 0.0034), stage("resize", Place::Worker, 0.001)],
            forward: vec![
                forward(2, 32, 32.0 / 34.2, 64.0 / 34.2),
                forward(2, 8, 8.0 / 34.2, 16.0 / 34.2),
                forward(1, 32, 32.0 * 0.0535, 32.0 * 0.0535),
            ],
            storage: None,
            interference: 0.0,
        }
    }

    fn configuration(workers: u32, forward_threads: u32) -> Configuration {
        Configuration { readers: 2, workers, batch: 32, prefetch: 1, forward_threads, encoders: 1 }
    }

    #[test]
    fn threads_that_outnumber_cores_get_the_total_of_core_seconds() {
        let prediction = two_cores().predict(&configuration(1, 2)).unwrap();
        let core_seconds = 32.0 * 0.0044 + 64.0 / 34.2;
        assert!((prediction.cycle_seconds - core_seconds / 2.0).abs() < 1e-9, "{prediction:?}");
        assert!((prediction.cores_utilization - 1.0).abs() < 1e-9);
        assert_eq!(prediction.bound, Bottleneck::Cores { largest: "forward".into() });
    }

    #[test]
    fn with_a_core_for_each_thread_the_slowest_stage_decides() {
        let prediction = two_cores().predict(&configuration(1, 1)).unwrap();
        assert!((prediction.images_per_second - 1.0 / 0.0535).abs() < 1e-9);
        assert_eq!(prediction.bound, Bottleneck::Stage { stage: "forward".into() });
        let sixteen = Measured { cores: 16, ..two_cores() };
        assert!((sixteen.predict(&configuration(8, 2)).unwrap().images_per_second - 34.2).abs() < 1e-9);
    }

    #[test]
    fn in_turn_on_one_thread_the_seconds_add_up() {
        let prediction = two_cores().predict(&configuration(0, 2)).unwrap();
        assert!((1.0 / prediction.images_per_second - (1.0 / 34.2 + 0.0044)).abs() < 1e-9);
        assert_eq!(prediction.bound, Bottleneck::Sequential { largest: "forward".into() });
    }

    #[test]
    fn a_slow_worker_is_the_bound_and_two_of_them_help() {
        let slow = Measured { cores: 8, ..two_cores().with_stage("decode", 20.0).unwrap() };
        let one = slow.predict(&configuration(1, 2)).unwrap();
        assert_eq!(one.bound, Bottleneck::Stage { stage: "workers".into() });
        assert!((one.images_per_second - 1.0 / 0.069).abs() < 1e-6);
        let two = slow.predict(&configuration(2, 2)).unwrap();
        assert!((two.images_per_second / one.images_per_second - 2.0).abs() < 1e-9);
    }

    #[test]
    fn phases_are_slowed_by_those_who_are_in_them() {
        // Cycle by hand: 2 cores; workers 2 threads × 10 s, forward 1 thread × 30 s. Both: 3 threads on 2 cores for
        // 15 s, then the forward alone for 20 s.
        let loads = [
            BatchLoad { name: "workers", threads: 2, seconds: 10.0, cores: 2.0 },
            BatchLoad { name: "forward", threads: 1, seconds: 30.0, cores: 1.0 },
        ];
        let both: Vec<&BatchLoad> = loads.iter().collect();
        assert_eq!(cycle_seconds(&both, 2.0, 0.0), 35.0);
        assert_eq!(cycle_seconds(&both, 4.0, 0.0), 30.0);
        // While both run, a third of the cores' work is the forward's.
        assert!((cycle_seconds(&both, 2.0, 0.3) - (15.0 * 1.1 + 20.0)).abs() < 1e-9);
    }

    #[test]
    fn calibration_finds_the_interference_that_made_the_runs() {
        let truth = Measured { interference: 0.4, ..two_cores() };
        let runs = [(configuration(1, 2), None), (configuration(2, 2), Some(500))].map(|(configuration, images)| {
            let run = MeasuredRun { configuration, images, images_per_second: 1.0 };
            MeasuredRun { images_per_second: truth.predict_run(&run).unwrap(), ..run }
        });
        let found = two_cores().calibrated(&runs).unwrap();
        assert!((found.interference - 0.4).abs() < 1e-4, "{}", found.interference);
        let none = runs.map(|run| MeasuredRun { images_per_second: run.images_per_second * 2.0, ..run });
        assert_eq!(two_cores().calibrated(&none).unwrap().interference, 0.0);
        assert!(two_cores().calibrated(&[]).is_err());
    }

    #[test]
    fn a_short_run_is_slower_than_its_steady_state() {
        let prediction = two_cores().predict(&configuration(1, 2)).unwrap();
        let rates: Vec<f64> = [32, 64, 320, 32_000].map(|n| prediction.images_per_second_over(n)).into();
        assert!(rates.is_sorted());
        assert!(rates[0] < 0.95 * prediction.images_per_second && rates[3] > 0.999 * prediction.images_per_second);
        // One batch: filled, then encoded, without overlap.
        assert!((prediction.seconds_for(32) - 32.0 * (0.0044 + 1.0 / 34.2)).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_measured_is_not_guessed() {
        let error = two_cores().predict(&configuration(1, 3)).unwrap_err().to_string();
        assert!(error.contains("3 threads") && error.contains("[1, 2]"), "{error}");
        assert!(two_cores().with_stage("decoder", 0.5).unwrap_err().to_string().contains("decode, resize"));
        assert!(two_cores().predict(&Configuration { batch: 0, ..configuration(1, 2) }).is_err());
        assert!(two_cores().predict(&Configuration { readers: 0, ..configuration(1, 2) }).is_err());
        assert!(Measured { forward: Vec::new(), ..two_cores() }.predict(&configuration(1, 2)).is_err());
        assert!(two_cores().with_stage("decode", f64::NAN).is_err());
    }

    proptest! {
        #[test]
        fn no_plan_promises_more_than_there_is(
            (decode, read, write, forward) in (0.0..0.1, 0.0..0.01, 0.0..0.001, 0.001..0.1),
            (cores, workers, batch, threads) in (1u32..9, 0u32..9, 1u32..100, 1u32..3),
            interference in 0.0..0.5,
        ) {
            let mut measured = Measured { cores, interference, ..two_cores() };
            measured.stages = vec![
                StageCost::of_total("read", Place::Reader, read, read / 4.0, 1),
                StageCost::of_total("decode", Place::Worker, decode, decode, 1),
                StageCost::of_total("write", Place::Writer, write, write, 1),
            ];
            measured.forward.iter_mut().for_each(|cost| {
                cost.cpu_seconds = forward * f64::from(cost.batch);
                cost.seconds = cost.cpu_seconds / f64::from(cost.threads.min(cores));
            });
            let configuration = Configuration { batch, ..configuration(workers, threads) };
            let now = measured.predict(&configuration).unwrap();
            prop_assert!(now.cores_utilization <= 1.0 + 1e-9);
            for stage in &now.stages {
                prop_assert!(stage.utilization <= 1.0 + 1e-9 && now.images_per_second <= stage.ceiling * (1.0 + 1e-9));
            }
            let core_seconds: f64 = forward + measured.stages.iter().map(|stage| stage.cpu_seconds).sum::<f64>();
            prop_assert!(now.images_per_second * core_seconds <= f64::from(cores) * (1.0 + 1e-9));
            let more = Measured { cores: cores + 1, ..measured.clone() }.predict(&configuration).unwrap();
            prop_assert!(more.images_per_second >= now.images_per_second * (1.0 - 1e-9), "a core more never hurts");
            let faster = measured.with_stage("decode", 0.5).unwrap().predict(&configuration).unwrap();
            prop_assert!(interference > 0.0 || faster.images_per_second >= now.images_per_second * (1.0 - 1e-9));
        }
    }
}
