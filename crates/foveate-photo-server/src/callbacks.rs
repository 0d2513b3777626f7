use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

/// Most bytes of callbacks that are kept. More are refused, so that none is ever forgotten.
const MOST_BYTES: usize = 1 << 30;
/// What a callback takes besides its body, at least.
const ENTRY: usize = 512;

/// Takes callbacks, as the other side of a worker would: by [Standard Webhooks](https://www.standardwebhooks.com).
#[derive(Debug, Default)]
pub struct Callbacks {
    down: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    calls: Vec<Call>,
    taken: usize,
    bytes: usize,
    slow: Duration,
}

/// A callback that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Header `webhook-id`: the idempotency key.
    pub id: String,
    /// Header `webhook-timestamp`.
    pub timestamp: String,
    /// Header `webhook-signature`.
    pub signature: String,
    /// Header `traceparent`; empty where there is none.
    pub traceparent: String,
    /// Size of the body.
    pub bytes: usize,
    /// The body; empty where the callback was not taken.
    pub body: Vec<u8>,
    /// What was answered; 204 when it was taken.
    pub status: u16,
}

impl Call {
    /// Whether the caller was told that it was taken.
    pub fn is_taken(&self) -> bool {
        self.status == 204
    }
}

impl Callbacks {
    /// From now on callbacks are answered 503, or taken again.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// From now on every answer takes this much longer.
    pub fn set_slow(&self, slow: Duration) {
        self.log().slow = slow;
    }

    /// Id and body of each callback that was taken, in the order of arrival. An id is there as often as it was taken.
    pub fn received(&self) -> Vec<(String, Vec<u8>)> {
        let log = self.log();
        log.calls.iter().filter(|call| call.is_taken()).map(|call| (call.id.clone(), call.body.clone())).collect()
    }

    /// How many were taken.
    pub fn count(&self) -> usize {
        self.log().taken
    }

    /// Every callback that came, those among them that were not taken.
    pub fn calls(&self) -> Vec<Call> {
        self.log().calls.clone()
    }

    pub(crate) fn slow(&self) -> Duration {
        self.log().slow
    }

    /// Notes a callback, and says what it is answered.
    pub(crate) fn take(&self, headers: &HeaderMap, body: Bytes) -> StatusCode {
        let mut log = self.log();
        if log.bytes + ENTRY + body.len() > MOST_BYTES {
            return StatusCode::INSUFFICIENT_STORAGE;
        }
        let is_down = self.down.load(Ordering::SeqCst);
        let status = if is_down { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT };
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let call = Call {
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            traceparent: header("traceparent"),
            bytes: body.len(),
            body: if is_down { Vec::new() } else { body.into() },
            status: status.as_u16(),
        };
        log.bytes += ENTRY + call.body.len();
        log.taken += usize::from(call.is_taken());
        log.calls.push(call);
        status
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
