//! Decodes scans: entropy-coded data to coefficients.

use foveate_decode::DecodeError;

use crate::bits::Bits;
use crate::error::corrupt;
use crate::frame::{Frame, MAX_COMPONENTS};
use crate::huffman::Table;

/// The coefficients of a block, in natural order.
pub(crate) type Block = [i16; 64];

/// Natural order of the coefficients as they are coded; the entries past the last one serve runs that leave the block.
const ZIGZAG: [u8; 128] = {
    let mut order = [63; 128];
    let (mut x, mut y, mut k) = (0usize, 0usize, 0usize);
    while k < 64 {
        order[k] = (y * 8 + x) as u8;
        let upwards = (x + y).is_multiple_of(2);
        match (upwards, x, y) {
            (true, 7, _) => y += 1,
            (true, _, 0) => x += 1,
            (true, ..) => {
                x += 1;
                y -= 1;
            }
            (false, _, 7) => x += 1,
            (false, 0, _) => y += 1,
            (false, ..) => {
                x -= 1;
                y += 1;
            }
        }
        k += 1;
    }
    order
};

/// The natural index of coefficient `k` in a block.
#[inline(always)]
pub(crate) fn natural(k: usize) -> usize {
    usize::from(ZIGZAG[k & 127] & 63)
}

/// The Huffman tables in force: DC and AC.
pub(crate) struct Tables {
    pub(crate) dc: [Table; 4],
    pub(crate) ac: [Table; 4],
}

impl Tables {
    pub(crate) const EMPTY: Self = Self { dc: [Table::EMPTY; 4], ac: [Table::EMPTY; 4] };

    /// Loads a DHT segment, which may hold several tables.
    pub(crate) fn define(&mut self, mut payload: &[u8]) -> Result<(), DecodeError> {
        while let Some((&head, rest)) = payload.split_first() {
            let bad = || corrupt("bad Huffman table");
            let counts = rest.first_chunk::<16>().ok_or_else(bad)?;
            let end = 16 + counts.iter().map(|&count| usize::from(count)).sum::<usize>();
            let symbols = rest.get(16..end).filter(|symbols| symbols.len() <= 256).ok_or_else(bad)?;
            let class = if head >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            class.get_mut(usize::from(head & 15)).ok_or_else(bad)?.define(counts, symbols);
            payload = &rest[end..];
        }
        Ok(())
    }
}

/// One component's part in a scan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// Index among the frame's components.
    pub(crate) component: usize,
    pub(crate) dc: usize,
    pub(crate) ac: usize,
}

/// A scan header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    parts: [Part; MAX_COMPONENTS],
    count: usize,
    first: usize,
    last: usize,
    /// Whether earlier scans gave these coefficients' upper bits.
    refines: bool,
    /// Position of the bits in this scan.
    shift: u32,
}

impl Scan {
    /// Parses the payload of a scan header that [`foveate_decode::jpeg::inspect`] has accepted.
    pub(crate) fn parse(payload: &[u8], frame: &Frame) -> Result<Self, DecodeError> {
        let bad = || corrupt("bad scan header");
        let (&count, rest) = payload.split_first().ok_or_else(bad)?;
        let (selectors, &[first, last, approximation]) = rest.split_last_chunk().ok_or_else(bad)?;
        let selectors = selectors.as_chunks::<2>().0;
        let count = usize::from(count);
        if count == 0 || count > MAX_COMPONENTS || selectors.len() != count {
            return Err(bad());
        }
        let mut parts = [Part::default(); MAX_COMPONENTS];
        for (part, &[id, tables]) in parts.iter_mut().zip(selectors) {
            let component = frame.components().iter().position(|component| component.id == id).ok_or_else(bad)?;
            *part = Part { component, dc: usize::from(tables >> 4 & 3), ac: usize::from(tables & 3) };
        }
        let (first, last) = (usize::from(first).min(63), usize::from(last).min(63));
        Ok(Self { parts, count, first, last, refines: approximation >> 4 != 0, shift: u32::from(approximation & 15) })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts[..self.count]
    }

    /// Refuses tables with invalid codes.
    pub(crate) fn check_tables(&self, tables: &Tables, progressive: bool) -> Result<(), DecodeError> {
        let wants_dc = !progressive || (self.first == 0 && !self.refines);
        let wants_ac = !progressive || self.first > 0;
        for part in self.parts() {
            let (dc, ac) = (&tables.dc[part.dc], &tables.ac[part.ac]);
            if (wants_dc && !(dc.usable && dc.largest <= 15)) || (wants_ac && !ac.usable) {
                return Err(corrupt("a scan uses an impossible Huffman table"));
            }
        }
        Ok(())
    }
}

/// A position in a scan: its bits and the state carried from block to block.
pub(crate) struct Cursor<'a> {
    data: &'a [u8],
    pub(crate) bits: Bits<'a>,
    /// The last DC value of each component.
    pub(crate) dc: [i32; MAX_COMPONENTS],
    /// Number of following blocks without a further coefficient in this band.
    skip: u32,
    restart_interval: u32,
    units_to_restart: u32,
    next_restart: u8,
    /// The data ended early; no further bits until the next restart marker.
    pub(crate) dry: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(data: &'a [u8], at: usize, restart_interval: u32) -> Self {
        Self {
            data,
            bits: Bits::new(data, at),
            dc: [0; MAX_COMPONENTS],
            skip: 0,
            restart_interval,
            units_to_restart: restart_interval,
            next_restart: 0,
            dry: false,
        }
    }

    /// Skips a restart marker if one is due; call it before every unit.
    #[inline(always)]
    pub(crate) fn begin_unit(&mut self) {
        if self.restart_interval == 0 {
            return;
        }
        if self.units_to_restart == 0 {
            self.restart();
        }
        self.units_to_restart -= 1;
    }

    #[cold]
    #[inline(never)]
    fn restart(&mut self) {
        let (found, at) = self.find_restart();
        self.bits = Bits::new(self.data, at);
        self.dc = [0; MAX_COMPONENTS];
        self.skip = 0;
        self.units_to_restart = self.restart_interval;
        self.next_restart = (self.next_restart + 1) % 8;
        self.dry = !found;
    }

    /// The position where data continues after the due restart marker. An invalid marker, or one that belongs further
    /// on, stays in place; a late one is skipped. libjpeg handles damaged data the same way.
    fn find_restart(&self) -> (bool, usize) {
        let mut at = self.bits.position();
        loop {
            let Some((marker, behind)) = next_marker(self.data, at) else { return (false, self.data.len()) };
            match marker {
                0xD0..=0xD7 => match (marker - 0xD0).wrapping_sub(self.next_restart) & 7 {
                    0 | 3..=5 => return (true, behind),
                    1 | 2 => return (false, behind - 2),
                    _ => at = behind,
                },
                0xC0.. => return (false, behind - 2),
                _ => at = behind,
            }
        }
    }
}

/// The next marker at or after `at`, and the start of its segment.
pub(crate) fn next_marker(data: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += data.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        match *data.get(at + 1)? {
            0xFF => at += 1,
            0x00 => at += 2,
            marker => return Some((marker, at + 2)),
        }
    }
}

/// Decodes a block of a sequential scan into `block`, which must be all zero. Returns the index, in coding order, of
/// the last non-zero coefficient.
#[inline(always)]
pub(crate) fn sequential(cursor: &mut Cursor<'_>, slot: usize, dc: &Table, ac: &Table, block: &mut Block) -> usize {
    let mut bits = cursor.bits;
    let value = cursor.dc[slot].wrapping_add(dc_difference(&mut bits, dc));
    cursor.dc[slot] = value;
    block[0] = value as i16;
    let (mut k, mut last) = (1, 0);
    while k < 64 {
        bits.refill();
        if let Some(coefficient) = ac.coefficient(&mut bits) {
            k += coefficient.run;
            block[natural(k)] = coefficient.value as i16;
            last = k;
            k += 1;
            continue;
        }
        let symbol = ac.symbol(&mut bits);
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        if size != 0 {
            k += run;
            block[natural(k)] = bits.take_signed(size) as i16;
            last = k;
            k += 1;
        } else if run == 15 {
            k += 16;
        } else {
            break;
        }
    }
    cursor.bits = bits;
    last
}

#[inline(always)]
fn dc_difference(bits: &mut Bits<'_>, table: &Table) -> i32 {
    bits.refill();
    match table.coefficient(bits) {
        Some(coefficient) => coefficient.value,
        None => {
            let size = u32::from(table.symbol(bits) & 15);
            bits.take_signed(size)
        }
    }
}

/// Decodes one block of any of the four kinds of progressive scans.
#[inline(always)]
pub(crate) fn progressive(scan: &Scan, cursor: &mut Cursor<'_>, slot: usize, tables: &Tables, block: &mut Block) {
    let part = scan.parts[slot];
    match (scan.first, scan.refines) {
        (0, false) => {
            let value = cursor.dc[slot].wrapping_add(dc_difference(&mut cursor.bits, &tables.dc[part.dc]));
            cursor.dc[slot] = value;
            block[0] = (value << scan.shift) as i16;
        }
        (0, true) => block[0] |= i16::from(cursor.bits.bit()) << scan.shift,
        (_, false) => first_band(scan, cursor, &tables.ac[part.ac], block),
        (_, true) => refine_band(scan, cursor, &tables.ac[part.ac], block),
    }
}

/// Decodes the upper bits of a band's coefficients.
#[inline(always)]
fn first_band(scan: &Scan, cursor: &mut Cursor<'_>, table: &Table, block: &mut Block) {
    if cursor.skip > 0 {
        cursor.skip -= 1;
        return;
    }
    let mut bits = cursor.bits;
    let mut k = scan.first;
    while k <= scan.last {
        bits.refill();
        if let Some(coefficient) = table.coefficient(&mut bits) {
            k += coefficient.run;
            block[natural(k)] = (coefficient.value << scan.shift) as i16;
            k += 1;
            continue;
        }
        let symbol = table.symbol(&mut bits);
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        if size != 0 {
            k += run;
            block[natural(k)] = (bits.take_signed(size) << scan.shift) as i16;
            k += 1;
        } else if run == 15 {
            k += 16;
        } else {
            cursor.skip = (1 << run) - 1 + bits.take(run as u32);
            break;
        }
    }
    cursor.bits = bits;
}

/// Decodes one more bit of a band's coefficients, including those that it makes non-zero.
#[inline(always)]
fn refine_band(scan: &Scan, cursor: &mut Cursor<'_>, table: &Table, block: &mut Block) {
    let mut bits = cursor.bits;
    let bit = 1i16 << scan.shift;
    let mut k = scan.first;
    if cursor.skip == 0 {
        while k <= scan.last {
            bits.refill();
            let symbol = table.symbol(&mut bits);
            let (mut run, size) = (usize::from(symbol >> 4), symbol & 15);
            let mut new = 0;
            if size != 0 {
                new = if bits.take(1) != 0 { bit } else { -bit };
            } else if run < 15 {
                cursor.skip = (1 << run) + bits.take(run as u32);
                break;
            }
            // Skip `run` zeros, refining non-zero coefficients on the way.
            while k <= scan.last {
                let coefficient = &mut block[natural(k)];
                if *coefficient != 0 {
                    refine(coefficient, bit, &mut bits);
                } else if run == 0 {
                    *coefficient = new;
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
            k += 1;
        }
    }
    if cursor.skip > 0 {
        while k <= scan.last {
            let coefficient = &mut block[natural(k)];
            if *coefficient != 0 {
                refine(coefficient, bit, &mut bits);
            }
            k += 1;
        }
        cursor.skip -= 1;
    }
    cursor.bits = bits;
}

#[inline(always)]
fn refine(coefficient: &mut i16, bit: i16, bits: &mut Bits<'_>) {
    // In a damaged file, a second refinement of the same bit has no effect.
    if bits.bit() && *coefficient & bit == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { bit } else { bit.wrapping_neg() });
    }
}
