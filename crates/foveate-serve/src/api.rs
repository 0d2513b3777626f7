//! What the embeddings API is made of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foveate_queue::JobQueue;
use foveate_worker::{Engine, Traces};

use crate::error::ServeError;
use crate::limits::MAX_INPUTS;

/// Whether results may be posted to an address; an error says why not.
pub type CallbackCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The embeddings API: who does the work, and how much of it one client may ask for.
#[derive(Clone)]
pub struct Api {
    /// Who does the work. The server does not stop it.
    pub engine: Arc<Engine>,
    /// What the model is called.
    pub model: String,
    /// Where requests with a callback go; they are refused without one.
    pub queue: Option<Arc<dyn JobQueue>>,
    /// Is asked about each callback's address, so that a request whose result could not be told is refused at once. It
    /// should refuse what the workers who call back would refuse.
    pub check_callback: Option<CallbackCheck>,
    /// Keys that clients have to send one of (`Authorization: Bearer …`); everybody is served where there are none.
    pub tokens: Vec<String>,
    /// Most images in a request; no more than the engine has under way at once, and no more than 4 096.
    pub max_images: usize,
    /// Most bytes of a request's body.
    pub max_body_bytes: u64,
    /// Most bytes that are in hand of all requests together, bodies and the images in them; at least three times
    /// [`Api::max_body_bytes`].
    pub max_bytes_in_hand: u64,
    /// How long a client may take to send a body.
    pub read_timeout: Duration,
    /// How long a request may take, from when its body is there.
    pub timeout: Duration,
    /// Whose traces requests are part of, by their `traceparent` header; jobs that are queued carry it on.
    pub traces: Traces,
}

impl Api {
    /// Without callbacks and keys: up to 64 images and 64 MiB in a request, 256 MiB in hand, 30 seconds for a body and
    /// as many for an answer.
    pub fn new(engine: Arc<Engine>, model: impl Into<String>) -> Self {
        let half_a_minute = Duration::from_secs(30);
        Self {
            max_images: engine.max_in_flight().min(64),
            engine,
            model: model.into(),
            queue: None,
            check_callback: None,
            tokens: Vec::new(),
            max_body_bytes: 64 << 20,
            max_bytes_in_hand: 256 << 20,
            read_timeout: half_a_minute,
            timeout: half_a_minute,
            traces: Traces::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ServeError> {
        let room = self.engine.max_in_flight().min(MAX_INPUTS);
        let fail = |message: String| Err(ServeError::Options(message));
        match () {
            () if self.max_images == 0 || self.max_images > room => {
                fail(format!("{} images in a request: there is room for 1 to {room}", self.max_images))
            }
            // A body, as much again while it is taken apart, and the images in it: less would be too little for ever.
            () if self.max_body_bytes == 0 || self.max_body_bytes > self.max_bytes_in_hand / 3 => fail(format!(
                "bodies of {} bytes need three times as many in hand, and there may be {}",
                self.max_body_bytes, self.max_bytes_in_hand
            )),
            () if self.tokens.iter().any(String::is_empty) => fail("an API key that is empty".to_owned()),
            () => Ok(()),
        }
    }
}

impl fmt::Debug for Api {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("engine", &self.engine).field("model", &self.model).finish_non_exhaustive()
    }
}
