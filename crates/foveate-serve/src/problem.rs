//! Error answers as RFC 9457 describes them: problem details for HTTP APIs.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use foveate_worker::Rejected;
use serde::Serialize;

use crate::entry::Entry;

/// The default of `Retry-After`.
const LATER: Duration = Duration::from_secs(1);

/// Why a request failed, and the remedy.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    pub(crate) remedy: &'static str,
    pub(crate) retry_after: Option<Duration>,
    /// The request's id, if it has one already.
    pub(crate) id: Option<String>,
    /// The outcomes of the inputs, if any were tried.
    pub(crate) data: Vec<Entry>,
}

#[derive(Serialize)]
struct Wire<'a> {
    /// `about:blank`: the title is that of the status.
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    remedy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    data: &'a [Entry],
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>, remedy: &'static str) -> Self {
        Self { status, detail: detail.into(), remedy, retry_after: None, id: None, data: Vec::new() }
    }

    /// The request violates the OpenAPI document.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail, "see /openapi.json for what is understood")
    }

    /// The request is valid, but impossible here.
    pub(crate) fn impossible(detail: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail, remedy)
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

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Full(_) => Self::full("as many images are under way as there may be"),
            Rejected::NoTask { .. } => Self::impossible(rejected.to_string(), "name one of them, or none"),
            // The engine is stopping, or rejects for a reason that this code does not know.
            _ => Self::unavailable(rejected.to_string(), "try another server, or later").later(LATER),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let wire = Wire {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            // The detail may quote the client.
            detail: format!("{:.500}", self.detail),
            remedy: self.remedy,
            id: self.id.as_deref(),
            data: &self.data,
        };
        let body = serde_json::to_vec(&wire).unwrap_or_else(|error| unreachable!("text and numbers: {error}"));
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let mut set = |name: HeaderName, value: HeaderValue| response.headers_mut().insert(name, value);
        set(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after {
            set(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil().max(1.0) as u64));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => drop(set(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            // The rest of the body is not read.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                drop(set(CONNECTION, HeaderValue::from_static("close")));
            }
            _ => {}
        }
        response
    }
}
