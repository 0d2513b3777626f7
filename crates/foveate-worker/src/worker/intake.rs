//! Turns messages into requests: parses the job, and submits it, quarantines it, or refuses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use foveate_net::ImageAddress;
use foveate_queue::{Delivery, ImageRef, Job, JobError, JobInput, QueueOptions};

use super::circuit_breaker::Cause;
use super::leases::{Hold, Key};
use super::message_parts::MessageParts;
use super::outcome_handler::OutcomeHandler;
use super::quarantine::Quarantine;
use super::state::WorkerState;
use super::store_events::StoreEvents;
use super::ticket::Ticket;
use crate::engine_state::bucket;
use crate::{Failure, Image, Setting, Stage, Traces};

/// Messages held back in a row, without any other, after which the intake slows.
const MANY_HELD_BACK: usize = 64;

/// Deaths of workers with a message in a decoder after which it is quarantined.
const MANY_DEATHS: u32 = 2;

pub(super) struct Intake {
    pub(super) state: Arc<WorkerState>,
    pub(super) traces: Traces,
    pub(super) store_events: bool,
    pub(super) outcomes: Arc<OutcomeHandler>,
    pub(super) quarantine: Arc<Quarantine>,
    /// Messages held back since the last other one.
    pub(super) held_back: AtomicUsize,
}

/// A message that was received.
#[derive(Clone)]
pub(super) struct ReceivedMessage {
    pub(super) key: Key,
    pub(super) hold: Hold,
    /// The index of its queue.
    pub(super) queue: usize,
    pub(super) delivery: Arc<Delivery>,
}

impl Intake {
    /// Messages that wait for slow sites or receivers. They do not count towards the in-flight limit.
    pub(super) fn stalled(&self) -> usize {
        self.outcomes.stalled()
    }

    /// Returns true if the last messages all need something that is known to fail.
    pub(super) fn holds_all_back(&self) -> bool {
        self.held_back.load(Relaxed) >= MANY_HELD_BACK
    }

    /// Submits a message, quarantines it, or refuses it.
    pub(super) fn begin(&self, message: ReceivedMessage) {
        let job = Job::parse(&message.delivery.body).map(|job| Job { input: normal(job.input), ..job });
        match job.is_err().then(|| StoreEvents::parse(&message.delivery.body)).flatten() {
            Some(events) => self.begin_events(message, events),
            None => self.begin_job(self.ticket(message, job.as_ref().ok(), None), job),
        }
    }

    /// Begins with each object that a store's notification names.
    fn begin_events(&self, message: ReceivedMessage, StoreEvents { written, others }: StoreEvents) {
        if !self.store_events {
            let named = written.first().map_or(String::new(), |address| format!(" ({address})"));
            let reason = format!("a notification of an object store{named}, and this worker takes none");
            let failure = Failure::of_setting(Setting::StoreEvents, Stage::Parse, reason);
            return self.outcomes.refuse(self.ticket(message, None, None), failure);
        }
        if written.is_empty() {
            tracing::debug!(id = message.delivery.id, others, "a notification that names no image");
            return self.outcomes.skip(self.ticket(message, None, None));
        }
        let parts = (written.len() > 1).then(|| Arc::new(MessageParts::new(written.len())));
        for address in written {
            let job = Job { id: Some(address.clone()), ..Job::new(ImageRef::Object(address)) };
            self.begin_job(self.ticket(message.clone(), Some(&job), parts.clone()), Ok(job));
        }
    }

    fn begin_job(&self, ticket: Ticket, job: Result<Job, JobError>) {
        let admitted = self.admit(&ticket, job);
        match &admitted {
            Err(failure) if failure.untried => drop(self.held_back.fetch_add(1, Relaxed)),
            _ => self.held_back.store(0, Relaxed),
        }
        match admitted {
            Ok(image) if self.is_suspect(&ticket) => self.quarantine.add(ticket, image),
            Ok(image) => self.outcomes.submit(ticket, image),
            Err(failure) => self.outcomes.refuse(ticket, failure),
        }
    }

    /// Returns true if a message may have killed its workers.
    fn is_suspect(&self, ticket: &Ticket) -> bool {
        self.state.deaths(ticket) >= MANY_DEATHS
            || ticket.delivery.received > self.state.queues[ticket.queue].max_receive()
    }

    /// A message's ticket, with the job's data if the message is a valid job.
    fn ticket(
        &self,
        ReceivedMessage { key, hold, queue, delivery }: ReceivedMessage,
        job: Option<&Job>,
        parts: Option<Arc<MessageParts>>,
    ) -> Ticket {
        let id = job.and_then(|job| job.id.clone()).unwrap_or_else(|| delivery.id.clone());
        let span =
            tracing::info_span!("job", id, queue = self.state.queues[queue].name(), received = delivery.received);
        if let Some(traceparent) = job.and_then(|job| job.traceparent.as_deref()) {
            (self.traces.join)(&span, traceparent);
        }
        Ticket {
            key,
            hold,
            queue,
            delivery,
            idempotency_key: job.and_then(|job| job.idempotency_key.clone()).unwrap_or_else(|| id.clone()),
            id,
            task: job.map(|job| job.task.clone()).unwrap_or_default(),
            source: job.and_then(|job| source(&job.input)),
            site: job.and_then(|job| site(&job.input)),
            callback: job.and_then(|job| job.callback.as_ref()).map(|callback| callback.url.clone()),
            callback_failures: job.is_some_and(|job| job.callback_failures),
            metadata: job.and_then(|job| job.metadata.clone()),
            parts,
            since: Instant::now(),
            span,
        }
    }

    /// The message's image or text, or the reason to refuse it.
    fn admit(&self, ticket: &Ticket, job: Result<Job, JobError>) -> Result<Image, Failure> {
        let job = job.map_err(|error| Failure::permanent(Stage::Parse, error.to_string()))?;
        // First: a message that this worker's settings refuse is not this worker's to give up.
        self.outcomes.check(ticket)?;
        let received = ticket.delivery.received;
        if received > self.state.queues[ticket.queue].max_receive().saturating_add(QueueOptions::CHANCES) {
            let reason = format!("delivered {received} times without an outcome; it may have killed its workers");
            return Err(Failure::permanent(Stage::Receive, reason));
        }
        // After the last of these it was alone in the quarantine.
        let deaths = self.state.deaths(ticket);
        if deaths > MANY_DEATHS {
            let reason = format!("{deaths} workers died while it was in their decoders");
            return Err(Failure::permanent(Stage::Within("decode"), reason));
        }
        self.outcomes.hold_back(ticket)?;
        Ok(job.input.into())
    }
}

/// An image's address in its normal form. The scheme says what kind it is, whatever the job calls it.
fn normal(input: JobInput) -> JobInput {
    let JobInput::Image(image) = &input else { return input };
    match ImageAddress::parse(image.as_str()) {
        Some(ImageAddress::Web(url)) => ImageRef::Url(url).into(),
        Some(ImageAddress::Object(address)) => ImageRef::Object(address).into(),
        Some(ImageAddress::Data) | None => input,
    }
}

fn site(input: &JobInput) -> Option<String> {
    match input {
        JobInput::Image(ImageRef::Url(url)) => foveate_net::site(url),
        JobInput::Image(ImageRef::Object(_)) | JobInput::Text(_) => None,
    }
}

/// The server or the bucket that an image is on.
fn source(input: &JobInput) -> Option<Cause> {
    match input {
        JobInput::Image(ImageRef::Url(url)) => foveate_net::server(url).map(Cause::Host),
        JobInput::Image(ImageRef::Object(address)) => Some(Cause::Store(bucket(address).to_owned())),
        JobInput::Text(_) => None,
    }
}
