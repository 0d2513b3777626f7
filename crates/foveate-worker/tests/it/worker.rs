//! The worker on an in-process queue, with photos and callbacks over real sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{SECRET, Setup, numbered, wait_until};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use foveate_net::photo_server::{PhotoServer, PhotoServerOptions};
use foveate_net::webhook::Secrets;
use foveate_queue::{
    Callback, DeadLetter, Delivery, Depth, ImageRef, Job, JobQueue, Judge, MemoryQueue, Message, QueueError, Receipt,
    Sent,
};
use foveate_sink::parts::PartSink;
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_sink_npy::NpyFormat;
use foveate_source::AllowedObjects;
use foveate_source::store::StoreOptions;
use foveate_worker::{
    Batching, Engine, InFlightLimit, Probe, Segments, Setting, Traces, Worker, WorkerOptions, callback_id,
};

#[test]
fn every_message_is_called_back_or_dead_lettered_with_stage_and_reason() {
    let setup = Setup::new(Duration::from_secs(20), 3);
    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.send(numbered("photo", 40));
    setup.send(["/flaky/1/1", "/flaky/2/2", "/missing/1", "/error/1", "/bomb/1", "/bomb/2"]);
    setup.send_body("nonsense", b"{}".to_vec());
    setup.send_body(
        "inside",
        br#"{"version":1,"image":{"url":"http://10.0.0.1/x"},"callback":{"url":"https://example.com"}}"#.to_vec(),
    );
    setup.wait();

    let called = setup.called();
    let expected: BTreeSet<_> = numbered("photo", 40).chain(["/flaky/1/1".into(), "/flaky/2/2".into()]).collect();
    assert_eq!(
        called.iter().cloned().collect::<BTreeSet<_>>(),
        expected.iter().map(|id| callback_id("embed", id)).collect()
    );
    assert_eq!(called.len(), expected.len(), "each once");

    let dead = setup.dead();
    let stages: BTreeMap<_, _> = dead.iter().map(|(id, (stage, _))| (id.as_str(), stage.as_str())).collect();
    let download = ["/missing/1", "/error/1", "inside"].map(|id| (id, "download"));
    let decode = ["/bomb/1", "/bomb/2"].map(|id| (id, "decode"));
    assert_eq!(stages, download.into_iter().chain(decode).chain([("nonsense", "parse")]).collect());
    assert!(dead["/error/1"].1.contains("503") && dead["/error/1"].1.ends_with("(the last of 3 tries)"), "{dead:?}");
    assert_eq!(setup.server.requests("/error/1"), 3);
    assert_eq!(setup.server.requests("/missing/1"), 1, "404 is not tried again");

    let metrics = worker.metrics();
    for line in [
        "foveate_settled_total{queue=\"jobs\",how=\"acknowledged\",stage=\"callback\"} 42",
        "foveate_settled_total{queue=\"jobs\",how=\"released\",stage=\"download\"} 5",
        "foveate_settled_total{queue=\"jobs\",how=\"dead\",stage=\"decode\"} 2",
        "foveate_received_total{queue=\"jobs\",delivery=\"again\"} 5",
        "foveate_messages_held 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert_eq!((worker.live(), worker.ready()), (Ok(()), Ok(())));
    assert_eq!(worker.stop(Duration::from_secs(5)), 0);
}

#[test]
fn addresses_of_jobs_are_read_as_browsers_read_them() {
    let setup = Setup::new(Duration::from_secs(20), 3);
    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    let photo = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos/avocado.jpg")).unwrap();
    let odd = setup.server.url("/photo/1").replace("http://", " HTTP:\\\\").replace("/photo", "\\photo");
    let data = format!("DATA:image/jpeg;name=a; base64,{}", STANDARD_NO_PAD.encode(photo));
    for (id, image) in [("odd", odd), ("data", data), ("store", "S3://bucket/a.jpg".to_owned())] {
        let mut job = Job { id: Some(id.to_owned()), ..Job::new(ImageRef::Url(image)) };
        job.callback = Some(Callback { url: setup.server.url("/callback") });
        setup.send_body(id, job.to_json().unwrap());
    }
    wait_until(Duration::from_secs(20), || worker.totals().done == 2 && worker.refused() == 1);
    let called: BTreeSet<_> = setup.called().into_iter().collect();
    assert_eq!(called, ["odd", "data"].iter().map(|id| callback_id("embed", id)).collect());
    assert!(setup.dead().is_empty(), "an object is another worker's: {:?}", setup.dead());
}

#[test]
fn a_page_in_the_place_of_an_image_is_a_failed_download() {
    let mut setup = Setup::new(Duration::from_secs(20), 3);
    let page = Arc::from(&b"<!doctype html><title>gone</title>"[..]);
    setup.server = PhotoServer::start(vec![page], PhotoServerOptions::default()).unwrap();
    let _worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.send(["/photo/0"]);
    setup.wait();
    let (stage, reason) = &setup.dead()["/photo/0"];
    assert_eq!(stage, "download");
    assert!(reason.ends_with(": answered with a web page (34 bytes of HTML), not with an image"), "{reason}");
}

/// An autoscaler needs to know what waits at the broker.
#[test]
fn metrics_tell_how_many_messages_wait_and_how_long() {
    let mut setup = Setup::new(Duration::from_secs(20), 3);
    setup.task.time = Duration::from_secs(2);
    setup.send(numbered("photo", 10));
    std::thread::sleep(Duration::from_millis(20));
    let options = WorkerOptions { in_flight_limit: InFlightLimit::Fixed(1), ..setup.options() };
    let worker = Worker::start(setup.engine(), options).unwrap();
    let value = |name: &str| {
        let text = worker.metrics();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
    };
    wait_until(Duration::from_secs(10), || value("foveate_broker_wait_seconds{queue=\"jobs\"}") >= Some(0.02));
    assert!(value("foveate_message_wait_seconds_count{queue=\"jobs\"}") >= Some(1.0));
    let count = |state: &str| value(&format!("foveate_broker_messages{{queue=\"jobs\",state=\"{state}\"}}"));
    wait_until(Duration::from_secs(10), || count("dead") == Some(0.0));
    assert_eq!(count("waiting").unwrap() + count("leased").unwrap(), 10.0);
    worker.stop(Duration::ZERO);
}

/// A message that a worker's settings refuse keeps its tries for workers that can finish it.
#[test]
fn what_settings_refuse_is_given_back_for_other_workers() {
    let setup = Setup::new(Duration::from_secs(20), 2);
    setup.send(numbered("photo", 2));
    let job = r#"{"version":1,"image":{"object":"s3://b/k"},"callback":{"url":"https://example.com"}}"#;
    setup.send_body("object", job.into());
    setup.send_body("other task", job.replace("1,", r#"1,"task":"sing","#).into());

    let mut options = setup.options();
    options.callbacks.client = None;
    options.remedy = |setting| (setting == Setting::Callbacks).then_some("allow them");
    let worker = Worker::start(setup.engine(), options).unwrap();
    // More deliveries than a message has tries, and fewer in all than slow the worker down.
    wait_until(Duration::from_secs(20), || worker.totals().refused >= 4 * 7);
    // A refusal counts the messages refused so far, and more arrive between two readings.
    for refusal in [worker.refusal().unwrap(), worker.ready().unwrap_err()] {
        assert!(refusal.ends_with("the job names a callback, and this worker posts none; allow them"), "{refusal}");
    }
    assert_eq!((worker.live(), worker.refused() <= 4), (Ok(()), true));
    worker.stop(Duration::ZERO);

    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    wait_until(Duration::from_secs(20), || worker.totals().done == 2 && worker.refused() == 2);
    assert_eq!((worker.refusal(), worker.ready()), (None, Ok(())));
    worker.stop(Duration::ZERO);
    let depth = setup.wait_for(setup.queue.depth()).unwrap();
    assert_eq!((setup.called().len(), setup.dead().len(), depth.waiting), (2, 0, 2));
}

#[test]
fn a_callback_is_signed_and_carries_what_the_caller_needs() {
    static JOINED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let setup = Setup::new(Duration::from_secs(20), 3);
    let traces = Traces {
        join: |_, traceparent| JOINED.lock().unwrap().push(traceparent.to_owned()),
        traceparent: |_| Some("00-ours-01".to_owned()),
    };
    let _worker = Worker::start(setup.engine(), WorkerOptions { traces, ..setup.options() }).unwrap();
    let photo = setup.server.url("/photo/0");
    let callback = setup.server.url("/callback");
    let body = format!(
        r#"{{"version":1,"id":"mine","image":{{"url":"{photo}"}},"callback":{{"url":"{callback}"}},"metadata":{{"n": 1.50}},"traceparent":"00-theirs-01"}}"#
    );
    setup.send_body("broker's", body.into_bytes());
    setup.wait();
    let calls = setup.server.callbacks().calls();
    assert_eq!(calls.len(), 1);
    let text = String::from_utf8(calls[0].body.clone()).unwrap();
    let length =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos/alpro-vanilla-soyghurt.jpg"));
    let expected = format!(
        r#"{{"version":1,"id":"mine","task":"embed","result":{{"embedding":[{}.0,1.0],"dim":2,"width":3,"height":2,"xxh3":"0000000000000007"}},"metadata":{{"n": 1.50}}}}"#,
        length.unwrap().len()
    );
    assert_eq!(text, expected);
    let secrets = Secrets::parse(SECRET).unwrap();
    assert_eq!(calls[0].id, callback_id("embed", "mine"));
    assert_eq!(
        (calls[0].traceparent.as_str(), JOINED.lock().unwrap().as_slice()),
        ("00-ours-01", &["00-theirs-01".to_owned()][..])
    );
    assert_eq!(calls[0].signature, secrets.sign(&calls[0].id, calls[0].timestamp.parse().unwrap(), &calls[0].body));
}

/// The failure is posted before the message dies, and once the callback works again.
#[test]
fn a_failure_is_posted_if_the_job_asks_for_it() {
    let setup = Setup::new(Duration::from_secs(20), 3);
    for (id, callback_failures) in [("told", true), ("untold", false)] {
        let mut job = Job { callback_failures, ..Job::new(ImageRef::Url(setup.server.url("/missing/1"))) };
        job.callback = Some(Callback { url: setup.server.url("/callback") });
        setup.send_body(id, job.to_json().unwrap());
    }
    setup.server.callbacks().set_down(true);
    let _worker = Worker::start(setup.engine(), setup.options()).unwrap();
    wait_until(Duration::from_secs(20), || setup.dead().len() == 1 && !setup.server.callbacks().calls().is_empty());
    assert!(setup.dead().contains_key("untold"));
    setup.server.callbacks().set_down(false);
    setup.wait();
    assert_eq!(setup.dead()["told"].0, "download");
    let calls = setup.server.callbacks().calls();
    let told = calls.last().unwrap();
    let body = String::from_utf8(told.body.clone()).unwrap();
    assert!(
        body.starts_with(r#"{"version":1,"id":"told","task":"embed","error":{"stage":"download","reason":"#),
        "{body}"
    );
    let secrets = Secrets::parse(SECRET).unwrap();
    assert_eq!(told.signature, secrets.sign(&told.id, told.timestamp.parse().unwrap(), &told.body));
    assert!(
        told.id != callback_id("embed", "told") && calls.iter().all(|call| call.id == told.id),
        "one key, not the result's"
    );
}

/// At 5 images a second, 100 take 20 s; a message that is held longer than its lease of 1 s comes back.
#[test]
fn without_an_in_flight_limit_messages_come_back_and_with_it_they_do_not() {
    let returned = |in_flight_limit: InFlightLimit| {
        let mut setup = Setup::new(Duration::from_secs(3), 1_000);
        setup.task.time = Duration::from_millis(200);
        let options = WorkerOptions { in_flight_limit, heartbeat: false, ..setup.options() };
        let worker = Worker::start(setup.engine(), options).unwrap();
        setup.send(numbered("photo", 120));
        setup.wait();
        assert_eq!(setup.called().into_iter().collect::<BTreeSet<_>>().len(), 120);
        let metrics = worker.metrics();
        // The delivery goes to this worker, if it has not noticed the end of the lease yet, or to another one.
        let again = ["again", "held"].map(|delivery| {
            let name = format!("foveate_received_total{{queue=\"jobs\",delivery=\"{delivery}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse::<u64>().unwrap())
        });
        again.into_iter().sum::<u64>()
    };
    let (without, with) = (returned(InFlightLimit::Fixed(usize::MAX)), returned(InFlightLimit::Rate(20.0)));
    assert!(without > 20, "{without} messages came back without a limit");
    assert_eq!(with, 0, "messages came back in spite of the limit");
    assert_eq!(returned(InFlightLimit::Measured), 0, "the measured limit does not limit");
}

#[test]
fn a_lease_is_kept_alive_however_long_the_work_takes() {
    let mut setup = Setup::new(Duration::from_secs(2), 1_000);
    setup.task.time = Duration::from_secs(5);
    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.send(numbered("photo", 8));
    setup.wait();
    assert_eq!(setup.called().len(), 8, "each once");
    assert!(!worker.metrics().contains("delivery=\"again\""));
}

#[test]
fn a_callback_that_is_down_for_a_while_costs_nothing_but_time() {
    let setup = Setup::new(Duration::from_secs(2), 3);
    setup.server.callbacks().set_down(true);
    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.send(numbered("photo", 30));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!((setup.called().len(), worker.live()), (0, Ok(())));
    setup.server.callbacks().set_down(false);
    setup.wait();
    assert_eq!((setup.called().len(), setup.dead().len()), (30, 0));
    assert_eq!(setup.task.done.load(SeqCst), 30, "nothing was computed twice");
}

#[test]
fn a_callback_that_never_works_ends_in_the_dead_letters() {
    let setup = Setup::new(Duration::from_secs(20), 2);
    setup.server.callbacks().set_down(true);
    let mut options = setup.options();
    options.callbacks.patience = Duration::from_millis(150);
    let _worker = Worker::start(setup.engine(), options).unwrap();
    setup.send(numbered("photo", 2));
    setup.wait();
    let dead = setup.dead();
    assert!(
        dead.len() == 2 && dead.values().all(|(stage, reason)| stage == "callback" && reason.contains("503")),
        "{dead:?}"
    );
}

#[test]
fn a_worker_that_cannot_work_does_not_use_up_the_tries_of_all_messages() {
    let setup = Setup::new(Duration::from_secs(20), 2);
    setup.task.broken.store(true, SeqCst);
    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.send(numbered("photo", 400));
    wait_until(Duration::from_secs(20), || worker.live().is_err());
    assert!(worker.live().unwrap_err().contains("the device is gone"));
    assert_eq!(worker.ready(), worker.live());
    std::thread::sleep(Duration::from_millis(500));
    assert!(setup.dead().len() < 100, "{} are dead", setup.dead().len());
    setup.task.broken.store(false, SeqCst);
    setup.wait();
    assert_eq!((worker.live(), worker.ready()), (Ok(()), Ok(())));
    assert_eq!(setup.called().len() + setup.dead().len(), 400);
}

#[test]
fn stopping_finishes_what_is_held_and_gives_back_the_rest() {
    let mut setup = Setup::new(Duration::from_secs(60), 3);
    setup.task.time = Duration::from_millis(100);
    let worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.send(numbered("photo", 30));
    wait_until(Duration::from_secs(10), || worker.held() > 0);
    assert_eq!(worker.stop(Duration::from_secs(20)), 0);
    let depth = setup.wait_for(setup.queue.depth()).unwrap();
    assert_eq!((depth.leased, depth.waiting as usize + setup.called().len()), (0, 30));

    setup.task.time = Duration::from_secs(2);
    setup.send(numbered("photo", 30));
    let worker =
        Worker::start(setup.engine(), WorkerOptions { in_flight_limit: InFlightLimit::Fixed(20), ..setup.options() })
            .unwrap();
    wait_until(Duration::from_secs(10), || worker.held() == 20);
    assert_eq!(worker.stop(Duration::from_millis(100)), 20);
    assert_eq!(setup.wait_for(setup.queue.depth()).unwrap().leased, 0, "given back at once, not when the lease ends");
}

/// Workers that take every message and die.
fn dying_workers(setup: &Setup, deaths: usize, messages: usize) {
    for _ in 0..deaths {
        assert_eq!(setup.wait_for(setup.queue.receive(messages, Duration::from_secs(5))).unwrap().len(), messages);
        std::thread::sleep(setup.queue.lease() + Duration::from_millis(50));
    }
}

#[test]
fn a_message_that_kills_its_workers_is_given_up_unseen() {
    let setup = Setup::new(Duration::from_millis(100), 2);
    setup.send(["/photo/1"]);
    dying_workers(&setup, 5, 1);
    let _worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.wait();
    let (stage, reason) = &setup.dead()["/photo/1"];
    assert_eq!(stage, "receive");
    assert!(reason.starts_with("delivered 6 times without an outcome"), "{reason}");
    assert_eq!(setup.task.done.load(SeqCst), 0);
}

#[test]
fn messages_that_were_held_together_with_one_that_kills_are_tried_one_at_a_time() {
    let setup = Setup::new(Duration::from_secs(2), 2);
    setup.send(numbered("photo", 8));
    dying_workers(&setup, 2, 8);
    let _worker = Worker::start(setup.engine(), setup.options()).unwrap();
    setup.wait();
    assert_eq!((setup.called().len(), setup.dead().len()), (8, 0));
    assert_eq!(setup.task.largest_batch.load(SeqCst), 1);
}

#[test]
fn what_waits_for_a_place_in_the_engine_keeps_its_lease() {
    let mut setup = Setup::new(Duration::from_secs(3), 3);
    setup.task.time = Duration::from_millis(700);
    let batching = Batching { max: 1, delay: Duration::ZERO, lanes: 1 };
    let engine = Engine::builder().client(setup.client()).max_in_flight(2);
    let engine = engine.task("embed", setup.task.clone(), batching).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sink = segments(folder.path(), Failing::default(), Arc::new(|| 0), Arc::default());
    let options = WorkerOptions { in_flight_limit: InFlightLimit::Fixed(10), sink: Some(sink), ..setup.options() };
    for n in 0..10 {
        let job = Job::new(ImageRef::Url(setup.server.url(&format!("/photo/{n}"))));
        setup.send_body(&format!("row-{n}"), job.to_json().unwrap());
    }
    let worker = Worker::start(engine, options).unwrap();
    wait_until(Duration::from_secs(10), || worker.held() == 10);
    setup.wait();
    assert_eq!((setup.task.done.load(SeqCst), setup.dead().len()), (10, 0), "none was delivered again");
}

/// The failures of a sink.
#[derive(Clone, Default)]
struct Failing {
    /// The number of times that the disk is full.
    outages: Arc<AtomicUsize>,
    /// The id of a row that the sink refuses.
    poison: Option<&'static str>,
}

/// A sink that writes NPY files unless it fails on purpose.
struct Weak {
    sink: PartSink<NpyFormat>,
    poison: Option<&'static str>,
}

impl VectorSink for Weak {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.sink.begin(manifest, existing)
    }
    fn failures(&mut self) -> Result<u64, SinkError> {
        self.sink.failures()
    }
    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        assert!(!rows.id.iter().any(|id| Some(id.as_str()) == self.poison), "a poisoned row");
        self.sink.append(rows)
    }
    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.sink.fail(failures)
    }
    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.sink.commit(watermark)
    }
    fn finish(&mut self) -> Result<Published, SinkError> {
        self.sink.finish()
    }
}

/// Records what `acknowledged` returns whenever a segment begins.
fn segments(
    folder: &Path,
    failing: Failing,
    acknowledged: Arc<dyn Fn() -> u64 + Send + Sync>,
    seen: Arc<Mutex<Vec<u64>>>,
) -> Segments {
    let folder = folder.to_owned();
    let open = move |name: &str| -> Result<Box<dyn VectorSink>, SinkError> {
        seen.lock().unwrap().push(acknowledged());
        let fails = |left: usize| left.checked_sub(1);
        if failing.outages.fetch_update(SeqCst, SeqCst, fails).is_ok() {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(SinkError::NoSpace { path: folder.join(name), source });
        }
        let options = SinkOptions::new(folder.join(format!("{name}.npy")));
        Ok(Box::new(Weak { sink: PartSink::new(options, NpyFormat), poison: failing.poison }))
    };
    Segments {
        open: Arc::new(open),
        manifests: BTreeMap::new(),
        worker: "test".to_owned(),
        max_rows: 16,
        max_age: Duration::from_millis(300),
        until_empty: false,
    }
}

/// The ids of all rows in a folder of NPY files, sorted.
fn stored(folder: &Path) -> Vec<String> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut ids: Vec<String> = paths
        .filter(|path| path.to_string_lossy().ends_with(".ids.csv"))
        .flat_map(|path| std::fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| {
            line.split(',').find(|field| field.starts_with("row-") || field.starts_with("s3://")).map(str::to_owned)
        })
        .collect();
    ids.sort();
    ids
}

/// Sends jobs for a sink. Returns their ids, sorted.
fn send_rows(setup: &Setup, count: usize) -> Vec<String> {
    let mut ids: Vec<String> = (0..count).map(|n| format!("row-{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        let url = setup.server.url(&format!("/photo/{n}"));
        setup.send_body(id, Job::new(ImageRef::Url(url)).to_json().unwrap());
    }
    ids.sort();
    ids
}

/// An engine that reads some buckets of the photo server: a bucket is the first part of its paths.
fn engine_of_buckets(setup: &Setup) -> Engine {
    let settings = [("endpoint", setup.server.url("")), ("anonymous", "true".to_owned()), ("region", "r".to_owned())];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
    let store = foveate_object_store::open(&StoreOptions { settings, ..StoreOptions::default() }).unwrap();
    let objects = AllowedObjects::new(store, &["s3://photo", "s3://missing", "s3://flaky"].map(str::to_owned)).unwrap();
    let engine = Engine::builder().objects(objects).downloads(4).workers(2);
    engine.task("embed", setup.task.clone(), Batching::default()).build().unwrap()
}

/// S3's notification of what happened to objects, each `BUCKET/KEY`.
fn notification(events: &[(&str, &str)]) -> Vec<u8> {
    let record = |(event, object): &(&str, &str)| {
        let (bucket, key) = object.split_once('/').unwrap();
        format!(r#"{{"eventName":"{event}","s3":{{"bucket":{{"name":"{bucket}"}},"object":{{"key":"{key}"}}}}}}"#)
    };
    format!(r#"{{"Records":[{}]}}"#, events.iter().map(record).collect::<Vec<_>>().join(",")).into_bytes()
}

#[test]
fn notifications_of_stores_are_jobs_with_an_outcome_for_each_image() {
    let setup = Setup::new(Duration::from_secs(20), 2);
    let folder = tempfile::tempdir().unwrap();
    let (put, copy) = ("ObjectCreated:Put", "s3:ObjectCreated:Copy");
    setup.send_body("one", notification(&[(put, "photo/1")]));
    setup.send_body(
        "several",
        notification(&[(put, "photo/2"), (copy, "flaky/3%2F1"), ("ObjectRemoved:Delete", "photo/9")]),
    );
    setup.send_body("partly", notification(&[(put, "photo/4"), (put, "missing/1"), (put, "other/1")]));
    setup.send_body("removed", notification(&[("ObjectRemoved:Delete", "photo/1")]));
    setup.send_body("test", br#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"photo"}"#.to_vec());
    setup.send_body("nonsense", br#"{"Records":[{"eventName":"ObjectCreated:Put"}]}"#.to_vec());
    // Its workers ended twice, so its images are tried one by one.
    setup.send_body("poison", notification(&[(put, "photo/5"), (put, "photo/6")]));
    for _ in 0..2 {
        let held = setup.wait_for(setup.queue.receive(10, Duration::ZERO)).unwrap();
        for delivery in held.iter().filter(|delivery| delivery.id == "poison") {
            let receipts = std::slice::from_ref(&delivery.receipt);
            setup.wait_for(setup.queue.release(receipts, Duration::ZERO)).remove(0).unwrap();
        }
        for delivery in held.into_iter().filter(|delivery| delivery.id != "poison") {
            let anew = Delivery { received: 0, ..delivery };
            setup.wait_for(setup.queue.renew(&anew, Duration::ZERO)).unwrap();
        }
    }
    let sink = segments(folder.path(), Failing::default(), Arc::new(|| 0), Arc::default());
    let options = WorkerOptions { sink: Some(sink), store_events: true, ..setup.options() };
    let worker = Worker::start(engine_of_buckets(&setup), options).unwrap();
    setup.wait();
    assert_eq!(worker.stop(Duration::from_secs(5)), 0);
    let rows = ["flaky/3/1", "photo/1", "photo/2", "photo/4", "photo/5", "photo/6"].map(|key| format!("s3://{key}"));
    assert_eq!(stored(folder.path()), rows, "each once");
    let dead = setup.dead();
    let stages: Vec<(&str, &str)> = dead.iter().map(|(id, (stage, _))| (id.as_str(), stage.as_str())).collect();
    assert_eq!(stages, [("nonsense", "parse"), ("partly", "download")]);
    let reason = &dead["partly"].1;
    assert!(reason.starts_with("2 of 3 images failed; s3://"), "{reason}");
    let totals = worker.totals();
    assert_eq!((totals.done, totals.skipped, totals.dead()), (3, 2, 2), "{totals}");
    assert!(totals.to_string().ends_with(", 2 without an image"), "{totals}");
}

#[test]
fn a_worker_that_takes_no_notifications_gives_them_back_and_names_the_remedy() {
    let setup = Setup::new(Duration::from_secs(20), 2);
    let remedy = |setting| (setting == Setting::StoreEvents).then_some("--store-events takes them");
    let worker = Worker::start(engine_of_buckets(&setup), WorkerOptions { remedy, ..setup.options() }).unwrap();
    setup.send_body("one", notification(&[("ObjectCreated:Put", "photo/1")]));
    wait_until(Duration::from_secs(10), || worker.refusal().is_some());
    let reason = worker.refusal().unwrap();
    assert!(
        reason.contains("a notification of an object store (s3://photo/1), and this worker takes none"),
        "{reason}"
    );
    assert!(reason.ends_with("; --store-events takes them"), "{reason}");
    assert!(setup.dead().is_empty());
}

#[test]
fn messages_are_acknowledged_when_their_segment_is_published() {
    let setup = Setup::new(Duration::from_secs(20), 3);
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let queue = Arc::clone(&setup.queue);
    let runtime = setup.runtime.handle().clone();
    let unacknowledged = Arc::new(move || {
        let depth = runtime.block_on(queue.depth()).unwrap();
        depth.waiting + depth.leased
    });
    let sink = segments(folder.path(), Failing::default(), unacknowledged, Arc::clone(&seen));
    let sent = send_rows(&setup, 40);
    let worker = Worker::start(setup.engine(), WorkerOptions { sink: Some(sink), ..setup.options() }).unwrap();
    setup.wait();
    assert_eq!(worker.stop(Duration::from_secs(5)), 0);
    assert_eq!(seen.lock().unwrap()[0], 40, "nothing is acknowledged before the first segment");
    assert_eq!(stored(folder.path()), sent, "each row once");
}

#[test]
fn rows_wait_for_their_number_beyond_the_in_flight_limit_and_the_last_ones_for_nothing() {
    let setup = Setup::new(Duration::from_secs(20), 3);
    let (folder, seen) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let sink = segments(folder.path(), Failing::default(), Arc::new(|| 0), Arc::clone(&seen));
    let sink = Segments { max_rows: 32, max_age: Duration::from_secs(3600), until_empty: true, ..sink };
    let in_flight_limit = InFlightLimit::Fixed(4);
    let sent = send_rows(&setup, 70);
    let options = WorkerOptions { sink: Some(sink), in_flight_limit, ..setup.options() };
    let _worker = Worker::start(setup.engine(), options).unwrap();
    setup.wait();
    assert_eq!((seen.lock().unwrap().len(), stored(folder.path())), (3, sent), "32 rows, 32, and the last 6");
}

#[test]
fn a_sink_that_cannot_write_costs_no_message_a_try() {
    let setup = Setup::new(Duration::from_secs(20), 1);
    let folder = tempfile::tempdir().unwrap();
    let failing = Failing { outages: Arc::new(AtomicUsize::new(6)), ..Failing::default() };
    let outages = Arc::clone(&failing.outages);
    let sink = segments(folder.path(), failing, Arc::new(|| 0), Arc::default());
    let worker = Worker::start(setup.engine(), WorkerOptions { sink: Some(sink), ..setup.options() }).unwrap();
    let sent = send_rows(&setup, 40);
    wait_until(Duration::from_secs(20), || worker.ready().is_err_and(|fault| fault.contains("no space left")));
    assert_eq!((worker.live(), setup.dead().len()), (Ok(()), 0));
    setup.wait();
    assert_eq!((outages.load(SeqCst), worker.ready(), setup.dead().len()), (0, Ok(()), 0));
    assert_eq!((stored(folder.path()), setup.task.done.load(SeqCst)), (sent, 40), "each row once, computed once");
}

#[test]
fn a_row_that_a_sink_cannot_take_does_not_take_others_with_it() {
    let setup = Setup::new(Duration::from_secs(20), 3);
    let folder = tempfile::tempdir().unwrap();
    let failing = Failing { poison: Some("row-7"), ..Failing::default() };
    let sink = segments(folder.path(), failing, Arc::new(|| 0), Arc::default());
    let worker = Worker::start(setup.engine(), WorkerOptions { sink: Some(sink), ..setup.options() }).unwrap();
    let mut sent = send_rows(&setup, 40);
    setup.wait();
    sent.retain(|id| id != "row-7");
    assert_eq!(stored(folder.path()), sent);
    let dead = setup.dead();
    assert_eq!((dead.len(), dead["row-7"].0.as_str()), (1, "sink"));
    assert_eq!((worker.live(), setup.task.done.load(SeqCst)), (Ok(()), 40));
}

/// A broker that loses its leases in a crash and delivers everything again.
struct Forgetful {
    queue: MemoryQueue,
    given: Mutex<Vec<Receipt>>,
}

impl Forgetful {
    async fn crash(&self) -> usize {
        let given = std::mem::take(&mut *self.given.lock().unwrap());
        self.queue.release(&given, Duration::ZERO).await.into_iter().filter(Result::is_ok).count()
    }
}

#[async_trait]
impl JobQueue for Forgetful {
    fn name(&self) -> &str {
        self.queue.name()
    }
    fn lease(&self) -> Duration {
        self.queue.lease()
    }
    fn max_receive(&self) -> u32 {
        self.queue.max_receive()
    }
    async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        self.queue.send(messages).await
    }
    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let mut received = self.queue.receive(max, wait.min(Duration::from_millis(50))).await?;
        // It has also lost the delivery counts.
        received.iter_mut().for_each(|delivery| delivery.received = 1);
        self.given.lock().unwrap().extend(received.iter().map(|delivery| delivery.receipt.clone()));
        Ok(received)
    }
    async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.queue.acknowledge(receipts).await
    }
    async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.queue.extend(receipts).await
    }
    async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        self.queue.release(receipts, delay).await
    }
    async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        self.queue.renew(delivery, delay).await
    }
    async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        self.queue.dead_letter(delivery, why).await
    }
    async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError> {
        self.queue.review(judge).await
    }
    async fn depth(&self) -> Result<Depth, QueueError> {
        self.queue.depth().await
    }
}

#[test]
fn what_a_broker_delivers_again_while_it_is_held_is_done_once() {
    let mut setup = Setup::new(Duration::from_secs(30), 10);
    setup.task.time = Duration::from_millis(400);
    let broker = Arc::new(Forgetful { queue: (*setup.queue).clone(), given: Mutex::default() });
    let queues: Vec<Arc<dyn JobQueue>> = vec![broker.clone()];
    let options = WorkerOptions { queues, in_flight_limit: InFlightLimit::Fixed(12), ..setup.options() };
    setup.send(numbered("photo", 8).chain(["/missing/1".to_owned()]));
    let worker = Worker::start(setup.engine(), options).unwrap();
    wait_until(Duration::from_secs(10), || worker.held() >= 8);
    std::thread::sleep(Duration::from_millis(100));
    let again = setup.wait_for(broker.crash());
    setup.wait();
    assert_eq!(worker.stop(Duration::from_secs(5)), 0);
    assert!(again >= 4, "{again} were held when it crashed");
    let called = setup.called();
    assert_eq!((called.len(), called.iter().collect::<BTreeSet<_>>().len()), (8, 8), "each once");
    assert_eq!(setup.task.done.load(SeqCst), 8, "and computed once");
    assert_eq!(setup.dead().len(), 1);
}
