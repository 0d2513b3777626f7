use foveate_core::PixelBuf;

use crate::{Capability, DecodeError, DecodeHint, Decoded, Decoder, FormatSet, ImageFormat, sniff};

/// A decoder made of several: each image goes to the first that reads its format, and on to the next one that does
/// when the first says [`DecodeError::Unsupported`] (a CMYK JPEG, say).
///
/// ```
/// # use foveate_decode::*;
/// # fn backends() -> Vec<Box<dyn Decoder>> { vec![] }
/// let mut decoder = ByFormat::new(backends());
/// # let _ = decoder;
/// ```
pub struct ByFormat {
    decoders: Vec<Box<dyn Decoder>>,
}

impl ByFormat {
    /// The preferred decoder first.
    pub fn new(decoders: Vec<Box<dyn Decoder>>) -> Self {
        Self { decoders }
    }
}

impl Decoder for ByFormat {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        let format = sniff(encoded)?;
        let mut unsupported = None;
        for decoder in self.decoders.iter_mut().filter(|d| d.capability().formats.contains(format)) {
            match decoder.decode(encoded, hint, out) {
                // The preferred decoder's words are kept: the others are asked only because of them.
                Err(error @ DecodeError::Unsupported { .. }) => unsupported = unsupported.or(Some(error)),
                outcome => return outcome,
            }
        }
        let nobody = || DecodeError::Unsupported { format, reason: "no decoder for it was chosen".to_owned() };
        Err(unsupported.unwrap_or_else(nobody))
    }

    /// All formats of all decoders; what is said of scaling and exactness is said by the preferred JPEG decoder.
    fn capability(&self) -> Capability {
        let mut all = self.decoders.iter().map(|decoder| decoder.capability());
        let formats = all.clone().fold(FormatSet::EMPTY, |union, c| union.union(c.formats));
        let jpeg = all.find(|c| c.formats.contains(ImageFormat::Jpeg));
        Capability { formats, scaled: jpeg.is_some_and(|c| c.scaled), exact_jpeg: jpeg.is_some_and(|c| c.exact_jpeg) }
    }
}
