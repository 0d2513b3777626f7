//! Another client, nats-py, sends jobs, reads dead letters, and works on the same queue.

use std::time::Duration;

use foveate_queue::{DeadLetter, Depth, ImageRef, Job, JobQueue, Message, QueueOptions, Sent};
use foveate_queue_nats::NatsQueue;
use foveate_testkit::brokers::{NatsServer, printed};
use foveate_testkit::{Trial, python, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![async other_clients_send_read_and_work]
}

/// The output of a step of the script.
fn other(server: &NatsServer, step: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.py");
    printed(python(&["nats"]).args([script, &server.address(), step]))
}

async fn other_clients_send_read_and_work() {
    let server = NatsServer::start();
    let options = QueueOptions { create: true, ..QueueOptions::new(format!("nats://{}/JOBS", server.address())) };
    let queue = NatsQueue::open(&options).await.unwrap();

    other(&server, "send");
    let received = queue.receive(10, Duration::from_secs(5)).await.unwrap();
    let [named, nameless] = &received[..] else { panic!("the second 'named' was not dropped: {received:?}") };
    assert_eq!(named.id, "named");
    assert!(nameless.id.starts_with("JOBS:2:"), "{}", nameless.id);
    let job = Job::parse(&received[1].body).unwrap();
    assert_eq!(job.input, ImageRef::Url("https://example.com/nameless.jpg".to_owned()).into());

    let why = DeadLetter { stage: "decode".to_owned(), reason: "not a\nJPEG: żółw".to_owned() };
    for delivery in &received {
        queue.dead_letter(delivery, &why).await.unwrap();
    }
    let letters = other(&server, "dead");
    let letters: Vec<&str> = letters.lines().collect();
    assert_eq!(letters.len(), 2);
    for (letter, name) in letters.iter().zip(["named", "nameless"]) {
        assert!(letter.contains(r#""Foveate-Stage": "decode""#), "{letter}");
        assert!(letter.contains(r#""Foveate-Reason": "not a JPEG: \u017c\u00f3\u0142w""#), "{letter}");
        assert!(letter.contains(&format!("https://example.com/{name}.jpg")), "{letter}");
    }
    for (letter, delivery) in letters.iter().zip(&received) {
        assert!(letter.contains(&format!(r#""Foveate-Id": "{}""#, delivery.id)), "{letter}");
    }

    let sent = Message { id: "ours".to_owned(), body: br#"{"version": 1}"#.to_vec() };
    assert_eq!(queue.send(&[sent]).await, [Ok(Sent::Stored)]);
    let taken = other(&server, "take");
    assert!(taken.contains(r#""Nats-Msg-Id": "ours""#) && taken.contains(r#""body": {"version": 1}"#), "{taken}");
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, leased: 0, dead: 2 });
}
