//! Batches that go to a GPU and come back by steps that are waited for one by one, so that each can be timed.
//!
//! An input that is bound is copied there and then, from pinned memory in one go; outputs stay on the device until they
//! are asked for. What was copied once is still there for the next run.

use foveate_core::PixelBatch;
use foveate_encode::EncodeError;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session, SessionOutputs};
use ort::value::{DynTensor, DynTensorValueType, DynValue};

use crate::error::engine;
use crate::feed::Feed;

/// The memories of one session's runs.
pub(crate) struct DeviceBinding {
    binding: IoBinding,
    input: String,
    outputs: Vec<String>,
    /// Where outputs are left.
    device: MemoryInfo<'static>,
    /// Of memory that the device reads without a detour.
    host: Allocator,
    /// The last batch as the graph takes it.
    staging: Option<DynTensor>,
}

impl DeviceBinding {
    /// For a session on the CUDA device `id`, of one input and these outputs.
    pub(crate) fn on_gpu(session: &Session, id: i32, outputs: Vec<String>) -> ort::Result<Self> {
        let device = MemoryInfo::new(AllocationDevice::CUDA, id, AllocatorType::Device, MemoryType::Default)?;
        let pinned = MemoryInfo::new(AllocationDevice::CUDA_PINNED, id, AllocatorType::Device, MemoryType::CPUInput)?;
        Self::new(session, device, Allocator::new(session, pinned)?, outputs)
    }

    fn new(session: &Session, device: MemoryInfo<'static>, host: Allocator, outputs: Vec<String>) -> ort::Result<Self> {
        let input = session.inputs()[0].name().to_owned();
        Ok(Self { binding: session.create_binding()?, input, outputs, device, host, staging: None })
    }

    /// Puts `images` on the device, and waits until they are there.
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

    /// The outputs for the images that are on the device, in order, and on the device too.
    pub(crate) fn run<'a>(&'a mut self, session: &'a mut Session) -> ort::Result<SessionOutputs<'a>> {
        // An output is bound for one run: the memory of the last one has the last batch's shape.
        for output in &self.outputs {
            self.binding.bind_output_to_device(output, &self.device)?;
        }
        let results = session.run_binding(&self.binding)?;
        self.binding.synchronize_outputs()?;
        Ok(results)
    }
}

/// An output as the host can read it.
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

    /// The host's memory in place of a device's: whatever number of images comes after whatever other, the outputs are
    /// those of a run without bindings, and again when nothing new is uploaded.
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
