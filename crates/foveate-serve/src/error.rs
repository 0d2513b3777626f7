use std::net::SocketAddr;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server cannot listen at its address.
    #[error("cannot listen at {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// No browser sends such an origin.
    #[error("'{0}' is not an origin; write scheme and host alone, such as https://example.com, or *")]
    Origin(String),
}
