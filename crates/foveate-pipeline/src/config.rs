use std::sync::Arc;
use std::time::Duration;

use crate::lane::Normalize;
use foveate_profile::Trace;

use crate::Recall;

/// Settings of a run. Those that affect the output's bytes also belong in the manifest's fingerprint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Selects vectors of unit length, or those of the model.
    pub normalize: Normalize,
    /// Images per batch.
    pub batch: usize,
    /// Threads that decode and resize. 0 runs every stage in turn on the calling thread.
    pub workers: usize,
    /// Threads that read.
    pub readers: usize,
    /// Most encoded bytes read ahead of the decoders.
    pub read_ahead_bytes: u64,
    /// Full batches that may wait for the encoder, at least 1.
    pub prefetch: usize,
    /// The record of every span and every queue change, for a timeline.
    pub trace: Option<Trace>,
    /// The limit on failed items. All of the output's count, those of earlier sessions included.
    pub failures: FailurePolicy,
    /// A run stops when more items than this in a row cannot be read, because their disk or store is probably gone. It
    /// also stops if the last items cannot be read, and neither can an earlier one. `None`: never.
    pub max_unreadable: Option<u64>,
    /// The time between commits, which make finished rows durable.
    pub commit_every: Duration,
    /// True if the inputs of an output that is already complete are compared by hash, not by size and time.
    pub by_content: bool,
    /// Most memory for the vectors of recent contents, which items of the same content share; 0 computes every item.
    /// Contents are shared only if the encoder's rows are [`batch_invariant`](foveate_encode::EncoderSpec).
    pub recent_bytes: u64,
    /// Vectors that the output has of other inputs, under the same condition.
    pub earlier: Option<Arc<dyn Recall>>,
    /// Vectors of other runs with the same settings, under the same condition.
    pub cache: Option<Arc<dyn Recall>>,
}

impl Default for Config {
    /// Batches of 32, one decode worker, two readers, 64 MiB of read-ahead, one batch ahead of the encoder, a commit
    /// every two seconds, 64 MB of recent contents.
    fn default() -> Self {
        Self {
            normalize: Normalize::Off,
            batch: 32,
            workers: 1,
            readers: 2,
            read_ahead_bytes: Self::READ_AHEAD_BYTES,
            prefetch: 1,
            trace: None,
            failures: FailurePolicy::Unlimited,
            max_unreadable: Some(Self::MAX_UNREADABLE),
            commit_every: Duration::from_secs(2),
            by_content: false,
            recent_bytes: Self::RECENT_BYTES,
            earlier: None,
            cache: None,
        }
    }
}

impl Config {
    /// The default read-ahead limit in bytes.
    pub const READ_AHEAD_BYTES: u64 = 64 << 20;

    /// The default memory for recent contents.
    pub const RECENT_BYTES: u64 = 64_000_000;

    /// The default limit on unreadable items in a row.
    pub const MAX_UNREADABLE: u64 = 100;

    /// The number of items that may wait between reading and decoding. Bytes are bounded separately. With fewer items,
    /// threads sleep and wake for every single one.
    pub fn read_ahead_items(&self) -> usize {
        (2 * self.workers + self.readers).max(16)
    }

    /// The number of batches that exist at once: those `at_encoders`, those queued for one, one being filled, and as
    /// many more as items in flight can touch.
    pub fn batches_in_flight(&self, at_encoders: usize) -> usize {
        let items = self.read_ahead_items() + self.workers + self.readers;
        1 + at_encoders.max(1) + self.prefetch.max(1) + items.div_ceil(self.batch)
    }
}

/// The limit on failed items; one more ends the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum FailurePolicy {
    /// None: failures are recorded and the run goes on.
    #[default]
    Unlimited,
    /// More than this many. 0 stops at the first failure.
    Count(u64),
    /// More than this percentage, checked from [`FailurePolicy::SAMPLE`] items on, and at the end.
    Percent(f64),
}

impl FailurePolicy {
    /// The number of items before which a percentage is not checked.
    pub const SAMPLE: u64 = 200;

    /// Returns true if `failed` of `seen` items are too many.
    pub fn is_exceeded(self, failed: u64, seen: u64, at_end: bool) -> bool {
        match self {
            Self::Unlimited => false,
            Self::Count(most) => failed > most,
            Self::Percent(most) => (at_end || seen >= Self::SAMPLE) && failed as f64 * 100.0 > most * seen as f64,
        }
    }
}

impl std::fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Count(most) => write!(f, "{most}"),
            Self::Percent(most) => write!(f, "{most}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_wait_for_a_sample_and_counts_do_not() {
        assert!(FailurePolicy::Count(0).is_exceeded(1, 1, false));
        assert!(!FailurePolicy::Count(1).is_exceeded(1, 1, false));
        assert!(!FailurePolicy::Percent(10.0).is_exceeded(50, 199, false));
        assert!(FailurePolicy::Percent(10.0).is_exceeded(21, 200, false));
        assert!(!FailurePolicy::Percent(10.0).is_exceeded(20, 200, false));
        assert!(FailurePolicy::Percent(10.0).is_exceeded(1, 5, true));
        assert!(!FailurePolicy::Unlimited.is_exceeded(5, 5, true));
    }
}
