use foveate_source::FetchError;

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The settings contradict each other.
    #[error("{0}")]
    Options(String),
    /// The object store cannot be opened.
    #[error("objects: {0}")]
    Objects(#[from] FetchError),
    /// The system refuses another thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}
