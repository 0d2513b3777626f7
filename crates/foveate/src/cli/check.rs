//! Checks everything that the command line names before expensive work starts.
//!
//! clap decides whether the arguments can be parsed. This module decides whether they can work: the inputs exist, this
//! build has the backends and devices, the outputs can be written. It opens no image and no model, and leaves nothing
//! on disk. Each problem is reported as a [`Usage`] error.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use foveate::core::Backend;
use foveate::embed::{Backends, Settings, store_address};
#[cfg(feature = "text")]
use foveate::model::Model;
use foveate::queue::QueueOptions;
use foveate::sink::Layout;
use foveate::source::store::store_of;
use foveate::source::{Input, Separator};

use super::args::{Command, EmbedArgs, VerifyArgs};
use super::config::Evidence;
#[cfg(feature = "text")]
use super::embed_text::EmbedTextArgs;
use super::exit::Usage;
use super::job::JobArgs;
use super::lab_args::{Experiment, LabArgs, ProfileArgs, ReportArgs, TuneArgs};
use super::merge_args::MergeArgs;
use super::own_file::OwnFile;
use super::pack_args::PackArgs;
use super::plan_args::PlanArgs;
#[cfg(feature = "search")]
use super::search::place::search_file;
#[cfg(feature = "search")]
use super::search_args::{EvalArgs, PageArgs, SearchArgs};
use super::service_args::{EnqueueArgs, ServeArgs, ServiceArgs, WorkerArgs};
use super::{service, trace};

/// Checks everything that a command names.
pub(crate) fn command(command: &Command) -> Result<(), Usage> {
    let checked = match command {
        Command::Embed(args) => embed(args),
        #[cfg(feature = "text")]
        Command::EmbedText(args) => embed_text(args),
        Command::Pack(args) => pack(args),
        Command::Verify(args) => verify(args),
        Command::Inspect(args) => super::inspect::check(args),
        Command::Merge(args) => merge(args),
        #[cfg(feature = "search")]
        Command::Neighbors(args) => {
            searched(&args.search, &args.queries, Some(&args.table.output), None, args.replace.overwrite)
        }
        #[cfg(feature = "search")]
        Command::Duplicates(args) if args.list_removable && super::search::table::is_stdout(&args.table.output) => {
            Err(anyhow::anyhow!("cannot print a table and a list on standard output; name a file with -o"))
        }
        #[cfg(feature = "search")]
        Command::Duplicates(args) => searched(
            &args.search,
            &args.against,
            Some(&args.table.output),
            Some(&args.sheet.page),
            args.replace.overwrite,
        ),
        #[cfg(feature = "search")]
        Command::Similar(args) => {
            searched(&args.search, &[], args.output.as_deref(), Some(&args.sheet.page), args.replace.overwrite)
                .and_then(|()| all_exist(args.query.iter().cloned().map(Input::Path)))
        }
        #[cfg(feature = "search")]
        Command::Clusters(args) => {
            searched(&args.search, &[], Some(&args.table.output), Some(&args.sheet.page), args.replace.overwrite)
        }
        #[cfg(feature = "search")]
        Command::Sample(args) => {
            searched(&args.search, &[], Some(&args.table.output), Some(&args.sheet.page), args.replace.overwrite)
        }
        #[cfg(all(feature = "search", feature = "text"))]
        Command::Label(args) => {
            searched(&args.search, &[], Some(&args.table.output), Some(&args.page), args.replace.overwrite)
                .and_then(|()| readable_file(&args.labels))
        }
        #[cfg(all(feature = "search", feature = "text"))]
        Command::Align(args) => {
            let texts: Vec<PathBuf> = args.texts.iter().cloned().collect();
            searched(&args.search, &texts, Some(&args.table.output), Some(&args.page), args.replace.overwrite)
        }
        #[cfg(feature = "search")]
        Command::Eval(args) => searched(&args.search, &[], None, None, false)
            .and_then(|()| args.labels.labels.as_deref().map_or(Ok(()), readable_file))
            .and_then(|()| captions(args)),
        Command::Profile(args) => profile(args),
        Command::Bench { experiment } => bench(experiment),
        Command::Diagnose(args) => lab(&args.lab),
        Command::Tune(args) => tune(args),
        Command::Report(args) => report(args),
        Command::Plan(args) => plan(args),
        Command::Worker(args) => worker(args),
        Command::Enqueue(args) => enqueue(args),
        Command::Queue { command } => queue(&command.queue().queue),
        Command::Serve(args) => serve(args),
        Command::Backends(_) | Command::Doctor(_) | Command::Models(_) | Command::Completions { .. } => Ok(()),
    };
    checked.map_err(Usage::from)
}

/// Checks that vectors and images exist, and the kind and the places of the files that a search writes.
#[cfg(feature = "search")]
fn searched(
    args: &SearchArgs,
    others: &[PathBuf],
    output: Option<&Path>,
    page: Option<&PageArgs>,
    overwrite: bool,
) -> anyhow::Result<()> {
    if let Some(output) = output {
        super::search::table::TableFormat::of(output)?;
    }
    if output.is_some_and(super::search::table::is_stdout) {
        super::console::keep_stdout();
    }
    let output = output.filter(|output| !super::search::table::is_stdout(output));
    let html = page.and_then(|page| page.html.as_deref());
    if let Some(html) = html.filter(|html| Some(*html) == output) {
        bail!("cannot write two files to {}; name another page with --html", html.display());
    }
    let inputs = args.inputs.iter().chain(others);
    super::merge::check_places(inputs.clone(), Path::new(""), super::search::vectors::SEARCH)?;
    for path in output.into_iter().chain(html) {
        super::merge::check_places(inputs.clone(), path, super::search::vectors::SEARCH)?;
        search_file(path, overwrite).check()?;
        writable_folder(parent_of(path)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    all_exist(page.into_iter().flat_map(|page| &page.images).cloned().map(Input::Path))
}

#[cfg(all(feature = "search", feature = "text"))]
fn captions(args: &EvalArgs) -> anyhow::Result<()> {
    args.captions.as_deref().map_or(Ok(()), readable_file)
}

#[cfg(all(feature = "search", not(feature = "text")))]
fn captions(_: &EvalArgs) -> anyhow::Result<()> {
    Ok(())
}

fn embed(args: &EmbedArgs) -> anyhow::Result<()> {
    inputs(&args.job)?;
    let options = super::embed::options(args);
    backends(&options)?;
    optional(args.job.file.config.as_deref(), |config| Evidence::read(config).map(drop))?;
    output(&options)?;
    optional(args.changes.as_deref(), new_file)?;
    optional(args.trace.as_deref(), |path| own_file(trace::file(path)))
}

#[cfg(feature = "text")]
fn embed_text(args: &EmbedTextArgs) -> anyhow::Result<()> {
    if args.input != Path::new("-") {
        readable_file(&args.input)?;
    }
    Model::check_name(&args.model)?;
    Ok(super::embed_text::settings(args).check_output(&Backends::compiled())?)
}

fn pack(args: &PackArgs) -> anyhow::Result<()> {
    inputs(&args.job)?;
    let options = super::pack::options(args);
    options.check()?;
    if options.resize.is_some() {
        backends(&options.job)?;
    }
    if args.resize.is_some() && !args.no_drift && options.job.inputs.inputs.contains(&Input::Path("-".into())) {
        bail!("standard input is read once, so no sample of it can be compared; pass --no-drift, or save it to a file");
    }
    if let Some(address) = store_address(&args.output) {
        bail!("cannot write to {address}: shards are written to a folder; name one, and copy them (`aws s3 sync`)");
    }
    writable_folder(&args.output)
}

fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    inputs(&args.job)?;
    let (first, second) = super::verify::configurations(args)?;
    backends(&first)?;
    backends(&second).context("--against")?;
    optional(args.labels.as_deref(), readable_file)?;
    optional(args.csv.as_deref(), |path| own_file(super::verify::figures_file(path)))
}

fn lab(args: &LabArgs) -> anyhow::Result<()> {
    let settings = args.settings();
    sources(&settings)?;
    backends(&settings)?;
    Backends::compiled().sink(args.sink.as_deref())?;
    writable_folder(&args.display.out)
}

fn merge(args: &MergeArgs) -> anyhow::Result<()> {
    super::merge::check(args)?;
    optional(args.join.as_deref(), readable_file)?;
    output(&super::merge::options(args))
}

fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    lab(&args.lab)?;
    for (decoder, resizer) in &args.pair {
        let mut options = args.lab.settings();
        options.model.decoder = Some(decoder.clone());
        options.model.resizer = Some(resizer.clone());
        backends(&options)?;
    }
    optional(args.trace.as_deref(), |path| own_file(trace::file(path)))
}

fn bench(experiment: &Experiment) -> anyhow::Result<()> {
    match experiment {
        Experiment::Sinks(args) => writable_folder(&args.display.out),
        Experiment::Read(args) => {
            let place = args.input.as_str();
            if is_address(place) {
                address(place)?
            } else {
                readable_file(Path::new(place))?
            }
            writable_folder(&args.display.out)
        }
        Experiment::Forward(args) => {
            lab(&args.bench.lab)?;
            optional(args.others.peers.as_deref(), readable_file)
        }
        Experiment::All(args) | Experiment::Memory(args) => {
            lab(&args.bench.lab)?;
            optional(args.others.peers.as_deref(), readable_file)
        }
        Experiment::Decoders(args) | Experiment::Resizers(args) => {
            let settings = args.settings();
            sources(&settings)?;
            backends(&settings)?;
            writable_folder(&args.display.out)?;
            optional(args.others.peers.as_deref(), readable_file)
        }
        Experiment::BatchSweep(args)
        | Experiment::JobBatchSweep(args)
        | Experiment::WorkerSweep(args)
        | Experiment::Headline(args)
        | Experiment::Extrapolation(args)
        | Experiment::Predictions(args)
        | Experiment::Copies(args) => lab(&args.lab),
        Experiment::Matrix(args) => lab(&args.bench.lab),
        Experiment::Worker(args) => lab(&args.bench.lab),
    }
}

fn tune(args: &TuneArgs) -> anyhow::Result<()> {
    lab(&args.lab)?;
    optional(args.labels.as_deref(), readable_file)?;
    let path = args.write.display();
    if args.write.is_file() && !args.overwrite {
        bail!("{path} exists; pass --overwrite to replace it, or --write FILE to write another");
    }
    writable_file(&args.write)
}

fn report(args: &ReportArgs) -> anyhow::Result<()> {
    readable_folder(&args.run)?;
    writable_folder(args.out.as_deref().unwrap_or(&args.run))
}

fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    optional(args.from.as_deref(), readable_folder)?;
    optional(args.out.as_deref(), writable_folder)
}

fn worker(args: &WorkerArgs) -> anyhow::Result<()> {
    args.queue.iter().try_for_each(|address| queue(address))?;
    let backends = Backends::compiled();
    backends.sink(args.storage.sink.as_deref())?;
    optional(args.output.as_deref(), |output| folder_of_segments(output, &backends))?;
    if args.callbacks.callback_host.is_empty() && args.output.is_none() {
        bail!("results have nowhere to go; name the hosts of callbacks (--callback-host), a folder (-o), or both");
    }
    service::callback_client(&args.callbacks)?;
    services(&args.service)
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    optional(args.api_keys.as_deref(), readable_file)?;
    services(&args.service)
}

fn enqueue(args: &EnqueueArgs) -> anyhow::Result<()> {
    queue(&args.queue)?;
    super::enqueue::check(args)?;
    let paths = args.inputs.iter().filter(|input| !is_address(input)).map(|path| Input::Path(path.into()));
    let lists = args.from_list.iter().map(|list| Input::List(list.clone(), Separator::Line));
    all_exist(paths.chain(lists))
}

fn services(args: &ServiceArgs) -> anyhow::Result<()> {
    backends(&service::settings(args, Path::new("")))?;
    service::client(args, false)?;
    service::store(args).map(drop)
}

/// Checks that this build and this machine have the backends and devices.
fn backends(options: &Settings) -> anyhow::Result<()> {
    Ok(options.check_backends(&Backends::compiled())?)
}

/// Checks that this build supports the broker of this address, without contacting the broker.
fn queue(address: &str) -> anyhow::Result<()> {
    foveate::backends::queues().get(QueueOptions::new(address).scheme()?)?;
    Ok(())
}

pub(crate) fn inputs(args: &JobArgs) -> anyhow::Result<()> {
    sources(&args.settings(Path::new("")))
}

fn sources(settings: &Settings) -> anyhow::Result<()> {
    let typed = || {
        settings.inputs.inputs.iter().filter_map(|input| match input {
            Input::Path(path) => path.to_str(),
            Input::List(..) | Input::Table(..) => None,
        })
    };
    if typed().any(|text| text.starts_with("pipe:") && !Path::new(text).exists()) {
        bail!("`pipe:` inputs are WebDataset's; run the command and pipe it: `COMMAND | foveate embed -`");
    }
    typed().filter(|text| is_address(text)).try_for_each(address)?;
    all_exist(settings.inputs())
}

/// Checks that this build has a store for an address, without contacting it.
fn address(address: &str) -> anyhow::Result<()> {
    let scheme = address.split("://").next().unwrap_or_default();
    store_of(&foveate::backends::stores(), scheme).map(drop).with_context(|| format!("cannot read {address}"))
}

/// Returns true if `text` is an address (`https://…`, `s3://…`) and not the name of an existing file.
fn is_address(text: &str) -> bool {
    text.contains("://") && !Path::new(text).exists()
}

fn all_exist(inputs: impl IntoIterator<Item = Input>) -> anyhow::Result<()> {
    let problems: Vec<_> = inputs.into_iter().filter_map(|input| input.check().err()).collect();
    let count = problems.len();
    match problems.into_iter().next() {
        None => Ok(()),
        Some(only) if count == 1 => Err(only.into()),
        Some(first) => Err(anyhow::Error::new(first).context(format!("{count} inputs cannot be read, the first"))),
    }
}

/// Refuses the name of a file, because a folder of that name would surprise its reader.
fn folder_of_segments(output: &Path, backends: &Backends) -> anyhow::Result<()> {
    if let Some(address) = store_address(output) {
        bail!(
            "cannot write to {address}: a worker writes a folder of segments; name one, and copy them (`aws s3 sync`)"
        );
    }
    if let Some(sink) = backends.sink_of_extension(output).filter(|_| !output.is_dir()) {
        let sink = sink.name();
        let name = output.display();
        bail!("cannot write {name}: a worker writes a folder of segments; name one (`-o out/ --sink {sink}`)");
    }
    writable_folder(output)
}

/// Checks that the format is known and that files can be created at the output's place.
fn output(options: &Settings) -> anyhow::Result<()> {
    if options.output == Path::new("-") {
        bail!("cannot write to standard output; name a file (`-o vectors.parquet`) or a folder (`-o out/`)");
    }
    options.check_output(&Backends::compiled())?;
    if store_address(&options.output).is_some() {
        return optional(options.staging.as_deref(), writable_folder);
    }
    if options.staging.is_some() {
        bail!("--staging is for an output in a store; {} has its work in progress beside it", options.output.display());
    }
    match Layout::of(&options.output) {
        Layout::Folder => writable_folder(&options.output),
        Layout::File if options.output.exists() => writable_file(&options.output),
        Layout::File => writable_folder(parent_of(&options.output))
            .with_context(|| format!("cannot write {}", options.output.display())),
    }
}

fn optional(path: Option<&Path>, check: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    path.map_or(Ok(()), check)
}

fn readable_file(path: &Path) -> anyhow::Result<()> {
    fs::File::open(path).map(drop).with_context(|| format!("cannot read {}", path.display()))
}

fn readable_folder(path: &Path) -> anyhow::Result<()> {
    fs::read_dir(path).map(drop).with_context(|| format!("cannot read {}", path.display()))
}

fn new_file(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        bail!("{} exists, and is not replaced; name another file or remove it", path.display());
    }
    writable_file(path)
}

/// Checks that a file can be written, and replaces nothing but one of its kind.
fn own_file(file: OwnFile<'_>) -> anyhow::Result<()> {
    file.check()?;
    writable_file(file.path)
}

/// Checks an existing file by opening it, without changing it.
fn writable_file(path: &Path) -> anyhow::Result<()> {
    let checked = match path.exists() {
        true => fs::File::options().write(true).open(path).map(drop),
        false => create_in(parent_of(path)),
    };
    checked.with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that a folder can be written. A missing folder would be created by the command, so its nearest existing
/// ancestor is checked.
fn writable_folder(path: &Path) -> anyhow::Result<()> {
    // Removes a trailing separator, with which an existing file seems not to exist.
    let folder: PathBuf = path.components().collect();
    let nearest = folder.ancestors().map(or_current).find(|folder| folder.exists());
    nearest.map_or(Ok(()), create_in).with_context(|| format!("cannot write to {}", path.display()))
}

/// Creates an unnamed temporary file that is removed at once. Only an attempt to write gives a reliable answer on every
/// file system.
fn create_in(folder: &Path) -> std::io::Result<()> {
    tempfile::tempfile_in(folder).map(drop)
}

fn parent_of(path: &Path) -> &Path {
    or_current(path.parent().unwrap_or(path))
}

/// Returns the current folder for an empty path.
fn or_current(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
