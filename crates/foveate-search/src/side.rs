use std::sync::{Mutex, PoisonError};

use crate::basis::{Directions, SAMPLE, WIDTHS};
use crate::codes::{BLOCK, CodeScale, Codes, FineScale, WORD};
use crate::found::{Neighbors, Stats};
use crate::order::{KdTree, LEAF, LeafMask, RowBox, RowPoint, points};
use crate::screen::{CodeBlock, FineBlock, ThreadScratch, Unit};
use crate::search::{BlockPair, BlockPairs};
use crate::top::Top;
use crate::vectors::RowsOf;
use crate::{Search, Vectors};

/// The limits of a block's rows.
pub(crate) struct BlockLimits {
    coarse: Vec<i32>,
    fine: Vec<i32>,
    /// Of each leaf, the lowest score that its rows want.
    leaves: Vec<f64>,
    /// The lowest of all.
    least: f64,
}

/// Scales of the two comparisons of rows: by codes of some directions, then by those of all.
pub(crate) struct Scales<'a> {
    pub(crate) coarse: CodeScale<'a>,
    /// `None` if the first are of all directions.
    pub(crate) fine: Option<FineScale>,
    /// Directions by which rows are ordered.
    pub(crate) axes: &'a Directions,
}

/// Vectors in the order in which they are searched.
pub(crate) struct SearchSide<'a> {
    pub(crate) vectors: &'a Vectors<'a>,
    /// Of each place, the row.
    pub(crate) rows: Vec<u32>,
    codes: Codes,
    rest: Codes,
    /// The boxes of leaves.
    leaves: Vec<RowBox>,
    /// The boxes of blocks.
    blocks: Vec<RowBox>,
    /// Of each place, one of the other side at which a near row is.
    pub(crate) near: Vec<u32>,
}

impl Search<'_> {
    /// Bytes that a search for `k` neighbours takes at most in addition to the vectors; `k` is 0 for pairs.
    ///
    /// For each row, these are:
    ///
    /// | bytes | what |
    /// |---|---|
    /// | `dim` | codes of all directions |
    /// | 64 to 256, none for up to 32 dimensions | codes of the leading directions, and of these codes' errors |
    /// | 44 | its length, its number, its places, the bounds of its codes, and a share of a box |
    /// | 12 `k` | its neighbours |
    ///
    /// [`nearest`](Self::nearest) takes as much for its queries as for the other rows, of which `k` counts for the
    /// queries alone; up to 256 queries take what is found and no more. [`pairs`](Self::pairs) takes 16 bytes for each
    /// pair, and up to three times as many while their number grows.
    pub fn memory(rows: usize, dim: usize, k: usize) -> u64 {
        let leading = WIDTHS.into_iter().filter(|&width| width < dim).max().unwrap_or(0);
        let of_row = dim.next_multiple_of(WORD) + 2 * leading + 44 + 12 * k;
        // With the sample from which directions are estimated, and its codes.
        rows as u64 * of_row as u64 + 16 * (SAMPLE * dim) as u64
    }

    /// Bytes that the threads take at most for pairs which may matter, in addition to [`memory`](Self::memory).
    pub fn memory_of_threads(&self, rows: usize) -> u64 {
        (self.threads * 2 * BLOCK.min(rows).pow(2) * size_of::<(u32, u32)>()) as u64
    }

    /// The side of some rows, and that of others in the order of the same tree.
    pub(crate) fn sides<'v>(
        &self,
        scales: &Scales<'_>,
        ours: RowsOf<'v, '_>,
        others: RowsOf<'v, '_>,
    ) -> [SearchSide<'v>; 2] {
        let mut ordered = points(ours, scales.axes, self.threads);
        let tree = KdTree::of(&mut ordered, self.threads);
        let side = SearchSide::new(ours.vectors, ordered);
        let mut ordered = points(others, scales.axes, self.threads);
        tree.place(&mut ordered);
        let mut sides = [side, SearchSide::new(others.vectors, ordered)];
        for side in &mut sides {
            let rows = RowsOf { vectors: side.vectors, rows: &side.rows };
            [side.codes, side.rest] = scales.coarse.code(rows, scales.fine.as_ref(), self.threads);
        }
        sides
    }
}

impl Scales<'_> {
    /// The limits of rows that want these scores. What is left of a block wants nothing.
    pub(crate) fn limits(&self, scores: impl Iterator<Item = f64> + Clone) -> BlockLimits {
        let mut leaves = vec![f64::INFINITY; BLOCK / LEAF];
        for (place, score) in scores.clone().take(BLOCK).enumerate() {
            leaves[place / LEAF] = score.min(leaves[place / LEAF]);
        }
        BlockLimits {
            coarse: self.coarse.limits(scores.clone()),
            fine: self.fine.as_ref().map(|scale| scale.limits(scores)).unwrap_or_default(),
            least: leaves.iter().copied().fold(f64::INFINITY, f64::min),
            leaves,
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
        let block = side.blocks[task.a];
        if block.most(&others.blocks[task.b]) < limits.least.min(of_others.least) {
            return;
        }
        let mut kept = [0; BLOCK / LEAF];
        for (kept, (b, of_b)) in kept.iter_mut().zip(others.leaves(task.b).iter().zip(&of_others.leaves)) {
            if block.most(b) < limits.least.min(*of_b) {
                continue;
            }
            for (number, (a, of_a)) in side.leaves(task.a).iter().zip(&limits.leaves).enumerate() {
                *kept |= LeafMask::from(a.most(b) >= of_a.min(*of_b)) << number;
            }
        }
        let unit = Unit::detected();
        let width = self.coarse.width;
        let a = CodeBlock::of(&side.codes, width, task.a, &limits.coarse);
        let b = CodeBlock::of(&others.codes, width, task.b, &of_others.coarse);
        unit.find(&a, &b, &kept, width, scratch, found);
        if let Some(scale) = &self.fine {
            let a_rest = CodeBlock::of(&side.rest, scale.width, task.a, &limits.fine);
            let b_rest = CodeBlock::of(&others.rest, scale.width, task.b, &of_others.fine);
            unit.keep(&FineBlock { codes: a, rest: a_rest }, &FineBlock { codes: b, rest: b_rest }, scale, found);
        }
    }
}

impl<'a> SearchSide<'a> {
    /// A side without codes.
    fn new(vectors: &'a Vectors<'a>, points: Vec<RowPoint>) -> Self {
        Self {
            vectors,
            rows: points.iter().map(|point| point.row).collect(),
            codes: Codes::default(),
            rest: Codes::default(),
            leaves: points.chunks(LEAF).map(RowBox::around).collect(),
            blocks: points.chunks(BLOCK).map(RowBox::around).collect(),
            near: points.iter().map(|point| point.place).collect(),
        }
    }

    /// The boxes of a block's leaves.
    fn leaves(&self, block: usize) -> &[RowBox] {
        const LEAVES: usize = BLOCK / LEAF;
        &self.leaves[block * LEAVES..(block * LEAVES + LEAVES).min(self.leaves.len())]
    }

    /// All pairs of a block and a block of `other`, by whose tree this side is ordered.
    pub(crate) fn tasks(&self, other: &Self) -> BlockPairs {
        let blocks = other.blocks.len();
        let starts: Vec<u32> = self.near.iter().step_by(BLOCK).map(|near| near / BLOCK as u32).collect();
        BlockPairs { count: starts.len() * blocks, starts, blocks }
    }

    pub(crate) fn score(&self, place: usize, other: &SearchSide<'_>, of_other: usize) -> f64 {
        self.vectors.score(self.rows[place], other.vectors, other.rows[of_other])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;
    use crate::basis::{AXES, MainDirections};

    const DIM: usize = 40;
    const ROWS: usize = 300;

    fn data(kind: &str, random: &mut fastrand::Rng) -> Vec<f32> {
        let centres: Vec<f32> = (0..12 * DIM).map(|_| random.f32() - 0.5).collect();
        let mut rows = Vec::new();
        for row in 0..ROWS {
            let scale = match kind {
                "lengths" => 10_f32.powi(random.i32(-20..20)),
                "tiny" => 10_f32.powi(random.i32(-45..-15)),
                "huge" => 10_f32.powi(random.i32(30..38)),
                "zeros" => f32::from(u8::from(row % 3 == 0)),
                _ => 1.0,
            };
            let width = if kind == "noise" { 1.0 } else { 0.02 };
            let centre = &centres[row % 12 * DIM..][..DIM];
            let of_row: Vec<f32> = centre.iter().map(|x| scale * (x + width * (random.f32() - 0.5))).collect();
            rows.extend(if kind == "same" { vec![0.3; DIM] } else { of_row });
        }
        rows
    }

    #[test]
    fn no_pair_that_reaches_a_score_is_skipped() {
        let mut random = fastrand::Rng::with_seed(12);
        for kind in ["noise", "clusters", "same", "zeros", "lengths", "tiny", "huge"] {
            let data = data(kind, &mut random);
            for metric in [Metric::Cosine, Metric::Dot] {
                let vectors = &Vectors::new(&data, DIM, metric).unwrap();
                let rows: Vec<u32> = vectors.finite().collect();
                assert_eq!(rows.len(), ROWS);
                let directions = MainDirections::of(vectors, &rows[..200], 32);
                let basis = directions.basis(32);
                let coarse = CodeScale::of(&basis, vectors, &rows[..200], vectors.longest());
                let fine = Some(FineScale::of(&coarse, vectors, &rows[..200]));
                let scales = Scales { coarse, fine, axes: &directions.axes() };
                let search = Search { threads: 3, ..Search::default() };
                let rows = RowsOf { vectors, rows: &rows };
                let [side, other] = search.sides(&scales, rows, rows);
                let mut skipped = 0;
                let mut passed = 0;
                for _ in 0..100 {
                    let i = random.usize(..ROWS);
                    let j = random.usize(..ROWS);
                    let score = side.score(i, &other, j);
                    let limits = scales.limits(std::iter::repeat_n(score, ROWS));
                    let mut found = Vec::new();
                    let task = BlockPair { a: 0, b: 0 };
                    scales.find(&side, &other, task, &limits, &limits, &mut ThreadScratch::default(), &mut found);
                    assert!(found.contains(&(i as u32, j as u32)), "{kind} {metric:?} {score}");
                    let least = side.leaves[i / LEAF].most(&other.leaves[j / LEAF]);
                    assert!(least >= score, "{kind} {metric:?} {score} {least}");
                    passed += found.len();
                    let boxes = side.leaves.iter().flat_map(|a| other.leaves.iter().map(move |b| a.most(b)));
                    skipped += boxes.filter(|&most| most < score).count();
                }
                // The bounds are tight enough to be of use.
                if kind == "clusters" {
                    assert!(skipped > 0);
                    assert!(passed < 100 * ROWS * ROWS * 6 / 10, "{passed}");
                }
            }
        }
    }

    #[test]
    fn rows_are_ordered_by_a_tree_that_finds_them() {
        let mut random = fastrand::Rng::with_seed(13);
        let data = data("clusters", &mut random);
        let vectors = &Vectors::new(&data, DIM, Metric::Cosine).unwrap();
        let rows: Vec<u32> = vectors.finite().collect();
        let axes = MainDirections::of(vectors, &rows, AXES).axes();
        let rows = RowsOf { vectors, rows: &rows };
        let mut ordered = points(rows, &axes, 2);
        let tree = KdTree::of(&mut ordered, 2);
        let mut again = points(rows, &axes, 1);
        KdTree::of(&mut again, 1);
        assert!(ordered.iter().zip(&again).all(|(a, b)| a.row == b.row), "for any number of threads");
        let mut placed = points(rows, &axes, 2);
        tree.place(&mut placed);
        for point in placed {
            let place = ordered.iter().position(|other| other.row == point.row).unwrap();
            assert_eq!(point.place as usize, place / LEAF * LEAF);
        }
        ordered.sort_by_key(|point| point.row);
        assert!(ordered.iter().zip(rows.rows).all(|(point, &row)| point.row == row));
    }
}
