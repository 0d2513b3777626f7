//! Limits that several modules keep.

/// Most inputs that a request may list, whatever the API's own limit.
pub(crate) const MAX_INPUTS: usize = 4096;
/// Most searches at once: each takes all cores.
pub(crate) const MAX_SEARCHES: usize = 4;
