//! A trace's content and its capacity.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Room {
    left: AtomicUsize,
    /// Number of events for which a track reserves room at a time.
    piece: usize,
    dropped: AtomicU64,
}

/// Events of one thread, or of one named track, in recording order.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) name: String,
    /// The thread's serial number; none for a track.
    pub(crate) thread: Option<u64>,
    /// Filled successively and never moved, so that no event waits for a large copy.
    pub(crate) pieces: Vec<Vec<TrackEvent>>,
}

/// An event; times are nanoseconds since the trace was made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrackEvent {
    Span { name: &'static str, start: u64, duration: u64 },
    Counter { track: &'static str, at: u64, value: u64 },
}

impl Track {
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    pub(crate) fn push(&mut self, event: TrackEvent, room: &Room) {
        match self.pieces.last_mut().filter(|piece| piece.len() < piece.capacity()) {
            Some(piece) => piece.push(event),
            None => {
                if let Some(mut piece) = room.take() {
                    piece.push(event);
                    self.pieces.push(piece);
                }
            }
        }
    }
}

impl Room {
    /// Room for `events`.
    pub(crate) fn new(events: usize) -> Self {
        Self { left: AtomicUsize::new(events), piece: (events / 256).clamp(1, 64), dropped: AtomicU64::new(0) }
    }

    /// Number of events that did not fit.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Reserves memory for some more events; without room it returns none and counts one more dropped event.
    pub(crate) fn take(&self) -> Option<Vec<TrackEvent>> {
        let taken =
            self.left.fetch_update(Relaxed, Relaxed, |left| (left > 0).then(|| left.saturating_sub(self.piece)));
        match taken {
            Ok(left) => Some(Vec::with_capacity(left.min(self.piece))),
            Err(_) => {
                self.dropped.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn an_event_takes_the_memory_that_is_documented() {
        assert_eq!(size_of::<TrackEvent>(), 40);
    }

    #[test]
    fn a_trace_takes_no_more_room_than_it_was_given() {
        for max in [0, 1, 255, 256, 1000, 16_384, 20_001] {
            let room = Room::new(max);
            let taken: usize = std::iter::from_fn(|| room.take()).map(|piece| piece.capacity()).sum();
            assert_eq!(taken, max);
        }
    }
}
