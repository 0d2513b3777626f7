use foveate_core::PixelBuf;

use crate::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, FormatSet, ImageFormat, RowDecoder, RowSink, raw, sniff,
};

/// A decoder made of several: each image goes to the first decoder that reads its format. If that one returns
/// [`DecodeError::Unsupported`] (for a CMYK JPEG, say), the next one that reads the format takes over.
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
    /// Combines `decoders`, the preferred one first.
    pub fn new(decoders: Vec<Box<dyn Decoder>>) -> Self {
        Self { decoders }
    }
}

impl Decoder for ByFormat {
    fn decode(&mut self, encoded: &[u8], hint: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear();
        if let Some((size, rgb)) = raw::parse(encoded) {
            return raw::copy(size, rgb, out);
        }
        let format = sniff(encoded)?;
        let mut unsupported = None;
        for decoder in self.decoders.iter_mut().filter(|d| d.capability().formats.contains(format)) {
            match decoder.decode(encoded, hint, out) {
                // Keep the preferred decoder's error: the others run only because of it.
                Err(error @ DecodeError::Unsupported { .. }) => unsupported = unsupported.or(Some(error)),
                outcome => return outcome,
            }
        }
        Err(unsupported.unwrap_or_else(|| DecodeError::unsupported(format, no_decoder(format))))
    }

    /// All decoders' formats; scaling and exactness are the preferred JPEG decoder's.
    fn capability(&self) -> Capability {
        let mut all = self.decoders.iter().map(|decoder| decoder.capability());
        let formats = all.clone().fold(FormatSet::EMPTY, |union, c| union.union(c.formats));
        let jpeg = all.find(|c| c.formats.contains(ImageFormat::Jpeg));
        let none = Capability { formats, scaled: false, low_frequencies: false, exact_jpeg: false };
        Capability { formats, ..jpeg.unwrap_or(none) }
    }

    fn rows(&mut self) -> Option<&mut dyn RowDecoder> {
        Some(self)
    }
}

impl RowDecoder for ByFormat {
    fn decode_rows(
        &mut self,
        encoded: &[u8],
        hint: DecodeHint,
        strip: &mut PixelBuf,
        sink: &mut dyn RowSink,
    ) -> Result<Option<Decoded>, DecodeError> {
        if raw::parse(encoded).is_some() {
            return Ok(None);
        }
        let format = sniff(encoded)?;
        let preferred = self.decoders.iter_mut().find(|d| d.capability().formats.contains(format));
        match preferred.and_then(|decoder| decoder.rows()) {
            Some(decoder) => match decoder.decode_rows(encoded, hint, strip, sink) {
                // Another decoder may read it whole.
                Err(DecodeError::Unsupported { .. }) => Ok(None),
                outcome => outcome,
            },
            None => Ok(None),
        }
    }
}

/// The reason that no decoder is asked about a format, with the remedy.
fn no_decoder(format: ImageFormat) -> String {
    match format.feature() {
        Some(feature) => {
            format!("no decoder in use reads it; rebuild with `-F {feature}`, or convert it to PNG or JPEG")
        }
        None => "no decoder for it was chosen".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use foveate_core::{PixelLimits, Size, error_chain};

    use super::*;

    /// Reads the formats of its set; every image is `side` pixels wide and high, or an error.
    struct Stub {
        formats: FormatSet,
        outcome: fn() -> Result<u32, DecodeError>,
    }

    impl Decoder for Stub {
        fn decode(&mut self, encoded: &[u8], _: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
            let native = Size::square((self.outcome)()?);
            out.reset(native)?;
            Ok(Decoded { format: sniff(encoded)?, native, is_clipped: false })
        }

        fn capability(&self) -> Capability {
            Capability { formats: self.formats, scaled: false, low_frequencies: false, exact_jpeg: true }
        }
    }

    fn unsupported(reason: &str) -> DecodeError {
        DecodeError::unsupported(ImageFormat::Jpeg, reason)
    }

    fn chain(first: fn() -> Result<u32, DecodeError>, second: fn() -> Result<u32, DecodeError>) -> ByFormat {
        let jpeg = FormatSet::of(&[ImageFormat::Jpeg]);
        let both = FormatSet::of(&[ImageFormat::Jpeg, ImageFormat::Gif]);
        ByFormat::new(vec![
            Box::new(Stub { formats: jpeg, outcome: first }),
            Box::new(Stub { formats: both, outcome: second }),
        ])
    }

    fn decode(mut decoder: ByFormat, bytes: &[u8]) -> String {
        let outcome = decoder.decode(bytes, DecodeHint::default(), &mut PixelBuf::default());
        outcome.map_or_else(|error| error_chain(&error), |decoded| decoded.native.to_string())
    }

    const JPEG: &[u8] = b"\xFF\xD8\xFF";

    #[test]
    fn the_first_decoder_of_a_format_takes_it() {
        assert_eq!(decode(chain(|| Ok(1), || Ok(2)), JPEG), "1x1");
        assert_eq!(decode(chain(|| Ok(1), || Ok(2)), b"GIF89a"), "2x2");
        assert!(decode(chain(|| Ok(1), || Ok(2)), b"MM\0*").contains("unsupported TIFF"));
        assert!(decode(chain(|| Ok(1), || Ok(2)), b"%PDF").contains("PDF"));
        let remedy =
            "unsupported AVIF: no decoder in use reads it; rebuild with `-F avif`, or convert it to PNG or JPEG";
        assert_eq!(decode(chain(|| Ok(1), || Ok(2)), b"\0\0\0\x1Cftypavif\0\0\0\0mif1"), remedy);
    }

    #[test]
    fn the_next_one_is_asked_only_about_what_is_unsupported() {
        let corrupt = || Err(DecodeError::corrupt(ImageFormat::Jpeg, "damaged"));
        assert_eq!(decode(chain(|| Err(unsupported("CMYK")), || Ok(2)), JPEG), "2x2");
        assert_eq!(decode(chain(corrupt, || Ok(2)), JPEG), "corrupt JPEG: damaged");
        assert_eq!(decode(chain(|| Err(unsupported("CMYK")), corrupt), JPEG), "corrupt JPEG: damaged");
        let both = chain(|| Err(unsupported("CMYK")), || Err(unsupported("no idea")));
        assert_eq!(decode(both, JPEG), "unsupported JPEG: CMYK");
    }

    #[test]
    fn pixels_need_no_decoder() {
        let size = Size::new(2, 1);
        let rgb = [1, 2, 3, 4, 5, 6];
        let bytes = raw::encode(size, &rgb).unwrap();
        let decode = |bytes: &[u8], limits| {
            let mut out = PixelBuf::new(limits);
            let decoded = ByFormat::new(Vec::new()).decode(bytes, DecodeHint::default(), &mut out);
            decoded.map(|decoded| (decoded.native, out.as_slice().to_vec()))
        };
        assert_eq!(decode(&bytes, PixelLimits::DEFAULT).unwrap(), (size, rgb.to_vec()));
        let refused = decode(&bytes, PixelLimits { max_pixels: 1 }).unwrap_err();
        assert!(error_chain(&refused).contains("2 pixels, more than the limit of 1"), "{refused}");
        assert!(decode(&bytes[..bytes.len() - 1], PixelLimits::DEFAULT).is_err(), "a pixel is missing");
        assert_eq!(raw::encode(size, &rgb[1..]), None);
    }

    #[test]
    fn the_capability_is_the_union() {
        let capability = chain(|| Ok(1), || Ok(2)).capability();
        assert_eq!(capability.formats.to_string(), "JPEG, GIF");
        assert!(capability.exact_jpeg);
        assert_eq!(ByFormat::new(Vec::new()).capability().formats, FormatSet::EMPTY);
    }
}
