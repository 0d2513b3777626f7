//! The forward alone: every compiled encoder in every precision, and ONNX Runtime and PyTorch under Python, which take
//! turns in one run.
//!
//! `cargo bench -p foveate-benches --features native,candle --bench forward -- [--threads 1,2] [--batches 1,8,32]
//! [--rounds 5] [--seconds 1] [--model dinov2-small] [--python python3] [--csv FILE]`
//!
//! Every contestant is a process that stays alive, with its own threads and memory. In each round, each contestant
//! takes one turn of about `--seconds`; figures are medians over the rounds. Images per processor-second count the time
//! of all of a contestant's threads, and are robust to other load on the machine. Images per second are wall time. The
//! Python contestants get normalized f32 pixels, so their normalization is free. ONNX Runtime runs there without
//! spinning, once with its fused attention and once with plain operations. A contestant that cannot take part says why.
//! The vectors are compared, so that a wrong forward does not count.

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use foveate::backends::encoders;
use foveate::core::{Backend, PixelBatch, VectorBuf};
use foveate::dinov2::{Model, OpenOptions, interpolate_positions};
use foveate::encode::{DType, Encoder, EncoderOptions, normalize_nchw};
use foveate::models::OpenModel;
use foveate_benches::contest::{self, Contestant, Figure, Turn, compete, serve, timed};
use foveate_benches::{Result, host, processor_time};
use foveate_encode::conformance;
use safetensors::tensor::TensorView;

const DTYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

/// The first contestant: its vectors are the reference.
const REFERENCE: &str = "fused-f32";

/// The Python contestants: name, script, its last argument.
const PYTHON: [(&str, &str, &str); 4] = [
    ("py-ort-f32-mha", "forward_ort.py", "mha"),
    ("py-ort-f32-plain", "forward_ort.py", "plain"),
    ("py-torch-f32", "forward_torch.py", "float32"),
    ("py-torch-bf16", "forward_torch.py", "bfloat16"),
];

fn main() -> Result<()> {
    let args = Args::parse()?;
    match &args.child {
        Some(name) => contend(name, &args),
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
    /// Set if this process is a contestant.
    child: Option<String>,
}

impl Args {
    fn parse() -> Result<Self> {
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
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            match word.as_str() {
                "--model" => args.model = value,
                "--threads" => args.threads = numbers(&value)?,
                "--batches" => args.batches = numbers(&value)?,
                "--rounds" => args.rounds = value.parse()?,
                "--seconds" => args.seconds = value.parse()?,
                "--python" => args.python = value,
                "--csv" => args.csv = Some(value.into()),
                "--child" => args.child = Some(value),
                _ => return Err(format!("there is no option {word}").into()),
            }
        }
        Ok(args)
    }
}

fn numbers(list: &str) -> Result<Vec<usize>> {
    list.split(',').map(|number| Ok(number.parse()?)).collect()
}

/// The inputs that a run's contestants share, in a folder of its own.
struct Inputs {
    folder: tempfile::TempDir,
    side: u32,
}

impl Inputs {
    /// Writes the pixels of `images` images, as u8 and normalized, and the weights.
    fn write(model: &Model, images: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let recipe = &model.preprocess;
        let pixels: Vec<u8> = (0..images as u32).flat_map(|seed| conformance::noise(recipe.crop, seed)).collect();
        let batch = PixelBatch::new(&pixels, recipe.crop).ok_or("whole images")?;
        let mut normalized = Vec::new();
        normalize_nchw(batch, recipe.mean, recipe.std, &mut normalized);
        let inputs = Self { folder, side: recipe.crop.width };
        std::fs::write(inputs.pixels(REFERENCE), &pixels)?;
        std::fs::write(inputs.pixels(PYTHON[0].0), bytes(&normalized))?;
        dump_weights(model, &inputs.weights())?;
        Ok(inputs)
    }

    fn pixels(&self, contestant: &str) -> PathBuf {
        self.folder.path().join(if contestant.starts_with("py-") { "pixels.f32" } else { "pixels.u8" })
    }

    fn weights(&self) -> PathBuf {
        self.folder.path().join("weights.safetensors")
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes the checkpoint with interpolated position embeddings, for an engine that cannot interpolate.
fn dump_weights(model: &Model, path: &Path) -> Result<()> {
    const POSITIONS: &str = "embeddings.position_embeddings";
    let config = &model.config;
    let grid = config.grid(model.preprocess.crop)?;
    let mut tensors = Vec::new();
    for tensor in config.tensors().into_iter().filter(|tensor| !tensor.optional) {
        let values = model.weights.tensor(&tensor.name, &tensor.shape)?;
        if tensor.name == POSITIONS {
            let values = interpolate_positions(config, &values, grid.height, grid.width);
            tensors.push((tensor.name, vec![1, 1 + grid.patches(), config.hidden_size], bytes(&values)));
        } else {
            tensors.push((tensor.name, tensor.shape, bytes(&values)));
        }
    }
    let views = tensors
        .iter()
        .map(|(name, shape, data)| Ok((name, TensorView::new(safetensors::Dtype::F32, shape.clone(), data)?)));
    let views: Vec<_> = views.collect::<Result<_>>()?;
    let number = |name: &str, value: &dyn std::fmt::Display| (name.to_owned(), value.to_string());
    let metadata: HashMap<_, _> = HashMap::from([
        number("hidden", &config.hidden_size),
        number("heads", &config.num_attention_heads),
        number("layers", &config.num_hidden_layers),
        number("patch", &config.patch_size),
        number("eps", &config.layer_norm_eps),
    ]);
    Ok(safetensors::serialize_to_file(views, Some(metadata), path)?)
}

/// The names and commands of all contestants.
fn commands(threads: usize, args: &Args, inputs: &Inputs) -> Result<Vec<(String, Command)>> {
    let own = |name: String| -> Result<(String, Command)> {
        let words = ["--threads", &threads.to_string(), "--model", &args.model].map(str::to_owned);
        let mut command = contest::own(&name, &words)?;
        // The number of threads for candle's element-wise operations.
        command.env("RAYON_NUM_THREADS", threads.to_string());
        Ok((name, command))
    };
    let registry = encoders();
    let ours = registry.iter().flat_map(|backend| DTYPES.map(|dtype| format!("{}-{}", backend.name(), dtype.name())));
    let mut commands = ours.map(own).collect::<Result<Vec<_>>>()?;
    for (name, script, kind) in PYTHON {
        let words = [inputs.weights().display().to_string(), threads.to_string(), kind.to_owned()];
        commands.push((name.to_owned(), contest::python(&args.python, script, &words)));
    }
    Ok(commands)
}

/// Runs this process as a contestant: `PIXELS N SIDE RUNS`.
fn contend(name: &str, args: &Args) -> Result<()> {
    let mut encoder = match open(name, args) {
        Ok(encoder) => encoder,
        Err(error) => {
            contest::decline(&error.to_string());
            return Ok(());
        }
    };
    let backend = name.split('-').next().unwrap_or_default();
    let library = encoders().get(backend)?.health().library;
    serve(&host::library(library.as_deref()), |words| {
        let [path, images, _side, runs] = words else { return Err("what?".into()) };
        let (pixels, images, runs): (_, usize, usize) = (std::fs::read(path)?, images.parse()?, runs.parse()?);
        let batch = PixelBatch::new(&pixels, encoder.spec().input).and_then(|all| all.slice(0..images));
        let (batch, mut out) = (batch.ok_or("too few images")?, VectorBuf::new());
        let mut answer =
            timed(processor_time, || (0..runs).try_for_each(|_| Ok(encoder.encode(batch, &mut out).map(drop)?)))?;
        answer.extend(out.row(0).iter().map(|&value| f64::from(value)));
        Ok(answer)
    })
}

fn open(name: &str, args: &Args) -> Result<Box<dyn Encoder>> {
    let threads = *args.threads.first().ok_or("a number of threads")?;
    let mut options = EncoderOptions { max_batch: 1 << 10, threads, ..EncoderOptions::default() };
    let (backend, dtype) = name.split_once('-').ok_or("encoder-dtype")?;
    options.dtype = DTYPES.into_iter().find(|known| known.name() == dtype).ok_or("no such dtype")?;
    let registry = encoders();
    let model = OpenModel::open(&format!("seeded:{}", args.model), &OpenOptions::from_env())?;
    let backend = registry.get(backend)?;
    Ok(backend.open(&model.for_backend(backend, &registry, &options)?, &options)?)
}

fn compare(args: &Args) -> Result<()> {
    let model = Model::seeded(&args.model)?;
    let inputs = Inputs::write(&model, *args.batches.iter().max().ok_or("a batch size")?)?;
    drop(model);
    let Args { rounds, seconds, .. } = args;
    println!(
        "{} with seeded weights, {} pixels, {}, medians of {rounds} rounds of {seconds} s",
        args.model,
        inputs.side,
        host::processor()
    );
    println!("threads batch contestant       | images per cpu-second   per second | cosine to {REFERENCE}");
    let mut csv = String::from(
        "host,cores,model,side,threads,batch,contestant,version,status,rounds,images_per_cpu_second,\
         images_per_second_median,images_per_second_min,images_per_second_max,cosine_to_reference\n",
    );
    for &threads in &args.threads {
        let (mut contestants, mut missing) = (Vec::new(), Vec::new());
        for (name, command) in commands(threads, args, &inputs)? {
            match Contestant::start(&name, command) {
                Ok(contestant) => contestants.push(contestant),
                Err(reason) => missing.push((name, reason)),
            }
        }
        for &batch in &args.batches {
            let cells = cell(&mut contestants, &inputs, batch, args);
            let names = contestants.iter().map(|contestant| (contestant.name.as_str(), contestant.version.as_str()));
            let absent = missing.iter().map(|(name, reason)| ((name.as_str(), ""), Err(reason.clone())));
            for ((name, version), cell) in names.zip(cells).chain(absent) {
                let Args { model, rounds, .. } = args;
                let machine = format!("{},{}", host::processor(), host::cores());
                let (status, numbers) = report(threads, batch, name, &cell);
                let (side, version) = (inputs.side, version.replace(',', ""));
                csv += &format!(
                    "{machine},{model},{side},{threads},{batch},{name},{version},{status},{rounds},{numbers}\n"
                );
            }
        }
    }
    Ok(args.csv.as_ref().map_or(Ok(()), |path| std::fs::write(path, csv))?)
}

/// Seconds per image, and the cosine of the first vector to the reference.
type Cell = std::result::Result<(Figure, f64), String>;

/// Lets the contestants take turns.
fn cell(contestants: &mut [Contestant], inputs: &Inputs, batch: usize, args: &Args) -> Vec<Cell> {
    let request = |name: &str, runs: usize| {
        let Inputs { side, .. } = inputs;
        format!("{} {batch} {side} {runs}", inputs.pixels(name).display())
    };
    let mut vectors: HashMap<String, (usize, Vec<f64>)> = HashMap::new();
    for contestant in &mut *contestants {
        let asked = request(&contestant.name, 1);
        // The first run builds tables; the second determines how many runs make a turn.
        let answer = contestant.ask(&asked).and_then(|_| contestant.ask(&asked));
        if let Ok(answer) = answer {
            let runs = (args.seconds / answer[0]).ceil().max(1.0) as usize;
            vectors.insert(contestant.name.clone(), (runs, answer[2..].to_vec()));
        }
    }
    let figures = compete(contestants, args.rounds, |contestant| {
        let runs = vectors.get(&contestant.name).map_or(1, |(runs, _)| *runs);
        let answer = contestant.ask(&request(&contestant.name, runs))?;
        let [wall, cpu, ..] = answer[..] else { return Err("two numbers and a vector are a turn".to_owned()) };
        let per_image = |seconds: f64| seconds / (batch * runs) as f64;
        Ok(Turn { wall: per_image(wall), cpu: per_image(cpu) })
    });
    let judge = |(contestant, figure): (&Contestant, std::result::Result<Figure, String>)| {
        let figure = figure?;
        let vector = |name: &str| vectors.get(name).map(|(_, vector)| vector.as_slice());
        let pair = vector(&contestant.name).zip(vector(REFERENCE));
        let cosine = pair.map(|(vector, reference)| cosine(vector, reference)).ok_or("there is no reference")?;
        let least = if contestant.name.ends_with("16") { 0.999 } else { 1.0 - 1e-6 };
        // NaN must fail this comparison.
        if cosine >= least { Ok((figure, cosine)) } else { Err(format!("it computes other vectors: cosine {cosine}")) }
    };
    contestants.iter().zip(figures).map(judge).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    if a.len() == b.len() { dot(a, b) / (dot(a, a) * dot(b, b)).sqrt() } else { f64::NAN }
}

/// Prints a row of the table. Returns the status and the numbers for the CSV.
fn report(threads: usize, batch: usize, name: &str, cell: &Cell) -> (String, String) {
    match cell {
        Ok((Figure { wall, cpu }, cosine)) => {
            let [per_cpu, per_second, least, most] = [cpu.median, wall.median, wall.max, wall.min].map(|v| 1.0 / v);
            println!("{threads:>7} {batch:>5} {name:<16} | {per_cpu:>21.2} {per_second:>12.2} | {cosine:.9}");
            ("ok".to_owned(), format!("{per_cpu:.3},{per_second:.3},{least:.3},{most:.3},{cosine:.9}"))
        }
        Err(reason) => {
            println!("{threads:>7} {batch:>5} {name:<16} | n/a ({reason})");
            (format!("n/a ({reason})").replace(',', ";"), ",".repeat(4))
        }
    }
}
