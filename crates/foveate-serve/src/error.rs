use std::net::SocketAddr;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// Settings that make no sense together.
    #[error("{0}")]
    Options(String),
    /// The system gives no threads.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
}
