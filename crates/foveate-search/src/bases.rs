use crate::basis::{Basis, SAMPLE, Spread, WIDTHS};
use crate::codes::{BLOCK, Scale};
use crate::screen::{Block, Scratch, Unit};
use crate::search::joined;
use crate::side::Scales;
use crate::top::Top;
use crate::{Search, Vectors};

/// Rows whose neighbours are searched plainly, to see which width pays off.
const TRIED: usize = 64;
/// Nanoseconds that a width of one, a pair, a second look at a pair, and a score of one dimension take.
const COSTS: (f64, f64, f64, f64) = (1.0 / 200.0, 0.1, 60.0, 0.35);

/// Directions to compare rows in: some, then all.
pub(crate) struct Bases {
    pub(crate) coarse: Basis,
    /// `None` if the first are all.
    fine: Option<Basis>,
}

/// What is searched for.
pub(crate) enum Wanted<'a> {
    /// The nearest of these rows.
    Nearest { vectors: &'a Vectors<'a>, rows: &'a [u32], k: usize },
    /// Scores from this one on.
    From(f64),
}

impl Search<'_> {
    /// Chooses the directions of codes: those whose pairs take the least time on a sample.
    pub(crate) fn bases(&self, vectors: &Vectors<'_>, rows: &[u32], wanted: &Wanted<'_>) -> Bases {
        let (sample, dim) = (some(rows, SAMPLE), vectors.dim());
        let widths: Vec<usize> = WIDTHS.into_iter().filter(|&width| width < dim).collect();
        if rows.len() < 2 * BLOCK || widths.is_empty() {
            return Bases { coarse: Spread::of(vectors, &sample, 0).basis(dim), fine: None };
        }
        let spread = Spread::of(vectors, &sample, widths.last().copied().unwrap_or(0));
        let (tried_vectors, tried) = match wanted {
            Wanted::Nearest { vectors, rows, .. } => (*vectors, some(rows, TRIED)),
            Wanted::From(_) => (vectors, some(rows, SAMPLE)),
        };
        let least: Vec<f64> = match wanted {
            Wanted::From(threshold) => vec![*threshold; tried.len()],
            Wanted::Nearest { vectors: queries, k, .. } => self.least(queries, &tried, vectors, rows, *k),
        };
        let longest = vectors.longest().max(tried_vectors.longest());
        let time = |width: usize| {
            let basis = spread.basis(width);
            let scale = Scale::of(&basis, vectors, &sample, longest);
            let [a, b] = scale.both([(tried_vectors, &tried), (vectors, &sample)], self.threads);
            let mut limits: Vec<i32> = least.iter().map(|&score| scale.limit(score)).collect();
            limits.resize(a.len(), i32::MAX);
            let (unlimited, mut found) = (vec![i32::MAX; b.len()], Vec::new());
            for first in (0..a.len()).step_by(BLOCK) {
                let a_block = Block::of(&a, scale.width, first / BLOCK, &limits[first..(first + BLOCK).min(a.len())]);
                let whole = Block { codes: &b.codes, biases: &b.biases, limits: &unlimited };
                Unit::detected().find(&a_block, &whole, scale.width, &mut Scratch::default(), &mut found);
            }
            let share = found.len() as f64 / (tried.len() * sample.len()) as f64;
            let each = if width < dim { COSTS.2 } else { dim as f64 * COSTS.3 };
            (basis.width as f64 * COSTS.0 + COSTS.1 + share * each, share)
        };
        let (of_all, share) = time(dim);
        let scores = share * dim as f64 * COSTS.3;
        let times = widths.iter().map(|&width| (width, time(width).0 + scores)).chain([(dim, of_all)]);
        let best = times.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(dim, |(width, _)| width);
        Bases { coarse: spread.basis(best), fine: (best < dim).then(|| spread.basis(dim)) }
    }

    /// The scores of the `k`-th neighbours of some queries, searched plainly.
    fn least(&self, queries: &Vectors<'_>, tried: &[u32], vectors: &Vectors<'_>, rows: &[u32], k: usize) -> Vec<f64> {
        let is_same = std::ptr::eq(queries, vectors);
        let least = |query: u32| {
            let mut top = Top::new(1, k);
            for &row in rows.iter().filter(|&&row| !is_same || row != query) {
                top.push(0, queries.score(query, vectors, row), row);
            }
            top.least().next().unwrap_or(f64::NEG_INFINITY)
        };
        let share = tried.len().div_ceil(self.threads.max(1)).max(1);
        std::thread::scope(|scope| {
            let parts: Vec<_> = tried
                .chunks(share)
                .map(|tried| scope.spawn(move || tried.iter().map(|&query| least(query)).collect::<Vec<_>>()))
                .collect();
            parts.into_iter().flat_map(joined).collect()
        })
    }
}

impl Bases {
    pub(crate) fn scales(&self, vectors: &Vectors<'_>, rows: &[u32], longest: f64) -> Scales<'_> {
        let sample = some(rows, SAMPLE);
        let scale = |basis| Scale::of(basis, vectors, &sample, longest);
        Scales { coarse: scale(&self.coarse), fine: self.fine.as_ref().map(scale) }
    }
}

/// At most so many of some rows, evenly.
fn some(rows: &[u32], most: usize) -> Vec<u32> {
    let count = rows.len().min(most);
    (0..count).map(|number| rows[number * rows.len() / count]).collect()
}
