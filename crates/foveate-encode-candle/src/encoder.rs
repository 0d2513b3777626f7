use std::time::Instant;

use candle_core::Tensor;
use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    DType, EncodeError, EncodeTimes, Encoder, EncoderOptions, EncoderSpec, Overlap, Resident, Threads,
};
use foveate_model::Model;

use crate::device;
use crate::network::{CandleNetwork, engine, unusable};

/// A vision transformer in candle's tensor operations, on one device.
pub struct CandleEncoder {
    spec: EncoderSpec,
    network: CandleNetwork,
    /// On the CPU, candle's matrix products, LayerNorms and softmax run on these threads.
    threads: Threads,
}

impl CandleEncoder {
    /// Copies the weights of `model` to `options.device` in the precision `options.dtype`.
    ///
    /// # Errors
    /// - [`EncodeError::Device`] if the device, its driver or a library is missing.
    /// - [`EncodeError::Unsupported`] for a setting, and for f16 and bf16 on the CPU.
    /// - [`EncodeError::Model`] if a tensor is missing or the input is not a whole number of patches.
    /// - [`EncodeError::Engine`] if candle fails, for example for lack of memory.
    pub fn new(model: &Model, options: &EncoderOptions) -> Result<Self, EncodeError> {
        options.settings(&[])?;
        let dtype = dtype(options)?;
        let device = device::open(&options.device)?;
        let threads = if device.is_cpu() { options.threads.max(1) } else { 1 };
        let recipe = &model.preprocess;
        // candle divides a matrix product by its size, so the order of summation depends on the batch.
        let dim = model.network.dim(options.pooling).map_err(unusable)?;
        let spec = options.spec(recipe.crop, (recipe.mean, recipe.std), dim);
        let spec = EncoderSpec { kernels: device::kernels(&device), ..spec };
        Ok(Self {
            spec,
            network: CandleNetwork::new(model, device, dtype, options.pooling)?,
            threads: Threads::start(threads)?,
        })
    }
}

impl Encoder for CandleEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.spec.check(batch)?;
        let Self { spec, network, threads } = self;
        let (vectors, times) = threads.run(|| run(network, spec, batch)).map_err(engine)?;
        out.reset(batch.len(), spec.dim).copy_from_slice(&vectors);
        Ok(times)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

/// Returns a batch's vectors and times. A device computes asynchronously, so each part ends with a wait.
fn run(
    network: &CandleNetwork,
    spec: &EncoderSpec,
    batch: PixelBatch<'_>,
) -> candle_core::Result<(Vec<f32>, EncodeTimes)> {
    let started = Instant::now();
    let patches = network.upload(batch)?;
    network.wait()?;
    let uploaded = Instant::now();
    let vectors: Tensor = network.vectors(&patches, spec.pooling)?;
    network.wait()?;
    let computed = Instant::now();
    let rows = vectors.flatten_all()?.to_vec1()?;
    let copy_in = uploaded - started;
    let forward = computed - uploaded;
    Ok((rows, EncodeTimes { copy_in, forward, copy_out: computed.elapsed() }))
}

fn dtype(options: &EncoderOptions) -> Result<candle_core::DType, EncodeError> {
    let on_cpu = options.device == "cpu";
    match options.dtype {
        DType::F32 => Ok(candle_core::DType::F32),
        DType::F16 if !on_cpu => Ok(candle_core::DType::F16),
        DType::Bf16 if !on_cpu => Ok(candle_core::DType::BF16),
        other if on_cpu => Err(EncodeError::Unsupported(format!(
            "{} on the CPU: candle widens it to f32 there, which is slower than f32 and less exact; use f32",
            other.name()
        ))),
        other => Err(EncodeError::Unsupported(format!("{} in candle", other.name()))),
    }
}
