//! The threads of a pipeline and the bounded queues between them, event by event.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::clock::{Clock, GROUPS, Task};
use super::outcome::{Gauge, QueueUse, SimOutcome, Span, ThreadsUse};
use super::service::{Service, Uniform};
use crate::error::{at_least_one, not_negative, positive, share};
use crate::{Configuration, Measured, Place, PlanError, Step, StepTable};

/// A run to be simulated: readers, workers, encoders and one writer, with bounded queues between them.
///
/// It follows `foveate-pipeline`. A batch covers fixed positions of the source. Its buffer is taken when its first
/// image is read and released when its forward is done; batches are encoded in order. Service times are drawn by image
/// and batch, not in the order of events, so two configurations with the same seed have the same work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// Images of the run.
    pub images: u64,
    /// Images per batch.
    pub batch: u32,
    /// The reader threads.
    pub read: SimStage,
    /// The decode workers. With 0 threads everything runs in turn on one thread, and the limits do not apply.
    pub prepare: SimStage,
    /// The encoders.
    pub forward: SimForward,
    /// The writer, per image; one thread.
    pub write: SimStage,
    /// Encoded bytes of an image.
    pub bytes: Service,
    /// The queues' bounds.
    pub limits: Limits,
    /// Cores that all threads share; `None` if every thread has its own.
    pub cores: Option<u32>,
    /// As in [`Measured::interference`].
    pub interference: f64,
    /// Seed for service times; the same seed gives the same outcome.
    pub seed: u64,
    /// Start and end, in seconds, of the window for recording spans; `None` for no timeline.
    pub timeline: Option<(f64, f64)>,
}

/// Threads of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimStage {
    /// Number of threads.
    pub threads: u32,
    /// Seconds per image, alone.
    pub seconds: Service,
    /// The fraction of these spent on a core, 0..=1. The rest is waiting (for a disk or a network), which other threads
    /// do not slow.
    pub on_core: f64,
}

/// The encoders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimForward {
    /// Number of encoders, each with its own batches.
    pub encoders: u32,
    /// Seconds of a batch, alone.
    pub step: Step,
    /// Factor on the seconds, drawn for every batch; of mean 1.
    pub variation: Service,
    /// Cores in use during a forward: its threads on a CPU, about 0 for a device.
    pub cores: f64,
}

/// Bounds of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Images between reading and decoding.
    pub read_ahead_images: u32,
    /// Bytes between reading and decoding; a single larger image passes alone.
    pub read_ahead_bytes: f64,
    /// Batches being filled, waiting or being encoded.
    pub batches: u32,
    /// Encoded batches that wait for the writer.
    pub write_ahead: u32,
}

impl Limits {
    /// The bounds of `foveate-pipeline` in this configuration.
    pub fn of(configuration: &Configuration) -> Self {
        let Configuration { readers, workers, batch, prefetch, encoders, .. } = *configuration;
        let read_ahead = (2 * workers + readers).max(16);
        let items = read_ahead + workers + readers;
        Self {
            read_ahead_images: read_ahead,
            read_ahead_bytes: f64::from(64 << 20),
            batches: 1 + encoders.max(1) + prefetch.max(1) + items.div_ceil(batch.max(1)),
            write_ahead: 4,
        }
    }
}

impl Measured {
    /// The pipeline of [`Measured::predict`], event by event, with service times drawn from the measured samples. With
    /// a [`Measured::storage`], the readers are its requests in flight, and they wait such that they are as fast as the
    /// store.
    ///
    /// # Errors
    /// As [`Measured::predict`].
    pub fn simulation(&self, configuration: &Configuration, images: u64, seed: u64) -> Result<Simulation, PlanError> {
        self.check()?;
        let Configuration { readers, workers, batch, forward_threads, encoders, .. } = *configuration;
        let forward = self.forward_cost(forward_threads, batch)?;
        let beside = self.cost_at(Place::Encoder);
        let measured = || self.forward.iter().filter(|cost| cost.threads == forward_threads);
        let points: Vec<(u32, f64)> =
            measured().map(|cost| (cost.batch, cost.seconds + beside.seconds * f64::from(cost.batch))).collect();
        let ratios = |cost: &crate::ForwardCost| cost.samples.iter().map(|s| s / cost.seconds).collect::<Vec<_>>();
        let variation = Service::of_samples(&measured().flat_map(ratios).collect::<Vec<_>>(), 1.0);
        let images_per_batch = f64::from(batch);
        let seconds = forward.seconds + beside.seconds * images_per_batch;
        let cores = (forward.cpu_seconds + beside.cpu_seconds * images_per_batch) / seconds;
        Ok(Simulation {
            images,
            batch,
            read: self.sim_reading(readers)?,
            prepare: self.sim_stage(Place::Worker, workers),
            forward: SimForward { encoders, step: Step::Table(StepTable::new(points)?), variation, cores },
            write: self.sim_stage(Place::Writer, 1),
            bytes: Service::Constant(self.bytes_per_image),
            limits: Limits::of(configuration),
            cores: Some(self.cores),
            interference: self.interference,
            seed,
            timeline: None,
        })
    }

    fn sim_reading(&self, readers: u32) -> Result<SimStage, PlanError> {
        let Some(storage) = &self.storage else { return Ok(self.sim_stage(Place::Reader, readers)) };
        let alone = self.sim_stage(Place::Reader, storage.concurrency);
        let wait = f64::from(storage.concurrency) / storage.images_per_second(self.bytes_per_image)?;
        let (busy, cpu) = (alone.seconds.mean(), alone.seconds.mean() * alone.on_core);
        let seconds = Service::Sum(vec![alone.seconds, Service::Constant((wait - busy).max(0.0))]);
        Ok(SimStage { on_core: cpu / seconds.mean(), seconds, ..alone })
    }

    fn sim_stage(&self, place: Place, threads: u32) -> SimStage {
        let cost = self.cost_at(place);
        let here = self.stages.iter().filter(|stage| stage.place == place);
        let parts = here.map(|stage| Service::of_samples(&stage.samples, stage.seconds)).collect();
        let on_core = if cost.seconds > 0.0 { (cost.cpu_seconds / cost.seconds).min(1.0) } else { 0.0 };
        SimStage { threads, seconds: Service::Sum(parts), on_core }
    }
}

impl Simulation {
    /// Simulates the run to its end. Time and memory are proportional to the images: millions are fine; for more, see
    /// [`crate::Fleet`].
    ///
    /// # Errors
    /// [`PlanError`] for no images, batch, readers, encoders or room in a queue, for shares above 1, and for times
    /// that are negative or not finite.
    pub fn run(&self) -> Result<SimOutcome, PlanError> {
        self.check()?;
        let mut run = Run::new(self);
        if self.prepare.threads == 0 {
            run.sequential()
        } else {
            run.threaded()
        }
        Ok(run.outcome())
    }

    fn check(&self) -> Result<(), PlanError> {
        at_least_one("the number of images", self.images)?;
        at_least_one("the number of readers", self.read.threads)?;
        at_least_one("the number of encoders", self.forward.encoders)?;
        at_least_one("the images read ahead", self.limits.read_ahead_images)?;
        positive("the bytes read ahead", self.limits.read_ahead_bytes)?;
        at_least_one("the batches in flight", self.limits.batches)?;
        at_least_one("the encoded batches that wait", self.limits.write_ahead)?;
        at_least_one("the number of cores", self.cores.unwrap_or(1))?;
        not_negative("the interference", self.interference)?;
        not_negative("the forward's cores", self.forward.cores)?;
        self.forward.step.seconds(self.batch)?;
        self.forward.variation.check("the forward's variation")?;
        positive("the mean of the forward's variation", self.forward.variation.mean())?;
        self.bytes.check("the bytes of an image")?;
        for (stage, what) in [(&self.read, "reading"), (&self.prepare, "decoding"), (&self.write, "writing")] {
            stage.seconds.check(what)?;
            if stage.on_core != 0.0 {
                share("a stage's share on a core", stage.on_core)?;
            }
        }
        Ok(())
    }
}

/// A thread's activity.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    /// Waiting for work.
    Nothing,
    /// The waiting part of an image, with this much core work to follow.
    Waiting { unit: u64, then: f64 },
    /// Core work on an image or batch.
    Working { unit: u64 },
    /// Done, but the next queue is full.
    Blocked { unit: u64 },
}

struct Thread {
    place: Place,
    number: u32,
    doing: Doing,
    /// The activity's start.
    since: f64,
    /// Start of the current image or batch.
    began: f64,
    busy: f64,
    blocked: f64,
}

struct Run<'a> {
    sim: &'a Simulation,
    clock: Clock,
    threads: Vec<Thread>,
    idle: [VecDeque<usize>; GROUPS],
    draws: [Uniform; GROUPS],
    sizes: Uniform,

    next_image: u64,
    read: VecDeque<u64>,
    read_bytes: f64,
    readers_blocked: VecDeque<usize>,
    /// Images still missing from each open batch, by number; the front is batch `first_open`.
    open: VecDeque<u32>,
    first_open: u64,
    buffers: u32,
    ready: BTreeSet<u64>,
    next_batch: u64,
    encoded: VecDeque<u64>,
    encoders_blocked: VecDeque<usize>,

    read_gauge: Gauge,
    ready_gauge: Gauge,
    encoded_gauge: Gauge,
    /// When each batch was stored, and its number of images.
    stored: Vec<(f64, u32)>,
    spans: Vec<Span>,
}

fn group(place: Place) -> usize {
    place as usize
}

impl<'a> Run<'a> {
    fn new(sim: &'a Simulation) -> Self {
        let cores = sim.cores.map_or(f64::INFINITY, f64::from);
        let limits = &sim.limits;
        let mut run = Self {
            sim,
            clock: Clock::new(cores, sim.interference),
            threads: Vec::new(),
            idle: Default::default(),
            draws: Place::ALL.map(|place| Uniform::new(sim.seed, group(place) as u64)),
            sizes: Uniform::new(sim.seed, GROUPS as u64),
            next_image: 0,
            read: VecDeque::new(),
            read_bytes: 0.0,
            readers_blocked: VecDeque::new(),
            open: VecDeque::new(),
            first_open: 0,
            buffers: limits.batches,
            ready: BTreeSet::new(),
            next_batch: 0,
            encoded: VecDeque::new(),
            encoders_blocked: VecDeque::new(),
            read_gauge: Gauge::new(limits.read_ahead_images),
            ready_gauge: Gauge::new(limits.batches),
            encoded_gauge: Gauge::new(limits.write_ahead),
            stored: Vec::new(),
            spans: Vec::new(),
        };
        let one_thread = sim.prepare.threads == 0;
        let counts = [sim.read.threads, sim.prepare.threads, sim.forward.encoders, 1];
        for (place, count) in Place::ALL.into_iter().zip(counts) {
            for number in 0..if one_thread { 1 } else { count } {
                run.idle[group(place)].push_back(run.threads.len());
                run.threads.push(Thread {
                    place,
                    number,
                    doing: Doing::Nothing,
                    since: 0.0,
                    began: 0.0,
                    busy: 0.0,
                    blocked: 0.0,
                });
            }
        }
        run
    }

    // ---- service times

    fn images_in(&self, batch: u64) -> u32 {
        let first = batch * u64::from(self.sim.batch);
        (self.sim.images - first).min(u64::from(self.sim.batch)) as u32
    }

    fn batch_of(&self, image: u64) -> u64 {
        image / u64::from(self.sim.batch)
    }

    fn bytes_of(&self, image: u64) -> f64 {
        self.sim.bytes.at(self.sizes.at(image))
    }

    /// Seconds of waiting, seconds of core work, and the cores that the work wants.
    fn service(&self, place: Place, unit: u64) -> (f64, f64, f64) {
        let u = self.draws[group(place)].at(unit);
        let split = |stage: &SimStage, images: f64| {
            let seconds = stage.seconds.at(u) * images;
            (seconds * (1.0 - stage.on_core), seconds * stage.on_core, 1.0)
        };
        match place {
            Place::Reader => split(&self.sim.read, 1.0),
            Place::Worker => split(&self.sim.prepare, 1.0),
            Place::Writer => split(&self.sim.write, f64::from(self.images_in(unit))),
            Place::Encoder => {
                let forward = &self.sim.forward;
                let step = forward.step.seconds(self.images_in(unit)).unwrap_or(0.0);
                (0.0, step * forward.variation.at(u), forward.cores)
            }
        }
    }

    // ---- the event loop

    fn threaded(&mut self) {
        self.hand_out();
        while let Some(task) = self.clock.next() {
            let thread = task.thread;
            match self.threads[thread].doing {
                Doing::Waiting { unit, then } => self.work(thread, unit, then),
                Doing::Working { unit } => self.finish(thread, unit),
                Doing::Nothing | Doing::Blocked { .. } => {}
            }
            self.hand_out();
        }
    }

    fn begin(&mut self, thread: usize, unit: u64) {
        let (wait, work, _) = self.service(self.threads[thread].place, unit);
        self.threads[thread].began = self.clock.now();
        if wait > 0.0 {
            self.turn_to(thread, Doing::Waiting { unit, then: work });
            let group = group(self.threads[thread].place);
            self.clock.begin(Task { thread, group, cores: 0.0 }, wait);
        } else {
            self.work(thread, unit, work);
        }
    }

    fn work(&mut self, thread: usize, unit: u64, seconds: f64) {
        let place = self.threads[thread].place;
        let (_, _, cores) = self.service(place, unit);
        self.turn_to(thread, Doing::Working { unit });
        self.clock.begin(Task { thread, group: group(place), cores }, seconds);
    }

    fn turn_to(&mut self, thread: usize, doing: Doing) {
        let now = self.clock.now();
        let thread = &mut self.threads[thread];
        match thread.doing {
            Doing::Nothing => {}
            Doing::Blocked { .. } => thread.blocked += now - thread.since,
            Doing::Waiting { .. } | Doing::Working { .. } => thread.busy += now - thread.since,
        }
        (thread.doing, thread.since) = (doing, now);
    }

    fn rest(&mut self, thread: usize) {
        self.turn_to(thread, Doing::Nothing);
        self.idle[group(self.threads[thread].place)].push_back(thread);
    }

    fn block(&mut self, thread: usize, unit: u64) {
        self.turn_to(thread, Doing::Blocked { unit });
        match self.threads[thread].place {
            Place::Reader => self.readers_blocked.push_back(thread),
            _ => self.encoders_blocked.push_back(thread),
        }
    }

    fn finish(&mut self, thread: usize, unit: u64) {
        self.record(thread, unit);
        match self.threads[thread].place {
            Place::Reader => match self.push_read(unit) {
                true => self.rest(thread),
                false => self.block(thread, unit),
            },
            Place::Worker => {
                self.settle(self.batch_of(unit));
                self.rest(thread);
            }
            Place::Encoder => {
                self.buffers += 1;
                match self.push_encoded(unit) {
                    true => self.rest(thread),
                    false => self.block(thread, unit),
                }
            }
            Place::Writer => {
                self.stored.push((self.clock.now(), self.images_in(unit)));
                self.rest(thread);
            }
        }
    }

    /// Gives work to threads that can begin. Starts with the pipeline's last stage, whose work makes room for earlier
    /// stages.
    fn hand_out(&mut self) {
        self.start(Place::Writer, Self::pop_encoded);
        self.start(Place::Encoder, Self::pop_ready);
        self.start(Place::Worker, Self::pop_read);
        self.start(Place::Reader, Self::pop_source);
    }

    fn start(&mut self, place: Place, pop: impl Fn(&mut Self) -> Option<u64>) {
        while !self.idle[group(place)].is_empty() {
            let Some(unit) = pop(self) else { return };
            if let Some(thread) = self.idle[group(place)].pop_front() {
                self.begin(thread, unit);
            }
        }
    }

    // ---- the queues

    fn pop_source(&mut self) -> Option<u64> {
        let image = self.next_image;
        if image == self.sim.images {
            return None;
        }
        if image.is_multiple_of(u64::from(self.sim.batch)) {
            self.buffers = self.buffers.checked_sub(1)?;
            self.open.push_back(self.images_in(self.batch_of(image)));
        }
        self.next_image += 1;
        Some(image)
    }

    fn push_read(&mut self, image: u64) -> bool {
        let limits = &self.sim.limits;
        let bytes = self.bytes_of(image);
        let heavy = !self.read.is_empty() && self.read_bytes + bytes > limits.read_ahead_bytes;
        if heavy || self.read.len() >= limits.read_ahead_images as usize {
            return false;
        }
        self.read.push_back(image);
        self.read_bytes += bytes;
        self.read_gauge.holds(self.clock.now(), self.read.len());
        true
    }

    fn pop_read(&mut self) -> Option<u64> {
        let image = self.read.pop_front()?;
        self.read_bytes = if self.read.is_empty() { 0.0 } else { self.read_bytes - self.bytes_of(image) };
        self.read_gauge.passed(self.clock.now(), self.read.len());
        self.unblock(Place::Reader);
        Some(image)
    }

    fn settle(&mut self, batch: u64) {
        let missing = &mut self.open[(batch - self.first_open) as usize];
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        self.ready.insert(batch);
        self.ready_gauge.holds(self.clock.now(), self.ready.len());
        while self.open.front() == Some(&0) {
            self.open.pop_front();
            self.first_open += 1;
        }
    }

    fn pop_ready(&mut self) -> Option<u64> {
        let batch = self.next_batch;
        if !self.ready.remove(&batch) {
            return None;
        }
        self.next_batch += 1;
        self.ready_gauge.passed(self.clock.now(), self.ready.len());
        Some(batch)
    }

    fn push_encoded(&mut self, batch: u64) -> bool {
        if self.encoded.len() >= self.sim.limits.write_ahead as usize {
            return false;
        }
        self.encoded.push_back(batch);
        self.encoded_gauge.holds(self.clock.now(), self.encoded.len());
        true
    }

    fn pop_encoded(&mut self) -> Option<u64> {
        let batch = self.encoded.pop_front()?;
        self.encoded_gauge.passed(self.clock.now(), self.encoded.len());
        self.unblock(Place::Encoder);
        Some(batch)
    }

    /// Resumes the threads that have waited longest for room, as long as there is room.
    fn unblock(&mut self, place: Place) {
        let front = |run: &Self| match place {
            Place::Reader => run.readers_blocked.front().copied(),
            _ => run.encoders_blocked.front().copied(),
        };
        while let Some(thread) = front(self) {
            let Doing::Blocked { unit } = self.threads[thread].doing else { return };
            let pushed = match place {
                Place::Reader => self.push_read(unit),
                _ => self.push_encoded(unit),
            };
            if !pushed {
                return;
            }
            match place {
                Place::Reader => self.readers_blocked.pop_front(),
                _ => self.encoders_blocked.pop_front(),
            };
            self.rest(thread);
        }
    }

    // ---- one thread for everything

    fn sequential(&mut self) {
        let [reader, worker, encoder, writer] = [0, 1, 2, 3];
        for batch in 0..self.sim.images.div_ceil(u64::from(self.sim.batch)) {
            let first = batch * u64::from(self.sim.batch);
            for image in first..first + u64::from(self.images_in(batch)) {
                self.alone(reader, image);
                self.alone(worker, image);
            }
            self.alone(encoder, batch);
            self.alone(writer, batch);
            self.stored.push((self.clock.now(), self.images_in(batch)));
        }
    }

    fn alone(&mut self, thread: usize, unit: u64) {
        self.begin(thread, unit);
        while self.clock.next().is_some() {
            if let Doing::Waiting { unit, then } = self.threads[thread].doing {
                self.work(thread, unit, then);
            }
        }
        self.record(thread, unit);
        self.turn_to(thread, Doing::Nothing);
    }

    // ---- the outcome

    fn record(&mut self, thread: usize, unit: u64) {
        let Some((from, to)) = self.sim.timeline else { return };
        let Thread { place, number, began, .. } = self.threads[thread];
        let end = self.clock.now();
        if end <= from || began >= to {
            return;
        }
        let image = matches!(place, Place::Reader | Place::Worker).then_some(unit);
        let batch = image.map_or(unit, |image| self.batch_of(image));
        self.spans.push(Span { place, thread: number, start: began, end, batch, image });
    }

    fn outcome(mut self) -> SimOutcome {
        let seconds = self.clock.now();
        let queue = |name: &str, gauge: &mut Gauge| -> QueueUse { gauge.outcome(name, seconds) };
        let queues = vec![
            queue("read → decode", &mut self.read_gauge),
            queue("batch → encode", &mut self.ready_gauge),
            queue("encode → write", &mut self.encoded_gauge),
        ];
        let stages = Place::ALL.map(|place| self.threads_use(place, seconds)).into();
        self.spans.sort_by(|a, b| (a.place, a.thread).cmp(&(b.place, b.thread)).then(a.start.total_cmp(&b.start)));
        let images: u64 = self.stored.iter().map(|&(_, images)| u64::from(images)).sum();
        SimOutcome {
            images,
            seconds,
            images_per_second: images as f64 / seconds,
            steady_images_per_second: steady_rate(&self.stored).unwrap_or(images as f64 / seconds),
            stages,
            queues,
            cores_utilization: self.sim.cores.map(|cores| self.clock.core_seconds() / (seconds * f64::from(cores))),
            timeline: self.spans,
        }
    }

    fn threads_use(&self, place: Place, seconds: f64) -> ThreadsUse {
        let threads: Vec<&Thread> = self.threads.iter().filter(|thread| thread.place == place).collect();
        let share = |time: &dyn Fn(&Thread) -> f64| {
            threads.iter().map(|thread| time(thread)).sum::<f64>() / (seconds * threads.len() as f64)
        };
        let (busy, blocked) = (share(&|thread| thread.busy), share(&|thread| thread.blocked));
        ThreadsUse {
            name: place.name().to_owned(),
            threads: threads.len() as u32,
            utilization: busy,
            blocked,
            starved: (1.0 - busy - blocked).max(0.0),
        }
    }
}

/// Images per second of the middle half of the batches; `None` with too few batches.
fn steady_rate(stored: &[(f64, u32)]) -> Option<f64> {
    const FEWEST: usize = 8;
    if stored.len() < FEWEST {
        return None;
    }
    let (a, b) = (stored.len() / 4, stored.len() * 3 / 4);
    let images: u32 = stored[a + 1..=b].iter().map(|&(_, images)| images).sum();
    Some(f64::from(images) / (stored[b].0 - stored[a].0))
}
