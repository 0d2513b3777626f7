//! The environment of the workers: a broker, a photo server that takes callbacks, and the workers themselves.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use foveate::backends;
use foveate::queue::{Buried, DeadLetter, Depth, Fate, JobQueue, QueueOptions};
use foveate::worker::IoRuntime;
use foveate_net::photo_server::{PhotoServer, PhotoServerOptions};
use foveate_testkit::ignore;
use serde_json::Value;
use tempfile::TempDir;

use super::jobs::Item;
use crate::common::{Ran, TINY, foveate, kills, run};
use foveate_testkit::brokers::{AwsServer, NatsServer};

/// The secret that signs callbacks, and the query in addresses. Both must stay out of logs.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const QUERY: &str = "signature=hush-hush";
/// Maximum number of messages that a worker holds, besides those that wait for slow sites.
pub(crate) const HOLD: usize = 32;
/// Maximum number of these per site: a quarter of the engine's requests.
pub(crate) const STALLED: usize = 128;

const PHOTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/photos");
/// Polling interval of a wait.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) enum Broker {
    Nats(NatsServer),
    Sqs(AwsServer),
}

impl Broker {
    /// Starts NATS. Ends the trial if it is not installed or not compiled in.
    pub(crate) fn nats() -> Self {
        check_compiled("nats");
        Self::Nats(NatsServer::start())
    }

    /// Starts the SQS server. Ends the trial if it is not installed or not compiled in.
    pub(crate) fn sqs() -> Self {
        check_compiled("sqs");
        Self::Sqs(AwsServer::start())
    }

    fn address(&self) -> String {
        match self {
            Self::Nats(server) => format!("nats://{}/JOBS", server.address()),
            Self::Sqs(_) => "sqs://jobs".to_owned(),
        }
    }

    async fn connect(&self, lease: Duration) -> Box<dyn JobQueue> {
        let settings = match self {
            Self::Nats(_) => Default::default(),
            Self::Sqs(server) => server.settings(),
        };
        let options = QueueOptions { lease: Some(lease), create: true, settings, ..QueueOptions::new(self.address()) };
        backends::queues().get(options.scheme().unwrap()).unwrap().open(&options).await.unwrap()
    }
}

fn check_compiled(name: &str) {
    if let Err(error) = backends::queues().get(name) {
        ignore(error);
    }
}

/// Everything except the workers.
pub(crate) struct Stage {
    pub(crate) broker: Broker,
    pub(crate) photos: PhotoServer,
    pub(crate) folder: TempDir,
    queue: Box<dyn JobQueue>,
    runtime: IoRuntime,
    lease: Duration,
    /// Number of different photos.
    count: usize,
    started: AtomicUsize,
}

impl Stage {
    pub(crate) fn new(broker: Broker, lease: Duration, options: PhotoServerOptions) -> Self {
        Self::with_photos(broker, lease, options, photos())
    }

    pub(crate) fn with_photos(
        broker: Broker,
        lease: Duration,
        options: PhotoServerOptions,
        photos: Vec<Arc<[u8]>>,
    ) -> Self {
        let count = photos.len();
        let photos = PhotoServer::start(photos, options).unwrap();
        let runtime = IoRuntime::start().unwrap();
        let queue = runtime.handle().block_on(broker.connect(lease));
        let folder = tempfile::tempdir().unwrap();
        Self { broker, photos, folder, queue, runtime, lease, count, started: AtomicUsize::new(0) }
    }

    /// Returns `foveate COMMAND` on the queue.
    pub(crate) fn foveate(&self, command: &str) -> Command {
        let mut program = foveate();
        program.arg(command).env_remove("RUST_LOG").env("FOVEATE_WEBHOOK_SECRET", SECRET);
        program.env("XDG_STATE_HOME", self.folder.path());
        if let Broker::Sqs(server) = &self.broker {
            program.envs(server.environment());
        }
        program.args(["--queue", &self.broker.address(), "--create", "--lease", &self.lease.as_secs_f64().to_string()]);
        program
    }

    /// Runs a command of `foveate queue`, which must exit with `code`.
    pub(crate) fn queue(&self, words: &[&str], code: i32) -> Ran {
        let mut program = foveate();
        if let Broker::Sqs(server) = &self.broker {
            program.envs(server.environment());
        }
        run(program.arg("queue").args(words).args(["--queue", &self.broker.address()])).expect(code)
    }

    /// Puts the items on the queue, as a user would.
    pub(crate) fn enqueue(&self, items: &[Item], calls_back: bool) {
        let list = self.folder.path().join("jobs.ndjson");
        let jobs: Vec<String> = items.iter().map(|item| item.job(self, calls_back)).collect();
        fs::write(&list, jobs.join("\n")).unwrap();
        let sent = run(self.foveate("enqueue").arg("--json").arg("--from-list").arg(&list)).expect(0).json();
        assert_eq!((sent["sent"].as_u64(), sent["failed"].as_u64()), (Some(items.len() as u64), Some(0)), "{sent}");
    }

    /// Starts a worker and waits until it receives messages.
    pub(crate) fn worker(&self, arguments: &[&str]) -> Worker {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let log = self.log(number);
        let host = self.photos.address().to_string();
        let output = File::create(&log).unwrap();
        let mut command = self.foveate("worker");
        command
            .args(["--model", TINY, "--batch", "8", "--log", "json", "--listen", "127.0.0.1:0"])
            .args(["--allow-private", &host, "--callback-host", &host, "--callback-private", &host, "--callback-http"])
            .args(["--hold", &HOLD.to_string()])
            .args(arguments)
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut worker = Worker { child, log, address: None };
        wait(Duration::from_secs(60), "a worker starts", || {
            assert!(worker.child.try_wait().unwrap().is_none(), "{}", worker.log_text());
            worker.says("receiving messages").is_some()
        });
        let address = worker.says("serving /healthz, /readyz and /metrics").expect("it was told to listen");
        worker.address = Some(address["address"].as_str().unwrap().parse().unwrap());
        worker
    }

    /// Kills the broker as a power failure would.
    pub(crate) fn kill_broker(&mut self) {
        match &mut self.broker {
            Broker::Nats(server) => server.kill(),
            Broker::Sqs(server) => server.kill(),
        }
    }

    /// Restarts the broker on the same store.
    pub(crate) fn restart_broker(&mut self) {
        match &mut self.broker {
            Broker::Nats(server) => server.restart(),
            Broker::Sqs(_) => unreachable!("moto keeps nothing"),
        }
    }

    /// Returns the queue's depth; `None` while the broker is down.
    pub(crate) fn depth(&self) -> Option<Depth> {
        self.runtime.handle().block_on(self.queue.depth()).ok()
    }

    /// Returns the number of unfinished messages.
    pub(crate) fn open(&self) -> Option<usize> {
        self.depth().map(|depth| (depth.waiting + depth.leased) as usize)
    }

    pub(crate) fn wait_until_empty(&self, patience: Duration) {
        wait(patience, "the queue is empty", || self.open() == Some(0));
    }

    /// Returns the lines with this message in the logs of all workers so far.
    pub(crate) fn said(&self, message: &str) -> Vec<Value> {
        let logs = (0..self.started.load(Ordering::SeqCst)).map(|number| self.log(number));
        logs.flat_map(|log| lines(&log, true)).filter(|line| line["message"] == message).collect()
    }

    /// Returns the number of messages that workers lost because their leases ended too early.
    pub(crate) fn lost(&self) -> usize {
        let lost = self.said("leases ended before their messages were done; the broker delivers these again");
        lost.iter().map(|line| line["lost"].as_u64().unwrap() as usize).sum()
    }

    fn log(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("worker-{number}.log"))
    }

    /// Returns the dead letters, each with its job's id.
    pub(crate) fn dead_letters(&self) -> Vec<(String, DeadLetter)> {
        let mut letters = Vec::new();
        let mut judge = |buried: &Buried| {
            letters.push((buried.id.clone(), buried.why.clone()));
            Fate::Keep
        };
        self.runtime.handle().block_on(self.queue.review(&mut judge)).unwrap();
        letters
    }

    /// Returns the index of an item's photo. The photos repeat, so items share images.
    pub(crate) fn photo(&self, item: Item) -> usize {
        item.number % self.count
    }

    /// Returns how often an item was requested.
    pub(crate) fn requests(&self, item: Item) -> u64 {
        self.photos.requests(&item.path())
    }
}

/// Reads the example photos.
pub(crate) fn photos() -> Vec<Arc<[u8]>> {
    let mut files: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap().into()).collect()
}

/// Polls until a condition holds, for at most `patience`.
#[track_caller]
pub(crate) fn wait(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < until, "not within {patience:?}: {what}");
        sleep(LOOK);
    }
}

/// A running worker; killed when dropped.
pub(crate) struct Worker {
    child: Child,
    log: PathBuf,
    address: Option<SocketAddr>,
}

impl Worker {
    /// Sends SIGKILL, and checks the log up to then.
    pub(crate) fn kill(mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "it had ended by itself: {}", self.log_text());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.check_log(true);
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        kills::signal(&self.child, "TERM");
    }

    /// Sends SIGTERM. Returns the exit code and the time until the exit.
    pub(crate) fn stop(self, patience: Duration) -> (i32, Duration) {
        let asked = Instant::now();
        self.terminate();
        (self.ended(patience), asked.elapsed())
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn ended(mut self, patience: Duration) -> i32 {
        let mut ended = None;
        wait(patience, "a worker ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        self.check_log(false);
        ended.and_then(|status| status.code()).unwrap_or(-1)
    }

    /// Returns status and body of one of the paths that it serves.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Returns the sum of a metric over the labels that contain `label`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> u64 {
        let (status, text) = self.get("/metrics");
        assert_eq!(status, 200);
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
    }

    /// Returns a line of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().split(' ').next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// Returns the first log line with this message.
    pub(crate) fn says(&self, message: &str) -> Option<Value> {
        self.lines(true).into_iter().find(|line| line["message"] == message)
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.log.clone()
    }

    pub(crate) fn log_text(&self) -> String {
        String::from_utf8(fs::read(&self.log).unwrap()).unwrap()
    }

    pub(crate) fn lines(&self, is_cut: bool) -> Vec<Value> {
        lines(&self.log, is_cut)
    }

    /// Checks the log: objects with the usual fields, names of failed items, no secrets.
    fn check_log(&self, is_cut: bool) {
        for line in self.lines(is_cut) {
            let is_there = |name: &str| line[name].as_str().is_some_and(|text| !text.is_empty());
            assert!(["timestamp", "level", "target", "message"].into_iter().all(is_there), "{line}");
            assert!(line.get("stage").is_none() || is_there("id"), "{line}");
        }
        check_secrets(&self.log);
    }
}

/// Parses a log of one object per line. The last line of a killed worker may be cut off.
fn lines(log: &Path, is_cut: bool) -> Vec<Value> {
    let text = String::from_utf8(fs::read(log).unwrap()).unwrap();
    let whole = if is_cut { text.rsplit_once('\n').map_or("", |(whole, _)| whole) } else { &text };
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

pub(crate) fn check_secrets(file: &Path) {
    let text = String::from_utf8(fs::read(file).unwrap()).unwrap();
    for secret in [SECRET, SECRET.trim_start_matches("whsec_"), QUERY, "hush-hush"] {
        let line = text.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "'{secret}' in {}", file.display());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
