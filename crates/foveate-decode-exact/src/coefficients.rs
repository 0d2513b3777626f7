//! The coefficients of a picture that comes in several scans.

use std::collections::TryReserveError;

use crate::zigzag::natural;

/// The coefficients of a block, in natural order.
pub(crate) type CoefficientBlock = [i16; 64];

/// The block rows of a few unit rows.
pub(crate) struct Coefficients {
    rows: Vec<CoefficientRow>,
}

/// A row of blocks. The first coefficients have a place of their own, so that blocks without others cost no more memory
/// traffic than these.
#[derive(Default)]
pub(crate) struct CoefficientRow {
    /// Left from earlier rows where `nonzero` is zero.
    blocks: Vec<CoefficientBlock>,
    nonzero: Vec<u64>,
    dc: Vec<i16>,
}

impl Coefficients {
    pub(crate) const EMPTY: Self = Self { rows: Vec::new() };

    /// Takes memory for rows of these numbers of blocks; keeps what it has.
    pub(crate) fn reset(&mut self, rows: impl Iterator<Item = usize>) -> Result<(), TryReserveError> {
        for (i, blocks) in rows.enumerate() {
            if i == self.rows.len() {
                self.rows.push(CoefficientRow::default());
            }
            self.rows[i].reset(blocks)?;
        }
        Ok(())
    }

    /// Makes all coefficients zero.
    pub(crate) fn clear(&mut self) {
        for row in &mut self.rows {
            row.nonzero.fill(0);
            row.dc.fill(0);
        }
    }

    #[inline(always)]
    pub(crate) fn row(&mut self, index: usize) -> &mut CoefficientRow {
        &mut self.rows[index]
    }

    /// The blocks of a row and their first coefficients.
    #[inline(always)]
    pub(crate) fn blocks(&mut self, row: usize) -> impl Iterator<Item = (Option<&mut CoefficientBlock>, i16)> {
        let CoefficientRow { blocks, nonzero, dc } = &mut self.rows[row];
        let blocks = blocks.iter_mut().zip(nonzero).map(|(block, nonzero)| (*nonzero != 0).then_some(block));
        blocks.zip(dc.iter().copied())
    }

    /// Frees all memory if it is more than `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let blocks: usize = self.rows.iter().map(|row| row.blocks.capacity()).sum();
        if blocks * size_of::<CoefficientBlock>() > bytes {
            self.rows = Vec::new();
        }
    }
}

impl CoefficientRow {
    fn reset(&mut self, blocks: usize) -> Result<(), TryReserveError> {
        self.blocks.try_reserve_exact(blocks.saturating_sub(self.blocks.len()))?;
        self.nonzero.try_reserve_exact(blocks.saturating_sub(self.nonzero.len()))?;
        self.dc.try_reserve_exact(blocks.saturating_sub(self.dc.len()))?;
        self.blocks.resize(blocks, [0; 64]);
        self.nonzero.resize(blocks, 0);
        self.dc.resize(blocks, 0);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn block(&mut self, index: usize) -> StoredCoefficients<'_> {
        StoredCoefficients {
            coefficients: &mut self.blocks[index],
            nonzero: &mut self.nonzero[index],
            dc: &mut self.dc[index],
        }
    }

    /// The number of blocks from `first` on, at most `most`, in which no coefficient of `band` is set.
    #[inline(always)]
    pub(crate) fn without(&self, band: u64, first: usize, most: usize) -> usize {
        let nonzero = self.nonzero.get(first..first + most);
        nonzero.map_or(most, |nonzero| nonzero.iter().take_while(|&nonzero| nonzero & band == 0).count())
    }
}

/// A block of a picture that comes in several scans.
pub(crate) struct StoredCoefficients<'a> {
    /// All but the first; without meaning while all of them are zero.
    pub(crate) coefficients: &'a mut CoefficientBlock,
    /// Bit `k` is set if coefficient `k`, in coding order, may not be zero. Does not tell about the first.
    pub(crate) nonzero: &'a mut u64,
    pub(crate) dc: &'a mut i16,
}

impl StoredCoefficients<'_> {
    /// Must be called before coefficients are set.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        if *self.nonzero == 0 {
            *self.coefficients = [0; 64];
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, k: usize, value: i16) {
        self.coefficients[natural(k)] = value;
        *self.nonzero |= 1 << k.min(63);
    }

    /// Without a branch, because a processor cannot guess it. If the coefficient is known to be zero before, it need
    /// not be read.
    #[inline(always)]
    pub(crate) fn set_unless_zero<const IS_ZERO: bool>(&mut self, k: usize, value: i16) {
        let coefficient = &mut self.coefficients[natural(k)];
        *coefficient = if value == 0 && !IS_ZERO { *coefficient } else { value };
        *self.nonzero |= u64::from(value != 0) << (k & 63);
    }
}
