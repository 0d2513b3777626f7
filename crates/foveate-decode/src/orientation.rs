mod exif;
mod png;

use std::borrow::Cow;

use foveate_core::{CHANNELS, LimitError, PixelBuf, Size};

use crate::{ImageFormat, heif, jpeg};

/// Turn that makes a stored image upright: the EXIF `Orientation` tag, 1 to 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Orientation {
    /// 1: as stored.
    #[default]
    Normal,
    /// 2: mirror left and right.
    FlipHorizontal,
    /// 3: rotate by 180°.
    Rotate180,
    /// 4: mirror top and bottom.
    FlipVertical,
    /// 5: exchange rows and columns.
    Transpose,
    /// 6: rotate clockwise by 90°.
    Rotate90,
    /// 7: exchange rows and columns over the other diagonal.
    Transverse,
    /// 8: rotate counter-clockwise by 90°.
    Rotate270,
}

/// Side of the tile that a transposition moves at once, so that its source and target rows stay in the L1 cache.
const TILE: usize = 32;

impl Orientation {
    /// All eight, in the order of their EXIF numbers.
    pub const ALL: [Self; 8] = [
        Self::Normal,
        Self::FlipHorizontal,
        Self::Rotate180,
        Self::FlipVertical,
        Self::Transpose,
        Self::Rotate90,
        Self::Transverse,
        Self::Rotate270,
    ];

    /// The orientation with EXIF number `value`; `None` outside 1..=8.
    pub fn from_exif(value: u64) -> Option<Self> {
        usize::try_from(value).ok()?.checked_sub(1).and_then(|i| Self::ALL.get(i)).copied()
    }

    /// Its EXIF number, 1..=8.
    pub const fn exif(self) -> u8 {
        self as u8 + 1
    }

    /// Returns true if width and height are swapped.
    pub const fn transposes(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }

    /// The upright size of an image stored with `size`.
    #[must_use]
    pub const fn apply_size(self, size: Size) -> Size {
        if self.transposes() { size.transposed() } else { size }
    }

    /// Turns `pixels` upright. A transposition writes into `scratch`'s memory and swaps the two buffers; the content of
    /// `scratch` is unspecified afterwards. Does not allocate once `scratch` has been this large.
    ///
    /// # Errors
    /// If `scratch` may not become as large as the image; `pixels` is then unchanged.
    pub fn apply(self, pixels: &mut PixelBuf, scratch: &mut PixelBuf) -> Result<(), LimitError> {
        let size = pixels.size();
        if size.is_empty() {
            return Ok(());
        }
        let row = size.width as usize * CHANNELS;
        match self {
            Self::Normal => {}
            Self::FlipHorizontal => pixels.as_mut_slice().chunks_exact_mut(row).for_each(reverse_pixels),
            Self::Rotate180 => reverse_pixels(pixels.as_mut_slice()),
            Self::FlipVertical => reverse_rows(pixels.as_mut_slice(), row),
            Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270 => {
                let dst = scratch.reset(size.transposed())?;
                let flip_x = matches!(self, Self::Transverse | Self::Rotate270);
                let flip_y = matches!(self, Self::Transverse | Self::Rotate90);
                transpose(pixels.as_slice(), size, dst, flip_x, flip_y);
                pixels.swap(scratch);
            }
        }
        Ok(())
    }
}

fn reverse_pixels(samples: &mut [u8]) {
    let (pixels, _) = samples.as_chunks_mut::<CHANNELS>();
    pixels.reverse();
}

fn reverse_rows(samples: &mut [u8], row: usize) {
    let half = samples.len() / row / 2 * row;
    let len = samples.len();
    let (top, bottom) = samples.split_at_mut(len - half);
    for (upper, lower) in top.chunks_exact_mut(row).zip(bottom.chunks_exact_mut(row).rev()) {
        upper.swap_with_slice(lower);
    }
}

/// `dst[y][x] = src[x'][y']`, where `x'` counts from the bottom when `flip_y` and `y'` from the right when `flip_x`.
fn transpose(src: &[u8], size: Size, dst: &mut [u8], flip_x: bool, flip_y: bool) {
    let width = size.width as usize;
    let height = size.height as usize;
    let (src, _) = src.as_chunks::<CHANNELS>();
    let (dst, _) = dst.as_chunks_mut::<CHANNELS>();
    for top in (0..width).step_by(TILE) {
        for left in (0..height).step_by(TILE) {
            let columns = left..height.min(left + TILE);
            for y in top..width.min(top + TILE) {
                let from_x = if flip_x { width - 1 - y } else { y };
                let row = &mut dst[y * height..][columns.clone()];
                for (pixel, x) in row.iter_mut().zip(columns.clone()) {
                    let from_y = if flip_y { height - 1 - x } else { x };
                    *pixel = src[from_y * width + from_x];
                }
            }
        }
    }
}

/// The orientation in a file's metadata, found as Pillow's `ImageOps.exif_transpose` finds it: the EXIF tag of JPEG,
/// PNG, WebP and TIFF, or `tiff:Orientation` in its XMP if EXIF has none; of AVIF, the container's rotation and mirror.
/// Absent, damaged or invalid metadata means [`Orientation::Normal`]; never fails.
pub fn orientation(bytes: &[u8], format: ImageFormat) -> Orientation {
    let (exif, xmp) = match format {
        ImageFormat::Jpeg => jpeg_metadata(bytes),
        ImageFormat::Png => png::metadata(bytes),
        ImageFormat::WebP => webp_metadata(bytes),
        ImageFormat::Tiff => (Some(bytes.into()), exif::xmp(bytes).map(Cow::from)),
        ImageFormat::Avif => return heif_orientation(bytes),
        // Their decoders turn the image: it is part of the coding.
        ImageFormat::Heic | ImageFormat::JpegXl => return Orientation::Normal,
        ImageFormat::Gif
        | ImageFormat::Bmp
        | ImageFormat::Jpeg2000
        | ImageFormat::Pnm
        | ImageFormat::Tga
        | ImageFormat::Qoi
        | ImageFormat::Ico
        | ImageFormat::Pcx => return Orientation::Normal,
    };
    match exif.map_or(exif::OrientationTag::Absent, |block| exif::orientation(&block)) {
        exif::OrientationTag::Value(value) => Orientation::from_exif(value).unwrap_or_default(),
        // It still counts as present, so XMP is not read.
        exif::OrientationTag::Invalid => Orientation::Normal,
        exif::OrientationTag::Absent => xmp.and_then(|xmp| xmp_orientation(&xmp)).unwrap_or_default(),
    }
}

fn heif_orientation(bytes: &[u8]) -> Orientation {
    let turn = heif::turn(bytes);
    match (turn.quarters, turn.mirror) {
        (0, None) => Orientation::Normal,
        (1, None) => Orientation::Rotate270,
        (2, None) => Orientation::Rotate180,
        (_, None) => Orientation::Rotate90,
        (0, Some(0)) | (2, Some(1)) => Orientation::FlipVertical,
        (0 | 2, Some(_)) => Orientation::FlipHorizontal,
        (1, Some(0)) | (3, Some(1)) => Orientation::Transpose,
        (_, Some(_)) => Orientation::Transverse,
    }
}

/// EXIF, which is a TIFF structure, and XMP.
type Metadata<'a> = (Option<Cow<'a, [u8]>>, Option<Cow<'a, [u8]>>);

fn jpeg_metadata(bytes: &[u8]) -> Metadata<'_> {
    let mut exif = None;
    let mut xmp = None;
    for payload in jpeg::header_segments(bytes, 0xE1) {
        if let Some(block) = payload.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0") {
            xmp = Some(Cow::from(block));
        } else if exif.is_none() {
            exif = payload.strip_prefix(b"Exif\0\0");
        }
    }
    // Pillow gives up on all metadata if EXIF is no TIFF structure.
    if exif.is_some_and(|block| !block.is_empty() && !exif::is_tiff(block)) {
        xmp = None;
    }
    (exif.map(Cow::from), xmp)
}

/// Counts chunks within the file's own length, and only if the header announces them.
fn webp_metadata(bytes: &[u8]) -> Metadata<'_> {
    let mut exif = None;
    let mut xmp = None;
    let length =
        bytes.get(4..8).and_then(|length| length.first_chunk()).map_or(0, |length| u32::from_le_bytes(*length));
    let file = &bytes[..bytes.len().min(length.saturating_add(8) as usize)];
    let mut rest = file.get(12..).unwrap_or_default();
    let flags = if let [b'V', b'P', b'8', b'X', _, _, _, _, flags, ..] = rest { *flags } else { 0 };
    while let Some((&[t0, t1, t2, t3, l0, l1, l2, l3], after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some(payload) = after.get(..length) else { break };
        match &[t0, t1, t2, t3] {
            b"EXIF" if flags & 8 != 0 => exif = exif.or(Some(payload.into())),
            b"XMP " if flags & 4 != 0 => xmp = xmp.or(Some(payload.into())),
            _ => {}
        }
        // Chunks begin at even offsets.
        rest = after.get(length + length % 2..).unwrap_or_default();
    }
    (exif, xmp)
}

/// The digit after `tiff:Orientation="` or `tiff:Orientation>`.
fn xmp_orientation(xmp: &[u8]) -> Option<Orientation> {
    const NAME: &[u8] = b"tiff:Orientation";
    memchr::memmem::find_iter(xmp, NAME).find_map(|at| {
        let value = &xmp[at + NAME.len()..];
        match value.strip_prefix(b"=\"").or_else(|| value.strip_prefix(b">"))? {
            [digit @ b'0'..=b'9', ..] => Some(Orientation::from_exif(u64::from(digit - b'0')).unwrap_or_default()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use foveate_core::PixelLimits;

    use super::*;

    /// 3 × 2 pixels with the values 0 to 5 in reading order.
    fn picture() -> PixelBuf {
        numbered(Size::new(3, 2))
    }

    fn numbered(size: Size) -> PixelBuf {
        let mut pixels = PixelBuf::default();
        for (i, pixel) in pixels.reset(size).unwrap().chunks_exact_mut(3).enumerate() {
            pixel.copy_from_slice(&[i as u8, (i >> 8) as u8, 7]);
        }
        pixels
    }

    fn rows(pixels: &PixelBuf) -> Vec<Vec<u8>> {
        let width = pixels.size().width as usize * 3;
        pixels.as_slice().chunks_exact(width).map(|row| row.chunks_exact(3).map(|p| p[0]).collect()).collect()
    }

    #[test]
    fn every_orientation_moves_every_pixel_to_its_place() {
        let expected: [&[&[u8]]; 8] = [
            &[&[0, 1, 2], &[3, 4, 5]],
            &[&[2, 1, 0], &[5, 4, 3]],
            &[&[5, 4, 3], &[2, 1, 0]],
            &[&[3, 4, 5], &[0, 1, 2]],
            &[&[0, 3], &[1, 4], &[2, 5]],
            &[&[3, 0], &[4, 1], &[5, 2]],
            &[&[5, 2], &[4, 1], &[3, 0]],
            &[&[2, 5], &[1, 4], &[0, 3]],
        ];
        for (orientation, expected) in Orientation::ALL.into_iter().zip(expected) {
            let mut pixels = picture();
            let mut scratch = PixelBuf::default();
            orientation.apply(&mut pixels, &mut scratch).unwrap();
            assert_eq!(pixels.size(), orientation.apply_size(Size::new(3, 2)), "{orientation:?}");
            assert_eq!(rows(&pixels), expected, "{orientation:?}");
            assert!(pixels.as_slice().chunks_exact(3).all(|p| p[1..] == [0, 7]), "{orientation:?} split a pixel");
        }
    }

    #[test]
    fn pictures_larger_than_a_tile_are_transposed_alike() {
        for size in [Size::new(33, 70), Size::new(64, 31), Size::new(1, 100), Size::new(5, 5)] {
            for orientation in Orientation::ALL.into_iter().filter(|o| o.transposes()) {
                let before = numbered(size);
                let mut after = numbered(size);
                let mut scratch = PixelBuf::default();
                orientation.apply(&mut after, &mut scratch).unwrap();
                let w = size.width - 1;
                let h = size.height - 1;
                for y in 0..=w {
                    for x in 0..=h {
                        let from = match orientation {
                            Orientation::Transpose => (y, x),
                            Orientation::Rotate90 => (y, h - x),
                            Orientation::Transverse => (w - y, h - x),
                            _ => (w - y, x),
                        };
                        assert_eq!(after.view().pixel(x, y), before.view().pixel(from.0, from.1), "{orientation:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_odd_number_of_rows_keeps_its_middle() {
        let mut pixels = numbered(Size::new(1, 5));
        Orientation::FlipVertical.apply(&mut pixels, &mut PixelBuf::default()).unwrap();
        assert_eq!(rows(&pixels), [[4], [3], [2], [1], [0]]);
    }

    #[test]
    fn memory_is_reused_from_image_to_image() {
        let mut pixels = numbered(Size::new(40, 30));
        let mut scratch = PixelBuf::default();
        Orientation::Rotate90.apply(&mut pixels, &mut scratch).unwrap();
        let mut addresses = [pixels.as_slice().as_ptr(), scratch.as_mut_slice().as_ptr()];
        pixels.reset(Size::new(40, 30)).unwrap();
        Orientation::Rotate90.apply(&mut pixels, &mut scratch).unwrap();
        let mut again = [pixels.as_slice().as_ptr(), scratch.as_mut_slice().as_ptr()];
        addresses.sort_unstable();
        again.sort_unstable();
        assert_eq!(addresses, again);
    }

    #[test]
    fn a_scratch_buffer_that_may_not_grow_is_an_error() {
        let mut scratch = PixelBuf::new(PixelLimits { max_pixels: 5 });
        let mut pixels = picture();
        assert!(Orientation::Rotate90.apply(&mut pixels, &mut scratch).is_err());
        assert_eq!(rows(&pixels), rows(&picture()));
    }

    /// A TIFF structure with one directory of `entries`: tag, type, count, value.
    fn tiff(little_endian: bool, entries: &[(u16, u16, u32, u32)]) -> Vec<u8> {
        let u16 = |v: u16| if little_endian { v.to_le_bytes() } else { v.to_be_bytes() };
        let u32 = |v: u32| if little_endian { v.to_le_bytes() } else { v.to_be_bytes() };
        let mut bytes = if little_endian { b"II".to_vec() } else { b"MM".to_vec() };
        bytes.extend(u16(42));
        bytes.extend(u32(8));
        bytes.extend(u16(entries.len() as u16));
        for &(tag, kind, count, value) in entries {
            bytes.extend(u16(tag));
            bytes.extend(u16(kind));
            bytes.extend(u32(count));
            match kind {
                3 => bytes.extend(u16(value as u16).into_iter().chain([0, 0])),
                _ => bytes.extend(u32(value)),
            }
        }
        bytes
    }

    fn jpeg(segments: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8];
        for (marker, payload) in segments {
            bytes.extend([0xFF, *marker]);
            bytes.extend(((payload.len() + 2) as u16).to_be_bytes());
            bytes.extend(payload);
        }
        bytes
    }

    fn app1(exif: &[u8]) -> (u8, Vec<u8>) {
        (0xE1, [b"Exif\0\0", exif].concat())
    }

    #[test]
    fn the_tag_is_found_in_every_container() {
        for value in 1..=8 {
            for little_endian in [true, false] {
                let exif = tiff(little_endian, &[(0x010F, 3, 1, 9), (0x0112, 3, 1, value)]);
                let expected = Orientation::from_exif(value.into()).unwrap();
                assert_eq!(orientation(&exif, ImageFormat::Tiff), expected);
                assert_eq!(orientation(&jpeg(&[app1(&exif)]), ImageFormat::Jpeg), expected);

                let mut png = b"\x89PNG\r\n\x1A\n\0\0\0\0IDAT\0\0\0\0".to_vec();
                png.extend((exif.len() as u32).to_be_bytes().iter().chain(b"eXIf").chain(&exif));
                assert_eq!(orientation(&png, ImageFormat::Png), expected);

                // An odd chunk before it is padded to an even length.
                let mut webp = b"RIFF\xFF\0\0\0WEBPVP8X\x03\0\0\0\x08bc\0EXIF".to_vec();
                webp.extend((exif.len() as u32).to_le_bytes().iter().chain(&exif));
                assert_eq!(orientation(&webp, ImageFormat::WebP), expected);
                for (at, unannounced) in [(20, 0), (15, b' '), (4, 20)] {
                    let kept = std::mem::replace(&mut webp[at], unannounced);
                    assert_eq!(orientation(&webp, ImageFormat::WebP), Orientation::Normal, "byte {at}");
                    webp[at] = kept;
                }
            }
        }
    }

    #[test]
    fn xmp_counts_only_where_exif_has_no_tag() {
        let xmp = |text: &str| (0xE1, [b"http://ns.adobe.com/xap/1.0/\0".as_slice(), text.as_bytes()].concat());
        let attribute = xmp("<rdf:Description tiff:Orientation=\"6\"/>");
        let element = xmp("<tiff:Orientation>8</tiff:Orientation>");
        let read = |segments: &[(u8, Vec<u8>)]| orientation(&jpeg(segments), ImageFormat::Jpeg);
        assert_eq!(read(std::slice::from_ref(&attribute)), Orientation::Rotate90);
        assert_eq!(read(std::slice::from_ref(&element)), Orientation::Rotate270);
        assert_eq!(read(&[app1(&tiff(true, &[(0x0112, 3, 1, 3)])), attribute.clone()]), Orientation::Rotate180);
        // An invalid EXIF value still counts as a value: Pillow does not read XMP then either.
        assert_eq!(read(&[app1(&tiff(true, &[(0x0112, 3, 1, 0)])), attribute.clone()]), Orientation::Normal);
        assert_eq!(read(&[app1(&tiff(true, &[(0x010F, 3, 1, 3)])), attribute.clone()]), Orientation::Rotate90);
        assert_eq!(read(&[app1(b"no TIFF structure"), attribute.clone()]), Orientation::Normal);
        assert_eq!(read(&[app1(b""), attribute]), Orientation::Rotate90);
    }

    #[test]
    fn damaged_metadata_means_as_stored() {
        let good = tiff(true, &[(0x0112, 3, 1, 6)]);
        for end in 0..good.len() {
            assert_eq!(orientation(&good[..end], ImageFormat::Tiff), Orientation::Normal, "cut at {end}");
        }
        for entry in [(0x0112, 3, 1, 9), (0x0112, 3, 0, 6), (0x0112, 2, 1, 6), (0x0112, 3, 1, 65535)] {
            assert_eq!(orientation(&tiff(true, &[entry]), ImageFormat::Tiff), Orientation::Normal, "{entry:?}");
        }
        assert_eq!(orientation(&tiff(false, &[(0x0112, 4, 1, 6)]), ImageFormat::Tiff), Orientation::Rotate90);
        let mut far = good.clone();
        far[4..8].fill(0xFF);
        assert_eq!(orientation(&far, ImageFormat::Tiff), Orientation::Normal);
    }

    /// The attack that defeats a full EXIF parser: every entry of the directory points back to the directory. Following
    /// the pointers would never end.
    #[test]
    fn a_directory_of_pointers_to_itself_is_not_followed() {
        let entries = vec![(0x8769, 4, 1, 8); 5000];
        assert_eq!(orientation(&jpeg(&[app1(&tiff(true, &entries))]), ImageFormat::Jpeg), Orientation::Normal);
    }
}
