//! The configuration of the embeddings API.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foveate_worker::{Engine, Setting, Traces};

use crate::cors::Origin;
use crate::error::ServeError;
use crate::limits::MAX_INPUTS;

const A_DAY: Duration = Duration::from_hours(24);

/// Vectors of the API's model that `POST /v1/similar` searches, each with an id. Rows are numbered from 0.
pub trait Index: Send + Sync {
    /// Number of vectors.
    fn rows(&self) -> usize;

    /// Numbers of a vector.
    fn dim(&self) -> usize;

    /// The columns that a filter may name.
    fn columns(&self) -> &[String];

    /// The id of a row.
    fn id(&self, row: u32) -> &str;

    /// The vector of a row, `[dim]`.
    fn vector(&self, row: u32) -> &[f32];

    /// Finds the row with an id. The error is what the client is told.
    fn row(&self, id: &str) -> Result<u32, String>;

    /// Finds the `k` rows that are most like each query, among those that pass the filter: rows with their scores, best
    /// first. The filter has known columns only. The error is what the client is told. A request reserves 16 bytes for
    /// each query, result and core.
    fn nearest(&self, queries: &[&[f32]], k: usize, filter: &IndexFilter) -> Result<Vec<Vec<(u32, f64)>>, String>;
}

/// Columns, each with the values of which a row must have one; `None` is no value.
pub type IndexFilter = BTreeMap<String, Vec<Option<String>>>;

/// Reads an index. The error is what the client is told.
pub type ReadIndex = Arc<dyn Fn() -> Result<Arc<dyn Index>, String> + Send + Sync>;

/// An index, and how it is read again.
#[derive(Clone)]
pub struct IndexSource {
    /// The index until it is read again.
    pub first: Arc<dyn Index>,
    /// Reads it again.
    pub read: ReadIndex,
}

/// The embeddings API: its engine and its limits.
#[derive(Clone)]
pub struct Api {
    /// Processes the images. The server does not stop it.
    pub engine: Arc<Engine>,
    /// The model's names; at least one. Requests may name any of them, answers name the first.
    pub models: Vec<String>,
    /// The vectors' width, which requests may name as `dimensions`. `None` refuses the field.
    pub dimensions: Option<usize>,
    /// True if the vectors have length 1 already. Requests may ask for that (`normalize`), but not for the contrary.
    pub normalized: bool,
    /// The index that `POST /v1/similar` searches, and `POST /v1/index/reload` reads again; without it, there are no
    /// such addresses.
    pub index: Option<IndexSource>,
    /// API keys, each `KEY` or `NAME KEY`; the log names the key of each request. Clients send one of them
    /// (`Authorization: Bearer …`). Without keys, every client is served.
    pub tokens: Vec<String>,
    /// Origins of web pages whose scripts may send requests (CORS). Without any, browsers refuse such pages.
    pub cors: Vec<Origin>,
    /// True if fields that this API does not know are refused. Otherwise they are ignored, and named in the answer's
    /// header `Foveate-Ignored-Fields`.
    pub strict_requests: bool,
    /// Most images and texts of a request; at most the engine's limit, and at most 4 096.
    pub max_images: usize,
    /// Most bytes of a request's body.
    pub max_body_bytes: u64,
    /// Most bytes of all requests together, bodies, images and results; at least three times [`Api::max_body_bytes`].
    pub max_bytes_in_hand: u64,
    /// Longest time to receive a body.
    pub read_timeout: Duration,
    /// Longest time of a request after its body has arrived.
    pub timeout: Duration,
    /// Names the setting of the program that allows a refused image, for problems' remedies.
    pub remedy: fn(Setting) -> Option<&'static str>,
    /// Connects requests to the traces that their `traceparent` headers name.
    pub traces: Traces,
}

impl Api {
    /// The default limits, which are those of `foveate serve`, without keys: 64 images and 32 MB per
    /// request, 256 MiB for all requests, 30 seconds for a body and 60 for the rest of a request.
    pub fn new(engine: Arc<Engine>, model: impl Into<String>) -> Self {
        Self {
            max_images: engine.max_in_flight().min(64),
            engine,
            models: vec![model.into()],
            dimensions: None,
            normalized: false,
            index: None,
            tokens: Vec::new(),
            cors: Vec::new(),
            strict_requests: false,
            max_body_bytes: 32_000_000,
            max_bytes_in_hand: 256 << 20,
            read_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(60),
            remedy: |_| None,
            traces: Traces::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ServeError> {
        let room = self.engine.max_in_flight().min(MAX_INPUTS);
        let longest = self.timeout.max(self.read_timeout);
        let problem = if self.max_images == 0 || self.max_images > room {
            let remedy = "change max_images, or the engine's max_in_flight";
            format!("{} images in a request: there is room for 1 to {room}; {remedy}", self.max_images)
        } else if self.max_body_bytes == 0 || self.max_body_bytes > self.max_bytes_in_hand / 3 {
            // A request needs its body, as much again while it is parsed, and its images.
            format!(
                "bodies of {} bytes need three times as many in hand, and there may be {}",
                self.max_body_bytes, self.max_bytes_in_hand
            )
        } else if self.models.is_empty() {
            "a model without a name".to_owned()
        } else if longest > A_DAY {
            format!("a time limit of {} s; at most a day", longest.as_secs())
        } else {
            return Ok(());
        };
        Err(ServeError::Options(problem))
    }
}

impl fmt::Debug for Api {
    /// Leaves out the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("engine", &self.engine).field("models", &self.models).finish_non_exhaustive()
    }
}
