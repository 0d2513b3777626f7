//! Logs and spans of whole processes, because `init` works once per process.

use std::process::Command;

use foveate::telemetry::{Format, TelemetryError, TelemetryOptions};
use serde_json::Value;
use tracing::{debug, info, info_span, warn};

/// Runs [`says`] in a process of its own and returns what the process wrote to standard error.
fn stderr_of(format: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "telemetry::says", "--ignored"]).env("FORMAT", format).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}{}", String::from_utf8_lossy(&output.stdout));
    stderr
}

#[test]
#[ignore = "the others run it, with variables that say how"]
fn says() {
    let variable = |name| std::env::var(name).ok();
    let format = if variable("FORMAT").unwrap() == "json" { Format::Json } else { Format::Text };
    let options = TelemetryOptions { format, filter: variable("FILTER"), otlp: variable("OTLP") };
    let _guard = foveate::telemetry::init(&options).unwrap();
    assert!(matches!(foveate::telemetry::init(&TelemetryOptions::default()), Err(TelemetryError::AlreadySet)));

    if let Some(parent) = variable("PARENT") {
        let span = info_span!(target: "foveate_worker", "joined");
        foveate::telemetry::join(&span, &parent);
        span.in_scope(|| info!(target: "foveate_worker", known_as = foveate::telemetry::traceparent(&span)));
        return;
    }

    let item = info_span!(target: "foveate_worker", "item", id = "cat-1", bytes = tracing::field::Empty, level = 3);
    item.in_scope(|| {
        info_span!(target: "foveate_worker", "download", host = "example.com").in_scope(|| {
            item.record("bytes", 512);
            info!(target: "foveate_worker", "began");
            warn!(target: "foveate_worker", attempt = 2, host = "cdn.example.com", "404 \"Not\nFound\"");
        });
        debug!(target: "foveate_worker", "a detail");
    });
    info!(target: "somebody_else", "chatter");
    info_span!(target: "somebody_else", "elsewhere").in_scope(|| warn!(target: "somebody_else", "trouble"));
}

/// The lines without their timestamps, which are checked here.
fn objects(stderr: &str) -> Vec<Value> {
    let object = |line: &str| {
        let mut object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let timestamp = object.as_object_mut().unwrap().remove("timestamp").unwrap();
        let timestamp = timestamp.as_str().unwrap();
        assert!(timestamp.len() == 27 && &timestamp[10..11] == "T" && timestamp.ends_with('Z'), "{timestamp}");
        object
    };
    stderr.lines().map(object).collect()
}

#[test]
fn a_line_of_json_has_the_fields_of_its_spans_at_the_top() {
    let stderr = stderr_of("json", &[]);
    assert!(stderr.starts_with(r#"{"timestamp":""#), "{stderr}");
    let began = r#"{"level":"INFO","target":"foveate_worker","message":"began","id":"cat-1","bytes":512,"level_":3,"host":"example.com"}"#;
    let warned = r#"{"level":"WARN","target":"foveate_worker","message":"404 \"Not\nFound\"","id":"cat-1","bytes":512,"level_":3,"host":"cdn.example.com","attempt":2}"#;
    let trouble = r#"{"level":"WARN","target":"somebody_else","message":"trouble"}"#;
    let expected: Vec<Value> = [began, warned, trouble].map(|line| serde_json::from_str(line).unwrap()).into();
    assert_eq!(objects(&stderr), expected);
}

#[test]
fn a_filter_hides_lines_but_never_the_id_on_those_it_shows() {
    let lines = objects(&stderr_of("json", &[("FILTER", "warn")]));
    let shown: Vec<&str> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(shown, ["404 \"Not\nFound\"", "trouble"]);
    assert_eq!(lines[0]["id"], "cat-1");

    let lines = objects(&stderr_of("json", &[("FILTER", "off,foveate_worker=debug")]));
    let shown: Vec<&str> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(shown, ["began", "404 \"Not\nFound\"", "a detail"]);
}

#[test]
fn a_line_of_text_names_span_and_id_without_colours_in_a_pipe() {
    let stderr = stderr_of("text", &[]);
    let began = stderr.lines().next().unwrap();
    assert!(began.contains(r#" INFO item{id="cat-1""#) && began.ends_with("foveate_worker: began"), "{began}");
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
}

#[test]
fn a_filter_that_is_none_is_told_so() {
    let options = TelemetryOptions { filter: Some("foveate=loud".to_owned()), ..TelemetryOptions::default() };
    let message = foveate::telemetry::init(&options).unwrap_err().to_string();
    assert!(message.starts_with("log filter 'foveate=loud': ") && message.contains("looks like 'info'"), "{message}");
}

/// From the examples of W3C Trace Context.
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[cfg(not(feature = "otel"))]
mod without_otel {
    use super::*;

    #[test]
    fn a_span_has_no_name_for_others() {
        let lines = objects(&stderr_of("json", &[("PARENT", PARENT)]));
        assert_eq!(lines[0].get("known_as"), None);
    }

    #[test]
    fn an_endpoint_that_was_asked_for_is_refused_naming_the_feature() {
        let options =
            TelemetryOptions { otlp: Some("http://localhost:4318".to_owned()), ..TelemetryOptions::default() };
        let message = foveate::telemetry::init(&options).unwrap_err().to_string();
        let expected = "spans cannot go to http://localhost:4318: OpenTelemetry is not compiled into this build; rebuild with -F otel";
        assert_eq!(message, expected);
    }

    #[test]
    fn an_endpoint_of_the_environment_is_a_warning() {
        let lines = objects(&stderr_of("json", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")]));
        assert!(lines[0]["message"].as_str().unwrap().contains("rebuild with -F otel"), "{lines:?}");
    }
}

#[cfg(feature = "otel")]
mod with_otel {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
    use prost::Message;

    use super::*;

    /// Reads one request: its head and its body.
    fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        (head, body)
    }

    /// Starts a collector and runs [`says`] with its address and these variables. Returns the request and the log.
    fn collected(
        address: &str,
        suffix: &str,
        variables: &[(&str, &str)],
    ) -> (String, ExportTraceServiceRequest, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}{suffix}", listener.local_addr().unwrap());
        let collector = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let received = request(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
                .unwrap();
            received
        });
        let variables: Vec<_> = [&[(address, endpoint.as_str())], variables].concat();
        let stderr = stderr_of("json", &variables);
        let (head, body) = collector.join().unwrap();
        (head, ExportTraceServiceRequest::decode(&body[..]).unwrap(), stderr)
    }

    fn attribute(attributes: &[KeyValue], key: &str) -> any_value::Value {
        let found = attributes.iter().find(|attribute| attribute.key == key);
        found.unwrap_or_else(|| panic!("no {key}: {attributes:?}")).value.clone().unwrap().value.unwrap()
    }

    fn text(value: &str) -> any_value::Value {
        any_value::Value::StringValue(value.to_owned())
    }

    #[test]
    fn a_collector_gets_spans_with_parents_and_attributes() {
        // Spans are exported whatever the log filter is.
        let (head, export, stderr) = collected("OTLP", "/", &[("FILTER", "off")]);
        assert_eq!(stderr, "");
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");

        let [of_resource] = &export.resource_spans[..] else { panic!("{export:?}") };
        let resource = &of_resource.resource.as_ref().unwrap().attributes;
        assert_eq!(attribute(resource, "service.name"), text("foveate"));
        let spans: Vec<_> = of_resource.scope_spans.iter().flat_map(|scope| &scope.spans).collect();
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["download", "item"], "and nothing of somebody_else");

        let [download, item] = [spans[0], spans[1]];
        assert_eq!(download.parent_span_id, item.span_id);
        assert_eq!(download.trace_id, item.trace_id);
        assert!(item.parent_span_id.is_empty() && item.end_time_unix_nano >= download.end_time_unix_nano);
        assert_eq!(attribute(&item.attributes, "id"), text("cat-1"));
        assert_eq!(attribute(&item.attributes, "bytes"), any_value::Value::IntValue(512));
        assert_eq!(attribute(&download.attributes, "host"), text("example.com"));
        let events: Vec<&str> = download.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(events, ["began", "404 \"Not\nFound\""]);
    }

    #[test]
    fn a_span_joins_the_trace_of_who_asks_and_is_joined_by_its_own_name() {
        let joined = |parent: &str| {
            let (_, export, stderr) = collected("OTLP", "", &[("PARENT", parent)]);
            let span = export.resource_spans[0].scope_spans[0].spans[0].clone();
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let [trace, id, parent] = [hex(&span.trace_id), hex(&span.span_id), hex(&span.parent_span_id)];
            let known_as = objects(&stderr)[0]["known_as"].as_str().unwrap().to_owned();
            assert_eq!((span.name.as_str(), known_as), ("joined", format!("00-{trace}-{id}-01")));
            (trace, parent)
        };
        let (trace, parent) = joined(PARENT);
        assert_eq!([trace.as_str(), parent.as_str()], ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"]);
        // Ignored: the span begins a trace of its own.
        let (trace, parent) = joined("00-0af7651916cd43dd8448eb211c80319c-none-01");
        assert_ne!((trace.as_str(), parent.as_str()), ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"));
        assert_eq!(parent, "");
    }

    #[test]
    fn the_environment_is_respected() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key"),
            ("OTEL_SERVICE_NAME", "vision"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
        ];
        let (head, export, _) = collected("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/as/it/is", &variables);
        assert!(head.starts_with("post /as/it/is http/1.1\r\n"), "{head}");
        assert!(head.contains("authorization: bearer key\r\n"), "{head}");
        let resource = &export.resource_spans[0].resource.as_ref().unwrap().attributes;
        assert_eq!(attribute(resource, "service.name"), text("vision"));
        assert_eq!(attribute(resource, "deployment.environment"), text("test"));
    }

    #[test]
    fn a_collector_that_never_answers_delays_the_end_no_longer_than_it_may() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let start = Instant::now();
        let stderr = stderr_of("json", &[("OTLP", &endpoint), ("OTEL_EXPORTER_OTLP_TIMEOUT", "300")]);
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        let is_told = |line: &Value| line["target"].as_str().unwrap().starts_with("opentelemetry");
        assert!(objects(&stderr).iter().any(is_told), "{stderr}");
    }

    #[test]
    fn an_address_that_is_none_is_an_error() {
        let options = TelemetryOptions { otlp: Some("not an address".to_owned()), ..TelemetryOptions::default() };
        let message = foveate::telemetry::init(&options).unwrap_err().to_string();
        assert!(message.starts_with("OpenTelemetry export: ") && message.contains("not an address"), "{message}");
    }
}
