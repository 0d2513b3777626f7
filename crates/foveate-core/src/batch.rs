use crate::{CHANNELS, Size};

/// A borrowed batch of images, `[n, height, width, 3]` u8 RGB (NHWC), contiguous: an encoder's input.
#[derive(Clone, Copy, Debug)]
pub struct PixelBatch<'a> {
    data: &'a [u8],
    len: usize,
    size: Size,
}

impl<'a> PixelBatch<'a> {
    /// Wraps `data`; `None` unless its length is a whole, non-zero number of images of `size`.
    pub fn new(data: &'a [u8], size: Size) -> Option<Self> {
        let image = size.rgb_len().filter(|&len| len > 0)?;
        (!data.is_empty() && data.len().is_multiple_of(image)).then(|| Self { data, len: data.len() / image, size })
    }

    /// Number of images, at least one.
    #[allow(clippy::len_without_is_empty)] // never empty by construction
    pub fn len(self) -> usize {
        self.len
    }

    /// Size of every image in the batch.
    pub fn size(self) -> Size {
        self.size
    }

    /// All samples.
    pub fn as_slice(self) -> &'a [u8] {
        self.data
    }

    /// The samples of image `i`, `[height, width, 3]`; panics when out of range.
    pub fn image(self, i: usize) -> &'a [u8] {
        let image = self.data.len() / self.len;
        &self.data[i * image..(i + 1) * image]
    }

    /// Returns images `range` as a batch of their own; `None` when empty or out of range.
    pub fn slice(self, range: std::ops::Range<usize>) -> Option<Self> {
        let image = self.size.width as usize * self.size.height as usize * CHANNELS;
        Self::new(self.data.get(range.start * image..range.end * image)?, self.size)
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
    fn slices_and_images_agree() {
        let data: Vec<u8> = (0..36).collect();
        let batch = PixelBatch::new(&data, Size::square(2)).unwrap();
        assert_eq!(batch.slice(1..3).unwrap().image(0), batch.image(1));
        assert!(batch.slice(2..2).is_none());
        assert!(batch.slice(2..4).is_none());
    }
}
