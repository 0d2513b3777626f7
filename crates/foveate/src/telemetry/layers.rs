//! The type of the log and span layers, and their filters.

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::{Layer, Registry};

use crate::telemetry::error::TelemetryError;

pub(crate) type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Applies the filter to events, but keeps foveate's spans: a warning needs the id of its message.
pub(crate) fn visible(filter: &str) -> Result<impl Filter<Registry> + Send + Sync + 'static, TelemetryError> {
    let events =
        EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })?;
    Ok(events.or(filter_fn(is_our_span)))
}

fn is_our_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && is_ours(metadata)
}

/// Events and spans of foveate's crates from level info.
pub(crate) fn is_ours(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && metadata.target().starts_with("foveate")
}
