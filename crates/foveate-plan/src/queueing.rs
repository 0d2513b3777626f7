//! The number of items that a worker may take from a queue at a time.

use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::error::{at_least_one, not_negative, positive, share};

/// A worker that takes items from a queue, which redelivers items that are not done in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueDemand {
    /// Items per second that the worker finishes.
    pub images_per_second: f64,
    /// The queue's visibility timeout: seconds for which it hides an item that was handed out.
    pub visibility_timeout: f64,
    /// The usable fraction of the timeout, above 0 and at most 1; the rest is for a slow batch or a stalled network.
    pub safety: f64,
    /// Number of queues inside the worker that hold items (downloaded, decoded, encoded, …). The total is divided among
    /// them.
    pub queues: u32,
    /// Seconds from requesting an item until work on it can begin: the receive call and the download.
    pub fetch_seconds: f64,
    /// Images per batch; no image leaves before its whole batch is there.
    pub batch: u32,
}

/// The sizes that follow for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSizing {
    /// Most items that the worker may hold; further ones could time out while they wait.
    pub held: u64,
    /// Most items in each of its queues.
    pub per_queue: u64,
    /// The in-flight items needed for the worker never to wait: those it finishes during a fetch, and one batch being
    /// filled while another is encoded.
    pub in_flight: u64,
    /// True if the worker may hold the needed in-flight items. If not, raise the timeout, or extend it by heartbeats.
    pub fits: bool,
    /// The shortest timeout that fits.
    pub least_visibility_timeout: f64,
    /// Seconds between extensions of an item's timeout: a third of it, so that two may fail.
    pub heartbeat: f64,
}

impl QueueDemand {
    /// Sizes a worker's queues.
    ///
    /// # Errors
    /// [`PlanError`] for a number that is negative, not finite, or zero where zero is meaningless.
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
