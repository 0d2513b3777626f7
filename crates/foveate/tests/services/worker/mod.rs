//! `foveate worker` as it is deployed: processes on a real broker, and a photo server that shows all failures of real
//! servers and takes callbacks. Whatever is killed, stalls or goes away, every message ends as either a callback or a
//! dead letter, the right one for its image.
#![cfg(unix)]
mod jobs;
mod stage;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foveate::queue::Depth;
use foveate_net::photo_server::{Latency, PhotoServerOptions};
use foveate_testkit::{Trial, data, python, trials};
use image::{ImageFormat, RgbImage};
use serde_json::Value;

use crate::common::{TINY, foveate, run, text_vectors};
use foveate_testkit::brokers::printed;
use jobs::{Item, Kind};
use stage::{Broker, HOLD, STALLED, Stage, Worker, check_secrets, photos, wait};
use tally::Tally;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        sigkill_under_load_loses_nothing,
        sigkill_on_sqs_loses_nothing,
        a_broker_that_is_killed_and_comes_back_loses_nothing,
        a_picture_that_kills_its_decoder_is_a_dead_letter_after_three_deaths,
        sigterm_finishes_what_is_held_and_takes_no_more,
        what_is_not_done_within_the_deadline_goes_to_the_next_worker_at_once,
        a_worker_that_stops_is_not_ready_and_gives_back_what_a_silent_server_has,
        memory_stays_flat,
        health_metrics_and_logs_tell_all_but_secrets,
        folders_are_queued_below_a_base_and_a_worker_ends_when_there_is_no_more,
        segments_are_whole_and_miss_nobody_though_their_writers_are_killed,
        a_misconfigured_worker_gives_all_messages_back_and_says_what_it_needs,
        texts_are_jobs_of_workers_that_embed_texts,
        dead_letters_are_counted_shown_and_put_back_on_nats,
        dead_letters_are_counted_shown_and_put_back_on_sqs,
    ]
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Time limit for the work of any of these tests; a slow machine needs much of it, a lost message all of it.
const PATIENCE: Duration = seconds(180);

/// Serializes tests that would disturb others by their load, or in which a delay would look like a fault.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a server as slow as the web.
fn web() -> PhotoServerOptions {
    PhotoServerOptions { latency: Latency::new(millis(80), millis(600)).unwrap(), ..PhotoServerOptions::default() }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Steps xorshift. The moments differ between kills, and are the same in every run of the test.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The share of each fault among untrusted URLs.
const BAD: [(Kind, usize); 5] =
    [(Kind::Corrupt, 5), (Kind::Missing, 5), (Kind::Stall, 5), (Kind::Flaky, 4), (Kind::Bomb, 1)];
/// Gives up quickly on anything that does not answer.
const QUICK: [&str; 8] = ["--download-timeout", "1", "--retry", "0.02", "--retry-for", "0", "--max-receive", "7"];

/// Kills workers at random moments and starts others in their place, until at most `rest` messages are open. Returns
/// the remaining workers, and the number of kills.
fn kill_under_load(stage: &Stage, count: usize, arguments: &[&str], rest: usize) -> (Vec<Worker>, usize) {
    let mut random: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut workers: Vec<Worker> = (0..count).map(|_| stage.worker(arguments)).collect();
    let mut kills = 0;
    let until = Instant::now() + PATIENCE;
    loop {
        sleep(millis(300 + next_random(&mut random) % 1_000));
        if stage.open().is_some_and(|open| open <= rest) {
            return (workers, kills);
        }
        assert!(Instant::now() < until, "{:?} messages are open after {kills} kills", stage.open());
        workers.remove(next_random(&mut random) as usize % count).kill();
        kills += 1;
        workers.push(stage.worker(arguments));
    }
}

/// Stops all workers and checks that they exit as asked.
fn stop(workers: Vec<Worker>) {
    for worker in workers {
        assert_eq!(worker.stop(seconds(30)).0, 0);
    }
}

fn sigkill_under_load_loses_nothing() {
    let _alone = alone();
    let broker = Broker::nats();
    let (count, least) = foveate_testkit::by_length((700, 2), (2_000, 5));
    killed_under_load(&Stage::new(broker, seconds(3), web()), count, 3, least);
}

fn sigkill_on_sqs_loses_nothing() {
    let _alone = alone();
    let broker = Broker::sqs();
    // A stand-in for SQS in Python takes tens of milliseconds for each message.
    let count = foveate_testkit::by_length(400, 800);
    killed_under_load(&Stage::new(broker, seconds(3), web()), count, 3, 1);
}

fn killed_under_load(stage: &Stage, count: usize, workers: usize, least: usize) {
    let mut items = Item::mixed(count, &BAD);
    // Images that are never answered come early: a worker with nothing else left receives messages only now and then.
    items.sort_by_key(|item| if item.kind == Kind::Stall { item.number / 2 } else { item.number });
    stage.enqueue(&items, true);
    let began = Instant::now();
    // A site has at most a quarter of the threads. With fewer, kills would use up the tries of too many messages.
    let slowly = [&QUICK[..], &["--downloads", "48"]].concat();
    let (workers, kills) = kill_under_load(stage, workers, &slowly, count / 10);
    let killed = began.elapsed().as_secs_f64();
    stage.wait_until_empty(PATIENCE);
    stop(workers);
    let (tally, lost, whole) = (Tally::take(stage), stage.lost(), began.elapsed().as_secs_f64());
    println!("{kills} kills in {killed:.0} s, {lost} leases lost, all done after {whole:.0} s: {tally}");
    tally.check(stage, &items);
    assert!(kills >= least, "{kills} kills");
    assert!(tally.called_again() + tally.dead_again() <= kills * HOLD + lost);
}

fn a_broker_that_is_killed_and_comes_back_loses_nothing() {
    let _alone = alone();
    let broker = Broker::nats();
    let mut stage = Stage::new(broker, seconds(5), web());
    let items = Item::mixed(600, &[(Kind::Missing, 5), (Kind::Corrupt, 5)]);
    stage.enqueue(&items, true);
    let workers = [stage.worker(&[]), stage.worker(&[])];
    wait(PATIENCE, "callbacks", || stage.photos.callbacks().count() >= 100);
    let killed = now();
    stage.kill_broker();
    wait(seconds(30), "workers notice", || workers.iter().all(|worker| worker.get("/readyz").0 == 503));
    sleep(seconds(3));
    assert!(workers.iter().all(|worker| worker.get("/healthz").0 == 200), "a restart brings no broker");
    stage.restart_broker();
    wait(seconds(60), "workers go on", || workers.iter().all(|worker| worker.get("/readyz").0 == 200));
    let back = now();
    stage.wait_until_empty(PATIENCE);
    stop(workers.into());
    let tally = Tally::take(&stage);
    println!("broker away for {} s: {tally}", back - killed);
    tally.check(&stage, &items);
    let settling = stage.said("cannot settle a message yet");
    assert!(settling.iter().all(|line| line["level"] == "DEBUG"), "{settling:?}");
    assert!(stage.said("the broker fails; the worker retries").len() >= 2, "a line of each worker");
    // The broker may lose its latest acknowledgements and deliveries, although workers still process those messages.
    let doubles = tally.first_of_doubles();
    assert!(doubles.iter().all(|&first| (killed - 5..=back + 5).contains(&first)), "{killed}..{back}: {doubles:?}");
    assert!(tally.called_again() <= 2 * (HOLD + STALLED), "{tally}");
}

fn a_picture_that_kills_its_decoder_is_a_dead_letter_after_three_deaths() {
    let _alone = alone();
    // Its decoder takes about a second.
    let mut large = Cursor::new(Vec::new());
    RgbImage::new(10_000, 10_000).write_to(&mut large, ImageFormat::Png).unwrap();
    let mut pictures = photos();
    pictures.insert(0, large.into_inner().into());
    let stage = Stage::with_photos(Broker::nats(), seconds(2), PhotoServerOptions::default(), pictures);
    let items = Item::all(Kind::Photo, 8);
    stage.enqueue(&items, true);
    let deaths = stage.folder.path().join("deaths");
    let arguments = ["--deaths", deaths.to_str().unwrap()];
    for death in 1..=3 {
        let worker = stage.worker(&arguments);
        let mut before = BTreeSet::new();
        wait(PATIENCE, "a decoder takes long", || {
            sleep(millis(100));
            let now = in_decoders(&deaths);
            let is_long = !before.is_disjoint(&now);
            before = now;
            is_long
        });
        worker.kill();
        assert_eq!(stage.requests(items[0]), death);
    }
    let worker = stage.worker(&arguments);
    stage.wait_until_empty(PATIENCE);
    stop(vec![worker]);
    let letters = stage.dead_letters();
    let [(id, letter)] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((id, letter.stage.as_str()), (&items[0].id(), "decode"));
    assert_eq!(letter.reason, "3 workers died while it was in their decoders");
    assert_eq!(stage.requests(items[0]), 3, "it was not tried a fourth time");
    let tally = Tally::take(&stage);
    assert_eq!((tally.called(), tally.dead(), tally.dead_again()), (items.len() - 1, 1, 0), "{tally}");
}

/// Returns the messages that are in the decoders of the only worker with this record.
fn in_decoders(deaths: &Path) -> BTreeSet<u64> {
    let mut messages = BTreeSet::new();
    for file in fs::read_dir(deaths).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "decoding") {
            messages.extend(fs::read(file).unwrap().as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)));
        }
    }
    messages.remove(&0);
    messages
}

fn sigterm_finishes_what_is_held_and_takes_no_more() {
    let broker = Broker::nats();
    let stage = Stage::new(broker, seconds(60), web());
    let items = Item::all(Kind::Photo, 400);
    stage.enqueue(&items, true);
    let worker = stage.worker(&["--drain", "20"]);
    wait(PATIENCE, "callbacks", || stage.photos.callbacks().count() >= 60);
    let (code, took) = worker.stop(seconds(25));
    let (depth, called) = (stage.depth().unwrap(), stage.photos.callbacks().count());
    println!("SIGTERM: exit code {code} after {:.1} s; {called} called back, {depth:?}", took.as_secs_f64());
    assert_eq!(code, 0);
    assert_eq!((depth.leased, depth.waiting as usize), (0, items.len() - called), "nothing is held, nothing is lost");
    let worker = stage.worker(&[]);
    stage.wait_until_empty(PATIENCE);
    stop(vec![worker]);
    let tally = Tally::take(&stage);
    println!("the next worker: {tally}");
    tally.check(&stage, &items);
    assert_eq!(tally.called_again(), 0);
    assert!(items.iter().all(|&item| stage.requests(item) == 1), "each was worked on once");
}

fn what_is_not_done_within_the_deadline_goes_to_the_next_worker_at_once() {
    let broker = Broker::nats();
    let lease = seconds(60);
    let stage = Stage::new(broker, lease, PhotoServerOptions { drip: seconds(6), ..PhotoServerOptions::default() });
    let items = Item::all(Kind::Slow, 40);
    stage.enqueue(&items, true);
    let worker = stage.worker(&["--drain", "0.3"]);
    wait(seconds(30), "downloads", || stage.photos.all_requests().len() >= 32);
    let (code, took) = worker.stop(seconds(25));
    assert_eq!(code, 1);
    assert!(took < seconds(4), "{took:?} for a deadline of 0.3 s");
    let given_back = Instant::now();
    let worker = stage.worker(&["--downloads", "40", "--per-host", "40"]);
    stage.wait_until_empty(PATIENCE);
    let until_done = given_back.elapsed();
    stop(vec![worker]);
    let tally = Tally::take(&stage);
    println!(
        "exit code {code} after {:.1} s; done {:.1} s later: {tally}",
        took.as_secs_f64(),
        until_done.as_secs_f64()
    );
    tally.check(&stage, &items);
    assert_eq!(tally.called_again(), 0);
    assert!(until_done < lease / 2, "{until_done:?}: nobody waits for a lease to end");
}

fn a_worker_that_stops_is_not_ready_and_gives_back_what_a_silent_server_has() {
    let stage = Stage::new(Broker::nats(), seconds(60), web());
    let items = Item::all(Kind::Stall, 8);
    stage.enqueue(&items, true);
    let worker = stage.worker(&["--drain", "5"]);
    wait(seconds(30), "a download", || !stage.photos.all_requests().is_empty());
    wait(seconds(30), "leases", || stage.depth().is_some_and(|depth| depth.leased == 8));
    worker.terminate();
    wait(seconds(30), "/readyz fails", || worker.get("/readyz").0 == 503);
    assert_eq!(
        (worker.get("/healthz").0, worker.metric("foveate_messages_held", "")),
        (200, 8),
        "--drain has not passed"
    );
    assert_eq!(worker.ended(seconds(25)), 1);
    assert_eq!(stage.open(), Some(8), "nothing is lost");
}

/// Returns `photo` padded with `bytes` bytes of comments.
fn padded(photo: &[u8], bytes: usize) -> Arc<[u8]> {
    const MOST: u16 = u16::MAX;
    let mut comment = vec![0xff, 0xfe];
    comment.extend_from_slice(&MOST.to_be_bytes());
    comment.resize(2 + usize::from(MOST), b'x');
    let (start, rest) = photo.split_at(2);
    [start, &comment.repeat(bytes / comment.len()), rest].concat().into()
}

fn memory_stays_flat() {
    let _alone = alone();
    let broker = Broker::nats();
    let mut photos = photos();
    photos[0] = padded(&photos[0], 6 << 20);
    let stage = Stage::with_photos(broker, seconds(30), web(), photos);
    let items =
        Item::mixed(foveate_testkit::by_length(1_200, 4_000), &[(Kind::Bomb, 5), (Kind::Huge, 2), (Kind::Missing, 3)]);
    stage.enqueue(&items, true);
    let worker = stage.worker(&["--max-memory", "32M", "--max-bytes", "8M"]);
    let idle = worker.memory("VmRSS");
    // The maximum in each quarter of the work.
    let mut quarters = [0; 4];
    let until = Instant::now() + PATIENCE;
    loop {
        let open = stage.open().unwrap();
        let quarter = 3.min(4 * (items.len() - open) / items.len());
        quarters[quarter] = worker.memory("VmRSS").max(quarters[quarter]);
        if open == 0 {
            break;
        }
        assert!(Instant::now() < until, "{open} messages are open");
        sleep(millis(25));
    }
    let most = worker.memory("VmHWM");
    stop(vec![worker]);
    let tally = Tally::take(&stage);
    let mib = |bytes: u64| bytes >> 20;
    println!("MiB: idle {}, by quarters {:?}, at most {}: {tally}", mib(idle), quarters.map(mib), mib(most));
    tally.check(&stage, &items);
    assert!(quarters[3] <= quarters[1] + quarters[1] / 4 + (8 << 20), "{quarters:?}");
    // Files and pixels of all held messages, doubled for growth, plus the memory of encoder, decoders and allocator.
    let (files, pixels) = (32 << 20, HOLD as u64 * 224 * 224 * 3);
    assert!(most <= idle + 2 * (files + pixels) + (128 << 20), "{most} from {idle}");
}

fn health_metrics_and_logs_tell_all_but_secrets() {
    let broker = Broker::nats();
    let stage = Stage::new(broker, seconds(5), web());
    let items = Item::mixed(100, &BAD);
    stage.photos.callbacks().set_down(true);
    stage.enqueue(&items, true);
    // All of foveate's log lines. At lower levels, other libraries log the data that they send.
    let worker = stage.worker(&[&QUICK[..], &["--log-filter", "info,foveate=trace"]].concat());
    assert_eq!((worker.get("/healthz").0, worker.get("/readyz").0), (200, 200));
    sleep(seconds(1));
    stage.photos.callbacks().set_down(false);
    stage.wait_until_empty(PATIENCE);
    let (status, metrics) = worker.get("/metrics");
    assert_eq!((status, worker.get("/healthz").0), (200, 200));
    let metric = |name: &str, label: &str| worker.metric(name, label);
    let first = metric("foveate_received_total", "delivery=\"first\"");
    let (done, dead) =
        (metric("foveate_settled_total", "acknowledged"), metric("foveate_settled_total", "how=\"dead\""));
    let (taken, refused) =
        (metric("foveate_callbacks_total", "result=\"ok\""), metric("foveate_callbacks_total", "result=\"failed\""));
    let lines = worker.lines(true);
    stop(vec![worker]);
    let tally = Tally::take(&stage);
    println!("{} lines of logs, {refused} callbacks refused: {tally}", lines.len());
    tally.check(&stage, &items);
    assert!(metrics.ends_with("# EOF\n"));
    assert_eq!((first, done, dead), (100, tally.called() as u64, tally.dead() as u64));
    assert!(taken == done && refused > 0);
    for item in items {
        let last = if item.kind.dies_of().is_empty() { "done" } else { "failed; the message goes to the dead letters" };
        assert!(lines.iter().any(|line| line["message"] == last && line["id"] == item.id().as_str()), "{}", item.id());
    }
    // Errors are circuit breakers that opened. An image that fails alone is a warning.
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert!(errors.len() < 5 && errors.iter().all(|line| line["cause"].is_string()), "{errors:?}");
}

fn folders_are_queued_below_a_base_and_a_worker_ends_when_there_is_no_more() {
    let broker = Broker::nats();
    let stage = Stage::new(broker, seconds(5), PhotoServerOptions::default());
    let files = stage.folder.path().join("photos");
    fs::create_dir_all(files.join("more")).unwrap();
    for name in ["a.jpg", "b ü.png", "more/c.jpg", "notes.txt"] {
        fs::write(files.join(name), "").unwrap();
    }
    // This server finds its photos by number and ignores the query.
    let (base, callback) = (stage.photos.url("/photo/3?signature=hush-hush&f="), stage.photos.url("/callback"));
    let mut enqueue = stage.foveate("enqueue");
    enqueue.arg(&files).args(["--base", &base, "--callback", &callback, "--id-prefix", "x:", "--metadata", "[1]"]);
    let sent = run(&mut enqueue).expect(0);
    assert_eq!(sent.stdout, "queue JOBS: 3 new, 0 duplicates dropped, 0 failed\n");
    assert!(sent.stderr.contains("--callback-http"), "{}", sent.stderr);
    let output = stage.folder.path().join("ended.log");
    let worker = stage.worker(&["--until-empty"]);
    assert_eq!(worker.ended(seconds(60)), 0);
    fs::write(&output, sent.stdout + &sent.stderr).unwrap();
    check_secrets(&output);
    let bodies: Vec<Value> =
        stage.photos.callbacks().received().iter().map(|(_, body)| serde_json::from_slice(body).unwrap()).collect();
    let ids: BTreeSet<&str> = bodies.iter().map(|body| body["id"].as_str().unwrap()).collect();
    println!("{} files called back: {ids:?}", bodies.len());
    assert_eq!((bodies.len(), ids.len(), stage.photos.requests("/photo/3")), (3, 3, 3));
    assert!(ids.iter().all(|id| id.starts_with("x:http://127.0.0.1") && !id.contains("hush-hush")), "{ids:?}");
    assert!(bodies.iter().all(|body| body["metadata"] == serde_json::json!([1])));
}

/// Watches the files that appear: none is ever incomplete, and none changes.
#[derive(Default)]
struct Segments(BTreeMap<PathBuf, u64>);

impl Segments {
    fn look(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "parquet") || path.is_dir() {
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{} is not whole", path.display());
            let size = *self.0.entry(path.clone()).or_insert(bytes.len() as u64);
            assert_eq!(size, bytes.len() as u64, "{} changed", path.display());
        }
    }
}

fn segments_are_whole_and_miss_nobody_though_their_writers_are_killed() {
    let mut reader = python(&["pyarrow"]);
    let _alone = alone();
    let broker = Broker::nats();
    let stage = Stage::new(broker, seconds(3), web());
    let items = Item::all(Kind::Photo, 800);
    stage.enqueue(&items, false);
    let vectors = stage.folder.path().join("vectors");
    let folder = vectors.to_str().unwrap().to_owned();
    const ROWS: usize = 40;
    let most = ROWS.to_string();
    let arguments = ["-o", &folder, "--segment-rows", &most, "--segment-age", "0.5"];
    let mut segments = Segments::default();
    let ((workers, kills), seen) = std::thread::scope(|scope| {
        let killing = scope.spawn(|| kill_under_load(&stage, 2, &arguments, 100));
        while !killing.is_finished() {
            segments.look(&vectors);
            sleep(millis(10));
        }
        (killing.join().unwrap(), segments.0.len())
    });
    stage.wait_until_empty(PATIENCE);
    stop(workers);
    segments.look(&vectors);
    for entry in fs::read_dir(&vectors).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with(".parquet") || name.starts_with(['_', '.']) || path.is_dir(), "readers skip no {name}");
    }
    let segment = segments.0.keys().next().unwrap();
    let found = run(foveate().arg("inspect").arg("--json").arg(segment)).expect(0).json();
    assert_eq!(found["files"].as_array().unwrap().len(), 2, "its records are found: {found}");
    let lost = stage.lost();
    assert!(stage.photos.callbacks().calls().is_empty() && stage.dead_letters().is_empty());

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/worker/segments.py");
    let rows = printed(reader.args([script, &folder]));
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: BTreeSet<String> = rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    println!(
        "{kills} kills, {lost} leases lost, {} segments ({seen} seen as they came): {} rows of {} images",
        segments.0.len(),
        rows.len(),
        ids.len()
    );
    assert_eq!(ids, items.iter().map(|item| item.id()).collect());
    assert!(kills >= 2 && rows.len() - ids.len() <= kills * (HOLD + ROWS) + lost);
    let mut vectors: BTreeMap<usize, &Value> = BTreeMap::new();
    for row in &rows {
        let number: usize = row["id"].as_str().unwrap().trim_start_matches("Photo-").parse().unwrap();
        let item = Item { kind: Kind::Photo, number };
        assert_eq!(**vectors.entry(stage.photo(item)).or_insert(&row["vector"]), row["vector"], "the same photo");
    }
}

fn a_misconfigured_worker_gives_all_messages_back_and_says_what_it_needs() {
    let brokers = [(); 4].map(|()| Broker::nats());
    let needs = ["--callback-host", "--callback-host", "--callback-http", "--callback-private"];
    std::thread::scope(|scope| {
        for (at, broker) in brokers.into_iter().enumerate() {
            scope.spawn(move || misconfigured(Stage::new(broker, seconds(5), web()), at, needs[at]));
        }
    });
}

/// Runs a worker that lacks the argument `need`, the one on callbacks number `at`.
fn misconfigured(stage: Stage, at: usize, need: &str) {
    let items = Item::all(Kind::Photo, 6);
    stage.enqueue(&items, true);
    let (host, folder) = (stage.photos.address().to_string(), stage.folder.path().join("vectors"));
    let mut worker = stage.foveate("worker");
    worker.args(["--model", TINY, "--until-empty", "-o"]).arg(folder);
    match at {
        0 => {}
        1 => drop(worker.args(["--callback-host", "elsewhere.example", "--callback-http"])),
        2 => drop(worker.args(["--callback-host", &host])),
        _ => drop(worker.args(["--callback-host", &host, "--callback-http"])),
    }
    let ran = run(&mut worker).expect(2);
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.contains("this worker's settings refuse every message, 6 so far") && last.contains(need), "{last}");
    assert!(!last.contains("only_hosts") && !last.contains("allow_private"), "{last}");
    assert_eq!((stage.open(), stage.dead_letters().len()), (Some(6), 0));
    if at == 0 {
        assert_eq!(stage.worker(&["--until-empty"]).ended(seconds(90)), 0);
        assert_eq!((stage.photos.callbacks().count(), stage.open()), (6, Some(0)));
    }
}

/// A worker without texts gives such jobs back, as it does with others that its settings refuse.
fn texts_are_jobs_of_workers_that_embed_texts() {
    let stage = Stage::new(Broker::nats(), seconds(5), PhotoServerOptions::default());
    let (folder, host) = (stage.folder.path(), stage.photos.address().to_string());
    let model = data("families/clip-gelu");
    let callback = serde_json::json!({"url": stage.photos.url("/callback")});
    let mut jobs = Vec::new();
    for (id, text) in [("first", "a photo of a cat"), ("empty", " "), ("second", "two dogs")] {
        let job = serde_json::json!({"version": 4, "id": id, "text": text, "callback": callback, "metadata": id});
        jobs.push(job.to_string());
    }
    let list = folder.join("jobs.ndjson");
    fs::write(&list, jobs.join("\n")).unwrap();
    run(stage.foveate("enqueue").arg("--from-list").arg(&list)).expect(0);
    let worker = |more: &[&str]| {
        let mut worker = stage.foveate("worker");
        worker.args(["--until-empty", "--callback-host", &host, "--callback-private", &host, "--callback-http"]);
        run(worker.arg("--model").arg(&model).args(more))
    };
    worker(&[]).expect_error(2, "a text, and the task 'embed' takes images alone here; --texts embeds texts");
    assert_eq!((stage.open(), stage.dead_letters().len()), (Some(3), 0));

    let vectors = folder.join("vectors");
    worker(&["--texts", "--callback-failures", "-o", vectors.to_str().unwrap()]).expect(3);
    let expected = text_vectors(folder, &model, &["a photo of a cat", "two dogs"], 40);
    let mut results = BTreeMap::new();
    for (_, body) in stage.photos.callbacks().received() {
        let body: Value = serde_json::from_slice(&body).unwrap();
        results.insert(body["metadata"].as_str().unwrap().to_owned(), body);
    }
    for (at, (id, text)) in [("first", "a photo of a cat"), ("second", "two dogs")].into_iter().enumerate() {
        let result = &results[id]["result"];
        let vector: Vec<f32> = serde_json::from_value(result["embedding"].clone()).unwrap();
        assert_eq!(vector, expected[at], "to the bit");
        let xxh3 = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()));
        assert_eq!((&result["width"], &result["xxh3"]), (&0.into(), &xxh3.into()), "{result}");
    }
    assert_eq!(results["empty"]["error"]["reason"], "the text is empty", "{results:?}");
    let [(id, why)] = &stage.dead_letters()[..] else { panic!("{:?}", stage.dead_letters()) };
    assert_eq!((id.as_str(), why.stage.as_str()), ("empty", "tokenize"));
    let found = run(foveate().arg("similar").arg(&vectors).args(["--id", "first", "--json"])).expect(0).json();
    assert_eq!(found[0]["similar"][0]["id"], "second", "both are rows: {found}");
}

fn dead_letters_are_counted_shown_and_put_back_on_nats() {
    dead_letters_are_counted_shown_and_put_back(Broker::nats(), 5);
}

fn dead_letters_are_counted_shown_and_put_back_on_sqs() {
    dead_letters_are_counted_shown_and_put_back(Broker::sqs(), 0);
}

/// The broker drops `doubles` of five jobs that are sent a second time.
fn dead_letters_are_counted_shown_and_put_back(broker: Broker, doubles: u64) {
    let stage = Stage::new(broker, seconds(5), PhotoServerOptions::default());
    let items = [Item::all(Kind::Missing, 3), Item::all(Kind::Photo, 2)].concat();
    stage.enqueue(&items, true);
    if doubles > 0 {
        let list = stage.folder.path().join("jobs.ndjson");
        let text = fs::read_to_string(&list).unwrap().replace('\n', "\r\n\r\n");
        // As Windows writes it.
        let utf16 = "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes);
        fs::write(&list, utf16.collect::<Vec<u8>>()).unwrap();
        let again = run(stage.foveate("enqueue").arg("--from-list").arg(list)).expect(0);
        assert_eq!(again.stdout, "queue JOBS: 0 new, 5 duplicates dropped, 0 failed\n");
        assert!(again.stderr.contains("--id-prefix"), "{}", again.stderr);
    }
    let worker = stage.worker(&["--until-empty", "--callback-failures"]);
    let log = worker.log_path();
    assert_eq!(worker.ended(seconds(90)), 3);
    assert!(fs::read_to_string(log).unwrap().contains("stopped: 2 done, 3 dead (3 download)"));

    let calls = stage.photos.callbacks().received().into_iter();
    let calls: BTreeMap<String, Value> =
        calls.map(|(key, body)| (key, serde_json::from_slice(&body).unwrap())).collect();
    let errors: Vec<&Value> = calls.values().map(|call| &call["error"]).filter(|error| !error.is_null()).collect();
    assert_eq!((calls.len(), errors.len(), &errors[0]["stage"]), (5, 3, &"download".into()), "{calls:?}");

    let stats = stage.queue(&["stats", "--json"], 0).json();
    let reason = &stats["reasons"][0];
    assert_eq!((&stats["dead"], &reason["stage"], &reason["count"]), (&3.into(), &"download".into(), &3.into()));
    assert!(reason["reason"].as_str().unwrap().contains("404"), "{stats}");
    let peeked = stage.queue(&["peek", "--reason", "404", "--limit", "2", "--json"], 0).stdout;
    let jobs: Vec<Value> = peeked.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(jobs.len() == 2 && jobs.iter().all(|line| line["job"]["id"] == line["id"]), "{peeked}");
    let matched = |words: &[&str]| {
        let told = stage.queue(&[words, &["--json"]].concat(), 0).json();
        (told["matched"].as_u64().unwrap(), stage.depth().unwrap())
    };
    let depth = |waiting, dead| Depth { waiting, leased: 0, dead };
    assert_eq!(matched(&["redrive", "--dry-run"]), (3, depth(0, 3)));
    assert_eq!(matched(&["redrive", "--id", "Missing-0"]), (1, depth(1, 2)));
    assert_eq!(matched(&["redrive", "--stage", "decode"]), (0, depth(1, 2)));
    let told = stage.queue(&["redrive", "--stage", "downlod"], 0).stderr;
    assert!(told.contains("no dead letter has --stage downlod; there is download"), "{told}");
    assert!(stage.queue(&["purge-dead"], 2).stderr.contains("--all"));
    assert_eq!(matched(&["purge-dead", "--stage", "download"]), (2, depth(1, 0)));
}
