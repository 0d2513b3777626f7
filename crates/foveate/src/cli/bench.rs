//! `foveate bench`.

use std::io::Write;

use anyhow::Context;
use foveate::lab::bench::{self, Effort, Sets, Vectors};
use foveate::lab::{Lab, LabError, Table, plan_check, profile};

use super::Exit;
use super::lab::Bench;
use super::lab_args::{BenchArgs, Experiment, SinksArgs};

pub(crate) fn run(experiment: &Experiment) -> anyhow::Result<Exit> {
    match experiment {
        Experiment::All(args) => all(args)?,
        Experiment::Decoders(args) => one(args, bench::decoders)?,
        Experiment::Resizers(args) => one(args, bench::resizers)?,
        Experiment::Sinks(args) => sinks(args)?,
        Experiment::Forward(args) => {
            let bench = Bench::open(&args.bench.lab)?;
            let photos = bench.photos()?;
            bench.put(&bench::forward(&bench.lab(), photos, &args.batches, &effort(&args.bench))?)?;
        }
        Experiment::BatchSweep(args) => {
            let sweep = |lab: &Lab<'_>, sets: &Sets, effort: &Effort| {
                let photos = sets.usable.first().ok_or_else(|| LabError::Photos("no photos".to_owned()))?;
                bench::batch_sweep(lab, photos, &bench::BATCHES, effort)
            };
            one(args, sweep)?;
        }
        Experiment::WorkerSweep(args) => {
            one(args, |lab, sets, effort| bench::worker_sweep(lab, sets, &bench::WORKERS, effort))?;
        }
        Experiment::Headline(args) => one(args, bench::headline)?,
        Experiment::Extrapolation(args) => {
            one(args, |lab, sets, effort| bench::extrapolation(lab, sets, bench::TARGET, effort))?;
        }
        Experiment::Predictions(args) => predictions(&Bench::open(&args.lab)?, args)?,
    }
    Ok(Exit::Complete)
}

/// One experiment that gives one table.
fn one(
    args: &BenchArgs,
    experiment: impl Fn(&Lab<'_>, &Sets, &Effort) -> Result<Table, LabError>,
) -> anyhow::Result<()> {
    let bench = Bench::open(&args.lab)?;
    bench.put(&experiment(&bench.lab(), &bench.sets, &effort(args))?)
}

fn effort(args: &BenchArgs) -> Effort {
    let effort = if args.quick { Effort::quick() } else { Effort::usual() };
    Effort { images: args.images, ..effort }
}

fn sinks(args: &SinksArgs) -> anyhow::Result<()> {
    let bench = Bench::without_photos(&args.out, args.quiet, args.seed)?;
    let effort = if args.quick { Effort::quick() } else { Effort::usual() };
    bench.put(&bench::sinks(&bench.lab(), &Vectors { rows: args.rows, dim: args.dim }, &effort)?)
}

/// Everything that a report is made of.
fn all(args: &BenchArgs) -> anyhow::Result<()> {
    let bench = Bench::open(&args.lab)?;
    profile_of(&bench, args)?;
    let mut put = |table: &Table| bench.put(table).map_err(|error| LabError::Setting(format!("{error:#}")));
    bench::all(&bench.lab(), &bench.sets, &effort(args), &mut put)?;
    predictions(&bench, args)
}

fn profile_of(bench: &Bench, args: &BenchArgs) -> anyhow::Result<()> {
    let options = profile::Options {
        settings: vec![bench.base()],
        images: args.images,
        normalize: true,
        project: bench::TARGET,
        trace: None,
        sink: bench.sink.clone(),
    };
    let table = profile::run(&bench.lab(), &bench.sets.usable, &options)?;
    let path = bench.write(&table)?;
    let mut out = std::io::stdout().lock();
    profile::print(&table, &mut out)?;
    writeln!(out, "({})", path.display())?;
    Ok(())
}

fn predictions(bench: &Bench, args: &BenchArgs) -> anyhow::Result<()> {
    let photos = bench.photos()?;
    let effort = effort(args);
    let settings = plan_check::settings(&bench.rig);
    let options = plan_check::Options { settings, rounds: effort.samples, seconds: effort.seconds };
    let check = plan_check::run(&bench.lab(), photos, &options).context("predictions")?;
    bench.put(&check.table)?;
    let mut out = std::io::stdout().lock();
    let percent = |error: f64| 100.0 * error;
    let (model, simulation) = (percent(check.median_error), percent(check.median_simulated_error));
    writeln!(out, "median error: model {model:.1} %, simulation {simulation:.1} %")?;
    Ok(())
}
