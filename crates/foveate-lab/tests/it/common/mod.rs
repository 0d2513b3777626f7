//! A rig of small, fast stages over the real engine. It counts the work of each stage, and a test can make each as slow
//! as it needs.
//!
//! Tests compare counts. About time they may assert only one thing: a stage that sleeps takes at least that long. How
//! much longer it takes, and which of two is faster, depends on the machine.

mod store;

use std::collections::BTreeMap;
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use foveate_core::{CHANNELS, ImageView, ImageViewMut, PixelBatch, PixelBuf, Size, VectorBuf};
use foveate_decode::{DecodeError, DecodeHint, Decoded, Decoder, FormatSet, ImageFormat};
use foveate_encode::{DType, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Pooling, Resident};
use foveate_lab::{Candidate, Context, Lab, Memory, Rig, Setting, StoreOpener, Watch};
use foveate_pipeline::{Cancel, Config};
use foveate_preprocess::{
    CpuPreprocessor, DecodeScale, DecoderOpener, PreprocessOptions, PreprocessorOpener, ResizerOpener,
};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer};
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_source::store::Version;
use foveate_source::{Content, Delivery, Extent, Fetch, FetchError, Input, Item, Listing, Source, SourceError};

/// Milliseconds per image in each stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    pub(crate) read: f64,
    pub(crate) decode: f64,
    pub(crate) resize: f64,
    /// Cost of `encode`; `encode_again` does not have it.
    pub(crate) copy_in: f64,
    pub(crate) forward: f64,
    /// Cost of a forward, once per batch.
    pub(crate) forward_call: f64,
    pub(crate) write: f64,
}

/// A named backend and its cost relative to [`Costs`]; a backend with `None` cannot be used.
pub(crate) type Backends = Vec<(&'static str, Option<f64>)>;

/// Every stage of a job, at the given costs.
#[derive(Clone, Debug)]
pub(crate) struct FakeRig {
    pub(crate) costs: Costs,
    pub(crate) base: Setting,
    /// The number of cores that it reports. Sleeping needs none of them.
    pub(crate) cores: usize,
    /// Side of the encoder's input.
    pub(crate) input: u32,
    /// Encoded photos from [`raw`]; JPEG files are read too.
    pub(crate) photos: Vec<Vec<u8>>,
    /// True if the source reads the photos on the way, as containers and stores do.
    pub(crate) delivers: bool,
    /// Milliseconds of a request to the store that the photos are in, if they are in one.
    pub(crate) store: Option<f64>,
    pub(crate) decoders: Backends,
    pub(crate) batched: Backends,
    pub(crate) resizers: Backends,
    /// Each takes f32 at this cost, and bf16 at half of it.
    pub(crate) encoders: Backends,
    /// True if the encoder keeps batches on its "device".
    pub(crate) resident: bool,
    /// Cost of a photo with `fast` decoding ÷ its cost otherwise.
    pub(crate) fast: f64,
    /// The work so far of everything that this rig and its clones opened.
    pub(crate) work: Arc<Mutex<Work>>,
}

/// Number of images that stages processed, by stage and backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work(BTreeMap<(&'static str, String), u64>);

impl Work {
    /// Adds an image that a stage's backend processed.
    pub(crate) fn add(&mut self, stage: &'static str, backend: String) {
        *self.0.entry((stage, backend)).or_default() += 1;
    }

    /// Returns the images that a stage processed, with any backend.
    pub(crate) fn of(&self, stage: &str) -> u64 {
        self.0.iter().filter(|((known, _), _)| *known == stage).map(|(_, images)| images).sum()
    }

    /// Returns the images that one backend of a stage processed.
    pub(crate) fn of_backend(&self, stage: &'static str, name: &str) -> u64 {
        self.0.get(&(stage, name.to_owned())).copied().unwrap_or(0)
    }
}

impl Sub for &Work {
    type Output = Work;

    /// Returns the work done after `before`.
    fn sub(self, before: Self) -> Work {
        let since = |(key, images): (&(&'static str, String), &u64)| {
            (key.clone(), images - before.0.get(key).copied().unwrap_or(0))
        };
        Work(self.0.iter().map(since).collect())
    }
}

impl FakeRig {
    /// Creates a rig with sixteen photos of two sizes and a forward of a millisecond per image; nothing else has a
    /// cost.
    pub(crate) fn new() -> Self {
        let base = Setting {
            decoder: "plain".to_owned(),
            scale: DecodeScale::Exact,
            resizer: "plain".to_owned(),
            recipe: "hf".to_owned(),
            encoder: "plain".to_owned(),
            dtype: DType::F32,
            batch: 8,
            workers: 2,
            readers: 2,
            threads: 1,
            prefetch: 1,
            requests: 64,
        };
        let photos = (0..16).map(|n| raw(n, if n % 3 == 0 { Size::new(40, 30) } else { Size::new(24, 32) })).collect();
        Self {
            costs: Costs { forward: 1.0, ..Costs::default() },
            base,
            cores: 2,
            input: 16,
            photos,
            delivers: false,
            store: None,
            decoders: vec![("plain", Some(1.0))],
            batched: Vec::new(),
            resizers: vec![("plain", Some(1.0))],
            encoders: vec![("plain", Some(1.0))],
            resident: true,
            fast: 1.0,
            work: Arc::default(),
        }
    }

    /// Creates the same rig with other costs.
    pub(crate) fn with_costs(costs: Costs) -> Self {
        Self { costs, ..Self::new() }
    }

    fn labour(&self, stage: &'static str, ms: f64, backends: &Backends, name: &str) -> Option<Labour> {
        let (_, factor) = backends.iter().find(|(known, _)| *known == name)?;
        Some(Labour { stage, backend: name.to_owned(), ms: ms * (*factor)?, work: Arc::clone(&self.work) })
    }

    /// Returns the work of a stage with one backend.
    fn plain(&self, stage: &'static str, ms: f64) -> Labour {
        Labour { stage, backend: "plain".to_owned(), ms, work: Arc::clone(&self.work) }
    }

    fn decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError> {
        let labour = self.labour("decode", self.costs.decode, &self.decoders, name);
        let labour = labour.ok_or_else(|| DecodeError::Unavailable(name.into()))?;
        Ok(Box::new(FakeDecoder { labour, fast: self.fast }))
    }

    fn resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError> {
        let labour = self.labour("resize", self.costs.resize, &self.resizers, name);
        Ok(Box::new(FakeResizer { labour: labour.ok_or_else(|| ResizeError::Unavailable(name.into()))? }))
    }
}

impl Rig for FakeRig {
    fn base(&self) -> Setting {
        self.base.clone()
    }

    fn context(&self) -> Context {
        Context {
            model: "fake".to_owned(),
            device: "fake".to_owned(),
            cores: self.cores,
            seed: 7,
            ..Context::default()
        }
    }

    fn photos(&self) -> Result<Box<dyn Source>, SourceError> {
        let labour = self.plain("read", self.costs.read);
        let delivers = self.delivers || self.store.is_some();
        let source = FakeSource { photos: self.photos.clone().into(), next: 0, labour, delivers };
        Ok(if self.store.is_some() { Box::new(store::Listed(source)) } else { Box::new(source) })
    }

    fn store_opener(&self, _: &str) -> StoreOpener {
        store::opener(self.photos.clone().into(), self.store.unwrap_or_default(), &self.work)
    }

    fn list(&self, inputs: Vec<Input>) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(Listing::builder().inputs(inputs).build()?))
    }

    fn decoders(&self) -> Vec<Candidate> {
        candidates(&self.decoders)
    }

    fn batched_decoders(&self) -> Vec<Candidate> {
        candidates(&self.batched)
    }

    fn resizers(&self) -> Vec<Candidate> {
        candidates(&self.resizers)
    }

    fn encoders(&self) -> Vec<Candidate> {
        candidates(&self.encoders)
    }

    fn sinks(&self) -> Vec<Candidate> {
        candidates(&vec![("file", Some(1.0))])
    }

    fn open_decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError> {
        self.decoder(name)
    }

    fn decoder_opener(&self, setting: &Setting) -> DecoderOpener {
        let rig = self.clone();
        let name = setting.decoder.clone();
        Arc::new(move || rig.decoder(&name))
    }

    fn open_resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError> {
        self.resizer(name)
    }

    fn resizer_opener(&self, setting: &Setting) -> ResizerOpener {
        let rig = self.clone();
        let name = setting.resizer.clone();
        Arc::new(move || rig.resizer(&name))
    }

    fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        let half = match setting.dtype {
            DType::F32 => 1.0,
            DType::Bf16 => 0.5,
            other => return Err(EncodeError::Unsupported(format!("precision {}", other.name()))),
        };
        let unknown = || EncodeError::Unsupported(format!("no encoder '{}'", setting.encoder));
        let ms = self.costs.forward * half;
        let forward = self.labour("forward", ms, &self.encoders, &setting.encoder).ok_or_else(unknown)?;
        Ok(Box::new(FakeEncoder {
            spec: EncoderSpec {
                input: Size::square(self.input),
                sample: foveate_core::SampleType::U8,
                mean: [0.0; 3],
                std: [1.0; 3],
                dim: DIM,
                pooling: Pooling::Cls,
                device: "fake".to_owned(),
                dtype: setting.dtype,
                max_batch: setting.batch,
                batch_invariant: true,
                kernels: None,
            },
            copy_in: self.plain("copy-in", self.costs.copy_in),
            forward,
            call: self.plain("forward call", self.costs.forward_call),
            resident: self.resident,
            last: VectorBuf::new(),
        }))
    }

    fn setting_on_cpu(&self, setting: &Setting) -> Setting {
        Setting { encoder: "plain".to_owned(), dtype: DType::F32, ..setting.clone() }
    }

    fn open_on_cpu(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        self.open_encoder(setting)
    }

    fn memory_of_forward(&self, setting: &Setting) -> Result<Memory, String> {
        Ok(Memory { bytes: Some(setting.batch as u64 * 1_000_000), of: "process of its own".to_owned() })
    }

    fn open_sink(&self, _: &str, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> {
        let path = options.output.join("vectors.f32");
        let labour = self.plain("write", self.costs.write);
        Ok(Box::new(FakeSink { path, labour, bytes: Vec::new(), rows: 0, failures: 0 }))
    }

    fn preprocessors(&self, setting: &Setting) -> PreprocessorOpener {
        CpuPreprocessor::opener(self.decoder_opener(setting), self.resizer_opener(setting), self.preprocess(setting))
    }

    fn preprocess(&self, setting: &Setting) -> PreprocessOptions {
        let output = Size::square(self.input);
        let filter = Filter::Bilinear;
        let geometry = match setting.recipe.as_str() {
            "squash" => Geometry::Stretch { output, filter },
            _ => Geometry::ShortestEdgeCrop {
                edge: self.input,
                longest: None,
                crop: output,
                filter,
                ties: foveate_resize::CropTies::Down,
            },
        };
        let is_reduced = setting.scale != DecodeScale::Exact;
        let hint = DecodeHint { min_side: is_reduced.then_some(self.input), ..DecodeHint::default() };
        PreprocessOptions { hint, ..PreprocessOptions::new(geometry) }
    }

    fn config(&self, setting: &Setting) -> Config {
        let Setting { batch, workers, readers, prefetch, .. } = *setting;
        Config { batch, workers, readers, prefetch, ..Config::default() }
    }
}

fn candidates(backends: &Backends) -> Vec<Candidate> {
    let problem = |factor: &Option<f64>| factor.is_none().then(|| "its library is missing".to_owned());
    let candidate = |(name, factor): &(&'static str, Option<f64>)| Candidate {
        name: (*name).to_owned(),
        library: "none".to_owned(),
        problem: problem(factor),
    };
    backends.iter().map(candidate).collect()
}

/// A lab around a rig, with its own folder.
pub(crate) struct Bench {
    pub(crate) rig: FakeRig,
    pub(crate) cancel: Cancel,
    folder: tempfile::TempDir,
    ledger: Ledger,
}

impl Bench {
    pub(crate) fn new(rig: FakeRig) -> Self {
        Self::until(rig, "")
    }

    /// Creates a lab whose user asks to stop at the announcement `until`.
    pub(crate) fn until(rig: FakeRig, until: &'static str) -> Self {
        let cancel = Cancel::default();
        let ledger = Ledger::new(&rig, until, &cancel);
        Self { rig, cancel, folder: tempfile::tempdir().unwrap(), ledger }
    }

    pub(crate) fn lab(&self) -> Lab<'_> {
        Lab { rig: &self.rig, scratch: self.folder.path(), cancel: &self.cancel, watch: &self.ledger, seed: 7 }
    }

    pub(crate) fn phases(&self) -> Vec<(String, Work)> {
        self.ledger.phases()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The announcements of an experiment, and the work done before each.
pub(crate) struct Ledger {
    work: Arc<Mutex<Work>>,
    entries: Mutex<Vec<(String, Work)>>,
    until: &'static str,
    cancel: Cancel,
}

impl Ledger {
    /// Cancels at the announcement `until`, unless that is empty.
    pub(crate) fn new(rig: &FakeRig, until: &'static str, cancel: &Cancel) -> Self {
        Self { work: Arc::clone(&rig.work), entries: Mutex::default(), until, cancel: cancel.clone() }
    }

    /// Returns the announcements, each with the work done until the next one.
    pub(crate) fn phases(&self) -> Vec<(String, Work)> {
        let entries = self.entries.lock().unwrap();
        let now = self.work.lock().unwrap().clone();
        let ends = entries.iter().skip(1).map(|(_, work)| work).chain([&now]);
        entries.iter().zip(ends).map(|((what, start), end)| (what.clone(), end - start)).collect()
    }
}

impl Watch for Ledger {
    fn doing(&self, what: &str) {
        if !self.until.is_empty() && what.contains(self.until) {
            self.cancel.cancel();
        }
        let work = self.work.lock().unwrap().clone();
        self.entries.lock().unwrap().push((what.to_owned(), work));
    }
}

/// A stage's work on an image: it is counted, and takes its time.
#[derive(Clone, Debug)]
struct Labour {
    stage: &'static str,
    backend: String,
    /// Milliseconds of sleep per image.
    ms: f64,
    work: Arc<Mutex<Work>>,
}

impl Labour {
    fn on(&self, images: usize) {
        self.scaled(images, 1.0);
    }

    /// Does the work at a scaled cost.
    fn scaled(&self, images: usize, scale: f64) {
        *self.work.lock().unwrap().0.entry((self.stage, self.backend.clone())).or_default() += images as u64;
        let ms = self.ms * scale * images as f64;
        if ms > 0.0 {
            thread::sleep(Duration::from_secs_f64(ms / 1e3));
        }
    }
}

/// The first bytes of a raw photo.
const MAGIC: &[u8; 4] = b"raw:";

/// Returns a photo of `size` in this rig's own format; each `n` has its own vector.
pub(crate) fn raw(n: u32, size: Size) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(size.width.to_le_bytes());
    bytes.extend(size.height.to_le_bytes());
    let pixel = |at: u32| {
        let x = at % size.width;
        let y = at / size.width;
        [(n * 37 + x * 3) as u8, (n * 91 + y * 5) as u8, (n * 13 + x + y) as u8]
    };
    bytes.extend((0..size.width * size.height).flat_map(pixel));
    bytes
}

/// Returns bytes that are not a photo.
pub(crate) fn corrupt() -> Vec<u8> {
    b"not a photo".to_vec()
}

#[derive(Clone)]
struct FakeSource {
    photos: Arc<[Vec<u8>]>,
    next: u64,
    labour: Labour,
    delivers: bool,
}

impl Source for FakeSource {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        let index = self.next;
        if index >= self.photos.len() as u64 {
            return Ok(None);
        }
        self.next += 1;
        let id = format!("photo-{index}");
        let locator = index.to_le_bytes().to_vec();
        Ok(Some(Item { index, id, locator, ..Item::default() }))
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Some(item) = self.next_item()? else { return Ok(None) };
        if !self.delivers {
            return Ok(Some(Delivery::unread(item)));
        }
        let mut bytes = Vec::new();
        self.fetch(&item, &mut bytes).unwrap();
        Ok(Some(Delivery { item, content: Content::Read(bytes.into()) }))
    }

    fn extent(&self) -> Extent {
        (0..self.photos.len() as u64).into()
    }

    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        self.next = index;
        Ok(())
    }

    fn listing_hash(&self) -> String {
        "fake".to_owned()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        Ok(Box::new(self.clone()))
    }
}

impl Fetch for FakeSource {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        self.labour.on(1);
        let at = u64::from_le_bytes(item.locator[..].try_into().unwrap());
        out.clear();
        out.extend_from_slice(&self.photos[at as usize]);
        Ok(())
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

struct FakeDecoder {
    labour: Labour,
    fast: f64,
}

impl Decoder for FakeDecoder {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let scale = if hint.min_side.is_some() { self.fast } else { 1.0 };
        self.labour.scaled(1, scale);
        if encoded.starts_with(&[0xff, 0xd8]) {
            return decode_jpeg(encoded, out);
        }
        let broken = || DecodeError::NotAnImage { what: None };
        let (magic, rest) = encoded.split_first_chunk::<4>().ok_or_else(broken)?;
        let (width, rest) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let (height, pixels) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let size = Size::new(u32::from_le_bytes(*width), u32::from_le_bytes(*height));
        if magic != MAGIC || size.rgb_len() != Some(pixels.len()) {
            return Err(broken());
        }
        out.reset(size)?.copy_from_slice(pixels);
        Ok(Decoded { format: ImageFormat::Bmp, native: size, is_clipped: false })
    }

    fn capability(&self) -> foveate_decode::Capability {
        let formats = FormatSet::of(&[ImageFormat::Bmp, ImageFormat::Jpeg]);
        foveate_decode::Capability { formats, scaled: self.fast < 1.0, low_frequencies: false, exact_jpeg: false }
    }
}

fn decode_jpeg(encoded: &[u8], out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
    let corrupt = |error: image::ImageError| DecodeError::corrupt(ImageFormat::Jpeg, error);
    let image = image::load_from_memory_with_format(encoded, image::ImageFormat::Jpeg).map_err(corrupt)?.to_rgb8();
    let size = Size::new(image.width(), image.height());
    out.reset(size)?.copy_from_slice(&image);
    Ok(Decoded { format: ImageFormat::Jpeg, native: size, is_clipped: false })
}

/// Takes the nearest pixel.
struct FakeResizer {
    labour: Labour,
}

impl Resizer for FakeResizer {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        plan.check(src.size(), dst.size())?;
        self.labour.on(1);
        let place = plan.placement;
        let part = plan.source;
        let width = dst.size().width as usize;
        let dst = dst.into_slice();
        dst.fill(0);
        let row_of = |y: u32| (part.y + (f64::from(y) + 0.5) * part.height / f64::from(place.size.height)) as u32;
        for y in 0..place.size.height {
            let row = row_of(y);
            if y > 0 && row == row_of(y - 1) {
                let begin = (place.y + y) as usize * width * CHANNELS;
                dst.copy_within(begin - width * CHANNELS..begin, begin);
                continue;
            }
            for x in 0..place.size.width {
                let column = (part.x + (f64::from(x) + 0.5) * part.width / f64::from(place.size.width)) as u32;
                let at = ((place.y + y) as usize * width + (place.x + x) as usize) * CHANNELS;
                let column = column.min(src.size().width - 1);
                let row = row.min(src.size().height - 1);
                dst[at..at + CHANNELS].copy_from_slice(&src.pixel(column, row));
            }
        }
        Ok(())
    }

    fn capability(&self) -> foveate_resize::Capability {
        foveate_resize::Capability { pillow_exact: false, pillow_kernels: false, opencv_exact: false }
    }
}

/// Components of a vector.
pub(crate) const DIM: usize = 8;

/// Returns the means of the eight parts of an image's samples, around zero.
struct FakeEncoder {
    spec: EncoderSpec,
    copy_in: Labour,
    forward: Labour,
    call: Labour,
    resident: bool,
    last: VectorBuf,
}

impl FakeEncoder {
    fn forward(&self, images: usize) -> Duration {
        let started = Instant::now();
        self.call.on(1);
        self.forward.on(images);
        started.elapsed()
    }
}

impl Encoder for FakeEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        let started = Instant::now();
        self.copy_in.on(batch.len());
        let copy_in = started.elapsed();
        for (at, vector) in out.reset(batch.len(), DIM).chunks_exact_mut(DIM).enumerate() {
            let image = batch.image(at);
            // Some samples of each part suffice: reading all of a large image would show in the times.
            for (value, part) in vector.iter_mut().zip(image.chunks(image.len().div_ceil(DIM))) {
                let some = part.iter().step_by(part.len().div_ceil(100));
                *value = some.map(|&sample| f32::from(sample) - 127.5).sum::<f32>() / 100.0;
            }
        }
        self.last.clone_from(out);
        Ok(EncodeTimes { copy_in, forward: self.forward(batch.len()), ..EncodeTimes::default() })
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.resident.then_some(self as _)
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

impl Resident for FakeEncoder {
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        out.clone_from(&self.last);
        Ok(EncodeTimes { forward: self.forward(out.rows()), ..EncodeTimes::default() })
    }
}

/// One file of vectors.
struct FakeSink {
    path: PathBuf,
    labour: Labour,
    bytes: Vec<u8>,
    rows: u64,
    failures: u64,
}

impl VectorSink for FakeSink {
    fn begin(&mut self, _: &RunManifest, _: Existing) -> Result<Watermark, SinkError> {
        Ok(Watermark::default())
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        Ok(self.failures)
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.labour.on(rows.index.len());
        self.rows += rows.index.len() as u64;
        self.bytes.extend(rows.vectors.iter().flat_map(|value| value.to_le_bytes()));
        Ok(())
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.failures += failures.len() as u64;
        Ok(())
    }

    fn commit(&mut self, _: Watermark) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let folder = self.path.parent().unwrap();
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&self.path, &self.bytes));
        written.map_err(|error| SinkError::BadOutput { path: self.path.clone(), source: error.into() })?;
        Ok(Published {
            files: vec![self.path.clone()],
            rows: self.rows,
            failures: self.failures,
            ..Published::default()
        })
    }
}
