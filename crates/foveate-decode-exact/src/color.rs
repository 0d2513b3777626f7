//! Component samples to RGB: libjpeg's conversions, and for CMYK then Pillow's `convert("RGB")`.

use foveate_decode::jpeg::cmyk_to_rgb;

use crate::kernels::JpegKernels;

/// The components' meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColorSpace {
    Gray,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

const HALF: i32 = 1 << 15;

/// JFIF's conversion in 16-bit fixed point, rounded as libjpeg's tables round: 1.40200, 0.34414, 0.71414, 1.77200.
#[inline(always)]
fn rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let y = i32::from(y);
    let cb = i32::from(cb) - 128;
    let cr = i32::from(cr) - 128;
    [y + ((91881 * cr + HALF) >> 16), y + ((-22554 * cb - 46802 * cr + HALF) >> 16), y + ((116130 * cb + HALF) >> 16)]
        .map(|value| value.clamp(0, 255) as u8)
}

/// Converts a row of Y, Cb and Cr.
#[inline(always)]
pub(crate) fn ycbcr([y, cb, cr]: [&[u8]; 3], out: &mut [[u8; 3]]) {
    for (pixel, ((&y, &cb), &cr)) in out.iter_mut().zip(y.iter().zip(cb).zip(cr)) {
        *pixel = rgb([y, cb, cr]);
    }
}

/// Converts one row. `rows` holds each component's samples, at least as many as `out` has pixels; rows beyond the
/// colour space's components are not read.
#[inline(always)]
pub(crate) fn convert(kernels: impl JpegKernels, space: ColorSpace, rows: [&[u8]; 4], out: &mut [[u8; 3]]) {
    let [a, b, c, d] = rows;
    match space {
        ColorSpace::Gray => {
            for (pixel, &gray) in out.iter_mut().zip(a) {
                *pixel = [gray; 3];
            }
        }
        ColorSpace::Rgb => {
            for (pixel, ((&r, &g), &b)) in out.iter_mut().zip(a.iter().zip(b).zip(c)) {
                *pixel = [r, g, b];
            }
        }
        ColorSpace::YCbCr => kernels.ycbcr([a, b, c], out),
        ColorSpace::Cmyk => {
            for (pixel, (((&c, &m), &y), &k)) in out.iter_mut().zip(a.iter().zip(b).zip(c).zip(d)) {
                *pixel = cmyk_to_rgb([c, m, y, k]);
            }
        }
        // libjpeg inverts the colour transform's result.
        ColorSpace::Ycck => {
            for (pixel, (((&y, &cb), &cr), &k)) in out.iter_mut().zip(a.iter().zip(b).zip(c).zip(d)) {
                let [c, m, y] = rgb([y, cb, cr]).map(|light| 255 - light);
                *pixel = cmyk_to_rgb([c, m, y, k]);
            }
        }
    }
}
