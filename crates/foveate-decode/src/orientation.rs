use foveate_core::{CHANNELS, LimitError, PixelBuf, Size};

use crate::{ImageFormat, jpeg};

/// How a stored image must be turned to be seen upright: the EXIF `Orientation` tag, 1 to 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Orientation {
    /// 1: as stored.
    #[default]
    Normal,
    /// 2: mirror left and right.
    FlipHorizontal,
    /// 3: turn by half.
    Rotate180,
    /// 4: mirror top and bottom.
    FlipVertical,
    /// 5: exchange rows and columns.
    Transpose,
    /// 6: turn clockwise by a quarter.
    Rotate90,
    /// 7: exchange rows and columns over the other diagonal.
    Transverse,
    /// 8: turn counter-clockwise by a quarter.
    Rotate270,
}

/// Side of the square that a transposition moves at once: its source rows and target rows stay in the L1 cache.
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

    /// Whether width and height change places.
    pub const fn transposes(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }

    /// The upright size of an image stored with `size`.
    #[must_use]
    pub const fn apply_size(self, size: Size) -> Size {
        if self.transposes() { size.transposed() } else { size }
    }

    /// Turns `pixels` upright. `scratch` lends the memory that a transposition needs and is exchanged with it; its
    /// content afterwards is unspecified. Nothing is allocated once `scratch` has been this large before.
    ///
    /// # Errors
    /// When `scratch` may not become as large as the image; `pixels` is unchanged then.
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
                std::mem::swap(pixels, scratch);
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
    let (width, height) = (size.width as usize, size.height as usize);
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

/// The orientation that a file's metadata asks for: the EXIF tag of JPEG, PNG, WebP and TIFF, or where EXIF has none
/// the `tiff:Orientation` of its XMP, as Pillow's `ImageOps.exif_transpose` finds it. Absent, damaged or invalid
/// metadata means [`Orientation::Normal`]; no input makes it fail.
pub fn orientation(bytes: &[u8], format: ImageFormat) -> Orientation {
    let (exif, xmp) = match format {
        ImageFormat::Jpeg => jpeg_metadata(bytes),
        ImageFormat::Png => png_metadata(bytes),
        ImageFormat::WebP => webp_metadata(bytes),
        ImageFormat::Tiff => (Some(bytes), None),
        ImageFormat::Gif | ImageFormat::Bmp => return Orientation::Normal,
    };
    let tags = exif.map(Tags::read).unwrap_or_default();
    match tags.orientation {
        // A tag with an invalid value counts as a tag: XMP is not asked then.
        Some(value) => Orientation::from_exif(value).unwrap_or_default(),
        None => tags.xmp.or(xmp).and_then(xmp_orientation).unwrap_or_default(),
    }
}

type Metadata<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn jpeg_metadata(bytes: &[u8]) -> Metadata<'_> {
    let segments = |prefix: &'static [u8]| {
        jpeg::header_segments(bytes, 0xE1).filter_map(move |payload| payload.strip_prefix(prefix))
    };
    (segments(b"Exif\0\0").next(), segments(b"http://ns.adobe.com/xap/1.0/\0").last())
}

fn png_metadata(bytes: &[u8]) -> Metadata<'_> {
    let mut found = (None, None);
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let Some((&[l3, l2, l1, l0, t0, t1, t2, t3], after)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes([l3, l2, l1, l0]) as usize;
        let Some(payload) = after.get(..length) else { break };
        match &[t0, t1, t2, t3] {
            b"eXIf" => found.0 = Some(payload),
            b"iTXt" => found.1 = png_xmp(payload).or(found.1),
            b"IEND" => break,
            _ => {}
        }
        // Each chunk ends with a checksum of four bytes.
        rest = after.get(length + 4..).unwrap_or_default();
    }
    found
}

/// The text of an uncompressed XMP chunk: keyword, compression flag and method, language, translated keyword, text.
fn png_xmp(payload: &[u8]) -> Option<&[u8]> {
    payload.strip_prefix(b"XML:com.adobe.xmp\0\0\0")
}

fn webp_metadata(bytes: &[u8]) -> Metadata<'_> {
    let mut found = (None, None);
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((&[t0, t1, t2, t3, l0, l1, l2, l3], after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some(payload) = after.get(..length) else { break };
        match &[t0, t1, t2, t3] {
            b"EXIF" => found.0 = found.0.or(Some(payload)),
            b"XMP " => found.1 = found.1.or(Some(payload)),
            _ => {}
        }
        // Chunks begin at even offsets.
        rest = after.get(length + length % 2..).unwrap_or_default();
    }
    found
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

/// The two tags wanted of a TIFF structure's first directory.
///
/// Read by hand because the maintained EXIF crate parses every directory of the file: a hostile 64 KB block whose
/// entries all point to one shared directory costs it gigabytes. This reads each entry of one directory once.
#[derive(Default)]
struct Tags<'a> {
    orientation: Option<u64>,
    xmp: Option<&'a [u8]>,
}

impl<'a> Tags<'a> {
    /// What can be read; empty for anything that is no TIFF structure.
    fn read(mut block: &'a [u8]) -> Self {
        while let Some(rest) = block.strip_prefix(b"Exif\0\0") {
            block = rest;
        }
        let mut tags = Self::default();
        if let Some(tiff) = Tiff::new(block) {
            // `None` is how the walk ends early at a damaged place; what was found before it counts.
            let _ = tiff.first_directory(&mut tags);
        }
        tags
    }
}

struct Tiff<'a> {
    bytes: &'a [u8],
    little_endian: bool,
    big: bool,
}

impl<'a> Tiff<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let (little_endian, big) = match bytes.first_chunk()? {
            b"II*\0" => (true, false),
            b"MM\0*" => (false, false),
            b"II+\0" => (true, true),
            b"MM\0+" => (false, true),
            _ => return None,
        };
        Some(Self { bytes, little_endian, big })
    }

    fn first_directory(&self, tags: &mut Tags<'a>) -> Option<()> {
        let word = if self.big { 8 } else { 4 };
        let start = self.uint(if self.big { 8 } else { 4 }, word)?;
        let counter = if self.big { 8 } else { 2 };
        let count = self.uint(usize::try_from(start).ok()?, counter)?;
        let mut at = usize::try_from(start).ok()?.checked_add(counter)?;
        for _ in 0..count.min(u64::from(u16::MAX)) {
            let entry = Entry {
                tag: self.uint(at, 2)?,
                kind: self.uint(at + 2, 2)?,
                count: self.uint(at + 4, word)?,
                value_at: at + 4 + word,
            };
            self.bytes.get(at..entry.value_at + word)?;
            self.take(&entry, word, tags);
            at = entry.value_at + word;
        }
        Some(())
    }

    fn take(&self, entry: &Entry, word: usize, tags: &mut Tags<'a>) -> Option<()> {
        match (entry.tag, entry.kind) {
            // SHORT, LONG and their signed kinds. Other types are no number for Pillow either.
            (0x0112, 3 | 8) if entry.count == 1 => tags.orientation = Some(self.uint(entry.value_at, 2)?),
            (0x0112, 4 | 9) if entry.count == 1 => tags.orientation = Some(self.uint(entry.value_at, 4)?),
            (0x02BC, 1 | 7) if entry.count > word as u64 => {
                let start = usize::try_from(self.uint(entry.value_at, word)?).ok()?;
                let end = start.checked_add(usize::try_from(entry.count).ok()?)?;
                tags.xmp = Some(self.bytes.get(start..end)?);
            }
            _ => {}
        }
        Some(())
    }

    fn uint(&self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(len)?)?;
        let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if self.little_endian { bytes.iter().rev().fold(0, join) } else { bytes.iter().fold(0, join) })
    }
}

struct Entry {
    tag: u64,
    kind: u64,
    count: u64,
    value_at: usize,
}
