//! Submits messages to the engine, and handles their outcomes: stores a result, posts it, or reports the failure.

use std::sync::Arc;

use super::callback::Caller;
use super::segments::SegmentWriter;
use super::settler::Settler;
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::{Done, Engine, Failure, Image, Outcome, Output, Rejected, Request, Setting, Stage, downloads};

/// Takes every outcome and sends its message on: sink, then callback, then settler.
pub(super) struct OutcomeHandler {
    pub(super) state: Arc<WorkerState>,
    pub(super) engine: Arc<Engine>,
    pub(super) sink: Option<Arc<SegmentWriter>>,
    pub(super) caller: Arc<Caller>,
    pub(super) settler: Arc<Settler>,
}

impl OutcomeHandler {
    /// Checks that a message's result can be delivered, before any work is done for it.
    pub(super) fn check(&self, ticket: &Ticket) -> Result<(), Failure> {
        match &ticket.callback {
            Some(url) => self.caller.check(url),
            None if self.sink.is_some() => Ok(()),
            None => {
                let reason = "the job names no callback, and this worker has no sink";
                Err(Failure::of_setting(Setting::Sink, Stage::Parse, reason))
            }
        }
    }

    /// Checks that nothing that a message needs is known to fail. A message that has failed or waited for long enough
    /// is tried in any case: otherwise the messages of a host that is gone would never end.
    ///
    /// # Errors
    /// A failure that costs the message nothing.
    pub(super) fn hold_back(&self, ticket: &Ticket) -> Result<(), Failure> {
        let receiver = ticket.receiver();
        let source = ticket.source.iter().map(|source| (source, Stage::Download));
        let causes = source.chain(receiver.iter().map(|receiver| (receiver, Stage::Callback)));
        for (cause, stage) in causes.filter(|(cause, _)| self.settler.has_time(ticket, cause.is_operators())) {
            self.state.health.admit(cause).map_err(|wait| Failure {
                retry_after: Some(wait),
                ..Failure::untried(stage, format!("{cause}: the circuit breaker is open"))
            })?;
        }
        if ticket.site.as_deref().is_some_and(|site| self.engine.is_full(site)) {
            return Err(downloads::slow());
        }
        self.caller.check_room(ticket)
    }

    /// Messages that wait for slow sites or receivers, or for their segment.
    pub(super) fn stalled(&self) -> usize {
        self.engine.stalled() + self.caller.stalled() + self.sink.as_ref().map_or(0, |sink| sink.stalled())
    }

    /// Submits a message to the engine, which has room for all that the worker holds.
    pub(super) fn submit(self: &Arc<Self>, ticket: Ticket, image: Image) {
        let Ticket { id, task, metadata, span, hold, .. } = &ticket;
        let (id, task, metadata, span) = (id.clone(), task.clone(), metadata.clone(), span.clone());
        let hold = hold.clone();
        let outcomes = Arc::clone(self);
        let deaths = self.state.deaths.clone().map(|deaths| (deaths, self.state.number(&ticket)));
        let ticket = Box::new(ticket);
        let mut done = Done::new(move |outcome| outcomes.handle(ticket, outcome)).while_wanted(move || hold.begin());
        if let Some((deaths, message)) = deaths {
            done = done.noting_decoding(move |is_in| deaths.note(message, is_in));
        }
        // A request that comes while the engine stops is dropped, which gives its message back.
        if let Err(rejected @ Rejected::NoTask { .. }) =
            self.engine.accept(Request { id, task, image, metadata, done, span })
        {
            let failure = Failure::of_setting(Setting::Task, Stage::Parse, rejected.to_string());
            rejected.into_request().done.tell(Err(failure));
        }
    }

    /// Handles the engine's outcome of a message.
    pub(super) fn handle(&self, ticket: Box<Ticket>, outcome: Outcome) {
        if !ticket.hold.is_held() {
            return;
        }
        self.state.health.record(&ticket, &outcome);
        if self.sink.is_some() {
            // A segment settles all its messages at once, which says nothing about the rate of the work.
            self.state.leases.limiter().finished();
        }
        match outcome {
            Ok(output) => {
                // A text says nothing about the hosts of images.
                if ticket.source.is_some() {
                    self.state.health.refusals.image_done();
                }
                self.succeeded(ticket, output);
            }
            Err(failure) => self.caller.fail(ticket, failure),
        }
    }

    /// Ends a message that asks for nothing.
    pub(super) fn skip(&self, ticket: Ticket) {
        self.settler.skip(ticket);
    }

    /// Fails a message that did not reach the engine.
    pub(super) fn refuse(&self, ticket: Ticket, failure: Failure) {
        self.caller.fail(Box::new(ticket), failure);
    }

    fn succeeded(&self, ticket: Box<Ticket>, output: Output) {
        match (output, &self.sink) {
            (Output::Vector(embedding), Some(sink)) => sink.store(ticket, embedding),
            _ if ticket.callback.is_none() => {
                let reason = "the task gives no vector to store, and the job names no callback";
                self.settler.fail(*ticket, Failure::permanent(Stage::Sink, reason));
            }
            (output, _) => self.caller.deliver(ticket, &output),
        }
    }
}
