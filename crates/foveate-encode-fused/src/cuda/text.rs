//! Text towers: one batch of texts at a time, their tokens one behind the other.

use foveate_core::SampleType;
use foveate_cuda::{Buffer, CudaError, Device, Pinned, Stream};
use foveate_encode::{EncodeError, EncoderOptions, Pooling};
use foveate_model::parts::Parts;
use foveate_model::{PooledWord, TextModel, WordTable};

use super::encoder::{element, number};
use super::geometry::CudaGeometry;
use super::kernels::PackedTexts;
use super::network::CudaNetwork;
use super::settings::CudaSettings;
use super::{fault, unavailable};

/// A text tower on an NVIDIA GPU, in f32, f16 or bf16.
pub(crate) struct CudaTexts {
    network: CudaNetwork,
    words: WordTable,
    dim: usize,
    max_batch: usize,
    stream: Stream,
    ids: IndexArray,
    starts: IndexArray,
    pooled: IndexArray,
    vectors: Buffer,
    collected: Pinned,
}

/// Numbers that go to the device with every batch, i32.
struct IndexArray {
    host: Pinned,
    device: Buffer,
}

impl CudaTexts {
    /// Copies the weights to the device, and allocates all memory for batches of `options.max_batch` texts.
    ///
    /// # Errors
    /// As [`CudaEncoder::new`](super::CudaEncoder::new).
    pub(crate) fn new(model: &TextModel, words: WordTable, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let is_mean = words.pooled == PooledWord::Mean;
        if is_mean == model.network.projection.is_some() {
            let reason = "texts on CUDA whose mean is projected, or whose token is not";
            return Err(EncodeError::Unsupported(reason.to_owned()));
        }
        let pooling = if is_mean { Pooling::Mean } else { Pooling::Head };
        let max_batch = options.max_batch.max(1);
        let options = &EncoderOptions { pooling, max_batch, sample: SampleType::U8, ..options.clone() };
        // A graph would be of one batch's lengths.
        let settings = CudaSettings { graph: false, ..CudaSettings::new(options)? };
        let device = Device::open(number(&options.device)?).map_err(|error| unavailable(&options.device, error))?;
        let element = element(&device, options)?;
        let parts = Parts::of_text(model);
        let geometry = CudaGeometry::new(&parts, &model.network, options)?;
        let network = CudaNetwork::new(&device, &parts, &model.network, geometry, element, settings, options)?;
        let texts = Self::allocate(&device, network, words, max_batch);
        texts.map_err(|error| unavailable(&options.device, error))
    }

    fn allocate(device: &Device, network: CudaNetwork, words: WordTable, max_batch: usize) -> Result<Self, CudaError> {
        let dim = network.geometry().dim;
        let bytes = max_batch * dim * size_of::<f32>();
        Ok(Self {
            network,
            words,
            dim,
            max_batch,
            stream: Stream::new(device)?,
            ids: IndexArray::new(device, max_batch * words.context)?,
            starts: IndexArray::new(device, max_batch + 1)?,
            pooled: IndexArray::new(device, max_batch)?,
            vectors: Buffer::zeroed(device, bytes)?,
            collected: Pinned::new(device, bytes)?,
        })
    }

    /// Computes the vectors of texts that the model takes, `[n, dim]`.
    ///
    /// # Errors
    /// [`EncodeError::Engine`], the device's own.
    pub(crate) fn encode(&mut self, texts: &[&[u32]], out: &mut [f32]) -> Result<(), EncodeError> {
        for (texts, out) in texts.chunks(self.max_batch).zip(out.chunks_mut(self.max_batch * self.dim)) {
            self.run(texts, out).map_err(fault)?;
        }
        Ok(())
    }

    fn run(&mut self, texts: &[&[u32]], out: &mut [f32]) -> Result<(), CudaError> {
        let mut rows = 0;
        let mut starts = vec![0];
        let mut pooled = Vec::new();
        for ids in texts {
            pooled.push((rows + self.words.pooled.index(ids).unwrap_or(0)) as u32);
            rows += ids.len();
            starts.push(rows as u32);
        }
        let stream = &self.stream;
        let packed = PackedTexts {
            ids: self.ids.upload(stream, &texts.concat())?,
            starts: self.starts.upload(stream, &starts)?,
            pooled: self.pooled.upload(stream, &pooled)?,
            count: texts.len(),
            rows,
        };
        self.network.forward_texts(stream, &packed, &self.vectors)?;
        stream.download(&self.vectors, &mut self.collected, size_of_val(out))?;
        stream.synchronize()?;
        out.copy_from_slice(self.collected.as_f32(out.len())?);
        Ok(())
    }
}

impl IndexArray {
    fn new(device: &Device, most: usize) -> Result<Self, CudaError> {
        let bytes = most * size_of::<u32>();
        Ok(Self { host: Pinned::new(device, bytes)?, device: Buffer::zeroed(device, bytes)? })
    }

    /// Starts the copy of `values`, once the one before has ended.
    fn upload(&mut self, stream: &Stream, values: &[u32]) -> Result<&Buffer, CudaError> {
        for (to, value) in self.host.as_mut_slice().chunks_exact_mut(size_of::<u32>()).zip(values) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
        stream.upload(&mut self.host, &self.device, size_of_val(values))?;
        Ok(&self.device)
    }
}
