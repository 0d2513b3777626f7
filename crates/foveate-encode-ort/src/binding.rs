//! Batches on a GPU, in steps that each end with a wait, so that each can be timed.
//!
//! Binding an input copies it at once from pinned memory. Outputs stay on the device until they are requested. A copied
//! input is still there for the next run.

use foveate_core::PixelBatch;
use foveate_encode::EncodeError;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session, SessionOutputs};
use ort::value::{DynTensor, DynTensorValueType, DynValue};

use crate::error::engine;
use crate::feed::ImageFeed;

/// The memory of one session's runs.
pub(crate) struct DeviceBinding {
    binding: IoBinding,
    input: String,
    outputs: Vec<String>,
    /// The memory of the outputs.
    device: MemoryInfo<'static>,
    /// Allocates memory that the device reads directly.
    host: Allocator,
    /// The last batch in the graph's type and layout.
    staging: Option<DynTensor>,
}

impl DeviceBinding {
    /// Creates the memory for a session on the CUDA device `id`, with one input and these outputs.
    pub(crate) fn on_gpu(session: &Session, id: i32, outputs: Vec<String>) -> ort::Result<Self> {
        let device = MemoryInfo::new(AllocationDevice::CUDA, id, AllocatorType::Device, MemoryType::Default)?;
        let pinned = MemoryInfo::new(AllocationDevice::CUDA_PINNED, id, AllocatorType::Device, MemoryType::CPUInput)?;
        Self::new(session, device, Allocator::new(session, pinned)?, outputs)
    }

    /// Creates the memory for a session with one input and these outputs on `device`; `host` is memory that it reads.
    pub(crate) fn new(
        session: &Session,
        device: MemoryInfo<'static>,
        host: Allocator,
        outputs: Vec<String>,
    ) -> ort::Result<Self> {
        let input = session.inputs()[0].name().to_owned();
        Ok(Self { binding: session.create_binding()?, input, outputs, device, host, staging: None })
    }

    /// Copies `images` to the device, and waits for the copy.
    pub(crate) fn upload(&mut self, feed: &ImageFeed, images: PixelBatch<'_>) -> Result<(), EncodeError> {
        let (element, shape) = feed.describe(images);
        let staging = match self.staging.take() {
            Some(staging) if staging.shape().iter().eq(shape.map(|length| length as i64).iter()) => staging,
            _ => DynTensor::new(&self.host, element, shape).map_err(|error| engine(&error))?,
        };
        let staging = self.staging.insert(staging);
        feed.write(images, staging)?;
        let bound = self.binding.bind_input(&self.input, staging);
        bound.and_then(|()| self.binding.synchronize_inputs()).map_err(|error| engine(&error))
    }

    /// Computes the outputs for the images on the device, in order; the outputs are on the device too.
    pub(crate) fn run<'a>(&'a mut self, session: &'a mut Session) -> ort::Result<SessionOutputs<'a>> {
        // An output is bound for one run: the previous run's memory has the shape of its batch.
        for output in &self.outputs {
            self.binding.bind_output_to_device(output, &self.device)?;
        }
        let results = session.run_binding(&self.binding)?;
        self.binding.synchronize_outputs()?;
        Ok(results)
    }
}

/// Copies an output to memory that the host can read.
pub(crate) fn download(value: &DynValue) -> ort::Result<DynValue> {
    let tensor = value.view().downcast::<DynTensorValueType>()?;
    Ok(tensor.to(AllocationDevice::CPU, 0)?.into_dyn())
}
