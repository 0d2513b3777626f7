//! The conformance suite against a server that speaks SQS' protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{boto3, options};
use async_trait::async_trait;
use foveate_queue::conformance::{
    Capability, Dead, Fixture, Harness, OtherProgram, check, unknown_settings_are_refused,
};
use foveate_queue::{DeadLetter, QueueOptions};
use foveate_queue_sqs::SqsQueue;
use foveate_testkit::brokers::AwsServer;
use foveate_testkit::{Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![async settings_that_there_are_not_are_refused];
    trials.extend(trials![it_is_a_queue_and_so_is_a_fifo_queue]);
    trials
}

/// The server's largest message.
const LARGEST: usize = 1 << 20;

/// boto3 at a queue.
struct Boto {
    endpoint: String,
    queue: String,
    dead: String,
}

#[async_trait]
impl OtherProgram for Boto {
    async fn send(&self, body: &str, failing_since: Option<&str>) -> bool {
        boto3(&self.endpoint, &[&["send", &self.queue, body], failing_since.as_slice()].concat());
        true
    }

    async fn dead_letters(&self) -> Vec<Dead> {
        let letters = boto3(&self.endpoint, &["read", &self.dead]).into_iter();
        let dead = letters.map(|letter| {
            let attribute = |name: &str| letter["attributes"][name].as_str().unwrap_or_default().to_owned();
            let why = DeadLetter { stage: attribute("stage"), reason: attribute("reason") };
            Dead { id: attribute("foveate-id"), body: letter["body"].as_str().unwrap().into(), why }
        });
        dead.collect()
    }
}

fn conforms(server: &AwsServer, suffix: &str, drops_doubles: bool) {
    let made = AtomicU32::new(0);
    check(&Harness {
        open: async |lease, max_receive| {
            let number = made.fetch_add(1, Ordering::Relaxed);
            let queue = format!("jobs-{number}{suffix}");
            let dead = format!("jobs-{number}-dead{suffix}");
            let options = QueueOptions { lease: Some(lease), max_receive, ..options(server, &queue) };
            let opened = SqsQueue::open(&options).await.unwrap();
            Fixture { queue: Arc::new(opened), outside: Box::new(Boto { endpoint: server.endpoint(), queue, dead }) }
        },
        short: Duration::from_secs(6),
        capability: Capability {
            tells_lost_leases: false,
            tells_lost_acknowledgements: false,
            drops_doubles,
            tells_doubles: false,
            any_bytes: false,
            largest: Some(LARGEST),
        },
    });
}

fn it_is_a_queue_and_so_is_a_fifo_queue() {
    let server = AwsServer::start();
    conforms(&server, "", false);
    conforms(&server, ".fifo", true);
}

async fn settings_that_there_are_not_are_refused() {
    unknown_settings_are_refused("sqs://jobs", SqsQueue::open).await;
}
