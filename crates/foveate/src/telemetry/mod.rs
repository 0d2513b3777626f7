//! A program's logs and traces. [`init`] sends logs to standard error, as text for people or as JSON for machines, and
//! with the feature `otel` spans to an OpenTelemetry collector. The libraries only use `tracing`; this module decides,
//! once per process, where the events go.
//!
//! Other crates than foveate's log from level warning on, unless the filter says otherwise. At `debug` and `trace`,
//! some of them log what goes over the wire, including secret parts of URLs. `warn,foveate=trace` does not.
//!
//! A line of JSON is one flat object: `timestamp` (RFC 3339, UTC), `level`, `target`, `message`, the fields of the
//! event, and those of all enclosing spans. So every line about a message has that message's id, and
//! `jq 'select(.id == "cat-1")'` shows everything about one image:
//!
//! ```text
//! {"timestamp":"2026-01-01T00:00:00.000000Z","level":"WARN","target":"example","message":"404","id":"cat-1"}
//! ```
//!
//! Spans of foveate's crates at level info and above go to the collector in batches, by OTLP over HTTP with protobuf,
//! to its base address with `/v1/traces` appended. Dropping the guard sends the rest, within 5 seconds. A full export
//! queue drops spans, and a warning counts them. `OTEL_*` variables apply as OpenTelemetry's specification says, after
//! the program's own options. Without the feature, an address in [`TelemetryOptions::otlp`] is an error that names it.
//!
//! [`join`] and [`traceparent`] read and write the header `traceparent` of [W3C Trace
//! Context](https://www.w3.org/TR/trace-context/), so that a request to `foveate serve`, the jobs that it queues, a
//! worker's spans for them and its callbacks form one trace. `tracestate` is not propagated.

mod error;
mod json;
mod layers;
#[cfg_attr(not(feature = "otel"), path = "no_otel.rs")]
mod otel;

use std::io::{self, IsTerminal};

use tracing::warn;
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use layers::{BoxedLayer, visible};

pub use error::TelemetryError;
pub use otel::{join, traceparent};

/// The level and the format of logs, and the destination of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetryOptions {
    /// The format of a line.
    pub format: Format,
    /// The log filter, in the syntax of `RUST_LOG` (`warn,foveate_worker=debug`). Default:
    /// [`TelemetryOptions::DEFAULT_FILTER`].
    pub filter: Option<String>,
    /// The base address of an OpenTelemetry collector (OTLP over HTTP), usually on port 4318. Default:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`. Needs the feature `otel`.
    pub otlp: Option<String>,
}

impl TelemetryOptions {
    /// Foveate's crates from level info, others from level warning.
    pub const DEFAULT_FILTER: &str = "warn,foveate=info";
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people, coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Text,
    /// One JSON object per line: `timestamp` (RFC 3339, UTC), `level`, `target`, `message`, the event's own fields, and
    /// those of its spans. Of two fields with one name, the inner one wins. A field with one of the first four names
    /// gets an underscore appended.
    Json,
}

/// Sends the remaining spans when it is dropped: keep it until the end of the program.
#[must_use = "spans that are still to be sent are sent when this is dropped"]
#[derive(Debug)]
pub struct Guard {
    _spans: Option<otel::Spans>,
}

/// Sets up logs on standard error for the whole process, and the export of spans if a collector is named.
///
/// # Errors
/// [`TelemetryError`]; nothing is set up then.
pub fn init(options: &TelemetryOptions) -> Result<Guard, TelemetryError> {
    let logs =
        log_layer(options.format, visible(options.filter.as_deref().unwrap_or(TelemetryOptions::DEFAULT_FILTER))?);
    let (export, spans) = otel::export(options.otlp.as_deref())?.unzip();
    let layers: Vec<BoxedLayer> = [Some(logs), export].into_iter().flatten().collect();
    tracing_subscriber::registry().with(layers).try_init().map_err(|_| TelemetryError::AlreadySet)?;
    // The variable may be set for the whole machine, so this is not an error, but it explains why no spans arrive.
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
        Format::Json => lines.fmt_fields(json::fields()).event_format(json::JsonLines).with_filter(visible).boxed(),
    }
}
