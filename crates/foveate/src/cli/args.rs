use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use foveate::encode::{DType, Pooling};
use foveate::lane::Normalize;
use foveate::pipeline::FailurePolicy;
use foveate::preprocess::OrientationPolicy;
use foveate::sink::Element;
use foveate::{DecodeScale, Recipe, Shard};

use super::lab_args::{
    BENCH_EXAMPLES, DIAGNOSE_EXAMPLES, DiagnoseArgs, Experiment, PROFILE_EXAMPLES, ProfileArgs, REPORT_EXAMPLES,
    ReportArgs, TUNE_EXAMPLES, TuneArgs,
};
use super::plan_args::{self, PlanArgs};
use super::service_args::{self, EnqueueArgs, ServeArgs, WorkerArgs};

const EXIT_CODES: &str = "\
Exit codes:
  0    complete; inputs that failed, if any, are in the failures file
  1    stopped by a fault (model, device, disk, listing); what was done is kept
  2    the command line cannot work: an argument is wrong, an input does not exist, an output cannot be written, or this
       build lacks a backend or a device; nothing was done
  3    more inputs failed than --max-failures or --strict allow, or every one did
  130  interrupted; what was done is kept, the same command continues it";

const EXAMPLES: &str = "\
Examples:
  foveate embed photos/ -o vectors.parquet
  foveate embed 'shots/**/*.jpg' --model facebook/dinov2-base -o out/ --batch 16
  find / -name '*.jpg' | foveate embed --from-list - -o all.npy --max-failures 1%
  foveate embed photos/ -o out/ --shard auto        # in a Slurm array
  foveate embed examples/photos -o q.parquet --model seeded:dinov2-small   # no network";

const VERIFY_EXAMPLES: &str = "\
Examples:
  foveate verify photos/ --decoder turbojpeg                         # fast decoding against exact
  foveate verify photos/ --decoder zune --against decoder=exact
  foveate verify photos/ --encoder tch --dtype bf16 --against dtype=f32 --min-cosine 0.999
  foveate verify labelled/ --preprocess squash --against preprocess=hf --labels labels.csv

Exit codes: 0 compared; 1 could not; 2 the command line cannot work; 3 further apart than --min-cosine allows";

/// Images in, DINOv2 vectors out, every second accounted for.
#[derive(Parser, Debug)]
#[command(name = "foveate", version, after_help = EXIT_CODES, args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Turn images into vectors.
    #[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
    Embed(Box<EmbedArgs>),
    /// Measure how far apart the vectors of two configurations are, on a sample of your own images.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArgs>),
    /// Show where the time of a job goes: every stage on one thread, and the same job with its workers.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileArgs>),
    /// Measure decoders, resizers, encoders, sinks and whole jobs, alone and beside each other, on your own photos.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench {
        /// What is measured.
        #[command(subcommand)]
        experiment: Experiment,
    },
    /// Find the stage that holds a job back, and what should help: the job as it is, its data cached at one depth after
    /// the other.
    #[command(after_help = DIAGNOSE_EXAMPLES)]
    Diagnose(Box<DiagnoseArgs>),
    /// Find the workers, threads, batch and queues that are fastest here, and write them to a file for `--config`.
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// Make figures and one HTML page of what the other commands measured.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Say what a job will take: how many workers, what batch, how long, how much.
    #[command(after_help = plan_args::EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Embed images as messages of a queue name them, and call back.
    #[command(after_help = service_args::WORKER_EXAMPLES)]
    Worker(Box<WorkerArgs>),
    /// Put images on a queue for workers.
    #[command(after_help = service_args::ENQUEUE_EXAMPLES)]
    Enqueue(Box<EnqueueArgs>),
    /// Embed images on request, over HTTP.
    #[command(after_help = service_args::SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// List the decoders, resizers, encoders, sinks, queues and stores of this build.
    Backends,
    /// Show what each backend works with on this machine, and what would help where it does not. Exit code 1 when a
    /// backend of this build cannot work here.
    Doctor(DoctorArgs),
    /// List the models that have a card.
    Models,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to embed and how, as typed; [`super::job`] makes sense of it.
#[derive(Args, Debug)]
pub(crate) struct JobArgs {
    /// Files, folders (searched recursively, sorted) and globs (quote them), in any mixture.
    #[arg(value_name = "INPUT", required_unless_present = "from_list")]
    pub(crate) inputs: Vec<PathBuf>,

    /// A file with one path a line, taken after the INPUTs; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) from_list: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) embedding: EmbeddingArgs,

    /// Do only the first N inputs.
    #[arg(long, value_name = "N", help_heading = "Inputs")]
    pub(crate) limit: Option<u64>,

    /// Refuse files of more bytes than this (`256M`).
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_count, help_heading = "Inputs")]
    pub(crate) max_bytes: u64,

    /// Threads that read files.
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) readers: usize,

    /// Full batches that may wait for the encoder.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) prefetch: usize,
}

/// What becomes of an image.
#[derive(Args, Debug)]
pub(crate) struct EmbeddingArgs {
    /// A card's name (see `foveate models`), a Hugging Face repository `org/name[@revision]`, a folder in Hugging
    /// Face layout, or `seeded:<card>` for generated weights (no network; vectors without meaning).
    #[arg(short, long, default_value = "facebook/dinov2-small", help_heading = "Model")]
    pub(crate) model: String,

    /// How an image becomes the model's input: the model's own recipe, or plain stretching. Two different embeddings.
    #[arg(long, value_name = "hf|squash", default_value = "hf", help_heading = "Model")]
    pub(crate) preprocess: Recipe,

    /// How tokens become one vector.
    #[arg(long, value_enum, default_value = "cls", help_heading = "Model")]
    pub(crate) pooling: PoolingArg,

    /// Whether EXIF orientation is applied before anything else.
    #[arg(long, value_enum, default_value = "apply", help_heading = "Model")]
    pub(crate) orientation: OrientationArg,

    /// Scale each vector to unit length.
    #[arg(long, value_enum, default_value = "off", help_heading = "Model")]
    pub(crate) normalize: NormalizeArg,

    /// Precision of the forward.
    #[arg(long, value_enum, default_value = "f32", help_heading = "Model")]
    pub(crate) dtype: DTypeArg,

    /// Where the forward runs: `cpu`, `cuda:0`, or several (`cuda:0,cuda:1`), which share the work; one that is named
    /// twice has two batches in hand at once. There is no silent fallback.
    #[arg(long, value_name = "DEVICE,…", default_value = "cpu", help_heading = "Model")]
    pub(crate) device: String,

    /// Refuse images of more pixels than this (`100M`, `2G`) before any memory is taken for them.
    #[arg(long, value_name = "PIXELS", default_value = "100M", value_parser = parse_count, help_heading = "Inputs")]
    pub(crate) max_pixels: u64,

    /// Accept files that end early, with what could be decoded of them.
    #[arg(long, help_heading = "Inputs")]
    pub(crate) allow_truncated: bool,

    /// Decoder that is asked first (see `foveate backends`); others stand in for formats it cannot read.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub(crate) decoder: Option<String>,

    /// Whether JPEGs may be decoded at a fraction of their size: `fast` is quicker and changes the vectors a little
    /// (`foveate verify` measures how much). Default: exact; of `verify`, fast.
    #[arg(long, value_name = "exact|fast", help_heading = "Engine")]
    pub(crate) decode_scale: Option<DecodeScale>,

    /// Resizer.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub(crate) resizer: Option<String>,

    /// Encoder.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub(crate) encoder: Option<String>,

    /// A setting that only this encoder has, such as `optimization=basic` of `ort` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Engine")]
    pub(crate) encoder_option: Vec<(String, String)>,

    /// What only the decoder understands: `backend=hardware` of `nvjpeg`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Engine")]
    pub(crate) decoder_option: Vec<(String, String)>,

    /// Images per batch.
    #[arg(short, long, value_name = "N", default_value = "32", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) batch: usize,

    /// Threads that decode and resize; 0 runs every stage in turn on one thread. Default: a quarter of the cores; all of
    /// them where the forward runs on a device of its own.
    #[arg(short, long, value_name = "N", help_heading = "Engine")]
    pub(crate) workers: Option<usize>,

    /// Threads of the forward on a CPU. Default: all cores.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) threads: Option<usize>,

    /// Take options from a TOML file (`batch = 16`), as `foveate tune` writes one; those given here win.
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub(crate) config: Option<PathBuf>,
}

/// How vectors are stored.
#[derive(Args, Debug)]
pub(crate) struct StorageArgs {
    /// How vectors are stored.
    #[arg(long, value_enum, default_value = "f32", help_heading = "Output")]
    pub(crate) out_dtype: ElementArg,

    /// Output format, where the extension does not tell.
    #[arg(long, value_name = "NAME", requires = "output", help_heading = "Output")]
    pub(crate) sink: Option<String>,

    /// A setting that only this format has, such as `compression=zstd` of `parquet` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "output", help_heading = "Output")]
    pub(crate) sink_option: Vec<(String, String)>,
}

/// Arguments of `embed` as typed; [`super::embed`] makes sense of them together.
#[derive(Args, Debug)]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// Output: `x.parquet`, `x.npy`, or a folder for part files (`out/`).
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Inputs that one part (file of a folder, row group of a Parquet file) covers.
    #[arg(long, value_name = "N", default_value_t = foveate::sink::SinkOptions::DEFAULT_PART_ITEMS,
          value_parser = clap::value_parser!(u64).range(1..), help_heading = "Output")]
    pub(crate) part_items: u64,

    /// Continue an interrupted run of the same job. This is the default: the same command again continues, and once
    /// the output is complete it does nothing.
    #[arg(long, conflicts_with = "overwrite", help_heading = "Output")]
    pub(crate) resume: bool,

    /// Replace an output that exists, or start an interrupted run anew.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,

    /// Seconds between commits: what a crash can cost.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds, help_heading = "Output")]
    pub(crate) commit_every: Duration,

    /// Do only part I of N of the inputs (I from 0). `auto` reads Slurm's array variables; `auto/N` also those of
    /// Kubernetes indexed jobs.
    #[arg(long, value_name = "I/N", value_parser = parse_shard, help_heading = "Inputs")]
    pub(crate) shard: Option<Shard>,

    /// Stop when more inputs than this fail: a count, or a share (`1%`, judged from 200 inputs on).
    #[arg(long, value_name = "N|P%", value_parser = parse_failures, conflicts_with = "strict", help_heading = "Inputs")]
    pub(crate) max_failures: Option<FailurePolicy>,

    /// Stop at the first input that fails.
    #[arg(long, help_heading = "Inputs")]
    pub(crate) strict: bool,

    /// Write a Chrome trace of the run, for Perfetto or chrome://tracing.
    #[arg(long, value_name = "FILE", help_heading = "Display")]
    pub(crate) trace: Option<PathBuf>,

    /// Say nothing but errors.
    #[arg(short, long, help_heading = "Display")]
    pub(crate) quiet: bool,

    /// Print the summary as one JSON object on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// Arguments of `verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// What to compare with: `exact` or `fast` (the same with that decode scale), or what is different about it, as
    /// `NAME=VALUE,…` with the long options' names: `decoder=exact,decode-scale=exact`, `encoder=ort,dtype=f16`,
    /// `model=other/`.
    #[arg(long, value_name = "CONFIG", default_value = "exact", value_parser = Overrides::parse, help_heading = "Comparison")]
    pub(crate) against: Overrides,

    /// Most images to compare, drawn at random.
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_count, help_heading = "Comparison")]
    pub(crate) sample: u64,

    /// Decides which images are drawn.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Comparison")]
    pub(crate) seed: u64,

    /// A CSV file with the columns `file` (or `id`) and `label`: recall@1 under both configurations is reported too.
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    pub(crate) labels: Option<PathBuf>,

    /// Exit with 3 when an image's cosine is below this, or fails under one configuration only.
    #[arg(long, value_name = "COSINE", help_heading = "Comparison")]
    pub(crate) min_cosine: Option<f64>,

    /// Write every image's figures to this CSV file.
    #[arg(long, value_name = "FILE", help_heading = "Display")]
    pub(crate) csv: Option<PathBuf>,

    /// Print the result as one JSON object on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// What is different about the other configuration of a comparison.
#[derive(Parser, Clone, Debug, Default, PartialEq)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct Overrides {
    #[arg(long)]
    pub(crate) model: Option<String>,
    #[arg(long)]
    pub(crate) preprocess: Option<Recipe>,
    #[arg(long, value_enum)]
    pub(crate) pooling: Option<PoolingArg>,
    #[arg(long, value_enum)]
    pub(crate) orientation: Option<OrientationArg>,
    #[arg(long, value_enum)]
    pub(crate) normalize: Option<NormalizeArg>,
    #[arg(long, value_enum)]
    pub(crate) dtype: Option<DTypeArg>,
    #[arg(long)]
    pub(crate) device: Option<String>,
    #[arg(long)]
    pub(crate) decoder: Option<String>,
    #[arg(long)]
    pub(crate) decode_scale: Option<DecodeScale>,
    #[arg(long)]
    pub(crate) resizer: Option<String>,
    #[arg(long)]
    pub(crate) encoder: Option<String>,
    #[arg(long, value_parser = parse_setting)]
    pub(crate) encoder_option: Vec<(String, String)>,
    #[arg(long, value_parser = parse_positive)]
    pub(crate) batch: Option<usize>,
    #[arg(long)]
    pub(crate) workers: Option<usize>,
    #[arg(long, value_parser = parse_positive)]
    pub(crate) threads: Option<usize>,
}

impl Overrides {
    fn parse(text: &str) -> Result<Self, String> {
        let scale = |word: &str| DecodeScale::from_str(word).map(|scale| format!("--decode-scale={scale}"));
        let option = |word: &str| match word.contains('=') {
            true => Ok(format!("--{word}")),
            false => scale(word).map_err(|_| format!("'{word}' is neither exact, fast nor NAME=VALUE")),
        };
        let words = text.split(',').map(option).collect::<Result<Vec<_>, _>>()?;
        // clap's message is of several lines, of which the first says it.
        let first_line = |error: clap::Error| {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        };
        Self::try_parse_from(words).map_err(first_line)
    }
}

/// A closed set of words on the command line for a type of the library.
macro_rules! words {
    ($name:ident => $target:ty { $($variant:ident $word:literal => $value:expr),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
        pub(crate) enum $name {
            $(#[value(name = $word)] $variant,)+
        }
        impl From<$name> for $target {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => $value,)+
                }
            }
        }
    };
}

words!(PoolingArg => Pooling { Cls "cls" => Self::Cls, Mean "mean" => Self::Mean, ClsMean "cls+mean" => Self::ClsMean });
words!(OrientationArg => OrientationPolicy { Apply "apply" => Self::Apply, Ignore "ignore" => Self::Ignore });
words!(NormalizeArg => Normalize { Off "off" => Self::Off, L2 "l2" => Self::L2 });
words!(DTypeArg => DType { F32 "f32" => Self::F32, F16 "f16" => Self::F16, Bf16 "bf16" => Self::Bf16 });
words!(ElementArg => Element { F32 "f32" => Self::F32, F16 "f16" => Self::F16 });

fn parse_shard(text: &str) -> Result<Shard, String> {
    Shard::parse(text, |name| std::env::var(name).ok()).map_err(|error| error.to_string())
}

pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

pub(crate) fn parse_positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number from 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = f64::from_str(text).map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// A number with an optional suffix: K, M and G are thousands, millions and thousand millions.
pub(crate) fn suffixed(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    f64::from_str(digits).ok().map(|number| number * unit).filter(|number| number.is_finite())
}

/// A whole number from 1, with an optional suffix.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let refused = || "expected a number from 1, such as 100000000, 100M or 2G".to_owned();
    suffixed(text).filter(|&number| number >= 1.0).map(|number| number as u64).ok_or_else(refused)
}

fn parse_failures(text: &str) -> Result<FailurePolicy, String> {
    let invalid = || "expected a count (100) or a share (1%)".to_owned();
    match text.strip_suffix('%') {
        Some(share) => match f64::from_str(share) {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(FailurePolicy::Percent(percent)),
            _ => Err(invalid()),
        },
        None => text.parse().map(FailurePolicy::Count).map_err(|_| invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_refuse_nonsense() {
        assert_eq!(parse_count("100M"), Ok(100_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1_500));
        assert_eq!(parse_count("7"), Ok(7));
        for bad in ["", "0", "-1", "M", "inf", "nan", "12x"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_other_configuration_is_words_or_options() {
        let against = |text| Overrides::parse(text);
        let exact = Overrides { decode_scale: Some(DecodeScale::Exact), ..Overrides::default() };
        assert_eq!(against("exact"), Ok(exact.clone()));
        let zune = Overrides { decoder: Some("zune".to_owned()), ..exact };
        assert_eq!(against("exact,decoder=zune"), Ok(zune));
        assert!(against("dtype=f64").unwrap_err().contains("f64"));
        assert!(against("colour=red").unwrap_err().contains("--colour"));
        assert!(against("").is_err() && against("nothing").is_err());
    }

    #[test]
    fn failures_are_a_count_or_a_share() {
        assert_eq!(parse_failures("12"), Ok(FailurePolicy::Count(12)));
        assert_eq!(parse_failures("0.5%"), Ok(FailurePolicy::Percent(0.5)));
        for bad in ["", "%", "101%", "-1%", "1.5", "x"] {
            assert!(parse_failures(bad).is_err(), "{bad}");
        }
    }
}
