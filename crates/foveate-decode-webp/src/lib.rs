#![doc = include_str!("../README.md")]
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use foveate_core::{CHANNELS, Health, PixelBuf, Size};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderRegistry, FormatSet, ImageFormat,
    sniff,
};
use libwebp_sys::{
    VP8StatusCode, WEBP_CSP_MODE, WebPBitstreamFeatures, WebPDecode, WebPDecoderConfig, WebPGetDecoderVersion,
    WebPGetFeatures, WebPRGBABuffer,
};

/// The backend's name on the command line.
pub const NAME: &str = "webp";

const FORMAT: ImageFormat = ImageFormat::WebP;

/// The library's number for pictures without loss.
const LOSSLESS: i32 = 2;

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let backend = DecoderBackend::new(NAME, "WebP with libwebp", |_| Ok(Box::new(WebPDecoder)));
    registry.register(backend.with_health(health))
}

fn health() -> Health {
    // SAFETY: it returns a number: major, minor and patch in eight bits each.
    let version = unsafe { WebPGetDecoderVersion() };
    Health::library(format!("libwebp {}.{}.{}, vendored", version >> 16, version >> 8 & 0xFF, version & 0xFF))
}

/// Decodes WebP with libwebp, straight into the caller's buffer.
#[derive(Clone, Copy, Debug)]
pub struct WebPDecoder;

impl Decoder for WebPDecoder {
    fn decode(&mut self, encoded: &[u8], _hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        if format != FORMAT {
            return Err(DecodeError::unsupported(format, "webp reads WebP only"));
        }
        let encoded = whole(encoded)?;
        let features = features(encoded)?;
        if features.has_animation != 0 {
            return Err(DecodeError::unsupported(FORMAT, "webp reads no animations"));
        }
        let size = Size::new(features.width.unsigned_abs(), features.height.unsigned_abs());
        out.limits().check(size)?;
        // Without loss and for alpha, the library has the whole picture in memory.
        let bytes_of_pixel = if features.format == LOSSLESS { 4 } else { u64::from(features.has_alpha != 0) };
        out.admit(size, size.pixels() * bytes_of_pixel)?;
        let pixels = out.reset(size)?;
        decode_into(encoded, size, pixels).inspect_err(|_| out.clear())?;
        Ok(Decoded { format, native: size, is_clipped: false })
    }

    fn capability(&self) -> Capability {
        Capability { formats: FormatSet::of(&[FORMAT]), scaled: false, low_frequencies: false, exact_jpeg: false }
    }
}

/// The file without what follows its end. The library reads files whose last byte is missing.
fn whole(encoded: &[u8]) -> Result<&[u8], DecodeError> {
    let length = encoded.get(4..8).and_then(<[u8]>::first_chunk).map_or(0, |length| u32::from_le_bytes(*length));
    let whole = encoded.get(..length.saturating_add(8) as usize);
    whole.ok_or_else(|| DecodeError::truncated(FORMAT, "the file is shorter than its header says"))
}

fn features(encoded: &[u8]) -> Result<WebPBitstreamFeatures, DecodeError> {
    let mut features = MaybeUninit::<WebPBitstreamFeatures>::zeroed();
    // SAFETY: the library reads these bytes, and writes what it is given a place for.
    let status = unsafe { WebPGetFeatures(encoded.as_ptr(), encoded.len(), features.as_mut_ptr()) };
    checked(status)?;
    // SAFETY: these are integers, of which zero is one too.
    Ok(unsafe { features.assume_init() })
}

/// Decodes a picture of `size` into as many RGB pixels.
fn decode_into(encoded: &[u8], size: Size, pixels: &mut [u8]) -> Result<(), DecodeError> {
    let mut config =
        WebPDecoderConfig::new().map_err(|()| DecodeError::corrupt(FORMAT, "libwebp has another interface"))?;
    config.output.colorspace = WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = WebPRGBABuffer {
        rgba: pixels.as_mut_ptr(),
        stride: (size.width as usize * CHANNELS) as i32,
        size: pixels.len(),
    };
    // SAFETY: the library reads the file's bytes, and checks that its rows fit into the memory at `rgba`, which this
    // function has for itself. It keeps neither.
    checked(unsafe { WebPDecode(encoded.as_ptr(), encoded.len(), &mut config) })
}

fn checked(status: VP8StatusCode) -> Result<(), DecodeError> {
    match status {
        VP8StatusCode::VP8_STATUS_OK => Ok(()),
        VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => {
            Err(DecodeError::TooCostly("WebP: libwebp has no memory".to_owned()))
        }
        VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA | VP8StatusCode::VP8_STATUS_SUSPENDED => {
            Err(DecodeError::corrupt(FORMAT, "its data ends early"))
        }
        VP8StatusCode::VP8_STATUS_UNSUPPORTED_FEATURE => {
            Err(DecodeError::unsupported(FORMAT, "libwebp does not read it"))
        }
        _ => Err(DecodeError::corrupt(FORMAT, "its data contradicts itself")),
    }
}
