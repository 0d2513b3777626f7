use crate::codes::{BLOCK, Codes};

/// Rows of a block with the limits of their pairs.
#[derive(Clone, Copy)]
pub(crate) struct CodeBlock<'a> {
    /// `[rows, width]`, a multiple of four rows.
    pub(crate) codes: &'a [i8],
    pub(crate) biases: &'a [i32],
    /// A pair is found if it reaches the lower one of its rows' limits.
    pub(crate) limits: &'a [i32],
}

impl<'a> CodeBlock<'a> {
    /// Block `number` of some codes.
    pub(crate) fn of(codes: &'a Codes, width: usize, number: usize, limits: &'a [i32]) -> Self {
        let rows = number * BLOCK..(number * BLOCK + BLOCK).min(codes.len());
        let limits = &limits[..rows.len()];
        Self { codes: &codes.codes[rows.start * width..rows.end * width], biases: &codes.biases[rows], limits }
    }

    pub(crate) fn row(&self, row: u32, width: usize) -> &'a [i8] {
        &self.codes[row as usize * width..][..width]
    }

    /// Returns true if a row and a row of `other` reach the limit.
    #[inline(always)]
    pub(crate) fn reaches(&self, other: &Self, row: u32, of_other: u32, product: impl FnOnce(u32, u32) -> i32) -> bool {
        let i = row as usize;
        let j = of_other as usize;
        product(row, of_other) + self.biases[i] + other.biases[j] >= self.limits[i].min(other.limits[j])
    }
}

/// The product of two rows of codes.
#[inline(always)]
pub(crate) fn product(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&x, &y)| i32::from(i16::from(x) * i16::from(y))).sum()
}
