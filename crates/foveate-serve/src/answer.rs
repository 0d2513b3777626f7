//! Answers: the outcome of each input, in the inputs' order.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use foveate_worker::{Encoding, Failure, Outcome, Stage};
use serde::Serialize;

use crate::entry::Entry;
use crate::problem::Problem;

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<Entry>,
    usage: Usage,
}

/// Token counts, because clients of other services expect them; always 0 for images.
#[derive(Serialize)]
struct Usage {
    images: usize,
    prompt_tokens: usize,
    total_tokens: usize,
}

/// A list of all outcomes, or a problem if every input failed.
pub(crate) fn outcomes(id: &str, model: &str, outcomes: &[Outcome], encoding: Encoding) -> Result<Response, Problem> {
    let data = outcomes.iter().enumerate().map(|(i, outcome)| Entry::of(i, outcome, encoding)).collect();
    if outcomes.iter().all(Result::is_err) {
        return Err(Problem { data, ..failed(outcomes.iter().filter_map(|outcome| outcome.as_ref().err())) }.of(id));
    }
    Ok(list(StatusCode::OK, id, model, data))
}

/// The answer to an accepted request.
pub(crate) fn list(status: StatusCode, id: &str, model: &str, data: Vec<Entry>) -> Response {
    let usage = Usage { images: data.len(), prompt_tokens: 0, total_tokens: 0 };
    (status, Json(List { object: "list", id, model, data, usage })).into_response()
}

/// The problem when every input failed. It is retryable if one of the failures is.
fn failed<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> Problem {
    let problem = |status, remedy: &'static str| Problem::new(status, "data says for each input what happened", remedy);
    let mut stages = failures.clone().filter(|failure| failure.transient).map(|failure| failure.stage).peekable();
    if stages.peek().is_none() {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "send other images: these fail whenever they are tried");
    }
    // Downloads fail at the image's server; everything else fails here.
    let mut status = StatusCode::BAD_GATEWAY;
    for stage in stages {
        match stage {
            Stage::Download => {}
            Stage::Timeout if status == StatusCode::BAD_GATEWAY => status = StatusCode::GATEWAY_TIMEOUT,
            Stage::Timeout => {}
            _ => status = StatusCode::SERVICE_UNAVAILABLE,
        }
    }
    let wait = failures.filter_map(|failure| failure.retry_after).max();
    problem(status, "try again after the time in Retry-After").later(wait.unwrap_or(Duration::from_secs(1)))
}
