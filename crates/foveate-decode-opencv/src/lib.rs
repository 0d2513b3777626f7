#![doc = include_str!("../README.md")]

mod library;
mod scale;

use foveate_core::PixelBuf;
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, jpeg, sniff,
};
use library::Library;
use scale::Scale;

/// The backend's name on the command line.
pub const NAME: &str = "opencv";

/// Adds the backend to `registry`.
///
/// # Errors
/// When the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let open = |options: &DecoderOptions| Ok(Box::new(OpencvDecoder::open(*options)?) as Box<dyn Decoder>);
    let about = "JPEG with OpenCV's imdecode, at full or reduced scale";
    registry.register(DecoderBackend::new(NAME, about, open).with_health(library::health))
}

/// Decodes JPEG with OpenCV, straight into the caller's buffer.
///
/// A hint is honoured by OpenCV's reduced scales (1/2, 1/4, 1/8, done by libjpeg within its inverse DCT), each side
/// rounded up.
#[derive(Debug)]
pub struct OpencvDecoder {
    options: DecoderOptions,
    library: &'static Library,
}

impl OpencvDecoder {
    /// A decoder that treats doubtful files as `options` say. Sets OpenCV's threads to one, for the whole process.
    ///
    /// # Errors
    /// [`DecodeError::Unavailable`] when this OpenCV decodes no JPEG.
    pub fn open(options: DecoderOptions) -> Result<Self, DecodeError> {
        Ok(Self { options, library: library::get()? })
    }
}

impl Decoder for OpencvDecoder {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        if format != ImageFormat::Jpeg {
            return Err(DecodeError::unsupported(format, "opencv is left to read JPEG only"));
        }
        let structure = jpeg::inspect(encoded, self.options.max_scans)?;
        structure.admit(out.limits(), &self.options)?;
        if structure.components == 4 {
            return Err(DecodeError::unsupported(format, "CMYK and YCCK, which OpenCV converts by another formula"));
        }
        let encoded = jpeg::completed(encoded, &structure);
        let scale = Scale::permitted(structure.size, hint);
        let size = scale.of(structure.size);
        library::decode(&encoded, scale, size, out.reset(size)?).inspect_err(|_| out.clear())?;
        Ok(Decoded { format, native: structure.size })
    }

    fn capability(&self) -> Capability {
        Capability {
            formats: FormatSet::of(&[ImageFormat::Jpeg]),
            scaled: true,
            exact_jpeg: self.library.has_libjpeg_turbos_pixels,
        }
    }
}
