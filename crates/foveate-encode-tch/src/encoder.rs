//! The encoder: images on threads, or a batch on a device.

use std::cell::Cell;
use std::sync::Mutex;

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_dinov2::Model;
use foveate_encode::{AnyModel, DType, EncodeError, Encoder, EncoderOptions, EncoderSpec, Graph, Pooling};
use rayon::prelude::*;
use tch::{Device, Kind, Tensor};

use crate::network::{Network, engine};
use crate::script::Script;

/// A network that libtorch runs.
///
/// On the CPU, as many images at a time as there are threads, one thread each: no image waits for another, no thread waits
/// for the slowest part of a product, and OpenMP, whose threads spin while they wait, is never used. A row has the
/// same bits whatever is computed beside it. On a CUDA device, a batch at a time.
pub struct TchEncoder {
    spec: EncoderSpec,
    /// `None` for one thread, which is the caller's.
    pool: Option<rayon::ThreadPool>,
    /// One per thread.
    lanes: Vec<Engine>,
}

#[derive(Clone)]
enum Engine {
    Network(Network),
    Script(Script),
}

impl TchEncoder {
    /// Puts the weights of `model` on the device.
    ///
    /// # Errors
    /// [`EncodeError::Device`] when there is no such device, [`EncodeError::Model`] for a model whose tensors are not all
    /// there or whose input is not a whole number of patches, [`EncodeError::Unsupported`] for any setting.
    pub fn new(model: &Model, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let (device, kind) = target(options)?;
        let recipe = &model.preprocess;
        let spec = spec(options, recipe.crop, (recipe.mean, recipe.std), model.config.hidden_size);
        Self::with(Engine::Network(Network::new(model, device, kind)?), spec, device, options.threads)
    }

    /// Reads a TorchScript file, which takes normalized f32 samples `[n, 3, h, w]` and gives tokens after the final
    /// LayerNorm, `[n, tokens, width]` (alone, first of a tuple or list, or called `last_hidden_state`), or vectors
    /// `[n, width]`. The patches are the last tokens: all behind the class token and the registers, whose number is
    /// inferred where `graph` does not give it.
    ///
    /// # Errors
    /// As [`Self::new`]; also [`EncodeError::Unsupported`] for another precision than the file's own, and for averaging
    /// patches of a file that gives vectors.
    pub fn from_torchscript(graph: &Graph, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let (device, kind) = target(options)?;
        one_thread();
        let script = tch::no_grad(|| Script::new(graph, device, kind))?;
        script.check(options.pooling)?;
        let spec = spec(options, graph.input, (graph.mean, graph.std), script.hidden());
        Self::with(Engine::Script(script), spec, device, options.threads)
    }

    /// The same from the model as the registry hands it over.
    pub(crate) fn open(model: &AnyModel, options: &EncoderOptions) -> Result<Self, EncodeError> {
        match (model.downcast_ref::<Model>(), model.downcast_ref::<Graph>()) {
            (Some(model), _) => Self::new(model, options),
            (_, Some(graph)) => Self::from_torchscript(graph, options),
            _ => Err(EncodeError::Model("neither a DINOv2 model nor a TorchScript file".to_owned())),
        }
    }

    fn with(engine: Engine, spec: EncoderSpec, device: Device, threads: usize) -> Result<Self, EncodeError> {
        let threads = if device == Device::Cpu { threads.max(1) } else { 1 };
        let lanes = vec![engine; threads];
        Ok(Self { spec, pool: pool(threads)?, lanes })
    }
}

impl Encoder for TchEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<(), EncodeError> {
        self.spec.check(batch)?;
        let Self { spec, pool, lanes } = self;
        let rows = out.reset(batch.len(), spec.dim);
        // By itself an image is as fast as among others: 8 at a time differ by less than the measurements' noise.
        let part = if spec.batch_invariant { 1 } else { batch.len() };
        let parts = (0..batch.len()).step_by(part).filter_map(|first| batch.slice(first..first + part));
        let parts = Mutex::new(parts.zip(rows.chunks_mut(part * spec.dim)));
        // A poisoned lock means that another lane panicked, and rayon passes that on.
        let next = || parts.lock().ok().and_then(|mut parts| parts.next());
        let run = |lane: &mut Engine| {
            while let Some((images, rows)) = next() {
                lane.run(images, spec.pooling, rows)?;
            }
            Ok(())
        };
        match pool {
            None => lanes.iter_mut().try_for_each(run),
            Some(pool) => pool.install(|| lanes.par_iter_mut().with_max_len(1).try_for_each(run)),
        }
    }
}

impl Engine {
    fn run(&mut self, images: PixelBatch<'_>, pooling: Pooling, rows: &mut [f32]) -> Result<(), EncodeError> {
        one_thread();
        let _inference = tch::no_grad_guard();
        let vectors = match self {
            Self::Network(network) => network.vectors(images, pooling).map_err(engine)?,
            Self::Script(script) => script.vectors(images, pooling)?,
        };
        copy(&vectors, rows).map_err(engine)
    }
}

fn copy(vectors: &Tensor, rows: &mut [f32]) -> Result<(), tch::TchError> {
    let vectors = vectors.f_to_kind(Kind::Float)?.f_to(Device::Cpu)?.f_contiguous()?;
    if vectors.numel() != rows.len() {
        return Err(tch::TchError::Shape(format!("{} components instead of {}", vectors.numel(), rows.len())));
    }
    vectors.f_copy_data(rows, rows.len())
}

/// Makes libtorch compute on this very thread. The setting is the process's for threads that have not computed yet, and
/// each thread's own (OpenMP's and MKL's) afterwards.
fn one_thread() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        tch::set_num_threads(1);
    }
}

fn target(options: &EncoderOptions) -> Result<(Device, Kind), EncodeError> {
    options.settings(&[])?;
    let kind = match options.dtype {
        DType::F32 => Kind::Float,
        DType::F16 => Kind::Half,
        DType::Bf16 => Kind::BFloat16,
        other => return Err(EncodeError::Unsupported(format!("{} in libtorch", other.name()))),
    };
    Ok((crate::device::find(&options.device)?, kind))
}

fn spec(options: &EncoderOptions, input: Size, (mean, std): ([f32; 3], [f32; 3]), hidden: usize) -> EncoderSpec {
    EncoderSpec {
        input,
        mean,
        std,
        dim: options.pooling.dim(hidden),
        pooling: options.pooling,
        device: options.device.clone(),
        dtype: options.dtype,
        max_batch: options.max_batch.max(1),
        // On a CPU every image is computed by itself, by one thread.
        batch_invariant: options.device == "cpu",
    }
}

fn pool(threads: usize) -> Result<Option<rayon::ThreadPool>, EncodeError> {
    if threads == 1 {
        return Ok(None);
    }
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("forward-{i}"));
    builder.build().map(Some).map_err(|e| EncodeError::Engine(format!("cannot start {threads} threads: {e}")))
}
