//! Keeps apart captures and the calls that CUDA forbids while one is in progress.
//!
//! While any stream of a context captures, a wait for the whole context fails in every thread, and spoils the capture.
//! NVIDIA's libraries may wait so whenever their memory grows, and the driver whenever it loads code, which it does
//! lazily. Captures are few and take milliseconds, so one lock for all devices suffices.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CAPTURES: RwLock<()> = RwLock::new(());

thread_local! {
    static IS_CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// A capture by this thread. No other thread captures, or holds [`no_capture`], as long as it lives.
pub(crate) struct Capturing(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>);

impl Capturing {
    /// Waits until it is this thread's turn.
    pub(crate) fn begin() -> Self {
        let turn = CAPTURES.write().unwrap_or_else(PoisonError::into_inner);
        IS_CAPTURING.set(true);
        Self(turn)
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        IS_CAPTURING.set(false);
    }
}

/// Waits until no other thread captures, and keeps captures out as long as the guard lives. Guards must not be nested.
/// `None` in a thread that captures itself, whose call the driver refuses.
pub(crate) fn no_capture() -> Option<RwLockReadGuard<'static, ()>> {
    (!IS_CAPTURING.get()).then(|| CAPTURES.read().unwrap_or_else(PoisonError::into_inner))
}

/// Code that the driver loads with its first use.
#[derive(Debug, Default)]
pub(crate) struct Lazy {
    is_loaded: AtomicBool,
}

impl Lazy {
    /// Calls `work`, which uses the code; for the first time while no other thread captures.
    pub(crate) fn using<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let _no_capture = if self.is_loaded.load(Ordering::Acquire) { None } else { no_capture() };
        work().inspect(|_| self.is_loaded.store(true, Ordering::Release))
    }
}
