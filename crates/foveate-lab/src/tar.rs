//! Photos in one tar, to measure what reading them in one go would bring.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Length of a header, and of what a file is padded to.
const BLOCK: usize = 512;

/// Writes these photos' bytes to `path`, named by their numbers.
pub(crate) fn write<'a>(photos: impl Iterator<Item = &'a [u8]>, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for (number, photo) in photos.enumerate() {
        out.write_all(&header(number, photo.len()))?;
        out.write_all(photo)?;
        out.write_all(&[0; BLOCK][..photo.len().next_multiple_of(BLOCK) - photo.len()])?;
    }
    out.write_all(&[0; 2 * BLOCK])?;
    out.into_inner()?.sync_all()
}

/// Returns the header of a regular file in the format of POSIX (ustar). The extension says that it is an image, and
/// decoders go by the bytes.
fn header(number: usize, len: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let name = format!("{number:08}.jpg");
    let length = format!("{len:011o}");
    let fields = [
        (0, name.as_str()),
        (100, "0000644"),
        (124, length.as_str()),
        (136, "00000000000"),
        // The checksum counts itself as spaces.
        (148, "        "),
        (156, "0"),
        (257, "ustar\u{0}00"),
    ];
    for (at, text) in fields {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\u{0} ").as_bytes());
    header
}
