//! A bit reader for entropy-coded bytes.

use memchr::memchr;

/// Positions in a window.
const POSITIONS: usize = 1 << 16;

/// Bytes to read bits from; the last 8 serve loads that begin at the last position.
pub(crate) type Bytes = [u8; BYTES];

pub(crate) const BYTES: usize = POSITIONS + 8;

/// A part of one scan's data without the zeros stuffed after 0xFF, so that [`Bits`] need not look for markers. Zeros
/// follow the data's end, as in libjpeg.
pub(crate) struct BitWindow<'a> {
    data: &'a [u8],
    /// Start of the data not yet loaded; if none is left, the marker that ends it.
    pub(crate) source: usize,
    pub(crate) bytes: &'a mut Bytes,
    /// Number of bytes loaded.
    end: usize,
    /// True if no data is left to load.
    is_complete: bool,
    /// Most bytes read between two calls of [`BitWindow::advance`].
    margin: usize,
    /// Bits up to here may be used before [`BitWindow::advance`].
    pub(crate) limit: usize,
}

impl<'a> BitWindow<'a> {
    /// A window of `data`, empty until [`BitWindow::load`], for reading at most `margin` bytes at once.
    pub(crate) fn new(data: &'a [u8], bytes: &'a mut Bytes, margin: usize) -> Self {
        Self { data, source: 0, bytes, end: 0, is_complete: true, margin, limit: 0 }
    }

    /// Loads the data from `source` on; returns its first bits.
    pub(crate) fn load(&mut self, source: usize) -> Bits {
        self.source = source;
        self.end = 0;
        self.fill();
        Bits { at: 0, buffer: 0, count: 0 }
    }

    /// Loads more data, once `bits` is beyond the limit; returns false if more bits were used than the data has.
    pub(crate) fn advance(&mut self, bits: &mut Bits) -> bool {
        if !self.is_complete {
            // Some bytes are in the bits' buffer.
            let used = bits.at.saturating_sub(8);
            bits.at -= used;
            let used = used as usize;
            self.bytes.copy_within(used..self.end, 0);
            self.end -= used;
            self.fill();
        }
        bits.position() <= self.limit
    }

    fn fill(&mut self) {
        self.is_complete = !self.unstuff(POSITIONS - self.margin);
        if self.is_complete {
            self.bytes[self.end..self.end + self.margin].fill(0);
        }
        self.limit = (self.end - if self.is_complete { 0 } else { self.margin }) * 8;
    }

    /// Appends data up to `end`; returns false at a marker and at the end of the data.
    fn unstuff(&mut self, end: usize) -> bool {
        while self.end < end {
            let Some(rest) = self.data.get(self.source..) else { return false };
            let rest = &rest[..rest.len().min(end - self.end)];
            let plain = memchr(0xFF, rest);
            let count = plain.unwrap_or(rest.len());
            self.bytes[self.end..self.end + count].copy_from_slice(&rest[..count]);
            self.end += count;
            self.source += count;
            let tail = &self.data[self.source..];
            // Any number of fill bytes may stand between 0xFF and the marker code.
            match tail.iter().position(|&byte| byte != 0xFF) {
                Some(0) => {}
                Some(code) if tail[code] == 0 => {
                    self.bytes[self.end] = 0xFF;
                    self.end += 1;
                    self.source += code + 1;
                }
                _ => return false,
            }
        }
        true
    }
}

/// Reads bits, most significant first, from a window's bytes.
///
/// It is a small `Copy` value on purpose: a decoding loop works on its own copy, which the compiler keeps in registers.
#[derive(Clone, Copy)]
pub(crate) struct Bits {
    /// The first byte not yet loaded.
    at: u32,
    /// The next bits, from the top. Bits below the `count` valid ones may already hold part of the next byte.
    buffer: u64,
    /// Modulo 64, so that the length to subtract may have other bits above it.
    count: u32,
}

impl Bits {
    /// The number of bits used.
    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        (self.at * 8 - self.available()) as usize
    }

    /// The number of bits that need no refill.
    #[inline(always)]
    pub(crate) fn available(&self) -> u32 {
        self.count & 63
    }

    /// Makes at least 56 bits available. It does not ask whether so many are needed: a processor can only guess the
    /// answer, and a wrong guess costs more than the load. At most 63 are, so that it may be called again at once.
    #[inline(always)]
    pub(crate) fn refill(&mut self, bytes: &Bytes) {
        let from = self.at as usize % POSITIONS;
        let word = bytes[from..].first_chunk().map_or(0, |&bytes| u64::from_be_bytes(bytes));
        // Count whole bytes only. The next refill loads the part of the next byte that also fits again, into the same
        // place.
        self.buffer |= word.wrapping_shr(self.count);
        self.at = from as u32 + (!self.count >> 3 & 7);
        self.count |= 56;
    }

    /// The next `n` bits, 1 to 32.
    #[inline(always)]
    pub(crate) fn peek(&self, n: u32) -> u32 {
        (self.buffer >> (64 - n)) as u32
    }

    /// Passes over `n` bits, modulo 64.
    #[inline(always)]
    pub(crate) fn consume(&mut self, n: u32) {
        self.buffer = self.buffer.wrapping_shl(n);
        self.count = self.count.wrapping_sub(n);
    }

    /// Takes `n` bits, 0 to 32, that [`Bits::refill`] has made available.
    #[inline(always)]
    pub(crate) fn take(&mut self, n: u32) -> u32 {
        let bits = (self.buffer >> 1 >> (63 - n)) as u32;
        self.consume(n);
        bits
    }

    /// Takes `length` bits, modulo 64, of which the last `63 - shift`, modulo 64, 0 to 15, are a signed value; returns
    /// that.
    #[inline(always)]
    pub(crate) fn take_ending(&mut self, length: u32, shift: u32) -> i32 {
        let value = self.buffer.wrapping_shl(length.wrapping_add(shift).wrapping_add(1));
        // An upper half stands for itself; the inverse of the value's first bit is the sign. Negative values count
        // from -1, not from 0.
        let signed = (value as i64 >> 1) ^ i64::MIN;
        self.consume(length);
        signed.wrapping_shr(shift) as i32 - (signed >> 63) as i32
    }

    /// Takes the `n` bits of a signed value whose magnitude has `n` bits (ITU-T T.81, F.2.2.1 EXTEND).
    #[inline(always)]
    pub(crate) fn take_signed(&mut self, n: u32) -> i32 {
        self.take_ending(n, 63 - n)
    }

    /// Takes `n` bits, 0 to 63, of which 26 are available.
    #[inline(always)]
    pub(crate) fn take_long(&mut self, n: u32, bytes: &Bytes) -> u64 {
        if n <= 26 {
            return self.take(n).into();
        }
        self.refill(bytes);
        let lower = n / 2;
        let upper = u64::from(self.take(n - lower)) << lower;
        self.refill(bytes);
        upper | u64::from(self.take(lower))
    }
}

/// The value of `n` bits, 0 to 16: the upper half stands for itself, the lower half for negative values.
pub(crate) fn extend(bits: u32, n: u32) -> i32 {
    let value = bits as i32;
    if value < (1 << n) >> 1 { value + 1 - (1 << n) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Box<Bytes> {
        Box::new([0xAA; BYTES])
    }

    #[test]
    fn bits_come_in_order_over_stuffed_bytes() {
        let mut data = Vec::new();
        let mut expected = Vec::new();
        for byte in (0..=255u8).chain([0xFF, 0xFF, 0xFE, 0xFF]).cycle().take(3 * POSITIONS) {
            data.push(byte);
            expected.push(byte);
            if byte == 0xFF {
                data.push(0);
            }
        }
        let bit = |i: usize| u32::from(expected[i / 8] >> (7 - i % 8) & 1);
        let mut memory = bytes();
        let mut window = BitWindow::new(&data, &mut memory, 1000);
        let mut bits = window.load(0);
        let mut at = 0;
        let mut n = 1;
        while at + 32 < expected.len() * 8 {
            assert!(bits.position() <= window.limit || window.advance(&mut bits), "at bit {at}");
            for _ in 0..900 {
                bits.refill(window.bytes);
                bits.refill(window.bytes);
                let wanted = (at..at + n).fold(0, |value, i| value << 1 | bit(i));
                assert_eq!(bits.peek(n as u32), wanted, "at bit {at}");
                assert_eq!(bits.take(n as u32), wanted, "at bit {at}");
                at += n;
                n = n % 16 + 1;
                if at + 32 >= expected.len() * 8 {
                    break;
                }
            }
        }
    }

    #[test]
    fn zeros_follow_the_data() {
        for data in [&[0xA5u8, 0xFF, 0xD9, 0x12][..], &[0xA5], &[0xA5, 0xFF], &[0xA5, 0xFF, 0xFF, 0xD0]] {
            let mut memory = bytes();
            let mut window = BitWindow::new(data, &mut memory, 16);
            let mut bits = window.load(0);
            bits.refill(window.bytes);
            assert_eq!(bits.take(8), 0xA5);
            assert!(window.advance(&mut bits));
            assert!(bits.take(1) == 0 && !window.advance(&mut bits));
            assert_eq!(window.source, 1, "before the marker");
        }
    }

    #[test]
    fn values_are_extended_as_the_standard_says() {
        let values = |n: u32| (0..1u32 << n).map(|bits| extend(bits, n)).collect::<Vec<_>>();
        assert_eq!(values(0), [0]);
        assert_eq!(values(1), [-1, 1]);
        assert_eq!(values(3), [-7, -6, -5, -4, 4, 5, 6, 7]);
        assert_eq!((extend(0, 16), extend(0xFFFF, 16)), (-65535, 65535));
        for n in 0..16 {
            for (value, expected) in values(n).into_iter().enumerate() {
                let mut bits = Bits { at: 8, buffer: 0b101 << 61 | (value as u64) << (61 - n) | 1, count: 56 };
                assert_eq!(bits.take_ending(3 + n, 63 - n), expected, "{value} of {n} bits");
                assert_eq!((bits.position(), bits.buffer), (11 + n as usize, 1 << (3 + n)));
            }
        }
    }
}
