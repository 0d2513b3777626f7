//! Attacks on a worker: what hostile jobs, servers and outages cost the honest jobs behind them.
//!
//! With `--nocapture --test-threads 1`, each attack prints its row of a table. Nothing here asserts a time: an attack
//! fails if an honest job had to wait for a hostile one, or was lost.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Setup, numbered, wait_until};
use foveate_net::{Client, ClientOptions};
use foveate_queue::{Callback, ImageRef, Job, JobQueue};
use foveate_worker::{Batching, Callbacks, Engine, InFlightLimit, Probe, Worker, WorkerOptions, callback_id};

/// Honest jobs of each attack.
const HONEST: usize = 100;
/// Longer than any attack takes: what waits for a hostile server waits that long.
const PATIENCE: Duration = Duration::from_secs(100);

/// A server that does the same with every connection.
struct Hostile {
    url: String,
    open: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
}

impl Hostile {
    /// A server at 127.0.`site`.1, which is a site of its own.
    fn start(site: u8, serve: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 0, site, 1), 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (open, answered, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(serve));
        let counts = (Arc::clone(&open), Arc::clone(&answered));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, serve, counts) = (stream.unwrap(), Arc::clone(&serve), counts.clone());
                counts.0.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let _ = stream.read(&mut [0; 4096]);
                    serve(&mut stream, counts.1.fetch_add(1, SeqCst));
                    counts.0.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { url, open, answered }
    }

    /// Connections that wait for an answer, or read one.
    fn open(&self) -> usize {
        self.open.load(SeqCst)
    }
}

fn send_photo(stream: &mut TcpStream) {
    let photo = std::fs::read("../../examples/photos/avocado.jpg").unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", photo.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&photo));
}

/// Sends headers that declare much, and then a byte from time to time.
fn drip(stream: &mut TcpStream, _: usize) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n\xff\xd8");
    while stream.write_all(b"x").is_ok() {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Never answers.
fn deaf(stream: &mut TcpStream, _: usize) {
    while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
}

fn unavailable(stream: &mut TcpStream, _: usize) {
    let _ = stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

struct Attack {
    setup: Setup,
    name: &'static str,
}

impl Attack {
    fn new(name: &'static str) -> Self {
        Self { setup: Setup::new(Duration::from_secs(60), 3), name }
    }

    fn client(&self, change: impl FnOnce(&mut ClientOptions)) -> Arc<Client> {
        let allow_private = (0..100).map(|site| format!("127.0.{site}.1")).collect();
        // No cut of slow downloads, unless an attack wants it: sharing has to do.
        let window = PATIENCE;
        let mut options = ClientOptions { allow_private, timeout: PATIENCE, window, ..ClientOptions::default() };
        change(&mut options);
        Arc::new(Client::new(options).unwrap())
    }

    fn start(&self, change: impl FnOnce(&mut WorkerOptions)) -> Worker {
        let batching = Batching { max: 8, delay: Duration::from_millis(5), lanes: 1 };
        let engine = Engine::builder().client(self.client(|_| ())).task("embed", self.setup.task.clone(), batching);
        let mut options = self.setup.options();
        options.callbacks = Callbacks::new(Some(self.client(|_| ())));
        options.retry_for = Duration::from_secs(3600);
        change(&mut options);
        Worker::start(engine.build().unwrap(), options).unwrap()
    }

    fn send(&self, id: &str, image: String, callback: String) {
        let mut job = Job::new(ImageRef::Url(image));
        job.callback = Some(Callback { url: callback });
        self.setup.send_body(id, job.to_json().unwrap());
    }

    /// Sends the honest jobs, waits until all are answered, and prints the attack's row.
    fn honest_are_answered(&self) {
        let begin = Instant::now();
        self.setup.send(numbered("photo", HONEST));
        let expected: BTreeSet<_> = numbered("photo", HONEST).map(|id| callback_id("embed", &id)).collect();
        let answered = || self.setup.called().into_iter().filter(|id| expected.contains(id)).count();
        wait_until(PATIENCE + PATIENCE / 2, || answered() >= HONEST);
        println!("| {} | {HONEST} of {HONEST} after {:.1} s |", self.name, begin.elapsed().as_secs_f64());
    }
}

#[test]
fn images_that_drip_take_no_memory_from_others() {
    let attack = Attack::new("12 URLs that send headers and then drip");
    let hostile: Vec<_> = (0..12).map(|n| Hostile::start(n + 2, drip)).collect();
    for (n, host) in hostile.iter().enumerate() {
        attack.send(&format!("drip {n}"), format!("{}/{n}", host.url), attack.setup.server.url("/callback"));
    }
    let worker = attack.start(|_| ());
    let is_every_one_open = || hostile.iter().all(|host| host.open() == 1);
    wait_until(PATIENCE, is_every_one_open);
    attack.honest_are_answered();
    assert!(is_every_one_open(), "honest jobs waited for the end of a hostile one");
    worker.stop(Duration::ZERO);
}

#[test]
fn slow_hosts_do_not_take_the_threads_of_others() {
    let attack = Attack::new("64 URLs on two hosts that do not answer");
    let hostile = [Hostile::start(2, deaf), Hostile::start(3, deaf)];
    for n in 0..64 {
        let url = format!("{}/{n}", hostile[n % 2].url);
        attack.send(&format!("slow {n}"), url, attack.setup.server.url("/callback"));
    }
    let worker = attack.start(|_| ());
    wait_until(PATIENCE, || hostile.iter().all(|host| host.open() > 0));
    attack.honest_are_answered();
    let answered: usize = hostile.iter().map(|host| host.answered.load(SeqCst) - host.open()).sum();
    assert_eq!((answered, attack.setup.dead().len()), (0, 0), "honest jobs waited for the end of a hostile one");
    worker.stop(Duration::ZERO);
}

#[test]
fn a_deaf_receiver_holds_a_small_share_of_the_callbacks() {
    let attack = Attack::new("32 jobs whose callback accepts and never answers");
    let hostile = Hostile::start(2, deaf);
    for n in 0..32 {
        attack.send(&format!("deaf {n}"), attack.setup.server.url("/photo/1"), format!("{}/{n}", hostile.url));
    }
    let worker = attack.start(|_| ());
    wait_until(PATIENCE, || hostile.open() > 0);
    attack.honest_are_answered();
    assert!(hostile.open() <= 16, "at most a quarter of 64 threads, not {}", hostile.open());
    assert_eq!(attack.setup.dead().len(), 0);
    worker.stop(Duration::ZERO);
}

#[test]
fn a_receiver_that_was_fast_and_hangs_has_a_quarter_of_the_threads() {
    const TAKEN: usize = 20;
    let attack = Attack::new("300 jobs whose callback answers 20 and then hangs");
    let hostile = Hostile::start(2, |stream, n| match n < TAKEN {
        true => drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")),
        false => deaf(stream, n),
    });
    for n in 0..300 {
        attack.send(&format!("hangs {n}"), attack.setup.server.url("/photo/1"), format!("{}/{n}", hostile.url));
    }
    let worker = attack.start(|options| options.callbacks.posts = 16);
    wait_until(PATIENCE, || hostile.answered.load(SeqCst) > TAKEN);
    attack.honest_are_answered();
    let waiting = hostile.answered.load(SeqCst) - TAKEN;
    assert!((1..=4).contains(&waiting), "a quarter of 16 threads, not {waiting}");
    assert_eq!(hostile.open(), waiting, "honest jobs waited for the end of a hostile one");
    worker.stop(Duration::ZERO);
}

/// Queues `each` URLs of each of these hosts before the honest jobs. A job needs one message every 5 seconds for
/// minutes if dead hosts slow the intake.
fn dead_hosts_cost_little(name: &'static str, hosts: &[String], each: usize) {
    const LITTLE: Duration = Duration::from_secs(30);
    for has_succeeded in [false, true] {
        let attack = Attack::new(name);
        let worker = attack.start(|_| ());
        let callback = attack.setup.server.url("/callback");
        if has_succeeded {
            attack.send("first", attack.setup.server.url("/photo/1"), callback.clone());
            wait_until(PATIENCE, || worker.totals().done == 1);
        }
        for (host, n) in hosts.iter().flat_map(|host| (0..each).map(move |n| (host, n))) {
            attack.send(&format!("{host} {n}"), format!("{host}/{n}"), callback.clone());
        }
        let begin = Instant::now();
        attack.honest_are_answered();
        assert!(begin.elapsed() < LITTLE, "{:?}", begin.elapsed());
        assert_eq!(attack.setup.dead().len(), 0, "a host may come back");
        worker.stop(Duration::ZERO);
    }
}

#[test]
fn hosts_that_refuse_connections_do_not_slow_the_intake() {
    // Port 1 has no listener.
    let hosts: Vec<_> = (0..50).map(|n| format!("http://127.0.{}.1:1", n + 2)).collect();
    dead_hosts_cost_little("100 URLs of four hosts without a listener", &hosts[..4], 25);
    dead_hosts_cost_little("400 URLs of 50 hosts without a listener", &hosts, 8);
}

#[test]
fn hosts_that_do_not_answer_do_not_slow_the_intake() {
    let hostile: Vec<_> = (0..50).map(|n| Hostile::start(n + 2, deaf)).collect();
    let hosts: Vec<_> = hostile.iter().map(|host| host.url.clone()).collect();
    dead_hosts_cost_little("100 URLs of 50 hosts that do not answer", &hosts, 2);
}

#[test]
fn an_outage_of_the_network_uses_up_no_try() {
    const SITES: u8 = 12;
    const JOBS: usize = 48;
    // A try may end before the circuit breaker opens, and another after it closed.
    let attack = Attack { setup: Setup::new(Duration::from_secs(60), 4), name: "no site answers for 3 s" };
    let is_back = Arc::new(AtomicBool::new(false));
    let sites: Vec<_> = (0..SITES)
        .map(|n| {
            let is_back = Arc::clone(&is_back);
            Hostile::start(
                n + 2,
                move |stream, n| if is_back.load(SeqCst) { send_photo(stream) } else { deaf(stream, n) },
            )
        })
        .collect();
    let callback = attack.setup.server.url("/callback");
    for n in 0..JOBS {
        attack.send(&n.to_string(), format!("{}/{n}", sites[n % sites.len()].url), callback.clone());
    }
    let client = attack.client(|options| options.timeout = Duration::from_millis(250));
    let engine = Engine::builder().client(client).task("embed", attack.setup.task.clone(), Batching::default());
    // As many tries as the queue says: four.
    let options = WorkerOptions { callbacks: Callbacks::new(Some(attack.client(|_| ()))), ..attack.setup.options() };
    let worker = Worker::start(engine.build().unwrap(), options).unwrap();
    wait_until(PATIENCE, || worker.ready().is_err_and(|told| told.starts_with("network: ")));
    wait_until(PATIENCE, || worker.totals().held as usize > 6 * JOBS);
    assert_eq!(worker.live(), Ok(()), "a restart would not help");
    is_back.store(true, SeqCst);
    attack.setup.wait();
    assert_eq!((attack.setup.called().len(), attack.setup.dead().len(), worker.ready()), (JOBS, 0, Ok(())));
    println!("| {} | {JOBS} of {JOBS} |", attack.name);
}

/// As while a receiver is deployed.
#[test]
fn a_receiver_that_answers_404_for_a_while_costs_no_job() {
    let attack = Attack::new("the callback answers 404 until the breaker opens");
    attack.setup.server.callbacks().refuse_with(404);
    let worker = attack.start(|_| ());
    attack.setup.send(numbered("photo", HONEST));
    wait_until(PATIENCE, || worker.ready().is_err());
    let told = worker.ready().unwrap_err();
    assert!(told.starts_with("receiver 127.0.0.1:") && told.contains("404 Not Found"), "{told}");
    assert!(worker.metrics().contains("foveate_open_circuit_breakers{cause=\"receiver\"} 1"));
    assert_eq!(worker.live(), Ok(()), "a restart would not help");
    attack.setup.server.callbacks().refuse_with(0);
    attack.setup.wait();
    let called: BTreeSet<_> = attack.setup.called().into_iter().collect();
    assert_eq!((called.len(), attack.setup.dead().len(), worker.ready()), (HONEST, 0, Ok(())));
    println!("| {} | {HONEST} of {HONEST} |", attack.name);
}

#[test]
fn a_server_that_worked_and_died_does_not_slow_others() {
    let attack = Attack::new("300 URLs of a server that worked once and answers 503 now");
    let hostile = Hostile::start(2, |stream, n| match n {
        0 => send_photo(stream),
        _ => unavailable(stream, n),
    });
    let worker = attack.start(|_| ());
    let callback = attack.setup.server.url("/callback");
    attack.send("proof", format!("{}/0", hostile.url), callback.clone());
    wait_until(PATIENCE, || attack.setup.called().len() == 1);
    (0..300).for_each(|n| attack.send(&format!("dead {n}"), format!("{}/{n}", hostile.url), callback.clone()));
    attack.honest_are_answered();
    assert_eq!(attack.setup.dead().len(), 0, "the server may come back");
    assert_eq!(worker.ready(), Ok(()), "jobs may name any server");
    assert!(hostile.answered.load(SeqCst) < 150, "most are given back without a try: {:?}", hostile.answered);
    assert!(worker.metrics().contains("foveate_open_circuit_breakers{cause=\"host\"} 1"));
    worker.stop(Duration::ZERO);
}

/// Five quick tries are over before an outage is.
#[test]
fn a_message_is_retried_for_its_time_and_not_for_its_deliveries() {
    let attack = Attack::new("one server that answers 503 to more tries than max_receive");
    let tries = 12;
    let flaky = Hostile::start(2, move |stream, n| match n < tries {
        false => send_photo(stream),
        true => unavailable(stream, n),
    });
    attack.send("one", format!("{}/0", flaky.url), attack.setup.server.url("/callback"));
    let worker = attack.start(|_| ());
    attack.setup.wait();
    assert_eq!((attack.setup.called().len(), attack.setup.dead().len()), (1, 0));
    assert_eq!(worker.totals().retried as usize, tries);
    println!("| {} | 1 of 1 |", attack.name);
}

#[test]
fn restarts_do_not_send_an_unseen_message_to_the_quarantine() {
    const JOBS: usize = 20;
    let attack = Attack::new("eight restarts of a worker that holds messages");
    // The first download occupies the only thread, so no stage sees the other messages.
    let hostile = Hostile::start(2, deaf);
    let callback = attack.setup.server.url("/callback");
    (0..JOBS).for_each(|n| attack.send(&n.to_string(), format!("{}/{n}", hostile.url), callback.clone()));
    for _ in 0..8 {
        let engine = Engine::builder().client(attack.client(|_| ())).downloads(1).workers(1);
        let engine =
            engine.task("embed", attack.setup.task.clone(), Batching { max: 1, delay: Duration::ZERO, lanes: 1 });
        let in_flight_limit = InFlightLimit::Fixed(JOBS);
        let options = WorkerOptions { in_flight_limit, ..attack.setup.options() };
        let worker = Worker::start(engine.build().unwrap(), options).unwrap();
        wait_until(PATIENCE, || worker.held() == JOBS);
        worker.stop(Duration::ZERO);
    }
    let received = attack.setup.wait_for(attack.setup.queue.receive(JOBS, Duration::from_secs(5))).unwrap();
    let often = received.iter().filter(|delivery| delivery.received > 4).count();
    assert_eq!((received.len(), attack.setup.dead().len()), (JOBS, 0));
    assert!(often <= 8, "{often} messages came to the quarantine, and 8 were begun");
    println!("| {} | {} of {JOBS} not in quarantine |", attack.name, JOBS - often);
}
