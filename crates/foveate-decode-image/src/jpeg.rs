//! JPEG with `jpeg-decoder`: slower than the SIMD backends, independent of them, and correct on layouts that they get
//! wrong. (The `image` crate itself would use zune-jpeg here, which could not serve as a check on zune-jpeg.)

use foveate_core::{PixelBuf, Size};
use foveate_decode::jpeg::{self, Process};
use foveate_decode::{DecodeError, DecoderOptions, ImageFormat};
use jpeg_decoder::{Decoder, Error, PixelFormat};

use crate::convert::{cmyk_to_rgb, map};

pub(crate) fn decode(encoded: &[u8], options: &DecoderOptions, out: &mut PixelBuf) -> Result<Size, DecodeError> {
    let structure = jpeg::inspect(encoded, options.max_scans)?;
    let processes = [Process::Baseline, Process::Extended, Process::Progressive, Process::Lossless];
    structure.admit_with(out.limits(), options, &processes)?;
    // The library's planes and pixels, and its coefficients.
    out.admit(structure.size, structure.size.pixels().saturating_mul(6) + structure.coefficient_bytes())?;
    let encoded = jpeg::completed(encoded, &structure);
    let mut decoder = Decoder::new(&*encoded);
    // At most four samples per pixel; the size itself has been checked against the limits.
    decoder.set_max_decoding_buffer_size(structure.size.pixels().saturating_mul(4) as usize);
    let native = decoder.decode().map_err(fault)?;
    let info = decoder.info().ok_or_else(|| DecodeError::corrupt(ImageFormat::Jpeg, "no frame header"))?;
    let size = Size::new(info.width.into(), info.height.into());
    let rgb = out.reset(size)?;
    match info.pixel_format {
        PixelFormat::L8 => map(&native, rgb, |&[l]| [l; 3]),
        PixelFormat::RGB24 => rgb.copy_from_slice(&native),
        PixelFormat::CMYK32 => map(&native, rgb, cmyk_to_rgb),
        PixelFormat::L16 => {
            return Err(DecodeError::unsupported(ImageFormat::Jpeg, "more than 8 bits per sample"));
        }
    }
    Ok(size)
}

fn fault(error: Error) -> DecodeError {
    fault_of(ImageFormat::Jpeg, error)
}

pub(crate) fn fault_of(format: ImageFormat, error: Error) -> DecodeError {
    match error {
        Error::Unsupported(feature) => DecodeError::unsupported(format, format!("{feature:?}")),
        Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::truncated(format, "the data ends early")
        }
        other => DecodeError::corrupt(format, other),
    }
}
