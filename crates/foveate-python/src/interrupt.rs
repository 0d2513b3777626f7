//! Long work that Ctrl-C can interrupt.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use foveate::core::panic_message;
use foveate::pipeline::Cancel;
use pyo3::prelude::*;

use crate::errors::failed;

/// The interval at which Python's signal handlers get to run.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Makes the thread that waits for the work call `each` at once.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Does `work` on another thread, without the interpreter's lock, and calls `each` at intervals. If a signal handler
/// (for Ctrl-C: Python's own) or `each` raises, cancels the work, waits for its end, and raises that. It waits no
/// longer than `patience`, and not after a second signal: then the work ends in the background.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    cancel: &Cancel,
    patience: impl Fn() -> Duration,
    mut each: impl FnMut() -> PyResult<()>,
    work: impl FnOnce(Wake) -> T + Send + 'static,
) -> PyResult<T> {
    let (events, mut received) = channel();
    let done = events.clone();
    let wake = Arc::new(move || drop(events.send(None)));
    // The first `each` does not wait for the interval.
    wake();
    let thread = thread::Builder::new().name("embed".to_owned()).spawn(move || drop(done.send(Some(work(wake)))));
    let thread = thread.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
    let mut raised: Option<(PyErr, Instant)> = None;
    loop {
        let event;
        (event, received) = py.detach(move || (received.recv_timeout(INTERVAL), received));
        match event {
            Ok(Some(value)) => return raised.map_or(Ok(value), |(error, _)| Err(error)),
            Err(RecvTimeoutError::Disconnected) => {
                let panic = thread.join().err().map(|panic| panic_message(panic.as_ref()));
                return Err(failed(format!("this is a defect: {}", panic.unwrap_or_default())));
            }
            Ok(None) | Err(RecvTimeoutError::Timeout) => {}
        }
        raised = match raised {
            None => py.check_signals().and_then(|()| each()).err().map(|error| (error, Instant::now())),
            Some((error, since)) if since.elapsed() >= patience() || py.check_signals().is_err() => return Err(error),
            earlier => earlier,
        };
        if raised.is_some() {
            cancel.cancel();
        }
    }
}
