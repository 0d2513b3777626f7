//! The work of each stage, one unit at a time. The threaded and the sequential engine call the same code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use foveate_core::{FaultScope, ImageViewMut, PixelBatch, PixelBuf, Size, Stage};
use foveate_decode::{Decoder, Orientation, orientation};
use foveate_encode::{EncodeTimes, Encoder};
use foveate_profile::{StageProfiler, Trace};
use foveate_resize::Resizer;
use foveate_sink::{Failure, VectorSink, Watermark};
use foveate_source::{Fetch, Item};
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{Encoded, ItemInfo, Outcome, Pixels};
use crate::{Config, OrientationPolicy, RunError};

/// Makes one decoder or resizer per worker.
pub type Opener<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;

/// Numbers that a progress display reads while the run is on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Index of the first item of this session; earlier ones were settled by earlier sessions.
    pub first: AtomicU64,
    /// Vectors handed to the sink in this session.
    pub rows: AtomicU64,
    /// Failures handed to the sink in this session.
    pub failures: AtomicU64,
    /// Encoded bytes read in this session.
    pub bytes: AtomicU64,
    /// Items below this index are durable.
    pub committed: AtomicU64,
}

/// Times what `work` does as one span of `stage`.
pub(crate) fn timed<T>(profiler: &StageProfiler, stage: Stage, work: impl FnOnce() -> T) -> T {
    let _span = profiler.span(stage_number(stage));
    work()
}

/// What encoding consists of, as the encoder itself tells.
const ENCODE_PARTS: [&str; 3] = ["copy-in", "forward", "copy-out"];

/// A profiler of all stages, and behind them of the parts of encoding.
pub(crate) fn profiler(trace: Option<Trace>) -> StageProfiler {
    let names = Stage::ALL.map(Stage::name).into_iter().chain(ENCODE_PARTS);
    match trace {
        Some(trace) => StageProfiler::traced(names, trace),
        None => StageProfiler::new(names),
    }
}

pub(crate) fn stage_number(stage: Stage) -> usize {
    Stage::ALL.iter().position(|&s| s == stage).unwrap_or(0)
}

pub(crate) fn failure(item: &Item, stage: Stage, reason: &str, bytes: Option<u64>) -> Failure {
    // One line per failure, whatever a library puts into its messages.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    Failure { index: item.index, id: item.id.clone(), stage, reason, bytes }
}

/// Gets the bytes of `item` into `bytes`, or says why not.
pub(crate) fn read(
    fetch: &mut dyn Fetch,
    item: &Item,
    bytes: &mut Vec<u8>,
    profiler: &StageProfiler,
    progress: &Progress,
) -> Result<(), Failure> {
    if let Some(reason) = &item.fault {
        return Err(failure(item, Stage::List, reason, None));
    }
    let read = timed(profiler, Stage::Read, || fetch.fetch(item, bytes));
    progress.bytes.fetch_add(bytes.len() as u64, Relaxed);
    read.map_err(|error| failure(item, Stage::Read, &error.to_string(), None))
}

/// Decodes, turns upright and resizes: the CPU work on one image. One per worker thread.
pub(crate) struct Preparer<'a> {
    decoder: Box<dyn Decoder>,
    resizer: Box<dyn Resizer>,
    pixels: PixelBuf,
    turned: PixelBuf,
    output: Vec<u8>,
    config: &'a Config,
    open: &'a dyn OpenPreparer,
    profiler: &'a StageProfiler,
}

/// Makes what a worker needs; again after a panic, which leaves a decoder in an unknown state.
pub(crate) trait OpenPreparer: Sync {
    fn decoder(&self) -> Result<Box<dyn Decoder>, RunError>;
    fn resizer(&self) -> Result<Box<dyn Resizer>, RunError>;
}

/// Why an image was not prepared.
enum PrepareError {
    Item(Stage, String),
    Run(RunError),
}

impl<'a> Preparer<'a> {
    pub(crate) fn new(
        config: &'a Config,
        open: &'a dyn OpenPreparer,
        profiler: &'a StageProfiler,
    ) -> Result<Self, RunError> {
        let output = config.geometry.output();
        Ok(Self {
            decoder: open.decoder()?,
            resizer: open.resizer()?,
            pixels: PixelBuf::new(config.limits),
            turned: PixelBuf::new(config.limits),
            output: vec![0; output.rgb_len().unwrap_or(0)],
            config,
            open,
            profiler,
        })
    }

    /// The outcome of one item, and its pixels when it has any.
    pub(crate) fn prepare(&mut self, item: &Item, bytes: &[u8]) -> Result<(Outcome, &[u8]), RunError> {
        let prepared = catch_unwind(AssertUnwindSafe(|| self.try_prepare(bytes)));
        let outcome = match prepared {
            Ok(Ok(size)) => {
                Outcome::Ready(ItemInfo { index: item.index, id: item.id.clone(), size, xxh3: xxh3_64(bytes) })
            }
            Ok(Err(PrepareError::Item(stage, reason))) => {
                Outcome::Failed(failure(item, stage, &reason, Some(bytes.len() as u64)))
            }
            Ok(Err(PrepareError::Run(error))) => return Err(error),
            Err(panic) => {
                self.start_over()?;
                let reason = format!("decoder or resizer panicked: {}", panic_message(panic.as_ref()));
                Outcome::Failed(failure(item, Stage::Decode, &reason, Some(bytes.len() as u64)))
            }
        };
        self.pixels.shrink();
        self.turned.shrink();
        Ok((outcome, &self.output))
    }

    /// Returns the image's size after orientation; its pixels are in `output`.
    fn try_prepare(&mut self, bytes: &[u8]) -> Result<Size, PrepareError> {
        timed(self.profiler, Stage::Decode, || self.decode(bytes))?;
        let size = self.pixels.size();
        timed(self.profiler, Stage::Resize, || self.resize())?;
        Ok(size)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<(), PrepareError> {
        let decoded =
            self.decoder.decode(bytes, self.config.hint, &mut self.pixels).map_err(|error| match error.scope() {
                FaultScope::Item => PrepareError::Item(Stage::Decode, error.to_string()),
                FaultScope::Run => PrepareError::Run(error.into()),
            })?;
        let turn = match self.config.orientation {
            OrientationPolicy::Apply => orientation(bytes, decoded.format),
            OrientationPolicy::Ignore => Orientation::Normal,
        };
        turn.apply(&mut self.pixels, &mut self.turned)
            .map_err(|error| PrepareError::Item(Stage::Decode, error.to_string()))
    }

    fn resize(&mut self) -> Result<(), PrepareError> {
        let error = |error: foveate_resize::ResizeError| match error.scope() {
            FaultScope::Item => PrepareError::Item(Stage::Resize, error.to_string()),
            FaultScope::Run => PrepareError::Run(error.into()),
        };
        let plan = self.config.geometry.plan(self.pixels.size());
        let Some(output) = ImageViewMut::new(&mut self.output, plan.output) else {
            return Err(PrepareError::Run(RunError::Config(format!("resize plan gives {}", plan.output))));
        };
        self.resizer.resize(self.pixels.view(), &plan, output).map_err(error)
    }

    fn start_over(&mut self) -> Result<(), RunError> {
        self.decoder = self.open.decoder()?;
        self.resizer = self.open.resizer()?;
        self.pixels = PixelBuf::new(self.config.limits);
        self.turned = PixelBuf::new(self.config.limits);
        Ok(())
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Encodes one full batch into `encoded` and leaves the slots of `pixels` free.
pub(crate) fn encode(
    encoder: &mut dyn Encoder,
    config: &Config,
    end: u64,
    pixels: &mut Pixels,
    encoded: &mut Encoded,
    profiler: &StageProfiler,
) -> Result<(), RunError> {
    encoded.clear();
    encoded.end = end;
    let images = timed(profiler, Stage::Batch, || pixels.compact(encoded));
    let Some(batch) = PixelBatch::new(images, config.geometry.output()) else {
        return Ok(()); // every item of the batch failed
    };
    let started = Instant::now();
    let times = timed(profiler, Stage::Encode, || encoder.encode(batch, &mut encoded.vectors))?;
    record_parts(profiler, &encoder.spec().device, started, times);
    let dim = encoder.spec().dim;
    if (encoded.vectors.rows(), encoded.vectors.dim()) != (encoded.len(), dim) {
        let got = format!("{}x{}", encoded.vectors.rows(), encoded.vectors.dim());
        return Err(RunError::Accounting(format!("the encoder gave {got} values for {}x{dim}", encoded.len())));
    }
    config.normalize.apply(encoded.vectors.as_mut_slice(), dim);
    Ok(())
}

/// The parts of an encoding that began at `started`, one after the other; in a trace, on a lane of the device's own.
fn record_parts(profiler: &StageProfiler, device: &str, started: Instant, times: EncodeTimes) {
    let mut start = started;
    for (at, (part, time)) in ENCODE_PARTS.into_iter().zip([times.copy_in, times.forward, times.copy_out]).enumerate() {
        profiler.record(Stage::ALL.len() + at, time);
        if let Some(trace) = profiler.trace().filter(|_| !time.is_zero()) {
            trace.span_on(device, part, start, time);
        }
        start += time;
    }
}

/// Stores batches in order, commits from time to time, and enforces the failure policy.
pub(crate) struct Writer<'a> {
    sink: &'a mut (dyn VectorSink + 'static),
    config: &'a Config,
    profiler: &'a StageProfiler,
    progress: &'a Progress,
    last_commit: Instant,
    first: u64,
    stored: u64,
    committed: u64,
    pub(crate) rows: u64,
    pub(crate) failures: u64,
    last_failure: Option<Failure>,
}

impl<'a> Writer<'a> {
    /// A writer that continues at item `first`.
    pub(crate) fn new(
        sink: &'a mut (dyn VectorSink + 'static),
        config: &'a Config,
        profiler: &'a StageProfiler,
        progress: &'a Progress,
        first: u64,
    ) -> Self {
        progress.first.store(first, Relaxed);
        progress.committed.store(first, Relaxed);
        Self {
            sink,
            config,
            profiler,
            progress,
            last_commit: Instant::now(),
            first,
            stored: first,
            committed: first,
            rows: 0,
            failures: 0,
            last_failure: None,
        }
    }

    pub(crate) fn write(&mut self, encoded: &Encoded, at_end: bool) -> Result<(), RunError> {
        self.check_failures(encoded, at_end)?;
        timed(self.profiler, Stage::Write, || -> Result<(), RunError> {
            if encoded.len() > 0 {
                self.sink.append(&encoded.rows())?;
            }
            if !encoded.failures.is_empty() {
                self.sink.fail(&encoded.failures)?;
            }
            Ok(())
        })?;
        self.stored = encoded.end;
        self.rows += encoded.len() as u64;
        self.failures += encoded.failures.len() as u64;
        self.progress.rows.store(self.rows, Relaxed);
        self.progress.failures.store(self.failures, Relaxed);
        if self.last_commit.elapsed() >= self.config.commit_every { self.commit() } else { Ok(()) }
    }

    /// Makes everything written so far durable.
    pub(crate) fn commit(&mut self) -> Result<(), RunError> {
        if self.stored > self.committed {
            timed(self.profiler, Stage::Write, || self.sink.commit(Watermark(self.stored)))?;
            self.committed = self.stored;
            self.progress.committed.store(self.committed, Relaxed);
        }
        self.last_commit = Instant::now();
        Ok(())
    }

    /// Items below this are durable.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    fn check_failures(&mut self, encoded: &Encoded, at_end: bool) -> Result<(), RunError> {
        if let Some(last) = encoded.failures.last() {
            self.last_failure = Some(last.clone());
        }
        let Some(last) = &self.last_failure else { return Ok(()) };
        let failed = self.failures + encoded.failures.len() as u64;
        let seen = encoded.end - self.first;
        let limit = self.config.failures;
        if limit.is_exceeded(failed, seen, at_end) {
            return Err(RunError::TooManyFailures { failed, seen, limit, last: Box::new(last.clone()) });
        }
        Ok(())
    }
}
