//! The answer for each path.

use std::convert::Infallible;
use std::future;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Path, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream::{self, StreamExt};

use crate::photo_server::bodies;
use crate::photo_server::site::PhotoSite;

/// Number of pieces of a photo under `/slow/`.
const DRIPS: usize = 100;
/// Bytes per piece of `/huge/`.
const CHUNK: usize = 64 << 10;
/// Maximum bytes of a callback.
const MOST_BODY: usize = 16 << 20;

/// Number of earlier requests of a path.
#[derive(Clone, Copy)]
struct PhotoVisit(u64);

pub(crate) fn router(site: Arc<PhotoSite>) -> Router {
    let held = Router::new()
        .route("/photo/{n}", get(photo))
        .route("/corrupt/{n}", get(corrupt))
        .route("/missing/{n}", get(StatusCode::NOT_FOUND))
        .route("/slow/{n}", get(slow))
        .route("/error/{n}", get((StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")])))
        .route("/flaky/{n}/{times}", get(flaky))
        .route("/bomb/{n}", get(bomb))
        .route("/huge/{n}", get(huge))
        .route_layer(from_fn_with_state(Arc::clone(&site), hold));
    Router::new()
        .merge(held)
        .route("/stall/{n}", get(stall))
        .route("/callback", post(callback).layer(DefaultBodyLimit::max(MOST_BODY)))
        .route_layer(from_fn_with_state(Arc::clone(&site), count))
        .with_state(site)
}

async fn count(State(site): State<Arc<PhotoSite>>, mut request: Request, next: Next) -> Response {
    let Some(visit) = site.count(request.uri().path()) else { return StatusCode::INSUFFICIENT_STORAGE.into_response() };
    request.extensions_mut().insert(PhotoVisit(visit));
    next.run(request).await
}

async fn hold(
    State(site): State<Arc<PhotoSite>>,
    Extension(PhotoVisit(visit)): Extension<PhotoVisit>,
    request: Request,
    next: Next,
) -> Response {
    site.hold(request.uri().path(), visit).await;
    next.run(request).await
}

async fn photo(State(site): State<Arc<PhotoSite>>, Path(n): Path<u64>, headers: HeaderMap) -> Response {
    let photo = site.photo(n);
    let asked = headers.get(RANGE).and_then(|range| bodies::part(range.to_str().ok()?, photo.len()));
    match asked {
        None => photo.into_response(),
        Some(part) => {
            let range = format!("bytes {}-{}/{}", part.start, part.end - 1, photo.len());
            (StatusCode::PARTIAL_CONTENT, [(CONTENT_RANGE, range)], photo.slice(part)).into_response()
        }
    }
}

async fn corrupt(State(site): State<Arc<PhotoSite>>, Path(n): Path<u64>) -> Vec<u8> {
    bodies::corrupt(&site.photo(n))
}

async fn bomb(State(site): State<Arc<PhotoSite>>, Path(n): Path<u64>) -> Bytes {
    site.bomb(n)
}

async fn flaky(
    State(site): State<Arc<PhotoSite>>,
    Extension(PhotoVisit(visit)): Extension<PhotoVisit>,
    Path((n, times)): Path<(u64, u64)>,
) -> Result<Bytes, StatusCode> {
    if visit < times { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok(site.photo(n)) }
}

/// Sends the photo's bytes in successive pieces.
async fn slow(State(site): State<Arc<PhotoSite>>, Path(n): Path<u64>) -> impl IntoResponse {
    let photo = site.photo(n);
    let length = photo.len();
    let piece = length.div_ceil(DRIPS).max(1);
    let pause = site.options().drip / DRIPS as u32;
    let drip = stream::unfold(photo, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let drop = left.split_to(piece.min(left.len()));
        Some((Ok::<_, Infallible>(drop), left))
    });
    ([(CONTENT_LENGTH, length)], Body::from_stream(drip))
}

/// Sends the beginning of a JPEG, and goes on until the client stops.
async fn huge(State(site): State<Arc<PhotoSite>>) -> Body {
    let zeros = stream::repeat(Bytes::from_static(&[0; CHUNK]));
    let jpeg = stream::iter([site.bomb(1)]);
    Body::from_stream(jpeg.chain(zeros).map(Ok::<_, Infallible>))
}

/// Sends no answer until the client disconnects or the server stops.
async fn stall() -> StatusCode {
    future::pending().await
}

async fn callback(State(site): State<Arc<PhotoSite>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    site.hold_callback(id).await;
    site.callbacks().take(&headers, body)
}
