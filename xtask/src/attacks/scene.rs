//! One scene: a worker of its own on a queue of its own, with or without hostile jobs before the honest ones.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foveate_testkit::brokers::{AwsServer, NatsServer, free_port};
use serde::Serialize;
use serde_json::{Value, json};

use super::site::{HostileSite, SiteRecord};
use super::table::{HONEST_HOSTS, HOSTILE_RECEIVER, RECEIVER, SceneBroker, WorkerAttack, hostile_address};
use crate::cargo::output;

/// A worker that has not answered by then waits for hostile servers.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at the callbacks and the probes.
const LOOK: Duration = Duration::from_millis(100);
/// A probe that takes so long counts as unanswered.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of metadata that `enqueue` sends. Larger ones go to NATS directly, as another program would send them.
const MOST_METADATA: usize = 64 << 10;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The program, the brokers and the server.
pub(super) struct AttackBench {
    program: PathBuf,
    model: PathBuf,
    folder: PathBuf,
    pub(super) site: Arc<HostileSite>,
    pub(super) nats: NatsServer,
    aws: Option<AwsServer>,
    queues: usize,
    /// Time for the jobs of an outage after its end.
    pub(super) recovery: Duration,
}

/// A queue for one scene.
pub(super) struct SceneQueue {
    name: String,
    address: String,
    environment: Vec<(&'static str, String)>,
}

/// Messages of a queue, and the ids of its dead letters.
pub(super) struct QueueRest {
    pub(super) open: u64,
    pub(super) dead: BTreeSet<String>,
}

/// The outcome of a scene: a row of the CSV file.
#[derive(Serialize)]
pub(super) struct SceneRow {
    pub(super) attack: &'static str,
    broker: String,
    /// `attacked`, or `calm`: the same honest jobs without the hostile ones.
    scene: &'static str,
    pub(super) round: usize,
    hostile_jobs: usize,
    pub(super) honest_jobs: usize,
    pub(super) answered: usize,
    /// Seconds from the sending of the honest jobs to the median and the last of their callbacks; 0 if too few came.
    pub(super) median_s: f64,
    pub(super) last_s: f64,
    pub(super) peak_mib: f64,
    pub(super) slowest_probe_s: f64,
    pub(super) honest_dead: usize,
    pub(super) hostile_dead: usize,
    pub(super) hostile_answered: usize,
    /// Seconds from the end of an outage to the last of its jobs, or until the scene ended.
    pub(super) recovered_s: Option<f64>,
    /// Jobs that are neither answered nor on the queue, nor among the dead letters.
    pub(super) lost: usize,
    /// Jobs that were answered with two results.
    pub(super) differing: usize,
    /// Goals that the scene misses, separated by semicolons.
    pub(super) missed: String,
}

impl AttackBench {
    /// Starts everything but the workers, whose logs are in `folder`.
    pub(super) fn start(root: &Path, program: PathBuf, folder: PathBuf, has_sqs: bool) -> Result<Self> {
        Ok(Self {
            program,
            model: root.join("tests/fixtures/models/tiny"),
            folder,
            site: HostileSite::start(root)?,
            nats: NatsServer::start(),
            aws: has_sqs.then(AwsServer::start),
            queues: 0,
            recovery: PATIENCE,
        })
    }

    /// A new queue, on a site that has forgotten everything.
    pub(super) fn queue(&mut self, broker: SceneBroker) -> SceneQueue {
        self.queues += 1;
        *self.site.record() = SiteRecord::default();
        let name = format!("jobs-{}", self.queues);
        match (broker, &self.aws) {
            (SceneBroker::Sqs, Some(aws)) => {
                SceneQueue { address: format!("sqs://{name}"), name, environment: aws.environment().into() }
            }
            _ => {
                SceneQueue { address: format!("nats://{}/{name}", self.nats.address()), name, environment: Vec::new() }
            }
        }
    }

    /// `foveate WORDS` on the queue.
    fn foveate(&self, queue: &SceneQueue, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).args(["--queue", &queue.address]).envs(queue.environment.iter().cloned());
        command.env("FOVEATE_WEBHOOK_SECRET", SECRET).env_remove("RUST_LOG").env("XDG_STATE_HOME", &self.folder);
        command
    }

    /// Starts a worker that may reach these addresses, and waits until it receives messages.
    pub(super) fn worker(&self, queue: &SceneQueue, name: &str, hosts: &[String]) -> Result<AttackedWorker> {
        let mut command = self.foveate(queue, &["worker", "--create", "--batch", "8"]);
        let address = format!("127.0.0.1:{}", free_port());
        command.args(["--listen", &address, "--callback-http", "--model"]).arg(&self.model);
        for host in HONEST_HOSTS.into_iter().chain(hosts.iter().map(String::as_str)) {
            command.args(["--allow-private", host]);
        }
        for receiver in [RECEIVER, HOSTILE_RECEIVER] {
            let receiver = format!("{receiver}:{}", self.site.port);
            command.args(["--callback-host", &receiver, "--callback-private", &receiver]);
        }
        let log = self.folder.join(format!("{}-{name}.log", queue.name));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().context("cannot start the worker")?;
        let mut worker = AttackedWorker { child, log, address };
        let end = Instant::now() + PATIENCE;
        while !worker.get("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
            worker.check()?;
            ensure!(Instant::now() < end, "the worker does not get ready; see {}", worker.log.display());
            sleep(LOOK);
        }
        Ok(worker)
    }

    /// Queues jobs, as JSON.
    pub(super) fn enqueue(&self, queue: &SceneQueue, jobs: &[Value]) -> Result<()> {
        let list = self.folder.join(format!("{}.ndjson", queue.name));
        let lines: Vec<String> = jobs.iter().map(Value::to_string).collect();
        fs::write(&list, lines.join("\n"))?;
        output(self.foveate(queue, &["enqueue", "--create", "-q"]).arg("--from-list").arg(&list))?;
        Ok(())
    }

    /// Queues jobs past the checks of `enqueue`.
    fn publish(&self, queue: &SceneQueue, jobs: &[Value]) -> Result<()> {
        let mut stream = TcpStream::connect(self.nats.address())?;
        let mut answers = BufReader::new(stream.try_clone()?);
        stream.write_all(b"CONNECT {\"verbose\":false}\r\n")?;
        for job in jobs {
            let job = job.to_string();
            stream.write_all(format!("PUB {} {}\r\n{job}\r\n", queue.name, job.len()).as_bytes())?;
        }
        stream.write_all(b"PING\r\n")?;
        let mut line = String::new();
        while !line.starts_with("PONG") {
            line.clear();
            ensure!(answers.read_line(&mut line)? > 0, "nats-server ended the connection");
        }
        Ok(())
    }

    /// Counts what is left on the queue.
    pub(super) fn rest(&self, queue: &SceneQueue) -> Result<QueueRest> {
        let stats: Value = serde_json::from_str(&output(&mut self.foveate(queue, &["queue", "stats", "--json"]))?)?;
        let open = stats["waiting"].as_u64().context("no count")? + stats["leased"].as_u64().context("no count")?;
        let mut dead = BTreeSet::new();
        let peek = ["queue", "peek", "--json", "--limit", "1000000"];
        for line in output(&mut self.foveate(queue, &peek))?.lines() {
            let letter: Value = serde_json::from_str(line)?;
            let sender = letter["job"]["id"].as_str().or(letter["id"].as_str());
            dead.insert(sender.unwrap_or_default().to_owned());
        }
        Ok(QueueRest { open, dead })
    }

    /// A job whose image and callback are at these URLs.
    pub(super) fn job(id: &str, image: &str, callback: &str) -> Value {
        json!({"version": 1, "id": id, "image": {"url": image}, "callback": {"url": callback}})
    }

    fn honest_jobs(&self, count: usize) -> Vec<Value> {
        let callback = self.site.url(RECEIVER, "callback");
        let mut jobs = Vec::new();
        for n in 0..count {
            let image = self.site.url(HONEST_HOSTS[n % HONEST_HOSTS.len()], &format!("photo/{n}"));
            jobs.push(Self::job(&format!("honest-{n}"), &image, &callback));
        }
        jobs
    }

    fn send_hostile(&self, queue: &SceneQueue, attack: &WorkerAttack) -> Result<()> {
        let receiver = if attack.callback == "callback" { RECEIVER } else { HOSTILE_RECEIVER };
        let callback = self.site.url(receiver, attack.callback);
        let mut jobs = Vec::new();
        for n in 0..attack.jobs {
            let host = hostile_address(n % attack.hosts);
            // Port 1 has no listener.
            let image = if attack.is_dead {
                format!("http://{host}:1/{n}")
            } else {
                self.site.url(&host, &format!("{}/{n}", attack.image))
            };
            let mut job = Self::job(&format!("hostile-{n}"), &image, &callback);
            job["metadata"] = "x".repeat(attack.metadata).into();
            jobs.push(job);
        }
        if attack.metadata > MOST_METADATA { self.publish(queue, &jobs) } else { self.enqueue(queue, &jobs) }
    }

    /// Plays a scene, or its honest jobs alone.
    pub(super) fn play(
        &self,
        queue: &SceneQueue,
        attack: &WorkerAttack,
        is_attacked: bool,
        honest: usize,
    ) -> Result<SceneRow> {
        let hosts: Vec<String> = (0..attack.hosts).map(hostile_address).collect();
        let mut worker = self.worker(queue, "worker", &hosts)?;
        let mut sockets = Vec::new();
        if is_attacked {
            self.send_hostile(queue, attack)?;
            // A worker may leave them in the system's backlog, where there is room for some.
            for _ in 0..attack.idle_sockets {
                sockets.extend(TcpStream::connect_timeout(&worker.address.parse()?, LOOK));
            }
            sleep(Duration::from_secs(attack.head_start));
        }
        let start = Instant::now();
        self.enqueue(queue, &self.honest_jobs(honest))?;
        let mut slowest_probe = Duration::ZERO;
        while self.site.record().count("honest-") < honest && start.elapsed() < PATIENCE {
            worker.check()?;
            for path in ["/readyz", "/metrics"] {
                let asked = Instant::now();
                let is_answered = worker.get(path).is_ok_and(|answer| answer.starts_with("HTTP/1.1 "));
                slowest_probe = slowest_probe.max(if is_answered { asked.elapsed() } else { PROBE_TIMEOUT });
            }
            sleep(LOOK);
        }
        let mut recovered_s = None;
        if is_attacked && attack.recovers {
            self.site.recover();
            let back = Instant::now();
            while self.site.record().count("hostile-") < attack.jobs && back.elapsed() < self.recovery {
                sleep(LOOK);
            }
            recovered_s = Some(back.elapsed().as_secs_f64().round());
        }
        worker.check()?;
        let peak_mib = worker.memory_mib("VmHWM")?.round();
        let rest = self.rest(queue)?;
        drop(worker);
        let record = self.site.record();
        let mut seconds = Vec::new();
        for (_, job) in record.answered.iter().filter(|(id, _)| id.starts_with("honest-")) {
            seconds.push(rounded(job.first - start));
        }
        seconds.sort_by(f64::total_cmp);
        let hostile_jobs = if is_attacked { attack.jobs } else { 0 };
        let honest_dead = rest.dead.iter().filter(|id| id.starts_with("honest-")).count();
        let known = record.answered.len() + rest.dead.len() + usize::try_from(rest.open)?;
        Ok(SceneRow {
            attack: attack.name,
            broker: format!("{:?}", attack.broker).to_lowercase(),
            scene: if is_attacked { "attacked" } else { "calm" },
            round: 0,
            hostile_jobs,
            honest_jobs: honest,
            answered: seconds.len(),
            median_s: seconds.get(honest / 2).copied().unwrap_or_default(),
            last_s: seconds.last().copied().unwrap_or_default(),
            peak_mib,
            slowest_probe_s: rounded(slowest_probe),
            honest_dead,
            hostile_dead: rest.dead.len() - honest_dead,
            hostile_answered: record.count("hostile-"),
            recovered_s,
            lost: (hostile_jobs + honest).saturating_sub(known),
            differing: record.answered.values().filter(|job| job.differs).count(),
            missed: String::new(),
        })
    }
}

/// Seconds to the millisecond.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

/// A running worker; dropping it kills it.
pub(super) struct AttackedWorker {
    child: Child,
    log: PathBuf,
    address: String,
}

impl AttackedWorker {
    /// Fails if the worker has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the worker ended by itself ({ended:?}); see {}", self.log.display());
        Ok(())
    }

    /// A line of the worker's `/proc/PID/status`, in MiB.
    pub(super) fn memory_mib(&self, name: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("Linux reports no memory")?;
        Ok(kib.parse::<f64>()? / 1024.0)
    }

    /// Answer to a request of a probe.
    fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address.parse()?, PROBE_TIMEOUT)?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for AttackedWorker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
