//! The engine with a task that only these tests use.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use foveate_net::photo_server::{PhotoServer, PhotoServerOptions};
use foveate_net::{Client, ClientOptions};
use foveate_queue::ImageRef;
use foveate_worker::{
    Batching, Done, Engine, EngineBuilder, Image, InTurn, Outcome, Output, Probe, Received, Rejected, Request, Stage,
    Task, TaskError,
};

/// Answers an image's last byte and the size of its batch; blocks every batch while the gate is closed.
#[derive(Clone, Default)]
struct Last {
    gate: Arc<(Mutex<bool>, Condvar)>,
    inside: Arc<AtomicUsize>,
}

impl Last {
    fn close(&self) {
        *self.gate.0.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.gate.0.lock().unwrap() = false;
        self.gate.1.notify_all();
    }

    fn wait_until_inside(&self) {
        while self.inside.load(SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Task for Last {
    type Prepared = u8;
    type Lane = InTurn<u8>;

    fn prepare(&self, received: Received<'_>) -> Result<u8, TaskError> {
        match received.file.last() {
            Some(&b'x') => Err(TaskError::image("an x").at("decode")),
            Some(&b'p') => panic!("a p"),
            Some(&last) => Ok(last),
            None => Err(TaskError::image("empty")),
        }
    }

    fn lane(self: Arc<Self>) -> Option<InTurn<u8>> {
        Some(InTurn::new(move |batch| {
            self.inside.fetch_add(1, SeqCst);
            let (closed, opened) = &*self.gate;
            drop(opened.wait_while(closed.lock().unwrap(), |closed| *closed).unwrap());
            self.inside.fetch_sub(1, SeqCst);
            assert!(!batch.contains(&b'q'), "a q");
            Ok(batch.iter().map(|&last| Output::Json(serde_json::json!([last, batch.len()]))).collect())
        }))
    }
}

fn jpeg(last: u8) -> Image {
    Image::Bytes(vec![0xff, 0xd8, 0xff, 0xe0, last])
}

fn request(task: &str, id: &str, image: Image) -> (Request, Receiver<Outcome>) {
    let (tell, told) = channel();
    let done = Done::new(move |outcome| tell.send(outcome).unwrap());
    let span = tracing::Span::none();
    (Request { id: id.to_owned(), task: task.to_owned(), image, metadata: None, done, span }, told)
}

fn submit(engine: &Engine, last: u8) -> Receiver<Outcome> {
    let (request, told) = request("last", "id", jpeg(last));
    engine.submit(request).unwrap();
    told
}

fn wait(told: &Receiver<Outcome>) -> Outcome {
    told.recv_timeout(Duration::from_secs(10)).unwrap()
}

fn builder(task: &Last, max: usize, delay: Duration) -> EngineBuilder {
    Engine::builder().downloads(1).task("last", task.clone(), Batching { max, delay, lanes: 1 })
}

#[test]
fn every_request_has_one_outcome_whoever_does_the_work() {
    for (downloaders, workers, max) in [(0, 0, 1), (2, 0, 4), (0, 3, 4), (2, 3, 8)] {
        let batching = Batching { max, delay: Duration::from_millis(1), lanes: 1 + workers / 2 };
        let engine = Engine::builder().downloads(downloaders).workers(workers).task("last", Last::default(), batching);
        let engine = engine.build().unwrap();
        let told: Vec<_> = b"abxpqcdab".iter().map(|&last| (last, submit(&engine, last))).collect();
        for (last, told) in told {
            match (last, wait(&told)) {
                (b'x', Err(failure)) => assert_eq!(failure.to_string(), "decode: an x"),
                (b'p', Err(failure)) => assert_eq!(failure.to_string(), "preprocess: the task panicked: a p"),
                (b'q', Err(failure)) => assert_eq!(failure.to_string(), "process: the task panicked: a q"),
                (last, Ok(Output::Json(answer))) => assert_eq!(answer[0], last),
                (last, outcome) => panic!("{last}: {outcome:?}"),
            }
            assert!(told.try_recv().is_err(), "one outcome");
        }
        assert_eq!((engine.in_flight(), engine.live(), engine.ready()), (0, Ok(()), Ok(())));
    }
}

#[test]
fn a_file_in_content_codings_is_decoded_whichever_thread_has_it() {
    let gzip = |file: &[u8]| {
        let mut coded = GzEncoder::new(Vec::new(), Compression::fast());
        coded.write_all(file).unwrap();
        coded.finish().unwrap()
    };
    let server = coded_server(BTreeMap::from([
        ("/good", gzip(&[0xff, 0xd8, 0xff, 0xe0, b'a'])),
        ("/large", gzip(&vec![0; 2 << 20])),
        ("/damaged", b"no gzip".to_vec()),
        ("/page", gzip(b"<html>not found</html>")),
        ("/empty", gzip(b"")),
    ]));
    let options =
        ClientOptions { allow_private: vec!["127.0.0.1".to_owned()], max_bytes: 1 << 20, ..ClientOptions::default() };
    for (downloads, workers) in [(4, 2), (4, 0), (0, 0)] {
        let client = Arc::new(Client::new(options.clone()).unwrap());
        let batching = Batching::default();
        let engine = Engine::builder().client(client).downloads(downloads).workers(workers);
        let engine = engine.task("last", Last::default(), batching).build().unwrap();
        let outcome = |path: &str| {
            let url = ImageRef::Url(format!("http://{server}{path}"));
            let (request, told) = request("last", "id", Image::At(url));
            engine.submit(request).unwrap();
            wait(&told)
        };
        assert!(matches!(outcome("/good"), Ok(Output::Json(answer)) if answer[0] == b'a'));
        for (path, reason) in [
            ("/large", "over that many bytes, more than the limit of 1048576"),
            ("/damaged", "answered with damaged gzip"),
            ("/page", "answered with a web page (22 bytes of HTML), not with an image"),
            ("/empty", "answered with nothing"),
        ] {
            let failure = outcome(path).unwrap_err();
            assert_eq!((failure.stage, failure.transient, failure.reached), (Stage::Download, false, Some(true)));
            assert!(failure.reason.ends_with(reason), "{failure}");
        }
    }
}

/// A server of bodies in gzip, by path.
fn coded_server(bodies: BTreeMap<&'static str, Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut request, mut line) = (String::new(), String::from(" "));
            while !line.trim().is_empty() || request.is_empty() {
                line.clear();
                stream.read_line(&mut line).unwrap();
                request += &line;
            }
            let body = &bodies[request.split(' ').nth(1).unwrap()];
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.get_mut().write_all(&[head.as_bytes(), body].concat()).unwrap();
        }
    });
    address
}

#[test]
fn what_is_no_image_is_told_before_a_task_sees_it() {
    let engine = builder(&Last::default(), 1, Duration::ZERO).build().unwrap();
    let (request, told) = request("last", "id", Image::Bytes(b"<html>not found</html>".to_vec()));
    engine.submit(request).unwrap();
    let failure = wait(&told).unwrap_err();
    assert_eq!((failure.stage, failure.transient), (Stage::Within("decode"), false));
}

#[test]
fn a_batch_ends_when_it_is_full_or_its_time_is_up() {
    let task = Last::default();
    task.close();
    let engine = builder(&task, 4, Duration::from_secs(60)).build().unwrap();
    // The first image does not wait, because no other is coming; the others gather behind it.
    let first = submit(&engine, b'a');
    task.wait_until_inside();
    let rest: Vec<_> = (0..6).map(|_| submit(&engine, b'b')).collect();
    while engine.metrics().lines().any(|line| line.starts_with("foveate_queue_depth{queue=\"preprocess\"} 6")) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    task.open();
    let size = |told: &Receiver<Outcome>| match wait(told) {
        Ok(Output::Json(answer)) => answer[1].as_u64().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(size(&first), 1);
    let mut sizes = BTreeMap::new();
    rest.iter().for_each(|told| *sizes.entry(size(told)).or_insert(0) += 1);
    assert_eq!(sizes, BTreeMap::from([(4, 4), (2, 2)]), "one full batch, and the rest without the minute's wait");
}

#[test]
fn the_first_of_a_batch_waits_for_those_that_come_but_not_for_long() {
    /// The second image takes long to prepare.
    struct Slow;
    impl Task for Slow {
        type Prepared = ();
        type Lane = InTurn<()>;
        fn prepare(&self, received: Received<'_>) -> Result<(), TaskError> {
            if received.id == "slow" {
                std::thread::sleep(Duration::from_millis(700));
            }
            Ok(())
        }
        fn lane(self: Arc<Self>) -> Option<InTurn<()>> {
            Some(InTurn::new(|batch| Ok(batch.iter().map(|()| Output::Json(batch.len().into())).collect())))
        }
    }
    let batching = Batching { max: 8, delay: Duration::from_millis(100), lanes: 1 };
    let engine = Engine::builder().workers(2).task("slow", Slow, batching).build().unwrap();
    let start = Instant::now();
    let (slow, told_slow) = request("slow", "slow", jpeg(b'a'));
    let (fast, told_fast) = request("slow", "fast", jpeg(b'a'));
    engine.submit(slow).unwrap();
    engine.submit(fast).unwrap();
    assert_eq!(wait(&told_fast), Ok(Output::Json(1.into())));
    assert!(start.elapsed() >= Duration::from_millis(100), "it waited for the other");
    assert!(told_slow.try_recv().is_err(), "but not to the end");
    assert_eq!(wait(&told_slow), Ok(Output::Json(1.into())));
}

#[test]
fn a_full_engine_gives_requests_back() {
    let task = Last::default();
    task.close();
    let engine = builder(&task, 1, Duration::ZERO).max_in_flight(3).build().unwrap();
    let told: Vec<_> = (0..3).map(|_| submit(&engine, b'a')).collect();
    let (fourth, told_fourth) = request("last", "fourth", jpeg(b'a'));
    let rejected = engine.submit(fourth).unwrap_err();
    assert!(matches!(rejected, Rejected::Full(_)));
    assert_eq!(engine.ready(), Err("full: 3 requests are under way".to_owned()));
    assert_eq!(engine.live(), Ok(()));
    let fourth = rejected.into_request();
    assert_eq!(fourth.id, "fourth");
    assert!(told_fourth.try_recv().is_err(), "nobody was told anything");
    task.open();
    told.iter().for_each(|told| assert!(wait(told).is_ok()));
    engine.submit(fourth).unwrap();
    assert!(wait(&told_fourth).is_ok());

    let (stray, _told) = request("nothing", "stray", jpeg(b'a'));
    assert_eq!(engine.submit(stray).unwrap_err().to_string(), "there is no task 'nothing'; there is last");
}

#[test]
fn what_nobody_wants_any_more_is_left_out() {
    let task = Last::default();
    task.close();
    let engine = builder(&task, 1, Duration::ZERO).build().unwrap();
    let first = submit(&engine, b'a');
    task.wait_until_inside();
    let wanted = Arc::new(AtomicBool::new(true));
    let (mut request, told) = request("last", "id", jpeg(b'b'));
    let still = Arc::clone(&wanted);
    request.done = request.done.while_wanted(move || still.load(SeqCst));
    engine.submit(request).unwrap();
    wanted.store(false, SeqCst);
    task.open();
    assert!(wait(&first).is_ok());
    assert_eq!(wait(&told).unwrap_err().stage, Stage::Cancelled);
}

#[test]
fn an_engine_that_is_stuck_says_so() {
    let task = Last::default();
    let engine = builder(&task, 1, Duration::ZERO).stall(Duration::from_millis(300)).build().unwrap();
    assert_eq!(engine.live(), Ok(()));
    task.close();
    let told = submit(&engine, b'a');
    task.wait_until_inside();
    std::thread::sleep(Duration::from_millis(400));
    let stuck = engine.live().unwrap_err();
    assert!(stuck.starts_with("threads work on 1 items, and finished none for"), "{stuck}");
    task.open();
    assert!(wait(&told).is_ok());
    while engine.live().is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn stopping_finishes_what_is_under_way_and_tells_the_rest() {
    let task = Last::default();
    let engine = builder(&task, 1, Duration::ZERO).build().unwrap();
    let told: Vec<_> = (0..20).map(|_| submit(&engine, b'a')).collect();
    assert_eq!(engine.stop(Duration::from_secs(10)), 0);
    told.iter().for_each(|told| assert!(wait(told).is_ok()));
    assert!(matches!(engine.submit(request("last", "late", jpeg(b'a')).0), Err(Rejected::Stopping(_))));

    let engine = builder(&task, 1, Duration::ZERO).build().unwrap();
    task.close();
    let stuck = submit(&engine, b'a');
    task.wait_until_inside();
    let waiting = submit(&engine, b'b');
    assert_eq!(engine.stop(Duration::from_millis(50)), 2);
    assert_eq!(wait(&waiting).unwrap_err().stage, Stage::Shutdown);
    task.open();
    assert!(wait(&stuck).is_ok(), "what a stuck thread had is told when it comes back");
}

#[test]
fn metrics_count_each_stage() {
    let engine = builder(&Last::default(), 4, Duration::ZERO).build().unwrap();
    let told: Vec<_> = b"abcx".iter().map(|&last| submit(&engine, last)).collect();
    told.iter().for_each(|told| drop(wait(told)));
    let text = engine.metrics();
    for line in [
        "foveate_items_total{stage=\"preprocess\",task=\"last\",result=\"ok\"} 3",
        "foveate_items_total{stage=\"preprocess\",task=\"last\",result=\"failed\"} 1",
        "foveate_items_total{stage=\"process\",task=\"last\",result=\"ok\"} 3",
        "foveate_stage_seconds_count{stage=\"preprocess\",task=\"last\"} 4",
        "foveate_queue_depth{queue=\"process last\"} 0",
        "foveate_queue_wait_seconds_count{queue=\"preprocess\"} 4",
        "foveate_queue_wait_seconds_count{queue=\"process last\"} 3",
        "foveate_in_flight 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[test]
fn a_server_that_does_not_answer_leaves_threads_for_the_others() {
    let photo: Arc<[u8]> = vec![0xff, 0xd8, 0xff, 0xe0, b'a'].into();
    let hosts = [1, 2].map(|site| Ipv4Addr::new(127, 0, site, 1));
    let [stalled, other] = hosts.map(|address| {
        PhotoServer::start(vec![photo.clone()], PhotoServerOptions { address, ..PhotoServerOptions::default() })
            .unwrap()
    });
    stalled.set_stalled(true);
    let allow_private = hosts.map(|host| host.to_string()).to_vec();
    let client = Client::new(ClientOptions { allow_private, per_host: 2, ..ClientOptions::default() }).unwrap();
    let task = Last::default();
    let engine = builder(&task, 1, Duration::ZERO).client(Arc::new(client)).downloads(3).build().unwrap();
    let ask = |server: &PhotoServer, n: usize| {
        let image = Image::At(ImageRef::Url(server.url(&format!("/photo/{n}"))));
        let (request, told) = request("last", "id", image);
        engine.submit(request).unwrap();
        told
    };
    let waiting: Vec<_> = (0..20).map(|n| ask(&stalled, n)).collect();
    for n in 0..20 {
        assert!(wait(&ask(&other, n)).is_ok());
    }
    assert!(waiting.iter().all(|told| told.try_recv().is_err()) && engine.in_flight() == 20);
    assert!(
        engine.metrics().lines().any(|line| line == "foveate_queue_depth{queue=\"download\"} 19"),
        "{}",
        engine.metrics()
    );
    stalled.set_stalled(false);
    assert!(waiting.iter().all(|told| wait(told).is_ok()));
    assert_eq!(engine.in_flight(), 0);
}
