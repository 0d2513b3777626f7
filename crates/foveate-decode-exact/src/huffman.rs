//! Huffman tables, laid out for fast decoding.

use crate::bits::{Bits, extend};

/// Codes up to this length are decoded with one lookup.
const LOOKAHEAD: u32 = 10;

/// A table of codes.
pub(crate) struct Table {
    /// For the next [`LOOKAHEAD`] bits: the code's length below, the symbol above; 0 for longer codes.
    codes: [u16; 1 << LOOKAHEAD],
    /// The same for codes combined with the signed value that follows. Bits 0..8 hold the length of both, bits 8..12
    /// the symbol's upper half (the run of zeros), bits 16..32 the value. 0 if both do not fit or there is no value.
    coefficients: [u32; 1 << LOOKAHEAD],
    /// The first code longer than `n` bits, in the upper 16 of 17 bits.
    limits: [u32; 18],
    /// Added to a code of `n` bits to give its symbol's index.
    offsets: [i32; 17],
    symbols: [u8; 256],
    /// Whether the codes are valid; checked when a scan uses the table.
    pub(crate) usable: bool,
    /// The largest symbol.
    pub(crate) largest: u8,
}

/// A coefficient that was decoded in one step.
pub(crate) struct Coefficient {
    /// Zeros before it.
    pub(crate) run: usize,
    pub(crate) value: i32,
}

impl Table {
    pub(crate) const EMPTY: Self = Self {
        codes: [0; 1 << LOOKAHEAD],
        coefficients: [0; 1 << LOOKAHEAD],
        limits: [0; 18],
        offsets: [0; 17],
        symbols: [0; 256],
        usable: false,
        largest: 0,
    };

    /// Loads the content of a DHT segment: the number of codes of each length, and their symbols in order.
    pub(crate) fn define(&mut self, counts: &[u8; 16], symbols: &[u8]) {
        self.codes.fill(0);
        self.coefficients.fill(0);
        self.symbols.fill(0);
        let known = symbols.len().min(256);
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
        self.codes[first..first + (1 << free)].fill(u16::from(symbol) << 8 | length as u16);
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        if size == 0 || size > free {
            return;
        }
        for (bits, entry) in self.coefficients[first..first + (1 << free)].iter_mut().enumerate() {
            let value = extend(bits as u32 >> (free - size), size);
            *entry = (value as u32) << 16 | run << 8 | (length + size);
        }
    }

    /// The next coefficient if its code and value are short; the bits must have been refilled.
    #[inline(always)]
    pub(crate) fn coefficient(&self, bits: &mut Bits<'_>) -> Option<Coefficient> {
        let entry = self.coefficients[bits.peek(LOOKAHEAD) as usize];
        if entry == 0 {
            return None;
        }
        bits.consume(entry & 0xFF);
        Some(Coefficient { run: (entry >> 8 & 0xFF) as usize, value: entry as i32 >> 16 })
    }

    /// The next symbol; the bits must have been refilled. An invalid code is symbol 0, as in libjpeg.
    #[inline(always)]
    pub(crate) fn symbol(&self, bits: &mut Bits<'_>) -> u8 {
        let entry = self.codes[bits.peek(LOOKAHEAD) as usize];
        if entry != 0 {
            bits.consume(u32::from(entry & 0xFF));
            return (entry >> 8) as u8;
        }
        let (symbol, length) = self.long_symbol(bits.peek(16));
        bits.consume(length);
        symbol
    }

    #[cold]
    #[inline(never)]
    fn long_symbol(&self, next: u32) -> (u8, u32) {
        let length = (1..=16).find(|&n| next < self.limits[n]);
        length.map_or((0, 16), |n| {
            let index = (next >> (16 - n)) as i32 + self.offsets[n];
            (self.symbols[index as usize & 0xFF], n as u32)
        })
    }
}
