//! Answers: the outcome of each input, in the inputs' order.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use foveate_worker::{Encoding, Failure, Outcome, Stage};
use serde::Serialize;

use crate::api::Api;
use crate::entry::AnswerEntry;
use crate::problem::{ApiProblem, ProblemKind, REQUEST_ID};

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<AnswerEntry>,
    usage: UsageJson,
}

/// The inputs of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerUsage {
    pub(crate) images: usize,
    /// Tokens of all texts, without padding.
    pub(crate) tokens: usize,
}

/// Token counts as clients of other services expect them.
#[derive(Serialize)]
struct UsageJson {
    images: usize,
    prompt_tokens: usize,
    total_tokens: usize,
}

/// A list of all outcomes. A problem instead if every input failed, or if one did and the client did not ask for
/// partial results: it might take the absent vector for one.
pub(crate) fn outcomes(
    id: &str,
    api: &Api,
    outcomes: &[Outcome],
    usage: AnswerUsage,
    encoding: Encoding,
    partial: bool,
) -> Result<Response, ApiProblem> {
    let failures: Vec<(usize, &Failure)> =
        outcomes.iter().enumerate().filter_map(|(i, outcome)| Some((i, outcome.as_ref().err()?))).collect();
    if failures.is_empty() || partial && failures.len() < outcomes.len() {
        let data = outcomes.iter().enumerate().map(|(i, outcome)| AnswerEntry::of(i, outcome, encoding)).collect();
        return Ok(list(id, &api.models[0], usage, data));
    }
    let data = failures.iter().map(|(i, failure)| AnswerEntry::failed(*i, failure)).collect();
    let problem = ApiProblem { data, ..failed(&failures, outcomes.len(), partial) };
    let remedy = failures.iter().find_map(|(_, failure)| (api.remedy)(failure.setting?));
    Err(ApiProblem { remedy: remedy.unwrap_or(problem.remedy), ..problem })
}

fn list(id: &str, model: &str, AnswerUsage { images, tokens }: AnswerUsage, data: Vec<AnswerEntry>) -> Response {
    let usage = UsageJson { images, prompt_tokens: tokens, total_tokens: tokens };
    ([(REQUEST_ID, id)], Json(List { object: "list", id, model, data, usage })).into_response()
}

/// The problem when inputs failed.
fn failed(failures: &[(usize, &Failure)], all: usize, partial: bool) -> ApiProblem {
    let (index, first) = failures[0];
    let count = failures.len();
    let detail = format!("{count} of {all} inputs failed; input {index}: {}: {}", first.stage.name(), first.reason);
    // A retry may succeed in part if one failure is transient, and as a whole only if all of them are.
    let transient = failures.iter().filter(|(_, failure)| failure.transient).count();
    if transient == 0 || !partial && transient < count {
        let remedy = match count < all {
            true => "replace the inputs that data lists, or set partial_results to have the vectors of the others",
            false => "send other inputs: these fail whenever they are tried",
        };
        return ApiProblem { kind: ProblemKind::InputsFailed, ..ApiProblem::impossible(detail, remedy) };
    }
    let wait = failures.iter().filter_map(|(_, failure)| failure.retry_after).max();
    let stages = failures.iter().filter(|(_, failure)| failure.transient).map(|(_, failure)| failure.stage);
    ApiProblem::new(status(stages), detail, "try again after the time in Retry-After")
        .later(wait.unwrap_or(Duration::from_secs(1)))
}

/// The status of transient failures. Downloads fail at the image's server; everything else fails here.
fn status(stages: impl Iterator<Item = Stage>) -> StatusCode {
    let mut status = StatusCode::BAD_GATEWAY;
    for stage in stages {
        match stage {
            Stage::Download => {}
            Stage::Timeout if status == StatusCode::BAD_GATEWAY => status = StatusCode::GATEWAY_TIMEOUT,
            Stage::Timeout => {}
            _ => status = StatusCode::SERVICE_UNAVAILABLE,
        }
    }
    status
}
