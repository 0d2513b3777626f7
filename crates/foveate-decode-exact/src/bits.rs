//! A bit reader for entropy-coded bytes.

/// Reads bits, most significant first, from one scan's data. At a marker and at the end of the bytes, it continues with
/// zeros, like libjpeg; [`Bits::exhausted`] reports that.
///
/// It is a small `Copy` value on purpose: a decoding loop works on its own copy, which the compiler keeps in registers.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a> {
    /// The data not yet loaded.
    rest: &'a [u8],
    /// Where the data ends.
    end: usize,
    /// The next bits, from the top. Bits below the `count` valid ones may already hold part of the next byte.
    buffer: u64,
    count: u32,
    /// Zero bits appended after the end of the data so far.
    invented: u64,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(data: &'a [u8], at: usize) -> Self {
        Self { rest: data.get(at..).unwrap_or_default(), end: data.len(), buffer: 0, count: 0, invented: 0 }
    }

    /// Start of the data not yet loaded. Once [`Bits::exhausted`], this is the marker that ended the data.
    pub(crate) fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    /// Returns true if more bits were used than the data has.
    #[inline(always)]
    pub(crate) fn exhausted(&self) -> bool {
        self.invented > u64::from(self.count)
    }

    /// Makes at least 56 bits available. It does not ask whether so many are needed: a processor can only guess the
    /// answer, and a wrong guess costs more than the load. At most 63 are, so that it may be called again at once.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        if let Some(&bytes) = self.rest.first_chunk::<8>() {
            let word = u64::from_be_bytes(bytes);
            if has_no_ff(word) {
                // Count whole bytes only. The next refill loads the part of the next byte that also fits again, into
                // the same place.
                self.buffer |= word >> self.count;
                self.rest = &self.rest[((63 - self.count) >> 3 & 7) as usize..];
                self.count |= 56;
                return;
            }
        }
        *self = self.refilled_bytewise();
    }

    /// By value, so that the caller's copy can stay in registers.
    #[cold]
    #[inline(never)]
    fn refilled_bytewise(mut self) -> Self {
        while self.count < 56 {
            match next_byte(self.rest) {
                Some((byte, rest)) => {
                    self.buffer |= u64::from(byte) << (56 - self.count);
                    self.rest = rest;
                }
                None => self.invented += 8,
            }
            self.count += 8;
        }
        self
    }

    /// The next `n` bits, 1 to 32.
    #[inline(always)]
    pub(crate) fn peek(&self, n: u32) -> u32 {
        (self.buffer >> (64 - n)) as u32
    }

    #[inline(always)]
    pub(crate) fn consume(&mut self, n: u32) {
        self.buffer <<= n;
        self.count = self.count.wrapping_sub(n);
    }

    /// Takes `n` bits, 0 to 16, that [`Bits::refill`] has made available.
    #[inline(always)]
    pub(crate) fn take(&mut self, n: u32) -> u32 {
        let bits = (self.buffer >> 1 >> (63 - n)) as u32;
        self.consume(n);
        bits
    }

    /// Takes `length` bits, 1 to 32, of which the last `n`, 0 to 15, are a signed value; returns that.
    #[inline(always)]
    pub(crate) fn take_ending(&mut self, length: u32, n: u32) -> i32 {
        let bits = (self.buffer >> (64 - length)) as u32 & ((1 << n) - 1);
        self.consume(length);
        extend(bits, n)
    }

    /// Takes the `n` bits of a signed value whose magnitude has `n` bits (ITU-T T.81, F.2.2.1 EXTEND).
    #[inline(always)]
    pub(crate) fn take_signed(&mut self, n: u32) -> i32 {
        extend(self.take(n), n)
    }

    /// Takes `n` bits, 1 to 32, that [`Bits::refill`] has made available.
    #[inline(always)]
    pub(crate) fn take_many(&mut self, n: u32) -> u32 {
        let bits = self.peek(n);
        self.consume(n);
        bits
    }

    /// Takes one bit, refilling if needed.
    #[inline(always)]
    pub(crate) fn bit(&mut self) -> bool {
        if self.count == 0 {
            self.refill();
        }
        self.take(1) != 0
    }
}

/// The value of `n` bits, 0 to 16: the upper half stands for itself, the lower half for negative values.
#[inline(always)]
pub(crate) fn extend(bits: u32, n: u32) -> i32 {
    let value = bits as i32;
    let is_lower_half = (value - ((1 << n) >> 1)) >> 31;
    value + (is_lower_half & (1 - (1 << n)))
}

/// Returns true if no byte of `word` is 0xFF; may say no for a word with 0xFE bytes that has none.
#[inline(always)]
fn has_no_ff(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    (!word).wrapping_sub(ONES) & word & HIGH == 0
}

/// The first byte of the data and what follows; none at a marker and at the end.
fn next_byte(data: &[u8]) -> Option<(u8, &[u8])> {
    let (&byte, rest) = data.split_first()?;
    if byte != 0xFF {
        return Some((byte, rest));
    }
    // Any number of fill bytes may stand between 0xFF and the marker code.
    let code = rest.iter().position(|&byte| byte != 0xFF)?;
    (rest[code] == 0).then_some((0xFF, &rest[code + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order_over_stuffed_bytes() {
        let mut data = Vec::new();
        let mut expected = Vec::new();
        for byte in (0..=255u8).chain([0xFF, 0xFF, 0xFE, 0xFF]).cycle().take(3000) {
            data.push(byte);
            expected.push(byte);
            if byte == 0xFF {
                data.push(0);
            }
        }
        let bit = |i: usize| u32::from(expected[i / 8] >> (7 - i % 8) & 1);
        let mut bits = Bits::new(&data, 0);
        let (mut at, mut n) = (0, 1);
        while at + 32 < expected.len() * 8 {
            bits.refill();
            bits.refill();
            let wanted = (at..at + n).fold(0, |value, i| value << 1 | bit(i));
            assert_eq!(bits.peek(n as u32), wanted, "at bit {at}");
            assert_eq!(bits.take(n as u32), wanted, "at bit {at}");
            at += n;
            n = n % 16 + 1;
        }
        assert!(!bits.exhausted());
    }

    #[test]
    fn zeros_follow_the_data() {
        for data in [&[0xA5u8, 0xFF, 0xD9, 0x12][..], &[0xA5], &[0xA5, 0xFF], &[0xA5, 0xFF, 0xFF, 0xD0]] {
            let mut bits = Bits::new(data, 0);
            bits.refill();
            assert_eq!(bits.take(8), 0xA5);
            assert!(!bits.exhausted());
            assert!(!bits.bit() && bits.exhausted());
            assert_eq!(bits.position(), 1, "before the marker");
        }
    }

    #[test]
    fn values_are_extended_as_the_standard_says() {
        let values = |n: u32| (0..1u32 << n).map(|bits| extend(bits, n)).collect::<Vec<_>>();
        assert_eq!(values(0), [0]);
        assert_eq!(values(1), [-1, 1]);
        assert_eq!(values(3), [-7, -6, -5, -4, 4, 5, 6, 7]);
        assert_eq!((extend(0, 16), extend(0xFFFF, 16)), (-65535, 65535));
        let mut bits = Bits::new(&[0b1010_0110, 0b1100_0000], 0);
        bits.refill();
        assert_eq!([(3, 0), (4, 2), (3, 3)].map(|(length, n)| bits.take_ending(length, n)), [0, 3, -4]);
    }
}
