//! The parts that `worker`, `enqueue` and `serve` share.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use foveate::backends;
#[cfg(feature = "text")]
use foveate::core::error_chain;
#[cfg(feature = "text")]
use foveate::embed::incomparable;
use foveate::embed::{Backends, Settings};
#[cfg(feature = "text")]
use foveate::encode::EncoderOptions;
use foveate::model::OpenOptions;
use foveate::net::{self, Client};
use foveate::pipeline::Cancel;
use foveate::queue::{Job, JobQueue, QueueError, QueueOptions};
use foveate::serve::ServeError;
use foveate::sink::RunManifest;
use foveate::source::AllowedObjects;
use foveate::source::store::StoreOptions;
use foveate::task::EmbedTask;
use foveate::telemetry::{self, Guard};
#[cfg(feature = "text")]
use foveate::texts::TextEmbedder;
use foveate::worker::{self, Batching, Engine, EngineBuilder, Traces};

use super::exit::Usage;
use super::service_args::{CallbackArgs, QueueArgs, ServiceArgs};
use super::{job, progress};

/// An engine that embeds, and its outputs' manifest.
pub(crate) struct Service {
    pub(crate) engine: Engine,
    pub(crate) manifest: RunManifest,
    pub(crate) backends: Arc<Backends>,
    pub(crate) options: Settings,
}

/// Continues the callers' traces, and passes them on with callbacks.
pub(crate) const TRACES: Traces = Traces { join: telemetry::join, traceparent: telemetry::traceparent };

/// Starts logging and handles the signals to stop. `rest` names the work that the service still finishes then. Dropping
/// the guard loses the open spans.
pub(crate) fn begin(args: &ServiceArgs, rest: &'static str) -> anyhow::Result<(Guard, Cancel)> {
    worker::return_large_allocations();
    raise_file_limit();
    let options = telemetry::TelemetryOptions {
        format: args.log.into(),
        filter: args.log_filter.clone(),
        otlp: args.otlp.clone(),
    };
    let logs = telemetry::init(&options)
        .map_err(|error| usage(anyhow!(error).context("cannot start logging (--log-filter, RUST_LOG, --otlp)")))?;
    let cancel = Cancel::default();
    job::on_signal(&cancel, move || tracing::info!("stopping: {rest}; a second signal stops at once"))?;
    Ok((logs, cancel))
}

/// Lets the process open as many files as the system allows: a worker may wait for thousands of servers at once.
fn raise_file_limit() {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let raised =
            getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
        if let Err(error) = raised {
            tracing::debug!(%error, "the limit of open files stays");
        }
    }
}

/// Returns the settings of embedding, with the service's own cache.
pub(crate) fn settings(args: &ServiceArgs, output: &Path) -> Settings {
    Settings {
        model: args.model.clone(),
        images: args.images.clone(),
        engine: args.engine.clone(),
        cache: args.cache.clone(),
        ..Settings::new(Vec::new(), "", output)
    }
}

/// Loads the model and starts the threads of `engine`, which download with `client`.
pub(crate) fn start(
    args: &ServiceArgs,
    engine: EngineBuilder,
    client: Client,
    output: &Path,
) -> anyhow::Result<Service> {
    let options = settings(args, output);
    let backends = Arc::new(Backends::compiled());
    let download = progress::Download::new(true);
    let model = OpenOptions { progress: &download, ..OpenOptions::from_env() };
    let EmbedTask { task, manifest, lanes, seeded } = options.task(&backends, &model)?;
    if let Some(warning) = job::warning_of_f32(&args.model, &args.engine) {
        tracing::warn!("{warning}");
    }
    if seeded {
        tracing::warn!(
            model = options.model.network.model,
            "generated weights: the speed is real, but the vectors are meaningless"
        );
    }
    #[cfg(feature = "text")]
    let task = if args.texts { task.texts(Arc::new(texts(&options, &model, &manifest)?)) } else { task };
    let mut engine = engine
        .client(Arc::new(client))
        .downloads(args.downloads)
        .workers(options.workers())
        .max_in_flight(args.max_in_flight)
        .max_bytes_in_flight(args.max_memory)
        .max_bytes(args.max_bytes)
        .stall(args.stall)
        .task(Job::DEFAULT_TASK, task, Batching { max: options.engine.batch, delay: args.batch_delay, lanes });
    if let Some(objects) = store(args)? {
        engine = engine.objects(objects);
    }
    Ok(Service { engine: engine.build()?, manifest, backends, options })
}

/// Opens the text tower of the model that made `manifest`.
#[cfg(feature = "text")]
fn texts(options: &Settings, hub: &OpenOptions<'_>, manifest: &RunManifest) -> anyhow::Result<TextEmbedder> {
    let name = &options.model.network.model;
    let encoder = EncoderOptions { threads: options.threads(), ..EncoderOptions::default() };
    let embedder = TextEmbedder::open(name, &encoder, hub).map_err(|error| {
        let remedy = "leave --texts out, or name a model of two towers, such as CLIP or SigLIP, with its tokenizer";
        usage(anyhow!("--texts: cannot open the text tower of {name}: {}; {remedy}", error_chain(&error)))
    })?;
    let texts = embedder.manifest(options.model.normalize);
    match incomparable(&texts.fingerprint, &manifest.fingerprint) {
        None => Ok(embedder),
        Some(why) => Err(usage(anyhow!(
            "--texts: texts cannot be compared with these vectors of images: {why}; leave --texts out, or use the \
             model's own pooling and weights"
        ))),
    }
}

/// The client for downloads. If whoever names the images sees their errors, `conceal_private` keeps the names of the
/// private network from them.
pub(crate) fn client(args: &ServiceArgs, conceal_private: bool) -> anyhow::Result<Client> {
    let options = net::ClientOptions {
        allow_private: args.allow_private.clone(),
        conceal_private,
        max_bytes: args.max_bytes,
        timeout: args.download_timeout,
        per_host: args.per_host,
        ..net::ClientOptions::default()
    };
    Client::new(options).context("--allow-private or --download-timeout")
}

/// The client for callbacks, or `None` if no host may be called back. Which private hosts it may ask is its own list:
/// a host that takes results need not give its files to whoever can queue a job.
pub(crate) fn callback_client(args: &CallbackArgs) -> anyhow::Result<Option<Arc<Client>>> {
    if args.callback_host.is_empty() {
        return Ok(None);
    }
    let options = net::ClientOptions {
        allow_private: args.callback_private.clone(),
        only_hosts: args.callback_host.clone(),
        https_only: !args.callback_http,
        ..net::ClientOptions::default()
    };
    Ok(Some(Arc::new(Client::new(options).context("--callback-host or --callback-private")?)))
}

/// The reader of the allowed objects, if any are allowed. Makes no request.
pub(crate) fn store(args: &ServiceArgs) -> anyhow::Result<Option<AllowedObjects>> {
    let Some(first) = args.object_store.first() else { return Ok(None) };
    let stores = backends::stores();
    let scheme = first.split_once("://").map_or(first.as_str(), |(scheme, _)| scheme);
    let store = match stores.iter().find(|store| store.schemes().contains(&scheme)) {
        Some(store) => store,
        // The registry's error names the feature that is not compiled in.
        None => stores.get("object-store").with_context(|| format!("--object-store {first}"))?,
    };
    let options = StoreOptions {
        max_bytes: args.max_bytes,
        timeout: args.download_timeout,
        deadline: Some(args.download_timeout),
        settings: args.object_store_option.iter().cloned().collect(),
        ..StoreOptions::default()
    };
    Ok(Some(AllowedObjects::new(store.open(&options)?, &args.object_store)?))
}

/// Connects to a queue, on the runtime that awaits it.
pub(crate) async fn queue(address: &str, args: &QueueArgs, max_receive: u32) -> anyhow::Result<Arc<dyn JobQueue>> {
    let options = QueueOptions {
        address: address.to_owned(),
        lease: args.lease,
        max_receive,
        create: args.create,
        settings: args.queue_option.iter().cloned().collect::<BTreeMap<_, _>>(),
    };
    let queues = backends::queues();
    let opened = queues.get(options.scheme()?)?.open(&options).await;
    opened.map(Into::into).map_err(|error| match &error {
        QueueError::Absent { .. } => {
            usage(anyhow!("{error}; `foveate enqueue --create` makes it, and so do the broker's own tools"))
        }
        QueueError::Lease(_) => {
            usage(anyhow!("{error}; --lease must fit the queue, or be left out if the queue has one"))
        }
        QueueError::Options(_) => usage(error.into()),
        _ => error.into(),
    })
}

/// Adds the remedy to an error of a server that does not start.
pub(crate) fn cannot_start(error: ServeError) -> anyhow::Error {
    let ServeError::Bind { address, source } = &error else { return usage(error.into()) };
    let remedy = match source.kind() {
        ErrorKind::PermissionDenied if address.port() < 1024 => {
            "only root may take ports below 1024: name one from 1024 on with --listen"
        }
        ErrorKind::AddrInUse => "another program listens there: stop it, or name another port with --listen",
        ErrorKind::AddrNotAvailable => "this machine does not have the address: name another one, or :PORT for all",
        _ => "name another address with --listen",
    };
    anyhow!("cannot listen at {address}: {source}; {remedy}")
}

fn usage(error: anyhow::Error) -> anyhow::Error {
    Usage::from(error).into()
}

/// Polls until `is_over`.
pub(crate) fn wait(mut is_over: impl FnMut() -> bool) {
    const INTERVAL: Duration = Duration::from_millis(50);
    while !is_over() {
        std::thread::sleep(INTERVAL);
    }
}

/// Tells whether a condition has held for a while.
pub(crate) struct Lasting {
    time: Duration,
    since: Option<Instant>,
}

impl Lasting {
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, since: None }
    }

    pub(crate) fn is_so(&mut self, now: bool) -> bool {
        self.since = now.then(|| self.since.unwrap_or_else(Instant::now));
        self.since.is_some_and(|since| since.elapsed() >= self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_refused_is_not_one_that_is_taken() {
        let message = |kind: ErrorKind, port: u16| {
            cannot_start(ServeError::Bind { address: ([127, 0, 0, 1], port).into(), source: kind.into() }).to_string()
        };
        assert!(message(ErrorKind::PermissionDenied, 1).ends_with("name one from 1024 on with --listen"));
        assert!(!message(ErrorKind::PermissionDenied, 8080).contains("1024"));
        assert!(message(ErrorKind::AddrInUse, 1).contains("another program listens there"));
    }
}
