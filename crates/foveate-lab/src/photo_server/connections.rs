use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The connections under way: a bounded number, all of which can be ended.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    state: Mutex<State>,
    ended: Condvar,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, TcpStream>,
    begun: u64,
    stopping: bool,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), state: Mutex::default(), ended: Condvar::new(), stopped: Condvar::new() }
    }

    /// Waits until there may be another one; false: there may be none any more.
    pub(super) fn wait_for_room(&self) -> bool {
        let is_full = |state: &mut State| state.open.len() >= self.most && !state.stopping;
        let state = self.ended.wait_while(self.state(), is_full);
        !state.unwrap_or_else(PoisonError::into_inner).stopping
    }

    /// A number by which to [`end`](Self::end) it. `None`: there may be none any more, or the system has no room for it.
    pub(super) fn begin(&self, stream: &TcpStream) -> Option<u64> {
        let again = stream.try_clone().ok()?;
        let mut state = self.state();
        if state.stopping {
            return None;
        }
        state.begun += 1;
        let number = state.begun;
        state.open.insert(number, again);
        Some(number)
    }

    pub(super) fn end(&self, number: u64) {
        self.state().open.remove(&number);
        self.ended.notify_one();
    }

    /// False when all are being ended: there is nobody left to wait for.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let slept = self.stopped.wait_timeout_while(self.state(), time, |state| !state.stopping);
        !slept.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    /// Ends them all.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        for stream in state.open.values() {
            // One that has ended already cannot be ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.stopped.notify_all();
        self.ended.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
