//! The in-process queue passes the suite.

use std::time::Duration;

use foveate_queue::MemoryQueue;
use foveate_queue::conformance::{Capability, Dead, Fixture, Harness, check};

const LARGEST: usize = 10_000;

fn fixture(lease: Duration, max_receive: u32) -> Fixture {
    let queue = MemoryQueue::new("memory", lease, max_receive).with_max_bytes(LARGEST);
    let dead = queue.clone();
    let letters = move || {
        let letters = dead.dead_letters().into_iter();
        letters.map(|(delivery, why)| Dead { id: delivery.id, body: delivery.body, why }).collect()
    };
    Fixture { queue: Box::new(queue), send_foreign: None, dead_letters: Box::new(letters) }
}

#[test]
fn it_is_a_queue() {
    check(&Harness {
        open: &fixture,
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
