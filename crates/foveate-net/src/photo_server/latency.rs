use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The latency of answers. It is log-normally distributed, roughly like latencies on the web: most are near the median,
/// with a long tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Median in seconds.
    median: f64,
    /// Standard deviation of the logarithm.
    sigma: f64,
}

/// The 99 % quantile of the standard normal distribution.
const Z_99: f64 = 2.326_348;

impl Latency {
    /// No latency.
    pub const NONE: Self = Self { median: 0.0, sigma: 0.0 };

    /// Returns the distribution in which half of all answers take `median` or less, and 99 % take `p99` or less.
    ///
    /// # Errors
    /// Fails if `p99` is below `median`, or if the median of a distribution with a tail is zero.
    pub fn new(median: Duration, p99: Duration) -> Result<Self, LatencyError> {
        if p99 < median || (median.is_zero() && !p99.is_zero()) {
            return Err(LatencyError { median, p99 });
        }
        let median = median.as_secs_f64();
        let p99 = p99.as_secs_f64();
        let sigma = if median == 0.0 { 0.0 } else { (p99 / median).ln() / Z_99 };
        Ok(Self { median, sigma })
    }

    /// Draws the latency of answer number `visit` to `what`. The same seed always gives the same one, whatever the
    /// order of requests.
    pub(crate) fn draw(self, seed: u64, what: &str, visit: u64) -> Duration {
        let [radius, angle] = [0_u8, 1].map(|part| {
            // Its keys are constants, unlike those of a map's hasher.
            let mut hasher = DefaultHasher::new();
            (seed, what, visit, part).hash(&mut hasher);
            // In 0 < u <= 1, because the logarithm of zero is undefined.
            ((hasher.finish() >> 11) + 1) as f64 / (1_u64 << 53) as f64
        });
        // A standard normal value, after Box and Muller.
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        Duration::from_secs_f64(self.median * (self.sigma * normal).exp())
    }
}

/// No latency has this median and this 99 % quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no latency has a median of {} ms and a p99 of {} ms", .median.as_millis(), .p99.as_millis())]
pub struct LatencyError {
    median: Duration,
    p99: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_median_and_the_tail_that_were_asked_for() {
        let latency = Latency::new(Duration::from_millis(50), Duration::from_millis(200)).unwrap();
        let draw = |seed, photo: u64| latency.draw(seed, &format!("/photo/{photo}"), 0).as_secs_f64() * 1e3;
        let mut ms: Vec<f64> = (0..20_000).map(|photo| draw(7, photo)).collect();
        let third = ms[3];
        ms.sort_by(f64::total_cmp);
        let at = |q: f64| ms[(q * ms.len() as f64) as usize];
        assert!((at(0.5) - 50.0).abs() < 2.0 && (at(0.99) - 200.0).abs() < 15.0, "{} {}", at(0.5), at(0.99));
        // Symmetric about the median in its logarithm.
        assert!((at(0.01) - 12.5).abs() < 1.0, "{}", at(0.01));
        assert_eq!(draw(7, 3), third);
        assert_ne!(draw(8, 3), third);
        assert_ne!(latency.draw(7, "/photo/3", 1).as_secs_f64() * 1e3, third);
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
