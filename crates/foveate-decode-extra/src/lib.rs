#![doc = include_str!("../README.md")]

#[cfg(feature = "avif")]
mod av1;
#[cfg(feature = "avif")]
mod avif;
#[cfg(feature = "heic")]
mod heic;
#[cfg(feature = "jpeg2000")]
mod jpeg2000;
#[cfg(feature = "jxl")]
mod jxl;
mod read_image;
#[cfg(feature = "avif")]
mod yuv;

use foveate_core::{Health, PixelBuf, catch_panic};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderRegistry, FormatSet, ImageFormat,
    sniff,
};
use read_image::ReadImage;

/// The backend's name on the command line.
pub const NAME: &str = "extra";

/// The formats of this build.
const FORMATS: &[ImageFormat] = &[
    #[cfg(feature = "avif")]
    ImageFormat::Avif,
    #[cfg(feature = "heic")]
    ImageFormat::Heic,
    #[cfg(feature = "jxl")]
    ImageFormat::JpegXl,
    #[cfg(feature = "jpeg2000")]
    ImageFormat::Jpeg2000,
];

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let about = "AVIF, JPEG XL and JPEG 2000 in pure Rust, HEIC with libheif";
    registry.register(DecoderBackend::new(NAME, about, |_| Ok(Box::new(ExtraDecoder))).with_health(health))
}

/// Reports libheif, without which the other formats are read all the same.
fn health() -> Health {
    #[cfg(feature = "heic")]
    return match heic::described() {
        Ok(version) => Health::library(format!("libheif {version}")).with_pixels_of(format!("libheif {version}")),
        Err(reason) => Health::library(format!("no libheif, so HEIC is refused ({reason})")),
    };
    #[cfg(not(feature = "heic"))]
    Health::all_rust()
}

/// Decodes the formats of this crate's features.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtraDecoder;

impl Decoder for ExtraDecoder {
    fn decode(&mut self, encoded: &[u8], _hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        // The libraries are young, and panic at some damaged files.
        let decoded = catch_panic(|| read(encoded, format, out));
        let decoded = decoded.unwrap_or_else(|panic| Err(DecodeError::corrupt(format, panic)));
        let image = decoded.inspect_err(|_| out.clear())?;
        Ok(Decoded { format, native: image.size, is_clipped: image.is_clipped })
    }

    fn capability(&self) -> Capability {
        Capability { formats: FormatSet::of(FORMATS), scaled: false, low_frequencies: false, exact_jpeg: false }
    }
}

fn read(encoded: &[u8], format: ImageFormat, out: &mut PixelBuf) -> Result<ReadImage, DecodeError> {
    match format {
        #[cfg(feature = "avif")]
        ImageFormat::Avif => avif::decode(encoded, out),
        #[cfg(feature = "heic")]
        ImageFormat::Heic => heic::decode(encoded, out),
        #[cfg(feature = "jxl")]
        ImageFormat::JpegXl => jxl::decode(encoded, out),
        #[cfg(feature = "jpeg2000")]
        ImageFormat::Jpeg2000 => jpeg2000::decode(encoded, out),
        other => Err(DecodeError::unsupported(other, "no decoder for it here")),
    }
}
