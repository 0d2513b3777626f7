use crate::codes::{BLOCK, Codes, FineScale, REFINED};

/// Rows of a block with the limits of their pairs.
#[derive(Clone, Copy)]
pub(crate) struct CodeBlock<'a> {
    /// `[rows, width]`, a multiple of four rows.
    pub(crate) codes: &'a [i8],
    pub(crate) biases: &'a [i32],
    /// A pair is found if it reaches the lower one of its rows' limits.
    pub(crate) limits: &'a [i32],
}

/// Rows of a block with the codes of what their first codes leave.
#[derive(Clone, Copy)]
pub(crate) struct FineBlock<'a> {
    pub(crate) codes: CodeBlock<'a>,
    /// As [`FineScale`] makes them.
    pub(crate) rest: CodeBlock<'a>,
}

impl FineBlock<'_> {
    /// Returns true if a row and a row of `other` reach the limit.
    #[inline(always)]
    pub(crate) fn reaches(
        &self,
        other: &Self,
        row: u32,
        of_other: u32,
        scale: &FineScale,
        product: impl Fn(&[i8], &[i8]) -> i32,
    ) -> bool {
        self.rest.reaches(&other.rest, row, of_other, |row, of_other| {
            let a = self.codes.row(row, scale.leading);
            let b = other.codes.row(of_other, scale.leading);
            let (a_errors, a_rest) = self.rest.row(row, scale.width).split_at(scale.leading);
            let (b_errors, b_rest) = other.rest.row(of_other, scale.width).split_at(scale.leading);
            let leading = REFINED * product(a, b) + product(a, b_errors) + product(a_errors, b);
            leading + scale.times * product(a_rest, b_rest)
        })
    }
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
