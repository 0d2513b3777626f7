//! Exports spans to a collector by OTLP over HTTP.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::Key;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;

use crate::telemetry::error::TelemetryError;
use crate::telemetry::layers::{BoxedLayer, is_ours};

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
/// The header's name.
const TRACEPARENT: &str = "traceparent";
/// The specification's default for a request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the collector at the end of a program.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Most bytes of a collector's answer.
const MAX_ANSWER: u64 = 4 << 20;

/// Makes a span that has not been entered yet part of the trace that `traceparent` names, in the format of W3C Trace
/// Context. A malformed `traceparent` is ignored.
pub fn join(span: &Span, traceparent: &str) {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carrier);
    if parent.span().span_context().is_valid() {
        // Fails if no span is exported; then there is nothing to join.
        let _ = span.set_parent(parent);
    }
}

/// The `traceparent` that names a span to other processes; `None` if the span is not exported.
pub fn traceparent(span: &Span) -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}

/// The spans that have not been sent yet.
#[derive(Debug)]
pub(crate) struct Spans(SdkTracerProvider);

impl Drop for Spans {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_WORDS) {
            warn!(%error, "the last spans could not be sent to the collector");
        }
    }
}

/// The layer that sends spans, if a collector is named here or in the environment.
pub(crate) fn export(endpoint: Option<&str>) -> Result<Option<(BoxedLayer, Spans)>, TelemetryError> {
    let is_named = endpoint.is_some() || first_of(ENDPOINTS).is_some();
    let is_disabled = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|set| set.eq_ignore_ascii_case("true"));
    if !is_named || is_disabled {
        return Ok(None);
    }
    let exporter = exporter(endpoint)?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
    // Only foveate's spans: the exporter would otherwise export the spans of its own connection, endlessly.
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("foveate")).with_filter(filter_fn(is_ours));
    Ok(Some((layer.boxed(), Spans(provider))))
}

fn exporter(endpoint: Option<&str>) -> Result<SpanExporter, TelemetryError> {
    let mut builder = SpanExporter::builder().with_http().with_http_client(SpanCollector::new());
    if let Some(base) = endpoint {
        builder = builder.with_endpoint(format!("{}/v1/traces", base.trim_end_matches('/')));
    }
    builder.build().map_err(|error| TelemetryError::Export(error.into()))
}

/// The resource from the environment; `service.name` is `foveate` by default.
fn resource() -> Resource {
    let name = Key::from_static_str("service.name");
    let from_environment = Resource::builder().build();
    let unnamed = from_environment.get(&name).is_none_or(|name| name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder();
    if unnamed { builder.with_service_name("foveate") } else { builder }.build()
}

fn first_of(variables: [&str; 2]) -> Option<String> {
    variables.into_iter().find_map(|variable| std::env::var(variable).ok().filter(|value| !value.is_empty()))
}

/// The connection to the collector.
#[derive(Debug)]
struct SpanCollector(ureq::Agent);

impl SpanCollector {
    fn new() -> Self {
        let timeout = first_of(TIMEOUTS).and_then(|millis| millis.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(timeout));
        Self(config.build().new_agent())
    }
}

#[async_trait::async_trait]
impl HttpClient for SpanCollector {
    /// Blocks, but only the exporter's own thread.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let (head, mut body) = self.0.run(Request::from_parts(head, &body[..]))?.into_parts();
        let answer = body.with_config().limit(MAX_ANSWER).read_to_vec()?;
        Ok(Response::from_parts(head, answer.into()))
    }
}
