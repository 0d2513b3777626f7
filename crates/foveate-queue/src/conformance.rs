//! The test suite that every queue passes, for any broker. It panics with the expectation that failed.
//!
//! A backend's test calls [`check`] with a [`Harness`].

#![expect(clippy::unwrap_used, reason = "a suite of tests: what goes wrong must panic")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::{
    Buried, DeadLetter, Delivery, Depth, Fate, ImageRef, Job, JobQueue, Message, QueueError, QueueOptions, Receipt,
    Sent,
};

/// A kind of queue under test.
pub struct Harness<F> {
    /// Makes a queue that never had a message, with this lease and `max_receive`.
    pub open: F,
    /// A lease that is short enough to wait for, and long enough for a few calls on a busy machine. The suite uses it
    /// as a delay, too.
    pub short: Duration,
    /// The capabilities of the broker.
    pub capability: Capability,
}

/// One queue, and access to it from outside.
pub struct Fixture {
    /// The queue.
    pub queue: Arc<dyn JobQueue>,
    /// Access without the queue's own code, if possible.
    pub outside: Box<dyn OtherProgram>,
}

/// Another program at the queue.
#[async_trait]
pub trait OtherProgram: Sync {
    /// Sends a body without an id, perhaps with this text as the time since when it fails. Returns false, and sends
    /// nothing, if the broker requires an id.
    async fn send(&self, _body: &str, _failing_since: Option<&str>) -> bool {
        false
    }

    /// Reads the queue's dead letters.
    async fn dead_letters(&self) -> Vec<Dead>;
}

/// A dead letter as another program reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The message's id.
    pub id: String,
    /// Its body.
    pub body: Vec<u8>,
    /// The stage at which it failed, and the reason.
    pub why: DeadLetter,
}

/// A broker's capabilities, which the suite checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capability {
    /// [`JobQueue::extend`] and [`JobQueue::release`] report a lost lease.
    pub tells_lost_leases: bool,
    /// [`JobQueue::acknowledge`] and [`JobQueue::dead_letter`] report a lost lease, too.
    pub tells_lost_acknowledgements: bool,
    /// The broker drops the second of two messages with the same id.
    pub drops_doubles: bool,
    /// [`JobQueue::send`] reports these as [`Sent::Duplicate`].
    pub tells_doubles: bool,
    /// Bodies may be any bytes, not only text.
    pub any_bytes: bool,
    /// Most bytes of a message, id included.
    pub largest: Option<usize>,
}

/// A lease that outlives every check.
const LONG: Duration = Duration::from_secs(120);
/// Longest wait for an expected event; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(20);
/// The delay of a copy.
const DELAY: Duration = Duration::from_secs(1);
/// The tolerance for a message that comes back before its delay: the clocks differ.
const EARLY: Duration = Duration::from_millis(100);
/// More messages than any broker takes in one request.
const MANY: usize = 57;

/// The checks by name, each as a function of the harness.
macro_rules! checks {
    ($($name:ident,)*) => {
        [$((stringify!($name), |harness| Box::pin(Harness::$name(harness)))),*]
    };
}

type Check<F> = for<'a> fn(&'a Harness<F>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs the whole suite. The checks run concurrently on one runtime, each on a queue of its own.
pub fn check<F: AsyncFn(Duration, u32) -> Fixture + Sync>(harness: &Harness<F>) {
    let checks: [(&str, Check<F>); 23] = checks![
        messages_arrive_and_go_for_good,
        batches_have_any_size,
        nothing_is_asked_for,
        foreign_messages_get_an_id_that_stays,
        foreign_times_of_failure_are_checked,
        every_message_has_its_own_key,
        a_lease_ends,
        an_extended_lease_goes_on,
        released_at_once,
        released_with_delay,
        a_renewed_message_starts_anew,
        a_renewed_message_waits_counts_on_and_remembers_since_when_it_fails,
        a_lost_lease_is_told,
        results_are_in_the_order_given,
        dead_letters_say_why,
        dead_letters_are_reviewed,
        messages_are_counted,
        receivers_share_nothing,
        an_empty_queue_waits_as_told,
        an_arrival_ends_the_wait,
        bodies_and_ids_arrive_unchanged,
        one_too_large_is_refused_alone,
        the_largest_can_be_given_up,
    ];
    let runtime = &Runtime::new().unwrap();
    thread::scope(|scope| {
        let running = checks.map(|(name, check)| {
            let thread = thread::Builder::new().name(name.to_owned());
            (name, thread.spawn_scoped(scope, move || runtime.block_on(check(harness))).unwrap())
        });
        let failed: Vec<_> = running.into_iter().filter_map(|(name, check)| check.join().err().map(|_| name)).collect();
        assert!(failed.is_empty(), "failed: {}", failed.join(", "));
    });
}

/// Checks that `open`, a backend's function, refuses unknown settings by name.
pub async fn unknown_settings_are_refused<Q>(
    address: &str,
    open: impl AsyncFnOnce(&QueueOptions) -> Result<Q, QueueError>,
) {
    let settings = BTreeMap::from([("no-such-setting".to_owned(), "1".to_owned())]);
    match open(&QueueOptions { settings, ..QueueOptions::new(address) }).await {
        Err(QueueError::Options(reason)) => assert!(reason.contains("'no-such-setting'"), "{reason}"),
        Err(error) => panic!("not QueueError::Options: {error}"),
        Ok(_) => panic!("a setting that there is not was ignored"),
    }
}

impl<F: AsyncFn(Duration, u32) -> Fixture> Harness<F> {
    async fn fixture(&self, lease: Duration) -> Fixture {
        let fixture = (self.open)(lease, 3).await;
        assert_eq!((fixture.queue.lease(), fixture.queue.max_receive()), (lease, 3));
        assert!(!fixture.queue.name().is_empty());
        fixture
    }

    /// A queue of short leases with one message that was just received, and the time of receipt.
    async fn one_received(&self) -> (Fixture, Delivery, Instant) {
        let fixture = self.fixture(self.short).await;
        send(&*fixture.queue, &[message("only")]).await;
        let since = Instant::now();
        let delivery = receive_one(&*fixture.queue).await;
        (fixture, delivery, since)
    }

    async fn messages_arrive_and_go_for_good(&self) {
        let queue = self.fixture(self.short).await.queue;
        let sent = ["a", "b", "c"].map(message);
        send(&*queue, &sent).await;
        let received = receive(&*queue, 3).await;
        assert_eq!(contents(&received), sorted(&sent));
        for delivery in &received {
            assert_eq!(delivery.received, 1);
            let age = delivery.sent.map(|sent| SystemTime::now().duration_since(sent).unwrap_or_default());
            assert!(age.is_none_or(|age| age < Duration::from_secs(60)), "sent {age:?} ago");
        }
        all_ok(&queue.acknowledge(&receipts(&received)).await);
        sleep(2 * self.short).await;
        assert_eq!(queue.receive(3, Duration::ZERO).await.unwrap(), []);
        assert_eq!(queue.depth().await.unwrap(), Depth::default());
    }

    async fn batches_have_any_size(&self) {
        let queue = self.fixture(LONG).await.queue;
        let sent: Vec<_> = (0..MANY).map(|n| message(&format!("message {n}"))).collect();
        send(&*queue, &sent).await;
        let received = receive(&*queue, MANY).await;
        assert_eq!(contents(&received), sorted(&sent));
        all_ok(&queue.extend(&receipts(&received)).await);
        all_ok(&queue.release(&receipts(&received), Duration::ZERO).await);
        let again = receive(&*queue, MANY).await;
        assert_eq!(contents(&again), sorted(&sent));
        assert!(again.iter().all(|delivery| delivery.received == 2));
        all_ok(&queue.acknowledge(&receipts(&again)).await);
        assert_eq!(queue.depth().await.unwrap(), Depth::default());
    }

    async fn nothing_is_asked_for(&self) {
        let queue = self.fixture(LONG).await.queue;
        assert!(
            queue.send(&[]).await.is_empty()
                && queue.acknowledge(&[]).await.is_empty()
                && queue.extend(&[]).await.is_empty()
        );
        assert!(queue.release(&[], Duration::ZERO).await.is_empty());
        send(&*queue, &[message("a")]).await;
        let since = Instant::now();
        assert_eq!(queue.receive(0, PATIENCE).await.unwrap(), []);
        assert!(since.elapsed() < PATIENCE / 2);
        assert_eq!(receive_one(&*queue).await.received, 1);
    }

    async fn foreign_messages_get_an_id_that_stays(&self) {
        let fixture = self.fixture(LONG).await;
        if !fixture.outside.send("{\"a\": 1}", None).await {
            return;
        }
        fixture.outside.send("{\"a\": 2}", None).await;
        let first = receive(&*fixture.queue, 2).await;
        let ids: HashSet<_> = first.iter().map(|delivery| delivery.id.as_str()).collect();
        assert!(ids.len() == 2 && !ids.contains(""), "{ids:?}");
        all_ok(&fixture.queue.release(&receipts(&first), Duration::ZERO).await);
        let second = receive(&*fixture.queue, 2).await;
        assert_eq!(contents(&second), contents(&first));
        let bodies: HashSet<_> = second.iter().map(|delivery| delivery.body.as_slice()).collect();
        assert_eq!(bodies, HashSet::from([&b"{\"a\": 1}"[..], b"{\"a\": 2}"]));
    }

    async fn foreign_times_of_failure_are_checked(&self) {
        let fixture = self.fixture(LONG).await;
        if !fixture.outside.send("true", Some("1700000000")).await {
            return;
        }
        let tomorrow = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_secs(86_400);
        let tomorrow = tomorrow.as_secs().to_string();
        for text in [&u64::MAX.to_string(), &i64::MAX.to_string(), "99999999999999999999", &tomorrow, "-1", "soon"] {
            fixture.outside.send(text, Some(text)).await;
        }
        for delivery in receive(&*fixture.queue, 7).await {
            let true_since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let expected = (delivery.body == b"true").then_some(true_since);
            assert_eq!(delivery.failing_since, expected, "{}", String::from_utf8_lossy(&delivery.body));
        }
    }

    async fn every_message_has_its_own_key(&self) {
        let queue = self.fixture(LONG).await.queue;
        let mut sent = ["a", "b"].map(message).to_vec();
        if !self.capability.drops_doubles {
            sent.push(message("a"));
        }
        send(&*queue, &sent).await;
        let first = receive(&*queue, sent.len()).await;
        let keys: HashSet<_> = first.iter().map(|delivery| delivery.key.as_str()).collect();
        assert!(keys.len() == sent.len() && !keys.contains(""), "{keys:?}");
        all_ok(&queue.release(&receipts(&first), Duration::ZERO).await);
        let second = receive(&*queue, sent.len()).await;
        for again in &second {
            let before = first.iter().find(|delivery| delivery.key == again.key).unwrap();
            assert_eq!((&again.id, &again.body), (&before.id, &before.body));
        }
        all_ok(&queue.acknowledge(&receipts(&second)).await);
        send(&*queue, &[message("c")]).await;
        let later = receive_one(&*queue).await.key;
        assert!(!keys.contains(later.as_str()), "{later} was another message's");
    }

    async fn a_lease_ends(&self) {
        let (fixture, first, since) = self.one_received().await;
        assert_eq!(fixture.queue.receive(1, Duration::ZERO).await.unwrap(), [], "it is leased");
        let second = receive_one(&*fixture.queue).await;
        assert!(since.elapsed() + EARLY >= self.short, "after {:?}", since.elapsed());
        assert_eq!((second.id, second.body, second.received), (first.id, first.body, 2));
        assert_eq!(second.key, first.key);
        assert_ne!(second.receipt, first.receipt);
        let third = receive_one(&*fixture.queue).await;
        assert_eq!(third.received, 3);
        assert_eq!(receive_one(&*fixture.queue).await.received, 4, "giving up is not the broker's business");
    }

    async fn an_extended_lease_goes_on(&self) {
        let (fixture, first, mut since) = self.one_received().await;
        for _ in 0..4 {
            sleep(self.short / 2).await;
            since = Instant::now();
            all_ok(&fixture.queue.extend(std::slice::from_ref(&first.receipt)).await);
            assert_eq!(fixture.queue.receive(1, Duration::ZERO).await.unwrap(), [], "it is leased");
        }
        let second = receive_one(&*fixture.queue).await;
        assert!(since.elapsed() + EARLY >= self.short, "after {:?}", since.elapsed());
        assert_eq!((second.id, second.received), (first.id, 2));
    }

    async fn released_at_once(&self) {
        let fixture = self.fixture(LONG).await;
        send(&*fixture.queue, &[message("only")]).await;
        let first = receive_one(&*fixture.queue).await;
        all_ok(&fixture.queue.release(&[first.receipt], Duration::ZERO).await);
        let second = receive_one(&*fixture.queue).await;
        assert_eq!((second.id, second.received), (first.id, 2));
    }

    async fn released_with_delay(&self) {
        let fixture = self.fixture(LONG).await;
        send(&*fixture.queue, &[message("only")]).await;
        let first = receive_one(&*fixture.queue).await;
        let since = Instant::now();
        all_ok(&fixture.queue.release(&[first.receipt], self.short).await);
        assert_eq!(fixture.queue.receive(1, Duration::ZERO).await.unwrap(), [], "not yet");
        let second = receive_one(&*fixture.queue).await;
        assert!(since.elapsed() + EARLY >= self.short, "after {:?}", since.elapsed());
        assert_eq!((second.id, second.received), (first.id, 2));
    }

    async fn a_lost_lease_is_told(&self) {
        let (fixture, first, _) = self.one_received().await;
        let queue = &*fixture.queue;
        let second = receive_one(queue).await;
        let lost = [first.receipt.clone()];
        let capability = self.capability;
        if capability.tells_lost_leases {
            assert_eq!(queue.extend(&lost).await, [Err(QueueError::LeaseLost)]);
            assert_eq!(queue.release(&lost, Duration::ZERO).await, [Err(QueueError::LeaseLost)]);
        }
        if capability.tells_lost_acknowledgements {
            assert_eq!(queue.acknowledge(&lost).await, [Err(QueueError::LeaseLost)]);
            assert_eq!(queue.dead_letter(&first, &why("late")).await, Err(QueueError::LeaseLost));
            assert_eq!(fixture.outside.dead_letters().await, []);
            assert_eq!(receive_one(queue).await.id, second.id, "it is still there");
        }
    }

    async fn a_renewed_message_starts_anew(&self) {
        let queue = self.fixture(LONG).await.queue;
        send(&*queue, &[message("only")]).await;
        all_ok(&queue.release(&[receive_one(&*queue).await.receipt], Duration::ZERO).await);
        // Twice, because a broker that drops doubles must not take the second copy for the first.
        for _ in 0..2 {
            let before = receive_one(&*queue).await;
            queue.renew(&Delivery { received: 0, ..before.clone() }, Duration::ZERO).await.unwrap();
            let after = receive_one(&*queue).await;
            assert_eq!((&after.id, &after.body, after.received), (&before.id, &before.body, 1));
            assert_ne!(after.key, before.key);
            all_ok(&queue.release(&[after.receipt], Duration::ZERO).await);
        }
        // Some brokers count a released message as leased until its next delivery.
        let Depth { waiting, leased, dead } = queue.depth().await.unwrap();
        assert_eq!((waiting + leased, dead), (1, 0), "one message, however often it was copied");
    }

    async fn a_renewed_message_waits_counts_on_and_remembers_since_when_it_fails(&self) {
        let queue = self.fixture(LONG).await.queue;
        send(&*queue, &[message("only")]).await;
        let first = receive_one(&*queue).await;
        assert_eq!(first.failing_since, None);
        let failing_since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let asked = Instant::now();
        queue.renew(&Delivery { received: 4, failing_since, ..first }, DELAY).await.unwrap();
        let second = receive_one(&*queue).await;
        assert!(asked.elapsed() + EARLY >= DELAY, "after {:?}", asked.elapsed());
        assert_eq!((&second.id[..], second.received, second.failing_since), ("only", 5, failing_since));
        all_ok(&queue.release(&[second.receipt], Duration::ZERO).await);
        let third = receive_one(&*queue).await;
        assert_eq!((third.received, third.failing_since), (6, failing_since));
        queue.renew(&Delivery { received: 0, failing_since: None, ..third }, Duration::ZERO).await.unwrap();
        let fourth = receive_one(&*queue).await;
        assert_eq!((fourth.received, fourth.failing_since), (1, None), "it works again");
    }

    async fn results_are_in_the_order_given(&self) {
        let queue = self.fixture(LONG).await.queue;
        send(&*queue, &["a", "b"].map(message)).await;
        let received = receive(&*queue, 2).await;
        let [a, b] = &receipts(&received)[..] else { unreachable!() };
        let nonsense = Receipt("nonsense".to_owned());
        let results = queue.acknowledge(&[a.clone(), nonsense, b.clone()]).await;
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true], "{results:?}");
        assert_eq!(queue.depth().await.unwrap(), Depth::default());
    }

    async fn dead_letters_say_why(&self) {
        let fixture = self.fixture(self.short).await;
        let queue = &*fixture.queue;
        send(queue, &["dead", "alive"].map(message)).await;
        let mut received = receive(queue, 2).await;
        received.sort_by(|a, b| b.id.cmp(&a.id));
        queue.dead_letter(&received[0], &why("no such host: \u{17c}ó\u{142}w\nand more")).await.unwrap();
        all_ok(&queue.release(&[received[1].receipt.clone()], Duration::ZERO).await);
        let letters = fixture.outside.dead_letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!((letters[0].id.as_str(), &letters[0].body), ("dead", &received[0].body));
        assert_eq!(letters[0].why.stage, "download");
        let reason = &letters[0].why.reason;
        assert!(reason.starts_with("no such host: \u{17c}ó\u{142}w") && reason.ends_with("and more"), "{reason:?}");

        sleep(2 * self.short).await;
        let left = receive_one(queue).await;
        assert_eq!(left.id, "alive");
        all_ok(&queue.acknowledge(&[left.receipt]).await);
        assert_eq!(queue.receive(2, Duration::ZERO).await.unwrap(), [], "the dead stay dead");
        assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });
    }

    async fn dead_letters_are_reviewed(&self) {
        let queue = self.fixture(LONG).await.queue;
        let sent = ["back", "gone", "stays"].map(message);
        send(&*queue, &sent).await;
        for delivery in receive(&*queue, 3).await {
            queue.dead_letter(&delivery, &why(&delivery.id)).await.unwrap();
        }
        let mut seen = Vec::new();
        queue
            .review(&mut |letter| {
                assert!(letter.is_whole && letter.why == why(&letter.id), "{letter:?}");
                seen.push(Message { id: letter.id.clone(), body: letter.body.clone() });
                fate(letter)
            })
            .await
            .unwrap();
        assert_eq!(sorted(&seen), sorted(&sent));
        assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 1, leased: 0, dead: 1 });
        let back = receive_one(&*queue).await;
        assert_eq!((back.id.as_str(), &back.body, back.received), ("back", &sent[0].body, 1));
        // It dies once more, and comes back once more.
        queue.dead_letter(&back, &why("back")).await.unwrap();
        let mut shown = 0;
        queue
            .review(&mut |_| {
                shown += 1;
                Fate::End
            })
            .await
            .unwrap();
        assert_eq!((shown, queue.depth().await.unwrap().dead), (1, 2));
        queue.review(&mut fate).await.unwrap();
        assert_eq!((receive_one(&*queue).await.id.as_str(), queue.depth().await.unwrap().dead), ("back", 1));
    }

    async fn messages_are_counted(&self) {
        let queue = self.fixture(LONG).await.queue;
        assert_eq!(queue.depth().await.unwrap(), Depth::default());
        send(&*queue, &["a", "b", "c", "d", "e", "f"].map(message)).await;
        assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 6, leased: 0, dead: 0 });
        let received = receive(&*queue, 4).await;
        assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 2, leased: 4, dead: 0 });
        all_ok(&queue.acknowledge(&receipts(&received[..1])).await);
        queue.dead_letter(&received[1], &why("broken")).await.unwrap();
        assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 2, leased: 2, dead: 1 });
    }

    async fn receivers_share_nothing(&self) {
        const MESSAGES: usize = 120;
        let queue = self.fixture(LONG).await.queue;
        let sent: Vec<_> = (0..MESSAGES).map(|n| message(&n.to_string())).collect();
        send(&*queue, &sent).await;
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let receivers = [(); 4].map(|()| {
            let queue = Arc::clone(&queue);
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let give_up = Instant::now() + PATIENCE;
                while seen.lock().unwrap().len() < MESSAGES {
                    assert!(Instant::now() < give_up, "not all arrived");
                    let received = queue.receive(7, Duration::from_millis(100)).await.unwrap();
                    for delivery in &received {
                        *seen.lock().unwrap().entry(delivery.id.clone()).or_insert(0) += 1;
                    }
                    all_ok(&queue.acknowledge(&receipts(&received)).await);
                }
            })
        });
        for receiver in receivers {
            receiver.await.unwrap();
        }
        let seen = seen.lock().unwrap();
        assert!(seen.values().all(|&times| times == 1), "{seen:?}");
    }

    async fn an_empty_queue_waits_as_told(&self) {
        let queue = self.fixture(LONG).await.queue;
        for wait in [Duration::ZERO, Duration::from_secs(1)] {
            let since = Instant::now();
            assert_eq!(queue.receive(5, wait).await.unwrap(), []);
            let waited = since.elapsed();
            // A test's broker may share a busy machine; long polls take 20 s.
            assert!(
                waited + EARLY >= wait && waited < wait + Duration::from_secs(10),
                "{waited:?} instead of {wait:?}"
            );
        }
    }

    async fn an_arrival_ends_the_wait(&self) {
        let queue = self.fixture(LONG).await.queue;
        let since = Instant::now();
        let receiver = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.receive(10, PATIENCE).await.unwrap() }
        });
        sleep(Duration::from_millis(300)).await;
        send(&*queue, &[message("a")]).await;
        assert_eq!(receiver.await.unwrap().len(), 1);
        assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
    }

    async fn bodies_and_ids_arrive_unchanged(&self) {
        let queue = self.fixture(LONG).await.queue;
        let job = Job {
            metadata: Some(r#"{"text": "ż 🦀 \u0000 \" <&>\t", "numbers": [1e300, 2.50]}"#.to_owned()),
            ..Job::new(ImageRef::Url("https://example.com/a.jpg?b=c&d=%20".to_owned()))
        };
        let mut sent = vec![
            Message { id: "zażółć/🦀 <&\"'> a,b;c.d".to_owned(), body: job.to_json().unwrap() },
            Message { id: "i".repeat(Job::MAX_ID), body: b"not json\r\n\twith lines".to_vec() },
        ];
        if self.capability.any_bytes {
            sent.push(Message { id: "bytes".to_owned(), body: (0..=255).collect() });
        }
        send(&*queue, &sent).await;
        let received = receive(&*queue, sent.len()).await;
        assert_eq!(contents(&received), sorted(&sent));
        let job_again = received.iter().find_map(|delivery| Job::parse(&delivery.body).ok());
        assert_eq!(job_again, Some(job));

        if self.capability.drops_doubles {
            let again = queue.send(&sent).await;
            let told = if self.capability.tells_doubles { Sent::Duplicate } else { Sent::Stored };
            assert!(again.iter().all(|result| *result == Ok(told)), "{again:?}");
            assert_eq!(queue.receive(1, Duration::ZERO).await.unwrap(), [], "the second of one id is dropped");
        }
    }

    async fn one_too_large_is_refused_alone(&self) {
        let Some(largest) = self.capability.largest else { return };
        let queue = self.fixture(LONG).await.queue;
        // As much as several brokers take in one request, so that this needs several requests.
        let mut sent: Vec<_> = (0..5).map(|n| of_size(&n.to_string(), largest / 2)).collect();
        sent.insert(2, of_size("large", largest + 1));
        let results = queue.send(&sent).await;
        match &results[2] {
            Err(QueueError::TooLarge { bytes, limit }) => assert!(*bytes > largest && *limit == largest),
            other => panic!("not QueueError::TooLarge: {other:?}"),
        }
        sent.remove(2);
        assert!(results.iter().enumerate().all(|(at, result)| at == 2 || result.is_ok()), "{results:?}");
        assert!(contents(&receive(&*queue, 5).await) == sorted(&sent), "the others arrive");
        assert_eq!(queue.receive(1, Duration::ZERO).await.unwrap().len(), 0);
    }

    /// Checks a body that leaves no room for anything beside it.
    async fn the_largest_can_be_given_up(&self) {
        let Some(largest) = self.capability.largest else { return };
        let fixture = self.fixture(LONG).await;
        let beside = match &fixture.queue.send(&[of_size("a", largest + 1)]).await[0] {
            Err(QueueError::TooLarge { bytes, .. }) => bytes - (largest + 1),
            other => panic!("not QueueError::TooLarge: {other:?}"),
        };
        let sent = of_size("a", largest - beside);
        send(&*fixture.queue, std::slice::from_ref(&sent)).await;
        let delivery = receive_one(&*fixture.queue).await;
        fixture.queue.dead_letter(&delivery, &why(&"a long story; ".repeat(1000))).await.unwrap();
        assert_eq!(fixture.queue.depth().await.unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });
        assert!(fixture.outside.dead_letters().await[0].body == sent.body, "the body is whole");
    }
}

fn of_size(id: &str, bytes: usize) -> Message {
    Message { id: id.to_owned(), body: vec![b'x'; bytes] }
}

fn message(id: &str) -> Message {
    Message { id: id.to_owned(), body: format!(r#"{{"body of": "{id}"}}"#).into_bytes() }
}

fn why(reason: &str) -> DeadLetter {
    DeadLetter { stage: "download".to_owned(), reason: reason.to_owned() }
}

#[track_caller]
fn all_ok<T: Debug>(results: &[Result<T, QueueError>]) {
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

async fn send(queue: &dyn JobQueue, messages: &[Message]) {
    let results = queue.send(messages).await;
    assert_eq!(results, vec![Ok(Sent::Stored); messages.len()]);
}

/// Receives until `count` messages have come, in any number of calls.
async fn receive(queue: &dyn JobQueue, count: usize) -> Vec<Delivery> {
    let give_up = Instant::now() + PATIENCE;
    let mut received = Vec::new();
    while received.len() < count {
        let wait = give_up.saturating_duration_since(Instant::now());
        assert!(!wait.is_zero(), "{} of {count} arrived", received.len());
        let more = queue.receive(count - received.len(), wait).await.unwrap();
        assert!(more.len() <= count - received.len(), "{} at once", more.len());
        received.extend(more);
    }
    received
}

async fn receive_one(queue: &dyn JobQueue) -> Delivery {
    receive(queue, 1).await.remove(0)
}

fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

/// Ids and bodies, sorted by id, because brokers need not keep the order.
fn contents(deliveries: &[Delivery]) -> Vec<Message> {
    let messages = deliveries.iter().map(|delivery| Message { id: delivery.id.clone(), body: delivery.body.clone() });
    sorted(&messages.collect::<Vec<_>>())
}

fn sorted(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    messages.sort_by(|a, b| a.id.cmp(&b.id));
    messages
}

/// The fate of a letter, by its id.
fn fate(letter: &Buried) -> Fate {
    match letter.id.as_str() {
        "back" => Fate::PutBack,
        "gone" => Fate::Remove,
        _ => Fate::Keep,
    }
}
