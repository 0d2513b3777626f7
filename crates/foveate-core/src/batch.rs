use std::fmt;

use crate::Size;

/// The type of an image's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SampleType {
    /// A byte, 0..=255.
    #[default]
    U8,
    /// Four bytes in the machine's order: from 0.0 to 255.0, for models whose library resizes in floating point.
    F32,
}

impl SampleType {
    /// Its size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F32 => 4,
        }
    }
}

/// The form of an encoder's input: all images of a batch have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFormat {
    /// Width and height.
    pub size: Size,
    /// Type of the samples.
    pub sample: SampleType,
}

impl InputFormat {
    /// The bytes of an image, `[height, width, 3]`; 0 if there can be no such image.
    pub fn bytes(self) -> usize {
        self.size.rgb_len().and_then(|len| len.checked_mul(self.sample.bytes())).unwrap_or(0)
    }
}

impl fmt::Display for InputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sample {
            SampleType::U8 => self.size.fmt(f),
            SampleType::F32 => write!(f, "{} in f32", self.size),
        }
    }
}

/// Samples of u8.
impl From<Size> for InputFormat {
    fn from(size: Size) -> Self {
        Self { size, sample: SampleType::U8 }
    }
}

/// A borrowed batch of images, `[n, height, width, 3]` RGB (NHWC), contiguous: an encoder's input.
#[derive(Clone, Copy, Debug)]
pub struct PixelBatch<'a> {
    data: &'a [u8],
    len: usize,
    format: InputFormat,
}

impl<'a> PixelBatch<'a> {
    /// Wraps `data`; `None` unless its length is a whole, non-zero number of images of this format. A [`Size`] means
    /// samples of u8.
    pub fn new(data: &'a [u8], format: impl Into<InputFormat>) -> Option<Self> {
        let format = format.into();
        let image = Some(format.bytes()).filter(|&len| len > 0)?;
        (!data.is_empty() && data.len().is_multiple_of(image)).then(|| Self { data, len: data.len() / image, format })
    }

    /// Number of images, at least one.
    #[allow(clippy::len_without_is_empty)] // never empty by construction
    pub fn len(self) -> usize {
        self.len
    }

    /// Size of every image in the batch.
    pub fn size(self) -> Size {
        self.format.size
    }

    /// Size and samples of every image in the batch.
    pub fn format(self) -> InputFormat {
        self.format
    }

    /// The bytes of all samples.
    pub fn as_slice(self) -> &'a [u8] {
        self.data
    }

    /// Copies samples from the `first` of the batch on, as many as `out` holds. Panics when out of range.
    pub fn widen(self, first: usize, out: &mut [f32]) {
        let bytes = self.format.sample.bytes();
        let data = &self.data[first * bytes..][..out.len() * bytes];
        match self.format.sample {
            SampleType::U8 => out.iter_mut().zip(data).for_each(|(out, &sample)| *out = f32::from(sample)),
            SampleType::F32 => {
                let samples = data.as_chunks().0;
                out.iter_mut().zip(samples).for_each(|(out, &sample)| *out = f32::from_ne_bytes(sample));
            }
        }
    }

    /// The bytes of image `i`, `[height, width, 3]`; panics when out of range.
    pub fn image(self, i: usize) -> &'a [u8] {
        let image = self.data.len() / self.len;
        &self.data[i * image..(i + 1) * image]
    }

    /// Returns images `range` as a batch of their own; `None` when empty or out of range.
    pub fn slice(self, range: std::ops::Range<usize>) -> Option<Self> {
        let image = self.data.len() / self.len;
        Self::new(self.data.get(range.start * image..range.end * image)?, self.format)
    }
}

/// A reusable block of vectors, `[n, dim]` f32, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VectorBuf {
    data: Vec<f32>,
    dim: usize,
}

impl VectorBuf {
    /// An empty block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `rows` vectors of `dim` components and returns them for overwriting (content unspecified).
    pub fn reset(&mut self, rows: usize, dim: usize) -> &mut [f32] {
        self.dim = dim;
        self.data.resize(rows * dim, 0.0);
        &mut self.data
    }

    /// Removes the vectors at `rows`; the others keep their order and close the gaps.
    pub fn remove(&mut self, rows: &[usize]) {
        let dim = self.dim;
        let mut kept = 0;
        for row in (0..self.rows()).filter(|row| !rows.contains(row)) {
            self.data.copy_within(row * dim..(row + 1) * dim, kept * dim);
            kept += 1;
        }
        self.truncate(kept);
    }

    /// Keeps the first `rows` vectors, or all of them if there are fewer.
    pub fn truncate(&mut self, rows: usize) {
        self.data.truncate(rows * self.dim);
    }

    /// Number of vectors.
    pub fn rows(&self) -> usize {
        self.data.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Components of each vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Vector `i`; panics when out of range.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.dim..(i + 1) * self.dim]
    }

    /// All components, row after row.
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// All components, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_whole_number_of_images() {
        let data = [0; 24];
        assert_eq!(PixelBatch::new(&data, Size::square(2)).unwrap().len(), 2);
        assert!(PixelBatch::new(&data[..23], Size::square(2)).is_none());
        assert!(PixelBatch::new(&[], Size::square(2)).is_none());
        assert!(PixelBatch::new(&data, Size::default()).is_none());
    }

    #[test]
    fn rows_are_taken_out_from_anywhere() {
        let mut rows = VectorBuf::new();
        rows.reset(4, 2).copy_from_slice(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
        rows.remove(&[0, 2]);
        assert_eq!((rows.rows(), rows.as_slice()), (2, [1.0, 1.5, 3.0, 3.5].as_slice()));
        rows.truncate(1);
        assert_eq!((rows.rows(), rows.row(0)), (1, [1.0, 1.5].as_slice()));
        rows.remove(&[0]);
        assert_eq!(rows.rows(), 0);
    }

    #[test]
    fn samples_of_either_type_are_widened() {
        let size = Size::new(1, 2);
        let mut out = [0.0; 4];
        PixelBatch::new(&[0, 1, 2, 3, 4, 255], size).unwrap().widen(2, &mut out);
        assert_eq!(out, [2.0, 3.0, 4.0, 255.0]);
        let floats: Vec<u8> = (0..12).flat_map(|i| (i as f32 / 2.0).to_ne_bytes()).collect();
        let batch = PixelBatch::new(&floats, InputFormat { size, sample: SampleType::F32 }).unwrap();
        batch.slice(1..2).unwrap().widen(2, &mut out);
        assert_eq!((batch.len(), out), (2, [4.0, 4.5, 5.0, 5.5]));
    }

    #[test]
    fn slices_and_images_agree() {
        let data: Vec<u8> = (0..36).collect();
        let batch = PixelBatch::new(&data, Size::square(2)).unwrap();
        assert_eq!(batch.slice(1..3).unwrap().image(0), batch.image(1));
        assert!(batch.slice(2..2).is_none());
        assert!(batch.slice(2..4).is_none());
    }
}
