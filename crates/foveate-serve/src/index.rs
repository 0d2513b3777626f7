//! The index at run time.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};

use crate::api::{Index, IndexSource, ReadIndex};
use crate::problem::ApiProblem;

/// The index that requests search, and its replacement.
pub(crate) struct IndexSlot {
    read: ReadIndex,
    current: RwLock<Arc<dyn Index>>,
    reading: Mutex<()>,
    pub(crate) rows: Gauge<i64, AtomicI64>,
    /// The time at which it was read, in seconds since the epoch.
    pub(crate) read_at: Gauge<f64, AtomicU64>,
}

impl IndexSlot {
    pub(crate) fn new(source: IndexSource) -> Self {
        let slot = Self {
            read: source.read,
            current: RwLock::new(source.first),
            reading: Mutex::new(()),
            rows: Gauge::default(),
            read_at: Gauge::default(),
        };
        slot.note();
        slot
    }

    /// The index of now. A request uses one from its begin to its end.
    pub(crate) fn current(&self) -> Arc<dyn Index> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self) {
        self.rows.set(self.current().rows() as i64);
        self.read_at.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    /// Reads the index and replaces the current one, which stays if that fails. Both are in memory meanwhile.
    pub(crate) fn reload(&self) -> Result<Value, ApiProblem> {
        let turn = self.reading.try_lock();
        if matches!(turn, Err(TryLockError::WouldBlock)) {
            let remedy = "wait until it is there, and reload again if the vectors have changed since";
            return Err(ApiProblem::new(StatusCode::CONFLICT, "the index is being read already", remedy));
        }
        let start = Instant::now();
        let index = (self.read)().map_err(|why| {
            let detail = format!("cannot read the index again, and the old one stays: {why}");
            ApiProblem::unavailable(detail, "repair the vectors, and reload again")
        })?;
        let rows = index.rows();
        let dim = index.dim();
        let old = std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), index);
        // Freeing it may take a while, in which requests are not held up.
        drop(old);
        self.note();
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(rows, seconds, "read the index again");
        Ok(json!({"rows": rows, "dim": dim, "seconds": seconds}))
    }
}
