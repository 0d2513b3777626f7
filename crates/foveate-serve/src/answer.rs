//! What is answered: each input's outcome, in the order of the inputs.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use foveate_worker::{Encoding, Failure, Outcome, Output, Stage};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::problem::Problem;

/// What became of one input.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    object: &'static str,
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<Box<RawValue>>,
    /// What a task answers that does not embed.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    /// Of a job that was queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

#[derive(Debug, Serialize)]
struct Error {
    stage: &'static str,
    reason: String,
    retryable: bool,
}

impl Entry {
    fn new(object: &'static str, index: usize) -> Self {
        Self { object, index, embedding: None, output: None, error: None, id: None }
    }

    fn of(index: usize, outcome: &Outcome, encoding: Encoding) -> Self {
        match outcome {
            Ok(Output::Vector(embedding)) => {
                Self { embedding: Some(raw(embedding.to_json(encoding))), ..Self::new("embedding", index) }
            }
            Ok(output) => Self { output: Some(raw(output.to_json(encoding))), ..Self::new("output", index) },
            Err(failure) => Self::failed(index, failure),
        }
    }

    /// An input that failed.
    pub(crate) fn failed(index: usize, failure: &Failure) -> Self {
        let Failure { stage, reason, transient, .. } = failure.clone();
        Self { error: Some(Error { stage: stage.name(), reason, retryable: transient }), ..Self::new("error", index) }
    }

    /// An input that waits in the queue.
    pub(crate) fn queued(index: usize, id: String) -> Self {
        Self { id: Some(id), ..Self::new("job", index) }
    }
}

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_else(|error| unreachable!("written as JSON: {error}"))
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<Entry>,
    usage: Usage,
}

/// Clients of other services look for tokens here; images have none.
#[derive(Serialize)]
struct Usage {
    images: usize,
    prompt_tokens: usize,
    total_tokens: usize,
}

/// All outcomes, if one is good; a problem of them if none is.
pub(crate) fn outcomes(id: &str, model: &str, outcomes: &[Outcome], encoding: Encoding) -> Result<Response, Problem> {
    let data = outcomes.iter().enumerate().map(|(i, outcome)| Entry::of(i, outcome, encoding)).collect();
    if outcomes.iter().all(Result::is_err) {
        return Err(Problem { data, ..failed(outcomes.iter().filter_map(|outcome| outcome.as_ref().err())) }.of(id));
    }
    Ok(list(StatusCode::OK, id, model, data))
}

/// The answer to a request that was taken.
pub(crate) fn list(status: StatusCode, id: &str, model: &str, data: Vec<Entry>) -> Response {
    let usage = Usage { images: data.len(), prompt_tokens: 0, total_tokens: 0 };
    (status, Json(List { object: "list", id, model, data, usage })).into_response()
}

/// What to say when every input failed. Where another try may help one of them, it is worth it.
fn failed<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> Problem {
    let problem = |status, remedy: &'static str| Problem::new(status, "data says for each input what happened", remedy);
    let mut stages = failures.clone().filter(|failure| failure.transient).map(|failure| failure.stage).peekable();
    if stages.peek().is_none() {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "send other images: these fail whenever they are tried");
    }
    // Whose fault it is: the images' servers', or, for any other reason, ours.
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
