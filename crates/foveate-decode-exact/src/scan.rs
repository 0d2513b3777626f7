//! Decodes scans: entropy-coded data to coefficients.

use std::ops::RangeInclusive;

use foveate_decode::DecodeError;

use memchr::memchr;

use crate::bits::{BitWindow, Bits, Bytes};
use crate::coefficients::{CoefficientRow, StoredCoefficients};
use crate::error::corrupt;
use crate::frame::{Frame, MAX_COMPONENTS};
use crate::huffman::{DC_LOOKAHEAD, HuffmanTable};
use crate::kernels::JpegKernels;
use crate::zigzag::index;

/// The Huffman tables of a picture: DC and AC.
pub(crate) struct Tables {
    pub(crate) dc: Class,
    pub(crate) ac: Class,
}

/// Tables in the order of their definition: those in force, and those that scans need whose data waits.
pub(crate) struct Class {
    /// Those from `count` on are left from earlier pictures, of which the next ones may have the same.
    pub(crate) tables: Vec<HuffmanTable>,
    count: usize,
    /// The tables in force.
    slots: [Option<usize>; 4],
}

impl Class {
    const EMPTY: Self = Self { tables: Vec::new(), count: 0, slots: [None; 4] };

    /// Puts a table in force; returns `None` for a slot that does not exist.
    fn define(&mut self, slot: usize, counts: &[u8; 16], symbols: &[u8]) -> Option<()> {
        let slot = self.slots.get_mut(slot)?;
        let index = slot.filter(|&index| !self.tables[index].is_held).unwrap_or(self.count);
        if index == self.tables.len() {
            self.tables.push(HuffmanTable::EMPTY);
        }
        self.count = self.count.max(index + 1);
        *slot = Some(index);
        self.tables[index].is_held = false;
        self.tables[index].define(counts, symbols);
        Some(())
    }

    /// Keeps the table in force for a scan; returns its index, or `None` if there is none with valid codes.
    fn hold(&mut self, slot: usize) -> Option<usize> {
        let index = self.slots[slot].filter(|&index| self.tables[index].usable)?;
        self.tables[index].is_held = true;
        Some(index)
    }

    fn begin(&mut self) {
        self.count = 0;
        self.slots = [None; 4];
    }

    fn shrink(&mut self) {
        self.tables.truncate(KEEP_TABLES);
        self.tables.shrink_to(KEEP_TABLES);
    }
}

/// Tables beyond these are freed after the picture that defined them: a file of 90 KB can define 33 MB of tables.
const KEEP_TABLES: usize = 32;

impl Tables {
    pub(crate) const EMPTY: Self = Self { dc: Class::EMPTY, ac: Class::EMPTY };

    /// Puts all tables out of force, for the next picture.
    pub(crate) fn begin(&mut self) {
        self.dc.begin();
        self.ac.begin();
    }

    /// Frees memory beyond the usual amount.
    pub(crate) fn shrink(&mut self) {
        self.dc.shrink();
        self.ac.shrink();
    }

    /// Tables for which there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.dc.tables.capacity() + self.ac.tables.capacity()
    }

    /// Loads a DHT segment, which may hold several tables.
    pub(crate) fn define(&mut self, mut payload: &[u8]) -> Result<(), DecodeError> {
        while let Some((&head, rest)) = payload.split_first() {
            let counts = rest.first_chunk::<16>().ok_or_else(bad_table)?;
            let end = 16 + counts.iter().map(|&count| usize::from(count)).sum::<usize>();
            let symbols = rest.get(16..end).filter(|symbols| symbols.len() <= 256).ok_or_else(bad_table)?;
            let class = if head >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            class.define(usize::from(head & 15), counts, symbols).ok_or_else(bad_table)?;
            payload = &rest[end..];
        }
        Ok(())
    }
}

/// The error of a table that is cut off or too long.
fn bad_table() -> DecodeError {
    corrupt("bad Huffman table")
}

/// The error of a scan header that contradicts itself or the frame.
fn bad_header() -> DecodeError {
    corrupt("bad scan header")
}

/// The error of a table that is missing or cannot be decoded with.
fn impossible_table() -> DecodeError {
    corrupt("a scan uses an impossible Huffman table")
}

/// One component's part in a scan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScanPart {
    /// Index among the frame's components.
    pub(crate) component: usize,
    /// Tables: their slots, or their indices once [`Scan::hold_tables`] was called.
    pub(crate) dc: usize,
    pub(crate) ac: usize,
}

/// A scan header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    parts: [ScanPart; MAX_COMPONENTS],
    count: usize,
    first: usize,
    last: usize,
    /// True if earlier scans gave these coefficients' upper bits.
    refines: bool,
    /// Position of the bits in this scan.
    shift: u32,
}

impl Scan {
    /// Parses the payload of a scan header that [`foveate_decode::jpeg::inspect`] has accepted.
    pub(crate) fn parse(payload: &[u8], frame: &Frame) -> Result<Self, DecodeError> {
        let (&count, rest) = payload.split_first().ok_or_else(bad_header)?;
        let (selectors, &[first, last, approximation]) = rest.split_last_chunk().ok_or_else(bad_header)?;
        let selectors = selectors.as_chunks::<2>().0;
        let count = usize::from(count);
        if count == 0 || count > MAX_COMPONENTS || selectors.len() != count {
            return Err(bad_header());
        }
        let mut parts = [ScanPart::default(); MAX_COMPONENTS];
        for (i, (part, &[id, tables])) in parts.iter_mut().zip(selectors).enumerate() {
            // As in libjpeg, which reads components with one id in their order.
            let mut components = frame.components().iter().enumerate().skip(i);
            let (component, _) = components.find(|(_, component)| component.id == id).ok_or_else(bad_header)?;
            *part = ScanPart { component, dc: usize::from(tables >> 4 & 3), ac: usize::from(tables & 3) };
        }
        let first = usize::from(first).min(63);
        let last = usize::from(last).min(63);
        Ok(Self { parts, count, first, last, refines: approximation >> 4 != 0, shift: u32::from(approximation & 15) })
    }

    /// Returns true if the scan refines coefficients other than the first.
    pub(crate) fn refines_band(&self) -> bool {
        self.refines && self.first > 0
    }

    /// The scan's coefficients, in coding order.
    pub(crate) fn band(&self) -> RangeInclusive<usize> {
        self.first..=self.last
    }

    /// A bit for each of the scan's coefficients.
    #[inline(always)]
    fn mask(&self) -> u64 {
        u64::MAX << self.first & u64::MAX >> (63 - self.last)
    }

    pub(crate) fn parts(&self) -> &[ScanPart] {
        &self.parts[..self.count]
    }

    /// Keeps the tables in force for this scan. Refuses those with invalid codes.
    pub(crate) fn hold_tables(&mut self, tables: &mut Tables, is_progressive: bool) -> Result<(), DecodeError> {
        let wants_dc = !is_progressive || (self.first == 0 && !self.refines);
        let wants_ac = !is_progressive || self.first > 0;
        for part in &mut self.parts[..self.count] {
            if wants_dc {
                part.dc = tables.dc.hold(part.dc).ok_or_else(impossible_table)?;
                if tables.dc.tables[part.dc].largest > 15 {
                    return Err(impossible_table());
                }
            }
            if wants_ac {
                part.ac = tables.ac.hold(part.ac).ok_or_else(impossible_table)?;
            }
        }
        Ok(())
    }

    /// Prepares the tables for what the scan does with them.
    pub(crate) fn prepare_tables(&self, tables: &mut Tables, is_progressive: bool) {
        for part in self.parts() {
            // Sequential scans hold whole blocks, whatever their headers say.
            if !is_progressive || self.first == 0 && !self.refines {
                tables.dc.tables[part.dc].prepare_differences();
            }
            if !is_progressive || self.first > 0 && !self.refines {
                tables.ac.tables[part.ac].prepare_pairs();
            }
        }
    }
}

/// Most bytes of a block: each of its symbols and values takes at most 32 bits.
const BLOCK_BYTES: usize = 256;

/// A position in a scan: its bits and the state carried from block to block.
pub(crate) struct Cursor<'a> {
    data: &'a [u8],
    pub(crate) window: BitWindow<'a>,
    pub(crate) bits: Bits,
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
    /// A cursor at the start of a scan with units of this many blocks.
    pub(crate) fn new(data: &'a [u8], at: usize, memory: &'a mut Bytes, blocks: usize, restart_interval: u32) -> Self {
        let mut window = BitWindow::new(data, memory, blocks * BLOCK_BYTES);
        let bits = window.load(at);
        Self {
            data,
            window,
            bits,
            dc: [0; MAX_COMPONENTS],
            skip: 0,
            restart_interval,
            units_to_restart: restart_interval,
            next_restart: 0,
            dry: false,
        }
    }

    /// Passes over the blocks from `x` to `across` that have no data; returns the next one.
    #[inline(always)]
    pub(crate) fn pass(&mut self, scan: &Scan, row: &CoefficientRow, x: usize, across: usize) -> usize {
        if self.skip == 0 || self.restart_interval != 0 {
            return x;
        }
        let corrected = if scan.refines { scan.mask() } else { 0 };
        let count = row.without(corrected, x, (across - x).min(self.skip as usize));
        self.skip -= count as u32;
        x + count
    }

    /// Loads more data and skips a restart marker where these are due; call it before every unit.
    #[inline(always)]
    pub(crate) fn begin_unit(&mut self, mut bits: Bits) -> Bits {
        if bits.position() > self.window.limit {
            bits = self.advance(bits);
        }
        if self.restart_interval == 0 {
            return bits;
        }
        if self.units_to_restart == 0 {
            bits = self.restart();
        }
        self.units_to_restart -= 1;
        bits
    }

    #[cold]
    #[inline(never)]
    fn advance(&mut self, mut bits: Bits) -> Bits {
        self.dry |= !self.window.advance(&mut bits);
        bits
    }

    #[cold]
    #[inline(never)]
    fn restart(&mut self) -> Bits {
        let (found, at) = self.find_restart();
        self.dc = [0; MAX_COMPONENTS];
        self.skip = 0;
        self.units_to_restart = self.restart_interval;
        self.next_restart = (self.next_restart + 1) % 8;
        // As in libjpeg, a missing marker does not mean that the data has ended: one more unit is decoded, from zeros.
        self.dry &= !found;
        self.window.load(at)
    }

    /// The position where data continues after the due restart marker. An invalid marker, or one that belongs further
    /// on, stays in place; a late one is skipped. libjpeg handles damaged data the same way.
    fn find_restart(&self) -> (bool, usize) {
        let mut at = self.window.source;
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
        at += memchr(0xFF, data.get(at..)?)?;
        match *data.get(at + 1)? {
            0xFF => at += 1,
            0x00 => at += 2,
            marker => return Some((marker, at + 2)),
        }
    }
}

/// Coefficients in natural order, of which only the first 64 count. An index of 8 bits needs no check.
pub(crate) type ScanScratch = [i16; 256];

/// Decodes the first coefficient of a block, or its upper bits; returns it, and the bits behind it.
#[inline(always)]
pub(crate) fn first(cursor: &mut Cursor<'_>, mut bits: Bits, slot: usize, dc: &HuffmanTable) -> (Bits, i16) {
    let value = cursor.dc[slot].wrapping_add(dc_difference(&mut bits, cursor.window.bytes, dc));
    cursor.dc[slot] = value;
    (bits, value as i16)
}

/// Decodes the coefficients of a block of a sequential scan behind the first into `block`, of which they must be zero:
/// at least those up to `kept` in coding order. Only finds the end of those behind, for which the table needs its
/// groups. Returns whether any of them may have a value.
#[inline(always)]
pub(crate) fn rest<const WHOLE: bool>(
    bytes: &Bytes,
    mut bits: Bits,
    ac: &HuffmanTable,
    kept: usize,
    block: &mut ScanScratch,
) -> (Bits, bool) {
    let mut k = 1;
    'block: while WHOLE || k <= kept {
        // At least 11 bits are left for a lookup, so that it need not wait for the refill: a difference leaves 30, and
        // a pair takes at most 19.
        for refills in [false, true] {
            let pair = ac.pair(&bits);
            if refills {
                bits.refill(bytes);
            }
            let last = k + pair.last_place();
            if last > 63 {
                match pair.end().map(|end| k + end) {
                    Some(end @ ..64) => {
                        // Without a first value, this is a zero where there is none yet.
                        block[usize::from(index(k + pair.first_place()))] = pair.first_value();
                        pair.take(&mut bits);
                        return (bits, end > 1);
                    }
                    _ if k > 63 => break 'block,
                    _ => (bits, k) = symbol(bits, bytes, ac, block, k),
                }
                continue 'block;
            }
            // Without a first or a last value, this is a zero where there is none yet.
            block[usize::from(index(k + pair.first_place()))] = pair.first_value();
            block[usize::from(index(last))] = pair.take(&mut bits) as i16;
            k = last + 1;
            if !WHOLE && k > kept {
                break 'block;
            }
        }
    }
    if !WHOLE && k < 64 {
        skip(&mut bits, bytes, ac, k);
    }
    (bits, true)
}

/// Decodes one symbol and its value; returns the next coefficient. By value, so that the caller's copy of the bits can
/// stay in registers.
#[cold]
#[inline(never)]
fn symbol(mut bits: Bits, bytes: &Bytes, ac: &HuffmanTable, block: &mut ScanScratch, mut k: usize) -> (Bits, usize) {
    bits.refill(bytes);
    let symbol = ac.symbol(&mut bits);
    let run = usize::from(symbol >> 4);
    let size = u32::from(symbol & 15);
    if size != 0 {
        k += run;
        block[usize::from(index(k))] = bits.take_signed(size) as i16;
        k += 1;
    } else {
        k = if run == 15 { k + 16 } else { 64 };
    }
    bits.refill(bytes);
    (bits, k)
}

/// Finds the end of a block whose next coefficient is `k`.
#[inline(always)]
fn skip(bits: &mut Bits, bytes: &Bytes, ac: &HuffmanTable, mut k: usize) {
    'block: while k < 64 {
        bits.refill(bytes);
        // Two steps take at most 24 + 31 bits.
        for _ in 0..2 {
            let group = ac.group(bits);
            if k + group.covers() > 64 {
                k = skip_symbol(bits, ac, k);
                continue 'block;
            }
            bits.consume(group.length());
            k = (k + group.covers()) | group.end();
            if k >= 64 {
                break 'block;
            }
        }
    }
}

/// Passes over one symbol and its value; returns the next coefficient.
#[inline(always)]
fn skip_symbol(bits: &mut Bits, ac: &HuffmanTable, k: usize) -> usize {
    let symbol = ac.symbol(bits);
    let run = usize::from(symbol >> 4);
    let size = u32::from(symbol & 15);
    bits.consume(size);
    if size != 0 || run == 15 { k + run + 1 } else { 64 }
}

/// The next difference of DC values; leaves at least 30 bits available.
#[inline(always)]
fn dc_difference(bits: &mut Bits, bytes: &Bytes, table: &HuffmanTable) -> i32 {
    if bits.available() < DC_LOOKAHEAD {
        *bits = refilled(*bits, bytes);
    }
    // The lookup does not wait for the refill.
    let pair = table.difference(bits);
    bits.refill(bytes);
    if pair.is_alone() {
        let value;
        (*bits, value) = long_difference(*bits, bytes, table);
        return value;
    }
    pair.take(bits)
}

/// Rarely needed.
#[cold]
#[inline(never)]
fn refilled(mut bits: Bits, bytes: &Bytes) -> Bits {
    bits.refill(bytes);
    bits
}

/// A difference with a long code.
#[cold]
#[inline(never)]
fn long_difference(mut bits: Bits, bytes: &Bytes, table: &HuffmanTable) -> (Bits, i32) {
    let size = table.symbol(&mut bits);
    let value = bits.take_signed(u32::from(size & 15));
    bits.refill(bytes);
    (bits, value)
}

/// Decodes one block of any of the four kinds of progressive scans.
#[inline(always)]
pub(crate) fn progressive(
    kernels: impl JpegKernels,
    scan: &Scan,
    cursor: &mut Cursor<'_>,
    mut bits: Bits,
    slot: usize,
    tables: &Tables,
    mut block: StoredCoefficients<'_>,
) -> Bits {
    let part = scan.parts[slot];
    match (scan.first, scan.refines) {
        (0, false) => {
            let value;
            (bits, value) = first(cursor, bits, slot, &tables.dc.tables[part.dc]);
            *block.dc = value << scan.shift;
            bits
        }
        (0, true) => {
            bits.refill(cursor.window.bytes);
            *block.dc |= (bits.take(1) << scan.shift) as i16;
            bits
        }
        (_, false) => {
            let table = &tables.ac.tables[part.ac];
            match *block.nonzero & scan.mask() {
                0 => first_band::<true>(scan, cursor, bits, table, &mut block),
                // Only strange files decode a band twice.
                _ => first_band::<false>(scan, cursor, bits, table, &mut block),
            }
        }
        (_, true) => refine_band(kernels, scan, cursor, bits, &tables.ac.tables[part.ac], &mut block),
    }
}

/// Decodes the upper bits of a band's coefficients.
#[inline(always)]
fn first_band<const IS_ZERO: bool>(
    scan: &Scan,
    cursor: &mut Cursor<'_>,
    mut bits: Bits,
    table: &HuffmanTable,
    block: &mut StoredCoefficients<'_>,
) -> Bits {
    if cursor.skip > 0 {
        cursor.skip -= 1;
        return bits;
    }
    block.begin();
    let bytes = &*cursor.window.bytes;
    let mut k = scan.first;
    bits.refill(bytes);
    'band: while k <= scan.last {
        // As in [`rest`].
        for refills in [false, true] {
            let pair = table.pair(&bits);
            if refills {
                bits.refill(bytes);
            }
            let last = k + pair.last_place();
            if last > scan.last {
                if let Some(end) = pair.end()
                    && k + end <= scan.last
                {
                    block.set_unless_zero::<IS_ZERO>(k + pair.first_place(), pair.first_value() << scan.shift);
                    pair.take(&mut bits);
                    break 'band;
                }
                if k > scan.last {
                    break 'band;
                }
                bits.refill(bytes);
                let symbol = table.symbol(&mut bits);
                let run = usize::from(symbol >> 4);
                let size = u32::from(symbol & 15);
                if size != 0 {
                    k += run;
                    block.set(k, (bits.take_signed(size) << scan.shift) as i16);
                    k += 1;
                } else if run == 15 {
                    k += 16;
                } else {
                    cursor.skip = (1 << run) - 1 + bits.take(run as u32);
                    break 'band;
                }
                bits.refill(bytes);
                continue 'band;
            }
            block.set_unless_zero::<IS_ZERO>(k + pair.first_place(), pair.first_value() << scan.shift);
            block.set_unless_zero::<IS_ZERO>(last, (pair.take(&mut bits) << scan.shift) as i16);
            k = last + 1;
        }
    }
    bits
}

/// Decodes one more bit of a band's coefficients, including those that it makes non-zero.
#[inline(always)]
fn refine_band(
    kernels: impl JpegKernels,
    scan: &Scan,
    cursor: &mut Cursor<'_>,
    mut bits: Bits,
    table: &HuffmanTable,
    block: &mut StoredCoefficients<'_>,
) -> Bits {
    let bytes = &*cursor.window.bytes;
    let band = scan.mask();
    // Each coefficient that was not zero before takes one bit.
    let known = *block.nonzero & band;
    let mut left = known.count_ones();
    let mut corrections = 0;
    let mut new = 0;
    let mut negative = 0;
    if cursor.skip == 0 && known == 0 {
        // Zeros follow each other, and no bits come between them.
        let mut k = scan.first;
        bits.refill(bytes);
        while k <= scan.last {
            let symbol = table.symbol_and_refill(&mut bits, bytes);
            let run = usize::from(symbol >> 4);
            let size = symbol & 15;
            if size == 0 && run < 15 {
                cursor.skip = (1 << run) + bits.take(run as u32);
                break;
            }
            let is_new = u64::from(size != 0);
            let is_negative = is_new & u64::from(bits.peek(1) ^ 1);
            bits.consume(is_new as u32);
            k += run;
            if k > scan.last {
                break;
            }
            new |= is_new << k;
            negative |= is_negative << k;
            k += 1;
        }
    } else if cursor.skip == 0 {
        let zeros = places(!known & band);
        let mut k = scan.first;
        let mut passed_zeros = 0;
        bits.refill(bytes);
        while k <= scan.last {
            let symbol = table.symbol_and_refill(&mut bits, bytes);
            let run = usize::from(symbol >> 4);
            let size = symbol & 15;
            let mut is_new = 0;
            let mut is_negative = 0;
            if size != 0 {
                is_new = 1;
                is_negative = u64::from(bits.take(1) ^ 1);
            } else if run < 15 {
                cursor.skip = (1 << run) + bits.take(run as u32);
                break;
            }
            // Pass over `run` zeros and the coefficients between them.
            let place = usize::from(zeros[(passed_zeros + run) % PLACES]);
            if place > scan.last {
                break;
            }
            let passed = (place - k - run) as u32;
            corrections = corrections << passed | bits.take_long(passed, bytes);
            left -= passed;
            new |= is_new << place;
            negative |= is_negative << place;
            k = place + 1;
            passed_zeros += run + 1;
        }
    } else {
        bits.refill(bytes);
    }
    corrections = corrections << left | bits.take_long(left, bytes);
    cursor.skip = cursor.skip.saturating_sub(1);
    let ones = new | deposit(corrections, known);
    if ones != 0 {
        block.begin();
        kernels.refine(block.coefficients, ones, negative, 1 << scan.shift);
        *block.nonzero |= new;
    }
    bits
}

/// Entries of [`places`].
const PLACES: usize = 128;

/// The places of the ones in `set`, which has less than 64, followed by at least 16 places beyond every block.
#[inline(always)]
fn places(set: u64) -> [u8; PLACES] {
    /// The places of the ones in every byte, from the lowest byte on.
    const IN_BYTE: [u64; 256] = {
        let mut places = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut bit = 0;
            let mut count = 0;
            while bit < 8 {
                if byte >> bit & 1 != 0 {
                    places[byte] |= bit << (8 * count);
                    count += 1;
                }
                bit += 1;
            }
            byte += 1;
        }
        places
    };
    let mut places = [64; PLACES];
    let mut count = 0;
    for (i, byte) in set.to_le_bytes().into_iter().enumerate() {
        let in_set = IN_BYTE[usize::from(byte)] + i as u64 * 0x0808_0808_0808_0808;
        places[count % 64..][..8].copy_from_slice(&in_set.to_le_bytes());
        count += byte.count_ones() as usize;
    }
    places[count % 64..][..16].fill(64);
    places
}

/// The ones of `places` that have a one in `bits`, whose last bit belongs to the last place.
#[inline(always)]
fn deposit(bits: u64, mut places: u64) -> u64 {
    let mut bits = if places == 0 { 0 } else { bits << (64 - places.count_ones()) };
    let mut ones = 0;
    while places != 0 {
        // In steps of four, because a processor cannot guess the number.
        for _ in 0..4 {
            ones |= places & places.wrapping_neg() & (bits as i64 >> 63) as u64;
            bits <<= 1;
            places &= places.wrapping_sub(1);
        }
    }
    ones
}
