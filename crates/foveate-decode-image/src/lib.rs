#![doc = include_str!("../README.md")]

mod convert;
mod first_frame;
mod jpeg;
mod memory;

use std::io::Cursor;

use ::tiff::{TiffError, tags::Tag};
use convert::Gray16;
use foveate_core::{PixelBuf, Size};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, sniff,
};
use image::codecs::{bmp, png, tiff, webp};
use image::{ColorType, ImageDecoder, ImageError};

/// The backend's name on the command line.
pub const NAME: &str = "image";

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let open = |options: &DecoderOptions| Ok(Box::new(GenericDecoder::new(*options)) as Box<dyn Decoder>);
    registry.register(DecoderBackend::new(NAME, "PNG, WebP, GIF, BMP, TIFF and JPEG in pure Rust (image)", open))
}

/// Decodes every format of the engine with the `image` crate.
#[derive(Debug)]
pub struct GenericDecoder {
    options: DecoderOptions,
    /// Samples in the file's own layout, if that is not RGB8.
    native: Vec<u8>,
}

impl GenericDecoder {
    /// A decoder that treats questionable files as `options` say.
    pub fn new(options: DecoderOptions) -> Self {
        Self { options, native: Vec::new() }
    }

    fn read(&mut self, encoded: &[u8], format: ImageFormat, out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let limits = out.limits();
        let reader = Cursor::new(encoded);
        let fault = |error| fault(format, error);
        match format {
            ImageFormat::Jpeg => jpeg::decode(encoded, &self.options, out),
            ImageFormat::Gif => first_frame::gif(encoded, &mut self.native, out),
            ImageFormat::Png => {
                let decoder = png::PngDecoder::with_limits(reader, memory::limits(limits)).map_err(fault)?;
                self.pixels(format, decoder, png_gray16(encoded), out)
            }
            ImageFormat::WebP => self.webp(encoded, out),
            ImageFormat::Bmp => self.pixels(format, bmp::BmpDecoder::new(reader).map_err(fault)?, Gray16::Alone, out),
            ImageFormat::Tiff => {
                refuse_misread_tiff(encoded)?;
                self.pixels(format, tiff::TiffDecoder::new(reader).map_err(fault)?, Gray16::Alone, out)
            }
            other => Err(DecodeError::unsupported(other, "no decoder for it here")),
        }
    }

    fn webp(&mut self, encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let format = ImageFormat::WebP;
        let open = |bytes| webp::WebPDecoder::new(Cursor::new(bytes)).map_err(|error| fault(format, error));
        let Some(frame) = first_frame::webp(encoded) else {
            return self.pixels(format, open(encoded)?, Gray16::Alone, out);
        };
        out.limits().check(frame.canvas)?;
        let mut picture = PixelBuf::new(out.limits());
        let extent = self.pixels(format, open(&frame.still)?, Gray16::Alone, &mut picture)?;
        if extent != frame.extent {
            return Err(DecodeError::corrupt(format, "a frame's size contradicts its picture"));
        }
        frame.place(&picture, out)?;
        Ok(frame.canvas)
    }

    /// Checks the limits, then decodes: straight into `out` if the file holds RGB8.
    fn pixels(
        &mut self,
        format: ImageFormat,
        mut decoder: impl ImageDecoder,
        gray16: Gray16,
        out: &mut PixelBuf,
    ) -> Result<Size, DecodeError> {
        let fault = |error| fault(format, error);
        let (width, height) = decoder.dimensions();
        let size = Size::new(width, height);
        out.limits().check(size)?;
        let color = decoder.color_type();
        let (bytes, budget) = (decoder.total_bytes(), memory::budget(out.limits()));
        if bytes > budget {
            return Err(DecodeError::TooCostly(format!(
                "{format} of {size} takes {} MiB to decode, more than {} MiB",
                bytes >> 20,
                budget >> 20
            )));
        }
        decoder.set_limits(memory::limits(out.limits())).map_err(fault)?;
        let pixels = out.reset(size)?;
        if color == ColorType::Rgb8 {
            pixels.fill(0);
            decoder.read_image(pixels).map_err(fault)?;
        } else {
            self.native.clear();
            self.native.resize(bytes as usize, 0);
            decoder.read_image(&mut self.native).map_err(fault)?;
            convert::to_rgb(color, gray16, &self.native, pixels)
                .ok_or_else(|| DecodeError::unsupported(format, format!("{color:?} samples")))?;
        }
        Ok(size)
    }
}

/// Scratch memory beyond this is freed after the image that needed it.
const KEEP_BYTES: usize = 64 << 20;

impl Decoder for GenericDecoder {
    fn decode(&mut self, encoded: &[u8], _hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        let native = self.read(encoded, format, out).inspect_err(|_| out.clear());
        self.native.clear();
        self.native.shrink_to(KEEP_BYTES);
        Ok(Decoded { format, native: native? })
    }

    fn capability(&self) -> Capability {
        Capability { formats: FormatSet::of(&ImageFormat::ALL), scaled: false, exact_jpeg: false }
    }
}

/// Refuses a combination that the library (tiff 0.11) decodes to wrong pixels without an error: a predictor together
/// with samples that are neither colour nor alpha. The library drops the samples first and then adds up the wrong
/// neighbours.
fn refuse_misread_tiff(encoded: &[u8]) -> Result<(), DecodeError> {
    // The decoder proper reads the same tags and reports any error here.
    let Ok((color, samples)) = predicted_samples(encoded) else { return Ok(()) };
    if samples > color {
        let reason = format!("a predictor with {samples} samples per pixel, of which {color} are colour");
        return Err(DecodeError::unsupported(ImageFormat::Tiff, reason));
    }
    Ok(())
}

/// The number of colour and alpha samples per pixel, and of all samples; (0, 0) without a predictor.
fn predicted_samples(encoded: &[u8]) -> Result<(u16, u16), TiffError> {
    let mut tags = ::tiff::decoder::Decoder::new(Cursor::new(encoded))?;
    if tags.find_tag_unsigned::<u16>(Tag::Predictor)?.unwrap_or(1) == 1 {
        return Ok((0, 0));
    }
    let color = tags.colortype()?.num_samples();
    Ok((color, tags.find_tag_unsigned(Tag::SamplesPerPixel)?.unwrap_or(color)))
}

/// Whether 16-bit gray in the file has a transparent colour. The library turns that into an alpha channel that the file
/// does not have.
fn png_gray16(encoded: &[u8]) -> Gray16 {
    // IHDR is always first: bit depth at byte 24, colour type at byte 25, where 0 means gray without alpha.
    if encoded.get(24..26) == Some(&[16, 0]) { Gray16::WithTransparentColor } else { Gray16::Alone }
}

fn fault(format: ImageFormat, error: ImageError) -> DecodeError {
    match error {
        ImageError::Unsupported(error) => DecodeError::unsupported(format, error),
        ImageError::Limits(error) => DecodeError::TooCostly(format!("{format} takes too much memory: {error}")),
        ImageError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::truncated(format, "the file ends early")
        }
        other => DecodeError::corrupt(format, other),
    }
}
