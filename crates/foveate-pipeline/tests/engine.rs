//! The engine's guarantees, tested with synthetic stages: order, one outcome each, resuming, faults. The stages here
//! are as small as their traits allow, so that the tests cover the engine alone. The `tests` package tests real
//! backends end to end.
// A test's panic is its report.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_core::{BatchMemory, ImageView, ImageViewMut, PixelBatch, PixelBuf, Size, Stage, VectorBuf, error_chain};
use foveate_decode::{Capability, DecodeError, DecodeHint, Decoded, Decoder, ImageFormat};
use foveate_encode::{EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Resident, host_allocator};
use foveate_pipeline::{
    Cancel, Config, FailurePolicy, KnownVector, Pipeline, Progress, Recall, Recalled, RunError, RunReport,
};
use foveate_preprocess::{
    CpuPreprocessor, Granularity, ItemFault, PreprocessError, PreprocessOptions, Preprocessor, PreprocessorOpener,
    StageClock,
};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer};
use foveate_sink::{ContentId, Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate_source::store::Version;
use foveate_source::{Content, Delivery, Extent, Fetch, FetchError, Item, Source, SourceError};

use foveate_testkit::device::{Device, spec};

const SIDE: Size = Size::square(2);

/// Items `range`; every 13th is a fault of the listing.
struct Numbers {
    range: Range<u64>,
    next: u64,
    gone: Gone,
    /// True if the items come with their bytes, and their number is not known before their end.
    streams: bool,
    /// Items this far apart have the same bytes.
    period: u64,
}

/// Items that cannot be read.
#[derive(Clone)]
struct Gone {
    /// The first item that is not there.
    from: u64,
    /// Reads of such items that fail.
    reads: Arc<AtomicU64>,
    error: fn() -> FetchError,
}

impl Gone {
    fn from(item: u64) -> Self {
        let error = || FetchError::Io(std::io::ErrorKind::NotFound.into());
        Self { from: item, reads: Arc::new(u64::MAX.into()), error }
    }
}

/// The place of an item of a stream.
fn place(index: u64) -> u64 {
    1_000_000 + 3 * index
}

impl Source for Numbers {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        if self.next >= self.range.end {
            return Ok(None);
        }
        let index = self.next;
        self.next += 1;
        let fault = (index % 13 == 12).then(|| "unreadable folder".to_owned());
        Ok(Some(Item {
            index,
            id: format!("item {index}"),
            locator: (index % self.period).to_le_bytes().to_vec(),
            fault,
            ..Item::default()
        }))
    }
    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Some(item) = self.next_item()? else { return Ok(None) };
        if !self.streams {
            return Ok(Some(Delivery::unread(item)));
        }
        let mut bytes = Vec::new();
        let read = self.open_fetch()?.fetch(&item, &mut bytes);
        let content = read.map_or_else(Content::Failed, |()| Content::Read(bytes.into()));
        Ok(Some(Delivery { item: Item { place: place(item.index), ..item }, content }))
    }
    fn extent(&self) -> Extent {
        let Range { start, end } = self.range;
        Extent { start, end: Some(end).filter(|_| !self.streams) }
    }
    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        if self.streams {
            assert_eq!(after, if index > self.range.start { place(index - 1) } else { 0 }, "resuming at {index}");
        }
        self.next = index.max(self.range.start);
        Ok(())
    }
    fn listing_hash(&self) -> String {
        "numbers".to_owned()
    }
    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        Ok(Box::new(Numbers { range: 0..0, next: 0, gone: self.gone.clone(), streams: false, period: u64::MAX }))
    }
}

/// An item's bytes are its index; every 11th cannot be read.
impl Fetch for Numbers {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        let may_fail = |reads: u64| reads.checked_sub(1);
        if item.index >= self.gone.from && self.gone.reads.fetch_update(SeqCst, SeqCst, may_fail).is_ok() {
            return Err((self.gone.error)());
        }
        if item.index % 11 == 10 {
            return Err(FetchError::NotAFile("a socket".to_owned()));
        }
        out.extend_from_slice(&item.locator);
        Ok(())
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

/// An item's pixels encode its index; every 7th is corrupt, every 17th panics, and some take longer than others.
struct NumberDecoder;

impl Decoder for NumberDecoder {
    fn decode(&mut self, encoded: &[u8], _: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        let index = u64::from_le_bytes(encoded.try_into().unwrap());
        out.clear();
        std::thread::sleep(Duration::from_micros(index * 7919 % 300));
        assert!(index % 17 != 16, "a defect\nin the decoder");
        if index % 7 == 6 {
            return Err(DecodeError::corrupt(ImageFormat::Jpeg, "bad\nmarker"));
        }
        out.reset(SIDE)?.copy_from_slice(&spread(index));
        Ok(Decoded { format: ImageFormat::Bmp, native: SIDE, is_clipped: false })
    }
    fn capability(&self) -> Capability {
        unreachable!("the engine does not ask")
    }
}

/// An index as twelve samples.
fn spread(index: u64) -> [u8; 12] {
    let mut samples = [0; 12];
    samples[..8].copy_from_slice(&index.to_le_bytes());
    samples
}

struct Copy;

impl Resizer for Copy {
    fn resize(&mut self, src: ImageView<'_>, _: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        dst.as_mut_slice().copy_from_slice(src.as_slice());
        Ok(())
    }

    fn capability(&self) -> foveate_resize::Capability {
        foveate_resize::Capability { pillow_exact: true, pillow_kernels: true, opencv_exact: true }
    }
}

/// The vector of an item is its index, twice; for `infinite_at`, the second half is infinite. Fails on the batch that
/// contains `fails_at`.
struct NumberEncoder {
    spec: EncoderSpec,
    fails_at: Option<u64>,
    infinite_at: Option<u64>,
    /// Images encoded.
    images: Arc<AtomicU64>,
    on_batch: Box<dyn FnMut() + Send>,
}

impl NumberEncoder {
    fn new() -> Self {
        let (spec, images) = (spec((SIDE, 2, 64), "cpu"), Arc::default());
        Self { spec, fails_at: None, infinite_at: None, images, on_batch: Box::new(|| ()) }
    }
}

impl Encoder for NumberEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }
    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        (self.on_batch)();
        self.images.fetch_add(batch.len() as u64, SeqCst);
        let rows = out.reset(batch.len(), 2);
        for (i, row) in rows.chunks_exact_mut(2).enumerate() {
            let index = u64::from_le_bytes(batch.image(i)[..8].try_into().unwrap());
            if Some(index) == self.fails_at {
                return Err(EncodeError::Engine("out of device memory".into()));
            }
            row.fill(index as f32);
            if Some(index) == self.infinite_at {
                row[1] = f32::INFINITY;
            }
        }
        Ok(EncodeTimes::forward_since(started))
    }
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// The same, on a device that takes a while for each batch.
fn device() -> Device {
    let mut encoder = NumberEncoder::new();
    let device = Device::new((SIDE, 2, 64), move |batch, out| {
        std::thread::sleep(Duration::from_millis(1));
        let on_device = batch.memory.as_any().downcast_ref::<DeviceMemory>().map(|memory| &memory.0[..]);
        let samples = &on_device.or(batch.memory.host()).unwrap()[..batch.images * 12];
        encoder.encode(PixelBatch::new(samples, SIDE).unwrap(), out).map(drop)
    });
    device.with_allocator(|place| match place {
        Place::Host => host_allocator(),
        Place::Device => Arc::new(|bytes| Ok(Box::new(DeviceMemory(vec![0; bytes])))),
    })
}

/// Memory that only code that knows the device can reach.
struct DeviceMemory(Vec<u8>);

impl BatchMemory for DeviceMemory {
    fn bytes(&self) -> usize {
        self.0.len()
    }
    fn host(&self) -> Option<&[u8]> {
        None
    }
    fn host_mut(&mut self) -> Option<&mut [u8]> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Does what [`NumberDecoder`] and [`Copy`] do, for whole batches on a device, or on the host if the memory is there.
struct NumberPreprocessor;

impl Preprocessor for NumberPreprocessor {
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        _: &dyn StageClock,
    ) -> Result<(), PreprocessError> {
        let on_device = out.as_any_mut().is::<DeviceMemory>();
        let slots = if on_device {
            &mut out.as_any_mut().downcast_mut::<DeviceMemory>().unwrap().0
        } else {
            out.host_mut().unwrap()
        };
        let indexes = images.iter().map(|bytes| u64::from_le_bytes((*bytes).try_into().unwrap()));
        prepared.clear();
        prepared.extend(indexes.clone().map(|index| match is_failure(index) {
            Some((stage, reason)) => Err(ItemFault { stage, reason: reason.to_owned() }),
            None => Ok(SIDE),
        }));
        let good = indexes.filter(|&index| is_failure(index).is_none());
        slots.chunks_exact_mut(12).zip(good).for_each(|(slot, index)| slot.copy_from_slice(&spread(index)));
        Ok(())
    }
}

fn preprocessors(granularity: Granularity) -> PreprocessorOpener {
    match granularity {
        Granularity::Batch => PreprocessorOpener::new(granularity, SIDE, || Ok(Box::new(NumberPreprocessor))),
        Granularity::Image => CpuPreprocessor::opener(
            Arc::new(|| Ok(Box::new(NumberDecoder))),
            Arc::new(|| Ok(Box::new(Copy))),
            PreprocessOptions::new(Geometry::Stretch { output: SIDE, filter: Filter::Bilinear }),
        ),
    }
}

/// The state that a disk would have after a crash.
#[derive(Clone, Default, Debug, PartialEq)]
struct Stored {
    watermark: Option<Watermark>,
    rows: Vec<(u64, String, f32)>,
    failures: Vec<Failure>,
    commits: u64,
}

/// Keeps rows in memory, with a disk's rules: uncommitted rows are lost with the sink.
#[derive(Default)]
struct Memory {
    disk: Arc<Mutex<Stored>>,
    pending: Stored,
    is_full: bool,
}

impl VectorSink for Memory {
    fn begin(&mut self, _: &RunManifest, _: Existing) -> Result<Watermark, SinkError> {
        Ok(self.disk.lock().unwrap().watermark.unwrap_or_default())
    }
    fn failures(&mut self) -> Result<u64, SinkError> {
        Ok(self.disk.lock().unwrap().failures.len() as u64)
    }
    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        if self.is_full {
            return Err(SinkError::Misuse("no space left".to_owned()));
        }
        for (i, &index) in rows.index.iter().enumerate() {
            assert_eq!(rows.vectors[2 * i], rows.vectors[2 * i + 1]);
            assert_eq!((rows.width[i], rows.height[i]), (2, 2));
            self.pending.rows.push((index, rows.id[i].clone(), rows.vectors[2 * i]));
        }
        Ok(())
    }
    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.pending.failures.extend_from_slice(failures);
        Ok(())
    }
    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        let mut disk = self.disk.lock().unwrap();
        disk.rows.append(&mut self.pending.rows);
        disk.failures.append(&mut self.pending.failures);
        disk.watermark = Some(watermark);
        disk.commits += 1;
        Ok(())
    }
    fn finish(&mut self) -> Result<Published, SinkError> {
        let disk = self.disk.lock().unwrap();
        let (rows, failures) = (disk.rows.len() as u64, disk.failures.len() as u64);
        Ok(Published { rows, failures, ..Published::default() })
    }
}

/// A run over `0..items`, to be varied by each test.
struct Job {
    range: Range<u64>,
    disk: Arc<Mutex<Stored>>,
    encoder: NumberEncoder,
    /// Used in place of `encoder`, if there are any.
    devices: Vec<Box<dyn Encoder>>,
    granularity: Granularity,
    config: Config,
    cancel: Cancel,
    disk_is_full: bool,
    gone: Gone,
    streams: bool,
    period: u64,
}

impl Job {
    fn new(items: u64) -> Self {
        let config = Config { batch: 8, workers: 3, ..Config::default() };
        Self {
            range: 0..items,
            disk: Arc::default(),
            encoder: NumberEncoder::new(),
            devices: Vec::new(),
            granularity: Granularity::Image,
            config,
            cancel: Cancel::default(),
            disk_is_full: false,
            gone: Gone::from(u64::MAX),
            streams: false,
            period: u64::MAX,
        }
    }

    fn run(self) -> Result<RunReport, RunError> {
        let sink = Memory { disk: self.disk, is_full: self.disk_is_full, ..Memory::default() };
        let encoders = if self.devices.is_empty() { vec![Box::new(self.encoder) as _] } else { self.devices };
        let pipeline = Pipeline {
            source: Box::new(Numbers {
                next: self.range.start,
                range: self.range,
                gone: self.gone,
                streams: self.streams,
                period: self.period,
            }),
            preprocessors: preprocessors(self.granularity),
            encoders,
            sink: Box::new(sink),
            config: self.config,
        };
        pipeline.run(&RunManifest::default(), Existing::Resume, &self.cancel, &Progress::default())
    }
}

fn is_failure(index: u64) -> Option<(Stage, &'static str)> {
    match index {
        i if i % 13 == 12 => Some((Stage::List, "unreadable folder")),
        i if i % 11 == 10 => Some((Stage::Read, "not a regular file (a socket)")),
        i if i % 17 == 16 => Some((Stage::Decode, "decoder or resizer panicked: a defect in the decoder")),
        i if i % 7 == 6 => Some((Stage::Decode, "corrupt JPEG: bad marker")),
        _ => None,
    }
}

fn check_stored(stored: &Stored, items: Range<u64>) {
    let good: Vec<_> =
        items.clone().filter(|&i| is_failure(i).is_none()).map(|i| (i, format!("item {i}"), i as f32)).collect();
    assert_eq!(stored.rows, good);
    let bad: Vec<_> =
        items.filter_map(|i| is_failure(i).map(|(stage, reason)| (i, stage, reason.to_owned()))).collect();
    let failures: Vec<_> = stored.failures.iter().map(|f| (f.index, f.stage, f.reason.clone())).collect();
    assert_eq!(failures, bad);
}

#[test]
fn every_item_has_one_outcome_in_order_for_any_workers_and_batch() {
    for (workers, readers, batch) in [(0, 1, 8), (1, 1, 1), (1, 2, 8), (2, 3, 5), (5, 2, 64), (8, 8, 3)] {
        let mut job = Job::new(403);
        (job.config.workers, job.config.readers, job.config.batch) = (workers, readers, batch);
        let disk = Arc::clone(&job.disk);
        let report = job.run().unwrap();
        check_stored(&disk.lock().unwrap(), 0..403);
        assert!(report.is_complete());
        assert_eq!(report.rows + report.failures, 403);
        assert_eq!(report.queues.is_empty(), workers == 0);
    }
}

/// Every number of items, so that some fill their last batch and some end with failures.
#[test]
fn a_stream_of_unknown_length_ends_where_it_ends_and_resumes_by_place() {
    for items in 0..40 {
        for (workers, granularity) in [(0, Granularity::Image), (3, Granularity::Image), (3, Granularity::Batch)] {
            let disk = Arc::default();
            let job = || {
                let mut job = Job::new(items);
                (job.streams, job.granularity, job.disk) = (true, granularity, Arc::clone(&disk));
                (job.config.workers, job.config.commit_every) = (workers, Duration::ZERO);
                job
            };
            // A session that stops in the middle, and one that goes on.
            let mut first = job();
            first.encoder.fails_at = Some(items / 2);
            let interrupted = first.run().map(|report| report.settled);
            let report = job().run().unwrap();
            check_stored(&disk.lock().unwrap(), 0..items);
            assert_eq!((report.inputs, report.settled), (Some(items), items));
            assert!(report.is_complete());
            let last = items.checked_sub(1).map_or(0, place);
            let watermark = disk.lock().unwrap().watermark;
            assert_eq!(watermark, (items > 0).then_some(Watermark { index: items, place: last }), "{interrupted:?}");
        }
    }
}

#[test]
fn several_encoders_and_batches_under_way_change_nothing() {
    for (devices, workers, batch) in [(1, 2, 8), (2, 3, 5), (3, 4, 1), (2, 0, 7)] {
        let mut job = Job::new(403);
        (job.config.workers, job.config.batch) = (workers, batch);
        let devices: Vec<Device> = (0..devices).map(|_| device()).collect();
        let notes: Vec<_> = devices.iter().map(Device::notes).collect();
        job.devices = devices.into_iter().map(|device| Box::new(device) as _).collect();
        let disk = Arc::clone(&job.disk);
        let report = job.run().unwrap();
        check_stored(&disk.lock().unwrap(), 0..403);
        assert_eq!(report.rows + report.failures, 403);
        let most = notes.iter().map(|notes| notes.lock().unwrap().most).max();
        // How many are under way depends on how fast the workers are.
        assert!((1..=if workers == 0 { 1 } else { 3 }).contains(&most.unwrap()), "{most:?} of {workers} workers");
    }
}

#[test]
fn a_slow_encoder_beside_a_fast_one_keeps_the_order() {
    let mut job = Job::new(403);
    let mut slow = NumberEncoder::new();
    slow.on_batch = Box::new(|| std::thread::sleep(Duration::from_millis(5)));
    job.devices = vec![Box::new(slow), Box::new(NumberEncoder::new())];
    job.config.batch = 2;
    let disk = Arc::clone(&job.disk);
    job.run().unwrap();
    check_stored(&disk.lock().unwrap(), 0..403);
}

#[test]
fn encoders_of_different_models_are_refused() {
    let mut job = Job::new(10);
    let mut other = NumberEncoder::new();
    other.spec.dim = 3;
    job.devices = vec![Box::new(NumberEncoder::new()), Box::new(other)];
    assert!(job.run().unwrap_err().to_string().contains("not of the same model"));
}

#[test]
fn a_fault_of_one_of_two_encoders_stops_the_run_and_keeps_what_was_done() {
    let mut job = Job::new(200);
    let failing = || Box::new(NumberEncoder { fails_at: Some(102), ..NumberEncoder::new() });
    job.devices = vec![failing(), failing()];
    let disk = Arc::clone(&job.disk);
    assert_eq!(error_chain(&job.run().unwrap_err()), "encode: encoder failed: out of device memory");
    let stored = disk.lock().unwrap().clone();
    let kept = stored.watermark.unwrap_or_default().index;
    assert!(kept <= 96 && kept.is_multiple_of(8), "{kept}");
    check_stored(&stored, 0..kept);
}

/// Batches that are prepared as a whole: on the device for a single encoder, on the host for several.
#[test]
fn whole_batches_come_out_as_single_images_do() {
    for (devices, workers, batch) in [(1, 1, 8), (1, 3, 5), (2, 2, 16), (1, 0, 8)] {
        let mut job = Job::new(403);
        (job.config.workers, job.config.batch, job.granularity) = (workers, batch, Granularity::Batch);
        job.devices = (0..devices).map(|_| Box::new(device()) as _).collect();
        let disk = Arc::clone(&job.disk);
        job.run().unwrap();
        check_stored(&disk.lock().unwrap(), 0..403);
    }
}

#[test]
fn a_shard_keeps_global_indexes() {
    let mut job = Job::new(0);
    job.range = 101..150;
    job.disk.lock().unwrap().watermark = Some(101.into());
    let disk = Arc::clone(&job.disk);
    assert_eq!(job.run().unwrap().inputs, Some(49));
    check_stored(&disk.lock().unwrap(), 101..150);
}

#[test]
fn read_ahead_of_one_byte_slows_but_never_stops() {
    let mut job = Job::new(100);
    job.config.read_ahead_bytes = 1;
    let disk = Arc::clone(&job.disk);
    job.run().unwrap();
    check_stored(&disk.lock().unwrap(), 0..100);
}

#[test]
fn an_empty_source_is_complete_at_once() {
    for workers in [0, 2] {
        let mut job = Job::new(0);
        job.config.workers = workers;
        assert!(job.run().unwrap().is_complete());
    }
}

#[test]
fn cancelled_runs_continue_where_they_stopped_until_done() {
    for workers in [0, 1, 4] {
        let disk: Arc<Mutex<Stored>> = Arc::default();
        let mut sessions = 0;
        loop {
            let mut job = Job::new(200);
            job.config.workers = workers;
            job.disk = Arc::clone(&disk);
            let (cancel, mut batches) = (job.cancel.clone(), 0);
            job.encoder.on_batch = Box::new(move || {
                batches += 1;
                if batches == 3 {
                    cancel.cancel();
                }
            });
            let before = disk.lock().unwrap().watermark.unwrap_or_default().index;
            let report = job.run().unwrap();
            sessions += 1;
            assert_eq!(report.resumed, before);
            assert_eq!(disk.lock().unwrap().watermark, Some(report.settled.into()));
            if report.is_complete() {
                break;
            }
            assert!(report.settled > before, "a session makes progress");
        }
        assert!(sessions > 3, "{sessions}");
        check_stored(&disk.lock().unwrap(), 0..200);
    }
}

#[test]
fn a_cancelled_run_does_not_lose_the_item_of_a_reader_that_waits_for_a_batch() {
    let mut job = Job::new(10_000);
    job.config.readers = 8;
    let (cancel, disk) = (job.cancel.clone(), Arc::clone(&job.disk));
    job.encoder.on_batch = Box::new(move || {
        // Meanwhile the queues fill up, and a reader waits, with the others behind it.
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel();
    });
    let report = job.run().unwrap();
    assert!(!report.is_complete() && report.settled > 0, "{report:?}");
    check_stored(&disk.lock().unwrap(), 0..report.settled);
}

#[test]
fn an_encoder_fault_stops_the_run_and_keeps_what_was_done() {
    for workers in [0, 3] {
        let mut job = Job::new(200);
        job.config.workers = workers;
        job.encoder.fails_at = Some(102);
        let disk = Arc::clone(&job.disk);
        let error = job.run().unwrap_err();
        assert_eq!(error_chain(&error), "encode: encoder failed: out of device memory");
        let stored = disk.lock().unwrap().clone();
        assert_eq!(stored.watermark, Some(96.into()), "whole batches below the fault");
        check_stored(&stored, 0..96);
    }
}

#[test]
fn what_is_no_vector_is_a_failure_of_its_item_alone() {
    for workers in [0, 3] {
        let mut job = Job::new(60);
        job.config.workers = workers;
        job.encoder.infinite_at = Some(17);
        let disk = Arc::clone(&job.disk);
        let report = job.run().unwrap();
        assert_eq!(report.rows + report.failures, 60);
        let stored = disk.lock().unwrap();
        let good = (0..60).filter(|&index| index != 17 && is_failure(index).is_none());
        assert!(stored.rows.iter().map(|row| (row.0, row.2)).eq(good.map(|index| (index, index as f32))));
        assert!(stored.failures.is_sorted_by_key(|failure| failure.index));
        let failure = stored.failures.iter().find(|failure| failure.index == 17).unwrap();
        assert_eq!((failure.id.as_str(), failure.stage), ("item 17", Stage::Encode));
        assert!(failure.reason.contains("infinite or not a number"), "{}", failure.reason);
    }
}

#[test]
fn a_panicking_encoder_is_a_named_fault_not_a_hang() {
    let mut job = Job::new(100);
    job.encoder.on_batch = Box::new(|| panic!("index out of bounds"));
    let error = job.run().unwrap_err().to_string();
    assert_eq!(error, "encode: panicked: index out of bounds; this is a defect, please report it");
}

#[test]
fn a_full_disk_stops_the_run_and_commits_nothing_more() {
    for workers in [0, 3] {
        let mut job = Job::new(100);
        job.config.workers = workers;
        job.disk_is_full = true;
        let disk = Arc::clone(&job.disk);
        assert!(matches!(job.run(), Err(RunError::Sink(_))));
        assert_eq!(disk.lock().unwrap().commits, 0);
    }
}

#[test]
fn too_many_failures_stop_at_the_same_item_for_any_workers() {
    for workers in [0, 1, 5] {
        let mut job = Job::new(400);
        job.config.workers = workers;
        job.config.failures = FailurePolicy::Count(3);
        let disk = Arc::clone(&job.disk);
        let error = job.run().unwrap_err().to_string();
        // Items 6, 10, 12 and 13 are the first to fail; 13 belongs to the second batch, which is not stored.
        assert!(error.starts_with("4 of 16 inputs failed, more than the limit of 3; the last: item 13"), "{error}");
        check_stored(&disk.lock().unwrap(), 0..8);
    }
}

#[test]
fn failures_of_earlier_sessions_count() {
    let disk: Arc<Mutex<Stored>> = Arc::default();
    for (limit, told) in [(3, "4 of 16 inputs"), (3, "4 of 16 inputs"), (0, "1 of 8 inputs")] {
        let mut job = Job::new(400);
        job.config.failures = FailurePolicy::Count(limit);
        job.disk = Arc::clone(&disk);
        let error = job.run().unwrap_err().to_string();
        assert!(error.starts_with(told), "{error}");
    }
    check_stored(&disk.lock().unwrap(), 0..8);
}

#[test]
fn a_source_that_is_gone_stops_the_run_and_its_items_have_not_failed() {
    for workers in [0, 3] {
        let disk: Arc<Mutex<Stored>> = Arc::default();
        let session = |gone| {
            let mut job = Job::new(200);
            (job.config.workers, job.config.max_unreadable, job.gone) = (workers, Some(5), Gone::from(gone));
            job.disk = Arc::clone(&disk);
            job.run()
        };
        for _ in 0..2 {
            let error = session(105).unwrap_err().to_string();
            assert!(error.starts_with("7 inputs in a row cannot be read") && error.contains("item 105"), "{error}");
            assert_eq!(disk.lock().unwrap().watermark, Some(105.into()));
        }
        session(u64::MAX).unwrap();
        check_stored(&disk.lock().unwrap(), 0..200);
    }
}

#[test]
fn items_that_are_gone_at_the_end_or_among_others_have_failed() {
    let mut job = Job::new(123);
    (job.config.max_unreadable, job.gone) = (Some(5), Gone::from(117));
    let disk = Arc::clone(&job.disk);
    job.run().unwrap_err();
    let mut job = Job::new(123);
    (job.config.max_unreadable, job.gone, job.disk) = (Some(6), Gone::from(117), Arc::clone(&disk));
    assert_eq!(job.run().unwrap().failures, 6);
    let stored = disk.lock().unwrap();
    assert_eq!(stored.failures.iter().filter(|failure| failure.reason.contains("not found")).count(), 6);
}

#[test]
fn items_that_come_back_at_the_end_have_not_failed() {
    for (workers, streams) in [(0, false), (3, false), (3, true)] {
        let mut job = Job::new(123);
        (job.config.workers, job.streams, job.gone) = (workers, streams, Gone::from(117));
        job.gone.reads = Arc::new(6.into());
        let disk = Arc::clone(&job.disk);
        job.run().unwrap();
        check_stored(&disk.lock().unwrap(), 0..123);
    }
}

#[test]
fn items_without_an_earlier_one_that_can_be_read_have_not_failed() {
    for (workers, first) in [(0, 0), (3, 0), (3, 20)] {
        let disk: Arc<Mutex<Stored>> = Arc::default();
        let session = |from, max_unreadable| {
            let mut job = Job::new(24);
            (job.config.workers, job.config.max_unreadable) = (workers, max_unreadable);
            (job.gone, job.disk) = (Gone::from(from), Arc::clone(&disk));
            job.run()
        };
        if first > 0 {
            session(first, Some(2)).unwrap_err();
            assert_eq!(disk.lock().unwrap().watermark, Some(first.into()));
        }
        let error = session(0, Some(100)).unwrap_err().to_string();
        assert!(error.contains("inputs in a row cannot be read"), "{error}");
        assert!(disk.lock().unwrap().failures.iter().all(|failure| !failure.reason.contains("not found")));
        session(first, None).unwrap();
        let stored = disk.lock().unwrap();
        assert!(stored.failures.iter().any(|failure| failure.reason.contains("not found")), "they are asked for");
    }
}

#[test]
fn batches_before_a_store_that_is_gone_are_kept() {
    for workers in [0, 1, 5] {
        let mut job = Job::new(200);
        (job.config.workers, job.gone) = (workers, Gone::from(105));
        job.gone.error = || FetchError::StoreGone("the store refuses it".to_owned());
        let disk = Arc::clone(&job.disk);
        let error = job.run().unwrap_err();
        assert!(matches!(error, RunError::Fetch(FetchError::StoreGone(_))), "{error}");
        check_stored(&disk.lock().unwrap(), 0..104);
    }
}

#[test]
fn strict_runs_stop_at_the_first_failure() {
    let mut job = Job::new(400);
    job.config.failures = FailurePolicy::Count(0);
    let error = job.run().unwrap_err().to_string();
    assert!(error.contains("item 6 (decode: corrupt JPEG: bad marker)"), "{error}");
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_is_written() {
    let mut job = Job::new(10);
    job.config.batch = 65;
    let disk = Arc::clone(&job.disk);
    assert!(job.run().unwrap_err().to_string().contains("batch must be 1 to 64"));
    assert_eq!(*disk.lock().unwrap(), Stored::default());
}

#[test]
fn the_slow_stage_is_named() {
    for (workers, slow) in [(1, Duration::from_millis(8)), (0, Duration::from_millis(8))] {
        let mut job = Job::new(160);
        job.config.workers = workers;
        job.encoder.on_batch = Box::new(move || std::thread::sleep(slow));
        let report = job.run().unwrap();
        assert_eq!(report.bottleneck().map(|stage| stage.stage), Some(Stage::Encode));
    }
    let mut job = Job::new(160);
    job.config.workers = 1;
    let report = job.run().unwrap();
    assert_eq!(report.bottleneck().map(|stage| stage.stage), Some(Stage::Decode));
}

/// 403 items of 60 contents, some of which fail to decode; the vector of content 3 is not finite.
fn repeating(workers: usize, granularity: Granularity) -> Job {
    let mut job = Job::new(403);
    (job.period, job.granularity) = (60, granularity);
    (job.config.workers, job.config.readers) = (workers, workers.clamp(1, 3));
    job.encoder.infinite_at = Some(3);
    job
}

/// Runs a job; returns the images that it encoded, its report, and its rows and failures.
fn outcome(job: Job) -> (u64, RunReport, Stored) {
    let (images, disk) = (Arc::clone(&job.encoder.images), Arc::clone(&job.disk));
    let report = job.run().unwrap();
    let stored = Stored { commits: 0, ..disk.lock().unwrap().clone() };
    (images.load(SeqCst), report, stored)
}

#[test]
fn a_content_under_many_names_is_encoded_once_and_the_output_is_the_same() {
    for granularity in [Granularity::Image, Granularity::Batch] {
        let mut alone = repeating(0, granularity);
        alone.config.recent_bytes = 0;
        let (all, report, expected) = outcome(alone);
        let not_finite = expected.failures.iter().filter(|failure| failure.stage == Stage::Encode).count() as u64;
        assert_eq!((report.recalled, all), (Recalled::default(), report.rows + not_finite));
        assert_eq!(not_finite, 6, "items 3, 63, … of which one has another fault");
        let contents = expected.rows.iter().map(|row| row.2 as u64).collect::<BTreeSet<_>>().len() as u64;
        for workers in [0, 1, 2, 7] {
            let (encoded, report, stored) = outcome(repeating(workers, granularity));
            assert!(stored == expected, "{granularity:?}, {workers} workers");
            // One worker takes the items in order. Of several, one may take an item before another with a lower index.
            let computed = report.rows - report.recalled.run;
            assert!(computed < encoded && encoded <= all, "{computed} of {encoded}");
            assert!(workers > 1 || (computed, encoded) == (contents, contents + 1), "{computed} of {encoded}");
        }
    }
}

#[test]
fn rows_that_depend_on_their_batch_are_not_shared() {
    let mut job = repeating(2, Granularity::Image);
    job.encoder.spec.batch_invariant = false;
    job.config.cache = Some(Arc::new(Remembered::default()));
    let (encoded, report, _) = outcome(job);
    assert_eq!(report.recalled, Recalled::default());
    assert!(encoded > report.rows, "content 3 as well");
}

#[derive(Debug, Default)]
struct Remembered(Mutex<HashMap<ContentId, KnownVector>>);

impl Recall for Remembered {
    fn recall(&self, content: ContentId) -> Option<KnownVector> {
        self.0.lock().unwrap().get(&content).cloned()
    }
    fn remember(&self, content: ContentId, known: KnownVector) {
        self.0.lock().unwrap().insert(content, known);
    }
}

#[test]
fn a_cache_gives_what_an_earlier_run_computed() {
    let cache = Arc::new(Remembered::default());
    let run = |workers| {
        let mut job = repeating(workers, Granularity::Image);
        job.config.cache = Some(Arc::clone(&cache) as Arc<dyn Recall>);
        outcome(job)
    };
    let (_, first, expected) = run(2);
    assert_eq!((first.recalled.cache, first.recalled.run > 0), (0, true));
    for workers in [0, 1, 2, 7] {
        let (encoded, report, stored) = run(workers);
        assert!(stored == expected, "{workers} workers");
        assert_eq!(report.recalled.run + report.recalled.cache, report.rows);
        assert!((1..=6).contains(&encoded), "content 3 alone, whose failure is not remembered: {encoded}");
    }
    cache.0.lock().unwrap().values_mut().for_each(|known| known.vector.truncate(1));
    let (encoded, report, stored) = run(0);
    assert!(report.recalled.cache == 0 && stored == expected, "{:?}", report.recalled);
    assert!(encoded > 6, "vectors of another length are of no use");
}
