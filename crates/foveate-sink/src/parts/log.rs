//! The rows of an incomplete part, on disk.
//!
//! Each part has two files. `part-N.vectors` holds only the vectors, after the free bytes that the format asked for.
//! `part-N.rows` holds frames, one per appended block, with everything else:
//!
//! ```text
//! frame   = payload length u32 · XXH3-64 of payload u64 · payload
//! payload = rows n u32 · XXH3-64 of the block's vectors u64
//!         · index u64 × n · content hash u64 × n · width u32 × n · height u32 × n · id length u32 × n · ids (UTF-8)
//! ```
//!
//! All fields are little-endian. Only bytes committed in the journal count; resuming cuts off the rest.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::staging::open_at;
use crate::{Element, Rows, SinkError};

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

    /// Appends one block as one frame.
    pub(crate) fn append(&mut self, block: &Block<'_>, scratch: &mut Scratch) -> Result<(), SinkError> {
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
/// Bytes per row in a payload, apart from the id's text.
const PER_ROW: usize = 8 + 8 + 4 + 4 + 4;

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
        ids.iter().for_each(|id| frame.extend_from_slice(id.as_bytes()));
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

/// A block's row ids: one text, cut at `ends`.
#[derive(Debug, Default)]
struct Ids {
    text: String,
    ends: Vec<usize>,
}

impl Ids {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn get(&self, row: usize) -> &str {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.text[start..self.ends[row]]
    }
}

/// Consecutive rows of a part, in source order.
#[derive(Debug, Default)]
pub struct RowBlock {
    index: Vec<u64>,
    xxh3: Vec<u64>,
    width: Vec<u32>,
    height: Vec<u32>,
    ids: Ids,
    vectors: Vec<u8>,
}

impl RowBlock {
    /// Number of rows; at least 1 in a block from a [`RowReader`].
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the block has no rows.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The ids, in row order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|row| self.ids.get(row))
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
        self.vectors.clear();
    }

    /// Appends rows `range` of `frame`, without their vectors.
    fn take(&mut self, frame: &Self, range: Range<usize>) {
        self.index.extend_from_slice(&frame.index[range.clone()]);
        self.xxh3.extend_from_slice(&frame.xxh3[range.clone()]);
        self.width.extend_from_slice(&frame.width[range.clone()]);
        self.height.extend_from_slice(&frame.height[range.clone()]);
        for row in range {
            self.ids.text.push_str(frame.ids.get(row));
            self.ids.ends.push(self.ids.text.len());
        }
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
    pub(crate) fn open(paths: &LogPaths, extent: &LogExtent, free: u64, row_bytes: usize) -> Result<Self, SinkError> {
        let frames = File::open(&paths.frames).map_err(SinkError::io("open", &paths.frames))?;
        Ok(Self {
            frames: Frames::new(BufReader::new(frames), extent.frames_len),
            vectors: open_vectors(&paths.vectors, free)?,
            paths: paths.clone(),
            row_bytes,
            used: 0,
            hash: Xxh3::new(),
            block: RowBlock::default(),
        })
    }

    /// Returns the next `rows` rows (fewer only at the part's end), or `None` after the last. Verifies checksums.
    pub fn next_block(&mut self, rows: usize) -> Result<Option<&RowBlock>, SinkError> {
        self.block.clear();
        while self.block.len() < rows {
            if self.used == self.frames.current.len() && !self.next_frame()? {
                break;
            }
            let count = (rows - self.block.len()).min(self.frames.current.len() - self.used);
            self.block.take(&self.frames.current, self.used..self.used + count);
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
    vectors_hash: u64,
}

impl<R: Read> Frames<R> {
    /// Frames in the first `len` bytes of `reader`.
    pub(crate) fn new(reader: R, len: u64) -> Self {
        Self { reader, left: len, payload: Vec::new(), current: RowBlock::default(), vectors_hash: 0 }
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
        let Self { payload, current, vectors_hash, .. } = self;
        let rows = Fields(payload).u32()? as usize;
        let text = PAYLOAD_HEAD.checked_add(rows.checked_mul(PER_ROW)?)?;
        let mut fields = Fields(payload.get(4..text)?);
        *vectors_hash = fields.u64()?;
        current.index.extend((0..rows).map_while(|_| fields.u64()));
        current.xxh3.extend((0..rows).map_while(|_| fields.u64()));
        current.width.extend((0..rows).map_while(|_| fields.u32()));
        current.height.extend((0..rows).map_while(|_| fields.u32()));
        current.ids.text.push_str(std::str::from_utf8(&payload[text..]).ok()?);
        let mut end = 0_usize;
        for _ in 0..rows {
            end = end.checked_add(fields.u32()? as usize)?;
            if !current.ids.text.is_char_boundary(end) {
                return None;
            }
            current.ids.ends.push(end);
        }
        (rows > 0 && end == current.ids.text.len()).then_some(())
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

    fn frame_of(ids: &[&str]) -> Vec<u8> {
        let id: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        let n = ids.len();
        let (index, xxh3): (Vec<u64>, Vec<u64>) = (0..n as u64).map(|i| (i, i * 7)).unzip();
        let (side, vectors) = (vec![3; n], vec![0.5; n * 2]);
        let rows = Rows { index: &index, id: &id, vectors: &vectors, width: &side, height: &side, xxh3: &xxh3 };
        let mut scratch = Scratch::default();
        scratch.encode(&Block { rows: &rows, range: 0..n, dim: 2, element: Element::F32 }).1.to_vec()
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>, FrameError> {
        let mut frames = Frames::new(bytes, bytes.len() as u64);
        let mut ids = Vec::new();
        while frames.advance()? {
            ids.extend(frames.current.ids().map(str::to_owned));
        }
        Ok(ids)
    }

    #[test]
    fn frames_come_back() {
        let bytes = [frame_of(&["a", "", "żółw"]), frame_of(&["b"])].concat();
        assert_eq!(read(&bytes).ok().unwrap(), ["a", "", "żółw", "b"]);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let bytes = frame_of(&["a", "bc"]);
        for len in 1..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "cut to {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit} flipped");
        }
    }
}
