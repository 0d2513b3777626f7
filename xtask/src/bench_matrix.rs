//! `cargo xtask bench-matrix`: measures the whole pipeline with every backend that this machine can run. It varies one
//! axis at a time around a pinned cell, and adds the decoder-resizer pairs that the literature compares.
//!
//! Features are additive, so one `foveate` has all backends. A feature is left out, and its cells say why, if it does
//! not build or its program does not start. A sample is a run of `foveate embed`, and `foveate verify` compares each
//! cell's vectors with the pinned cell's. In each pass, every cell runs once: in a shuffled order, then in the reverse
//! order. So a machine that slows down affects all cells alike. `--cross` runs every combination of decoder, resizer,
//! encoder and sink once instead, on a few images. `benches/README.md` documents the columns.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
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

/// A process that takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(600);
/// A sample of a slow cell has fewer images, so that it takes about this long, but at least [`FEWEST`].
const SAMPLE_SECONDS: f64 = 5.0;
const FEWEST: u64 = 16;
/// Photos whose vectors are compared.
const COMPARED: &str = "32";
/// Least cosine of a photo's vectors, which another recipe or a wrong channel order would miss. The parity tests have
/// the tolerance of each combination.
const LEAST_COSINE: f64 = 0.95;
/// The exit code of a command line that cannot work: the build, a backend or the machine lacks something.
const USAGE: i32 = 2;

pub(crate) fn run(root: &Path, args: &MatrixArgs) -> Result<()> {
    ensure!(args.cross || args.samples * args.passes >= 3, "fewer than 3 samples of a cell have no spread");
    let start = Instant::now();
    let program = match &args.program {
        Some(path) => MatrixProgram::built(path)?,
        None => MatrixProgram::build(root)?,
    };
    println!("built with {} in {:.0} s", program.features.join(","), start.elapsed().as_secs_f64());
    for (feature, reason) in &program.lacking {
        println!("without {feature}: {reason}");
    }
    let start = Instant::now();
    let mut cells = if args.cross { cross(&program.list)? } else { plan(&program.list)? };
    let matrix = BackendMatrix::new(root, &program, args, &cells[0])?;
    for pass in 0..args.passes {
        for at in order(cells.len(), args.seed, pass) {
            let cell = &mut cells[at];
            cell.run(&matrix);
            println!("pass {} {:<64} {}", pass + 1, cell.name(), cell.outcome.in_short());
        }
    }
    fs::remove_dir_all(&matrix.folder)?;
    let out = root.join(&args.out);
    fs::create_dir_all(&out)?;
    let file = out.join(&args.name).with_extension("csv");
    fs::write(&file, matrix.csv(&cells)?)?;
    println!(
        "\n{}{} cells in {:.0} s: {}",
        summary(&cells),
        cells.len(),
        start.elapsed().as_secs_f64(),
        file.display()
    );
    let failed: Vec<String> =
        cells.iter().filter(|cell| matches!(cell.outcome, CellOutcome::Failed(_))).map(MatrixCell::name).collect();
    ensure!(failed.is_empty(), "{} cells failed: {}", failed.len(), failed.join("; "));
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct MatrixArgs {
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
    /// Folder of the CSV file, relative to the workspace
    #[arg(long, default_value = "benches/runs", default_value_if("quick", "true", "target/bench-matrix"))]
    out: PathBuf,
    /// Name of the file
    #[arg(long, default_value = "matrix", default_value_if("cross", "true", "cross"))]
    name: String,
    /// A built `foveate`, which is otherwise built first
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The program that runs the cells.
struct MatrixProgram {
    path: PathBuf,
    features: Vec<&'static str>,
    /// Features that it was built without, and why.
    lacking: BTreeMap<&'static str, String>,
    /// The answer of `foveate doctor` about it and the machine.
    list: Value,
}

/// The program's features: the backends that are not in the default build.
fn features() -> Vec<&'static str> {
    ["candle"].into_iter().chain(setup::features()).collect()
}

impl MatrixProgram {
    fn build(root: &Path) -> Result<Self> {
        let mut lacking = BTreeMap::new();
        let mut features = features();
        if let Err(reason) = attempt(root, &features) {
            println!("not with every feature ({reason}); trying them one by one");
            for &feature in &features {
                if let Err(reason) = attempt(root, &[feature]) {
                    lacking.insert(feature, reason.to_string());
                }
            }
        }
        features.retain(|feature| !lacking.contains_key(feature));
        let (path, list) = attempt(root, &features)?;
        Ok(Self { path, features, lacking, list })
    }

    fn built(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), features: features(), lacking: BTreeMap::new(), list: list(path)? })
    }

    /// The answer of `foveate doctor` about a backend.
    fn backend(&self, kind: &str, name: &str) -> &Value {
        let mut found = backends(&self.list).filter(|backend| backend["kind"] == kind && backend["name"] == name);
        found.next().unwrap_or(&Value::Null)
    }

    /// The reason that a backend cannot be used, if so: what its library lacks, or why it is not in the build.
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

/// Builds the program with `features` and lists its backends. The error is the reason in a line.
fn attempt(root: &Path, features: &[&str]) -> Result<(PathBuf, Value)> {
    let mut command = cargo::cargo(root);
    command.args(["build", "--release", "--package", "foveate", "--bin", "foveate"]);
    command.args(["--message-format", "json-render-diagnostics", "--features", &features.join(",")]);
    let output = command.stdin(Stdio::null()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "{}", cause(&String::from_utf8_lossy(&output.stderr)));
    let path = cargo::executables(&output.stdout).pop().context("cargo named no program")?;
    let list = list(&path)?;
    Ok((path, list))
}

/// Lists the backends of a built program.
fn list(path: &Path) -> Result<Value> {
    let listed = Command::new(path).args(["doctor", "--json"]).output();
    let listed = listed.map_err(|error| anyhow!("it does not start: {error}"))?;
    serde_json::from_slice(&listed.stdout)
        .map_err(|_| anyhow!("it does not start: {}", cause(&String::from_utf8_lossy(&listed.stderr))))
}

/// The most useful line of a failed command's output: a build script's or linker's error, or else the first error.
fn cause(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = lines.iter().skip_while(|line| **line != "--- stderr").nth(1);
    let error = lines.iter().find(|line| line.starts_with("error"));
    let line = said.or(error).or(lines.last()).unwrap_or(&"no reason given");
    line.chars().take(200).collect()
}

/// One combination of backends.
#[derive(Clone)]
struct MatrixCell {
    /// The axes that include it.
    axes: Vec<&'static str>,
    decoder: String,
    resizer: String,
    encoder: String,
    dtype: String,
    scale: String,
    sink: String,
    outcome: CellOutcome,
}

/// The result of a cell.
#[derive(Clone)]
enum CellOutcome {
    /// Not measured yet.
    Pending,
    /// It gave the reference's vectors in every pass so far.
    Measured(Box<CellFigures>),
    /// This machine or this backend cannot run it.
    Unavailable(String),
    /// It ran and failed.
    Failed(String),
}

/// The figures of a cell.
#[derive(Clone, Default)]
struct CellFigures {
    /// The answer of `foveate verify` about its vectors.
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

impl CellFigures {
    /// The share of the time that a stage of the last sample was busy.
    fn busy(&self, name: &str) -> String {
        let stages = self.last["stages"].as_array().into_iter().flatten();
        stages.filter(|stage| stage["stage"] == name).map(|stage| decimals(&stage["share"], 4)).collect()
    }
}

impl CellOutcome {
    fn in_short(&self) -> String {
        match self {
            Self::Measured(figures) => format!("{:.1} images/s", median(&figures.rates)),
            Self::Unavailable(reason) => format!("n/a ({reason})"),
            Self::Failed(reason) => format!("FAILED ({reason})"),
            Self::Pending => "n/a (not run)".to_owned(),
        }
    }
}

/// The cells' common conditions.
struct BackendMatrix<'a> {
    root: &'a Path,
    program: &'a MatrixProgram,
    args: &'a MatrixArgs,
    /// The folder of the outputs.
    folder: PathBuf,
    /// The pinned cell, as `foveate verify` names a configuration.
    reference: String,
    /// The answer of the pinned cell's dry run.
    rehearsal: Value,
}

impl<'a> BackendMatrix<'a> {
    fn new(root: &'a Path, program: &'a MatrixProgram, args: &'a MatrixArgs, pinned: &MatrixCell) -> Result<Self> {
        let MatrixCell { decoder, resizer, encoder, dtype, scale, .. } = pinned;
        let reference =
            format!("decoder={decoder},decode-scale={scale},resizer={resizer},encoder={encoder},dtype={dtype}");
        let folder = cargo::target(root).join("bench-matrix").join("outputs");
        fs::create_dir_all(&folder)?;
        let mut matrix = Self { root, program, args, folder, reference, rehearsal: Value::Null };
        match matrix.answer(matrix.embed(pinned, 1).arg("--dry-run")) {
            Ok(rehearsal) => matrix.rehearsal = rehearsal,
            Err(outcome) => bail!("the pinned cell {}: {}", pinned.name(), outcome.in_short()),
        }
        Ok(matrix)
    }

    /// The command `name` with a cell's options.
    fn command(&self, name: &str, cell: &MatrixCell) -> Command {
        let MatrixCell { decoder, resizer, encoder, dtype, scale, .. } = cell;
        let mut command = Command::new(&self.program.path);
        command.current_dir(self.root).args([name, &self.args.photos, "--json", "--model", &self.args.model]);
        command.args(["--decoder", decoder, "--resizer", resizer, "--encoder", encoder]);
        command.args(["--dtype", dtype, "--decode-scale", scale]);
        command
    }

    /// A run over the photos, which `times` of them repeat.
    fn embed(&self, cell: &MatrixCell, times: u64) -> Command {
        let mut command = self.command("embed", cell);
        let output = self.folder.join("vectors").with_extension(&cell.sink);
        command.args((1..times).map(|_| &self.args.photos)).args(["--sink", &cell.sink, "--output"]).arg(output);
        command.args(["--overwrite", "--strict", "--quiet", "--recent-memory", "off"]);
        command
    }

    /// The JSON that the program prints, or why it does not.
    fn answer(&self, command: &mut Command) -> Result<Value, CellOutcome> {
        let log = self.folder.join("log");
        let ended = run_limited(command, &log, PATIENCE).map_err(|error| CellOutcome::Failed(format!("{error:#}")))?;
        let said = fs::read_to_string(&log).unwrap_or_default();
        let reason = cause(&said).trim_start_matches("error: ").to_owned();
        match ended {
            None => Err(CellOutcome::Failed(format!("it did not end within {} s", PATIENCE.as_secs()))),
            Some(status) if status.success() => said
                .lines()
                .rev()
                .find_map(|line| serde_json::from_str(line).ok())
                .ok_or_else(|| CellOutcome::Failed("it printed no JSON".to_owned())),
            Some(status) if status.code() == Some(USAGE) => Err(CellOutcome::Unavailable(reason)),
            Some(_) => Err(CellOutcome::Failed(reason)),
        }
    }

    fn csv(&self, cells: &[MatrixCell]) -> Result<Vec<u8>> {
        let date = said(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]));
        let origin = [commit(self.root)?, date, said(Command::new("rustc").arg("--version"))];
        let mut csv = csv::Writer::from_writer(Vec::new());
        for (at, cell) in cells.iter().enumerate() {
            let fields = self.fields(cell, cells, &origin);
            if at == 0 {
                csv.write_record(fields.iter().map(|(column, _)| column))?;
            }
            csv.write_record(fields.iter().map(|(_, value)| value))?;
        }
        Ok(csv.into_inner()?)
    }

    /// A cell's row: its columns in order, which `benches/README.md` documents, and their fields.
    fn fields(
        &self,
        cell: &MatrixCell,
        cells: &[MatrixCell],
        [commit, date, rustc]: &[String; 3],
    ) -> Vec<(&'static str, String)> {
        let Self { program, args, rehearsal, .. } = self;
        let (status, figures) = match &cell.outcome {
            CellOutcome::Measured(figures) => ("ok".to_owned(), Some(&**figures)),
            CellOutcome::Failed(reason) => (format!("n/a ({reason})"), None),
            outcome => (outcome.in_short(), None),
        };
        let images = figures.map_or(args.images, |of| of.images);
        vec![
            ("axis", cell.axes.join(" ")),
            ("decoder", cell.decoder.clone()),
            ("resizer", cell.resizer.clone()),
            ("encoder", cell.encoder.clone()),
            ("dtype", cell.dtype.clone()),
            ("decode_scale", cell.scale.clone()),
            ("sink", cell.sink.clone()),
            ("status", status),
            ("images_per_second", figure(figures, |of| format!("{:.3}", median(&of.rates)))),
            ("images_per_second_min", figure(figures, |of| format!("{:.3}", sorted(&of.rates)[0]))),
            ("images_per_second_max", figure(figures, |of| format!("{:.3}", most(&of.rates)))),
            ("cpu_seconds_per_image", figure(figures, |of| format!("{:.6}", median(&of.cpu)))),
            (
                "ratio_to_pinned",
                figure(figures, |of| ratio_to_pinned(of, cells).map_or(String::new(), |r| format!("{r:.3}"))),
            ),
            ("peak_resident_mb", figure(figures, |of| format!("{:.1}", most(&of.peak) / 1e6))),
            ("load_seconds", figure(figures, |of| format!("{:.3}", median(&of.load)))),
            ("busy_read", figure(figures, |of| of.busy("read"))),
            ("busy_decode", figure(figures, |of| of.busy("decode"))),
            ("busy_resize", figure(figures, |of| of.busy("resize"))),
            ("busy_batch", figure(figures, |of| of.busy("batch"))),
            ("busy_encode", figure(figures, |of| of.busy("encode"))),
            ("busy_write", figure(figures, |of| of.busy("write"))),
            ("bottleneck", figure(figures, |of| plain(&of.last["bottleneck"]))),
            ("rows_checked", figure(figures, |of| (of.images * of.rates.len() as u64).to_string())),
            ("compared", figure(figures, |of| plain(&of.compared["compared"]))),
            ("min_cosine", figure(figures, |of| decimals(&of.compared["cosine"]["min"], 9))),
            ("median_cosine", figure(figures, |of| decimals(&of.compared["cosine"]["median"], 9))),
            ("decoder_library", figure(figures, |_| program.library("decoder", &cell.decoder))),
            ("resizer_library", figure(figures, |_| program.library("resizer", &cell.resizer))),
            ("encoder_library", figure(figures, |_| program.library("encoder", &cell.encoder))),
            ("sink_library", figure(figures, |_| program.library("sink", &cell.sink))),
            ("model", args.model.clone()),
            ("photos", short_name(&args.photos)),
            ("images", images.to_string()),
            ("samples", figure(figures, |of| of.rates.len().to_string())),
            ("batch", plain(&rehearsal["batch"])),
            ("workers", plain(&rehearsal["threads"]["decode"])),
            ("threads", plain(&rehearsal["threads"]["forward"])),
            ("sample_seconds", figure(figures, |of| format!("{:.3}", images as f64 / median(&of.rates)))),
            ("effort", if args.quick { "quick" } else { "full" }.to_owned()),
            ("host", plain(&program.list["machine"])),
            ("cores", std::thread::available_parallelism().map_or(1, usize::from).to_string()),
            ("features", program.features.join(" ")),
            ("foveate", plain(&rehearsal["settings"]["foveate"])),
            ("commit", commit.clone()),
            ("date", date.clone()),
            ("rustc", rustc.clone()),
            ("seed", args.seed.to_string()),
        ]
    }
}

impl MatrixCell {
    fn name(&self) -> String {
        let Self { decoder, resizer, encoder, dtype, scale, sink, .. } = self;
        format!("{decoder}+{resizer}+{encoder} {dtype} {scale} {sink}")
    }

    /// The backends by kind.
    fn backends(&self) -> [(&'static str, &str); 4] {
        [("decoder", &self.decoder), ("resizer", &self.resizer), ("encoder", &self.encoder), ("sink", &self.sink)]
    }

    /// The cell with another value of one setting.
    fn with(&self, setting: &str, value: &str) -> Self {
        let mut cell = self.clone();
        let field = match setting {
            "decoder" => &mut cell.decoder,
            "resizer" => &mut cell.resizer,
            "encoder" => &mut cell.encoder,
            "dtype" => &mut cell.dtype,
            "scale" => &mut cell.scale,
            _ => &mut cell.sink,
        };
        value.clone_into(field);
        cell
    }

    /// Takes a pass's samples, which add to those of earlier passes. What cannot run, or fails, stays so.
    fn run(&mut self, matrix: &BackendMatrix<'_>) {
        let figures = match std::mem::replace(&mut self.outcome, CellOutcome::Pending) {
            CellOutcome::Measured(figures) => Ok(*figures),
            CellOutcome::Pending => self.compare(matrix),
            failure => Err(failure),
        };
        self.outcome = match figures.and_then(|figures| self.sample(matrix, figures)) {
            Ok(figures) => CellOutcome::Measured(figures.into()),
            Err(failure) => failure,
        };
    }

    /// Compares its vectors with the reference's, which also tells how many images a sample may have.
    fn compare(&self, matrix: &BackendMatrix<'_>) -> Result<CellFigures, CellOutcome> {
        if let Some(reason) = self.backends().into_iter().find_map(|(kind, name)| matrix.program.absence(kind, name)) {
            return Err(CellOutcome::Unavailable(reason));
        }
        if matrix.args.cross {
            return Ok(CellFigures { images: matrix.args.images, ..CellFigures::default() });
        }
        let mut verify = matrix.command("verify", self);
        let compared = matrix.answer(verify.args(["--against", &matrix.reference, "--sample", COMPARED]))?;
        let least = compared["cosine"]["min"].as_f64().unwrap_or(-1.0);
        if least < LEAST_COSINE {
            return Err(CellOutcome::Failed(format!("cosine {least:.6} to the vectors of {}", matrix.reference)));
        }
        let rate = compared["images_per_second"][0].as_f64().unwrap_or_default();
        let images = ((rate * SAMPLE_SECONDS) as u64).max(FEWEST).min(matrix.args.images);
        Ok(CellFigures { compared, images, ..CellFigures::default() })
    }

    fn sample(&self, matrix: &BackendMatrix<'_>, mut figures: CellFigures) -> Result<CellFigures, CellOutcome> {
        let images = figures.images;
        let times = images.div_ceil(matrix.rehearsal["inputs"].as_u64().unwrap_or(1).max(1));
        for _ in 0..matrix.args.samples {
            let started = Instant::now();
            let done = matrix.answer(matrix.embed(self, times).args(["--limit", &images.to_string()]))?;
            let wall = started.elapsed().as_secs_f64();
            if (done["vectors"].as_u64(), done["failures"].as_u64()) != (Some(images), Some(0)) {
                return Err(CellOutcome::Failed(format!("{} vectors of {images} images", done["vectors"])));
            }
            let session = &done["session"];
            figures.rates.push(session["images_per_second"].as_f64().unwrap_or(f64::NAN));
            figures.cpu.push(session["cpu_seconds"].as_f64().unwrap_or(f64::NAN) / images as f64);
            figures.load.push(wall - session["seconds"].as_f64().unwrap_or(f64::NAN));
            figures.peak.push(done["peak_resident_bytes"].as_f64().unwrap_or(f64::NAN));
            figures.last = done;
        }
        Ok(figures)
    }
}

/// The best working backend of each kind, in f32.
fn base(list: &Value) -> Result<MatrixCell> {
    let mut cell = MatrixCell {
        axes: vec!["pinned"],
        decoder: String::new(),
        resizer: String::new(),
        encoder: String::new(),
        dtype: DTYPES[0].to_owned(),
        scale: "exact".to_owned(),
        sink: String::new(),
        outcome: CellOutcome::Pending,
    };
    for (kind, best) in BEST {
        let working: Vec<&Value> =
            backends(list).filter(|backend| backend["kind"] == kind && backend["state"] == "ok").collect();
        let name = best.iter().find(|name| working.iter().any(|backend| backend["name"] == **name));
        cell = cell.with(kind, name.with_context(|| format!("this build has no {kind} that works"))?);
    }
    Ok(cell)
}

/// Every combination of decoder, resizer, encoder and sink once, the pinned one first.
fn cross(list: &Value) -> Result<Vec<MatrixCell>> {
    let base = base(list)?;
    let mut cells = vec![MatrixCell { axes: vec!["cross"], ..base.clone() }];
    for (kind, _) in BEST {
        let mut varied = Vec::new();
        for cell in &cells {
            varied.extend(names(list, kind).map(|name| cell.with(kind, name)));
        }
        cells = varied;
    }
    let pinned = cells.iter().position(|cell| cell.name() == base.name()).context("the pinned cell")?;
    cells[..=pinned].rotate_right(1);
    cells[0].axes.push("pinned");
    Ok(cells)
}

/// The cells in a few lines: how many ran, the fastest and the slowest, and why the others did not.
fn summary(cells: &[MatrixCell]) -> String {
    let mut rates = Vec::new();
    let mut reasons = BTreeMap::<String, usize>::new();
    for cell in cells {
        match &cell.outcome {
            CellOutcome::Measured(figures) => rates.push((median(&figures.rates), cell.name())),
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
fn plan(list: &Value) -> Result<Vec<MatrixCell>> {
    let base = base(list)?;
    let mut wanted = vec![("pinned", base.clone())];
    wanted.extend(names(list, "decoder").map(|name| ("decoder", base.with("decoder", name))));
    wanted
        .extend(names(list, "decoder").map(|name| ("decode-scale", base.with("decoder", name).with("scale", "fast"))));
    wanted.extend(names(list, "resizer").map(|name| ("resizer", base.with("resizer", name))));
    for name in names(list, "encoder") {
        wanted.extend(DTYPES.map(|dtype| ("encoder+dtype", base.with("encoder", name).with("dtype", dtype))));
    }
    wanted.extend(names(list, "sink").map(|name| ("sink", base.with("sink", name))));
    for (decoder, resizer) in SEEDS {
        wanted.push(("seed", base.with("decoder", decoder).with("resizer", resizer)));
    }
    let mut cells: Vec<MatrixCell> = Vec::new();
    for (axis, cell) in wanted {
        match cells.iter_mut().find(|known| known.name() == cell.name()) {
            Some(known) => known.axes.push(axis),
            None => cells.push(MatrixCell { axes: vec![axis], ..cell }),
        }
    }
    Ok(cells)
}

/// Every known backend of a kind, compiled in or not.
fn names<'a>(list: &'a Value, kind: &str) -> impl Iterator<Item = &'a str> {
    backends(list).filter(move |backend| backend["kind"] == kind).filter_map(|backend| backend["name"].as_str())
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
    let sources = ["status", "--porcelain", "--", "crates", "Cargo.toml", "Cargo.lock"];
    let differs = !cargo::git(root, &sources)?.is_empty();
    let head = cargo::git(root, &["rev-parse", "--short=12", "HEAD"])?;
    Ok(head.trim().to_owned() + if differs { "+" } else { "" })
}

/// The line that a program of the system prints.
fn said(command: &mut Command) -> String {
    cargo::output(command).map_or("unknown".to_owned(), |said| said.trim().to_owned())
}

/// The values in order; one NaN if there are none.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = if values.is_empty() { vec![f64::NAN] } else { values.to_vec() };
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn most(values: &[f64]) -> f64 {
    sorted(values)[values.len().saturating_sub(1)]
}

/// A field of a cell; empty if the cell was not measured.
fn figure(figures: Option<&CellFigures>, value: impl Fn(&CellFigures) -> String) -> String {
    figures.map(value).unwrap_or_default()
}

fn ratio_to_pinned(figures: &CellFigures, cells: &[MatrixCell]) -> Option<f64> {
    let pinned = cells.iter().find(|cell| cell.axes.contains(&"pinned"))?;
    match &pinned.outcome {
        CellOutcome::Measured(pinned) => Some(median(&figures.rates) / median(&pinned.rates)),
        _ => None,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn decimals(value: &Value, digits: usize) -> String {
    value.as_f64().map_or(String::new(), |value| format!("{value:.digits$}"))
}

/// The last two parts of a path: enough to distinguish photos, without this machine's folders.
fn short_name(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

#[cfg(test)]
mod tests {
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

    fn program() -> MatrixProgram {
        let lacking = BTreeMap::from([("opencv", "no clang, and more".to_owned())]);
        MatrixProgram { path: PathBuf::from("foveate"), features: vec!["turbojpeg"], lacking, list: list() }
    }

    fn args(typed: &[&str]) -> MatrixArgs {
        crate::cargo::parsed(typed).unwrap()
    }

    fn measured() -> CellFigures {
        CellFigures {
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
        let names: Vec<String> = cells.iter().map(MatrixCell::name).collect();
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
        let names: std::collections::BTreeSet<String> = cells.iter().map(MatrixCell::name).collect();
        assert_eq!((cells.len(), names.len()), (6 * 3 * 2 * 2, 6 * 3 * 2 * 2));
        assert!(names.contains("nvjpeg+opencv+ort f32 exact npy"));
        assert_eq!((cells[0].name(), &cells[0].axes[..]), (plan(&list()).unwrap()[0].name(), &["cross", "pinned"][..]));
        cells[0].outcome = CellOutcome::Measured(measured().into());
        cells[1].outcome = CellOutcome::Measured(CellFigures { rates: vec![3.0], ..measured() }.into());
        cells[2..].iter_mut().for_each(|cell| cell.outcome = CellOutcome::Unavailable("no device".to_owned()));
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
        let program = program();
        let args = args(&["--photos", "/a/b/c/photos"]);
        let rehearsal =
            json!({ "batch": 32, "threads": { "decode": 1, "forward": 2 }, "settings": { "foveate": "1.2.3" } });
        let root = crate::cargo::root();
        let folder = PathBuf::new();
        let matrix =
            BackendMatrix { root: &root, program: &program, args: &args, folder, reference: String::new(), rehearsal };
        let mut cells = plan(&program.list).unwrap();
        cells[0].outcome = CellOutcome::Measured(measured().into());
        cells[1].outcome = CellOutcome::Unavailable("no clang, and more".to_owned());
        let csv = String::from_utf8(matrix.csv(&cells).unwrap()).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), cells.len() + 1);
        assert!(lines[1].contains(",ok,11.000,10.000,12.000,0.010000,1.000,"), "{}", lines[1]);
        assert!(lines[1].contains(",\"P, s, 2 cores\",") && lines[1].contains(",c/photos,"), "{}", lines[1]);
        assert!(lines[2].contains("\"n/a (no clang, and more)\""), "{}", lines[2]);
    }

    #[test]
    fn too_few_samples_are_refused() {
        let refused = run(Path::new("root"), &args(&["--samples", "1"])).unwrap_err().to_string();
        assert!(refused.contains("fewer than 3 samples"), "{refused}");
    }

    #[test]
    fn a_quick_run_has_defaults_of_its_own() {
        let quick = args(&["--quick"]);
        let full = args(&[]);
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
    }

    #[test]
    fn what_a_machine_lacks_is_no_failure() {
        let program = program();
        let args = args(&[]);
        let folder = tempfile::tempdir().unwrap();
        let matrix = BackendMatrix {
            root: Path::new("/"),
            program: &program,
            args: &args,
            folder: folder.path().to_owned(),
            reference: String::new(),
            rehearsal: Value::Null,
        };
        let shell = |script: &str| matrix.answer(Command::new("sh").args(["-c", script]));
        let refused =
            |script: &str| shell(script).map_or_else(|outcome| outcome.in_short(), |answer| answer.to_string());
        assert_eq!(refused("echo note >&2; echo '{\"a\": 1}'"), "{\"a\":1}");
        assert_eq!(refused("echo error: no f16 >&2; exit 2"), "n/a (no f16)");
        assert_eq!(refused("echo error: gone >&2; exit 1"), "FAILED (gone)");
        assert_eq!(refused("kill -9 $$"), "FAILED (no reason given)");
        assert_eq!(refused("true"), "FAILED (it printed no JSON)");
    }
}
