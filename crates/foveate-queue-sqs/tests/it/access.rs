//! Access control: the errors of refused requests. No error contains a secret.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::options;
use foveate_queue::{JobQueue, Message, QueueError, QueueOptions, Sent};
use foveate_queue_sqs::SqsQueue;
use foveate_testkit::brokers::{AwsServer, free_port};
use foveate_testkit::{Trial, trials};
use tempfile::TempDir;
use tokio::time::sleep;

pub(crate) fn trials() -> Vec<Trial> {
    trials![async
        a_wrong_signature_is_told_without_the_request,
        a_service_that_is_ill_is_transient,
        a_service_without_tls_is_not_waited_for,
        nobody_there_is_transient_and_soon_said,
        credentials_that_are_not_there_are_asked_for,
        what_is_not_there_is_made_only_when_asked,
        bodies_that_sqs_cannot_carry_are_refused_alone,
        a_queue_of_another_account_is_found_by_its_address,
        a_service_that_goes_away_is_transient,
    ]
}

/// Options for the service at `endpoint`, with credentials that must not appear anywhere.
fn secret_options(endpoint: &str) -> (TempDir, QueueOptions) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("credentials");
    let secrets =
        "[default]\naws_access_key_id = AKIASECRET\naws_secret_access_key = geheim\naws_session_token = marke\n";
    std::fs::write(&file, secrets).unwrap();
    let file = file.into_os_string().into_string().unwrap();
    let settings = [("endpoint", endpoint), ("region", "eu-central-1"), ("credentials", &file)];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    (home, QueueOptions { settings, ..QueueOptions::new("sqs://jobs") })
}

#[track_caller]
fn tells_no_secret(error: &QueueError) {
    let said = format!("{error} {error:?}");
    assert!(["AKIASECRET", "geheim", "marke"].iter().all(|secret| !said.contains(secret)), "{said}");
}

/// A service that answers every request with this error, which repeats the request's headers, as Amazon does.
fn refusing(status: u16, code: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 1 << 16];
            let read = stream.read(&mut request).unwrap();
            let told = String::from_utf8_lossy(&request[..read]).to_string();
            let body =
                serde_json::json!({"__type": code, "message": format!("The canonical string was {told}")}).to_string();
            let head =
                format!("HTTP/1.1 {status} X\r\nx-amzn-requestid: 1\r\ncontent-type: application/x-amz-json-1.0\r\n");
            let length = body.len();
            // The client may have disconnected.
            let _ = write!(stream, "{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
        }
    });
    endpoint
}

async fn a_wrong_signature_is_told_without_the_request() {
    let (_home, options) = secret_options(&refusing(403, "SignatureDoesNotMatch"));
    let error = SqsQueue::open(&options).await.unwrap_err();
    tells_no_secret(&error);
    assert_eq!(
        error.to_string(),
        "queue jobs: looking for queue jobs: SignatureDoesNotMatch: check the secret access key, the region and the clock"
    );
}

async fn a_service_that_is_ill_is_transient() {
    let (_home, options) = secret_options(&refusing(503, "ServiceUnavailable"));
    let error = SqsQueue::open(&options).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let (_home, options) = secret_options(&refusing(400, "AccessDenied"));
    let error = SqsQueue::open(&options).await.unwrap_err();
    assert!(matches!(error, QueueError::Refused { .. }), "{error}");
    assert!(error.to_string().starts_with("queue jobs: looking for queue jobs: AccessDenied: "), "{error}");
}

async fn a_service_without_tls_is_not_waited_for() {
    let (_home, options) = secret_options(&refusing(400, "AccessDenied").replace("http:", "https:"));
    let error = SqsQueue::open(&options).await.unwrap_err();
    tells_no_secret(&error);
    assert!(matches!(error, QueueError::Refused { .. }), "{error}");
    assert!(error.to_string().starts_with("queue jobs: looking for queue jobs: no TLS with the service ("), "{error}");
}

async fn nobody_there_is_transient_and_soon_said() {
    let (_home, options) = secret_options(&format!("http://127.0.0.1:{}", free_port()));
    let since = Instant::now();
    let error = SqsQueue::open(&options).await.unwrap_err();
    tells_no_secret(&error);
    assert!(error.is_transient() && error.to_string().starts_with("queue jobs: looking for queue jobs: "), "{error}");
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

async fn credentials_that_are_not_there_are_asked_for() {
    let (home, mut options) = secret_options("http://127.0.0.1:1");
    std::fs::remove_file(home.path().join("credentials")).unwrap();
    let error = SqsQueue::open(&options).await.unwrap_err();
    assert!(matches!(error, QueueError::Refused { .. }), "{error}");
    assert!(
        error.to_string().starts_with("queue jobs: no credentials (")
            && error.to_string().contains("AWS_ACCESS_KEY_ID")
    );

    options.settings.insert("endpoint".to_owned(), "http://AKIASECRET:geheim@host".to_owned());
    let error = SqsQueue::open(&options).await.unwrap_err();
    tells_no_secret(&error);
    assert_eq!(error.to_string(), "setting 'endpoint': credentials do not belong there");
}

async fn what_is_not_there_is_made_only_when_asked() {
    let server = AwsServer::start();
    let asked = options(&server, "jobs");
    let unasked = QueueOptions { create: false, ..asked.clone() };
    let error = SqsQueue::open(&unasked).await.unwrap_err();
    assert_eq!(error.to_string(), "queue jobs: there is no queue jobs for this account and region");
    let made = SqsQueue::open(&QueueOptions { lease: Some(Duration::from_secs(77)), ..asked.clone() }).await.unwrap();
    assert_eq!(made.lease(), Duration::from_secs(77));
    let found = SqsQueue::open(&unasked).await.unwrap();
    assert_eq!((found.lease(), found.name()), (Duration::from_secs(77), "jobs"), "the queue's own");

    let mut elsewhere = unasked;
    elsewhere.settings.insert("dead-letter".to_owned(), "graves".to_owned());
    let error = SqsQueue::open(&elsewhere).await.unwrap_err().to_string();
    assert!(error.starts_with("queue jobs: there is no queue graves"), "{error}");
}

async fn bodies_that_sqs_cannot_carry_are_refused_alone() {
    let server = AwsServer::start();
    let queue = SqsQueue::open(&options(&server, "jobs")).await.unwrap();
    let bodies: [&[u8]; 4] = [b"{}", b"\xff", b"", b"\0"];
    let messages: Vec<_> = bodies.iter().map(|body| Message { id: "a".to_owned(), body: body.to_vec() }).collect();
    let results = queue.send(&messages).await;
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, false]);
    assert_eq!(results[1].clone().unwrap_err().to_string(), "queue jobs: it carries text alone, in UTF-8");
    assert_eq!(queue.receive(10, Duration::from_secs(20)).await.unwrap().len(), 1);
}

async fn a_queue_of_another_account_is_found_by_its_address() {
    let server = AwsServer::start();
    drop(SqsQueue::open(&options(&server, "theirs")).await.unwrap());
    let mut options = options(&server, "jobs");
    options.settings.insert("url".to_owned(), format!("{}/123456789012/theirs", server.endpoint()));
    let queue = SqsQueue::open(&options).await.unwrap();
    assert_eq!(queue.send(&[Message { id: "a".to_owned(), body: b"{}".to_vec() }]).await, [Ok(Sent::Stored)]);
    assert_eq!(queue.receive(1, Duration::from_secs(20)).await.unwrap()[0].id, "a");
}

async fn a_service_that_goes_away_is_transient() {
    let mut server = AwsServer::start();
    let queue = Arc::new(SqsQueue::open(&options(&server, "jobs")).await.unwrap());
    let message = [Message { id: "a".to_owned(), body: b"{}".to_vec() }];
    assert_eq!(queue.send(&message).await, [Ok(Sent::Stored)]);
    let receipts = [queue.receive(1, Duration::from_secs(20)).await.unwrap().remove(0).receipt];
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.receive(1, Duration::from_secs(60)).await }
    });
    sleep(Duration::from_secs(1)).await;
    server.kill();
    let since = Instant::now();
    let results = [
        queue.send(&message).await.remove(0).map(drop),
        queue.acknowledge(&receipts).await.remove(0),
        queue.release(&receipts, Duration::ZERO).await.remove(0),
        queue.depth().await.map(drop),
        waiting.await.unwrap().map(drop),
    ];
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    for result in results {
        let error = result.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}
