//! The encoder: images on threads, or a batch on a device.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_encode::{
    DType, EncodeError, EncodeTimes, Encoder, EncoderOptions, EncoderSpec, Graph, Overlap, Pooling, Resident, Threads,
};
use foveate_model::Model;
use rayon::prelude::*;
use tch::{Device, Kind, Tensor};

use crate::cuda::{PinnedStaging, Tf32, wait_for};
use crate::health::release;
use crate::network::{TchNetwork, engine};
use crate::script::Script;

/// A network that libtorch runs.
///
/// On the CPU, each thread computes one image at a time. No image waits for another, and no thread waits for the
/// slowest part of a product. OpenMP is never used, because its threads spin while they wait. A row's bits do not
/// depend on the images computed beside it. On a CUDA device, one batch is computed at a time.
pub struct TchEncoder {
    spec: EncoderSpec,
    /// `None` for one thread, which is then the caller's.
    threads: Option<Threads>,
    /// One per thread.
    lanes: Vec<TchEngine>,
    device: Device,
    /// Pinned memory for batches on their way to a device.
    staging: PinnedStaging,
    /// The last batch, unless the device is the host.
    resident: Option<Tensor>,
    /// Held on CUDA devices.
    _tf32: Option<Tf32>,
}

#[derive(Clone)]
enum TchEngine {
    Network(Box<TchNetwork>),
    Script(Script),
}

impl TchEncoder {
    /// Copies the weights of `model` to the device.
    ///
    /// # Errors
    /// - [`EncodeError::Device`] if there is no such device.
    /// - [`EncodeError::Model`] if the model lacks a tensor or the input is not a whole number of patches.
    /// - [`EncodeError::Unsupported`] for a setting other than `tf32=on|off` on a CUDA device, and if an open encoder
    ///   needs that switch otherwise.
    pub fn new(model: &Model, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let (device, kind, tf32) = target(options)?;
        let recipe = &model.preprocess;
        let dim = model.network.dim(options.pooling).map_err(|error| EncodeError::Model(error.into()))?;
        let spec = spec(options, recipe.crop, (recipe.mean, recipe.std), dim);
        Self::with(
            TchEngine::Network(Box::new(TchNetwork::new(model, device, kind, options.pooling)?)),
            spec,
            (device, tf32),
            options.threads,
        )
    }

    /// Reads a TorchScript file, which takes normalized f32 samples `[n, 3, h, w]`. It returns tokens after the final
    /// LayerNorm, `[n, tokens, width]` (alone, first of a tuple or list, or called `last_hidden_state`), or vectors
    /// `[n, width]`. The patches are the last tokens, behind the class token and the registers. The number of registers
    /// is inferred if `graph` does not specify it.
    ///
    /// # Errors
    /// As [`Self::new`]; also [`EncodeError::Unsupported`] for another precision than the file's own, and for averaging
    /// patches of a file that returns vectors.
    pub fn from_torchscript(graph: &Graph, options: &EncoderOptions) -> Result<Self, EncodeError> {
        options.only_u8("a TorchScript file")?;
        let (device, kind, tf32) = target(options)?;
        one_thread();
        let script = tch::no_grad(|| Script::new(graph, device, kind))?;
        script.check(options.pooling)?;
        let spec = spec(options, graph.input, (graph.mean, graph.std), options.pooling.dim(script.hidden()));
        Self::with(TchEngine::Script(script), spec, (device, tf32), options.threads)
    }

    fn with(
        engine: TchEngine,
        spec: EncoderSpec,
        (device, tf32): (Device, Option<Tf32>),
        threads: usize,
    ) -> Result<Self, EncodeError> {
        let threads = if device == Device::Cpu { threads.max(1) } else { 1 };
        let lanes = vec![engine; threads];
        let staging = PinnedStaging::default();
        let threads = (threads > 1).then(|| Threads::start(threads)).transpose()?;
        Ok(Self { spec, threads, lanes, device, staging, resident: None, _tf32: tf32 })
    }
}

impl Encoder for TchEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        if self.device == Device::Cpu { self.encode_on_host(batch, out) } else { self.encode_on_device(batch, out) }
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.resident.is_some().then_some(self as _)
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

impl Resident for TchEncoder {
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let samples = self.resident.take().ok_or_else(|| EncodeError::Batch("none is on the device".to_owned()))?;
        let times = self.forward(&samples, out);
        self.resident = Some(samples);
        times
    }
}

impl TchEncoder {
    /// Lets every lane compute the next image until none is left.
    fn encode_on_host(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        let Self { spec, threads, lanes, device, .. } = self;
        let rows = out.reset(batch.len(), spec.dim);
        // A single image is as fast as one among others: 8 at a time differ by less than the measurements' noise.
        let images = (0..batch.len()).filter_map(|i| batch.slice(i..i + 1));
        let images = Mutex::new(images.zip(rows.chunks_mut(spec.dim)));
        let run = |lane: &mut TchEngine| {
            let mut times = EncodeTimes::default();
            // A poisoned lock means that another lane panicked, and rayon passes that on.
            while let Some((image, row)) = images.lock().ok().and_then(|mut images| images.next()) {
                let (samples, copy_in) = lane.upload(image, &mut PinnedStaging::default(), *device)?;
                times += EncodeTimes { copy_in, ..lane.run(&samples, *device, spec.pooling, row)? };
            }
            Ok(times)
        };
        let times = match threads {
            None => run(&mut lanes[0])?,
            Some(threads) => threads.run(|| {
                let times = lanes.par_iter_mut().with_max_len(1).map(run);
                times.try_reduce(EncodeTimes::default, |mut sum, times| {
                    sum += times;
                    Ok(sum)
                })
            })?,
        };
        Ok(times.side_by_side(started.elapsed()))
    }

    fn encode_on_device(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let (samples, copy_in) = self.lanes[0].upload(batch, &mut self.staging, self.device)?;
        let times = self.forward(&samples, out)?;
        self.resident = Some(samples);
        Ok(EncodeTimes { copy_in, ..times })
    }

    /// Computes a batch that is on the device.
    fn forward(&mut self, samples: &Tensor, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let Self { spec, lanes, device, .. } = self;
        let images = lanes[0].images(samples);
        lanes[0].run(samples, *device, spec.pooling, out.reset(images, spec.dim))
    }
}

impl TchEngine {
    /// Copies the batch to the device; returns it and the duration.
    fn upload(
        &mut self,
        images: PixelBatch<'_>,
        staging: &mut PinnedStaging,
        device: Device,
    ) -> Result<(Tensor, Duration), EncodeError> {
        let started = Instant::now();
        one_thread();
        let samples = match self {
            Self::Network(network) => network.upload(images, staging).map_err(engine)?,
            Self::Script(script) => script.upload(images, staging)?,
        };
        if device != Device::Cpu {
            wait_for(&samples).map_err(engine)?;
        }
        Ok((samples, started.elapsed()))
    }

    /// The number of images of an uploaded batch.
    fn images(&self, samples: &Tensor) -> usize {
        match self {
            Self::Network(network) => network.images(samples),
            Self::Script(_) => samples.size()[0] as usize,
        }
    }

    /// Computes the vectors of an uploaded batch, `[n, dim]`.
    fn run(
        &mut self,
        samples: &Tensor,
        device: Device,
        pooling: Pooling,
        rows: &mut [f32],
    ) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        let _inference = tch::no_grad_guard();
        let vectors = match self {
            Self::Network(network) => network.vectors(samples, pooling).map_err(engine)?,
            Self::Script(script) => script.vectors(samples, pooling)?,
        };
        // A device computes asynchronously, so the host's clock measures nothing before the wait ends.
        if device != Device::Cpu {
            wait_for(&vectors).map_err(engine)?;
        }
        let computed = Instant::now();
        copy(&vectors, rows).map_err(engine)?;
        Ok(EncodeTimes { copy_in: Duration::ZERO, forward: computed - started, copy_out: computed.elapsed() })
    }
}

fn copy(vectors: &Tensor, rows: &mut [f32]) -> Result<(), tch::TchError> {
    let vectors = vectors.f_to_kind(Kind::Float)?.f_to(Device::Cpu)?.f_contiguous()?;
    if vectors.numel() != rows.len() {
        return Err(tch::TchError::Shape(format!("{} components instead of {}", vectors.numel(), rows.len())));
    }
    vectors.f_copy_data(rows, rows.len())
}

/// Makes libtorch compute on the calling thread alone. For threads that have not computed yet the setting is the
/// process's; afterwards it is each thread's own (OpenMP's and MKL's).
fn one_thread() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        tch::set_num_threads(1);
    }
}

/// The setting that allows a GPU to round the factors of f32 products to 10 bits.
const TF32: &str = "tf32";

/// Returns the device, the precision, and on a GPU the claim on its TF32 switch.
fn target(options: &EncoderOptions) -> Result<(Device, Kind, Option<Tf32>), EncodeError> {
    let tf32 = tf32(options)?;
    let kind = match options.dtype {
        DType::F32 => Kind::Float,
        DType::F16 => Kind::Half,
        DType::Bf16 => Kind::BFloat16,
        other => return Err(EncodeError::Unsupported(format!("{} in libtorch", other.name()))),
    };
    let device = crate::device::find(&options.device)?;
    let tf32 = if device == Device::Cpu { None } else { Some(Tf32::claim(tf32)?) };
    Ok((device, kind, tf32))
}

fn tf32(options: &EncoderOptions) -> Result<bool, EncodeError> {
    let known: &[&str] = if options.device == "cpu" { &[] } else { &[TF32] };
    match options.settings(known)?.get(TF32).map(String::as_str) {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => Err(EncodeError::Unsupported(format!("setting '{TF32}' is '{other}', not on or off"))),
    }
}

fn spec(options: &EncoderOptions, input: Size, statistics: ([f32; 3], [f32; 3]), dim: usize) -> EncoderSpec {
    // On a CPU, one thread computes every image by itself.
    let batch_invariant = options.device == "cpu";
    EncoderSpec { batch_invariant, kernels: Some(release()), ..options.spec(input, statistics, dim) }
}
