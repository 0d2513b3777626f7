use std::collections::BTreeMap;

use crate::probe::probe;
use crate::{Search, SearchError, Vectors};

/// Share of the progress after which the neighbours are known.
const SEARCHED: f64 = 0.7;
/// Neighbours that vote, and the scale of scores in votes, as DINO has them.
const VOTES: (usize, f64) = (20, 0.07);
/// The normal distribution's quantile of a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// Neighbours of a text or an image whose recall is measured.
const RETRIEVED: usize = 10;

/// A mean over rows, with its 95 % interval.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The mean; NaN without rows, as are the ends.
    pub mean: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// Number of rows that count.
    pub rows: usize,
    /// NaN for rows that do not count.
    values: Vec<f32>,
}

/// Figures of how well vectors tell labels apart, all of the same rows: finite ones whose label occurs at least twice.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Number of labels that occur at least twice.
    pub classes: usize,
    /// The share of rows with their label at the nearest row.
    pub recall_1: Figure,
    /// The share of rows with their label among the five nearest.
    pub recall_5: Figure,
    /// The share of rows with their label among the ten nearest.
    pub recall_10: Figure,
    /// Mean average precision at R, where R is the number of other rows with the label, or the bound.
    pub map_at_r: Figure,
    /// The share of rows whose label is that of the 20 nearest, which vote with `exp(score / 0.07)`.
    pub knn: Figure,
    /// The share of rows whose label a linear model of the other four fifths of the rows finds.
    pub probe: Figure,
}

impl Search<'_> {
    /// Measures how well vectors tell labels apart. Rows without label are left out, as if they were not there; rows
    /// that are alone with their label are neighbours of others and count in no figure.
    ///
    /// R of `map_at_r` is at most `most`, 1000 say: as many neighbours are in memory for each row, 12 bytes each, if a
    /// label is that frequent. Average precision at R is that of "A Metric Learning Reality Check" (Musgrave et al.,
    /// 2020). The linear model is ridge regression to the labels, with an intercept. Each fifth of a label's rows is
    /// predicted from the others, of which a fifth chooses the penalty.
    ///
    /// # Errors
    /// [`SearchError::Labels`] and [`SearchError::Cancelled`].
    pub fn evaluate(
        &self,
        vectors: &Vectors<'_>,
        labels: &[Option<u32>],
        most: usize,
    ) -> Result<Evaluation, SearchError> {
        if labels.len() != vectors.len() {
            return Err(SearchError::Labels { labels: labels.len(), rows: vectors.len() });
        }
        let mut vectors = vectors.clone();
        vectors.leave_out((0..).zip(labels).filter(|(_, label)| label.is_none()).map(|(row, _)| row));
        let mut by_label: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        vectors.finite().for_each(|row| by_label.entry(labels[row as usize]).or_default().push(row));
        by_label.retain(|_, rows| rows.len() > 1);
        let largest = by_label.values().map(|rows| rows.len() - 1).max().unwrap_or(0);

        let search = Search { progress: &|done| (self.progress)(SEARCHED * done), ..*self };
        let neighbors = search.neighbors(&vectors, largest.min(most).max(VOTES.0))?;
        let [mut recall_1, mut recall_5, mut recall_10, mut precisions, mut votes, mut found] =
            std::array::from_fn(|_| vec![f32::NAN; vectors.len()]);
        for (&label, rows) in &by_label {
            for row in rows.iter().map(|&row| row as usize) {
                let near: Vec<(Option<u32>, f64)> =
                    neighbors.of(row).map(|(other, score)| (labels[other as usize], score)).collect();
                for (values, k) in [(&mut recall_1, 1), (&mut recall_5, 5), (&mut recall_10, 10)] {
                    values[row] = share(near.iter().take(k).any(|&(of_other, _)| of_other == label));
                }
                precisions[row] =
                    average_precision(near.iter().map(|&(other, _)| other == label), (rows.len() - 1).min(most));
                votes[row] = share(voted(near.into_iter().take(VOTES.0)) == label);
            }
        }
        for (row, is_right) in probe(self, SEARCHED, &vectors, &by_label.values().collect::<Vec<_>>())? {
            found[row as usize] = share(is_right);
        }
        Ok(Evaluation {
            classes: by_label.len(),
            recall_1: Figure::of_share(recall_1),
            recall_5: Figure::of_share(recall_5),
            recall_10: Figure::of_share(recall_10),
            map_at_r: Figure::of_mean(precisions),
            knn: Figure::of_share(votes),
            probe: Figure::of_share(found),
        })
    }
}

impl Search<'_> {
    /// Measures how well texts find their images, and images their texts: recall at 1, 5 and 10, by name. `of_texts`
    /// has the image of each text; an image may have several, of which it has to find one. Images without text and
    /// rows that are not finite count in no figure.
    ///
    /// # Errors
    /// [`SearchError::Labels`], [`SearchError::Dimensions`] and [`SearchError::Cancelled`].
    pub fn retrieval(
        &self,
        texts: &Vectors<'_>,
        images: &Vectors<'_>,
        of_texts: &[u32],
    ) -> Result<Vec<(&'static str, Figure)>, SearchError> {
        if of_texts.len() != texts.len() {
            return Err(SearchError::Labels { labels: of_texts.len(), rows: texts.len() });
        }
        let mut text_ranks = vec![None; texts.len()];
        let found = self.nearest(texts, images, RETRIEVED)?;
        for text in texts.finite() {
            let own = of_texts[text as usize];
            text_ranks[text as usize] = Some(found.of(text as usize).position(|(image, _)| image == own));
        }
        let mut image_ranks = vec![None; images.len()];
        let found = self.nearest(images, texts, RETRIEVED)?;
        for &image in of_texts {
            if !images.lengths()[image as usize].is_nan() {
                let rank = found.of(image as usize).position(|(text, _)| of_texts[text as usize] == image);
                image_ranks[image as usize] = Some(rank);
            }
        }
        let mut figures = Vec::new();
        for (name, ranks, k) in [
            ("text → image recall@1", &text_ranks, 1),
            ("text → image recall@5", &text_ranks, 5),
            ("text → image recall@10", &text_ranks, RETRIEVED),
            ("image → text recall@1", &image_ranks, 1),
            ("image → text recall@5", &image_ranks, 5),
            ("image → text recall@10", &image_ranks, RETRIEVED),
        ] {
            let mut values = vec![f32::NAN; ranks.len()];
            for (value, rank) in values.iter_mut().zip(ranks) {
                // Of the ranks: none for a row that does not count, and none in it for one that is not found.
                if let Some(rank) = rank {
                    *value = share(rank.is_some_and(|rank| rank < k));
                }
            }
            figures.push((name, Figure::of_share(values)));
        }
        Ok(figures)
    }
}

/// The value of a row in a share: 1 if it is right.
fn share(is_right: bool) -> f32 {
    f32::from(u8::from(is_right))
}

/// At R: the mean over the first R ranks of the precision so far, or 0 where the rank is wrong.
fn average_precision(is_right: impl Iterator<Item = bool>, r: usize) -> f32 {
    let mut right = 0.0;
    let mut sum = 0.0;
    for (rank, _) in is_right.take(r).enumerate().filter(|&(_, is_right)| is_right) {
        right += 1.0;
        sum += right / (rank + 1) as f64;
    }
    (sum / r.max(1) as f64) as f32
}

/// The label with the most votes, or of several the one that is nearest.
fn voted(near: impl Iterator<Item = (Option<u32>, f64)>) -> Option<u32> {
    let mut votes: Vec<(Option<u32>, f64)> = Vec::new();
    let mut best = None;
    for (label, score) in near {
        let weight = ((score - *best.get_or_insert(score)) / VOTES.1).exp();
        match votes.iter_mut().find(|(other, _)| *other == label) {
            Some((_, sum)) => *sum += weight,
            None => votes.push((label, weight)),
        }
    }
    votes.into_iter().reduce(|best, vote| if vote.1 > best.1 { vote } else { best }).and_then(|(label, _)| label)
}

impl Evaluation {
    /// The figures by their usual names.
    pub fn figures(&self) -> [(&'static str, &Figure); 6] {
        let Self { recall_1, recall_5, recall_10, map_at_r, knn, probe, .. } = self;
        [
            ("recall@1", recall_1),
            ("recall@5", recall_5),
            ("recall@10", recall_10),
            ("mAP@R", map_at_r),
            ("k-NN accuracy", knn),
            ("linear probe", probe),
        ]
    }
}

/// Compares two models, or two settings, on the same rows: the mean of `a - b` over the rows that count in both, with a
/// 95 % interval. It is narrower than those of `a` and `b` where both fail on the same rows.
///
/// # Panics
/// If the figures are not of the same number of rows.
pub fn difference(a: &Figure, b: &Figure) -> Figure {
    assert_eq!(a.values.len(), b.values.len(), "figures of other rows");
    Figure::of_mean(a.values.iter().zip(&b.values).map(|(a, b)| a - b).collect())
}

impl Figure {
    /// The row's value, in [0, 1], or in [-1, 1] for a difference; `None` for a row that does not count.
    pub fn of(&self, row: usize) -> Option<f64> {
        Some(f64::from(self.values[row])).filter(|value| !value.is_nan())
    }

    /// With the normal approximation.
    fn of_mean(values: Vec<f32>) -> Self {
        let counted = values.iter().map(|&value| f64::from(value)).filter(|value| !value.is_nan());
        let rows = counted.clone().count();
        let mean = counted.clone().sum::<f64>() / rows as f64;
        let variance = counted.map(|value| (value - mean).powi(2)).sum::<f64>() / (rows as f64 - 1.0).max(1.0);
        let half = Z * (variance / rows as f64).sqrt();
        Self { mean, low: mean - half, high: mean + half, rows, values }
    }

    /// With Wilson's interval, for values of 0 and 1.
    fn of_share(values: Vec<f32>) -> Self {
        let figure = Self::of_mean(values);
        let share = figure.mean;
        let square = Z * Z / figure.rows as f64;
        let middle = (share + square / 2.0) / (1.0 + square);
        let half = (share * (1.0 - share) * square + square * square / 4.0).sqrt() / (1.0 + square);
        Self { low: middle - half, high: middle + half, ..figure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_votes_and_intervals_are_those_computed_by_hand() {
        let precision = |ranks: [bool; 4], r: usize| average_precision(ranks.into_iter(), r);
        assert_eq!(precision([true, true, true, false], 3), 1.0);
        assert_eq!(precision([false, true, true, false], 3), ((1.0 / 2.0 + 2.0 / 3.0) / 3.0) as f32);
        assert_eq!(precision([true, false, false, true], 3), (1.0 / 3.0) as f32);
        // exp(-0.1 / 0.07) is 0.24: four such votes are less than one of weight 1, and five more.
        let vote = |far: usize| voted([(Some(1), 0.9)].into_iter().chain((0..far).map(|_| (Some(2), 0.8))));
        assert_eq!((vote(4), vote(5), vote(0)), (Some(1), Some(2), Some(1)));
        // Wilson's interval of 8 of 10.
        let share = Figure::of_share([vec![1.0; 8], vec![0.0; 2], vec![f32::NAN]].concat());
        assert_eq!((share.rows, share.mean, share.of(9), share.of(10)), (10, 0.8, Some(0.0), None));
        assert!((share.low - 0.490_162).abs() < 1e-6 && (share.high - 0.943_318).abs() < 1e-6, "{share:?}");
        // The mean of 0, 0.5 and 1 has the deviation 0.5, and the standard error 0.5 / sqrt(3).
        let mean = Figure::of_mean(vec![0.0, 0.5, 1.0]);
        assert!((mean.high - mean.mean - 1.959_964 * 0.5 / 3.0_f64.sqrt()).abs() < 1e-6);
        let other = Figure::of_mean(vec![0.0, f32::NAN, 0.5]);
        assert_eq!((difference(&mean, &other).rows, difference(&mean, &other).mean), (2, 0.25));
        assert!(Figure::of_share(vec![f32::NAN]).low.is_nan());
    }
}
