//! A profile's measurements, and the model that follows from them.

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, not_negative, positive};
use crate::{Model, PlanError, Step, StepTable, Storage, Transform};

/// A machine and a job as measured by a profile: every stage's cost alone, with nothing else running.
///
/// [`Measured::predict`] computes a configuration's throughput in the threaded pipeline. The cores are shared: the core
/// time of readers, workers, forward and writer adds up. For a forward on its own device, [`ForwardCost::cpu_seconds`]
/// is near zero (or near its seconds, if the driver spins).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Cores that the threads share.
    pub cores: u32,
    /// Encoded bytes per image.
    pub bytes_per_image: f64,
    /// Stored bytes per vector.
    pub bytes_per_vector: f64,
    /// All stages but the forward.
    pub stages: Vec<StageCost>,
    /// The forward, by threads and batch; at least one entry.
    pub forward: Vec<ForwardCost>,
    /// A store with limits that the readers' measured seconds do not show (requests in flight, a link's bytes per
    /// second). `None` if reading is as measured.
    pub storage: Option<Storage>,
    /// The additional CPU time that work takes while other stages use the cores too (caches, memory bandwidth,
    /// switches), as a fraction: 0 for none. [`Measured::calibrated`] derives it from runs.
    pub interference: f64,
}

/// The threads that run a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The reader threads.
    Reader,
    /// The decode workers.
    Worker,
    /// The encoder's thread, before or after the forward: copies to and from a device, gathering a batch.
    Encoder,
    /// The one thread that stores the rows.
    Writer,
}

impl Place {
    /// All places, in pipeline order.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Worker, Self::Encoder, Self::Writer];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reader => "read",
            Self::Worker => "workers",
            Self::Encoder => "forward",
            Self::Writer => "write",
        }
    }
}

/// One stage's cost per image on one thread, alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCost {
    /// Its name: "decode", say.
    pub name: String,
    /// The threads that run it.
    pub place: Place,
    /// Wall-clock seconds, mean per image.
    pub seconds: f64,
    /// Core seconds, mean per image; the difference to `seconds` is waiting.
    pub cpu_seconds: f64,
}

/// The forward's cost for one batch, alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardCost {
    /// Threads of the encoder (1 for a device that computes on its own).
    pub threads: u32,
    /// Images in the batch.
    pub batch: u32,
    /// Wall-clock seconds, mean.
    pub seconds: f64,
    /// Core seconds, summed over threads, mean.
    pub cpu_seconds: f64,
}

/// A run's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Configuration {
    /// Threads that read; not used when `workers` is 0.
    pub readers: u32,
    /// Threads that decode and resize. 0 runs every stage in turn on one thread.
    pub workers: u32,
    /// Images per batch.
    pub batch: u32,
    /// Full batches that may wait for the encoders, at least 1.
    pub prefetch: u32,
    /// Threads of the forward; must have been measured.
    pub forward_threads: u32,
    /// Encoders, each with its own thread and batches.
    pub encoders: u32,
}

impl StageCost {
    /// The mean cost, from the totals of `images` images; `images` must not be 0.
    pub fn of_total(name: &str, place: Place, seconds: f64, cpu_seconds: f64, images: u64) -> Self {
        let n = images as f64;
        Self { name: name.to_owned(), place, seconds: seconds / n, cpu_seconds: cpu_seconds / n }
    }

    fn check(&self) -> Result<(), PlanError> {
        not_negative("a stage's seconds", self.seconds)?;
        not_negative("a stage's CPU seconds", self.cpu_seconds).map(drop)
    }

    fn scaled(&self, factor: f64) -> Self {
        Self { seconds: self.seconds * factor, cpu_seconds: self.cpu_seconds * factor, ..self.clone() }
    }
}

impl ForwardCost {
    fn check(&self) -> Result<(), PlanError> {
        at_least_one("the forward's threads", self.threads)?;
        at_least_one("the forward's batch", self.batch)?;
        positive("the forward's seconds", self.seconds)?;
        not_negative("the forward's CPU seconds", self.cpu_seconds).map(drop)
    }
}

/// Wall-clock seconds and core seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

impl Measured {
    /// Checks that all values are meaningful.
    ///
    /// # Errors
    /// [`PlanError`] for no cores, no forward, or a cost that is negative or not finite.
    pub fn check(&self) -> Result<(), PlanError> {
        at_least_one("the number of cores", self.cores)?;
        not_negative("the bytes per image", self.bytes_per_image)?;
        not_negative("the bytes per vector", self.bytes_per_vector)?;
        not_negative("the interference", self.interference)?;
        self.stages.iter().try_for_each(StageCost::check)?;
        self.forward.iter().try_for_each(ForwardCost::check)?;
        if self.forward.is_empty() {
            return Err(PlanError::Impossible("the forward was not measured; measure one batch at least".to_owned()));
        }
        Ok(())
    }

    /// Cost per image of all stages at `place`.
    pub(crate) fn cost_at(&self, place: Place) -> Cost {
        let here = self.stages.iter().filter(|stage| stage.place == place);
        here.fold(Cost::default(), |sum, stage| Cost {
            seconds: sum.seconds + stage.seconds,
            cpu_seconds: sum.cpu_seconds + stage.cpu_seconds,
        })
    }

    /// Cost of one forward, by interpolation among the batches measured with these threads.
    pub(crate) fn forward_cost(&self, threads: u32, batch: u32) -> Result<Cost, PlanError> {
        let seconds = self.forward_table(threads, |cost| cost.seconds)?.seconds(batch)?;
        let cores = self.forward_table(threads, |cost| (cost.cpu_seconds / cost.seconds).max(f64::MIN_POSITIVE))?;
        // Cores in use are interpolated, but not extrapolated.
        let first = cores.points()[0].0;
        let last = cores.points()[cores.points().len() - 1].0;
        Ok(Cost { seconds, cpu_seconds: seconds * cores.seconds(batch.clamp(first, last))? })
    }

    fn forward_table(&self, threads: u32, value: impl Fn(&ForwardCost) -> f64) -> Result<StepTable, PlanError> {
        let measured = self.forward.iter().filter(|cost| cost.threads == threads);
        let points: Vec<(u32, f64)> = measured.map(|cost| (cost.batch, value(cost))).collect();
        if points.is_empty() {
            let mut known: Vec<u32> = self.forward.iter().map(|cost| cost.threads).collect();
            known.sort_unstable();
            known.dedup();
            let problem = format!("the forward was not measured with {threads} threads but with {known:?}; measure it");
            return Err(PlanError::Impossible(problem));
        }
        StepTable::new(points)
    }

    /// The walls of a configuration, as if every thread had its own core: for crossovers and what-ifs with the
    /// forward on a device. If the forward shares the cores, [`Measured::predict`] is more accurate.
    ///
    /// The step is the measured table, plus the encoder thread's other work. Reading is a store with as
    /// many requests in flight as there are readers, unless [`Measured::storage`] sets limits.
    ///
    /// # Errors
    /// As [`Measured::check`]; also for forward threads that were not measured.
    pub fn walls(&self, configuration: &Configuration) -> Result<Model, PlanError> {
        self.check()?;
        let read = self.cost_at(Place::Reader);
        let prepare = self.cost_at(Place::Worker);
        let other = self.cost_at(Place::Encoder);
        let step = self.forward_table(configuration.forward_threads, |cost| {
            cost.seconds + other.seconds * f64::from(cost.batch)
        })?;
        let mut storage = self.storage;
        if storage.is_none() && read.seconds > 0.0 && self.bytes_per_image > 0.0 {
            storage = Some(Storage::remote(0.0, self.bytes_per_image / read.seconds, configuration.readers));
        }
        Ok(Model {
            bytes_per_image: self.bytes_per_image,
            storage,
            transform: Transform::PerImage { seconds: prepare.seconds, workers: configuration.workers.max(1) },
            bus: None,
            step: Step::Table(step),
            accelerators: configuration.encoders,
            write_seconds: self.cost_at(Place::Writer).seconds,
        })
    }

    /// The measurements with the stage `name` at `factor` times its cost: 0 removes it, 0.5 is a decoder twice as fast.
    ///
    /// # Errors
    /// [`PlanError`] if there is no such stage, or for a factor that is negative or not finite.
    pub fn with_stage(&self, name: &str, factor: f64) -> Result<Self, PlanError> {
        not_negative("the factor", factor)?;
        let mut changed = self.clone();
        let mut found = false;
        for stage in changed.stages.iter_mut().filter(|stage| stage.name == name) {
            *stage = stage.scaled(factor);
            found = true;
        }
        if !found {
            let names: Vec<&str> = self.stages.iter().map(|stage| stage.name.as_str()).collect();
            let why = format!("no stage is called {name}; there are {}", names.join(", "));
            return Err(PlanError::Impossible(why));
        }
        Ok(changed)
    }

    /// The measurements with all stages at `place` at `factor` times their cost.
    pub(crate) fn with_place(&self, place: Place, factor: f64) -> Self {
        let mut changed = self.clone();
        for stage in changed.stages.iter_mut().filter(|stage| stage.place == place) {
            *stage = stage.scaled(factor);
        }
        changed
    }

    /// The measurements on `cores` cores that are `speed` times as fast, without the forward's.
    ///
    /// # Errors
    /// [`PlanError`] for a speed that is not positive and finite.
    pub fn with_cores(&self, cores: u32, speed: f64) -> Result<Self, PlanError> {
        positive("the speed of the cores", speed)?;
        let stages = self.stages.iter().map(|stage| stage.scaled(1.0 / speed)).collect();
        Ok(Self { cores, stages, ..self.clone() })
    }

    /// The measurements with every forward at `factor` times its cost: another precision or device.
    ///
    /// # Errors
    /// [`PlanError`] for a factor that is not positive and finite.
    pub fn with_forward(&self, factor: f64) -> Result<Self, PlanError> {
        positive("the factor", factor)?;
        let mut changed = self.clone();
        for cost in &mut changed.forward {
            cost.seconds *= factor;
            cost.cpu_seconds *= factor;
        }
        Ok(changed)
    }

    /// The measurements with files of `factor` times the bytes, and reading and decoding in proportion. This is an
    /// assumption; for certainty, measure photos of that size.
    ///
    /// # Errors
    /// [`PlanError`] for a factor that is not positive and finite.
    pub fn with_sample_size(&self, factor: f64) -> Result<Self, PlanError> {
        positive("the factor", factor)?;
        let mut changed = self.clone();
        changed.bytes_per_image *= factor;
        for stage in &mut changed.stages {
            if matches!(stage.place, Place::Reader | Place::Worker) {
                *stage = stage.scaled(factor);
            }
        }
        Ok(changed)
    }
}
