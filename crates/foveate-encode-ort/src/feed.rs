//! Images in a graph's type and layout.

use foveate_core::{CHANNELS, PixelBatch, SampleType, Size};
use foveate_encode::EncodeError;
use half::f16;
use ort::session::SessionInputValue;
#[cfg(feature = "cuda")]
use ort::value::{DynTensor, TensorElementType};
use ort::value::{PrimitiveTensorElementType, TensorRef};

use crate::contract::{GraphElement, GraphInput, ImageLayout};
use crate::error::engine;

/// Converts batches to input tensors, in memory that it reuses.
pub(crate) struct ImageFeed {
    layout: ImageLayout,
    /// The number of images of every tensor, if it is fixed.
    batch: Option<usize>,
    samples: FeedSamples,
}

enum FeedSamples {
    /// Unchanged, and without a copy if the layout and the number of images allow it.
    U8(Converted<u8>),
    F32(Converted<f32>),
    F16(Converted<f16>),
}

/// A conversion of samples, with its memory.
struct Converted<T> {
    /// The result for a channel's sample, 0 to 255.
    value: Box<dyn Fn(usize, f32) -> T + Send>,
    /// The same for each u8.
    table: Box<[[T; 256]; CHANNELS]>,
    memory: Vec<T>,
}

impl ImageFeed {
    /// Creates a feed whose samples are normalized with `mean` and `std`; u8 inputs do not use these.
    pub(crate) fn new(input: &GraphInput, mean: [f32; 3], std: [f32; 3]) -> Self {
        let samples = match input.element {
            GraphElement::U8 => FeedSamples::U8(Converted::new(|_, value| value as u8)),
            GraphElement::F16 => FeedSamples::F16(Converted::new(move |channel, value| {
                f16::from_f32(normalized(value, mean[channel], std[channel]))
            })),
            _ => FeedSamples::F32(Converted::new(move |channel, value| normalized(value, mean[channel], std[channel]))),
        };
        Self { layout: input.layout, batch: input.batch, samples }
    }

    /// The element type and the shape of a tensor of `images`.
    #[cfg(feature = "cuda")]
    pub(crate) fn describe(&self, images: PixelBatch<'_>) -> (TensorElementType, [usize; 4]) {
        let element = match &self.samples {
            FeedSamples::U8(_) => TensorElementType::Uint8,
            FeedSamples::F32(_) => TensorElementType::Float32,
            FeedSamples::F16(_) => TensorElementType::Float16,
        };
        (element, shape(self.batch.unwrap_or(images.len()), images.size(), self.layout))
    }

    /// Writes `images` to `tensor`, which must have the type and the shape from [`Self::describe`].
    #[cfg(feature = "cuda")]
    pub(crate) fn write(&self, images: PixelBatch<'_>, tensor: &mut DynTensor) -> Result<(), EncodeError> {
        match &self.samples {
            FeedSamples::U8(_) if self.layout == ImageLayout::Pixels => {
                let (used, rest) = values(tensor)?.split_at_mut(images.as_slice().len());
                used.copy_from_slice(images.as_slice());
                rest.fill(0);
            }
            FeedSamples::U8(converted) => converted.write(images, self.layout, values(tensor)?),
            FeedSamples::F32(converted) => converted.write(images, self.layout, values(tensor)?),
            FeedSamples::F16(converted) => converted.write(images, self.layout, values(tensor)?),
        }
        Ok(())
    }

    /// Returns `images` as one tensor, padded with black images if the graph requires more.
    pub(crate) fn tensor<'a>(&'a mut self, images: PixelBatch<'a>) -> Result<SessionInputValue<'a>, EncodeError> {
        let size = images.size();
        let layout = self.layout;
        let len = self.batch.unwrap_or(images.len());
        match &mut self.samples {
            FeedSamples::U8(_) if layout == ImageLayout::Pixels && len == images.len() => {
                tensor(len, size, layout, images.as_slice())
            }
            FeedSamples::U8(converted) => tensor(len, size, layout, converted.convert(images, layout, len)),
            FeedSamples::F32(converted) => tensor(len, size, layout, converted.convert(images, layout, len)),
            FeedSamples::F16(converted) => tensor(len, size, layout, converted.convert(images, layout, len)),
        }
    }
}

fn normalized(value: f32, mean: f32, std: f32) -> f32 {
    (value / 255.0 - mean) / std
}

impl<T: Copy> Converted<T> {
    fn new(value: impl Fn(usize, f32) -> T + Send + 'static) -> Self {
        let table = std::array::from_fn(|channel| std::array::from_fn(|sample| value(channel, sample as f32)));
        Self { value: Box::new(value), table: Box::new(table), memory: Vec::new() }
    }

    fn convert(&mut self, images: PixelBatch<'_>, layout: ImageLayout, len: usize) -> &[T] {
        let image = samples_of(images);
        let mut memory = std::mem::take(&mut self.memory);
        memory.resize(len * image, self.table[0][0]);
        self.write(images, layout, &mut memory);
        self.memory = memory;
        &self.memory
    }

    /// Fills `out`, which is at least as long as the images; black images follow them.
    fn write(&self, images: PixelBatch<'_>, layout: ImageLayout, out: &mut [T]) {
        let image = samples_of(images);
        let (used, rest) = out.split_at_mut(images.len() * image);
        for (i, out) in used.chunks_exact_mut(image).enumerate() {
            match images.format().sample {
                SampleType::U8 => convert(&self.table, images.image(i), layout, out),
                SampleType::F32 => self.convert_f32(images, i, layout, out),
            }
        }
        for out in rest.chunks_exact_mut(image) {
            black(&self.table, layout, out);
        }
    }

    /// Converts image `i` of a batch of f32.
    fn convert_f32(&self, images: PixelBatch<'_>, i: usize, layout: ImageLayout, out: &mut [T]) {
        let mut samples = vec![0.0; out.len()];
        images.widen(i * out.len(), &mut samples);
        let plane = out.len() / CHANNELS;
        for (at, &sample) in samples.iter().enumerate() {
            let channel = at % CHANNELS;
            let to = if layout == ImageLayout::Pixels { at } else { channel * plane + at / CHANNELS };
            out[to] = (self.value)(channel, sample);
        }
    }
}

/// Samples of one image.
fn samples_of(images: PixelBatch<'_>) -> usize {
    images.as_slice().len() / images.format().sample.bytes() / images.len()
}

#[cfg(feature = "cuda")]
fn values<T: PrimitiveTensorElementType>(tensor: &mut DynTensor) -> Result<&mut [T], EncodeError> {
    tensor.try_extract_tensor_mut().map(|(_, values)| values).map_err(|error| engine(&error))
}

/// Converts one image from `[h, w, 3]` to the layout.
fn convert<T: Copy>(table: &[[T; 256]; CHANNELS], image: &[u8], layout: ImageLayout, out: &mut [T]) {
    match layout {
        ImageLayout::Pixels => {
            for (pixel, out) in image.chunks_exact(CHANNELS).zip(out.chunks_exact_mut(CHANNELS)) {
                for channel in 0..CHANNELS {
                    out[channel] = table[channel][usize::from(pixel[channel])];
                }
            }
        }
        ImageLayout::Planes => {
            let plane = image.len() / CHANNELS;
            for ((channel, values), out) in table.iter().enumerate().zip(out.chunks_exact_mut(plane)) {
                for (pixel, out) in image.chunks_exact(CHANNELS).zip(out) {
                    *out = values[usize::from(pixel[channel])];
                }
            }
        }
    }
}

fn black<T: Copy>(table: &[[T; 256]; CHANNELS], layout: ImageLayout, out: &mut [T]) {
    let plane = out.len() / CHANNELS;
    for (i, out) in out.iter_mut().enumerate() {
        let channel = if layout == ImageLayout::Pixels { i % CHANNELS } else { i / plane };
        *out = table[channel][0];
    }
}

fn tensor<T>(len: usize, size: Size, layout: ImageLayout, samples: &[T]) -> Result<SessionInputValue<'_>, EncodeError>
where
    T: PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    let tensor = TensorRef::from_array_view((shape(len, size, layout), samples));
    tensor.map(SessionInputValue::from).map_err(|error| engine(&error))
}

/// The shape of a tensor of `len` images.
fn shape(len: usize, size: Size, layout: ImageLayout) -> [usize; 4] {
    let height = size.height as usize;
    let width = size.width as usize;
    match layout {
        ImageLayout::Planes => [len, CHANNELS, height, width],
        ImageLayout::Pixels => [len, height, width, CHANNELS],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foveate_encode::normalize_nchw;

    const SIZE: Size = Size { width: 3, height: 2 };
    const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
    const STD: [f32; 3] = [0.229, 0.224, 0.225];

    fn samples<T: Copy>(
        samples: FeedSamples,
        get: impl Fn(FeedSamples) -> Converted<T>,
        layout: ImageLayout,
        len: usize,
    ) -> Vec<T> {
        let pixels: Vec<u8> = (0..36).map(|i| i * 7).collect();
        get(samples).convert(PixelBatch::new(&pixels, SIZE).unwrap(), layout, len).to_vec()
    }

    #[test]
    fn floats_are_the_reference_s() {
        let input = GraphInput { element: GraphElement::F32, layout: ImageLayout::Planes, batch: None };
        let feed = ImageFeed::new(&input, MEAN, STD).samples;
        let f32s = |samples| match samples {
            FeedSamples::F32(converted) => converted,
            _ => panic!("f32 goes in as f32"),
        };
        let pixels: Vec<u8> = (0..36).map(|i| i * 7).collect();
        let mut expected = Vec::new();
        normalize_nchw(PixelBatch::new(&pixels, SIZE).unwrap(), MEAN, STD, &mut expected);
        let padded = samples(feed, f32s, ImageLayout::Planes, 3);
        assert_eq!(padded[..36], expected);
        let mut black = Vec::new();
        normalize_nchw(PixelBatch::new(&[0; 18], SIZE).unwrap(), MEAN, STD, &mut black);
        assert_eq!(padded[36..], black);

        let interleaved = samples(ImageFeed::new(&input, MEAN, STD).samples, f32s, ImageLayout::Pixels, 3);
        for (i, value) in interleaved.iter().enumerate() {
            let image = i / 18;
            let pixel = i % 18 / 3;
            let channel = i % 3;
            assert_eq!(*value, padded[image * 18 + channel * 6 + pixel]);
        }
    }

    #[test]
    fn bytes_stay_bytes() {
        let input = GraphInput { element: GraphElement::U8, layout: ImageLayout::Planes, batch: None };
        let bytes = |samples| match samples {
            FeedSamples::U8(converted) => converted,
            _ => panic!("u8 goes in as u8"),
        };
        let planes = samples(ImageFeed::new(&input, MEAN, STD).samples, bytes, ImageLayout::Planes, 2);
        assert_eq!(planes[..6], [0, 21, 42, 63, 84, 105]);
        assert_eq!(planes[6..12], [7, 28, 49, 70, 91, 112]);
        assert_eq!(planes[18], 126);
    }
}
