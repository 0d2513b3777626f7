//! Another client, boto3, sends jobs, reads dead letters, works on the same queue, and configures it in ways that would
//! lose messages.

use std::time::Duration;

use crate::support::{boto3, options};
use foveate_queue::{DeadLetter, Depth, ImageRef, Job, JobQueue, Message, QueueError, QueueOptions, Sent};
use foveate_queue_sqs::SqsQueue;
use foveate_testkit::brokers::AwsServer;
use foveate_testkit::{Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![async
        other_clients_send_read_and_work,
        a_redrive_policy_must_leave_giving_up_to_workers,
        dead_letters_need_as_much_room_as_messages,
    ]
}

const WAIT: Duration = Duration::from_secs(20);

async fn other_clients_send_read_and_work() {
    let server = AwsServer::start();
    let queue = SqsQueue::open(&options(&server, "jobs")).await.unwrap();
    let body = r#"{"version": 1, "image": {"url": "https://example.com/ż.jpg"}}"#;
    boto3(&server.endpoint(), &["send", "jobs", body]);
    let received = queue.receive(10, WAIT).await.unwrap();
    assert_eq!((received.len(), received[0].id.len()), (1, 36), "SQS' own ids are UUIDs");
    let job = Job::parse(&received[0].body).unwrap();
    assert_eq!(job.input, ImageRef::Url("https://example.com/ż.jpg".to_owned()).into());

    let why = DeadLetter { stage: "decode".to_owned(), reason: "not a\nJPEG: żółw".to_owned() };
    queue.dead_letter(&received[0], &why).await.unwrap();
    let letters = boto3(&server.endpoint(), &["read", "jobs-dead"]);
    let expected = serde_json::json!({
        "attributes": {"foveate-id": received[0].id, "stage": "decode", "reason": "not a JPEG: żółw"},
        "body": body,
    });
    assert_eq!(letters, [expected]);

    let sent = Message { id: "ours".to_owned(), body: body.into() };
    assert_eq!(queue.send(&[sent]).await, [Ok(Sent::Stored)]);
    let taken = boto3(&server.endpoint(), &["take", "jobs"]);
    assert_eq!(taken, [serde_json::json!({"attributes": {"foveate-id": "ours"}, "body": body})]);
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });
}

async fn a_redrive_policy_must_leave_giving_up_to_workers() {
    let server = AwsServer::start();
    drop(SqsQueue::open(&options(&server, "lost")).await.unwrap());
    drop(SqsQueue::open(&options(&server, "jobs")).await.unwrap());
    boto3(&server.endpoint(), &["redrive", "jobs", "lost"]);
    let error = SqsQueue::open(&options(&server, "jobs")).await.unwrap_err();
    assert!(matches!(error, QueueError::Refused { .. }));
    assert_eq!(
        error.to_string(),
        "queue jobs: its redrive policy moves a message away after 6 deliveries (maxReceiveCount), before a worker gives it up after 8, with stage and reason; raise it above 8, or give messages up sooner"
    );
    // Dead letters go to the policy's target.
    let queue = SqsQueue::open(&QueueOptions { max_receive: 2, ..options(&server, "jobs") }).await.unwrap();
    assert_eq!(queue.send(&[Message { id: "a".to_owned(), body: b"{}".to_vec() }]).await, [Ok(Sent::Stored)]);
    let received = queue.receive(1, WAIT).await.unwrap();
    queue.dead_letter(&received[0], &DeadLetter { stage: "s".to_owned(), reason: "r".to_owned() }).await.unwrap();
    assert_eq!(boto3(&server.endpoint(), &["read", "lost"]).len(), 1);
}

async fn dead_letters_need_as_much_room_as_messages() {
    let server = AwsServer::start();
    let options = options(&server, "jobs");
    drop(SqsQueue::open(&options).await.unwrap());
    boto3(&server.endpoint(), &["limit", "jobs-dead", "2048"]);
    let error = SqsQueue::open(&options).await.unwrap_err();
    assert!(matches!(error, QueueError::Refused { .. }));
    assert_eq!(
        error.to_string(),
        "queue jobs: queue jobs-dead takes dead letters of up to 2048 bytes (MaximumMessageSize), but queue jobs takes messages of up to 1048576; raise the one to at least that, or lower the other"
    );
    boto3(&server.endpoint(), &["limit", "jobs", "2048"]);
    let queue = SqsQueue::open(&options).await.unwrap();
    let body = vec![b'x'; 2048 - "foveate-idStringa".len()];
    assert_eq!(queue.send(&[Message { id: "a".to_owned(), body }]).await, [Ok(Sent::Stored)]);
    let received = queue.receive(1, WAIT).await.unwrap();
    let why = DeadLetter { stage: "decode".to_owned(), reason: "no image; ".repeat(100) };
    assert_eq!(queue.dead_letter(&received[0], &why).await, Ok(()));
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });
}
