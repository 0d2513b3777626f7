use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Sub-buckets per power of two: quantiles are accurate within 1/16 = 6.25 %.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Durations counted in logarithmic buckets, from many threads at once, without locks or allocation.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, nanos: u64) {
        self.counts[bucket_of(nanos)].fetch_add(1, Relaxed);
    }

    /// Counts one duration if no other thread does at the same time, which needs no locked instruction.
    pub(crate) fn record_alone(&self, nanos: u64) {
        add_alone(&self.counts[bucket_of(nanos)], 1);
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&self, other: &Self) {
        for (count, other) in self.counts.iter().zip(&other.counts) {
            count.fetch_add(other.load(Relaxed), Relaxed);
        }
    }

    /// Number of counted durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The duration that a share `q` (0..=1) of the counted ones does not exceed; zero without any. Accurate within a
    /// bucket's width, 6.25 %.
    pub fn quantile(&self, q: f64) -> Duration {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let rank = (q.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return Duration::from_nanos(middle_of(bucket));
            }
        }
        Duration::ZERO
    }
}

/// Adds to a number that only the calling thread writes; others may read it. Separate atomic loads and stores cost as
/// little as plain ones, unlike a read-modify-write.
pub(crate) fn add_alone(number: &AtomicU64, more: u64) {
    number.store(number.load(Relaxed).saturating_add(more), Relaxed);
}

/// Values below 16 have a bucket each; above, 16 buckets per power of two.
fn bucket_of(nanos: u64) -> usize {
    if nanos < SUB as u64 {
        return nanos as usize;
    }
    let exponent = 63 - nanos.leading_zeros();
    let sub = (nanos >> (exponent - SUB_BITS)) as usize & (SUB - 1);
    (exponent - SUB_BITS + 1) as usize * SUB + sub
}

fn middle_of(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket / SUB - 1) as u32;
    let low = ((SUB + bucket % SUB) as u64) << shift;
    low + ((1u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_in_order_within_their_width() {
        let mut last = 0;
        for exponent in 0..64u32 {
            for value in [1u64 << exponent, (1u64 << exponent) + (1u64 << exponent) / 3] {
                let bucket = bucket_of(value);
                assert!(bucket < BUCKETS && bucket >= last, "{value}");
                last = bucket;
                let error = middle_of(bucket).abs_diff(value) as f64 / value as f64;
                assert!(error <= 1.0 / 16.0, "{value}: {error}");
            }
        }
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let histogram = Histogram::default();
        (1..=1000u64).for_each(|micros| histogram.record(micros * 1000));
        for (q, micros) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let got = histogram.quantile(q).as_secs_f64() * 1e6;
            assert!((got / micros - 1.0).abs() < 0.07, "p{q}: {got}");
        }
    }

    #[test]
    fn an_empty_histogram_has_zero_quantiles() {
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
