#![doc = include_str!("../README.md")]

mod library;
mod png;
mod scale;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, jpeg, sniff,
};
use library::{DecodeRequest, OpencvLibrary};
use scale::ReadScale;

/// The backend's name on the command line.
pub const NAME: &str = "opencv";

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let about = "JPEG and PNG with OpenCV's imdecode, JPEG also at reduced scale";
    registry.register(
        DecoderBackend::new(NAME, about, |options| Ok(Box::new(OpencvDecoder::open(*options)?)))
            .with_health(library::health),
    )
}

/// Decodes JPEG and PNG with OpenCV, straight into the caller's buffer.
///
/// For JPEG, a hint selects one of OpenCV's reduced scales (1/2, 1/4, 1/8, done by libjpeg within its inverse DCT),
/// with each side rounded up.
#[derive(Debug)]
pub struct OpencvDecoder {
    options: DecoderOptions,
    library: &'static OpencvLibrary,
}

impl OpencvDecoder {
    /// A decoder that treats questionable files as `options` say. Sets OpenCV's threads to one, for the whole process.
    ///
    /// # Errors
    /// [`DecodeError::Unavailable`] if this OpenCV does not decode JPEG.
    pub fn open(options: DecoderOptions) -> Result<Self, DecodeError> {
        Ok(Self { options, library: library::get()? })
    }

    fn jpeg(&self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let structure = jpeg::inspect(encoded, self.options.max_scans)?;
        structure.admit(out.limits(), &self.options)?;
        if structure.components == 4 {
            let reason = "CMYK and YCCK, which OpenCV converts by another formula";
            return Err(DecodeError::unsupported(ImageFormat::Jpeg, reason));
        }
        let encoded = jpeg::completed(encoded, &structure);
        let scale = ReadScale::permitted(structure.size, hint);
        let size = scale.of(structure.size);
        out.admit(size, structure.coefficient_bytes())?;
        DecodeRequest { format: ImageFormat::Jpeg, encoded: &encoded, scale, size }.decode(out.reset(size)?)?;
        Ok(structure.size)
    }
}

fn png(encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
    let size = png::readable_size(encoded, out.limits())?;
    DecodeRequest { format: ImageFormat::Png, encoded, scale: ReadScale::NATIVE, size }.decode(out.reset(size)?)?;
    Ok(size)
}

impl Decoder for OpencvDecoder {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        let native = match format {
            ImageFormat::Jpeg => self.jpeg(encoded, hint, out),
            ImageFormat::Png => png(encoded, out),
            other => return Err(DecodeError::unsupported(other, "opencv is asked for JPEG and PNG only")),
        };
        Ok(Decoded { format, native: native.inspect_err(|_| out.clear())?, is_clipped: false })
    }

    fn capability(&self) -> Capability {
        Capability {
            formats: FormatSet::of(&[ImageFormat::Jpeg, ImageFormat::Png]),
            scaled: true,
            low_frequencies: false,
            exact_jpeg: self.library.has_libjpeg_turbos_pixels,
        }
    }
}
