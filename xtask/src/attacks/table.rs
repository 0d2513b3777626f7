//! The attacks, as data.

/// The broker of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SceneBroker {
    Nats,
    Sqs,
}

/// The hostile jobs that are queued before the honest ones.
#[derive(Clone, Copy)]
pub(super) struct WorkerAttack {
    pub(super) name: &'static str,
    pub(super) broker: SceneBroker,
    pub(super) jobs: usize,
    /// Sites of their images, each at an address of its own.
    pub(super) hosts: usize,
    /// Path of their images at these hosts, as [`super::site`] serves it.
    pub(super) image: &'static str,
    /// Path of their callbacks. All but `callback` are at the hostile receiver's address.
    pub(super) callback: &'static str,
    /// True if nothing listens at the hosts.
    pub(super) is_dead: bool,
    /// Bytes of each job's metadata.
    pub(super) metadata: usize,
    /// Connections to the worker's own port that send nothing.
    pub(super) idle_sockets: usize,
    /// Seconds between the hostile and the honest jobs.
    pub(super) head_start: u64,
    /// True for an outage: it ends after the honest jobs, and must have made no dead letter.
    pub(super) recovers: bool,
}

/// Good jobs at hostile addresses, which each attack changes in one respect.
const HARMLESS: WorkerAttack = WorkerAttack {
    name: "",
    broker: SceneBroker::Nats,
    jobs: 200,
    hosts: 4,
    image: "photo",
    callback: "callback",
    is_dead: false,
    metadata: 0,
    idle_sockets: 0,
    head_start: 2,
    recovers: false,
};
const SLOW_HOSTS: WorkerAttack = WorkerAttack { name: "slow hosts", hosts: 2, image: "silent", ..HARMLESS };
const DEAF_RECEIVER: WorkerAttack = WorkerAttack { name: "deaf receiver", callback: "silent", ..HARMLESS };
const MISSING_RECEIVER: WorkerAttack =
    WorkerAttack { name: "receiver answers 404", callback: "missing", recovers: true, ..HARMLESS };
/// Without a head start, the honest jobs stand behind them in the queue.
const DEAD_URLS: WorkerAttack = WorkerAttack { name: "dead URLs", is_dead: true, head_start: 0, ..HARMLESS };

/// The attacks of the short form.
pub(super) const QUICK: [&str; 3] = [SLOW_HOSTS.name, DEAF_RECEIVER.name, MISSING_RECEIVER.name];

pub(super) const ATTACKS: [WorkerAttack; 18] = [
    WorkerAttack { name: "drip", hosts: 12, image: "drip", ..HARMLESS },
    SLOW_HOSTS,
    WorkerAttack { name: "slow hosts, fast once", image: "once/silent", ..SLOW_HOSTS },
    DEAF_RECEIVER,
    WorkerAttack { name: "deaf receiver, fast once", callback: "once/silent", ..DEAF_RECEIVER },
    MISSING_RECEIVER,
    WorkerAttack { name: "receiver answers 404, fast once", callback: "once/missing", ..MISSING_RECEIVER },
    // Each takes a decoder about a second.
    WorkerAttack { name: "bombs", jobs: 40, image: "bomb", ..HARMLESS },
    WorkerAttack { name: "gzip bombs", image: "gzip", ..HARMLESS },
    WorkerAttack { name: "endless headers", image: "endless", ..HARMLESS },
    DEAD_URLS,
    WorkerAttack { name: "4,096 dead hosts", jobs: 4096, hosts: 4096, ..DEAD_URLS },
    WorkerAttack { name: "4,096 silent hosts", jobs: 4096, hosts: 4096, image: "silent", head_start: 0, ..HARMLESS },
    WorkerAttack { name: "metadata of 60 KB", jobs: 1000, metadata: 60_000, ..DEAF_RECEIVER },
    WorkerAttack { name: "metadata of 200 KB", jobs: 1000, metadata: 200_000, ..DEAF_RECEIVER },
    WorkerAttack { name: "idle sockets", jobs: 0, idle_sockets: 500, ..HARMLESS },
    // moto takes tens of milliseconds for a message.
    WorkerAttack { name: "deaf receiver on SQS", broker: SceneBroker::Sqs, jobs: 50, ..DEAF_RECEIVER },
    WorkerAttack { name: "dead URLs on SQS", broker: SceneBroker::Sqs, jobs: 50, ..DEAD_URLS },
];

/// Address of hostile host `n`: a /24 network, and so a site, of its own.
pub(super) fn hostile_address(n: usize) -> String {
    format!("127.{}.{}.1", 100 + n / 250, n % 250)
}

/// Sites of the honest photos, and the honest receiver.
pub(super) const HONEST_HOSTS: [&str; 4] = ["127.0.1.1", "127.0.2.1", "127.0.3.1", "127.0.4.1"];
pub(super) const RECEIVER: &str = "127.0.0.1";
pub(super) const HOSTILE_RECEIVER: &str = "127.0.9.1";
