use std::ops::Range;

use crate::SearchError;

/// Measure of how near two vectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The cosine of the angle, in [-1, 1]. A vector of zeros has the score 0 with every other.
    Cosine,
    /// The inner product.
    Dot,
}

/// Vectors to search: `[n, dim]` f32, row-major.
///
/// Rows with a NaN or an infinity are not searched: they have no neighbours and are no neighbours.
#[derive(Clone)]
pub struct Vectors<'a> {
    data: &'a [f32],
    dim: usize,
    metric: Metric,
    /// The length of each row, or 1 with [`Metric::Dot`]; NaN for rows that are not searched.
    lengths: Vec<f64>,
}

/// Some rows of vectors.
#[derive(Clone, Copy)]
pub(crate) struct RowsOf<'v, 'r> {
    pub(crate) vectors: &'v Vectors<'v>,
    pub(crate) rows: &'r [u32],
}

impl<'a> Vectors<'a> {
    /// Takes rows of `dim` numbers.
    ///
    /// # Errors
    /// [`SearchError::Shape`] and [`SearchError::TooMany`].
    pub fn new(data: &'a [f32], dim: usize, metric: Metric) -> Result<Self, SearchError> {
        if dim == 0 || !data.len().is_multiple_of(dim) {
            return Err(SearchError::Shape { len: data.len(), dim });
        }
        let mut lengths = Vec::with_capacity(data.len() / dim);
        for row in data.chunks_exact(dim) {
            lengths.push(match metric {
                _ if row.iter().any(|x| !x.is_finite()) => f64::NAN,
                Metric::Cosine => dot(row, row).sqrt(),
                Metric::Dot => 1.0,
            });
        }
        Self::with_lengths(data, dim, metric, lengths)
    }

    /// Takes rows whose [`lengths`](Self::lengths) are known, so that a program which searches the same rows often does
    /// not compute them each time. A row whose length is NaN is left out.
    ///
    /// # Errors
    /// [`SearchError::Shape`] and [`SearchError::TooMany`].
    pub fn with_lengths(data: &'a [f32], dim: usize, metric: Metric, lengths: Vec<f64>) -> Result<Self, SearchError> {
        if dim == 0 || Some(data.len()) != lengths.len().checked_mul(dim) {
            return Err(SearchError::Shape { len: data.len(), dim });
        }
        if u32::try_from(lengths.len()).is_err() {
            return Err(SearchError::TooMany(lengths.len()));
        }
        Ok(Self { data, dim, metric, lengths })
    }

    /// The length of each row, or 1 with [`Metric::Dot`]; NaN for rows that are not searched.
    pub fn lengths(&self) -> &[f64] {
        &self.lengths
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Numbers of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The measure of scores.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The rows that are searched, in order.
    pub fn finite(&self) -> impl Iterator<Item = u32> + '_ {
        let numbered = self.lengths.iter().enumerate();
        numbered.filter(|(_, length)| !length.is_nan()).map(|(row, _)| row as u32)
    }

    /// Leaves rows out of searches, such as copies of others, as if they were not finite.
    pub fn leave_out(&mut self, rows: impl IntoIterator<Item = u32>) {
        rows.into_iter().for_each(|row| self.lengths[row as usize] = f64::NAN);
    }

    /// The score of two rows, summed in f64. It is the same in both directions.
    pub fn score(&self, row: u32, other: &Vectors<'_>, of_other: u32) -> f64 {
        let lengths = self.lengths[row as usize] * other.lengths[of_other as usize];
        if lengths == 0.0 { 0.0 } else { dot(self.row(row), other.row(of_other)) / lengths }
    }

    /// These vectors, compared by cosine.
    pub(crate) fn by_cosine(&self) -> Self {
        let mut lengths = self.lengths.clone();
        if self.metric == Metric::Dot {
            self.finite().for_each(|row| lengths[row as usize] = dot(self.row(row), self.row(row)).sqrt());
        }
        Self { lengths, metric: Metric::Cosine, ..*self }
    }

    /// Some adjacent rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        let data = &self.data[rows.start * self.dim..rows.end * self.dim];
        Self { data, lengths: self.lengths[rows].to_vec(), ..*self }
    }

    /// Copies rows, `[rows, dim]`.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        rows.iter().flat_map(|&row| self.row(row)).copied().collect()
    }

    pub(crate) fn row(&self, row: u32) -> &[f32] {
        &self.data[row as usize * self.dim..][..self.dim]
    }

    /// The length of the longest vector whose inner products are scores.
    pub(crate) fn longest(&self) -> f64 {
        match self.metric {
            Metric::Cosine => 1.0,
            Metric::Dot => self.finite().map(|row| dot(self.row(row), self.row(row)).sqrt()).fold(0.0, f64::max),
        }
    }

    /// Writes the vector whose inner products are scores.
    pub(crate) fn scaled(&self, row: u32, out: &mut [f64]) {
        let length = self.lengths[row as usize];
        let scale = if length == 0.0 { 0.0 } else { length.recip() };
        for (out, &x) in out.iter_mut().zip(self.row(row)) {
            *out = f64::from(x) * scale;
        }
    }
}

/// The inner product in f64, summed in a fixed order, so that a score is the same on every machine.
pub(crate) fn dot<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        #[allow(unsafe_code)]
        return unsafe { dot_with_avx2(a, b) };
    }
    dot_plainly(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_with_avx2<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> f64 {
    dot_plainly(a, b)
}

#[inline(always)]
fn dot_plainly<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> f64 {
    const LANES: usize = 16;
    let mut sums = [0.0; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane].into() * b[lane].into();
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(&a, &b)| a.into() * b.into()).sum();
    sums.iter().sum::<f64>() + rest
}
