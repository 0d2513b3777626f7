//! Measures the read throughput of the photos' storage while nothing else works.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use foveate_core::{error_chain, lock};
use foveate_plan::Storage;
use foveate_source::{Delivery, Source};

use crate::LabError;

/// Least length of a measurement from the page cache, in seconds; it ends with the turn.
const SECONDS: f64 = 0.5;
/// Share of the best rate that counts as equal to it.
const ALIKE: f64 = 0.9;

/// The measured throughput of a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supply {
    /// The kind of place: `files`, `container` or `store`.
    pub(crate) place: &'static str,
    pub(crate) readings: Vec<StorageReading>,
    /// The model of what reads ahead of the job, which is a container's stream or a store's requests.
    pub(crate) storage: Option<Storage>,
}

/// One way to read the photos, measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StorageReading {
    /// `cold` or `warm`: whether the system's page cache was without the photos. Empty if that is not known.
    pub(crate) cache: &'static str,
    /// Requests in flight, or threads that read files.
    pub(crate) requests: usize,
    pub(crate) images: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

impl StorageReading {
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    pub(crate) fn images_per_second(&self) -> f64 {
        self.images as f64 / self.seconds
    }
}

impl Supply {
    /// Returns the model, of a store with this many requests in flight.
    pub(crate) fn storage(&self, requests: usize) -> Option<Storage> {
        let storage = self.storage?;
        let concurrency = if self.place == "store" { requests as u32 } else { storage.concurrency };
        Some(Storage { concurrency, ..storage })
    }

    /// Returns the reading of a store with the fewest requests that is about as fast as any.
    pub(crate) fn enough(&self) -> Option<&StorageReading> {
        let best = self.readings.iter().map(StorageReading::bytes_per_second).fold(0.0, f64::max);
        let alike = self.readings.iter().filter(|reading| reading.bytes_per_second() >= ALIKE * best);
        alike.min_by_key(|reading| reading.requests)
    }

    /// Returns true if this many requests read about as much as any number.
    pub(crate) fn is_enough(&self, requests: usize) -> bool {
        let best = self.readings.iter().map(StorageReading::bytes_per_second).fold(0.0, f64::max);
        let bytes = self.mean_bytes();
        let fitted = self.storage(requests).and_then(|storage| storage.images_per_second(bytes).ok());
        fitted.is_some_and(|images| images * bytes >= ALIKE * best)
    }

    fn mean_bytes(&self) -> f64 {
        let bytes: u64 = self.readings.iter().map(|reading| reading.bytes).sum();
        let images: u64 = self.readings.iter().map(|reading| reading.images).sum();
        bytes as f64 / images.max(1) as f64
    }
}

/// Measures files or a container's stream with `readers` threads. What `forget` drops from the page cache is read cold
/// first.
///
/// A turn begins anew at the directory of an archive, so a few small photos of a remote one give less than a long job
/// would have.
pub(crate) fn of_files(
    place: &'static str,
    readers: usize,
    forget: &dyn Fn() -> bool,
    turn: &dyn Fn() -> Box<dyn Source>,
) -> Result<Supply, LabError> {
    let mut readings = Vec::new();
    let cold = forget();
    if cold {
        readings.push(StorageReading { cache: "cold", ..read(turn, readers, 0.0)? });
    }
    readings.push(StorageReading { cache: if cold { "warm" } else { "" }, ..read(turn, readers, SECONDS)? });
    let rate = readings.last().map_or(0.0, StorageReading::bytes_per_second);
    let storage = (place == "container" && rate > 0.0).then(|| Storage::disk(rate));
    Ok(Supply { place, readings, storage })
}

/// Reads the photos in turns until `seconds` have passed, at least once.
fn read(turn: &dyn Fn() -> Box<dyn Source>, readers: usize, seconds: f64) -> Result<StorageReading, LabError> {
    let started = Instant::now();
    let mut reading = StorageReading { requests: readers, ..StorageReading::default() };
    while reading.images == 0 || reading.seconds < seconds {
        let source = Mutex::new(turn());
        let shares = thread::scope(|scope| {
            let readers: Vec<_> = (0..readers.max(1)).map(|_| scope.spawn(|| read_all(&source))).collect();
            let read = readers
                .into_iter()
                .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            read.collect::<Result<Vec<_>, LabError>>()
        })?;
        for (images, bytes) in shares {
            reading.images += images;
            reading.bytes += bytes;
        }
        reading.seconds = started.elapsed().as_secs_f64();
    }
    Ok(reading)
}

/// Reads a source's items, of which others read some, and returns their number and bytes.
fn read_all(source: &Mutex<Box<dyn Source>>) -> Result<(u64, u64), LabError> {
    let mut fetch = lock(source).open_fetch()?;
    let mut images = 0;
    let mut bytes = 0;
    let mut buffer = Vec::new();
    loop {
        let next = lock(source).deliver()?;
        let Some(Delivery { item, content }) = next else { return Ok((images, bytes)) };
        let read = content.read_into(&item, fetch.as_mut(), &mut buffer);
        read.map_err(|error| LabError::Photos(format!("{}: {}", item.id, error_chain(&error))))?;
        images += 1;
        bytes += buffer.len() as u64;
    }
}
