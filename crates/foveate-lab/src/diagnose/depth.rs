//! Stages that return data cached at a depth instead of working.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use foveate_core::{BatchMemory, ImageView, ImageViewMut, PixelBatch, PixelBuf, Size, VectorBuf, error_chain};
use foveate_decode::{DecodeError, DecodeHint, Decoded, Decoder, FormatSet, ImageFormat, Orientation, orientation};
use foveate_encode::{
    Allocate, Batch, Collected, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Resident,
    host_allocator,
};
use foveate_pipeline::Pipeline;
use foveate_preprocess::{CpuPreprocessor, OrientationPolicy, PreprocessOptions, ResizerOpener};
use foveate_resize::{Capability, Filter, Geometry, ResizeError, ResizePlan, Resizer};
use serde::{Deserialize, Serialize};

use crate::wrap::{KEY_LEN, resident};
use crate::{Lab, LabError, LentEncoder, Photo, PhotoSet, Setting};

/// A point of the pipeline at which its data is cached, from the shallowest (next to the forward) on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CacheDepth {
    /// One batch in the forward's memory on the device; vectors are dropped.
    OnDevice,
    /// One batch in the host's memory; vectors are dropped.
    OnHost,
    /// One batch in the host's memory; vectors are written.
    Written,
    /// Finished samples, which workers copy into batches.
    Samples,
    /// Decoded pixels, which workers resize.
    Pixels,
    /// Encoded files, which workers decode.
    Bytes,
    /// Nothing: the unchanged job.
    Nothing,
}

impl CacheDepth {
    /// All depths, in this order.
    pub const ALL: [Self; 7] =
        [Self::OnDevice, Self::OnHost, Self::Written, Self::Samples, Self::Pixels, Self::Bytes, Self::Nothing];

    /// Describes what is cached.
    pub const fn cached(self) -> &'static str {
        match self {
            Self::OnDevice => "one batch on the device",
            Self::OnHost => "one batch on the host",
            Self::Written => "one batch on the host, vectors written",
            Self::Samples => "finished samples in memory",
            Self::Pixels => "decoded pixels in memory",
            Self::Bytes => "file bytes in memory",
            Self::Nothing => "nothing",
        }
    }

    /// Returns the stage that works from this depth on, and at no shallower one.
    pub const fn adds(self) -> &'static str {
        match self {
            Self::OnDevice => "forward",
            Self::OnHost => "copy-in",
            Self::Written => "write",
            Self::Samples => "batch",
            Self::Pixels => "resize",
            Self::Bytes => "decode",
            Self::Nothing => "read",
        }
    }

    /// Returns true if vectors go to the output.
    pub(super) fn writes(self) -> bool {
        self >= Self::Written
    }

    /// Returns true if every photo has its own vector, which must equal the job's.
    pub(super) fn tells_photos(self) -> bool {
        self >= Self::Samples
    }
}

/// The cached data of the depths.
#[derive(Clone)]
pub(super) struct Caches {
    photos: PhotoSet,
    pixels: Arc<[CachedPixels]>,
    samples: Arc<[Vec<u8>]>,
    /// One batch, `[batch, h, w, 3]`.
    batch: Arc<[u8]>,
    /// The options with which the photos were prepared.
    options: PreprocessOptions,
    resizer: ResizerOpener,
}

/// A decoded, upright photo.
struct CachedPixels {
    data: Vec<u8>,
    size: Size,
}

impl Caches {
    /// Decodes and resizes every photo as the job of `setting` would.
    pub(super) fn fill(lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting) -> Result<Self, LabError> {
        let options = lab.rig.preprocess(setting);
        let threads = setting.workers.max(1);
        let share = photos.photos.len().div_ceil(threads).max(1);
        let mut pixels = Vec::new();
        let mut samples = Vec::new();
        thread::scope(|scope| {
            let options = &options;
            let mut shares = Vec::new();
            for photos in photos.photos.chunks(share) {
                shares.push(scope.spawn(move || CachePrepare::new(lab, setting, options)?.all(photos)));
            }
            for prepared in shares {
                let prepared = prepared.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                prepared.into_iter().for_each(|(decoded, sample)| {
                    pixels.push(decoded);
                    samples.push(sample);
                });
            }
            Ok::<(), LabError>(())
        })?;
        let batch: Vec<u8> = samples.iter().cycle().take(setting.batch).flatten().copied().collect();
        Ok(Self {
            photos: photos.clone(),
            pixels: pixels.into(),
            samples: samples.into(),
            batch: batch.into(),
            options,
            resizer: lab.rig.resizer_opener(setting),
        })
    }

    /// Copies the one batch to the encoder's device. Returns the reason if no batch can stay there.
    pub(super) fn make_resident(&self, encoder: &mut LentEncoder) -> Result<Option<String>, LabError> {
        let mut out = VectorBuf::new();
        encoder.encode(self.batch(self.batch.len() / self.samples[0].len())?, &mut out)?;
        match encoder.resident() {
            Some(batch) => batch.encode_again(&mut out).map(|_| None).map_err(LabError::from),
            None => Ok(Some("the forward reads the host's memory, so no batch is kept on a device".to_owned())),
        }
    }

    /// Returns the first `images` images of the one batch.
    fn batch(&self, images: usize) -> Result<PixelBatch<'_>, EncodeError> {
        let samples = &self.batch[..images * self.samples[0].len()];
        PixelBatch::new(samples, self.options.geometry.format())
            .ok_or_else(|| EncodeError::Batch(format!("{images} images")))
    }

    /// Replaces the stages of `pipeline` that must not work by the cached data of `depth`. Its threads and queues stay
    /// unchanged.
    pub(super) fn put_into(
        &self,
        mut pipeline: Pipeline,
        depth: CacheDepth,
        images: u64,
        encoder: &LentEncoder,
    ) -> Pipeline {
        match depth {
            CacheDepth::Nothing => return pipeline,
            CacheDepth::Bytes => pipeline.source = self.photos.in_memory(images),
            _ => {
                pipeline.source = self.photos.keys(images);
                pipeline.preprocessors =
                    CpuPreprocessor::opener(Arc::new(|| Ok(Box::new(KeyDecoder))), self.resizer(depth), self.of(depth));
            }
        }
        if depth < CacheDepth::Samples {
            let one = OneBatch::new(self.clone(), encoder.clone(), depth == CacheDepth::OnDevice);
            pipeline.encoders = vec![Box::new(one)];
        }
        pipeline
    }

    /// Returns the opener of the resizer's replacement.
    fn resizer(&self, depth: CacheDepth) -> ResizerOpener {
        match depth {
            CacheDepth::Pixels => {
                let pixels = Arc::clone(&self.pixels);
                let inner = Arc::clone(&self.resizer);
                let geometry = self.options.geometry;
                Arc::new(move || Ok(Box::new(ResizeCached { pixels: Arc::clone(&pixels), inner: inner()?, geometry })))
            }
            CacheDepth::Samples => {
                let samples = Arc::clone(&self.samples);
                Arc::new(move || Ok(Box::new(CopySample(Arc::clone(&samples)))))
            }
            _ => Arc::new(|| Ok(Box::new(Idle))),
        }
    }

    /// Returns the workers' options for the photos' replacements. If the one batch is encoded, images have one pixel:
    /// nothing is copied, and everything is counted.
    fn of(&self, depth: CacheDepth) -> PreprocessOptions {
        let geometry = match depth {
            CacheDepth::Pixels | CacheDepth::Samples => self.options.geometry,
            _ => Geometry::Stretch { output: ONE_PIXEL, filter: Filter::Bilinear },
        };
        PreprocessOptions { geometry, ..self.options.clone() }
    }
}

/// Decodes and resizes outside a pipeline.
struct CachePrepare<'a> {
    lab: &'a Lab<'a>,
    decoder: Box<dyn Decoder>,
    resizer: Box<dyn Resizer>,
    options: &'a PreprocessOptions,
    pixels: PixelBuf,
    turned: PixelBuf,
}

impl<'a> CachePrepare<'a> {
    fn new(lab: &'a Lab<'a>, setting: &Setting, options: &'a PreprocessOptions) -> Result<Self, LabError> {
        Ok(Self {
            lab,
            decoder: (lab.rig.decoder_opener(setting))()?,
            resizer: (lab.rig.resizer_opener(setting))()?,
            options,
            pixels: PixelBuf::new(options.limits),
            turned: PixelBuf::new(options.limits),
        })
    }

    fn all(mut self, photos: &[Photo]) -> Result<Vec<(CachedPixels, Vec<u8>)>, LabError> {
        let mut prepared = Vec::with_capacity(photos.len());
        for photo in photos {
            self.lab.go_on()?;
            prepared.push(self.one(photo).map_err(|reason| LabError::Photos(format!("{}: {reason}", photo.id)))?);
        }
        Ok(prepared)
    }

    fn one(&mut self, photo: &Photo) -> Result<(CachedPixels, Vec<u8>), String> {
        let decoded = self.decoder.decode(&photo.bytes, self.options.hint, &mut self.pixels);
        let turn = match (decoded.map_err(|error| error_chain(&error))?.format, self.options.orientation) {
            (format, OrientationPolicy::Apply) => orientation(&photo.bytes, format),
            (_, OrientationPolicy::Ignore) => Orientation::Normal,
        };
        turn.apply(&mut self.pixels, &mut self.turned).map_err(|error| error_chain(&error))?;
        let size = self.pixels.size();
        let plan = self.options.geometry.plan(size);
        let mut sample = vec![0; plan.format().bytes()];
        self.resizer.resize_into(self.pixels.view(), &plan, &mut sample).map_err(|error| error_chain(&error))?;
        Ok((CachedPixels { data: self.pixels.as_slice().to_vec(), size }, sample))
    }
}

const ONE_PIXEL: Size = Size::square(1);
/// Size of an image with room for a key.
const KEY_SIZE: Size = Size::new(3, 1);

/// Encodes an item's number as its pixels; later stages look up the cached data by that number.
struct KeyDecoder;

impl Decoder for KeyDecoder {
    fn decode(&mut self, key: &[u8], _: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.reset(KEY_SIZE)?[..KEY_LEN].copy_from_slice(key);
        Ok(Decoded { format: ImageFormat::Bmp, native: KEY_SIZE, is_clipped: false })
    }

    fn capability(&self) -> foveate_decode::Capability {
        foveate_decode::Capability {
            formats: FormatSet::EMPTY,
            scaled: false,
            low_frequencies: false,
            exact_jpeg: false,
        }
    }
}

/// Returns the number that [`KeyDecoder`] encoded as pixels.
fn key(pixels: ImageView<'_>) -> Result<usize, ResizeError> {
    let key = pixels.as_slice().first_chunk::<KEY_LEN>();
    key.map(|key| u64::from_le_bytes(*key) as usize).ok_or_else(|| ResizeError::Plan("no key".to_owned()))
}

/// A resizer's replacement promises nothing about pixels.
const NO_PROMISE: Capability = Capability { pillow_exact: false, pillow_kernels: false, opencv_exact: false };

/// Leaves the batch unchanged.
struct Idle;

impl Resizer for Idle {
    fn resize(&mut self, _: ImageView<'_>, _: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        dst.as_mut_slice().fill(0);
        Ok(())
    }

    fn capability(&self) -> Capability {
        NO_PROMISE
    }
}

/// Copies finished samples.
struct CopySample(Arc<[Vec<u8>]>);

impl Resizer for CopySample {
    fn resize(&mut self, src: ImageView<'_>, _: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        dst.as_mut_slice().copy_from_slice(&self.0[key(src)? % self.0.len()]);
        Ok(())
    }

    fn capability(&self) -> Capability {
        NO_PROMISE
    }
}

/// Resizes cached pixels in place.
struct ResizeCached {
    pixels: Arc<[CachedPixels]>,
    inner: Box<dyn Resizer>,
    geometry: Geometry,
}

impl Resizer for ResizeCached {
    fn resize(&mut self, src: ImageView<'_>, _: &ResizePlan, dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        let pixels = &self.pixels[key(src)? % self.pixels.len()];
        let view = ImageView::new(&pixels.data, pixels.size);
        let view = view.ok_or_else(|| ResizeError::Plan(format!("{} of another length", pixels.size)))?;
        self.inner.resize(view, &self.geometry.plan(pixels.size), dst)
    }

    fn capability(&self) -> Capability {
        self.inner.capability()
    }
}

/// Encodes the same batch for any input.
struct OneBatch {
    spec: EncoderSpec,
    caches: Caches,
    inner: LentEncoder,
    resident: bool,
    /// Copies of the one batch that no encoder currently holds.
    spare: Vec<Box<dyn BatchMemory>>,
    /// The submitted batches, in the order in which their replacements are in flight.
    given: VecDeque<Batch>,
}

impl OneBatch {
    fn new(caches: Caches, inner: LentEncoder, resident: bool) -> Self {
        let spec = EncoderSpec { input: ONE_PIXEL, ..inner.spec().clone() };
        Self { spec, caches, inner, resident, spare: Vec::new(), given: VecDeque::new() }
    }
}

impl Encoder for OneBatch {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        if self.resident {
            return resident(&mut self.inner)?.encode_again(out);
        }
        self.inner.encode(self.caches.batch(batch.len())?, out)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.inner.resident()
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        self.inner.overlap().is_some().then_some(self as _)
    }
}

impl Overlap for OneBatch {
    fn depth(&mut self) -> usize {
        self.inner.depth()
    }

    /// Allocates the batches of one pixel per image, which no device reads.
    fn allocator(&mut self, _: Place) -> Allocate {
        host_allocator()
    }

    fn submit(&mut self, given: Batch) -> Result<(), EncodeError> {
        let memory = match self.spare.pop() {
            Some(memory) => memory,
            None => self.one_more()?,
        };
        self.inner.submit(Batch { memory, images: given.images, size: self.caches.options.geometry.output() })?;
        self.given.push_back(given);
        Ok(())
    }

    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let collected = self.inner.collect(out)?;
        self.spare.push(collected.batch.memory);
        let batch = self.given.pop_front().ok_or_else(|| EncodeError::Batch("none is under way".to_owned()))?;
        Ok(Collected { batch, ..collected })
    }
}

impl OneBatch {
    /// Returns memory that the device reads directly, with the one batch in it. What is in a device's own memory does
    /// not matter: a forward takes as long for any pixels, and its vectors are dropped.
    fn one_more(&mut self) -> Result<Box<dyn BatchMemory>, EncodeError> {
        let place = if self.resident { Place::Device } else { Place::Host };
        let mut memory = (self.inner.allocator(place))(self.caches.batch.len())?;
        match memory.host_mut() {
            Some(host) => host.copy_from_slice(&self.caches.batch),
            None if self.resident => {}
            None => return Err(EncodeError::Engine("no memory on the host".into())),
        }
        Ok(memory)
    }
}
