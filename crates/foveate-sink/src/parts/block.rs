//! The rows of segments, read back.

use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::PathBuf;

use super::frame::{Fields, FrameKind, FrameReader, NULL, PAYLOAD_HEAD, PER_ROW};
use super::segment::{MOST_TEXT, Segment};
use crate::{ActOnRow, Shape, SinkError, StoredRow};

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
    pub(crate) fn for_each(&self, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
        let vectors = self.vectors.chunks_exact(shape.dim * shape.element.bytes());
        for (row, (id, vector)) in self.ids().zip(vectors).enumerate() {
            let numbers = row * self.columns()..(row + 1) * self.columns();
            let columns: Vec<_> = numbers.map(|number| self.value(number).map(str::to_owned)).collect();
            let vector = &shape.element.floats(vector);
            let width = self.width[row];
            let height = self.height[row];
            act(&StoredRow { id, vector, width, height, xxh3: self.xxh3[row], columns: &columns })?;
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

    /// Appends rows `range` of `frame`, whose vectors are apart, until the block is full. Returns their number.
    fn take(&mut self, frame: &Self, vectors: &[u8], range: Range<usize>) -> usize {
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
        let row_bytes = vectors.len() / frame.len().max(1);
        self.vectors.extend_from_slice(&vectors[taken.start * row_bytes..taken.end * row_bytes]);
        taken.len()
    }
}

/// Reads the rows of segments back, in blocks whose size does not depend on how they were appended.
#[derive(Debug)]
pub struct RowReader {
    segments: std::vec::IntoIter<Segment>,
    open: Option<(PathBuf, FrameReader<BufReader<File>>)>,
    columns: usize,
    row_bytes: usize,
    /// The rows of the frame that was read last, without their vectors.
    frame: RowBlock,
    /// The start of the vectors in the frame's payload.
    vectors_at: usize,
    /// Rows of the frame that are in a block.
    used: usize,
    /// Rows that the segments' ends announce, and that were not read yet.
    left: u64,
    block: RowBlock,
}

impl RowReader {
    /// Rows with as many `columns`, whose vectors have `row_bytes` bytes each.
    pub(crate) fn new(segments: Vec<Segment>, row_bytes: usize, columns: usize) -> Self {
        Self {
            left: segments.iter().map(|segment| segment.end.rows).sum(),
            segments: segments.into_iter(),
            open: None,
            columns,
            row_bytes,
            frame: RowBlock::default(),
            vectors_at: 0,
            used: 0,
            block: RowBlock::default(),
        }
    }

    /// Returns the next `rows` rows, or `None` after the last. There are fewer at the part's end, and if their text is
    /// very long. Verifies checksums.
    pub fn next_block(&mut self, rows: usize) -> Result<Option<&RowBlock>, SinkError> {
        self.block.clear();
        while self.block.len() < rows && !self.block.is_full() {
            if self.used == self.frame.len() && !self.next_frame()? {
                break;
            }
            let end = self.frame.len().min(self.used + rows - self.block.len());
            let Some((_, frames)) = &self.open else { break };
            self.used += self.block.take(&self.frame, &frames.payload[self.vectors_at..], self.used..end);
        }
        Ok((!self.block.is_empty()).then_some(&self.block))
    }

    fn next_frame(&mut self) -> Result<bool, SinkError> {
        self.used = 0;
        self.frame.clear();
        loop {
            let Some((path, frames)) = &mut self.open else {
                let Some(next) = self.segments.next() else { return Ok(false) };
                self.open = Some((next.path.clone(), next.frames()?));
                continue;
            };
            match frames.next().map_err(|error| error.into_sink_error(path))? {
                None if self.segments.len() == 0 && self.left > 0 => {
                    return Err(SinkError::damaged(path, "rows are missing"));
                }
                None => self.open = None,
                Some(FrameKind::Rows) => {
                    let parsed = self.frame.parse(&frames.payload, self.row_bytes, self.columns);
                    let left = self.left.checked_sub(self.frame.len() as u64);
                    let Some((vectors_at, left)) = parsed.zip(left) else {
                        return Err(SinkError::damaged(path, "a frame's fields do not add up"));
                    };
                    (self.vectors_at, self.left) = (vectors_at, left);
                    return Ok(true);
                }
                Some(_) => {}
            }
        }
    }
}

impl RowBlock {
    /// Parses the payload of a frame of rows into an empty block, without the vectors. Returns where these are.
    pub(crate) fn parse(&mut self, payload: &[u8], row_bytes: usize, columns: usize) -> Option<usize> {
        let mut fields = Fields(payload);
        let rows = fields.u32()? as usize;
        let len = fields.u32()? as usize;
        let values = rows.checked_mul(columns)?;
        let start = PAYLOAD_HEAD.checked_add(rows.checked_mul(PER_ROW)?)?.checked_add(values.checked_mul(4)?)?;
        let mut fields = Fields(payload.get(PAYLOAD_HEAD..start)?);
        let mut text = std::str::from_utf8(payload.get(start..len)?).ok()?;
        let mut cut = |len: u32| {
            let (first, rest) = text.split_at_checked(len as usize)?;
            text = rest;
            Some(first)
        };
        self.index.extend((0..rows).map_while(|_| fields.u64()));
        self.xxh3.extend((0..rows).map_while(|_| fields.u64()));
        self.width.extend((0..rows).map_while(|_| fields.u32()));
        self.height.extend((0..rows).map_while(|_| fields.u32()));
        for _ in 0..rows {
            self.ids.push(cut(fields.u32()?)?);
        }
        for _ in 0..values {
            let len = fields.u32()?;
            self.nulls.push(len == NULL);
            self.values.push(if len == NULL { "" } else { cut(len)? });
        }
        let has_vectors = payload.len() - len == rows.checked_mul(row_bytes)?;
        (rows > 0 && text.is_empty() && has_vectors).then_some(len)
    }
}
