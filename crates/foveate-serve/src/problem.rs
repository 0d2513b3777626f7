//! Error answers: problem details for HTTP APIs (RFC 9457), with the `error` object of OpenAI's API beside them.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use foveate_worker::Rejected;
use serde::Serialize;

use crate::entry::AnswerEntry;

/// The header with the request's id, in answers.
pub(crate) const REQUEST_ID: &str = "x-request-id";
/// The default of `Retry-After`.
const LATER: Duration = Duration::from_secs(1);

/// The reason why a request failed, and the remedy.
#[derive(Debug)]
pub(crate) struct ApiProblem {
    pub(crate) status: StatusCode,
    pub(crate) kind: ProblemKind,
    pub(crate) detail: String,
    pub(crate) remedy: &'static str,
    pub(crate) retry_after: Option<Duration>,
    /// The request's id, if it has one already.
    pub(crate) id: Option<String>,
    /// The outcomes of the inputs, if any were tried.
    pub(crate) data: Vec<AnswerEntry>,
}

/// Tells problems of one status apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProblemKind {
    /// The status says enough.
    Usual,
    NoModel,
    InputsFailed,
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    /// `about:blank`: the title is that of the status.
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    remedy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    data: &'a [AnswerEntry],
    error: ErrorObject,
}

/// The error as clients of OpenAI's API read it.
#[derive(Serialize)]
struct ErrorObject {
    message: String,
    r#type: &'static str,
    /// Always null: details name the part of the request.
    param: (),
    code: &'static str,
}

/// The reason why the request failed, for the log: an extension of the response.
#[derive(Clone, Debug)]
pub(crate) struct Reason(pub(crate) String);

impl ApiProblem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>, remedy: &'static str) -> Self {
        let detail = detail.into();
        Self { status, kind: ProblemKind::Usual, detail, remedy, retry_after: None, id: None, data: Vec::new() }
    }

    /// No model has this name.
    pub(crate) fn no_model(name: &str, known: &[String]) -> Self {
        let detail = format!("there is no model '{name:.100}' here; there is '{}'", known.join("', '"));
        Self { kind: ProblemKind::NoModel, ..Self::new(StatusCode::NOT_FOUND, detail, "name it, or none") }
    }

    /// The request violates the OpenAPI document.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail, "see /openapi.json for what is understood")
    }

    /// The request is valid, but impossible here.
    pub(crate) fn impossible(detail: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail, remedy)
    }

    /// More images than a request may have.
    pub(crate) fn too_many(most: usize) -> Self {
        Self::impossible(format!("more than {most} images in one request"), "send several requests")
    }

    /// Names the part of the request that it is about.
    pub(crate) fn within(self, part: &str) -> Self {
        Self { detail: format!("{part}: {}", self.detail), ..self }
    }

    /// There is no room for the request now.
    pub(crate) fn full(detail: impl Into<String>) -> Self {
        let remedy = "try again after the time in Retry-After";
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail, remedy).later(LATER)
    }

    /// The request cannot be served now.
    pub(crate) fn unavailable(detail: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail, remedy)
    }

    pub(crate) fn later(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    pub(crate) fn of(self, id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..self }
    }
}

impl From<Rejected> for ApiProblem {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Full(_) => Self::full("as many images are under way as there may be"),
            Rejected::NoTask { .. } => Self::impossible(rejected.to_string(), "name one of them, or none"),
            // The engine is stopping, or rejects for a reason that this code does not know.
            _ => Self::unavailable(rejected.to_string(), "try another server, or later").later(LATER),
        }
    }
}

/// The code by which programs tell errors apart.
fn code(kind: ProblemKind, status: StatusCode) -> &'static str {
    match status {
        _ if matches!(kind, ProblemKind::NoModel) => "model_not_found",
        _ if matches!(kind, ProblemKind::InputsFailed) => "inputs_failed",
        StatusCode::BAD_REQUEST => "invalid_request",
        StatusCode::UNAUTHORIZED => "invalid_api_key",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::CONFLICT => "conflict",
        StatusCode::REQUEST_TIMEOUT => "request_timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable_request",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
        StatusCode::BAD_GATEWAY => "download_failed",
        StatusCode::GATEWAY_TIMEOUT => "timeout",
        _ => "unavailable",
    }
}

/// The error type that OpenAI's API has for this status.
fn type_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

impl ApiProblem {
    fn to_json(&self, detail: &str) -> Vec<u8> {
        let wire = ProblemJson {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            detail,
            remedy: self.remedy,
            id: self.id.as_deref(),
            data: &self.data,
            error: ErrorObject {
                message: format!("{detail}; {}", self.remedy),
                r#type: type_of(self.status),
                param: (),
                code: code(self.kind, self.status),
            },
        };
        serde_json::to_vec(&wire).unwrap_or_else(|error| unreachable!("text and numbers: {error}"))
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        // The detail may quote the client.
        let detail = format!("{:.500}", self.detail);
        let mut response = Response::new(Body::from(self.to_json(&detail)));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(Reason(detail));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(id) = self.id.and_then(|id| HeaderValue::try_from(id).ok()) {
            headers.insert(HeaderName::from_static(REQUEST_ID), id);
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil().max(1.0) as u64));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            // The rest of the body is not read.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
