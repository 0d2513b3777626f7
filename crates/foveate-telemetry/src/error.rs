/// Why nothing was set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The filter cannot be read.
    #[error("log filter '{filter}': {reason}; it looks like 'info' or 'warn,foveate_worker=debug'")]
    Filter {
        /// What was asked.
        filter: String,
        /// The reason.
        reason: String,
    },
    /// A collector was named, and this program cannot speak to one.
    #[error("spans cannot go to {0}: OpenTelemetry is not compiled into this build; rebuild with -F otel")]
    NotCompiled(String),
    /// The address or the environment's settings are of no use.
    #[error("OpenTelemetry export: {0}")]
    Export(String),
    /// Somebody else has set up logs in this process.
    #[error("logs are set up already")]
    AlreadySet,
}
