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
use crate::feed::Feed;

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

    fn new(session: &Session, device: MemoryInfo<'static>, host: Allocator, outputs: Vec<String>) -> ort::Result<Self> {
        let input = session.inputs()[0].name().to_owned();
        Ok(Self { binding: session.create_binding()?, input, outputs, device, host, staging: None })
    }

    /// Copies `images` to the device, and waits for the copy.
    pub(crate) fn upload(&mut self, feed: &Feed, images: PixelBatch<'_>) -> Result<(), EncodeError> {
        let (element, shape) = feed.describe(images);
        let fits = |tensor: &DynTensor| tensor.shape().iter().eq(shape.map(|length| length as i64).iter());
        let staging = match self.staging.take().filter(fits) {
            Some(staging) => staging,
            None => DynTensor::new(&self.host, element, shape).map_err(|error| engine(&error))?,
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foveate_core::Size;

    use super::*;
    use crate::contract::{Element, Input, Layout};
    use crate::library::load;

    const SIZE: Size = Size { width: 8, height: 6 };

    /// Host memory stands in for a device's. The outputs equal those of a run without bindings, for any sequence of
    /// batch sizes, and for a second run on the same upload.
    #[test]
    fn bound_runs_give_what_others_give() {
        let Ok(library) = load() else { return };
        for (graph, element, layout) in [
            ("u8-nhwc", Element::U8, Layout::Pixels),
            ("u8-nchw", Element::U8, Layout::Planes),
            ("f32-nchw", Element::F32, Layout::Planes),
            ("f16-nhwc", Element::F16, Layout::Pixels),
        ] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/graphs/{graph}.onnx"));
            let mut session = Session::builder(&library.environment).unwrap().commit_from_file(path).unwrap();
            let input = Input { element, layout, batch: None };
            let mut feed = Feed::new(&input, [0.5; 3], [0.25; 3]);
            let outputs = vec!["cls".to_owned(), "patch_mean".to_owned()];
            let memory = MemoryInfo::default();
            let mut bound = DeviceBinding::new(&session, memory, Allocator::default(), outputs).unwrap();
            for images in [3, 1, 1, 4] {
                let pixels: Vec<u8> = (0..images * 8 * 6 * 3).map(|i| (i * 31 + images) as u8).collect();
                let batch = PixelBatch::new(&pixels, SIZE).unwrap();
                let expected = {
                    let results = session.run([feed.tensor(batch).unwrap()]).unwrap();
                    ["cls", "patch_mean"].map(|name| values(&results[name]))
                };
                bound.upload(&feed, batch).unwrap();
                for _ in 0..2 {
                    let results = bound.run(&mut session).unwrap();
                    let results = [0, 1].map(|i| values(&download(&results[i]).unwrap()));
                    assert_eq!(results, expected, "{graph}, {images} images");
                }
            }
        }
    }

    fn values(value: &DynValue) -> Vec<f32> {
        let halves = || value.try_extract_tensor::<half::f16>().unwrap().1.iter().map(|v| v.to_f32()).collect();
        value.try_extract_tensor::<f32>().map_or_else(|_| halves(), |(_, values)| values.to_vec())
    }
}
