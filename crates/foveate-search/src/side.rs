use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::basis::{SAMPLE, WIDTHS};
use crate::codes::{BLOCK, Codes, Scale, WORD};
use crate::found::{Neighbors, Stats};
use crate::order::{Groups, order};
use crate::screen::{Block, Scratch, Unit};
use crate::search::Task;
use crate::top::Top;
use crate::{Search, Vectors};

/// The limits of a block's rows.
pub(crate) struct Limits {
    coarse: Vec<i32>,
    fine: Option<Vec<i32>>,
}

/// How rows are compared: by codes of some directions, then by those of all.
pub(crate) struct Scales<'a> {
    pub(crate) coarse: Scale<'a>,
    /// `None` if the first are of all directions.
    pub(crate) fine: Option<Scale<'a>>,
}

/// Vectors in the order in which they are searched.
pub(crate) struct Side<'a> {
    pub(crate) vectors: &'a Vectors<'a>,
    /// Of each place, the row.
    pub(crate) rows: Vec<u32>,
    codes: Codes,
    fine: Option<Codes>,
    /// Of each group, its first place.
    groups: BTreeMap<u32, usize>,
}

impl Search<'_> {
    /// Bytes that a search for `k` neighbours takes at most besides the vectors' numbers; `k` is 0 for pairs.
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

    /// The side of some rows, and that of others with the same groups; without others, the first is both.
    pub(crate) fn sides<'v>(
        &self,
        scales: &Scales<'_>,
        (vectors, rows): (&'v Vectors<'v>, &[u32]),
        others: Option<(&'v Vectors<'v>, &[u32])>,
    ) -> [Side<'v>; 2] {
        let sides = [(vectors, rows), others.unwrap_or((vectors, &[]))];
        let codes = scales.coarse.both(sides, self.threads);
        // With neighbours next to each other, a search soon has good ones. Pairs that are found together are then of
        // few vectors, which stay in caches: at 200,000 rows, all pairs take three quarters of the time.
        let groups = Groups::around(&codes[0], rows.len(), scales.coarse.width);
        let [(a, a_rows), (b, b_rows)] = sides;
        let [a_codes, b_codes] = codes;
        let side = |vectors, rows: &[u32], codes: Codes| {
            let groups = groups.of(&codes, rows.len(), self.threads);
            Side::new(vectors, rows, codes, scales.coarse.width, &groups)
        };
        let mut sides = [side(a, a_rows, a_codes), side(b, b_rows, b_codes)];
        if let Some(scale) = &scales.fine {
            let fine = scale.both([(a, &sides[0].rows), (b, &sides[1].rows)], self.threads);
            sides.iter_mut().zip(fine).for_each(|(side, fine)| side.fine = Some(fine));
        }
        sides
    }
}

impl Scales<'_> {
    /// The limits of rows that want these scores. What is left of a block wants nothing.
    pub(crate) fn limits(&self, scores: impl Iterator<Item = f64> + Clone) -> Limits {
        let of = |scale: &Scale<'_>| {
            let nothing = std::iter::repeat(i32::MAX);
            scores.clone().map(|score| scale.limit(score)).chain(nothing).take(BLOCK).collect()
        };
        Limits { coarse: of(&self.coarse), fine: self.fine.as_ref().map(of) }
    }

    /// Finds the pairs of a task whose bounds reach a limit, as numbers within their blocks.
    pub(crate) fn find(
        &self,
        side: &Side<'_>,
        others: &Side<'_>,
        task: Task,
        (limits, of_others): (&Limits, &Limits),
        scratch: &mut Scratch,
        found: &mut Vec<(u32, u32)>,
    ) {
        let (unit, width) = (Unit::detected(), self.coarse.width);
        let a = Block::of(&side.codes, width, task.a, &limits.coarse);
        let b = Block::of(&others.codes, width, task.b, &of_others.coarse);
        unit.find(&a, &b, width, scratch, found);
        let fine = (&self.fine, &side.fine, &others.fine, &limits.fine, &of_others.fine);
        if let (Some(scale), Some(codes), Some(of_b), Some(limits), Some(of_others)) = fine {
            let a = Block::of(codes, scale.width, task.a, limits);
            let b = Block::of(of_b, scale.width, task.b, of_others);
            unit.keep(&a, &b, scale.width, found);
        }
    }
}

impl<'a> Side<'a> {
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

    pub(crate) fn score(&self, place: usize, other: &Side<'_>, of_other: usize) -> f64 {
        self.vectors.score(self.rows[place], other.vectors, other.rows[of_other])
    }

    /// The first place of the group in which a place of `other` is.
    pub(crate) fn near(&self, other: &Side<'_>, place: usize) -> usize {
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
