//! PNG's chunks that may hold an orientation: EXIF as such, EXIF as hexadecimal text, and XMP.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;

/// Most bytes that a compressed text may expand to, as in Pillow.
const MAX_TEXT: u64 = 1 << 20;

/// ImageMagick and exiv2 write EXIF as text under this keyword.
const RAW_PROFILE: &[u8] = b"Raw profile type exif";
const XMP: &[u8] = b"XML:com.adobe.xmp";

type Block<'a> = Option<Cow<'a, [u8]>>;

/// The last EXIF and XMP block; a chunk `eXIf` counts before a raw profile.
pub(super) fn metadata(bytes: &[u8]) -> (Block<'_>, Block<'_>) {
    let mut exif = None;
    let mut profile = None;
    let mut xmp = None;
    for (kind, payload) in chunks(bytes) {
        match kind {
            b"eXIf" => exif = Some(Cow::from(payload)),
            b"tEXt" | b"zTXt" | b"iTXt" => match text(kind, payload) {
                Some((RAW_PROFILE, text)) => profile = Some(text),
                Some((XMP, text)) => xmp = Some(text),
                _ => {}
            },
            _ => {}
        }
    }
    (exif.or_else(|| from_hex(&profile?).map(Cow::from)), xmp)
}

/// Kind and payload of each chunk up to the end, or to where the file is cut.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut rest = bytes.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let payload = after.get(..length).filter(|_| kind != b"IEND")?;
        // Each chunk ends with a checksum of four bytes.
        rest = after.get(length + 4..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// A text chunk's keyword and text, for the keywords that matter; other texts are not expanded.
fn text<'a>(kind: &[u8; 4], payload: &'a [u8]) -> Option<(&'a [u8], Cow<'a, [u8]>)> {
    let (keyword, rest) = split(payload).filter(|(keyword, _)| matches!(*keyword, RAW_PROFILE | XMP))?;
    let text = match (kind, rest) {
        (b"zTXt", [0, packed @ ..]) => Cow::from(inflate(packed)?),
        (b"iTXt", [is_compressed, method, rest @ ..]) => {
            let (_language, rest) = split(rest)?;
            let (_translated_keyword, text) = split(rest)?;
            match (is_compressed, method) {
                (0, _) => Cow::from(text),
                (_, 0) => Cow::from(inflate(text)?),
                _ => return None,
            }
        }
        (b"tEXt", text) => Cow::from(text),
        _ => return None,
    };
    Some((keyword, text))
}

/// Splits at the first zero byte.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(0, bytes)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn inflate(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    ZlibDecoder::new(packed).take(MAX_TEXT).read_to_end(&mut text).ok()?;
    Some(text)
}

/// The bytes of a raw profile: behind an empty line, a name and a length, hexadecimal digits in lines.
fn from_hex(profile: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = profile
        .split(|&byte| byte == b'\n')
        .skip(3)
        .flatten()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|&byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}
