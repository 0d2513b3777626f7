//! The encoder: it divides images among threads.

use std::sync::Mutex;
use std::time::Instant;

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    DType, EncodeError, EncodeTimes, Encoder, EncoderOptions, EncoderSpec, Overlap, Resident, Threads,
};
use foveate_model::{Model, ModelError};
use rayon::prelude::*;

use crate::kernel::attention::KeyValues;
use crate::kernel::isa::{Isa, Precision};
use crate::network::{CpuNetwork, TokenPart};

/// Fewest tokens of a part when an image is divided among threads. Below, reading the weights costs more than it saves.
const MIN_PART: usize = 32;

/// A vision transformer on the CPU in f32, bf16 or i8, with its own threads.
///
/// Each thread computes one image at a time. All threads compute a batch's remainder together, dividing each image's
/// tokens among them. Rows have the same bits either way.
pub struct FusedEncoder {
    spec: EncoderSpec,
    network: CpuNetwork,
    /// `None` for one thread, which is then the caller's.
    threads: Option<Threads>,
    /// One per thread.
    whole: Vec<EncodeScratch>,
    /// Each shared by the threads that divide an image among them.
    divided: Vec<EncodeScratch>,
}

/// Memory for one image's pass through the network.
struct EncodeScratch {
    parts: Vec<TokenPart>,
    key_values: Vec<KeyValues>,
    /// For attention pooling, one per part; empty without it.
    pooled: Vec<KeyValues>,
}

impl FusedEncoder {
    /// Packs the weights of `model` for this processor and starts `options.threads` threads (none for one).
    ///
    /// # Errors
    /// - [`EncodeError::Device`] for any device but `cpu`.
    /// - [`EncodeError::Unsupported`] for f16, and for i8 if f32 is faster on this processor.
    /// - [`EncodeError::Model`] if the model lacks a tensor or the input is not a whole number of patches.
    pub fn new(model: &Model, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let (isa, precision) = check(options)?;
        let kernels = Some(isa.family(precision).to_owned());
        let network = CpuNetwork::new(model, options.pooling, isa, precision).map_err(unusable)?;
        let threads = options.threads.max(1);
        let parts = threads.min(network.tokens() / MIN_PART).max(1);
        let divided = if parts > 1 { threads / parts } else { 0 };
        Ok(Self {
            spec: EncoderSpec { batch_invariant: true, kernels, ..spec(model, options)? },
            threads: (threads > 1).then(|| Threads::start(threads)).transpose()?,
            whole: (0..threads).map(|_| EncodeScratch::new(&network, 1)).collect(),
            divided: (0..divided).map(|_| EncodeScratch::new(&network, parts)).collect(),
            network,
        })
    }
}

impl Encoder for FusedEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        self.spec.check(batch)?;
        let Self { spec, network, threads, whole, divided } = self;
        let rows = out.reset(batch.len(), spec.dim);
        let mut images = (0..batch.len()).filter_map(|i| batch.slice(i..i + 1)).zip(rows.chunks_exact_mut(spec.dim));
        let Some(threads) = threads else {
            images.for_each(|(image, row)| whole[0].run(network, image, row));
            return Ok(EncodeTimes::forward_since(started));
        };
        let rest = if divided.is_empty() { 0 } else { batch.len() % whole.len() };
        threads.run(|| {
            share(network, whole, images.by_ref().take(batch.len() - rest));
            share(network, divided, images);
        });
        Ok(EncodeTimes::forward_since(started))
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// Hands images to threads, one thread per scratch memory, until none is left.
fn share<'a, I>(network: &CpuNetwork, scratch: &mut [EncodeScratch], images: I)
where
    I: Iterator<Item = (PixelBatch<'a>, &'a mut [f32])> + Send,
{
    let images = Mutex::new(images);
    scratch.par_iter_mut().with_max_len(1).for_each(|own| {
        // A poisoned lock means that another thread panicked, and rayon passes that on.
        while let Some((image, row)) = images.lock().ok().and_then(|mut images| images.next()) {
            own.run(network, image, row);
        }
    });
}

impl EncodeScratch {
    /// Allocates memory for images whose tokens are divided into `parts`, each a whole number of tiles.
    fn new(network: &CpuNetwork, parts: usize) -> Self {
        let size = network.tokens().div_ceil(parts).next_multiple_of(network.step());
        let mut scratch = Self { parts: Vec::new(), key_values: Vec::new(), pooled: Vec::new() };
        for first in (0..network.tokens()).step_by(size) {
            let tokens = size.min(network.tokens() - first);
            let (part, key_values) = network.part(first, tokens);
            scratch.parts.push(part);
            scratch.key_values.push(key_values);
            scratch.pooled.extend(network.pooled(tokens));
        }
        scratch
    }

    /// Computes the vector of `image` 0.
    fn run(&mut self, network: &CpuNetwork, image: PixelBatch<'_>, out: &mut [f32]) {
        let Self { parts, key_values, pooled } = self;
        if let ([part], [own]) = (&mut parts[..], &mut key_values[..]) {
            network.embed(image, part);
            for layer in 0..network.depth() {
                network.project(layer, part, own);
                network.advance(layer, part, std::slice::from_ref(own));
            }
            network.finish(part, pooled.first_mut());
        } else {
            parts.par_iter_mut().with_max_len(1).for_each(|part| network.embed(image, part));
            for layer in 0..network.depth() {
                let pairs = parts.par_iter_mut().zip(key_values.par_iter_mut()).with_max_len(1);
                pairs.for_each(|(part, own)| network.project(layer, part, own));
                parts.par_iter_mut().with_max_len(1).for_each(|part| network.advance(layer, part, key_values));
            }
            if pooled.is_empty() {
                parts.par_iter_mut().with_max_len(1).for_each(|part| network.finish(part, None));
            } else {
                let pairs = parts.par_iter_mut().zip(pooled.par_iter_mut()).with_max_len(1);
                pairs.for_each(|(part, own)| network.finish(part, Some(own)));
            }
        }
        network.pool(parts, pooled, out);
    }
}

pub(crate) fn check(options: &EncoderOptions) -> Result<(Isa, Precision), EncodeError> {
    options.settings(&[])?;
    if options.device != "cpu" {
        let reason = "this forward is the CPU's; its device is `cpu`";
        return Err(EncodeError::Device { device: options.device.clone(), reason: reason.into() });
    }
    let isa = Isa::detect().map_err(EncodeError::Unsupported)?;
    let precision = match options.dtype {
        DType::F32 => Precision::F32,
        DType::Bf16 => Precision::Bf16,
        DType::I8 if isa.has_fast_i8() => Precision::I8,
        DType::I8 => {
            let reason = format!("i8 on this CPU ({}): f32 is faster on it; use f32", isa.name());
            return Err(EncodeError::Unsupported(reason));
        }
        dtype => {
            let reason = format!("{} on the CPU: the kernels compute in f32, bf16 and i8 there", dtype.name());
            return Err(EncodeError::Unsupported(reason));
        }
    };
    Ok((isa, precision))
}

pub(crate) fn spec(model: &Model, options: &EncoderOptions) -> Result<EncoderSpec, EncodeError> {
    let recipe = &model.preprocess;
    let dim = model.network.dim(options.pooling).map_err(unusable)?;
    Ok(options.spec(recipe.crop, (recipe.mean, recipe.std), dim))
}

pub(crate) fn unusable(error: ModelError) -> EncodeError {
    EncodeError::Model(error.into())
}
