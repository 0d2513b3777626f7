//! The parts that the embedding commands share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use anyhow::Context;
use foveate::core::PixelLimits;
use foveate::decode::DecoderOptions;
use foveate::embed::EmbedOptions;
use foveate::pipeline::Cancel;
use foveate::source::{Input, Listing, ListingStats, Separator, Source, SourceError};

use super::console;
use super::exit::Usage;
use super::job_args::{EmbeddingArgs, InputArgs, JobArgs, ModelArgs, RunArgs};
use super::lab_args::{LabArgs, StageArgs};
use super::summary;

/// Collects the options of a job that writes to `output`.
pub(crate) fn options(args: &JobArgs, output: &Path) -> EmbedOptions {
    let options = with_input(&args.input, embedding(&args.embedding, output));
    EmbedOptions {
        inputs: job_inputs(args),
        max_listing: args.max_listing,
        listing: args.listing.clone(),
        columns: args.columns.clone(),
        id_column: args.id_column.clone(),
        readers: args.ahead.readers,
        prefetch: args.ahead.prefetch,
        ..options
    }
}

/// Collects the options of a job that is measured.
pub(crate) fn measured(args: &LabArgs) -> EmbedOptions {
    let (readers, prefetch) = (args.ahead.readers, args.ahead.prefetch);
    EmbedOptions { readers, prefetch, ..with_input(&args.input, run(&args.run, Path::new(""))) }
}

/// Collects the options of a stage that is measured alone.
pub(crate) fn stage(args: &StageArgs) -> EmbedOptions {
    with_input(&args.input, model(&args.model, Path::new("")))
}

fn with_input(args: &InputArgs, options: EmbedOptions) -> EmbedOptions {
    EmbedOptions {
        inputs: inputs(args, Separator::Line),
        limit: args.limit,
        max_bytes: args.max_bytes,
        image_column: args.image_column.clone(),
        names: args.names(),
        requests: args.requests,
        headers: args.web.headers(),
        max_redirects: args.web.max_redirects,
        store_settings: args.store_option.iter().cloned().collect(),
        ..options
    }
}

/// Returns what ends the entries of the lists.
pub(crate) fn separator(args: &JobArgs) -> Separator {
    if args.null { Separator::Nul } else { Separator::Line }
}

/// Returns the inputs that the arguments name, in the order of the output's rows.
pub(crate) fn inputs(args: &InputArgs, separator: Separator) -> Vec<Input> {
    let paths = args.inputs.iter().cloned().map(Input::Path);
    paths.chain(args.from_list.iter().map(|list| Input::List(list.clone(), separator))).collect()
}

/// Returns the inputs of a job, whose lists may be tables.
pub(crate) fn job_inputs(args: &JobArgs) -> Vec<Input> {
    let mut inputs = inputs(&args.input, separator(args));
    for input in &mut inputs {
        if let (Input::List(list, _), Some(column)) = (&*input, &args.path_column) {
            *input = Input::Table(list.clone(), column.clone());
        }
    }
    inputs
}

/// Collects the options of embedding, which do not depend on the source of the images.
pub(crate) fn embedding(args: &EmbeddingArgs, output: &Path) -> EmbedOptions {
    let options = run(&args.run, output);
    EmbedOptions {
        decoding: DecoderOptions { allow_truncated: args.allow_truncated, ..options.decoding },
        orientation: args.orientation.into(),
        ..options
    }
}

fn run(args: &RunArgs, output: &Path) -> EmbedOptions {
    let defaults = model(&args.model, output);
    EmbedOptions {
        decoder: args.decoder.clone(),
        decode_scale: args.decode_scale.unwrap_or_default(),
        resizer: args.resizer.clone(),
        encoder: args.encoder.clone(),
        pooling: args.pooling.into(),
        dtype: args.dtype.map_or(defaults.dtype, Into::into),
        device: args.device.clone(),
        encoder_threads: args.threads.unwrap_or(defaults.encoder_threads),
        encoder_settings: args.encoder_option.iter().cloned().collect(),
        decoder_settings: args.decoder_option.iter().cloned().collect(),
        normalize: args.normalize.into(),
        batch: args.batch,
        workers: args.workers.unwrap_or_else(|| EmbedOptions::usual_workers(&args.device, args.decoder.as_deref())),
        ..defaults
    }
}

fn model(args: &ModelArgs, output: &Path) -> EmbedOptions {
    let limits = PixelLimits { max_pixels: args.max_pixels };
    EmbedOptions { recipe: args.preprocess, limits, ..EmbedOptions::new(Vec::new(), &args.model, output) }
}

/// A warning if a GPU computes in f32 because no precision was asked for.
pub(crate) fn warning_of_f32(args: &RunArgs) -> Option<String> {
    let is_gpu = args.device.split(',').any(|device| device.starts_with("cuda"));
    (args.dtype.is_none() && is_gpu).then(|| {
        format!(
            "{} computes in f32, which takes about ten times as long as half precision; add `--dtype f16` or `--dtype \
             bf16` (`foveate verify` measures how much the vectors change), or `--dtype f32` to keep it",
            args.device
        )
    })
}

/// Set while inputs are listed. Nothing was written then, so a signal ends the process at once, even if a list's next
/// line never comes.
static LISTING: AtomicBool = AtomicBool::new(false);

/// Lists the inputs. An empty list is a [`Usage`] error, because an empty output would hide a mistyped path. A shard
/// may be empty.
pub(crate) fn list(options: &EmbedOptions, progress: impl FnMut(u64)) -> anyhow::Result<Listing> {
    LISTING.store(true, SeqCst);
    let listing = options.list(progress);
    LISTING.store(false, SeqCst);
    let mut listing = match listing {
        Ok(listing) => listing,
        Err(error @ SourceError::Io { .. }) => return Err(error.into()),
        Err(error) => return Err(Usage::from(anyhow::Error::new(error)).into()),
    };
    match nothing_to_do(&mut listing, options.shard.is_some())? {
        None => Ok(listing),
        Some(why) => Err(Usage::from(anyhow::anyhow!("no inputs: {why}")).into()),
    }
}

/// Lists the inputs of a command that reads its photos several times.
pub(crate) fn list_again(options: &EmbedOptions) -> anyhow::Result<Listing> {
    if options.inputs.contains(&Input::Path("-".into())) {
        let why = "this command reads its photos several times, and standard input only once; save it to a file";
        return Err(Usage::from(anyhow::anyhow!(why)).into());
    }
    list(options, |_| ())
}

fn nothing_to_do(listing: &mut Listing, is_shard: bool) -> anyhow::Result<Option<String>> {
    let total = listing.total();
    if total == 0 {
        return Ok(Some(left_out(listing.stats()).unwrap_or_else(|| "the folders and lists are empty".to_owned())));
    }
    if listing.extent().count() == Some(0) {
        return Ok((!is_shard).then(|| format!("this limit leaves none of {total}")));
    }
    if listing.stats().faults < total {
        return Ok(None);
    }
    // Empty for a pattern without a match, or a folder of broken links.
    let first = listing.next_item()?;
    Ok(first.map(|item| format!("{}: {}", item.id, item.fault.unwrap_or_default())))
}

/// Says what a listing found that its user may not expect.
pub(crate) fn tell_listing(stats: &ListingStats) {
    if stats.linked > 0 {
        let names = summary::counted(stats.linked, "name");
        console::say!("note: {names} by links or in folders that are named twice: a file may have several rows");
    }
    if stats.faults > 0 {
        let inputs = summary::counted(stats.faults, "input");
        console::say!("note: {inputs} cannot be read, as listing found: recorded as failures, with the reasons");
    }
    if let Some(left_out) = left_out(stats) {
        console::say!("note: {left_out}");
    }
}

/// Describes the files in the folders that are not inputs.
pub(crate) fn left_out(stats: &ListingStats) -> Option<String> {
    let (other, hidden, containers) = (stats.skipped_other, stats.skipped_hidden, stats.skipped_containers);
    let (system, excluded) = (stats.skipped_system, stats.skipped_excluded);
    let foreign = foreign(stats);
    (other + hidden + containers + system + excluded > 0 || foreign.is_some()).then(|| {
        let system = match system {
            0 => String::new(),
            count => format!(", {count} folders of copies and deleted files (such as @eaDir; `--include NAME` takes one)"),
        };
        let excluded = if excluded == 0 { String::new() } else { format!(", {excluded} by --include and --exclude") };
        let foreign = foreign.unwrap_or_default();
        let containers = match containers {
            0 => String::new(),
            count => format!("{count} containers of images (to read them, name them or match them: '*.tar'), "),
        };
        format!("left out of folders: {foreign}{containers}{other} files without an image's extension, {hidden} hidden entries{system}{excluded}")
    })
}

/// Describes the images whose format this build cannot read, and what would.
fn foreign(stats: &ListingStats) -> Option<String> {
    let kinds: Vec<_> =
        stats.skipped_foreign.iter().map(|(extension, count)| format!("{count} .{extension}")).collect();
    let (images, kinds) = (stats.skipped_foreign.values().sum::<u64>(), kinds.join(", "));
    let remedy = "convert them to JPEG or PNG, with ImageMagick: `magick mogrify -format jpg FILES`";
    let is_heic = ["heic", "heif", "hif"].iter().any(|heic| stats.skipped_foreign.contains_key(heic));
    let heic = if is_heic { ", or rebuild with `-F heic`" } else { "" };
    (images > 0).then(|| format!("{images} images that this build cannot read ({kinds}; {remedy}{heic}), "))
}

/// Installs a signal handler: the first signal asks the run to commit and stop, the second ends the process at once.
pub(crate) fn cancel_on_signal(cancel: &Cancel) -> anyhow::Result<()> {
    on_signal(cancel, || console::say!("\ninterrupted: finishing the current batch; interrupt again to stop at once"))
}

/// Does the same, and calls `tell` at the first signal.
pub(crate) fn on_signal(cancel: &Cancel, tell: impl Fn() + Send + Sync + 'static) -> anyhow::Result<()> {
    let (cancel, tell) = (cancel.clone(), Arc::new(tell));
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() || LISTING.load(SeqCst) {
            std::process::exit(130);
        }
        cancel.cancel();
        console::stop_waiting();
        // A log that nobody reads may block this message. The second signal must not wait for it.
        let tell = Arc::clone(&tell);
        let _ = thread::Builder::new().spawn(move || tell());
    })
    .context("cannot handle signals")
}
