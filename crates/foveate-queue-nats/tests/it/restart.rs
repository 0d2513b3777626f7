//! The broker is killed while messages are under way, and restarts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_queue::{JobQueue, Message, QueueError, QueueOptions, Sent};
use foveate_queue_nats::NatsQueue;
use foveate_testkit::brokers::NatsServer;
use foveate_testkit::{Trial, trials};
use tokio::time::sleep;

pub(crate) fn trials() -> Vec<Trial> {
    trials![async nothing_is_lost_when_the_broker_is_killed, calls_are_bounded_while_it_is_away,]
}

const MESSAGES: usize = 2000;
/// Longest time of a call while the broker is down.
const BOUND: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);

async fn open(server: &NatsServer) -> NatsQueue {
    let options = QueueOptions {
        lease: Some(Duration::from_secs(2)),
        create: true,
        ..QueueOptions::new(format!("nats://{}/JOBS", server.address()))
    };
    NatsQueue::open(&options).await.unwrap()
}

/// Sends all messages until the broker has stored them.
async fn send_all(queue: &dyn JobQueue) {
    for chunk in 0..MESSAGES / 20 {
        let message = |at: usize| Message { id: (chunk * 20 + at).to_string(), body: b"{}".to_vec() };
        let mut left: Vec<_> = (0..20).map(message).collect();
        while !left.is_empty() {
            let results = queue.send(&left).await;
            assert!(results.iter().flat_map(|result| result.as_ref().err()).all(QueueError::is_transient));
            left = left.into_iter().zip(results).filter(|(_, result)| result.is_err()).map(|(left, _)| left).collect();
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Receives and acknowledges until every message was acknowledged; `done` counts the acknowledgements of each.
async fn work(queue: &dyn JobQueue, done: &Mutex<BTreeMap<String, u32>>) {
    let give_up = Instant::now() + PATIENCE;
    while done.lock().unwrap().len() < MESSAGES {
        assert!(Instant::now() < give_up, "{} of {MESSAGES} are done", done.lock().unwrap().len());
        let received = match queue.receive(10, Duration::from_millis(500)).await {
            Ok(received) => received,
            Err(error) if error.is_transient() => continue,
            Err(error) => panic!("{error}"),
        };
        let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
        for (delivery, result) in received.into_iter().zip(queue.acknowledge(&receipts).await) {
            match result {
                Ok(()) => *done.lock().unwrap().entry(delivery.id).or_default() += 1,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    }
}

/// Every kind of call reports within [`BOUND`] that the broker is down.
async fn says_that_it_is_away(queue: &dyn JobQueue, receipt: &foveate_queue::Receipt) {
    let receipts = std::slice::from_ref(receipt);
    let message = [Message { id: "late".to_owned(), body: b"{}".to_vec() }];
    tokio::join!(
        is_told("send", async { queue.send(&message).await.remove(0).err() }),
        is_told("receive", async { queue.receive(1, Duration::ZERO).await.err() }),
        is_told("acknowledge", async { queue.acknowledge(receipts).await.remove(0).err() }),
        is_told("release", async { queue.release(receipts, Duration::ZERO).await.remove(0).err() }),
        is_told("depth", async { queue.depth().await.err() }),
    );
}

async fn is_told(name: &str, call: impl Future<Output = Option<QueueError>>) {
    let since = Instant::now();
    let error = call.await.unwrap();
    assert!(error.is_transient() && error.to_string().starts_with("queue JOBS: the connection"), "{name}: {error}");
    assert!(since.elapsed() < BOUND, "{name} took {:?}", since.elapsed());
}

async fn nothing_is_lost_when_the_broker_is_killed() {
    let mut server = NatsServer::start();
    let queues = [open(&server).await, open(&server).await, open(&server).await];
    let done = Mutex::new(BTreeMap::new());
    let outages = async {
        for downtime in [Duration::from_millis(200), Duration::from_secs(6)] {
            let enough = done.lock().unwrap().len() + MESSAGES / 4;
            while done.lock().unwrap().len() < enough {
                sleep(Duration::from_millis(5)).await;
            }
            server.kill();
            sleep(downtime).await;
            server.restart();
        }
    };
    tokio::join!(send_all(&queues[0]), work(&queues[1], &done), work(&queues[2], &done), outages);
    let done = done.into_inner().unwrap();
    let doubles = done.values().filter(|&&times| times > 1).count();
    println!("{} messages, {doubles} of them acknowledged more than once", done.len());
    assert!(doubles < MESSAGES / 10, "{doubles}");
}

async fn calls_are_bounded_while_it_is_away() {
    let mut server = NatsServer::start();
    let queue = Arc::new(open(&server).await);
    let sent = ["a", "b"].map(|id| Message { id: id.to_owned(), body: b"{}".to_vec() });
    assert_eq!(queue.send(&sent).await, [Ok(Sent::Stored), Ok(Sent::Stored)]);
    let received = queue.receive(1, BOUND).await.unwrap();
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move {
            let other = queue.receive(1, Duration::ZERO).await.unwrap();
            assert_eq!(queue.acknowledge(&[other[0].receipt.clone()]).await, [Ok(())]);
            queue.receive(1, PATIENCE).await.unwrap_err()
        }
    });
    sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    server.kill();
    sleep(Duration::from_secs(1)).await;
    assert!(waiting.is_finished(), "who waits for messages is told at once");
    let error = waiting.await.unwrap();
    assert_eq!(error.to_string(), "queue JOBS: the connection was lost before the answer came");
    says_that_it_is_away(&*queue, &received[0].receipt).await;
    server.restart();
    let again = queue.receive(2, PATIENCE).await.unwrap();
    assert_eq!((again.len(), again[0].id.as_str(), again[0].received), (1, "a", 2));
    assert_eq!(queue.acknowledge(&[again[0].receipt.clone()]).await, [Ok(())]);
}
