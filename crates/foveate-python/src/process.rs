//! The resources that the engines of one process share: its threads and its open models.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, RwLockWriteGuard, Weak};
use std::time::Duration;

use foveate::Embedder;
use foveate::core::lock;
use foveate::embed::has_cpu;
use foveate::pipeline::Cancel;
use foveate::texts::TextEmbedder;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A value that one process uses. In a fork of it, the threads and locks behind the value are dead, so it is neither
/// used nor dropped there.
pub(crate) struct OwnedByProcess<T> {
    process: u32,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> OwnedByProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// The value, unless this process is a fork.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        if self.process == std::process::id() { self.value.as_mut() } else { None }
    }
}

impl<T> Drop for OwnedByProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// An open model, or the place for one.
pub(crate) struct OpenedEmbedder {
    /// Taken by the call that embeds.
    pub(crate) turn: Arc<Turn>,
    /// `None` until the first call.
    pub(crate) embedder: Mutex<Option<Embedder>>,
    /// The text tower, `None` until the first call with texts.
    pub(crate) texts: Mutex<Option<TextEmbedder>>,
}

#[derive(Default)]
struct EngineProcess {
    /// One call at a time uses the processor's cores.
    cores: Arc<Turn>,
    /// By their options.
    opened: HashMap<Vec<OsString>, Weak<OpenedEmbedder>>,
}

thread_local! {
    /// Held by a thread that forks.
    static PAUSED: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Waits until no thread is inside the cache's database, and keeps all out until the fork is over.
#[pyfunction]
pub(crate) fn pause_caches() {
    PAUSED.set(Some(foveate::cache::pause()));
}

/// Ends the pause, in the parent and in the child.
#[pyfunction]
pub(crate) fn resume_caches() {
    PAUSED.set(None);
}

/// Has each fork of the interpreter pause the caches.
pub(crate) fn watch_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let os = module.py().import("os")?;
    let Some(register) = os.getattr_opt("register_at_fork")? else { return Ok(()) };
    let resume = wrap_pyfunction!(resume_caches, module)?;
    let hooks = PyDict::new(module.py());
    hooks.set_item("before", wrap_pyfunction!(pause_caches, module)?)?;
    hooks.set_item("after_in_parent", &resume)?;
    hooks.set_item("after_in_child", resume)?;
    register.call((), Some(&hooks)).map(drop)
}

/// Held only together with the interpreter's lock, so that no fork finds it locked.
static PROCESS: Mutex<Option<OwnedByProcess<EngineProcess>>> = Mutex::new(None);

/// The model of the engines with these options. Engines that run on the processor take turns.
pub(crate) fn opened(_: Python<'_>, args: &[OsString], device: &str) -> Arc<OpenedEmbedder> {
    let mut process = lock(&PROCESS);
    if process.as_mut().and_then(OwnedByProcess::get).is_none() {
        *process = Some(OwnedByProcess::new(EngineProcess::default()));
    }
    let Some(EngineProcess { cores, opened }) = process.as_mut().and_then(OwnedByProcess::get) else {
        unreachable!("it belongs to this process");
    };
    if let Some(known) = opened.get(args).and_then(Weak::upgrade) {
        return known;
    }
    opened.retain(|_, known| known.strong_count() > 0);
    let turn = if has_cpu(device) { Arc::clone(cores) } else { Arc::default() };
    let new = Arc::new(OpenedEmbedder { turn, embedder: Mutex::new(None), texts: Mutex::new(None) });
    opened.insert(args.to_vec(), Arc::downgrade(&new));
    new
}

/// Lets one call through at a time.
#[derive(Default)]
pub(crate) struct Turn {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

/// The interval at which a waiting call checks for cancellation.
const INTERVAL: Duration = Duration::from_millis(50);

impl Turn {
    /// Waits for the turn; `None` if cancelled before.
    pub(crate) fn take(&self, cancel: &Cancel) -> Option<TurnGuard<'_>> {
        let mut is_taken = lock(&self.is_taken);
        while *is_taken {
            if cancel.is_cancelled() {
                return None;
            }
            is_taken =
                self.ended.wait_timeout(is_taken, INTERVAL).map_or_else(|held| held.into_inner().0, |held| held.0);
        }
        *is_taken = true;
        Some(TurnGuard(self))
    }
}

/// The turn, until it is dropped.
pub(crate) struct TurnGuard<'a>(&'a Turn);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_taken) = false;
        self.0.ended.notify_one();
    }
}
