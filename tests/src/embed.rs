//! Embeds files with given backends, one image at a time: the pipeline's semantics without its machinery.

use std::path::Path;

use foveate_core::{InputFormat, PixelBatch, PixelBuf, PixelLimits, VectorBuf, error_chain};
use foveate_decode::{DecodeHint, Decoder, orientation};
use foveate_encode::Encoder;
use foveate_resize::{Geometry, Resizer};

use crate::trial::Outcome;

/// Turns a file into the encoder's input.
pub struct Preprocessor {
    decoder: Box<dyn Decoder>,
    resizer: Box<dyn Resizer>,
    geometry: Geometry,
    /// True if EXIF orientation is applied.
    orient: bool,
    pixels: PixelBuf,
    scratch: PixelBuf,
}

impl Preprocessor {
    /// A preprocessor for `geometry`.
    pub fn new(decoder: Box<dyn Decoder>, resizer: Box<dyn Resizer>, geometry: Geometry, orient: bool) -> Self {
        let buffer = || PixelBuf::new(PixelLimits::DEFAULT);
        Self { decoder, resizer, geometry, orient, pixels: buffer(), scratch: buffer() }
    }

    /// The input pixels of the image at `path`, `[h, w, 3]`.
    ///
    /// # Errors
    /// If it cannot be read, decoded or resized.
    pub fn input(&mut self, path: &Path) -> Result<Vec<u8>, Outcome> {
        let failed = |error: &dyn std::error::Error| Outcome::failed(format!("{}: {error}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        let decoded =
            self.decoder.decode(&bytes, DecodeHint::default(), &mut self.pixels).map_err(|error| failed(&error))?;
        if self.orient {
            orientation(&bytes, decoded.format).apply(&mut self.pixels, &mut self.scratch)?;
        }
        resize(self.resizer.as_mut(), &self.pixels, self.geometry)
    }
}

/// Resizes `image` by `geometry`, `[h, w, 3]`.
///
/// # Errors
/// If the resizer refuses.
pub fn resize(resizer: &mut dyn Resizer, image: &PixelBuf, geometry: Geometry) -> Result<Vec<u8>, Outcome> {
    let mut output = vec![0; geometry.format().bytes()];
    match resizer.resize_into(image.view(), &geometry.plan(image.size()), &mut output) {
        Ok(()) => Ok(output),
        Err(error @ foveate_resize::ResizeError::Unsupported { .. }) => Err(Outcome::Ignored(error_chain(&error))),
        Err(error) => Err(error.into()),
    }
}

/// Encodes `inputs` (each an image of this format) in batches of `batch`. Returns their vectors.
///
/// # Errors
/// If the encoder refuses.
pub fn encode(
    encoder: &mut dyn Encoder,
    inputs: &[Vec<u8>],
    format: impl Into<InputFormat>,
    batch: usize,
) -> Result<Vec<Vec<f32>>, Outcome> {
    let format = format.into();
    let (mut vectors, mut rows) = (Vec::new(), VectorBuf::new());
    for chunk in inputs.chunks(batch) {
        let pixels = chunk.concat();
        let batch = PixelBatch::new(&pixels, format).ok_or_else(|| Outcome::failed("no whole number of images"))?;
        encoder.encode(batch, &mut rows)?;
        vectors.extend((0..rows.rows()).map(|row| rows.row(row).to_vec()));
    }
    Ok(vectors)
}
