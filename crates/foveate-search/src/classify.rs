use std::cmp::Ordering;

use crate::multiply::multiply;
use crate::nearest::check;
use crate::{Search, SearchError, Vectors};

/// The choice of a row's classes by its scores with all of them.
#[derive(Clone, Copy, Debug)]
pub struct Classifier {
    /// Factor of a score, which makes it a logit.
    pub scale: f64,
    /// With a bias, which is added to the logit, a probability is the sigmoid of one class alone, as SigLIP is trained.
    /// Without it, it is the softmax over all classes, as CLIP is.
    pub bias: Option<f64>,
    /// Most classes of a row.
    pub k: usize,
    /// Least probability of a class.
    pub threshold: f64,
}

/// A class of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassScore {
    /// The row of the class.
    pub class: u32,
    /// In [0, 1].
    pub probability: f32,
    /// The score of the row and the class; see [`Metric`](crate::Metric).
    pub score: f32,
}

impl Classifier {
    /// The best classes from the threshold on. Of equal ones, the earlier class comes first.
    fn choose(&self, scores: &[f64]) -> Vec<ClassScore> {
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Relative to the best one, so that no power overflows.
        let sum: f64 = match self.bias {
            Some(_) => 0.0,
            None => scores.iter().map(|score| (self.scale * (score - best)).exp()).sum(),
        };
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        if self.k < order.len() {
            order.select_nth_unstable_by(self.k, |a, b| best_first(scores, *a, *b));
            order.truncate(self.k);
        }
        order.sort_unstable_by(|a, b| best_first(scores, *a, *b));
        let mut chosen = Vec::new();
        for class in order {
            let score = scores[class as usize];
            let probability = match self.bias {
                Some(bias) => (1.0 + (-(self.scale * score + bias)).exp()).recip(),
                None => (self.scale * (score - best)).exp() / sum,
            };
            if probability >= self.threshold {
                chosen.push(ClassScore { class, probability: probability as f32, score: score as f32 });
            }
        }
        chosen
    }
}

/// Rows whose scores are computed together: 1 MB of them with 1,000 others, which stays in a core's cache.
const TOGETHER: usize = 128;

fn best_first(scores: &[f64], a: u32, b: u32) -> Ordering {
    scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b))
}

impl Search<'_> {
    /// Finds the classes of each row; `None` for a row that is not finite. `classes` has a vector for each, up to some
    /// thousand: all scores are computed, in f64.
    ///
    /// # Errors
    /// [`SearchError::Dimensions`] and [`SearchError::Cancelled`].
    pub fn classify(
        &self,
        vectors: &Vectors<'_>,
        classes: &Vectors<'_>,
        classifier: &Classifier,
    ) -> Result<Vec<Option<Vec<ClassScore>>>, SearchError> {
        self.with_all(vectors, classes, |scores| classifier.choose(scores))
    }

    /// What `of_row` makes of the scores of each row with each of `others`, `[others.len()]`; `None` for a row that is
    /// not finite. Others that are not finite have NaN as their scores.
    fn with_all<T: Send>(
        &self,
        vectors: &Vectors<'_>,
        others: &Vectors<'_>,
        of_row: impl Fn(&[f64]) -> T + Sync,
    ) -> Result<Vec<Option<T>>, SearchError> {
        check(others, vectors)?;
        let dim = vectors.dim();
        let count = others.len();
        let mut of_others = vec![0.0; count * dim];
        for (row, scaled) in (0..).zip(of_others.chunks_exact_mut(dim)) {
            others.scaled(row, scaled);
        }
        let of_blocks = self.map(vectors.len().div_ceil(TOGETHER), 0.0..1.0, |block| {
            let first = block * TOGETHER;
            let rows = TOGETHER.min(vectors.len() - first);
            let mut scaled = vec![0.0; rows * dim];
            for (row, scaled) in (first as u32..).zip(scaled.chunks_exact_mut(dim)) {
                vectors.scaled(row, scaled);
            }
            let mut scores = vec![0.0; rows * count];
            multiply(&scaled, &of_others, &mut scores, dim);
            let mut made = Vec::with_capacity(rows);
            for row in 0..rows {
                let is_finite = !vectors.lengths()[first + row].is_nan();
                made.push(is_finite.then(|| of_row(&scores[row * count..][..count])));
            }
            made
        })?;
        Ok(of_blocks.into_iter().flatten().collect())
    }
}
