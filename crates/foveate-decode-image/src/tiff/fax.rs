//! Rows of black and white in the codes of fax machines (ITU-T T.4 and T.6), with the tables of the `fax` crate.

use std::convert::Infallible;

use fax::BitReader;
use fax::maps::{Mode, black, mode, white};
use foveate_decode::DecodeError;

use super::error::{corrupt, unsupported};
use super::layout::TiffLayout;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Coding {
    /// Runs of white and black; each row begins with a byte.
    Runs,
    /// The same behind a mark for each row, or changes against the row above.
    Group3,
    /// Changes against the row above.
    Group4,
}

/// Fills `samples` with rows of bits, 1 for black; returns how many bytes are filled.
pub(super) fn expand(
    packed: &[u8],
    coding: Coding,
    layout: &TiffLayout,
    samples: &mut [u8],
) -> Result<usize, DecodeError> {
    if (layout.bits, layout.samples) != (1, 1) {
        return Err(unsupported(format!("fax compression of {} samples of {} bits", layout.samples, layout.bits)));
    }
    let mut bits = FaxBits { bytes: packed, at: 0 };
    let mut row = FaxRow::default();
    let mut above = FaxRow::default();
    let length = layout.row_bytes();
    for (y, line) in samples.chunks_exact_mut(length).enumerate() {
        std::mem::swap(&mut row, &mut above);
        row.changes.clear();
        if bits.is_at_end() || coding == Coding::Group3 && !bits.pass_mark() {
            return Ok(y * length);
        }
        let in_runs = match coding {
            Coding::Runs => bits.align(),
            Coding::Group3 => !layout.fax_in_two_dimensions || bits.take(1) == 1,
            Coding::Group4 => false,
        };
        let width = layout.chunk.width;
        let is_row = if in_runs { row.read_runs(&mut bits, width) } else { row.read_changes(&mut bits, width, &above) };
        match is_row {
            Some(true) => row.paint(width, line),
            Some(false) => return Ok(y * length),
            None => return Err(corrupt("an impossible fax code")),
        }
    }
    Ok(samples.len())
}

/// A row as the columns where its colour changes; it begins with white.
#[derive(Default)]
struct FaxRow {
    changes: Vec<u32>,
}

impl FaxRow {
    /// Two changes in one column are none.
    fn change(&mut self, column: u32, width: u32) {
        if self.changes.last() == Some(&column) {
            self.changes.pop();
        } else if column < width {
            self.changes.push(column);
        }
    }

    fn read_runs(&mut self, bits: &mut FaxBits<'_>, width: u32) -> Option<bool> {
        let mut column = 0;
        let mut is_black = false;
        while column < width {
            column += run(bits, is_black)?;
            self.change(column, width);
            is_black = !is_black;
        }
        Some(true)
    }

    /// Reads a row that refers to the one above; `Some(false)` at the mark of the end.
    fn read_changes(&mut self, bits: &mut FaxBits<'_>, width: u32, above: &Self) -> Option<bool> {
        // The column from which the next change is looked for; before the first one it may be column 0 itself.
        let mut column = 0;
        let mut is_black = false;
        let mut next = 0;
        let mut is_first = true;
        while column < width {
            while above.changes.get(next).is_some_and(|&change| change < column || change == column && !is_first) {
                next += 1;
            }
            // The next change above to the other colour: those to black have even places.
            let opposite = next + usize::from(next % 2 != usize::from(is_black));
            match mode::decode(bits)? {
                Mode::Pass => column = above.changes.get(opposite + 1).copied().unwrap_or(width),
                Mode::Vertical(shift) => {
                    let above = above.changes.get(opposite).copied().unwrap_or(width);
                    let change = above.checked_add_signed(shift.into())?;
                    if change < column {
                        return None;
                    }
                    column = change.min(width);
                    self.change(column, width);
                    is_black = !is_black;
                }
                Mode::Horizontal => {
                    for color in [is_black, !is_black] {
                        column += run(bits, color)?;
                        self.change(column, width);
                    }
                }
                Mode::EOF if is_first => return Some(false),
                Mode::EOF | Mode::Extension => return None,
            }
            is_first = false;
        }
        Some(true)
    }

    fn paint(&self, width: u32, line: &mut [u8]) {
        line.fill(0);
        for run in self.changes.chunks(2) {
            for x in run[0]..run.get(1).copied().unwrap_or(width) {
                line[x as usize / 8] |= 0x80 >> (x % 8);
            }
        }
    }
}

/// A run's length: codes for multiples of 64, then one for the rest.
fn run(bits: &mut FaxBits<'_>, is_black: bool) -> Option<u32> {
    let mut length = 0u32;
    loop {
        let part = if is_black { black::decode(bits) } else { white::decode(bits) }?;
        length = length.checked_add(part.into()).filter(|&length| length < 1 << 30)?;
        if part < 64 {
            return Some(length);
        }
    }
}

/// Bits, the highest of a byte first, with zeros behind the last one.
struct FaxBits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl FaxBits<'_> {
    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len() * 8
    }

    fn take(&mut self, count: u8) -> u16 {
        let bits = self.window() >> (16 - count);
        self.at += usize::from(count);
        bits
    }

    /// Moves to the start of a byte; always true.
    fn align(&mut self) -> bool {
        self.at = self.at.next_multiple_of(8);
        true
    }

    /// Passes the next mark of a row, at least eleven zeros and a one, and what is in front of it.
    fn pass_mark(&mut self) -> bool {
        let mut zeros = 0;
        while !self.is_at_end() {
            match self.take(1) {
                0 => zeros += 1,
                _ if zeros >= 11 => return true,
                _ => zeros = 0,
            }
        }
        false
    }

    /// The next 16 bits.
    fn window(&self) -> u16 {
        let mut word = 0;
        for at in self.at / 8..self.at / 8 + 3 {
            word = word << 8 | u32::from(self.bytes.get(at).copied().unwrap_or(0));
        }
        (word >> (8 - self.at % 8)) as u16
    }
}

impl BitReader for FaxBits<'_> {
    type Error = Infallible;

    fn peek(&self, bits: u8) -> Option<u16> {
        (1..=16).contains(&bits).then(|| self.window() >> (16 - bits))
    }

    fn consume(&mut self, bits: u8) -> Result<(), Infallible> {
        self.at += usize::from(bits);
        Ok(())
    }

    fn bits_to_byte_boundary(&self) -> u8 {
        (8 - self.at % 8) as u8 % 8
    }
}
