//! The conformance suite against a real server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use async_trait::async_trait;
use foveate_queue::conformance::{
    Capability, Dead, Fixture, Harness, OtherProgram, check, unknown_settings_are_refused,
};
use foveate_queue::{DeadLetter, Depth, JobQueue, Message, QueueOptions};
use foveate_queue_nats::NatsQueue;
use foveate_testkit::brokers::NatsServer;
use foveate_testkit::{Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![async
        settings_that_there_are_not_are_refused,
        a_body_that_leaves_no_room_loses_its_end,
        one_request_takes_no_more_bytes_than_a_worker_has_room_for,
        a_stream_that_is_made_anew_has_other_messages,
    ];
    trials.extend(trials![it_is_a_queue]);
    trials
}

/// The largest message of an unconfigured `nats-server`.
const MAX_PAYLOAD: usize = 1 << 20;

/// Another client than the queue's.
struct NatsClient {
    jetstream: Context,
    stream: String,
}

impl NatsClient {
    async fn connect(address: &str, stream: impl Into<String>) -> Self {
        let jetstream = async_nats::jetstream::new(async_nats::connect(address).await.unwrap());
        Self { jetstream, stream: stream.into() }
    }

    async fn dead(&self) -> Stream {
        self.jetstream.get_stream(format!("{}-DEAD", self.stream)).await.unwrap()
    }
}

#[async_trait]
impl OtherProgram for NatsClient {
    async fn send(&self, body: &str, failing_since: Option<&str>) -> bool {
        let mut message = PublishMessage::build().payload(body.to_owned().into());
        if let Some(text) = failing_since {
            message = message.header("Foveate-Failing-Since", text);
        }
        self.jetstream.send_publish(self.stream.clone(), message).await.unwrap().await.unwrap();
        true
    }

    async fn dead_letters(&self) -> Vec<Dead> {
        let stream = self.dead().await;
        let state = &stream.cached_info().state;
        let mut letters = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let header = |name: &str| message.headers.get(name).map(ToString::to_string).unwrap_or_default();
            let why = DeadLetter { stage: header("Foveate-Stage"), reason: header("Foveate-Reason") };
            letters.push(Dead { id: header("Foveate-Id"), body: message.payload.to_vec(), why });
        }
        letters
    }
}

async fn fixture(address: &str, number: u32, lease: Duration, max_receive: u32) -> Fixture {
    let stream = format!("JOBS{number}");
    let options = QueueOptions {
        lease: Some(lease),
        max_receive,
        create: true,
        ..QueueOptions::new(format!("nats://{address}/{stream}"))
    };
    Fixture {
        queue: Arc::new(NatsQueue::open(&options).await.unwrap()),
        outside: Box::new(NatsClient::connect(address, stream).await),
    }
}

fn it_is_a_queue() {
    let server = NatsServer::start();
    let made = AtomicU32::new(0);
    check(&Harness {
        open: async |lease, max_receive| {
            fixture(&server.address(), made.fetch_add(1, Ordering::Relaxed), lease, max_receive).await
        },
        short: Duration::from_millis(1500),
        capability: Capability {
            tells_lost_leases: false,
            tells_lost_acknowledgements: false,
            drops_doubles: true,
            tells_doubles: true,
            any_bytes: true,
            largest: Some(MAX_PAYLOAD),
        },
    });
}

async fn settings_that_there_are_not_are_refused() {
    unknown_settings_are_refused("nats://127.0.0.1:1/JOBS", NatsQueue::open).await;
}

async fn a_body_that_leaves_no_room_loses_its_end() {
    let server = NatsServer::start();
    let address = server.address();
    let options = QueueOptions { create: true, ..QueueOptions::new(format!("nats://{address}/JOBS")) };
    let queue = NatsQueue::open(&options).await.unwrap();
    let client = NatsClient::connect(&address, "JOBS").await;
    // Sent without a header, so that the message has no room for any.
    let body: String = "0123456789abcdef".repeat(MAX_PAYLOAD / 16);
    client.send(&body, None).await;
    let delivery = queue.receive(1, Duration::from_secs(20)).await.unwrap().remove(0);
    let why = DeadLetter { stage: "decode".to_owned(), reason: "no image; ".repeat(99) + "none" };
    queue.dead_letter(&delivery, &why).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });

    let letter = client.dead_letters().await.remove(0);
    assert_eq!((&letter.id, letter.why), (&delivery.key, why));
    assert!(
        body.as_bytes().starts_with(&letter.body) && letter.body.len() > MAX_PAYLOAD - 2000,
        "{}",
        letter.body.len()
    );
    let headers = client.dead().await.get_raw_message(1).await.unwrap().headers;
    assert_eq!(headers.get("Foveate-Body-Bytes").map(ToString::to_string), Some(MAX_PAYLOAD.to_string()));
}

async fn one_request_takes_no_more_bytes_than_a_worker_has_room_for() {
    const MESSAGES: usize = 40;
    const MOST: usize = 32 << 20;
    let server = NatsServer::start();
    let options = QueueOptions { create: true, ..QueueOptions::new(format!("nats://{}/JOBS", server.address())) };
    let queue = NatsQueue::open(&options).await.unwrap();
    let body = vec![b'x'; MAX_PAYLOAD - 100];
    let messages: Vec<_> = (0..MESSAGES).map(|id| Message { id: id.to_string(), body: body.clone() }).collect();
    assert!(queue.send(&messages).await.iter().all(Result::is_ok));
    let mut ids = BTreeSet::new();
    while ids.len() < MESSAGES {
        let received = queue.receive(1000, Duration::from_secs(20)).await.unwrap();
        let bytes: usize = received.iter().map(|delivery| delivery.body.len()).sum();
        assert!((1..=MOST).contains(&bytes), "{bytes} bytes at once");
        assert!(received.into_iter().all(|delivery| ids.insert(delivery.id)));
    }
}

async fn a_stream_that_is_made_anew_has_other_messages() {
    let server = NatsServer::start();
    let address = server.address();
    let options = QueueOptions { create: true, ..QueueOptions::new(format!("nats://{address}/JOBS")) };
    let client = NatsClient::connect(&address, "JOBS").await;
    let why = DeadLetter { stage: "decode".to_owned(), reason: "no image".to_owned() };
    let mut names = Vec::new();
    for body in ["{}", "[]"] {
        let queue = NatsQueue::open(&options).await.unwrap();
        client.send(body, None).await;
        let delivery = queue.receive(1, Duration::from_secs(20)).await.unwrap().remove(0);
        queue.dead_letter(&delivery, &why).await.unwrap();
        client.jetstream.delete_stream("JOBS").await.unwrap();
        assert!(delivery.id.starts_with("JOBS:1:"), "{}", delivery.id);
        names.push((delivery.id, delivery.key));
    }
    assert!(names[0].0 != names[1].0 && names[0].1 != names[1].1, "{names:?}");
    let bodies: Vec<_> = client.dead_letters().await.into_iter().map(|letter| letter.body).collect();
    assert_eq!(bodies, [b"{}", b"[]"], "neither is taken for the other");
}
