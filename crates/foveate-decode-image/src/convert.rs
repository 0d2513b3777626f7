//! Converts the library's sample layouts to RGB8 as Pillow's `convert("RGB")` does.

use image::ColorType;

/// The file's form of 16-bit gray with alpha in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gray16 {
    /// Gray with alpha in the file, too.
    Alone,
    /// Gray, with one colour marked as transparent.
    WithTransparentColor,
}

/// Fills `rgb` from `native`; `None` for an unsupported layout.
///
/// * Alpha is dropped, not blended.
/// * 16-bit colour, and 16-bit gray with alpha, keep their high byte.
/// * 16-bit gray is **clipped** at 255, not scaled: Pillow opens it as mode `I;16`, whose conversion clips. Almost
///   every 16-bit gray image thus becomes white, in the reference implementation too.
pub(crate) fn to_rgb(color: ColorType, gray16: Gray16, native: &[u8], rgb: &mut [u8]) -> Option<()> {
    match color {
        ColorType::L8 => map(native, rgb, |&[l]| [l; 3]),
        ColorType::La8 => map(native, rgb, |&[l, _]| [l; 3]),
        ColorType::Rgb8 => rgb.copy_from_slice(native),
        ColorType::Rgba8 => map(native, rgb, |&[r, g, b, _]| [r, g, b]),
        ColorType::L16 => map(native, rgb, |&[a, b]| [clip(a, b); 3]),
        ColorType::La16 if gray16 == Gray16::WithTransparentColor => {
            map(native, rgb, |&[a, b, ..]: &[u8; 4]| [clip(a, b); 3])
        }
        ColorType::La16 => map(native, rgb, |&[a, b, ..]: &[u8; 4]| [high(a, b); 3]),
        ColorType::Rgb16 => map(native, rgb, |&[a, b, c, d, e, f]| [high(a, b), high(c, d), high(e, f)]),
        ColorType::Rgba16 => map(native, rgb, |&[a, b, c, d, e, f, ..]: &[u8; 8]| [high(a, b), high(c, d), high(e, f)]),
        _ => return None,
    }
    Some(())
}

/// Returns true if [`to_rgb`] clips this layout.
pub(crate) fn clips(color: ColorType, gray16: Gray16) -> bool {
    color == ColorType::L16 || color == ColorType::La16 && gray16 == Gray16::WithTransparentColor
}

pub(crate) fn map<const N: usize>(native: &[u8], rgb: &mut [u8], pixel: impl Fn(&[u8; N]) -> [u8; 3]) {
    for (from, to) in native.as_chunks::<N>().0.iter().zip(rgb.as_chunks_mut::<3>().0) {
        *to = pixel(from);
    }
}

fn clip(a: u8, b: u8) -> u8 {
    u16::from_ne_bytes([a, b]).min(255) as u8
}

fn high(a: u8, b: u8) -> u8 {
    (u16::from_ne_bytes([a, b]) >> 8) as u8
}

/// Pillow's `CMYK` to `RGB`, for inks from 0 (none) to 255 (full).
pub(crate) fn cmyk_to_rgb(&[c, m, y, k]: &[u8; 4]) -> [u8; 3] {
    let light = 255 - k;
    [c, m, y].map(|ink| light.saturating_sub(scale(ink, light)))
}

/// `a * b / 255`, rounded.
fn scale(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rgb(color: ColorType, gray16: Gray16, native: &[u8]) -> [u8; 3] {
        let mut out = [0; 3];
        to_rgb(color, gray16, native, &mut out).unwrap();
        out
    }

    fn words<const N: usize>(samples: [u16; N]) -> Vec<u8> {
        samples.iter().flat_map(|sample| sample.to_ne_bytes()).collect()
    }

    /// The values are Pillow 13's for files with these samples.
    #[test]
    fn layouts_become_what_pillow_makes_of_them() {
        let alone = Gray16::Alone;
        assert_eq!(rgb(ColorType::L8, alone, &[9]), [9; 3]);
        assert_eq!(rgb(ColorType::La8, alone, &[9, 0]), [9; 3]);
        assert_eq!(rgb(ColorType::Rgba8, alone, &[1, 2, 3, 0]), [1, 2, 3]);
        assert_eq!(rgb(ColorType::Rgb16, alone, &words([0x01FF, 0x02FF, 0xFF00])), [1, 2, 255]);
        assert_eq!(rgb(ColorType::Rgba16, alone, &words([0x0180, 0x0280, 0x0380, 0])), [1, 2, 3]);
        for (sample, expected) in [(0, 0), (100, 100), (255, 255), (256, 255), (65535, 255)] {
            assert_eq!(rgb(ColorType::L16, alone, &words([sample])), [expected; 3]);
            assert_eq!(rgb(ColorType::La16, Gray16::WithTransparentColor, &words([sample, 0])), [expected; 3]);
            assert_eq!(rgb(ColorType::La16, alone, &words([sample, 0])), [(sample >> 8) as u8; 3]);
        }
        assert!(to_rgb(ColorType::Rgb32F, alone, &[0; 12], &mut [0; 3]).is_none());
    }

    #[test]
    fn inks_become_light() {
        assert_eq!(cmyk_to_rgb(&[0, 0, 0, 0]), [255; 3]);
        assert_eq!(cmyk_to_rgb(&[0, 0, 0, 255]), [0; 3]);
        assert_eq!(cmyk_to_rgb(&[255, 0, 128, 0]), [0, 255, 127]);
        // Pillow: Image.new("CMYK", (1, 1), (100, 50, 200, 30)).convert("RGB")
        assert_eq!(cmyk_to_rgb(&[100, 50, 200, 30]), [137, 181, 49]);
    }
}
