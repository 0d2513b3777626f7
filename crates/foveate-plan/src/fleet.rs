//! A fleet of machines: stragglers, preemption and the assignment of images. The simulation advances by state changes,
//! not by images, so 10⁹ images cost only as much as their shards and preemptions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{at_least_one, not_negative, positive};
use crate::sim::{Service, Uniform};
use crate::{Interval, PlanError, Rate, Workload};

/// A job on a fleet of machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// Number of images, each to be done exactly once.
    pub images: u64,
    /// Number of machines at a time.
    pub machines: u32,
    /// Images per shard; the last one may have fewer.
    pub shard_images: u64,
    /// Assignment of shards to machines.
    pub sharding: Sharding,
    /// Images per second of an ordinary machine.
    pub rate: f64,
    /// Factor on the rate, drawn for every machine that starts; see [`stragglers`].
    pub speed: Service,
    /// Seconds from a machine's start to its first image: boot, download of the model. This time is billed.
    pub startup: Service,
    /// Images between commits, counted from a machine's first image in a shard. Work since the last commit is lost with
    /// the machine. The end of a shard is a commit.
    pub commit_images: u64,
    /// Preemption of machines, if any.
    pub preemption: Option<Preemption>,
    /// Price of one machine for an hour.
    pub price_per_hour: f64,
    /// Seed for speeds, start-ups and preemptions; the same seed gives the same outcome.
    pub seed: u64,
}

/// Assignment of shards to machines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// Every machine has fixed shards from the start, `shard number mod machines`; a machine's replacement takes them
    /// over.
    Static,
    /// Each machine takes the next shard from a queue when it has finished one.
    Queue {
        /// The queue's visibility timeout: seconds until it hands out a preempted machine's shard again.
        redelivery_seconds: f64,
    },
}

/// Preemption of machines, which are replaced as long as there is work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preemption {
    /// Mean of the exponential time from a machine's start to its preemption, seconds.
    pub mean_seconds: f64,
    /// Seconds until its replacement starts; not billed.
    pub replacement: Service,
}

/// A job's outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetOutcome {
    /// Images done, which are all images.
    pub images: u64,
    /// Images computed: those done and those lost.
    pub computed: u64,
    /// Images computed and then lost with a machine before they were committed.
    pub lost: u64,
    /// Number of preempted machines.
    pub preemptions: u64,
    /// Number of started machines, including the first ones.
    pub started: u64,
    /// Seconds from the start to the last commit.
    pub seconds: f64,
    /// Seconds of all machines together, as billed: `startup + working + idle`.
    pub billed_seconds: f64,
    /// The part of it before the first image.
    pub startup_seconds: f64,
    /// The part of it spent computing.
    pub working_seconds: f64,
    /// The part of it spent waiting for a shard to be handed out again.
    pub idle_seconds: f64,
    /// Money, in the price's currency.
    pub money: f64,
    /// `images ÷ (rate × machines × seconds since the first machine was ready)`: the value for
    /// [`Workload::efficiency`]. Above 1 only if machines are faster than the ordinary rate.
    pub efficiency: f64,
    /// Images done, and not lost later, at each hundredth of the time: 101 values from 0 to the total.
    pub progress: Vec<f64>,
}

/// Machine speeds of which a `share` (0..=1, in steps of 1 ÷ 1000) is `speed` times the ordinary rate.
///
/// # Errors
/// [`PlanError`] for a share outside 0..=1 or a speed that is not positive and finite.
pub fn stragglers(share: f64, speed: f64) -> Result<Service, PlanError> {
    const STEPS: usize = 1000;
    positive("the stragglers' speed", speed)?;
    if not_negative("the share of stragglers", share)? > 1.0 {
        return Err(PlanError::Value { what: "the share of stragglers", expected: "at most 1", value: share });
    }
    let slow = (share * STEPS as f64).round() as usize;
    Ok(Service::Samples((0..STEPS).map(|i| if i < slow { speed } else { 1.0 }).collect()))
}

impl Fleet {
    /// The fleet for a job, with its rate, machines, start-up and price. It has shards of `shard_images`, a queue with
    /// a visibility timeout of five minutes, a commit every `commit_images`, and neither stragglers nor preemption.
    pub fn of(job: &Workload, shard_images: u64, commit_images: u64) -> Self {
        Self {
            images: job.images,
            machines: job.machines,
            shard_images,
            sharding: Sharding::Queue { redelivery_seconds: 300.0 },
            rate: job.rate.mean,
            speed: Service::Constant(1.0),
            startup: Service::Constant(job.startup_seconds),
            commit_images,
            preemption: None,
            price_per_hour: job.price_per_hour,
            seed: 0,
        }
    }

    /// Simulates the job to its end.
    ///
    /// # Errors
    /// [`PlanError`] for no images, machines, shard or commit, for numbers that are negative or not finite, and for
    /// preemption so frequent that no image is ever committed.
    pub fn run(&self) -> Result<FleetOutcome, PlanError> {
        self.run_recording(|_| ())
    }

    /// Also calls `committed` with every range of images when it is committed.
    fn run_recording(&self, mut committed: impl FnMut(Range<u64>)) -> Result<FleetOutcome, PlanError> {
        self.check()?;
        let mut run = Run::new(self);
        run.launch_all();
        while let Some(Reverse(event)) = run.events.pop() {
            run.now = event.at;
            run.handle(event.what, &mut committed)?;
        }
        Ok(run.outcome())
    }

    /// Seconds and money at the rate's low, mean and high end.
    ///
    /// # Errors
    /// As [`Fleet::run`].
    pub fn interval(&self, rate: Rate) -> Result<(Interval, Interval), PlanError> {
        let at = |rate: f64| Self { rate, ..self.clone() }.run();
        let (low, expected, high) = (at(rate.high)?, at(rate.mean)?, at(rate.low)?);
        let interval =
            |of: &dyn Fn(&FleetOutcome) -> f64| Interval { low: of(&low), expected: of(&expected), high: of(&high) };
        Ok((interval(&|outcome| outcome.seconds), interval(&|outcome| outcome.money)))
    }

    fn check(&self) -> Result<(), PlanError> {
        at_least_one("the number of images", self.images)?;
        at_least_one("the number of machines", self.machines)?;
        at_least_one("the images per shard", self.shard_images)?;
        at_least_one("the images between commits", self.commit_images)?;
        positive("the images per second", self.rate)?;
        self.speed.check("a machine's speed")?;
        positive("the least speed of a machine", self.speed.least())?;
        self.startup.check("a machine's start-up")?;
        not_negative("the price per hour", self.price_per_hour)?;
        if let Sharding::Queue { redelivery_seconds } = self.sharding {
            not_negative("the seconds until redelivery", redelivery_seconds)?;
        }
        if let Some(preemption) = &self.preemption {
            positive("the mean seconds until preemption", preemption.mean_seconds)?;
            preemption.replacement.check("the seconds until a replacement")?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// A machine's billing begins.
    Launched(usize),
    /// A machine can take its first shard.
    Ready(usize, u64),
    /// A machine has finished its shard.
    Finished(usize, u64),
    /// A machine is preempted.
    Preempted(usize, u64),
    /// A shard becomes visible again.
    Redelivered,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: f64,
    number: u64,
    what: What,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

/// A machine's activity, and its start.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Absent, not billed.
    Away,
    Starting {
        since: f64,
    },
    Working {
        since: f64,
        shard: Range<u64>,
    },
    Idle {
        since: f64,
    },
}

struct Machine {
    state: State,
    /// Images per second of this start.
    rate: f64,
    /// Number of starts; events of an earlier start are stale.
    start: u64,
    /// Its fixed shards, with [`Sharding::Static`].
    own: VecDeque<Range<u64>>,
}

/// Work that was kept: its start, its end and its number of images.
struct Stint {
    from: f64,
    to: f64,
    images: u64,
}

struct Run<'a> {
    fleet: &'a Fleet,
    now: f64,
    events: BinaryHeap<Reverse<Event>>,
    numbered: u64,
    machines: Vec<Machine>,
    /// Shards that a queue can hand out.
    visible: VecDeque<Range<u64>>,
    /// Shards that it will hand out again, by time (all have the same timeout).
    hidden: VecDeque<Range<u64>>,
    idle: VecDeque<usize>,
    speeds: Uniform,
    startups: Uniform,
    lives: Uniform,
    replacements: Uniform,

    done: u64,
    lost: u64,
    first_work_at: f64,
    finished_at: f64,
    preemptions: u64,
    /// Preemptions since the last commit.
    fruitless: u64,
    started: u64,
    startup_seconds: f64,
    working_seconds: f64,
    idle_seconds: f64,
    stints: Vec<Stint>,
}

impl<'a> Run<'a> {
    fn new(fleet: &'a Fleet) -> Self {
        let stream = |number| Uniform::new(fleet.seed, number);
        let machine = || Machine { state: State::Away, rate: 0.0, start: 0, own: VecDeque::new() };
        let mut run = Self {
            fleet,
            now: 0.0,
            events: BinaryHeap::new(),
            numbered: 0,
            machines: (0..fleet.machines).map(|_| machine()).collect(),
            visible: VecDeque::new(),
            hidden: VecDeque::new(),
            idle: VecDeque::new(),
            speeds: stream(0),
            startups: stream(1),
            lives: stream(2),
            replacements: stream(3),
            done: 0,
            lost: 0,
            first_work_at: f64::INFINITY,
            finished_at: 0.0,
            preemptions: 0,
            fruitless: 0,
            started: 0,
            startup_seconds: 0.0,
            working_seconds: 0.0,
            idle_seconds: 0.0,
            stints: Vec::new(),
        };
        let shards = (0..fleet.images).step_by(usize::try_from(fleet.shard_images).unwrap_or(usize::MAX));
        let shards = shards.map(|first| first..first.saturating_add(fleet.shard_images).min(fleet.images));
        match fleet.sharding {
            Sharding::Queue { .. } => run.visible.extend(shards),
            Sharding::Static => {
                let count = run.machines.len();
                shards.enumerate().for_each(|(number, shard)| run.machines[number % count].own.push_back(shard));
            }
        }
        run
    }

    fn schedule(&mut self, seconds: f64, what: What) {
        self.numbered += 1;
        self.events.push(Reverse(Event { at: self.now + seconds, number: self.numbered, what }));
    }

    fn launch_all(&mut self) {
        (0..self.machines.len()).for_each(|machine| self.schedule(0.0, What::Launched(machine)));
    }

    fn handle(&mut self, what: What, committed: &mut impl FnMut(Range<u64>)) -> Result<(), PlanError> {
        let is_stale = |machine: usize, start| self.machines[machine].start != start;
        match what {
            What::Ready(machine, start) | What::Finished(machine, start) | What::Preempted(machine, start)
                if is_stale(machine, start) => {}
            What::Launched(machine) => self.launch(machine),
            What::Ready(machine, _) => self.take_next(machine),
            What::Finished(machine, _) => {
                self.finish(machine, committed);
                self.take_next(machine);
            }
            What::Preempted(machine, _) => self.preempt(machine, committed)?,
            What::Redelivered => self.redeliver(),
        }
        Ok(())
    }

    fn is_work_left(&self) -> bool {
        self.done < self.fleet.images
    }

    fn launch(&mut self, machine: usize) {
        let has_work = match self.fleet.sharding {
            Sharding::Static => !self.machines[machine].own.is_empty(),
            Sharding::Queue { .. } => self.is_work_left(),
        };
        if !has_work {
            return;
        }
        let number = self.started;
        self.started += 1;
        let rate = self.fleet.rate * self.fleet.speed.at(self.speeds.at(number));
        let startup = self.fleet.startup.at(self.startups.at(number));
        let this = &mut self.machines[machine];
        this.start += 1;
        this.rate = rate;
        this.state = State::Starting { since: self.now };
        let start = this.start;
        self.schedule(startup, What::Ready(machine, start));
        if let Some(preemption) = &self.fleet.preemption {
            let life = Service::Exponential(preemption.mean_seconds).at(self.lives.at(number));
            self.schedule(life, What::Preempted(machine, start));
        }
    }

    /// Ends a machine's activity and counts its time; returns its shard and the activity's start, if it worked on one.
    fn leave_state(&mut self, machine: usize) -> Option<(f64, Range<u64>)> {
        let now = self.now;
        match std::mem::replace(&mut self.machines[machine].state, State::Away) {
            State::Away => None,
            State::Starting { since } => {
                self.startup_seconds += now - since;
                None
            }
            State::Idle { since } => {
                self.idle_seconds += now - since;
                None
            }
            State::Working { since, shard } => {
                self.working_seconds += now - since;
                Some((since, shard))
            }
        }
    }

    fn take_next(&mut self, machine: usize) {
        self.leave_state(machine);
        let next = match self.fleet.sharding {
            Sharding::Static => self.machines[machine].own.pop_front(),
            Sharding::Queue { .. } => self.visible.pop_front(),
        };
        match next {
            Some(shard) => self.work(machine, shard),
            None if !self.hidden.is_empty() => {
                self.machines[machine].state = State::Idle { since: self.now };
                self.idle.push_back(machine);
            }
            // Released; its preemption timer is stale from now on.
            None => self.machines[machine].start += 1,
        }
    }

    fn work(&mut self, machine: usize, shard: Range<u64>) {
        self.first_work_at = self.first_work_at.min(self.now);
        let this = &mut self.machines[machine];
        let seconds = (shard.end - shard.start) as f64 / this.rate;
        this.state = State::Working { since: self.now, shard };
        let start = this.start;
        self.schedule(seconds, What::Finished(machine, start));
    }

    fn commit(&mut self, since: f64, to: f64, images: Range<u64>, committed: &mut impl FnMut(Range<u64>)) {
        let count = images.end - images.start;
        if count == 0 {
            return;
        }
        self.done += count;
        self.fruitless = 0;
        self.finished_at = self.now;
        self.stints.push(Stint { from: since, to, images: count });
        committed(images);
    }

    fn finish(&mut self, machine: usize, committed: &mut impl FnMut(Range<u64>)) {
        if let Some((since, shard)) = self.leave_state(machine) {
            self.commit(since, self.now, shard, committed);
        }
    }

    fn preempt(&mut self, machine: usize, committed: &mut impl FnMut(Range<u64>)) -> Result<(), PlanError> {
        const PATIENCE: u64 = 100;
        self.preemptions += 1;
        self.fruitless += 1;
        if let Some((since, shard)) = self.leave_state(machine) {
            self.salvage(machine, since, shard, committed);
        }
        self.idle.retain(|&idle| idle != machine);
        if self.fruitless > PATIENCE * (u64::from(self.fleet.machines) + PATIENCE) {
            let problem = "machines are taken away before their first commit, again and again; commit more often";
            return Err(PlanError::Impossible(problem.to_owned()));
        }
        let draw = self.replacements.at(self.preemptions);
        if let Some(preemption) = &self.fleet.preemption {
            let wait = preemption.replacement.at(draw);
            self.machines[machine].start += 1;
            self.schedule(wait, What::Launched(machine));
        }
        Ok(())
    }

    /// Keeps a preempted machine's committed part of its shard, and returns the rest to the fleet.
    fn salvage(&mut self, machine: usize, since: f64, shard: Range<u64>, committed: &mut impl FnMut(Range<u64>)) {
        let length = shard.end - shard.start;
        let rate = self.machines[machine].rate;
        let computed = (((self.now - since) * rate) as u64).min(length);
        let kept = computed / self.fleet.commit_images * self.fleet.commit_images;
        self.lost += computed - kept;
        self.commit(since, since + kept as f64 / rate, shard.start..shard.start + kept, committed);
        let rest = shard.start + kept..shard.end;
        if rest.is_empty() {
            return;
        }
        match self.fleet.sharding {
            Sharding::Static => self.machines[machine].own.push_front(rest),
            Sharding::Queue { redelivery_seconds } => {
                self.hidden.push_back(rest);
                self.schedule(redelivery_seconds, What::Redelivered);
            }
        }
    }

    fn redeliver(&mut self) {
        let Some(shard) = self.hidden.pop_front() else { return };
        match self.idle.pop_front() {
            Some(machine) => {
                self.leave_state(machine);
                self.work(machine, shard);
            }
            None => self.visible.push_back(shard),
        }
        if self.hidden.is_empty() {
            // No more shards will come: idle machines find none and are released.
            std::mem::take(&mut self.idle).into_iter().for_each(|machine| self.take_next(machine));
        }
    }

    fn outcome(self) -> FleetOutcome {
        let fleet = self.fleet;
        let billed_seconds = self.startup_seconds + self.working_seconds + self.idle_seconds;
        let capacity = fleet.rate * f64::from(fleet.machines);
        FleetOutcome {
            images: self.done,
            computed: self.done + self.lost,
            lost: self.lost,
            preemptions: self.preemptions,
            started: self.started,
            seconds: self.finished_at,
            billed_seconds,
            startup_seconds: self.startup_seconds,
            working_seconds: self.working_seconds,
            idle_seconds: self.idle_seconds,
            money: billed_seconds / 3600.0 * fleet.price_per_hour,
            efficiency: self.done as f64 / (capacity * (self.finished_at - self.first_work_at)),
            progress: progress(&self.stints, self.finished_at),
        }
    }
}

/// Images done at each hundredth of `seconds`, each stint's spread evenly over its time.
fn progress(stints: &[Stint], seconds: f64) -> Vec<f64> {
    const POINTS: usize = 100;
    let mut within = [0.0; POINTS];
    let width = seconds / POINTS as f64;
    let bin = |time: f64| ((time / width) as usize).min(POINTS - 1);
    for stint in stints {
        let per_second = stint.images as f64 / (stint.to - stint.from);
        for (number, sum) in within.iter_mut().enumerate().take(bin(stint.to) + 1).skip(bin(stint.from)) {
            let (from, to) = (number as f64 * width, (number + 1) as f64 * width);
            *sum += per_second * (stint.to.min(to) - stint.from.max(from)).max(0.0);
        }
    }
    let mut total = 0.0;
    let sums = within.into_iter().map(|images| {
        total += images;
        total
    });
    std::iter::once(0.0).chain(sums).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quiet() -> Fleet {
        Fleet {
            images: 1_000_000,
            machines: 10,
            shard_images: 10_000,
            sharding: Sharding::Queue { redelivery_seconds: 60.0 },
            rate: 100.0,
            speed: Service::Constant(1.0),
            startup: Service::Constant(120.0),
            commit_images: 500,
            preemption: None,
            price_per_hour: 3.0,
            seed: 1,
        }
    }

    fn preempted(mean_seconds: f64) -> Option<Preemption> {
        Some(Preemption { mean_seconds, replacement: Service::Exponential(90.0) })
    }

    #[test]
    fn without_trouble_it_is_arithmetic() {
        for sharding in [Sharding::Static, quiet().sharding] {
            let outcome = Fleet { sharding, ..quiet() }.run().unwrap();
            assert!((outcome.seconds - (120.0 + 1000.0)).abs() < 1e-6, "{outcome:?}");
            assert!((outcome.billed_seconds - 11_200.0).abs() < 1e-6);
            assert!((outcome.money - 11_200.0 / 1200.0).abs() < 1e-6);
            assert!((outcome.efficiency - 1.0).abs() < 1e-9);
            assert_eq!((outcome.images, outcome.computed, outcome.started), (1_000_000, 1_000_000, 10));
            assert!((outcome.progress[100] - 1e6).abs() < 1e-3);
            assert!(outcome.progress.is_sorted() && outcome.progress[10] < 1.0, "nothing during the start-up");
        }
    }

    #[test]
    fn it_agrees_with_the_cost_of_a_job() {
        let rate = Rate { low: 80.0, mean: 100.0, high: 125.0 };
        let job = Workload {
            images: 1_000_000,
            machines: 10,
            rate,
            startup_seconds: 120.0,
            efficiency: 1.0,
            price_per_hour: 3.0,
        };
        let cost = job.cost().unwrap();
        let (seconds, money) = Fleet::of(&job, 10_000, 500).interval(rate).unwrap();
        for (ours, theirs) in
            [(seconds.low, cost.hours.low), (seconds.expected, cost.hours.expected), (seconds.high, cost.hours.high)]
        {
            assert!((ours / 3600.0 / theirs - 1.0).abs() < 1e-9);
        }
        assert!((money.expected / cost.money.expected - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_straggler_holds_static_shards_back_but_not_a_queue() {
        let slow = Fleet { machines: 100, images: 10_000_000, speed: stragglers(0.05, 0.25).unwrap(), ..quiet() };
        let fixed = Fleet { sharding: Sharding::Static, ..slow.clone() }.run().unwrap();
        let queued = slow.run().unwrap();
        assert!((fixed.seconds - 120.0 - 4000.0).abs() < 1e-6, "as slow as the slowest: {}", fixed.seconds);
        assert!(queued.seconds - 120.0 < 1500.0, "{}", queued.seconds);
        assert!(fixed.efficiency < 0.26 && queued.efficiency > 0.7);
    }

    #[test]
    fn commits_bound_what_is_lost() {
        let fleet = Fleet { preemption: preempted(600.0), ..quiet() };
        let outcome = fleet.run().unwrap();
        assert!(outcome.preemptions > 10, "{outcome:?}");
        assert!(outcome.lost > 0 && outcome.lost < 500 * outcome.preemptions);
        // Half a commit on average; some machines are preempted while starting.
        assert!(outcome.lost > 100 * outcome.preemptions, "{outcome:?}");
        let rare = Fleet { commit_images: 10_000, ..fleet }.run().unwrap();
        assert!(rare.lost > 4 * outcome.lost, "{} against {}", rare.lost, outcome.lost);
    }

    #[test]
    fn what_can_never_be_committed_is_said() {
        let fleet = Fleet { commit_images: 10_000, preemption: preempted(1.0), ..quiet() };
        let error = fleet.run().unwrap_err().to_string();
        assert!(error.contains("commit more often"), "{error}");
    }

    #[test]
    fn a_billion_images_on_thousands_of_machines_are_simulated() {
        let fleet = Fleet {
            images: 1_000_000_000,
            machines: 4000,
            shard_images: 5_000,
            speed: stragglers(0.03, 0.3).unwrap(),
            preemption: preempted(4.0 * 3600.0),
            ..quiet()
        };
        let outcome = fleet.run().unwrap();
        assert_eq!(outcome.images, 1_000_000_000);
        assert!(outcome.preemptions > 100);
        assert!(outcome.efficiency > 0.9 && outcome.efficiency < 1.0, "{}", outcome.efficiency);
    }

    #[test]
    fn nonsense_is_refused() {
        for broken in [
            Fleet { images: 0, ..quiet() },
            Fleet { machines: 0, ..quiet() },
            Fleet { shard_images: 0, ..quiet() },
            Fleet { commit_images: 0, ..quiet() },
            Fleet { rate: f64::NAN, ..quiet() },
            Fleet { speed: Service::Samples(vec![1.0, 0.0]), ..quiet() },
            Fleet { speed: Service::Exponential(1.0), ..quiet() },
            Fleet { startup: Service::Samples(vec![]), ..quiet() },
            Fleet { preemption: preempted(0.0), ..quiet() },
            Fleet { sharding: Sharding::Queue { redelivery_seconds: -1.0 }, ..quiet() },
        ] {
            assert!(broken.run().is_err(), "{broken:?}");
        }
        assert!(stragglers(1.5, 1.0).is_err() && stragglers(0.5, 0.0).is_err());
    }

    fn any_fleet() -> impl Strategy<Value = Fleet> {
        let sharding =
            prop_oneof![Just(Sharding::Static), (0.0..500.0).prop_map(|s| Sharding::Queue { redelivery_seconds: s })];
        let preemption = proptest::option::of(
            (50.0..5000.0).prop_map(|mean| Preemption { mean_seconds: mean, replacement: Service::Exponential(60.0) }),
        );
        let sizes = (1u64..50_000, 1u32..20, 1u64..8_000, 1u64..400);
        (sizes, sharding, preemption, 0.0..0.5, any::<u64>()).prop_map(|(sizes, sharding, preemption, slow, seed)| {
            Fleet {
                images: sizes.0,
                machines: sizes.1,
                shard_images: sizes.2,
                commit_images: sizes.3,
                sharding,
                preemption,
                speed: stragglers(slow, 0.5).unwrap(),
                seed,
                ..quiet()
            }
        })
    }

    proptest! {
        #[test]
        fn every_image_is_done_exactly_once(fleet in any_fleet()) {
            let mut ranges = Vec::new();
            let outcome = fleet.run_recording(|range| ranges.push(range)).unwrap();
            ranges.sort_by_key(|range| range.start);
            let mut next = 0;
            for range in ranges {
                prop_assert_eq!(range.start, next, "a gap or an overlap");
                next = range.end;
            }
            prop_assert_eq!(next, fleet.images);
            prop_assert_eq!(outcome.images, fleet.images);
            prop_assert_eq!(outcome.computed, outcome.images + outcome.lost);
            // Working time matches the computed images, except for the image cut short with each machine.
            let most = fleet.rate * outcome.working_seconds;
            prop_assert!(outcome.computed as f64 <= most * (1.0 + 1e-9) + 1e-6);
            let sum = outcome.startup_seconds + outcome.working_seconds + outcome.idle_seconds;
            prop_assert!((sum - outcome.billed_seconds).abs() < 1e-6);
            prop_assert!(outcome.progress.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert!((outcome.progress[100] - fleet.images as f64).abs() < 1e-3 * fleet.images as f64);
            prop_assert_eq!(&fleet.run().unwrap(), &outcome, "the same seed, the same outcome");
        }
    }
}
