//! `foveate serve`.

use std::path::Path;
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::anyhow;
use foveate::pipeline::lane::Normalize;
use foveate::serve::{Api, Server, ServerOptions};
use foveate::worker::{Engine, Setting};
#[cfg(unix)]
use nix::sys::signal::{SigSet, Signal};

use super::exit::{Exit, Usage};
use super::service::{self, Service};
use super::service_args::ServeArgs;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    #[cfg(unix)]
    let hangups = (args.api_keys.is_some() || has_index(args)).then(Hangups::new).transpose()?;
    let (_logs, cancel) = service::begin(&args.service, "/readyz fails; --stop-delay, then --drain seconds are left")?;

    let tokens = args.api_keys.as_deref().map(api_keys).transpose().map_err(Usage::from)?.unwrap_or_default();
    let client = service::client(&args.service, true)?;
    let Service { engine, manifest, options, .. } =
        service::start(&args.service, Engine::builder(), client, Path::new(""))?;
    let engine = Arc::new(engine);
    let dimensions = Some(manifest.dim);
    #[cfg(feature = "search")]
    let index = has_index(args).then(|| super::search::index(args, &manifest)).transpose()?;
    #[cfg(not(feature = "search"))]
    let index = None;
    let normalized = options.model.normalize == Normalize::L2;
    let api = Api { dimensions, normalized, index, tokens, ..api(args, &engine, &options.model.network.model) };
    let probe = Arc::clone(&engine);
    let listening = ServerOptions::new(args.listen, probe, engine.runtime().clone());
    let server = Server::start(ServerOptions { api: Some(api), keep_alive: args.keep_alive, ..listening })
        .map_err(service::cannot_start)?;
    tracing::info!(address = %server.address(), model = options.model.network.model, "serving");

    service::wait(|| {
        #[cfg(unix)]
        if hangups.as_ref().is_some_and(Hangups::take) {
            server.reload_index();
            match args.api_keys.as_ref().map(|path| api_keys(path).and_then(|keys| Ok(server.set_tokens(&keys)?))) {
                None => {}
                Some(Ok(())) => tracing::info!("read the API keys again"),
                Some(Err(error)) => tracing::error!("cannot read the API keys again, the old ones stay: {error:#}"),
            }
        }
        cancel.is_cancelled()
    });
    server.announce_stop();
    std::thread::sleep(args.stop_delay);
    let left = server.stop(args.service.drain);
    engine.stop(std::time::Duration::ZERO);
    match left {
        0 => Ok(Exit::Complete),
        left => {
            tracing::warn!(left, "stopped; gave up the requests that were not done in time");
            Ok(Exit::Fault)
        }
    }
}

#[cfg(feature = "search")]
fn has_index(args: &ServeArgs) -> bool {
    !args.index.is_empty()
}

#[cfg(not(feature = "search"))]
fn has_index(_: &ServeArgs) -> bool {
    false
}

/// Returns the API's limits: the defaults, overridden by the arguments.
fn api(args: &ServeArgs, engine: &Arc<Engine>, model: &str) -> Api {
    let usual = Api::new(Arc::clone(engine), name_of(model));
    let models = if args.served_model_name.is_empty() { usual.models } else { args.served_model_name.clone() };
    Api {
        models,
        cors: args.cors_origin.clone(),
        strict_requests: args.strict_requests,
        max_images: args.max_images.unwrap_or(usual.max_images),
        max_body_bytes: args.max_body,
        // A request needs memory for up to three times its body.
        max_bytes_in_hand: usual.max_bytes_in_hand.max(args.max_body.saturating_mul(3)),
        timeout: args.timeout,
        remedy,
        traces: service::TRACES,
        ..usual
    }
}

/// The default name of a model: of one on this machine, its folder's or file's name, because answers reveal no paths.
fn name_of(model: &str) -> String {
    let path = Path::new(model);
    let name = path.file_name().filter(|_| path.exists());
    name.map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The argument that allows an image which the server refuses. Names without an address get the same remedy as private
/// ones.
fn remedy(setting: Setting) -> Option<&'static str> {
    match setting {
        Setting::ImageHost => Some("name another address, or start the server with --allow-private for a private host"),
        Setting::Objects => Some("name another image, or start the server with --object-store for this bucket"),
        #[cfg(feature = "text")]
        Setting::Texts => Some(
            "this server embeds no texts: name an image, or start the server with --texts and a model of two towers",
        ),
        _ => None,
    }
}

/// Receives SIGHUP, which otherwise stops the process.
#[cfg(unix)]
struct Hangups(Arc<AtomicBool>);

#[cfg(unix)]
impl Hangups {
    /// Call before other threads start: they inherit that the signal is blocked, so only this one receives it.
    fn new() -> anyhow::Result<Self> {
        let signal = SigSet::from(Signal::SIGHUP);
        let came = Arc::new(AtomicBool::new(false));
        signal.thread_block()?;
        let flag = Arc::clone(&came);
        std::thread::spawn(move || {
            while signal.wait().is_ok() {
                flag.store(true, SeqCst);
            }
        });
        Ok(Self(came))
    }

    /// Returns true if a signal came since the last call.
    fn take(&self) -> bool {
        self.0.swap(false, SeqCst)
    }
}

/// Reads one key per line; skips empty lines and comments.
fn api_keys(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        anyhow!("cannot read {}: {error}; --api-keys names a file with one key per line", path.display())
    })?;
    let keys: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    anyhow::ensure!(!keys.is_empty(), "{} has no keys; write one per line", path.display());
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use foveate::worker::{Batching, InTurn, Output, Received, Task, TaskError};

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn args(arguments: &[&str]) -> Result<Box<ServeArgs>, clap::Error> {
        match Cli::try_parse_from(["foveate", "serve"].iter().chain(arguments))?.command {
            Command::Serve(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    struct Nothing;

    impl Task for Nothing {
        type Prepared = ();
        type Lane = InTurn<()>;
        fn prepare(&self, _: Received<'_>) -> Result<(), TaskError> {
            Ok(())
        }
        fn lane(self: Arc<Self>) -> Option<InTurn<()>> {
            Some(InTurn::new(|batch| Ok(batch.iter().map(|()| Output::Json(().into())).collect())))
        }
    }

    #[test]
    fn a_server_starts_with_few_images_under_way_and_with_large_bodies() {
        for (arguments, images, in_hand) in [
            (&[][..], 64, 256 << 20),
            (&["--max-in-flight", "32"], 32, 256 << 20),
            (&["--max-images", "8", "--max-body", "200M"], 8, 600_000_000),
        ] {
            let args = args(arguments).unwrap();
            let engine = Engine::builder().max_in_flight(args.service.max_in_flight);
            let engine = Arc::new(engine.task("embed", Nothing, Batching::default()).build().unwrap());
            let api = api(&args, &engine, "tiny");
            assert_eq!((api.max_images, api.max_bytes_in_hand), (images, in_hand), "{arguments:?}");
            let runtime = engine.runtime().clone();
            let options = ServerOptions::new(([127, 0, 0, 1], 0).into(), engine, runtime);
            Server::start(ServerOptions { api: Some(api), ..options }).unwrap().stop(std::time::Duration::ZERO);
        }
    }

    #[test]
    fn a_model_on_this_machine_is_named_without_its_path() {
        assert_eq!(name_of(env!("CARGO_MANIFEST_DIR")), "foveate");
        assert_eq!(name_of("facebook/dinov2-small"), "facebook/dinov2-small");
    }
}
