//! Tells those who asked.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foveate_net::Client;
use foveate_net::webhook::{self, Secrets, message_id};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Core, Ticket};
use crate::metrics::ResultLabel;
use crate::{Encoding, Failure, Output, Stage};

/// How results are posted.
#[derive(Clone)]
pub struct Callbacks {
    /// Posts them; its options say to which hosts. Without it, jobs that name a callback are refused.
    pub client: Option<Arc<Client>>,
    /// Signs them, after the Standard Webhooks specification.
    pub secrets: Option<Arc<Secrets>>,
    /// Threads that post; 0 leaves it to those that process. Default: 16.
    pub threads: usize,
    /// How vectors are written.
    pub encoding: Encoding,
    /// How long a result is offered again and again, before its message is released for another try from the start.
    pub patience: Duration,
}

impl Callbacks {
    /// Unsigned, by 16 threads, offered for two minutes.
    pub fn new(client: Option<Arc<Client>>) -> Self {
        let patience = Duration::from_secs(120);
        Self { client, secrets: None, threads: 16, encoding: Encoding::Float, patience }
    }
}

/// A result on its way.
pub(super) struct Call {
    pub(super) ticket: Box<Ticket>,
    pub(super) body: Vec<u8>,
    pub(super) first: Instant,
    pub(super) tries: u32,
}

impl Call {
    /// The result of a job, as `callback.v1.json` describes it.
    pub(super) fn new(
        ticket: Box<Ticket>,
        output: &Output,
        encoding: Encoding,
    ) -> Result<Self, (Box<Ticket>, serde_json::Error)> {
        match body(&ticket, output, encoding) {
            Ok(body) => Ok(Self { body, ticket, first: Instant::now(), tries: 0 }),
            Err(error) => Err((ticket, error)),
        }
    }
}

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

/// Posts until the queue is closed.
pub(super) fn run(core: &Core) {
    let watch = core.watch("callback");
    while let Some(calls) = core.calls.pop(1) {
        let busy = watch.busy();
        calls.into_iter().for_each(|call| post(core, call));
        drop(busy);
    }
}

/// Posts once; what fails for now is offered again later, by another thread or this one.
pub(super) fn post(core: &Core, mut call: Call) {
    if !call.ticket.hold.is_held() {
        return;
    }
    let callbacks = &core.options.callbacks;
    // A job without a callback, or one that may not be called, does not get here.
    let (Some(url), Some(client)) = (call.ticket.callback.clone(), callbacks.client.clone()) else { return };
    let span = tracing::info_span!(parent: &call.ticket.span, "callback");
    let traceparent = (core.options.traces.traceparent)(&span);
    let posted = span.in_scope(|| send(&client, callbacks.secrets.as_deref(), &call, &url, traceparent.as_deref()));
    let result = if posted.is_ok() { "ok" } else { "failed" };
    core.metrics().callbacks.get_or_create(&ResultLabel { result }).inc();
    let error = match posted {
        Ok(()) => return core.done(*call.ticket),
        Err(error) => error,
    };
    call.tries += 1;
    let wait = core.options.callback_backoff.after(call.tries, error.retry_after);
    if error.transient && call.first.elapsed() + wait < callbacks.patience {
        span.in_scope(|| {
            tracing::warn!(reason = error.reason, tries = call.tries, "callback failed; it is offered again")
        });
        match core.calls.push(Instant::now() + wait, call) {
            Ok(()) => return,
            // The worker is at its end.
            Err(closed) => call = closed,
        }
    }
    let failure = Failure {
        stage: Stage::Callback,
        reason: error.reason,
        transient: error.transient,
        retry_after: error.retry_after,
    };
    core.failed(*call.ticket, failure);
}

fn send(
    client: &Client,
    secrets: Option<&Secrets>,
    call: &Call,
    url: &str,
    traceparent: Option<&str>,
) -> Result<(), foveate_net::NetError> {
    let id = message_id(&call.ticket.id);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let timestamp = now.to_string();
    let signature = secrets.map(|secrets| secrets.sign(&id, now, &call.body));
    let mut headers = vec![(webhook::ID, id.as_str()), ("idempotency-key", &id), (webhook::TIMESTAMP, &timestamp)];
    headers.extend(signature.as_deref().map(|signature| (webhook::SIGNATURE, signature)));
    headers.extend(traceparent.map(|traceparent| ("traceparent", traceparent)));
    client.post(url, &headers, &call.body).map(drop)
}
