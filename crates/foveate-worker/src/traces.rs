use std::fmt;

use tracing::Span;

/// Joins this process's spans to the traces of those who ask, and theirs to ours, by the `traceparent` of
/// [W3C Trace Context](https://www.w3.org/TR/trace-context/). What knows OpenTelemetry has to be brought, as
/// `foveate-telemetry` does; [`Traces::default`] joins nothing.
#[derive(Clone, Copy)]
pub struct Traces {
    /// Makes a span that has not been entered yet part of the trace that a `traceparent` names. One that names none is not
    /// heeded.
    pub join: fn(&Span, &str),
    /// The `traceparent` by which others join a span; `None` where it is not recorded.
    pub traceparent: fn(&Span) -> Option<String>,
}

impl Default for Traces {
    fn default() -> Self {
        Self { join: |_, _| {}, traceparent: |_| None }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}
