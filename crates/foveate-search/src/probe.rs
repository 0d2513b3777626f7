//! Ridge regression to one-hot labels, with an intercept that has no penalty.

use crate::basis::add;
use crate::vectors::dot;
use crate::{Search, SearchError, Vectors};

const FOLDS: usize = 5;
/// Penalties that are tried, as shares of the features' mean variance.
const PENALTIES: [f64; 4] = [1e-3, 1e-2, 1e-1, 1.0];
/// Most rows that choose a penalty.
const CHOOSERS: usize = 2000;
/// Rows whose products are summed together.
const CHUNK: usize = 128;

/// A row and its class.
type Member = (u32, usize);

/// Predicts each row from the folds it is not in; `classes` are the rows of each class. Returns each row, and whether
/// the class was right.
pub(crate) fn probe(
    search: &Search<'_>,
    start: f64,
    vectors: &Vectors<'_>,
    classes: &[&Vec<u32>],
) -> Result<Vec<(u32, bool)>, SearchError> {
    let members: Vec<Member> =
        (0..).zip(classes).flat_map(|(class, rows)| rows.iter().map(move |&row| (row, class))).collect();
    // Adjacent members are in different folds, so that each fold has its share of each class.
    let folds: Vec<Vec<Member>> =
        (0..FOLDS).map(|fold| members.iter().copied().skip(fold).step_by(FOLDS).collect()).collect();
    // Of the time that is left, the sums take 0.4, the penalties 0.3, and models and predictions the rest.
    let [summed, chosen, solved] = [0.4, 0.7, 0.8].map(|share| start + (1.0 - start) * share);
    let sums = search.map(FOLDS, start..summed, |fold| Sums::of(search, vectors, &folds[fold], classes.len()))?;
    let tried = search.map(FOLDS * PENALTIES.len(), summed..chosen, |number| {
        let fold = number / PENALTIES.len();
        let penalty = PENALTIES[number % PENALTIES.len()];
        let chooser = (fold + 1) % FOLDS;
        let model = RidgeModel::of(sums.iter().enumerate().filter(|(at, _)| ![fold, chooser].contains(at)), penalty);
        let step = folds[chooser].len().div_ceil(CHOOSERS).max(1);
        let some: Vec<Member> = folds[chooser].iter().copied().step_by(step).collect();
        some.chunks(CHUNK).flat_map(|some| model.is_right(vectors, some)).filter(|&is_right| is_right).count()
    })?;
    let models = search.map(FOLDS, chosen..solved, |fold| {
        let tried = tried[fold * PENALTIES.len()..].iter().zip(PENALTIES);
        // Of equals, the last one.
        let best = tried.max_by_key(|&(right, _)| right).map_or(1.0, |(_, penalty)| penalty);
        RidgeModel::of(sums.iter().enumerate().filter(|&(at, _)| at != fold), best)
    })?;
    let chunks: Vec<(usize, &[Member])> =
        folds.iter().enumerate().flat_map(|(fold, rows)| rows.chunks(CHUNK).map(move |rows| (fold, rows))).collect();
    let found = search.map(chunks.len(), solved..1.0, |number| {
        let (fold, rows) = chunks[number];
        rows.iter().map(|&(row, _)| row).zip(models[fold].is_right(vectors, rows)).collect::<Vec<_>>()
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// The sums over some rows that a regression needs.
struct Sums {
    /// `[dim, dim]` sums of products, of which the lower triangle is right.
    products: Vec<f64>,
    /// `[classes, dim]` sums of rows.
    rows: Vec<f64>,
    /// Rows of each class.
    counts: Vec<f64>,
}

impl Sums {
    fn none(dim: usize, classes: usize) -> Self {
        Self { products: vec![0.0; dim * dim], rows: vec![0.0; classes * dim], counts: vec![0.0; classes] }
    }

    fn of(search: &Search<'_>, vectors: &Vectors<'_>, members: &[Member], classes: usize) -> Self {
        let dim = vectors.dim();
        let mut sums = Self::none(vectors.dim(), classes);
        let mut row = vec![0.0; dim];
        let mut columns = vec![0.0; dim * CHUNK];
        for chunk in members.chunks(CHUNK) {
            // The caller sees it, too.
            if (search.is_cancelled)() {
                break;
            }
            columns.fill(0.0);
            for (at, &(number, class)) in chunk.iter().enumerate() {
                vectors.scaled(number, &mut row);
                add(&mut sums.rows[class * dim..][..dim], &row, 1.0);
                sums.counts[class] += 1.0;
                columns.chunks_exact_mut(CHUNK).zip(&row).for_each(|(column, &x)| column[at] = x);
            }
            for (i, products) in sums.products.chunks_exact_mut(dim).enumerate() {
                let column = &columns[i * CHUNK..][..CHUNK];
                for (product, other) in products[..=i].iter_mut().zip(columns.chunks_exact(CHUNK)) {
                    *product += dot(column, other);
                }
            }
        }
        sums
    }
}

/// A score of each class: `weights · (x - mean) + share`.
struct RidgeModel {
    mean: Vec<f64>,
    /// `[classes, dim]`
    weights: Vec<f64>,
    /// Of each class.
    shares: Vec<f64>,
}

impl RidgeModel {
    /// The model of several folds.
    fn of<'a>(folds: impl Iterator<Item = (usize, &'a Sums)>, penalty: f64) -> Self {
        let mut all: Option<Sums> = None;
        for (_, fold) in folds {
            let all = all.get_or_insert_with(|| Sums::none(fold.products.len().isqrt(), fold.counts.len()));
            add(&mut all.products, &fold.products, 1.0);
            add(&mut all.rows, &fold.rows, 1.0);
            add(&mut all.counts, &fold.counts, 1.0);
        }
        let Sums { mut products, rows: mut weights, counts } = all.unwrap_or_else(|| Sums::none(1, 0));
        let dim = products.len().isqrt();
        let count = counts.iter().sum::<f64>().max(1.0);
        let mut mean = vec![0.0; dim];
        weights.chunks_exact(dim).for_each(|sum| add(&mut mean, sum, count.recip()));
        for (row, &x) in products.chunks_exact_mut(dim).zip(&mean) {
            add(row, &mean, -count * x);
        }
        let variances: f64 = (0..dim).map(|at| products[at * dim + at]).sum();
        let least = (penalty * variances / dim as f64).max(f64::MIN_POSITIVE);
        (0..dim).for_each(|at| products[at * dim + at] += least);
        factor(&mut products, dim, least);
        for (weights, &count) in weights.chunks_exact_mut(dim).zip(&counts) {
            add(weights, &mean, -count);
            solve(&products, weights);
        }
        Self { mean, weights, shares: counts.iter().map(|x| x / count).collect() }
    }

    /// Returns true for each row whose class has the highest score. Of equal scores, the first class has it.
    fn is_right(&self, vectors: &Vectors<'_>, members: &[Member]) -> impl Iterator<Item = bool> {
        let dim = self.mean.len();
        let mut rows = vec![0.0; members.len() * dim];
        for (row, &(number, _)) in rows.chunks_exact_mut(dim).zip(members) {
            vectors.scaled(number, row);
            add(row, &self.mean, -1.0);
        }
        let mut best = vec![(f64::NEG_INFINITY, 0); members.len()];
        for (class, (weights, share)) in self.weights.chunks_exact(dim).zip(&self.shares).enumerate() {
            for (best, row) in best.iter_mut().zip(rows.chunks_exact(dim)) {
                let score = dot(weights, row) + share;
                if score > best.0 {
                    *best = (score, class);
                }
            }
        }
        best.into_iter().zip(members).map(|((_, class), member)| class == member.1)
    }
}

/// Cholesky's factor, in place of the lower triangle. `least` is below all eigenvalues.
fn factor(matrix: &mut [f64], dim: usize, least: f64) {
    for i in 0..dim {
        let (before, row) = matrix.split_at_mut(i * dim);
        for j in 0..i {
            let other = &before[j * dim..][..=j];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        row[i] = (row[i] - dot(&row[..i], &row[..i])).max(least).sqrt();
    }
}

/// Solves for one right side, in place.
fn solve(factor: &[f64], x: &mut [f64]) {
    let dim = x.len();
    for i in 0..dim {
        let row = &factor[i * dim..][..=i];
        x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
    }
    for i in (0..dim).rev() {
        let row = &factor[i * dim..][..=i];
        x[i] /= row[i];
        let (before, at) = x.split_at_mut(i);
        add(before, &row[..i], -at[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    #[test]
    fn weights_minimize_the_penalized_squares() {
        let dim = 7;
        let classes = 3;
        let mut random = fastrand::Rng::with_seed(5);
        let data: Vec<f32> = (0..40 * dim).map(|_| random.f32()).collect();
        let vectors = Vectors::new(&data, dim, Metric::Dot).unwrap();
        let members: Vec<Member> = (0..40).map(|row| (row, row as usize % classes)).collect();
        let (one, other) = members.split_at(25);
        let sums = [one, other].map(|rows| Sums::of(&Search::default(), &vectors, rows, classes));
        let model = RidgeModel::of(sums.iter().enumerate(), 0.01);
        let x: Vec<Vec<f64>> = data.chunks(dim).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
        let mean: Vec<f64> = (0..dim).map(|d| x.iter().map(|row| row[d]).sum::<f64>() / 40.0).collect();
        let variances: f64 = x.iter().flat_map(|row| row.iter().zip(&mean).map(|(x, m)| (x - m).powi(2))).sum();
        for (class, weights) in model.weights.chunks(dim).enumerate() {
            let error = |row: usize| {
                let centred = x[row].iter().zip(&mean).zip(weights).map(|((x, m), w)| (x - m) * w).sum::<f64>();
                centred + model.shares[class] - f64::from(u8::from(row % classes == class))
            };
            // The gradients of the weights and of the intercept are zero.
            for d in 0..dim {
                let gradient: f64 = (0..40).map(|row| error(row) * (x[row][d] - mean[d])).sum();
                assert!((gradient + 0.01 * variances / dim as f64 * weights[d]).abs() < 1e-10);
            }
            assert!((0..40).map(error).sum::<f64>().abs() < 1e-10);
        }
    }
}
