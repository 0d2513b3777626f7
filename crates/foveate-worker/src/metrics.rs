//! Metrics in the OpenMetrics text format.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use foveate_queue::Depth;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::{Stage, lock};

type FloatGauge = Gauge<f64, std::sync::atomic::AtomicU64>;

/// The metrics of an engine and of the worker around it.
pub(crate) struct WorkerMetrics {
    registry: Mutex<Registry>,
    items: Family<StageResult, Counter>,
    seconds: Family<StageLabel, Histogram, fn() -> Histogram>,
    batch: Family<TaskLabel, Histogram, BatchSizeBuckets>,
    cache_hits: Family<TaskLabel, Counter>,
    depth: Family<QueueLabel, Gauge>,
    capacity: Family<QueueLabel, Gauge>,
    /// The waits of items in a queue.
    queued: Family<QueueLabel, Histogram, fn() -> Histogram>,
    /// The waits of messages at their broker.
    message_waits: Family<QueueLabel, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    bytes_in_flight: Gauge,
    /// Messages received, by the kind of delivery.
    pub(crate) received: Family<ReceiveLabel, Counter>,
    settled: Family<SettleLabel, Counter>,
    pub(crate) callbacks: Family<ResultLabel, Counter>,
    pub(crate) extensions: Family<ResultLabel, Counter>,
    held: Gauge,
    limit: Gauge,
    breakers: Family<CauseLabel, Gauge>,
    messages: Family<MessagesLabel, Gauge>,
    ages: Family<QueueLabel, FloatGauge>,
    pub(crate) rows: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageResult {
    stage: &'static str,
    task: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
    task: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: String,
}

/// Labels of received messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReceiveLabel {
    pub(crate) queue: String,
    /// `first`; `again` if the message was delivered before; `held` if this worker holds it from an earlier delivery.
    pub(crate) delivery: &'static str,
}

/// Labels of settled messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SettleLabel {
    queue: String,
    how: &'static str,
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MessagesLabel {
    queue: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    pub(crate) result: &'static str,
}

/// Batches of 1, 2, 4, … 512 images.
#[derive(Clone)]
struct BatchSizeBuckets;

impl MetricConstructor<Histogram> for BatchSizeBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(1.0, 2.0, 10))
    }
}

/// Upper bounds of the buckets of all histograms of times, in seconds.
pub const TIME_BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

fn durations() -> Histogram {
    Histogram::new(TIME_BUCKETS)
}

impl WorkerMetrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("foveate")),
            items: Family::default(),
            seconds: Family::new_with_constructor(durations),
            batch: Family::new_with_constructor(BatchSizeBuckets),
            cache_hits: Family::default(),
            depth: Family::default(),
            capacity: Family::default(),
            queued: Family::new_with_constructor(durations),
            message_waits: Family::new_with_constructor(durations),
            in_flight: Gauge::default(),
            bytes_in_flight: Gauge::default(),
            received: Family::default(),
            settled: Family::default(),
            callbacks: Family::default(),
            extensions: Family::default(),
            held: Gauge::default(),
            limit: Gauge::default(),
            breakers: Family::default(),
            messages: Family::default(),
            ages: Family::default(),
            rows: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = lock(&self.registry);
        let r = &mut *registry;
        r.register("items", "Items that left a stage, by result", self.items.clone());
        let about = "Time of a stage per item, or per batch of process";
        r.register_with_unit("stage", about, Unit::Seconds, self.seconds.clone());
        r.register("batch_images", "Images per batch", self.batch.clone());
        r.register("cache_hits", "Images whose output came from the cache", self.cache_hits.clone());
        r.register("queue_depth", "Items that wait before a stage", self.depth.clone());
        r.register("queue_capacity", "Capacity of the queue before a stage, in items", self.capacity.clone());
        let about = "Time that an item waited before a stage";
        r.register_with_unit("queue_wait", about, Unit::Seconds, self.queued.clone());
        r.register("in_flight", "Requests in the engine", self.in_flight.clone());
        let about = "Downloaded files that are not decoded yet";
        r.register_with_unit("in_flight_files", about, Unit::Bytes, self.bytes_in_flight.clone());
        r.register("received", "Messages received", self.received.clone());
        r.register(
            "settled",
            "Messages acknowledged, released for a retry, given back, dead-lettered, or lost",
            self.settled.clone(),
        );
        r.register("callbacks", "Callbacks posted, by result", self.callbacks.clone());
        r.register("lease_extensions", "Leases extended or lost", self.extensions.clone());
        r.register("messages_held", "Messages that this worker holds", self.held.clone());
        r.register(
            "messages_limit",
            "In-flight limit: the most messages that this worker holds at its present rate",
            self.limit.clone(),
        );
        let about = "Open circuit breakers, by the kind of their cause";
        r.register("open_circuit_breakers", about, self.breakers.clone());
        let about = "Messages at the broker, by state: waiting, leased, or dead letters";
        r.register("broker_messages", about, self.messages.clone());
        let about = "Time that the last message received for the first time had waited; 0 if the queue is empty";
        r.register_with_unit("broker_wait", about, Unit::Seconds, self.ages.clone());
        let about = "Time that a message had waited when it was received for the first time";
        r.register_with_unit("message_wait", about, Unit::Seconds, self.message_waits.clone());
        r.register("sink_rows", "Vectors stored by the sink", self.rows.clone());
    }

    /// Counts an item that left a stage.
    pub(crate) fn stage(&self, stage: &'static str, task: &str, took: Duration, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.items.get_or_create(&StageResult { stage, task: task.to_owned(), result }).inc();
        self.seconds.get_or_create(&StageLabel { stage, task: task.to_owned() }).observe(took.as_secs_f64());
    }

    /// Counts an image that the cache knows.
    pub(crate) fn cache_hit(&self, task: &str) {
        self.cache_hits.get_or_create(&TaskLabel { task: task.to_owned() }).inc();
    }

    /// Counts a batch that left the last stage.
    pub(crate) fn batch(&self, task: &str, took: Duration, ok: u64, failed: u64) {
        for (result, count) in [("ok", ok), ("failed", failed)] {
            let label = StageResult { stage: "process", task: task.to_owned(), result };
            self.items.get_or_create(&label).inc_by(count);
        }
        let label = StageLabel { stage: "process", task: task.to_owned() };
        self.seconds.get_or_create(&label).observe(took.as_secs_f64());
        self.batch.get_or_create(&TaskLabel { task: task.to_owned() }).observe((ok + failed) as f64);
    }

    /// Sets the depth of a queue.
    pub(crate) fn waiting(&self, name: &str, depth: usize, capacity: usize) {
        let label = QueueLabel { queue: name.to_owned() };
        self.depth.get_or_create(&label).set(depth as i64);
        self.capacity.get_or_create(&label).set(capacity as i64);
    }

    /// Records how long an item waited in a queue.
    pub(crate) fn queued(&self, name: &str, waited: Duration) {
        self.queued.get_or_create(&QueueLabel { queue: name.to_owned() }).observe(waited.as_secs_f64());
    }

    pub(crate) fn in_flight(&self, items: u64, bytes: u64) {
        self.in_flight.set(items as i64);
        self.bytes_in_flight.set(bytes as i64);
    }

    pub(crate) fn worker(&self, held: usize, limit: usize) {
        self.held.set(held as i64);
        self.limit.set(limit as i64);
    }

    /// Sets the number of messages of a queue.
    pub(crate) fn backlog(&self, queue: &str, Depth { waiting, leased, dead }: Depth) {
        for (state, messages) in [("waiting", waiting), ("leased", leased), ("dead", dead)] {
            let label = MessagesLabel { queue: queue.to_owned(), state };
            self.messages.get_or_create(&label).set(messages as i64);
        }
    }

    /// Records how long a message had waited at its broker.
    pub(crate) fn message_wait(&self, queue: &str, wait: Duration) {
        self.message_waits.get_or_create(&QueueLabel { queue: queue.to_owned() }).observe(wait.as_secs_f64());
    }

    /// Sets how long the first messages of a queue wait.
    pub(crate) fn wait(&self, queue: &str, wait: Duration) {
        self.ages.get_or_create(&QueueLabel { queue: queue.to_owned() }).set(wait.as_secs_f64());
    }

    /// Sets the number of open circuit breakers whose causes are of this kind.
    pub(crate) fn open_breakers(&self, cause: &'static str, open: usize) {
        self.breakers.get_or_create(&CauseLabel { cause }).set(open as i64);
    }

    /// Counts a settled message: `how` is `acknowledged`, `released`, `refused`, `held`, `dead`, `skipped` or `lost`;
    /// `stage` is where.
    pub(crate) fn settled(&self, queue: &str, how: &'static str, stage: Stage) {
        self.settled.get_or_create(&SettleLabel { queue: queue.to_owned(), how, stage: stage.name() }).inc();
    }

    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let registry = lock(&self.registry);
        if let Err(error) = encode(&mut text, &registry) {
            let _ = writeln!(text, "# {error}");
        }
        text
    }
}
