//! Callbacks: posts results to the addresses that jobs name.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foveate_net::webhook::{self, Secrets, message_id};
use foveate_net::{Client, NetError};
use serde::Serialize;
use serde_json::value::RawValue;

use super::backoff::Backoff;
use super::delay_queue::DelayQueue;
use super::settler::Settler;
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::metrics::ResultLabel;
use crate::watchdog::ThreadWatch;
use crate::{Encoding, Failure, Output, Stage, Traces};

/// How results are posted.
#[derive(Clone)]
pub struct Callbacks {
    /// Posts the results; its options say to which hosts. Without a client, the worker refuses jobs that name a
    /// callback.
    pub client: Option<Arc<Client>>,
    /// Signs the results as the Standard Webhooks specification says.
    pub secrets: Option<Arc<Secrets>>,
    /// Threads that post; 0 leaves posting to the threads that process. Default: 16.
    pub threads: usize,
    /// How vectors are written.
    pub encoding: Encoding,
    /// How long the worker retries a callback before it releases the message.
    pub patience: Duration,
}

impl Callbacks {
    /// Unsigned callbacks by 16 threads, retried for two minutes.
    pub fn new(client: Option<Arc<Client>>) -> Self {
        let patience = Duration::from_secs(120);
        Self { client, secrets: None, threads: 16, encoding: Encoding::Float, patience }
    }
}

/// Posts results, retries those that fail for now, and passes their messages on to the settler.
pub(super) struct Caller {
    pub(super) state: Arc<WorkerState>,
    pub(super) callbacks: Callbacks,
    /// The delay before a failed callback is posted again.
    pub(super) backoff: Backoff,
    pub(super) traces: Traces,
    pub(super) settler: Arc<Settler>,
    pub(super) due: DelayQueue<Call>,
}

/// A result to be posted.
pub(super) struct Call {
    ticket: Box<Ticket>,
    body: Vec<u8>,
    first: Instant,
    tries: u32,
}

impl Caller {
    /// Whether a job may name this callback.
    pub(super) fn check(&self, url: &str) -> Result<(), Failure> {
        let refused = |reason: &str| Failure::permanent(Stage::Callback, reason);
        let client = self.callbacks.client.as_ref().ok_or_else(|| refused("this worker makes no callbacks"))?;
        client.check(url).map_err(|error| refused(&error.reason))
    }

    /// Posts a result if its job names a callback. The message is settled in either case.
    pub(super) fn deliver(&self, ticket: Box<Ticket>, output: &Output) {
        if ticket.callback.is_none() {
            return self.settler.acknowledge(*ticket);
        }
        let body = match body(&ticket, output, self.callbacks.encoding) {
            Ok(body) => body,
            Err(error) => {
                return self.settler.fail(*ticket, Failure::permanent(Stage::Callback, error.to_string()));
            }
        };
        let call = Call { ticket, body, first: Instant::now(), tries: 0 };
        match self.callbacks.threads {
            0 => self.post(call),
            // Refused once the worker has ended: the message has already been given back.
            _ => drop(self.due.push(Instant::now(), call)),
        }
    }

    /// Posts results until [`Caller::close`] is called.
    pub(super) fn run(&self, watch: &ThreadWatch) {
        while let Some(calls) = self.due.pop(1) {
            let _busy = watch.busy();
            calls.into_iter().for_each(|call| self.post(call));
        }
    }

    /// Ends [`Caller::run`]. The remaining messages have already been given back.
    pub(super) fn close(&self) {
        drop(self.due.close());
    }

    fn post(&self, call: Call) {
        // Jobs whose callback this worker cannot post were refused earlier.
        let (Some(client), Some(url)) = (&self.callbacks.client, &call.ticket.callback) else { return };
        if !call.ticket.hold.is_held() {
            return;
        }
        let span = tracing::info_span!(parent: &call.ticket.span, "callback");
        let posted = span.in_scope(|| self.send(client, url, &call, (self.traces.traceparent)(&span)));
        let result = if posted.is_ok() { "ok" } else { "failed" };
        self.state.metrics.callbacks.get_or_create(&ResultLabel { result }).inc();
        match posted {
            Ok(()) => self.settler.acknowledge(*call.ticket),
            Err(error) => span.in_scope(|| self.failed(call, error)),
        }
    }

    /// Retries the callback, or gives it up.
    fn failed(&self, mut call: Call, NetError { reason, transient, retry_after, .. }: NetError) {
        call.tries += 1;
        let wait = self.backoff.after(call.tries, retry_after);
        if transient && call.first.elapsed() + wait < self.callbacks.patience {
            tracing::warn!(reason, tries = call.tries, "the callback failed; it is retried");
            match self.due.push(Instant::now() + wait, call) {
                Ok(()) => return,
                // The worker has ended.
                Err(closed) => call = closed,
            }
        }
        self.settler.fail(*call.ticket, Failure { stage: Stage::Callback, reason, transient, retry_after });
    }

    fn send(&self, client: &Client, url: &str, call: &Call, traceparent: Option<String>) -> Result<(), NetError> {
        let id = message_id(&call.ticket.id);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let timestamp = now.to_string();
        let signature = self.callbacks.secrets.as_deref().map(|secrets| secrets.sign(&id, now, &call.body));
        let mut headers = vec![(webhook::ID, id.as_str()), ("idempotency-key", &id), (webhook::TIMESTAMP, &timestamp)];
        headers.extend(signature.as_deref().map(|signature| (webhook::SIGNATURE, signature)));
        headers.extend(traceparent.as_deref().map(|traceparent| ("traceparent", traceparent)));
        client.post(url, &headers, &call.body).map(drop)
    }
}

/// The result of a job, as `callback.v1.json` describes it.
fn body(ticket: &Ticket, output: &Output, encoding: Encoding) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Wire<'a> {
        version: u64,
        id: &'a str,
        task: &'a str,
        result: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<&'a RawValue>,
    }
    let result = RawValue::from_string(output.to_json(encoding))?;
    let metadata = ticket.metadata.as_deref().map(serde_json::from_str).transpose()?;
    serde_json::to_vec(&Wire { version: 1, id: &ticket.id, task: &ticket.task, result: &result, metadata })
}
