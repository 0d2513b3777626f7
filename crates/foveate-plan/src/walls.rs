//! The walls: storage, CPU transformation, the bus to the accelerator, compute. The steady state is the slowest of
//! them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, not_negative, positive};
use crate::{PlanError, Step};

/// A pipeline whose stages have their own processors: the accelerator computes while other processors transform and the
/// storage delivers. If they share one machine's cores, see [`crate::Measured`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Encoded bytes per image.
    pub bytes_per_image: f64,
    /// The store that delivers the bytes; `None` if they are in memory.
    pub storage: Option<Storage>,
    /// Bytes to pixels.
    pub transform: Transform,
    /// The pixels' way to the accelerators; `None` if it takes no time.
    pub bus: Option<Bus>,
    /// One accelerator's seconds per batch.
    pub step: Step,
    /// Number of accelerators, each with its own batches.
    pub accelerators: u32,
    /// Seconds per image of the one thread that stores the vectors; 0 if negligible.
    pub write_seconds: f64,
}

/// A store that answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// Seconds before the first byte of a request.
    pub latency: f64,
    /// Bytes per second of one request after the first byte.
    pub stream_bytes_per_second: f64,
    /// Number of requests in flight.
    pub concurrency: u32,
    /// Images per request: 1 for files and URLs, many for tar shards.
    pub images_per_request: f64,
    /// Bytes per second of all requests together (the disk's or the network's limit), if limited.
    pub link_bytes_per_second: Option<f64>,
}

/// Connection of each accelerator with the host's memory, such as PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bus {
    /// Bytes of an image's pixels.
    pub bytes_per_image: f64,
    /// Bytes per second to one accelerator.
    pub bytes_per_second: f64,
}

/// The CPU's work per image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// The form used in the literature: encoded bytes per second of all workers together.
    Throughput {
        /// Bytes per second.
        bytes_per_second: f64,
    },
    /// The measured form.
    PerImage {
        /// One worker's seconds per image.
        seconds: f64,
        /// Number of workers.
        workers: u32,
    },
    /// Done elsewhere: in advance, or on the device as a part of the step.
    Nothing,
}

/// A pipeline's possible bottlenecks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wall {
    /// Reading the bytes.
    Storage,
    /// Bytes to pixels.
    Cpu,
    /// Pixels to the accelerator.
    Bus,
    /// Pixels to vectors.
    Compute,
    /// Storing the vectors.
    Write,
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Storage => "storage",
            Self::Cpu => "CPU transformation",
            Self::Bus => "the bus",
            Self::Compute => "compute",
            Self::Write => "writing",
        })
    }
}

/// A pipeline's steady state at one batch size. Seconds are per batch, already divided by the number of parallel
/// workers, requests or accelerators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Images per batch.
    pub batch: u32,
    /// The storage's seconds per batch.
    pub storage_seconds: f64,
    /// The CPU's seconds per batch.
    pub cpu_seconds: f64,
    /// The seconds of a batch's pixels on the accelerators' buses.
    pub bus_seconds: f64,
    /// The accelerators' seconds per batch: a step divided by their number.
    pub compute_seconds: f64,
    /// The writer's seconds per batch.
    pub write_seconds: f64,
    /// Seconds between batches: the largest of the five.
    pub seconds: f64,
    /// The largest of the five; compute in a tie.
    pub bound: Wall,
    /// Accelerator time ÷ time between batches, above 0 and at most 1.
    pub utilization: f64,
    /// The inverse of the utilization: how much longer everything takes than with compute alone.
    pub slowdown: f64,
    /// Images per second of the whole pipeline.
    pub images_per_second: f64,
    /// Bytes per second that the storage delivers in this state.
    pub storage_bytes_per_second: f64,
    /// Bytes per second that the storage must deliver to keep the accelerators busy.
    pub storage_demand: f64,
}

impl Storage {
    /// A local disk, or a page cache: negligible latency, one rate for all requests.
    pub fn disk(bytes_per_second: f64) -> Self {
        Self {
            latency: 0.0,
            stream_bytes_per_second: bytes_per_second,
            concurrency: 1,
            images_per_request: 1.0,
            link_bytes_per_second: Some(bytes_per_second),
        }
    }

    /// An object store or a web server, one request per image.
    pub fn remote(latency: f64, stream_bytes_per_second: f64, concurrency: u32) -> Self {
        Self { latency, stream_bytes_per_second, concurrency, images_per_request: 1.0, link_bytes_per_second: None }
    }

    /// Images per second: requests in flight ÷ seconds per request (Little's law), or the link's limit.
    ///
    /// # Errors
    /// [`PlanError`] for a number that is negative, not finite, or zero where zero is meaningless.
    pub fn images_per_second(&self, bytes_per_image: f64) -> Result<f64, PlanError> {
        positive("the bytes per image", bytes_per_image)?;
        not_negative("the storage's latency", self.latency)?;
        positive("the bytes per second of a request", self.stream_bytes_per_second)?;
        positive("the images per request", self.images_per_request)?;
        let in_flight = at_least_one("the requests in flight", self.concurrency)?;
        let transfer = self.images_per_request * bytes_per_image / self.stream_bytes_per_second;
        let requests = in_flight * self.images_per_request / (self.latency + transfer);
        match self.link_bytes_per_second {
            Some(link) => Ok(requests.min(positive("the link's bytes per second", link)? / bytes_per_image)),
            None => Ok(requests),
        }
    }

    /// Requests in flight needed for `images_per_second`, if the link allows it.
    ///
    /// # Errors
    /// As [`Storage::images_per_second`], and if the link cannot deliver that much.
    pub fn concurrency_for(&self, bytes_per_image: f64, images_per_second: f64) -> Result<u32, PlanError> {
        positive("the images per second", images_per_second)?;
        let one = Self { concurrency: 1, link_bytes_per_second: None, ..*self }.images_per_second(bytes_per_image)?;
        if let Some(link) = self.link_bytes_per_second
            && link < images_per_second * bytes_per_image
        {
            let needed = images_per_second * bytes_per_image;
            return Err(PlanError::Impossible(format!("the link gives {link:.3e} bytes/s, {needed:.3e} are needed")));
        }
        Ok((images_per_second / one).ceil() as u32)
    }
}

impl Transform {
    fn seconds_per_image(&self, bytes_per_image: f64) -> Result<f64, PlanError> {
        match *self {
            Self::Throughput { bytes_per_second } => {
                positive("the bytes per image", bytes_per_image)?;
                Ok(bytes_per_image / positive("the CPU's bytes per second", bytes_per_second)?)
            }
            Self::PerImage { seconds, workers } => {
                let workers = at_least_one("the number of workers", workers)?;
                Ok(not_negative("the CPU's seconds per image", seconds)? / workers)
            }
            Self::Nothing => Ok(0.0),
        }
    }

    /// The same work at `factor` times the cost.
    pub fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Throughput { bytes_per_second } => Self::Throughput { bytes_per_second: bytes_per_second / factor },
            Self::PerImage { seconds, workers } => Self::PerImage { seconds: seconds * factor, workers },
            Self::Nothing => Self::Nothing,
        }
    }
}

impl Model {
    /// The pipeline's steady state with batches of `batch` images.
    ///
    /// # Errors
    /// [`PlanError`] for a number that is negative, not finite, or zero where zero is meaningless.
    pub fn at(&self, batch: u32) -> Result<SteadyState, PlanError> {
        let images = at_least_one("the batch", batch)?;
        not_negative("the bytes per image", self.bytes_per_image)?;
        let storage_seconds = match &self.storage {
            Some(storage) => images / storage.images_per_second(self.bytes_per_image)?,
            None => 0.0,
        };
        let cpu_seconds = images * self.transform.seconds_per_image(self.bytes_per_image)?;
        let accelerators = at_least_one("the number of accelerators", self.accelerators)?;
        let compute_seconds = self.step.seconds(batch)? / accelerators;
        let bus_seconds = match self.bus {
            Some(Bus { bytes_per_image, bytes_per_second }) => {
                let bytes = images * not_negative("the bytes of an image's pixels", bytes_per_image)?;
                bytes / positive("the bus's bytes per second", bytes_per_second)? / accelerators
            }
            None => 0.0,
        };
        let write_seconds = images * not_negative("the seconds to store an image", self.write_seconds)?;
        let walls = [
            (Wall::Compute, compute_seconds),
            (Wall::Storage, storage_seconds),
            (Wall::Cpu, cpu_seconds),
            (Wall::Bus, bus_seconds),
            (Wall::Write, write_seconds),
        ];
        let (mut bound, mut seconds) = walls[0];
        for (wall, more) in walls {
            if more > seconds {
                bound = wall;
                seconds = more;
            }
        }
        let images_per_second = images / seconds;
        Ok(SteadyState {
            batch,
            storage_seconds,
            cpu_seconds,
            bus_seconds,
            compute_seconds,
            write_seconds,
            seconds,
            bound,
            utilization: compute_seconds / seconds,
            slowdown: seconds / compute_seconds,
            images_per_second,
            storage_bytes_per_second: images_per_second * self.bytes_per_image,
            storage_demand: images * self.bytes_per_image / compute_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinearStep, StepTable};

    /// The example from the literature.
    pub(crate) fn published() -> Model {
        let points = [(32, 5.86), (64, 6.70), (128, 8.38), (256, 11.74), (512, 18.47), (1024, 31.93)];
        let points: Vec<(u32, f64)> = points.map(|(batch, ms)| (batch, ms / 1e3)).into();
        Model {
            bytes_per_image: 500e3,
            storage: None,
            transform: Transform::Throughput { bytes_per_second: 2e9 },
            bus: None,
            step: Step::Table(StepTable::new(points).unwrap()),
            accelerators: 1,
            write_seconds: 0.0,
        }
    }

    fn rounded(value: f64, decimals: i32) -> f64 {
        let scale = 10f64.powi(decimals);
        (value * scale).round() / scale
    }

    #[test]
    fn the_published_table_comes_out() {
        let batches = [32, 64, 128, 256, 512, 1024];
        let states: Vec<SteadyState> = batches.iter().map(|&b| published().at(b).unwrap()).collect();
        let cpu_ms: Vec<f64> = states.iter().map(|s| rounded(s.cpu_seconds * 1e3, 6)).collect();
        assert_eq!(cpu_ms, [8.0, 16.0, 32.0, 64.0, 128.0, 256.0]);
        let percent: Vec<f64> = states.iter().map(|s| s.utilization * 100.0).collect();
        // Equal in every printed digit (73.25 is printed as 73.2).
        for (ours, theirs) in percent.iter().zip([73.2, 41.9, 26.2, 18.3, 14.4, 12.5]) {
            assert!((ours - theirs).abs() < 0.05 + 1e-9, "{ours} against {theirs}");
        }
        assert_eq!(rounded(states[3].slowdown, 2), 5.45);
        assert_eq!(rounded(states[3].storage_demand / 1e9, 1), 10.9);
        assert!(states.iter().all(|s| s.bound == Wall::Cpu));
    }

    #[test]
    fn twenty_against_thirty_five_milliseconds_is_57_percent() {
        let model = Model {
            transform: Transform::PerImage { seconds: 0.035, workers: 1 },
            step: Step::Linear(LinearStep { overhead: 0.0, per_item: 0.020 }),
            ..published()
        };
        assert_eq!(rounded(model.at(1).unwrap().utilization, 2), 0.57);
    }

    #[test]
    fn each_wall_can_be_the_slowest() {
        let step = Step::Linear(LinearStep { overhead: 0.0, per_item: 0.001 });
        let free = Model { transform: Transform::Nothing, step, ..published() };
        assert_eq!(free.at(8).unwrap().bound, Wall::Compute);
        assert_eq!(free.at(8).unwrap().utilization, 1.0);
        let slow_disk = Model { storage: Some(Storage::disk(100e6)), ..free.clone() };
        let state = slow_disk.at(8).unwrap();
        assert_eq!((state.bound, state.images_per_second), (Wall::Storage, 200.0));
        let slow_sink = Model { write_seconds: 0.002, ..free.clone() };
        assert_eq!(slow_sink.at(8).unwrap().bound, Wall::Write);
        // 150 kB of pixels at 100 MB/s: 1.5 ms an image, in half of that over two buses.
        let bus = Some(Bus { bytes_per_image: 150e3, bytes_per_second: 100e6 });
        let slow_bus = Model { bus, ..free.clone() };
        let state = slow_bus.at(8).unwrap();
        assert_eq!((state.bound, rounded(state.images_per_second, 6)), (Wall::Bus, 666.666_667));
        assert_eq!(rounded(Model { accelerators: 2, ..slow_bus }.at(8).unwrap().images_per_second, 6), 1_333.333_333);
        let two = Model { accelerators: 2, ..free };
        assert_eq!(two.at(8).unwrap().images_per_second, 2000.0);
    }

    #[test]
    fn requests_in_flight_follow_littles_law() {
        // 100 ms latency and 1 MB at 10 MB/s: 0.2 s per request.
        let store = Storage::remote(0.1, 10e6, 32);
        assert_eq!(store.images_per_second(1e6).unwrap(), 160.0);
        assert_eq!(store.concurrency_for(1e6, 160.0), Ok(32));
        let capped = Storage { link_bytes_per_second: Some(50e6), ..store };
        assert_eq!(capped.images_per_second(1e6).unwrap(), 50.0);
        assert!(capped.concurrency_for(1e6, 160.0).is_err());
        // 100 images to a request: 0.1 + 10 s each, 32 at once.
        let shards = Storage { images_per_request: 100.0, ..store };
        assert!((shards.images_per_second(1e6).unwrap() - 3200.0 / 10.1).abs() < 1e-9);
    }

    #[test]
    fn nonsense_is_refused() {
        let model = published();
        assert!(model.at(0).is_err());
        for broken in [
            Model { bytes_per_image: f64::NAN, ..model.clone() },
            Model { bytes_per_image: -1.0, ..model.clone() },
            Model { transform: Transform::Throughput { bytes_per_second: 0.0 }, ..model.clone() },
            Model { transform: Transform::PerImage { seconds: 1.0, workers: 0 }, ..model.clone() },
            Model { accelerators: 0, ..model.clone() },
            Model { write_seconds: f64::INFINITY, ..model.clone() },
            Model { bus: Some(Bus { bytes_per_image: 1.0, bytes_per_second: 0.0 }), ..model.clone() },
            Model { storage: Some(Storage::remote(-1.0, 1.0, 1)), ..model.clone() },
            Model { storage: Some(Storage::remote(1.0, 1.0, 0)), ..model.clone() },
        ] {
            assert!(broken.at(32).is_err(), "{broken:?}");
        }
        let text = Model { accelerators: 0, ..model }.at(32).unwrap_err().to_string();
        assert_eq!(text, "the number of accelerators must be at least 1, not 0");
    }
}
