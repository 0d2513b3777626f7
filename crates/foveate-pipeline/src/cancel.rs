use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Asks a run to stop at the next batch, commit, and return. Shared with a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests the cancellation.
    pub fn cancel(&self) {
        self.0.store(true, SeqCst);
    }

    /// Returns true if cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(SeqCst)
    }
}
