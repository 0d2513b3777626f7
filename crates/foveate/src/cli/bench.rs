//! `foveate bench`.

use std::io::Write;

use anyhow::Context;
use foveate::lab::bench::{self, Effort, Service, Sets, Vectors};
use foveate::lab::plan_check::{self, Check};
use foveate::lab::{Calibration, Lab, LabError, Rig as _, Setting, Table, checklist, diagnose, profile, schema};

use super::diagnose as diagnosing;
use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::{BenchArgs, Experiment, SinksArgs, WorkerBenchArgs};
use super::plan;

pub(crate) fn run(experiment: &Experiment) -> anyhow::Result<Exit> {
    match experiment {
        Experiment::All(args) => all(args)?,
        Experiment::Decoders(args) => one(args, bench::decoders)?,
        Experiment::Resizers(args) => one(args, bench::resizers)?,
        Experiment::Sinks(args) => sinks(args)?,
        Experiment::Forward(args) => {
            let bench = Bench::open(&args.bench.lab, Sizes::AsGiven)?;
            let photos = bench.photos()?;
            bench.put(&bench::forward(&bench.lab(), photos, &args.batches, &effort(&args.bench))?)?;
        }
        Experiment::BatchSweep(args) => {
            let bench = Bench::open(&args.lab, Sizes::AsGiven)?;
            bench.put(&bench::batch_sweep(&bench.lab(), bench.photos()?, &bench::BATCHES, &effort(args))?)?;
        }
        Experiment::WorkerSweep(args) => {
            one(args, |lab, sets, effort| bench::worker_sweep(lab, sets, &bench::WORKERS, effort))?;
        }
        Experiment::Headline(args) => one(args, bench::headline)?,
        Experiment::Extrapolation(args) => {
            one(args, |lab, sets, effort| bench::extrapolation(lab, sets, bench::TARGET, effort))?;
        }
        Experiment::Predictions(args) => drop(predictions_of(&Bench::open(&args.lab, Sizes::AsGiven)?, args)?),
        Experiment::Worker(args) => {
            let bench = Bench::open(&args.bench.lab, Sizes::AsGiven)?;
            bench.put(&bench::worker(&bench.lab(), bench.photos()?, &service(args), &effort(&args.bench))?)?;
        }
    }
    Ok(Exit::Complete)
}

/// Runs one experiment that produces one table.
fn one(
    args: &BenchArgs,
    experiment: impl Fn(&Lab<'_>, &Sets, &Effort) -> Result<Table, LabError>,
) -> anyhow::Result<()> {
    let bench = Bench::open(&args.lab, Sizes::AsGivenAndSmall)?;
    bench.put(&experiment(&bench.lab(), &bench.sets, &effort(args))?)
}

fn effort(args: &BenchArgs) -> Effort {
    let effort = if args.quick { Effort::quick() } else { Effort::usual() };
    Effort { images: args.images, ..effort }
}

fn service(args: &WorkerBenchArgs) -> Service {
    Service {
        photos: args.photo_ms,
        callbacks: args.callback_ms,
        forward_sleep: args.forward_ms,
        downloaders: args.downloaders,
        callers: args.callers,
        batch: args.dynamic_batch,
    }
}

fn sinks(args: &SinksArgs) -> anyhow::Result<()> {
    let bench = Bench::without_photos(&args.out, args.quiet, args.seed)?;
    let effort = if args.quick { Effort::quick() } else { Effort::usual() };
    bench.put(&bench::sinks(&bench.lab(), &Vectors { rows: args.rows, dim: args.dim }, &effort)?)
}

/// Runs every experiment that a report contains.
fn all(args: &BenchArgs) -> anyhow::Result<()> {
    let bench = Bench::open(&args.lab, Sizes::AsGivenAndSmall)?;
    let mut tables = vec![profile_of(&bench, args)?];
    let mut put = |table: &Table| {
        tables.push(table.clone());
        bench.put(table).map_err(|error| LabError::Setting(format!("{error:#}")))
    };
    bench::all(&bench.lab(), &bench.sets, &Vectors::usual(), &effort(args), &mut put)?;
    bench.put(&bench::worker(&bench.lab(), bench.photos()?, &Service::usual(), &effort(args))?)?;
    tables.push(diagnosis(&bench, args.quick)?);
    let check = predictions_of(&bench, args)?;
    timeline(&bench, &tables, check.calibration)?;
    tables.push(check.table);
    bench.write(&plan::walls_of_run(bench.out())?)?;
    bench.put(&checklist(&tables.iter().collect::<Vec<_>>(), &bench.base(), &bench.rig.context()))
}

/// Diagnoses a job, prints the whole diagnosis, and returns its ladder.
fn diagnosis(bench: &Bench, quick: bool) -> anyhow::Result<Table> {
    let options = diagnose::DiagnoseOptions::new(bench.sink.as_str());
    let options = if quick { options.quick() } else { options };
    let diagnosis = diagnose::run(&bench.lab(), bench.photos()?, &bench.base(), &options)?;
    diagnosing::print(bench, &diagnosis)?;
    Ok(diagnosis.ladder)
}

/// Writes the timelines of the slow configuration that the headline begins with, and of the usual one.
fn timeline(bench: &Bench, tables: &[Table], mut calibration: Calibration) -> anyhow::Result<()> {
    const BATCHES: u32 = 4;
    let headline = tables.iter().find(|table| table.schema().file == schema::HEADLINE.file && !table.is_empty());
    let Some(headline) = headline else { return Ok(()) };
    let slowest = |column: &str| headline.get(0, column).to_string();
    let after = bench.base();
    let before = Setting { decoder: slowest("decoder"), resizer: slowest("resizer"), ..after.clone() };
    calibration.extend(&bench.lab(), bench.photos()?, &[before.clone(), after.clone()])?;
    bench.write(&foveate::lab::timeline(&calibration, &before, &after, BATCHES, bench.seed())?)?;
    Ok(())
}

fn profile_of(bench: &Bench, args: &BenchArgs) -> anyhow::Result<Table> {
    let options = profile::ProfileOptions {
        settings: vec![bench.base()],
        images: args.images,
        normalize: true,
        project: bench::TARGET,
        trace: None,
        sink: bench.sink.clone(),
    };
    super::profile::measure(bench, &options)
}

fn predictions_of(bench: &Bench, args: &BenchArgs) -> anyhow::Result<Check> {
    let photos = bench.photos()?;
    let effort = effort(args);
    let settings = plan_check::settings(&bench.rig);
    let options = plan_check::PlanCheckOptions { settings, rounds: effort.samples, seconds: effort.seconds };
    let check = plan_check::run(&bench.lab(), photos, &options).context("predictions")?;
    bench.put(&check.table)?;
    let mut out = std::io::stdout().lock();
    let percent = |error: f64| 100.0 * error;
    let (model, simulation) = (percent(check.median_error), percent(check.median_simulated_error));
    writeln!(out, "median error: model {model:.1} %, simulation {simulation:.1} %")?;
    Ok(check)
}
