//! Requests with a callback, and a slow queue.
#![allow(clippy::unwrap_used)] // test helpers may panic

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use foveate_queue::{
    Buried, DeadLetter, Delivery, Depth, Fate, Job, JobQueue, MemoryQueue, Message, QueueError, Receipt, Sent,
};
use foveate_worker::Probe;
use serde_json::{Value, json};
use support::{Answer, Gate, get, post, post_with, receive, request, send, serve, until};

/// Accepts messages while its gate is open.
struct Slow {
    queue: MemoryQueue,
    gate: Gate,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Self { queue: memory(), gate: Gate::default() })
    }
}

impl JobQueue for Slow {
    fn name(&self) -> &str {
        self.queue.name()
    }
    fn lease(&self) -> Duration {
        self.queue.lease()
    }
    fn max_receive(&self) -> u32 {
        self.queue.max_receive()
    }
    fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        self.gate.wait();
        self.queue.send(messages)
    }
    fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        self.queue.receive(max, wait)
    }
    fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.queue.acknowledge(receipts)
    }
    fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.queue.extend(receipts)
    }
    fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        self.queue.release(receipts, delay)
    }
    fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        self.queue.renew(delivery, delay)
    }
    fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        self.queue.dead_letter(delivery, why)
    }
    fn review(&self, judge: &mut dyn FnMut(&Buried) -> Fate) -> Result<(), QueueError> {
        self.queue.review(judge)
    }
    fn depth(&self) -> Result<Depth, QueueError> {
        self.queue.depth()
    }
}

fn memory() -> MemoryQueue {
    MemoryQueue::new("jobs", Duration::from_secs(30), 3)
}

/// A request for `images` images, with `kib` KiB of metadata.
fn asking(images: usize, kib: usize) -> Value {
    json!({
        "input": vec!["https://example.com/a.jpg"; images],
        "callback": {"url": "https://example.com/done"}, "metadata": "x".repeat(kib << 10),
    })
}

fn request_of(body: &Value) -> Vec<u8> {
    request("POST /v1/embeddings", "content-type: application/json\r\n", body.to_string().as_bytes())
}

/// Claimed bytes.
fn taken(address: SocketAddr) -> u64 {
    let metrics = get(address, "/metrics").body;
    metrics.lines().find_map(|line| line.strip_prefix("foveate_http_uploads_bytes ")).unwrap().parse().unwrap()
}

#[test]
fn each_copy_of_the_metadata_counts_until_the_queue_has_answered() {
    let queue = Slow::new();
    let fixture = serve(8, |_, api| {
        (api.max_body_bytes, api.max_bytes_in_hand) = (64 << 10, 192 << 10);
        api.timeout = Duration::from_millis(300);
        api.queue = Some(queue.clone());
    });
    let late = post(fixture.address, &asking(3, 40));
    assert_eq!((late.status, late.header("retry-after")), (504, Some("1")), "{late:?}");
    assert!(taken(fixture.address) >= 120 << 10, "the queue still has them");
    let full = post(fixture.address, &asking(3, 30));
    assert_eq!((full.status, full.header("retry-after")), (429, Some("1")), "{full:?}");
    let never = post(fixture.address, &asking(8, 28));
    assert_eq!(never.status, 422, "{never:?}");
    assert!(never.json()["detail"].as_str().unwrap().ends_with(" bytes together; there may be 196608"), "{never:?}");
    queue.gate.open();
    until("the room is free again", || taken(fixture.address) == 0);
    assert_eq!(post(fixture.address, &asking(3, 30)).status, 202);
}

#[test]
fn requests_beyond_those_that_are_being_queued_are_429() {
    const MOST: usize = 32;
    let queue = Slow::new();
    let fixture = serve(8, |_, api| api.queue = Some(queue.clone()));
    let held: Vec<_> = (0..MOST).map(|_| send(fixture.address, &request_of(&asking(1, 0)))).collect();
    until("they are being queued", || queue.gate.came.load(SeqCst) == MOST);
    let full = post(fixture.address, &asking(1, 0));
    assert_eq!((full.status, full.header("retry-after")), (429, Some("1")), "{full:?}");
    assert_eq!(full.json()["detail"], "as many requests are being queued as there may be");
    assert_eq!(get(fixture.address, "/healthz").status, 200, "others are answered");
    queue.gate.open();
    for stream in held {
        assert_eq!(Answer::parse(&receive(stream)).status, 202);
    }
    assert_eq!(queue.depth().unwrap().waiting, MOST as u64);
    assert_eq!(post(fixture.address, &asking(1, 0)).status, 202, "there is a place again");
}

/// A callback check that blocks until its gate is open.
struct Pensive(Arc<Gate>);

impl Probe for Pensive {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }
    fn ready(&self) -> Result<(), String> {
        self.0.wait();
        Ok(())
    }
    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }
}

#[test]
fn what_nobody_waits_for_any_more_is_not_queued() {
    // As many waiting threads as a server has: the requests to be queued come after them.
    const THREADS: usize = 64;
    let (queue, gate) = (Arc::new(memory()), Arc::new(Gate::default()));
    let fixture = serve(8, |options, api| {
        options.probe = Arc::new(Pensive(gate.clone()));
        api.timeout = Duration::from_millis(300);
        api.queue = Some(queue.clone());
    });
    let waiting: Vec<_> = (0..THREADS).map(|_| send(fixture.address, &request("GET /readyz", "", b""))).collect();
    until("the threads wait", || gate.came.load(SeqCst) == THREADS);
    let late = post(fixture.address, &asking(2, 1));
    assert_eq!(late.status, 504, "{late:?}");
    gate.open();
    for stream in waiting {
        assert_eq!(Answer::parse(&receive(stream)).status, 200);
    }
    until("the room is free again", || taken(fixture.address) == 0);
    assert_eq!(queue.depth().unwrap().waiting, 0);
}

#[test]
fn clients_that_choose_one_key_do_not_get_in_each_others_way() {
    let queue = Arc::new(memory());
    let fixture = serve(8, |_, api| {
        api.queue = Some(queue.clone());
        api.tokens = vec!["one".to_owned(), "other".to_owned()];
    });
    for client in ["one", "other", "one"] {
        let headers =
            format!("content-type: application/json\r\nidempotency-key: order-7\r\nauthorization: Bearer {client}\r\n");
        let answer = post_with(fixture.address, &headers, asking(2, 0).to_string().as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        let answer = answer.json();
        assert_eq!((&answer["id"], &answer["data"][1]["id"]), (&json!("order-7"), &json!("order-7-1")));
    }
    let delivered = queue.receive(10, Duration::ZERO).unwrap();
    let ids: Vec<&str> = delivered.iter().map(|delivery| delivery.id.as_str()).collect();
    let [one_0, one_1, other_0, other_1, again_0, again_1] = ids[..] else { panic!("{ids:?}") };
    assert_eq!((one_0, one_1), (again_0, again_1), "what one client sends again is known again");
    assert!(one_0 != one_1 && other_0 != other_1 && one_0 != other_0 && one_1 != other_1, "{ids:?}");
    assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())), "{ids:?}");
    let jobs: Vec<_> = delivered.iter().map(|delivery| Job::parse(&delivery.body).unwrap()).collect();
    let keys: Vec<_> = jobs.iter().map(|job| job.idempotency_key.as_deref().unwrap()).collect();
    assert_eq!(keys, ids, "a receiver of both can tell them apart, too");
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.id.unwrap()).collect();
    assert_eq!(jobs, ["order-7-0", "order-7-1", "order-7-0", "order-7-1", "order-7-0", "order-7-1"]);
}
