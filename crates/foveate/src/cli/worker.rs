//! `foveate worker`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use foveate::embed::kernels_remedy;
use foveate::net::webhook::Secrets;
use foveate::queue::{Job, JobQueue};
use foveate::serve::{Server, ServerOptions};
use foveate::sink::{RunManifest, SinkError, SinkOptions, VectorSink, publish, staging, sync_file};
use foveate::worker::{
    Backoff, Callbacks, DeathRecord, Engine, InFlightLimit, IoRuntime, Segments, Setting, Worker, WorkerOptions,
};

use super::exit::{Exit, Usage};
use super::service::{self, Lasting, Service};
use super::service_args::WorkerArgs;

/// The file with the settings of all segments in a folder. Readers of Parquet folders skip names with an underscore.
const FINGERPRINT: &str = "_fingerprint.json";
/// The environment variable with the secrets that callbacks are signed with.
const SECRET: &str = "FOVEATE_WEBHOOK_SECRET";
/// Most connections for health checks and metrics.
const PROBES: usize = 32;
/// Time that the queues must be empty before `--until-empty` stops the worker.
const EMPTY: Duration = Duration::from_secs(3);
/// Time that a worker whose settings refuse every message waits for another one before it stops.
const USELESS: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &WorkerArgs) -> anyhow::Result<Exit> {
    let (_logs, cancel) = service::begin(&args.service, "receiving no more messages, finishing those in flight")?;

    let callbacks = callbacks(args)?;
    let runtime = IoRuntime::start()?;
    let mut queues = Vec::new();
    for address in &args.queue {
        queues.push(runtime.handle().block_on(service::queue(address, &args.queues, args.max_receive))?);
    }
    let client = service::client(&args.service, false)?;
    let engine = Engine::builder().runtime(runtime.handle().clone());
    let service = service::start(&args.service, engine, client, args.output.as_deref().unwrap_or(Path::new("")))?;
    let sink = args.output.as_deref().map(|folder| segments(args, folder, &service)).transpose()?;
    let options = WorkerOptions {
        in_flight_limit: in_flight_limit(args),
        heartbeat: !args.no_heartbeat,
        backoff: Backoff { base: args.retry, ..Backoff::default() },
        retry_for: args.retry_for,
        sink,
        deaths: death_record(args)?,
        store_events: args.store_events,
        remedy,
        traces: service::TRACES,
        ..WorkerOptions::new(queues.clone(), callbacks)
    };
    let names: Vec<_> = queues.iter().map(|queue| queue.name().to_owned()).collect();
    let worker = Arc::new(Worker::start(service.engine, options)?);
    let server = args.listen.map(|listen| watch(listen, &worker, &runtime)).transpose()?;
    tracing::info!(queues = names.join(", "), model = service.options.model.network.model, "receiving messages");

    let (mut empty, mut useless) = (Lasting::new(EMPTY), Lasting::new(USELESS));
    service::wait(|| {
        cancel.is_cancelled()
            || useless.is_so(is_useless(&worker))
            || args.until_empty && empty.is_so(runtime.handle().block_on(is_empty(&worker, &queues)))
    });
    let left = worker.stop(args.service.drain);
    if let Some(server) = server {
        server.stop(Duration::from_secs(1));
    }
    end(args, &worker, left, cancel.is_cancelled())
}

/// Says what became of the messages. `left` were released unfinished.
fn end(args: &WorkerArgs, worker: &Worker, left: usize, is_signal: bool) -> anyhow::Result<Exit> {
    let totals = worker.totals();
    if left > 0 {
        tracing::warn!("stopped: {totals}; released {left} that were not done in time");
        return Ok(Exit::Fault);
    }
    tracing::info!("stopped: {totals}");
    match worker.refusal().filter(|_| !is_signal) {
        Some(reason) => Err(Usage::from(anyhow!("{reason}; the messages are on the queue again")).into()),
        None if args.until_empty && totals.dead() + totals.refused > 0 => Ok(Exit::Failures),
        None => Ok(Exit::Complete),
    }
}

/// Returns true if the worker can do nothing with its messages, and no others have come.
fn is_useless(worker: &Worker) -> bool {
    worker.held() == 0 && worker.refusal().is_some()
}

/// The argument that allows a message which the worker refuses.
fn remedy(setting: Setting) -> Option<&'static str> {
    Some(match setting {
        Setting::Callbacks | Setting::CallbackHost => "name the callback's host with --callback-host",
        Setting::CallbackHttp => "--callback-http allows callbacks over http",
        Setting::CallbackPrivate => "--callback-private allows such a host",
        Setting::ImageHost => "--allow-private allows such a host",
        Setting::Objects => "--object-store allows a bucket",
        Setting::StoreEvents => "--store-events takes notifications of object stores",
        Setting::Sink => "--output stores the vectors",
        #[cfg(feature = "text")]
        Setting::Texts => "--texts embeds texts, with a model of two towers",
        _ => return None,
    })
}

/// Serves the worker's health and metrics.
fn watch(listen: std::net::SocketAddr, worker: &Arc<Worker>, runtime: &IoRuntime) -> anyhow::Result<Server> {
    let probe = Arc::clone(worker);
    let options = ServerOptions::new(listen, probe, runtime.handle().clone());
    let server = Server::start(ServerOptions { max_connections: PROBES, ..options }).map_err(service::cannot_start)?;
    tracing::info!(address = %server.address(), "serving /healthz, /readyz and /metrics");
    Ok(server)
}

/// Returns true if the worker holds nothing, and the queues only what it gave back because of its settings. Brokers
/// count approximately, so the caller asks repeatedly.
async fn is_empty(worker: &Worker, queues: &[Arc<dyn JobQueue>]) -> bool {
    let mut open = 0;
    for queue in queues {
        let Ok(depth) = queue.depth().await else { return false };
        open += depth.waiting + depth.leased;
    }
    worker.held() == 0 && open <= worker.refused() as u64
}

/// Opens the record of messages that were in a decoder when a worker died. Only a folder that was named must work.
fn death_record(args: &WorkerArgs) -> anyhow::Result<Option<Arc<DeathRecord>>> {
    let folder = args.deaths.clone().or_else(|| Some(user_state()?.join("foveate/worker")));
    let Some(folder) = folder else { return Ok(None) };
    match DeathRecord::open(&folder) {
        Ok(record) => Ok(Some(Arc::new(record))),
        Err(error) if args.deaths.is_some() => Err(error).with_context(|| format!("--deaths {}", folder.display())),
        Err(error) => {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "deaths of workers are not remembered; --deaths names another folder");
            Ok(None)
        }
    }
}

/// The folder for what the user's programs remember.
fn user_state() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| Some(std::env::home_dir()?.join(".local/state")))
}

fn in_flight_limit(args: &WorkerArgs) -> InFlightLimit {
    match (args.rate, args.hold) {
        (Some(rate), _) => InFlightLimit::Rate(rate),
        (None, Some(messages)) => InFlightLimit::Fixed(messages),
        (None, None) => InFlightLimit::Measured,
    }
}

fn callbacks(args: &WorkerArgs) -> anyhow::Result<Callbacks> {
    let client = service::callback_client(&args.callbacks)?;
    let secrets = std::env::var(SECRET).ok().map(|text| Secrets::parse(&text)).transpose();
    let secrets = secrets.with_context(|| format!("environment variable {SECRET}"))?;
    if client.is_some() && secrets.is_none() {
        tracing::warn!("callbacks are not signed: {SECRET} is not set");
    }
    Ok(Callbacks {
        secrets: secrets.map(Arc::new),
        posts: args.callbacks_at_once,
        encoding: args.encoding.into(),
        failures: args.callback_failures,
        patience: args.callback_patience,
        ..Callbacks::new(client)
    })
}

/// Opens the segments in `folder`, with names that no other worker uses.
fn segments(args: &WorkerArgs, folder: &Path, service: &Service) -> anyhow::Result<Segments> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let sink = service.backends.sink(args.storage.sink.as_deref())?;
    let (name, extension) = (foveate::core::Backend::name(sink).to_owned(), sink.extension());
    let settings: BTreeMap<_, _> = args.storage.sink_option.iter().cloned().collect();
    let element = args.storage.out_dtype;
    let options = move |output: &Path| SinkOptions { element, settings: settings.clone(), ..SinkOptions::new(output) };
    share(folder, &staging::settings(&options(folder), &name, &service.manifest))?;
    let (backends, folder) = (Arc::clone(&service.backends), folder.to_owned());
    let open = move |segment: &str| -> Result<Box<dyn VectorSink>, SinkError> {
        let output = folder.join(format!("{segment}.{extension}"));
        let unknown =
            |error: foveate::core::UnknownBackend| SinkError::BadOutput { path: output.clone(), source: error.into() };
        backends.sinks.get(&name).map_err(unknown)?.open(&options(&output))
    };
    Ok(Segments {
        open: Arc::new(open),
        manifests: BTreeMap::from([(Job::DEFAULT_TASK.to_owned(), service.manifest.clone())]),
        worker: worker_name(),
        max_rows: args.segment_rows,
        max_age: args.segment_age,
        until_empty: args.until_empty,
    })
}

/// Records in `folder` what its segments have in common, or compares it with what another worker recorded there.
fn share(folder: &Path, manifest: &RunManifest) -> anyhow::Result<()> {
    let path = folder.join(FINGERPRINT);
    if !path.exists() {
        let staged = folder.join(format!(".{FINGERPRINT}.{}", worker_name()));
        let written = fs::write(&staged, serde_json::to_vec_pretty(manifest)?);
        written.with_context(|| format!("cannot write {}", staged.display()))?;
        sync_file(&staged)?;
        publish(&staged, &path)?;
    }
    let recorded = fs::read(&path).map_err(anyhow::Error::from).and_then(|text| Ok(serde_json::from_slice(&text)?));
    let recorded: RunManifest = recorded.with_context(|| format!("cannot read {}", path.display()))?;
    match recorded.difference(manifest) {
        None => Ok(()),
        Some(difference) => Err(Usage::from(anyhow!(
            "cannot write to {}: its vectors were made with other settings ({difference}); {}",
            folder.display(),
            kernels_remedy(&difference).unwrap_or("name another folder")
        ))
        .into()),
    }
}

/// Returns a name that is unique among all workers, past ones included.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let host = if host.is_empty() { "worker" } else { &host };
    format!(
        "{host}-{}-{}",
        chrono::Utc::now().format("%Y%m%dT%H%M%S%.3f").to_string().replace('.', ""),
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_segments_has_one_kind_of_vectors() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = |pooling: &str| {
            let fingerprint = [("pooling".to_owned(), pooling.to_owned())].into();
            RunManifest { dim: 4, fingerprint, ..RunManifest::default() }
        };
        for _ in 0..2 {
            share(folder.path(), &manifest("cls")).unwrap();
        }
        let error = share(folder.path(), &manifest("mean")).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
        assert!(format!("{error:#}").contains("pooling: cls → mean"), "{error:#}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
