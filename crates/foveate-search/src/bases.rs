use crate::basis::{AXES, Basis, Directions, MainDirections, SAMPLE, WIDTHS};
use crate::codes::{BLOCK, CodeScale, FineScale};
use crate::order::{LEAF, LeafMask};
use crate::screen::{CodeBlock, ThreadScratch, Unit};
use crate::side::Scales;
use crate::top::Top;
use crate::vectors::RowsOf;
use crate::{Search, Vectors};

/// Rows whose neighbours are searched plainly, to see which width pays off.
const TRIED: usize = 64;
/// Rows among which they are searched.
const SEARCHED: usize = 1 << 17;
/// Nanoseconds that a width of one, a pair, a second look at a pair, and a score of one dimension take.
const COSTS: (f64, f64, f64, f64) = (1.0 / 200.0, 0.1, 60.0, 0.35);

/// Directions to compare and to order rows in.
pub(crate) struct Bases {
    pub(crate) coarse: Basis,
    /// The directions by which rows are ordered; none for few rows.
    axes: Directions,
}

/// Pairs that are searched for.
pub(crate) enum SoughtPairs<'a> {
    /// The nearest of these rows.
    Nearest { vectors: &'a Vectors<'a>, rows: &'a [u32], k: usize },
    /// Scores from this one on.
    From(f64),
}

impl Search<'_> {
    /// Chooses the directions of codes: those whose pairs take the least time on a sample.
    pub(crate) fn bases(&self, vectors: &Vectors<'_>, rows: &[u32], wanted: &SoughtPairs<'_>) -> Bases {
        let sample = some(rows, SAMPLE);
        let dim = vectors.dim();
        let widths: Vec<usize> = WIDTHS.into_iter().filter(|&width| width < dim).collect();
        let is_small = rows.len() < 2 * BLOCK;
        let directions = if is_small { 0 } else { widths.last().copied().unwrap_or(AXES.min(dim)) };
        let spread = MainDirections::of(vectors, &sample, directions);
        if is_small || widths.is_empty() {
            return Bases { coarse: spread.basis(dim), axes: spread.axes() };
        }
        let (tried_vectors, tried) = match wanted {
            SoughtPairs::Nearest { vectors, rows, .. } => (*vectors, some(rows, TRIED)),
            SoughtPairs::From(_) => (vectors, some(rows, SAMPLE)),
        };
        let least: Vec<f64> = match wanted {
            SoughtPairs::From(threshold) => vec![*threshold; tried.len()],
            SoughtPairs::Nearest { vectors: queries, k, .. } => self.least(queries, &tried, vectors, rows, *k),
        };
        let longest = vectors.longest().max(tried_vectors.longest());
        let mut times = Vec::new();
        let mut scores = 0.0;
        for width in std::iter::once(dim).chain(widths) {
            let basis = spread.basis(width);
            let scale = CodeScale::of(&basis, vectors, &sample, longest);
            let [a, _] = scale.code(RowsOf { vectors: tried_vectors, rows: &tried }, None, self.threads);
            let [b, _] = scale.code(RowsOf { vectors, rows: &sample }, None, self.threads);
            let mut limits: Vec<i32> = least.iter().map(|&score| scale.limit(score)).collect();
            limits.resize(a.len(), i32::MAX);
            let unlimited = vec![i32::MAX; b.len()];
            let kept = vec![LeafMask::MAX; b.len().div_ceil(LEAF)];
            let mut found = Vec::new();
            for first in (0..a.len()).step_by(BLOCK) {
                let a_block =
                    CodeBlock::of(&a, scale.width, first / BLOCK, &limits[first..(first + BLOCK).min(a.len())]);
                let whole = CodeBlock { codes: &b.codes, biases: &b.biases, limits: &unlimited };
                Unit::detected().find(&a_block, &whole, &kept, scale.width, &mut ThreadScratch::default(), &mut found);
            }
            let share = found.len() as f64 / (tried.len() * sample.len()) as f64;
            let first_look = basis.width as f64 * COSTS.0 + COSTS.1;
            if width == dim {
                scores = share * dim as f64 * COSTS.3;
                times.push((width, first_look + share * (dim as f64 * COSTS.3)));
            } else {
                times.push((width, first_look + share * COSTS.2 + scores));
            }
        }
        // Of equals, some directions are preferred to all.
        times.rotate_left(1);
        let best = times.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(dim, |(width, _)| width);
        Bases { coarse: spread.basis(best), axes: spread.axes() }
    }

    /// About the scores of the `k`-th neighbours of some queries, searched plainly in a sample of the rows.
    fn least(&self, queries: &Vectors<'_>, tried: &[u32], vectors: &Vectors<'_>, rows: &[u32], k: usize) -> Vec<f64> {
        let is_same = std::ptr::eq(queries, vectors);
        let all = rows.len();
        let rows = some(rows, SEARCHED);
        let k = (k * rows.len() / all).max(1);
        let share = tried.len().div_ceil(self.threads.max(1)).max(1);
        let mut least = vec![f64::NEG_INFINITY; tried.len()];
        std::thread::scope(|scope| {
            for (tried, least) in tried.chunks(share).zip(least.chunks_mut(share)) {
                let rows = &rows;
                scope.spawn(move || {
                    for (&query, least) in tried.iter().zip(least) {
                        let mut top = Top::new(1, k);
                        for &row in rows.iter().filter(|&&row| !is_same || row != query) {
                            top.push(0, queries.score(query, vectors, row), row);
                        }
                        *least = top.least().next().unwrap_or(f64::NEG_INFINITY);
                    }
                });
            }
        });
        least
    }
}

impl Bases {
    pub(crate) fn scales(&self, vectors: &Vectors<'_>, rows: &[u32], longest: f64) -> Scales<'_> {
        let sample = some(rows, SAMPLE);
        let coarse = CodeScale::of(&self.coarse, vectors, &sample, longest);
        let fine = (self.coarse.width < vectors.dim()).then(|| FineScale::of(&coarse, vectors, &sample));
        Scales { coarse, fine, axes: &self.axes }
    }
}

/// At most so many of some rows, evenly.
fn some(rows: &[u32], most: usize) -> Vec<u32> {
    let count = rows.len().min(most);
    (0..count).map(|number| rows[number * rows.len() / count]).collect()
}
