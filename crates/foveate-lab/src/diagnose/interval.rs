//! Medians of a few noisy samples, with intervals.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::stats::{median, quantile, variance};

/// Number of bootstrap resamples.
const RESAMPLES: usize = 2000;

/// Share of true values outside the intervals.
const MISSED: f64 = 0.05;

/// Number of rounds below which resampling gives too narrow intervals.
const FOR_RESAMPLING: usize = 5;

/// A value and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapInterval {
    /// The statistic of the samples themselves.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl BootstrapInterval {
    /// Returns `statistic` of rounds `0..rounds`, with the interval of a percentile bootstrap over whole rounds (Efron
    /// 1979). Samples of one round stay together, so a disturbance that slows a whole round cancels out of ratios.
    ///
    /// A procedure that looks at an interval up to `looks` times, and stops at the first finding, has the same chance
    /// of error at each look. So each look has its share of the 5 % (Bonferroni), and more looks widen the interval.
    ///
    /// For the median of five or seven samples, the interval reaches from the minimum to the maximum. It contains the
    /// true median in 94 or 98 of 100 cases, for any `looks`. Fewer rounds have Student's interval instead, of the
    /// logarithms of each round's statistic, which must be positive. A single round has no limits.
    pub(super) fn over_rounds(rounds: usize, looks: usize, seed: u64, statistic: impl Fn(&[usize]) -> f64) -> Self {
        let value = statistic(&(0..rounds).collect::<Vec<_>>());
        let tail = MISSED / 2.0 / looks as f64;
        if rounds < FOR_RESAMPLING {
            let logs: Vec<f64> = (0..rounds).map(|round| statistic(&[round]).ln()).collect();
            let times = half_width(&logs, tail).exp();
            return Self { value, low: value / times, high: value * times };
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let mut drawn = vec![0; rounds];
        let mut values = Vec::new();
        for _ in 0..RESAMPLES {
            drawn.iter_mut().for_each(|round| *round = random.usize(..rounds));
            values.push(statistic(&drawn));
        }
        let [low, high] = [tail, 1.0 - tail].map(|part| quantile(&values, part).unwrap_or(value));
        Self { value, low, high }
    }
}

/// Returns half the width of Student's interval of the mean that misses `tail` at each end. More than two degrees of
/// freedom have the quantile of two, which is larger.
fn half_width(values: &[f64], tail: f64) -> f64 {
    let Some(variance) = variance(values) else { return f64::INFINITY };
    let quantile = match values.len() {
        2 => 1.0 / (PI * tail).tan(),
        _ => (1.0 - 2.0 * tail) / (2.0 * tail * (1.0 - tail)).sqrt(),
    };
    quantile * (variance / values.len() as f64).sqrt()
}

/// Returns the median of the `values` of these `rounds`; 0 if there are none.
pub(super) fn median_of(values: &[f64], rounds: &[usize]) -> f64 {
    let drawn: Vec<f64> = rounds.iter().map(|&round| values[round]).collect();
    median(&drawn).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_samples_give_their_range() {
        let values = [10.0, 12.0, 11.0, 9.0, 14.0];
        let interval = BootstrapInterval::over_rounds(5, 1, 1, |rounds| median_of(&values, rounds));
        assert_eq!(interval, BootstrapInterval { value: 11.0, low: 9.0, high: 14.0 });
    }

    #[test]
    fn fewer_samples_have_students_interval() {
        let half = |values: &[f64]| half_width(values, 0.025);
        // A standard error of 1, times the quantiles of Student's table.
        assert!((half(&[4.0, 6.0]) - 12.706).abs() < 1e-3 && (half(&[4.0, 4.0, 7.0]) - 4.303).abs() < 1e-3);
        let one = BootstrapInterval::over_rounds(1, 1, 1, |_| 3.0);
        assert_eq!(one, BootstrapInterval { value: 3.0, low: 0.0, high: f64::INFINITY });
    }

    #[test]
    fn more_looks_widen_the_interval() {
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        let width = |looks| {
            let interval = BootstrapInterval::over_rounds(values.len(), looks, 1, |rounds| median_of(&values, rounds));
            interval.high - interval.low
        };
        assert!(width(1) < width(3), "{} and {}", width(1), width(3));
    }

    #[test]
    fn what_slows_a_whole_round_cancels_out_of_a_ratio() {
        // Rounds differ threefold, but the ratio within a round is constant.
        let fast = [30.0, 10.0, 20.0, 15.0, 25.0];
        let slow = [15.0, 5.0, 10.0, 7.5, 12.5];
        let ratio =
            BootstrapInterval::over_rounds(5, 1, 1, |rounds| median_of(&slow, rounds) / median_of(&fast, rounds));
        assert_eq!(ratio, BootstrapInterval { value: 0.5, low: 0.5, high: 0.5 });
    }
}
