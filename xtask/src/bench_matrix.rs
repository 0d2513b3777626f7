//! `cargo xtask bench-matrix`: measures the whole pipeline with every backend that this machine can run. It varies one
//! axis at a time around a pinned cell, and adds the decoder-resizer pairs that the literature compares.
//!
//! Features are additive, so one `foveate` has all backends. A feature is left out, and its cells say why, if it does
//! not build or its program does not start. A sample is a run of `foveate embed`, and `foveate verify` compares each
//! cell's vectors with the pinned cell's. In each pass, every cell runs once: in a shuffled order, then in the reverse
//! order. So a machine that slows down affects all cells alike. `--cross` runs every combination of decoder, resizer,
//! encoder and sink once instead, on a few images. `benches/README.md` documents the columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::test::run_limited;
use crate::{cargo, setup};

/// The pinned cell: the first backend of each kind that this machine has.
const BEST: [(&str, &[&str]); 4] = [
    ("decoder", &["turbojpeg", "exact", "zune", "image"]),
    ("resizer", &["fir", "image"]),
    ("encoder", &["fused", "ort", "tch", "candle"]),
    ("sink", &["parquet", "npy", "arrow", "lmdb"]),
];
const DTYPES: [&str; 4] = ["f32", "bf16", "f16", "i8"];

/// Pairs of decoder and resizer.
const SEEDS: [(&str, &str); 5] =
    [("image", "image"), ("opencv", "opencv"), ("turbojpeg", "opencv"), ("zune", "fir"), ("turbojpeg", "fir")];

/// The program's features: the backends that are not in the default build.
fn features() -> Vec<&'static str> {
    ["candle"].into_iter().chain(setup::features()).collect()
}

/// A process that takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(600);
/// A sample of a slow cell has fewer images, so that it takes about this long, but at least [`FEWEST`].
const SAMPLE_SECONDS: f64 = 5.0;
const FEWEST: u64 = 16;
/// Photos whose vectors are compared.
const COMPARED: u64 = 32;
/// Least cosine of a photo's vectors, which another recipe or a wrong channel order would miss. The parity tests have
/// the tolerance of each combination.
const LEAST_COSINE: f64 = 0.95;

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    ensure!(args.cross || args.samples * args.passes >= 3, "fewer than 3 samples of a cell have no spread");
    let start = Instant::now();
    let program = match &args.program {
        Some(path) => Program::built(path)?,
        None => Program::build(root)?,
    };
    println!("built with {} in {:.0} s", program.features.join(","), start.elapsed().as_secs_f64());
    for (feature, reason) in &program.lacking {
        println!("without {feature}: {reason}");
    }
    let start = Instant::now();
    let mut cells = if args.cross { cross(&program.list)? } else { plan(&program.list)? };
    let work = Work::new(root, &program, args, &cells[0])?;
    for pass in 0..args.passes {
        for at in order(cells.len(), args.seed, pass) {
            let cell = &mut cells[at];
            cell.run(&work);
            println!("pass {} {:<64} {}", pass + 1, cell.name(), cell.outcome.in_short());
        }
    }
    fs::remove_dir_all(&work.folder)?;
    let run = Run {
        args,
        program: &program,
        rehearsal: &work.rehearsal,
        rustc: rustc(),
        commit: commit(root)?,
        date: date()?,
    };
    let out = root.join(&args.out);
    fs::create_dir_all(&out)?;
    let stem = out.join(&args.name);
    fs::write(stem.with_extension("csv"), run.csv(&cells))?;
    let table = if args.cross { summary(&cells) } else { run.markdown(&cells) };
    if !args.cross {
        fs::write(stem.with_extension("md"), &table)?;
    }
    println!("\n{table}\n{} cells in {:.0} s: {}", cells.len(), start.elapsed().as_secs_f64(), stem.display());
    let failed: Vec<String> =
        cells.iter().filter(|cell| matches!(cell.outcome, Outcome::Failed(_))).map(Cell::name).collect();
    ensure!(failed.is_empty(), "{} cells failed: {}", failed.len(), failed.join("; "));
    Ok(())
}

#[derive(clap::Parser)]
pub(crate) struct Args {
    /// Exercise every cell briefly: a tiny model, 32 images, one pass
    #[arg(long)]
    quick: bool,
    /// Run every decoder with every resizer, encoder and sink once, on a few images
    #[arg(long)]
    cross: bool,
    /// Model of every cell
    #[arg(long, default_value = "seeded:dinov2-small")]
    #[arg(default_value_if("quick", "true", "tests/fixtures/models/tiny"))]
    model: String,
    /// Folder of photos
    #[arg(long, default_value = "examples/photos")]
    photos: String,
    /// Images of a sample
    #[arg(long, default_value = "64", default_value_ifs([("cross", "true", "16"), ("quick", "true", "32")]))]
    images: u64,
    /// Samples of a cell in each pass
    #[arg(long, default_value = "3", default_value_if("cross", "true", "1"))]
    samples: u64,
    /// Passes over all cells
    #[arg(long, default_value = "2", default_value_ifs([("cross", "true", "1"), ("quick", "true", "1")]))]
    passes: u64,
    /// Seed of the cells' order
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Folder of the CSV file and the table, relative to the workspace
    #[arg(long, default_value = "benches/runs", default_value_if("quick", "true", "target/bench-matrix"))]
    out: PathBuf,
    /// Name of the two files; the cross is one
    #[arg(long, default_value = "matrix", default_value_if("cross", "true", "cross"))]
    name: String,
    /// A built `foveate`, which is otherwise built first
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The program that runs the cells.
struct Program {
    path: PathBuf,
    features: Vec<&'static str>,
    /// Features that it was built without, and why.
    lacking: BTreeMap<&'static str, String>,
    /// What `foveate doctor` says of it and the machine.
    list: Value,
}

impl Program {
    fn build(root: &Path) -> Result<Self> {
        let mut lacking = BTreeMap::new();
        let mut features = features();
        if let Err(reason) = attempt(root, &features) {
            println!("not with every feature ({reason}); trying them one by one");
            for &feature in &features {
                if let Err(reason) = attempt(root, &[feature]) {
                    lacking.insert(feature, reason);
                }
            }
        }
        features.retain(|feature| !lacking.contains_key(feature));
        let (path, list) = attempt(root, &features).map_err(anyhow::Error::msg)?;
        Ok(Self { path, features, lacking, list })
    }

    fn built(path: &Path) -> Result<Self> {
        let list = list(path).map_err(anyhow::Error::msg)?;
        Ok(Self { path: path.to_owned(), features: features(), lacking: BTreeMap::new(), list })
    }

    /// What `foveate doctor` says of a backend.
    fn backend(&self, kind: &str, name: &str) -> &Value {
        let of = |backend: &&Value| backend["kind"] == kind && backend["name"] == name;
        backends(&self.list).find(of).unwrap_or(&Value::Null)
    }

    /// Why a backend cannot be used: what its library lacks, or why it is not in the build.
    fn absence(&self, kind: &str, name: &str) -> Option<String> {
        let backend = self.backend(kind, name);
        let reason = match backend["state"].as_str() {
            Some("ok") => return None,
            Some("broken") => backend["cause"].as_str().unwrap_or("broken"),
            _ => self.lacking.get(name).map_or("not in this build", String::as_str),
        };
        Some(format!("{name}: {reason}"))
    }

    /// The library that a backend computes with, without this machine's paths.
    fn library(&self, kind: &str, name: &str) -> String {
        let library = self.backend(kind, name)["library"].as_str().unwrap_or("all Rust");
        library.split(", ").filter(|part| !part.contains('/')).collect::<Vec<_>>().join(" ")
    }
}

fn backends(list: &Value) -> impl Iterator<Item = &Value> {
    list["backends"].as_array().into_iter().flatten()
}

/// Builds the program with `features` and lists its backends, or returns why that fails.
fn attempt(root: &Path, features: &[&str]) -> std::result::Result<(PathBuf, Value), String> {
    let mut command = cargo::cargo(root);
    command.args(["build", "--release", "--package", "foveate", "--bin", "foveate"]);
    command.args(["--message-format", "json-render-diagnostics", "--features", &features.join(",")]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(cause(&String::from_utf8_lossy(&output.stderr)));
    }
    let path = executable(&String::from_utf8_lossy(&output.stdout)).ok_or("cargo named no program")?;
    list(&path).map(|list| (path, list))
}

/// Lists the backends of a built program, or returns why it does not start.
fn list(path: &Path) -> std::result::Result<Value, String> {
    let listed = Command::new(path)
        .args(["doctor", "--json"])
        .output()
        .map_err(|error| format!("it does not start: {error}"))?;
    serde_json::from_slice(&listed.stdout)
        .map_err(|_| format!("it does not start: {}", cause(&String::from_utf8_lossy(&listed.stderr))))
}

/// The executable's path in cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?))).next_back()
}

/// The most useful line of a failed command's output: a build script's or linker's error, or else the first error.
fn cause(output: &str) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines().skip_while(|line| *line != "--- stderr").nth(1);
    let error = lines().find(|line| line.starts_with("error"));
    let line = said.or(error).or_else(|| lines().next_back()).unwrap_or("no reason given");
    line.chars().take(200).collect()
}

/// One combination of backends.
#[derive(Clone)]
struct Cell {
    /// The axes that include it.
    axes: Vec<&'static str>,
    decoder: String,
    resizer: String,
    encoder: String,
    dtype: String,
    scale: String,
    sink: String,
    outcome: Outcome,
}

/// The result of a cell.
#[derive(Clone)]
enum Outcome {
    /// Not measured yet.
    Pending,
    /// It gave the reference's vectors in every pass so far.
    Measured(Box<Measured>),
    /// This machine or this backend cannot run it.
    Unavailable(String),
    /// It ran and failed.
    Failed(String),
}

/// The figures of a cell.
#[derive(Clone, Default)]
struct Measured {
    /// What `foveate verify` says about its vectors.
    compared: Value,
    /// Images of a sample.
    images: u64,
    /// Every sample's images per second, processor time of an image, seconds outside of the run, and peak memory.
    rates: Vec<f64>,
    cpu: Vec<f64>,
    load: Vec<f64>,
    peak: Vec<f64>,
    /// The last sample's summary.
    last: Value,
}

impl Outcome {
    fn in_short(&self) -> String {
        match self {
            Self::Measured(measured) => format!("{:.1} images/s", Spread::of(&measured.rates).median),
            Self::Unavailable(reason) => format!("n/a ({reason})"),
            Self::Failed(reason) => format!("FAILED ({reason})"),
            Self::Pending => "n/a (not run)".to_owned(),
        }
    }
}

/// What the cells run with.
struct Work<'a> {
    root: &'a Path,
    program: &'a Program,
    args: &'a Args,
    /// The folder of the outputs.
    folder: PathBuf,
    /// The pinned cell, as `foveate verify` names a configuration.
    reference: String,
    /// What the pinned cell's dry run says.
    rehearsal: Value,
}

impl<'a> Work<'a> {
    fn new(root: &'a Path, program: &'a Program, args: &'a Args, pinned: &Cell) -> Result<Self> {
        let Cell { decoder, resizer, encoder, dtype, scale, .. } = pinned;
        let reference =
            format!("decoder={decoder},decode-scale={scale},resizer={resizer},encoder={encoder},dtype={dtype}");
        let folder = cargo::target(root).join("bench-matrix").join("outputs");
        fs::create_dir_all(&folder)?;
        let mut work = Self { root, program, args, folder, reference, rehearsal: Value::Null };
        match work.answer(work.embed(pinned, 1).arg("--dry-run")) {
            Ok(rehearsal) => work.rehearsal = rehearsal,
            Err(outcome) => bail!("the pinned cell {}: {}", pinned.name(), outcome.in_short()),
        }
        Ok(work)
    }

    /// The command `name` with a cell's options.
    fn command(&self, name: &str, cell: &Cell) -> Command {
        let Cell { decoder, resizer, encoder, dtype, scale, .. } = cell;
        let mut command = Command::new(&self.program.path);
        command.current_dir(self.root).args([name, &self.args.photos, "--json", "--model", &self.args.model]);
        command.args(["--decoder", decoder, "--resizer", resizer, "--encoder", encoder]);
        command.args(["--dtype", dtype, "--decode-scale", scale]);
        command
    }

    /// A run over the photos, which `times` of them repeat.
    fn embed(&self, cell: &Cell, times: u64) -> Command {
        let mut command = self.command("embed", cell);
        let output = self.folder.join("vectors").with_extension(&cell.sink);
        command.args((1..times).map(|_| &self.args.photos)).args(["--sink", &cell.sink, "--output"]).arg(output);
        command.args(["--overwrite", "--strict", "--quiet", "--recent-memory", "off"]);
        command
    }

    /// The JSON that the program prints, or why it does not.
    fn answer(&self, command: &mut Command) -> std::result::Result<Value, Outcome> {
        let log = self.folder.join("log");
        let ended = run_limited(command, &log, PATIENCE).map_err(|error| Outcome::Failed(format!("{error:#}")))?;
        let said = fs::read_to_string(&log).unwrap_or_default();
        let reason = || cause(&said).trim_start_matches("error: ").to_owned();
        match ended.and_then(|status| status.code()) {
            Some(0) => said
                .lines()
                .rev()
                .find_map(|line| serde_json::from_str(line).ok())
                .ok_or_else(|| Outcome::Failed("it printed no JSON".to_owned())),
            Some(USAGE) => Err(Outcome::Unavailable(reason())),
            _ if ended.is_none() => Err(Outcome::Failed(format!("it did not end within {} s", PATIENCE.as_secs()))),
            _ => Err(Outcome::Failed(reason())),
        }
    }
}

/// The exit code of a command line that cannot work: the build, a backend or the machine lacks something.
const USAGE: i32 = 2;

impl Cell {
    fn name(&self) -> String {
        let Self { decoder, resizer, encoder, dtype, scale, sink, .. } = self;
        format!("{decoder}+{resizer}+{encoder} {dtype} {scale} {sink}")
    }

    /// The backends by kind.
    fn backends(&self) -> [(&'static str, &str); 4] {
        [("decoder", &self.decoder), ("resizer", &self.resizer), ("encoder", &self.encoder), ("sink", &self.sink)]
    }

    /// Takes a pass's samples, which add to those of earlier passes. What cannot run, or fails, stays so.
    fn run(&mut self, work: &Work<'_>) {
        let measured = match std::mem::replace(&mut self.outcome, Outcome::Pending) {
            Outcome::Measured(measured) => Ok(*measured),
            Outcome::Pending => self.compare(work),
            failure => Err(failure),
        };
        self.outcome = measured
            .and_then(|measured| self.sample(work, measured))
            .map_or_else(|failure| failure, |measured| Outcome::Measured(measured.into()));
    }

    /// Compares its vectors with the reference's, which also tells how many images a sample may have.
    fn compare(&self, work: &Work<'_>) -> std::result::Result<Measured, Outcome> {
        if let Some(reason) = self.backends().into_iter().find_map(|(kind, name)| work.program.absence(kind, name)) {
            return Err(Outcome::Unavailable(reason));
        }
        if work.args.cross {
            return Ok(Measured { images: work.args.images, ..Measured::default() });
        }
        let compared = work.answer(work.command("verify", self).args([
            "--against",
            &work.reference,
            "--sample",
            &COMPARED.to_string(),
        ]))?;
        let least = compared["cosine"]["min"].as_f64().unwrap_or(-1.0);
        if least < LEAST_COSINE {
            return Err(Outcome::Failed(format!("cosine {least:.6} to the vectors of {}", work.reference)));
        }
        let rate = compared["images_per_second"][0].as_f64().unwrap_or_default();
        let images = ((rate * SAMPLE_SECONDS) as u64).max(FEWEST).min(work.args.images);
        Ok(Measured { compared, images, ..Measured::default() })
    }

    fn sample(&self, work: &Work<'_>, mut measured: Measured) -> std::result::Result<Measured, Outcome> {
        let images = measured.images;
        let times = images.div_ceil(work.rehearsal["inputs"].as_u64().unwrap_or(1).max(1));
        for _ in 0..work.args.samples {
            let started = Instant::now();
            let done = work.answer(work.embed(self, times).args(["--limit", &images.to_string()]))?;
            let wall = started.elapsed().as_secs_f64();
            if (done["vectors"].as_u64(), done["failures"].as_u64()) != (Some(images), Some(0)) {
                return Err(Outcome::Failed(format!("{} vectors of {images} images", done["vectors"])));
            }
            let of_session = |key: &str| done["session"][key].as_f64().unwrap_or(f64::NAN);
            measured.rates.push(of_session("images_per_second"));
            measured.cpu.push(of_session("cpu_seconds") / images as f64);
            measured.load.push(wall - of_session("seconds"));
            measured.peak.push(done["peak_resident_bytes"].as_f64().unwrap_or(f64::NAN));
            measured.last = done;
        }
        Ok(measured)
    }
}

/// The best working backend of each kind, in f32.
fn base(list: &Value) -> Result<Cell> {
    let [decoder, resizer, encoder, sink] = pinned(list)?;
    Ok(Cell {
        axes: vec!["pinned"],
        decoder,
        resizer,
        encoder,
        dtype: DTYPES[0].to_owned(),
        scale: "exact".to_owned(),
        sink,
        outcome: Outcome::Pending,
    })
}

/// Every combination of decoder, resizer, encoder and sink once, the pinned one first.
fn cross(list: &Value) -> Result<Vec<Cell>> {
    let base = base(list)?;
    let mut cells = vec![Cell { axes: vec!["cross"], ..base.clone() }];
    for (kind, _) in BEST {
        let change = |cell: &Cell, name: String| {
            let mut cell = cell.clone();
            *match kind {
                "decoder" => &mut cell.decoder,
                "resizer" => &mut cell.resizer,
                "encoder" => &mut cell.encoder,
                _ => &mut cell.sink,
            } = name;
            cell
        };
        let names = names(list, kind);
        cells = cells.iter().flat_map(|cell| names.iter().map(|name| change(cell, name.clone()))).collect();
    }
    let pinned = cells.iter().position(|cell| cell.name() == base.name()).context("the pinned cell")?;
    cells[..=pinned].rotate_right(1);
    cells[0].axes.push("pinned");
    Ok(cells)
}

/// The cross in a few lines: how many cells ran, the fastest and the slowest, and why the others did not.
fn summary(cells: &[Cell]) -> String {
    let (mut rates, mut reasons) = (Vec::new(), BTreeMap::<String, usize>::new());
    for cell in cells {
        match &cell.outcome {
            Outcome::Measured(measured) => rates.push((Spread::of(&measured.rates).median, cell.name())),
            outcome => *reasons.entry(outcome.in_short()).or_default() += 1,
        }
    }
    rates.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut text = format!("{} of {} combinations ran\n", rates.len(), cells.len());
    for (what, cell) in [("fastest", rates.last()), ("slowest", rates.first())] {
        text += &cell.map_or(String::new(), |(rate, name)| format!("{what}: {name}, {rate:.1} images/s\n"));
    }
    text + &reasons.iter().map(|(reason, count)| format!("{count}: {reason}\n")).collect::<String>()
}

/// The cells in the order of the table, each once.
fn plan(list: &Value) -> Result<Vec<Cell>> {
    let base = base(list)?;
    let mut cells = Vec::new();
    let mut add = |axis, change: &dyn Fn(&mut Cell)| {
        let mut cell = Cell { axes: vec![axis], ..base.clone() };
        change(&mut cell);
        match cells.iter_mut().find(|known: &&mut Cell| known.name() == cell.name()) {
            Some(known) => known.axes.push(axis),
            None => cells.push(cell),
        }
    };
    add("pinned", &|_| ());
    names(list, "decoder").iter().for_each(|name| add("decoder", &|cell| cell.decoder.clone_from(name)));
    for name in names(list, "decoder") {
        add("decode-scale", &|cell| (cell.decoder, cell.scale) = (name.clone(), "fast".to_owned()));
    }
    names(list, "resizer").iter().for_each(|name| add("resizer", &|cell| cell.resizer.clone_from(name)));
    for name in names(list, "encoder") {
        for dtype in DTYPES {
            add("encoder+dtype", &|cell| (cell.encoder, cell.dtype) = (name.clone(), dtype.to_owned()));
        }
    }
    names(list, "sink").iter().for_each(|name| add("sink", &|cell| cell.sink.clone_from(name)));
    for (decoder, resizer) in SEEDS {
        add("seed", &|cell| (cell.decoder, cell.resizer) = (decoder.to_owned(), resizer.to_owned()));
    }
    Ok(cells)
}

/// The best working backend of each kind.
fn pinned(list: &Value) -> Result<[String; 4]> {
    let works = |kind: &str, name: &str| {
        backends(list).any(|backend| backend["kind"] == kind && backend["name"] == name && backend["state"] == "ok")
    };
    let mut best = BEST.iter().map(|(kind, names)| {
        let name = names.iter().find(|name| works(kind, name));
        name.map(|name| (*name).to_owned()).with_context(|| format!("this build has no {kind} that works"))
    });
    let mut next = || best.next().context("four kinds")?;
    Ok([next()?, next()?, next()?, next()?])
}

/// Every known backend of a kind, compiled in or not.
fn names(list: &Value, kind: &str) -> Vec<String> {
    let of = backends(list).filter(|backend| backend["kind"] == kind);
    of.filter_map(|backend| Some(backend["name"].as_str()?.to_owned())).collect()
}

/// The order of the cells in a pass: the same seed gives the same shuffle; every other pass reverses it.
fn order(cells: usize, seed: u64, pass: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    if pass % 2 == 1 {
        order.reverse();
    }
    order
}

/// Returns the commit that was just built, with `+` if the sources differ from it.
fn commit(root: &Path) -> Result<String> {
    let git = |args: &[&str]| cargo::output(Command::new("git").current_dir(root).args(args));
    let differs = !git(&["status", "--porcelain", "--", "crates", "Cargo.toml", "Cargo.lock"])?.is_empty();
    Ok(git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned() + if differs { "+" } else { "" })
}

fn date() -> Result<String> {
    Ok(cargo::output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?.trim().to_owned())
}

fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Median, minimum and maximum.
#[derive(Debug, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// The spread of `values`; NaN if there are none.
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self { median: (at(last / 2) + at(sorted.len() / 2)) / 2.0, min: at(0), max: at(last) }
    }
}

/// What all cells share.
struct Run<'a> {
    args: &'a Args,
    program: &'a Program,
    /// What the pinned cell's dry run says.
    rehearsal: &'a Value,
    rustc: String,
    commit: String,
    date: String,
}

/// The stages whose share of the busy time is reported.
const STAGES: [&str; 6] = ["read", "decode", "resize", "batch", "encode", "write"];

/// The CSV's columns; `benches/README.md` documents them.
const COLUMNS: [&str; 47] = [
    "axis",
    "decoder",
    "resizer",
    "encoder",
    "dtype",
    "decode_scale",
    "sink",
    "status",
    "images_per_second",
    "images_per_second_min",
    "images_per_second_max",
    "cpu_seconds_per_image",
    "ratio_to_pinned",
    "peak_resident_mb",
    "load_seconds",
    "busy_read",
    "busy_decode",
    "busy_resize",
    "busy_batch",
    "busy_encode",
    "busy_write",
    "bottleneck",
    "rows_checked",
    "compared",
    "min_cosine",
    "median_cosine",
    "decoder_library",
    "resizer_library",
    "encoder_library",
    "sink_library",
    "model",
    "photos",
    "images",
    "samples",
    "batch",
    "workers",
    "threads",
    "sample_seconds",
    "effort",
    "host",
    "cores",
    "features",
    "foveate",
    "commit",
    "date",
    "rustc",
    "seed",
];

impl Run<'_> {
    fn csv(&self, cells: &[Cell]) -> String {
        let mut text = COLUMNS.join(",") + "\n";
        for cell in cells {
            let fields = self.fields(cell, cells);
            let fields: Vec<String> =
                COLUMNS.iter().map(|column| quoted(fields.get(column).map_or("", String::as_str))).collect();
            text += &(fields.join(",") + "\n");
        }
        text
    }

    fn fields(&self, cell: &Cell, cells: &[Cell]) -> BTreeMap<&'static str, String> {
        let args = self.args;
        let mut fields = BTreeMap::from([
            ("axis", cell.axes.join(" ")),
            ("decoder", cell.decoder.clone()),
            ("resizer", cell.resizer.clone()),
            ("encoder", cell.encoder.clone()),
            ("dtype", cell.dtype.clone()),
            ("decode_scale", cell.scale.clone()),
            ("sink", cell.sink.clone()),
            ("status", "ok".to_owned()),
            ("model", args.model.clone()),
            ("photos", short_name(&args.photos)),
            ("images", args.images.to_string()),
            ("batch", plain(&self.rehearsal["batch"])),
            ("workers", plain(&self.rehearsal["threads"]["decode"])),
            ("threads", plain(&self.rehearsal["threads"]["forward"])),
            ("host", plain(&self.program.list["machine"])),
            ("features", self.program.features.join(" ")),
            ("foveate", plain(&self.rehearsal["settings"]["foveate"])),
            ("commit", self.commit.clone()),
            ("date", self.date.clone()),
            ("cores", std::thread::available_parallelism().map_or(1, usize::from).to_string()),
            ("effort", if args.quick { "quick" } else { "full" }.to_owned()),
            ("rustc", self.rustc.clone()),
            ("seed", args.seed.to_string()),
        ]);
        match &cell.outcome {
            Outcome::Measured(measured) => {
                fill(&mut fields, measured, cells);
                let kinds = ["decoder_library", "resizer_library", "encoder_library", "sink_library"];
                let libraries = cell.backends().map(|(kind, name)| self.program.library(kind, name));
                fields.extend(kinds.into_iter().zip(libraries));
            }
            Outcome::Unavailable(reason) | Outcome::Failed(reason) => {
                fields.insert("status", format!("n/a ({reason})"));
            }
            Outcome::Pending => {
                fields.insert("status", "n/a (not run)".to_owned());
            }
        }
        fields
    }

    fn markdown(&self, cells: &[Cell]) -> String {
        let (args, program) = (self.args, self.program);
        let mut text = format!(
            "{}, {}, foveate {} with {}. Model {}, {} images of {} a sample, {} samples in {}: median (least to \
             most).\n\n",
            plain(&program.list["machine"]),
            self.rustc,
            plain(&self.rehearsal["settings"]["foveate"]),
            program.features.join(" "),
            args.model,
            args.images,
            short_name(&args.photos),
            args.samples * args.passes,
            if args.passes == 1 { "one pass".to_owned() } else { format!("{} passes", args.passes) },
        );
        text += "| axis | decoder | resizer | encoder | dtype | scale | sink | images/s | ÷ pinned | CPU ms/image | peak MB | 1 - cosine |\n";
        text += "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        for cell in cells {
            let fields = self.fields(cell, cells);
            let Cell { decoder, resizer, encoder, dtype, scale, sink, .. } = cell;
            let row = [&fields["axis"], decoder, resizer, encoder, dtype, scale, sink].map(String::as_str).join(" | ");
            writeln!(text, "| {row} | {} |", figures(&fields)).expect("a string takes text");
        }
        text
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Fills in a cell's figures.
fn fill(fields: &mut BTreeMap<&'static str, String>, measured: &Measured, cells: &[Cell]) {
    let Measured { compared, images, rates, cpu, load, peak, last } = measured;
    let decimals = |value: &Value, digits: usize| value.as_f64().map_or(String::new(), |v| format!("{v:.digits$}"));
    let rate = Spread::of(rates);
    let pinned = cells.iter().find_map(|cell| match &cell.outcome {
        Outcome::Measured(pinned) if cell.axes.contains(&"pinned") => Some(Spread::of(&pinned.rates).median),
        _ => None,
    });
    fields.insert("images_per_second", format!("{:.3}", rate.median));
    fields.insert("images_per_second_min", format!("{:.3}", rate.min));
    fields.insert("images_per_second_max", format!("{:.3}", rate.max));
    fields.insert("cpu_seconds_per_image", format!("{:.6}", Spread::of(cpu).median));
    fields.insert("ratio_to_pinned", pinned.map_or(String::new(), |pinned| format!("{:.3}", rate.median / pinned)));
    fields.insert("peak_resident_mb", format!("{:.1}", Spread::of(peak).max / 1e6));
    fields.insert("load_seconds", format!("{:.3}", Spread::of(load).median));
    let busy = ["busy_read", "busy_decode", "busy_resize", "busy_batch", "busy_encode", "busy_write"];
    for (column, name) in busy.into_iter().zip(STAGES) {
        let stage = last["stages"].as_array().into_iter().flatten().find(|stage| stage["stage"] == name);
        fields.insert(column, stage.map_or(String::new(), |stage| decimals(&stage["share"], 4)));
    }
    fields.insert("bottleneck", plain(&last["bottleneck"]));
    fields.insert("rows_checked", (images * rates.len() as u64).to_string());
    fields.insert("compared", plain(&compared["compared"]));
    fields.insert("min_cosine", decimals(&compared["cosine"]["min"], 9));
    fields.insert("median_cosine", decimals(&compared["cosine"]["median"], 9));
    fields.insert("images", images.to_string());
    fields.insert("sample_seconds", format!("{:.3}", *images as f64 / rate.median));
    fields.insert("samples", rates.len().to_string());
}

/// The right part of a row of the table.
fn figures(fields: &BTreeMap<&'static str, String>) -> String {
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let number = |name: &str| field(name).parse::<f64>().unwrap_or(f64::NAN);
    if field("status") != "ok" {
        return format!("{} | | | |", field("status").replace('|', "\\|"));
    }
    format!(
        "{:.1} ({:.1} to {:.1}) | {:.2} | {:.1} | {:.0} | {:.1e}",
        number("images_per_second"),
        number("images_per_second_min"),
        number("images_per_second_max"),
        number("ratio_to_pinned"),
        number("cpu_seconds_per_image") * 1e3,
        number("peak_resident_mb"),
        1.0 - number("min_cosine"),
    )
}

/// The last two parts of a path: enough to distinguish photos, without this machine's folders.
fn short_name(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

/// A field of a CSV file.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        let some = |kind: &str, names: &[(&str, &str)]| -> Vec<Value> {
            let of =
                |(name, state): &(&str, &str)| json!({ "kind": kind, "name": name, "state": state, "cause": "gone" });
            names.iter().map(of).collect()
        };
        let decoders = [("exact", "ok"), ("turbojpeg", "ok"), ("opencv", "not compiled"), ("nvjpeg", "broken")];
        let backends = [
            some("decoder", &[decoders.as_slice(), &[("zune", "ok"), ("image", "ok")]].concat()),
            some("resizer", &[("fir", "ok"), ("opencv", "not compiled"), ("image", "ok")]),
            some("encoder", &[("fused", "ok"), ("ort", "not compiled")]),
            some("sink", &[("parquet", "ok"), ("npy", "ok")]),
        ];
        json!({ "machine": "P, s, 2 cores", "backends": backends.concat() })
    }

    fn program() -> Program {
        let lacking = BTreeMap::from([("opencv", "no clang, and more".to_owned())]);
        Program { path: PathBuf::from("foveate"), features: vec!["turbojpeg"], lacking, list: list() }
    }

    fn args(typed: &[&str]) -> Args {
        Args::try_parse_from(["bench-matrix"].iter().chain(typed)).unwrap()
    }

    fn measured() -> Measured {
        Measured {
            compared: json!({ "compared": 30, "cosine": { "min": 0.99999, "median": 1.0 } }),
            images: 64,
            rates: vec![10.0, 11.0, 12.0],
            cpu: vec![0.01],
            load: vec![0.5],
            peak: vec![1e6],
            last: json!({ "bottleneck": "encode" }),
        }
    }

    #[test]
    fn every_backend_and_every_seed_is_a_cell_once() {
        let cells = plan(&list()).unwrap();
        let names: Vec<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(names[0], "turbojpeg+fir+fused f32 exact parquet");
        assert_eq!(cells[0].axes, ["pinned", "decoder", "resizer", "encoder+dtype", "sink", "seed"]);
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        for name in [
            "opencv+fir+fused f32 exact parquet",
            "turbojpeg+fir+fused f32 fast parquet",
            "turbojpeg+opencv+fused f32 exact parquet",
            "turbojpeg+fir+ort f16 exact parquet",
            "turbojpeg+fir+fused f32 exact npy",
            "image+image+fused f32 exact parquet",
        ] {
            assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
        }
    }

    #[test]
    fn the_cross_has_every_combination_once_and_a_summary() {
        let mut cells = cross(&list()).unwrap();
        let names: std::collections::BTreeSet<String> = cells.iter().map(Cell::name).collect();
        assert_eq!((cells.len(), names.len()), (6 * 3 * 2 * 2, 6 * 3 * 2 * 2));
        assert!(names.contains("nvjpeg+opencv+ort f32 exact npy"));
        assert_eq!((cells[0].name(), &cells[0].axes[..]), (plan(&list()).unwrap()[0].name(), &["cross", "pinned"][..]));
        cells[0].outcome = Outcome::Measured(measured().into());
        cells[1].outcome = Outcome::Measured(Measured { rates: vec![3.0], ..measured() }.into());
        cells[2..].iter_mut().for_each(|cell| cell.outcome = Outcome::Unavailable("no device".to_owned()));
        let text = summary(&cells);
        assert!(text.starts_with("2 of 72 combinations ran\nfastest: turbojpeg+fir+fused"), "{text}");
        assert!(text.contains(", 3.0 images/s\n70: n/a (no device)\n"), "{text}");
        let args = args(&["--cross"]);
        assert_eq!((args.images, args.samples, args.passes, args.name.as_str()), (16, 1, 1, "cross"));
    }

    #[test]
    fn what_is_not_compiled_in_says_why() {
        let program = program();
        assert_eq!(program.absence("decoder", "opencv").unwrap(), "opencv: no clang, and more");
        assert_eq!(program.absence("encoder", "ort").unwrap(), "ort: not in this build");
        assert_eq!(program.absence("decoder", "nvjpeg").unwrap(), "nvjpeg: gone");
        assert_eq!(program.absence("decoder", "zune"), None);
    }

    #[test]
    fn passes_run_every_cell_and_alternate() {
        let mut sorted = order(20, 1, 0);
        assert_ne!(sorted, order(20, 2, 0));
        let mut back = order(20, 1, 1);
        back.reverse();
        assert_eq!(sorted, back);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn rows_have_every_column_and_no_cell_is_absent() {
        let (program, args) = (program(), args(&["--photos", "/a/b/c/photos"]));
        let rehearsal =
            json!({ "batch": 32, "threads": { "decode": 1, "forward": 2 }, "settings": { "foveate": "1.2.3" } });
        let run = Run {
            args: &args,
            program: &program,
            rehearsal: &rehearsal,
            rustc: "rustc 1".to_owned(),
            commit: "0123456789ab".to_owned(),
            date: "2026-01-01T00:00Z".to_owned(),
        };
        let mut cells = plan(&program.list).unwrap();
        cells[0].outcome = Outcome::Measured(measured().into());
        cells[1].outcome = Outcome::Unavailable("no clang, and more".to_owned());
        let csv = run.csv(&cells);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), cells.len() + 1);
        assert!(lines[1].contains(",ok,11.000,10.000,12.000,0.010000,1.000,"), "{}", lines[1]);
        assert!(lines[1].contains(",\"P, s, 2 cores\",") && lines[1].contains(",c/photos,"), "{}", lines[1]);
        assert!(lines[2].contains("\"n/a (no clang, and more)\""), "{}", lines[2]);
        let known: Vec<&str> = cells.iter().flat_map(|cell| run.fields(cell, &cells).into_keys()).collect();
        assert!(COLUMNS.iter().all(|column| known.contains(column)), "a column is never filled");
        assert!(known.iter().all(|field| COLUMNS.contains(field)), "a field has no column");
        let table = run.markdown(&cells);
        assert!(
            table.contains("11.0 (10.0 to 12.0) | 1.00 | 10.0 | 1 | 1.0e-5 |")
                && table.contains("n/a (no clang, and more)")
        );
    }

    #[test]
    fn too_few_samples_are_refused() {
        let refused = run(Path::new("root"), &args(&["--samples", "1"])).unwrap_err().to_string();
        assert!(refused.contains("fewer than 3 samples"), "{refused}");
    }

    #[test]
    fn a_quick_run_has_defaults_of_its_own() {
        let (quick, full) = (args(&["--quick"]), args(&[]));
        assert_eq!((quick.passes, quick.images, full.passes, full.images), (1, 32, 2, 64));
        assert_eq!(args(&["--quick", "--images", "5"]).images, 5);
    }

    #[test]
    fn the_reason_is_what_the_tool_said() {
        let build =
            "   Compiling x\nerror: failed to run custom build command\n  --- stderr\n  Cannot find a libtorch\n";
        assert_eq!(cause(build), "Cannot find a libtorch");
        assert_eq!(cause("warning\nerror[E0432]: unresolved\nmore"), "error[E0432]: unresolved");
        assert_eq!(cause("foveate: libtorch_cpu.so: cannot open"), "foveate: libtorch_cpu.so: cannot open");
        let messages = "{\"reason\":\"x\",\"executable\":null}\nnoise\n{\"executable\":\"/t/foveate\"}";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/foveate")));
    }

    #[test]
    fn what_a_machine_lacks_is_no_failure() {
        let (program, args) = (program(), args(&[]));
        let folder = std::env::temp_dir().join(format!("foveate-matrix-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (root, reference, rehearsal) = (Path::new("/"), String::new(), Value::Null);
        let work = Work { root, program: &program, args: &args, folder, reference, rehearsal };
        let shell = |script: &str| work.answer(Command::new("sh").args(["-c", script]));
        let refused =
            |script: &str| shell(script).map_or_else(|outcome| outcome.in_short(), |answer| answer.to_string());
        assert_eq!(refused("echo note >&2; echo '{\"a\": 1}'"), "{\"a\":1}");
        assert_eq!(refused("echo error: no f16 >&2; exit 2"), "n/a (no f16)");
        assert_eq!(refused("echo error: gone >&2; exit 1"), "FAILED (gone)");
        assert_eq!(refused("kill -9 $$"), "FAILED (no reason given)");
        assert_eq!(refused("true"), "FAILED (it printed no JSON)");
        fs::remove_dir_all(&work.folder).unwrap();
    }
}
