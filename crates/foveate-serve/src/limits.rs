//! Limits that several modules keep.

/// Most inputs that are read before they are counted.
pub(crate) const MAX_INPUTS: usize = 4096;
/// Most threads that wait, for example for a broker that does not answer.
pub(crate) const MAX_BLOCKING: usize = 64;
/// Requests that are sent to the queue at once, each by such a thread: bodies and probes need some of them too.
pub(crate) const MAX_SENDS: usize = MAX_BLOCKING / 2;
