//! An encoder: the mean colour, as three numbers from 0 to 1.

use std::time::Instant;

use foveate::core::{PixelBatch, RegistryError, SampleType, VectorBuf};
use foveate::model::Model;
use foveate::encode::{
    DType, EncodeError, EncodeTimes, Encoder, EncoderBackend, EncoderOptions, EncoderRegistry, EncoderSpec, Overlap,
    Resident,
};

pub fn register(registry: &mut EncoderRegistry<Model>) -> Result<(), RegistryError> {
    let backend = EncoderBackend::new("colours", "mean colour, as an example");
    registry.register(backend.taking_checkpoints(|model, options| Ok(Box::new(Colours::new(model, options)?))))
}

struct Colours {
    spec: EncoderSpec,
}

impl Colours {
    fn new(model: &Model, options: &EncoderOptions) -> Result<Self, EncodeError> {
        // A setting that this encoder does not support is an error, never silently replaced.
        if options.device != "cpu" || options.dtype != DType::F32 {
            return Err(EncodeError::Unsupported("it runs on the CPU, in f32".to_owned()));
        }
        let spec = EncoderSpec {
            input: model.preprocess.crop,
            sample: SampleType::U8,
            mean: [0.0; 3],
            std: [1.0; 3],
            dim: 3,
            pooling: options.pooling,
            device: "cpu".to_owned(),
            dtype: DType::F32,
            max_batch: options.max_batch,
            batch_invariant: true,
            kernels: None,
        };
        Ok(Self { spec })
    }
}

impl Encoder for Colours {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        self.spec.check(batch)?;
        let rows = out.reset(batch.len(), 3);
        for (row, image) in rows.chunks_exact_mut(3).zip((0..batch.len()).map(|i| batch.image(i))) {
            for (channel, mean) in row.iter_mut().enumerate() {
                let sum: u64 = image.iter().skip(channel).step_by(3).map(|&sample| u64::from(sample)).sum();
                *mean = sum as f32 / (image.len() / 3) as f32 / 255.0;
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
