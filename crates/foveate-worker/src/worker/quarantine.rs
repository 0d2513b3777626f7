//! The quarantine of poison messages: messages whose workers ended again and again without an outcome.

use std::sync::Mutex;

use super::Ticket;
use super::leases::Hold;
use crate::{Image, lock};

/// Lets one message through at a time, in random order. A message here may have killed its workers, or may only have been
/// held together with the one that did. Each further death then leaves fewer innocent ones, and the poison message is
/// dead-lettered [`foveate_queue::QueueOptions::CHANCES`] deliveries later.
#[derive(Default)]
pub(super) struct Quarantine {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<(Ticket, Image)>,
    /// The message that was let through last.
    under_way: Option<Hold>,
}

impl Quarantine {
    pub(super) fn add(&self, ticket: Ticket, image: Image) {
        lock(&self.state).waiting.push((ticket, image));
    }

    /// The next message to try, unless one is under way.
    pub(super) fn next(&self) -> Option<(Ticket, Image)> {
        let mut state = lock(&self.state);
        state.waiting.retain(|(ticket, _)| ticket.hold.is_held());
        if state.waiting.is_empty() || state.under_way.as_ref().is_some_and(Hold::is_held) {
            return None;
        }
        let place = fastrand::usize(..state.waiting.len());
        let (ticket, image) = state.waiting.swap_remove(place);
        state.under_way = Some(ticket.hold.clone());
        Some((ticket, image))
    }
}
