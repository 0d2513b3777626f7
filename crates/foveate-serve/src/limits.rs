//! Limits that several modules keep.

/// Most inputs that a request may list, whatever the API's own limit.
pub(crate) const MAX_INPUTS: usize = 4096;
/// Most blocking threads, which may wait for example for a broker.
pub(crate) const MAX_BLOCKING: usize = 64;
/// Most requests that are queued at once, each by a blocking thread: bodies and probes need some of these too.
pub(crate) const MAX_SENDS: usize = MAX_BLOCKING / 2;
/// Most searches at once: each takes all cores, and memory for what it finds.
pub(crate) const MAX_SEARCHES: usize = 4;
