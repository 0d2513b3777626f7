//! Formats a log line as one flat object, with the span's fields such as `id` at the top level.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Stores the fields of spans for [`JsonLines`].
pub(crate) fn fields() -> JsonFields {
    JsonFields::new()
}

pub(crate) struct JsonLines;

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for JsonLines {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(formatted) = span.extensions().get::<FormattedFields<JsonFields>>() {
                let of_span: Map<String, Value> = serde_json::from_str(formatted).map_err(|_| fmt::Error)?;
                fields.extend(of_span);
            }
        }
        let Ok(Value::Object(own)) = serde_json::to_value(event.field_map()) else { return Err(fmt::Error) };
        fields.extend(own);

        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let metadata = event.metadata();
        let message = fields.remove("message").unwrap_or_default();
        // These four first, for human readers.
        write!(line, r#"{{"timestamp":"{timestamp}","level":"{}","#, metadata.level())?;
        write!(line, r#""target":{},"message":{message}"#, Value::from(metadata.target()))?;
        for (name, value) in fields {
            let name = if matches!(name.as_str(), "timestamp" | "level" | "target") { name + "_" } else { name };
            write!(line, ",{}:{value}", Value::from(name))?;
        }
        writeln!(line, "}}")
    }
}
