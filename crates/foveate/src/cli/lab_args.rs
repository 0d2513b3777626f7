//! Arguments of the commands that measure.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use foveate::embed::{AheadSettings, EngineSettings, InputSettings, ModelSettings, NetworkSettings, Settings};
use foveate::lab::StandIn;

use super::job::ConfigArgs;
use crate::values::{parse_count, parse_fraction, parse_positive, parse_seconds, parse_share};

pub(crate) const PROFILE_EXAMPLES: &str = "\
Examples:
  # every stage on one thread, then with workers
  foveate profile photos/
  foveate profile photos/ --pair turbojpeg+fir --pair image+image --project 10M
  # for ui.perfetto.dev or chrome://tracing
  foveate profile photos/ --trace trace.json";

pub(crate) const BENCH_EXAMPLES: &str = "\
Examples:
  # every experiment in minutes
  foveate bench all photos/ --quick && foveate report foveate-run
  foveate bench decoders photos/
  foveate bench batch-sweep photos/ --encoder ort
  foveate bench worker photos/";

pub(crate) const DIAGNOSE_EXAMPLES: &str = "\
Examples:
  # which stage holds the run back, and what would help
  foveate diagnose photos/
  foveate diagnose photos/ --decoder image --verify
  # the same job beside an accelerator that this machine lacks
  foveate diagnose photos/ --stand-in t4-f16 --verify all";

pub(crate) const TUNE_EXAMPLES: &str = "\
Examples:
  # about a minute; writes foveate.toml
  foveate tune photos/
  foveate embed photos/ -o vectors.parquet --config foveate.toml
  # also the fastest backends and precision near the default's vectors
  foveate tune photos/ --min-cosine 0.999
  foveate tune labelled/ --min-recall 0.99 --labels labels.csv";

pub(crate) const REPORT_EXAMPLES: &str = "\
Examples:
  foveate bench all photos/ --quick && foveate report foveate-run";

/// The photos that are measured.
#[derive(Args, Debug)]
pub(crate) struct SampleArgs {
    /// Number of photos to measure with, drawn at random from the inputs and reused.
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_count, help_heading = "Measuring")]
    pub(crate) n: u64,

    /// Seed of the random choices: the photos, and the order of the candidates.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Measuring")]
    pub(crate) seed: u64,

    /// Measure the photos as given only, without downscaled copies.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) as_given: bool,
}

/// Arguments of the commands that measure a job.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(flatten)]
    pub(crate) inputs: InputSettings,

    #[command(flatten)]
    pub(crate) model: ModelSettings,

    #[command(flatten)]
    pub(crate) engine: EngineSettings,

    #[command(flatten)]
    pub(crate) ahead: AheadSettings,

    #[command(flatten)]
    pub(crate) file: ConfigArgs,

    #[command(flatten)]
    pub(crate) sample: SampleArgs,

    #[arg(long, value_name = "DEVICE", help = format!("Replace the forward by one that only takes a device's time: {}. Everything else is real", StandIn::choices()), help_heading = "Measuring")]
    pub(crate) stand_in: Option<StandIn>,

    /// Sink of whole runs.
    #[arg(long, value_name = "NAME", help_heading = "Measuring")]
    pub(crate) sink: Option<String>,

    #[command(flatten)]
    pub(crate) display: LabDisplay,
}

/// Destination and output of the measuring commands.
#[derive(Args, Debug)]
pub(crate) struct LabDisplay {
    /// Folder for CSV files. Files of the same name are replaced, so that `foveate report` finds the latest ones.
    #[arg(short, long, value_name = "DIR", default_value = "foveate-run", help_heading = "Display")]
    pub(crate) out: PathBuf,

    /// Print no progress.
    #[arg(short, long, help_heading = "Display")]
    pub(crate) quiet: bool,

    /// Print the results as one JSON object on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// Arguments of `profile`.
#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) lab: LabArgs,

    /// A decoder and a resizer to profile. Default: those of a plain run. Repeatable.
    #[arg(long, value_name = "DECODER+RESIZER", value_parser = parse_pair, help_heading = "Measuring")]
    pub(crate) pair: Vec<(String, String)>,

    /// Images per run. Default: as many as take about four seconds.
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "Measuring")]
    pub(crate) images: Option<u64>,

    /// Also normalize on the CPU: adds the stage of pipelines whose encoder does not normalize. This program does not
    /// need it.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) normalize_on_cpu: bool,

    /// Project the stages' times to this many images.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count, help_heading = "Display")]
    pub(crate) project: u64,

    /// Write a Chrome trace of the run with workers, for Perfetto or chrome://tracing. Replaces an earlier trace and no
    /// other file.
    #[arg(long, value_name = "FILE", help_heading = "Display")]
    pub(crate) trace: Option<PathBuf>,
}

/// Number and length of samples.
#[derive(Args, Debug)]
pub(crate) struct EffortArgs {
    /// Fewer and shorter samples: minutes instead of a quarter of an hour for all experiments.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) quick: bool,

    /// Images per sample of a whole run. Default: as many as take the seconds of a sample.
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "Measuring")]
    pub(crate) images: Option<u64>,

    /// Seconds per sample. Default: 3, with --quick 1. Shorter samples scatter more. Those of the queue worker last at
    /// least 30 seconds without --quick.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Measuring")]
    pub(crate) seconds: Option<Duration>,

    /// Samples of each candidate. Default: 5, with --quick 2. Many short ones suit a machine whose speed changes.
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "Measuring")]
    pub(crate) samples: Option<u64>,
}

/// Arguments of the experiments of `bench` that run the encoder.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) lab: LabArgs,

    #[command(flatten)]
    pub(crate) effort: EffortArgs,
}

/// Other libraries beside the backends.
#[derive(Args, Debug)]
pub(crate) struct PeersArgs {
    /// A Python script that measures other libraries in the same rounds, such as `benches/peers.py`.
    #[arg(long, value_name = "SCRIPT", help_heading = "Measuring")]
    pub(crate) peers: Option<PathBuf>,
}

/// Arguments of `bench all`.
#[derive(Args, Debug)]
pub(crate) struct AllArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,

    #[command(flatten)]
    pub(crate) others: PeersArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Experiment {
    /// Run every experiment, then the diagnosis and the model's predictions. --peers is for decoders and resizers.
    All(Box<AllArgs>),
    /// Measure decoders alone: bytes in memory to pixels in memory.
    Decoders(Box<StageArgs>),
    /// Measure resizers alone: pixels in memory to the model's input.
    Resizers(Box<StageArgs>),
    /// Measure sinks alone: vectors in memory to a finished output.
    Sinks(Box<SinksArgs>),
    /// Measure encoders alone, in every precision.
    Forward(Box<ForwardArgs>),
    /// Print the peak memory of a process that runs two batches.
    #[command(hide = true)]
    Memory(Box<AllArgs>),
    /// Measure the encoder's throughput and memory at growing batch sizes.
    BatchSweep(Box<BenchArgs>),
    /// Measure the whole job at growing batch sizes, with its own decoder and resizer and with the slowest.
    JobBatchSweep(Box<BenchArgs>),
    /// Measure the whole job with a growing number of workers, with the same pairs.
    WorkerSweep(Box<BenchArgs>),
    /// Measure the whole job with every backend that is compiled in, one axis at a time, and compare the vectors.
    Matrix(Box<MatrixArgs>),
    /// Measure each step from a slow configuration to the fastest, end to end.
    Headline(Box<BenchArgs>),
    /// Extrapolate a sample to a million images, checked against a longer run.
    Extrapolation(Box<BenchArgs>),
    /// Predict a dozen configurations with the model, then measure them.
    Predictions(Box<BenchArgs>),
    /// Measure a batch's copies, as bytes and as floats: within the host, and to the device from pageable and pinned
    /// memory.
    Copies(Box<BenchArgs>),
    /// Measure reading a file or an object in pieces.
    Read(Box<ReadArgs>),
    /// Measure the queue worker: first one stage at a time, then with downloads, preparation and batches in parallel,
    /// with the encoder and with a stub in place of a device.
    Worker(Box<WorkerBenchArgs>),
}

/// Arguments of `bench matrix`.
#[derive(Args, Debug)]
pub(crate) struct MatrixArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,

    /// Measure every combination of decoder, resizer, encoder and sink instead.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) cross: bool,
}

/// Arguments of `bench worker`. The defaults are those of a published worker.
#[derive(Args, Debug)]
#[command(mut_arg("batch", |batch| batch.default_value("8")))]
pub(crate) struct WorkerBenchArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,

    /// Threads that download.
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_positive, help_heading = "Measuring")]
    pub(crate) download_threads: usize,

    /// Threads that post results.
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_positive, help_heading = "Measuring")]
    pub(crate) callback_threads: usize,

    /// Most messages that the worker holds. Default: 300, with --quick 32. A sample also takes the time of as many at
    /// its start and at its end.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Measuring")]
    pub(crate) queue_size: Option<usize>,
}

impl LabArgs {
    /// Returns the settings of the job.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            inputs: self.inputs.clone(),
            model: self.model.clone(),
            engine: self.engine.clone(),
            ahead: self.ahead.clone(),
            ..Settings::new(Vec::new(), "", "")
        }
    }
}

impl StageArgs {
    /// Returns the settings of the stage.
    pub(crate) fn settings(&self) -> Settings {
        let model = ModelSettings { network: self.network.clone(), ..ModelSettings::default() };
        Settings { inputs: self.inputs.clone(), model, ..Settings::new(Vec::new(), "", "") }
    }
}

/// Arguments of `bench decoders` and `bench resizers`.
#[derive(Args, Debug)]
pub(crate) struct StageArgs {
    #[command(flatten)]
    pub(crate) inputs: InputSettings,

    #[command(flatten)]
    pub(crate) network: NetworkSettings,

    #[command(flatten)]
    pub(crate) sample: SampleArgs,

    #[command(flatten)]
    pub(crate) effort: EffortArgs,

    #[command(flatten)]
    pub(crate) display: LabDisplay,

    #[command(flatten)]
    pub(crate) others: PeersArgs,
}

/// Arguments of `bench sinks`.
#[derive(Args, Debug)]
pub(crate) struct SinksArgs {
    /// Fewer samples.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) quick: bool,

    /// Seed of the order of the sinks.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Measuring")]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) display: LabDisplay,

    /// Vectors to write.
    #[arg(long, value_name = "N", default_value = "50K", value_parser = parse_count, help_heading = "Measuring")]
    pub(crate) rows: u64,

    /// Components of a vector.
    #[arg(long, value_name = "N", default_value = "384", value_parser = parse_positive, help_heading = "Measuring")]
    pub(crate) dim: usize,
}

/// Arguments of `bench forward`.
#[derive(Args, Debug)]
pub(crate) struct ForwardArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,

    #[command(flatten)]
    pub(crate) others: PeersArgs,

    /// Batches to measure. Repeatable, or separated by commas.
    #[arg(long, value_name = "N", default_value = "64", value_delimiter = ',', value_parser = parse_positive, help_heading = "Measuring")]
    pub(crate) batches: Vec<usize>,
}

/// Arguments of `bench read`.
#[derive(Args, Debug)]
pub(crate) struct ReadArgs {
    /// A file, or the address of an object.
    pub(crate) input: String,

    /// Bytes of a piece. Repeatable, or separated by commas.
    #[arg(long, value_name = "BYTES", default_value = "64K,1M,8M", value_delimiter = ',', value_parser = parse_count, help_heading = "Measuring")]
    pub(crate) chunk: Vec<u64>,

    /// Pieces that are read at a time. Repeatable, or separated by commas.
    #[arg(long, value_name = "N", default_value = "1,4,16", value_delimiter = ',', value_parser = parse_positive, help_heading = "Measuring")]
    pub(crate) requests: Vec<usize>,

    /// Fewer and shorter samples.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) quick: bool,

    /// Seed of the order.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Measuring")]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) display: LabDisplay,
}

/// Arguments of `diagnose`.
#[derive(Args, Debug)]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    pub(crate) lab: LabArgs,

    /// Fewer and shorter samples.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) quick: bool,

    /// Time budget in seconds; each trial and each further diagnosis of --verify have as much again. Where it is short,
    /// samples are shorter and fewer, but at least two at each depth, and other backends may not be measured.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds, help_heading = "Measuring")]
    pub(crate) budget: Duration,

    /// Apply the most promising remedy, or the named one, and measure its effect. `all` keeps what helped and diagnoses
    /// again, until nothing helps any more.
    #[arg(long, value_name = "REMEDY", num_args = 0..=1, default_missing_value = "", help_heading = "Measuring")]
    pub(crate) verify: Option<String>,

    /// Drop the photos from the page cache before each sample that reads them.
    #[arg(long, help_heading = "Measuring")]
    pub(crate) cold: bool,
}

/// Options that a search within a drift budget chooses itself, or compares vectors without.
const SEARCHED: [&str; 8] =
    ["decoder", "decode_scale", "resizer", "encoder", "dtype", "encoder_option", "decoder_option", "stand_in"];

/// Arguments of `tune`.
#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) lab: LabArgs,

    /// Time budget in seconds. With a drift budget, it does not include the comparison of configurations.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds, help_heading = "Measuring")]
    pub(crate) budget: Duration,

    /// Also choose decoder, decode scale, resizer, encoder and precision: the fastest whose vectors have at least this
    /// cosine with the default's, on every photo of a sample.
    #[arg(long, value_name = "COSINE", value_parser = parse_fraction, conflicts_with_all = SEARCHED, help_heading = "Drift budget")]
    pub(crate) min_cosine: Option<f64>,

    /// The same for recall@1: at least this share of the default's on the same photos; 1 permits no loss.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with_all = SEARCHED, requires = "labels", help_heading = "Drift budget")]
    pub(crate) min_recall: Option<f64>,

    /// A CSV file with the columns `file` (or `id`) and `label`.
    #[arg(long, value_name = "FILE", requires = "min_recall", help_heading = "Drift budget")]
    pub(crate) labels: Option<PathBuf>,

    /// Number of photos whose drift is measured, drawn at random: one half for the choice, the other to confirm it.
    #[arg(long, value_name = "N", default_value = "800", value_parser = parse_count, help_heading = "Drift budget")]
    pub(crate) sample: u64,

    /// Confidence of what the photos of the other half show.
    #[arg(long, value_name = "P", default_value = "0.95", value_parser = parse_fraction, help_heading = "Drift budget", hide = true)]
    pub(crate) confidence: f64,

    /// The configuration file to write.
    #[arg(long, value_name = "FILE", default_value = "foveate.toml", help_heading = "Display")]
    pub(crate) write: PathBuf,

    /// Replace the configuration file if it exists.
    #[arg(long, help_heading = "Display")]
    pub(crate) overwrite: bool,

    /// Choose even if other processes computed meanwhile.
    #[arg(long, help_heading = "Measuring", hide = true)]
    pub(crate) disturbed: bool,
}

impl TuneArgs {
    /// Returns true if backends and precision are chosen too.
    pub(crate) fn has_drift_budget(&self) -> bool {
        self.min_cosine.is_some() || self.min_recall.is_some()
    }
}

/// Arguments of `report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Folder with the CSV files of `profile`, `bench`, `diagnose`, `tune` and `plan`.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,

    /// Folder for report.html and the figures; default: RUN_DIR itself.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('+') {
        Some((decoder, resizer)) if !decoder.is_empty() && !resizer.is_empty() => {
            Ok((decoder.to_owned(), resizer.to_owned()))
        }
        _ => Err("expected DECODER+RESIZER, such as turbojpeg+fir".to_owned()),
    }
}
