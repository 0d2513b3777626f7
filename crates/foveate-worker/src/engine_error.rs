use foveate_source::FetchError;

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Settings that make no sense together.
    #[error("{0}")]
    Options(String),
    /// What reads objects cannot be opened.
    #[error("objects: {0}")]
    Objects(#[from] FetchError),
    /// The system gives no more threads.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}
