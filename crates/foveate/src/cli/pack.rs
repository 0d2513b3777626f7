//! `foveate pack`.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use foveate::collect::Sample;
use foveate::embed::{Backends, Settings};
use foveate::model::OpenOptions;
use foveate::pack::{Begun, Drift, PackError, PackOptions, Resize};
use foveate::pipeline::{Cancel, Progress};
use foveate::sink::{Existing, OutputManifest};
use foveate::source::Source;
use foveate::verify::VerifyError;

use super::exit::Exit;
use super::pack_args::PackArgs;
use super::{console, job, progress};

pub(crate) fn run(args: &PackArgs) -> anyhow::Result<Exit> {
    let cancel = Cancel::default();
    job::cancel_on_signal(&cancel)?;
    let options = options(args);
    let counter = progress::Found::new(args.quiet);
    let mut listing = job::list(&options.job, |found| counter.show(found))?;
    counter.clear();
    if !args.quiet {
        job::tell_listing(listing.stats());
    }
    let download = progress::Download::new(args.quiet);
    let model = OpenOptions { progress: &download, ..OpenOptions::from_env() };
    let backends = Arc::new(Backends::compiled());
    let begun = options.begin(&listing, &backends, &model)?;
    download.clear();
    let mut packer = match begun {
        Begun::Complete(manifest) => return tell(args, &manifest, "is already complete: "),
        Begun::Pack(packer) => packer,
    };
    let progress = Progress::default();
    let extent = listing.extent();
    let shown = args.quiet || args.json;
    if !progress::watch(shown, extent, &progress, || packer.run(&mut listing, &cancel, &progress))? {
        return Ok(Exit::Interrupted);
    }
    if args.resize.is_some() && !args.no_drift {
        listing.rewind()?;
        let sample = Sample::draw(Box::new(listing), args.drift_sample as u64, 0)?;
        match packer.measure_drift(sample, &backends, &model, &cancel) {
            Err(PackError::Drift(VerifyError::Interrupted)) => return Ok(Exit::Interrupted),
            measured => measured?,
        }
    }
    let (manifest, leftover) = packer.finish()?;
    if let Some(leftover) = leftover {
        console::say!("warning: the shards are complete, but their work in progress could not be removed: {leftover}");
    }
    tell(args, &manifest, "has ")
}

/// Collects the options from the arguments.
pub(crate) fn options(args: &PackArgs) -> PackOptions {
    let cores = available_parallelism().map_or(1, NonZero::get);
    PackOptions {
        job: Settings {
            existing: if args.overwrite { Existing::Overwrite } else { Existing::Resume },
            max_unreadable: args.max_unreadable.0,
            ..args.job.settings(&args.output)
        },
        format: args.format.clone(),
        shard_bytes: args.shard_size,
        resize: args.resize.map(|edge| Resize { edge, quality: args.quality }),
        workers: args.job.engine.workers.unwrap_or(cores),
    }
}

/// Prints the outcome and converts it to an exit code.
fn tell(args: &PackArgs, manifest: &OutputManifest, is: &str) -> anyhow::Result<Exit> {
    let output = args.output.display();
    let OutputManifest { format, rows: members, failures, parts: shards, info, .. } = manifest;
    if args.json {
        console::summary(manifest.to_json().trim_end());
    } else if !args.quiet {
        let (inputs, bytes) =
            (members + failures, shards.iter().flat_map(|shard| &shard.files).map(|file| file.bytes).sum::<u64>());
        console::summary(format_args!(
            "{output} {is}{inputs} inputs = {members} images in {} shards ({:.1} MB) + {failures} failures\n\
             to embed them: {}",
            shards.len(),
            bytes as f64 / 1e6,
            embed_command(&args.output, format)
        ));
    }
    if let Some(Drift { images, min, p1, median }) = Drift::of(info).filter(|_| !args.json && !args.quiet) {
        console::summary(format_args!(
            "cosine of {images} photos' vectors before and after: min {min:.6}   p1 {p1:.6}   median {median:.6}"
        ));
    }
    if *failures > 0 && !args.quiet {
        console::say!("note: the reasons of the failures are in {}", args.output.join("_failures.csv").display());
    }
    Ok(if *members == 0 { Exit::Failures } else { Exit::Complete })
}

/// The command that embeds a folder of shards.
pub(crate) fn embed_command(folder: &Path, format: &str) -> String {
    format!("foveate embed '{}' --id-column id", folder.join(format!("*.{format}")).display())
}
