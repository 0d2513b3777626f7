//! The parts that the embedding commands share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use anyhow::Context;
use clap::Args;
use foveate::embed::{
    AheadSettings, EngineSettings, ImageSettings, InputSettings, ModelSettings, RowSettings, Settings,
};
use foveate::pipeline::Cancel;
use foveate::source::{Input, Listing, ListingStats, Source, SourceError};

use super::console;
use super::exit::Usage;
use super::summary;

/// The images, their embedding and its speed.
#[derive(Args, Debug)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    pub(crate) inputs: InputSettings,

    #[command(flatten)]
    pub(crate) rows: RowSettings,

    #[command(flatten)]
    pub(crate) model: ModelSettings,

    #[command(flatten)]
    pub(crate) images: ImageSettings,

    #[command(flatten)]
    pub(crate) engine: EngineSettings,

    #[command(flatten)]
    pub(crate) ahead: AheadSettings,

    #[command(flatten)]
    pub(crate) file: ConfigArgs,
}

/// The file of options.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Read options from a TOML file (`batch = 16`), such as `foveate tune` writes; the command line overrides them.
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub(crate) config: Option<PathBuf>,
}

impl JobArgs {
    /// Returns the settings of a job that writes to `output`.
    pub(crate) fn settings(&self, output: &Path) -> Settings {
        Settings {
            inputs: self.inputs.clone(),
            rows: self.rows.clone(),
            model: self.model.clone(),
            images: self.images.clone(),
            engine: self.engine.clone(),
            ahead: self.ahead.clone(),
            ..Settings::new(Vec::new(), "", output)
        }
    }
}

/// A warning if a GPU computes in f32 because no precision was asked for.
pub(crate) fn warning_of_f32(model: &ModelSettings, engine: &EngineSettings) -> Option<String> {
    let is_gpu = engine.device.split(',').any(|device| device.starts_with("cuda"));
    (model.dtype.is_none() && is_gpu).then(|| {
        format!(
            "{} computes in f32, which takes about ten times as long as half precision; add `--dtype f16` or `--dtype \
             bf16` (`foveate verify` measures how much the vectors change), or `--dtype f32` to keep it",
            engine.device
        )
    })
}

/// Set while inputs are listed. Nothing was written then, so a signal ends the process at once, even if a list's next
/// line never comes.
static LISTING: AtomicBool = AtomicBool::new(false);

/// Lists the inputs. An empty list is a [`Usage`] error, because an empty output would hide a mistyped path. A shard
/// may be empty.
pub(crate) fn list(options: &Settings, progress: impl FnMut(u64)) -> anyhow::Result<Listing> {
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
pub(crate) fn list_again(options: &Settings) -> anyhow::Result<Listing> {
    if options.inputs.inputs.contains(&Input::Path("-".into())) {
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
    let ListingStats {
        skipped_other: other,
        skipped_hidden: hidden,
        skipped_containers: containers,
        skipped_system: system,
        skipped_excluded: excluded,
        ..
    } = *stats;
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
    let images: u64 = stats.skipped_foreign.values().sum();
    let kinds = kinds.join(", ");
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
    let cancel = cancel.clone();
    let tell = Arc::new(tell);
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
