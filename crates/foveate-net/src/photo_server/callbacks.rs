use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

/// Maximum bytes of callbacks that are kept. Further ones are refused, so that none is ever forgotten.
const MOST_BYTES: usize = 1 << 30;
/// Minimum memory of a callback besides its body.
const ENTRY: usize = 512;

/// Receives callbacks by [Standard Webhooks](https://www.standardwebhooks.com), as the receiver of a worker's results
/// would.
#[derive(Debug, Default)]
pub struct Callbacks {
    /// The status of every answer; 0 accepts.
    refusal: AtomicU16,
    log: Mutex<CallbackLog>,
}

#[derive(Debug, Default)]
struct CallbackLog {
    calls: Vec<Call>,
    taken: usize,
    bytes: usize,
    slow: Duration,
}

/// A callback that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Header `webhook-id`: the idempotency key.
    pub id: String,
    /// Header `webhook-timestamp`.
    pub timestamp: String,
    /// Header `webhook-signature`.
    pub signature: String,
    /// Header `traceparent`; empty if absent.
    pub traceparent: String,
    /// Size of the body.
    pub bytes: usize,
    /// The body; empty if the callback was refused.
    pub body: Vec<u8>,
    /// The answer's status; 204 if the callback was accepted.
    pub status: u16,
}

impl Call {
    /// Returns true if the answer accepted the callback.
    pub fn is_taken(&self) -> bool {
        self.status == 204
    }
}

impl Callbacks {
    /// Answers callbacks with 503 from now on, or accepts them again.
    pub fn set_down(&self, down: bool) {
        self.refuse_with(if down { 503 } else { 0 });
    }

    /// Answers callbacks with this status from now on.
    pub fn refuse_with(&self, status: u16) {
        self.refusal.store(status, Ordering::SeqCst);
    }

    /// Delays every answer by this much from now on.
    pub fn set_slow(&self, slow: Duration) {
        self.log().slow = slow;
    }

    /// Returns id and body of each accepted callback, in the order of arrival. An id appears as often as it was
    /// accepted.
    pub fn received(&self) -> Vec<(String, Vec<u8>)> {
        let log = self.log();
        log.calls.iter().filter(|call| call.is_taken()).map(|call| (call.id.clone(), call.body.clone())).collect()
    }

    /// Returns the accepted callbacks like [`Self::received`], and forgets them, so that a long measurement's memory is
    /// not that of its results.
    pub fn take_received(&self) -> Vec<(String, Vec<u8>)> {
        let mut log = self.log();
        log.bytes = 0;
        let calls = std::mem::take(&mut log.calls);
        drop(log);
        calls.into_iter().filter(Call::is_taken).map(|call| (call.id, call.body)).collect()
    }

    /// Returns the number of accepted callbacks.
    pub fn count(&self) -> usize {
        self.log().taken
    }

    /// Returns every callback that arrived, including the refused ones.
    pub fn calls(&self) -> Vec<Call> {
        self.log().calls.clone()
    }

    pub(crate) fn slow(&self) -> Duration {
        self.log().slow
    }

    /// Records a callback, and returns the status of its answer.
    pub(crate) fn take(&self, headers: &HeaderMap, body: Bytes) -> StatusCode {
        let mut log = self.log();
        if log.bytes + ENTRY + body.len() > MOST_BYTES {
            return StatusCode::INSUFFICIENT_STORAGE;
        }
        let refusal = StatusCode::from_u16(self.refusal.load(Ordering::SeqCst)).ok();
        let status = refusal.unwrap_or(StatusCode::NO_CONTENT);
        let [id, timestamp, signature, traceparent] =
            ["webhook-id", "webhook-timestamp", "webhook-signature", "traceparent"]
                .map(|name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned());
        let call = Call {
            id,
            timestamp,
            signature,
            traceparent,
            bytes: body.len(),
            body: if refusal.is_some() { Vec::new() } else { body.into() },
            status: status.as_u16(),
        };
        log.bytes += ENTRY + call.body.len();
        log.taken += usize::from(call.is_taken());
        log.calls.push(call);
        status
    }

    fn log(&self) -> MutexGuard<'_, CallbackLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
