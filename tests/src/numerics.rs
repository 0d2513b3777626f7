//! How far from a golden is still right: named tiers, and the measures they are stated in.

use crate::trial::{Outcome, ensure};

/// How close vectors must be to their goldens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Its name in messages.
    pub name: &'static str,
    /// Least cosine of a vector and its golden.
    pub min_cosine: f64,
    /// Largest relative error: max |a − b| over the golden's largest component.
    pub max_error: f64,
}

/// Engines that compute in f32, from the same pixels. `transformers` itself in f32 is 1e-6 (relative) from its f64 self,
/// so this leaves room for another order of summation and for nothing else: the tanh form of GELU, a LayerNorm epsilon
/// of 1e-5 or the other interpolation of positions all fall outside.
pub const STRICT: Tier = Tier { name: "strict", min_cosine: 1.0 - 1e-6, max_error: 1e-4 };

/// Engines that compute in f16 or bf16, from the same pixels.
pub const HALF: Tier = Tier { name: "half", min_cosine: 0.999, max_error: 0.1 };

impl Tier {
    /// Compares one vector with its golden.
    ///
    /// # Errors
    /// [`Outcome::Failed`] with the figures.
    pub fn check(&self, what: &str, vector: &[f32], golden: &[f64]) -> Result<(), Outcome> {
        ensure(vector.len() == golden.len(), || format!("{what}: {} components, not {}", vector.len(), golden.len()))?;
        let (cosine, error) = (cosine(vector, golden), relative_error(vector, golden));
        // Written so that a NaN fails.
        ensure(cosine >= self.min_cosine && error <= self.max_error, || {
            format!(
                "{what}: 1 - cosine {:.2e}, relative error {error:.2e}: outside of the tier '{}'",
                1.0 - cosine,
                self.name
            )
        })
    }
}

/// How close vectors made from image files must be, over a set of photos.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileTier {
    /// Its name in messages.
    pub name: &'static str,
    /// Least cosine of a vector and its golden.
    pub min_cosine: f64,
    /// Least median of the cosines.
    pub median_cosine: f64,
}

/// From the pixels that Pillow decodes, by a decoder that gives the same or from a lossless copy of them: what is left
/// is the resampling, a level here and there. 1 - cosine is at most 1e-7 for the models with random weights and 5e-5 for
/// the ViT-Tiny.
pub const SAME_PIXELS: FileTier = FileTier { name: "same-pixels", min_cosine: 0.9999, median_cosine: 0.99999 };

/// Models with random weights, by a decoder whose JPEG pixels are not libjpeg-turbo's to the bit. Worst with zune-jpeg:
/// 1 - cosine = 1.9e-4, on a photo of 20 x 30 pixels that is enlarged thirteen times; nothing else exceeds 6e-5.
pub const OTHER_PIXELS: FileTier = FileTier { name: "other-pixels", min_cosine: 0.9997, median_cosine: 0.9999 };

/// The ViT-Tiny, by such a decoder: trained weights of this small model answer to a difference of 0.1 to 0.3 levels (the
/// mean over a photo) with 1 - cosine around 1e-4. Worst: 2.7e-2, on a strip 50 pixels wide that is enlarged five times.
pub const OTHER_PIXELS_TRAINED: FileTier =
    FileTier { name: "other-pixels-trained", min_cosine: 0.95, median_cosine: 0.9998 };

impl FileTier {
    /// Judges the cosines of photos, by name.
    ///
    /// # Errors
    /// [`Outcome::Failed`] with the figures.
    pub fn check(&self, cosines: &[(String, f64)]) -> Result<(), Outcome> {
        let mut sorted: Vec<&(String, f64)> = cosines.iter().collect();
        // NaN sorts last, so it is turned into the worst value first.
        let rank = |cosine: f64| if cosine.is_nan() { -1.0 } else { cosine };
        sorted.sort_by(|a, b| rank(a.1).total_cmp(&rank(b.1)));
        let Some((photo, worst)) = sorted.first() else { return Err(Outcome::failed("no photos to judge")) };
        let (worst, median) = (rank(*worst), rank(sorted[sorted.len() / 2].1));
        ensure(worst >= self.min_cosine && median >= self.median_cosine, || {
            let (worst, median) = (1.0 - worst, 1.0 - median);
            format!("1 - cosine: worst {worst:.2e} ({photo}), median {median:.2e}: outside of the tier '{}'", self.name)
        })
    }
}

/// Cosine of the angle between two vectors.
pub fn cosine(a: &[f32], b: &[f64]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let a = f64::from(a);
        dot += a * b;
        aa += a * a;
        bb += b * b;
    }
    dot / (aa * bb).sqrt()
}

/// max |a − b| ÷ max |b|.
pub fn relative_error(a: &[f32], b: &[f64]) -> f64 {
    let difference = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - b).abs());
    // `f64::max` would drop a NaN.
    let largest = difference.fold(0.0, |max: f64, d| if d > max || d.is_nan() { d } else { max });
    largest / b.iter().fold(f64::MIN_POSITIVE, |max, b| max.max(b.abs()))
}

/// How far two images are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelError {
    /// Largest difference of a sample.
    pub max: u8,
    /// Mean absolute difference.
    pub mean: f64,
    /// Share of samples that differ by more than one level.
    pub above_one: f64,
}

/// Compares samples of two images of one size.
pub fn pixel_error(a: &[u8], b: &[u8]) -> PixelError {
    let differences = || a.iter().zip(b).map(|(&a, &b)| a.abs_diff(b));
    let samples = a.len().max(1) as f64;
    PixelError {
        max: differences().max().unwrap_or(0),
        mean: differences().map(f64::from).sum::<f64>() / samples,
        above_one: differences().filter(|&d| d > 1).count() as f64 / samples,
    }
}

/// Share of vectors whose nearest other vector by cosine has the same label.
pub fn recall_at_1(vectors: &[Vec<f32>], labels: &[String]) -> f64 {
    let unit: Vec<Vec<f64>> = vectors.iter().map(|vector| normalized(vector)).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let is_hit = |i: usize| {
        let others = (0..unit.len()).filter(|&j| j != i);
        let nearest = others.max_by(|&a, &b| dot(&unit[i], &unit[a]).total_cmp(&dot(&unit[i], &unit[b])));
        nearest.is_some_and(|nearest| labels[nearest] == labels[i])
    };
    (0..unit.len()).filter(|&i| is_hit(i)).count() as f64 / unit.len() as f64
}

fn normalized(vector: &[f32]) -> Vec<f64> {
    let norm = vector.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
    vector.iter().map(|&v| f64::from(v) / norm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_refuse_what_is_off() {
        let golden = [1.0, -2.0, 3.0];
        assert!(STRICT.check("x", &[1.0, -2.0, 3.0], &golden).is_ok());
        assert!(STRICT.check("x", &[1.001, -2.0, 3.0], &golden).is_err());
        assert!(HALF.check("x", &[1.001, -2.0, 3.0], &golden).is_ok());
        // The right direction at the wrong length has a perfect cosine.
        assert!(HALF.check("x", &[2.0, -4.0, 6.0], &golden).is_err());
        assert!(HALF.check("x", &[f32::NAN, -2.0, 3.0], &golden).is_err());
        assert!(HALF.check("x", &[1.0, -2.0], &golden).is_err());
    }

    #[test]
    fn file_tiers_judge_the_worst_and_the_median() {
        let named = |cosines: &[f64]| cosines.iter().map(|&c| ("x".to_owned(), c)).collect::<Vec<_>>();
        assert!(OTHER_PIXELS.check(&named(&[0.99995, 0.9998, 0.99999])).is_ok());
        assert!(OTHER_PIXELS.check(&named(&[0.99995, 0.9990, 0.99999])).is_err());
        assert!(OTHER_PIXELS.check(&named(&[0.9998, 0.9998, 0.99999])).is_err());
        assert!(OTHER_PIXELS.check(&named(&[f64::NAN, 1.0, 1.0])).is_err());
        assert!(OTHER_PIXELS.check(&[]).is_err());
    }

    #[test]
    fn pixel_errors_count_samples() {
        let error = pixel_error(&[0, 10, 20, 30], &[0, 11, 17, 30]);
        assert_eq!(error, PixelError { max: 3, mean: 1.0, above_one: 0.25 });
    }

    #[test]
    fn recall_counts_nearest_neighbours_of_the_same_label() {
        let vectors = [vec![1.0, 0.0], vec![0.9, 0.1], vec![0.0, 1.0], vec![0.2, 0.8]];
        let labels = |names: [&str; 4]| names.map(str::to_owned);
        assert_eq!(recall_at_1(&vectors, &labels(["a", "a", "b", "b"])), 1.0);
        assert_eq!(recall_at_1(&vectors, &labels(["a", "a", "b", "c"])), 0.5);
    }
}
