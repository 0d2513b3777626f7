#![doc = include_str!("../README.md")]

mod json;
#[cfg_attr(not(feature = "otel"), path = "no_otel.rs")]
mod otel;

use std::io::{self, IsTerminal};

use tracing::{Level, Metadata, warn};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

pub use otel::{join, traceparent};

/// What is logged, how, and where spans go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetryOptions {
    /// How a line looks.
    pub format: Format,
    /// What is logged, in the syntax of `RUST_LOG` (`warn,foveate_worker=debug`); [`TelemetryOptions::DEFAULT_FILTER`] where none
    /// is given.
    pub filter: Option<String>,
    /// The base address of an OpenTelemetry collector that speaks OTLP over HTTP, usually on port 4318; what
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` says where none is given. Needs the feature `otel`.
    pub otlp: Option<String>,
}

impl TelemetryOptions {
    /// What foveate's crates do, and what worries others.
    pub const DEFAULT_FILTER: &str = "warn,foveate=info";
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people. In colours on a terminal, unless `NO_COLOR` is set.
    #[default]
    Text,
    /// One object a line: `timestamp` (RFC 3339, UTC), `level`, `target`, `message`, the event's own fields, and those of
    /// the spans that it is in. Of two with one name the inner one is shown; one that is called like those four gets an
    /// underscore after its name.
    Json,
}

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

/// Sends what is left when it is dropped: keep it until the program ends.
#[must_use = "spans that are still to be sent are sent when this is dropped"]
#[derive(Debug)]
pub struct Guard {
    _spans: Option<otel::Spans>,
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Sets up logs on standard error for the whole process, and the export of spans where a collector is named.
///
/// # Errors
/// [`TelemetryError`]; nothing is set up then.
pub fn init(options: &TelemetryOptions) -> Result<Guard, TelemetryError> {
    let logs = log_layer(options.format, visible(options.filter.as_deref())?);
    let (export, spans) = otel::export(options.otlp.as_deref())?.unzip();
    let layers: Vec<BoxedLayer> = [Some(logs), export].into_iter().flatten().collect();
    tracing_subscriber::registry().with(layers).try_init().map_err(|_| TelemetryError::AlreadySet)?;
    // Set for everything on a machine, perhaps: no reason not to start, but one to say why nothing arrives there.
    if cfg!(not(feature = "otel")) && std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        warn!(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not compiled into this build; rebuild with -F otel"
        );
    }
    Ok(Guard { _spans: spans })
}

fn log_layer(format: Format, visible: impl Filter<Registry> + Send + Sync + 'static) -> BoxedLayer {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        Format::Text => {
            let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            lines.with_ansi(colours).with_filter(visible).boxed()
        }
        Format::Json => lines.fmt_fields(json::fields()).event_format(json::Lines).with_filter(visible).boxed(),
    }
}

/// What the filter says, and our spans whatever it says: a warning without the id of its message helps nobody.
fn visible(filter: Option<&str>) -> Result<impl Filter<Registry> + Send + Sync + 'static, TelemetryError> {
    let filter = filter.unwrap_or(TelemetryOptions::DEFAULT_FILTER);
    let events = EnvFilter::try_new(filter)
        .map_err(|error| TelemetryError::Filter { filter: filter.to_owned(), reason: error.to_string() })?;
    Ok(events.or(filter_fn(is_our_span)))
}

fn is_our_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && is_ours(metadata)
}

/// What our crates say at the level of daily business.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && metadata.target().starts_with("foveate")
}
