//! Arguments of `worker`, `enqueue` and `serve`, as typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use foveate::embed::{CacheSettings, EngineSettings, ImageSettings, ModelSettings, StorageSettings};
use foveate::queue::QueueOptions;
use foveate::serve::Origin;
use foveate::telemetry::Format;
use foveate::worker::Encoding;

#[cfg(feature = "search")]
use super::foreign::args::ForeignArgs;
use super::job::ConfigArgs;
use crate::values::{parse_count, parse_listen, parse_positive, parse_seconds, parse_setting};

pub(crate) const WORKER_EXAMPLES: &str = "\
Examples:
  foveate worker --queue nats://localhost:4222/jobs \\
      --callback-host api.example.com --listen 0.0.0.0:9464
  foveate worker --queue sqs://jobs --queue-option region=eu-west-1 \\
      -o vectors/ --segment-rows 50000
  FOVEATE_WEBHOOK_SECRET=whsec_… foveate worker --queue nats://localhost/jobs \\
      --callback-host '*.example.com' --log json

On SIGTERM (or Ctrl-C) the worker receives no more messages, finishes those that it holds, and releases the rest after \
--drain seconds. A second signal stops at once; the messages come back when their leases end.

Exit codes:
  0    stopped by a signal, or by --until-empty
  1    could not start, or released unfinished messages
  2    the command line cannot work, or it refuses every message that came;
       they are on the queue again
  3    --until-empty: messages went to the dead letters, or were given back";

pub(crate) const ENQUEUE_EXAMPLES: &str = "\
Examples:
  # for workers with -o
  foveate enqueue --queue nats://localhost/jobs --create --from-list urls.txt
  foveate enqueue --queue nats://localhost/jobs --from-list urls.txt \\
      --callback https://api.example.com/vectors
  foveate enqueue --queue sqs://jobs photos/ \\
      --base https://cdn.example.com/photos
  foveate enqueue --queue sqs://jobs photos/ --base s3://bucket/photos
  # whole jobs, one per line
  foveate enqueue --queue nats://localhost/jobs --from-list jobs.ndjson

Exit codes: 0 all jobs are queued; 1 some are not; 2 the command line cannot work";

pub(crate) const QUEUE_EXAMPLES: &str = "\
Examples:
  # dead letters by stage and reason
  foveate queue stats --queue nats://localhost/jobs
  foveate queue peek --queue sqs://jobs --stage download --json  # whole jobs
  foveate queue redrive --queue nats://localhost/jobs \\
      --reason '404 Not Found' --dry-run
  foveate queue purge-dead --queue sqs://jobs --stage decode";

pub(crate) const SERVE_EXAMPLES: &str = "\
Examples:
  foveate serve --listen 127.0.0.1:8080 --model facebook/dinov2-small
  foveate serve --listen :8080 --api-keys keys.txt \\
      --served-model-name photos --cors-origin https://app.example.com
  # workers need the same --callback-host
  foveate serve --queue nats://localhost/jobs --callback-host api.example.com
  curl -s http://127.0.0.1:8080/v1/embeddings \\
      -H 'content-type: application/json' \\
      -d '{\"input\": \"https://upload.wikimedia.org/…/cat.jpg\"}'
  curl -s http://127.0.0.1:8080/v1/embeddings \\
      -H 'content-type: image/jpeg' --data-binary @cat.jpg

/openapi.json describes the API. On SIGTERM (or Ctrl-C) /readyz fails and the server answers for --stop-delay seconds \
more. Then it refuses new connections and finishes its current requests within --drain seconds. A second signal stops \
at once.

Exit codes:
  0    stopped by a signal
  1    could not start, or gave up requests that were not done in time
  2    the command line cannot work: a file, a setting or the queue that it
       names does not exist or does not fit
  130  stopped at once by a second signal";

/// Arguments that the services share: the engine, its downloads, and observability.
#[derive(Args, Debug)]
pub(crate) struct ServiceArgs {
    #[command(flatten)]
    pub(crate) model: ModelSettings,

    #[command(flatten)]
    pub(crate) images: ImageSettings,

    #[command(flatten)]
    pub(crate) engine: EngineSettings,

    #[command(flatten)]
    pub(crate) file: ConfigArgs,

    #[command(flatten)]
    pub(crate) cache: CacheSettings,

    /// Embed texts, too, with the text tower of a model of two (CLIP, SigLIP, PE-Core, TIPSv2). It computes f32 on the
    /// CPU, and takes about as much memory as the model of images.
    #[cfg(feature = "text")]
    #[arg(long, help_heading = "Engine")]
    pub(crate) texts: bool,

    /// Longest time that an image waits for others to fill its batch. It waits only for images that are on their way.
    #[arg(long, value_name = "SECONDS", default_value = "0.01", value_parser = parse_seconds, help_heading = "Engine", hide = true)]
    pub(crate) batch_delay: Duration,

    /// Most images in the engine at once.
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_positive, help_heading = "Engine", hide = true)]
    pub(crate) max_in_flight: usize,

    /// Most memory of downloaded files that wait to be decoded.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_count, help_heading = "Engine")]
    pub(crate) max_memory: u64,

    /// /healthz fails once the threads that decode and compute have finished nothing for longer.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds, help_heading = "Engine", hide = true)]
    pub(crate) stall: Duration,

    /// A site has at most a quarter of this number of downloads at once.
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_positive, help_heading = "Downloads")]
    pub(crate) downloads: usize,

    /// Largest file to download.
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_count, help_heading = "Downloads")]
    pub(crate) max_bytes: u64,

    /// Longest time of a download, redirects included.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, help_heading = "Downloads", hide = true)]
    pub(crate) download_timeout: Duration,

    /// Most simultaneous downloads from one host.
    #[arg(long, value_name = "N", default_value = "32", value_parser = parse_positive, help_heading = "Downloads", hide = true)]
    pub(crate) per_host: usize,

    /// Allow images of a private, loopback or link-local host (and port). All others are refused, because URLs are
    /// untrusted input. Repeatable.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Downloads")]
    pub(crate) allow_private: Vec<String>,

    /// Allow jobs to name objects in `s3://bucket`, or below `s3://bucket/folder`. All others are refused. Needs a
    /// build with `-F object-store`. Repeatable.
    #[arg(long, value_name = "s3://BUCKET[/FOLDER]", help_heading = "Downloads")]
    pub(crate) object_store: Vec<String>,

    /// A setting of the object store, such as `endpoint=http://localhost:9000` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "object_store", help_heading = "Downloads")]
    pub(crate) object_store_option: Vec<(String, String)>,

    /// Format of the log on standard error.
    #[arg(long, value_enum, default_value = "text", help_heading = "Display")]
    pub(crate) log: LogArg,

    /// Log filter, in the syntax of RUST_LOG. Default: RUST_LOG, or `warn,foveate=info`.
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", help_heading = "Display", hide = true)]
    pub(crate) log_filter: Option<String>,

    /// Send spans to this OpenTelemetry collector (OTLP over HTTP). Needs a build with `-F otel`.
    #[arg(long, value_name = "URL", help_heading = "Display", hide = true)]
    pub(crate) otlp: Option<String>,

    /// Longest time to finish current work after a signal to stop.
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = parse_seconds, help_heading = "Engine")]
    pub(crate) drain: Duration,
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    match parse_seconds(text)? {
        Duration::ZERO => Err("a lease lasts longer than 0 seconds".to_owned()),
        lease => Ok(lease),
    }
}

/// Arguments for opening a queue.
#[derive(Args, Debug)]
pub(crate) struct QueueArgs {
    /// A setting of this kind of queue, such as `region=eu-west-1` of `sqs` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Queue")]
    pub(crate) queue_option: Vec<(String, String)>,

    /// Length of a lease: the time in which a worker must finish or extend a message (SQS: visibility timeout, NATS:
    /// ack wait). Default: the queue's, or 30 if the queue is created.
    #[arg(long, value_name = "SECONDS", value_parser = parse_lease, help_heading = "Queue")]
    pub(crate) lease: Option<Duration>,

    /// Create the queue and its dead letters' queue if they do not exist.
    #[arg(long, help_heading = "Queue")]
    pub(crate) create: bool,
}

/// The hosts that may be called back.
#[derive(Args, Debug)]
pub(crate) struct CallbackArgs {
    /// A host that may be called back; `*.example.com` allows a domain's hosts. Without any, workers return jobs with a
    /// callback to the queue. Callbacks are signed with the secrets in the environment variable FOVEATE_WEBHOOK_SECRET.
    /// Repeatable.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Callbacks")]
    pub(crate) callback_host: Vec<String>,

    /// Allow a callback host to have a private, loopback or link-local address. Images of that host stay refused.
    /// Repeatable.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Callbacks")]
    pub(crate) callback_private: Vec<String>,

    /// Allow callbacks over unencrypted http.
    #[arg(long, help_heading = "Callbacks")]
    pub(crate) callback_http: bool,
}

/// Arguments of `worker`.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// The queue of jobs: `nats://host:4222/stream`, `sqs://queue`. Repeatable; several queues share the worker.
    #[arg(long, value_name = "ADDRESS", required = true, help_heading = "Queue")]
    pub(crate) queue: Vec<String>,

    #[command(flatten)]
    pub(crate) queues: QueueArgs,

    /// Deliveries without an outcome after which a message is quarantined: it may have ended its workers. A failing
    /// message has at least as many tries.
    #[arg(long, value_name = "N", default_value_t = QueueOptions::DEFAULT_MAX_RECEIVE,
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "Queue", hide = true)]
    pub(crate) max_receive: u32,

    /// Folder that remembers which messages were being decoded when a worker of this machine died. Such a message is
    /// quarantined after two deaths, and goes to the dead letters after three. Default:
    /// $XDG_STATE_HOME/foveate/worker, or ~/.local/state/foveate/worker.
    #[arg(long, value_name = "DIR", help_heading = "Queue", hide = true)]
    pub(crate) deaths: Option<PathBuf>,

    /// In-flight limit by rate: the worker holds the messages that it finishes in half a lease at this many messages
    /// per second. Default: the measured rate.
    #[arg(long, value_name = "RATE", conflicts_with = "hold", help_heading = "Queue", hide = true)]
    pub(crate) rate: Option<f64>,

    /// In-flight limit by number: hold this many messages of each queue, whatever the rate.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Queue", hide = true)]
    pub(crate) hold: Option<usize>,

    /// Do not extend leases. A message whose lease ends is delivered again.
    #[arg(long, help_heading = "Queue", hide = true)]
    pub(crate) no_heartbeat: bool,

    /// Delay before the first retry of a failed message. It doubles each time, up to five minutes.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds, help_heading = "Queue", hide = true)]
    pub(crate) retry: Duration,

    /// How long a failing message is retried before it goes to the dead letters. It has at least --max-receive tries.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = parse_seconds, help_heading = "Queue")]
    pub(crate) retry_for: Duration,

    /// Take notifications of object stores as jobs: each object that was written to a bucket of --object-store is an
    /// image. Notifications of other events are acknowledged and counted.
    #[arg(long, requires = "object_store", help_heading = "Queue")]
    pub(crate) store_events: bool,

    /// Stop when the queues have been empty for 3 seconds.
    #[arg(long, help_heading = "Queue")]
    pub(crate) until_empty: bool,

    #[command(flatten)]
    pub(crate) callbacks: CallbackArgs,

    /// A receiver gets at most a quarter of this number of callbacks at once.
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_positive, help_heading = "Callbacks", hide = true)]
    pub(crate) callbacks_at_once: usize,

    /// Also post the failures of jobs that end in the dead letters, even if the jobs do not ask for it.
    #[arg(long, requires = "callback_host", help_heading = "Callbacks")]
    pub(crate) callback_failures: bool,

    /// How long a failed callback is retried before its message is released for a later retry.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds, help_heading = "Callbacks", hide = true)]
    pub(crate) callback_patience: Duration,

    /// Encoding of vectors in callbacks.
    #[arg(long, value_enum, default_value = "float", help_heading = "Callbacks")]
    pub(crate) encoding: EncodingArg,

    /// Store vectors in this folder, in files that are each complete.
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) storage: StorageSettings,

    /// Most rows of a file. The worker holds their messages until the file is published.
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse_positive, help_heading = "Output", hide = true)]
    pub(crate) segment_rows: usize,

    /// Longest time that a row waits for its file to be published.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, help_heading = "Output", hide = true)]
    pub(crate) segment_age: Duration,

    /// Serve /healthz, /readyz and /metrics at this address; `:9464` is all interfaces.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen, help_heading = "Display")]
    pub(crate) listen: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// The commands of `queue`.
#[derive(Subcommand, Debug)]
pub(crate) enum QueueCommand {
    /// Count messages, and dead letters by stage and reason.
    Stats {
        #[command(flatten)]
        queue: QueueNameArgs,
    },
    /// Print dead letters, one per line.
    Peek {
        #[command(flatten)]
        queue: QueueNameArgs,

        #[command(flatten)]
        filter: FilterArgs,

        /// Most dead letters to print.
        #[arg(long, value_name = "N", default_value = "10", value_parser = parse_positive)]
        limit: usize,
    },
    /// Put dead letters back on the queue, after the fault is repaired. All of their tries are left.
    Redrive {
        #[command(flatten)]
        queue: QueueNameArgs,

        #[command(flatten)]
        filter: FilterArgs,

        /// Only count them.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove dead letters for good.
    PurgeDead {
        #[command(flatten)]
        queue: QueueNameArgs,

        #[command(flatten)]
        filter: FilterArgs,

        /// Remove all of them.
        #[arg(long, conflicts_with_all = ["stage", "reason", "id"])]
        all: bool,

        /// Only count them.
        #[arg(long)]
        dry_run: bool,
    },
}

impl QueueCommand {
    pub(crate) fn queue(&self) -> &QueueNameArgs {
        match self {
            Self::Stats { queue }
            | Self::Peek { queue, .. }
            | Self::Redrive { queue, .. }
            | Self::PurgeDead { queue, .. } => queue,
        }
    }
}

/// A queue that exists.
#[derive(Args, Debug)]
pub(crate) struct QueueNameArgs {
    /// The queue: `nats://host:4222/stream`, `sqs://queue`.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) queue: String,

    /// A setting of this kind of queue, such as `region=eu-west-1` of `sqs` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub(crate) queue_option: Vec<(String, String)>,

    /// Print JSON: one object, or one per dead letter.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which dead letters; without any of these, all.
#[derive(Args, Debug)]
pub(crate) struct FilterArgs {
    /// Those that failed at this stage.
    #[arg(long, value_name = "STAGE")]
    pub(crate) stage: Option<String>,

    /// Those whose reason contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Those of this job. Repeatable.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Vec<String>,
}

/// Arguments of `enqueue`.
#[derive(Args, Debug)]
pub(crate) struct EnqueueArgs {
    /// URLs (https://…) and object keys (s3://bucket/key), or files and folders together with --base.
    #[arg(value_name = "INPUT", required_unless_present = "from_list")]
    pub(crate) inputs: Vec<String>,

    /// A file with one URL, object key or JSON job per line; `-` is standard input. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) from_list: Vec<PathBuf>,

    /// The lists' entries end in NUL, not at the line's end.
    #[arg(short = '0', long, requires = "from_list")]
    pub(crate) null: bool,

    /// Where workers find the given files: this URL or prefix, followed by a file's path below its folder.
    #[arg(long, value_name = "URL|s3://BUCKET/PREFIX")]
    pub(crate) base: Option<String>,

    /// The queue: `nats://host:4222/stream`, `sqs://queue`.
    #[arg(long, value_name = "ADDRESS", help_heading = "Queue")]
    pub(crate) queue: String,

    #[command(flatten)]
    pub(crate) queues: QueueArgs,

    /// The URL that results are posted to.
    #[arg(long, value_name = "URL", help_heading = "Jobs")]
    pub(crate) callback: Option<String>,

    /// Also post failures there: stage and reason of a job that ended in the dead letters.
    #[arg(long, requires = "callback", help_heading = "Jobs")]
    pub(crate) callback_failures: bool,

    /// JSON that callbacks return unchanged.
    #[arg(long, value_name = "JSON", help_heading = "Jobs")]
    pub(crate) metadata: Option<String>,

    /// Prefix of job ids. An id is this prefix and the URL, with a hash in place of the query. A queue that
    /// deduplicates drops a second job with the same id for a while.
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Jobs")]
    pub(crate) id_prefix: String,

    /// Print only errors.
    #[arg(short, long, help_heading = "Display")]
    pub(crate) quiet: bool,

    /// Print the summary as one JSON object on standard output.
    #[arg(long, help_heading = "Display")]
    pub(crate) json: bool,
}

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The address to listen at; `:8080` is all interfaces.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,

    /// A name of the model in requests; answers have the first one. Default: the value of --model, or the last part of
    /// a path. Repeatable.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Requests")]
    pub(crate) served_model_name: Vec<String>,

    /// Vectors of the same model and settings that `POST /v1/similar` searches, in memory: complete outputs of `embed`,
    /// `worker` or `merge`, or files of other programs. `POST /v1/index/reload` and SIGHUP read them again. Repeatable.
    #[cfg(feature = "search")]
    #[arg(long, value_name = "VECTORS", help_heading = "Requests")]
    pub(crate) index: Vec<PathBuf>,

    #[cfg(feature = "search")]
    #[command(flatten, next_help_heading = "Requests")]
    pub(crate) foreign: ForeignArgs,

    /// Refuse requests with unknown fields. Without it, they are ignored, and named in the answer's header
    /// `Foveate-Ignored-Fields`.
    #[arg(long, help_heading = "Requests")]
    pub(crate) strict_requests: bool,

    /// Most images and texts of one request. Default: 64, but at most --max-in-flight.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Requests")]
    pub(crate) max_images: Option<usize>,

    /// Most bytes of one request. All requests together may take 256 MiB, or three times this value if that is more.
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_count, help_heading = "Requests")]
    pub(crate) max_body: u64,

    /// Longest time of a request.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds, help_heading = "Requests")]
    pub(crate) timeout: Duration,

    /// A file with one API key per line, `KEY` or `NAME KEY`; the log names the key of each request. SIGHUP reads it
    /// again. Without it, the server answers every request.
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub(crate) api_keys: Option<PathBuf>,

    /// How long an idle connection is kept. A proxy in front must close its idle connections earlier.
    #[arg(long, value_name = "SECONDS", default_value = "75", value_parser = parse_seconds, help_heading = "Requests")]
    pub(crate) keep_alive: Duration,

    /// How long new connections are served after a signal to stop, before --drain begins. `/readyz` fails meanwhile,
    /// so that load balancers send no more requests.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds, help_heading = "Requests")]
    pub(crate) stop_delay: Duration,

    /// Allow scripts of web pages from this origin, such as `https://app.example.com` (CORS); `*` allows all origins.
    /// Repeatable.
    #[arg(long, value_name = "ORIGIN", help_heading = "Requests")]
    pub(crate) cors_origin: Vec<Origin>,

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
