//! Object stores: opened with a number of requests in flight, and measured at several.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use foveate_core::{error_chain, lock};
use foveate_plan::{StoreRequests, fit_store};
use foveate_source::store::{Object, ReadAhead, Store};
use foveate_source::{FetchError, SourceError};

use crate::storage::{StorageReading, Supply};
use crate::{LabError, StoreOpener};

/// Requests in flight to measure in addition to a single one, while more of them read more.
const NUMBERS: [usize; 5] = [4, 16, 64, 256, 1024];
/// A number of requests that reads less than this many times as much as the number before is the last.
const GROWTH: f64 = 1.1;
/// Most bytes in flight.
const MOST_BYTES: f64 = 128e6;
/// Seconds of single requests, and how many of them there are.
const SECONDS_ALONE: f64 = 1.5;
const ALONE: [usize; 2] = [3, 9];
/// Least seconds, and generations of requests, of each number.
const SECONDS: f64 = 0.4;
const GENERATIONS: usize = 2;

/// A store, opened once for each number of requests in flight.
pub(crate) struct Stores {
    open: StoreOpener,
    opened: Mutex<BTreeMap<usize, Arc<dyn Store>>>,
}

impl Stores {
    pub(crate) fn new(open: StoreOpener) -> Self {
        Self { open, opened: Mutex::default() }
    }

    pub(crate) fn with(&self, requests: usize) -> Result<Arc<dyn Store>, SourceError> {
        let mut opened = lock(&self.opened);
        if let Some(store) = opened.get(&requests) {
            return Ok(Arc::clone(store));
        }
        let store = (self.open)(requests)?;
        opened.insert(requests, Arc::clone(&store));
        Ok(store)
    }
}

/// Measures a store that has `objects`: single requests, and several at a time.
pub(crate) fn measure(stores: &Stores, objects: &[Object]) -> Result<Supply, LabError> {
    let mut measured = StoreRequests::default();
    let mut readings = vec![one_by_one(stores.with(1)?.as_ref(), objects, &mut measured)?];
    let bytes = readings[0].bytes as f64 / readings[0].images as f64;
    for requests in NUMBERS.into_iter().take_while(|&requests| requests as f64 * bytes <= MOST_BYTES) {
        let before = readings[readings.len() - 1].bytes_per_second();
        // A store may refuse so many. One that refuses everything ends the reading below.
        let Ok(reading) = together(stores.with(requests)?.as_ref(), objects, requests) else { break };
        readings.push(reading);
        if reading.bytes_per_second() < GROWTH * before {
            break;
        }
    }
    measured.together = readings.iter().map(|reading| (reading.requests as u32, reading.bytes_per_second())).collect();
    let storage = fit_store(&measured)?;
    Ok(Supply { place: "store", readings, storage: Some(storage) })
}

/// Reads one byte and one object in turns, one request at a time.
fn one_by_one(store: &dyn Store, objects: &[Object], measured: &mut StoreRequests) -> Result<StorageReading, LabError> {
    let mut flow = StoreFlow::new(store, objects, 1);
    // It also connects.
    flow.take()?;
    let mut reading = StorageReading { requests: 1, ..StorageReading::default() };
    let begun = Instant::now();
    for object in objects.iter().cycle().take(ALONE[1]) {
        let first = {
            let blob = store.open(object).map_err(unreadable)?;
            timed(|| blob.read_at(0, &mut [0]))
        };
        let (bytes, seconds) = timed(|| flow.take());
        let bytes = bytes?;
        // A server that sends whole objects alone takes as long for one byte.
        measured.first_byte.push(if first.0.is_ok() { first.1 } else { seconds });
        measured.whole.push((bytes as f64, seconds));
        reading = StorageReading {
            images: reading.images + 1,
            bytes: reading.bytes + bytes,
            seconds: reading.seconds + seconds,
            ..reading
        };
        if reading.images >= ALONE[0] as u64 && begun.elapsed().as_secs_f64() >= SECONDS_ALONE {
            break;
        }
    }
    Ok(reading)
}

/// Reads with `requests` requests in flight, which the store has, in whole generations of them.
fn together(store: &dyn Store, objects: &[Object], requests: usize) -> Result<StorageReading, LabError> {
    let mut flow = StoreFlow::new(store, objects, 2 * requests);
    (0..requests).try_for_each(|_| flow.take().map(drop))?;
    let started = Instant::now();
    let mut reading = StorageReading { requests, ..StorageReading::default() };
    for generation in 1.. {
        for _ in 0..requests {
            reading.bytes += flow.take()?;
        }
        reading.images += requests as u64;
        reading.seconds = started.elapsed().as_secs_f64();
        let is_long = reading.seconds >= SECONDS || reading.bytes as f64 >= MOST_BYTES;
        if generation >= GENERATIONS && is_long {
            break;
        }
    }
    Ok(reading)
}

/// Objects over and over, of which some are asked for ahead.
struct StoreFlow<'a> {
    ahead: Box<dyn ReadAhead>,
    objects: std::iter::Cycle<std::slice::Iter<'a, Object>>,
    asked: usize,
    most: usize,
}

impl<'a> StoreFlow<'a> {
    fn new(store: &dyn Store, objects: &'a [Object], most: usize) -> Self {
        Self { ahead: store.read_ahead(), objects: objects.iter().cycle(), asked: 0, most }
    }

    /// Returns the bytes of the next object.
    fn take(&mut self) -> Result<u64, LabError> {
        while self.asked < self.most && self.ahead.has_room() {
            self.ahead.ask(self.objects.next().cloned().ok_or_else(none)?);
            self.asked += 1;
        }
        self.asked -= 1;
        Ok(self.ahead.take().map_err(unreadable)?.0.len() as u64)
    }
}

fn none() -> LabError {
    LabError::Photos("a store without objects".to_owned())
}

fn unreadable(error: FetchError) -> LabError {
    LabError::Photos(error_chain(&error))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let done = work();
    (done, started.elapsed().as_secs_f64())
}
