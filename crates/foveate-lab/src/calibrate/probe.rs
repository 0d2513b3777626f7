//! Runs of the real engine with a timer around each stage, without a forward.

use std::sync::{Arc, Mutex};

use foveate_core::{ImageView, ImageViewMut, PixelBatch, PixelBuf, Size, VectorBuf, lock};
use foveate_decode::{Capability, DecodeError, DecodeHint, Decoded, Decoder};
use foveate_encode::{DType, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Pooling, Resident};
use foveate_pipeline::{Pipeline, RunReport};
use foveate_preprocess::{CpuPreprocessor, Opener};
use foveate_resize::{ResizeError, ResizePlan, Resizer};
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate_source::store::Version;
use foveate_source::{Delivery, Extent, Fetch, FetchError, Item, Source, SourceError};

use crate::clock::{Took, on_this_thread};
use crate::{Lab, LabError, Output, PhotoSet, Setting};

/// The time of each call of a stage.
#[derive(Clone, Default)]
pub(super) struct CallLog(Arc<Mutex<Vec<Took>>>);

impl CallLog {
    fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, took) = on_this_thread(work);
        lock(&self.0).push(took);
        done
    }

    fn take(&self) -> Vec<Took> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// A stage with a timer.
struct StageTimed<T> {
    inner: T,
    log: CallLog,
}

impl Fetch for StageTimed<Box<dyn Fetch>> {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        self.log.time(|| self.inner.fetch(item, out))
    }

    fn version(&mut self, item: &Item) -> Version {
        self.inner.version(item)
    }
}

impl Decoder for StageTimed<Box<dyn Decoder>> {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        self.log.time(|| self.inner.decode(encoded, hint, out))
    }

    fn capability(&self) -> Capability {
        self.inner.capability()
    }
}

impl Resizer for StageTimed<Box<dyn Resizer>> {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        self.log.time(|| self.inner.resize(src, plan, dst))
    }

    fn capability(&self) -> foveate_resize::Capability {
        self.inner.capability()
    }
}

impl Source for StageTimed<Box<dyn Source>> {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        self.inner.next_item()
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        self.inner.deliver()
    }

    fn extent(&self) -> Extent {
        self.inner.extent()
    }

    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        self.inner.seek(index, after)
    }

    fn listing_hash(&self) -> String {
        self.inner.listing_hash()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        Ok(Box::new(StageTimed { inner: self.inner.open_fetch()?, log: self.log.clone() }))
    }
}

impl VectorSink for StageTimed<Box<dyn VectorSink>> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.inner.begin(manifest, existing)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.inner.failures()
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.log.time(|| self.inner.append(rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.inner.fail(failures)
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.log.time(|| self.inner.commit(watermark))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        self.inner.finish()
    }
}

/// Replaces the encoder and returns vectors of ones at once.
struct Ones(EncoderSpec);

impl Ones {
    fn new(input: Size, dim: usize, max_batch: usize) -> Self {
        Self(EncoderSpec {
            input,
            sample: foveate_core::SampleType::U8,
            mean: [0.0; 3],
            std: [1.0; 3],
            dim,
            pooling: Pooling::Cls,
            device: "cpu".to_owned(),
            dtype: DType::F32,
            max_batch,
            batch_invariant: true,
            kernels: None,
        })
    }
}

impl Encoder for Ones {
    fn spec(&self) -> &EncoderSpec {
        &self.0
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        out.reset(batch.len(), self.0.dim).fill(1.0);
        Ok(EncodeTimes::default())
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// The figures of a run without a forward.
pub(super) struct StageProbe {
    pub(super) images: u64,
    pub(super) read: Vec<Took>,
    pub(super) decode: Vec<Took>,
    pub(super) resize: Vec<Took>,
    pub(super) write: Vec<Took>,
    /// Core seconds of the run outside these stages: listing, hashing, copies into the batch.
    pub(super) other: f64,
}

/// The parts that all probes of a setting share.
pub(super) struct Prober<'a> {
    pub(super) lab: &'a Lab<'a>,
    pub(super) photos: &'a PhotoSet,
    /// The output for rows of `dim` components.
    pub(super) output: &'a Output,
    pub(super) dim: usize,
}

/// Number of images of the run that warms up and estimates the time per image.
const FIRST: u64 = 4;
/// Maximum number of images of a probe: more add no information.
const MOST: u64 = 512;

impl Prober<'_> {
    /// Runs every stage except the forward on one thread. It takes every photo equally often if that fits into about
    /// `seconds`, otherwise as many photos as fit.
    pub(super) fn alone(&self, setting: &Setting, seconds: f64) -> Result<StageProbe, LabError> {
        let setting = Setting { workers: 0, ..setting.clone() };
        let (_, first) = self.run(&setting, self.photos.stored(&setting, FIRST)?, FIRST)?;
        let rate = FIRST as f64 / first.wall.as_secs_f64().max(1e-6);
        let all = self.photos.photos.len() as u64;
        let fit = ((rate * seconds) as u64).clamp(FIRST, MOST);
        let images = if fit >= all { fit / all * all } else { fit };
        let source = self.photos.stored(&setting, images)?;
        let (run, all) = on_this_thread(|| self.run(&setting, source, images));
        let (mut probe, _) = run?;
        let parts = [&probe.read, &probe.decode, &probe.resize, &probe.write];
        let known: f64 = parts.into_iter().flatten().map(|took| took.cpu_seconds).sum();
        // It does not wait. Its wall time would include the time that other programs take from this thread.
        probe.other = (all.cpu_seconds - known).max(0.0);
        Ok(probe)
    }

    /// Runs `workers` workers at once on `images` images in memory.
    pub(super) fn crowded(&self, setting: &Setting, workers: usize, images: u64) -> Result<StageProbe, LabError> {
        let setting = Setting { workers, ..setting.clone() };
        Ok(self.run(&setting, self.photos.in_memory(images), images)?.0)
    }

    fn run(
        &self,
        setting: &Setting,
        source: Box<dyn Source>,
        images: u64,
    ) -> Result<(StageProbe, RunReport), LabError> {
        let [read, decode, resize, write]: [CallLog; 4] = Default::default();
        let config = self.lab.rig.config(setting);
        let preprocess = self.lab.rig.preprocess(setting);
        let encoder = Ones::new(preprocess.geometry.output(), self.dim, config.batch);
        let sink = self.lab.sink(self.output, self.photos)?;
        let pipeline = Pipeline {
            source: Box::new(StageTimed { inner: source, log: read.clone() }),
            preprocessors: CpuPreprocessor::opener(
                timed_opener(self.lab.rig.decoder_opener(setting), decode.clone(), |timed| Box::new(timed)),
                timed_opener(self.lab.rig.resizer_opener(setting), resize.clone(), |timed| Box::new(timed)),
                preprocess,
            ),
            encoders: vec![Box::new(encoder)],
            sink: Box::new(StageTimed { inner: Box::new(sink.clone()) as Box<dyn VectorSink>, log: write.clone() }),
            config,
        };
        let report = self.lab.carry_out(pipeline, &sink, images)?.report;
        let read = read.take();
        let decode = decode.take();
        let resize = resize.take();
        let write = write.take();
        Ok((StageProbe { images, read, decode, resize, write, other: 0.0 }, report))
    }
}

fn timed_opener<T: ?Sized + 'static, E: 'static>(
    open: Opener<Box<T>, E>,
    log: CallLog,
    boxed: fn(StageTimed<Box<T>>) -> Box<T>,
) -> Opener<Box<T>, E> {
    Arc::new(move || Ok(boxed(StageTimed { inner: open()?, log: log.clone() })))
}
