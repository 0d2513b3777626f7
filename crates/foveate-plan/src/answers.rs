//! Questions that a plan answers: sweeps, crossovers, what-ifs, demand, hours and money.

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, not_negative, positive, share};
use crate::{Configuration, Measured, Model, Place, PlanError, Prediction, SteadyState, Storage, Transform, Wall};

impl Model {
    /// The steady state of each batch size.
    ///
    /// # Errors
    /// As [`Model::at`].
    pub fn batch_sweep(&self, batches: &[u32]) -> Result<Vec<SteadyState>, PlanError> {
        batches.iter().map(|&batch| self.at(batch)).collect()
    }

    /// The smallest batch up to `most` from which on (up to `most`) compute is not the slowest wall, and that wall.
    /// `None` if compute is the slowest at `most`. A larger batch only makes the accelerator wait longer.
    ///
    /// # Errors
    /// As [`Model::at`].
    pub fn crossover(&self, most: u32) -> Result<Option<(u32, Wall)>, PlanError> {
        let mut found = None;
        for batch in (1..=most).rev() {
            match self.at(batch)?.bound {
                Wall::Compute => break,
                wall => found = Some((batch, wall)),
            }
        }
        Ok(found)
    }

    /// The model with another number of workers, each as fast as before.
    ///
    /// # Errors
    /// [`PlanError::Impossible`] unless the transformation is given per image and worker.
    pub fn with_workers(&self, workers: u32) -> Result<Self, PlanError> {
        match self.transform {
            Transform::PerImage { seconds, .. } => {
                Ok(Self { transform: Transform::PerImage { seconds, workers }, ..self.clone() })
            }
            _ => Err(PlanError::Impossible("the CPU's cost is not known per worker; give it per image".to_owned())),
        }
    }

    /// The steady state for each number of workers.
    ///
    /// # Errors
    /// As [`Model::with_workers`] and [`Model::at`].
    pub fn worker_sweep(&self, batch: u32, workers: &[u32]) -> Result<Vec<SteadyState>, PlanError> {
        workers.iter().map(|&workers| self.with_workers(workers)?.at(batch)).collect()
    }

    /// The fewest workers with which the CPU is not the slowest wall, and what is the slowest then.
    ///
    /// # Errors
    /// As [`Model::with_workers`] and [`Model::at`].
    pub fn workers_to_saturate(&self, batch: u32) -> Result<Saturation, PlanError> {
        let one_worker = self.with_workers(1)?.at(batch)?;
        let behind = Self { transform: Transform::Nothing, ..self.clone() }.at(batch)?;
        Ok(Saturation {
            // Such a small share of a worker is rounding, not work.
            workers: (one_worker.cpu_seconds / behind.seconds - 1e-9).ceil().max(1.0) as u32,
            bound: behind.bound,
            images_per_second: behind.images_per_second,
            utilization: behind.utilization,
        })
    }

    /// The model with files of `factor` times the bytes. A transformation given per image is assumed to grow in
    /// proportion, as one given in bytes per second does.
    pub fn with_sample_size(&self, factor: f64) -> Self {
        let transform = match self.transform {
            Transform::PerImage { .. } => self.transform.scaled(factor),
            other => other,
        };
        Self { bytes_per_image: self.bytes_per_image * factor, transform, ..self.clone() }
    }

    /// The model with a transformation at `factor` times the cost.
    pub fn with_transform(&self, factor: f64) -> Self {
        Self { transform: self.transform.scaled(factor), ..self.clone() }
    }

    /// The model with the transformation on the accelerators, where it takes `seconds` per image, before each step.
    ///
    /// # Errors
    /// [`PlanError`] for seconds that are negative or not finite.
    pub fn with_transform_on_device(&self, seconds: f64) -> Result<Self, PlanError> {
        not_negative("the seconds on the device", seconds)?;
        Ok(Self { transform: Transform::Nothing, step: self.step.with_more_per_item(seconds), ..self.clone() })
    }

    /// The model with steps at `factor` times the cost: another precision or device.
    pub fn with_compute(&self, factor: f64) -> Self {
        Self { step: self.step.scaled(factor), ..self.clone() }
    }

    /// The effect of the usual changes at one batch size, the most helpful first: files of half and double the bytes,
    /// preprocessing 2, 4 and 10 times faster or on the device at no cost, steps of half the time, twice the
    /// accelerators, and twice the requests in flight to a store that takes time to answer.
    ///
    /// # Errors
    /// As [`Model::at`].
    pub fn what_ifs(&self, batch: u32) -> Result<Vec<WhatIf<SteadyState>>, PlanError> {
        let twice = Self { accelerators: self.accelerators.saturating_mul(2), ..self.clone() };
        let changes = [
            ("files of half the bytes", self.with_sample_size(0.5)),
            ("files of double the bytes", self.with_sample_size(2.0)),
            ("preprocessing 2x faster", self.with_transform(0.5)),
            ("preprocessing 4x faster", self.with_transform(0.25)),
            ("preprocessing 10x faster", self.with_transform(0.1)),
            ("preprocessing on the device, if it cost nothing there", self.with_transform_on_device(0.0)?),
            ("steps in half the time (another precision)", self.with_compute(0.5)),
            ("twice the accelerators", twice),
        ];
        let store = self.storage.and_then(twice_the_requests);
        let requests = store.map(|store| (TWICE_THE_REQUESTS, Self { storage: Some(store), ..self.clone() }));
        let answers = changes.into_iter().chain(requests).map(|(change, model)| Ok((change, model.at(batch)?)));
        let answers = answers.collect::<Result<Vec<_>, PlanError>>()?;
        Ok(ranked(answers, self.at(batch)?.images_per_second, |state| state.images_per_second))
    }
}

const TWICE_THE_REQUESTS: &str = "twice the requests in flight";

/// Returns a store that takes time to answer with twice the requests in flight.
fn twice_the_requests(store: Storage) -> Option<Storage> {
    (store.latency > 0.0).then(|| Storage { concurrency: store.concurrency.saturating_mul(2), ..store })
}

/// The number of workers from which on more of them do not help.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// The fewest workers with which the CPU is not the slowest wall.
    pub workers: u32,
    /// The wall that is the slowest then.
    pub bound: Wall,
    /// Images per second then.
    pub images_per_second: f64,
    /// Accelerator time ÷ time between batches then; 1 only if `bound` is [`Wall::Compute`].
    pub utilization: f64,
}

/// A change's effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf<State> {
    /// The change in words.
    pub change: String,
    /// Images per second with the change ÷ without it.
    pub speedup: f64,
    /// The [`SteadyState`] or the [`Prediction`] with the change.
    pub state: State,
}

/// Compares each change's rate with the rate `now`, and sorts the most helpful first.
fn ranked<State>(answers: Vec<(&str, State)>, now: f64, rate: impl Fn(&State) -> f64) -> Vec<WhatIf<State>> {
    let answers = answers.into_iter().map(|(change, state)| {
        let speedup = rate(&state) / now;
        WhatIf { change: change.to_owned(), speedup, state }
    });
    let mut answers: Vec<_> = answers.collect();
    answers.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    answers
}

impl Measured {
    /// The prediction for each batch size.
    ///
    /// # Errors
    /// As [`Measured::predict`].
    pub fn batch_sweep(&self, configuration: &Configuration, batches: &[u32]) -> Result<Vec<Prediction>, PlanError> {
        batches.iter().map(|&batch| self.predict(&Configuration { batch, ..*configuration })).collect()
    }

    /// The prediction for each number of workers.
    ///
    /// # Errors
    /// As [`Measured::predict`].
    pub fn worker_sweep(&self, configuration: &Configuration, workers: &[u32]) -> Result<Vec<Prediction>, PlanError> {
        workers.iter().map(|&workers| self.predict(&Configuration { workers, ..*configuration })).collect()
    }

    /// The fewest workers, up to `most`, with at least `share` (above 0, at most 1; 0.98, say) of the best throughput
    /// of any number up to `most`.
    ///
    /// # Errors
    /// As [`Measured::predict`]; also for `most` of 0 and a share out of range.
    pub fn workers_to_saturate(
        &self,
        configuration: &Configuration,
        most: u32,
        share_of_best: f64,
    ) -> Result<u32, PlanError> {
        at_least_one("the most workers", most)?;
        share("the share of the best throughput", share_of_best)?;
        let all = self.worker_sweep(configuration, &(1..=most).collect::<Vec<_>>())?;
        let best = all.iter().map(|prediction| prediction.images_per_second).fold(0.0, f64::max);
        let first = all.iter().position(|prediction| prediction.images_per_second >= share_of_best * best);
        Ok(first.map_or(most, |at| at as u32 + 1))
    }

    /// The effect of the usual changes, the most helpful first: files of half and double the bytes, decoding and
    /// resizing 2 and 10 times faster, a forward of half the time, twice the cores, and twice the requests in flight
    /// to a store that takes time to answer.
    ///
    /// # Errors
    /// As [`Measured::predict`].
    pub fn what_ifs(&self, configuration: &Configuration) -> Result<Vec<WhatIf<Prediction>>, PlanError> {
        let changes = [
            ("files of half the bytes", self.with_sample_size(0.5)?),
            ("files of double the bytes", self.with_sample_size(2.0)?),
            ("decoding and resizing 2x faster", self.with_place(Place::Worker, 0.5)),
            ("decoding and resizing 10x faster", self.with_place(Place::Worker, 0.1)),
            ("a forward in half the time (another precision)", self.with_forward(0.5)?),
            ("twice the cores", Self { cores: self.cores.saturating_mul(2), ..self.clone() }),
        ];
        let store = self.storage.and_then(twice_the_requests);
        let requests = store.map(|store| (TWICE_THE_REQUESTS, Self { storage: Some(store), ..self.clone() }));
        let answers =
            changes.into_iter().chain(requests).map(|(change, model)| Ok((change, model.predict(configuration)?)));
        let answers = answers.collect::<Result<Vec<_>, PlanError>>()?;
        let now = self.predict(configuration)?.images_per_second;
        Ok(ranked(answers, now, |prediction| prediction.images_per_second))
    }

    /// Disk and network traffic of a run at `images_per_second`.
    ///
    /// # Errors
    /// [`PlanError`] for numbers that are negative or not finite.
    pub fn demand(&self, images_per_second: f64) -> Result<Demand, PlanError> {
        Demand::of(images_per_second, self.bytes_per_image, self.bytes_per_vector)
    }
}

/// A run's disk and network traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Encoded bytes read per second.
    pub read_bytes_per_second: f64,
    /// Bytes of vectors written per second.
    pub write_bytes_per_second: f64,
    /// Bytes read for a million images.
    pub read_bytes_per_million: f64,
    /// Bytes written for a million images.
    pub write_bytes_per_million: f64,
}

impl Demand {
    /// The traffic of one machine, or of many together, at `images_per_second`.
    ///
    /// # Errors
    /// [`PlanError`] for numbers that are negative or not finite.
    pub fn of(images_per_second: f64, bytes_per_image: f64, bytes_per_vector: f64) -> Result<Self, PlanError> {
        not_negative("the images per second", images_per_second)?;
        not_negative("the bytes per image", bytes_per_image)?;
        not_negative("the bytes per vector", bytes_per_vector)?;
        Ok(Self {
            read_bytes_per_second: images_per_second * bytes_per_image,
            write_bytes_per_second: images_per_second * bytes_per_vector,
            read_bytes_per_million: 1e6 * bytes_per_image,
            write_bytes_per_million: 1e6 * bytes_per_vector,
        })
    }
}

/// A job of embedding images on machines that are paid by the hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Number of images.
    pub images: u64,
    /// Number of machines, all alike.
    pub machines: u32,
    /// One machine's rate.
    pub rate: Rate,
    /// Seconds from the start of a machine's bill to its first image: boot, download of the model.
    pub startup_seconds: f64,
    /// The fraction of the machines' rates that remains when they work together, above 0 and at most 1: uneven shares,
    /// preemption.
    pub efficiency: f64,
    /// Price of one machine for an hour.
    pub price_per_hour: f64,
}

/// Images per second of one machine, with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Low end of the interval.
    pub low: f64,
    /// Expected rate.
    pub mean: f64,
    /// High end of the interval.
    pub high: f64,
}

impl Rate {
    /// A rate without an interval.
    pub fn exactly(images_per_second: f64) -> Self {
        Self { low: images_per_second, mean: images_per_second, high: images_per_second }
    }
}

/// A figure with the interval that follows from the rate's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// With the high rate.
    pub low: f64,
    /// With the mean rate.
    pub expected: f64,
    /// With the low rate.
    pub high: f64,
}

impl Interval {
    fn times(self, by: f64) -> Self {
        Self { low: self.low * by, expected: self.expected * by, high: self.high * by }
    }
}

/// A job's time and cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobCost {
    /// Hours from the start to the last image.
    pub hours: Interval,
    /// Hours of all machines together, as billed.
    pub machine_hours: Interval,
    /// Money, in the price's currency.
    pub money: Interval,
    /// Images per second of all machines together, without start-up.
    pub images_per_second: f64,
}

impl Workload {
    /// Computes hours and money.
    ///
    /// # Errors
    /// [`PlanError`] for a number that is negative, not finite, or zero where zero is meaningless, and for a rate whose
    /// ends are not in order.
    pub fn cost(&self) -> Result<JobCost, PlanError> {
        let machines = at_least_one("the number of machines", self.machines)?;
        let efficiency = share("the efficiency", self.efficiency)?;
        let startup = not_negative("the start-up seconds", self.startup_seconds)?;
        let price = not_negative("the price per hour", self.price_per_hour)?;
        let Rate { low, mean, high } = self.rate;
        [low, mean, high].into_iter().try_for_each(|rate| positive("the images per second", rate).map(drop))?;
        if !(low <= mean && mean <= high) {
            return Err(PlanError::Impossible(format!("a rate of {mean} that is not between {low} and {high}")));
        }
        let [low, expected, high] =
            [high, mean, low].map(|rate| (startup + self.images as f64 / (rate * efficiency * machines)) / 3600.0);
        let hours = Interval { low, expected, high };
        let machine_hours = hours.times(machines);
        let images_per_second = mean * efficiency * machines;
        Ok(JobCost { hours, machine_hours, money: machine_hours.times(price), images_per_second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinearStep, Step};

    /// A step of 5 ms + 26 µs per image; 250 µs of CPU per image: they cross at 5000 ÷ (250 − 26) = 22.3 images.
    fn model() -> Model {
        Model {
            bytes_per_image: 500e3,
            storage: None,
            transform: Transform::PerImage { seconds: 2e-3, workers: 8 },
            bus: None,
            step: Step::Linear(LinearStep { overhead: 5e-3, per_item: 26e-6 }),
            accelerators: 1,
            write_seconds: 0.0,
        }
    }

    #[test]
    fn the_crossover_is_where_the_lines_cross() {
        assert_eq!(model().crossover(1024).unwrap(), Some((23, Wall::Cpu)));
        assert_eq!(model().at(22).unwrap().bound, Wall::Compute);
        assert_eq!(model().with_transform(0.05).crossover(1024).unwrap(), None);
        let disk = Model { storage: Some(crate::Storage::disk(1e9)), ..model() };
        assert_eq!(disk.crossover(1024).unwrap(), Some((11, Wall::Storage)));
    }

    #[test]
    fn workers_to_saturate_is_the_first_that_does() {
        let model = model();
        let Saturation { workers, bound, utilization, .. } = model.workers_to_saturate(256).unwrap();
        assert_eq!((bound, utilization), (Wall::Compute, 1.0));
        let states = model.worker_sweep(256, &[workers - 1, workers, workers + 1]).unwrap();
        assert_eq!([&states[0], &states[1], &states[2]].map(|s| s.bound), [Wall::Cpu, Wall::Compute, Wall::Compute]);
        assert_eq!(states[1].images_per_second, states[2].images_per_second);
        let by_bytes = Model { transform: Transform::Throughput { bytes_per_second: 1e9 }, ..model };
        assert!(by_bytes.workers_to_saturate(256).is_err());
    }

    #[test]
    fn workers_that_only_reach_another_wall_do_not_keep_the_accelerator_busy() {
        // A disk of 200 images/s is reached by one worker, and leaves the accelerator idle nearly all the time.
        let disk = Model { storage: Some(crate::Storage::disk(100e6)), ..model() };
        let saturation = disk.workers_to_saturate(256).unwrap();
        assert_eq!((saturation.workers, saturation.bound), (1, Wall::Storage));
        assert_eq!(saturation.images_per_second, 200.0);
        assert!(saturation.utilization < 0.01, "{saturation:?}");
        let sink = Model { write_seconds: 1e-4, ..model() };
        let saturation = sink.workers_to_saturate(256).unwrap();
        assert_eq!((saturation.workers, saturation.bound), (20, Wall::Write));
    }

    #[test]
    fn what_ifs_are_the_model_with_the_change() {
        let answers = model().what_ifs(256).unwrap();
        let speedup = |start: &str| answers.iter().find(|a| a.change.starts_with(start)).unwrap().speedup;
        assert!((speedup("files of half") - 2.0).abs() < 1e-9, "bound by the CPU, whose work halves");
        assert_eq!(speedup("steps in half"), 1.0, "compute is not what holds it back");
        let whole = model().at(256).unwrap().slowdown;
        assert!((speedup("preprocessing on the device") - whole).abs() < 1e-9);
        assert!(answers.windows(2).all(|pair| pair[0].speedup >= pair[1].speedup));
        assert!(answers.iter().all(|answer| answer.change != TWICE_THE_REQUESTS), "there is no store");
        let store = Model { storage: Some(Storage::remote(0.1, 10e6, 16)), ..model() };
        let more = store.what_ifs(256).unwrap().into_iter().find(|answer| answer.change == TWICE_THE_REQUESTS);
        assert!(more.is_some_and(|more| (more.speedup - 2.0).abs() < 1e-9), "the store is the limit");
        let moved = model().with_transform_on_device(1e-4).unwrap().at(256).unwrap();
        assert!((moved.compute_seconds - (5e-3 + 256.0 * 126e-6)).abs() < 1e-12);
    }

    const JOB: Workload = Workload {
        images: 3_600_000,
        machines: 4,
        rate: Rate { low: 80.0, mean: 100.0, high: 125.0 },
        startup_seconds: 180.0,
        efficiency: 0.9,
        price_per_hour: 2.0,
    };

    #[test]
    fn hours_and_money_follow_the_rate() {
        let cost = JOB.cost().unwrap();
        let expected = 3_600_000.0 / 360.0 / 3600.0 + 0.05;
        assert!((cost.hours.expected - expected).abs() < 1e-9);
        assert!((cost.money.expected - expected * 8.0).abs() < 1e-9);
        assert!(cost.hours.low < expected && expected < cost.hours.high);
    }

    #[test]
    fn nonsense_is_refused() {
        for broken in [
            Workload { machines: 0, ..JOB },
            Workload { efficiency: 0.0, ..JOB },
            Workload { price_per_hour: -1.0, ..JOB },
            Workload { startup_seconds: f64::NAN, ..JOB },
            Workload { rate: Rate { low: 2.0, mean: 1.0, high: 3.0 }, ..JOB },
            Workload { rate: Rate::exactly(0.0), ..JOB },
        ] {
            assert!(broken.cost().is_err(), "{broken:?}");
        }
        assert!(Demand::of(f64::NAN, 1.0, 1.0).is_err());
    }

    #[test]
    fn demand_is_rate_times_bytes() {
        let demand = Demand::of(988.0, 300e3, 1536.0).unwrap();
        assert_eq!(demand.read_bytes_per_second, 296.4e6);
        assert_eq!(demand.write_bytes_per_million, 1.536e9);
    }
}
