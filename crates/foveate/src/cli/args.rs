use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgMatches, Args, FromArgMatches as _, Parser, Subcommand};
use foveate::embed::{CacheSettings, EngineSettings, ImageSettings, ModelSettings, Settings, StorageSettings};
use foveate::pipeline::FailurePolicy;
use foveate::{DecodeScale, Shard};

#[cfg(feature = "text")]
use super::embed_text::{self, EmbedTextArgs};
use super::foreign::args::ForeignArgs;
use super::job::JobArgs;
use super::lab_args::{
    BENCH_EXAMPLES, DIAGNOSE_EXAMPLES, DiagnoseArgs, Experiment, PROFILE_EXAMPLES, ProfileArgs, REPORT_EXAMPLES,
    ReportArgs, TUNE_EXAMPLES, TuneArgs,
};
use super::merge_args::{self, MergeArgs};
use super::pack_args::{self, PackArgs};
use super::plan_args::{self, PlanArgs};
#[cfg(feature = "search")]
use super::search_args::{self, ClustersArgs, DuplicatesArgs, EvalArgs, NeighborsArgs, SampleArgs, SimilarArgs};
use super::service_args::{self, EnqueueArgs, QueueCommand, ServeArgs, WorkerArgs};
#[cfg(all(feature = "search", feature = "text"))]
use super::words_args::{self, AlignArgs, LabelImagesArgs};
use crate::values::{CountOrOff, endpoint_url, parse_count, parse_seconds, parse_setting, parse_shard, place};

const EXIT_CODES: &str = "\
Exit codes:
  0    complete; inputs that failed, if any, are in the failures file
  1    stopped by a fault (device, disk, network, listing, another process at
       the output); what was done is kept, and repeating may help
  2    the command cannot work, however often it is repeated: an argument is
       wrong, an input or a model does not exist, the output is of another job
       or of other inputs, this build lacks a backend; nothing was done
  3    more inputs failed than --max-failures or --strict allow, or all of them
  130  interrupted; what was done is kept, and the same command continues it";

const EXAMPLES: &str = "\
Examples:
  foveate embed photos/ -o vectors.parquet
  foveate embed photos/ -o vectors.parquet --dry-run
  foveate embed 'shots/**/*.jpg' --model facebook/dinov2-base -o out/
  find / -name '*.jpg' | foveate embed --from-list - -o all.npy
  # in a Slurm array
  foveate embed photos/ -o out/ --shard auto
  # without a network
  foveate embed examples/photos -o q.parquet --model seeded:dinov2-small";

const VERIFY_EXAMPLES: &str = "\
Examples:
  # fast decoding against exact
  foveate verify photos/ --decoder turbojpeg
  foveate verify photos/ --decoder zune --against decoder=exact
  foveate verify photos/ --encoder tch --dtype bf16 --against dtype=f32 \\
      --min-cosine 0.999
  foveate verify labelled/ --preprocess squash --against preprocess=hf \\
      --labels labels.csv

Exit codes: 0 compared; 1 could not; 2 the command line cannot work; 3 further apart than --min-cosine allows";

const INSPECT_EXAMPLES: &str = "\
Examples:
  foveate inspect vectors.parquet
  foveate inspect out/ --check
  foveate inspect vectors.npy --json

Exit codes: 0 shown; 1 damaged or unreadable; 2 there is no such output";

/// Images in, embedding vectors out, every second accounted for.
#[derive(Parser, Debug)]
#[command(name = "foveate", version, after_help = EXIT_CODES, args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[arg(long, value_name = "URL", value_parser = endpoint_url, global = true, hide = true)]
    endpoint_url: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Turn images into vectors.
    #[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
    Embed(Box<EmbedArgs>),
    /// Turn texts into vectors in the space of a model's images.
    #[cfg(feature = "text")]
    #[command(after_help = embed_text::EXAMPLES)]
    EmbedText(Box<EmbedTextArgs>),
    /// Copy images into tar or Parquet shards, which are read faster than many small files.
    #[command(after_help = pack_args::EXAMPLES)]
    Pack(Box<PackArgs>),
    /// Compare the vectors of two configurations on a sample of your images.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArgs>),
    /// Show what an output holds, complete or not: its vectors, how they were made, failures, norms.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Make one output of several: shards, a worker's segments, or runs of other inputs with the same settings.
    #[command(after_help = merge_args::EXAMPLES)]
    Merge(Box<MergeArgs>),
    /// Find the nearest images of each image, exactly.
    #[cfg(feature = "search")]
    #[command(after_help = search_args::NEIGHBORS_EXAMPLES)]
    Neighbors(Box<NeighborsArgs>),
    /// Find groups of images that are the same or nearly so, and which of them to keep.
    #[cfg(feature = "search")]
    #[command(after_help = search_args::DUPLICATES_EXAMPLES)]
    Duplicates(Box<DuplicatesArgs>),
    /// Find the images that are most like others, which need no vectors yet.
    #[cfg(feature = "search")]
    #[command(after_help = search_args::SIMILAR_EXAMPLES)]
    Similar(Box<SimilarArgs>),
    /// Divide images into clusters, from the most typical image of each to outliers.
    #[cfg(feature = "search")]
    #[command(after_help = search_args::CLUSTERS_EXAMPLES)]
    Clusters(Box<ClustersArgs>),
    /// Choose images that represent all of them, such as those to label first.
    #[cfg(feature = "search")]
    #[command(after_help = search_args::SAMPLE_EXAMPLES)]
    Sample(Box<SampleArgs>),
    /// Give images labels by words alone, each with a probability (zero-shot classification).
    #[cfg(all(feature = "search", feature = "text"))]
    #[command(after_help = words_args::LABEL_EXAMPLES)]
    Label(Box<LabelImagesArgs>),
    /// Score how well each image fits its text, as web collections are filtered.
    #[cfg(all(feature = "search", feature = "text"))]
    #[command(after_help = words_args::ALIGN_EXAMPLES)]
    Align(Box<AlignArgs>),
    /// Measure how well vectors tell your labels apart, or find your captions.
    #[cfg(feature = "search")]
    #[command(after_help = search_args::EVAL_EXAMPLES)]
    Eval(Box<EvalArgs>),
    /// Show where a job's time goes: each stage on one thread, then the same job with its workers.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileArgs>),
    /// Measure decoders, resizers, encoders, sinks and whole jobs on your own photos.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench {
        /// The experiment.
        #[command(subcommand)]
        experiment: Experiment,
    },
    /// Find the stage that limits a job's throughput, and what should help: run the job with its data cached at
    /// successive depths.
    #[command(after_help = DIAGNOSE_EXAMPLES)]
    Diagnose(Box<DiagnoseArgs>),
    /// Find the fastest workers, threads, batch and queues on this machine, and write them to a file for `--config`.
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// Turn the CSV files of the other commands into figures and one HTML page.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Predict what a job takes: workers, batch, time and cost.
    #[command(after_help = plan_args::EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Embed the images that a queue's messages name, and call back.
    #[command(after_help = service_args::WORKER_EXAMPLES)]
    Worker(Box<WorkerArgs>),
    /// Put images on a queue for workers.
    #[command(after_help = service_args::ENQUEUE_EXAMPLES)]
    Enqueue(Box<EnqueueArgs>),
    /// Count a queue's messages, and look at its dead letters, put them back or remove them.
    #[command(after_help = service_args::QUEUE_EXAMPLES)]
    Queue {
        /// What to do.
        #[command(subcommand)]
        command: QueueCommand,
    },
    /// Embed images on request, over HTTP.
    #[command(after_help = service_args::SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// List the decoders, resizers, encoders, sinks, queues and stores of this build.
    Backends(ListArgs),
    /// Show the library and the devices of each backend on this machine, and what to install if one is missing. Exit
    /// code 1 if a backend of this build does not work.
    Doctor(ListArgs),
    /// List the models that have a card.
    Models(ListArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Arguments of `backends`, `doctor` and `models`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `embed` as typed; [`super::embed`] interprets them together.
#[derive(Args, Debug)]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// Output: `x.parquet`, `x.npy`, `x.arrow`, a folder for part files (`out/`), or a prefix in a store
    /// (`s3://bucket/out/`; a build with `-F object-store`).
    #[arg(short, long, value_name = "OUT", value_parser = place())]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) storage: StorageSettings,

    /// Inputs that one part (file of a folder, object of a store, row group of a Parquet file) covers.
    #[arg(long, value_name = "N", default_value_t = foveate::sink::SinkOptions::DEFAULT_PART_ITEMS,
          value_parser = clap::value_parser!(u64).range(1..), help_heading = "Output", hide = true)]
    pub(crate) part_items: u64,

    /// A setting of the output's store, such as `endpoint=URL` of `s3`. Repeatable. Default: those of `--store-option`.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Output", hide = true)]
    pub(crate) output_store_option: Vec<(String, String)>,

    /// The folder for the part in progress of an output in a store, and for parts on their way there. Default: the
    /// system's folder of temporary files.
    #[arg(long, value_name = "DIR", help_heading = "Output", hide = true)]
    pub(crate) staging: Option<PathBuf>,

    /// Continue an interrupted run of the same job. This is the default: the same command continues the run, and does
    /// nothing once the output is complete.
    #[arg(long, conflicts_with = "overwrite", help_heading = "Output")]
    pub(crate) resume: bool,

    /// Replace an existing output, or restart an interrupted run.
    #[arg(long, help_heading = "Output")]
    pub(crate) overwrite: bool,

    /// With an output that is already complete: embed what was added or changed since, by id, size and time, and keep
    /// the rest. Without an output, embed everything.
    #[arg(long, conflicts_with_all = ["overwrite", "shard", "limit", "listing"], help_heading = "Output")]
    pub(crate) update: bool,

    /// With `--update`: remove the rows and failures of inputs that are gone.
    #[arg(long, requires = "update", help_heading = "Output")]
    pub(crate) prune: bool,

    /// With `--prune`: stop before anything changes if more of the output's inputs are gone than this, a count or a
    /// share, or if a folder is empty that had some. `100%` removes them in any case.
    #[arg(long, value_name = "N|P%", default_value = "10%", value_parser = parse_failures, requires = "prune",
          help_heading = "Output")]
    pub(crate) max_removed: FailurePolicy,

    /// With `--update`: write the ids of inputs that are not kept as they are to this new CSV file (`id,change`).
    #[arg(long, value_name = "FILE", requires = "update", help_heading = "Output")]
    pub(crate) changes: Option<PathBuf>,

    /// With an output that is already complete: compare the inputs by hash, not by size and time.
    #[arg(long, help_heading = "Output")]
    pub(crate) by_content: bool,

    /// With an output that is already complete: try the inputs again that failed. Decoder and limits may be others.
    /// With `--update`: after the update.
    #[arg(long, conflicts_with_all = ["overwrite", "shard", "limit", "by_content", "dry_run"], help_heading = "Output")]
    pub(crate) retry_failures: bool,

    /// With an output that is already complete: compare its files with their hashes, not by length alone.
    #[arg(long, help_heading = "Output")]
    pub(crate) check: bool,

    /// Seconds between commits; a crash loses at most this much work. An output in a store loses at most the part in
    /// progress.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds, help_heading = "Output", hide = true)]
    pub(crate) commit_every: Duration,

    #[command(flatten)]
    pub(crate) cache: CacheSettings,

    /// Memory for the vectors of recent images. An image with the same bytes as one of them takes its vector, if the
    /// encoder's vectors do not depend on the batch. `off` computes every image.
    #[arg(long, value_name = "BYTES|off", default_value = "64M", help_heading = "Engine", hide = true)]
    pub(crate) recent_memory: CountOrOff,

    /// Process only part I of N of the inputs (I counts from 0). `auto` reads Slurm's array variables; `auto/N` also
    /// those of Kubernetes indexed jobs.
    #[arg(long, value_name = "I/N", value_parser = parse_shard, help_heading = "Inputs")]
    pub(crate) shard: Option<Shard>,

    /// Stop when more inputs than this fail: a count, or a share (`1%`, judged from 200 inputs on). All of the output's
    /// count, those of earlier sessions included.
    #[arg(long, value_name = "N|P%", value_parser = parse_failures, conflicts_with = "strict", help_heading = "Inputs")]
    pub(crate) max_failures: Option<FailurePolicy>,

    /// Stop when more inputs than this in a row cannot be read, because their disk or share is probably gone: a count,
    /// or `off`.
    #[arg(long, value_name = "N|off", default_value = "100", help_heading = "Inputs", hide = true)]
    pub(crate) max_unreadable: CountOrOff,

    /// Stop at the first input that fails.
    #[arg(long, help_heading = "Inputs")]
    pub(crate) strict: bool,

    /// Show what the run would do, and write nothing: inputs, model, backends, threads, output, what is already done,
    /// and an estimate of the time. It opens the model and embeds up to two batches in memory. With `--update`: count
    /// the inputs that would be kept, added, changed and removed; containers that changed are read for it.
    #[arg(long, conflicts_with = "trace", help_heading = "Display")]
    pub(crate) dry_run: bool,

    /// Write a Chrome trace of the run, for Perfetto or chrome://tracing. Replaces an earlier trace and no other file.
    #[arg(long, value_name = "FILE", help_heading = "Display")]
    pub(crate) trace: Option<PathBuf>,

    /// Print errors only.
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

    /// The other configuration: `exact`, `fast` or `low` for another decode scale, or the options that differ as
    /// `NAME=VALUE,…`, by their long names: `decoder=exact,decode-scale=exact`, `encoder=ort,dtype=f16`,
    /// `model=other/`.
    #[arg(long, value_name = "CONFIG", default_value = "exact", value_parser = Against::parse, help_heading = "Comparison")]
    pub(crate) against: Against,

    /// Maximum number of images to compare, drawn at random.
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_count, help_heading = "Comparison")]
    pub(crate) sample: u64,

    /// Seed of the random draw.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Comparison")]
    pub(crate) seed: u64,

    /// A CSV file with the columns `file` (or `id`) and `label`: adds recall@1 under both configurations.
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    pub(crate) labels: Option<PathBuf>,

    /// Exit with 3 if an image's cosine is below this, or if an image fails under one configuration only.
    #[arg(long, value_name = "COSINE", help_heading = "Comparison")]
    pub(crate) min_cosine: Option<f64>,

    /// Write every image's figures to this CSV file. Replaces an earlier one of `verify` and no other file.
    #[arg(long, value_name = "FILE", help_heading = "Display")]
    pub(crate) csv: Option<PathBuf>,

    /// Print the result as one JSON object on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// Arguments of `inspect`.
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Output of `embed`: a file (`x.parquet`, `x.npy`, `x.arrow`, `x.lmdb`) or a folder of parts. Or a folder of
    /// `pack`, or another program's file of vectors: Parquet, Arrow, CSV, NumPy or safetensors.
    #[arg(value_name = "OUTPUT", value_parser = place())]
    pub(crate) output: PathBuf,

    /// Compare every file with the length and the hash that the run recorded. Exit with 1 at the first that differs.
    #[arg(long)]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) foreign: ForeignArgs,

    /// A setting of the output's store, such as `endpoint=URL` of `s3`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) store_option: Vec<(String, String)>,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The settings that a comparison may change.
#[derive(Args)]
struct ComparedSettings {
    #[command(flatten)]
    model: ModelSettings,

    #[command(flatten)]
    images: ImageSettings,

    #[command(flatten)]
    engine: EngineSettings,
}

/// The other configuration of a comparison: the options that differ from the first.
#[derive(Clone, Debug)]
pub(crate) struct Against(ArgMatches);

impl Against {
    fn parse(text: &str) -> Result<Self, String> {
        let mut options = Vec::new();
        for word in text.split(',') {
            options.push(match word.parse::<DecodeScale>() {
                _ if word.contains('=') => format!("--{word}"),
                Ok(scale) => format!("--decode-scale={scale}"),
                Err(_) => return Err(format!("'{word}' is neither exact, fast, low nor NAME=VALUE")),
            });
        }
        let command = clap::Command::new("against").no_binary_name(true).disable_help_flag(true);
        // An option that is not named keeps the first configuration's value.
        let command = ComparedSettings::augment_args(command).mut_args(|arg| arg.default_value(None));
        command.try_get_matches_from(options).map(Self).map_err(|error| first_line(&error))
    }

    /// Returns `first` with the options that differ. Settings of the encoder are added to those of the first.
    pub(crate) fn applied_to(&self, first: &Settings) -> Result<Settings, clap::Error> {
        let mut model = first.model.clone();
        let encoder_option = std::mem::take(&mut model.encoder_option);
        let mut compared = ComparedSettings { model, images: first.images.clone(), engine: first.engine.clone() };
        compared.update_from_arg_matches(&self.0)?;
        compared.model.encoder_option.splice(0..0, encoder_option);
        // clap gives a flag that is absent the value false.
        compared.images.allow_truncated |= first.images.allow_truncated;
        let ComparedSettings { model, images, engine } = compared;
        Ok(Settings { model, images, engine, ..first.clone() })
    }
}

/// The first line of clap's message, which states the error.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn parse_failures(text: &str) -> Result<FailurePolicy, String> {
    let policy = match text.strip_suffix('%') {
        Some(share) => {
            f64::from_str(share).ok().filter(|percent| (0.0..=100.0).contains(percent)).map(FailurePolicy::Percent)
        }
        None => text.parse().ok().map(FailurePolicy::Count),
    };
    policy.ok_or_else(|| "expected a count (100) or a share (1%)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_configuration_is_words_or_options() {
        let against = |text| Against::parse(text);
        let mut first = Settings::new(Vec::new(), "", "");
        first.model.encoder_option.push(("a".to_owned(), "1".to_owned()));
        first.engine.batch = 7;
        let second = against("exact").unwrap().applied_to(&first).unwrap();
        assert_eq!(second.model.decode_scale, Some(DecodeScale::Exact));
        let second = against("exact,decoder=zune,encoder-option=b=2").unwrap().applied_to(&first).unwrap();
        assert_eq!((second.model.decoder.as_deref(), second.engine.batch), (Some("zune"), 7));
        let options = second.model.encoder_option.iter().map(|(name, value)| format!("{name}={value}"));
        assert_eq!(options.collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(against("batch=8").unwrap().applied_to(&first).unwrap().engine.batch, 8);
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
