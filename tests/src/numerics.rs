//! Tolerances: named tiers, and the measures that they use.

use crate::trial::{Outcome, ensure};

/// Tolerance between vectors and their goldens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// The tier's name in messages.
    pub name: &'static str,
    /// Smallest cosine of a vector to its golden.
    pub min_cosine: f64,
    /// Largest relative error: max |a − b| over the golden's largest component.
    pub max_error: f64,
}

/// Engines that compute in f32, from the same pixels. The f32 vectors of `transformers` itself differ from its f64
/// vectors by 1e-6 (relative). So this tier has room for another order of summation and for nothing else. It rejects
/// the tanh form of GELU, a LayerNorm epsilon of 1e-5, and the other interpolation of positions.
pub const STRICT: Tier = Tier { name: "strict", min_cosine: 1.0 - 1e-6, max_error: 1e-4 };

/// Engines that compute in f16 or bf16, from the same pixels.
pub const HALF: Tier = Tier { name: "half", min_cosine: 0.999, max_error: 0.1 };

/// Engines whose products alone are in bf16, from the same pixels: sums, normalization, GELU and residuals are f32.
pub const BF16: Tier = Tier { name: "bf16", min_cosine: 0.9999, max_error: 0.05 };

/// Engines whose products alone are in 8-bit integers, with a scale for every token and every output.
pub const I8: Tier = Tier { name: "i8", min_cosine: 0.999, max_error: 0.1 };

impl Tier {
    /// Compares one vector with its golden.
    ///
    /// # Errors
    /// [`Outcome::Failed`] with the figures.
    pub fn check(&self, what: &str, vector: &[f32], golden: &[f64]) -> Result<(), Outcome> {
        ensure(vector.len() == golden.len(), || format!("{what}: {} components, not {}", vector.len(), golden.len()))?;
        let (cosine, error) = (cosine(vector, golden), relative_error(vector, golden));
        // NaN must fail this comparison.
        ensure(cosine >= self.min_cosine && error <= self.max_error, || {
            format!(
                "{what}: 1 - cosine {:.2e}, relative error {error:.2e}: outside of the tier '{}'",
                1.0 - cosine,
                self.name
            )
        })
    }
}

/// Tolerance of vectors made from image files, over a set of photos.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileTier {
    /// The tier's name in messages.
    pub name: &'static str,
    /// Smallest cosine of a vector to its golden.
    pub min_cosine: f64,
    /// Smallest median of the cosines.
    pub median_cosine: f64,
}

/// From the pixels that Pillow decodes: by a decoder that returns the same pixels, or from a lossless copy of them.
/// Only the resampling differs, by a level here and there. 1 - cosine is at most 1e-7 for the models with random
/// weights and 5e-5 for the ViT-Tiny.
pub const SAME_PIXELS: FileTier = FileTier { name: "same-pixels", min_cosine: 0.9999, median_cosine: 0.99999 };

/// Models with random weights, by a decoder whose JPEG pixels differ from libjpeg-turbo's. Worst with zune-jpeg: 1 -
/// cosine = 1.9e-4, on a photo of 20 x 30 pixels that is enlarged thirteen times; no other photo exceeds 6e-5.
pub const OTHER_PIXELS: FileTier = FileTier { name: "other-pixels", min_cosine: 0.9997, median_cosine: 0.9999 };

/// The ViT-Tiny, by such a decoder. A photo's mean difference of 0.1 to 0.3 levels becomes a 1 - cosine of about 1e-4,
/// because the model is small and trained. Worst: 2.7e-2, on a strip 50 pixels wide that is enlarged five times.
pub const OTHER_PIXELS_TRAINED: FileTier =
    FileTier { name: "other-pixels-trained", min_cosine: 0.95, median_cosine: 0.9998 };

/// By a resizer with the recipe's kernel in another arithmetic. Worst with the image crate: 2.3e-3, median 1.2e-4, both
/// of the ViT-Tiny.
pub const RESAMPLED_ALIKE: FileTier = FileTier { name: "resampled-alike", min_cosine: 0.995, median_cosine: 0.9997 };

/// By a resizer that replaces the recipe's kernel: another embedding of the same image, close to the recipe's own.
/// Worst with OpenCV for Pillow's antialiased bicubic: 2.1e-2, median 4.3e-3, both of the ViT-Tiny.
pub const RESAMPLED_OTHERWISE: FileTier =
    FileTier { name: "resampled-otherwise", min_cosine: 0.95, median_cosine: 0.994 };

impl FileTier {
    /// Checks the cosines of photos, by name.
    ///
    /// # Errors
    /// [`Outcome::Failed`] with the figures.
    pub fn check(&self, cosines: &[(String, f64)]) -> Result<(), Outcome> {
        let mut sorted: Vec<&(String, f64)> = cosines.iter().collect();
        // NaN sorts last, so it is first replaced by the worst value.
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

/// The difference of two images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelError {
    /// Largest difference of samples.
    pub max: u8,
    /// Mean absolute difference.
    pub mean: f64,
    /// Share of samples that differ by more than one level.
    pub above_one: f64,
}

/// Compares the samples of two images of the same size.
pub fn pixel_error(a: &[u8], b: &[u8]) -> PixelError {
    let differences = || a.iter().zip(b).map(|(&a, &b)| a.abs_diff(b));
    let samples = a.len().max(1) as f64;
    PixelError {
        max: differences().max().unwrap_or(0),
        mean: differences().map(f64::from).sum::<f64>() / samples,
        above_one: differences().filter(|&d| d > 1).count() as f64 / samples,
    }
}

/// Tolerance between a resizer's samples and a golden crop, for every photo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelTier {
    /// The tier's name in messages.
    pub name: &'static str,
    /// Largest difference of samples.
    pub max: u8,
    /// Largest mean difference.
    pub mean: f64,
    /// Largest share of samples that differ by more than one level.
    pub above_one: f64,
}

/// OpenCV's filters in OpenCV's integer arithmetic: every sample is equal.
pub const EQUAL: PixelTier = PixelTier { name: "equal", max: 0, mean: 0.0, above_one: 0.0 };

/// Pillow's filters in Pillow's order of passes with u8 between them, but with coefficients of 16 bits instead of 22.
/// The resizer fir differs by at most 2 levels, with a mean of 0.003.
pub const PILLOW: PixelTier = PixelTier { name: "pillow", max: 2, mean: 0.01, above_one: 0.001 };

/// Pillow's kernels in another arithmetic: without Pillow's rounding and clamping between the passes. Worst with the
/// image crate over 137 photos: 11 levels, a mean of 0.21 and 0.6 % of the samples.
pub const SAME_KERNEL: PixelTier = PixelTier { name: "same-kernel", max: 14, mean: 0.3, above_one: 0.01 };

/// The closest kernel that a library has. Where Pillow shrinks by an antialiased bicubic, OpenCV has area; where it
/// enlarges by a cubic with a = -0.5, OpenCV has one with -0.75. Worst with OpenCV on the committed photos: 15 levels,
/// a mean of 1.68 and 40 % of the samples. All of these are on the photo of 20 x 30 pixels that is enlarged thirteen
/// times.
pub const OTHER_KERNEL: PixelTier = PixelTier { name: "other-kernel", max: 20, mean: 2.0, above_one: 0.45 };

impl PixelTier {
    /// Checks one photo.
    ///
    /// # Errors
    /// [`Outcome::Failed`] with the figures.
    pub fn check(&self, photo: &str, found: PixelError) -> Result<(), Outcome> {
        let is_within = found.max <= self.max && found.mean <= self.mean && found.above_one <= self.above_one;
        ensure(is_within, || format!("{photo}: {found:?}: outside of the tier '{}'", self.name))
    }
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
        // The right direction with the wrong length has a perfect cosine.
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
        assert!(OTHER_KERNEL.check("x", error).is_ok() && PILLOW.check("x", error).is_err());
    }
}
