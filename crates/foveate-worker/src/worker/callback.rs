//! Callbacks: posts results to the addresses that jobs name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foveate_net::webhook::{self, Secrets, message_id};
use foveate_net::{Client, NetError, Rule, Turns};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tracing::Instrument;

use super::backoff::Backoff;
use super::settler::Settler;
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::metrics::ResultLabel;
use crate::{Encoding, Failure, Output, Setting, Stage, Traces, lock, sites};

/// Settings of the posts of results.
#[derive(Clone)]
pub struct Callbacks {
    /// Posts the results; its options say to which hosts. Without a client, the worker refuses jobs that name a
    /// callback.
    pub client: Option<Arc<Client>>,
    /// Signs the results as the Standard Webhooks specification says.
    pub secrets: Option<Arc<Secrets>>,
    /// A receiver gets at most a quarter of this number of posts at once; there is no limit for all receivers together.
    /// With 0, the threads that process post what they have. Default: 64.
    pub posts: usize,
    /// The encoding of vectors.
    pub encoding: Encoding,
    /// True if failures of all jobs with a callback are posted, too. Otherwise those of jobs that ask for it.
    pub failures: bool,
    /// The time for which the worker retries a callback before it releases the message.
    pub patience: Duration,
}

impl Callbacks {
    /// Unsigned callbacks, 16 at once to each receiver, retried for two minutes.
    pub fn new(client: Option<Arc<Client>>) -> Self {
        let patience = Duration::from_secs(120);
        Self { client, secrets: None, posts: 64, encoding: Encoding::Float, failures: false, patience }
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
    /// The turns of receivers.
    pub(super) turns: Arc<Turns>,
    /// Most results that wait for a slow receiver.
    pub(super) room: usize,
    pub(super) delayed: Delayed,
}

/// Counts the results that wait for a retry, by receiver.
pub(super) struct Delayed {
    /// Most results of one receiver.
    room: usize,
    counts: Mutex<HashMap<String, usize>>,
}

impl Delayed {
    pub(super) fn new(room: usize) -> Self {
        Self { room, counts: Mutex::default() }
    }

    /// Counts a result, unless its receiver has its share.
    fn add(&self, receiver: &str) -> bool {
        let mut counts = lock(&self.counts);
        let count = counts.entry(receiver.to_owned()).or_default();
        let fits = *count < self.room;
        *count += usize::from(fits);
        fits
    }

    fn remove(&self, receiver: &str) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(receiver) {
            *count -= 1;
            if *count == 0 {
                counts.remove(receiver);
            }
        }
    }

    fn all(&self) -> usize {
        lock(&self.counts).values().sum()
    }

    fn is_full(&self, receiver: &str) -> bool {
        lock(&self.counts).get(receiver).is_some_and(|count| *count >= self.room)
    }
}

/// A result or a failure to be posted.
pub(super) struct PendingCallback {
    ticket: Box<Ticket>,
    body: Vec<u8>,
    /// The failure, with which the message then goes to the dead letters.
    failure: Option<Failure>,
    first: Instant,
    tries: u32,
}

impl Caller {
    /// Checks that a job may name this callback.
    pub(super) fn check(&self, url: &str) -> Result<(), Failure> {
        let Some(client) = &self.callbacks.client else {
            let reason = "the job names a callback, and this worker posts none";
            return Err(Failure::of_setting(Setting::Callbacks, Stage::Callback, reason));
        };
        client.check(url).map_err(failure)
    }

    /// Posts a result if its job names a callback. The message is settled in either case.
    pub(super) fn deliver(self: &Arc<Self>, ticket: Box<Ticket>, output: &Output) {
        if ticket.callback.is_none() {
            return self.settler.acknowledge(*ticket);
        }
        match result_body(&ticket, output, self.callbacks.encoding) {
            Ok(body) => self.begin(PendingCallback { ticket, body, failure: None, first: Instant::now(), tries: 0 }),
            Err(error) => self.settler.fail(*ticket, Failure::permanent(Stage::Callback, error.to_string())),
        }
    }

    /// Fails a message. If its job ends with that, and asks for it, the failure is posted first.
    pub(super) fn fail(self: &Arc<Self>, ticket: Box<Ticket>, failure: Failure) {
        match failure_body(&ticket, &failure).ok().filter(|_| self.posts(&ticket, &failure)) {
            Some(body) => {
                self.begin(PendingCallback { ticket, body, failure: Some(failure), first: Instant::now(), tries: 0 });
            }
            None => self.settler.fail(*ticket, failure),
        }
    }

    /// Returns true if a failure is posted. What a callback did not take would fail there again.
    fn posts(&self, ticket: &Ticket, failure: &Failure) -> bool {
        let is_asked = ticket.callback_failures || self.callbacks.failures;
        let can_post = ticket.callback.as_ref().is_some_and(|url| self.check(url).is_ok());
        is_asked && can_post && failure.stage != Stage::Callback && self.settler.is_final(ticket, failure)
    }

    fn begin(self: &Arc<Self>, call: PendingCallback) {
        let posting = Arc::clone(self).post(call);
        match self.callbacks.posts {
            // A task of the runtime, whose failure this is, cannot wait for another one.
            0 if Handle::try_current().is_err() => {
                self.state.runtime.block_on(self.state.ended.run_until_cancelled(posting));
            }
            _ => drop(self.state.spawn(posting)),
        }
    }

    /// Checks that there is room for one more result of a message's receiver.
    ///
    /// # Errors
    /// A failure that costs the message nothing.
    pub(super) fn check_room(&self, ticket: &Ticket) -> Result<(), Failure> {
        let receiver = receiver(ticket);
        match sites::is_full(&self.turns, &receiver, self.room) || self.delayed.is_full(&receiver) {
            true => Err(no_room()),
            false => Ok(()),
        }
    }

    /// Results that wait for slow or failing receivers.
    pub(super) fn stalled(&self) -> usize {
        sites::stalled(&self.turns) + self.delayed.all()
    }

    /// Posts a result until it is taken or given up. Then passes its message on to the settler.
    async fn post(self: Arc<Self>, mut call: PendingCallback) {
        loop {
            let turn = self.turns.take(call.receiver()).await;
            if !call.ticket.hold.is_held() {
                return;
            }
            let posted = self.try_once(&mut call).await;
            drop(turn);
            let Err((failed, wait)) = posted else {
                return match call.failure {
                    None => self.settler.acknowledge(*call.ticket),
                    Some(failure) => self.settler.fail(*call.ticket, failure),
                };
            };
            if !self.may_retry(&call, wait, &failed) {
                let failure = self.unposted(&call, failed);
                return self.settler.fail(*call.ticket, failure);
            }
            tokio::time::sleep(wait).await;
            self.delayed.remove(&call.receiver());
        }
    }

    /// Posts a result unless its receiver's circuit breaker is open. The error has the time until the next try.
    async fn try_once(&self, call: &mut PendingCallback) -> Result<(), (Failure, Duration)> {
        // Jobs whose callback this worker cannot post were refused earlier.
        let (Some(client), Some(url)) = (&self.callbacks.client, &call.ticket.callback) else { return Ok(()) };
        self.admit(&call.ticket).map_err(|wait| {
            let reason = "the circuit breaker of its receiver is open";
            (Failure::transient(Stage::Callback, reason), wait.min(self.backoff.max))
        })?;
        let span = tracing::info_span!(parent: &call.ticket.span, "callback");
        let traceparent = (self.traces.traceparent)(&span);
        let posted = self.send(client, url, call, traceparent).instrument(span).await;
        let result = if posted.is_ok() { "ok" } else { "failed" };
        self.state.metrics.callbacks.get_or_create(&ResultLabel { result }).inc();
        let posted = posted.map_err(failure);
        self.state.health.record_callback(&call.ticket, posted.as_ref().err());
        posted.map_err(|failed| {
            call.tries += 1;
            let wait = self.backoff.after(call.tries, failed.retry_after);
            (failed, wait)
        })
    }

    fn admit(&self, ticket: &Ticket) -> Result<(), Duration> {
        ticket.receiver().map_or(Ok(()), |receiver| self.state.health.admit(&receiver))
    }

    /// Returns true if there is time and room for another try, and takes the room.
    fn may_retry(&self, call: &PendingCallback, wait: Duration, failed: &Failure) -> bool {
        let has_time = call.first.elapsed() + wait < self.callbacks.patience;
        let may_retry = failed.transient && has_time && self.delayed.add(&call.receiver());
        if may_retry {
            tracing::debug!(reason = failed.reason, tries = call.tries, "the callback failed; it is retried");
        }
        may_retry
    }

    /// The failure of a message whose callback was not taken. A failure that could not be posted is tried again with
    /// the whole message as long as it has tries, and then goes to the dead letters as what it is.
    fn unposted(&self, call: &PendingCallback, failed: Failure) -> Failure {
        match &call.failure {
            Some(failure) if self.settler.is_final(&call.ticket, &failed) => {
                let reason = format!("{}; the callback was not told ({})", failure.reason, failed.reason);
                Failure { reason, ..failure.clone() }
            }
            _ => failed,
        }
    }

    async fn send(
        &self,
        client: &Client,
        url: &str,
        call: &PendingCallback,
        traceparent: Option<String>,
    ) -> Result<(), NetError> {
        let id = call.id();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let timestamp = now.to_string();
        let signature = self.callbacks.secrets.as_deref().map(|secrets| secrets.sign(&id, now, &call.body));
        let mut headers = vec![(webhook::ID, id.as_str()), ("idempotency-key", &id), (webhook::TIMESTAMP, &timestamp)];
        headers.extend(signature.as_deref().map(|signature| (webhook::SIGNATURE, signature)));
        headers.extend(traceparent.as_deref().map(|traceparent| ("traceparent", traceparent)));
        client.post(url, &headers, &call.body).await.map(drop)
    }
}

fn failure(NetError { reason, transient, retry_after, reached, rule, .. }: NetError) -> Failure {
    let setting = rule.map(|rule| match rule {
        Rule::HttpsOnly => Setting::CallbackHttp,
        Rule::OnlyHosts | Rule::Ports => Setting::CallbackHost,
        Rule::AllowPrivate => Setting::CallbackPrivate,
    });
    Failure { transient, retry_after, setting, reached, ..Failure::permanent(Stage::Callback, reason) }
}

fn no_room() -> Failure {
    Failure::untried(Stage::Callback, "its receiver is slow or fails, and enough results wait for it")
}

/// The server that takes a message's result, as `host:port`.
fn receiver(ticket: &Ticket) -> String {
    ticket.callback.as_deref().and_then(foveate_net::server).unwrap_or_default()
}

/// Returns the `webhook-id` of the result of `task` for the job with this idempotency key.
pub fn callback_id(task: &str, key: &str) -> String {
    // A key has no control character.
    message_id(&format!("{task}\n{key}"))
}

impl PendingCallback {
    fn receiver(&self) -> String {
        receiver(&self.ticket)
    }

    /// The idempotency key. Two tasks may process one image under one id, so the task is a part of it. A job that
    /// failed may be put back and succeed, so each failure has its own.
    fn id(&self) -> String {
        let Ticket { idempotency_key: key, task, delivery, .. } = &*self.ticket;
        match self.failure {
            None => callback_id(task, key),
            Some(_) => callback_id(task, &format!("{key} failed as {}", delivery.key)),
        }
    }
}

/// A callback's body, as `callback.v1.json` describes it.
#[derive(Serialize)]
struct CallbackJson<'a> {
    version: u64,
    id: &'a str,
    task: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<WireError<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct WireError<'a> {
    stage: &'a str,
    reason: &'a str,
}

impl<'a> CallbackJson<'a> {
    fn of(ticket: &'a Ticket) -> Result<Self, serde_json::Error> {
        let metadata = ticket.metadata.as_deref().map(serde_json::from_str).transpose()?;
        Ok(Self { version: 1, id: &ticket.id, task: &ticket.task, result: None, error: None, metadata })
    }
}

fn result_body(ticket: &Ticket, output: &Output, encoding: Encoding) -> Result<Vec<u8>, serde_json::Error> {
    let result = RawValue::from_string(output.to_json(encoding))?;
    serde_json::to_vec(&CallbackJson { result: Some(&result), ..CallbackJson::of(ticket)? })
}

fn failure_body(ticket: &Ticket, failure: &Failure) -> Result<Vec<u8>, serde_json::Error> {
    let error = WireError { stage: failure.stage.name(), reason: &failure.reason };
    serde_json::to_vec(&CallbackJson { error: Some(error), ..CallbackJson::of(ticket)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_two_tasks_for_one_job_have_two_keys() {
        let [embed, classify] = ["embed", "classify"].map(|task| callback_id(task, "order-7"));
        assert_ne!(embed, classify);
        assert_ne!(callback_id("a", "b"), callback_id("ab", ""));
    }
}
