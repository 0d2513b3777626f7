//! The quarantine of poison messages: messages whose workers ended again and again without an outcome.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::leases::Hold;
use super::outcome_handler::OutcomeHandler;
use super::ticket::Ticket;
use crate::{Image, lock};

/// The interval at which the quarantine tries to let a message through.
const TICK: Duration = Duration::from_millis(50);

/// Lets one message through at a time, in random order. A message here may have killed its workers, or may only have
/// been held together with the one that did. Each further death then leaves fewer innocent ones, and the poison message
/// is dead-lettered [`foveate_queue::QueueOptions::CHANCES`] deliveries later.
pub(super) struct Quarantine {
    outcomes: Arc<OutcomeHandler>,
    messages: Mutex<Messages>,
}

#[derive(Default)]
struct Messages {
    waiting: Vec<(Ticket, Image)>,
    /// The message that was let through last.
    under_way: Option<Hold>,
}

impl Quarantine {
    pub(super) fn new(outcomes: Arc<OutcomeHandler>) -> Self {
        Self { outcomes, messages: Mutex::default() }
    }

    pub(super) fn add(&self, ticket: Ticket, image: Image) {
        lock(&self.messages).waiting.push((ticket, image));
    }

    /// Lets messages through.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            if let Some((ticket, image)) = self.next() {
                self.outcomes.submit(ticket, image);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// The next message to try, unless one is under way.
    fn next(&self) -> Option<(Ticket, Image)> {
        let mut messages = lock(&self.messages);
        messages.waiting.retain(|(ticket, _)| ticket.hold.is_held());
        if messages.waiting.is_empty() {
            return None;
        }
        let place = match messages.under_way.as_ref().filter(|hold| hold.is_held()) {
            // A message ends with the last of its images.
            Some(hold) => messages.waiting.iter().position(|(ticket, _)| ticket.hold.is_of(hold))?,
            None => fastrand::usize(..messages.waiting.len()),
        };
        let (ticket, image) = messages.waiting.swap_remove(place);
        messages.under_way = Some(ticket.hold.clone());
        Some((ticket, image))
    }
}
