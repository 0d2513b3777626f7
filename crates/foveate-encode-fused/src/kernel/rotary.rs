//! Rotary positions: turns queries and keys in place.

use foveate_model::RotaryTable;
use pulp::{Simd, WithSimd};

/// Turns the heads of some consecutive tokens of an image. The same arithmetic on every instruction set.
pub(crate) struct Rotate<'a> {
    pub(crate) table: &'a RotaryTable,
    pub(crate) values: &'a mut [f32],
    /// The patch of the first token; the tokens of the prefix come before patch 0.
    pub(crate) first: isize,
    pub(crate) tokens: usize,
    pub(crate) heads: usize,
    /// From a token's values to the next token's, and from a head's to the next head's.
    pub(crate) strides: (usize, usize),
}

impl WithSimd for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let half = self.table.half;
        let prefix = usize::try_from(-self.first).unwrap_or(0);
        for token in prefix..self.tokens {
            let patch = (self.first + token as isize) as usize;
            let cos = &self.table.cos[patch * half..][..half];
            let sin = &self.table.sin[patch * half..][..half];
            for head in 0..self.heads {
                let at = token * self.strides.0 + head * self.strides.1;
                let (low, high) = self.values[at..at + 2 * half].split_at_mut(half);
                for i in 0..half {
                    let a = low[i];
                    let b = high[i];
                    low[i] = a * cos[i] - b * sin[i];
                    high[i] = b * cos[i] + a * sin[i];
                }
            }
        }
    }
}
