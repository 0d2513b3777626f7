//! Fits a line to measured points.

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, positive};
use crate::{LinearStep, PlanError, Step, stats};

/// A line through measured steps, and its errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepFit {
    /// The line.
    pub step: LinearStep,
    /// Median of |measured − line| ÷ measured.
    pub median_error: f64,
    /// Largest of |measured − line| ÷ measured.
    pub worst_error: f64,
}

impl StepFit {
    /// The line as a step.
    pub fn step(&self) -> Step {
        Step::Linear(self.step)
    }
}

/// Huber's constant: 95 % as efficient as plain least squares when the noise is normal.
const HUBER: f64 = 1.345;
/// The median of |x| of a standard normal variable is 1 ÷ this.
const MAD_TO_SIGMA: f64 = 1.4826;
const ROUNDS: usize = 50;

/// Fits `seconds = overhead + batch × per_item` to `(batch, seconds)` points; a batch may have several points.
///
/// Least squares of the *relative* residuals (weights 1 ÷ seconds²), because a timing's noise grows with the time and
/// small batches would otherwise not count. Robust: it begins with the Theil–Sen line (median of all slopes) and
/// reweights as Huber does, so that a stalled measurement among good ones hardly moves it. Neither coefficient is
/// negative: if the best line has a negative one, the result is the best line with that one at 0.
///
/// # Errors
/// [`PlanError`] with fewer than two different batches, a batch of 0, or seconds that are not positive and finite.
pub fn fit_step(points: &[(u32, f64)]) -> Result<StepFit, PlanError> {
    for &(batch, seconds) in points {
        at_least_one("a measured batch", batch)?;
        positive("the seconds of a measured batch", seconds)?;
    }
    let points: Vec<(f64, f64)> = points.iter().map(|&(batch, seconds)| (f64::from(batch), seconds)).collect();
    if points.iter().all(|point| point.0 == points[0].0) {
        return Err(PlanError::Impossible("a line needs steps of at least two different batches".to_owned()));
    }
    let mut line = theil_sen(&points);
    for _ in 0..ROUNDS {
        let errors = relative_errors(&points, line);
        let scale = (MAD_TO_SIGMA * median(&errors)).max(1e-12);
        let weight = |error: f64, seconds: f64| (HUBER * scale / error.max(HUBER * scale)) / (seconds * seconds);
        let weighted = points.iter().zip(&errors).map(|(&(x, y), &error)| (x, y, weight(error, y)));
        line = weighted_line(&weighted.collect::<Vec<_>>());
    }
    let errors = relative_errors(&points, line);
    let worst_error = errors.iter().copied().fold(0.0, f64::max);
    Ok(StepFit { step: line, median_error: median(&errors), worst_error })
}

fn relative_errors(points: &[(f64, f64)], line: LinearStep) -> Vec<f64> {
    points.iter().map(|&(x, y)| ((y - line.overhead - line.per_item * x) / y).abs()).collect()
}

/// The median of at least one value.
fn median(values: &[f64]) -> f64 {
    stats::median(values).unwrap_or(f64::NAN)
}

fn theil_sen(points: &[(f64, f64)]) -> LinearStep {
    let mut slopes = Vec::new();
    for (i, a) in points.iter().enumerate() {
        slopes.extend(points[..i].iter().filter(|b| b.0 != a.0).map(|b| (a.1 - b.1) / (a.0 - b.0)));
    }
    let per_item = median(&slopes);
    let overheads: Vec<f64> = points.iter().map(|&(x, y)| y - per_item * x).collect();
    LinearStep { overhead: median(&overheads), per_item }
}

/// Weighted least squares of `(x, y, weight)` with both coefficients at least zero.
fn weighted_line(points: &[(f64, f64, f64)]) -> LinearStep {
    let sum = |term: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y, w)| w * term(x, y)).sum::<f64>();
    let weight = sum(&|_, _| 1.0);
    let (mean_x, mean_y) = (sum(&|x, _| x) / weight, sum(&|_, y| y) / weight);
    let covariance = sum(&|x, y| (x - mean_x) * (y - mean_y));
    let per_item = covariance / sum(&|x, _| (x - mean_x) * (x - mean_x));
    let overhead = mean_y - per_item * mean_x;
    if per_item < 0.0 {
        LinearStep { overhead: mean_y, per_item: 0.0 }
    } else if overhead < 0.0 {
        LinearStep { overhead: 0.0, per_item: sum(&|x, y| x * y) / sum(&|x, _| x * x) }
    } else {
        LinearStep { overhead, per_item }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: [(u32, f64); 6] =
        [(32, 5.86e-3), (64, 6.70e-3), (128, 8.38e-3), (256, 11.74e-3), (512, 18.47e-3), (1024, 31.93e-3)];

    #[test]
    fn the_published_steps_are_a_line() {
        let fit = fit_step(&PUBLISHED).unwrap();
        assert!((fit.step.overhead - 5.02e-3).abs() < 0.01e-3, "{fit:?}");
        assert!((fit.step.per_item - 26.28e-6).abs() < 0.02e-6, "{fit:?}");
        assert!(fit.worst_error < 1e-3, "{fit:?}");
    }

    #[test]
    fn one_stalled_measurement_hardly_moves_it() {
        let mut points = PUBLISHED.to_vec();
        points.extend(PUBLISHED.map(|(batch, seconds)| (batch, seconds * 1.01)));
        points.push((64, 67e-3));
        let fit = fit_step(&points).unwrap();
        assert!((fit.step.overhead / 5.04e-3 - 1.0).abs() < 0.02, "{fit:?}");
        assert!((fit.step.per_item / 26.4e-6 - 1.0).abs() < 0.02, "{fit:?}");
        assert!(fit.worst_error > 0.8 && fit.median_error < 0.01, "{fit:?}");
    }

    #[test]
    fn coefficients_are_never_negative() {
        let falling = fit_step(&[(1, 2.0), (2, 1.5), (4, 1.0)]).unwrap();
        assert_eq!(falling.step.per_item, 0.0);
        let steep = fit_step(&[(1, 1.0), (2, 4.0), (4, 10.0)]).unwrap();
        assert_eq!(steep.step.overhead, 0.0);
        assert!(steep.step.per_item > 0.0);
    }

    #[test]
    fn too_little_is_refused() {
        for points in [&[][..], &[(8, 1.0)], &[(8, 1.0), (8, 1.1)], &[(0, 1.0), (8, 1.0)], &[(4, 1.0), (8, f64::NAN)]] {
            assert!(fit_step(points).is_err(), "{points:?}");
        }
    }
}
