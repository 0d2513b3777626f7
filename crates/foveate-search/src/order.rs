use crate::basis::AXES;
use crate::codes::BLOCK;
use crate::vectors::{RowsOf, dot};

/// Rows in a leaf of the tree. A block has up to 16 leaves, which are the bits of a [`LeafMask`].
pub(crate) const LEAF: usize = 64;
/// Coordinates are cut off here, so that squares of their differences are finite in f32.
const FARTHEST: f64 = 1e15;
/// A gap whose square has full precision in f32.
const SHORTEST: f64 = 1e-18;
/// Share of the lengths that all rounding in f32 stays below.
const ROUNDING: f64 = 1e-6;

/// A bit for each leaf of a block.
pub(crate) type LeafMask = u16;

/// Returns true if the leaf of a block's row is in the mask.
#[inline(always)]
pub(crate) fn is_leaf(mask: LeafMask, row: usize) -> bool {
    mask >> (row / LEAF) & 1 == 1
}

/// A row to be ordered.
#[derive(Clone, Default)]
pub(crate) struct RowPoint {
    pub(crate) row: u32,
    /// Its place, or with a tree of other rows, the place there of the first row of its leaf.
    pub(crate) place: u32,
    /// Coordinates of the vector whose inner products are scores.
    at: [f32; AXES],
    /// Length of that vector.
    length: f64,
}

/// A k-d tree: halves of the rows, halves of these and so on, down to leaves. It decides how fast a search is, and not
/// what it finds.
pub(crate) struct KdTree {
    /// Of each leaf but the first, the split of which it is the first leaf above.
    splits: Vec<KdSplit>,
    rows: usize,
}

#[derive(Clone, Copy, Default)]
struct KdSplit {
    axis: usize,
    /// Rows above have at least this coordinate.
    least: f32,
}

/// The smallest box around the coordinates of some rows, and the largest length of their vectors.
#[derive(Clone, Copy)]
pub(crate) struct RowBox {
    low: [f32; AXES],
    high: [f32; AXES],
    longest: f64,
}

/// The points of rows, in their order. `axes` are up to [`AXES`] orthonormal directions.
pub(crate) fn points(of: RowsOf<'_, '_>, axes: &[f64], threads: usize) -> Vec<RowPoint> {
    let mut points = vec![RowPoint::default(); of.rows.len()];
    let share = of.rows.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (rows, points) in of.rows.chunks(share).zip(points.chunks_mut(share)) {
            scope.spawn(move || {
                let mut vector = vec![0.0; of.vectors.dim()];
                for (&row, point) in rows.iter().zip(points) {
                    of.vectors.scaled(row, &mut vector);
                    point.row = row;
                    point.length = dot(&vector, &vector).sqrt();
                    for (at, axis) in point.at.iter_mut().zip(axes.chunks_exact(vector.len())) {
                        // Cutting off brings no two points further apart.
                        *at = dot(&vector, axis).clamp(-FARTHEST, FARTHEST) as f32;
                    }
                }
            });
        }
    });
    points
}

impl KdTree {
    /// Orders the points.
    pub(crate) fn of(points: &mut [RowPoint], threads: usize) -> Self {
        let mut splits = vec![KdSplit::default(); points.len().div_ceil(LEAF)];
        halve(points, &mut splits, threads);
        (0..).zip(&mut *points).for_each(|(place, point)| point.place = place);
        Self { splits, rows: points.len() }
    }

    /// Orders points of other rows by the leaves of this tree.
    pub(crate) fn place(&self, points: &mut [RowPoint]) {
        for point in &mut *points {
            let mut first = 0;
            let mut end = self.rows;
            while end - first > LEAF {
                let middle = first + middle(end - first);
                let split = self.splits[middle / LEAF];
                if point.at[split.axis] < split.least { end = middle } else { first = middle }
            }
            point.place = first as u32;
        }
        points.sort_unstable_by_key(|point| (point.place, point.row));
    }
}

/// The place at which so many rows are halved: between blocks, and within a block between leaves.
fn middle(rows: usize) -> usize {
    let unit = if rows > BLOCK { BLOCK } else { LEAF };
    rows.div_ceil(unit).div_ceil(2) * unit
}

/// Halves points at the median of their widest direction, then the halves.
fn halve(points: &mut [RowPoint], splits: &mut [KdSplit], threads: usize) {
    if points.len() <= LEAF {
        points.sort_unstable_by_key(|point| point.row);
        return;
    }
    let around = RowBox::around(points);
    let mut axis = 0;
    for other in 1..AXES {
        if around.high[other] - around.low[other] > around.high[axis] - around.low[axis] {
            axis = other;
        }
    }
    let middle = middle(points.len());
    points.select_nth_unstable_by(middle, |a, b| a.at[axis].total_cmp(&b.at[axis]).then(a.row.cmp(&b.row)));
    let (below, above) = points.split_at_mut(middle);
    let (of_below, of_above) = splits.split_at_mut(middle / LEAF);
    of_above[0] = KdSplit { axis, least: above[0].at[axis] };
    if threads > 1 {
        std::thread::scope(|scope| {
            scope.spawn(|| halve(below, of_below, threads / 2));
            halve(above, of_above, threads - threads / 2);
        });
    } else {
        halve(below, of_below, 1);
        halve(above, of_above, 1);
    }
}

impl RowBox {
    pub(crate) fn around(points: &[RowPoint]) -> Self {
        let mut around = Self { low: [f32::INFINITY; AXES], high: [f32::NEG_INFINITY; AXES], longest: 0.0 };
        for point in points {
            for axis in 0..AXES {
                around.low[axis] = around.low[axis].min(point.at[axis]);
                around.high[axis] = around.high[axis].max(point.at[axis]);
            }
            around.longest = around.longest.max(point.length);
        }
        around
    }

    /// A number that no score of a row in this box and a row in the other one exceeds.
    ///
    /// It is `a·b = (|a|² + |b|² - |a - b|²) / 2` with the largest lengths and the gap between the boxes, which
    /// `|a - b|` is no less than.
    pub(crate) fn most(&self, other: &Self) -> f64 {
        let mut square = 0.0_f32;
        for axis in 0..AXES {
            let gap = (self.low[axis] - other.high[axis]).max(other.low[axis] - self.high[axis]).max(0.0);
            square += gap * gap;
        }
        let rounding = ROUNDING * (self.longest + other.longest) + SHORTEST;
        let gap = (f64::from(square).sqrt() - rounding).max(0.0);
        // A little more than all rounding in f64.
        let squares = (1.0 + 1e-9) * (self.longest * self.longest + other.longest * other.longest);
        (squares - gap * gap) / 2.0
    }
}
