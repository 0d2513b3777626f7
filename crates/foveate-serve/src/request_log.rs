//! The log of requests: one line for each, whatever its outcome.

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use tracing::info;

use crate::problem::{REQUEST_ID, Reason};

/// The client's address: an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The line of a request under way. Dropping it without an answer logs that the client went away.
pub(crate) struct Line {
    method: Method,
    path: String,
    peer: Option<SocketAddr>,
    pub(crate) start: Instant,
    answered: bool,
}

impl Line {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            // Without the query, which may hold secrets.
            path: request.uri().path().to_owned(),
            peer: request.extensions().get().map(|Peer(address)| *address),
            start: Instant::now(),
            answered: false,
        }
    }

    pub(crate) fn answered(mut self, response: &Response) {
        self.answered = true;
        let id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let reason = response.extensions().get().map(|Reason(reason)| reason.as_str());
        self.write(Some(response.status()), id, reason);
    }

    fn write(&self, status: Option<StatusCode>, id: Option<&str>, reason: Option<&str>) {
        let Self { method, path, .. } = self;
        let (peer, status) = (self.peer.map(tracing::field::display), status.map(|status| status.as_u16()));
        let ms = self.start.elapsed().as_millis() as u64;
        // Health checks have a target of their own, so that a filter can leave them out.
        match path.as_str() {
            "/healthz" | "/readyz" | "/metrics" => {
                info!(target: "foveate_serve::probe", %method, path, status, ms, peer, id, reason, "request");
            }
            _ => info!(target: "foveate_serve::request", %method, path, status, ms, peer, id, reason, "request"),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.answered {
            self.write(None, None, Some("the client went away, or the server stopped"));
        }
    }
}
