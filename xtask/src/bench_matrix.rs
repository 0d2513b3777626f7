//! `cargo xtask bench-matrix`: measures the whole pipeline with every backend that this machine can run. It varies one
//! axis at a time around a pinned cell, and adds the decoder-resizer pairs that the literature compares.
//!
//! Features are additive, so one program has all backends. A feature is left out, and its cells say why, if it does not
//! build or its program does not start. Every cell is a process of its own (`foveate-benches`' `cell`, which checks its
//! work). In each pass, every cell runs once: in a shuffled order, then in the reverse order. So a machine that slows
//! down affects all cells alike. `benches/README.md` documents the columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::setup;

/// The pinned cell: the first backend of each kind that this machine has.
const BEST: [(&str, &[&str]); 4] = [
    ("decoders", &["turbojpeg", "exact", "zune", "image"]),
    ("resizers", &["fir", "image"]),
    ("encoders", &["fused", "ort", "tch", "candle"]),
    ("sinks", &["parquet", "npy", "lmdb"]),
];
const DTYPES: [&str; 3] = ["f32", "bf16", "f16"];

/// Pairs of decoder and resizer.
const SEEDS: [(&str, &str); 5] =
    [("image", "image"), ("opencv", "opencv"), ("turbojpeg", "opencv"), ("zune", "fir"), ("turbojpeg", "fir")];

/// The features of the benches' program: the backends that are not in the default build.
fn features() -> Vec<&'static str> {
    ["candle"].into_iter().chain(setup::FEATURES).collect()
}

/// A cell that takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    ensure!(args.samples * args.passes >= 3, "fewer than 3 samples of a cell have no spread");
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
    let mut cells = plan(&program.list)?;
    for pass in 0..args.passes {
        for at in order(cells.len(), args.seed, pass) {
            let cell = &mut cells[at];
            let outcome = cell.run(root, &program, args);
            println!("pass {} {:<64} {}", pass + 1, cell.name(), outcome.in_short());
            cell.outcome.add(outcome);
        }
    }
    let run = Run { args, program: &program, rustc: rustc() };
    let out = root.join(&args.out);
    fs::create_dir_all(&out)?;
    let stem = out.join(&args.name);
    fs::write(stem.with_extension("csv"), run.csv(&cells))?;
    let table = run.markdown(&cells);
    fs::write(stem.with_extension("md"), &table)?;
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
    /// Model of every cell
    #[arg(long, default_value = "seeded:dinov2-small")]
    #[arg(default_value_if("quick", "true", "tests/fixtures/models/tiny"))]
    model: String,
    /// Folder of photos
    #[arg(long, default_value = "examples/photos")]
    photos: String,
    /// Images of a sample
    #[arg(long, default_value = "64", default_value_if("quick", "true", "32"))]
    images: u64,
    /// Samples of a cell in each pass
    #[arg(long, default_value = "3")]
    samples: u64,
    /// Passes over all cells
    #[arg(long, default_value = "2", default_value_if("quick", "true", "1"))]
    passes: u64,
    /// Seed of the cells' order
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Folder of the CSV file and the table, relative to the workspace
    #[arg(long, default_value = "benches/runs", default_value_if("quick", "true", "target/bench-matrix"))]
    out: PathBuf,
    /// Name of the two files
    #[arg(long, default_value = "matrix")]
    name: String,
    /// A built `cell` of foveate-benches, which is otherwise built first
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The program that runs the cells.
struct Program {
    path: PathBuf,
    features: Vec<&'static str>,
    /// Features that it was built without, and why.
    lacking: BTreeMap<&'static str, String>,
    /// Its list of backends.
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

    /// Why a backend is missing: its own reason, or why it is not in the build.
    fn absence(&self, kind: &str, name: &str) -> Option<String> {
        let backends = self.list[kind].as_array()?;
        let is_compiled = backends.iter().any(|backend| backend["name"] == name && backend["compiled"] == true);
        let reason = || self.lacking.get(name).map_or("not in this build", String::as_str);
        (!is_compiled).then(|| format!("{name}: {}", reason()))
    }

    fn text(&self, key: &str) -> String {
        match &self.list[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Builds the program with `features` and lists its backends, or returns why that fails.
fn attempt(root: &Path, features: &[&str]) -> std::result::Result<(PathBuf, Value), String> {
    let mut command = crate::cargo::cargo(root);
    command.args(["build", "--release", "--package", "foveate-benches", "--bin", "cell"]);
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
    let listed = Command::new(path).arg("--list").output().map_err(|error| format!("it does not start: {error}"))?;
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
enum Outcome {
    /// Not measured yet.
    Pending,
    /// Every sample of every pass so far, and the last pass's answer.
    Measured { samples: Vec<f64>, cpu: Vec<f64>, last: Value },
    /// This machine or this backend cannot run it.
    Unavailable(String),
    /// It ran and failed.
    Failed(String),
}

impl Outcome {
    fn of(answer: Value) -> Self {
        let numbers = |key: &str| -> Vec<f64> {
            answer[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let reason = || answer["reason"].as_str().unwrap_or("no reason given").to_owned();
        match answer["outcome"].as_str() {
            Some("ok") => {
                let (samples, cpu) = (numbers("images_per_second"), numbers("cpu_seconds_per_image"));
                if samples.is_empty() {
                    Self::Failed("no samples".to_owned())
                } else {
                    Self::Measured { samples, cpu, last: answer }
                }
            }
            Some("unavailable") => Self::Unavailable(reason()),
            _ => Self::Failed(reason()),
        }
    }

    /// Pools the samples of two passes; a failure in either of them stays.
    fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Pending, other) => *self = other,
            (Self::Measured { samples, cpu, last }, Self::Measured { samples: more, cpu: more_cpu, last: newest }) => {
                samples.extend(more);
                cpu.extend(more_cpu);
                *last = newest;
            }
            (Self::Measured { .. }, failure) => *self = failure,
            _ => {}
        }
    }

    fn in_short(&self) -> String {
        match self {
            Self::Measured { samples, .. } => format!("{:.1} images/s", Spread::of(samples).median),
            Self::Unavailable(reason) => format!("n/a ({reason})"),
            Self::Failed(reason) => format!("FAILED ({reason})"),
            Self::Pending => "n/a (not run)".to_owned(),
        }
    }
}

impl Cell {
    fn name(&self) -> String {
        let Self { decoder, resizer, encoder, dtype, scale, sink, .. } = self;
        format!("{decoder}+{resizer}+{encoder} {dtype} {scale} {sink}")
    }

    fn run(&self, root: &Path, program: &Program, args: &Args) -> Outcome {
        let parts = [
            ("decoders", &self.decoder),
            ("resizers", &self.resizer),
            ("encoders", &self.encoder),
            ("sinks", &self.sink),
        ];
        if let Some(reason) = parts.into_iter().find_map(|(kind, name)| program.absence(kind, name)) {
            return Outcome::Unavailable(reason);
        }
        let mut command = Command::new(&program.path);
        command.current_dir(root).args(["--decoder", &self.decoder, "--resizer", &self.resizer]);
        command.args(["--encoder", &self.encoder, "--dtype", &self.dtype, "--decode-scale", &self.scale]);
        command.args(["--sink", &self.sink, "--model", &args.model, "--photos", &args.photos]);
        command.args(["--images", &args.images.to_string(), "--samples", &args.samples.to_string()]);
        answer(command).map_or_else(|error| Outcome::Failed(format!("{error:#}")), Outcome::of)
    }
}

/// The JSON that a cell's process prints, if it ends in time.
fn answer(mut command: Command) -> Result<Value> {
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = (gather(process.stdout.take()), gather(process.stderr.take()));
    let status = wait(&mut process)?;
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    serde_json::from_str(&out).with_context(|| format!("it ended ({status}): {}", cause(&err)))
}

fn wait(process: &mut Child) -> Result<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > PATIENCE {
            process.kill()?;
            process.wait()?;
            bail!("it did not end within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn gather(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stream) = stream {
            // Output before a fault is still useful.
            let _ = stream.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// The cells in the order of the table, each once.
fn plan(list: &Value) -> Result<Vec<Cell>> {
    let [decoder, resizer, encoder, sink] = pinned(list)?;
    let base = Cell {
        axes: vec!["pinned"],
        decoder,
        resizer,
        encoder,
        dtype: DTYPES[0].to_owned(),
        scale: "exact".to_owned(),
        sink,
        outcome: Outcome::Pending,
    };
    let mut cells = Vec::new();
    let mut add = |axis, change: &dyn Fn(&mut Cell)| {
        let mut cell = Cell { axes: vec![axis], outcome: Outcome::Pending, ..base.copy() };
        change(&mut cell);
        match cells.iter_mut().find(|known: &&mut Cell| known.name() == cell.name()) {
            Some(known) => known.axes.push(axis),
            None => cells.push(cell),
        }
    };
    add("pinned", &|_| ());
    names(list, "decoders").iter().for_each(|name| add("decoder", &|cell| cell.decoder.clone_from(name)));
    for name in list["scaling_decoders"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        add("decode-scale", &|cell| (cell.decoder, cell.scale) = (name.to_owned(), "fast".to_owned()));
    }
    names(list, "resizers").iter().for_each(|name| add("resizer", &|cell| cell.resizer.clone_from(name)));
    for name in names(list, "encoders") {
        for dtype in DTYPES {
            add("encoder+dtype", &|cell| (cell.encoder, cell.dtype) = (name.clone(), dtype.to_owned()));
        }
    }
    names(list, "sinks").iter().for_each(|name| add("sink", &|cell| cell.sink.clone_from(name)));
    for (decoder, resizer) in SEEDS {
        add("seed", &|cell| (cell.decoder, cell.resizer) = (decoder.to_owned(), resizer.to_owned()));
    }
    Ok(cells)
}

impl Cell {
    fn copy(&self) -> Self {
        Self {
            axes: self.axes.clone(),
            decoder: self.decoder.clone(),
            resizer: self.resizer.clone(),
            encoder: self.encoder.clone(),
            dtype: self.dtype.clone(),
            scale: self.scale.clone(),
            sink: self.sink.clone(),
            outcome: Outcome::Pending,
        }
    }
}

/// The best compiled backend of each kind.
fn pinned(list: &Value) -> Result<[String; 4]> {
    let mut best = BEST.iter().map(|(kind, names)| {
        let is_compiled = |name: &&&str| {
            let backends = list[*kind].as_array();
            backends.into_iter().flatten().any(|backend| backend["name"] == **name && backend["compiled"] == true)
        };
        names
            .iter()
            .find(is_compiled)
            .map(|name| (*name).to_owned())
            .with_context(|| format!("this build has no {kind}"))
    });
    let mut next = || best.next().context("four kinds")?;
    Ok([next()?, next()?, next()?, next()?])
}

/// Every known backend of a kind, compiled in or not.
fn names(list: &Value, kind: &str) -> Vec<String> {
    let backends = list[kind].as_array().into_iter().flatten();
    backends.filter_map(|backend| Some(backend["name"].as_str()?.to_owned())).collect()
}

/// The order of the cells in a pass: the same seed gives the same shuffle; every other pass reverses it.
fn order(cells: usize, seed: u64, pass: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    let mut state = seed;
    for last in (1..cells).rev() {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        order.swap(last, ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize);
    }
    if pass % 2 == 1 {
        order.reverse();
    }
    order
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
    rustc: String,
}

/// The stages whose share of the busy time is reported.
const STAGES: [&str; 6] = ["read", "decode", "resize", "batch", "encode", "write"];

/// The CSV's columns; `benches/README.md` documents them.
const COLUMNS: [&str; 45] = [
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
    "golden_photos",
    "golden_min_cosine",
    "golden_median_cosine",
    "tier",
    "tier_min_cosine",
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
    "host",
    "cores",
    "features",
    "foveate",
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
            ("host", format!("{} {}", self.program.text("processor"), self.program.text("system"))),
            ("cores", self.program.text("cores")),
            ("features", self.program.features.join(" ")),
            ("foveate", self.program.text("foveate")),
            ("rustc", self.rustc.clone()),
            ("seed", args.seed.to_string()),
        ]);
        match &cell.outcome {
            Outcome::Measured { samples, cpu, last } => measured(&mut fields, samples, cpu, last, cells),
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
            "{}, {} cores ({}), {}, foveate {} with {}. Model {}, {} images of {} a sample, {} samples in {}: median \
             (least to most).\n\n",
            program.text("processor"),
            program.text("cores"),
            program.text("system"),
            self.rustc,
            program.text("foveate"),
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

fn measured(fields: &mut BTreeMap<&'static str, String>, samples: &[f64], cpu: &[f64], last: &Value, cells: &[Cell]) {
    let plain = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let decimals = |value: &Value, digits: usize| value.as_f64().map_or(String::new(), |v| format!("{v:.digits$}"));
    let rate = Spread::of(samples);
    let pinned = cells.iter().find_map(|cell| match &cell.outcome {
        Outcome::Measured { samples, .. } if cell.axes.contains(&"pinned") => Some(Spread::of(samples).median),
        _ => None,
    });
    fields.insert("images_per_second", format!("{:.3}", rate.median));
    fields.insert("images_per_second_min", format!("{:.3}", rate.min));
    fields.insert("images_per_second_max", format!("{:.3}", rate.max));
    fields.insert("cpu_seconds_per_image", format!("{:.6}", Spread::of(cpu).median));
    fields.insert("ratio_to_pinned", pinned.map_or(String::new(), |pinned| format!("{:.3}", rate.median / pinned)));
    let bytes = last["peak_resident_bytes"].as_f64();
    fields.insert("peak_resident_mb", bytes.map_or(String::new(), |bytes| format!("{:.1}", bytes / 1e6)));
    fields.insert("load_seconds", decimals(&last["load_seconds"], 3));
    let busy = ["busy_read", "busy_decode", "busy_resize", "busy_batch", "busy_encode", "busy_write"];
    for (column, stage) in busy.into_iter().zip(STAGES) {
        fields.insert(column, decimals(&last["busy"][stage], 4));
    }
    let golden = &last["golden"];
    fields.insert("golden_photos", plain(&golden["photos"]));
    fields.insert("golden_min_cosine", decimals(&golden["min_cosine"], 9));
    fields.insert("golden_median_cosine", decimals(&golden["median_cosine"], 9));
    fields.insert("tier", plain(&golden["tier"]));
    fields.insert("tier_min_cosine", plain(&golden["tier_min_cosine"]));
    let kinds = [
        ("decoder_library", "decoder"),
        ("resizer_library", "resizer"),
        ("encoder_library", "encoder"),
        ("sink_library", "sink"),
    ];
    for (column, kind) in kinds {
        fields.insert(column, plain(&last["libraries"][kind]));
    }
    for column in ["bottleneck", "images", "rows_checked", "batch", "workers", "threads"] {
        fields.insert(column, plain(&last[column]));
    }
    fields.insert("samples", samples.len().to_string());
}

/// The right part of a row of the table.
fn figures(fields: &BTreeMap<&'static str, String>) -> String {
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let number = |name: &str| field(name).parse::<f64>().unwrap_or(f64::NAN);
    if field("status") != "ok" {
        return format!("{} | | | |", field("status").replace('|', "\\|"));
    }
    let cosine = match field("golden_min_cosine") {
        "" => "no goldens".to_owned(),
        _ => format!("{:.1e}", 1.0 - number("golden_min_cosine")),
    };
    format!(
        "{:.1} ({:.1} to {:.1}) | {:.2} | {:.1} | {:.0} | {cosine}",
        number("images_per_second"),
        number("images_per_second_min"),
        number("images_per_second_max"),
        number("ratio_to_pinned"),
        number("cpu_seconds_per_image") * 1e3,
        number("peak_resident_mb"),
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
        let some = |names: &[(&str, bool)]| -> Value {
            names.iter().map(|(name, compiled)| json!({ "name": name, "compiled": compiled })).collect()
        };
        json!({
            "decoders": some(&[("exact", true), ("turbojpeg", true), ("opencv", false), ("zune", true), ("image", true)]),
            "resizers": some(&[("fir", true), ("opencv", false), ("image", true)]),
            "encoders": some(&[("fused", true), ("ort", false)]),
            "sinks": some(&[("parquet", true), ("npy", true)]),
            "scaling_decoders": ["turbojpeg"],
            "foveate": "1.2.3", "processor": "P", "cores": 2, "system": "s",
        })
    }

    fn program() -> Program {
        let lacking = BTreeMap::from([("opencv", "no clang, and more".to_owned())]);
        Program { path: PathBuf::from("cell"), features: vec!["turbojpeg"], lacking, list: list() }
    }

    fn args(typed: &[&str]) -> Args {
        Args::try_parse_from(["bench-matrix"].iter().chain(typed)).unwrap()
    }

    fn answer_of(rate: f64) -> Value {
        json!({
            "outcome": "ok", "images_per_second": [rate, rate + 2.0], "cpu_seconds_per_image": [0.01, 0.01],
            "golden": { "photos": 30, "min_cosine": 0.99999, "median_cosine": 1.0, "tier": "t", "tier_min_cosine": 0.9 },
            "libraries": { "decoder": "x, vendored" }, "images": 64,
        })
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
    fn what_is_not_compiled_in_says_why() {
        let program = program();
        assert_eq!(program.absence("decoders", "opencv").unwrap(), "opencv: no clang, and more");
        assert_eq!(program.absence("encoders", "ort").unwrap(), "ort: not in this build");
        assert_eq!(program.absence("decoders", "zune"), None);
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
    fn samples_are_pooled_and_failures_stay() {
        let mut outcome = Outcome::Pending;
        outcome.add(Outcome::of(answer_of(10.0)));
        outcome.add(Outcome::of(answer_of(11.0)));
        let Outcome::Measured { samples, .. } = &outcome else { panic!("it was measured") };
        assert_eq!(Spread::of(samples), Spread { median: 11.5, min: 10.0, max: 13.0 });
        outcome.add(Outcome::of(json!({ "outcome": "failed", "reason": "wrong" })));
        outcome.add(Outcome::of(answer_of(11.0)));
        assert_eq!(outcome.in_short(), "FAILED (wrong)");
        assert!(matches!(Outcome::of(json!({ "outcome": "ok" })), Outcome::Failed(_)));
        assert!(matches!(Outcome::of(json!({ "outcome": "unavailable", "reason": "x" })), Outcome::Unavailable(_)));
    }

    #[test]
    fn rows_have_every_column_and_no_cell_is_absent() {
        let (program, args) = (program(), args(&["--photos", "/a/b/c/photos"]));
        let run = Run { args: &args, program: &program, rustc: "rustc 1".to_owned() };
        let mut cells = plan(&program.list).unwrap();
        cells[0].outcome = Outcome::of(answer_of(10.0));
        cells[1].outcome = Outcome::Unavailable("no clang, and more".to_owned());
        let csv = run.csv(&cells);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), cells.len() + 1);
        assert!(lines[1].contains(",ok,11.000,10.000,12.000,0.010000,1.000,"), "{}", lines[1]);
        assert!(lines[1].contains(",\"x, vendored\",") && lines[1].contains(",c/photos,"), "{}", lines[1]);
        assert!(lines[2].contains("\"n/a (no clang, and more)\""), "{}", lines[2]);
        let known: Vec<&str> = cells.iter().flat_map(|cell| run.fields(cell, &cells).into_keys()).collect();
        assert!(COLUMNS.iter().all(|column| known.contains(column)), "a column is never filled");
        assert!(known.iter().all(|field| COLUMNS.contains(field)), "a field has no column");
        let table = run.markdown(&cells);
        assert!(table.contains("11.0 (10.0 to 12.0) | 1.00 | 10.0 |") && table.contains("n/a (no clang, and more)"));
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
        assert_eq!(cause("cell: libtorch_cpu.so: cannot open"), "cell: libtorch_cpu.so: cannot open");
        let messages = "{\"reason\":\"x\",\"executable\":null}\nnoise\n{\"executable\":\"/t/cell\"}";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/cell")));
    }

    #[test]
    fn a_process_that_says_nothing_is_an_error_with_its_last_words() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            answer(command)
        };
        assert_eq!(shell("echo '{\"a\": 1}'").unwrap()["a"], 1);
        let error = format!("{:#}", shell("echo gone >&2; exit 3").unwrap_err());
        assert!(error.contains("exit status: 3") && error.contains("gone"), "{error}");
    }
}
