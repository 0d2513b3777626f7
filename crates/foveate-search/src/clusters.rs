use fastrand::Rng;

use crate::basis::add;
use crate::spread_out::BestCosines;
use crate::{Metric, Search, SearchError, Vectors};

/// Least rows from which starting centres are chosen.
const SAMPLE: usize = 4096;
/// Rows whose clusters are found together.
const PART: usize = 1 << 16;

/// The number of clusters, and the effort to find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// Most clusters, at least one.
    pub k: usize,
    /// Rounds in which the centres move.
    pub rounds: usize,
    /// Rows that a round looks at. If these are all rows, it is Lloyd's algorithm.
    pub batch: usize,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { k: 100, rounds: 30, batch: 8192 }
    }
}

/// Rows in clusters, each with the centre that is nearest.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// `[len, dim]`
    centres: Vec<f32>,
    dim: usize,
    /// Of each row, the cluster and the cosine to its centre.
    rows: Vec<Option<(u32, f64)>>,
}

impl Search<'_> {
    /// Bytes that [`clusters`](Self::clusters) takes at most in addition to the vectors, with a table of its result.
    pub fn memory_of_clusters(rows: usize, dim: usize, k: usize) -> u64 {
        let found = Self::memory(rows.min(PART), dim, 1) + Self::memory(k, dim, 0);
        160 * rows as u64 + 20 * (k * dim) as u64 + found
    }

    /// Groups rows by cosine, with spherical mini-batch k-means: centres start far from each other, by k-means++ on a
    /// sample, and move to the means of the rows nearest to them.
    ///
    /// Each row then has the nearest of all centres, exactly. The result is the same for any number of threads. There
    /// are fewer clusters than `k` if some would be empty.
    ///
    /// # Errors
    /// [`SearchError::Cancelled`].
    pub fn clusters(&self, vectors: &Vectors<'_>, options: &ClusterOptions) -> Result<Clusters, SearchError> {
        let vectors = vectors.by_cosine();
        let mut random = Rng::with_seed(1);
        let rows: Vec<u32> = vectors.finite().collect();
        let starts = self.starts(&vectors, &rows, options.k, &mut random)?;
        let mut means = Means::from(vectors.gather(&starts), vectors.dim());
        let batch = options.batch.clamp(1, rows.len().max(1));
        let total = 2 * rows.len();
        let in_rounds = options.rounds * batch;
        let mut done = 0;
        let quiet = Search { progress: &|_| (), state: None, ..*self };
        for _ in 0..if rows.is_empty() { 0 } else { options.rounds } {
            let mut chosen = rows.clone();
            if batch < rows.len() {
                chosen = (0..batch).map(|_| rows[random.usize(..rows.len())]).collect();
                chosen.sort_unstable();
            }
            let data = vectors.gather(&chosen);
            let of_batch = Vectors::new(&data, vectors.dim(), Metric::Cosine)?;
            // The past counts as much as if each row had been seen once.
            means.weaken(1.0 - batch as f64 / rows.len() as f64);
            let found = quiet.nearest(&of_batch, &means.centres()?, 1)?;
            (0..chosen.len()).for_each(|at| means.take(&of_batch, at as u32, found.of(at).next()));
            done += batch;
            (self.progress)(done as f64 / (in_rounds + total) as f64);
            if !means.renew() {
                break;
            }
        }
        let mut of_rows = Vec::new();
        for is_last in [false, true] {
            of_rows = Vec::with_capacity(vectors.len());
            for first in (0..vectors.len()).step_by(PART) {
                let part = vectors.part(first..(first + PART).min(vectors.len()));
                let found = quiet.nearest(&part, &means.centres()?, 1)?;
                of_rows.extend((0..part.len()).map(|row| found.of(row).next()));
                done += part.len();
                (self.progress)(done as f64 / (in_rounds + total) as f64);
            }
            if !is_last {
                means.weaken(0.0);
                of_rows.iter().zip(0..).for_each(|(&nearest, row)| means.take(&vectors, row, nearest));
                means.renew();
            }
        }
        Ok(Clusters::without_empty(&means, of_rows))
    }

    /// Rows that are far from each other, by k-means++ on some rows. There are fewer if the others are copies.
    fn starts(&self, vectors: &Vectors<'_>, rows: &[u32], k: usize, random: &mut Rng) -> Result<Vec<u32>, SearchError> {
        let k = k.max(1);
        let count = rows.len().min(SAMPLE.max(2 * k));
        let mut chosen: Vec<u32> = rows.to_vec();
        for at in 0..count {
            chosen.swap(at, random.usize(at..rows.len()));
        }
        chosen.truncate(count);
        let mut reach = BestCosines::of(vectors, &chosen);
        let mut starts: Vec<u32> = chosen.first().copied().into_iter().collect();
        while let Some(&last) = starts.last().filter(|_| starts.len() < k) {
            if (self.is_cancelled)() {
                return Err(SearchError::Cancelled);
            }
            reach.take(last, self.threads);
            // Half the squares of distances, without what is rounding.
            let weights: Vec<f64> = reach.best.iter().map(|best| (1.0 - best - 1e-12).max(0.0)).collect();
            let mut left = random.f64() * weights.iter().sum::<f64>();
            let next = weights.into_iter().position(|weight| {
                left -= weight;
                left < 0.0
            });
            let Some(next) = next else { break };
            starts.push(chosen[next]);
        }
        Ok(starts)
    }
}

/// Centres, and the sums of the rows that they are means of.
struct Means {
    centres: Vec<f32>,
    sums: Vec<f64>,
    dim: usize,
    /// A row, for a moment.
    unit: Vec<f64>,
}

impl Means {
    fn from(starts: Vec<f32>, dim: usize) -> Self {
        let sums = starts.iter().map(|&x| f64::from(x)).collect();
        let mut means = Self { sums, centres: starts, dim, unit: vec![0.0; dim] };
        means.renew();
        means
    }

    fn centres(&self) -> Result<Vectors<'_>, SearchError> {
        Vectors::new(&self.centres, self.dim, Metric::Cosine)
    }

    fn weaken(&mut self, times: f64) {
        self.sums.iter_mut().for_each(|x| *x *= times);
    }

    fn take(&mut self, vectors: &Vectors<'_>, row: u32, nearest: Option<(u32, f64)>) {
        if let Some((cluster, _)) = nearest {
            vectors.scaled(row, &mut self.unit);
            add(&mut self.sums[cluster as usize * self.dim..][..self.dim], &self.unit, 1.0);
        }
    }

    /// Moves the centres to the means. Without rows, a centre stays. Returns true if one moved.
    fn renew(&mut self) -> bool {
        let before = self.centres.clone();
        for (centre, sum) in self.centres.chunks_exact_mut(self.dim).zip(self.sums.chunks_exact(self.dim)) {
            let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
            if length > 1e-9 {
                centre.iter_mut().zip(sum).for_each(|(x, sum)| *x = (sum / length) as f32);
            }
        }
        before != self.centres
    }
}

impl Clusters {
    fn without_empty(means: &Means, mut rows: Vec<Option<(u32, f64)>>) -> Self {
        let mut numbers = vec![u32::MAX; means.centres.len() / means.dim];
        rows.iter().flatten().for_each(|&(cluster, _)| numbers[cluster as usize] = 0);
        let mut centres = Vec::new();
        for (number, centre) in numbers.iter_mut().zip(means.centres.chunks_exact(means.dim)) {
            if *number == 0 {
                *number = (centres.len() / means.dim) as u32;
                centres.extend_from_slice(centre);
            }
        }
        rows.iter_mut().flatten().for_each(|(cluster, _)| *cluster = numbers[*cluster as usize]);
        Self { centres, dim: means.dim, rows }
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.centres.len() / self.dim
    }

    /// Returns true if there are no clusters, for want of rows.
    pub fn is_empty(&self) -> bool {
        self.centres.is_empty()
    }

    /// The centres, `[len, dim]`, of length 1.
    pub fn centres(&self) -> &[f32] {
        &self.centres
    }

    /// The cluster of row `row` and the cosine to its centre; `None` for a row that is not searched.
    pub fn of(&self, row: usize) -> Option<(u32, f64)> {
        self.rows[row]
    }

    /// The rows of each cluster with their cosines, from the most typical row to the least.
    pub fn members(&self) -> Vec<Vec<(u32, f64)>> {
        let mut members = vec![Vec::new(); self.len()];
        for (row, of) in self.rows.iter().enumerate() {
            if let &Some((cluster, score)) = of {
                members[cluster as usize].push((row as u32, score));
            }
        }
        members.iter_mut().for_each(|rows| rows.sort_by(|a, b| b.1.total_cmp(&a.1)));
        members
    }
}
