//! The rows of an incomplete part, on disk.
//!
//! Each part has two files. `part-N.vectors` holds only the vectors, after the free bytes that the format asked for.
//! `part-N.rows` holds frames, one per appended block, with everything else:
//!
//! ```text
//! frame   = payload length u32 · XXH3-64 of payload u64 · payload
//! payload = rows n u32 · XXH3-64 of the block's vectors u64
//!         · index u64 × n · content hash u64 × n · width u32 × n · height u32 × n · id length u32 × n
//!         · value length u32 × n × columns · ids (UTF-8) · values (UTF-8)
//! ```
//!
//! Values are row by row, and the length of a null is 2³² − 1. The run's settings say how many columns there are. All
//! fields are little-endian. Only bytes committed in the journal count; resuming cuts off the rest.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::staging::open_at;
use crate::{ActOnRow, Element, Rows, Shape, SinkError, StoredRow};

/// The committed length of one part's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogExtent {
    pub(crate) part: u64,
    pub(crate) rows: u64,
    /// Length of the vector file, including the free bytes at its start.
    pub(crate) vectors_len: u64,
    /// Length of the frame file.
    pub(crate) frames_len: u64,
}

/// The files of one part's log.
#[derive(Clone, Debug)]
pub(crate) struct LogPaths {
    pub(crate) vectors: PathBuf,
    pub(crate) frames: PathBuf,
}

impl LogPaths {
    pub(crate) fn new(staging: &Path, part: u64) -> Self {
        Self {
            vectors: staging.join(format!("part-{part:05}.vectors")),
            frames: staging.join(format!("part-{part:05}.rows")),
        }
    }
}

/// Appends rows to a part's log.
#[derive(Debug)]
pub(crate) struct PartLog {
    paths: LogPaths,
    vectors: File,
    frames: File,
    extent: LogExtent,
    dirty: bool,
}

impl PartLog {
    /// Starts the log of part `part`, with `free` bytes reserved at the start of the vector file.
    pub(crate) fn create(staging: &Path, part: u64, free: u64) -> Result<Self, SinkError> {
        let paths = LogPaths::new(staging, part);
        let mut vectors = File::create(&paths.vectors).map_err(SinkError::io("create", &paths.vectors))?;
        let frames = File::create(&paths.frames).map_err(SinkError::io("create", &paths.frames))?;
        vectors.write_all(&vec![0; free as usize]).map_err(SinkError::io("write", &paths.vectors))?;
        let extent = LogExtent { part, rows: 0, vectors_len: free, frames_len: 0 };
        Ok(Self { paths, vectors, frames, extent, dirty: true })
    }

    /// Continues a log at its last commit and cuts off later bytes.
    pub(crate) fn reopen(staging: &Path, extent: LogExtent) -> Result<Self, SinkError> {
        let paths = LogPaths::new(staging, extent.part);
        let vectors = open_at(&paths.vectors, extent.vectors_len)?;
        let frames = open_at(&paths.frames, extent.frames_len)?;
        Ok(Self { paths, vectors, frames, extent, dirty: false })
    }

    /// Appends one block as one frame, or as several if its text is long.
    pub(crate) fn append(&mut self, mut block: Block<'_>, scratch: &mut Scratch) -> Result<(), SinkError> {
        while let Some(frame) = block.split_frame() {
            self.append_frame(&frame, scratch)?;
        }
        Ok(())
    }

    fn append_frame(&mut self, block: &Block<'_>, scratch: &mut Scratch) -> Result<(), SinkError> {
        let (vectors, frame) = scratch.encode(block);
        self.dirty = true;
        self.vectors.write_all(vectors).map_err(SinkError::io("write", &self.paths.vectors))?;
        self.frames.write_all(frame).map_err(SinkError::io("write", &self.paths.frames))?;
        self.extent.rows += block.range.len() as u64;
        self.extent.vectors_len += vectors.len() as u64;
        self.extent.frames_len += frame.len() as u64;
        Ok(())
    }

    /// Makes the appended blocks durable.
    pub(crate) fn sync(&mut self) -> Result<(), SinkError> {
        if self.dirty {
            self.vectors.sync_data().map_err(SinkError::io("sync", &self.paths.vectors))?;
            self.frames.sync_data().map_err(SinkError::io("sync", &self.paths.frames))?;
            self.dirty = false;
        }
        Ok(())
    }

    pub(crate) fn extent(&self) -> &LogExtent {
        &self.extent
    }
}

/// The appended rows that belong to one part.
pub(crate) struct Block<'a> {
    pub(crate) rows: &'a Rows<'a>,
    pub(crate) range: Range<usize>,
    pub(crate) dim: usize,
    pub(crate) element: Element,
}

/// Text of a frame or a block in bytes, from which on no further row is added. Bounds memory, and keeps every length
/// within 32 bits.
const MOST_TEXT: usize = 64 << 20;

impl<'a> Block<'a> {
    /// Takes the rows of the next frame off the front; `None` if no row is left.
    fn split_frame(&mut self) -> Option<Self> {
        let Self { rows, range, dim, element } = self;
        let mut text = 0;
        let count = range.clone().take_while(|&row| {
            let has_room = text < MOST_TEXT;
            text += rows.text_len(row);
            has_room
        });
        let frame = range.start..range.start + count.count();
        range.start = frame.end;
        (!frame.is_empty()).then_some(Self { rows, range: frame, dim: *dim, element: *element })
    }

    fn values(&self) -> impl Iterator<Item = Option<&'a str>> {
        let values = |row| self.rows.values(row).iter().map(Option::as_deref);
        self.range.clone().flat_map(values)
    }
}

/// Memory for encoding blocks, reused from block to block.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    vectors: Vec<u8>,
    frame: Vec<u8>,
    halves: Vec<half::f16>,
}

/// Length and checksum before each payload.
const FRAME_HEAD: usize = 12;
/// Bytes of a payload's fixed start.
const PAYLOAD_HEAD: usize = 12;
/// Bytes per row in a payload, apart from columns and text.
const PER_ROW: usize = 8 + 8 + 4 + 4 + 4;
/// The length of a null.
const NULL: u32 = u32::MAX;

impl Scratch {
    fn encode(&mut self, block: &Block<'_>) -> (&[u8], &[u8]) {
        self.encode_vectors(block);
        let Block { rows, range, .. } = block;
        let frame = &mut self.frame;
        frame.clear();
        frame.extend_from_slice(&[0; FRAME_HEAD]);
        frame.extend_from_slice(&(range.len() as u32).to_le_bytes());
        frame.extend_from_slice(&xxh3_64(&self.vectors).to_le_bytes());
        frame.extend(rows.index[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        frame.extend(rows.xxh3[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        frame.extend(rows.width[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        frame.extend(rows.height[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        let ids = &rows.id[range.clone()];
        frame.extend(ids.iter().flat_map(|id| (id.len() as u32).to_le_bytes()));
        frame.extend(block.values().flat_map(|value| value.map_or(NULL, |text| text.len() as u32).to_le_bytes()));
        ids.iter().for_each(|id| frame.extend_from_slice(id.as_bytes()));
        block.values().flatten().for_each(|text| frame.extend_from_slice(text.as_bytes()));
        let (head, payload) = frame.split_at_mut(FRAME_HEAD);
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&xxh3_64(payload).to_le_bytes());
        (&self.vectors, &self.frame)
    }

    fn encode_vectors(&mut self, block: &Block<'_>) {
        let values = &block.rows.vectors[block.range.start * block.dim..block.range.end * block.dim];
        self.vectors.clear();
        match block.element {
            Element::F32 => self.vectors.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Element::F16 => {
                self.halves.resize(values.len(), half::f16::ZERO);
                self.halves.convert_from_f32_slice(values);
                self.vectors.extend(self.halves.iter().flat_map(|v| v.to_le_bytes()));
            }
        }
    }
}

/// Texts in a row: one string, cut at `ends`.
#[derive(Debug, Default)]
struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    fn get(&self, number: usize) -> &str {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.text[start..self.ends[number]]
    }
}

/// Consecutive rows of a part, in source order.
#[derive(Debug, Default)]
pub struct RowBlock {
    index: Vec<u64>,
    xxh3: Vec<u64>,
    width: Vec<u32>,
    height: Vec<u32>,
    ids: Texts,
    /// Values of columns, row by row; nulls are empty.
    values: Texts,
    nulls: Vec<bool>,
    vectors: Vec<u8>,
}

impl RowBlock {
    /// Number of rows; at least 1 in a block from a [`RowReader`].
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if the block has no rows.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The ids, in row order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|row| self.ids.get(row))
    }

    /// The values of column number `column` of [`SinkOptions::columns`](crate::SinkOptions::columns), in row order.
    pub fn column(&self, column: usize) -> impl ExactSizeIterator<Item = Option<&str>> {
        let columns = self.columns();
        (0..self.len()).map(move |row| self.value(row * columns + column))
    }

    fn columns(&self) -> usize {
        self.nulls.len() / self.len().max(1)
    }

    /// Calls `act` with each row of `shape`.
    pub(super) fn for_each(&self, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
        let vectors = self.vectors.chunks_exact(shape.dim * shape.element.bytes());
        for (row, (id, vector)) in self.ids().zip(vectors).enumerate() {
            let numbers = row * self.columns()..(row + 1) * self.columns();
            let columns: Vec<_> = numbers.map(|number| self.value(number).map(str::to_owned)).collect();
            let (width, height, xxh3) = (self.width[row], self.height[row], self.xxh3[row]);
            let vector = &shape.element.floats(vector);
            act(&StoredRow { id, vector, width, height, xxh3, columns: &columns })?;
        }
        Ok(())
    }

    fn value(&self, number: usize) -> Option<&str> {
        (!self.nulls[number]).then(|| self.values.get(number))
    }

    /// Position of each item in the source, increasing.
    pub fn index(&self) -> &[u64] {
        &self.index
    }

    /// XXH3-64 of each file's bytes.
    pub fn xxh3(&self) -> &[u64] {
        &self.xxh3
    }

    /// Width of each image in pixels.
    pub fn width(&self) -> &[u32] {
        &self.width
    }

    /// Height of each image in pixels.
    pub fn height(&self) -> &[u32] {
        &self.height
    }

    /// The vectors' bytes: little-endian elements, `[len, dim]`, row-major.
    pub fn vectors(&self) -> &[u8] {
        &self.vectors
    }

    fn clear(&mut self) {
        self.index.clear();
        self.xxh3.clear();
        self.width.clear();
        self.height.clear();
        self.ids.clear();
        self.values.clear();
        self.nulls.clear();
        self.vectors.clear();
    }

    fn is_full(&self) -> bool {
        self.ids.text.len() + self.values.text.len() >= MOST_TEXT
    }

    /// Appends rows `range` of `frame`, without their vectors, until the block is full. Returns their number.
    fn take(&mut self, frame: &Self, range: Range<usize>) -> usize {
        let columns = frame.columns();
        let mut end = range.start;
        while end < range.end && !self.is_full() {
            self.ids.push(frame.ids.get(end));
            (end * columns..(end + 1) * columns).for_each(|number| self.values.push(frame.values.get(number)));
            end += 1;
        }
        let taken = range.start..end;
        self.index.extend_from_slice(&frame.index[taken.clone()]);
        self.xxh3.extend_from_slice(&frame.xxh3[taken.clone()]);
        self.width.extend_from_slice(&frame.width[taken.clone()]);
        self.height.extend_from_slice(&frame.height[taken.clone()]);
        self.nulls.extend_from_slice(&frame.nulls[taken.start * columns..taken.end * columns]);
        taken.len()
    }
}

/// Reads a part's rows back, in blocks whose size does not depend on how they were appended.
pub struct RowReader {
    frames: Frames<BufReader<File>>,
    vectors: BufReader<File>,
    paths: LogPaths,
    row_bytes: usize,
    /// Number of the current frame's rows already returned.
    used: usize,
    hash: Xxh3,
    block: RowBlock,
}

impl RowReader {
    pub(crate) fn open(
        paths: &LogPaths,
        extent: &LogExtent,
        free: u64,
        (row_bytes, columns): (usize, usize),
    ) -> Result<Self, SinkError> {
        let frames = File::open(&paths.frames).map_err(SinkError::io("open", &paths.frames))?;
        Ok(Self {
            frames: Frames::new(BufReader::new(frames), extent.frames_len, columns),
            vectors: open_vectors(&paths.vectors, free)?,
            paths: paths.clone(),
            row_bytes,
            used: 0,
            hash: Xxh3::new(),
            block: RowBlock::default(),
        })
    }

    /// Returns the next `rows` rows, or `None` after the last. There are fewer at the part's end, and if their text is
    /// very long. Verifies checksums.
    pub fn next_block(&mut self, rows: usize) -> Result<Option<&RowBlock>, SinkError> {
        self.block.clear();
        while self.block.len() < rows && !self.block.is_full() {
            if self.used == self.frames.current.len() && !self.next_frame()? {
                break;
            }
            let end = self.frames.current.len().min(self.used + rows - self.block.len());
            let count = self.block.take(&self.frames.current, self.used..end);
            self.used += count;
            self.read_vectors(count)?;
        }
        Ok((!self.block.is_empty()).then_some(&self.block))
    }

    fn next_frame(&mut self) -> Result<bool, SinkError> {
        self.used = 0;
        self.hash.reset();
        self.frames.advance().map_err(|error| error.into_sink_error(&self.paths.frames))
    }

    fn read_vectors(&mut self, rows: usize) -> Result<(), SinkError> {
        let from = self.block.vectors.len();
        self.block.vectors.resize(from + rows * self.row_bytes, 0);
        let read = &mut self.block.vectors[from..];
        self.vectors.read_exact(read).map_err(SinkError::io("read", &self.paths.vectors))?;
        self.hash.update(read);
        if self.used == self.frames.current.len() && self.hash.digest() != self.frames.vectors_hash {
            return Err(SinkError::damaged(&self.paths.vectors, "vectors do not match their checksum"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReader").field("paths", &self.paths).finish_non_exhaustive()
    }
}

fn open_vectors(path: &Path, free: u64) -> Result<BufReader<File>, SinkError> {
    let mut file = File::open(path).map_err(SinkError::io("open", path))?;
    file.seek(SeekFrom::Start(free)).map_err(SinkError::io("seek in", path))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// Why a frame cannot be read.
pub(crate) enum FrameError {
    Io(std::io::Error),
    Damaged(&'static str),
}

impl FrameError {
    fn into_sink_error(self, path: &Path) -> SinkError {
        match self {
            Self::Io(error) => SinkError::io("read", path)(error),
            Self::Damaged(reason) => SinkError::damaged(path, reason),
        }
    }
}

/// Parses successive frames.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    reader: R,
    left: u64,
    payload: Vec<u8>,
    current: RowBlock,
    /// Values of each row.
    columns: usize,
    vectors_hash: u64,
}

impl<R: Read> Frames<R> {
    /// Frames in the first `len` bytes of `reader`, of rows with as many `columns`.
    pub(crate) fn new(reader: R, len: u64, columns: usize) -> Self {
        Self { reader, left: len, payload: Vec::new(), current: RowBlock::default(), columns, vectors_hash: 0 }
    }

    /// Reads the next frame into `current`; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, FrameError> {
        self.current.clear();
        if self.left == 0 {
            return Ok(false);
        }
        let mut head = [0; FRAME_HEAD];
        self.left = self.left.checked_sub(FRAME_HEAD as u64).ok_or(FrameError::Damaged("a frame is cut off"))?;
        self.reader.read_exact(&mut head).map_err(FrameError::Io)?;
        let mut fields = Fields(&head);
        let (len, checksum) = (fields.u32().unwrap_or(0), fields.u64().unwrap_or(0));
        // Check against the actual length before allocating memory.
        self.left = self.left.checked_sub(u64::from(len)).ok_or(FrameError::Damaged("a frame is cut off"))?;
        self.payload.resize(len as usize, 0);
        self.reader.read_exact(&mut self.payload).map_err(FrameError::Io)?;
        if xxh3_64(&self.payload) != checksum {
            return Err(FrameError::Damaged("a frame does not match its checksum"));
        }
        self.parse().ok_or(FrameError::Damaged("a frame's fields do not add up"))?;
        Ok(true)
    }

    /// Rows of the current frame.
    pub(crate) fn rows(&self) -> usize {
        self.current.len()
    }

    fn parse(&mut self) -> Option<()> {
        let Self { payload, current, vectors_hash, columns, .. } = self;
        let rows = Fields(payload).u32()? as usize;
        let values = rows.checked_mul(*columns)?;
        let text = PAYLOAD_HEAD.checked_add(rows.checked_mul(PER_ROW)?)?.checked_add(values.checked_mul(4)?)?;
        let mut fields = Fields(payload.get(4..text)?);
        let mut text = std::str::from_utf8(&payload[text..]).ok()?;
        let mut cut = |len: u32| {
            let (first, rest) = text.split_at_checked(len as usize)?;
            text = rest;
            Some(first)
        };
        *vectors_hash = fields.u64()?;
        current.index.extend((0..rows).map_while(|_| fields.u64()));
        current.xxh3.extend((0..rows).map_while(|_| fields.u64()));
        current.width.extend((0..rows).map_while(|_| fields.u32()));
        current.height.extend((0..rows).map_while(|_| fields.u32()));
        for _ in 0..rows {
            current.ids.push(cut(fields.u32()?)?);
        }
        for _ in 0..values {
            let len = fields.u32()?;
            current.nulls.push(len == NULL);
            current.values.push(if len == NULL { "" } else { cut(len)? });
        }
        (rows > 0 && text.is_empty()).then_some(())
    }
}

/// Takes little-endian fields from the front of a slice.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Values = Vec<Option<String>>;

    /// A frame of rows with these ids, each with as many `columns`: the first is null in every third row.
    fn frame_of(ids: &[&str], columns: usize) -> Vec<u8> {
        let id: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        let n = ids.len();
        let (index, xxh3): (Vec<u64>, Vec<u64>) = (0..n as u64).map(|i| (i, i * 7)).unzip();
        let (side, vectors) = (vec![3; n], vec![0.5; n * 2]);
        let columns: Vec<Box<[_]>> = (0..n).map(|row| values(ids, row, columns).into()).collect();
        let rows = Rows {
            index: &index,
            id: &id,
            vectors: &vectors,
            width: &side,
            height: &side,
            xxh3: &xxh3,
            columns: &columns,
        };
        let mut scratch = Scratch::default();
        scratch.encode(&Block { rows: &rows, range: 0..n, dim: 2, element: Element::F32 }).1.to_vec()
    }

    fn values(ids: &[&str], row: usize, columns: usize) -> Values {
        let value = |column| (column > 0 || !row.is_multiple_of(3)).then(|| format!("{}{column}", ids[row]));
        (0..columns).map(value).collect()
    }

    fn read(bytes: &[u8], columns: usize) -> Result<Vec<(String, Values)>, FrameError> {
        let mut frames = Frames::new(bytes, bytes.len() as u64, columns);
        let mut rows = Vec::new();
        while frames.advance()? {
            let of =
                |row| (0..columns).map(|column| frames.current.column(column).nth(row)?.map(str::to_owned)).collect();
            rows.extend(frames.current.ids().enumerate().map(|(row, id)| (id.to_owned(), of(row))));
        }
        Ok(rows)
    }

    #[test]
    fn frames_come_back() {
        let ids: &[&str] = &["a", "", "żółw", "d"];
        for columns in [0, 1, 3] {
            let bytes = [frame_of(ids, columns), frame_of(&["b"], columns)].concat();
            let rows = |ids: &[&str]| -> Vec<_> {
                (0..ids.len()).map(|row| (ids[row].to_owned(), values(ids, row, columns))).collect()
            };
            assert_eq!(read(&bytes, columns).ok().unwrap(), [rows(ids), rows(&["b"])].concat());
            assert!(read(&bytes, columns + 1).is_err(), "{columns} columns are not one more");
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let bytes = frame_of(&["a", "bc"], 2);
        for len in 1..bytes.len() {
            assert!(read(&bytes[..len], 2).is_err(), "cut to {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged, 2).is_err(), "bit {bit} flipped");
        }
    }

    #[test]
    fn long_texts_take_several_frames_and_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let (long, short) = ("x".repeat(MOST_TEXT / 2 + 1), "y".to_owned());
        let columns: Vec<Box<[_]>> =
            [&long, &short, &long, &long, &short].map(|text| Box::from([Some(text.clone())])).into();
        let id = vec!["id".to_owned(); 5];
        let rows = Rows {
            index: &[0, 1, 2, 3, 4],
            id: &id,
            vectors: &[0.0, 1.0, 2.0, 3.0, 4.0],
            width: &[1; 5],
            height: &[1; 5],
            xxh3: &[1; 5],
            columns: &columns,
        };
        let mut log = PartLog::create(folder.path(), 0, 0).unwrap();
        log.append(Block { rows: &rows, range: 0..5, dim: 1, element: Element::F32 }, &mut Scratch::default()).unwrap();
        assert_eq!(log.extent().rows, 5);
        let paths = LogPaths::new(folder.path(), 0);
        let mut reader = RowReader::open(&paths, log.extent(), 0, (4, 1)).unwrap();
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block(100).unwrap() {
            blocks.push(block.column(0).map(|text| text.unwrap().len()).collect::<Vec<_>>());
        }
        assert_eq!(blocks, [vec![long.len(), 1, long.len()], vec![long.len(), 1]]);
    }
}
