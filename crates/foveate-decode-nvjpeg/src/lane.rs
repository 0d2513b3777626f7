//! The chip's engines, shared by a process's preprocessors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use foveate_cuda::nvjpeg::{Engines, NvjpegHandle};
use foveate_cuda::{CudaError, Device};

/// Two batches keep the engines busy: one is decoded while the next is handed over. Each takes up to half a second to
/// create, and several are created one after the other.
const LANES: usize = 2;

struct EngineLanes {
    device: Device,
    engines: [Mutex<Engines>; LANES],
    users: AtomicUsize,
}

/// One of a device's lanes to its engines, which other preprocessors use too.
pub(crate) struct EngineLane {
    lanes: Arc<EngineLanes>,
    at: usize,
}

impl EngineLane {
    /// Returns a lane of the device, the next one each time; `None` if it has no engines.
    pub(crate) fn of(device: &Device, handle: &NvjpegHandle) -> Result<Option<Self>, CudaError> {
        static OPENED: Mutex<Vec<Weak<EngineLanes>>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|lanes| lanes.strong_count() > 0);
        let same = opened.iter().filter_map(Weak::upgrade).find(|lanes| lanes.device == *device);
        let lanes = match same {
            Some(lanes) => lanes,
            None => {
                let (Some(one), Some(other)) = (Engines::new(handle)?, Engines::new(handle)?) else { return Ok(None) };
                let engines = [one, other].map(Mutex::new);
                let lanes = Arc::new(EngineLanes { device: device.clone(), engines, users: AtomicUsize::new(0) });
                opened.push(Arc::downgrade(&lanes));
                lanes
            }
        };
        let at = lanes.users.fetch_add(1, Ordering::Relaxed) % LANES;
        Ok(Some(Self { lanes, at }))
    }

    /// Waits until no other preprocessor hands a batch over.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engines> {
        self.lanes.engines[self.at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if handing over a batch would wait for another.
    pub(crate) fn is_busy(&self) -> Result<bool, CudaError> {
        match self.lanes.engines[self.at].try_lock() {
            Ok(engines) => engines.is_busy(),
            Err(TryLockError::Poisoned(engines)) => engines.into_inner().is_busy(),
            Err(TryLockError::WouldBlock) => Ok(true),
        }
    }
}
