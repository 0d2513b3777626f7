//! `POST /v1/embeddings` and `POST /v1/similar`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use foveate_worker::{Done, Failure, Image, Outcome, Output, Request as Work, Stage};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};
use uuid::Uuid;

use crate::answer::{self, AnswerUsage};
use crate::asked::Asked;
use crate::body;
use crate::input;
use crate::memory::MemoryClaim;
use crate::problem::ApiProblem;
use crate::request_log::RequestFigures;
use crate::serving::Serving;
use crate::settings::RequestFields;
use crate::similar::SimilarFields;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header with the names of fields that were ignored, in answers.
const IGNORED_FIELDS: &str = "foveate-ignored-fields";
/// Most bytes of an Idempotency-Key, which becomes an image's id with an index appended.
const MAX_KEY: usize = 200;

pub(crate) async fn embeddings(State(serving): State<Arc<Serving>>, request: Request) -> Response {
    answer(&serving, request, None).await
}

/// Answers with what is most like each query.
pub(crate) async fn similar(State(serving): State<Arc<Serving>>, request: Request) -> Response {
    let dim = serving.index.as_ref().map_or(0, |slot| slot.current().dim());
    let query = request.uri().query().unwrap_or_default();
    match SimilarFields::of_query(query, dim) {
        Ok(similar) => answer(&serving, request, Some(similar)).await,
        Err(problem) => problem.into_response(),
    }
}

/// Answers with vectors, or with what is `similar`.
async fn answer(serving: &Serving, request: Request, similar: Option<SimilarFields>) -> Response {
    let (Parts { headers, .. }, mut body) = request.into_parts();
    let mut figures = RequestFigures::default();
    let answer = match serving.authorize(&headers).and_then(|()| id(&headers)) {
        Ok(id) => identified(serving, &id, similar, &headers, &mut body, &mut figures).await,
        Err(problem) => Err(problem),
    };
    if answer.is_err() {
        body::linger(serving, &headers, &mut body).await;
    }
    let mut response = answer.into_response();
    if let Some(names) = figures.ignored.clone() {
        response.headers_mut().insert(IGNORED_FIELDS, names);
    }
    response.extensions_mut().insert(figures);
    response
}

/// Handles a request whose id is known; its spans and problems carry the id.
async fn identified(
    serving: &Serving,
    id: &str,
    similar: Option<SimilarFields>,
    headers: &HeaderMap,
    body: &mut Body,
    figures: &mut RequestFigures,
) -> Result<Response, ApiProblem> {
    let span = info_span!("request", id, images = Empty, status = Empty);
    if let Some(traceparent) = headers.get("traceparent").and_then(|value| value.to_str().ok()) {
        (serving.api.traces.join)(&span, traceparent);
    }
    let answer = async {
        let is_search = similar.is_some();
        let asked = input::ask(serving, headers, body, similar, figures).await?;
        figures.images = asked.images.len();
        Span::current().record("images", figures.images);
        check(serving, &asked.settings)?;
        if is_search && asked.settings.task.is_some() {
            return Err(ApiProblem::impossible("what is similar has no task", "leave the task out"));
        }
        embed(serving, id, asked, figures).await
    };
    let answer = answer.instrument(span.clone()).await.map_err(|problem| problem.of(id));
    let status = answer.as_ref().map_or_else(|problem| problem.status, Response::status);
    span.record("status", status.as_u16());
    answer
}

/// The request's id, which begins the images' ids.
fn id(headers: &HeaderMap) -> Result<String, ApiProblem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(Uuid::now_v7().to_string()) };
    match key.to_str() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(key.to_owned())
        }
        _ => Err(ApiProblem::malformed(format!("an Idempotency-Key has 1 to {MAX_KEY} visible ASCII characters"))),
    }
}

fn check(serving: &Serving, settings: &RequestFields) -> Result<(), ApiProblem> {
    settings.model.as_ref().map_or(Ok(()), |model| serving.has_model(model))?;
    if settings.normalize == Some(false) && serving.api.normalized {
        let remedy = "leave normalize out, or start the server with --normalize off";
        return Err(ApiProblem::impossible("normalize is false, and this server's vectors have length 1", remedy));
    }
    match (settings.dimensions, serving.api.dimensions) {
        (Some(asked), Some(width)) if asked != width as u64 => {
            let detail = format!("dimensions {asked}; the vectors of this model have {width}");
            Err(ApiProblem::new(
                StatusCode::BAD_REQUEST,
                detail,
                "leave dimensions out: vectors cannot be shortened here",
            ))
        }
        (Some(_), None) => Err(ApiProblem::malformed("dimensions: this server does not know its vectors' width")),
        _ => Ok(()),
    }
}

/// Answers directly, from the engine's dynamic batches.
async fn embed(
    serving: &Serving,
    id: &str,
    mut asked: Asked,
    figures: &mut RequestFigures,
) -> Result<Response, ApiProblem> {
    let deadline = Instant::now() + serving.api.timeout;
    let encoding = asked.settings.encoding;
    let partial = asked.settings.partial;
    let similar = asked.settings.similar.take();
    let room = similar.as_ref().map(|similar| SearchRoom::new(serving, similar, asked.images.len())).transpose()?;
    let is_normalized = asked.settings.normalize == Some(true) && !serving.api.normalized;
    let count = asked.images.len();
    let images = asked.images.iter().filter(|input| !matches!(input, Image::Text(_))).count();
    // Dropped at the end of this function, also if the client goes away; the engine then skips unfinished images.
    let wanted = Wanted::default();
    let outcomes = submit(serving, id, asked, &wanted)?;
    let mut told = Vec::with_capacity(count);
    for outcome in outcomes {
        told.push(match timeout_at(deadline, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Failure::transient(Stage::Process, "the engine forgot it")),
            Err(_) => Err(late(serving.api.timeout)),
        });
    }
    let mut usage = AnswerUsage { images, tokens: 0 };
    for outcome in &told {
        if let Ok(Output::Vector(embedding)) = outcome {
            usage.tokens += embedding.tokens;
        }
    }
    if is_normalized {
        told.iter_mut().for_each(normalize);
    }
    if let Some(similar) = similar {
        let queries = similar.queries(count);
        told = match timeout_at(deadline, search(serving, similar, told, room.clone())).await {
            Ok(found) => found?,
            Err(_) => (0..queries).map(|_| Err(late(serving.api.timeout))).collect(),
        };
    }
    figures.failures = told.iter().filter(|outcome| outcome.is_err()).count();
    answer::outcomes(id, &serving.api, &told, usage, encoding, partial)
}

/// The room of a search: its queries count like images in the engine, and its results like bodies.
struct SearchRoom {
    _queries: OwnedSemaphorePermit,
    _results: MemoryClaim,
}

impl SearchRoom {
    fn new(serving: &Serving, similar: &SimilarFields, images: usize) -> Result<Arc<Self>, ApiProblem> {
        let queries = similar.queries(images);
        let permits = Arc::clone(&serving.queries).try_acquire_many_owned(queries as u32).map_err(|_| {
            let room = serving.queries.available_permits();
            ApiProblem::full(format!("{queries} queries, and there is room for {room} now"))
        })?;
        let mut results = serving.memory.claim();
        results.grow_to(similar.memory(queries))?;
        Ok(Arc::new(Self { _queries: permits, _results: results }))
    }
}

/// Searches once it is this request's turn. A search that has begun keeps its turn and its `room` to its end, also if
/// the request ends before.
async fn search(
    serving: &Serving,
    similar: SimilarFields,
    images: Vec<Outcome>,
    room: Option<Arc<SearchRoom>>,
) -> Result<Vec<Outcome>, ApiProblem> {
    let Some(slot) = &serving.index else { unreachable!("there is no such address without an index") };
    let Ok(turn) = Arc::clone(&serving.searches).acquire_owned().await else { unreachable!("never closed") };
    let index = slot.current();
    let searching = tokio::task::spawn_blocking(move || {
        let found = similar.search(&*index, images);
        drop((turn, room));
        found
    });
    searching.await.map_err(|_| ApiProblem::unavailable("the search failed", "see the server's log"))?
}

/// Gives a vector the length 1.
fn normalize(outcome: &mut Outcome) {
    if let Ok(Output::Vector(embedding)) = outcome {
        let length = embedding.vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if length > 0.0 {
            embedding.vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
    }
}

fn late(timeout: Duration) -> Failure {
    Failure::transient(Stage::Timeout, format!("not done within {} s", timeout.as_secs_f64()))
}

#[derive(Default)]
struct Wanted(Arc<AtomicBool>);

impl Wanted {
    fn still(&self) -> impl Fn() -> bool + Send + 'static {
        let gone = Arc::clone(&self.0);
        move || !gone.load(Relaxed)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Submits all images or none: if the engine refuses one, those before it are no longer `wanted`.
fn submit(
    serving: &Serving,
    id: &str,
    asked: Asked,
    wanted: &Wanted,
) -> Result<Vec<oneshot::Receiver<Outcome>>, ApiProblem> {
    let Serving { api, task, .. } = serving;
    let room = api.engine.max_in_flight().saturating_sub(api.engine.in_flight());
    if room < asked.images.len() {
        return Err(ApiProblem::full(format!("{} images, and there is room for {room} now", asked.images.len())));
    }
    let task = asked.settings.task.as_ref().unwrap_or(task);
    // Frees the room of the bytes once the engine is done with the last image.
    let claim = Arc::new(asked.claim);
    let mut outcomes = Vec::new();
    for (index, image) in asked.images.into_iter().enumerate() {
        let (tell, outcome) = oneshot::channel();
        let claim = Arc::clone(&claim);
        let done = Done::new(move |outcome| {
            drop(claim);
            // The request may have ended.
            let _ = tell.send(outcome);
        });
        let id = format!("{id}-{index}");
        let span = info_span!("item", id);
        let task = task.clone();
        let metadata = asked.settings.metadata.clone();
        api.engine.submit(Work { id, task, image, metadata, done: done.while_wanted(wanted.still()), span })?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
