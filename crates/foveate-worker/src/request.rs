use std::fmt;

use foveate_queue::{ImageRef, JobInput};

use crate::{Failure, Outcome, Stage};

/// One image or text to process, and the callback for its outcome.
#[derive(Debug)]
pub struct Request {
    /// The id for logs, spans and the task.
    pub id: String,
    /// The name of a task.
    pub task: String,
    /// The image or the text.
    pub image: Image,
    /// The caller's own JSON, for the task.
    pub metadata: Option<String>,
    /// Receives the outcome.
    pub done: Done,
    /// The parent of the request's spans.
    pub span: tracing::Span,
}

/// The image's address or bytes, or the text that takes its place.
#[derive(Clone, PartialEq, Eq)]
pub enum Image {
    /// The image's address.
    At(ImageRef),
    /// The image's bytes.
    Bytes(Vec<u8>),
    /// A text, for tasks that take texts.
    Text(String),
}

impl From<JobInput> for Image {
    fn from(input: JobInput) -> Self {
        match input {
            JobInput::Image(reference) => Self::At(reference),
            JobInput::Text(text) => Self::Text(text),
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(reference) => reference.fmt(f),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Text(text) => write!(f, "a text of {} bytes", text.len()),
        }
    }
}

/// Calls back with the outcome exactly once. Dropping it, even by a panic, reports a failure.
pub struct Done {
    tell: Option<Box<dyn FnOnce(Outcome) + Send>>,
    wanted: Option<Box<dyn Fn() -> bool + Send>>,
    decoding: Option<Box<dyn Fn(bool) + Send>>,
}

impl Done {
    /// Calls `tell` with the outcome on one of the engine's threads; `tell` must return quickly.
    pub fn new(tell: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self { tell: Some(Box::new(tell)), wanted: None, decoding: None }
    }

    /// Each stage calls `wanted` before it begins, and skips the request if it returns false.
    #[must_use]
    pub fn while_wanted(mut self, wanted: impl Fn() -> bool + Send + 'static) -> Self {
        self.wanted = Some(Box::new(wanted));
        self
    }

    /// Calls `note(true)` before the image comes into a decoder, and `note(false)` after it.
    #[must_use]
    pub(crate) fn noting_decoding(mut self, note: impl Fn(bool) + Send + 'static) -> Self {
        self.decoding = Some(Box::new(note));
        self
    }

    /// Tells whether the image is in a decoder.
    pub(crate) fn note_decoding(&self, is_in: bool) {
        self.decoding.iter().for_each(|note| note(is_in));
    }

    /// Returns true if the outcome is still wanted.
    pub fn is_wanted(&self) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted())
    }

    /// Reports the outcome.
    pub fn tell(mut self, outcome: Outcome) {
        if let Some(tell) = self.tell.take() {
            tell(outcome);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(Err(Failure::transient(Stage::Shutdown, "the worker stopped before it was done")));
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").field("wanted", &self.is_wanted()).finish_non_exhaustive()
    }
}

/// A request that the engine did not accept. It is returned, and its outcome was not reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The engine already holds its maximum number of requests; try again later.
    #[error("full: as many requests are under way as there may be")]
    Full(Box<Request>),
    /// The engine is stopping.
    #[error("the worker is stopping")]
    Stopping(Box<Request>),
    /// The task does not exist.
    #[error("there is no task '{}'; there is {known}", request.task)]
    NoTask {
        /// The request.
        request: Box<Request>,
        /// The names of the existing tasks, separated by commas.
        known: String,
    },
}

impl Rejected {
    /// Returns the request.
    pub fn into_request(self) -> Request {
        match self {
            Self::Full(request) | Self::Stopping(request) | Self::NoTask { request, .. } => *request,
        }
    }
}
