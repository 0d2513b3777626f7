//! Clients that send too much or too slowly, and a server without the API.
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{Answer, Gate, engine, file, get, options_for, post_with, receive, request, send, serve, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foveate_serve::{Api, ServeError, Server, ServerOptions};
use foveate_worker::{IoRuntime, Probe};

const JSON: &str = "content-type: application/json\r\n";
const IMAGE: &str = "content-type: image/png\r\n";

#[test]
fn a_body_that_is_too_large_is_not_read_to_its_end() {
    let fixture = serve(4, |_, api| api.max_body_bytes = 1000);
    let announced =
        b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: 1001\r\n\r\n";
    let answer = Answer::parse(&receive(send(fixture.address, announced)));
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")), "{answer:?}");
    let head =
        "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless = format!("{head}3e8\r\n{}\r\n1\r\nx\r\n", "x".repeat(1000));
    let answer = Answer::parse(&receive(send(fixture.address, endless.as_bytes())));
    assert_eq!((answer.status, answer.json()["detail"].as_str()), (413, Some("the body is larger than 1000 bytes")));
    assert_eq!(post_with(fixture.address, IMAGE, &file(&"x".repeat(992))).status, 200, "1000 bytes are not too many");

    // A client that sends everything before it reads gets the answer, too.
    let fixture = serve(4, |_, api| (api.max_body_bytes, api.tokens) = (6 << 20, vec!["key".to_owned()]));
    for (headers, megabytes, status) in
        [("", 5, 401), ("authorization: bearer key\r\ncontent-type: image/png\r\n", 10, 413)]
    {
        let answer = post_with(fixture.address, headers, &vec![0; megabytes << 20]);
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

/// A head is buffered before its request is authenticated, on every connection: at most twice 32 KiB of it.
#[test]
fn a_head_that_is_too_large_is_not_read_to_its_end() {
    let fixture = serve(4, |_, _| ());
    for (bytes, is_answered) in [(30 << 10, true), (64 << 10, false), (1 << 20, false)] {
        let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: {}\r\n\r\n", "x".repeat(bytes));
        let mut text = String::new();
        let mut stream = send(fixture.address, b"");
        // The connection may be reset, because the server does not read the rest.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.read_to_string(&mut text).map(drop));
        assert_eq!(text.starts_with("HTTP/1.1 200"), is_answered, "{bytes}: {text}");
    }
}

#[test]
fn slow_clients_lose_their_place() {
    let fixture = serve(4, |options, api| {
        options.keep_alive = Duration::from_millis(300);
        api.read_timeout = Duration::from_millis(300);
    });
    let start = Instant::now();
    let head = send(fixture.address, b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n");
    let body = &request("POST /v1/embeddings", IMAGE, &file("all of it"))[..];
    let slow = send(fixture.address, &body[..body.len() - 1]);
    assert_eq!(receive(head), "", "a head that does not come has no answer");
    let answer = Answer::parse(&receive(slow));
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{answer:?}");
    let mut idle = send(fixture.address, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut text = String::new();
    idle.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn bytes_in_hand_are_bounded_for_all_clients_together() {
    let fixture = serve(8, |_, api| (api.max_body_bytes, api.max_bytes_in_hand) = (64 << 10, 192 << 10));
    let taken = || {
        let metrics = get(fixture.address, "/metrics").body;
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("foveate_http_uploads_bytes ")).unwrap().to_owned();
        line.parse::<u64>().unwrap()
    };
    let body = request("POST /v1/embeddings", IMAGE, &file(&"x".repeat(60 << 10)));
    let (most, last) = body.split_at(body.len() - 1);
    let halves = [(); 3].map(|()| send(fixture.address, most));
    until("three bodies are there, but for a byte", || taken() >= 180 << 10);
    let other = post_with(fixture.address, IMAGE, &file(&"x".repeat(30 << 10)));
    assert_eq!((other.status, other.header("retry-after")), (429, Some("1")), "{other:?}");
    assert_eq!(post_with(fixture.address, IMAGE, &file("small")).status, 200, "there is room for this one");
    for mut half in halves {
        half.write_all(last).unwrap();
        assert_eq!(Answer::parse(&receive(half)).status, 200);
    }
    assert_eq!(taken(), 0);
}

#[test]
fn base64_counts_as_it_came_and_as_it_is_decoded() {
    let fixture = serve(8, |_, api| (api.max_body_bytes, api.max_bytes_in_hand) = (64 << 10, 192 << 10));
    let whole = file(&"x".repeat(100));
    let gate = format!(r#"{{"input":{{"image":"{}"}}}}"#, STANDARD.encode([&whole[..], b"wait"].concat()));
    let held = send(fixture.address, &request("POST /v1/embeddings", JSON, gate.as_bytes()));
    until("it waits", || fixture.gate.came.load(SeqCst) == 1);
    let uploads = || get(fixture.address, "/metrics").body.contains("foveate_http_uploads_bytes 1024\n");
    assert!(uploads(), "the image alone, for as long as the engine has it");
    fixture.gate.open();
    assert_eq!(Answer::parse(&receive(held)).status, 200);
    assert!(!uploads());
}

#[test]
fn few_bytes_do_not_become_many() {
    let fixture = serve(64, |_, _| {});
    let refused = |body: &str, detail: &str| {
        let answer = post_with(fixture.address, JSON, body.as_bytes());
        assert!((400..500).contains(&answer.status), "{}", answer.status);
        assert!(answer.body.len() < 2000, "{} bytes of answer", answer.body.len());
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{answer:?}");
    };
    let many = |item: &str| format!(r#"{{"input":[{}]}}"#, vec![item; 10_000].join(","));
    refused(&many(r#""""#), "more than 4096 inputs");
    refused(&many("0"), "token ids and nested arrays are not understood");
    refused(&many("{}"), "more than 4096 inputs");
    let parts = vec![r#""https://a""#; 10_000].join(",");
    refused(&format!(r#"{{"input":[{{"content":[{parts}]}}]}}"#), "input 0: several images");
    let long = "x".repeat(1 << 20);
    let names: String = (0..10_000).map(|i| format!(r#","{i}{}":0"#, "x".repeat(100))).collect();
    let answer = post_with(fixture.address, JSON, format!(r#"{{"input":"https://a"{names}}}"#).as_bytes());
    assert!(answer.header("foveate-ignored-fields").unwrap().len() < 2000, "{answer:?}");
    refused(&format!(r#"{{"input":"https://a","model":"{long}"}}"#), "there is no model 'xxx");
    refused(&format!(r#"{{"input":"https://a","task":"{long}"}}"#), "there is no task 'xxx");
    refused(&format!(r#"{{"input":["https://a","https://b"],"metadata":"{long}"}}"#), "metadata of 1048578 bytes");
    let strict = serve(64, |_, api| api.strict_requests = true);
    let answer = post_with(strict.address, JSON, format!(r#"{{"input":"https://a","{long}":0}}"#).as_bytes());
    assert!(answer.json()["detail"].as_str().unwrap().starts_with("unknown field `xxx"), "{answer:?}");
    assert!(answer.body.len() < 2000, "{} bytes of answer", answer.body.len());
}

#[test]
fn a_client_that_takes_none_of_its_answer_loses_its_place() {
    let fixture = serve(1000, |options, api| {
        options.max_connections = 1;
        options.write_timeout = Duration::from_millis(300);
        api.max_images = 1000;
    });
    // More than the system buffers for a connection.
    let images = vec![serde_json::json!({"image": STANDARD.encode(file("x"))}); 800];
    let body = serde_json::json!({"input": images, "task": "echo", "metadata": "x".repeat(60 << 10)}).to_string();
    let lazy = send(fixture.address, &request("POST /v1/embeddings", JSON, body.as_bytes()));
    assert_eq!(get(fixture.address, "/healthz").status, 200, "there is a place again");
    drop(lazy);
}

#[test]
fn connections_wait_while_requests_are_under_way_on_all_others() {
    let fixture = serve(4, |options, _| options.max_connections = 1);
    let busy = send(fixture.address, &request("POST /v1/embeddings", IMAGE, &file("wait")));
    until("it waits", || fixture.gate.came.load(SeqCst) == 1);
    let second = send(fixture.address, &request("GET /healthz", "", b""));
    second.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!((&second).read(&mut [0; 12]).is_err(), "the first one is still there");
    fixture.gate.open();
    assert_eq!(Answer::parse(&receive(busy)).status, 200);
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(Answer::parse(&receive(second)).status, 200);
}

/// 500 connections for 32 places: some say nothing, some begin a head, some asked once and stay.
#[test]
fn idle_connections_give_their_places_to_new_ones() {
    let fixture = serve(4, |options, _| options.max_connections = 32);
    let busy = send(fixture.address, &request("POST /v1/embeddings", IMAGE, &file("wait")));
    until("it waits", || fixture.gate.came.load(SeqCst) == 1);
    for begin in ["", "GET /readyz HTTP/1.1\r\nhost: x\r\n", "GET /readyz HTTP/1.1\r\nhost: x\r\n\r\nGET /readyz"] {
        let crowd: Vec<_> = (0..500).map(|_| send(fixture.address, begin.as_bytes())).collect();
        for path in ["/readyz", "/metrics"] {
            assert_eq!(get(fixture.address, path).status, 200, "{path} {begin:?}");
        }
        drop(crowd);
    }
    fixture.gate.open();
    assert_eq!(Answer::parse(&receive(busy)).status, 200, "a request that is under way keeps its place");
}

/// A probe that is never ready.
struct Stuck;

impl Probe for Stuck {
    fn live(&self) -> Result<(), String> {
        Err("download 3 has been busy for 130 s".to_owned())
    }
    fn ready(&self) -> Result<(), String> {
        Err("stopping".to_owned())
    }
    fn metrics(&self) -> String {
        "# TYPE of_worker gauge\nof_worker 1\n# EOF\n".to_owned()
    }
}

#[test]
fn health_and_metrics_are_there_without_the_api() {
    let runtime = IoRuntime::start().unwrap();
    let options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), Arc::new(Stuck), runtime.handle().clone());
    let server = Server::start(options).unwrap();
    let live = get(server.address(), "/healthz");
    assert_eq!((live.status, live.json()["detail"].as_str()), (503, Some("download 3 has been busy for 130 s")));
    assert_eq!(get(server.address(), "/readyz").json()["detail"], "stopping");
    assert_eq!(get(server.address(), "/openapi.json").status, 404);
    assert_eq!(get(server.address(), "/v1/models").status, 404);
    let metrics = get(server.address(), "/metrics");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((metrics.status, metrics.header("content-type")), (200, Some(content_type)));
    assert!(metrics.body.starts_with("# TYPE of_worker gauge\nof_worker 1\n# HELP "), "{}", metrics.body);
    let build = format!("foveate_build_info{{version=\"{}\",os=", env!("CARGO_PKG_VERSION"));
    assert!(metrics.body.contains(&build), "{}", metrics.body);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    for (name, least, most) in [
        ("process_cpu_seconds_total", 1e-6, 1e6),
        ("process_start_time_seconds", now - 86_400.0, now + 1.0),
        ("process_resident_memory_bytes", 1e6, 1e12),
        ("process_threads", 3.0, 1e4),
        ("process_open_fds", 5.0, 1e5),
        ("process_max_fds", 5.0, 1e10),
    ] {
        let line = metrics.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value: f64 = line.unwrap_or_else(|| panic!("no {name}: {}", metrics.body)).parse().unwrap();
        assert!((least..most).contains(&value), "{name} {value}");
    }
    assert!(
        metrics.body.contains("foveate_http_requests_total{route=\"/healthz\",status=\"503\"} 1\n"),
        "{}",
        metrics.body
    );
    assert!(
        metrics.body.contains("foveate_http_requests_total{route=\"none\",status=\"404\"} 2\n"),
        "{}",
        metrics.body
    );
    let asked = request("GET /metrics", "accept: text/plain\r\n", b"");
    let plain = Answer::parse(&receive(send(server.address(), &asked)));
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "# TYPE foveate_http_requests_total counter",
        "# TYPE foveate_build_info gauge",
        "# TYPE foveate_http_request_seconds histogram",
        "foveate_http_request_seconds_bucket{le=\"0.25\",route=\"none\"} 2",
    ] {
        assert!(plain.body.lines().any(|found| found == line), "{line}: {}", plain.body);
    }
    assert!(!plain.body.contains("# UNIT") && !plain.body.contains("# EOF"), "{}", plain.body);
    assert_eq!(metrics.body.matches("# EOF").count(), 1);
    assert!(metrics.body.ends_with("# EOF\n"));
}

#[test]
fn options_that_make_no_sense_are_told_so() {
    let engine = engine(&Arc::new(Gate::default()), 4);
    let start = |change: fn(&mut ServerOptions, &mut Api)| {
        let mut options = options_for(&engine);
        let mut api = Api::new(engine.clone(), "tiny");
        change(&mut options, &mut api);
        options.api = Some(api);
        Server::start(options).unwrap_err()
    };
    let message = |change| start(change).to_string();
    assert_eq!(
        message(|_, api| api.max_images = 5),
        "5 images in a request: there is room for 1 to 4; change max_images, or the engine's max_in_flight"
    );
    assert!(message(|_, api| api.max_body_bytes = u64::MAX).contains("three times as many in hand"));
    assert!(message(|_, api| api.models.clear()).contains("without a name"));
    assert!(message(|_, api| api.timeout = Duration::MAX).contains("at most a day"));
    assert!(message(|_, api| api.tokens = vec![String::new()]).contains("API key 1"));
    assert!(message(|options, _| options.max_connections = 0).contains("connection"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ServerOptions { listen: taken.local_addr().unwrap(), ..options_for(&engine) };
    assert!(matches!(Server::start(options), Err(ServeError::Bind { .. })));
}
