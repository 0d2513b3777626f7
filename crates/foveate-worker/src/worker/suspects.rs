//! Messages whose workers ended again and again before they could say what became of them.

use std::sync::Mutex;

use super::Ticket;
use super::leases::Hold;
use crate::{Image, lock};

/// Such a message may be what its workers died of, or may only have been held together with that one. So they are worked
/// on one at a time, in no order: each death then leaves fewer that did nothing, and the culprit is given up
/// [`foveate_queue::QueueOptions::CHANCES`] deliveries later.
#[derive(Default)]
pub(super) struct Suspects {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<(Ticket, Image)>,
    under_way: Option<Hold>,
}

impl Suspects {
    pub(super) fn add(&self, ticket: Ticket, image: Image) {
        lock(&self.state).waiting.push((ticket, image));
    }

    /// The next to be worked on, if none is.
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
