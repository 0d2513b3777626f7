//! The data behind every answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::watch;

use crate::photo_server::bodies;
use crate::photo_server::callbacks::Callbacks;
use crate::photo_server::options::PhotoServerOptions;

/// Maximum number of paths that are counted. Further ones are refused, so that no count is ever forgotten.
const MOST_PATHS: usize = 1 << 20;

/// The photos, and the records of requests.
#[derive(Debug)]
pub(crate) struct PhotoSite {
    photos: Vec<Bytes>,
    jpeg_bomb: Bytes,
    options: PhotoServerOptions,
    stalled: watch::Sender<bool>,
    counts: Mutex<BTreeMap<String, u64>>,
    callbacks: Callbacks,
}

impl PhotoSite {
    pub(crate) fn new(photos: Vec<Arc<[u8]>>, options: PhotoServerOptions) -> Self {
        Self {
            photos: photos.into_iter().map(Bytes::from_owner).collect(),
            jpeg_bomb: bodies::jpeg_bomb().into(),
            options,
            stalled: watch::Sender::new(false),
            counts: Mutex::default(),
            callbacks: Callbacks::default(),
        }
    }

    pub(crate) fn photo(&self, n: u64) -> Bytes {
        self.photos[(n % self.photos.len() as u64) as usize].clone()
    }

    /// Returns a small file that claims to be a huge image: a PNG, or a JPEG for odd numbers.
    pub(crate) fn bomb(&self, n: u64) -> Bytes {
        if n % 2 == 1 { self.jpeg_bomb.clone() } else { Bytes::from_static(bodies::PNG_BOMB) }
    }

    pub(crate) fn options(&self) -> &PhotoServerOptions {
        &self.options
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// Counts a request, and returns how often the path was requested before. `None` if there are too many paths to
    /// count.
    pub(crate) fn count(&self, path: &str) -> Option<u64> {
        let mut counts = self.counts();
        if counts.len() >= MOST_PATHS && !counts.contains_key(path) {
            return None;
        }
        let count = counts.entry(path.to_owned()).or_default();
        *count += 1;
        Some(*count - 1)
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Waits while the server stalls, then for the latency of this visit.
    pub(crate) async fn hold(&self, path: &str, visit: u64) {
        // The sender lives as long as `self`.
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
        sleep(self.latency(path, visit)).await;
    }

    /// Returns the latency of a visit to a path.
    pub(crate) fn latency(&self, path: &str, visit: u64) -> Duration {
        self.options.latency.draw(self.options.seed, path, visit)
    }

    /// Waits for the latency of a callback.
    pub(crate) async fn hold_callback(&self, id: &str) {
        let latency = self.options.callback_latency.draw(self.options.seed, id, 0);
        sleep(latency + self.callbacks.slow()).await;
    }
}

async fn sleep(time: Duration) {
    // Even the shortest sleep lasts to the timer's next millisecond.
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
