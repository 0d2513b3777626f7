//! Photos over HTTP on a free port of loopback, with the latencies and faults of servers on the web, and a place for
//! the callbacks that a worker sends. For `foveate bench worker` and for tests of each fault.
//!
//! | `GET` | answer |
//! |---|---|
//! | `/photo/N` | photo `N` modulo their number, or the bytes of it that a `Range` names |
//! | `/corrupt/N` | the same with its middle overwritten: it looks like a photo and does not decode |
//! | `/missing/N` | 404 |
//! | `/stall/N` | no answer |
//! | `/slow/N` | the photo in 100 pieces |
//! | `/error/N` | 503 with `Retry-After: 1` |
//! | `/flaky/N/K` | 503 for the first `K` times, then the photo |
//! | `/bomb/N` | less than a kilobyte that claims 60 000 × 60 000 pixels: a PNG, for odd numbers a JPEG |
//! | `/huge/N` | a body that never ends, without `Content-Length` |
//!
//! `POST /callback` keeps every callback. Answers have a latency from a log-normal distribution; a seed decides each of
//! them.

mod bodies;
mod callbacks;
mod latency;
mod options;
mod routes;
mod site;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub use callbacks::{Call, Callbacks};
pub use latency::{Latency, LatencyError};
pub use options::PhotoServerOptions;
use site::PhotoSite;

/// Number of threads that answer. They wait only for sockets.
const THREADS: usize = 2;

/// A running server. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct PhotoServer {
    address: SocketAddr,
    site: Arc<PhotoSite>,
    runtime: Option<Runtime>,
}

impl PhotoServer {
    /// Serves `photos`, at least one, on a free port.
    ///
    /// # Errors
    /// Fails without a photo, a port or a thread.
    pub fn start(photos: Vec<Arc<[u8]>>, options: PhotoServerOptions) -> io::Result<Self> {
        if photos.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a photo server needs a photo"));
        }
        let threads =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("photo-server").enable_all().build();
        let runtime = threads?;
        let listener = runtime.block_on(TcpListener::bind((options.address, 0)))?;
        let address = listener.local_addr()?;
        // Without this option, sending is only delayed.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let site = Arc::new(PhotoSite::new(photos, options));
        runtime.spawn(axum::serve(listener, routes::router(Arc::clone(&site))).into_future());
        Ok(Self { address, site, runtime: Some(runtime) })
    }

    /// Returns the address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns how often a path was requested.
    pub fn requests(&self, path: &str) -> u64 {
        self.site.counts().get(path).copied().unwrap_or(0)
    }

    /// Returns the latency of the first answer to a path, which begins with `/`.
    pub fn latency_of(&self, path: &str) -> Duration {
        self.site.latency(path, 0)
    }

    /// Returns how often each path was requested.
    pub fn all_requests(&self) -> BTreeMap<String, u64> {
        self.site.counts().clone()
    }

    /// Stops all answers except those to callbacks from now on, or resumes them, also for requests that arrived in the
    /// meantime.
    pub fn set_stalled(&self, stalled: bool) {
        self.site.set_stalled(stalled);
    }

    /// Returns the callbacks that arrived.
    pub fn callbacks(&self) -> &Callbacks {
        self.site.callbacks()
    }
}

impl Drop for PhotoServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
