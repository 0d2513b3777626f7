use crate::Vectors;
use crate::multiply::multiply;
use crate::vectors::dot;

/// Directions by whose coordinates rows are ordered.
pub(crate) const AXES: usize = 4;
/// Widths of codes that are tried in addition to all dimensions.
pub(crate) const WIDTHS: [usize; 3] = [32, 64, 128];
/// Rows from which directions and steps are estimated.
pub(crate) const SAMPLE: usize = 2048;

/// Orthonormal directions, row-major, `[count, dim]`.
pub(crate) type Directions = Vec<f64>;

/// The mean of vectors, and the directions in which they spread most, widest first.
pub(crate) struct MainDirections {
    mean: Vec<f64>,
    directions: Directions,
}

/// A projection: `p` on `width` directions from the mean.
pub(crate) struct Basis {
    mean: Vec<f64>,
    /// The mean's inner product with itself.
    mean_square: f64,
    pub(crate) width: usize,
    /// `None` for the coordinates as they are.
    directions: Option<Directions>,
    /// Those as columns, `[dim, width]`.
    transposed: Vec<f64>,
}

/// Rest of a vector `a` after a projection.
pub(crate) struct Rest {
    /// The square of the length of what is orthogonal to all directions.
    pub(crate) tail_square: f64,
    /// `a·m - m·m/2`, where `m` is the mean.
    pub(crate) along: f64,
}

/// Rows after a projection.
pub(crate) struct ProjectedRows {
    /// The vectors from the mean, `[rows, dim]`.
    pub(crate) vectors: Vec<f64>,
    /// Their coordinates, `[rows, width]`.
    pub(crate) leading: Vec<f64>,
    pub(crate) rests: Vec<Rest>,
}

impl MainDirections {
    /// Estimates `count` directions from some rows. Any directions are right; good ones make searches fast.
    pub(crate) fn of(vectors: &Vectors<'_>, rows: &[u32], count: usize) -> Self {
        const ROUNDS: usize = 5;
        let dim = vectors.dim();
        let mut sample = vec![0.0; rows.len() * dim];
        for (out, &row) in sample.chunks_exact_mut(dim).zip(rows) {
            vectors.scaled(row, out);
        }
        let mut mean = vec![0.0; dim];
        for row in sample.chunks_exact(dim) {
            add(&mut mean, row, (rows.len() as f64).recip());
        }
        sample.chunks_exact_mut(dim).for_each(|row| add(row, &mean, -1.0));
        let mut random = fastrand::Rng::with_seed(1);
        let mut directions: Directions = (0..count * dim).map(|_| random.f64() - 0.5).collect();
        orthonormalize(&mut directions, dim, &mut random);
        for _ in 0..ROUNDS {
            // Each direction times the covariance, which is not formed.
            let mut next = vec![0.0; directions.len()];
            for row in sample.chunks_exact(dim) {
                for (direction, next) in directions.chunks_exact(dim).zip(next.chunks_exact_mut(dim)) {
                    add(next, row, dot(direction, row));
                }
            }
            directions = next;
            orthonormalize(&mut directions, dim, &mut random);
        }
        Self { mean, directions }
    }

    /// The first directions, by which rows are ordered.
    pub(crate) fn axes(&self) -> Directions {
        self.directions.iter().take(AXES * self.mean.len()).copied().collect()
    }

    /// The projection on the first `width` directions, mixed so that each has the same share of the spread; all
    /// coordinates, as they are, if there are not more.
    pub(crate) fn basis(&self, width: usize) -> Basis {
        let dim = self.mean.len();
        let directions = (width < dim).then(|| {
            let mut random = fastrand::Rng::with_seed(2);
            let mut mix: Directions = (0..width * width).map(|_| random.f64() - 0.5).collect();
            orthonormalize(&mut mix, width, &mut random);
            let mut mixed = vec![0.0; width * dim];
            for (out, shares) in mixed.chunks_exact_mut(dim).zip(mix.chunks_exact(width)) {
                for (direction, &share) in self.directions.chunks_exact(dim).zip(shares) {
                    add(out, direction, share);
                }
            }
            // Nothing but rounding is left to correct.
            orthonormalize(&mut mixed, dim, &mut random);
            mixed
        });
        let mut transposed = Vec::new();
        for at in 0..dim {
            transposed.extend(directions.iter().flatten().skip(at).step_by(dim));
        }
        let mean_square = dot(&self.mean, &self.mean);
        Basis { mean: self.mean.clone(), mean_square, width: width.min(dim), directions, transposed }
    }
}

impl Basis {
    /// Projects some rows.
    pub(crate) fn rows(&self, vectors: &Vectors<'_>, rows: &[u32]) -> ProjectedRows {
        let dim = self.mean.len();
        let mut moved = vec![0.0; rows.len() * dim];
        let mut rests = Vec::with_capacity(rows.len());
        for (vector, &row) in moved.chunks_exact_mut(dim).zip(rows) {
            vectors.scaled(row, vector);
            let along = dot(vector, &self.mean) - self.mean_square / 2.0;
            add(vector, &self.mean, -1.0);
            rests.push(Rest { tail_square: 0.0, along });
        }
        let Some(directions) = &self.directions else {
            return ProjectedRows { leading: moved.clone(), vectors: moved, rests };
        };
        let mut leading = vec![0.0; rows.len() * self.width];
        multiply(&moved, directions, &mut leading, dim);
        let rows = moved.chunks_exact(dim).zip(leading.chunks_exact(self.width));
        for (rest, (vector, leading)) in rests.iter_mut().zip(rows) {
            rest.tail_square = (dot(vector, vector) - dot(leading, leading)).max(0.0);
        }
        ProjectedRows { vectors: moved, leading, rests }
    }

    /// Leaves of vectors that were projected what is orthogonal to all directions.
    pub(crate) fn subtract(&self, vectors: &mut [f64], projected: &[f64]) {
        let mut sums = vec![0.0; vectors.len()];
        multiply(projected, &self.transposed, &mut sums, self.width);
        add(vectors, &sums, -1.0);
    }
}

/// Gram and Schmidt's, twice, which leaves rounding alone. Directions that depend on those before are drawn anew.
fn orthonormalize(directions: &mut [f64], dim: usize, random: &mut fastrand::Rng) {
    for at in 0..directions.len() / dim {
        let (before, rest) = directions.split_at_mut(at * dim);
        let direction = &mut rest[..dim];
        loop {
            let length = dot(direction, direction).sqrt();
            for _ in 0..2 {
                for other in before.chunks_exact(dim) {
                    add(direction, other, -dot(direction, other));
                }
            }
            let left = dot(direction, direction).sqrt();
            if left > length * 1e-9 && left > f64::MIN_POSITIVE {
                direction.iter_mut().for_each(|x| *x /= left);
                break;
            }
            direction.iter_mut().for_each(|x| *x = random.f64() - 0.5);
        }
    }
}

pub(crate) fn add(to: &mut [f64], what: &[f64], times: f64) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what * times;
    }
}
