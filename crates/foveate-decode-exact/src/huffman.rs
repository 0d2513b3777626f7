//! Huffman tables, laid out for fast decoding.

use crate::bits::{Bits, extend};

/// Codes up to this length are decoded with one lookup. More bits would hold more of the values too, but less of the
/// first-level cache is left for the samples.
const LOOKAHEAD: u32 = 11;

/// Bits whose symbols [`Table::group`] skips at once.
const GROUP: u32 = 12;

/// A table of codes.
pub(crate) struct Table {
    /// For the next [`LOOKAHEAD`] bits: see [`Entry`].
    entries: [Entry; 1 << LOOKAHEAD],
    /// For the next [`GROUP`] bits; filled by [`Table::prepare_groups`].
    groups: [Group; 1 << GROUP],
    has_groups: bool,
    /// The first code longer than `n` bits, in the upper 16 of 17 bits.
    limits: [u32; 18],
    /// Added to a code of `n` bits to give its symbol's index.
    offsets: [i32; 17],
    counts: [u8; 16],
    symbols: [u8; 256],
    known: usize,
    /// Whether the codes are valid; checked when a scan uses the table.
    pub(crate) usable: bool,
    /// The largest symbol.
    pub(crate) largest: u8,
}

/// What the next bits begin with. Bits 0 to 4 hold a length: that of the code with its value if both fit, or else that
/// of the code, 0 if it is longer. Bit 7 is set if they do not fit or there is no value. Bits 8 to 15 are the symbol,
/// bits 16 to 31 the value.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    const LONG: Self = Self(Self::NO_VALUE);
    const NO_VALUE: u32 = 0x80;

    fn has_value(self) -> bool {
        self.0 & Self::NO_VALUE == 0
    }

    fn length(self) -> u32 {
        self.0 & 0x1F
    }

    fn symbol(self) -> u8 {
        (self.0 >> 8) as u8
    }

    fn code_length(self) -> u32 {
        self.length() - if self.has_value() { u32::from(self.symbol() & 15) } else { 0 }
    }
}

/// The symbols that the next bits begin with, and the values that follow them; the last value may reach beyond the bits
/// that were looked at. Bits 0 to 4 hold their length, bit 6 is set if the last one ends the block, and bits 8 to 15
/// hold the coefficients that they cover.
#[derive(Clone, Copy)]
pub(crate) struct Group(u16);

impl Group {
    /// The first code is too long. It covers more than a block has, so that one comparison sorts out both cases.
    const NONE: Self = Self(0xFF00);

    #[inline(always)]
    pub(crate) fn length(self) -> u32 {
        u32::from(self.0 & 0x1F)
    }

    /// The coefficients that it covers, including the one that an end of block stands in place of.
    #[inline(always)]
    pub(crate) fn covers(self) -> usize {
        usize::from(self.0 >> 8)
    }

    /// 64 if the block ends with it, or else 0.
    #[inline(always)]
    pub(crate) fn end(self) -> usize {
        usize::from(self.0 & 64)
    }
}

/// A decoded step of a block.
pub(crate) enum Step {
    /// A coefficient after `run` zeros.
    Coefficient { run: usize, value: i32 },
    /// A symbol whose value, if it has one, must still be read.
    Symbol(u8),
}

impl Table {
    pub(crate) const EMPTY: Self = Self {
        entries: [Entry::LONG; 1 << LOOKAHEAD],
        groups: [Group::NONE; 1 << GROUP],
        has_groups: false,
        limits: [0; 18],
        offsets: [0; 17],
        counts: [0; 16],
        symbols: [0; 256],
        known: 0,
        usable: false,
        largest: 0,
    };

    /// Loads the content of a DHT segment: the number of codes of each length, and their symbols in order. A table that
    /// equals the present one, as those of photos from the same encoder often do, costs nothing.
    pub(crate) fn define(&mut self, counts: &[u8; 16], symbols: &[u8]) {
        let known = symbols.len().min(256);
        if self.usable && self.counts == *counts && self.symbols[..self.known] == symbols[..known] {
            return;
        }
        self.entries.fill(Entry::LONG);
        self.has_groups = false;
        self.counts = *counts;
        self.symbols.fill(0);
        self.known = known;
        self.symbols[..known].copy_from_slice(&symbols[..known]);
        self.largest = symbols.iter().copied().max().unwrap_or(0);
        self.usable = true;
        let (mut code, mut index) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = u32::from(counts[length as usize - 1]);
            self.offsets[length as usize] = index as i32 - code as i32;
            // The standard reserves the code of all ones, but files use it and libjpeg accepts it.
            self.usable &= code + count <= 1 << length && index + count as usize <= known;
            if !self.usable {
                return;
            }
            if length <= LOOKAHEAD {
                for (code, &symbol) in (code..).zip(&symbols[index..index + count as usize]) {
                    self.look_up(code, length, symbol);
                }
            }
            code += count;
            index += count as usize;
            self.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        self.limits[17] = u32::MAX;
    }

    fn look_up(&mut self, code: u32, length: u32, symbol: u8) {
        let free = LOOKAHEAD - length;
        let first = (code << free) as usize;
        let entries = &mut self.entries[first..first + (1 << free)];
        let (size, named) = (u32::from(symbol & 15), u32::from(symbol) << 8);
        if size == 0 || size > free {
            entries.fill(Entry(named | Entry::NO_VALUE | length));
            return;
        }
        for (bits, entry) in entries.iter_mut().enumerate() {
            let value = extend(bits as u32 >> (free - size), size);
            *entry = Entry((value as u32) << 16 | named | (length + size));
        }
    }

    /// Makes [`Table::group`] usable, for a table of AC symbols.
    pub(crate) fn prepare_groups(&mut self) {
        if self.has_groups {
            return;
        }
        self.has_groups = true;
        for bits in 0..1 << GROUP {
            self.groups[bits as usize] = self.leading_symbols(bits);
        }
    }

    /// The largest value's size in a group; larger ones occur in damaged files alone. Together, a group and a single
    /// symbol take at most the 56 bits that a refill guarantees.
    const LARGEST_SIZE: u32 = 13;

    /// The symbols at the start of these [`GROUP`] bits.
    fn leading_symbols(&self, bits: u32) -> Group {
        let (mut length, mut covers, mut end) = (0, 0, 0);
        while end == 0 && length < GROUP {
            let next = (bits << length & ((1 << GROUP) - 1)) >> (GROUP - LOOKAHEAD);
            let entry = self.entries[next as usize];
            let (run, size) = (u32::from(entry.symbol() >> 4), u32::from(entry.symbol() & 15));
            if entry.length() == 0 || length + entry.code_length() > GROUP || size > Self::LARGEST_SIZE {
                break;
            }
            length += entry.code_length() + size;
            end = if size == 0 && run != 15 { 64 } else { 0 };
            // As in decoding, any other symbol without a value ends the block, whatever its run.
            covers += if end == 0 { run + 1 } else { 1 };
        }
        if length == 0 { Group::NONE } else { Group((length | end | covers << 8) as u16) }
    }

    /// The next symbols as one group; the bits must have been refilled.
    #[inline(always)]
    pub(crate) fn group(&self, bits: &Bits<'_>) -> Group {
        self.groups[bits.peek(GROUP) as usize]
    }

    /// The next symbol, with its value if both are short; the bits must have been refilled.
    #[inline(always)]
    pub(crate) fn step(&self, bits: &mut Bits<'_>) -> Step {
        let entry = self.entries[bits.peek(LOOKAHEAD) as usize];
        if entry.has_value() {
            bits.consume(entry.length());
            return Step::Coefficient { run: (entry.0 >> 12 & 15) as usize, value: entry.0 as i32 >> 16 };
        }
        Step::Symbol(self.without_value(entry, bits))
    }

    /// The next symbol; the bits must have been refilled. An invalid code is symbol 0 and takes 17 bits, as in libjpeg.
    #[inline(always)]
    pub(crate) fn symbol(&self, bits: &mut Bits<'_>) -> u8 {
        let entry = self.entries[bits.peek(LOOKAHEAD) as usize];
        if entry.has_value() {
            bits.consume(entry.code_length());
            return entry.symbol();
        }
        self.without_value(entry, bits)
    }

    #[inline(always)]
    fn without_value(&self, entry: Entry, bits: &mut Bits<'_>) -> u8 {
        if entry.length() != 0 {
            bits.consume(entry.length());
            return entry.symbol();
        }
        let (symbol, length) = self.long_symbol(bits.peek(16));
        bits.consume(length);
        symbol
    }

    #[cold]
    #[inline(never)]
    fn long_symbol(&self, next: u32) -> (u8, u32) {
        let length = (1..=16).find(|&n| next < self.limits[n]);
        length.map_or((0, 17), |n| {
            let index = (next >> (16 - n)) as i32 + self.offsets[n];
            (self.symbols[index as usize & 0xFF], n as u32)
        })
    }
}
