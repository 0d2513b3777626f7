use crate::error::EncodeError;

/// An encoder's own threads. Parallel work that begins within [`Threads::run`] is divided among them.
#[derive(Debug)]
pub struct Threads {
    pool: rayon::ThreadPool,
}

impl Threads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// [`EncodeError::Threads`] if the system refuses one.
    pub fn start(count: usize) -> Result<Self, EncodeError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count).thread_name(|i| format!("forward-{i}")).build();
        pool.map(|pool| Self { pool }).map_err(|error| EncodeError::Threads { count, source: error.into() })
    }

    /// Runs `work` on one of the threads and waits for it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }
}
