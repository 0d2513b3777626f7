//! The server's routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::header::{ACCEPT, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use foveate_worker::Probe;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use uuid::Uuid;

use crate::api::Api;
use crate::cors::{Origin, cors};
use crate::error::ServeError;
use crate::index::IndexSlot;
use crate::metrics::{Metrics, plain};
use crate::problem::{ApiProblem, REQUEST_ID};
use crate::request_log::Line;
use crate::serving::Serving;
use crate::{embeddings, openapi};

/// State of all routes.
pub(crate) struct ServerState {
    probe: Arc<dyn Probe>,
    metrics: Metrics,
    pub(crate) serving: Option<Arc<Serving>>,
    /// `/readyz` fails, and answers close their connections.
    pub(crate) stopping: AtomicBool,
}

pub(crate) fn router(probe: Arc<dyn Probe>, api: Option<Api>) -> Result<(Router, Arc<ServerState>), ServeError> {
    let origins: Arc<[Origin]> = api.iter().flat_map(|api| api.cors.clone()).collect();
    let serving = api.map(Serving::new).transpose()?.map(Arc::new);
    let index = serving.as_ref().and_then(|serving| serving.index.as_ref());
    let shared =
        ServerState { probe, metrics: Metrics::new(index), serving: serving.clone(), stopping: AtomicBool::new(false) };
    let shared = Arc::new(shared);
    let health = Router::new()
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&shared));
    let routes = match serving {
        Some(serving) => health.merge(of_api(&serving)),
        None => health,
    };
    let mut routes = routes.fallback(no_such_address).method_not_allowed_fallback(no_such_method);
    if !origins.is_empty() {
        routes = routes.layer(from_fn_with_state(origins, cors));
    }
    Ok((routes.layer(from_fn_with_state(Arc::clone(&shared), watch)), shared))
}

fn of_api(serving: &Arc<Serving>) -> Router {
    let document = openapi::document(serving);
    let of_index = serving
        .index
        .as_ref()
        .map(|_| Router::new().route("/v1/similar", post(embeddings::similar)).route("/v1/index/reload", post(reload)));
    Router::new()
        .route("/openapi.json", get(async move || ([(CONTENT_TYPE, "application/json")], document.clone())))
        .route("/v1/models", get(models))
        // Names of models contain slashes, which not every client escapes.
        .route("/v1/models/{*name}", get(model))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .merge(of_index.unwrap_or_default())
        .with_state(Arc::clone(serving))
}

async fn live(State(shared): State<Arc<ServerState>>) -> Response {
    health(block_in_place(|| shared.probe.live()), "it should be restarted")
}

async fn ready(State(shared): State<Arc<ServerState>>) -> Response {
    let state = match shared.stopping.load(Relaxed) {
        true => Err("the server is stopping".to_owned()),
        false => block_in_place(|| shared.probe.ready()),
    };
    health(state, "give it no work now")
}

fn health(state: Result<(), String>, remedy: &'static str) -> Response {
    match state {
        Ok(()) => Json(json!({"status": "ok"})).into_response(),
        Err(reason) => ApiProblem::unavailable(reason, remedy).into_response(),
    }
}

/// Answers in OpenMetrics, or in plain text to a client that asks for that alone.
async fn metrics(State(shared): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    let uploads = shared.serving.as_ref().map_or(0, |serving| serving.memory.taken());
    let text = block_in_place(|| shared.metrics.after(shared.probe.metrics(), uploads));
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let accepted = accepted.to_ascii_lowercase();
    let wants_plain = accepted.contains("text/plain") && !accepted.contains("application/openmetrics-text");
    let (content_type, text) = match wants_plain {
        true => ("text/plain; version=0.0.4; charset=utf-8", plain(&text)),
        false => ("application/openmetrics-text; version=1.0.0; charset=utf-8", text),
    };
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

async fn models(State(serving): State<Arc<Serving>>, headers: HeaderMap) -> Result<Response, ApiProblem> {
    serving.authorize(&headers)?;
    let models: Vec<Value> = serving.api.models.iter().map(|name| described(&serving, name)).collect();
    Ok(Json(json!({"object": "list", "data": models})).into_response())
}

async fn model(
    State(serving): State<Arc<Serving>>,
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiProblem> {
    serving.authorize(&headers)?;
    let Path(name) = name.map_err(|error| ApiProblem::malformed(error.body_text()))?;
    serving.has_model(&name)?;
    Ok(Json(described(&serving, &name)).into_response())
}

fn described(serving: &Serving, name: &str) -> Value {
    let tasks: Vec<&str> = serving.api.engine.tasks().collect();
    json!({"object": "model", "id": name, "created": serving.started, "owned_by": "foveate", "tasks": tasks})
}

/// Reads the index again, to the end even if the client goes away.
async fn reload(State(serving): State<Arc<Serving>>, headers: HeaderMap) -> Result<Response, ApiProblem> {
    serving.authorize(&headers)?;
    let reading = tokio::task::spawn_blocking(move || serving.index.as_ref().map(IndexSlot::reload));
    let answer = reading.await.ok().flatten();
    let Some(answer) = answer else {
        return Err(ApiProblem::unavailable("the index could not be read", "see the server's log"));
    };
    Ok(Json(answer?).into_response())
}

async fn no_such_address(request: Request) -> ApiProblem {
    let detail = format!("there is nothing at {}", request.uri().path());
    ApiProblem::new(StatusCode::NOT_FOUND, detail, "/openapi.json says what there is, where the API is served")
}

async fn no_such_method(request: Request) -> ApiProblem {
    let detail = format!("{} is not understood here", request.method());
    ApiProblem::new(StatusCode::METHOD_NOT_ALLOWED, detail, "use one of those in Allow")
}

/// Logs requests, counts them by route, and gives each answer an `X-Request-Id`: the client's, the answer's own, or a
/// random one. Unknown paths share one label, so that guessing does not create metrics.
async fn watch(State(shared): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let key = shared.serving.as_ref().and_then(|serving| serving.key_name(request.headers()));
    let line = Line::of(&request, key);
    let path = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if let Some(id) = line.id.clone().or_else(|| (!headers.contains_key(REQUEST_ID)).then(random_id)) {
        headers.insert(REQUEST_ID, id);
    }
    if shared.stopping.load(Relaxed) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let route = path.as_ref().map_or("none", MatchedPath::as_str);
    shared.metrics.answered(route, response.status(), line.start.elapsed());
    line.answered(&response);
    response
}

fn random_id() -> HeaderValue {
    HeaderValue::try_from(Uuid::now_v7().to_string()).unwrap_or_else(|_| unreachable!("ASCII"))
}
