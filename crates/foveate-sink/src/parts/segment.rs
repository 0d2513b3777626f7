//! Segments: small immutable files that hold what a run has settled.
//!
//! ```text
//! segment = frame … frame · length of the last frame u64
//! frame   = kind u8 · payload length u64 · XXH3-64 of payload u64 · payload
//! rows    = rows n u32 · bytes of what precedes the vectors u32
//!         · index u64 × n · content hash u64 × n · width u32 × n · height u32 × n · id length u32 × n
//!         · value length u32 × n × columns · ids (UTF-8) · values (UTF-8) · vectors
//! ```
//!
//! Frames are of rows, of lines of the failures file, or of lines of the record of inputs; the last one is a
//! [`SegmentEnd`]. Values are row by row, and the length of a null is 2³² − 1. The run's settings say how many columns
//! there are. All fields are little-endian.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::frame::{FRAME_HEAD, FrameKind, FrameReader, NULL};
use crate::{Element, ManifestPart, Rows, SinkError};

/// The items that a segment covers, and the facts needed to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentEnd {
    /// Digest of the run's settings.
    pub(crate) run: String,
    /// The part that its rows belong to.
    pub(crate) part: u64,
    /// The items from `start` up to `end` are settled here.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// [`Watermark::place`](crate::Watermark::place) at `end`.
    pub(crate) place: u64,
    pub(crate) rows: u64,
    pub(crate) failed: u64,
    /// The part's files, once they are encoded. Such a segment replaces the others of its part, and has no rows of its
    /// own.
    pub(crate) sealed: Option<ManifestPart>,
}

/// The name of a sealed part's segment.
pub(crate) fn sealed_name(part: u64) -> String {
    format!("part-{part:05}.seg")
}

/// Bytes of frames' heads read at once. A payload is read directly to its own memory.
const HEADS: usize = 1 << 14;
/// Bytes of a segment after its last frame.
const TRAILER: u64 = 8;

/// Writes one segment under a temporary name.
#[derive(Debug)]
pub(crate) struct NewSegment {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) end: SegmentEnd,
    /// Lines that are not written yet.
    failures: String,
    inputs: String,
}

/// Lines in memory; bounds what a segment holds there between two commits.
const MOST_LINES: usize = 1 << 20;

impl NewSegment {
    /// Starts a segment in `folder`, one for each part at a time.
    pub(crate) fn create(folder: &Path, part: u64) -> Result<Self, SinkError> {
        let path = folder.join(format!("new-{part:05}.seg"));
        let file = File::create(&path).map_err(SinkError::io("create", &path))?;
        let end = SegmentEnd { part, ..SegmentEnd::default() };
        Ok(Self { path, file, end, failures: String::new(), inputs: String::new() })
    }

    /// Appends rows, in one frame or in several if their text is long.
    pub(crate) fn rows(&mut self, mut block: PartRows<'_>, scratch: &mut SegmentScratch) -> Result<(), SinkError> {
        while let Some(frame) = block.split_frame() {
            scratch.encode(&frame);
            self.end.rows += frame.range.len() as u64;
            self.frame(FrameKind::Rows, &[&scratch.frame, &scratch.vectors])?;
        }
        Ok(())
    }

    /// Appends lines of the failures file.
    pub(crate) fn failures(&mut self, lines: &str, count: u64) -> Result<(), SinkError> {
        self.end.failed += count;
        self.failures.push_str(lines);
        if self.failures.len() < MOST_LINES { Ok(()) } else { self.flush() }
    }

    /// Appends lines of the record of inputs.
    pub(crate) fn inputs(&mut self, lines: &str) -> Result<(), SinkError> {
        self.inputs.push_str(lines);
        if self.inputs.len() < MOST_LINES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let failures = std::mem::take(&mut self.failures);
        let inputs = std::mem::take(&mut self.inputs);
        for (kind, lines) in [(FrameKind::Failures, failures), (FrameKind::Inputs, inputs)] {
            if !lines.is_empty() {
                self.frame(kind, &[lines.as_bytes()])?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, kind: FrameKind, payload: &[&[u8]]) -> Result<u64, SinkError> {
        // The kind is the seed, so that a damaged one is noticed.
        let mut hash = Xxh3::with_seed(kind as u64);
        let mut len = 0;
        for part in payload {
            hash.update(part);
            len += part.len() as u64;
        }
        let mut head = vec![kind as u8];
        head.extend_from_slice(&len.to_le_bytes());
        head.extend_from_slice(&hash.digest().to_le_bytes());
        for part in std::iter::once(&head[..]).chain(payload.iter().copied()) {
            self.file.write_all(part).map_err(SinkError::io("write", &self.path))?;
        }
        Ok(FRAME_HEAD + len)
    }

    /// Completes the segment and makes it durable, still under its temporary name.
    pub(crate) fn finish(mut self) -> Result<(PathBuf, SegmentEnd), SinkError> {
        self.flush()?;
        let end = serde_json::to_vec(&self.end).expect("a segment's end is plain data and has a JSON form");
        let len = self.frame(FrameKind::End, &[&end])?;
        self.file.write_all(&len.to_le_bytes()).map_err(SinkError::io("write", &self.path))?;
        self.file.sync_all().map_err(SinkError::io("sync", &self.path))?;
        Ok((self.path, self.end))
    }
}

/// A segment on disk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) end: SegmentEnd,
}

impl Segment {
    /// Reads what the segment at `path` covers.
    pub(crate) fn open(path: &Path) -> Result<Self, SinkError> {
        let mut file = File::open(path).map_err(SinkError::io("open", path))?;
        let len = file.metadata().map_err(SinkError::io("inspect", path))?.len();
        let at = len.checked_sub(TRAILER).ok_or_else(|| SinkError::damaged(path, "it is cut off"))?;
        let mut trailer = [0; TRAILER as usize];
        file.seek(SeekFrom::Start(at)).map_err(SinkError::io("seek in", path))?;
        file.read_exact(&mut trailer).map_err(SinkError::io("read", path))?;
        let last = u64::from_le_bytes(trailer);
        let start = at.checked_sub(last).ok_or_else(|| SinkError::damaged(path, "its end is damaged"))?;
        file.seek(SeekFrom::Start(start)).map_err(SinkError::io("seek in", path))?;
        let mut frames = FrameReader::new(file, last);
        match frames.next().map_err(|error| error.into_sink_error(path))? {
            Some(FrameKind::End) => {
                let end = parse_end(&frames.payload).map_err(|reason| SinkError::damaged(path, reason))?;
                Ok(Self { path: path.to_owned(), end })
            }
            _ => Err(SinkError::damaged(path, "its end is damaged")),
        }
    }

    /// Opens the segment's frames.
    pub(crate) fn frames(&self) -> Result<FrameReader<BufReader<File>>, SinkError> {
        let file = File::open(&self.path).map_err(SinkError::io("open", &self.path))?;
        let len = file.metadata().map_err(SinkError::io("inspect", &self.path))?.len();
        Ok(FrameReader::new(BufReader::with_capacity(HEADS, file), len.saturating_sub(TRAILER)))
    }

    /// Calls `act` with the lines of `kind`, a frame at a time.
    pub(crate) fn lines(
        &self,
        kind: FrameKind,
        act: &mut dyn FnMut(&[u8]) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let mut frames = self.frames()?;
        while let Some(found) = frames.next().map_err(|error| error.into_sink_error(&self.path))? {
            if found == kind {
                act(&frames.payload)?;
            }
        }
        Ok(())
    }
}

fn parse_end(json: &[u8]) -> Result<SegmentEnd, String> {
    let end: SegmentEnd = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if let Some(part) = &end.sealed {
        crate::manifest::check_plain_names(&part.files)?;
    }
    if end.end < end.start { Err("it ends before it starts".to_owned()) } else { Ok(end) }
}

/// The appended rows that belong to one part.
pub(crate) struct PartRows<'a> {
    pub(crate) rows: &'a Rows<'a>,
    pub(crate) range: Range<usize>,
    pub(crate) dim: usize,
    pub(crate) element: Element,
}

/// Text of a frame or a block in bytes, from which on no further row is added. Bounds memory, and keeps every length
/// within 32 bits.
pub(super) const MOST_TEXT: usize = 64 << 20;

impl<'a> PartRows<'a> {
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
        self.range.clone().flat_map(|row| self.rows.values(row).iter().map(Option::as_deref))
    }
}

/// Memory for encoding blocks, reused from block to block.
#[derive(Debug, Default)]
pub(crate) struct SegmentScratch {
    vectors: Vec<u8>,
    frame: Vec<u8>,
    halves: Vec<half::f16>,
}

impl SegmentScratch {
    fn encode(&mut self, block: &PartRows<'_>) {
        self.encode_vectors(block);
        let PartRows { rows, range, .. } = block;
        let frame = &mut self.frame;
        frame.clear();
        frame.extend_from_slice(&(range.len() as u32).to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend(rows.index[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        frame.extend(rows.xxh3[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        frame.extend(rows.width[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        frame.extend(rows.height[range.clone()].iter().flat_map(|v| v.to_le_bytes()));
        let ids = &rows.id[range.clone()];
        frame.extend(ids.iter().flat_map(|id| (id.len() as u32).to_le_bytes()));
        frame.extend(block.values().flat_map(|value| value.map_or(NULL, |text| text.len() as u32).to_le_bytes()));
        ids.iter().for_each(|id| frame.extend_from_slice(id.as_bytes()));
        block.values().flatten().for_each(|text| frame.extend_from_slice(text.as_bytes()));
        let len = frame.len() as u32;
        frame[4..8].copy_from_slice(&len.to_le_bytes());
    }

    fn encode_vectors(&mut self, block: &PartRows<'_>) {
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

#[cfg(test)]
mod tests {
    use super::super::block::RowReader;
    use super::*;

    fn rows_of<'a>(
        id: &'a [String],
        numbers: &'a [u32],
        vectors: &'a [f32],
        more: &'a [Box<[Option<String>]>],
    ) -> Rows<'a> {
        const INDEX: [u64; 5] = [0, 1, 2, 3, 4];
        let n = id.len();
        Rows {
            index: &INDEX[..n],
            id,
            vectors,
            width: &numbers[..n],
            height: &numbers[..n],
            xxh3: &INDEX[..n],
            columns: more,
        }
    }

    /// A segment of `texts`, each the only value of its row.
    fn segment(folder: &Path, texts: &[&str]) -> Segment {
        let id: Vec<_> = texts.iter().map(|text| text.len().to_string()).collect();
        let columns: Vec<Box<[_]>> = texts.iter().map(|text| Box::from([Some((*text).to_owned())])).collect();
        let vectors: Vec<_> = (0..texts.len()).map(|row| row as f32).collect();
        let rows = rows_of(&id, &[1; 5], &vectors, &columns);
        let mut writer = NewSegment::create(folder, 3).unwrap();
        let block = PartRows { rows: &rows, range: 0..texts.len(), dim: 1, element: Element::F32 };
        writer.rows(block, &mut SegmentScratch::default()).unwrap();
        writer.failures("a,b,c,\n", 1).unwrap();
        writer.end.end = 6;
        let (path, end) = writer.finish().unwrap();
        Segment { path, end }
    }

    fn lengths(segment: &Segment) -> Result<Vec<Vec<usize>>, SinkError> {
        let mut reader = RowReader::new(vec![segment.clone()], 4, 1);
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block(100)? {
            blocks.push(block.column(0).map(|text| text.unwrap().len()).collect());
        }
        Ok(blocks)
    }

    #[test]
    fn a_segment_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let written = segment(folder.path(), &["", "b", "żółw"]);
        let found = Segment::open(&written.path).unwrap();
        assert_eq!(found.end, written.end);
        assert_eq!((found.end.rows, found.end.failed), (3, 1));
        assert_eq!(lengths(&found).unwrap(), [[0, 1, 7]]);
        let mut lines = Vec::new();
        found
            .lines(FrameKind::Failures, &mut |frame| {
                lines.extend_from_slice(frame);
                Ok(())
            })
            .unwrap();
        assert_eq!(lines, b"a,b,c,\n");
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let whole = segment(folder.path(), &["a", "bc"]);
        let bytes = std::fs::read(&whole.path).unwrap();
        let is_read = |bytes: &[u8]| {
            std::fs::write(&whole.path, bytes).unwrap();
            Segment::open(&whole.path).and_then(|found| {
                found.lines(FrameKind::Failures, &mut |_| Ok(()))?;
                lengths(&found)
            })
        };
        for len in 0..bytes.len() {
            assert!(is_read(&bytes[..len]).is_err(), "cut to {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = is_read(&damaged);
            assert!(found.is_err(), "bit {bit} flipped: {found:?}");
        }
    }

    #[test]
    fn long_texts_take_several_frames_and_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(MOST_TEXT / 2 + 1);
        let found = segment(folder.path(), &[&long, "y", &long, &long, "y"]);
        assert_eq!(lengths(&found).unwrap(), [vec![long.len(), 1, long.len()], vec![long.len(), 1]]);
    }
}
