//! The same pictures in fewer bytes, for libraries that would stumble over the rest.

use super::{Markers, SOI, Step, Structure};
use crate::DecodeError;

/// Writes the file again with a header that gives a library no cause to complain: without junk between the segments,
/// without segments that do not concern the pixels (ICC profiles, EXIF, comments), with JFIF and Adobe segments of
/// known versions that mean the same. From the first scan on, bytes are copied as they are.
///
/// `out` is overwritten; its memory serves the next file.
///
/// # Errors
/// As [`super::inspect`], which comes first.
pub fn with_plain_header(bytes: &[u8], structure: &Structure, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    out.clear();
    out.extend_from_slice(SOI);
    let mut markers = Markers::new(bytes)?;
    loop {
        let before = markers.at;
        match markers.advance()? {
            Step::Marker(0xDA, payload) => {
                out.extend_from_slice(&bytes[markers.at - payload.len() - 4..]);
                return Ok(());
            }
            Step::Marker(0xD9, _) | Step::End(_) => {
                out.extend_from_slice(&bytes[before..]);
                return Ok(());
            }
            Step::Marker(marker, payload) => {
                let start = out.len();
                if concerns_pixels(marker) {
                    out.extend_from_slice(&bytes[markers.at - payload.len() - 4..markers.at]);
                    make_known(marker, structure.components, &mut out[start + 4..]);
                }
            }
        }
    }
}

/// Frame header, tables, restart interval, JFIF and Adobe segments.
fn concerns_pixels(marker: u8) -> bool {
    matches!(marker, 0xC0..=0xCF | 0xDB | 0xDD | 0xE0 | 0xEE)
}

/// Gives a JFIF segment a version that libraries know, and an Adobe segment the colour transform that libjpeg takes an
/// unknown one for.
fn make_known(marker: u8, components: u8, payload: &mut [u8]) {
    match (marker, payload) {
        (0xE0, [b'J', b'F', b'I', b'F', 0, major, ..]) => *major = 1,
        (0xEE, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) if *transform != 0 => {
            *transform = if components == 4 { 2 } else { 1 };
        }
        _ => {}
    }
}
