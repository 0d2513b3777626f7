//! The suite that every queue passes, against a real server.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

#[path = "../../../tests/support/brokers.rs"]
mod brokers;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brokers::NatsServer;
use foveate_queue::conformance::{Capability, Dead, Fixture, Harness, check, unknown_settings_are_refused};
use foveate_queue::{DeadLetter, QueueOptions};
use foveate_queue_nats::NatsQueue;

/// What `nats-server` takes unless it is configured.
const MAX_PAYLOAD: usize = 1 << 20;

/// Another client than the queue's, on a runtime of its own.
struct Client {
    runtime: tokio::runtime::Runtime,
    jetstream: async_nats::jetstream::Context,
}

impl Client {
    fn connect(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let connecting = async { async_nats::jetstream::new(async_nats::connect(address).await.unwrap()) };
        let jetstream = runtime.block_on(connecting);
        Self { runtime, jetstream }
    }

    fn send(&self, subject: &str, body: &str) {
        let sent = async { self.jetstream.publish(subject.to_owned(), body.to_owned().into()).await.unwrap().await };
        self.runtime.block_on(sent).unwrap();
    }

    fn dead_letters(&self, stream: &str) -> Vec<Dead> {
        self.runtime.block_on(async {
            let stream = self.jetstream.get_stream(stream).await.unwrap();
            let state = &stream.cached_info().state;
            let mut letters = Vec::new();
            for sequence in state.first_sequence..=state.last_sequence {
                let message = stream.get_raw_message(sequence).await.unwrap();
                let header = |name: &str| message.headers.get(name).map(ToString::to_string).unwrap_or_default();
                let why = DeadLetter { stage: header("Foveate-Stage"), reason: header("Foveate-Reason") };
                letters.push(Dead { id: header("Foveate-Id"), body: message.payload.to_vec(), why });
            }
            letters
        })
    }
}

fn fixture(address: &str, number: u32, lease: Duration, max_receive: u32) -> Fixture {
    let stream = format!("JOBS{number}");
    let options = QueueOptions {
        lease: Some(lease),
        max_receive,
        create: true,
        ..QueueOptions::new(format!("nats://{address}/{stream}"))
    };
    let (sender, reader) = (Client::connect(address), Client::connect(address));
    Fixture {
        queue: Box::new(NatsQueue::open(&options).unwrap()),
        dead_letters: Box::new({
            let dead = format!("{stream}-DEAD");
            move || reader.dead_letters(&dead)
        }),
        send_foreign: Some(Box::new(move |body| sender.send(&stream, body))),
    }
}

#[test]
fn it_is_a_queue() {
    let Some(server) = NatsServer::start() else { return };
    let made = AtomicU32::new(0);
    check(&Harness {
        open: &|lease, max_receive| {
            fixture(&server.address(), made.fetch_add(1, Ordering::Relaxed), lease, max_receive)
        },
        short: Duration::from_millis(1500),
        capability: Capability {
            tells_lost_leases: false,
            tells_lost_acknowledgements: false,
            drops_doubles: true,
            any_bytes: true,
            largest: Some(MAX_PAYLOAD),
        },
    });
}

#[test]
fn settings_that_there_are_not_are_refused() {
    unknown_settings_are_refused("nats://127.0.0.1:1/JOBS", |options| Ok(Box::new(NatsQueue::open(options)?)));
}
