//! The forward alone: this project's fused CPU forward, the same model in candle's own tensor operations, and ONNX
//! Runtime, side by side in one run.
//!
//! `cargo bench -p foveate-benches --bench forward -- [--threads 1,2] [--batches 1,8,32] [--rounds 5] [--seconds 1]
//! [--model dinov2-small] [--python python3] [--csv FILE]`
//!
//! Every engine is a process of its own that stays alive, so that each has its own threads and its own memory. In each
//! round all engines take one turn of about `--seconds`, one after the other; the figures are medians over the rounds.
//! Images per processor-second count the time of all threads of an engine and survive other load on the machine;
//! images per second are by the clock. ONNX Runtime gets normalized f32 pixels, so its normalization is free, and runs
//! with spinning off, once with its fused attention and once with plain operations. Without a Python that has
//! `onnxruntime`, `onnx` and `numpy` its rows say so. The engines' vectors are compared: a forward that computes
//! something else would not count.

// A bench's table is what it is for.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use candle_core::Device;
use foveate_benches::{median, processor_time};
use foveate_core::{PixelBatch, VectorBuf};
use foveate_dinov2::{Model, interpolate_positions};
use foveate_encode::{DType, Encoder, EncoderOptions, Pooling, conformance, normalize_nchw};
use foveate_encode_candle::{CandleEncoder, TensorEncoder};
use safetensors::tensor::TensorView;

const ENGINES: [&str; 4] = ["fused", "tensors", "ort-mha", "ort-plain"];

fn main() {
    let args = Args::parse();
    match &args.child {
        Some(engine) => serve(engine, &args),
        None => compare(&args),
    }
}

struct Args {
    model: String,
    threads: Vec<usize>,
    batches: Vec<usize>,
    rounds: usize,
    seconds: f64,
    python: String,
    csv: Option<PathBuf>,
    /// Set when this process is one of the engines.
    child: Option<String>,
}

impl Args {
    fn parse() -> Self {
        let mut args = Self {
            model: "dinov2-small".to_owned(),
            threads: vec![1, 2],
            batches: vec![1, 8, 32],
            rounds: 5,
            seconds: 1.0,
            python: "python3".to_owned(),
            csv: None,
            child: None,
        };
        let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
        while let Some(name) = given.next() {
            let value = given.next().unwrap_or_else(|| panic!("{name} needs a value"));
            match name.as_str() {
                "--model" => args.model = value,
                "--threads" => args.threads = numbers(&value),
                "--batches" => args.batches = numbers(&value),
                "--rounds" => args.rounds = numbers(&value)[0],
                "--seconds" => args.seconds = value.parse().expect("--seconds takes a number"),
                "--python" => args.python = value,
                "--csv" => args.csv = Some(value.into()),
                "--child" => args.child = Some(value),
                _ => panic!("there is no option {name}"),
            }
        }
        args
    }
}

fn numbers(list: &str) -> Vec<usize> {
    list.split(',').map(|number| number.parse().expect("a list of numbers, separated by commas")).collect()
}

/// What the engines of a run share, in a folder of its own.
struct Inputs {
    folder: tempfile::TempDir,
    side: u32,
}

impl Inputs {
    /// Writes the pixels of `images` images, as u8 and normalized, and the weights.
    fn write(model: &Model, images: usize) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let recipe = &model.preprocess;
        let pixels: Vec<u8> = (0..images as u32).flat_map(|seed| conformance::noise(recipe.crop, seed)).collect();
        let batch = PixelBatch::new(&pixels, recipe.crop).expect("whole images");
        let mut normalized = Vec::new();
        normalize_nchw(batch, recipe.mean, recipe.std, &mut normalized);
        let inputs = Self { folder, side: recipe.crop.width };
        std::fs::write(inputs.pixels("fused"), &pixels).expect("room for the pixels");
        std::fs::write(inputs.pixels("ort"), bytes(&normalized)).expect("room for the pixels");
        dump_weights(model, &inputs.weights());
        inputs
    }

    fn pixels(&self, engine: &str) -> PathBuf {
        self.folder.path().join(if engine.starts_with("ort") { "pixels.f32" } else { "pixels.u8" })
    }

    fn weights(&self) -> PathBuf {
        self.folder.path().join("weights.safetensors")
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The checkpoint with position embeddings interpolated, for an engine that knows nothing of that.
fn dump_weights(model: &Model, path: &Path) {
    const POSITIONS: &str = "embeddings.position_embeddings";
    let config = &model.config;
    let grid = config.grid(model.preprocess.crop).expect("whole patches");
    let tensors = config.tensors().into_iter().filter(|tensor| !tensor.optional).map(|tensor| {
        let values = model.weights.tensor(&tensor.name, &tensor.shape).expect("a complete model");
        if tensor.name == POSITIONS {
            let values = interpolate_positions(config, &values, grid.height, grid.width);
            return (tensor.name, vec![1, 1 + grid.patches(), config.hidden_size], bytes(&values));
        }
        (tensor.name, tensor.shape, bytes(&values))
    });
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, shape, data)| {
        (name, TensorView::new(safetensors::Dtype::F32, shape.clone(), data).expect("shape and data agree"))
    });
    let number = |name: &str, value: &dyn std::fmt::Display| (name.to_owned(), value.to_string());
    let metadata: HashMap<_, _> = HashMap::from([
        number("hidden", &config.hidden_size),
        number("heads", &config.num_attention_heads),
        number("layers", &config.num_hidden_layers),
        number("patch", &config.patch_size),
        number("eps", &config.layer_norm_eps),
    ]);
    safetensors::serialize_to_file(views, Some(metadata), path).expect("room for the weights");
}

/// One engine with some number of threads, running.
struct Engine {
    name: &'static str,
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// What it says of itself.
    version: String,
}

/// One turn: seconds for all images together, and the vector of the first.
struct Turn {
    wall: f64,
    cpu: f64,
    vector: Vec<f64>,
}

impl Engine {
    fn start(name: &'static str, threads: usize, args: &Args, inputs: &Inputs) -> Result<Self, String> {
        let mut command = match name.strip_prefix("ort-") {
            Some(attention) => ort_command(attention, threads, args, inputs)?,
            None => own_command(name, threads, args),
        };
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let requests = process.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut engine = Self { name, process, requests, answers, version: String::new() };
        let ready = engine.line();
        engine.version = ready.strip_prefix("ready ").ok_or(format!("{name} does not start"))?.to_owned();
        Ok(engine)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an engine answers");
        line.trim().to_owned()
    }

    /// Runs a batch of `images` images `runs` times.
    fn turn(&mut self, inputs: &Inputs, images: usize, runs: usize) -> Turn {
        let pixels = inputs.pixels(self.name);
        writeln!(self.requests, "{} {images} {} {runs}", pixels.display(), inputs.side).expect("an engine listens");
        let line = self.line();
        let mut values = line.split(' ').map(|value| value.parse().expect("an engine answers in numbers"));
        let mut next = || values.next().expect("wall and processor seconds");
        Turn { wall: next(), cpu: next(), vector: values.collect() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It is of no use any more; there is nobody to tell if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn own_command(engine: &str, threads: usize, args: &Args) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--child", engine, "--threads", &threads.to_string(), "--model", &args.model]);
    // What candle's own products take their number of threads from.
    command.env("RAYON_NUM_THREADS", threads.to_string());
    command
}

fn ort_command(attention: &str, threads: usize, args: &Args, inputs: &Inputs) -> Result<Command, String> {
    let probe = Command::new(&args.python).args(["-c", "import numpy, onnx, onnxruntime"]).output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(_) => return Err(format!("{} has no onnxruntime, onnx and numpy", args.python)),
        Err(e) => return Err(format!("{}: {e}", args.python)),
    }
    let mut command = Command::new(&args.python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/py/forward_ort.py"));
    command.arg(inputs.weights()).args([&threads.to_string(), attention]);
    Ok(command)
}

/// This process as an engine: answers requests until its input ends.
fn serve(engine: &str, args: &Args) {
    let model = Model::seeded(&args.model).expect("a model card");
    let options = EncoderOptions { max_batch: 1 << 16, threads: args.threads[0], ..EncoderOptions::default() };
    let mut encoder: Box<dyn Encoder> = match engine {
        "fused" => Box::new(CandleEncoder::new(&model, &options).expect("a complete model")),
        "tensors" => Box::new(TensorEncoder::new(&model, &options, Device::Cpu).expect("a complete model")),
        _ => panic!("there is no engine {engine}"),
    };
    drop(model);
    println!("ready foveate {}", env!("CARGO_PKG_VERSION"));
    for line in std::io::stdin().lines() {
        let line = line.expect("the bench asks in text");
        let [path, images, _side, runs] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("what is {line}?") };
        let pixels = std::fs::read(path).expect("the bench wrote the pixels");
        let turn = measure(encoder.as_mut(), &pixels, numbers(images)[0], numbers(runs)[0]);
        let mut answer = format!("{} {}", turn.wall, turn.cpu);
        turn.vector.iter().for_each(|value| write!(answer, " {value}").expect("a string takes text"));
        println!("{answer}");
    }
}

fn measure(encoder: &mut dyn Encoder, pixels: &[u8], images: usize, runs: usize) -> Turn {
    let size = encoder.spec().input;
    let batch = PixelBatch::new(pixels, size).and_then(|all| all.slice(0..images)).expect("enough images");
    let mut out = VectorBuf::new();
    let (wall, cpu) = (Instant::now(), processor_time());
    for _ in 0..runs {
        encoder.encode(batch, &mut out).expect("a batch that fits");
    }
    let cpu = cpu.zip(processor_time()).map_or(f64::NAN, |(before, after)| (after - before).as_secs_f64());
    Turn { wall: wall.elapsed().as_secs_f64(), cpu, vector: out.row(0).iter().map(|&v| v.into()).collect() }
}

/// An engine's medians in one cell of the table.
struct Figure {
    engine: &'static str,
    version: String,
    per_cpu_second: f64,
    per_second: f64,
    cosine: f64,
}

fn compare(args: &Args) {
    let model = Model::seeded(&args.model).expect("a model card");
    let inputs = Inputs::write(&model, *args.batches.iter().max().expect("a batch size"));
    println!("{} with seeded weights, {} pixels, f32; medians of {} rounds", args.model, inputs.side, args.rounds);
    println!(
        "threads batch engine     | images per cpu-second   per second | of ONNX Runtime's best | cosine to fused"
    );
    let mut csv = String::from(
        "host,model,side,dtype,threads,batch,engine,version,rounds,images_per_cpu_second,images_per_second,\
         ratio_to_ort_cpu,ratio_to_ort_wall,cosine_to_fused\n",
    );
    for &threads in &args.threads {
        let started = ENGINES.map(|name| (name, Engine::start(name, threads, args, &inputs)));
        let mut engines = Vec::new();
        let mut missing = Vec::new();
        for (name, engine) in started {
            match engine {
                Ok(engine) => engines.push(engine),
                Err(reason) => missing.push((name, reason)),
            }
        }
        for &batch in &args.batches {
            let figures = cell(&mut engines, &inputs, batch, args);
            report(&figures, &missing, threads, batch, args, &inputs, &mut csv);
        }
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, csv).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// Lets the engines take turns.
fn cell(engines: &mut [Engine], inputs: &Inputs, batch: usize, args: &Args) -> Vec<Figure> {
    let mut runs = Vec::new();
    let mut vectors = Vec::new();
    for engine in engines.iter_mut() {
        engine.turn(inputs, batch, 1);
        let warm = engine.turn(inputs, batch, 1);
        runs.push((args.seconds / warm.wall).ceil().max(1.0) as usize);
        vectors.push(warm.vector);
    }
    let mut rates = vec![(Vec::new(), Vec::new()); engines.len()];
    for _ in 0..args.rounds {
        for ((engine, &runs), (per_cpu_second, per_second)) in engines.iter_mut().zip(&runs).zip(&mut rates) {
            let turn = engine.turn(inputs, batch, runs);
            per_cpu_second.push((batch * runs) as f64 / turn.cpu);
            per_second.push((batch * runs) as f64 / turn.wall);
        }
    }
    let figures = engines.iter().zip(&mut rates).zip(&vectors).map(|((engine, rates), vector)| Figure {
        engine: engine.name,
        version: engine.version.clone(),
        per_cpu_second: median(&mut rates.0),
        per_second: median(&mut rates.1),
        cosine: cosine(vector, &vectors[0]),
    });
    figures.collect()
}

/// What the system calls the processor, where it tells.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(std::env::consts::ARCH);
    name.trim_start_matches([' ', '\t', ':']).replace(',', " ")
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "all engines give the class token");
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn report(
    figures: &[Figure],
    missing: &[(&str, String)],
    threads: usize,
    batch: usize,
    args: &Args,
    inputs: &Inputs,
    csv: &mut String,
) {
    let host = processor();
    let best = |rate: fn(&Figure) -> f64| {
        figures.iter().filter(|figure| figure.engine.starts_with("ort")).map(rate).fold(f64::NAN, f64::max)
    };
    let (ort_cpu, ort_wall) = (best(|figure| figure.per_cpu_second), best(|figure| figure.per_second));
    for Figure { engine, version, per_cpu_second, per_second, cosine } in figures {
        assert!(*cosine > 1.0 - 1e-6, "{engine} computes other vectors: cosine {cosine}");
        let (cpu, wall) = (per_cpu_second / ort_cpu, per_second / ort_wall);
        println!(
            "{threads:>7} {batch:>5} {engine:<10} | {per_cpu_second:>21.2} {per_second:>12.2} | cpu {cpu:>5.2}  wall \
             {wall:>5.2}  | {cosine:.9}"
        );
        let (model, side, rounds) = (&args.model, inputs.side, args.rounds);
        writeln!(
            csv,
            "{host},{model},{side},f32,{threads},{batch},{engine},{version},{rounds},{per_cpu_second:.3},{per_second:.3},\
             {cpu:.3},{wall:.3},{cosine:.9}"
        )
        .expect("a string takes text");
    }
    for (engine, reason) in missing {
        println!("{threads:>7} {batch:>5} {engine:<10} | n/a ({reason})");
        let (model, side) = (&args.model, inputs.side);
        writeln!(csv, "{host},{model},{side},f32,{threads},{batch},{engine},n/a ({reason}),,,,,,")
            .expect("a string takes text");
    }
}
