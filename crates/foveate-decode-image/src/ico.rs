//! Windows icons: the largest image, which is a PNG, or a BMP without its file header and with a mask behind it.

/// Bytes before the directory, and of one of its entries.
const HEADER: usize = 6;
const ENTRY: usize = 16;

/// An image of an icon, as a file.
pub(crate) enum IconImage<'a> {
    Png(&'a [u8]),
    Bmp(Vec<u8>),
}

/// Finds the largest image, of several the one with the fewest colours, as Pillow does. `None` if the icon is damaged.
pub(crate) fn largest(file: &[u8]) -> Option<IconImage<'_>> {
    let count = usize::from(u16::from_le_bytes(*file.get(4..HEADER)?.first_chunk()?));
    let mut best: Option<(u32, u16, &[u8; ENTRY])> = None;
    for entry in file.get(HEADER..)?.as_chunks::<ENTRY>().0.iter().take(count) {
        // A side of 0 is one of 256.
        let area = (u32::from(entry[0].wrapping_sub(1)) + 1) * (u32::from(entry[1].wrapping_sub(1)) + 1);
        let bits = u16::from_le_bytes([entry[6], entry[7]]);
        if best.is_none_or(|(most, least, _)| area > most || area == most && bits < least) {
            best = Some((area, bits, entry));
        }
    }
    let (_, _, entry) = best?;
    let image = file.get(u32_at(entry, 12)? as usize..)?;
    // A length beyond the end is that of a truncated file, which the image's own decoder says.
    let image = &image[..image.len().min(u32_at(entry, 8)? as usize)];
    if image.starts_with(b"\x89PNG") {
        return Some(IconImage::Png(image));
    }
    let header = u32_at(image, 0)?;
    let bits = u16::from_le_bytes(*image.get(14..)?.first_chunk()?);
    let colors = match (u32_at(image, 32)?, bits) {
        (0, 1..=8) => 1 << bits,
        (used, _) => used,
    };
    let start = header.checked_add(colors.checked_mul(4)?)?.checked_add(14)?;
    let length = u32::try_from(image.len() + 14).ok()?;
    let mut bmp = [&b"BM"[..], &length.to_le_bytes(), &[0; 4], &start.to_le_bytes(), image].concat();
    // The mask counts as a second half.
    let height = u32_at(image, 8)? / 2;
    bmp[22..26].copy_from_slice(&height.to_le_bytes());
    Some(IconImage::Bmp(bmp))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
