//! Arguments of `worker`, `enqueue` and `serve`, as typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use foveate::queue::{Job, QueueOptions};
use foveate::telemetry::Format;
use foveate::worker::Encoding;

use super::args::{EmbeddingArgs, StorageArgs, parse_count, parse_positive, parse_seconds, parse_setting};

pub(crate) const WORKER_EXAMPLES: &str = "\
Examples:
  foveate worker --queue nats://localhost:4222/jobs --callback-host api.example.com --listen 0.0.0.0:9464
  foveate worker --queue sqs://jobs --queue-option region=eu-west-1 -o vectors/ --segment-rows 50000
  FOVEATE_WEBHOOK_SECRET=whsec_… foveate worker --queue nats://localhost/jobs --callback-host '*.example.com' --log json

SIGTERM (or Ctrl-C) takes no more messages, finishes those that are held, and gives back what is not done after --drain
seconds; a second one stops at once, and the messages come back when their leases end.

Exit codes:
  0    stopped as asked, or with --until-empty because there was nothing left
  1    could not start, or messages had to be given back
  2    the command line cannot work";

pub(crate) const ENQUEUE_EXAMPLES: &str = "\
Examples:
  foveate enqueue --queue nats://localhost/jobs --create --from-list urls.txt --callback https://api.example.com/vectors
  foveate enqueue --queue sqs://jobs photos/ --base https://cdn.example.com/photos
  foveate enqueue --queue sqs://jobs photos/ --base s3://bucket/photos
  foveate enqueue --queue nats://localhost/jobs --from-list jobs.ndjson        # whole jobs, one a line

Exit codes: 0 everything is on the queue; 1 something is not; 2 the command line cannot work";

pub(crate) const SERVE_EXAMPLES: &str = "\
Examples:
  foveate serve --listen 127.0.0.1:8080 --model facebook/dinov2-small
  foveate serve --queue nats://localhost/jobs --callback-host api.example.com    # for workers with this host, too
  curl -s http://127.0.0.1:8080/v1/embeddings -H 'content-type: application/json' \\
       -d '{\"input\": \"https://upload.wikimedia.org/…/cat.jpg\"}'
  curl -s http://127.0.0.1:8080/v1/embeddings -H 'content-type: image/jpeg' --data-binary @cat.jpg

The API describes itself at /openapi.json. SIGTERM (or Ctrl-C) answers what was asked already, within --drain seconds.";

/// What the services have in common: what is done with an image, how it gets here, and what is seen of it.
#[derive(Args, Debug)]
pub(crate) struct ServiceArgs {
    #[command(flatten)]
    pub(crate) embedding: EmbeddingArgs,

    /// What the task is called in jobs and requests.
    #[arg(long, value_name = "NAME", default_value = Job::DEFAULT_TASK, help_heading = "Engine")]
    pub(crate) task: String,

    /// Longest time that an image waits for others to fill its batch, in seconds. It waits only for those that are
    /// on their way.
    #[arg(long, value_name = "SECONDS", default_value = "0.01", value_parser = parse_seconds, help_heading = "Engine")]
    pub(crate) batch_delay: Duration,

    /// Images under way at once.
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) max_in_flight: usize,

    /// Downloaded files that wait to be decoded take no more memory than this.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_count, help_heading = "Engine")]
    pub(crate) max_memory: u64,

    /// A stage that is busy with one thing for longer is stuck: /healthz says so. At least as long as a download or a
    /// callback may take, with waiting for its host.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds, help_heading = "Engine")]
    pub(crate) stall: Duration,

    /// Threads that download. More than --per-host, so that one slow host cannot take all of them.
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_positive, help_heading = "Downloads")]
    pub(crate) downloads: usize,

    /// Refuse files of more bytes than this.
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_count, help_heading = "Downloads")]
    pub(crate) max_bytes: u64,

    /// Longest time for one download, redirects included.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, help_heading = "Downloads")]
    pub(crate) download_timeout: Duration,

    /// Downloads from one host at once.
    #[arg(long, value_name = "N", default_value = "32", value_parser = parse_positive, help_heading = "Downloads")]
    pub(crate) per_host: usize,

    /// Let this host (and port) be private, loopback or link-local. Nothing else is: addresses come from strangers.
    /// Repeatable; for callbacks too.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Downloads")]
    pub(crate) allow_private: Vec<String>,

    /// Read objects that jobs name from here: `s3://bucket`, or `s3://bucket/folder` for what lies below. Nothing else is
    /// read. Repeatable; in a build with `-F object-store`.
    #[arg(long, value_name = "s3://BUCKET[/FOLDER]", help_heading = "Downloads")]
    pub(crate) object_store: Vec<String>,

    /// A setting that only the store has, such as `endpoint=http://localhost:9000` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "object_store", help_heading = "Downloads")]
    pub(crate) object_store_option: Vec<(String, String)>,

    /// How logs are written, on standard error.
    #[arg(long, value_enum, default_value = "text", help_heading = "Display")]
    pub(crate) log: LogArg,

    /// What is logged, in the syntax of RUST_LOG. Default: what RUST_LOG says, or `warn,foveate=info`.
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", help_heading = "Display")]
    pub(crate) log_filter: Option<String>,

    /// Send spans to this OpenTelemetry collector (OTLP over HTTP), in a build with `-F otel`.
    #[arg(long, value_name = "URL", help_heading = "Display")]
    pub(crate) otlp: Option<String>,

    /// Longest time to finish what was begun when asked to stop.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, help_heading = "Engine")]
    pub(crate) drain: Duration,
}

/// A queue by its address.
#[derive(Args, Debug)]
pub(crate) struct QueueArgs {
    /// A setting that only this kind of queue has, such as `region=eu-west-1` of `sqs` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Queue")]
    pub(crate) queue_option: Vec<(String, String)>,

    /// How long a message belongs to the worker that received it, unless it is extended (SQS: visibility timeout, NATS: ack
    /// wait). Default: what the queue has; 30 where it is created.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Queue")]
    pub(crate) lease: Option<Duration>,

    /// Create the queue and its dead letters where they are not there.
    #[arg(long, help_heading = "Queue")]
    pub(crate) create: bool,
}

/// Who may be called back. Whoever queues jobs for workers has to know it as they do: a job that they refuse ends among
/// the dead letters.
#[derive(Args, Debug)]
pub(crate) struct CallbackArgs {
    /// A host that may be called back, `*.example.com` for a domain's; `serve` and its workers need the same. Without
    /// any, what names a callback is refused. Repeatable. Workers sign callbacks with the secrets in the environment
    /// variable FOVEATE_WEBHOOK_SECRET.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Callbacks")]
    pub(crate) callback_host: Vec<String>,

    /// Let callbacks go over http, without encryption.
    #[arg(long, help_heading = "Callbacks")]
    pub(crate) callback_http: bool,
}

/// Arguments of `worker`.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// Where jobs come from: `nats://host:4222/stream`, `sqs://queue`. Several share the worker.
    #[arg(long, value_name = "ADDRESS", required = true, help_heading = "Queue")]
    pub(crate) queue: Vec<String>,

    #[command(flatten)]
    pub(crate) queues: QueueArgs,

    /// Deliveries after which a message that fails goes to the dead letters.
    #[arg(long, value_name = "N", default_value_t = QueueOptions::DEFAULT_MAX_RECEIVE,
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "Queue")]
    pub(crate) max_receive: u32,

    /// Messages a second that this worker finishes; it holds what it finishes in half a lease. Default: measured.
    #[arg(long, value_name = "RATE", conflicts_with = "hold", help_heading = "Queue")]
    pub(crate) rate: Option<f64>,

    /// Hold this many messages of each queue, whatever the rate.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Queue")]
    pub(crate) hold: Option<usize>,

    /// Do not extend leases: what is not done when one ends is delivered again.
    #[arg(long, help_heading = "Queue")]
    pub(crate) no_heartbeat: bool,

    /// First interval before another try of a message that failed; it doubles each time, up to five minutes.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds, help_heading = "Queue")]
    pub(crate) retry: Duration,

    /// End when the queues have been empty for a while.
    #[arg(long, help_heading = "Queue")]
    pub(crate) until_empty: bool,

    #[command(flatten)]
    pub(crate) callbacks: CallbackArgs,

    /// Threads that call back.
    #[arg(long, value_name = "N", default_value = "16", value_parser = parse_positive, help_heading = "Callbacks")]
    pub(crate) callback_threads: usize,

    /// How long a result is offered to a callback that does not take it, before the job is put off.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds, help_heading = "Callbacks")]
    pub(crate) callback_patience: Duration,

    /// How vectors are written in callbacks.
    #[arg(long, value_enum, default_value = "float", help_heading = "Callbacks")]
    pub(crate) encoding: EncodingArg,

    /// Store vectors in files in this folder, each complete by itself.
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Most rows of a file. Their messages are held until it is written.
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse_positive, help_heading = "Output")]
    pub(crate) segment_rows: usize,

    /// Longest time that a row waits to be written.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, help_heading = "Output")]
    pub(crate) segment_age: Duration,

    /// Answer /healthz, /readyz and /metrics here.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Display")]
    pub(crate) listen: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// Arguments of `enqueue`.
#[derive(Args, Debug)]
pub(crate) struct EnqueueArgs {
    /// Addresses (https://…, s3://bucket/key), or files and folders together with --base.
    #[arg(value_name = "INPUT", required_unless_present = "from_list")]
    pub(crate) inputs: Vec<String>,

    /// A file with one address, or one whole job as JSON, a line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) from_list: Vec<PathBuf>,

    /// Where workers find the files of the folders that are given: the path of a file below its folder is put behind it.
    #[arg(long, value_name = "URL|s3://BUCKET/PREFIX")]
    pub(crate) base: Option<String>,

    /// The queue: `nats://host:4222/stream`, `sqs://queue`.
    #[arg(long, value_name = "ADDRESS", help_heading = "Queue")]
    pub(crate) queue: String,

    #[command(flatten)]
    pub(crate) queues: QueueArgs,

    /// What is to be done.
    #[arg(long, value_name = "NAME", default_value = Job::DEFAULT_TASK, help_heading = "Jobs")]
    pub(crate) task: String,

    /// Who is told the results.
    #[arg(long, value_name = "URL", help_heading = "Jobs")]
    pub(crate) callback: Option<String>,

    /// JSON that callbacks carry as it is.
    #[arg(long, value_name = "JSON", help_heading = "Jobs")]
    pub(crate) metadata: Option<String>,

    /// Put before each address, with a hash in place of its query, to make a job's id. The same id within the queue's deduplication window is dropped, where
    /// the queue knows about ids.
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Jobs")]
    pub(crate) id_prefix: String,

    /// Say nothing but errors.
    #[arg(short, long, help_heading = "Display")]
    pub(crate) quiet: bool,

    /// Print the summary as one JSON object on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to answer.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Most images of one request. Default: 64, or as many as may be under way.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Requests")]
    pub(crate) max_images: Option<usize>,

    /// Most bytes of one request. All requests together have 256 MiB in hand, or three times this where that is more.
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_count, help_heading = "Requests")]
    pub(crate) max_body: u64,

    /// Longest time for an answer.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds, help_heading = "Requests")]
    pub(crate) timeout: Duration,

    /// A file with one API key a line; without it, everybody who reaches the address is answered.
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub(crate) api_keys: Option<PathBuf>,

    /// Where requests that name a callback are put, for workers: `nats://host:4222/stream`, `sqs://queue`. Needs
    /// --callback-host.
    #[arg(long, value_name = "ADDRESS", requires = "callback_host", help_heading = "Queue")]
    pub(crate) queue: Option<String>,

    #[command(flatten)]
    pub(crate) queues: QueueArgs,

    #[command(flatten)]
    pub(crate) callbacks: CallbackArgs,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// `--log`.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum LogArg {
    Text,
    Json,
}

impl From<LogArg> for Format {
    fn from(word: LogArg) -> Self {
        match word {
            LogArg::Text => Self::Text,
            LogArg::Json => Self::Json,
        }
    }
}

/// `--encoding`.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum EncodingArg {
    Float,
    Base64,
}

impl From<EncodingArg> for Encoding {
    fn from(word: EncodingArg) -> Self {
        match word {
            EncodingArg::Float => Self::Float,
            EncodingArg::Base64 => Self::Base64,
        }
    }
}
