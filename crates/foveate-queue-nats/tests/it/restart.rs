//! The broker is killed while messages are under way, and restarts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foveate_queue::{JobQueue, Message, QueueError, QueueOptions, Sent};
use foveate_queue_nats::NatsQueue;
use foveate_testkit::brokers::NatsServer;
use foveate_testkit::{Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![nothing_is_lost_when_the_broker_is_killed, calls_are_bounded_while_it_is_away,]
}

const MESSAGES: usize = 2000;
/// Longest time of a call while the broker is down.
const BOUND: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);

fn open(server: &NatsServer) -> NatsQueue {
    let options = QueueOptions {
        lease: Some(Duration::from_secs(2)),
        create: true,
        ..QueueOptions::new(format!("nats://{}/JOBS", server.address()))
    };
    NatsQueue::open(&options).unwrap()
}

/// Sends all messages until the broker has stored them.
fn send_all(queue: &dyn JobQueue) {
    for chunk in 0..MESSAGES / 20 {
        let message = |at: usize| Message { id: (chunk * 20 + at).to_string(), body: b"{}".to_vec() };
        let mut left: Vec<_> = (0..20).map(message).collect();
        while !left.is_empty() {
            let results = queue.send(&left);
            assert!(results.iter().flat_map(|result| result.as_ref().err()).all(QueueError::is_transient));
            left = left.into_iter().zip(results).filter(|(_, result)| result.is_err()).map(|(left, _)| left).collect();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Receives and acknowledges until every message was acknowledged; `done` counts the acknowledgements of each.
fn work(queue: &dyn JobQueue, done: &Mutex<BTreeMap<String, u32>>) {
    let give_up = Instant::now() + PATIENCE;
    while done.lock().unwrap().len() < MESSAGES {
        assert!(Instant::now() < give_up, "{} of {MESSAGES} are done", done.lock().unwrap().len());
        let received = match queue.receive(10, Duration::from_millis(500)) {
            Ok(received) => received,
            Err(error) if error.is_transient() => continue,
            Err(error) => panic!("{error}"),
        };
        let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
        for (delivery, result) in received.into_iter().zip(queue.acknowledge(&receipts)) {
            match result {
                Ok(()) => *done.lock().unwrap().entry(delivery.id).or_default() += 1,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    }
}

/// Every kind of call reports within [`BOUND`] that the broker is down.
fn says_that_it_is_away(queue: &dyn JobQueue, receipt: &foveate_queue::Receipt) {
    let receipts = std::slice::from_ref(receipt);
    let message = Message { id: "late".to_owned(), body: b"{}".to_vec() };
    let calls: [(&str, &(dyn Fn() -> Option<QueueError> + Sync)); 5] = [
        ("send", &|| queue.send(std::slice::from_ref(&message)).remove(0).err()),
        ("receive", &|| queue.receive(1, Duration::ZERO).err()),
        ("acknowledge", &|| queue.acknowledge(receipts).remove(0).err()),
        ("release", &|| queue.release(receipts, Duration::ZERO).remove(0).err()),
        ("depth", &|| queue.depth().err()),
    ];
    let is_told = |name: &str, call: &dyn Fn() -> Option<QueueError>| {
        let since = Instant::now();
        let error = call().unwrap();
        assert!(error.is_transient() && error.to_string().starts_with("queue JOBS: the connection"), "{name}: {error}");
        assert!(since.elapsed() < BOUND, "{name} took {:?}", since.elapsed());
    };
    thread::scope(|scope| {
        for (name, call) in calls {
            scope.spawn(move || is_told(name, &call));
        }
    });
}

fn nothing_is_lost_when_the_broker_is_killed() {
    let mut server = NatsServer::start();
    let queues = [open(&server), open(&server), open(&server)];
    let done = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        scope.spawn(|| send_all(&queues[0]));
        for queue in &queues[1..] {
            scope.spawn(|| work(queue, &done));
        }
        for downtime in [Duration::from_millis(200), Duration::from_secs(6)] {
            let enough = done.lock().unwrap().len() + MESSAGES / 4;
            while done.lock().unwrap().len() < enough {
                thread::sleep(Duration::from_millis(5));
            }
            server.kill();
            thread::sleep(downtime);
            server.restart();
        }
    });
    let done = done.into_inner().unwrap();
    let doubles = done.values().filter(|&&times| times > 1).count();
    println!("{} messages, {doubles} of them acknowledged more than once", done.len());
    assert!(doubles < MESSAGES / 10, "{doubles}");
}

fn calls_are_bounded_while_it_is_away() {
    let mut server = NatsServer::start();
    let queue = open(&server);
    let sent = ["a", "b"].map(|id| Message { id: id.to_owned(), body: b"{}".to_vec() });
    assert_eq!(queue.send(&sent), [Ok(Sent::Stored), Ok(Sent::Stored)]);
    let received = queue.receive(1, BOUND).unwrap();
    let is_waiting = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = queue.receive(1, Duration::ZERO).unwrap();
            assert_eq!(queue.acknowledge(&[other[0].receipt.clone()]), [Ok(())]);
            let error = queue.receive(1, PATIENCE).unwrap_err();
            is_waiting.store(false, Ordering::Relaxed);
            assert_eq!(error.to_string(), "queue JOBS: the connection was lost before the answer came");
        });
        thread::sleep(Duration::from_secs(1));
        assert!(is_waiting.load(Ordering::Relaxed));
        server.kill();
        thread::sleep(Duration::from_secs(1));
        assert!(!is_waiting.load(Ordering::Relaxed), "who waits for messages is told at once");
    });
    says_that_it_is_away(&queue, &received[0].receipt);
    server.restart();
    let again = queue.receive(2, PATIENCE).unwrap();
    assert_eq!((again.len(), again[0].id.as_str(), again[0].received), (1, "a", 2));
    assert_eq!(queue.acknowledge(&[again[0].receipt.clone()]), [Ok(())]);
}
