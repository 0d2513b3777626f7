use std::error::Error;

use tracing_subscriber::filter::ParseError;

/// The reason why logs and traces could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The log filter is malformed.
    #[error("log filter '{filter}': {source}; it looks like 'info' or 'warn,foveate_worker=debug'")]
    Filter {
        /// The filter.
        filter: String,
        /// The reason.
        source: ParseError,
    },
    /// A collector was named, but this build has no OpenTelemetry.
    #[error("spans cannot go to {0}: OpenTelemetry is not compiled into this build; rebuild with -F otel")]
    NotCompiled(String),
    /// The collector's address or the environment's settings cannot be used.
    #[error("OpenTelemetry export: {0}")]
    Export(#[source] Box<dyn Error + Send + Sync>),
    /// This process has set up logs already.
    #[error("logs are set up already")]
    AlreadySet,
}
