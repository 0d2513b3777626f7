//! The conformance suite against a server that speaks SQS' protocol.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{boto3, options};
use foveate_queue::conformance::{Capability, Dead, Fixture, Harness, check, unknown_settings_are_refused};
use foveate_queue::{DeadLetter, QueueOptions};
use foveate_queue_sqs::SqsQueue;
use foveate_testkit::brokers::AwsServer;
use foveate_testkit::{Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![it_is_a_queue_and_so_is_a_fifo_queue, settings_that_there_are_not_are_refused,]
}

/// The server's largest message.
const LARGEST: usize = 1 << 20;

fn dead_letters(endpoint: &str, queue: &str) -> Vec<Dead> {
    let letters = boto3(endpoint, &["read", queue]).into_iter();
    let dead = letters.map(|letter| {
        let attribute = |name: &str| letter["attributes"][name].as_str().unwrap_or_default().to_owned();
        let why = DeadLetter { stage: attribute("stage"), reason: attribute("reason") };
        Dead { id: attribute("foveate-id"), body: letter["body"].as_str().unwrap().into(), why }
    });
    dead.collect()
}

fn fixture(server: &AwsServer, queue: &str, dead: String, lease: Duration, max_receive: u32) -> Fixture {
    let options = QueueOptions { lease: Some(lease), max_receive, ..options(server, queue) };
    let endpoint = server.endpoint();
    Fixture {
        queue: Box::new(SqsQueue::open(&options).unwrap()),
        dead_letters: Box::new({
            let endpoint = endpoint.clone();
            move || dead_letters(&endpoint, &dead)
        }),
        send_foreign: Some(Box::new({
            let queue = queue.to_owned();
            move |body, since| drop(boto3(&endpoint, &[&["send", &queue, body], since.as_slice()].concat()))
        })),
    }
}

fn conforms(server: &AwsServer, suffix: &str, drops_doubles: bool) {
    let made = AtomicU32::new(0);
    check(&Harness {
        open: &|lease, max_receive| {
            let number = made.fetch_add(1, Ordering::Relaxed);
            let (queue, dead) = (format!("jobs-{number}{suffix}"), format!("jobs-{number}-dead{suffix}"));
            fixture(server, &queue, dead, lease, max_receive)
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

fn settings_that_there_are_not_are_refused() {
    unknown_settings_are_refused("sqs://jobs", |options| Ok(Box::new(SqsQueue::open(options)?)));
}
