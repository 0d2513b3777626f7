use tokio::runtime::{Builder, Handle, Runtime};

use crate::EngineError;

/// Threads of a runtime. Its tasks wait for networks, and compute little.
const THREADS: usize = 2;

/// A tokio runtime to wait for networks on: two threads, with the clock and the network. Dropping it waits for nothing.
pub struct IoRuntime {
    handle: Handle,
    /// `None` if the runtime is another's.
    own: Option<Runtime>,
}

impl IoRuntime {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`EngineError::Thread`] if the system refuses a thread or a socket.
    pub fn start() -> Result<Self, EngineError> {
        let own = Builder::new_multi_thread().worker_threads(THREADS).thread_name("io").enable_all().build();
        let own = own.map_err(EngineError::Thread)?;
        Ok(Self { handle: own.handle().clone(), own: Some(own) })
    }

    /// The runtime, for those that run tasks on it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl From<Handle> for IoRuntime {
    fn from(handle: Handle) -> Self {
        Self { handle, own: None }
    }
}

impl Drop for IoRuntime {
    fn drop(&mut self) {
        // To wait for its threads would panic within another runtime, and take as long as the slowest name resolution.
        if let Some(own) = self.own.take() {
            own.shutdown_background();
        }
    }
}
