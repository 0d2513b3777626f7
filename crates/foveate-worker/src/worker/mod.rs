//! The queue worker around an engine: receive → engine → callback and/or sink → acknowledge.
//!
//! A message is held from the moment it is received until the broker was told what became of it, and its lease is kept
//! alive all that time. Every path ends in one of [`Core::done`], [`Core::failed`] and the end of the lease.

mod backoff;
mod callback;
mod circuit_breaker;
mod delay_queue;
mod in_flight_limit;
mod leases;
mod quarantine;
mod segments;
mod settle;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foveate_pipeline::Queue;
use foveate_queue::{Delivery, ImageRef, Job, JobQueue, QueueError, QueueOptions, Receipt};

use crate::engine;
use crate::metrics::{Metrics, ReceiveLabel, ResultLabel};
use crate::watchdog::ThreadWatch;
use crate::{
    Done, Engine, EngineError, Failure, Image, Outcome, Output, Probe, Rejected, Request, Stage, Traces, lock,
};
use callback::Call;
use circuit_breaker::CircuitBreaker;
use delay_queue::DelayQueue;
use in_flight_limit::Meter;
use leases::{Hold, Key, Leases};
use quarantine::Quarantine;
use segments::Row;
use settle::{How, Settle};

pub use backoff::Backoff;
pub use callback::Callbacks;
pub use in_flight_limit::InFlightLimit;
pub use segments::{SegmentOpener, Segments};

/// How long a receiver waits for messages before it looks whether it is to stop.
const LONG_POLL: Duration = Duration::from_secs(2);
/// Leases that are extended by one call; the others' ends are looked at in between.
const EXTENDED_TOGETHER: usize = 160;
/// Threads that settle messages.
const SETTLERS: usize = 4;

/// What a worker works on, and how.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Where the messages come from.
    pub queues: Vec<Arc<dyn JobQueue>>,
    /// How many may be held.
    pub in_flight_limit: InFlightLimit,
    /// Whether leases are extended for as long as messages are held. Without it a lease that ends takes its message away.
    pub heartbeat: bool,
    /// How long a message whose work failed is put off.
    pub backoff: Backoff,
    /// How long a callback that failed is put off.
    pub callback_backoff: Backoff,
    /// How long a broker that does not answer is left alone.
    pub reconnect: Backoff,
    /// Who is told.
    pub callbacks: Callbacks,
    /// Where vectors are stored.
    pub sink: Option<Segments>,
    /// Whose traces the work is part of.
    pub traces: Traces,
}

impl WorkerOptions {
    /// The usual ones: a bound by the measured rate, heartbeats, no sink.
    pub fn new(queues: Vec<Arc<dyn JobQueue>>, callbacks: Callbacks) -> Self {
        Self {
            queues,
            in_flight_limit: InFlightLimit::Measured,
            heartbeat: true,
            backoff: Backoff::default(),
            callback_backoff: Backoff { base: Duration::from_millis(500), max: Duration::from_secs(15) },
            reconnect: Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5) },
            callbacks,
            sink: None,
            traces: Traces::default(),
        }
    }
}

/// Takes messages off queues until it is stopped.
pub struct Worker {
    core: Arc<Core>,
    receivers: Mutex<Vec<JoinHandle<()>>>,
    others: Mutex<Vec<JoinHandle<()>>>,
}

/// What the worker's threads share.
pub(crate) struct Core {
    engine: Engine,
    options: WorkerOptions,
    leases: Leases,
    meter: Meter,
    /// Largest batch of any task.
    batch: usize,
    /// Most messages that can be held: those under way in the engine, and rows that wait for their segment.
    most: usize,
    calls: DelayQueue<Call>,
    settling: DelayQueue<Settle>,
    rows: Queue<Row>,
    stopping: AtomicBool,
    ended: AtomicBool,
    faults: Mutex<Faults>,
    breaker: Mutex<CircuitBreaker>,
    quarantine: Quarantine,
}

/// What keeps the worker from working, for `/readyz`.
#[derive(Default)]
struct Faults {
    broker: Vec<Option<String>>,
    sink: Option<String>,
}

/// A message that was received.
struct Held {
    key: Key,
    hold: Hold,
    delivery: Arc<Delivery>,
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Ticket {
    key: Key,
    hold: Hold,
    queue: usize,
    delivery: Arc<Delivery>,
    /// The job's id, or the message's.
    id: String,
    task: String,
    /// The server that the image is on.
    server: Option<String>,
    callback: Option<String>,
    metadata: Option<String>,
    span: tracing::Span,
}

impl Worker {
    /// Starts taking messages for the tasks of `engine`, which should have no other user.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(engine: Engine, options: WorkerOptions) -> Result<Self, EngineError> {
        let core = Core::new(engine, options)?;
        let mut threads = Threads { core: &core, started: Vec::new() };
        for queue in 0..core.queues().len() {
            threads.start(format!("receive {queue}"), move |core| core.receive(queue))?;
        }
        let receivers = std::mem::take(&mut threads.started);
        // A thread for each, so that a broker that does not answer costs the others nothing.
        for queue in 0..core.queues().len() {
            threads.start(format!("leases {queue}"), move |core| core.keep_leases(queue))?;
        }
        // One at least: what those who process offer in vain is offered again by it.
        for i in 0..core.options.callbacks.threads.max(1) {
            threads.start(format!("callback {i}"), |core| callback::run(core))?;
        }
        for i in 0..SETTLERS {
            threads.start(format!("settle {i}"), |core| settle::run(core))?;
        }
        if let Some(segments) = core.options.sink.clone() {
            threads.start("sink".to_owned(), move |core| segments::write(core, &segments, &core.rows))?;
        }
        let others = threads.started;
        Ok(Self { core, receivers: Mutex::new(receivers), others: Mutex::new(others) })
    }

    /// Messages that are held.
    pub fn held(&self) -> usize {
        self.core.leases.held()
    }

    /// Takes no more messages, and waits until those that are held are done, but no longer than `deadline`. What is left
    /// then is given back to the queue. Returns how many those were.
    pub fn stop(&self, deadline: Duration) -> usize {
        let core = &self.core;
        let until = Instant::now() + deadline;
        core.stopping.store(true, SeqCst);
        // What they are being sent must be held before it can be given back.
        join(&self.receivers, until.max(Instant::now() + LONG_POLL));
        while core.leases.held() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        core.ended.store(true, SeqCst);
        let left: usize = (0..core.queues().len()).map(|queue| core.give_back(queue)).sum();
        core.engine.stop(Duration::ZERO);
        core.rows.close();
        // Tickets that are left stand for messages that were given back.
        drop((core.calls.close(), core.settling.close()));
        join(&self.others, until);
        left
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn join(threads: &Mutex<Vec<JoinHandle<()>>>, until: Instant) {
    engine::join(std::mem::take(&mut *lock(threads)), until);
}

struct Threads<'a> {
    core: &'a Arc<Core>,
    started: Vec<JoinHandle<()>>,
}

impl Threads<'_> {
    fn start(&mut self, name: String, run: impl FnOnce(&Arc<Core>) + Send + 'static) -> Result<(), EngineError> {
        let core = Arc::clone(self.core);
        let thread = std::thread::Builder::new().name(name).spawn(move || run(&core)).map_err(EngineError::Thread)?;
        self.started.push(thread);
        Ok(())
    }
}

impl Core {
    fn new(engine: Engine, options: WorkerOptions) -> Result<Arc<Self>, EngineError> {
        let lease = options.queues.iter().map(|queue| queue.lease()).min();
        let lease = lease.ok_or_else(|| EngineError::Options("a worker without a queue".to_owned()))?;
        let rows = options.sink.as_ref().map_or(0, |segments| segments.max_rows);
        let most = engine.max_in_flight() + rows;
        let faults = Faults { broker: vec![None; options.queues.len()], sink: None };
        Ok(Arc::new(Self {
            leases: Leases::new(options.queues.len()),
            meter: Meter::new(lease),
            batch: engine.largest_batch(),
            most,
            calls: DelayQueue::new(),
            settling: DelayQueue::new(),
            rows: Queue::new("sink", most, u64::MAX, None),
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            faults: Mutex::new(faults),
            breaker: Mutex::new(CircuitBreaker::new(engine.largest_batch())),
            quarantine: Quarantine::default(),
            engine,
            options,
        }))
    }

    fn queues(&self) -> &[Arc<dyn JobQueue>] {
        &self.options.queues
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    fn metrics(&self) -> &Metrics {
        self.engine.counters()
    }

    fn watch(&self, thread: &str) -> ThreadWatch {
        self.engine.watch(thread)
    }

    /// Most messages of a queue that may be held.
    fn in_flight_limit(&self, queue: usize) -> usize {
        let lease = self.queues()[queue].lease();
        self.options.in_flight_limit.of_queue(&self.meter, lease, self.queues().len(), self.batch, self.most)
    }

    /// The same of all queues together.
    fn total_limit(&self) -> usize {
        (0..self.queues().len()).map(|queue| self.in_flight_limit(queue)).sum()
    }

    /// Takes messages, never more than there is room for.
    fn receive(self: &Arc<Self>, queue: usize) {
        let watch = self.watch("receive");
        let mut failed = 0;
        while !self.is_stopping() {
            let mut room = self.leases.room(queue, || self.in_flight_limit(queue), Duration::from_millis(200));
            let probe = self.breaker().probe_interval();
            if let Some(rest) = probe {
                // Now and then one, to see whether it works again; the others keep the tries that they have left.
                self.rest(rest);
                room = room.min(1);
            }
            if room == 0 || self.is_stopping() {
                continue;
            }
            let busy = watch.busy();
            let received = self.queues()[queue].receive(room, LONG_POLL);
            drop(busy);
            self.broker_works(queue, received.as_ref().err());
            match received {
                Ok(deliveries) => {
                    failed = 0;
                    // All are held before the first is begun, which may have to wait for a place.
                    let held: Vec<Held> = deliveries.into_iter().filter_map(|new| self.hold(queue, new)).collect();
                    held.into_iter().for_each(|held| self.begin(queue, held));
                }
                Err(_) => {
                    failed += 1;
                    self.rest(self.options.reconnect.after(failed, None));
                }
            }
        }
    }

    /// Sleeps, but not past the end.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopping() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20).min(time));
        }
    }

    /// Whether little else is left to do than to publish the `rows` that wait for it: the worker stops, or may not take more
    /// messages before.
    fn waits_for(&self, rows: usize) -> bool {
        let held = self.leases.held();
        if self.is_stopping() {
            return held <= rows;
        }
        held >= self.total_limit() && held <= rows + self.batch
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        lock(&self.breaker)
    }

    /// A message was received. `None` where it is held already, and goes on.
    fn hold(&self, queue: usize, delivery: Delivery) -> Option<Held> {
        let source = &self.queues()[queue];
        let delivered = match delivery.received > 1 {
            _ if self.leases.is_again(queue, &delivery) => "held",
            true => "again",
            false => "first",
        };
        let label = ReceiveLabel { queue: source.name().to_owned(), delivery: delivered };
        self.metrics().received.get_or_create(&label).inc();
        if delivered == "held" {
            return None;
        }
        let delivery = Arc::new(delivery);
        let (key, hold) = self.leases.add(queue, Arc::clone(&delivery), source.lease());
        Some(Held { key, hold, delivery })
    }

    /// A message becomes a request, or its end is clear already.
    fn begin(self: &Arc<Self>, queue: usize, Held { key, hold, delivery }: Held) {
        let source = &self.queues()[queue];
        let job = Job::parse(&delivery.body);
        let id = job.as_ref().ok().and_then(|job| job.id.clone()).unwrap_or_else(|| delivery.id.clone());
        let span = tracing::info_span!("job", id, queue = source.name(), received = delivery.received);
        if let Some(traceparent) = job.as_ref().ok().and_then(|job| job.traceparent.as_deref()) {
            (self.options.traces.join)(&span, traceparent);
        }
        let received = delivery.received;
        let (task, server, callback, metadata) = (String::new(), None, None, None);
        let mut ticket = Ticket { key, hold, queue, delivery, id, task, server, callback, metadata, span };
        if received > source.max_receive().saturating_add(QueueOptions::CHANCES) {
            let reason = format!("delivered {received} times without an outcome; its worker may have died of it");
            return self.failed(ticket, Failure::permanent(Stage::Receive, reason));
        }
        let Job { task, image, callback, metadata, .. } = match job {
            Ok(job) => job,
            Err(error) => return self.failed(ticket, Failure::permanent(Stage::Parse, error.to_string())),
        };
        ticket.task = task;
        ticket.server = match &image {
            ImageRef::Url(url) => foveate_net::server(url),
            ImageRef::Object(_) => None,
        };
        ticket.callback = callback.map(|callback| callback.url);
        ticket.metadata = metadata;
        match self.check(&ticket) {
            Ok(()) if received > source.max_receive() => self.quarantine.add(ticket, Image::At(image)),
            Ok(()) => self.submit(ticket, Image::At(image)),
            Err(failure) => self.failed(ticket, failure),
        }
    }

    /// Whether somebody would be told the result: before any work is done for it.
    fn check(&self, ticket: &Ticket) -> Result<(), Failure> {
        let refused = |reason: &str| Failure::permanent(Stage::Callback, reason);
        match (&ticket.callback, &self.options.callbacks.client) {
            (Some(url), Some(client)) => client.check(url).map_err(|error| refused(&error.reason)),
            (Some(_), None) => Err(refused("this worker calls nobody back (see --callback-host)")),
            (None, _) if self.options.sink.is_some() => Ok(()),
            (None, _) => {
                Err(Failure::permanent(Stage::Parse, "the job names no callback, and this worker has no sink"))
            }
        }
    }

    fn submit(self: &Arc<Self>, ticket: Ticket, image: Image) {
        let (core, hold) = (Arc::clone(self), ticket.hold.clone());
        let (id, task, span) = (ticket.id.clone(), ticket.task.clone(), ticket.span.clone());
        let metadata = ticket.metadata.clone();
        let done = Done::new(move |outcome| core.finished(ticket, outcome)).while_wanted(move || hold.is_held());
        let mut request = Request { id, task, image, metadata, done, span };
        loop {
            request = match self.engine.submit(request) {
                Ok(()) => return,
                // The worker's own bound keeps this from happening, unless somebody else uses the engine too.
                Err(Rejected::Full(request)) if !self.is_stopping() => {
                    std::thread::sleep(Duration::from_millis(5));
                    *request
                }
                Err(rejected @ Rejected::NoTask { .. }) => {
                    let failure = Failure::permanent(Stage::Parse, rejected.to_string());
                    return rejected.into_request().done.tell(Err(failure));
                }
                // Dropping the request gives its message back.
                Err(_) => return,
            }
        }
    }

    /// The engine is done with a message.
    fn finished(&self, ticket: Ticket, outcome: Outcome) {
        if !ticket.hold.is_held() {
            return;
        }
        self.breaker().record(ticket.server.as_deref(), &outcome);
        if self.options.sink.is_some() {
            // Segments are settled at one blow: that is not the rate at which messages are worked on.
            self.meter.finished();
        }
        match (outcome, &self.options.sink) {
            (Err(failure), _) => self.failed(ticket, failure),
            (Ok(Output::Vector(embedding)), Some(_)) => {
                // Refused at the end only: then the message was given back.
                let _ = self.rows.push(Row { ticket: Box::new(ticket), embedding }, 0);
            }
            (Ok(_), _) if ticket.callback.is_none() => {
                self.failed(
                    ticket,
                    Failure::permanent(Stage::Sink, "the task gives no vector to store, and the job names no callback"),
                );
            }
            (Ok(output), _) => self.stored(Box::new(ticket), output),
        }
    }

    /// What is to be stored is stored; now whoever asked is told.
    fn stored(&self, ticket: Box<Ticket>, output: Output) {
        if ticket.callback.is_none() {
            return self.done(*ticket);
        }
        let call = match Call::new(ticket, &output, self.options.callbacks.encoding) {
            Ok(call) => call,
            Err((ticket, error)) => {
                return self.failed(*ticket, Failure::permanent(Stage::Callback, error.to_string()));
            }
        };
        match self.options.callbacks.threads {
            0 => callback::post(self, call),
            // Refused at the end only.
            _ => drop(self.calls.push(Instant::now(), call)),
        }
    }

    /// A message is done with, and everybody who has to know knows.
    fn done(&self, ticket: Ticket) {
        ticket.span.in_scope(|| tracing::debug!("done"));
        let stage = if ticket.callback.is_some() { Stage::Callback } else { Stage::Sink };
        self.settle(Settle::new(ticket, stage, How::Acknowledge));
    }

    /// A message failed: another try later, or its end.
    fn failed(&self, ticket: Ticket, failure: Failure) {
        if !ticket.hold.is_held() {
            return;
        }
        let Failure { stage, reason, transient, retry_after } = failure;
        let (tries, most) = (ticket.delivery.received, self.queues()[ticket.queue].max_receive());
        let _span = ticket.span.clone().entered();
        if transient && (tries < most || stage == Stage::Shutdown) {
            let delay =
                if stage == Stage::Shutdown { Duration::ZERO } else { self.options.backoff.after(tries, retry_after) };
            tracing::warn!(%stage, reason, delay_ms = delay.as_millis() as u64, "failed; it is tried again");
            return self.settle(Settle::new(ticket, stage, How::Release(delay)));
        }
        let reason = if transient { format!("{reason} (the last of {tries} tries)") } else { reason };
        tracing::error!(%stage, reason, "failed; it goes to the dead letters");
        self.settle(Settle::dead(ticket, stage, reason));
    }

    fn settle(&self, settle: Settle) {
        // Refused at the end only: then the message was given back.
        let _ = self.settling.push(Instant::now(), settle);
    }

    /// Extends the leases of what is held of a queue, and gives up what could not be.
    fn keep_leases(self: &Arc<Self>, queue: usize) {
        let watch = self.watch("leases");
        let tick = (self.queues()[queue].lease() / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        while !self.ended.load(SeqCst) {
            let due = if self.options.heartbeat { self.leases.due(queue) } else { Vec::new() };
            for some in due.chunks(EXTENDED_TOGETHER) {
                let busy = watch.busy();
                self.extend(queue, some);
                drop(busy);
                self.expire();
            }
            self.expire();
            // Leases must not have to wait for a place in the engine.
            if self.engine.in_flight() < self.engine.max_in_flight()
                && let Some((ticket, image)) = self.quarantine.next()
            {
                self.submit(ticket, image);
            }
            std::thread::sleep(tick);
        }
    }

    fn extend(&self, queue: usize, due: &[(Key, Receipt)]) {
        let receipts: Vec<Receipt> = due.iter().map(|(_, receipt)| receipt.clone()).collect();
        let asked = Instant::now();
        let results = self.queues()[queue].extend(&receipts);
        for ((key, receipt), result) in due.iter().zip(results) {
            let result = match result {
                Ok(()) => {
                    self.leases.extended(*key, asked);
                    "ok"
                }
                // Unless it was settled, or delivered anew, in the meantime.
                Err(QueueError::LeaseLost) if self.leases.ended(*key, receipt) => "lost",
                Err(QueueError::LeaseLost) => continue,
                // Tried again until the lease ends.
                Err(_) => "failed",
            };
            self.metrics().extensions.get_or_create(&ResultLabel { result }).inc();
        }
    }

    fn expire(&self) {
        let lost = self.leases.expire();
        if lost > 0 {
            tracing::warn!(lost, "leases ended before their messages were done with; they will be delivered again");
            self.metrics().extensions.get_or_create(&ResultLabel { result: "lost" }).inc_by(lost as u64);
        }
    }

    /// Gives back what is held of a queue; how many messages those were.
    fn give_back(&self, queue: usize) -> usize {
        let receipts = self.leases.take(queue);
        for result in self.queues()[queue].release(&receipts, Duration::ZERO) {
            match result {
                Ok(()) => self.metrics().settled(self.queues()[queue].name(), "released", Stage::Shutdown),
                Err(error) => {
                    tracing::warn!(%error, "a message could not be given back; it comes back when its lease ends")
                }
            }
        }
        receipts.len()
    }

    fn broker_works(&self, queue: usize, fault: Option<&QueueError>) {
        let mut faults = lock(&self.faults);
        match (fault, faults.broker[queue].is_some()) {
            (Some(error), false) => tracing::error!(%error, "cannot receive"),
            (None, true) => tracing::info!(queue = self.queues()[queue].name(), "receives again"),
            _ => {}
        }
        faults.broker[queue] = fault.map(ToString::to_string);
    }

    fn sink_works(&self, fault: Option<String>) {
        if let Some(error) = &fault {
            tracing::error!(error, "cannot publish a segment; its messages are tried again");
        }
        lock(&self.faults).sink = fault;
    }
}

impl Probe for Worker {
    fn live(&self) -> Result<(), String> {
        self.core.engine.live()?;
        self.core.breaker().check_processing()
    }

    fn ready(&self) -> Result<(), String> {
        self.live()?;
        if self.core.is_stopping() {
            return Err("stopping".to_owned());
        }
        self.core.breaker().check()?;
        let faults = lock(&self.core.faults);
        let fault = faults.broker.iter().flatten().next().or(faults.sink.as_ref());
        fault.map_or(Ok(()), |fault| Err(fault.clone()))
    }

    fn metrics(&self) -> String {
        let core = &self.core;
        core.metrics().worker(core.leases.held(), core.total_limit());
        core.engine.metrics()
    }
}
