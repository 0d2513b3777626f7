//! Submits messages to the engine.

use std::sync::Arc;
use std::time::Duration;

use super::outcome_handler::OutcomeHandler;
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::{Done, Engine, Failure, Image, Rejected, Request, Setting, Stage};

/// The pause before another attempt to submit to a full engine.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Dispatcher {
    pub(super) state: Arc<WorkerState>,
    pub(super) engine: Arc<Engine>,
    pub(super) outcomes: Arc<OutcomeHandler>,
}

impl Dispatcher {
    /// Returns true if the engine takes another request now.
    pub(super) fn has_room(&self) -> bool {
        self.engine.in_flight() < self.engine.max_in_flight()
    }

    /// Messages that wait for slow sites.
    pub(super) fn stalled(&self) -> usize {
        self.engine.stalled()
    }

    /// Submits a message; waits while the engine is full.
    pub(super) fn submit(&self, ticket: Ticket, image: Image) {
        let mut request = self.request(ticket, image);
        loop {
            request = match self.engine.submit(request) {
                Ok(()) => return,
                Err(Rejected::Full(request)) if !self.state.lifecycle.is_stopping() => {
                    std::thread::sleep(PAUSE);
                    *request
                }
                Err(rejected @ Rejected::NoTask { .. }) => {
                    let failure = Failure::of_setting(Setting::Task, Stage::Parse, rejected.to_string());
                    return rejected.into_request().done.tell(Err(failure));
                }
                // The worker is stopping: dropping the request gives its message back.
                Err(_) => return,
            }
        }
    }

    fn request(&self, ticket: Ticket, image: Image) -> Request {
        let id = ticket.id.clone();
        let task = ticket.task.clone();
        let metadata = ticket.metadata.clone();
        let span = ticket.span.clone();
        let hold = ticket.hold.clone();
        let ticket = Box::new(ticket);
        let outcomes = Arc::clone(&self.outcomes);
        let done = Done::new(move |outcome| outcomes.handle(ticket, outcome)).while_wanted(move || hold.begin());
        Request { id, task, image, metadata, done, span }
    }
}
