//! The answers of `POST /v1/embeddings`.
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{
    Answer, Fixture, Gate, Rows, clock, file, get, options_for, post, post_with, receive, request, send, serve,
    serve_texts, until,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foveate_serve::{Index, IndexSource};
use serde_json::{Value, json};

fn image(order: &str) -> Value {
    json!({"image": STANDARD.encode(file(order))})
}

fn request_of(input: &Value) -> Vec<u8> {
    request(
        "POST /v1/embeddings",
        "content-type: application/json\r\n",
        json!({ "input": input }).to_string().as_bytes(),
    )
}

#[test]
fn every_input_has_one_outcome_in_order() {
    let fixture = serve(8, |_, _| {});
    let data_url = format!("data:image/png;base64,{}", STANDARD.encode(file("as url")));
    let input =
        json!([image("ok"), image("bad"), "https://example.com/x.jpg", data_url, image("machine"), {"image": "AAAA"}]);
    let request = json!({"input": input, "model": "tiny", "user": "me", "partial_results": true});
    let answer = post(fixture.address, &request);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    let body = answer.json();
    assert_eq!(
        (&body["object"], &body["model"], &body["usage"]["images"]),
        (&json!("list"), &json!("tiny"), &json!(6))
    );
    let error = |index: usize, stage, reason, retryable| json!({"object": "error", "index": index, "error": {"stage": stage, "reason": reason, "retryable": retryable}});
    let data = body["data"].as_array().unwrap();
    assert_eq!(data[0], json!({"object": "embedding", "index": 0, "embedding": [10.0, 0.1]}));
    assert_eq!(data[1], error(1, "decode", "no end to it", false));
    assert_eq!(data[2], error(2, "download", "this worker reads no URLs", false));
    assert_eq!(data[3], json!({"object": "embedding", "index": 3, "embedding": [14.0, 0.1]}));
    assert_eq!(data[4], error(4, "preprocess", "no memory left", true));
    assert_eq!((&data[5]["index"], &data[5]["error"]["retryable"]), (&json!(5), &json!(false)));
    assert_eq!(data.len(), 6);
    assert!(answer.body.contains("[10.0,0.1]"), "f32 as they are, not as f64: {}", answer.body);
}

#[test]
fn a_batch_with_failures_is_a_problem_unless_partial_results_are_asked_for() {
    let fixture = serve(8, |_, _| {});
    let ask = |input: &[&str], partial: bool| {
        let input: Vec<Value> = input.iter().map(|order| image(order)).collect();
        post(fixture.address, &json!({"input": input, "partial_results": partial}))
    };
    let problem = ask(&["ok", "bad", "machine"], false);
    assert_eq!((problem.status, problem.header("retry-after")), (422, None), "one fails always: {problem:?}");
    let body = problem.json();
    assert_eq!(body["detail"], "2 of 3 inputs failed; input 1: decode: no end to it");
    let indexes: Vec<&Value> = body["data"].as_array().unwrap().iter().map(|entry| &entry["index"]).collect();
    assert_eq!(indexes, [1, 2], "the failures alone");
    assert_eq!(
        (&body["error"]["type"], &body["error"]["code"]),
        (&json!("invalid_request_error"), &json!("inputs_failed"))
    );
    assert!(body["remedy"].as_str().unwrap().contains("partial_results"), "{body}");
    assert_eq!(problem.header("x-request-id"), body["id"].as_str());

    let waits = ask(&["ok", "machine"], false);
    assert_eq!((waits.status, waits.header("retry-after")), (503, Some("1")), "all may succeed: {waits:?}");
    assert_eq!(waits.json()["error"]["type"], "server_error");
    assert_eq!(ask(&["bad", "machine"], true).status, 503, "one may succeed");
    assert_eq!(ask(&["bad", "machine"], false).status, 422);
    assert_eq!(ask(&["ok", "bad"], true).status, 200);
    assert_eq!(ask(&["bad"], true).status, 422);
}

#[test]
fn the_model_has_the_names_that_it_is_served_under() {
    let names = ["org/model", "text-embedding-3-small"];
    let fixture = serve(8, |_, api| api.models = names.map(str::to_owned).to_vec());
    for name in names {
        let answer = post(fixture.address, &json!({"input": image("ok"), "model": name}));
        assert_eq!((answer.status, &answer.json()["model"]), (200, &json!(names[0])), "{answer:?}");
    }
    let listed = get(fixture.address, "/v1/models").json();
    for (path, entry) in [("org/model", 0), ("org%2Fmodel", 0), ("text-embedding-3-small", 1)] {
        let model = get(fixture.address, &format!("/v1/models/{path}"));
        assert_eq!((model.status, &model.json()), (200, &listed["data"][entry]), "{path}");
        assert_eq!(model.json()["id"], names[entry]);
    }
    let absent = get(fixture.address, "/v1/models/tiny");
    assert_eq!((absent.status, &absent.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(get(fixture.address, "/v1/models/%FF").status, 400);
}

#[test]
fn dimensions_may_be_the_width() {
    let fixture = serve(8, |_, api| api.dimensions = Some(2));
    let ask = |dimensions: u64| post(fixture.address, &json!({"input": image("ok"), "dimensions": dimensions}));
    assert_eq!(ask(2).status, 200);
    let refused = ask(512);
    assert_eq!(
        (refused.status, &refused.json()["detail"]),
        (400, &json!("dimensions 512; the vectors of this model have 2"))
    );
    let allowed = &get(fixture.address, "/openapi.json").json()["components"]["schemas"]["Dimensions"]["enum"];
    assert_eq!(*allowed, json!([2, null]));
}

/// The answer to a body at `/v1/similar`.
fn search(fixture: &Fixture, query: &str, body: &Value) -> Answer {
    let line = format!("POST /v1/similar{query}");
    let request = request(&line, "Content-Type: application/json\r\n", body.to_string().as_bytes());
    Answer::parse(&receive(send(fixture.address, &request)))
}

/// The ids that were found for each query, or why nothing was.
fn ids_of(answer: &Answer) -> Vec<String> {
    let id = |found: &Value| found["id"].as_str().unwrap().to_owned();
    let of = |entry: &Value| match entry["output"].as_array() {
        Some(found) => found.iter().map(id).collect::<Vec<_>>().join(" "),
        None => entry["error"]["reason"].as_str().unwrap().to_owned(),
    };
    answer.json()["data"].as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().map(of).collect()
}

#[test]
fn what_is_similar_replaces_vectors() {
    let fixture = serve(8, |_, api| api.index = Some(clock(|| Err(String::new()))));
    // An image's vector is its length and 0.1.
    let some = json!({"input": [image("a"), image("bad"), image("bcd")], "partial_results": true});
    let answer = search(&fixture, "?k=2", &some);
    assert_eq!((&*ids_of(&answer)[0], &*ids_of(&answer)[2]), ("3 1", "3 1"), "{answer:?}");
    assert_eq!((&answer.json()["data"][1]["object"], &answer.json()["usage"]["images"]), (&json!("error"), &json!(3)));
    assert_eq!(ids_of(&search(&fixture, "?k=2&offset=1", &json!({"input": image("a"), "k": 2}))), ["1 12"]);
    for (query, body, status) in [
        ("?k=0", json!({"input": image("a")}), 400),
        ("?n=1", json!({"input": image("a")}), 400),
        ("?k=2", json!({"input": image("a"), "k": 3}), 422),
        ("", json!({"input": image("a"), "offset": 9001}), 400),
        ("", json!({"k": 3}), 400),
        ("", json!({"id": "12", "task": "echo"}), 422),
    ] {
        assert_eq!(search(&fixture, query, &body).status, status, "{query} {body}");
    }
    let without = serve(8, |_, _| {});
    let line = request("POST /v1/similar", "Content-Type: image/png\r\n", &file("a"));
    assert_eq!(Answer::parse(&receive(send(without.address, &line))).status, 404);
    let ignored = post(without.address, &json!({"input": image("a"), "filter": {}, "k": 3}));
    assert_eq!(ignored.header("foveate-ignored-fields"), Some("filter, k"));
}

#[test]
fn rows_vectors_and_examples_are_searched_without_the_engine() {
    let fixture = serve(8, |_, api| api.index = Some(clock(|| Err(String::new()))));
    fixture.engine.stop(Duration::ZERO);
    let found = |body: Value| ids_of(&search(&fixture, "", &body));
    assert_eq!(search(&fixture, "", &json!({"input": image("a")})).status, 503);
    let all = json!({"vector": [[0, 1], [1, 0.1]], "ids": ["12", "noon"], "id": "6", "k": 2, "partial_results": true});
    assert_eq!(found(all), ["3 9", "1 3", "no row has the id 'noon'", "12 1", "3 1"]);
    assert_eq!(found(json!({"vector": [-1, 0], "k": 1, "offset": 1})), ["12"]);
    assert_eq!(found(json!({"positive": ["12", "3"], "k": 2})), ["1 6"]);
    assert_eq!(found(json!({"positive": "1", "negative": [[5, 0], "12"], "k": 1})), ["3"], "examples have length 1");
    assert_eq!(found(json!({"negative": ["12"], "k": 1})), ["6"]);
    assert_eq!(found(json!({"id": "1", "filter": {"kind": "upright"}})), ["12 6"]);
    assert_eq!(found(json!({"id": "1", "filter": {"kind": ["upright", null]}, "k": 2})), ["12 3"]);
    assert_eq!(found(json!({"id": "1", "filter": {"kind": 7}})), [""]);
    for (body, status, why) in [
        (json!({"id": "noon"}), 422, "input 0: index: no row has the id 'noon'"),
        (json!({"positive": ["3"], "negative": ["3"]}), 422, "cancel each other out"),
        (json!({"id": "1", "filter": {"colour": 1}}), 422, "the index has no column 'colour'; it has 'kind'"),
        (json!({"vector": [1, 2, 3]}), 400, "a vector of 3 numbers; those of the index have 2"),
        (json!({"vector": [[1, 1e39]]}), 400, "too large for f32"),
        (json!({"vector": [1, null]}), 400, "field `vector`"),
        (json!({"ids": vec!["1"; 9]}), 422, "more than 8 images, texts, ids and vectors"),
    ] {
        let answer = search(&fixture, "", &body);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(answer.status == status && detail.contains(why), "{body}: {answer:?}");
    }
}

#[test]
fn a_search_has_the_limits_of_a_request_that_embeds() {
    let gate = Arc::new(Gate::default());
    let rows = Arc::new(Rows(vec![("1", [0.0, 1.0], None)], Some(Arc::clone(&gate))));
    let fixture = serve(8, |_, api| {
        api.timeout = Duration::from_millis(300);
        api.max_body_bytes = 1 << 20;
        api.max_bytes_in_hand = 3 << 20;
        api.index = Some(IndexSource { first: rows, read: Arc::new(|| Err(String::new())) });
    });
    let five = json!({"vector": vec![[0, 1]; 5]});
    let late = search(&fixture, "", &five);
    assert_eq!((late.status, &late.json()["data"][4]["error"]["stage"]), (504, &json!("timeout")), "{late:?}");
    let refused = search(&fixture, "", &five);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "the first one goes on: {refused:?}");
    assert_eq!(refused.json()["detail"], "5 queries, and there is room for 3 now");
    gate.open();
    until("the search ends", || search(&fixture, "", &five).status == 200);
    let many = search(&fixture, "?k=1000", &five);
    assert_eq!((many.status, many.header("retry-after")), (422, None), "{many:?}");
    until("the room is free again", || {
        get(fixture.address, "/metrics").body.contains("foveate_http_uploads_bytes 0\n")
    });
}

#[test]
fn the_index_is_read_again_as_a_whole_or_stays() {
    let (send_result, results) = std::sync::mpsc::channel::<Result<Arc<dyn Index>, String>>();
    let results = Mutex::new(results);
    let mut first = None;
    let fixture = serve(8, |_, api| {
        api.tokens = vec!["key".to_owned()];
        let index = clock(move || results.lock().unwrap().recv().unwrap());
        first = Some(Arc::downgrade(&index.first));
        api.index = Some(index);
    });
    let ask = |line: &str, key: &str, body: &str| {
        let headers = format!("Content-Type: application/json\r\n{key}");
        Answer::parse(&receive(send(fixture.address, &request(line, &headers, body.as_bytes()))))
    };
    let reload = || ask("POST /v1/index/reload", "Authorization: Bearer key\r\n", "");
    let nearest = || ids_of(&ask("POST /v1/similar?k=1", "Authorization: Bearer key\r\n", r#"{"vector": [0, 1]}"#));
    assert_eq!(ask("POST /v1/index/reload", "", "").status, 401);
    send_result.send(Err("damaged".to_owned())).unwrap();
    let failed = reload();
    assert!(failed.status == 503 && failed.body.contains("the old one stays: damaged"), "{failed:?}");
    std::thread::scope(|scope| {
        let reloads = [scope.spawn(reload), scope.spawn(reload)];
        until("one was told", || reloads.iter().any(std::thread::ScopedJoinHandle::is_finished));
        assert_eq!(nearest(), ["12"]);
        let new = Arc::new(Rows(vec![("new", [0.0, 1.0], None)], None));
        send_result.send(Ok(new)).unwrap();
        let mut answers = reloads.map(|reload| reload.join().unwrap());
        answers.sort_by_key(|answer| answer.status);
        assert_eq!((answers[0].status, &answers[0].json()["rows"], answers[1].status), (200, &json!(1), 409));
    });
    assert_eq!(nearest(), ["new"]);
    assert!(first.is_some_and(|first| first.upgrade().is_none()), "the old index is freed");
    assert!(get(fixture.address, "/metrics").body.contains("foveate_index_rows 1"));
}

#[test]
fn scripts_of_allowed_origins_may_ask_from_a_browser() {
    let fixture = serve(8, |_, api| {
        api.cors = vec!["https://app.example.com".parse().unwrap()];
        api.tokens = vec!["key".to_owned()];
    });
    let from = |line: &str, origin: &str, headers: &str| {
        let headers = format!("origin: {origin}\r\n{headers}");
        Answer::parse(&receive(send(fixture.address, &request(line, &headers, b""))))
    };
    // Browsers send no key with these.
    let asks =
        "access-control-request-method: POST\r\naccess-control-request-headers: authorization,x-stainless-os\r\n";
    let preflight = from("OPTIONS /v1/embeddings", "https://app.example.com", asks);
    assert_eq!((preflight.status, preflight.header("access-control-allow-methods")), (204, Some("get, post")));
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization,x-stainless-os"));
    let allowed = "access-control-allow-origin";
    for (origin, expected) in
        [("https://app.example.com", Some("https://app.example.com")), ("https://evil.example", None)]
    {
        let answer = from("GET /v1/models", origin, "authorization: Bearer key\r\n");
        assert_eq!((answer.status, answer.header(allowed), answer.header("vary")), (200, expected, Some("origin")));
        assert_eq!(from("OPTIONS /v1/embeddings", origin, asks).header(allowed), expected);
        assert_eq!(from("GET /v1/models", origin, "").header(allowed), expected, "401s are read, too");
    }
    let any = serve(8, |_, api| api.cors = vec!["*".parse().unwrap()]);
    let answer = send(any.address, &request("GET /v1/models", "origin: https://a\r\n", b""));
    assert_eq!(Answer::parse(&receive(answer)).header(allowed), Some("*"));
}

#[test]
fn one_image_is_the_same_in_every_form() {
    let fixture = serve(8, |_, _| {});
    let expected = json!({"object": "embedding", "index": 0, "embedding": [10.0, 0.1]});
    let of = |answer: Answer| answer.json()["data"][0].clone();
    assert_eq!(of(post(fixture.address, &json!({"input": image("ok")}))), expected);
    assert_eq!(of(post_with(fixture.address, "content-type: image/png\r\n", &file("ok"))), expected);
    assert_eq!(of(post_with(fixture.address, "Content-Type: Application/Octet-Stream\r\n", &file("ok"))), expected);
    let chunked = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\
                    content-type: image/png\r\n\r\n8\r\n\x89PNG\r\n\x1a\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(of(Answer::parse(&receive(send(fixture.address, chunked)))), expected);

    let part = |head: &str, body: &[u8]| {
        [b"--frontier\r\ncontent-disposition: form-data; ", head.as_bytes(), b"\r\n\r\n", body, b"\r\n"].concat()
    };
    let form = |parts: &[Vec<u8>]| {
        let body = [&parts.concat()[..], b"--frontier--\r\n"].concat();
        post_with(fixture.address, "content-type: multipart/form-data; boundary=frontier\r\n", &body)
    };
    let files = [
        part("name=image; filename=a.png", &file("ok")),
        part("name=encoding_format", b"base64"),
        part("name=image; filename=b.png", &file("longer")),
    ];
    let answer = form(&files).json();
    let vector = |length: f32| STANDARD.encode([length.to_le_bytes(), 0.1f32.to_le_bytes()].concat());
    assert_eq!(answer["data"][0]["embedding"], json!(vector(10.0)));
    assert_eq!(answer["data"][1]["embedding"], json!(vector(14.0)));
    let echo = [part("name=task", b"echo"), part("name=metadata", b" {\"k\": 1}"), part("name=image", &file("ok"))];
    assert_eq!(form(&echo).json()["data"], json!([{"object": "output", "index": 0, "output": {"k": 1}}]));

    for (parts, detail) in [
        (
            vec![part("name=photo; filename=a.png", &file("ok"))],
            "part 'photo' is a file; files are called image, images",
        ),
        (vec![part("name=url", b"cat.jpg")], "part 'url': a text that is neither an address"),
        (vec![part("name=model", b"tiny")], "there is no image in it"),
        (vec![part("name=image", b"")], "an image of no bytes"),
        (vec![part("name=metadata", b"{"), files[0].clone()], "part 'metadata': EOF while parsing"),
        (
            vec![part("name=encoding_format", b"int8"), files[0].clone()],
            "part 'encoding_format': unknown variant `int8`",
        ),
        (vec![b"--frontier\r\n".to_vec()], "the form cannot be read"),
    ] {
        let answer = form(&parts);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{detail}: {answer:?}");
    }
}

/// Texts in this API's form and those of OpenAI, Jina, Voyage and Cohere, vLLM; an image among them.
#[test]
fn texts_are_embedded_next_to_images() {
    let fixture = serve_texts(8, |_, api| api.index = Some(clock(|| unreachable!("not read again"))));
    let png = STANDARD.encode(file("ok"));
    let words = json!({"content": [{"type": "text", "text": "a dog"}]});
    for (body, lengths, usage) in [
        (
            json!({"input": [{"image": png}, "a red cat", {"text": "https://example.com/a.jpg"}, words]}),
            vec![10.0, 9.0, 25.0, 5.0],
            [1, 6],
        ),
        (json!({"input": "cat.jpg"}), vec![7.0], [0, 1]),
        (json!({"texts": ["one", "two three"], "input_type": "search_query"}), vec![3.0, 9.0], [0, 3]),
        (json!({"messages": [{"role": "user", "content": "a cat"}]}), vec![5.0], [0, 2]),
        (
            json!({"messages": [{"content": "Embed."}, {"content": [{"text": "it"}, {"image_base64": png}]}]}),
            vec![10.0],
            [1, 0],
        ),
    ] {
        let answer = post(fixture.address, &body).json();
        let data = answer["data"].as_array().unwrap_or_else(|| panic!("{body}: {answer}"));
        let found: Vec<f64> = data.iter().map(|entry| entry["embedding"][0].as_f64().unwrap()).collect();
        assert_eq!(found, lengths, "{body}: {answer}");
        let told = json!({"images": usage[0], "prompt_tokens": usage[1], "total_tokens": usage[1]});
        assert_eq!(answer["usage"], told, "{body}");
    }
    let long = "x ".repeat(33_000);
    for (body, detail) in [
        (json!({"input": ["a cat", " "]}), "1 of 2 inputs failed; input 1: tokenize: the text is empty"),
        (json!({"input": [{"text": long}]}), "input 0: a text of 66000 bytes; there may be 65536"),
        (json!({"input": [{"content": [{"text": "b"}, {"text": "c"}]}]}), "several texts where one vector"),
        (json!({"input": "a cat", "text": "a dog"}), "inputs as 'input' and as 'text'"),
    ] {
        let answer = post(fixture.address, &body);
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{answer:?}");
    }
    let body = json!({"text": ["a", "b"], "input": {"image": png}, "id": "12", "k": 1});
    let line = "content-type: application/json\r\n";
    let found =
        Answer::parse(&receive(send(fixture.address, &request("POST /v1/similar", line, body.to_string().as_bytes()))));
    let ids: Vec<_> =
        found.json()["data"].as_array().unwrap().iter().map(|entry| entry["output"][0]["id"].clone()).collect();
    assert_eq!(ids, ["3", "3", "3", "1"], "{found:?}");
    let schemas = &get(fixture.address, "/openapi.json").json()["components"]["schemas"];
    assert_eq!(schemas["Text"]["type"], "string");
    assert!(get(serve(8, |_, _| {}).address, "/openapi.json").json()["components"]["schemas"]["Text"].is_null());
}

/// Bodies as the clients of other services send them, each with one image.
#[test]
fn requests_of_other_services_are_understood() {
    let fixture = serve(8, |_, api| api.dimensions = Some(2));
    let base64 = STANDARD.encode(file("ok with a long name"));
    let data = format!("data:image/png;base64,{base64}");
    let lines = base64.as_bytes().chunks(20).map(|line| String::from_utf8_lossy(line) + "\r\n").collect::<String>();
    let escaped = base64.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let url_safe = base64.replace('+', "-").replace('/', "_");
    let bare = base64.trim_end_matches('=');
    let part = json!({"type": "image_url", "image_url": {"url": data, "detail": "low"}});
    let text = json!({"type": "text", "text": "Represent the given image."});
    for (body, ignored) in [
        // OpenAI.
        (json!({"input": data, "model": "tiny", "encoding_format": "float", "dimensions": 2, "user": "me"}), None),
        (json!({"input": [data], "encoding_format": null, "dimensions": null}), None),
        (
            json!({"input": [part], "truncate_prompt_tokens": -1}),
            Some("input.image_url.detail, truncate_prompt_tokens"),
        ),
        (json!({"input": {"type": "image_url", "image_url": data}}), None),
        (json!({"input": {"type": "input_image", "image_url": data}}), None),
        // vLLM.
        (
            json!({"messages": [{"role": "user", "content": [part, text]}], "priority": 0}),
            Some("messages.content.image_url.detail, messages.content.text, priority"),
        ),
        (
            json!({"messages": [{"role": "system", "content": "Embed."}, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}}]}]}),
            Some("messages.content"),
        ),
        // Infinity.
        (json!({"input": [data], "model": "tiny", "modality": "image", "encoding_format": "float"}), None),
        // Jina.
        (json!({"input": [{"image": base64}], "normalized": false, "embedding_type": "float"}), None),
        (
            json!({"input": [{"bytes": base64}], "truncate": true, "late_chunking": false}),
            Some("late_chunking, truncate"),
        ),
        // Cohere.
        (
            json!({"images": [data], "input_type": "image", "embedding_types": ["float"], "truncate": "NONE"}),
            Some("truncate"),
        ),
        // One image under its own name.
        (json!({"image": data}), None),
        (json!({"image_url": {"url": data}}), None),
        (json!({"url": data}), None),
        (
            json!({"inputs": [{"content": [part]}], "input_type": "search_document", "output_dimension": 2}),
            Some("input_type, inputs.content.image_url.detail"),
        ),
        // Voyage.
        (
            json!({"inputs": [{"content": [{"type": "image_base64", "image_base64": data}]}], "output_dtype": "float", "output_encoding": null}),
            None,
        ),
        // TEI.
        (json!({"inputs": data, "truncate": false, "prompt_name": null}), Some("prompt_name, truncate")),
        // Base64 as people write it.
        (json!({"input": base64}), None),
        (json!({"input": {"image": lines}}), None),
        (json!({"input": {"image": url_safe}}), None),
        (json!({"input": {"image": bare}}), None),
        (json!({"input": {"image": escaped}}), None),
        (json!({"input": format!(" DATA:image/png;name=a.png; BASE64,{escaped}\n")}), None),
        (json!({"input": data, "a,b\n": 1, "ü": 2}), Some("?, a?b?")),
    ] {
        let answer = post(fixture.address, &body);
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        assert_eq!(answer.json()["data"][0]["embedding"], json!([27.0, 0.1]), "{body}");
        assert_eq!(answer.header("foveate-ignored-fields"), ignored, "{body}");
        let strict = serve(8, |_, api| (api.dimensions, api.strict_requests) = (Some(2), true));
        let answer = post(strict.address, &body);
        assert_eq!(answer.status, if ignored.is_some() { 400 } else { 200 }, "{body}: {answer:?}");
        if ignored.is_some() {
            assert!(answer.json()["detail"].as_str().unwrap().contains("unknown field `"), "{answer:?}");
        }
    }
    let names = post(fixture.address, &json!({"input": data, "x": json!({"y": "z".repeat(99)}), "y".repeat(99): 1}));
    assert_eq!(names.header("foveate-ignored-fields"), Some(format!("x, {}", "y".repeat(64)).as_str()));
}

#[test]
fn vectors_have_length_1_if_a_request_says_so() {
    let fixture = serve(8, |_, _| {});
    let ask = |body: Value| post(fixture.address, &body).json()["data"][0]["embedding"].clone();
    let vector = ask(json!({"input": image("ok"), "normalize": true}));
    let length: f64 = vector.as_array().unwrap().iter().map(|x| x.as_f64().unwrap().powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-6, "{vector}");
    assert_eq!(ask(json!({"input": image("ok"), "normalize": false})), json!([10.0, 0.1]));
    let normalized = serve(8, |_, api| api.normalized = true);
    let refused = post(normalized.address, &json!({"input": image("ok"), "normalize": false}));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.json()["remedy"].as_str().unwrap().contains("--normalize off"), "{refused:?}");
    assert_eq!(post(normalized.address, &json!({"input": image("ok"), "normalize": true})).status, 200);
}

#[test]
fn bodies_say_themselves_what_they_are() {
    let fixture = serve(8, |_, api| api.max_body_bytes = 10_000);
    let form = [
        b"--frontier\r\ncontent-disposition: form-data; name=\"files[]\"; filename=a.png\r\n\r\n",
        &file("ok")[..],
        b"\r\n--frontier--\r\n",
    ]
    .concat();
    let text = format!("data:image/png;base64,{}", STANDARD.encode(file("ok")));
    let parts = [
        "--frontier\r\ncontent-disposition: form-data; name=image\r\n\r\n",
        &text,
        "\r\n--frontier\r\ncontent-disposition: form-data; name=modality\r\n\r\nimage\r\n",
        "--frontier\r\ncontent-disposition: form-data; name=truncate\r\n\r\nEND\r\n--frontier--\r\n",
    ];
    let json = json!({"input": image("ok")}).to_string();
    let marked = [b"\xef\xbb\xbf", json.as_bytes()].concat();
    let gzip = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    for (headers, body) in [
        ("", json.as_bytes()),
        ("content-type: application/x-www-form-urlencoded\r\n", json.as_bytes()),
        ("content-type: text/plain; charset=utf-8\r\n", &marked),
        ("content-type: application/vnd.api+json\r\n", json.as_bytes()),
        ("content-type: application/octet-stream\r\n", json.as_bytes()),
        ("", &file("ok")),
        ("content-type: application/x-www-form-urlencoded\r\n", &file("ok")),
        ("content-type: binary/octet-stream\r\n", &file("ok")),
        ("", &form),
        ("content-type: multipart/form-data\r\n", &form),
        ("", parts.concat().as_bytes()),
        ("content-encoding: gzip\r\n", &gzip(json.as_bytes())),
        ("content-type: image/png\r\ncontent-encoding: GZIP\r\n", &gzip(&file("ok"))),
        ("content-type: multipart/form-data; boundary=frontier\r\ncontent-encoding: x-gzip\r\n", &gzip(&form)),
        ("content-encoding: utf-8\r\n", json.as_bytes()),
    ] {
        let answer = post_with(fixture.address, headers, body);
        assert_eq!(answer.status, 200, "{headers}: {answer:?}");
        assert_eq!(answer.json()["data"], json!([{"object": "embedding", "index": 0, "embedding": [10.0, 0.1]}]));
    }
    let bomb = gzip(&file(&" ".repeat(10_000)));
    assert!(bomb.len() < 100);
    let answer = post_with(fixture.address, "content-encoding: gzip\r\n", &bomb);
    assert_eq!((answer.status, &answer.json()["detail"]), (413, &json!("the body is larger than 10000 bytes")));
    until("their bytes are given back", || {
        get(fixture.address, "/metrics").body.contains("foveate_http_uploads_bytes 0\n")
    });
}

#[test]
fn what_cannot_be_answered_is_a_problem_that_names_a_remedy() {
    let fixture = serve(8, |_, api| api.max_images = 2);
    let problem = |answer: Answer, status: u16, detail: &str| {
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let body = answer.json();
        assert_eq!((&body["status"], &body["type"]), (&json!(status), &json!("about:blank")));
        assert!(body["detail"].as_str().unwrap().contains(detail), "{detail}: {body}");
        assert!(body["title"].as_str().is_some_and(|title| !title.is_empty()), "{body}");
        let remedy = body["remedy"].as_str().unwrap();
        assert!(!remedy.is_empty(), "{body}");
        let error = &body["error"];
        assert_eq!(error["message"], format!("{}; {remedy}", body["detail"].as_str().unwrap()));
        assert_eq!(
            (&error["type"], &error["param"]),
            (&json!(if status < 500 { "invalid_request_error" } else { "server_error" }), &Value::Null)
        );
        assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{body}");
        answer
    };
    let refused = |body: Value, detail: &str| problem(post(fixture.address, &body), 400, detail);
    refused(json!(["https://example.com/x.jpg"]), "a list; expected an object");
    refused(json!({}), "missing field `input`");
    refused(json!({"input": []}), "there is no image in it");
    refused(json!({"input": 7}), "invalid type: integer `7`, expected an image (");
    for text in ["cat.jpg", "ftp://example.com/x", "a photo of a cat that sits on a mat in the sun", ""] {
        let told = refused(json!({"input": text}), "input 0: a text that is neither an address");
        assert!(told.json()["remedy"].as_str().unwrap().contains("this server embeds no texts"), "{told:?}");
    }
    refused(json!({"input": {"url": format!("https://{}", "x".repeat(8192))}}), "more than 8192 characters");
    refused(json!({"input": {"object": "https://a"}}), "begins with s3://");
    refused(json!({"input": [image("ok"), {"image": "AAAAA"}]}), "input 1: not base64");
    refused(json!({"input": {"image": "data:image/png;base64"}}), "a data: URL looks like");
    for text in
        [json!({"input": {"text": "a cat"}}), json!({"text": "a cat"}), json!({"texts": ["a cat"], "model": "tiny"})]
    {
        let told = refused(text, "input 0: a text");
        assert!(told.json()["remedy"].as_str().unwrap().contains("this server embeds no texts"), "{told:?}");
    }
    refused(json!({"input": [1, 2]}), "token ids and nested arrays are not understood");
    refused(json!({"input": [[1, 2], [3]]}), "token ids and nested arrays are not understood");
    refused(json!({"input": null}), "missing field `input`");
    refused(json!({"input": "https://a", "modality": "text"}), "field `modality`: unknown variant `text`");
    refused(json!({"input": "https://a", "embedding_types": ["int8"]}), "field `embedding_types`: unknown variant");
    refused(json!({"input": "https://a", "embedding_types": ["float", "int8"]}), "unknown variant `int8`");
    refused(json!({"input": "https://a", "embedding_types": ["float", "base64"]}), "2 types; answers have one");
    refused(json!({"input": "https://a", "output_dtype": "int8"}), "field `output_dtype`: unknown variant");
    refused(json!({"input": {"image": ""}}), "an image of no bytes");
    refused(json!({"input": "https://a", "dimensions": 7}), "this server does not know its vectors' width");
    refused(json!({"input": "https://a", "encoding_format": "int8"}), "unknown variant `int8`");
    refused(json!({"input": "https://a", "callback": {"url": "https://b"}}), "this server calls nobody back");
    problem(post_with(fixture.address, "content-type: application/json\r\n", b"{"), 400, "EOF");
    problem(post_with(fixture.address, "content-type: image/png\r\n", b""), 400, "the body is empty");
    problem(post_with(fixture.address, "content-type: multipart/form-data\r\n", b"x"), 400, "boundary");
    let bad_key = "content-type: image/png\r\nidempotency-key: a b\r\n";
    problem(post_with(fixture.address, bad_key, &file("ok")), 400, "1 to 200 visible ASCII characters");
    problem(post_with(fixture.address, "", b"xyz"), 415, "a body without Content-Type that is neither JSON");
    problem(post_with(fixture.address, "content-type: text/plain\r\n", b"x"), 415, "'text/plain'");
    let coded = |coding| format!("content-type: image/png\r\ncontent-encoding: {coding}\r\n");
    problem(post_with(fixture.address, &coded("zstd"), &file("ok")), 415, "a body in zstd");
    problem(post_with(fixture.address, &coded("gzip, gzip"), &file("ok")), 415, "a body in gzip, gzip");
    problem(post_with(fixture.address, &coded("gzip"), &file("ok")), 400, "the body is damaged gzip");
    let impossible = |body: Value, detail: &str| problem(post(fixture.address, &body), 422, detail);
    impossible(json!({"input": {"url": "https://a", "image": "AAAA"}}), "input 0: several images where one vector");
    let part = json!({"type": "image_url", "image_url": {"url": "https://a"}});
    impossible(json!({"messages": [{"role": "user", "content": [part, part]}]}), "messages: several images");
    impossible(json!({"input": ["https://a", "https://b", "https://c"]}), "more than 2 images in one request");
    impossible(json!({"input": "https://a", "images": ["https://b"]}), "inputs as 'images' and as 'input'");
    impossible(json!({"input": "https://", "partial_results": true}), "download");
    let unknown = json!({"input": image("ok"), "model": "big"});
    problem(post(fixture.address, &unknown), 404, "there is no model 'big' here; there is 'tiny'");
    let unknown = json!({"input": image("ok"), "task": "count"});
    problem(post(fixture.address, &unknown), 422, "there is no task 'count'; there is embed, echo");
    problem(get(fixture.address, "/v1/images"), 404, "/v1/images");
    let wrong = problem(get(fixture.address, "/v1/embeddings"), 405, "GET is not understood here");
    assert_eq!(wrong.header("allow"), Some("post"));

    let all_bad = problem(
        post(fixture.address, &json!({"input": [image("bad"), {"image": "AAAA"}]})),
        422,
        "2 of 2 inputs failed",
    );
    let data = all_bad.json()["data"].clone();
    assert_eq!((data.as_array().unwrap().len(), &data[0]["error"]["stage"]), (2, &json!("decode")));
}

#[test]
fn a_url_that_may_work_later_is_a_bad_gateway() {
    // The port of a listener that is closed again.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = foveate_net::ClientOptions { allow_private: vec![closed.to_string()], ..Default::default() };
    let client = Arc::new(foveate_net::Client::new(options).unwrap());
    let gate = Arc::new(crate::support::Gate::default());
    let engine = foveate_worker::Engine::builder().client(client).task(
        "embed",
        crate::support::Obedient { gate, texts: false },
        Default::default(),
    );
    let engine = Arc::new(engine.build().unwrap());
    let mut options = options_for(&engine);
    options.api = Some(foveate_serve::Api::new(engine, "tiny"));
    let server = foveate_serve::Server::start(options).unwrap();
    let answer = post(server.address(), &json!({"input": format!("http://{closed}/x.jpg")}));
    assert_eq!((answer.status, answer.header("retry-after")), (502, Some("1")), "{answer:?}");
    let error = &answer.json()["data"][0]["error"];
    assert_eq!((&error["stage"], &error["retryable"]), (&json!("download"), &json!(true)));
    // The guard against private addresses refuses permanently.
    let answer = post(server.address(), &json!({"input": "http://127.0.0.1:1/x.jpg"}));
    assert_eq!(answer.status, 422, "{answer:?}");
}

#[test]
fn a_full_engine_is_429_and_nothing_is_half_done() {
    let fixture = serve(2, |_, _| {});
    let waiting = send(fixture.address, &request_of(&json!(image("wait"))));
    until("the first image waits", || fixture.gate.came.load(SeqCst) == 1);
    let refused = post(fixture.address, &json!({"input": [image("ok"), image("ok")]}));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused:?}");
    assert_eq!(refused.json()["detail"], "2 images, and there is room for 1 now");
    assert_eq!(fixture.engine.in_flight(), 1, "none of the two");
    assert_eq!(get(fixture.address, "/readyz").status, 200);

    let second = send(fixture.address, &request_of(&json!(image("ok"))));
    until("the engine is full", || fixture.engine.in_flight() == 2);
    let full = get(fixture.address, "/readyz");
    assert_eq!((full.status, full.json()["detail"].as_str()), (503, Some("full: 2 requests are under way")));
    assert_eq!(get(fixture.address, "/healthz").status, 200, "full is not stuck");
    fixture.gate.open();
    for stream in [waiting, second] {
        assert_eq!(Answer::parse(&receive(stream)).status, 200);
    }
    assert_eq!(fixture.gate.processed.load(SeqCst), 2);
}

#[test]
fn nobody_works_for_a_client_that_went_away() {
    let fixture = serve(4, |_, _| {});
    let waiting = send(fixture.address, &request_of(&json!(image("wait"))));
    until("the first image waits", || fixture.gate.came.load(SeqCst) == 1);
    let gone = send(fixture.address, &request_of(&json!([image("ok"), image("ok")])));
    until("the others are in hand", || fixture.engine.in_flight() == 3);
    drop(gone);
    // The disconnection itself is not visible from outside, only its effect later.
    std::thread::sleep(Duration::from_millis(300));
    fixture.gate.open();
    assert_eq!(Answer::parse(&receive(waiting)).status, 200);
    until("the others are out of hand", || fixture.engine.in_flight() == 0);
    assert_eq!(fixture.gate.processed.load(SeqCst), 1);
    assert!(
        get(fixture.address, "/metrics").body.contains("foveate_http_uploads_bytes 0\n"),
        "their bytes are given back"
    );
}

#[test]
fn what_is_not_done_in_time_says_so() {
    let fixture = serve(4, |_, api| api.timeout = Duration::from_millis(300));
    // Processed in order: the second image is done, the first one is not.
    let answer = post(fixture.address, &json!({"input": [image("ok"), image("wait")]}));
    assert_eq!(answer.status, 504, "{answer:?}");
    let error = json!({"stage": "timeout", "reason": "not done within 0.3 s", "retryable": true});
    assert_eq!(answer.json()["data"][0], json!({"object": "error", "index": 1, "error": error}));
    let echoed = post(fixture.address, &json!({"input": image("x"), "task": "echo", "metadata": [1, {"a": null}]}));
    assert_eq!(echoed.json()["data"][0]["output"], json!([1, {"a": null}]), "another task is not held up");
    fixture.gate.open();
}

#[test]
fn a_key_is_asked_for_where_there_is_one() {
    let fixture = serve(4, |_, api| api.tokens = vec!["s3cret".to_owned(), "other".to_owned()]);
    let with = |key: &str| post_with(fixture.address, &format!("content-type: image/png\r\n{key}"), &file("ok"));
    let detail = |answer: &Answer| answer.json()["detail"].as_str().unwrap().to_owned();
    let without = with("");
    assert_eq!((without.status, without.header("www-authenticate")), (401, Some("bearer")));
    assert_eq!(detail(&without), "there is no API key");
    let error = &without.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("authentication_error"), &json!("invalid_api_key")));
    for wrong in ["Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "Bearer", "Bearer ", "s3cret"] {
        assert_eq!(with(&format!("authorization: {wrong}\r\n")).status, 401, "{wrong}");
    }
    for right in ["Bearer s3cret", "bearer other"] {
        assert_eq!(with(&format!("authorization: {right}\r\n")).status, 200, "{right}");
    }
    assert_eq!(get(fixture.address, "/v1/models").status, 401);
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(get(fixture.address, open).status, 200, "{open}");
    }
    let error = fixture.server.set_tokens(&[]).unwrap_err().to_string();
    assert_eq!((error.as_str(), with("authorization: Bearer other\r\n").status), ("there are no API keys", 200));
    fixture.server.set_tokens(&["alice n3w".to_owned()]).unwrap();
    assert_eq!(with("authorization: Bearer n3w\r\n").status, 200);
    assert_eq!(with("authorization: Bearer other\r\n").status, 401, "it was taken away");
}

#[test]
fn each_answer_has_the_clients_id_or_one_of_the_servers() {
    let fixture = serve(4, |_, _| {});
    let id = |line: &str, headers: &str| {
        let answer = Answer::parse(&receive(send(fixture.address, &request(line, headers, b""))));
        answer.header("x-request-id").unwrap().to_owned()
    };
    for line in ["GET /healthz", "GET /nowhere", "POST /v1/embeddings"] {
        assert_eq!(id(line, "x-request-id: from-the-proxy\r\n"), "from-the-proxy", "{line}");
        assert_ne!(id(line, ""), id(line, "x-request-id: not one\r\n"), "{line}");
    }
    assert_eq!(id("POST /v1/embeddings", "idempotency-key: order-7\r\n"), "order-7");
}

#[test]
fn the_end_waits_for_requests_in_hand_and_no_longer_than_it_may() {
    let fixture = serve(4, |_, _| {});
    fixture.server.announce_stop();
    let ready = get(fixture.address, "/readyz");
    assert_eq!((ready.status, ready.json()["detail"].as_str()), (503, Some("the server is stopping")));
    assert!(!receive(send(fixture.address, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")).is_empty(), "it is closed");
    let idle = TcpStream::connect(fixture.address).unwrap();
    let waiting = send(fixture.address, &request_of(&json!(image("wait"))));
    until("the image waits", || fixture.gate.came.load(SeqCst) == 1);
    let gate = Arc::clone(&fixture.gate);
    let address = fixture.address;
    let stopping = std::thread::spawn(move || fixture.server.stop(Duration::from_secs(20)));
    until("nobody is let in", || TcpStream::connect(address).is_err());
    assert!(!stopping.is_finished());
    gate.open();
    assert_eq!(Answer::parse(&receive(waiting)).status, 200);
    assert_eq!(stopping.join().unwrap(), 0, "not even the idle one is cut off");
    drop(idle);

    let fixture = serve(4, |_, _| {});
    let waiting = send(fixture.address, &request_of(&json!(image("wait"))));
    until("the image waits", || fixture.gate.came.load(SeqCst) == 1);
    let start = Instant::now();
    assert_eq!(fixture.server.stop(Duration::from_millis(200)), 1, "one was cut off");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(receive(waiting), "");
    fixture.gate.open();
}

#[test]
fn an_engine_that_stops_is_unavailable() {
    let fixture = serve(4, |_, _| {});
    assert_eq!(fixture.engine.stop(Duration::ZERO), 0);
    let answer = post(fixture.address, &json!({"input": image("ok")}));
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    assert_eq!(get(fixture.address, "/readyz").status, 503);
}
