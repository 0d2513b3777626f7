//! The in-process queue passes the suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use foveate_queue::MemoryQueue;
use foveate_queue::conformance::{Capability, Dead, Fixture, Harness, OtherProgram, check};

const LARGEST: usize = 10_000;

struct QueueClone(MemoryQueue);

#[async_trait]
impl OtherProgram for QueueClone {
    async fn dead_letters(&self) -> Vec<Dead> {
        let letters = self.0.dead_letters().into_iter();
        letters.map(|(delivery, why)| Dead { id: delivery.id, body: delivery.body, why }).collect()
    }
}

#[test]
fn it_is_a_queue() {
    check(&Harness {
        open: async |lease, max_receive| {
            let queue = MemoryQueue::new("memory", lease, max_receive).with_max_bytes(LARGEST);
            Fixture { queue: Arc::new(queue.clone()), outside: Box::new(QueueClone(queue)) }
        },
        short: Duration::from_secs(1),
        capability: Capability {
            tells_lost_leases: true,
            tells_lost_acknowledgements: true,
            drops_doubles: false,
            tells_doubles: false,
            any_bytes: true,
            largest: Some(LARGEST),
        },
    });
}
