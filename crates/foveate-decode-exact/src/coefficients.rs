//! The coefficients of a picture that comes in several scans.

use std::collections::TryReserveError;

use crate::scan::{Block, Stored};

/// Block rows of all components. A row takes no memory before data reaches it, so that a file costs what it holds, not
/// what its header claims.
pub(crate) struct Coefficients {
    rows: Vec<Row>,
}

/// A row of blocks; empty before data reaches it, when all of them are zero.
#[derive(Default)]
pub(crate) struct Row {
    blocks: Vec<Block>,
    nonzero: Vec<u64>,
}

impl Coefficients {
    pub(crate) const EMPTY: Self = Self { rows: Vec::new() };

    /// Makes this many rows, all zero. Keeps the memory of earlier ones.
    pub(crate) fn clear(&mut self, rows: usize) -> Result<(), TryReserveError> {
        self.rows.truncate(rows);
        self.rows.iter_mut().for_each(Row::clear);
        self.rows.try_reserve_exact(rows - self.rows.len())?;
        self.rows.resize_with(rows, Row::default);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn row(&mut self, index: usize) -> &mut Row {
        &mut self.rows[index]
    }

    /// The blocks of a row with their non-zero coefficients; empty if the row is all zero.
    #[inline(always)]
    pub(crate) fn blocks(&self, row: usize) -> impl Iterator<Item = (&Block, u64)> {
        self.rows[row].blocks.iter().zip(self.rows[row].nonzero.iter().copied())
    }

    /// The number of rows that data has reached.
    #[cfg(test)]
    pub(crate) fn reached(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_empty()).count()
    }

    /// Frees all memory if it is more than `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let blocks: usize = self.rows.iter().map(|row| row.blocks.capacity()).sum();
        if blocks * size_of::<Block>() > bytes {
            self.rows = Vec::new();
        }
    }
}

impl Row {
    fn clear(&mut self) {
        self.blocks.clear();
        self.nonzero.clear();
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Takes memory for `blocks` blocks, all zero.
    #[cold]
    #[inline(never)]
    pub(crate) fn fill(&mut self, blocks: usize) -> Result<(), TryReserveError> {
        self.blocks.try_reserve_exact(blocks)?;
        self.nonzero.try_reserve_exact(blocks)?;
        self.blocks.resize(blocks, [0; 64]);
        self.nonzero.resize(blocks, 0);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn block(&mut self, index: usize) -> Stored<'_> {
        Stored { coefficients: &mut self.blocks[index], nonzero: &mut self.nonzero[index] }
    }
}
