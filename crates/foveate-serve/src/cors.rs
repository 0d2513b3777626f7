//! Cross-origin requests: web pages whose scripts may use the API from a browser.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ServeError;

/// An origin of web pages as browsers send it, such as `https://example.com`, or `*` for all origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = ServeError;

    /// # Errors
    /// [`ServeError::Origin`] if no browser sends such an origin.
    fn from_str(text: &str) -> Result<Self, ServeError> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_origin = host
            .is_some_and(|host| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
        match HeaderValue::from_str(text) {
            Ok(value) if text == "*" || is_origin => Ok(Self(value)),
            _ => Err(ServeError::Origin(text.to_owned())),
        }
    }
}

/// Answers preflight requests from allowed origins, and marks the other answers to them as readable.
pub(crate) async fn cors(State(origins): State<Arc<[Origin]>>, request: Request, next: Next) -> Response {
    let allowed = allowed(&origins, request.headers());
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match is_preflight && allowed.is_some() {
        true => preflight(request.headers()),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Some(origin) = allowed {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("retry-after, x-request-id, foveate-ignored-fields"),
        );
    }
    // Caches keep the answers to different origins apart.
    headers.append(VARY, HeaderValue::from_name(ORIGIN));
    response
}

/// The allowed origin that the request comes from.
fn allowed(origins: &[Origin], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    origins.iter().map(|Origin(known)| known).find(|known| *known == "*" || *known == origin).cloned()
}

/// Allows all headers that were asked for: clients in browsers send some of their own, and this server ignores them.
fn preflight(headers: &HeaderMap) -> Response {
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = StatusCode::NO_CONTENT.into_response();
    let allow = response.headers_mut();
    allow.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    allow.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.unwrap_or(HeaderValue::from_static("")));
    // Two hours, the longest that Chromium accepts.
    allow.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_as_browsers_send_them() {
        for good in ["*", "https://example.com", "http://localhost:3000"] {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        for bad in ["", "example.com", "https://", "https://example.com/", "https://example.com/app", "*.example.com"] {
            let message = bad.parse::<Origin>().unwrap_err().to_string();
            assert_eq!(
                message,
                format!("'{bad}' is not an origin; write scheme and host alone, such as https://example.com, or *")
            );
        }
    }
}
