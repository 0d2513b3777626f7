//! The rows of a PNG's pixels, each behind the byte that names its filter, in the order of the file.

use flate2::{Decompress, FlushDecompress};
use foveate_core::{PixelBuf, Size};

use crate::memory;

/// First column, first row, and the steps between columns and rows of each pass of an interlaced picture.
const PASSES: [[u32; 4]; 7] =
    [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];

pub(super) struct PngRows {
    /// Number and length in bytes of the rows of each pass that has pixels.
    passes: Vec<(usize, usize)>,
}

impl PngRows {
    /// The rows that a header describes, for a file in which they are filled up; `None` for an impossible header, or
    /// more than the limits permit.
    pub(super) fn of(header: &[u8], out: &mut PixelBuf) -> Option<Self> {
        let &[w0, w1, w2, w3, h0, h1, h2, h3, depth, color, _, _, interlaced] = header else { return None };
        let size = Size::new(u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([h0, h1, h2, h3]));
        out.limits().check(size).ok()?;
        let samples: u64 = match color {
            0 | 3 => 1,
            2 => 3,
            4 => 2,
            6 => 4,
            _ => return None,
        };
        let steps = if interlaced == 0 { &[[0, 0, 1, 1]][..] } else { &PASSES };
        let mut passes = Vec::new();
        for &[left, top, across, down] in steps {
            let columns = size.width.saturating_sub(left).div_ceil(across);
            let rows = size.height.saturating_sub(top).div_ceil(down);
            if columns > 0 && rows > 0 {
                let length = (u64::from(columns) * samples * u64::from(depth)).div_ceil(8) as usize + 1;
                passes.push((rows as usize, length));
            }
        }
        let rows = Self { passes };
        let bytes = rows.bytes() as u64;
        // The rows exist three times: expanded, as a stream, and in the new file.
        (bytes <= memory::budget(out.limits()) && out.admit(size, 3 * bytes).is_ok()).then_some(rows)
    }

    fn bytes(&self) -> usize {
        self.passes.iter().map(|(rows, length)| rows * length).sum()
    }

    /// The whole rows in `packed`, and zeros for the others.
    ///
    /// Pillow stops when its library has taken the last byte, with at most the row under way; further rows that this
    /// byte completes are lost.
    pub(super) fn expand(&self, packed: &[u8]) -> Vec<u8> {
        let mut samples = vec![0; self.bytes()];
        let Some((last, before)) = packed.split_last() else { return samples };
        let mut library = Decompress::new(true);
        // A damaged stream counts as one that ends there.
        let _ = library.decompress(before, &mut samples, FlushDecompress::None);
        let early = library.total_out() as usize;
        let (start, end) = self.row_at(early);
        let _ = library.decompress(&[*last], &mut samples[early..end], FlushDecompress::None);
        let whole = if library.total_out() as usize == end { end } else { start };
        samples[whole..].fill(0);
        samples
    }

    /// Start and end of the row that holds the byte `at`; the end twice if there is none.
    fn row_at(&self, at: usize) -> (usize, usize) {
        let mut first = 0;
        for (rows, length) in &self.passes {
            let end = first + rows * length;
            if at < end {
                let start = first + (at - first) / length * length;
                return (start, start + length);
            }
            first = end;
        }
        (first, first)
    }
}
