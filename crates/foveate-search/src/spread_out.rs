use crate::basis::add;
use crate::{Metric, Search, SearchError, Vectors};

/// The best cosine of each row to those chosen so far.
pub(crate) struct BestCosines<'a> {
    vectors: &'a Vectors<'a>,
    rows: &'a [u32],
    pub(crate) best: Vec<f64>,
}

impl<'a> BestCosines<'a> {
    /// Of these rows to none. The score is the cosine.
    pub(crate) fn of(vectors: &'a Vectors<'a>, rows: &'a [u32]) -> Self {
        Self { vectors, rows, best: vec![f64::NEG_INFINITY; rows.len()] }
    }

    /// Chooses one more row.
    pub(crate) fn take(&mut self, chosen: u32, threads: usize) {
        let share = self.rows.len().div_ceil(threads.max(1)).max(1);
        let vectors = self.vectors;
        std::thread::scope(|scope| {
            for (rows, best) in self.rows.chunks(share).zip(self.best.chunks_mut(share)) {
                scope.spawn(move || {
                    for (&row, best) in rows.iter().zip(best) {
                        *best = vectors.score(row, vectors, chosen).max(*best);
                    }
                });
            }
        });
    }
}

impl Search<'_> {
    /// Chooses `n` rows that are spread out, for labels or a preview: first the row nearest to the mean, then again and
    /// again the row whose cosine to the nearest one chosen is lowest. Of equal rows, the lower one is chosen.
    ///
    /// Returns the rows in this order, each with its cosine to the nearest one before; of the first row, there is none.
    /// No other row is farther from those chosen than the last one. The time is that of `n` scores for each row.
    ///
    /// # Errors
    /// [`SearchError::Cancelled`].
    pub fn spread_out(&self, vectors: &Vectors<'_>, n: usize) -> Result<Vec<(u32, Option<f64>)>, SearchError> {
        let vectors = vectors.by_cosine();
        let rows: Vec<u32> = vectors.finite().collect();
        let mut mean = vec![0.0; vectors.dim()];
        let mut unit = vec![0.0; vectors.dim()];
        for &row in &rows {
            vectors.scaled(row, &mut unit);
            add(&mut mean, &unit, 1.0);
        }
        let largest = mean.iter().fold(f64::MIN_POSITIVE, |largest, x: &f64| largest.max(x.abs()));
        let mean: Vec<f32> = mean.iter().map(|x| (x / largest) as f32).collect();
        let mean = Vectors::new(&mean, vectors.dim(), Metric::Cosine)?;
        let quiet = Search { progress: &|_| (), state: None, ..*self };
        let first = quiet.nearest(&mean, &vectors, 1)?.of(0).next().map(|(row, _)| (row, None));
        let mut chosen: Vec<(u32, Option<f64>)> = first.into_iter().take(n).collect();
        let mut reach = BestCosines::of(&vectors, &rows);
        let n = n.min(rows.len());
        while let Some(&(last, _)) = chosen.last().filter(|_| chosen.len() < n) {
            if (self.is_cancelled)() {
                return Err(SearchError::Cancelled);
            }
            reach.take(last, self.threads);
            // Rounding may leave a row below 1 with itself.
            reach.best[rows.partition_point(|&row| row < last)] = f64::INFINITY;
            let lowest = reach.best.iter().zip(&rows).min_by(|a, b| a.0.total_cmp(b.0));
            chosen.extend(lowest.map(|(&score, &row)| (row, Some(score))));
            (self.progress)(chosen.len() as f64 / n as f64);
        }
        Ok(chosen)
    }
}
