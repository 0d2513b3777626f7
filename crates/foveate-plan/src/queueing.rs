//! How much a worker may take from a queue at a time.

use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::error::{at_least_one, not_negative, positive, share};

/// A worker that takes items from a queue, which hands them to somebody else when they are not done in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueDemand {
    /// Items per second that the worker finishes.
    pub images_per_second: f64,
    /// Seconds for which the queue hides an item that was handed out.
    pub visibility_timeout: f64,
    /// How much of that may be used, above 0 and at most 1: the rest is for a slow batch or a stalled network.
    pub safety: f64,
    /// Queues inside the worker that each hold items (downloaded, decoded, encoded, …), among which the total is
    /// divided.
    pub queues: u32,
    /// Seconds from asking for an item until it can be worked on: the receive call and the download.
    pub fetch_seconds: f64,
    /// Images per batch: nothing leaves before a whole batch is there.
    pub batch: u32,
}

/// What follows for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSizing {
    /// Most items that the worker may hold: more than these could time out while they wait.
    pub held: u64,
    /// Most items in each of its queues.
    pub per_queue: u64,
    /// Items that have to be under way for the worker never to wait: what it finishes during a fetch, and one batch
    /// being filled while another is encoded.
    pub in_flight: u64,
    /// Whether the worker may hold what it needs under way. If not, raise the timeout, or prolong it by heartbeats.
    pub fits: bool,
    /// The shortest timeout with which it fits.
    pub least_visibility_timeout: f64,
    /// Seconds between prolongations of an item's timeout: a third of it, so that two may fail.
    pub heartbeat: f64,
}

impl QueueDemand {
    /// Sizes a worker's queues.
    ///
    /// # Errors
    /// [`PlanError`] for a number that is negative, zero where that means nothing, or not finite.
    pub fn sizing(&self) -> Result<QueueSizing, PlanError> {
        let rate = positive("the images per second", self.images_per_second)?;
        let timeout = positive("the visibility timeout", self.visibility_timeout)?;
        let safety = share("the safety", self.safety)?;
        let queues = at_least_one("the number of queues", self.queues)?;
        let batch = at_least_one("the batch", self.batch)?;
        let needed = (rate * not_negative("the fetch's seconds", self.fetch_seconds)? + 2.0 * batch).ceil();
        let held = rate * timeout * safety;
        Ok(QueueSizing {
            held: held.floor() as u64,
            per_queue: (held / queues).floor() as u64,
            in_flight: needed as u64,
            fits: needed <= held.floor(),
            least_visibility_timeout: needed / (rate * safety),
            heartbeat: timeout / 3.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: QueueDemand = QueueDemand {
        images_per_second: 100.0,
        visibility_timeout: 60.0,
        safety: 0.5,
        queues: 3,
        fetch_seconds: 0.25,
        batch: 32,
    };

    #[test]
    fn held_is_rate_times_timeout_times_safety() {
        let sizing = DEMAND.sizing().unwrap();
        assert_eq!((sizing.held, sizing.per_queue, sizing.in_flight), (3000, 1000, 89));
        assert!(sizing.fits);
        assert_eq!(sizing.heartbeat, 20.0);
        assert_eq!(sizing.least_visibility_timeout, 1.78);
    }

    #[test]
    fn a_timeout_that_is_too_short_is_said_to_be() {
        let sizing = QueueDemand { visibility_timeout: 1.0, ..DEMAND }.sizing().unwrap();
        assert!(!sizing.fits);
        let enough = QueueDemand { visibility_timeout: sizing.least_visibility_timeout, ..DEMAND }.sizing().unwrap();
        assert!(enough.fits, "{enough:?}");
    }

    #[test]
    fn nonsense_is_refused() {
        for broken in [
            QueueDemand { safety: 1.5, ..DEMAND },
            QueueDemand { safety: f64::NAN, ..DEMAND },
            QueueDemand { queues: 0, ..DEMAND },
            QueueDemand { batch: 0, ..DEMAND },
            QueueDemand { visibility_timeout: 0.0, ..DEMAND },
            QueueDemand { images_per_second: -1.0, ..DEMAND },
        ] {
            assert!(broken.sizing().is_err(), "{broken:?}");
        }
    }
}
