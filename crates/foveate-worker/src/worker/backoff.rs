use std::time::Duration;

/// Exponential backoff: the delay before a retry doubles each time, with jitter, so that messages that failed together
/// do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the first retry.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Backoff {
    /// From 1 second to 5 minutes.
    fn default() -> Self {
        Self { base: Duration::from_secs(1), max: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The delay after `tries` failures: between half of the interval and all of it. It is at least what the server
    /// asked for (`asked`), but never longer than [`Backoff::max`].
    pub fn after(&self, tries: u32, asked: Option<Duration>) -> Duration {
        let whole = self.base.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(self.max);
        let jittered = whole / 2 + (whole / 2).mul_f64(fastrand::f64());
        jittered.max(asked.unwrap_or_default().min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_the_longest() {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };
        for (tries, whole) in [(1, 1.0), (2, 2.0), (5, 16.0), (7, 60.0), (1_000, 60.0)] {
            let drawn: Vec<f64> = (0..200).map(|_| backoff.after(tries, None).as_secs_f64()).collect();
            assert!(drawn.iter().all(|&drawn| (whole / 2.0..=whole).contains(&drawn)), "{tries}: {drawn:?}");
            assert!(drawn.iter().any(|&drawn| drawn != drawn.round()), "there is jitter");
        }
        assert_eq!(backoff.after(1, Some(Duration::from_secs(30))), Duration::from_secs(30));
        assert_eq!(backoff.after(1, Some(Duration::from_secs(9_999))), Duration::from_secs(60));
    }
}
