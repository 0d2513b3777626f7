use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::LabError;
use crate::bench::rounds::SplitMix;

/// How long answers take: log-normally distributed, as latencies on the web roughly are: many like the median, and a long
/// tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Seconds.
    median: f64,
    /// Standard deviation of the logarithm.
    sigma: f64,
}

/// The 99 % quantile of the standard normal distribution.
const Z_99: f64 = 2.326_348;

impl Latency {
    /// None.
    pub const NONE: Self = Self { median: 0.0, sigma: 0.0 };

    /// Half of all answers take `median` or less, 99 % take `p99` or less.
    ///
    /// # Errors
    /// [`LabError::Setting`] when `p99` is below `median`, or the median of a distribution with a tail is zero.
    pub fn new(median: Duration, p99: Duration) -> Result<Self, LabError> {
        let (median, p99) = (median.as_secs_f64(), p99.as_secs_f64());
        if p99 < median || (median == 0.0 && p99 > 0.0) {
            let what = format!("no latency has a median of {:.0} ms and a p99 of {:.0} ms", 1e3 * median, 1e3 * p99);
            return Err(LabError::Setting(what));
        }
        let sigma = if median == 0.0 { 0.0 } else { (p99 / median).ln() / Z_99 };
        Ok(Self { median, sigma })
    }

    /// That of answer number `visit` to `what`: always the same with the same seed, whoever asks in whatever order.
    pub(super) fn draw(self, seed: u64, what: &str, visit: u64) -> Duration {
        // Its keys are constants, unlike those of a map's hasher.
        let mut hasher = DefaultHasher::new();
        (what, visit).hash(&mut hasher);
        let mut random = SplitMix(seed ^ hasher.finish());
        Duration::from_secs_f64(self.median * (self.sigma * normal(&mut random)).exp())
    }
}

/// A standard normal value, after Box and Muller.
fn normal(random: &mut SplitMix) -> f64 {
    // In 0 < u <= 1: the logarithm of zero is no number.
    let mut uniform = || ((random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::quantile;

    #[test]
    fn draws_have_the_median_and_the_tail_that_were_asked_for() {
        let latency = Latency::new(Duration::from_millis(50), Duration::from_millis(200)).unwrap();
        let draw = |seed, photo: u64| latency.draw(seed, &format!("/photo/{photo}"), 0).as_secs_f64() * 1e3;
        let ms: Vec<f64> = (0..20_000).map(|photo| draw(7, photo)).collect();
        let at = |q| quantile(&ms, q).unwrap();
        assert!((at(0.5) - 50.0).abs() < 2.0 && (at(0.99) - 200.0).abs() < 15.0, "{} {}", at(0.5), at(0.99));
        // Symmetric about the median in its logarithm.
        assert!((at(0.01) - 12.5).abs() < 1.0, "{}", at(0.01));
        assert_eq!(draw(7, 3), ms[3]);
        assert_ne!(draw(8, 3), ms[3]);
        assert_ne!(latency.draw(7, "/photo/3", 1).as_secs_f64() * 1e3, ms[3]);
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let of = |median, p99| Latency::new(Duration::from_millis(median), Duration::from_millis(p99));
        assert!(of(50, 40).unwrap_err().to_string().contains("no latency has a median of 50 ms"));
        assert!(of(0, 1).is_err());
        assert_eq!(of(0, 0).unwrap(), Latency::NONE);
        assert_eq!(of(20, 20).unwrap().draw(1, "x", 0), Duration::from_millis(20));
    }
}
