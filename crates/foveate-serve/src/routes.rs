//! The server's routes.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use foveate_worker::Probe;
use serde_json::json;
use tokio::task::block_in_place;

use crate::api::Api;
use crate::error::ServeError;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::serving::Serving;
use crate::{embeddings, openapi};

/// State of all routes.
pub(crate) struct Shared {
    probe: Arc<dyn Probe>,
    metrics: Metrics,
    serving: Option<Arc<Serving>>,
}

pub(crate) fn router(probe: Arc<dyn Probe>, api: Option<Api>) -> Result<Router, ServeError> {
    let serving = api.map(Serving::new).transpose()?.map(Arc::new);
    let shared = Arc::new(Shared { probe, metrics: Metrics::new(), serving: serving.clone() });
    let health = Router::new()
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&shared));
    let routes = match serving {
        Some(serving) => health.merge(of_api(&serving)),
        None => health,
    };
    let counted = routes.fallback(no_such_address).method_not_allowed_fallback(no_such_method);
    Ok(counted.layer(from_fn_with_state(shared, count)))
}

fn of_api(serving: &Arc<Serving>) -> Router {
    let document = openapi::document(serving);
    Router::new()
        .route("/openapi.json", get(async move || ([(CONTENT_TYPE, "application/json")], document.clone())))
        .route("/v1/models", get(models))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .with_state(Arc::clone(serving))
}

async fn live(State(shared): State<Arc<Shared>>) -> Response {
    health(block_in_place(|| shared.probe.live()), "it should be restarted")
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    health(block_in_place(|| shared.probe.ready()), "give it no work now")
}

fn health(state: Result<(), String>, remedy: &'static str) -> Response {
    match state {
        Ok(()) => Json(json!({"status": "ok"})).into_response(),
        Err(reason) => Problem::unavailable(reason, remedy).into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let uploads = shared.serving.as_ref().map_or(0, |serving| serving.memory.taken());
    let text = block_in_place(|| shared.metrics.after(shared.probe.metrics(), uploads));
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

async fn models(State(serving): State<Arc<Serving>>, headers: HeaderMap) -> Result<Response, Problem> {
    serving.authorize(&headers)?;
    let tasks: Vec<&str> = serving.api.engine.tasks().collect();
    let model = json!({"object": "model", "id": serving.api.model, "owned_by": "foveate", "tasks": tasks});
    Ok(Json(json!({"object": "list", "data": [model]})).into_response())
}

async fn no_such_address(request: Request) -> Problem {
    let detail = format!("there is nothing at {}", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, detail, "/openapi.json says what there is, where the API is served")
}

async fn no_such_method(request: Request) -> Problem {
    let detail = format!("{} is not understood here", request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail, "use one of those in Allow")
}

/// Counts requests by route. Unknown paths share one label, so that guessing does not create metrics.
async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = path.as_ref().map_or("none", MatchedPath::as_str);
    shared.metrics.answered(route, response.status(), start.elapsed());
    response
}
