//! Bodies that differ from what they claim to be.

use std::ops::Range;

use image::codecs::jpeg::JpegEncoder;

/// Returns `photo` with 64 bytes in its middle that every decoder rejects: JPEG frame headers without room for a frame.
/// Formats with checksums, such as PNG, detect the damage anyway.
pub(crate) fn corrupt(photo: &[u8]) -> Vec<u8> {
    const NO_FRAME: [u8; 4] = [0xff, 0xc0, 0, 2];
    let mut photo = photo.to_vec();
    let middle = photo.len() / 2;
    photo[middle..].iter_mut().take(64).zip(NO_FRAME.iter().cycle()).for_each(|(byte, wrong)| *byte = *wrong);
    photo
}

/// Width and height that bombs claim: 3.6 gigapixels.
const BOMB_SIDE: u16 = 0xea60;

/// A PNG of 69 bytes: its header, a few pixels, its end.
pub(crate) const PNG_BOMB: &[u8] = b"\x89PNG\r\n\x1a\n\
    \0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x0f\xb0\xe2\x15\
    \0\0\0\x0cIDAT\x78\xda\x63\x60\xa0\x0c\0\0\0\x40\0\x01\x89\xc9\xaf\x43\
    \0\0\0\0IEND\xae\x42\x60\x82";

/// Builds a JPEG of eight pixels per side whose header claims more.
pub(crate) fn jpeg_bomb() -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = JpegEncoder::new(&mut bytes).encode(&[0; 64], 8, 8, image::ExtendedColorType::L8);
    // A frame header: its marker, length and precision, then height and width.
    let frame = bytes.windows(2).position(|marker| marker == [0xff, 0xc0]);
    let (Ok(()), Some(frame)) = (encoded, frame) else { unreachable!("a JPEG in memory has a frame") };
    let side = BOMB_SIDE.to_be_bytes();
    bytes[frame + 5..frame + 9].copy_from_slice(&[side[0], side[1], side[0], side[1]]);
    bytes
}

/// Returns the bytes that a `Range` of a body of `len` bytes names, if it names some.
pub(crate) fn part(range: &str, len: usize) -> Option<Range<usize>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let start: usize = first.parse().ok()?;
    let end = if last.is_empty() { len } else { last.parse::<usize>().ok()?.checked_add(1)?.min(len) };
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_name_bytes_of_the_body() {
        let of_ten = |range| part(range, 10);
        assert_eq!(
            [of_ten("bytes=0-0"), of_ten("bytes=3-"), of_ten("bytes=8-99")],
            [Some(0..1), Some(3..10), Some(8..10)]
        );
        for other in ["bytes=10-", "bytes=5-4", "bytes=-5", "bytes=0-1,3-4", "lines=1-2"] {
            assert_eq!(of_ten(other), None, "{other}");
        }
    }
}
