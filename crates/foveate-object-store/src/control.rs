//! Tells an object that a store refuses from a store that refuses everything.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use foveate_core::lock;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use tokio::time::{Instant, timeout};

use crate::errors::ReadFailure;

/// Longest wait for the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The object that a store gave last, in one kind of request. If it is refused too, no object is at fault.
pub(crate) struct ControlObject {
    /// True if the requests are for metadata alone.
    head: bool,
    given: Mutex<Option<(Arc<dyn ObjectStore>, Path)>>,
    /// The time at which it was last asked for again; true if it came.
    asked: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl ControlObject {
    /// Of requests for bytes, and of those for metadata alone.
    pub(crate) fn pair() -> Arc<[Self; 2]> {
        Arc::new([false, true].map(|head| Self { head, given: Mutex::default(), asked: Default::default() }))
    }

    /// Notes that `objects` gave the object at `path`.
    pub(crate) fn gave(&self, objects: &Arc<dyn ObjectStore>, path: &Path) {
        *lock(&self.given) = Some((Arc::clone(objects), path.clone()));
    }

    /// Returns true if the store gives that object at a moment after `since`; `None` if there is none.
    pub(crate) async fn gives(&self, since: Instant) -> Option<bool> {
        let (objects, path) = lock(&self.given).clone()?;
        let mut asked = self.asked.lock().await;
        if let Some((when, gives)) = *asked
            && when >= since
        {
            return Some(gives);
        }
        let when = Instant::now();
        let head = self.head;
        let range = (!self.head).then_some(GetRange::Bounded(0..1));
        let answer = timeout(TIMEOUT, objects.get_opts(&path, GetOptions { head, range, ..GetOptions::default() }));
        let gives = match answer.await {
            Ok(Ok(_)) => true,
            // Of an object that is gone or has no bytes, the store says so.
            Ok(Err(error)) => matches!(ReadFailure::of("", &error), ReadFailure::Final(_) | ReadFailure::NoParts),
            Err(_) => false,
        };
        *asked = Some((when, gives));
        Some(gives)
    }
}
