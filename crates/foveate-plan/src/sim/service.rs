//! Service times as distributions, and the random numbers that draw from them.

use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::error::not_negative;

/// A distribution of non-negative values, mostly seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Always the same value.
    Constant(f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// Measured values, all equally likely.
    Samples(Vec<f64>),
    /// Values at equally spaced quantiles, from the least to the greatest, with linear interpolation between them.
    Quantiles(Vec<f64>),
    /// The sum of parts that are slow and fast together, as decode and resize are on large and small images.
    Sum(Vec<Service>),
}

impl Service {
    /// Samples in ascending order, scaled so that their mean is `mean`; a constant if there are none or all are 0.
    pub fn of_samples(samples: &[f64], mean: f64) -> Self {
        let sum: f64 = samples.iter().sum();
        if sum <= 0.0 {
            return Self::Constant(mean);
        }
        let factor = mean * samples.len() as f64 / sum;
        let mut scaled: Vec<f64> = samples.iter().map(|sample| sample * factor).collect();
        scaled.sort_by(f64::total_cmp);
        Self::Samples(scaled)
    }

    /// The value at quantile `u`, in [0, 1). A uniform `u` draws from the distribution.
    pub fn at(&self, u: f64) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Exponential(mean) => -mean * (1.0 - u).ln(),
            Self::Samples(samples) => samples[((u * samples.len() as f64) as usize).min(samples.len() - 1)],
            Self::Quantiles(values) => {
                let place = u * (values.len() - 1) as f64;
                let below = (place as usize).min(values.len() - 1);
                let above = (below + 1).min(values.len() - 1);
                values[below] + (values[above] - values[below]) * (place - below as f64)
            }
            Self::Sum(parts) => parts.iter().map(|part| part.at(u)).sum(),
        }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Constant(mean) | Self::Exponential(mean) => *mean,
            Self::Samples(samples) => samples.iter().sum::<f64>() / samples.len() as f64,
            Self::Quantiles(values) => match values.len() {
                1 => values[0],
                n => values.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).sum::<f64>() / (n - 1) as f64,
            },
            Self::Sum(parts) => parts.iter().map(Self::mean).sum(),
        }
    }

    /// The least value that can be drawn.
    pub fn least(&self) -> f64 {
        self.at(0.0).min(match self {
            Self::Samples(values) | Self::Quantiles(values) => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Sum(parts) => parts.iter().map(Self::least).sum(),
            Self::Constant(_) | Self::Exponential(_) => f64::INFINITY,
        })
    }

    /// # Errors
    /// [`PlanError`] for a value that is negative or not finite, and for an empty list of values.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), PlanError> {
        let all = |values: &[f64]| -> Result<(), PlanError> {
            if values.is_empty() {
                return Err(PlanError::Impossible(format!("{what} has no values to draw from")));
            }
            values.iter().try_for_each(|&value| not_negative(what, value).map(drop))
        };
        match self {
            Self::Constant(value) | Self::Exponential(value) => all(&[*value]),
            Self::Samples(values) | Self::Quantiles(values) => all(values),
            Self::Sum(parts) => parts.iter().try_for_each(|part| part.check(what)),
        }
    }
}

/// Uniform random numbers that depend only on a seed, a stream and an index, not on the order of calls. An image takes
/// as long with two workers as with one, so configurations are compared on the same work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uniform(u64);

impl Uniform {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(mix(seed).wrapping_add(stream)))
    }

    /// The number for `index`, in [0, 1).
    pub(crate) fn at(self, index: u64) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        (mix(self.0.wrapping_add(index)) >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014) after its increment.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_is_drawn() {
        for service in [
            Service::Constant(2.0),
            Service::Exponential(2.0),
            Service::Samples(vec![1.0, 5.0, 0.0]),
            Service::Quantiles(vec![0.0, 1.0, 7.0]),
            Service::Sum(vec![Service::Constant(1.0), Service::Exponential(3.0)]),
            Service::of_samples(&[3.0, 1.0], 20.0),
        ] {
            let uniform = Uniform::new(7, 1);
            let drawn = (0..200_000).map(|i| service.at(uniform.at(i))).sum::<f64>() / 200_000.0;
            assert!((drawn / service.mean() - 1.0).abs() < 0.01, "{service:?}: {drawn}");
        }
        assert_eq!(Service::of_samples(&[3.0, 1.0], 20.0), Service::Samples(vec![10.0, 30.0]));
        assert_eq!(Service::of_samples(&[], 20.0), Service::Constant(20.0));
    }

    #[test]
    fn streams_and_seeds_differ() {
        let first = |seed, stream| (0..4).map(|i| Uniform::new(seed, stream).at(i)).collect::<Vec<_>>();
        assert_eq!(first(1, 1), first(1, 1));
        assert_ne!(first(1, 1), first(1, 2));
        assert_ne!(first(1, 1), first(2, 1));
    }

    #[test]
    fn nonsense_is_refused() {
        let bad = [Service::Samples(vec![]), Service::Constant(f64::NAN), Service::Quantiles(vec![1.0, -1.0])];
        assert!(bad.iter().all(|service| service.check("x").is_err()));
    }
}
