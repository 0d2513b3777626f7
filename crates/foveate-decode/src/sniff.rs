//! Format detection by content, because file names are unreliable.

use crate::{DecodeError, ImageFormat, heif};

/// Number of leading bytes that are searched for text and embedded images.
const WINDOW: usize = 1024;

/// Detects the container of `bytes` by content, ignoring names and extensions.
///
/// # Errors
/// [`DecodeError::Empty`] for no bytes, [`DecodeError::UnsupportedFormat`] for an image format that the engine does not
/// read (camera raw, Photoshop, …), otherwise [`DecodeError::NotAnImage`], with the detected format if known.
pub fn sniff(bytes: &[u8]) -> Result<ImageFormat, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    if let Some(format) = supported(bytes) {
        return Ok(format);
    }
    if let Some(name) = unsupported(bytes) {
        return Err(DecodeError::UnsupportedFormat { name });
    }
    // It has no mark, so all others come first.
    if is_tga(bytes) {
        return Ok(ImageFormat::Tga);
    }
    Err(DecodeError::NotAnImage { what: other(bytes) })
}

/// First bytes of a file that [`may_have_deep_gray`] looks at.
pub const DEEP_GRAY_BYTES: usize = 64;

/// Returns false if an image that begins with `bytes` has no gray in more than 8 bits, by its format or its header.
pub fn may_have_deep_gray(bytes: &[u8]) -> bool {
    match sniff(bytes) {
        Ok(ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP | ImageFormat::Bmp) | Err(_) => false,
        Ok(ImageFormat::Avif | ImageFormat::Heic | ImageFormat::JpegXl) => false,
        Ok(ImageFormat::Tga | ImageFormat::Qoi | ImageFormat::Pcx) => false,
        // The bit depth and the colour type of the first chunk.
        Ok(ImageFormat::Png) => bytes.get(24..26) == Some(&[16, 0]),
        Ok(_) => true,
    }
}

fn supported(bytes: &[u8]) -> Option<ImageFormat> {
    const MAGIC: &[(&[u8], ImageFormat)] = &[
        (b"\xFF\xD8\xFF", ImageFormat::Jpeg),
        (b"\x89PNG\r\n\x1A\n", ImageFormat::Png),
        (b"GIF87a", ImageFormat::Gif),
        (b"GIF89a", ImageFormat::Gif),
        (b"II*\0", ImageFormat::Tiff),
        (b"MM\0*", ImageFormat::Tiff),
        (b"II\0*", ImageFormat::Tiff),
        (b"MM*\0", ImageFormat::Tiff),
        (b"II+\0", ImageFormat::Tiff),
        (b"MM\0+", ImageFormat::Tiff),
        (b"\xFF\x0A", ImageFormat::JpegXl),
        (b"\0\0\0\x0CJXL \r\n\x87\n", ImageFormat::JpegXl),
        (b"\0\0\0\x0CjP  \r\n\x87\n", ImageFormat::Jpeg2000),
        (b"\xFF\x4F\xFF\x51", ImageFormat::Jpeg2000),
        (b"qoif", ImageFormat::Qoi),
    ];
    if let Some((_, format)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(*format);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some(ImageFormat::WebP);
    }
    if let Some(format) = heif::format(bytes) {
        return Some(format);
    }
    if is_pnm(bytes) {
        return Some(ImageFormat::Pnm);
    }
    match bytes {
        // At least one image, which begins behind the directory.
        [0, 0, 1, 0, 1..=255, 0, ..] => {
            let start = bytes.get(18..22).and_then(|start| start.first_chunk());
            start.is_some_and(|start| u32::from_le_bytes(*start) >= 22).then_some(ImageFormat::Ico)
        }
        // Version, compression, bits of a sample; the byte after the palette is 0, and there are at most four planes.
        [0x0A, 0 | 2..=5, 0 | 1, 1 | 2 | 4 | 8, ..] if matches!(bytes.get(64..66), Some([0, 1..=4])) => {
            Some(ImageFormat::Pcx)
        }
        _ => is_bmp(bytes).then_some(ImageFormat::Bmp),
    }
}

/// "P1" also begins texts, so a number must follow, after spaces and comments.
fn is_pnm(bytes: &[u8]) -> bool {
    let [b'P', kind @ b'1'..=b'7', rest @ ..] = bytes else { return false };
    if *kind == b'7' {
        return rest.starts_with(b"\n");
    }
    let mut rest = rest;
    while let [byte, after @ ..] = rest {
        rest = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => after,
            b'#' => &after[after.iter().position(|byte| *byte == b'\n').unwrap_or(after.len())..],
            _ => return byte.is_ascii_digit() && rest.len() < bytes.len() - 2,
        };
    }
    false
}

/// Checks all fields of the header against each other, and the length of the file against the size of the picture.
fn is_tga(bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk::<18>() else { return false };
    let [id, has_map, kind, _, _, map_low, map_high, map_bits, _, _, _, _, w0, w1, h0, h1, bits, descriptor] = *header;
    let map_entries = u64::from(u16::from_le_bytes([map_low, map_high]));
    let pixels = u64::from(u16::from_le_bytes([w0, w1])) * u64::from(u16::from_le_bytes([h0, h1]));
    let is_map_right = match has_map {
        0 => map_entries == 0,
        1 => map_entries > 0 && matches!(map_bits, 15 | 16 | 24 | 32),
        _ => false,
    };
    let are_bits_right = match kind {
        1 | 9 => has_map == 1 && bits == 8,
        2 | 10 => matches!(bits, 15 | 16 | 24 | 32),
        3 | 11 => matches!(bits, 8 | 16),
        _ => false,
    };
    let before = u64::from(id) + map_entries * u64::from(map_bits.div_ceil(8));
    let sample = u64::from(bits.div_ceil(8));
    // A packet of run lengths is for 128 pixels at most. A truncated file has half of its pixels.
    let least = if kind < 8 { pixels * sample / 2 } else { pixels.div_ceil(128) * (1 + sample) / 2 };
    // Bits of alpha, the two that say where the first pixel is, and two that are zero.
    let is_descriptor_right = descriptor & 0xC0 == 0 && descriptor & 15 <= 8;
    let is_long_enough = pixels > 0 && rest.len() as u64 >= before + least.max(1);
    is_map_right && are_bits_right && is_descriptor_right && is_long_enough
}

/// "BM" also begins many texts, so the size of the information header must be a valid one.
fn is_bmp(bytes: &[u8]) -> bool {
    const HEADER_SIZES: [u32; 8] = [12, 16, 40, 52, 56, 64, 108, 124];
    let header_size = bytes.get(14..18).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    bytes.starts_with(b"BM") && header_size.is_some_and(|size| HEADER_SIZES.contains(&size))
}

fn unsupported(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"II\xBC", "JPEG XR"),
        (b"8BPS", "Photoshop"),
        (b"\x76\x2F\x31\x01", "OpenEXR"),
        (b"#?RADIANCE", "Radiance HDR"),
        (b"#?RGBE", "Radiance HDR"),
        (b"DDS ", "DDS"),
        (b"gimp xcf", "GIMP"),
        (b"farbfeld", "farbfeld"),
        (b"FUJIFILMCCD-RAW", "camera raw"),
        (b"IIRO", "camera raw"),
        (b"IIU\0", "camera raw"),
        (b"\x01\xDA\x00\x01", "SGI"),
        (b"\x01\xDA\x00\x02", "SGI"),
        (b"\x01\xDA\x01\x01", "SGI"),
        (b"\x01\xDA\x01\x02", "SGI"),
        (b"\x59\xA6\x6A\x95", "Sun raster"),
        (b"icns", "Apple icon"),
        (b"SIMPLE  =", "FITS"),
        (b"AT&TFORM", "DjVu"),
        (b"/* XPM */", "XPM"),
        (b"\xD7\xCD\xC6\x9A", "Windows metafile"),
        (b"BPG\xFB", "BPG"),
        (b"FLIF", "FLIF"),
        (b"\x8AMNG\r\n", "MNG"),
        (b"\x8BJNG\r\n", "JNG"),
        (b"Paint Shop Pro Image File", "Paint Shop Pro"),
    ];
    if let Some((_, name)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(name);
    }
    // A second mark behind the first one.
    const LATER: [(&[u8], usize, &[u8], &str); 5] = [
        (b"", 4, b"ftypcrx ", "camera raw"),
        (b"", 128, b"DICM", "DICOM"),
        (b"\x01\0\0\0", 40, b" EMF", "Windows metafile"),
        (b"FORM", 8, b"ILBM", "IFF"),
        (b"FORM", 8, b"PBM ", "IFF"),
    ];
    if matches!(bytes, [0, 0, 2, 0, 1..=255, 0, ..]) {
        return Some("Windows cursor");
    }
    for (start, at, mark, name) in LATER {
        if bytes.starts_with(start) && bytes.get(at..at + mark.len()) == Some(mark) {
            return Some(name);
        }
    }
    None
}

fn other(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"%PDF", "PDF"),
        (b"%!PS", "PostScript"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1F\x8B", "gzip data"),
        (b"BZh", "bzip2 data"),
        (b"\xFD7zXZ\0", "xz data"),
        (b"\x28\xB5\x2F\xFD", "zstd data"),
        (b"7z\xBC\xAF\x27\x1C", "a 7-Zip archive"),
        (b"Rar!", "a RAR archive"),
        (b"PAR1", "Parquet"),
        (b"\x93NUMPY", "a NumPy array"),
        (b"\x7FELF", "a program"),
        (b"RIFF", "audio or video (RIFF)"),
        (b"ID3", "audio (MP3)"),
        (b"OggS", "audio or video (Ogg)"),
        (b"\x1A\x45\xDF\xA3", "video (Matroska)"),
    ];
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(what);
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some("video (MP4)");
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Some("a tar archive");
    }
    let head = &bytes[..bytes.len().min(WINDOW)];
    if head.iter().all(|&byte| byte == 0) {
        return Some("nothing but zero bytes");
    }
    if head.windows(3).any(|w| w == b"\xFF\xD8\xFF") {
        return Some("a JPEG with other bytes in front of it");
    }
    text(head)
}

fn text(head: &[u8]) -> Option<&'static str> {
    const STARTS: &[(&str, &str)] = &[
        ("<!doctype html", "HTML"),
        ("<html", "HTML"),
        ("<head", "HTML"),
        ("<body", "HTML"),
        ("<svg", "SVG"),
        ("{", "JSON"),
        ("[", "JSON"),
        ("version https://git-lfs", "a Git LFS pointer: the file itself was not fetched"),
        ("data:image/", "a data URI"),
        ("http/1.", "an HTTP response"),
        ("/9j/", "a JPEG in base64"),
        ("ivborw0kggo", "a PNG in base64"),
    ];
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    // The window's end may split a character, which does not make the text binary.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let text = text.trim_start().to_ascii_lowercase();
    if let Some((_, what)) = STARTS.iter().find(|(start, _)| text.starts_with(start)) {
        return Some(what);
    }
    if text.starts_with("<?xml") || text.starts_with("<!--") {
        return Some(if text.contains("<svg") {
            "SVG"
        } else if text.contains("<html") {
            "HTML"
        } else {
            "XML"
        });
    }
    let printable = !text.chars().any(|c| c.is_control() && !c.is_whitespace());
    (printable && text.len() > 1).then_some("text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(bytes: &[u8]) -> String {
        sniff(bytes).map_or_else(|error| error.to_string(), |format| format.to_string())
    }

    #[test]
    fn formats_are_told_by_content() {
        let cases: &[(&[u8], &str)] = &[
            (b"\xFF\xD8\xFF\xE0", "JPEG"),
            (b"\x89PNG\r\n\x1A\n....", "PNG"),
            (b"GIF89a", "GIF"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "WebP"),
            (b"MM\0*\0\0\0\x08", "TIFF"),
            (b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "BMP"),
            (b"\0\0\0\x1Cftypavif\0\0\0\0mif1", "AVIF"),
            (b"\0\0\0\x1Cftypmif1\0\0\0\0mif1avifmiaf", "AVIF"),
            (b"\0\0\0\x1Cftypmif1\0\0\0\0mif1heicmiaf", "HEIC"),
            (b"\0\0\0\x1Cftypheic\0\0\0\0mif1", "HEIC"),
            (b"\xFF\x0A\x00", "JPEG XL"),
            (b"\xFF\x4F\xFF\x51", "JPEG 2000"),
            (b"8BPS", "Photoshop images are not supported; convert them to PNG or JPEG"),
            (b"\x01\xDA\x01\x01\0\x03", "SGI images are not supported; convert them to PNG or JPEG"),
            (b"\0\0\x02\0\x01\0\x20\x20", "Windows cursor images are not supported; convert them to PNG or JPEG"),
            (b"SIMPLE  =  ", "FITS images are not supported; convert them to PNG or JPEG"),
            (b"P6\n2 2\n255\n", "PNM"),
            (b"P2 # by hand\n# twice\n 2 2 255 1 2 3 4", "PNM"),
            (b"P7\nWIDTH 1\n", "PNM"),
            (b"qoif\0\0\0\x01", "QOI"),
            (b"\0\0\x01\0\x01\0\x10\x10\0\0\x01\0\x20\0\x28\x01\0\0\x16\0\0\0", "ICO"),
            (b"\0\0\x02\0\0\0\0\0\0\0\0\0\x01\0\x01\0\x18\x20abc", "TGA"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(described(bytes), *expected);
        }
    }

    #[test]
    fn what_is_no_image_is_named() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "empty file (0 bytes)"),
            (b"  <!DOCTYPE html><title>404</title>", "not an image (looks like HTML)"),
            (b"<?xml version=\"1.0\"?><svg xmlns=\"..\"/>", "not an image (looks like SVG)"),
            (b"<?xml version=\"1.0\"?><Error/>", "not an image (looks like XML)"),
            (b"%PDF-1.7", "not an image (looks like PDF)"),
            (b"{\"error\": 429}", "not an image (looks like JSON)"),
            (b"BM is how this text begins", "not an image (looks like text)"),
            (b"P1 is a priority", "not an image (looks like text)"),
            (b"P6", "not an image (looks like text)"),
            (b"P65 and more", "not an image (looks like text)"),
            (b"\0\0\x02\0\0\0\0\0\0\0\0\0\x01\0\x01\0\x18\x20", "not an image"),
            (b"\0\0\x01\xBA video", "not an image"),
            (&[0; 40], "not an image (looks like nothing but zero bytes)"),
            (b"\r\n\xFF\xD8\xFF\xE0", "not an image (looks like a JPEG with other bytes in front of it)"),
            (b"\xFF", "not an image"),
            (b"\xFF\xD8", "not an image"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(described(bytes), *expected);
        }
    }

    #[test]
    fn a_character_cut_by_the_window_is_still_text() {
        let mut page = vec![b'a'; WINDOW - 1];
        page.extend_from_slice("é and more".as_bytes());
        assert_eq!(described(&page), "not an image (looks like text)");
    }
}
