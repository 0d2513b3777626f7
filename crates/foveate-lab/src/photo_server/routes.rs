use image::codecs::jpeg::JpegEncoder;

/// What a path asks for. Photos are counted round and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A photo.
    Photo(u64),
    /// A photo with a piece in its middle overwritten.
    Corrupt(u64),
    /// Nothing: 404.
    Missing,
    /// No answer, ever.
    Stall,
    /// A photo, bit by bit.
    Slow(u64),
    /// 503, with `Retry-After`.
    Error,
    /// 503 at first, as often as the second number says; then a photo.
    Flaky(u64, u64),
    /// A small file that says it is a huge image: a PNG, with an odd number a JPEG.
    Bomb(u64),
    /// A body without end.
    Huge,
    /// For callbacks.
    Callback,
}

impl Route {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let number = |at: usize| parts.get(at)?.parse().ok();
        let route = match (parts[0], parts.len()) {
            ("callback", 1) => return Some(Self::Callback),
            ("flaky", 3) => Self::Flaky(number(1)?, number(2)?),
            ("photo", 2) => Self::Photo(number(1)?),
            ("corrupt", 2) => Self::Corrupt(number(1)?),
            ("missing", 2) => Self::Missing,
            ("stall", 2) => Self::Stall,
            ("slow", 2) => Self::Slow(number(1)?),
            ("error", 2) => Self::Error,
            ("bomb", 2) => Self::Bomb(number(1)?),
            ("huge", 2) => Self::Huge,
            _ => return None,
        };
        Some(route)
    }
}

/// `photo` with 64 bytes in its middle that no decoder takes: frame headers of a JPEG that have no room for a frame. What
/// has checksums, such as PNG, notices anyway.
pub(super) fn corrupt(photo: &[u8]) -> Vec<u8> {
    const NO_FRAME: [u8; 4] = [0xff, 0xc0, 0, 2];
    let mut photo = photo.to_vec();
    let middle = photo.len() / 2;
    photo[middle..].iter_mut().take(64).zip(NO_FRAME.iter().cycle()).for_each(|(byte, wrong)| *byte = *wrong);
    photo
}

/// Width and height that bombs claim: 3.6 gigapixels.
const BOMB_SIDE: u16 = 0xea60;

/// A PNG of 69 bytes: its header, a few pixels, its end.
pub(super) const PNG_BOMB: &[u8] = b"\x89PNG\r\n\x1a\n\
    \0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x0f\xb0\xe2\x15\
    \0\0\0\x0cIDAT\x78\xda\x63\x60\xa0\x0c\0\0\0\x40\0\x01\x89\xc9\xaf\x43\
    \0\0\0\0IEND\xae\x42\x60\x82";

/// A JPEG of eight pixels a side whose header says otherwise.
pub(super) fn jpeg_bomb() -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = JpegEncoder::new(&mut bytes).encode(&[0; 64], 8, 8, image::ExtendedColorType::L8);
    // A frame header: its marker, length and precision, then height and width.
    let frame = bytes.windows(2).position(|marker| marker == [0xff, 0xc0]);
    let (Ok(()), Some(frame)) = (encoded, frame) else { unreachable!("a JPEG in memory has a frame") };
    let side = BOMB_SIDE.to_be_bytes();
    bytes[frame + 5..frame + 9].copy_from_slice(&[side[0], side[1], side[0], side[1]]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_routes() {
        for (path, route) in [
            ("/photo/12", Some(Route::Photo(12))),
            ("/flaky/3/2", Some(Route::Flaky(3, 2))),
            ("/stall/x", Some(Route::Stall)),
            ("/callback", Some(Route::Callback)),
            ("/callback/1", None),
            ("/photo", None),
            ("/photo/", None),
            ("/photo/1/2", None),
            ("/photo/-1", None),
            ("/flaky/3", None),
            ("photo/1", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(Route::parse(path), route, "{path}");
        }
    }
}
