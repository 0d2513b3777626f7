//! Long work that Ctrl-C can interrupt.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use foveate::core::panic_message;
use foveate::pipeline::Cancel;
use pyo3::prelude::*;

use crate::errors::failed;

/// How often Python's signal handlers get to run.
const INTERVAL: Duration = Duration::from_millis(50);

/// Does `work` on another thread, without the interpreter's lock, and calls `each` at intervals. If a signal handler
/// (for Ctrl-C: Python's own) or `each` raises, cancels the work, waits for its end, and raises that.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    cancel: &Cancel,
    mut each: impl FnMut() -> PyResult<()>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    thread::scope(|scope| {
        let (done, mut result) = sync_channel(1);
        let thread = thread::Builder::new().name("embed".to_owned()).spawn_scoped(scope, move || {
            // Nobody waits any more only if this thread's caller has panicked.
            let _ = done.send(work());
        });
        let thread = thread.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        let mut raised = None;
        loop {
            let received;
            (received, result) = py.detach(move || (result.recv_timeout(INTERVAL), result));
            match (received, raised) {
                (Ok(_), Some(error)) => return Err(error),
                (Ok(value), None) => return Ok(value),
                (Err(RecvTimeoutError::Disconnected), _) => {
                    let panic = thread.join().err().map(|panic| panic_message(panic.as_ref()));
                    return Err(failed(format!("this is a defect: {}", panic.unwrap_or_default())));
                }
                (Err(RecvTimeoutError::Timeout), None) => raised = py.check_signals().and_then(|()| each()).err(),
                (Err(RecvTimeoutError::Timeout), earlier) => raised = earlier,
            }
            if raised.is_some() {
                cancel.cancel();
            }
        }
    })
}
