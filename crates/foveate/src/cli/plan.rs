//! `foveate plan`.

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use foveate::lab::{Cell, Context, Table, schema};
use foveate::plan::{
    Configuration, Demand, Fleet, FleetOutcome, JobCost, LinearStep, Model, Prediction, Preemption, QueueDemand,
    QueueSizing, Rate, Service, SteadyState, Step, StepFit, StepTable, Storage, Transform, Wall, WhatIf, Workload,
    fit_step, stragglers,
};
use serde::Serialize;

use super::exit::Exit;
use super::measured_run::MeasuredRun;
use super::plan_args::PlanArgs;

/// The batch sizes of the sweep, if the measurements do not provide any.
const BATCHES: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Upper limit of the search for a crossover or a number of workers.
const MOST: u32 = 4096;
/// Seconds of work between the commits of a simulated machine, as in a real run.
const COMMIT_SECONDS: f64 = 2.0;

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    let plan = Plan::new(args)?;
    if let Some(folder) = &args.out {
        let path = walls(&plan.sweep, plan.crossover).write_csv(folder, &plan.context)?;
        eprintln!("wrote {}", path.display());
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&plan)?)?;
    } else {
        plan.print(&mut out)?;
    }
    Ok(Exit::Complete)
}

/// All the answers.
#[derive(Serialize)]
struct Plan {
    #[serde(skip)]
    context: Context,
    model: Model,
    /// The straight line fitted to the measured steps.
    fit: Option<StepFit>,
    state: SteadyState,
    sweep: Vec<SteadyState>,
    crossover: Option<(u32, Wall)>,
    workers: Vec<(u32, SteadyState)>,
    workers_to_saturate: Option<u32>,
    what_ifs: Vec<WhatIf>,
    /// The shared-core answers, if the forward runs on the same cores as the other stages.
    shared: Option<Shared>,
    demand: Demand,
    cost: JobCost,
    job: Workload,
    fleet: Option<FleetOutcome>,
    queue: Option<QueueSizing>,
}

/// The answers for stages that share the cores.
#[derive(Serialize)]
struct Shared {
    configuration: Configuration,
    prediction: Prediction,
    workers: Vec<(u32, Prediction)>,
    workers_to_saturate: u32,
}

impl Plan {
    fn new(args: &PlanArgs) -> anyhow::Result<Self> {
        let run = args.from.as_deref().map(|folder| MeasuredRun::read(folder, args.photos.as_deref())).transpose()?;
        let model = match &run {
            Some(run) => of_measured(args, run)?,
            None => of_flags(args)?,
        };
        let points = match &model.step {
            Step::Table(table) => table.points().to_vec(),
            Step::Linear(_) => Vec::new(),
        };
        let batches = batches(&model);
        let usual = run.as_ref().map_or_else(|| batches[batches.len() / 2], |run| run.configuration.batch);
        let batch = args.batch.unwrap_or(usual);
        let state = model.at(batch)?;
        let shared = run.as_ref().filter(|run| run.context.device == "cpu");
        let shared = shared.map(|run| Shared::new(args, run, batch)).transpose()?;
        let rate = match &shared {
            Some(shared) => shared.prediction.images_per_second,
            None => state.images_per_second,
        };
        let interval = run.as_ref().and_then(|run| run.interval);
        let rate = match interval {
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
        let bytes_per_vector = run.as_ref().map_or(0.0, |run| run.measured.bytes_per_vector);
        Ok(Self {
            fit: (points.len() > 1).then(|| fit_step(&points)).transpose()?,
            sweep: model.batch_sweep(&batches)?,
            crossover: model.crossover(MOST)?,
            workers: worker_sweep(&model, batch)?,
            workers_to_saturate: workers_to_saturate(&model, batch)?,
            what_ifs: model.what_ifs(batch)?,
            demand: Demand::of(rate.mean, model.bytes_per_image, bytes_per_vector)?,
            cost: job.cost()?,
            fleet: fleet(args, &job)?,
            queue: queue(args, rate.mean, batch)?,
            context: run.map(|run| run.context).unwrap_or_default(),
            shared,
            job,
            state,
            model,
        })
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.print_walls(out)?;
        if let Some(shared) = &self.shared {
            shared.print(out)?;
        }
        self.print_job(out)
    }

    fn print_walls(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let state = &self.state;
        writeln!(
            out,
            "batch {}: {:.1} images/s, held back by {}; the accelerator is busy {:.1} % of the time ({:.2}x slower than alone)",
            state.batch,
            state.images_per_second,
            state.bound,
            100.0 * state.utilization,
            state.slowdown
        )?;
        if let Some(fit) = &self.fit {
            let LinearStep { overhead, per_item } = fit.step;
            let (overhead, per_item) = (overhead * 1e3, per_item * 1e3);
            let worst = 100.0 * fit.worst_error;
            writeln!(out, "step = {overhead:.3} ms + batch x {per_item:.4} ms (worst error {worst:.1} %)")?;
        }
        writeln!(out)?;
        walls(&self.sweep, self.crossover).print(out)?;
        match self.crossover {
            Some((batch, wall)) => writeln!(out, "\nfrom batch {batch} on, {wall} is slower than compute")?,
            None => writeln!(out, "\ncompute is the slowest at every batch up to {MOST}")?,
        }
        if let Some(workers) = self.workers_to_saturate {
            writeln!(out, "\n{workers} workers keep the accelerator busy at batch {}:", state.batch)?;
            for (workers, state) in &self.workers {
                let (rate, busy) = (state.images_per_second, 100.0 * state.utilization);
                writeln!(out, "  {workers:>5} workers  {rate:>10.1} images/s  accelerator {busy:>5.1} % busy")?;
            }
        }
        writeln!(out, "\nwhat if, at batch {}:", state.batch)?;
        for what_if in &self.what_ifs {
            let WhatIf { change, speedup, state } = what_if;
            writeln!(
                out,
                "  {change:<54} {:>10.1} images/s  {speedup:.2}x  ({})",
                state.images_per_second, state.bound
            )?;
        }
        let needed = state.storage_demand / 1e6;
        writeln!(out, "\nto keep the accelerator busy, the storage has to deliver {needed:.1} MB/s")
    }

    fn print_job(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { demand, cost, job, .. } = self;
        let megabytes = |bytes: f64| bytes / 1e6;
        let (read, written) = (megabytes(demand.read_bytes_per_second), megabytes(demand.write_bytes_per_second));
        writeln!(out, "\na machine reads {read:.2} MB/s and writes {written:.3} MB/s")?;
        writeln!(
            out,
            "{} images on {} machine{}: {} h, {} machine hours, {} in money",
            job.images,
            job.machines,
            if job.machines == 1 { "" } else { "s" },
            interval(cost.hours),
            interval(cost.machine_hours),
            interval(cost.money),
        )?;
        if let Some(fleet) = &self.fleet {
            writeln!(
                out,
                "simulated: {:.2} h, {:.1} machine hours, {:.2} in money, efficiency {:.3}; {} machines taken away, {} images computed twice",
                fleet.seconds / 3600.0,
                fleet.billed_seconds / 3600.0,
                fleet.money,
                fleet.efficiency,
                fleet.preemptions,
                fleet.lost
            )?;
        }
        if let Some(queue) = &self.queue {
            let fits = if queue.fits { "which fits" } else { "which is too few: prolong the timeout" };
            writeln!(
                out,
                "a queue worker may hold {} items ({} in each queue) and needs {} under way, {fits}; least timeout {:.1} s, heartbeat every {:.1} s",
                queue.held, queue.per_queue, queue.in_flight, queue.least_visibility_timeout, queue.heartbeat
            )?;
        }
        Ok(())
    }
}

/// Reads the walls by batch size from a run's files.
pub(crate) fn walls_of_run(folder: &Path) -> anyhow::Result<Table> {
    let run = MeasuredRun::read(folder, None)?;
    let model = run.measured.walls(&run.configuration)?;
    Ok(walls(&model.batch_sweep(&batches(&model))?, model.crossover(MOST)?))
}

/// Returns the measured batch sizes, or the usual ones.
fn batches(model: &Model) -> Vec<u32> {
    match &model.step {
        Step::Table(table) => table.points().iter().map(|&(batch, _)| batch).collect(),
        Step::Linear(_) => BATCHES.to_vec(),
    }
}

fn walls(sweep: &[SteadyState], crossover: Option<(u32, Wall)>) -> Table {
    let mut table = Table::new(&schema::BATCH_PLAN);
    let mut crossed = false;
    for state in sweep {
        let first = !crossed && crossover.is_some_and(|(batch, _)| state.batch >= batch);
        crossed |= first;
        let ms = |seconds: f64| (seconds * 1e3).into();
        table.push([
            ("batch", u64::from(state.batch).into()),
            ("storage_ms", ms(state.storage_seconds)),
            ("cpu_ms", ms(state.cpu_seconds)),
            ("compute_ms", ms(state.compute_seconds)),
            ("step_ms", ms(state.seconds)),
            ("images_per_second", state.images_per_second.into()),
            ("utilization", state.utilization.into()),
            ("slowdown", state.slowdown.into()),
            ("wall", wall_name(state.bound).into()),
            ("crossover", if first { "yes".into() } else { Cell::Empty }),
        ]);
    }
    table
}

fn interval(of: foveate::plan::Interval) -> String {
    match of.low == of.high {
        true => format!("{:.2}", of.expected),
        false => format!("{:.2} ({:.2} to {:.2})", of.expected, of.low, of.high),
    }
}

fn wall_name(wall: Wall) -> &'static str {
    match wall {
        Wall::Storage => "storage",
        Wall::Cpu => "cpu",
        Wall::Compute => "compute",
        Wall::Write => "write",
    }
}

impl Shared {
    fn new(args: &PlanArgs, run: &MeasuredRun, batch: u32) -> anyhow::Result<Self> {
        let workers = args.workers.unwrap_or(run.configuration.workers);
        let configuration = Configuration { workers, batch, ..run.configuration };
        let counts: Vec<u32> = [0, 1, 2, 4, 8, 16].into_iter().filter(|&n| n <= 2 * run.measured.cores).collect();
        let sweep = run.measured.worker_sweep(&configuration, &counts)?;
        Ok(Self {
            configuration,
            prediction: run.measured.predict(&configuration)?,
            workers: counts.into_iter().zip(sweep).collect(),
            workers_to_saturate: run.measured.workers_to_saturate(&configuration, 2 * run.measured.cores, 0.98)?,
        })
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Configuration { workers, batch, forward_threads, .. } = self.configuration;
        writeln!(
            out,
            "\nthe forward runs on the CPU, so the walls share its cores; with {workers} workers, {forward_threads} threads for the forward, batches of {batch}:"
        )?;
        writeln!(out, "  {:.1} images/s: {}", self.prediction.images_per_second, self.prediction.why)?;
        for (workers, prediction) in &self.workers {
            let (rate, bound) = (prediction.images_per_second, &prediction.bound);
            writeln!(out, "  {workers:>5} workers  {rate:>10.1} images/s  ({bound})")?;
        }
        writeln!(out, "  {} workers are enough", self.workers_to_saturate)
    }
}

/// Builds the model of the three walls from the flags.
fn of_flags(args: &PlanArgs) -> anyhow::Result<Model> {
    let step = match (&args.steps, args.overhead_ms, args.item_ms) {
        (Some(steps), _, _) => {
            let points: Vec<(u32, f64)> = steps.0.iter().map(|&(batch, ms)| (batch, ms / 1e3)).collect();
            Step::Table(StepTable::new(points)?)
        }
        (None, overhead, Some(item)) => {
            Step::Linear(LinearStep { overhead: overhead.unwrap_or(0.0) / 1e3, per_item: item / 1e3 })
        }
        _ => anyhow::bail!(
            "how long does the accelerator take? Give --steps 32:5.86,64:6.70 or --item-ms (and --overhead-ms), or --from a run"
        ),
    };
    let transform = match (args.cpu_throughput, args.cpu_ms) {
        (Some(bytes_per_second), _) => Transform::Throughput { bytes_per_second },
        (None, Some(ms)) => Transform::PerImage { seconds: ms / 1e3, workers: args.workers.unwrap_or(1) },
        (None, None) => Transform::Nothing,
    };
    Ok(Model {
        bytes_per_image: args.sample_bytes.unwrap_or(0.0),
        storage: storage(args),
        transform,
        step,
        accelerators: args.accelerators,
        write_seconds: 0.0,
    })
}

fn storage(args: &PlanArgs) -> Option<Storage> {
    match (args.latency_ms, args.stream) {
        (Some(ms), Some(stream)) => {
            let remote = Storage::remote(ms / 1e3, stream, args.requests);
            Some(Storage { link_bytes_per_second: args.storage, ..remote })
        }
        _ => args.storage.map(Storage::disk),
    }
}

/// Builds the same model from a measured run.
fn of_measured(args: &PlanArgs, run: &MeasuredRun) -> anyhow::Result<Model> {
    let workers = args.workers.unwrap_or(run.configuration.workers).max(1);
    let model = run.measured.walls(&Configuration { workers, ..run.configuration })?;
    Ok(Model { storage: storage(args).or(model.storage), accelerators: args.accelerators, ..model })
}

/// Computes the throughput by number of workers, if the model knows the throughput of one worker.
fn worker_sweep(model: &Model, batch: u32) -> anyhow::Result<Vec<(u32, SteadyState)>> {
    const WORKERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
    match model.transform {
        Transform::PerImage { .. } => Ok(WORKERS.into_iter().zip(model.worker_sweep(batch, &WORKERS)?).collect()),
        _ => Ok(Vec::new()),
    }
}

fn workers_to_saturate(model: &Model, batch: u32) -> anyhow::Result<Option<u32>> {
    match model.transform {
        Transform::PerImage { .. } => Ok(Some(model.workers_to_saturate(batch)?)),
        _ => Ok(None),
    }
}

/// Runs a simulation if the flags ask for effects that the formulas do not cover.
fn fleet(args: &PlanArgs, job: &Workload) -> anyhow::Result<Option<FleetOutcome>> {
    if args.preempt_hours.is_none() && args.stragglers.is_none() {
        return Ok(None);
    }
    let commit = ((job.rate.mean * COMMIT_SECONDS) as u64).max(1);
    let mut fleet = Fleet { seed: args.seed, ..Fleet::of(job, args.shard_images, commit) };
    if let Some((share, speed)) = args.stragglers {
        fleet.speed = stragglers(share, speed)?;
    }
    fleet.preemption = args
        .preempt_hours
        .map(|hours| Preemption { mean_seconds: hours * 3600.0, replacement: Service::Constant(args.startup) });
    Ok(Some(fleet.run()?))
}

fn queue(args: &PlanArgs, images_per_second: f64, batch: u32) -> anyhow::Result<Option<QueueSizing>> {
    let sizing = |visibility_timeout: f64| {
        let queues = u32::try_from(args.queues).context("too many queues")?;
        let fetch_seconds = args.fetch_ms / 1e3;
        let demand = QueueDemand { images_per_second, visibility_timeout, safety: 0.5, queues, fetch_seconds, batch };
        Ok(demand.sizing()?)
    };
    args.visibility_timeout.map(sizing).transpose()
}
