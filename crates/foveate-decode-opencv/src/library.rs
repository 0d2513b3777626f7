//! The OpenCV that this program is linked with.

use std::sync::OnceLock;

use foveate_core::{BoxError, CHANNELS, Health, Size, error_chain};
use foveate_decode::{DecodeError, ImageFormat};
use opencv::boxed_ref::BoxedRef;
use opencv::core::{CV_8UC3, Mat, Vec3b};
use opencv::imgcodecs::{self, IMREAD_IGNORE_ORIENTATION};
use opencv::prelude::*;

use crate::scale::ReadScale;

/// Properties of the library that are determined once.
#[derive(Debug)]
pub(crate) struct OpencvLibrary {
    /// True if the probe's pixels are libjpeg-turbo's.
    pub(crate) has_libjpeg_turbos_pixels: bool,
}

/// A picture of sharp colours, 4:2:0, in which any other chroma interpolation shows, and libjpeg-turbo's pixels of it.
/// Made with Pillow.
const PROBE: &[u8] = include_bytes!("probe.jpg");
const PROBE_RGB: &[u8] = include_bytes!("probe.rgb");
const PROBE_SIZE: Size = Size::new(37, 21);

/// The library, set up for an engine that has its own threads.
pub(crate) fn get() -> Result<&'static OpencvLibrary, DecodeError> {
    static LIBRARY: OnceLock<Result<OpencvLibrary, String>> = OnceLock::new();
    LIBRARY.get_or_init(set_up).as_ref().map_err(|reason| DecodeError::Unavailable(reason.as_str().into()))
}

fn set_up() -> Result<OpencvLibrary, String> {
    opencv::core::set_num_threads(1).map_err(|error| format!("OpenCV: {error}"))?;
    let mut rgb = vec![0; PROBE_RGB.len()];
    probe(PROBE, PROBE_SIZE)
        .decode(&mut rgb)
        .map_err(|error| format!("this OpenCV cannot decode JPEG ({})", error_chain(&error)))?;
    Ok(OpencvLibrary { has_libjpeg_turbos_pixels: rgb == PROBE_RGB })
}

fn probe(encoded: &[u8], size: Size) -> DecodeRequest<'_> {
    DecodeRequest { format: ImageFormat::Jpeg, encoded, scale: ReadScale::NATIVE, size }
}

/// The OpenCV version, or why it is unusable.
pub(crate) fn health() -> Health {
    let remedy = "cargo xtask setup --only opencv";
    match (get(), opencv::core::get_version_string()) {
        (Ok(library), Ok(version)) => {
            let pixels = if library.has_libjpeg_turbos_pixels { "pixels" } else { "pixels are not those" };
            let release = format!("OpenCV {version}");
            Health::library(format!("{release}, shared; {pixels} of libjpeg-turbo")).with_pixels_of(release)
        }
        (Err(error), _) => Health::broken(error_chain(&error), remedy),
        (_, Err(error)) => Health::broken(error.to_string(), remedy),
    }
}

/// One image to decode.
#[derive(Clone, Copy)]
pub(crate) struct DecodeRequest<'a> {
    /// The image's format.
    pub(crate) format: ImageFormat,
    /// The file.
    pub(crate) encoded: &'a [u8],
    /// The scale for decoding.
    pub(crate) scale: ReadScale,
    /// The image's size at that scale.
    pub(crate) size: Size,
}

/// Samples written at the start of the buffer, to detect whether a picture was decoded.
const UNTOUCHED: [u8; 24] =
    *b"\x9f\x02\xe1\x5d\x77\xc8\x10\xb3\x3c\xf4\x81\x26\xda\x09\x65\xfe\x4b\x90\x17\xad\x58\xe3\x34\x7a";

impl DecodeRequest<'_> {
    /// Decodes into `rgb`, `[height, width, 3]`.
    pub(crate) fn decode(&self, rgb: &mut [u8]) -> Result<(), DecodeError> {
        let mark = rgb.len().min(UNTOUCHED.len());
        rgb[..mark].copy_from_slice(&UNTOUCHED[..mark]);
        self.decode_in_place(rgb)?;
        if rgb[..mark] == UNTOUCHED[..mark] {
            // Either the picture begins with these exact samples, or its header was refused and nothing was written:
            // OpenCV 4.6's return value does not distinguish the two.
            self.decode_and_copy(rgb)?;
        }
        swap_red_and_blue(rgb);
        Ok(())
    }

    /// Decodes into memory of the right shape, so that OpenCV does not allocate its own.
    fn decode_in_place(&self, bgr: &mut [u8]) -> Result<(), DecodeError> {
        let rows = self.side(self.size.height)?;
        let columns = self.side(self.size.width)?;
        let mut pixels = Mat::new_rows_cols_with_bytes_mut::<Vec3b>(rows, columns, bgr).map_err(|e| self.corrupt(e))?;
        imgcodecs::imdecode_to(&self.input()?, self.flags(), &mut pixels).map_err(|e| self.corrupt(e))?;
        self.check(&pixels)
    }

    /// Decodes into memory that OpenCV allocates, which stays empty after a failure of any kind.
    fn decode_and_copy(&self, bgr: &mut [u8]) -> Result<(), DecodeError> {
        let pixels = imgcodecs::imdecode(&self.input()?, self.flags()).map_err(|e| self.corrupt(e))?;
        self.check(&pixels)?;
        bgr.copy_from_slice(pixels.data_bytes().map_err(|e| self.corrupt(e))?);
        Ok(())
    }

    /// Refuses a picture of another size than expected; the matrix is empty if the data cannot be decoded.
    fn check(&self, pixels: &impl MatTraitConst) -> Result<(), DecodeError> {
        if pixels.empty() {
            return Err(self.corrupt("OpenCV cannot decode it"));
        }
        let width = pixels.cols();
        let height = pixels.rows();
        let expected = (self.side(self.size.width)?, self.side(self.size.height)?);
        if (width, height) != expected || pixels.typ() != CV_8UC3 {
            return Err(self.corrupt(format!("its header is read as {width}x{height} and as {}", self.size)));
        }
        Ok(())
    }

    /// The engine applies EXIF orientation to every decoder's pixels, so OpenCV must not.
    fn flags(&self) -> i32 {
        self.scale.flag() | IMREAD_IGNORE_ORIENTATION
    }

    fn input(&self) -> Result<BoxedRef<'_, Mat>, DecodeError> {
        Mat::from_slice(self.encoded).map_err(|_| DecodeError::unsupported(self.format, "files of 2 GiB and more"))
    }

    fn side(&self, pixels: u32) -> Result<i32, DecodeError> {
        i32::try_from(pixels).map_err(|e| self.corrupt(e))
    }

    fn corrupt(&self, reason: impl Into<BoxError>) -> DecodeError {
        DecodeError::corrupt(self.format, reason)
    }
}

/// OpenCV's channel order is blue, green, red.
fn swap_red_and_blue(bgr: &mut [u8]) {
    for pixel in bgr.as_chunks_mut::<CHANNELS>().0 {
        pixel.swap(0, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenCV 4.6 returns the earlier pixels for a refused header.
    #[test]
    fn pixels_of_an_earlier_picture_are_never_passed_off() {
        let mut bad = PROBE.to_vec();
        let tables = bad.windows(2).position(|pair| pair == [0xFF, 0xDB]).expect("quantization tables");
        bad[tables + 2..tables + 4].copy_from_slice(&[0, 5]);
        let mut rgb = PROBE_RGB.to_vec();
        let verdict = probe(&bad, PROBE_SIZE).decode(&mut rgb);
        assert!(matches!(verdict, Err(DecodeError::Corrupt { .. })), "{verdict:?}");
    }

    #[test]
    fn a_header_of_another_size_is_refused() {
        let other = Size::new(PROBE_SIZE.width, PROBE_SIZE.height - 1);
        let mut rgb = vec![0; other.rgb_len().expect("small")];
        let verdict = probe(PROBE, other).decode(&mut rgb);
        assert!(matches!(verdict, Err(DecodeError::Corrupt { .. })), "{verdict:?}");
    }
}
