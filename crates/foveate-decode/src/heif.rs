//! The container of AVIF and HEIC (ISO/IEC 23008-12): which item is the picture, where its bytes are, and how it is to
//! be turned.

use std::collections::HashMap;

use foveate_core::Size;

use crate::ImageFormat;

/// Most tiles of one image, and most entries of any table: a phone's photo has 48 tiles, the largest grid 65,536.
const MOST_ENTRIES: usize = 1 << 17;

/// Properties that an association of 15 bits can name.
const MOST_PROPERTIES: usize = 1 << 15;

/// The primary image of a file.
#[derive(Debug, PartialEq)]
pub struct StillImage {
    /// Size before any turning.
    pub size: Size,
    /// The encoded image, or the tiles of a grid in reading order.
    pub tiles: Vec<Vec<u8>>,
    /// Columns of the grid; 1 if the image is no grid.
    pub columns: usize,
    /// The colours of its samples, if the container says so and not the bitstream alone.
    pub color: Option<CodedColor>,
}

/// Code points of ITU-T H.273.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedColor {
    /// MatrixCoefficients.
    pub matrix: u16,
    /// True if samples use their full range.
    pub is_full_range: bool,
}

/// The format by the brands of the file type box; `None` for another container, such as a video's.
pub(crate) fn format(file: &[u8]) -> Option<ImageFormat> {
    let length = u32::from_be_bytes(*file.first_chunk()?) as usize;
    let brands = file.get(4..length.min(file.len()))?.strip_prefix(b"ftyp")?.as_chunks::<4>().0;
    let (major, compatible) = brands.split_first()?;
    // `mif1` and `msf1` are any coding's: the compatible brands say which, after the version.
    let is_any = matches!(major, b"mif1" | b"msf1" | b"miaf");
    let brands = [major].into_iter().chain(compatible.iter().skip(1).filter(|_| is_any));
    for brand in brands {
        match brand {
            b"avif" | b"avis" => return Some(ImageFormat::Avif),
            b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"hevm" | b"hevs" => {
                return Some(ImageFormat::Heic);
            }
            _ => {}
        }
    }
    is_any.then_some(ImageFormat::Heic)
}

/// Finds the primary image.
///
/// # Errors
/// The reason if the container is damaged, or has no image of a kind that is read.
pub fn still_image(file: &[u8]) -> Result<StillImage, &'static str> {
    let meta = ItemTable::read(file).ok_or("its item tables are damaged or missing")?;
    let coding = meta.kind_of(meta.primary).ok_or("it has no primary image")?;
    let properties = meta.properties_of(meta.primary);
    let mut color = None;
    let mut size = None;
    for property in &properties {
        match (&property.kind, property.payload) {
            (b"ispe", payload) => size = payload.get(4..).and_then(size_of),
            (b"colr", [b'n', b'c', b'l', b'x', _, _, _, _, high, low, range, ..]) => {
                color =
                    Some(CodedColor { matrix: u16::from_be_bytes([*high, *low]), is_full_range: range & 0x80 != 0 });
            }
            _ => {}
        }
    }
    let places = meta.places();
    if coding != *b"grid" {
        let bytes = places.bytes_of(file, meta.primary).ok_or("its image lies outside of the file")?;
        let size = size.ok_or("its image has no size")?;
        return Ok(StillImage { size, tiles: vec![bytes], columns: 1, color });
    }
    let grid = places.bytes_of(file, meta.primary).ok_or("its grid lies outside of the file")?;
    let [_, flags, rows, columns, sides @ ..] = grid.as_slice() else { return Err("its grid is cut off") };
    let rows = usize::from(*rows) + 1;
    let columns = usize::from(*columns) + 1;
    let size = if flags & 1 == 1 {
        size_of(sides)
    } else {
        let sides = sides.first_chunk::<4>();
        sides.map(|[a, b, c, d]| Size::new(u16::from_be_bytes([*a, *b]).into(), u16::from_be_bytes([*c, *d]).into()))
    };
    let items = meta.tiles_of(meta.primary).ok_or("its grid has no tiles")?;
    if items.len() != rows * columns {
        return Err("its grid has too many or too few tiles");
    }
    let mut tiles = Vec::new();
    let mut total = 0;
    for item in items {
        let bytes = places.bytes_of(file, item).ok_or("a tile lies outside of the file")?;
        // Tiles that share their bytes would need more memory than the file has bytes.
        total += bytes.len();
        if total > file.len() {
            return Err("its tiles have more bytes than the file");
        }
        tiles.push(bytes);
    }
    Ok(StillImage { size: size.ok_or("its grid is cut off")?, tiles, columns, color })
}

/// A turning that the container asks for: first the rotation, then the mirror.
pub(crate) struct ContainerTurn {
    /// Quarter turns against the clock.
    pub(crate) quarters: u8,
    /// 0 exchanges top and bottom, 1 left and right.
    pub(crate) mirror: Option<u8>,
}

/// The turning of the primary image; none if the container is damaged.
pub(crate) fn turn(file: &[u8]) -> ContainerTurn {
    let mut turn = ContainerTurn { quarters: 0, mirror: None };
    let Some(meta) = ItemTable::read(file) else { return turn };
    for property in meta.properties_of(meta.primary) {
        match (&property.kind, property.payload.first()) {
            (b"irot", Some(angle)) => turn.quarters = angle & 3,
            (b"imir", Some(axis)) => turn.mirror = Some(axis & 1),
            _ => {}
        }
    }
    turn
}

fn size_of(sides: &[u8]) -> Option<Size> {
    let [a, b, c, d, e, f, g, h] = sides.first_chunk()?;
    Some(Size::new(u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])))
}

#[derive(Clone, Copy)]
struct ContainerBox<'a> {
    kind: [u8; 4],
    payload: &'a [u8],
}

/// The boxes that `rest` holds, until one is damaged.
fn boxes(mut rest: &[u8]) -> impl Iterator<Item = ContainerBox<'_>> {
    std::iter::from_fn(move || {
        let mut fields = BoxFields { rest };
        let length = fields.number(4)?;
        let kind = *fields.take(4)?.first_chunk()?;
        let length = match length {
            0 => rest.len(),
            1 => usize::try_from(fields.number(8)?).ok()?,
            length => usize::try_from(length).ok()?,
        };
        let header = rest.len() - fields.rest.len();
        let payload = rest.get(header..length)?;
        rest = &rest[length..];
        Some(ContainerBox { kind, payload })
    })
}

/// Big-endian fields of a box.
#[derive(Clone, Copy)]
struct BoxFields<'a> {
    rest: &'a [u8],
}

impl<'a> BoxFields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// An unsigned number of 0 to 8 bytes.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A table's number of entries.
    fn count(&mut self, bytes: usize) -> Option<usize> {
        usize::try_from(self.number(bytes)?).ok().filter(|count| *count <= MOST_ENTRIES)
    }
}

/// The boxes of `meta` that say what a file holds, with their versions and flags.
struct ItemTable<'a> {
    primary: u64,
    infos: &'a [u8],
    locations: &'a [u8],
    references: &'a [u8],
    properties: &'a [u8],
    /// Bytes of items that are kept among the tables.
    data: &'a [u8],
}

impl<'a> ItemTable<'a> {
    fn read(file: &'a [u8]) -> Option<Self> {
        let meta = boxes(file).find(|part| part.kind == *b"meta")?.payload.get(4..)?;
        let mut table = Self { primary: 0, infos: &[], locations: &[], references: &[], properties: &[], data: &[] };
        let mut primary = None;
        for ContainerBox { kind, payload } in boxes(meta) {
            match &kind {
                b"pitm" => {
                    let mut fields = BoxFields { rest: payload };
                    let version = fields.number(4)? >> 24;
                    primary = fields.number(if version == 0 { 2 } else { 4 });
                }
                b"iinf" => table.infos = payload,
                b"iloc" => table.locations = payload,
                b"iref" => table.references = payload,
                b"iprp" => table.properties = payload,
                b"idat" => table.data = payload,
                _ => {}
            }
        }
        table.primary = primary?;
        Some(table)
    }

    fn kind_of(&self, item: u64) -> Option<[u8; 4]> {
        let mut fields = BoxFields { rest: self.infos };
        let version = fields.number(4)? >> 24;
        fields.take(if version == 0 { 2 } else { 4 })?;
        for entry in boxes(fields.rest) {
            let mut fields = BoxFields { rest: entry.payload };
            let version = fields.number(4)? >> 24;
            if version >= 2 && fields.number(if version == 2 { 2 } else { 4 })? == item {
                fields.take(2)?;
                return fields.take(4)?.first_chunk().copied();
            }
        }
        None
    }

    /// The properties of an item, in the order that they apply in.
    fn properties_of(&self, item: u64) -> Vec<ContainerBox<'a>> {
        let container = boxes(self.properties).find(|part| part.kind == *b"ipco").map_or(&[][..], |part| part.payload);
        let properties: Vec<_> = boxes(container).take(MOST_PROPERTIES).collect();
        let mut tables = boxes(self.properties).filter(|part| part.kind == *b"ipma");
        // An item is in one table.
        let places = tables.find_map(|table| associated(table.payload, item)).unwrap_or_default();
        places.into_iter().filter_map(|place| properties.get(place).copied()).collect()
    }

    /// The items that a grid is made of.
    fn tiles_of(&self, grid: u64) -> Option<Vec<u64>> {
        let mut fields = BoxFields { rest: self.references };
        let bytes = if fields.number(4)? >> 24 == 0 { 2 } else { 4 };
        for reference in boxes(fields.rest).filter(|reference| reference.kind == *b"dimg") {
            let mut fields = BoxFields { rest: reference.payload };
            if fields.number(bytes)? == grid {
                let count = fields.count(2)?;
                return (0..count).map(|_| fields.number(bytes)).collect();
            }
        }
        None
    }

    /// The places of the items' bytes, up to the point at which the table is damaged.
    fn places(&self) -> ItemPlaces<'a> {
        let mut places = ItemPlaces { version: 0, sizes: 0, data: self.data, entries: HashMap::new() };
        let mut fields = BoxFields { rest: self.locations };
        places.read(&mut fields);
        places
    }
}

/// The location table, read once: a grid asks for each of its tiles.
struct ItemPlaces<'a> {
    version: u64,
    /// The lengths of fields, a nibble each.
    sizes: usize,
    data: &'a [u8],
    /// The fields after an item's number in the table.
    entries: HashMap<u64, BoxFields<'a>>,
}

impl<'a> ItemPlaces<'a> {
    fn read(&mut self, fields: &mut BoxFields<'a>) -> Option<()> {
        self.version = fields.number(4)? >> 24;
        self.sizes = fields.number(2)? as usize;
        let id_bytes = if self.version < 2 { 2 } else { 4 };
        for _ in 0..fields.count(id_bytes)? {
            let id = fields.number(id_bytes)?;
            self.entries.entry(id).or_insert(*fields);
            let before = if self.version == 0 { 2 } else { 4 };
            fields.take(before + self.nibble(2))?;
            let extents = fields.count(2)?;
            fields.take(extents * (self.index_bytes() + self.nibble(0) + self.nibble(1)))?;
        }
        Some(())
    }

    fn nibble(&self, at: usize) -> usize {
        self.sizes >> (12 - 4 * at) & 15
    }

    fn index_bytes(&self) -> usize {
        if self.version == 0 { 0 } else { self.nibble(3) }
    }

    /// The bytes of an item, whose extents are put together.
    fn bytes_of(&self, file: &[u8], item: u64) -> Option<Vec<u8>> {
        let mut fields = *self.entries.get(&item)?;
        let method = if self.version == 0 { 0 } else { fields.number(2)? & 15 };
        fields.take(2)?;
        let base = fields.number(self.nibble(2))?;
        let source = match method {
            0 => file,
            1 => self.data,
            _ => return None,
        };
        let mut bytes = Vec::new();
        for _ in 0..fields.count(2)? {
            fields.take(self.index_bytes())?;
            let start = usize::try_from(base.checked_add(fields.number(self.nibble(0))?)?).ok()?;
            let length = usize::try_from(fields.number(self.nibble(1))?).ok()?;
            let end = if length == 0 { source.len() } else { start.checked_add(length)? };
            bytes.extend_from_slice(source.get(start..end)?);
            // Extents that overlap would need more memory than the file has bytes.
            if bytes.len() > source.len() {
                return None;
            }
        }
        Some(bytes)
    }
}

/// The places of an item's properties in the property container.
fn associated(table: &[u8], item: u64) -> Option<Vec<usize>> {
    let mut fields = BoxFields { rest: table };
    let head = fields.number(4)?;
    let id_bytes = if head >> 24 == 0 { 2 } else { 4 };
    let is_wide = head & 1 == 1;
    for _ in 0..fields.count(4)? {
        let id = fields.number(id_bytes)?;
        let mut places = Vec::new();
        for _ in 0..fields.count(1)? {
            // The first bit says that the property is essential, and 0 that there is none.
            let number = if is_wide { fields.number(2)? & 0x7FFF } else { fields.number(1)? & 0x7F };
            places.extend((number as usize).checked_sub(1));
        }
        if id == item {
            return Some(places);
        }
    }
    None
}
