/// The reason why an engine could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The settings contradict each other.
    #[error("{0}")]
    Options(String),
    /// The system refuses another thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}
