use std::fmt;

use tracing::Span;

/// Connects this process's spans to its callers' traces by the `traceparent` of
/// [W3C Trace Context](https://www.w3.org/TR/trace-context/). `foveate-telemetry` has the functions for OpenTelemetry;
/// [`Traces::default`] connects nothing.
#[derive(Clone, Copy)]
pub struct Traces {
    /// Makes a span that has not been entered yet part of the trace that a `traceparent` names. A malformed
    /// `traceparent` is ignored.
    pub join: fn(&Span, &str),
    /// The `traceparent` that names a span to other processes; `None` if the span is not recorded.
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
