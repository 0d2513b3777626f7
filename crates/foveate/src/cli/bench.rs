//! `foveate bench`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use foveate::encode::DType;
use foveate::lab::bench::{self, Control, Effort, Service, Sets, SinkVectors};
use foveate::lab::plan_check::{self, PlanCheck};
use foveate::lab::{Lab, LabError, Setting, Table, diagnose, profile, schema, tune};
use foveate::report::Report;
use foveate::source::blob::FileBlob;
use foveate::source::store::scheme_of;
use serde_json::{Value, json};

use super::diagnose as diagnosing;
use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::{AllArgs, BenchArgs, EffortArgs, Experiment, ReadArgs, SinksArgs, StageArgs};
use super::{memory, report};

pub(crate) fn run(experiment: &Experiment) -> anyhow::Result<Exit> {
    if let Some((bench, more)) = measure(experiment)? {
        bench.print_json(more)?;
    }
    Ok(Exit::Complete)
}

/// Runs the experiment, and returns what JSON says of it besides its tables; `None` if it has none.
fn measure(experiment: &Experiment) -> anyhow::Result<Option<(Bench, Value)>> {
    let bench = match experiment {
        Experiment::All(args) => return all(args).map(Some),
        Experiment::Memory(args) => return memory::run(&args.bench.lab).map(|()| None),
        Experiment::Decoders(args) => stage(args, bench::decoders)?,
        Experiment::Resizers(args) => stage(args, bench::resizers)?,
        Experiment::Sinks(args) => sinks(args)?,
        Experiment::Forward(args) => {
            let (bench, effort) = open(&args.bench, Sizes::AsGiven)?;
            let effort = Effort { peers: args.others.peers.clone(), ..effort };
            bench.put(&bench::forward(&bench.lab(), bench.photos()?, &args.batches, &effort)?)?;
            bench
        }
        Experiment::BatchSweep(args) => {
            let (bench, effort) = open(args, Sizes::AsGiven)?;
            let batches = bench::batches(&bench.lab(), false);
            bench.put(&bench::batch_sweep(&bench.lab(), bench.photos()?, &batches, &effort)?)?;
            bench
        }
        Experiment::JobBatchSweep(args) => {
            one(args, |lab, sets, effort| bench::job_batch_sweep(lab, sets, &bench::batches(lab, false), effort))?
        }
        Experiment::WorkerSweep(args) => {
            one(args, |lab, sets, effort| bench::worker_sweep(lab, sets, &bench::workers(lab), effort))?
        }
        Experiment::Matrix(args) => {
            let (bench, effort) = open(&args.bench, Sizes::AsGiven)?;
            let table = bench.put(&bench::matrix(&bench.lab(), bench.photos()?, args.cross, &effort)?)?;
            let wrong =
                (0..table.len()).filter(|&row| table.get(row, "status").to_string().starts_with("wrong")).count();
            ensure!(wrong == 0, "{wrong} combinations give wrong vectors; the table says which");
            bench
        }
        Experiment::Headline(args) => {
            let (bench, effort) = open(args, Sizes::AsGivenAndSmall)?;
            let headline = bench.put(&bench::headline(&bench.lab(), &bench.sets, &effort)?)?;
            timeline(&bench, &headline)?;
            bench
        }
        Experiment::Extrapolation(args) => {
            one(args, |lab, sets, effort| bench::extrapolation(lab, sets, bench::TARGET, effort))?
        }
        Experiment::Predictions(args) => {
            let (bench, _) = open(args, Sizes::AsGiven)?;
            let check = predictions_of(&bench, args)?;
            return Ok(Some((bench, errors_of(&check))));
        }
        Experiment::Copies(args) => {
            let (bench, effort) = open(args, Sizes::AsGiven)?;
            bench.put(&bench::copies(&bench.lab(), &effort)?)?;
            bench
        }
        Experiment::Read(args) => read(args)?,
        Experiment::Worker(args) => {
            let (bench, effort) = open(&args.bench, Sizes::AsGiven)?;
            let usual = service(&effort);
            let service = Service {
                downloaders: args.download_threads,
                callers: args.callback_threads,
                queue_size: args.queue_size.unwrap_or(usual.queue_size),
                batch: bench.base().batch,
                ..usual
            };
            bench.put(&bench::worker(&bench.lab(), bench.photos()?, &service, &effort)?)?;
            bench
        }
    };
    Ok(Some((bench, json!({}))))
}

/// Runs one experiment that produces one table.
fn one(
    args: &BenchArgs,
    experiment: impl Fn(&Lab<'_>, &Sets, &Effort) -> Result<Table, LabError>,
) -> anyhow::Result<Bench> {
    let (bench, effort) = open(args, Sizes::AsGivenAndSmall)?;
    bench.put(&experiment(&bench.lab(), &bench.sets, &effort)?)?;
    Ok(bench)
}

/// Does the same, with other libraries if there is a script for them.
fn stage(
    args: &StageArgs,
    experiment: impl Fn(&Lab<'_>, &Sets, &Effort) -> Result<Table, LabError>,
) -> anyhow::Result<Bench> {
    let effort = Effort { peers: args.others.peers.clone(), ..effort(&args.effort) };
    let bench = Bench::of_stage(args)?.quickly(effort.is_quick());
    bench.put(&experiment(&bench.lab(), &bench.sets, &effort)?)?;
    Ok(bench)
}

/// Opens a bench whose rows tell its effort.
fn open(args: &BenchArgs, sizes: Sizes) -> anyhow::Result<(Bench, Effort)> {
    let effort = effort(&args.effort);
    Ok((Bench::open(&args.lab, sizes)?.quickly(effort.is_quick()), effort))
}

fn effort(args: &EffortArgs) -> Effort {
    let effort = if args.quick { Effort::quick() } else { Effort::usual() };
    let seconds = args.seconds.map_or(effort.seconds, |seconds| seconds.as_secs_f64());
    let samples = args.samples.map_or(effort.samples, |samples| samples as usize);
    Effort { images: args.images, seconds, samples, ..effort }
}

fn service(effort: &Effort) -> Service {
    if effort.quick { Service::quick() } else { Service::usual() }
}

fn sinks(args: &SinksArgs) -> anyhow::Result<Bench> {
    let bench = Bench::without_photos(&args.display, args.seed)?.quickly(args.quick);
    let effort = if args.quick { Effort::quick() } else { Effort::usual() };
    bench.put(&bench::sinks(&bench.lab(), &SinkVectors { rows: args.rows, dim: args.dim }, &effort)?)?;
    Ok(bench)
}

fn read(args: &ReadArgs) -> anyhow::Result<Bench> {
    let ReadArgs { input, chunk, requests, quick, .. } = args;
    let bench = Bench::without_photos(&args.display, args.seed)?.quickly(*quick);
    let effort = if *quick { Effort::quick() } else { Effort::usual() };
    let path = Path::new(input);
    let scheme = scheme_of(input.as_bytes()).filter(|_| !path.exists());
    let table = match scheme {
        None => bench::read(&bench.lab(), &|| Ok(Arc::new(FileBlob::open(path, input)?)), chunk, requests, &effort)?,
        Some(scheme) => {
            let most = requests.iter().copied().max().unwrap_or(1);
            let store = bench.rig.store_opener(scheme)(most)?;
            let object = store.find(input)?.with_context(|| format!("not found: {input}"))?;
            bench::read(&bench.lab(), &|| store.open(&object), chunk, requests, &effort)?
        }
    };
    bench.put(&table)?;
    Ok(bench)
}

/// Samples' length that tuning takes, before which it stops only if nothing is left to try.
const TUNING_SAMPLES: f64 = 30.0;

/// Runs every experiment that a report contains, and the usual job after each of them.
fn all(args: &AllArgs) -> anyhow::Result<(Bench, Value)> {
    let (bench, effort) = open(&args.bench, Sizes::AsGivenAndSmall)?;
    let bench = bench.without_warnings();
    let mut tables = Vec::new();
    let effort = Effort { peers: args.others.peers.clone(), ..effort };
    let check = all_but_control(&bench, &args.bench, &effort, &mut tables)?;
    let disturbed = tables.iter().filter(|table: &&Table| table.disturbed().is_some());
    let disturbed: Vec<&str> = disturbed.map(|table| table.schema().file).collect();
    if !disturbed.is_empty() {
        bench.say(&format!(
            "\nDISTURBED: {}. The column `disturbed` says by what. Measure again while the machine does nothing else.",
            disturbed.join(", ")
        ))?;
    }
    Ok((bench, check))
}

fn all_but_control(bench: &Bench, args: &BenchArgs, effort: &Effort, tables: &mut Vec<Table>) -> anyhow::Result<Value> {
    let photos = bench.photos()?;
    let mut control = Control::new(photos, effort);
    let mut keep = |table: Table| -> Result<(), LabError> {
        control.sample(&bench.lab(), table.schema().file)?;
        tables.push(table);
        Ok(())
    };
    keep(profile_of(bench, args)?)?;
    let mut put = |table: &Table| keep(bench.put(table).map_err(|error| LabError::Setting(format!("{error:#}")))?);
    let vectors = if args.effort.quick { SinkVectors::quick() } else { SinkVectors::usual() };
    bench::all(&bench.lab(), &bench.sets, &vectors, effort, &mut put)?;
    keep(bench.put(&bench::worker(&bench.lab(), photos, &service(effort), effort)?)?)?;
    let budget = Duration::from_secs_f64(TUNING_SAMPLES * effort.seconds);
    keep(bench.put(&tune::run(&bench.lab(), photos, budget)?.table)?)?;
    let check = predictions_of(bench, args)?;
    let errors = errors_of(&check);
    keep(check.table)?;
    // The last, because what the others measured need not be predicted.
    keep(diagnosis(bench, args)?)?;
    if let Some(headline) = tables.iter().find(|table| table.schema().file == schema::HEADLINE.file) {
        timeline(bench, headline)?;
    }
    let conditions = bench.conditions().and_disturbed(control.unsteady());
    tables.push(bench.put_under(&control.table(), conditions)?);
    bench.say(&report::checklist(&Report::read(bench.out())?))?;
    Ok(errors)
}

/// Diagnoses a job, prints the whole diagnosis, and returns its ladder.
fn diagnosis(bench: &Bench, args: &BenchArgs) -> anyhow::Result<Table> {
    let options = diagnose::DiagnoseOptions::new(bench.sink.as_str());
    let options = if args.effort.quick { options.quick() } else { options };
    let seconds = args.effort.seconds.map_or(options.seconds, |seconds| options.seconds.min(seconds.as_secs_f64()));
    let folder = Some(bench.out().to_owned());
    let options = diagnose::DiagnoseOptions { seconds, budget: Duration::MAX, folder, ..options };
    let mut diagnosis = diagnose::run(&bench.lab(), bench.photos()?, &bench.base(), &options)?;
    diagnosing::put(bench, &mut diagnosis)?;
    Ok(diagnosis.ladder)
}

/// Writes the timelines of the slow configuration that the headline begins with, and of all its improvements together.
fn timeline(bench: &Bench, headline: &Table) -> anyhow::Result<()> {
    const BATCHES: usize = 6;
    let Some((before, _)) = of_step(bench, headline, "baseline") else { return Ok(()) };
    let Some((after, times)) = of_step(bench, headline, "all combined") else { return Ok(()) };
    let images = BATCHES * before.batch;
    // Both take about as long.
    let images_after = (images as f64 * times).ceil();
    let table =
        bench::timeline(&bench.lab(), bench.photos()?, (&before, images as u64), (&after, images_after as u64))?;
    bench.write(&table.under(bench.conditions()))?;
    Ok(())
}

/// Returns the setting of the headline's first row for this change, and its rate ÷ the baseline's; `None` if it could
/// not run.
fn of_step(bench: &Bench, headline: &Table, change: &str) -> Option<(Setting, f64)> {
    let text = |row: usize, column: &str| headline.get(row, column).to_string();
    let row = (0..headline.len()).find(|&row| text(row, "change") == change)?;
    let count = |column: &str| headline.number(row, column).map(|count| count as usize);
    let setting = Setting {
        decoder: text(row, "decoder"),
        resizer: text(row, "resizer"),
        encoder: text(row, "encoder"),
        dtype: DType::ALL.into_iter().find(|dtype| dtype.name() == text(row, "dtype"))?,
        scale: text(row, "decode_scale").parse().ok()?,
        workers: count("workers")?,
        threads: count("threads")?,
        batch: count("batch")?,
        ..bench.base()
    };
    Some((setting, headline.number(row, "times_baseline")?))
}

fn profile_of(bench: &Bench, args: &BenchArgs) -> anyhow::Result<Table> {
    let options = profile::ProfileOptions {
        settings: vec![bench.base()],
        images: args.effort.images,
        normalize: true,
        project: bench::TARGET,
        trace: None,
        sink: bench.sink.clone(),
    };
    super::profile::measure(bench, &options)
}

fn predictions_of(bench: &Bench, args: &BenchArgs) -> anyhow::Result<PlanCheck> {
    let photos = bench.photos()?;
    let effort = effort(&args.effort);
    let rig = bench.rig.as_ref();
    let options = plan_check::PlanCheckOptions {
        settings: plan_check::settings(rig),
        on_the_web: plan_check::settings_for_the_web(rig),
        rounds: effort.samples,
        seconds: effort.seconds,
    };
    let mut check = plan_check::run(&bench.lab(), photos, &options).context("predictions")?;
    check.table = bench.put(&check.table)?;
    let median = 100.0 * check.median_error;
    bench.say(&format!("the model's error: median {median:.1} %, worst {:.1} %", 100.0 * check.worst_error))?;
    Ok(check)
}

fn errors_of(check: &PlanCheck) -> Value {
    json!({ "median_error": check.median_error, "worst_error": check.worst_error })
}
