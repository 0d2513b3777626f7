use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::http::Request;

/// Most bytes of callbacks that are kept. More are refused: nothing is forgotten without a word.
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

    pub(super) fn slow(&self) -> Duration {
        self.log().slow
    }

    /// Notes a callback, and says what it is answered.
    pub(super) fn take(&self, request: Request) -> u16 {
        let mut log = self.log();
        let size = ENTRY + request.body.len();
        if log.bytes + size > MOST_BYTES {
            return 507;
        }
        let status = if self.down.load(Ordering::SeqCst) { 503 } else { 204 };
        let header = |name| request.header(name).to_owned();
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        let (signature, traceparent) = (header("webhook-signature"), header("traceparent"));
        let bytes = request.body.len();
        let body = if status == 204 { request.body } else { Vec::new() };
        log.bytes += ENTRY + body.len();
        log.taken += usize::from(status == 204);
        log.calls.push(Call { id, timestamp, signature, traceparent, bytes, body, status });
        status
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
