//! The test suite that every queue passes, for any broker. It panics with the expectation that failed.
//!
//! A backend's test calls [`check`] with a [`Harness`].

#![expect(clippy::unwrap_used, reason = "a suite of tests: what goes wrong must panic")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::{
    Buried, DeadLetter, Delivery, Depth, Fate, ImageRef, Job, JobQueue, Message, QueueError, QueueOptions, Receipt,
    Sent,
};

/// A kind of queue under test.
pub struct Harness<'a> {
    /// Makes a queue that never had a message, with this lease and `max_receive`.
    pub open: &'a (dyn Fn(Duration, u32) -> Fixture + Sync),
    /// A lease that is short enough to wait for, and long enough for a few calls on a busy machine. The suite uses it
    /// as a delay, too.
    pub short: Duration,
    /// The capabilities of the broker.
    pub capability: Capability,
}

/// One queue, and access to it from outside.
pub struct Fixture {
    /// The queue.
    pub queue: Box<dyn JobQueue>,
    /// Sends a body as another program would, without an id, perhaps with this text as the time since when it fails;
    /// `None` if the broker requires an id.
    pub send_foreign: Option<SendForeign>,
    /// Reads the queue's dead letters, if possible without the queue's own code.
    pub dead_letters: ReadDead,
}

/// See [`Fixture::send_foreign`].
pub type SendForeign = Box<dyn Fn(&str, Option<&str>) + Send>;
/// See [`Fixture::dead_letters`].
pub type ReadDead = Box<dyn Fn() -> Vec<Dead> + Send>;

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

type Check<'a> = fn(&Harness<'a>);

/// Runs the whole suite. The checks run concurrently, each on a queue of its own.
pub fn check<'a>(harness: &Harness<'a>) {
    let checks: [(&str, Check<'a>); 23] = [
        ("messages_arrive_and_go_for_good", Harness::messages_arrive_and_go_for_good),
        ("batches_have_any_size", Harness::batches_have_any_size),
        ("nothing_is_asked_for", Harness::nothing_is_asked_for),
        ("foreign_messages_get_an_id_that_stays", Harness::foreign_messages_get_an_id_that_stays),
        ("foreign_times_of_failure_are_checked", Harness::foreign_times_of_failure_are_checked),
        ("every_message_has_its_own_key", Harness::every_message_has_its_own_key),
        ("a_lease_ends", Harness::a_lease_ends),
        ("an_extended_lease_goes_on", Harness::an_extended_lease_goes_on),
        ("released_at_once", Harness::released_at_once),
        ("released_with_delay", Harness::released_with_delay),
        ("a_renewed_message_starts_anew", Harness::a_renewed_message_starts_anew),
        (
            "a_renewed_message_waits_counts_on_and_remembers_since_when_it_fails",
            Harness::a_renewed_message_waits_counts_on_and_remembers_since_when_it_fails,
        ),
        ("a_lost_lease_is_told", Harness::a_lost_lease_is_told),
        ("results_are_in_the_order_given", Harness::results_are_in_the_order_given),
        ("dead_letters_say_why", Harness::dead_letters_say_why),
        ("dead_letters_are_reviewed", Harness::dead_letters_are_reviewed),
        ("messages_are_counted", Harness::messages_are_counted),
        ("receivers_share_nothing", Harness::receivers_share_nothing),
        ("an_empty_queue_waits_as_told", Harness::an_empty_queue_waits_as_told),
        ("an_arrival_ends_the_wait", Harness::an_arrival_ends_the_wait),
        ("bodies_and_ids_arrive_unchanged", Harness::bodies_and_ids_arrive_unchanged),
        ("one_too_large_is_refused_alone", Harness::one_too_large_is_refused_alone),
        ("the_largest_can_be_given_up", Harness::the_largest_can_be_given_up),
    ];
    thread::scope(|scope| {
        let running = checks.map(|(name, check)| {
            let check = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, move || check(harness));
            (name, check.unwrap())
        });
        let failed: Vec<_> = running.into_iter().filter_map(|(name, check)| check.join().err().map(|_| name)).collect();
        assert!(failed.is_empty(), "failed: {}", failed.join(", "));
    });
}

/// Checks that `open`, a backend's function, refuses unknown settings by name.
pub fn unknown_settings_are_refused(
    address: &str,
    open: impl FnOnce(&QueueOptions) -> Result<Box<dyn JobQueue>, QueueError>,
) {
    let settings = BTreeMap::from([("no-such-setting".to_owned(), "1".to_owned())]);
    match open(&QueueOptions { settings, ..QueueOptions::new(address) }) {
        Err(QueueError::Options(reason)) => assert!(reason.contains("'no-such-setting'"), "{reason}"),
        Err(error) => panic!("not QueueError::Options: {error}"),
        Ok(_) => panic!("a setting that there is not was ignored"),
    }
}

impl Harness<'_> {
    fn fixture(&self, lease: Duration) -> Fixture {
        let fixture = (self.open)(lease, 3);
        assert_eq!((fixture.queue.lease(), fixture.queue.max_receive()), (lease, 3));
        assert!(!fixture.queue.name().is_empty());
        fixture
    }

    /// A queue of short leases with one message that was just received, and the time of receipt.
    fn one_received(&self) -> (Fixture, Delivery, Instant) {
        let fixture = self.fixture(self.short);
        send(&*fixture.queue, &[message("only")]);
        let since = Instant::now();
        let delivery = receive_one(&*fixture.queue);
        (fixture, delivery, since)
    }

    fn messages_arrive_and_go_for_good(&self) {
        let queue = self.fixture(self.short).queue;
        let sent = ["a", "b", "c"].map(message);
        send(&*queue, &sent);
        let received = receive(&*queue, 3);
        assert_eq!(contents(&received), sorted(&sent));
        for delivery in &received {
            assert_eq!(delivery.received, 1);
            let age = delivery.sent.map(|sent| SystemTime::now().duration_since(sent).unwrap_or_default());
            assert!(age.is_none_or(|age| age < Duration::from_secs(60)), "sent {age:?} ago");
        }
        all_ok(&queue.acknowledge(&receipts(&received)));
        thread::sleep(2 * self.short);
        assert_eq!(queue.receive(3, Duration::ZERO).unwrap(), []);
        assert_eq!(queue.depth().unwrap(), Depth::default());
    }

    fn batches_have_any_size(&self) {
        let queue = self.fixture(LONG).queue;
        let sent: Vec<_> = (0..MANY).map(|n| message(&format!("message {n}"))).collect();
        send(&*queue, &sent);
        let received = receive(&*queue, MANY);
        assert_eq!(contents(&received), sorted(&sent));
        all_ok(&queue.extend(&receipts(&received)));
        all_ok(&queue.release(&receipts(&received), Duration::ZERO));
        let again = receive(&*queue, MANY);
        assert_eq!(contents(&again), sorted(&sent));
        assert!(again.iter().all(|delivery| delivery.received == 2));
        all_ok(&queue.acknowledge(&receipts(&again)));
        assert_eq!(queue.depth().unwrap(), Depth::default());
    }

    fn nothing_is_asked_for(&self) {
        let queue = self.fixture(LONG).queue;
        assert!(queue.send(&[]).is_empty() && queue.acknowledge(&[]).is_empty() && queue.extend(&[]).is_empty());
        assert!(queue.release(&[], Duration::ZERO).is_empty());
        send(&*queue, &[message("a")]);
        let since = Instant::now();
        assert_eq!(queue.receive(0, PATIENCE).unwrap(), []);
        assert!(since.elapsed() < PATIENCE / 2);
        assert_eq!(receive_one(&*queue).received, 1);
    }

    fn foreign_messages_get_an_id_that_stays(&self) {
        let fixture = self.fixture(LONG);
        let Some(send_foreign) = fixture.send_foreign else { return };
        send_foreign("{\"a\": 1}", None);
        send_foreign("{\"a\": 2}", None);
        let first = receive(&*fixture.queue, 2);
        let ids: HashSet<_> = first.iter().map(|delivery| delivery.id.as_str()).collect();
        assert!(ids.len() == 2 && !ids.contains(""), "{ids:?}");
        all_ok(&fixture.queue.release(&receipts(&first), Duration::ZERO));
        let second = receive(&*fixture.queue, 2);
        assert_eq!(contents(&second), contents(&first));
        let bodies: HashSet<_> = second.iter().map(|delivery| delivery.body.as_slice()).collect();
        assert_eq!(bodies, HashSet::from([&b"{\"a\": 1}"[..], b"{\"a\": 2}"]));
    }

    fn foreign_times_of_failure_are_checked(&self) {
        let fixture = self.fixture(LONG);
        let Some(send_foreign) = fixture.send_foreign else { return };
        let tomorrow = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_secs(86_400);
        let tomorrow = tomorrow.as_secs().to_string();
        for text in [&u64::MAX.to_string(), &i64::MAX.to_string(), "99999999999999999999", &tomorrow, "-1", "soon"] {
            send_foreign(text, Some(text));
        }
        send_foreign("true", Some("1700000000"));
        for delivery in receive(&*fixture.queue, 7) {
            let true_since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let expected = (delivery.body == b"true").then_some(true_since);
            assert_eq!(delivery.failing_since, expected, "{}", String::from_utf8_lossy(&delivery.body));
        }
    }

    fn every_message_has_its_own_key(&self) {
        let queue = self.fixture(LONG).queue;
        let mut sent = ["a", "b"].map(message).to_vec();
        if !self.capability.drops_doubles {
            sent.push(message("a"));
        }
        send(&*queue, &sent);
        let first = receive(&*queue, sent.len());
        let keys: HashSet<_> = first.iter().map(|delivery| delivery.key.as_str()).collect();
        assert!(keys.len() == sent.len() && !keys.contains(""), "{keys:?}");
        all_ok(&queue.release(&receipts(&first), Duration::ZERO));
        let second = receive(&*queue, sent.len());
        for again in &second {
            let before = first.iter().find(|delivery| delivery.key == again.key).unwrap();
            assert_eq!((&again.id, &again.body), (&before.id, &before.body));
        }
        all_ok(&queue.acknowledge(&receipts(&second)));
        send(&*queue, &[message("c")]);
        let later = receive_one(&*queue).key;
        assert!(!keys.contains(later.as_str()), "{later} was another message's");
    }

    fn a_lease_ends(&self) {
        let (fixture, first, since) = self.one_received();
        assert_eq!(fixture.queue.receive(1, Duration::ZERO).unwrap(), [], "it is leased");
        let second = receive_one(&*fixture.queue);
        assert!(since.elapsed() + EARLY >= self.short, "after {:?}", since.elapsed());
        assert_eq!((second.id, second.body, second.received), (first.id, first.body, 2));
        assert_eq!(second.key, first.key);
        assert_ne!(second.receipt, first.receipt);
        let third = receive_one(&*fixture.queue);
        assert_eq!(third.received, 3);
        assert_eq!(receive_one(&*fixture.queue).received, 4, "giving up is not the broker's business");
    }

    fn an_extended_lease_goes_on(&self) {
        let (fixture, first, mut since) = self.one_received();
        for _ in 0..4 {
            thread::sleep(self.short / 2);
            since = Instant::now();
            all_ok(&fixture.queue.extend(std::slice::from_ref(&first.receipt)));
            assert_eq!(fixture.queue.receive(1, Duration::ZERO).unwrap(), [], "it is leased");
        }
        let second = receive_one(&*fixture.queue);
        assert!(since.elapsed() + EARLY >= self.short, "after {:?}", since.elapsed());
        assert_eq!((second.id, second.received), (first.id, 2));
    }

    fn released_at_once(&self) {
        let fixture = self.fixture(LONG);
        send(&*fixture.queue, &[message("only")]);
        let first = receive_one(&*fixture.queue);
        all_ok(&fixture.queue.release(&[first.receipt], Duration::ZERO));
        let second = receive_one(&*fixture.queue);
        assert_eq!((second.id, second.received), (first.id, 2));
    }

    fn released_with_delay(&self) {
        let fixture = self.fixture(LONG);
        send(&*fixture.queue, &[message("only")]);
        let first = receive_one(&*fixture.queue);
        let since = Instant::now();
        all_ok(&fixture.queue.release(&[first.receipt], self.short));
        assert_eq!(fixture.queue.receive(1, Duration::ZERO).unwrap(), [], "not yet");
        let second = receive_one(&*fixture.queue);
        assert!(since.elapsed() + EARLY >= self.short, "after {:?}", since.elapsed());
        assert_eq!((second.id, second.received), (first.id, 2));
    }

    fn a_lost_lease_is_told(&self) {
        let (fixture, first, _) = self.one_received();
        let queue = &*fixture.queue;
        let second = receive_one(queue);
        let lost = [first.receipt.clone()];
        let capability = self.capability;
        if capability.tells_lost_leases {
            assert_eq!(queue.extend(&lost), [Err(QueueError::LeaseLost)]);
            assert_eq!(queue.release(&lost, Duration::ZERO), [Err(QueueError::LeaseLost)]);
        }
        if capability.tells_lost_acknowledgements {
            assert_eq!(queue.acknowledge(&lost), [Err(QueueError::LeaseLost)]);
            assert_eq!(queue.dead_letter(&first, &why("late")), Err(QueueError::LeaseLost));
            assert_eq!((fixture.dead_letters)(), []);
            assert_eq!(receive_one(queue).id, second.id, "it is still there");
        }
    }

    fn a_renewed_message_starts_anew(&self) {
        let queue = self.fixture(LONG).queue;
        send(&*queue, &[message("only")]);
        all_ok(&queue.release(&[receive_one(&*queue).receipt], Duration::ZERO));
        // Twice, because a broker that drops doubles must not take the second copy for the first.
        for _ in 0..2 {
            let before = receive_one(&*queue);
            queue.renew(&Delivery { received: 0, ..before.clone() }, Duration::ZERO).unwrap();
            let after = receive_one(&*queue);
            assert_eq!((&after.id, &after.body, after.received), (&before.id, &before.body, 1));
            assert_ne!(after.key, before.key);
            all_ok(&queue.release(&[after.receipt], Duration::ZERO));
        }
        // Some brokers count a released message as leased until its next delivery.
        let Depth { waiting, leased, dead } = queue.depth().unwrap();
        assert_eq!((waiting + leased, dead), (1, 0), "one message, however often it was copied");
    }

    fn a_renewed_message_waits_counts_on_and_remembers_since_when_it_fails(&self) {
        let queue = self.fixture(LONG).queue;
        send(&*queue, &[message("only")]);
        let first = receive_one(&*queue);
        assert_eq!(first.failing_since, None);
        let failing_since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let asked = Instant::now();
        queue.renew(&Delivery { received: 4, failing_since, ..first }, DELAY).unwrap();
        let second = receive_one(&*queue);
        assert!(asked.elapsed() + EARLY >= DELAY, "after {:?}", asked.elapsed());
        assert_eq!((&second.id[..], second.received, second.failing_since), ("only", 5, failing_since));
        all_ok(&queue.release(&[second.receipt], Duration::ZERO));
        let third = receive_one(&*queue);
        assert_eq!((third.received, third.failing_since), (6, failing_since));
        queue.renew(&Delivery { received: 0, failing_since: None, ..third }, Duration::ZERO).unwrap();
        let fourth = receive_one(&*queue);
        assert_eq!((fourth.received, fourth.failing_since), (1, None), "it works again");
    }

    fn results_are_in_the_order_given(&self) {
        let queue = self.fixture(LONG).queue;
        send(&*queue, &["a", "b"].map(message));
        let received = receive(&*queue, 2);
        let [a, b] = &receipts(&received)[..] else { unreachable!() };
        let nonsense = Receipt("nonsense".to_owned());
        let results = queue.acknowledge(&[a.clone(), nonsense, b.clone()]);
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true], "{results:?}");
        assert_eq!(queue.depth().unwrap(), Depth::default());
    }

    fn dead_letters_say_why(&self) {
        let fixture = self.fixture(self.short);
        let queue = &*fixture.queue;
        send(queue, &["dead", "alive"].map(message));
        let mut received = receive(queue, 2);
        received.sort_by(|a, b| b.id.cmp(&a.id));
        queue.dead_letter(&received[0], &why("no such host: \u{17c}ó\u{142}w\nand more")).unwrap();
        all_ok(&queue.release(&[received[1].receipt.clone()], Duration::ZERO));
        let letters = (fixture.dead_letters)();
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!((letters[0].id.as_str(), &letters[0].body), ("dead", &received[0].body));
        assert_eq!(letters[0].why.stage, "download");
        let reason = &letters[0].why.reason;
        assert!(reason.starts_with("no such host: \u{17c}ó\u{142}w") && reason.ends_with("and more"), "{reason:?}");

        thread::sleep(2 * self.short);
        let left = receive_one(queue);
        assert_eq!(left.id, "alive");
        all_ok(&queue.acknowledge(&[left.receipt]));
        assert_eq!(queue.receive(2, Duration::ZERO).unwrap(), [], "the dead stay dead");
        assert_eq!(queue.depth().unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });
    }

    fn dead_letters_are_reviewed(&self) {
        let queue = self.fixture(LONG).queue;
        let sent = ["back", "gone", "stays"].map(message);
        send(&*queue, &sent);
        for delivery in receive(&*queue, 3) {
            queue.dead_letter(&delivery, &why(&delivery.id)).unwrap();
        }
        let mut seen = Vec::new();
        queue
            .review(&mut |letter| {
                assert!(letter.is_whole && letter.why == why(&letter.id), "{letter:?}");
                seen.push(Message { id: letter.id.clone(), body: letter.body.clone() });
                fate(letter)
            })
            .unwrap();
        assert_eq!(sorted(&seen), sorted(&sent));
        assert_eq!(queue.depth().unwrap(), Depth { waiting: 1, leased: 0, dead: 1 });
        let back = receive_one(&*queue);
        assert_eq!((back.id.as_str(), &back.body, back.received), ("back", &sent[0].body, 1));
        // It dies once more, and comes back once more.
        queue.dead_letter(&back, &why("back")).unwrap();
        let mut shown = 0;
        queue
            .review(&mut |_| {
                shown += 1;
                Fate::End
            })
            .unwrap();
        assert_eq!((shown, queue.depth().unwrap().dead), (1, 2));
        queue.review(&mut |letter| fate(letter)).unwrap();
        assert_eq!((receive_one(&*queue).id.as_str(), queue.depth().unwrap().dead), ("back", 1));
    }

    fn messages_are_counted(&self) {
        let queue = self.fixture(LONG).queue;
        assert_eq!(queue.depth().unwrap(), Depth::default());
        send(&*queue, &["a", "b", "c", "d", "e", "f"].map(message));
        assert_eq!(queue.depth().unwrap(), Depth { waiting: 6, leased: 0, dead: 0 });
        let received = receive(&*queue, 4);
        assert_eq!(queue.depth().unwrap(), Depth { waiting: 2, leased: 4, dead: 0 });
        all_ok(&queue.acknowledge(&receipts(&received[..1])));
        queue.dead_letter(&received[1], &why("broken")).unwrap();
        assert_eq!(queue.depth().unwrap(), Depth { waiting: 2, leased: 2, dead: 1 });
    }

    fn receivers_share_nothing(&self) {
        const MESSAGES: usize = 120;
        let queue = self.fixture(LONG).queue;
        let sent: Vec<_> = (0..MESSAGES).map(|n| message(&n.to_string())).collect();
        send(&*queue, &sent);
        let seen = Mutex::new(HashMap::new());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let give_up = Instant::now() + PATIENCE;
                    while seen.lock().unwrap().len() < MESSAGES {
                        assert!(Instant::now() < give_up, "not all arrived");
                        let received = queue.receive(7, Duration::from_millis(100)).unwrap();
                        for delivery in &received {
                            *seen.lock().unwrap().entry(delivery.id.clone()).or_insert(0) += 1;
                        }
                        all_ok(&queue.acknowledge(&receipts(&received)));
                    }
                });
            }
        });
        let seen = seen.into_inner().unwrap();
        assert!(seen.values().all(|&times| times == 1), "{seen:?}");
    }

    fn an_empty_queue_waits_as_told(&self) {
        let queue = self.fixture(LONG).queue;
        for wait in [Duration::ZERO, Duration::from_secs(1)] {
            let since = Instant::now();
            assert_eq!(queue.receive(5, wait).unwrap(), []);
            let waited = since.elapsed();
            // A test's broker may share a busy machine; long polls take 20 s.
            assert!(
                waited + EARLY >= wait && waited < wait + Duration::from_secs(10),
                "{waited:?} instead of {wait:?}"
            );
        }
    }

    fn an_arrival_ends_the_wait(&self) {
        let queue = self.fixture(LONG).queue;
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let since = Instant::now();
                (queue.receive(10, PATIENCE).unwrap(), since.elapsed())
            });
            thread::sleep(Duration::from_millis(300));
            send(&*queue, &[message("a")]);
            let (received, waited) = receiver.join().unwrap();
            assert_eq!(received.len(), 1);
            assert!(waited < PATIENCE / 2, "{waited:?}");
        });
    }

    fn bodies_and_ids_arrive_unchanged(&self) {
        let queue = self.fixture(LONG).queue;
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
        send(&*queue, &sent);
        let received = receive(&*queue, sent.len());
        assert_eq!(contents(&received), sorted(&sent));
        let job_again = received.iter().find_map(|delivery| Job::parse(&delivery.body).ok());
        assert_eq!(job_again, Some(job));

        if self.capability.drops_doubles {
            let again = queue.send(&sent);
            let told = if self.capability.tells_doubles { Sent::Duplicate } else { Sent::Stored };
            assert!(again.iter().all(|result| *result == Ok(told)), "{again:?}");
            assert_eq!(queue.receive(1, Duration::ZERO).unwrap(), [], "the second of one id is dropped");
        }
    }

    fn one_too_large_is_refused_alone(&self) {
        let Some(largest) = self.capability.largest else { return };
        let queue = self.fixture(LONG).queue;
        // As much as several brokers take in one request, so that this needs several requests.
        let mut sent: Vec<_> = (0..5).map(|n| of_size(&n.to_string(), largest / 2)).collect();
        sent.insert(2, of_size("large", largest + 1));
        let results = queue.send(&sent);
        match &results[2] {
            Err(QueueError::TooLarge { bytes, limit }) => assert!(*bytes > largest && *limit == largest),
            other => panic!("not QueueError::TooLarge: {other:?}"),
        }
        sent.remove(2);
        assert!(results.iter().enumerate().all(|(at, result)| at == 2 || result.is_ok()), "{results:?}");
        assert!(contents(&receive(&*queue, 5)) == sorted(&sent), "the others arrive");
        assert_eq!(queue.receive(1, Duration::ZERO).unwrap().len(), 0);
    }

    /// Checks a body that leaves no room for anything beside it.
    fn the_largest_can_be_given_up(&self) {
        let Some(largest) = self.capability.largest else { return };
        let fixture = self.fixture(LONG);
        let beside = match &fixture.queue.send(&[of_size("a", largest + 1)])[0] {
            Err(QueueError::TooLarge { bytes, .. }) => bytes - (largest + 1),
            other => panic!("not QueueError::TooLarge: {other:?}"),
        };
        let sent = of_size("a", largest - beside);
        send(&*fixture.queue, std::slice::from_ref(&sent));
        let delivery = receive_one(&*fixture.queue);
        fixture.queue.dead_letter(&delivery, &why(&"a long story; ".repeat(1000))).unwrap();
        assert_eq!(fixture.queue.depth().unwrap(), Depth { waiting: 0, leased: 0, dead: 1 });
        assert!((fixture.dead_letters)()[0].body == sent.body, "the body is whole");
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

#[track_caller]
fn send(queue: &dyn JobQueue, messages: &[Message]) {
    let results = queue.send(messages);
    assert_eq!(results, vec![Ok(Sent::Stored); messages.len()]);
}

/// Receives until `count` messages have come, in any number of calls.
#[track_caller]
fn receive(queue: &dyn JobQueue, count: usize) -> Vec<Delivery> {
    let give_up = Instant::now() + PATIENCE;
    let mut received = Vec::new();
    while received.len() < count {
        let wait = give_up.saturating_duration_since(Instant::now());
        assert!(!wait.is_zero(), "{} of {count} arrived", received.len());
        let more = queue.receive(count - received.len(), wait).unwrap();
        assert!(more.len() <= count - received.len(), "{} at once", more.len());
        received.extend(more);
    }
    received
}

#[track_caller]
fn receive_one(queue: &dyn JobQueue) -> Delivery {
    receive(queue, 1).remove(0)
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
