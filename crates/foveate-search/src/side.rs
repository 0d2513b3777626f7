use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::basis::{SAMPLE, WIDTHS};
use crate::codes::{BLOCK, CodeScale, Codes, WORD};
use crate::found::{Neighbors, Stats};
use crate::order::{Groups, order};
use crate::screen::{CodeBlock, ThreadScratch, Unit};
use crate::search::BlockPair;
use crate::top::Top;
use crate::vectors::RowsOf;
use crate::{Search, Vectors};

/// The limits of a block's rows.
pub(crate) struct BlockLimits {
    coarse: Vec<i32>,
    fine: Option<Vec<i32>>,
}

/// Scales of the two comparisons of rows: by codes of some directions, then by those of all.
pub(crate) struct Scales<'a> {
    pub(crate) coarse: CodeScale<'a>,
    /// `None` if the first are of all directions.
    pub(crate) fine: Option<CodeScale<'a>>,
}

/// Vectors in the order in which they are searched.
pub(crate) struct SearchSide<'a> {
    pub(crate) vectors: &'a Vectors<'a>,
    /// Of each place, the row.
    pub(crate) rows: Vec<u32>,
    codes: Codes,
    fine: Option<Codes>,
    /// Of each group, its first place.
    groups: BTreeMap<u32, usize>,
}

impl Search<'_> {
    /// Bytes that a search for `k` neighbours takes at most in addition to the vectors; `k` is 0 for pairs.
    ///
    /// For each row, these are:
    ///
    /// | bytes | what |
    /// |---|---|
    /// | `dim` | codes of all directions, in their final order from the start |
    /// | 32 to 256, none for up to 32 dimensions | codes of the leading directions, which are ordered in place |
    /// | 40 | its length, its number, its place, and the bounds of its codes |
    /// | 12 `k` | its neighbours |
    ///
    /// Each pair of blocks of 1024 rows takes 8 bytes, so that ten million rows take 0.8 GB for these.
    ///
    /// [`nearest`](Self::nearest) takes as much for its queries as for the other rows, of which `k` counts for the
    /// queries alone; up to 256 queries take what is found and no more. [`pairs`](Self::pairs) takes 16 bytes for each
    /// pair, and up to three times as many while their number grows.
    pub fn memory(rows: usize, dim: usize, k: usize) -> u64 {
        let leading = WIDTHS.into_iter().filter(|&width| width < dim).max().unwrap_or(0);
        let of_row = dim.next_multiple_of(WORD) + leading + 40 + 12 * k;
        // The pairs of blocks, and the sample from which directions are estimated, with its codes.
        let tasks = 8 * (rows.div_ceil(BLOCK) as u64).pow(2);
        rows as u64 * of_row as u64 + 16 * (SAMPLE * dim) as u64 + tasks
    }

    /// Bytes that the threads take at most for pairs which may matter, in addition to [`memory`](Self::memory).
    pub fn memory_of_threads(&self, rows: usize) -> u64 {
        (self.threads * 2 * BLOCK.min(rows).pow(2) * size_of::<(u32, u32)>()) as u64
    }

    /// The side of some rows, and that of others with the same groups.
    pub(crate) fn sides<'v>(
        &self,
        scales: &Scales<'_>,
        ours: RowsOf<'v, '_>,
        others: RowsOf<'v, '_>,
    ) -> [SearchSide<'v>; 2] {
        let [codes, of_others] = scales.coarse.both([ours, others], self.threads);
        // With neighbours next to each other, a search soon has good ones. Pairs that are found together are then of
        // few vectors, which stay in caches: at 200,000 rows, all pairs take three quarters of the time.
        let groups = Groups::around(&codes, ours.rows.len(), scales.coarse.width);
        let mut sides = [(ours, codes), (others, of_others)].map(|(RowsOf { vectors, rows }, codes)| {
            let groups = groups.of(&codes, rows.len(), self.threads);
            SearchSide::new(vectors, rows, codes, scales.coarse.width, &groups)
        });
        if let Some(scale) = &scales.fine {
            let ordered = sides.each_ref().map(|side| RowsOf { vectors: side.vectors, rows: &side.rows });
            let fine = scale.both(ordered, self.threads);
            sides.iter_mut().zip(fine).for_each(|(side, fine)| side.fine = Some(fine));
        }
        sides
    }
}

impl Scales<'_> {
    /// The limits of rows that want these scores. What is left of a block wants nothing.
    pub(crate) fn limits(&self, scores: impl Iterator<Item = f64> + Clone) -> BlockLimits {
        BlockLimits {
            coarse: self.coarse.limits(scores.clone()),
            fine: self.fine.as_ref().map(|scale| scale.limits(scores)),
        }
    }

    /// Finds the pairs of a task whose bounds reach a limit, as numbers within their blocks.
    #[allow(clippy::too_many_arguments, reason = "two sides with their limits, and two buffers of the thread")]
    pub(crate) fn find(
        &self,
        side: &SearchSide<'_>,
        others: &SearchSide<'_>,
        task: BlockPair,
        limits: &BlockLimits,
        of_others: &BlockLimits,
        scratch: &mut ThreadScratch,
        found: &mut Vec<(u32, u32)>,
    ) {
        let unit = Unit::detected();
        let width = self.coarse.width;
        let a = CodeBlock::of(&side.codes, width, task.a, &limits.coarse);
        let b = CodeBlock::of(&others.codes, width, task.b, &of_others.coarse);
        unit.find(&a, &b, width, scratch, found);
        let fine = (&self.fine, &side.fine, &others.fine, &limits.fine, &of_others.fine);
        if let (Some(scale), Some(codes), Some(of_b), Some(limits), Some(of_others)) = fine {
            let a = CodeBlock::of(codes, scale.width, task.a, limits);
            let b = CodeBlock::of(of_b, scale.width, task.b, of_others);
            unit.keep(&a, &b, scale.width, found);
        }
    }
}

impl<'a> SearchSide<'a> {
    fn new(vectors: &'a Vectors<'a>, rows: &[u32], mut codes: Codes, width: usize, groups: &[u32]) -> Self {
        let order = order(groups);
        codes.reorder(&order, width);
        let mut places = BTreeMap::new();
        for (place, &row) in order.iter().enumerate() {
            places.entry(groups[row as usize]).or_insert(place);
        }
        let rows = order.iter().map(|&at| rows[at as usize]).collect();
        Self { vectors, rows, codes, fine: None, groups: places }
    }

    pub(crate) fn score(&self, place: usize, other: &SearchSide<'_>, of_other: usize) -> f64 {
        self.vectors.score(self.rows[place], other.vectors, other.rows[of_other])
    }

    /// The first place of the group in which a place of `other` is.
    pub(crate) fn near(&self, other: &SearchSide<'_>, place: usize) -> usize {
        let group = other.groups.iter().filter(|&(_, &first)| first <= place).max_by_key(|&(_, &first)| first);
        group.and_then(|(group, _)| self.groups.get(group)).copied().unwrap_or(0)
    }

    pub(crate) fn neighbors(self, tops: Vec<Mutex<Top>>, stats: Stats) -> Neighbors {
        let mut places = vec![u32::MAX; self.vectors.len()];
        for (place, &row) in self.rows.iter().enumerate() {
            places[row as usize] = place as u32;
        }
        let blocks = tops.into_iter().map(|top| top.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        Neighbors { blocks, block: BLOCK, places, stats }
    }
}
