//! Huffman tables, laid out for fast decoding.

use crate::bits::{Bits, Bytes, extend};

/// Codes up to this length are decoded with one lookup.
const LOOKAHEAD: u32 = 11;
/// The same for differences of DC values, of which there are few; all tables in use should fit in a core's first cache.
pub(crate) const DC_LOOKAHEAD: u32 = 8;

/// A table of codes.
pub(crate) struct HuffmanTable {
    /// The code that the next [`LOOKAHEAD`] bits begin with.
    codes: [Code; 1 << LOOKAHEAD],
    /// The symbols that they begin with; filled by [`HuffmanTable::prepare_pairs`] or
    /// [`HuffmanTable::prepare_differences`].
    pairs: [PackedPair; 1 << LOOKAHEAD],
    has_pairs: bool,
    /// As many of the symbols as they hold; filled by [`HuffmanTable::prepare_groups`].
    groups: [Group; 1 << LOOKAHEAD],
    has_groups: bool,
    /// The first code longer than `n` bits, in the upper 16 of 17 bits.
    limits: [u32; 18],
    /// Added to a code of `n` bits to give its symbol's index.
    offsets: [i32; 17],
    counts: [u8; 16],
    symbols: [u8; 256],
    known: usize,
    /// True if a scan of the present picture uses it.
    pub(crate) is_held: bool,
    /// True if the codes are valid; checked when a scan uses the table.
    pub(crate) usable: bool,
    /// The largest symbol.
    pub(crate) largest: u8,
}

/// A code's length, 0 for one that is longer than [`LOOKAHEAD`], and its symbol in the upper byte.
#[derive(Clone, Copy)]
struct Code(u16);

impl Code {
    const LONG: Self = Self(0);

    #[inline(always)]
    fn length(self) -> u32 {
        u32::from(self.0 & 0xFF)
    }

    #[inline(always)]
    fn symbol(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

/// One or two AC symbols, or a DC symbol. The first of two has its value within the bits that were looked at; of the
/// other one, the code alone needs to be. A processor can read all parts at once, and only the length delays the next
/// lookup.
#[derive(Clone, Copy)]
pub(crate) struct HuffmanPair {
    /// From bit 0 on, the length of the codes and values; from bit 6 on, 63 less the size of the last value; from bit
    /// 12 on, the zeros before the first value.
    sizes: u32,
    /// Coefficients before the last value. An end of block has [`HuffmanPair::END`] added: such a place is beyond every
    /// block, so that one comparison sorts out all special cases.
    place: usize,
    /// The first value; 0 if there is one symbol only.
    first: i16,
}

/// A pair in a table. Apart from it, because a compiler would narrow the pair's numbers at every step.
#[derive(Clone, Copy)]
struct PackedPair {
    sizes: u16,
    place: u8,
    first: i8,
}

impl HuffmanPair {
    /// Added to the place of an end of block.
    const END: usize = 64;
    /// The first code is too long, or its meaning depends on the kind of scan.
    const ALONE: Self = Self { sizes: 63 << 6, place: 128, first: 0 };
    /// The limit of lengths, so that a refill suffices for two pairs and the lookup of another.
    const LONGEST: u32 = 19;
    /// Sizes of first values have this limit.
    const LARGEST_FIRST: u32 = 7;

    fn new(first: Option<(u32, i32)>, last: u8, length: u32) -> Self {
        let (first_run, value, start) = first.map_or((0, 0, 0), |(run, value)| (run, value, run as usize + 1));
        let place = start + if last == 0 { Self::END } else { usize::from(last >> 4) };
        Self { sizes: length | (63 - u32::from(last & 15)) << 6 | first_run << 12, place, first: value as i16 }
    }

    const fn packed(self) -> PackedPair {
        PackedPair { sizes: self.sizes as u16, place: self.place as u8, first: self.first as i8 }
    }

    #[inline(always)]
    pub(crate) fn first_place(self) -> usize {
        (self.sizes >> 12) as usize
    }

    #[inline(always)]
    pub(crate) fn first_value(self) -> i16 {
        self.first
    }

    #[inline(always)]
    pub(crate) fn last_place(self) -> usize {
        self.place
    }

    /// The coefficients before the end of the block, if that is the last symbol.
    #[inline(always)]
    pub(crate) fn end(self) -> Option<usize> {
        (self.place & Self::END != 0).then_some(self.place % Self::END)
    }

    /// Returns true if it says nothing.
    #[inline(always)]
    pub(crate) fn is_alone(self) -> bool {
        self.place == Self::ALONE.place
    }

    /// Takes the whole pair; returns the last value, 0 if there is none.
    #[inline(always)]
    pub(crate) fn take(self, bits: &mut Bits) -> i32 {
        bits.take_ending(self.sizes, self.sizes >> 6)
    }
}

impl PackedPair {
    #[inline(always)]
    fn unpacked(self) -> HuffmanPair {
        HuffmanPair { sizes: self.sizes.into(), place: self.place.into(), first: self.first.into() }
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

impl HuffmanTable {
    pub(crate) const EMPTY: Self = Self {
        codes: [Code::LONG; 1 << LOOKAHEAD],
        pairs: [HuffmanPair::ALONE.packed(); 1 << LOOKAHEAD],
        has_pairs: false,
        groups: [Group::NONE; 1 << LOOKAHEAD],
        has_groups: false,
        limits: [0; 18],
        offsets: [0; 17],
        counts: [0; 16],
        symbols: [0; 256],
        known: 0,
        is_held: false,
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
        self.codes.fill(Code::LONG);
        self.has_pairs = false;
        self.has_groups = false;
        self.counts = *counts;
        self.symbols.fill(0);
        self.known = known;
        self.symbols[..known].copy_from_slice(&symbols[..known]);
        self.largest = symbols.iter().copied().max().unwrap_or(0);
        self.usable = true;
        let mut code = 0u32;
        let mut index = 0usize;
        for length in 1..=16u32 {
            let count = u32::from(counts[length as usize - 1]);
            self.offsets[length as usize] = index as i32 - code as i32;
            // The standard reserves the code of all ones, but files use it and libjpeg accepts it.
            self.usable &= code + count <= 1 << length && index + count as usize <= known;
            if !self.usable {
                return;
            }
            if length <= LOOKAHEAD {
                let free = LOOKAHEAD - length;
                for (code, &symbol) in (code as usize..).zip(&symbols[index..index + count as usize]) {
                    let entry = Code(u16::from(symbol) << 8 | length as u16);
                    self.codes[code << free..(code + 1) << free].fill(entry);
                }
            }
            code += count;
            index += count as usize;
            self.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        self.limits[17] = u32::MAX;
    }

    /// Makes [`HuffmanTable::pair`] usable, for a table of AC symbols.
    pub(crate) fn prepare_pairs(&mut self) {
        if self.has_pairs {
            return;
        }
        self.has_pairs = true;
        let mut bits = 0;
        while bits < 1 << LOOKAHEAD {
            let (pair, looked_at) = self.leading_pair(bits);
            let next = bits + (1 << (LOOKAHEAD - looked_at));
            self.pairs[bits as usize..next as usize].fill(pair.packed());
            bits = next;
        }
    }

    /// Makes [`HuffmanTable::difference`] usable, for a table of DC symbols.
    pub(crate) fn prepare_differences(&mut self) {
        if self.has_pairs {
            return;
        }
        self.has_pairs = true;
        let codes = self.codes.iter().step_by(1 << (LOOKAHEAD - DC_LOOKAHEAD));
        for (pair, code) in self.pairs.iter_mut().zip(codes) {
            let size = u32::from(code.symbol() & 15);
            let single = HuffmanPair { place: 0, ..HuffmanPair::new(None, code.symbol(), code.length() + size) };
            *pair =
                if (1..=DC_LOOKAHEAD).contains(&code.length()) { single.packed() } else { HuffmanPair::ALONE.packed() };
        }
    }

    /// The symbols at the start of these [`LOOKAHEAD`] bits, and the number of bits that tell so.
    fn leading_pair(&self, bits: u32) -> (HuffmanPair, u32) {
        let code = self.codes[bits as usize];
        let run = u32::from(code.symbol() >> 4);
        let size = u32::from(code.symbol() & 15);
        // The ends of several blocks at once follow in the bits, and mean one end in sequential scans.
        if code.length() == 0 || size == 0 && (1..15).contains(&run) {
            return (HuffmanPair::ALONE, if code.length() == 0 { LOOKAHEAD } else { code.length() });
        }
        let length = code.length() + size;
        if length > HuffmanPair::LONGEST {
            return (HuffmanPair::ALONE, code.length());
        }
        let single = HuffmanPair::new(None, code.symbol(), length);
        if size == 0 || size > HuffmanPair::LARGEST_FIRST || length >= LOOKAHEAD {
            return (single, code.length());
        }
        let left = LOOKAHEAD - length;
        let next = self.codes[(bits << length & ((1 << LOOKAHEAD) - 1)) as usize];
        let next_run = next.symbol() >> 4;
        let next_size = u32::from(next.symbol() & 15);
        if next.length() == 0 || next.length() > left || next_size == 0 && (1..15).contains(&next_run) {
            return (single, LOOKAHEAD);
        }
        let value = extend(bits >> left & ((1 << size) - 1), size);
        let whole = length + next.length() + next_size;
        let pair = if whole > HuffmanPair::LONGEST {
            single
        } else {
            HuffmanPair::new(Some((run, value)), next.symbol(), whole)
        };
        (pair, length + next.length())
    }

    /// Makes [`HuffmanTable::group`] usable, for a table of AC symbols.
    pub(crate) fn prepare_groups(&mut self) {
        if self.has_groups {
            return;
        }
        self.has_groups = true;
        for bits in 0..1 << LOOKAHEAD {
            self.groups[bits as usize] = self.leading_symbols(bits);
        }
    }

    /// The largest value's size in a group; larger ones occur in damaged files alone. Together, a group and a single
    /// symbol take at most the 56 bits that a refill guarantees.
    const LARGEST_SIZE: u32 = 13;

    /// As many symbols as possible at the start of these [`LOOKAHEAD`] bits.
    fn leading_symbols(&self, bits: u32) -> Group {
        let mut length = 0;
        let mut covers = 0;
        let mut end = 0;
        while end == 0 && length < LOOKAHEAD {
            let code = self.codes[(bits << length & ((1 << LOOKAHEAD) - 1)) as usize];
            let run = u32::from(code.symbol() >> 4);
            let size = u32::from(code.symbol() & 15);
            if code.length() == 0 || length + code.length() > LOOKAHEAD || size > Self::LARGEST_SIZE {
                break;
            }
            length += code.length() + size;
            end = if size == 0 && run != 15 { 64 } else { 0 };
            // As in decoding, any other symbol without a value ends the block, whatever its run.
            covers += if end == 0 { run + 1 } else { 1 };
        }
        if length == 0 { Group::NONE } else { Group((length | end | covers << 8) as u16) }
    }

    /// The next symbols as one group; the bits must have been refilled.
    #[inline(always)]
    pub(crate) fn group(&self, bits: &Bits) -> Group {
        self.groups[bits.peek(LOOKAHEAD) as usize]
    }

    /// The next symbols as a pair; the bits must have been refilled.
    #[inline(always)]
    pub(crate) fn pair(&self, bits: &Bits) -> HuffmanPair {
        self.pairs[bits.peek(LOOKAHEAD) as usize].unpacked()
    }

    /// The next DC symbol, as a pair without a place; the bits must have been refilled.
    #[inline(always)]
    pub(crate) fn difference(&self, bits: &Bits) -> HuffmanPair {
        self.pairs[bits.peek(DC_LOOKAHEAD) as usize].unpacked()
    }

    /// The next symbol; the bits must have been refilled. An invalid code is symbol 0 and takes 17 bits, as in libjpeg.
    #[inline(always)]
    pub(crate) fn symbol(&self, bits: &mut Bits) -> u8 {
        self.symbol_of(self.codes[bits.peek(LOOKAHEAD) as usize], bits)
    }

    /// The next symbol, and a refill that the lookup does not wait for; at least [`LOOKAHEAD`] bits must be available.
    #[inline(always)]
    pub(crate) fn symbol_and_refill(&self, bits: &mut Bits, bytes: &Bytes) -> u8 {
        let code = self.codes[bits.peek(LOOKAHEAD) as usize];
        bits.refill(bytes);
        self.symbol_of(code, bits)
    }

    #[inline(always)]
    fn symbol_of(&self, code: Code, bits: &mut Bits) -> u8 {
        if code.length() != 0 {
            bits.consume(code.length());
            return code.symbol();
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
