//! The two tags that are needed from a TIFF structure's first directory.
//!
//! Hand-written because the maintained EXIF crate parses every directory of the file: a hostile 64 KB block whose
//! entries all point to one shared directory costs it gigabytes. This reads each entry of one directory once.

const ORIENTATION: u64 = 0x0112;
const XMP: u64 = 0x02BC;

/// The orientation tag of a TIFF structure.
pub(super) enum OrientationTag {
    Absent,
    /// It has no whole number.
    Invalid,
    Value(u64),
}

/// Reads the orientation tag. Like Pillow, it takes the first tag, the first of several values, and any numeric type
/// except BYTE.
pub(super) fn orientation(mut block: &[u8]) -> OrientationTag {
    while let Some(rest) = block.strip_prefix(b"Exif\0\0") {
        block = rest;
    }
    let Some(tiff) = Tiff::new(block) else { return OrientationTag::Absent };
    let Some(entries) = tiff.entries() else { return OrientationTag::Absent };
    for entry in entries.filter(|entry| entry.tag == ORIENTATION) {
        match tiff.number(&entry) {
            Some(value) if value.fract() == 0.0 && value >= 0.0 => return OrientationTag::Value(value as u64),
            Some(_) => return OrientationTag::Invalid,
            None => {}
        }
    }
    OrientationTag::Absent
}

/// Returns true if the block has the header of a TIFF structure.
pub(super) fn is_tiff(block: &[u8]) -> bool {
    Tiff::new(block).is_some_and(|tiff| tiff.uint(tiff.word(), tiff.word()).is_some())
}

/// The XMP block of a TIFF file.
pub(super) fn xmp(block: &[u8]) -> Option<&[u8]> {
    let tiff = Tiff::new(block)?;
    tiff.entries()?.find(|entry| entry.tag == XMP && matches!(entry.kind, 1 | 7)).and_then(|entry| tiff.data(&entry))
}

struct Tiff<'a> {
    bytes: &'a [u8],
    little_endian: bool,
    big: bool,
}

struct TagEntry {
    tag: u64,
    kind: u64,
    count: u64,
    value_at: usize,
}

impl<'a> Tiff<'a> {
    /// The second form of a header has its version in the wrong byte order. Cameras wrote it, and Pillow reads it.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<4>()?;
        let big = matches!(header, b"II+\0" | b"MM\0+");
        let is_known = big || matches!(header, b"II*\0" | b"II\0*" | b"MM\0*" | b"MM*\0");
        is_known.then_some(Self { bytes, little_endian: header[0] == b'I', big })
    }

    /// Bytes of an offset.
    fn word(&self) -> usize {
        if self.big { 8 } else { 4 }
    }

    /// The first directory's entries, up to the first that is cut off.
    fn entries(&self) -> Option<impl Iterator<Item = TagEntry>> {
        let word = self.word();
        let counter = if self.big { 8 } else { 2 };
        let start = usize::try_from(self.uint(word, word)?).ok()?;
        let count = self.uint(start, counter)?.min(u64::from(u16::MAX)) as usize;
        let first = start.checked_add(counter)?;
        Some((0..count).map_while(move |i| self.entry(first + i * (4 + 2 * word))))
    }

    fn entry(&self, at: usize) -> Option<TagEntry> {
        let value_at = at + 4 + self.word();
        self.bytes.get(at..value_at + self.word())?;
        Some(TagEntry {
            tag: self.uint(at, 2)?,
            kind: self.uint(at + 2, 2)?,
            count: self.uint(at + 4, self.word())?,
            value_at,
        })
    }

    /// An entry's values: within it, or where it points to.
    fn data(&self, entry: &TagEntry) -> Option<&'a [u8]> {
        let length = usize::try_from(entry.count).ok()?.checked_mul(size_of_kind(entry.kind)?)?;
        let at = if length > self.word() {
            usize::try_from(self.uint(entry.value_at, self.word())?).ok()?
        } else {
            entry.value_at
        };
        self.bytes.get(at..at.checked_add(length)?)
    }

    /// The first value, NaN if it is no number; `None` if the entry is to be skipped.
    fn number(&self, entry: &TagEntry) -> Option<f64> {
        let data = self.data(entry)?;
        let size = size_of_kind(entry.kind)?;
        let Some(first) = data.get(..size) else { return Some(f64::NAN) };
        let bits = join(first, self.little_endian);
        Some(match entry.kind {
            3 | 4 | 13 | 16 => bits as f64,
            6 => f64::from(bits as i8),
            8 => f64::from(bits as i16),
            9 => f64::from(bits as i32),
            5 | 10 => {
                let [above, below] = [&first[..4], &first[4..]].map(|half| join(half, self.little_endian));
                if entry.kind == 5 {
                    above as f64 / below as f64
                } else {
                    f64::from(above as i32) / f64::from(below as i32)
                }
            }
            11 => f64::from(f32::from_bits(bits as u32)),
            12 => f64::from_bits(bits),
            _ => f64::NAN,
        })
    }

    fn uint(&self, at: usize, len: usize) -> Option<u64> {
        Some(join(self.bytes.get(at..at.checked_add(len)?)?, self.little_endian))
    }
}

fn join(bytes: &[u8], little_endian: bool) -> u64 {
    let mut value = 0;
    for i in 0..bytes.len() {
        let byte = if little_endian { bytes[bytes.len() - 1 - i] } else { bytes[i] };
        value = value << 8 | u64::from(byte);
    }
    value
}

/// Bytes of a value, by its type's number; `None` for types that do not exist.
fn size_of_kind(kind: u64) -> Option<usize> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}
