use std::net::SocketAddr;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server cannot listen at its address.
    #[error("cannot listen at {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The system refuses a thread.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
}
