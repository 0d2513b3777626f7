use std::fmt;

/// Image containers that the engine recognizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageFormat {
    /// JPEG (ISO/IEC 10918-1), any process.
    Jpeg,
    /// PNG and APNG (the default image).
    Png,
    /// WebP (first frame).
    WebP,
    /// GIF (first frame).
    Gif,
    /// Windows bitmap.
    Bmp,
    /// TIFF (first page).
    Tiff,
    /// AVIF: AV1 in a HEIF container (the primary image).
    Avif,
    /// HEIC: HEVC in a HEIF container (the primary image).
    Heic,
    /// JPEG XL (first frame).
    JpegXl,
    /// JPEG 2000, in a container or as a codestream.
    Jpeg2000,
    /// Netpbm: PBM, PGM, PPM and PAM (the first image).
    Pnm,
    /// Truevision TGA.
    Tga,
    /// QOI.
    Qoi,
    /// Windows icon (the largest image).
    Ico,
    /// PCX.
    Pcx,
}

impl ImageFormat {
    /// Every format.
    pub const ALL: [Self; 15] = [
        Self::Jpeg,
        Self::Png,
        Self::WebP,
        Self::Gif,
        Self::Bmp,
        Self::Tiff,
        Self::Avif,
        Self::Heic,
        Self::JpegXl,
        Self::Jpeg2000,
        Self::Pnm,
        Self::Tga,
        Self::Qoi,
        Self::Ico,
        Self::Pcx,
    ];

    /// The usual name ("JPEG").
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
            Self::Avif => "AVIF",
            Self::Heic => "HEIC",
            Self::JpegXl => "JPEG XL",
            Self::Jpeg2000 => "JPEG 2000",
            Self::Pnm => "PNM",
            Self::Tga => "TGA",
            Self::Qoi => "QOI",
            Self::Ico => "ICO",
            Self::Pcx => "PCX",
        }
    }

    /// The usual file name extension, in lower case ("jpg").
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Gif => "gif",
            Self::Bmp => "bmp",
            Self::Tiff => "tiff",
            Self::Avif => "avif",
            Self::Heic => "heic",
            Self::JpegXl => "jxl",
            Self::Jpeg2000 => "jp2",
            Self::Pnm => "pnm",
            Self::Tga => "tga",
            Self::Qoi => "qoi",
            Self::Ico => "ico",
            Self::Pcx => "pcx",
        }
    }

    /// The cargo feature that builds a decoder of this format, if there is such a feature.
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            Self::Avif => Some("avif"),
            Self::Heic => Some("heic"),
            Self::JpegXl => Some("jxl"),
            Self::Jpeg2000 => Some("jpeg2000"),
            _ => None,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of [`ImageFormat`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FormatSet(u16);

impl FormatSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The set of `formats`.
    pub const fn of(formats: &[ImageFormat]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < formats.len() {
            bits |= formats[i].bit();
            i += 1;
        }
        Self(bits)
    }

    /// Returns true if the set contains `format`.
    pub const fn contains(self, format: ImageFormat) -> bool {
        self.0 & format.bit() != 0
    }

    /// Formats in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The formats, in the order of [`ImageFormat::ALL`].
    pub fn iter(self) -> impl Iterator<Item = ImageFormat> {
        ImageFormat::ALL.into_iter().filter(move |&format| self.contains(format))
    }
}

impl fmt::Display for FormatSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, format) in self.iter().enumerate() {
            write!(f, "{}{format}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_it_was_given() {
        let set = FormatSet::of(&[ImageFormat::Tiff, ImageFormat::Jpeg]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [ImageFormat::Jpeg, ImageFormat::Tiff]);
        assert_eq!(set.union(FormatSet::of(&[ImageFormat::Gif])).to_string(), "JPEG, GIF, TIFF");
        assert!(!FormatSet::EMPTY.contains(ImageFormat::Jpeg));
        assert_eq!(FormatSet::of(&ImageFormat::ALL).iter().count(), ImageFormat::ALL.len());
    }
}
