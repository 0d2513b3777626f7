#![doc = include_str!("../README.md")]

mod bmp;
mod convert;
mod fault;
mod first_frame;
mod ico;
mod jpeg;
mod memory;
mod pcx;
mod png;
mod pnm;
mod tiff;

use std::io::Cursor;

use convert::Gray16;
use fault::fault;
use foveate_core::{PixelBuf, Size};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, sniff,
};
use ico::IconImage;
use image::codecs::bmp::BmpDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::qoi::QoiDecoder;
use image::codecs::tga::TgaDecoder;
use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder};

/// The backend's name on the command line.
pub const NAME: &str = "image";

/// The formats that it reads.
const FORMATS: [ImageFormat; 11] = [
    ImageFormat::Jpeg,
    ImageFormat::Png,
    ImageFormat::WebP,
    ImageFormat::Gif,
    ImageFormat::Bmp,
    ImageFormat::Tiff,
    ImageFormat::Pnm,
    ImageFormat::Tga,
    ImageFormat::Qoi,
    ImageFormat::Ico,
    ImageFormat::Pcx,
];

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    let about = "PNG, WebP, GIF, BMP, TIFF, JPEG, PNM, TGA, QOI, ICO and PCX in pure Rust (image)";
    registry.register(DecoderBackend::new(NAME, about, |options: &DecoderOptions| {
        Ok(Box::new(GenericDecoder::new(*options)) as Box<dyn Decoder>)
    }))
}

/// Decodes every format of the engine with the `image` crate.
#[derive(Debug)]
pub struct GenericDecoder {
    options: DecoderOptions,
    /// Samples in the file's own layout, if that is not RGB8.
    native: Vec<u8>,
    /// The latest image has gray that was clipped.
    is_clipped: bool,
}

impl GenericDecoder {
    /// A decoder that treats questionable files as `options` say.
    pub fn new(options: DecoderOptions) -> Self {
        Self { options, native: Vec::new(), is_clipped: false }
    }

    fn read(&mut self, encoded: &[u8], format: ImageFormat, out: &mut PixelBuf) -> Result<Size, DecodeError> {
        match format {
            ImageFormat::Jpeg => jpeg::decode(encoded, &self.options, out),
            ImageFormat::Gif => first_frame::gif(encoded, &self.options, &mut self.native, out),
            ImageFormat::Png => self.png(encoded, out),
            ImageFormat::WebP => self.webp(encoded, out),
            ImageFormat::Bmp => self.bmp(encoded, out),
            ImageFormat::Pnm => {
                let decoded = pnm::decode(encoded, &mut self.native, out)?;
                self.is_clipped = decoded.is_clipped;
                Ok(decoded.size)
            }
            ImageFormat::Tga => self.tga(encoded, out),
            ImageFormat::Qoi => {
                let decoder = QoiDecoder::new(encoded).map_err(|error| fault(format, error))?;
                self.pixels(format, decoder, Gray16::Alone, out)
            }
            ImageFormat::Ico => self.ico(encoded, out),
            ImageFormat::Pcx => pcx::decode(encoded, out),
            ImageFormat::Tiff => {
                let decoded = tiff::decode(encoded, &self.options, &mut self.native, out)?;
                self.is_clipped = decoded.is_clipped;
                Ok(decoded.size)
            }
            other => Err(DecodeError::unsupported(other, "no decoder for it here")),
        }
    }

    fn png(&mut self, encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let completed = png::completed(encoded);
        let filled = completed.as_ref().filter(|_| self.options.allow_truncated);
        let filled = filled.and_then(|file| png::filled_up(file, out));
        let file = filled.as_deref().or(completed.as_deref()).unwrap_or(encoded);
        let library = PngDecoder::with_limits(Cursor::new(file), memory::limits(out.limits()));
        let decoded = library
            .map_err(|error| fault(ImageFormat::Png, error))
            .and_then(|decoder| self.pixels(ImageFormat::Png, decoder, png::gray16(file), out));
        match decoded {
            Err(DecodeError::Corrupt { format, source }) if completed.is_some() => {
                Err(DecodeError::truncated(format, source))
            }
            decoded => decoded,
        }
    }

    fn bmp(&mut self, encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let format = ImageFormat::Bmp;
        let header = bmp::Header::read(encoded);
        let file = header.as_ref().map(|header| header.readable(encoded, &self.options, out));
        let decoder = BmpDecoder::new(Cursor::new(file.as_deref().unwrap_or(encoded)));
        let decoder = decoder.map_err(|error| fault(format, error))?;
        let size = self.pixels(format, decoder, Gray16::Alone, out)?;
        if let Some(header) = header {
            header.cut_levels(out);
        }
        Ok(size)
    }

    fn webp(&mut self, encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let format = ImageFormat::WebP;
        // The library reads files whose last byte is missing, and looks for chunks behind the end.
        let length = encoded.get(4..8).and_then(<[u8]>::first_chunk).map_or(0, |length| u32::from_le_bytes(*length));
        let Some(encoded) = encoded.get(..length.saturating_add(8) as usize) else {
            return Err(DecodeError::truncated(format, "the file is shorter than its header says"));
        };
        let Some(frame) = first_frame::webp(encoded) else {
            let file = first_frame::without_unused_flags(encoded);
            let decoder = WebPDecoder::new(Cursor::new(&*file)).map_err(|error| fault(format, error))?;
            return self.pixels(format, decoder, Gray16::Alone, out);
        };
        // The library's RGBA and `picture`.
        out.admit(frame.canvas, frame.extent.pixels().saturating_mul(7))?;
        let mut picture = PixelBuf::new(out.limits());
        let decoder = WebPDecoder::new(Cursor::new(&frame.still[..])).map_err(|error| fault(format, error))?;
        let extent = self.pixels(format, decoder, Gray16::Alone, &mut picture)?;
        if extent != frame.extent {
            return Err(DecodeError::corrupt(format, "a frame's size contradicts its picture"));
        }
        frame.place(&picture, out)?;
        Ok(frame.canvas)
    }

    fn tga(&mut self, encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
        let format = ImageFormat::Tga;
        let decoder = TgaDecoder::new(Cursor::new(encoded)).map_err(|error| fault(format, error))?;
        let size = self.pixels(format, decoder, Gray16::Alone, out)?;
        // Five bits of a colour, in the palette or in the pixels: the library rounds, as for BMP.
        let bits = if encoded[2] & 7 == 1 { encoded[7] } else { encoded[16] };
        if bits < 24 && encoded[2] & 7 != 3 {
            for sample in out.as_mut_slice() {
                *sample = bmp::cut(*sample, 31);
            }
        }
        Ok(size)
    }

    fn ico(&mut self, encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
        match ico::largest(encoded) {
            Some(IconImage::Png(file)) => self.png(file, out),
            Some(IconImage::Bmp(file)) => self.bmp(&file, out),
            None => Err(DecodeError::corrupt(ImageFormat::Ico, "its directory or its largest image is damaged")),
        }
    }

    /// Checks the limits, then decodes: straight into `out` if the file holds RGB8.
    fn pixels(
        &mut self,
        format: ImageFormat,
        mut decoder: impl ImageDecoder,
        gray16: Gray16,
        out: &mut PixelBuf,
    ) -> Result<Size, DecodeError> {
        let (width, height) = decoder.dimensions();
        let size = Size::new(width, height);
        let color = decoder.color_type();
        let bytes = decoder.total_bytes();
        memory::admit(format, size, bytes, out)?;
        decoder.set_limits(memory::limits(out.limits())).map_err(|error| fault(format, error))?;
        let pixels = out.reset(size)?;
        let is_rgb = color == ColorType::Rgb8;
        self.is_clipped |= convert::clips(color, gray16);
        self.native.clear();
        self.native.resize(if is_rgb { 0 } else { bytes as usize }, 0);
        let native = if is_rgb { &mut *pixels } else { &mut self.native[..] };
        native.fill(0);
        decoder.read_image(native).map_err(|error| fault(format, error))?;
        if !is_rgb {
            convert::to_rgb(color, gray16, &self.native, pixels)
                .ok_or_else(|| DecodeError::unsupported(format, format!("{color:?} samples")))?;
        }
        Ok(size)
    }
}

impl Decoder for GenericDecoder {
    fn decode(&mut self, encoded: &[u8], _hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        self.is_clipped = false;
        let format = sniff(encoded)?;
        let native = self.read(encoded, format, out).inspect_err(|_| out.clear());
        self.native.clear();
        self.native.shrink_to(PixelBuf::KEEP_BYTES);
        Ok(Decoded { format, native: native?, is_clipped: self.is_clipped })
    }

    fn capability(&self) -> Capability {
        Capability { formats: FormatSet::of(&FORMATS), scaled: false, low_frequencies: false, exact_jpeg: false }
    }
}
