//! The state that all readers of an opened store share.

use std::collections::BTreeMap;
use std::future::Future;

use foveate_source::store::{Object, StoreOptions};
use foveate_source::{FetchError, SourceError};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::address::BucketPlace;
use crate::bucket::{Bucket, BucketSettings};
use crate::read::{ObjectTarget, ReadLimits};
use crate::retry::Attempts;

/// Enough for more than 10 Gbit/s with TLS.
const MOST_THREADS: usize = 4;

/// Options, opened buckets, and the threads that talk to them.
pub(crate) struct Core {
    pub(crate) options: StoreOptions,
    settings: BucketSettings,
    buckets: Mutex<BTreeMap<String, Bucket>>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Core {
    pub(crate) fn new(options: &StoreOptions) -> Result<Self, SourceError> {
        let settings = BucketSettings::new(options)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("object-store")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|source| SourceError::Io { action: "start threads for object stores".to_owned(), source })?;
        Ok(Self { options: options.clone(), settings, buckets: Mutex::default(), runtime: Some(runtime) })
    }

    /// # Panics
    /// Never: the runtime is there until the core is dropped.
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap_or_else(|| unreachable!("it is dropped with its owner"))
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime().block_on(future)
    }

    pub(crate) fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.runtime().spawn(future)
    }

    /// Returns true if an object can be created on the condition that there is none of its name.
    pub(crate) fn is_conditional(&self) -> bool {
        self.settings.is_conditional()
    }

    /// Attempts for a request that concerns no single object to be read.
    pub(crate) fn attempts(&self) -> Attempts {
        Attempts::within(None, self.settings.retry_for())
    }

    pub(crate) async fn bucket(&self, place: &BucketPlace) -> Result<Bucket, FetchError> {
        let mut buckets = self.buckets.lock().await;
        if let Some(bucket) = buckets.get(&place.root) {
            return Ok(bucket.clone());
        }
        let bucket = self.settings.open(place).await?;
        buckets.insert(place.root.clone(), bucket.clone());
        Ok(bucket)
    }

    pub(crate) async fn target(&self, object: &Object) -> Result<ObjectTarget, FetchError> {
        let place = BucketPlace::parse(&object.address)?;
        let StoreOptions { max_bytes, timeout, deadline, .. } = self.options;
        let limits = ReadLimits { max_bytes, timeout, deadline, retry_for: self.settings.retry_for() };
        ObjectTarget::new(self.bucket(&place).await?, &place, object, limits)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Waiting for the runtime would panic if the last reader is dropped inside another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
