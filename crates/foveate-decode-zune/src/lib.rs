#![doc = include_str!("../README.md")]

use std::io::Cursor;

use foveate_core::PixelBuf;
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, jpeg, sniff,
};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions as ZuneOptions;

/// The backend's name on the command line.
pub const NAME: &str = "zune";

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    registry.register(DecoderBackend::new(NAME, "JPEG in pure Rust with SIMD (zune-jpeg)", |options| {
        Ok(Box::new(ZuneDecoder::new(*options)))
    }))
}

/// Decodes JPEG with zune-jpeg, straight into the caller's buffer.
#[derive(Debug)]
pub struct ZuneDecoder {
    options: DecoderOptions,
}

impl ZuneDecoder {
    /// A decoder that treats questionable files as `options` say.
    pub fn new(options: DecoderOptions) -> Self {
        Self { options }
    }
}

impl Decoder for ZuneDecoder {
    fn decode(&mut self, encoded: &[u8], _hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        if format != ImageFormat::Jpeg {
            return Err(DecodeError::unsupported(format, "zune reads JPEG only"));
        }
        let structure = jpeg::inspect(encoded, self.options.max_scans)?;
        structure.admit(out.limits(), &self.options)?;
        readable(encoded, &structure)?;
        out.admit(structure.size, structure.coefficient_bytes())?;
        let pixels = out.reset(structure.size)?;
        // The library leaves rows unwritten in some damaged files, and the buffer may hold an earlier image.
        pixels.fill(MISSING);
        decode_into(encoded, &structure, pixels).inspect_err(|_| out.clear())?;
        Ok(Decoded { format, native: structure.size, is_clipped: false })
    }

    fn capability(&self) -> Capability {
        Capability {
            formats: FormatSet::of(&[ImageFormat::Jpeg]),
            scaled: false,
            low_frequencies: false,
            exact_jpeg: false,
        }
    }
}

/// The value of rows that the library leaves unwritten: mid-gray.
const MISSING: u8 = 128;

/// Refuses files that zune-jpeg 0.5.15 decodes to wrong pixels without an error. Measured over all combinations of
/// sampling factors, interleaved or progressive files are right if all components have the same factors, or luma has
/// the largest and all others 1x1. Cameras and the web produce no others, and other decoders read the refused files.
fn readable(encoded: &[u8], structure: &jpeg::Structure) -> Result<(), DecodeError> {
    let sampling = &structure.sampling[..usize::from(structure.components)];
    let uniform = sampling.iter().all(|factors| *factors == sampling[0]);
    let usual = sampling[1..].iter().all(|factors| *factors == (1, 1));
    let reason = if !uniform && !usual {
        format!("sampling factors {sampling:?}")
    } else if !structure.interleaved && structure.process != jpeg::Process::Progressive {
        "sequential coding in one scan for each component".to_owned()
    } else if structure.process == jpeg::Process::Progressive && has_restart_interval(encoded) {
        "progressive coding with restart markers".to_owned()
    } else {
        return Ok(());
    };
    Err(DecodeError::unsupported(ImageFormat::Jpeg, reason))
}

/// Returns true if a DRI marker is anywhere in the file, as it may stand before any scan. Progressive refinement after
/// a restart loses bits in the library (its issue 359).
fn has_restart_interval(encoded: &[u8]) -> bool {
    encoded.windows(2).any(|pair| pair == [0xFF, 0xDD])
}

fn decode_into(encoded: &[u8], structure: &jpeg::Structure, pixels: &mut [u8]) -> Result<(), DecodeError> {
    let options = ZuneOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .jpeg_set_max_scans(structure.scans as usize)
        .set_max_width(structure.size.width as usize)
        .set_max_height(structure.size.height as usize)
        .set_strict_mode(false);
    let encoded = jpeg::completed(encoded, structure);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(encoded), options);
    decoder.decode_headers().map_err(fault)?;
    let size = decoder.dimensions().unwrap_or_default();
    if size != (structure.size.width as usize, structure.size.height as usize) {
        let reason = format!("the frame header is read as {}x{} and as {}", size.0, size.1, structure.size);
        return Err(DecodeError::corrupt(ImageFormat::Jpeg, reason));
    }
    decoder.decode_into(pixels).map_err(fault)
}

fn fault(error: DecodeErrors) -> DecodeError {
    let format = ImageFormat::Jpeg;
    match error {
        DecodeErrors::Unsupported(scheme) => DecodeError::unsupported(format, format!("{scheme:?}")),
        DecodeErrors::ExhaustedData => DecodeError::truncated(format, "its data is used up"),
        other => DecodeError::corrupt(format, other),
    }
}
