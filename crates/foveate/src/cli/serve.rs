//! `foveate serve`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use foveate::net::{self, Client};
use foveate::queue::QueueOptions;
use foveate::serve::{Api, Options, Server};

use super::Exit;
use super::service::{self, Service};
use super::service_args::ServeArgs;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    let (_logs, cancel) = service::begin(&args.service, "no more requests are taken, and those in hand are answered")?;

    let open = |address: &String| service::queue(address, &args.queues, QueueOptions::DEFAULT_MAX_RECEIVE);
    let queue = args.queue.as_ref().map(open).transpose()?;
    let Service { engine, options, .. } = service::start(&args.service, Path::new(""))?;
    let engine = Arc::new(engine);
    let callbacks = net::Options { allow_private: args.service.allow_private.clone(), ..net::Options::default() };
    let callbacks = Client::new(callbacks)?;
    let api = Api {
        queue,
        check_callback: Some(Arc::new(move |url: &str| callbacks.check(url).map_err(|error| error.reason))),
        tokens: args.api_keys.as_deref().map(api_keys).transpose()?.unwrap_or_default(),
        max_images: args.max_images,
        max_body_bytes: args.max_body,
        timeout: args.timeout,
        traces: service::TRACES,
        ..Api::new(Arc::clone(&engine), &options.model)
    };
    let probe = Arc::clone(&engine);
    let server = Server::start(Options { api: Some(api), ..Options::new(args.listen, probe) })
        .with_context(|| format!("cannot answer on {}", args.listen))?;
    tracing::info!(address = %server.address(), model = options.model, "answering");

    service::wait(|| cancel.is_cancelled());
    let left = server.stop(args.service.drain);
    engine.stop(std::time::Duration::ZERO);
    match left {
        0 => Ok(Exit::Complete),
        left => {
            tracing::warn!(left, "stopped; requests that were not done in time were given up");
            Ok(Exit::Fault)
        }
    }
}

/// One key a line; empty lines and comments are left out.
fn api_keys(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let keys: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    anyhow::ensure!(!keys.is_empty(), "{} has no keys", path.display());
    Ok(keys)
}
