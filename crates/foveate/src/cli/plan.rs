//! `foveate plan`.

mod machines;
mod shared;
mod store;
mod walls;
mod words;

use std::io::Write;

use anyhow::Context as _;
use foveate::lab::{Table, fit};
use foveate::plan::{
    Demand, Interval, JobCost, Measured, Place, QueueDemand, QueueSizing, Rate, StageCost, Storage, Workload,
};
use serde::Serialize;

use self::shared::Shared;
use self::store::StoreNeeds;
use self::walls::Walls;
pub(crate) use self::walls::write_walls;
use self::words::Count;
use super::console;
use super::exit::Exit;
use super::measured_run::MeasuredRun;
use super::plan_args::PlanArgs;

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    let args = &args.clone().with_published();
    let mut run = match args.from.as_deref() {
        Some(folder) => Some(MeasuredRun::read(folder, args.photos.as_deref(), args.stand_in.as_ref())?),
        None => None,
    };
    if let Some(run) = run.as_mut().filter(|_| args.augment_ms > 0.0) {
        let seconds = args.augment_ms / 1e3;
        let stage = StageCost { name: "augment".to_owned(), place: Place::Worker, seconds, cpu_seconds: seconds };
        run.measured.stages.push(stage);
    }
    if let Some(why) = run.as_ref().and_then(|run| run.disturbed.as_ref()) {
        console::say!("note: the costs were measured on a disturbed machine: {why}");
    }
    let plan = Plan::new(args, run.as_ref())?;
    let context = run.map(|run| run.context).unwrap_or_default();
    if let Some(folder) = &args.out {
        for table in plan.machines.iter().chain([&plan.machine.walls().table()]) {
            console::say!("wrote {}", table.write_csv(folder, &context)?.display());
        }
    }
    let mut out = console::stdout();
    if args.json {
        let mut answers = serde_json::to_value(&plan)?;
        if let Some(machines) = &plan.machines {
            answers["machines"] = machines.json(&context);
        }
        writeln!(out, "{answers}")?;
    } else {
        let mut text = Vec::new();
        plan.print(&mut text)?;
        writeln!(out, "{}", fit(&String::from_utf8_lossy(&text), 4))?;
    }
    Ok(Exit::Complete)
}

/// All the answers.
#[derive(Serialize)]
struct Plan {
    #[serde(flatten)]
    machine: Machine,
    demand: Demand,
    /// `None` without a store that takes time to answer.
    store: Option<StoreNeeds>,
    cost: JobCost,
    job: Workload,
    queue: Option<QueueSizing>,
    /// The machines of a price list.
    #[serde(skip)]
    machines: Option<Table>,
}

/// The answers about one machine.
#[derive(Serialize)]
#[serde(untagged)]
enum Machine {
    /// The forward runs on an accelerator, beside the cores.
    Beside(Box<Walls>),
    /// The forward runs on the cores that decode.
    Shared(Box<Shared>),
}

impl Machine {
    fn new(args: &PlanArgs, run: Option<&MeasuredRun>, storage: Option<Storage>) -> anyhow::Result<Self> {
        let walls = Walls::new(args, run, storage)?;
        match run.filter(|run| run.is_on_cpu()) {
            Some(run) => Ok(Self::Shared(Box::new(Shared::new(args, run, storage, walls)?))),
            None => Ok(Self::Beside(Box::new(walls))),
        }
    }

    fn walls(&self) -> &Walls {
        match self {
            Self::Beside(walls) => walls,
            Self::Shared(shared) => &shared.walls,
        }
    }

    fn images_per_second(&self) -> f64 {
        match self {
            Self::Beside(walls) => walls.state.images_per_second,
            Self::Shared(shared) => shared.prediction.images_per_second,
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Self::Beside(walls) => walls.print(out),
            Self::Shared(shared) => shared.print(out),
        }
    }
}

impl Plan {
    fn new(args: &PlanArgs, run: Option<&MeasuredRun>) -> anyhow::Result<Self> {
        let storage = walls::storage(args, run.and_then(|run| run.measured.storage));
        let machine = Machine::new(args, run, storage)?;
        let store = storage.filter(|storage| storage.latency > 0.0).map(|storage| {
            let unlimited = Machine::new(args, run, None)?.images_per_second();
            StoreNeeds::of(storage, machine.walls().model.bytes_per_image, unlimited)
        });
        let rate = machine.images_per_second();
        let rate = match run.and_then(|run| run.interval) {
            Some((low, high)) => Rate { low: rate * low, mean: rate, high: rate * high },
            None => Rate::exactly(rate),
        };
        let job = Workload {
            images: args.images,
            machines: args.machines,
            rate,
            startup_seconds: args.startup,
            efficiency: 1.0,
            price_per_hour: args.price,
        };
        let machines = args.price_list.as_deref().zip(run).map(|(path, run)| {
            let measured = Measured { storage, ..run.measured.clone() };
            machines::table(path, args, run, &measured)
        });
        let bytes_per_vector = run.map_or(0.0, |run| run.measured.bytes_per_vector);
        let walls = machine.walls();
        Ok(Self {
            demand: Demand::of(rate.mean, walls.model.bytes_per_image, bytes_per_vector)?,
            store: store.transpose()?,
            cost: job.cost()?,
            machines: machines.transpose()?,
            queue: queue(args, rate.mean, walls.state.batch)?,
            job,
            machine,
        })
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.machine.print(out)?;
        let Self { demand, store, cost, job, .. } = self;
        let read = demand.read_bytes_per_second / 1e6;
        let written = demand.write_bytes_per_second / 1e6;
        match written > 0.0 {
            true => writeln!(out, "\na machine reads {read:.2} MB/s and writes {written:.3} MB/s")?,
            false => writeln!(out, "\na machine reads {read:.2} MB/s")?,
        }
        if let Some(store) = store {
            store.print(out)?;
        }
        // Short jobs in minutes.
        let (times, unit) = if cost.hours.expected < 1.0 { (60.0, "min") } else { (1.0, "h") };
        let Interval { low, expected, high } = cost.hours;
        writeln!(
            out,
            "{} on {}: {} {unit}, {} machine hours, {} in money",
            Count(job.images, "image"),
            Count(job.machines, "machine"),
            interval(Interval { low: times * low, expected: times * expected, high: times * high }),
            interval(cost.machine_hours),
            interval(cost.money),
        )?;
        if job.price_per_hour > 0.0 {
            let million = cost.money.expected * 1e6 / job.images.max(1) as f64;
            writeln!(out, "{million:.2} in money for a million images")?;
        }
        if let Some(queue) = &self.queue {
            let fits = if queue.fits { "which fits" } else { "which is too few: prolong the timeout" };
            writeln!(
                out,
                "a queue worker may hold {} ({} in each queue) and needs {} under way, {fits}; least timeout {:.1} s, heartbeat every {:.1} s",
                Count(queue.held, "item"),
                queue.per_queue,
                queue.in_flight,
                queue.least_visibility_timeout,
                queue.heartbeat
            )?;
        }
        if let Some(machines) = &self.machines {
            writeln!(out, "\nthe same job on other machines, by the model:")?;
            machines.print(out)?;
        }
        Ok(())
    }
}

fn interval(of: Interval) -> String {
    match of.low == of.high {
        true => format!("{:.2}", of.expected),
        false => format!("{:.2} ({:.2} to {:.2})", of.expected, of.low, of.high),
    }
}

fn queue(args: &PlanArgs, images_per_second: f64, batch: u32) -> anyhow::Result<Option<QueueSizing>> {
    let Some(visibility_timeout) = args.visibility_timeout else { return Ok(None) };
    let queues = u32::try_from(args.queues).context("too many queues")?;
    let fetch_seconds = args.fetch_ms / 1e3;
    let demand = QueueDemand { images_per_second, visibility_timeout, safety: 0.5, queues, fetch_seconds, batch };
    Ok(Some(demand.sizing()?))
}
