//! The log of requests: one line for each, whatever its outcome.

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use tracing::info;

use crate::problem::{REQUEST_ID, Reason};

/// Most bytes of a client's `X-Request-Id`; a longer one is ignored.
const MAX_ID: usize = 200;

/// The client's address: an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// Figures of a request for embeddings: an extension of the response.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFigures {
    pub(crate) images: usize,
    pub(crate) failures: usize,
    /// Size of the body.
    pub(crate) bytes: usize,
    /// The names of its fields that were ignored.
    pub(crate) ignored: Option<HeaderValue>,
}

/// The line of a request under way. Dropping it without an answer logs that the client went away.
pub(crate) struct Line {
    method: Method,
    path: String,
    peer: Option<SocketAddr>,
    /// Name of the client's API key.
    key: Option<String>,
    /// The client's own id for the request.
    pub(crate) id: Option<HeaderValue>,
    pub(crate) start: Instant,
    answered: bool,
}

impl Line {
    pub(crate) fn of(request: &Request, key: Option<String>) -> Self {
        let id = request
            .headers()
            .get(REQUEST_ID)
            .filter(|id| (1..=MAX_ID).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic));
        Self {
            key,
            id: id.cloned(),
            method: request.method().clone(),
            // Without the query, which may hold secrets.
            path: request.uri().path().to_owned(),
            peer: request.extensions().get().map(|PeerAddress(address)| *address),
            start: Instant::now(),
            answered: false,
        }
    }

    pub(crate) fn answered(mut self, response: &Response) {
        self.answered = true;
        let figures = response.extensions().get();
        let reason = response.extensions().get().map(|Reason(reason)| reason.as_str());
        self.write(Some(response.status()), response.headers().get(REQUEST_ID), reason, figures);
    }

    fn write(
        &self,
        status: Option<StatusCode>,
        id: Option<&HeaderValue>,
        reason: Option<&str>,
        figures: Option<&RequestFigures>,
    ) {
        let Self { method, path, .. } = self;
        let id = id.and_then(|id| id.to_str().ok());
        let key = self.key.as_deref();
        let images = figures.map(|figures| figures.images as u64);
        let failures = figures.map(|figures| figures.failures as u64);
        let bytes = figures.map(|figures| figures.bytes as u64);
        let peer = self.peer.map(tracing::field::display);
        let status = status.map(|status| status.as_u16());
        let ms = self.start.elapsed().as_millis() as u64;
        // Health checks have their own target, so that a filter can leave them out.
        match path.as_str() {
            "/healthz" | "/readyz" | "/metrics" => {
                info!(target: "foveate_serve::probe", %method, path, status, ms, peer, id, reason, "request");
            }
            _ => info!(
                target: "foveate_serve::request",
                %method, path, status, ms, peer, id, key, images, failures, bytes, reason, "request"
            ),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.answered {
            self.write(None, self.id.as_ref(), Some("the client went away, or the server stopped"), None);
        }
    }
}
