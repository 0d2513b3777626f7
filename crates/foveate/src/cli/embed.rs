//! `foveate embed`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use foveate::core::PixelLimits;
use foveate::decode::DecoderOptions;
use foveate::dinov2::OpenOptions;
use foveate::embed::{Backends, EmbedOptions, Job};
use foveate::pipeline::{Cancel, FailurePolicy, Progress, RunError, RunReport};
use foveate::sink::{Existing, SinkError};
use foveate::source::{Input, Listing, Source};

use super::args::EmbedArgs;
use super::{Exit, progress, summary};

pub(crate) fn run(args: &EmbedArgs) -> anyhow::Result<Exit> {
    silence_worker_panics();
    let cancel = Cancel::default();
    cancel_on_signal(&cancel)?;

    let options = options(args);
    let counter = progress::Found::new(args.quiet);
    let listing = options.list(|found| counter.show(found)).context("cannot list the inputs")?;
    counter.clear();
    check_listing(&listing)?;
    if let Some(left_out) = left_out(&listing).filter(|_| !args.quiet) {
        eprintln!("note: {left_out}");
    }
    let download = progress::Download::new(args.quiet);
    let model = OpenOptions { progress: &download, ..OpenOptions::from_env() };
    let job = options.prepare(Box::new(listing), &Arc::new(Backends::compiled()), &model)?;
    download.clear();
    if job.is_seeded() && !args.quiet {
        eprintln!("note: {} has generated weights: real speed, vectors without meaning", args.model);
    }
    if !args.quiet {
        eprintln!("{}", plan(&options, &job));
    }
    finish(args, watch(args, job, &cancel))
}

/// Everything about the job that the arguments tell.
fn options(args: &EmbedArgs) -> EmbedOptions {
    let paths = args.inputs.iter().cloned().map(Input::Path);
    let lists = args.from_list.iter().cloned().map(Input::List);
    let defaults = EmbedOptions::new(paths.chain(lists).collect(), &args.model, &args.output);
    EmbedOptions {
        limit: args.limit,
        max_bytes: args.max_bytes,
        existing: if args.overwrite { Existing::Overwrite } else { Existing::Resume },
        sink: args.sink.clone(),
        decoder: args.decoder.clone(),
        decode_scale: args.decode_scale,
        resizer: args.resizer.clone(),
        encoder: args.encoder.clone(),
        recipe: args.preprocess,
        pooling: args.pooling.into(),
        dtype: args.dtype.into(),
        device: args.device.clone(),
        encoder_threads: args.threads.unwrap_or(defaults.encoder_threads),
        encoder_settings: args.encoder_option.iter().cloned().collect(),
        element: args.out_dtype.into(),
        part_items: args.part_items,
        shard: args.shard,
        decoding: DecoderOptions { allow_truncated: args.allow_truncated, ..defaults.decoding },
        orientation: args.orientation.into(),
        normalize: args.normalize.into(),
        limits: PixelLimits { max_pixels: args.max_pixels },
        batch: args.batch,
        workers: args.workers.unwrap_or(defaults.workers),
        readers: args.readers,
        failures: if args.strict { FailurePolicy::Count(0) } else { args.max_failures.unwrap_or_default() },
        commit_every: args.commit_every,
        ..defaults
    }
}

/// What is about to happen, in two lines: the chain of backends, and the threads that it gets.
fn plan(options: &EmbedOptions, job: &Job) -> String {
    let chosen = |name: &str| job.manifest().fingerprint.get(name).map_or("", String::as_str);
    let inputs = job.inputs();
    let chain = ["decoder", "resizer", "encoder"].map(chosen).join(" → ");
    let workers = match options.workers {
        0 => "every stage in turn on one thread".to_owned(),
        n => format!("{} to read, {n} to decode and resize", options.readers),
    };
    format!(
        "{} inputs · {} on {} in {} · recipe {} · {chain} → {}\nthreads: {workers}, {} for the forward · batches of {}",
        inputs.end - inputs.start,
        options.model,
        options.device,
        options.dtype.name(),
        options.recipe,
        options.output.display(),
        options.encoder_threads,
        options.batch
    )
}

/// Nothing to do is an error: an empty output would hide a mistyped path or shard.
fn check_listing(listing: &Listing) -> anyhow::Result<()> {
    if listing.total() == 0 {
        anyhow::bail!(
            "no inputs: {}",
            left_out(listing).unwrap_or_else(|| "the folders and lists are empty".to_owned())
        );
    }
    if listing.range().is_empty() {
        anyhow::bail!("no inputs: this shard or limit leaves none of {}", listing.total());
    }
    Ok(())
}

/// What folders hold that is no input.
fn left_out(listing: &Listing) -> Option<String> {
    let stats = listing.stats();
    let (other, hidden) = (stats.skipped_other, stats.skipped_hidden);
    (other + hidden > 0)
        .then(|| format!("left out of folders: {other} files without an image's extension, {hidden} hidden entries"))
}

fn watch(args: &EmbedArgs, job: Job, cancel: &Cancel) -> Result<RunReport, RunError> {
    let progress = Progress::default();
    let inputs = job.inputs();
    progress::watch(args.quiet || args.json, inputs, &progress, || job.run(cancel, &progress))
}

/// Prints what became of the job, and turns it into an exit code.
fn finish(args: &EmbedArgs, outcome: Result<RunReport, RunError>) -> anyhow::Result<Exit> {
    let report = match outcome {
        Ok(report) => report,
        Err(RunError::Sink(SinkError::AlreadyComplete(file))) => return already_complete(args, &file),
        Err(error) => {
            let exit = if matches!(error, RunError::TooManyFailures { .. }) { Exit::Failures } else { Exit::Fault };
            eprintln!("error: {}", super::chain(&error.into()));
            return Ok(exit);
        }
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", summary::json(&report, &args.output))?;
    } else if !args.quiet {
        write!(out, "{}", summary::text(&report, &args.output))?;
    }
    Ok(match &report.published {
        None => Exit::Interrupted,
        Some(published) if published.rows == 0 => {
            eprintln!(
                "error: none of the {} inputs gave a vector; the reasons are in the failures file",
                report.inputs
            );
            Exit::Failures
        }
        Some(_) => Exit::Complete,
    })
}

/// The same command after a run that reached its end: done, as a job queue that repeats a task expects.
fn already_complete(args: &EmbedArgs, file: &Path) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::json!({ "status": "already complete", "output": file.display().to_string() }))?;
    } else if !args.quiet {
        writeln!(out, "{} is already complete; --overwrite makes it anew", file.display())?;
    }
    Ok(Exit::Complete)
}

/// The first signal asks the run to commit and stop, the second ends the process at once.
fn cancel_on_signal(cancel: &Cancel) -> anyhow::Result<()> {
    let cancel = cancel.clone();
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(130);
        }
        eprintln!("\ninterrupted: finishing the batch in hand; once more to stop at once");
        cancel.cancel();
    })
    .context("cannot handle signals")
}

/// A decoder that panics on a bad image is caught and recorded as that image's failure; the default message about it
/// would only tear the progress display apart.
fn silence_worker_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("decode-"));
        if !is_worker {
            default(panic);
        }
    }));
}
