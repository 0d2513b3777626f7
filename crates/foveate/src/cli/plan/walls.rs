//! The walls of a machine whose forward runs beside its cores.

use std::io::Write;
use std::path::Path;

use foveate::lab::{Cell, StandIn, Table, schema};
use foveate::plan::{
    Bus, Configuration, LinearStep, Measured, Model, Saturation, SteadyState, Step, StepFit, StepTable, Storage,
    Transform, Wall, WhatIf, fit_step,
};
use serde::Serialize;

use super::super::measured_run::MeasuredRun;
use super::super::plan_args::PlanArgs;
use super::words::{Count, print_what_ifs};

/// The batch sizes of the sweep, if the measurements do not provide any.
const BATCHES: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// The numbers of workers of the sweep, beside the one that suffices.
const WORKERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Upper limit of the search for a crossover.
const MOST: u32 = 4096;

/// The answers.
#[derive(Serialize)]
pub(super) struct Walls {
    pub(super) model: Model,
    /// The straight line fitted to the measured steps.
    fit: Option<StepFit>,
    pub(super) state: SteadyState,
    sweep: Vec<SteadyState>,
    crossover: Option<(u32, Wall)>,
    /// Empty if the cost of one worker is not known.
    workers: Vec<(u32, SteadyState)>,
    workers_to_saturate: Option<Saturation>,
    /// The cores of the run; `None` without one.
    cores: Option<u32>,
    what_ifs: Vec<WhatIf<SteadyState>>,
    /// The share of the rate that the measurement's interval leaves open.
    #[serde(skip)]
    resolution: f64,
}

impl Walls {
    pub(super) fn new(args: &PlanArgs, run: Option<&MeasuredRun>, storage: Option<Storage>) -> anyhow::Result<Self> {
        let model = match run {
            Some(run) => of_measured(args, run, storage)?,
            None => of_flags(args, storage)?,
        };
        let cores = run.map(|run| run.measured.cores);
        let batches = batches(&model);
        let usual = run.map_or_else(|| batches[batches.len() / 2], |run| run.configuration.batch);
        let batch = args.batch.unwrap_or(usual);
        let workers_to_saturate = match model.transform {
            Transform::PerImage { .. } => Some(model.workers_to_saturate(batch)?),
            _ => None,
        };
        // Without a number, as many workers as help and have cores.
        let model =
            match workers_to_saturate.filter(|_| args.workers.is_none() && !run.is_some_and(MeasuredRun::is_on_cpu)) {
                Some(enough) => model.with_workers(enough.workers.min(cores.unwrap_or(u32::MAX)))?,
                None => model,
            };
        let points = measured_points(&model);
        let workers = workers_to_saturate.map(|saturation| around(saturation.workers)).unwrap_or_default();
        Ok(Self {
            fit: (points.len() > 1).then(|| fit_step(points)).transpose()?,
            state: model.at(batch)?,
            sweep: model.batch_sweep(&batches)?,
            crossover: model.crossover(MOST)?,
            workers: workers.iter().copied().zip(model.worker_sweep(batch, &workers)?).collect(),
            workers_to_saturate,
            cores,
            what_ifs: model.what_ifs(batch)?,
            resolution: run.map_or(0.0, MeasuredRun::resolution),
            model,
        })
    }

    /// Returns [`schema::BATCH_PLAN`].
    pub(super) fn table(&self) -> Table {
        table(&self.sweep, self.crossover)
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let state = &self.state;
        let rate = state.images_per_second;
        let busy = 100.0 * state.utilization;
        write!(out, "batch {}", state.batch)?;
        if let Transform::PerImage { workers, .. } = self.model.transform {
            write!(out, ", {}", Count(workers, "worker"))?;
        }
        write!(out, ": {rate:.1} images/s, held back by {}; ", state.bound)?;
        match state.bound {
            Wall::Compute => writeln!(out, "the accelerator is always busy")?,
            _ => writeln!(
                out,
                "the accelerator is busy {busy:.1} % of the time ({:.2}x slower than alone)",
                state.slowdown
            )?,
        }
        if let Some(fit) = &self.fit {
            let LinearStep { overhead, per_item } = fit.step;
            let overhead_ms = overhead * 1e3;
            let per_item_ms = per_item * 1e3;
            let worst = 100.0 * fit.worst_error;
            writeln!(out, "step = {overhead_ms:.3} ms + batch x {per_item_ms:.4} ms (worst error {worst:.1} %)")?;
        }
        writeln!(out)?;
        self.table().print(out)?;
        match self.crossover {
            Some((batch, wall)) => writeln!(out, "\nfrom batch {batch} on, {wall} is slower than compute")?,
            None => writeln!(out, "\ncompute is the slowest at every batch up to {MOST}")?,
        }
        if let Some(saturation) = &self.workers_to_saturate {
            self.print_workers(out, saturation)?;
        }
        writeln!(out, "\nwhat if, at batch {}:", state.batch)?;
        print_what_ifs(out, &self.what_ifs, self.resolution, |state| {
            (state.images_per_second, state.bound.to_string())
        })?;
        let needed = state.storage_demand / 1e6;
        writeln!(out, "\nto keep the accelerator busy, the storage has to deliver {needed:.1} MB/s")
    }

    /// Prints the number of workers that suffices, and what the machine is held back by then.
    fn print_workers(&self, out: &mut dyn Write, saturation: &Saturation) -> std::io::Result<()> {
        let Saturation { workers, bound, utilization, .. } = *saturation;
        let batch = self.state.batch;
        let busy = 100.0 * utilization;
        let one = workers == 1;
        let workers = Count(workers, "worker");
        match bound {
            Wall::Compute => {
                let keeps = if one { "keeps" } else { "keep" };
                writeln!(out, "\n{workers} {keeps} the accelerator busy at batch {batch}:")?;
            }
            wall => {
                let suffices = if one { "is" } else { "are" };
                writeln!(
                    out,
                    "\n{workers} {suffices} enough at batch {batch}: beyond that {wall} holds the job back, and the accelerator \
                     is busy {busy:.1} % of the time:"
                )?;
            }
        }
        for (workers, state) in &self.workers {
            let rate = state.images_per_second;
            let busy = 100.0 * state.utilization;
            let workers = format!("{workers:>5} worker{}", if *workers == 1 { " " } else { "s" });
            writeln!(out, "  {workers}  {rate:>10.1} images/s  accelerator {busy:>5.1} % busy  ({})", state.bound)?;
        }
        match self.cores.filter(|&cores| saturation.workers > cores) {
            Some(cores) => writeln!(out, "each worker takes a core, and the run's machine has {cores}"),
            None => Ok(()),
        }
    }
}

/// Computes the walls by batch size from a run's files, and writes them there as [`schema::BATCH_PLAN`].
pub(crate) fn write_walls(folder: &Path) -> anyhow::Result<()> {
    let run = MeasuredRun::read(folder, None, None)?;
    let model = run.measured.walls(&run.configuration)?;
    table(&model.batch_sweep(&batches(&model))?, model.crossover(MOST)?).write_csv(folder, &run.context)?;
    Ok(())
}

/// Returns the usual numbers of workers up to the first that is more than `enough`, and `enough`.
fn around(enough: u32) -> Vec<u32> {
    let first_beyond = WORKERS.iter().position(|&workers| workers > enough).map_or(WORKERS.len(), |at| at + 1);
    let mut workers = WORKERS[..first_beyond].to_vec();
    workers.push(enough);
    workers.sort_unstable();
    workers.dedup();
    workers
}

fn measured_points(model: &Model) -> &[(u32, f64)] {
    match &model.step {
        Step::Table(table) => table.points(),
        Step::Linear(_) => &[],
    }
}

/// Returns the measured batch sizes, or the usual ones.
fn batches(model: &Model) -> Vec<u32> {
    match measured_points(model) {
        [] => BATCHES.to_vec(),
        points => points.iter().map(|&(batch, _)| batch).collect(),
    }
}

fn table(sweep: &[SteadyState], crossover: Option<(u32, Wall)>) -> Table {
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
            ("bus_ms", ms(state.bus_seconds)),
            ("compute_ms", ms(state.compute_seconds)),
            ("step_ms", ms(state.seconds)),
            ("images_per_second", state.images_per_second.into()),
            ("utilization", state.utilization.into()),
            ("slowdown", state.slowdown.into()),
            ("needed_mb_per_second", (state.storage_demand / 1e6).into()),
            ("wall", wall_name(state.bound).into()),
            ("crossover", if first { "yes".into() } else { Cell::Empty }),
        ]);
    }
    table
}

fn wall_name(wall: Wall) -> &'static str {
    match wall {
        Wall::Storage => "storage",
        Wall::Cpu => "cpu",
        Wall::Bus => "bus",
        Wall::Compute => "compute",
        Wall::Write => "write",
    }
}

/// Builds the model from the flags.
fn of_flags(args: &PlanArgs, storage: Option<Storage>) -> anyhow::Result<Model> {
    let linear = |overhead: f64, item: f64| Step::Linear(LinearStep { overhead: overhead / 1e3, per_item: item / 1e3 });
    let curve = args.stand_in.as_ref().map(StandIn::step_ms);
    let item = args.item_ms.map(|item| (args.overhead_ms.unwrap_or(0.0), item));
    let step = match (&args.steps, curve.or(item)) {
        (Some(steps), _) => {
            let points: Vec<(u32, f64)> = steps.0.iter().map(|&(batch, ms)| (batch, ms / 1e3)).collect();
            Step::Table(StepTable::new(points)?)
        }
        (None, Some((overhead, item))) => linear(overhead, item),
        _ => anyhow::bail!(
            "how long does the accelerator take? Give --steps 32:5.86,64:6.70, --item-ms (and --overhead-ms) or --stand-in, or --from a run"
        ),
    };
    let bytes_per_image = args.sample_bytes.unwrap_or(0.0);
    let transform = match (args.cpu_throughput, args.cpu_ms, args.workers) {
        // Workers that reach this throughput together take so long for an image each.
        (Some(bytes_per_second), _, Some(workers)) => {
            Transform::PerImage { seconds: f64::from(workers) * bytes_per_image / bytes_per_second, workers }
        }
        (Some(bytes_per_second), _, None) => Transform::Throughput { bytes_per_second },
        (None, None, _) if args.augment_ms == 0.0 => Transform::Nothing,
        (None, ms, workers) => {
            let seconds = (ms.unwrap_or(0.0) + args.augment_ms) / 1e3;
            Transform::PerImage { seconds, workers: workers.unwrap_or(1) }
        }
    };
    let bus = bus(args, args.stand_in.as_ref());
    Ok(Model { bytes_per_image, storage, transform, bus, step, accelerators: args.accelerators, write_seconds: 0.0 })
}

/// Returns the way of the pixels to a device, if the flags or the device tell.
pub(super) fn bus(args: &PlanArgs, device: Option<&StandIn>) -> Option<Bus> {
    let bytes_per_second = args.bus.or_else(|| device?.bus_bytes_per_second())?;
    Some(Bus { bytes_per_image: args.pixel_bytes, bytes_per_second })
}

/// Returns the storage that the flags describe, or else the `measured` one, with the flags' requests in flight.
pub(super) fn storage(args: &PlanArgs, measured: Option<Storage>) -> Option<Storage> {
    /// Requests in flight, unless the flags or a run tell.
    const REQUESTS: u32 = 16;
    let requests = |or: u32| args.requests.unwrap_or(or);
    match (args.latency_ms, args.stream) {
        (Some(ms), Some(stream)) => {
            let remote = Storage::remote(ms / 1e3, stream, requests(REQUESTS));
            Some(Storage { link_bytes_per_second: args.storage, ..remote })
        }
        _ => args
            .storage
            .map(Storage::disk)
            .or_else(|| measured.map(|measured| Storage { concurrency: requests(measured.concurrency), ..measured })),
    }
}

/// Builds the same model from a measured run.
fn of_measured(args: &PlanArgs, run: &MeasuredRun, storage: Option<Storage>) -> anyhow::Result<Model> {
    let workers = args.workers.unwrap_or(run.configuration.workers).max(1);
    let measured = Measured { storage, ..run.measured.clone() };
    let model = measured.walls(&Configuration { workers, ..run.configuration })?;
    Ok(Model { accelerators: args.accelerators, bus: bus(args, args.stand_in.as_ref()), ..model })
}
