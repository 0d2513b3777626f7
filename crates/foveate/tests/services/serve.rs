//! `foveate serve` as its users and operators see it.
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::common::server::{Server, serve};
use crate::common::{PHOTOS, TINY, embed, foveate, run, text_vectors};
use foveate_testkit::{Trial, data, python, trials};
use serde_json::{Value, json};

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        openai_clients_see_vectors_and_errors_as_they_know_them,
        each_request_is_one_line_of_the_log,
        keys_are_read_again_and_a_stop_is_announced,
        a_stop_waits_for_requests_but_not_for_idle_clients,
        what_is_similar_in_an_index_is_found,
        rows_are_searched_by_id_and_column_and_an_index_is_read_again,
        texts_share_requests_and_searches_with_images,
        a_private_name_and_an_unknown_one_are_answered_alike,
        addresses_may_be_names_and_bad_arguments_are_refused,
    ]
}

/// A command whose server has one API key, `key`.
fn with_key(folder: &Path) -> Command {
    let keys = folder.join("keys");
    fs::write(&keys, "key\n").unwrap();
    let mut command = serve();
    command.arg("--api-keys").arg(keys);
    command
}

fn openai_clients_see_vectors_and_errors_as_they_know_them() {
    let mut client = python(&["openai"]);
    let folder = tempfile::tempdir().unwrap();
    let names = ["--served-model-name", "org/photos", "--served-model-name", "text-embedding-3-small"];
    let server = Server::start(with_key(folder.path()).args(names).args(["--cors-origin", "https://app.example.com"]));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_client.py");
    run(client.arg(script).arg(&server.address).arg(Path::new(PHOTOS).join("24_exact_224.jpg"))).expect(0);

    let asks = "Origin: https://app.example.com\r\nAccess-Control-Request-Method: POST\r\n";
    let preflight = server.ask("OPTIONS /v1/embeddings", asks, b"").to_ascii_lowercase();
    assert!(preflight.contains("access-control-allow-origin: https://app.example.com"), "{preflight}");
    let metrics = server.ask("GET /metrics", "", b"");
    assert!(
        metrics.contains("foveate_build_info{version=") && metrics.contains("process_cpu_seconds_total "),
        "{metrics}"
    );
}

fn each_request_is_one_line_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(with_key(folder.path()).args(["--log", "json"]));
    let key = "Authorization: Bearer key\r\nContent-Type: image/png\r\n";
    let proxied = format!("{key}X-Request-Id: from-the-proxy\r\n");
    let named = format!("{key}Idempotency-Key: order-7\r\n");
    for (line, headers, status, reason, id) in [
        ("GET /v1/models", "", 401, Some("there is no API key"), None),
        ("GET /v1/models?secret", &*proxied, 200, None, Some("from-the-proxy")),
        ("POST /v1/embeddings", &*named, 422, Some("1 of 1 inputs failed; input 0: decode: "), Some("order-7")),
        ("GET /nowhere", "", 404, Some("there is nothing at /nowhere"), None),
        ("GET /healthz", "", 200, None, None),
    ] {
        server.ask(line, headers, b"no image");
        let logged: serde_json::Value = serde_json::from_str(&server.logged("\"request\"")).unwrap();
        let (method, path) = line.split('?').next().unwrap().split_once(' ').unwrap();
        assert_eq!((&logged["method"], &logged["path"]), (&method.into(), &path.into()), "{logged}");
        assert_eq!(logged["status"], status, "{logged}");
        assert!(id.is_none_or(|id| logged["id"] == id) && logged["id"].is_string(), "{logged}");
        assert_eq!(logged["key"].as_str(), headers.contains("Bearer").then_some("key-1"), "{logged}");
        let figures = [&logged["images"], &logged["failures"], &logged["bytes"]].map(serde_json::Value::as_u64);
        assert_eq!(figures, if status == 422 { [1, 1, 8].map(Some) } else { [None; 3] }, "{logged}");
        let said = logged["reason"].as_str();
        assert!(said.is_some() == reason.is_some() && said.unwrap_or("").starts_with(reason.unwrap_or("")), "{logged}");
        assert!(logged["peer"].as_str().unwrap().starts_with("127.0.0.1:") && logged["ms"].is_u64(), "{logged}");
    }
}

fn keys_are_read_again_and_a_stop_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(with_key(folder.path()).args(["--stop-delay", "3600"]));
    let status = |server: &Server, key| {
        let answer = server.ask("GET /v1/models", &format!("Authorization: Bearer {key}\r\n"), b"");
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((status(&server, "key"), status(&server, "other")), ("200".to_owned(), "401".to_owned()));
    fs::write(folder.path().join("keys"), "alice other\n").unwrap();
    server.signal("HUP");
    server.logged("read the API keys again");
    assert_eq!((status(&server, "key"), status(&server, "other")), ("401".to_owned(), "200".to_owned()));
    server.logged("alice");
    server.signal("TERM");
    server.logged("stopping");
    while !server.ask("GET /readyz", "", b"").contains("503") {}
    assert_eq!(status(&server, "other"), "200", "new connections are served");
}

fn a_stop_waits_for_requests_but_not_for_idle_clients() {
    let half = "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 9\r\n\r\nhalf";
    for (sent, code) in [("", 0), ("GET /readyz HTTP/1.1\r\n", 0), (half, 1)] {
        let mut server = Server::start(serve().args(["--stop-delay", "3", "--drain", "1"]));
        let mut silent = TcpStream::connect(&server.address).unwrap();
        silent.write_all(sent.as_bytes()).unwrap();
        server.signal("TERM");
        while !server.ask("GET /readyz", "", b"").contains("503") {}
        assert_eq!(server.ended(), Some(code), "{sent:?}");
    }
}

fn what_is_similar_in_an_index_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (index, photo) = (folder.path().join("v.parquet"), Path::new(PHOTOS).join("24_exact_224.jpg"));
    run(embed(&index).arg(PHOTOS)).expect(0);
    let server = Server::start(serve().arg("--index").arg(&index));
    let ask = |line: &str| {
        let answer = server.ask(line, "Content-Type: image/jpeg\r\n", &fs::read(&photo).unwrap());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), serde_json::from_str::<serde_json::Value>(body).unwrap())
    };
    let (status, answer) = ask("POST /v1/similar?k=2");
    let found = answer["data"][0]["output"].as_array().unwrap_or_else(|| panic!("{status}: {answer}"));
    assert_eq!((found.len(), &found[0]["id"]), (2, &photo.display().to_string().into()), "{answer}");
    assert!(found[0]["score"].as_f64().unwrap() > 0.999_99 && found[1]["score"].as_f64() < found[0]["score"].as_f64());
    assert!(ask("POST /v1/similar?k=0").0.contains("400"));
    let mean = folder.path().join("mean.parquet");
    run(embed(&mean).arg(PHOTOS).args(["--pooling", "mean"])).expect(0);
    run(serve().arg("--index").arg(&mean)).expect_error(2, "cannot serve these vectors: pooling is cls, not mean");
}

fn rows_are_searched_by_id_and_column_and_an_index_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    run(embed(&path("v.parquet")).arg(PHOTOS)).expect(0);
    run(foveate().arg("clusters").arg(path("v.parquet")).args(["-k", "3", "-o"]).arg(path("c.parquet"))).expect(0);
    let merge = |more: &[&std::ffi::OsStr]| {
        run(foveate().arg("merge").arg(path("v.parquet")).arg("-o").arg(path("all.parquet")).args(more)).expect(0);
    };
    merge(&["--join".as_ref(), path("c.parquet").as_ref()]);
    let mut server = Server::start(serve().arg("--index").arg(path("all.parquet")));
    let ask = |server: &Server, line: &str, body: serde_json::Value| {
        let body = body.to_string();
        let answer = server.ask(&format!("POST /v1/{line}"), "Content-Type: application/json\r\n", body.as_bytes());
        serde_json::from_str::<serde_json::Value>(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let id = Path::new(PHOTOS).join("24_exact_224.jpg").display().to_string();
    let unknown = ask(&server, "similar", json!({"id": "24_exact_224.jpg"}));
    let reason = format!("no row has the id '24_exact_224.jpg'; did you mean '{id}'?");
    assert_eq!(unknown["data"][0]["error"]["reason"], reason, "{unknown}");
    let of_clusters = |clusters: serde_json::Value| {
        let answer = ask(&server, "similar", json!({"id": id, "k": 1000, "filter": {"cluster": clusters}}));
        let found = answer["data"][0]["output"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        assert!(found.iter().all(|found| found["id"] != *id));
        found.len()
    };
    // One is the query.
    assert_eq!(
        (of_clusters(json!([0, 1, "2"])), of_clusters(json!(3))),
        (fs::read_dir(PHOTOS).unwrap().count() - 1, 0)
    );
    assert!([0, 1, 2].into_iter().map(|cluster| of_clusters(json!(cluster))).all(|count| count > 0));
    merge(&["--overwrite".as_ref()]);
    server.signal("HUP");
    server.logged("read the index again");
    let filtered = ask(&server, "similar", json!({"id": id, "filter": {"cluster": 0}}));
    assert_eq!(filtered["detail"], "the index has no column 'cluster'; it has none");
    fs::rename(path("all.parquet"), path("away")).unwrap();
    let failed = ask(&server, "index/reload", json!(null));
    assert!(failed["detail"].as_str().unwrap().starts_with("cannot read the index again, and the old one"), "{failed}");
    assert_eq!(ask(&server, "similar", json!({"id": id, "k": 3}))["data"][0]["output"].as_array().unwrap().len(), 3);
}

/// Sends JSON, and returns the answer's.
fn post(server: &Server, path: &str, body: &Value) -> Value {
    let line = format!("POST /v1/{path}");
    let answer = server.ask(&line, "Content-Type: application/json\r\n", body.to_string().as_bytes());
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn texts_share_requests_and_searches_with_images() {
    use base64::Engine as _;

    let folder = tempfile::tempdir().unwrap();
    let model = data("families/clip-gelu");
    let golden: Value = serde_json::from_slice(&fs::read(model.join("golden.json")).unwrap()).unwrap();
    let [first, second] = [0, 4].map(|at| golden["texts"][at].as_str().unwrap());
    let counts = &golden["measured"]["text_token_counts"];
    let index = folder.path().join("v.parquet");
    let photos = golden["photos"].as_array().unwrap().iter().map(|photo| data(photo.as_str().unwrap()));
    let photos: Vec<_> = photos.collect();
    run(foveate().args(["embed", "-q", "--model"]).arg(&model).arg("-o").arg(&index).args(&photos)).expect(0);
    let served = |more: &[&str]| {
        let mut command = foveate();
        command.args(["serve", "--listen", "127.0.0.1:0", "--model"]).arg(&model).args(more);
        command
    };
    let server = Server::start(served(&["--texts", "--batch", "8"]).arg("--index").arg(&index));

    let photo = base64::engine::general_purpose::STANDARD.encode(fs::read(&photos[0]).unwrap());
    let answer = post(&server, "embeddings", &json!({"input": [first, {"image": photo}, {"text": second}]}));
    let vectors: Vec<Vec<f32>> = (0..3)
        .map(|at| {
            serde_json::from_value(answer["data"][at]["embedding"].clone()).unwrap_or_else(|_| panic!("{answer}"))
        })
        .collect();
    let expected = text_vectors(folder.path(), &model, &[first, second], vectors[0].len());
    assert_eq!([&vectors[0], &vectors[2]], [&expected[0], &expected[1]], "to the bit");
    let tokens = counts[0].as_u64().unwrap() + counts[4].as_u64().unwrap();
    assert_eq!(answer["usage"], json!({"images": 1, "prompt_tokens": tokens, "total_tokens": tokens}));
    let long = vec!["word"; 200].join(" ");
    let mixed = post(&server, "embeddings", &json!({"input": [long, " "], "partial_results": true}));
    assert_eq!(mixed["usage"]["prompt_tokens"], 77, "cut to the context: {mixed}");
    assert_eq!(mixed["data"][1]["error"]["reason"], "the text is empty", "{mixed}");

    let found = post(&server, "similar", &json!({"text": [first, second], "k": 5}));
    let similar =
        foveate().arg("similar").arg(&index).args(["-k", "5", "--json", "--text", first, "--text", second]).output();
    let similar: Value = serde_json::from_slice(&similar.unwrap().stdout).unwrap();
    for (at, query) in similar.as_array().unwrap().iter().enumerate() {
        assert_eq!(query["similar"].as_array().unwrap().len(), 5, "{similar}");
        for (rank, one) in query["similar"].as_array().unwrap().iter().enumerate() {
            let ours = &found["data"][at]["output"][rank];
            assert_eq!(ours["id"], one["id"], "{found}");
            assert!(
                (ours["score"].as_f64().unwrap() - one["score"].as_f64().unwrap()).abs() < 1e-6,
                "{found} {similar}"
            );
        }
    }

    let without = Server::start(&mut served(&[]));
    let refused = post(&without, "embeddings", &json!({"input": first}));
    assert!(refused["remedy"].as_str().unwrap().contains("start the server with --texts"), "{refused}");
    let texts = ["serve", "--texts", "--listen", "127.0.0.1:0", "--model"];
    run(foveate().args(texts).arg(TINY)).expect_error(2, "this model has no text tower; leave --texts out");
    run(&mut served(&["--texts", "--pooling", "mean"])).expect_error(2, "pooling");
}

fn a_private_name_and_an_unknown_one_are_answered_alike() {
    let server = Server::start(&mut serve());
    let answer = |host: &str| {
        let body = format!(r#"{{"input": "http://{host}/photo.jpg"}}"#);
        let answer = server.ask("POST /v1/embeddings", "Content-Type: application/json\r\n", body.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        (head.lines().next().unwrap().to_owned(), problem["detail"].as_str().unwrap().replace(host, "HOST"))
    };
    let (status, detail) = answer("localhost");
    assert!(detail.contains("HOST: no public address"), "{status}: {detail}");
    assert_eq!(answer("no-such-name.invalid"), (status, detail));
}

fn addresses_may_be_names_and_bad_arguments_are_refused() {
    let server = Server::start(foveate().args(["serve", "--model", crate::common::TINY, "--listen", "localhost:0"]));
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    assert!(server.ask("GET /healthz", "", b"").starts_with("HTTP/1.1 200"));
    let refused = |arguments: &[&str], text| run(foveate().arg("serve").args(arguments)).expect_error(2, text);
    refused(&["--listen", "8080"], "there is no port; write HOST:PORT");
    let taken = ["--model", crate::common::TINY, "--listen", &server.address];
    let text = "Address already in use (os error 98); another program listens there: stop it, or name another port";
    run(foveate().arg("serve").args(taken)).expect_error(1, text);
    refused(&["--cors-origin", "https://example.com/"], "is not an origin; write scheme and host alone");
    refused(&["--timeout=-1"], "expected a number of seconds from 0");
    refused(&["--served-model-name", ""], "a value is required");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("keys");
    fs::write(&empty, "# none\n").unwrap();
    refused(&["--api-keys", empty.to_str().unwrap()], "has no keys; write one per line");
    refused(&["--log-filter", "foveate=loud"], "--log-filter");
    if cfg!(not(feature = "otel")) {
        refused(&["--otlp", "http://localhost:4318"], "rebuild with -F otel");
    }
}
