//! Schemathesis tests the server against its OpenAPI document, with valid and invalid requests.
use std::sync::Arc;

use crate::support::{Fixture, Rows, clock, get, serve, serve_texts};
use foveate_serve::Api;
use foveate_testkit::{Resource, Trial, by_length, program, trials};
use serde_json::Value;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        whatever_a_client_sends_the_answer_is_as_the_document_says,
        the_document_says_what_this_server_is_set_up_for,
    ]
}

fn whatever_a_client_sends_the_answer_is_as_the_document_says() {
    answers_are_as_documented(&serve(64, |_, api| set_up(api)));
    // A minute more.
    if by_length(false, true) {
        answers_are_as_documented(&serve_texts(64, |_, api| set_up(api)));
    }
}

fn set_up(api: &mut Api) {
    api.tokens = vec!["key".to_owned()];
    api.dimensions = Some(2);
    api.index = Some(clock(|| Ok(Arc::new(Rows(vec![("12", [0.0, 1.0], None)], None)))));
}

fn answers_are_as_documented(fixture: &Fixture) {
    let mut command = program(Resource::Python, "schemathesis");
    let here = env!("CARGO_MANIFEST_DIR");
    command.args(["--config-file", &format!("{here}/schemathesis.toml"), "run"]);
    command.arg(format!("http://{}/openapi.json", fixture.address));
    command.args(["--header", "Authorization: Bearer key", "--checks", "all", "--max-examples", "60"]);
    command.args(["--seed", "1", "--suppress-health-check", "all", "--request-timeout", "20", "--no-color"]);
    // Schemathesis stores its findings in the working directory.
    let folder = tempfile::tempdir().unwrap();
    let output = command.current_dir(folder.path()).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", report.trim_end().rsplit_once("\n\n").map_or(&*report, |(_, summary)| summary));
    assert_eq!(get(fixture.address, "/healthz").status, 200);
    let metrics = get(fixture.address, "/metrics").body;
    for status in [200, 400, 401, 422] {
        let line = format!("foveate_http_requests_total{{route=\"/v1/embeddings\",status=\"{status}\"}} ");
        assert!(metrics.contains(&line), "nothing was answered with {status}: {metrics}");
    }
}

fn the_document_says_what_this_server_is_set_up_for() {
    let with = serve(64, |_, api| {
        api.tokens = vec!["key".to_owned()];
        api.max_images = 5;
    });
    let without = serve(64, |_, _| {});
    let [with, without] = [with, without].map(|fixture| get(fixture.address, "/openapi.json").json());
    for document in [&with, &without] {
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(document["components"]["schemas"]["Task"]["enum"], serde_json::json!(["embed", "echo"]));
    }
    let has = |document: &Value, pointer: &str| document.pointer(pointer).is_some();
    let of_key = ["/paths/~1v1~1embeddings/post/security", "/paths/~1v1~1models~1{model}/get/responses/401"];
    for pointer in of_key {
        assert!(has(&with, pointer) && !has(&without, pointer), "{pointer}");
    }
    assert_eq!(with["components"]["schemas"]["Images"]["maxItems"], 5);
    assert_eq!(without["components"]["schemas"]["Images"]["maxItems"], 64);
}
