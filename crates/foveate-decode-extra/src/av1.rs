//! AV1 with re_rav1d, one picture at a time.

use foveate_core::{PixelLimits, Size};
use foveate_decode::heif::CodedColor;
use re_rav1d::dav1d::pixel::{MatrixCoefficients, YUVRange};
use re_rav1d::dav1d::{Decoder, Error, Picture, PixelLayout, PlanarImageComponent, Settings};

use crate::yuv::{YuvImage, YuvPlane};

/// Decodes the picture of one item: of several layers the last, which is the whole one.
///
/// # Errors
/// The library's reason, or one of our own.
pub(crate) fn decode(encoded: Vec<u8>, limits: PixelLimits) -> Result<YuvImage, String> {
    if encoded.is_empty() {
        // The library would complain on standard error.
        return Err("it holds no picture".to_owned());
    }
    let mut settings = Settings::new();
    // Images are decoded side by side already.
    settings.set_n_threads(1);
    settings.set_max_frame_delay(1);
    settings.set_frame_size_limit(u32::try_from(limits.max_pixels).unwrap_or(u32::MAX));
    let mut decoder = Decoder::with_settings(&settings).map_err(|error| error.to_string())?;
    let mut latest = None;
    let mut sent = decoder.send_data(encoded, None, None, None);
    loop {
        let mut is_fetched = false;
        while let Ok(picture) = decoder.get_picture() {
            latest = Some(picture);
            is_fetched = true;
        }
        // It takes no more of the data before its pictures are fetched.
        if !is_fetched || sent != Err(Error::Again) {
            break;
        }
        sent = decoder.send_pending_data();
    }
    match (latest, sent) {
        (Some(picture), _) => copied(&picture),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(())) => Err("it holds no picture".to_owned()),
    }
}

fn copied(picture: &Picture) -> Result<YuvImage, String> {
    let size = Size::new(picture.width(), picture.height());
    let halves = match picture.pixel_layout() {
        PixelLayout::I420 => (1, 1),
        PixelLayout::I422 => (1, 0),
        PixelLayout::I400 | PixelLayout::I444 => (0, 0),
    };
    let mut planes = vec![plane(picture, PlanarImageComponent::Y, size)];
    if picture.pixel_layout() != PixelLayout::I400 {
        let half = Size::new((size.width + halves.0) >> halves.0, (size.height + halves.1) >> halves.1);
        planes.push(plane(picture, PlanarImageComponent::U, half));
        planes.push(plane(picture, PlanarImageComponent::V, half));
    }
    let matrix = match picture.matrix_coefficients() {
        MatrixCoefficients::Identity => 0,
        MatrixCoefficients::BT709 => 1,
        MatrixCoefficients::Unspecified => 2,
        MatrixCoefficients::BT470M => 4,
        MatrixCoefficients::BT470BG | MatrixCoefficients::ST170M => 6,
        MatrixCoefficients::ST240M => 7,
        MatrixCoefficients::BT2020NonConstantLuminance => 9,
        other => return Err(format!("its colours are coded as {other:?}")),
    };
    let depth = picture.bits_per_component().ok_or("its depth is unknown")?.0 as u32;
    let is_full_range = picture.color_range() == YUVRange::Full;
    Ok(YuvImage { planes, halves, depth, color: CodedColor { matrix, is_full_range } })
}

fn plane(picture: &Picture, component: PlanarImageComponent, size: Size) -> YuvPlane {
    let bytes = picture.plane(component);
    let width = size.width as usize;
    let mut samples = Vec::with_capacity(width * size.height as usize);
    for row in bytes.chunks(picture.stride(component) as usize).take(size.height as usize) {
        if picture.bit_depth() == 8 {
            samples.extend(row[..width].iter().map(|sample| u16::from(*sample)));
        } else {
            samples.extend(row.as_chunks().0[..width].iter().map(|sample| u16::from_ne_bytes(*sample)));
        }
    }
    YuvPlane { size, samples }
}
