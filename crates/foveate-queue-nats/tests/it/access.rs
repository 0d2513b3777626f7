//! Access control: the errors of refused connections. No error contains a secret.

use std::process::Command;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use foveate_queue::{JobQueue, Message, QueueError, QueueOptions, Sent};
use foveate_queue_nats::NatsQueue;
use foveate_testkit::brokers::{NatsServer, free_port};
use foveate_testkit::{Resource, Trial, program, trials};

/// Passes a queue's address to a child process: a test cannot change its own environment, but can set a child's.
pub(crate) const ADDRESS: &str = "FOVEATE_TEST_ADDRESS";

pub(crate) fn trials() -> Vec<Trial> {
    trials![async
        nobody_there_is_transient,
        a_server_without_jetstream_is_named_as_such,
        what_is_not_there_is_made_only_when_asked,
        a_consumer_that_would_lose_messages_is_refused,
        a_stream_of_many_subjects_needs_one_to_be_named,
        dead_letters_need_as_much_room_as_messages,
        a_stranger_is_not_let_in_and_no_secret_is_told,
        who_knows_the_password_is_let_in,
        a_server_with_tls_is_spoken_to_with_tls,
    ]
}

fn options(address: &str, settings: &[(&str, &str)]) -> QueueOptions {
    QueueOptions {
        create: true,
        settings: settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        ..QueueOptions::new(format!("nats://{address}/JOBS"))
    }
}

async fn refused(options: &QueueOptions) -> String {
    match NatsQueue::open(options).await.unwrap_err() {
        error @ (QueueError::Refused { .. } | QueueError::Absent { .. } | QueueError::Lease(_)) => error.to_string(),
        other => panic!("not QueueError::Refused: {other}"),
    }
}

/// Another client, which makes things on the server as its own tools would.
async fn jetstream(server: &NatsServer) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.address()).await.unwrap())
}

async fn nobody_there_is_transient() {
    let address = format!("127.0.0.1:{}", free_port());
    let error = NatsQueue::open(&options(&address, &[])).await.unwrap_err();
    assert!(error.is_transient());
    assert!(error.to_string().starts_with(&format!("queue JOBS: cannot connect to {address}: ")), "{error}");
}

async fn a_server_without_jetstream_is_named_as_such() {
    let server = NatsServer::start_with(&[]);
    let reason = refused(&options(&server.address(), &[])).await;
    assert_eq!(reason, "queue JOBS: there is no JetStream on this server; start it with --jetstream");
}

async fn what_is_not_there_is_made_only_when_asked() {
    let server = NatsServer::start();
    let asked = options(&server.address(), &[]);
    let unasked = QueueOptions { create: false, ..asked.clone() };
    let missing = |what| format!("queue JOBS: there is no {what}");
    assert_eq!(refused(&unasked).await, missing("stream JOBS"));
    drop(NatsQueue::open(&asked).await.unwrap());
    let queue = NatsQueue::open(&unasked).await.unwrap();
    assert_eq!((queue.lease(), queue.max_receive()), (Duration::from_secs(30), QueueOptions::DEFAULT_MAX_RECEIVE));

    let jetstream = jetstream(&server).await;
    jetstream.get_stream("JOBS").await.unwrap().delete_consumer("foveate").await.unwrap();
    assert_eq!(refused(&unasked).await, missing("consumer foveate"));
    assert!(jetstream.delete_stream("JOBS-DEAD").await.unwrap().success);
    assert_eq!(refused(&unasked).await, missing("stream JOBS-DEAD"));
}

async fn a_consumer_that_would_lose_messages_is_refused() {
    let server = NatsServer::start();
    let asked = options(&server.address(), &[]);
    drop(NatsQueue::open(&asked).await.unwrap());
    let other_lease = QueueOptions { lease: Some(Duration::from_secs(7)), ..asked.clone() };
    assert_eq!(refused(&other_lease).await, "queue JOBS: consumer foveate: its lease (AckWait) is 30s, not 7s");

    let jetstream = jetstream(&server).await;
    let durable = pull::Config { durable_name: Some("foveate".to_owned()), ..pull::Config::default() };
    let stream = jetstream.get_stream("JOBS").await.unwrap();
    stream.delete_consumer("foveate").await.unwrap();
    stream.create_consumer(pull::Config { max_deliver: 5, ..durable.clone() }).await.unwrap();
    assert_eq!(
        refused(&asked).await,
        "queue JOBS: consumer foveate: it stops delivering a message after 5 times (MaxDeliver), before a worker gives it up after 8, so that it would stay forever; raise it above 8, or better to -1"
    );
    assert!(NatsQueue::open(&QueueOptions { max_receive: 1, ..asked.clone() }).await.is_ok());
    let config = jetstream::stream::Config { name: "SEEN".to_owned(), ..jetstream::stream::Config::default() };
    let stream = jetstream.create_stream(config).await.unwrap();
    stream.create_consumer(pull::Config { ack_policy: AckPolicy::None, ..durable }).await.unwrap();
    let seen = QueueOptions { address: format!("nats://{}/SEEN", server.address()), ..asked };
    assert_eq!(
        refused(&seen).await,
        "queue SEEN: consumer foveate: it does not ask for explicit acknowledgements (AckExplicit)"
    );
}

async fn a_stream_of_many_subjects_needs_one_to_be_named() {
    let server = NatsServer::start();
    let subjects = vec!["jobs.>".to_owned(), "more".to_owned()];
    let config = jetstream::stream::Config { name: "JOBS".to_owned(), subjects, ..Default::default() };
    jetstream(&server).await.create_stream(config).await.unwrap();
    let error = NatsQueue::open(&options(&server.address(), &[])).await.unwrap_err();
    assert!(matches!(error, QueueError::Options(_)));
    assert!(error.to_string().starts_with("stream JOBS listens to jobs.>, more: say where messages are sent to"));

    let message = [Message { id: "a".to_owned(), body: b"{}".to_vec() }];
    let named = NatsQueue::open(&options(&server.address(), &[("subject", "jobs.photos")])).await.unwrap();
    assert_eq!(named.send(&message).await, [Ok(Sent::Stored)]);
    assert_eq!(named.receive(1, Duration::from_secs(5)).await.unwrap()[0].id, "a");
    let elsewhere = NatsQueue::open(&options(&server.address(), &[("subject", "sounds")])).await.unwrap();
    let error = elsewhere.send(&message).await[0].clone().unwrap_err();
    assert_eq!(error.to_string(), "queue JOBS: stream JOBS does not exist any more, or does not take subject sounds");
    assert!(!error.is_transient());
}

async fn dead_letters_need_as_much_room_as_messages() {
    let server = NatsServer::start();
    let jetstream = jetstream(&server).await;
    let limit = async |name: &str, max_message_size| {
        let subjects = vec![name.to_owned()];
        let config =
            jetstream::stream::Config { name: name.to_owned(), subjects, max_message_size, ..Default::default() };
        jetstream.create_or_update_stream(config).await.unwrap();
    };
    limit("JOBS", -1).await;
    limit("JOBS-DEAD", 2000).await;
    let asked = options(&server.address(), &[]);
    assert_eq!(
        refused(&asked).await,
        "queue JOBS: stream JOBS-DEAD takes dead letters of up to 2000 bytes (MaxMsgSize), but stream JOBS takes messages of up to 1048576; raise the one to at least that, or lower the other"
    );
    // Streams without a limit of their own, and one whose limit is above the server's.
    for (jobs, dead) in [(2000, 2000), (2000, -1), (-1, -1), (2 << 20, 1 << 20)] {
        limit("JOBS", jobs).await;
        limit("JOBS-DEAD", dead).await;
        NatsQueue::open(&asked).await.unwrap();
    }
}

async fn a_stranger_is_not_let_in_and_no_secret_is_told() {
    let server = NatsServer::start_with(&["--jetstream", "--user", "u", "--pass", "geheim"]);
    let address = server.address();
    let expected = format!(
        "queue JOBS: {address} refuses the login; check NATS_USER and NATS_PASSWORD, NATS_TOKEN or the credentials file"
    );
    assert_eq!(refused(&options(&address, &[])).await, expected);
    let in_address = NatsQueue::open(&options(&format!("u:geheim@{address}"), &[])).await.unwrap_err().to_string();
    assert!(in_address.contains("NATS_PASSWORD") && !in_address.contains("geheim"), "{in_address}");
    let file = NatsQueue::open(&options(&address, &[("credentials", "/nowhere.creds")])).await.unwrap_err();
    assert!(file.to_string().starts_with("credentials /nowhere.creds: "), "{file}");
}

pub(crate) async fn open_and_say(address: &str) {
    match NatsQueue::open(&options(address, &[])).await {
        Ok(queue) => println!("name: {} debug: {queue:?}", queue.name()),
        Err(error) => println!("error: {error} {error:?}"),
    }
}

async fn who_knows_the_password_is_let_in() {
    let server = NatsServer::start_with(&["--jetstream", "--user", "u", "--pass", "geheim"]);
    let child = |password: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ADDRESS, server.address()).env("NATS_USER", "u").env("NATS_PASSWORD", password);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains(password), "{said}");
        said
    };
    assert!(child("geheim").contains("name: JOBS"), "{}", child("geheim"));
    assert!(child("falsch").contains("refuses the login"), "{}", child("falsch"));
}

async fn a_server_with_tls_is_spoken_to_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let mut openssl = program(Resource::Openssl, "openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]).arg("-out").arg(&cert).arg("-keyout").arg(&key);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let arguments = ["--jetstream", "--tls", "--tlscert", cert, "--tlskey", key];
    let server = NatsServer::start_with(&arguments);
    let address = server.address();
    let reason = refused(&options(&address, &[])).await;
    assert!(reason.starts_with(&format!("queue JOBS: no TLS with {address} (")), "{reason}");
    for settings in [&[("ca", cert)][..], &[("ca", cert), ("tls", "required")]] {
        assert!(NatsQueue::open(&options(&address, settings)).await.unwrap().depth().await.is_ok());
    }

    let plain = NatsServer::start();
    let reason = refused(&options(&plain.address(), &[("tls", "required")])).await;
    assert!(reason.starts_with(&format!("queue JOBS: no TLS with {}", plain.address())), "{reason}");
}
