//! `foveate embed`.

use std::cmp::Reverse;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foveate::embed::{Backends, CacheSettings, EmbedRun, Settings, UpdatePreview};
use foveate::model::OpenOptions;
use foveate::pipeline::{Cancel, FailurePolicy, Progress, RunError, RunReport, Update};
use foveate::profile::card::{CardSampler, CardUse, Cards};
use foveate::profile::process::{peak_resident_bytes, processor_time};
use foveate::sink::{Existing, Finished, Published, SinkError};
use foveate::source::ListingStats;

use super::args::EmbedArgs;
use super::config::Evidence;
use super::dry_run::DryRun;
use super::exit::{Exit, Usage};
use super::{console, dry_run, job, progress, remedy, summary, trace};

pub(crate) fn run(args: &EmbedArgs) -> anyhow::Result<Exit> {
    let cancel = Cancel::default();
    job::cancel_on_signal(&cancel)?;
    let changes = Update::Changes { by_content: args.by_content, prune: args.prune };
    match (args.update, args.retry_failures) {
        (true, true) => {
            // What is new can fail, too, so it comes first. The summary is that of the second.
            let ended = session(args, &cancel, options(args), Some(changes), true)?;
            if ended != Exit::Complete {
                return Ok(ended);
            }
            let options = Settings { changes_file: None, ..options(args) };
            session(args, &cancel, options, Some(Update::Failures), false)
        }
        (true, false) => session(args, &cancel, options(args), Some(changes), false),
        (false, true) => session(args, &cancel, options(args), Some(Update::Failures), false),
        (false, false) => session(args, &cancel, options(args), None, false),
    }
}

/// Embeds, or updates an output. Another session follows if `is_first`, which tells the outcome.
fn session(
    args: &EmbedArgs,
    cancel: &Cancel,
    options: Settings,
    update: Option<Update>,
    is_first: bool,
) -> anyhow::Result<Exit> {
    let counter = progress::Found::new(args.quiet);
    let mut listing = job::list(&options, |found| counter.show(found))?;
    counter.clear();
    let found = listing.stats().clone();
    if !args.quiet && !args.dry_run {
        job::tell_listing(&found);
    }
    let kinds = args.dry_run.then(|| dry_run::kinds(&mut listing)).transpose()?;
    let download = progress::Download::new(args.quiet);
    let model = OpenOptions { progress: &download, ..OpenOptions::from_env() };
    let backends = Arc::new(Backends::compiled());
    let is_preview = args.dry_run && args.update && options.can_be_updated()?;
    if args.dry_run && args.changes.is_some() && !is_preview {
        let output = args.output.display();
        let why = anyhow::anyhow!("{output} is not complete, so that a dry run finds no changes; leave out --changes");
        return Err(Usage::from(why).into());
    }
    let mut job = match update.filter(|_| is_preview || !args.dry_run) {
        Some(update) => options.prepare_update(listing, update, &backends, &model)?,
        None => options.prepare(Box::new(listing), &backends, &model)?,
    };
    download.clear();
    if let Some(config) = &args.job.file.config {
        add_evidence(&mut job, config, args.quiet)?;
    }
    if let Some(warning) = job::warning_of_f32(&args.job.model, &args.job.engine).filter(|_| !args.quiet) {
        console::say!("warning: {warning}");
    }
    if is_preview {
        return preview(args, &found, job, cancel);
    }
    if let Some(kinds) = kinds {
        return rehearse(args, &options, DryRun::new(kinds, found, job, &options, cancel)?, cancel);
    }
    if job.is_seeded() && !args.quiet {
        console::say!(
            "note: {} has generated weights: real speed, vectors without meaning",
            args.job.model.network.model
        );
    }
    if !args.quiet {
        console::say!("{}", plan(&options, &job));
    }
    let before = processor_time();
    let cards = (options.engine.device != "cpu").then(|| Cards::find(&options.engine.device).map(CardSampler::start));
    let outcome = watch(args, job, cancel);
    let cpu = processor_time().zip(before).map(|(after, before)| after - before);
    let cards = cards.map(|sampler| {
        sampler.and_then(|sampler| sampler.finish().ok_or_else(|| "the driver tells nothing of it".to_owned()))
    });
    if let (Some(path), Some(trace)) = (&args.trace, &options.trace) {
        let written = trace::write(path, trace)?;
        if !args.quiet {
            console::say!("{written}");
        }
    }
    match outcome {
        Err(RunError::Sink(SinkError::AlreadyComplete(done))) => Ok(already_complete(args, &found, &done)),
        outcome => finish(args, &found, outcome, Resources { cpu, cards }, is_first),
    }
}

/// Adds the drift budget of the configuration file to the manifest, if its evidence is for this job's vectors.
fn add_evidence(job: &mut EmbedRun, config: &Path, quiet: bool) -> anyhow::Result<()> {
    let Some(evidence) = Evidence::read(config)? else { return Ok(()) };
    match evidence.difference(&job.manifest().fingerprint) {
        None => evidence.info().for_each(|(name, value)| job.add_info(name, value)),
        Some(why) if !quiet => {
            console::say!(
                "warning: the manifest leaves out the drift budget of {}: {why}; tune again",
                config.display()
            );
        }
        Some(_) => {}
    }
    Ok(())
}

/// Prints what the update would do, and the reason if it would stop.
fn preview(args: &EmbedArgs, found: &ListingStats, job: EmbedRun, cancel: &Cancel) -> anyhow::Result<Exit> {
    let UpdatePreview { changes, refusal } = job.preview(cancel)?;
    if cancel.is_cancelled() {
        return Ok(Exit::Interrupted);
    }
    match args.json {
        true => writeln!(console::stdout(), "{}", summary::preview_json(&changes, found, &args.output))?,
        false => write!(console::stdout(), "{}", summary::changes_text(&changes))?,
    }
    refusal.map_or(Ok(Exit::Complete), |why| Err(why.into()))
}

/// Prints what the run would do.
fn rehearse(args: &EmbedArgs, options: &Settings, dry_run: DryRun, cancel: &Cancel) -> anyhow::Result<Exit> {
    if cancel.is_cancelled() {
        return Ok(Exit::Interrupted);
    }
    match args.json {
        true => writeln!(console::stdout(), "{}", dry_run.json(options))?,
        false => write!(console::stdout(), "{}", dry_run.text(options))?,
    }
    Ok(Exit::Complete)
}

/// Collects the job options from the arguments.
pub(crate) fn options(args: &EmbedArgs) -> Settings {
    Settings {
        existing: if args.overwrite { Existing::Overwrite } else { Existing::Resume },
        storage: args.storage.clone(),
        part_items: args.part_items,
        output_settings: (!args.output_store_option.is_empty()).then(|| args.output_store_option.clone()),
        staging: args.staging.clone(),
        shard: args.shard,
        failures: failure_policy(args),
        changes_file: args.changes.clone(),
        max_removed: args.max_removed,
        max_unreadable: args.max_unreadable.0,
        commit_every: args.commit_every,
        by_content: args.by_content,
        // A dry run writes nothing.
        cache: if args.dry_run { CacheSettings::default() } else { args.cache.clone() },
        recent_bytes: args.recent_memory.0.unwrap_or(0),
        check: args.check,
        trace: trace::new(args.trace.as_deref()),
        ..args.job.settings(&args.output)
    }
}

fn failure_policy(args: &EmbedArgs) -> FailurePolicy {
    if args.strict { FailurePolicy::Count(0) } else { args.max_failures.unwrap_or_default() }
}

/// Describes the job in two lines: the chain of backends, and their threads.
fn plan(options: &Settings, job: &EmbedRun) -> String {
    let fingerprint = &job.manifest().fingerprint;
    let inputs = job.inputs();
    let chain = ["decoder", "resizer", "encoder"].map(|name| fingerprint.get(name).map_or("", String::as_str));
    let chain = chain.join(" → ");
    format!(
        "{} · {} on {} in {} · recipe {} · {chain} → {}\nthreads: {}",
        inputs.count().map_or_else(|| "containers".to_owned(), |count| summary::counted(count, "input")),
        options.model.network.model,
        options.engine.device,
        options.model.dtype().name(),
        options.model.network.preprocess.name(),
        options.output.display(),
        dry_run::threads(options)
    )
}

fn watch(args: &EmbedArgs, job: EmbedRun, cancel: &Cancel) -> Result<RunReport, RunError> {
    let progress = Progress::default();
    let inputs = job.inputs();
    progress::watch(args.quiet || args.json, inputs, &progress, || job.run(cancel, &progress))
}

/// The use of the machine by a job.
struct Resources {
    /// Processor time.
    cpu: Option<Duration>,
    /// The use of the forward's cards, or why that is not known; `None` on a CPU.
    cards: Option<Result<CardUse, String>>,
}

/// Prints the job's outcome and converts it to an exit code.
fn finish(
    args: &EmbedArgs,
    found: &ListingStats,
    outcome: Result<RunReport, RunError>,
    Resources { cpu, cards }: Resources,
    is_first: bool,
) -> anyhow::Result<Exit> {
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            let error = error.into();
            remedy::tell(&error);
            return Ok(Exit::of(&error));
        }
    };
    if is_first {
        return Ok(if report.published.is_some() { Exit::Complete } else { Exit::Interrupted });
    }
    if args.json {
        let mut summary = summary::json(&report, found, &args.output);
        summary["session"]["cpu_seconds"] = cpu.map(|cpu| cpu.as_secs_f64()).into();
        summary["peak_resident_bytes"] = peak_resident_bytes().into();
        summary["device"] = summary::cards_json(cards.as_ref());
        console::summary(summary);
    } else if !args.quiet {
        let cards = cards.as_ref().map(summary::cards_text).unwrap_or_default();
        console::summary((summary::text(&report, &args.output) + &cards).trim_end());
    }
    if let Some(why) = report.published.as_ref().and_then(|published| published.leftover.as_ref()) {
        console::say!("warning: the output is complete, but something is left of the work in progress: {why}");
    }
    Ok(match &report.published {
        None => Exit::Interrupted,
        Some(_) if report.settled == 0 && (args.shard.is_some() || report.changes.is_some()) => Exit::Complete,
        Some(_) if report.settled == 0 => {
            console::say!("error: the inputs have no images");
            Exit::Failures
        }
        Some(published) if published.rows == 0 => {
            console::say!(
                "error: none of {} gave a vector{}; the reasons are in {}{}",
                summary::counted(published.failures, "input"),
                kinds(&report),
                failures_file(published),
                accepting(&report)
            );
            Exit::Failures
        }
        Some(published) if published.failures > 0 && !args.quiet => {
            console::say!(
                "note: {}{}; the reasons are in {}{}",
                summary::counted(published.failures, "failure"),
                kinds(&report),
                failures_file(published),
                accepting(&report)
            );
            Exit::Complete
        }
        Some(_) => Exit::Complete,
    })
}

/// Counts this session's failures by kind: ` (3 decode: truncated JPEG, 1 read: not found)`.
fn kinds(report: &RunReport) -> String {
    const MOST: usize = 5;
    let mut kinds: Vec<_> = report.failure_kinds.iter().collect();
    kinds.sort_by_key(|&(_, count)| Reverse(count));
    let counted: u64 = kinds.iter().take(MOST).map(|&(_, count)| count).sum();
    let mut named: Vec<_> = kinds.iter().take(MOST).map(|(kind, count)| format!("{count} {kind}")).collect();
    if report.failures > counted {
        named.push(format!("{} others", report.failures - counted));
    }
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

/// Names the options that accept what failed, with the one that tries it again.
fn accepting(report: &RunReport) -> String {
    let options = [("truncated ", "--allow-truncated"), ("more pixels", "--max-pixels"), ("more bytes", "--max-bytes")];
    let mut fitting = Vec::new();
    for (sign, option) in options {
        if report.failure_kinds.keys().any(|kind| kind.contains(sign)) {
            fitting.push(option);
        }
    }
    match fitting.as_slice() {
        [] => String::new(),
        [option] => format!("; `--retry-failures {option}` accepts more"),
        options => format!("; `--retry-failures {}` accept more", options.join(" ")),
    }
}

/// Returns the failures file, which sinks list last.
fn failures_file(published: &Published) -> std::path::Display<'_> {
    published.files.last().map_or(Path::new(""), PathBuf::as_path).display()
}

/// Handles a repeated command after a finished run: counts and exit code are those of the first time.
fn already_complete(args: &EmbedArgs, found: &ListingStats, done: &Finished) -> Exit {
    let Published { rows, failures, .. } = done.published;
    let inputs = rows + failures;
    if args.json {
        console::summary(summary::already_complete(done, found));
    } else if !args.quiet {
        console::summary(format_args!(
            "{} is already complete: {}; pass --overwrite to replace it",
            done.path.display(),
            summary::outcome(rows, failures)
        ));
    }
    if rows == 0 && failures > 0 {
        console::say!(
            "error: none of {} gave a vector; the reasons are in {}",
            summary::counted(failures, "input"),
            failures_file(&done.published)
        );
        return Exit::Failures;
    }
    let limit = failure_policy(args);
    if !limit.is_exceeded(failures, inputs, true) {
        return Exit::Complete;
    }
    console::say!("error: {failures} of {inputs} inputs failed, more than the limit of {limit}");
    Exit::Failures
}
