#![doc = include_str!("../README.md")]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod bits;
mod coefficients;
mod color;
mod error;
mod frame;
mod huffman;
mod idct;
mod isa;
mod kernels;
#[cfg(target_arch = "aarch64")]
mod neon;
mod output;
mod picture;
mod reduced;
mod scale;
mod scan;
mod upsample;
mod zigzag;

use foveate_core::{PixelBuf, PixelLimits};
use foveate_decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry, FormatSet,
    ImageFormat, RowDecoder, RowSink, jpeg, sniff,
};
use isa::Isa;
use output::{OutputStrips, PixelOutput, Whole};
use picture::JpegPicture;
use scale::EighthsScale;

/// The backend's name on the command line.
pub const NAME: &str = "exact";

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), foveate_core::RegistryError> {
    registry.register(DecoderBackend::new(NAME, "JPEG with libjpeg-turbo's pixels, in safe Rust", |options| {
        Ok(Box::new(ExactDecoder::new(*options)))
    }))
}

/// Decodes JPEG to the same pixels as libjpeg-turbo, straight into the caller's buffer.
///
/// Its memory is reused from image to image, except for an unusually large image's excess.
pub struct ExactDecoder {
    options: DecoderOptions,
    isa: Isa,
    picture: Box<JpegPicture>,
}

impl ExactDecoder {
    /// A decoder that treats questionable files as `options` say.
    pub fn new(options: DecoderOptions) -> Self {
        Self { options, isa: Isa::all().next().unwrap_or(Isa::Plain), picture: Box::new(JpegPicture::EMPTY) }
    }
}

impl std::fmt::Debug for ExactDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExactDecoder").field("options", &self.options).field("isa", &self.isa).finish_non_exhaustive()
    }
}

impl ExactDecoder {
    /// Decodes to `out`; `None` if that does not want the picture.
    fn decode_to(
        &mut self,
        encoded: &[u8],
        hint: DecodeHint,
        limits: PixelLimits,
        out: &mut dyn PixelOutput,
    ) -> Result<Option<Decoded>, DecodeError> {
        let format = sniff(encoded)?;
        if format != ImageFormat::Jpeg {
            return Err(DecodeError::unsupported(format, "exact reads JPEG only"));
        }
        let structure = jpeg::inspect(encoded, self.options.max_scans)?;
        structure.admit(limits, &self.options)?;
        let encoded = jpeg::completed(encoded, &structure);
        let scale = EighthsScale::choose(structure.size, hint);
        let outcome = self.picture.decode(self.isa, &encoded, &structure, scale, out);
        self.picture.shrink();
        outcome.map(|is_wanted| is_wanted.then_some(Decoded { format, native: structure.size, is_clipped: false }))
    }
}

impl Decoder for ExactDecoder {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let outcome = self.decode_to(encoded, hint, out.limits(), &mut Whole::new(out));
        let outcome = outcome.inspect_err(|_| out.clear())?;
        Ok(outcome.unwrap_or_else(|| unreachable!("memory wants every picture")))
    }

    fn capability(&self) -> Capability {
        Capability {
            formats: FormatSet::of(&[ImageFormat::Jpeg]),
            scaled: true,
            low_frequencies: true,
            exact_jpeg: true,
        }
    }

    fn rows(&mut self) -> Option<&mut dyn RowDecoder> {
        Some(self)
    }
}

impl RowDecoder for ExactDecoder {
    fn decode_rows(
        &mut self,
        encoded: &[u8],
        hint: DecodeHint,
        strip: &mut PixelBuf,
        sink: &mut dyn RowSink,
    ) -> Result<Option<Decoded>, DecodeError> {
        let limits = strip.limits();
        let mut out = OutputStrips::new(strip, sink);
        let outcome = self.decode_to(encoded, hint, limits, &mut out)?;
        if outcome.is_some() {
            out.flush();
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use foveate_decode::conformance::samples;

    use super::*;

    /// Other tests cover only the best instruction set of this processor.
    #[test]
    fn every_instruction_set_gives_libjpegs_pixels() {
        let mut out = PixelBuf::default();
        for isa in Isa::all() {
            let mut decoder = ExactDecoder { isa, ..ExactDecoder::new(DecoderOptions::default()) };
            for (jpeg, expected) in samples::LIBJPEG {
                decoder.decode(jpeg, DecodeHint::default(), &mut out).expect("a sample");
                assert!(out.as_slice() == expected, "{isa:?}");
            }
        }
    }

    /// A few bytes of data with a large header.
    #[test]
    fn a_damaged_picture_leaves_the_next_one_alone() {
        let mut bytes = samples::JPEG_PROGRESSIVE.to_vec();
        let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC2]).expect("a frame header");
        bytes[frame + 5..frame + 9].copy_from_slice(&[0x07, 0xD0, 0x07, 0xD0]);
        let mut decoder = ExactDecoder::new(DecoderOptions::default());
        let mut out = PixelBuf::default();
        decoder.decode(&bytes, DecodeHint::default(), &mut out).expect("a damaged picture");
        assert_eq!(out.size(), foveate_core::Size::square(2000));
        decoder.decode(samples::JPEG_PROGRESSIVE, DecodeHint::default(), &mut out).expect("the sample");
        assert!(out.as_slice() == samples::LIBJPEG[1].1, "other pixels after the damaged picture");
    }

    /// A progressive picture whose scans define a table each, thousands of times.
    #[test]
    fn many_tables_are_freed_after_their_picture() {
        let sample = samples::JPEG_PROGRESSIVE;
        let table = sample.windows(2).position(|pair| pair == [0xFF, 0xC4]).expect("a table");
        let length = 2 + usize::from(u16::from_be_bytes([sample[table + 2], sample[table + 3]]));
        let scan = sample.windows(2).position(|pair| pair == [0xFF, 0xDA]).expect("a scan");
        let next = scan
            + 2
            + sample[scan + 2..].windows(2).position(|pair| matches!(pair, [0xFF, 0xC4 | 0xDA])).expect("a scan");
        let mut bytes = sample[..next].to_vec();
        for _ in 0..200 {
            bytes.extend_from_slice(&sample[table..table + length]);
            bytes.extend_from_slice(&sample[scan..next]);
        }
        bytes.extend_from_slice(&sample[next..]);
        let mut decoder = ExactDecoder::new(DecoderOptions::default());
        let mut out = PixelBuf::default();
        decoder
            .decode(&bytes, DecodeHint::default(), &mut out)
            .expect("the sample, with the first scan again and again");
        assert!(decoder.picture.tables.capacity() <= 64, "{} tables stay", decoder.picture.tables.capacity());
        decoder.decode(sample, DecodeHint::default(), &mut out).expect("the sample");
    }

    /// A file that leaves its tables out.
    #[test]
    fn tables_of_earlier_pictures_are_not_in_force() {
        let sample = samples::JPEG_PROGRESSIVE;
        let mut bytes = sample.to_vec();
        while let Some(table) = bytes.windows(2).position(|pair| pair == [0xFF, 0xC4]) {
            let length = usize::from(u16::from_be_bytes([bytes[table + 2], bytes[table + 3]]));
            bytes.drain(table..table + 2 + length);
        }
        let mut decoder = ExactDecoder::new(DecoderOptions::default());
        let mut out = PixelBuf::default();
        decoder.decode(sample, DecodeHint::default(), &mut out).expect("the sample");
        let outcome = decoder.decode(&bytes, DecodeHint::default(), &mut out);
        assert!(matches!(outcome, Err(DecodeError::Corrupt { .. })), "{outcome:?}");
    }
}
