use std::fmt;

use foveate_queue::ImageRef;

use crate::{Failure, Outcome, Stage};

/// One image to be worked on, and who is told what became of it.
#[derive(Debug)]
pub struct Request {
    /// For logs, spans and the task.
    pub id: String,
    /// The name of a task.
    pub task: String,
    /// The image.
    pub image: Image,
    /// The caller's own JSON, for the task.
    pub metadata: Option<String>,
    /// Is told the outcome.
    pub done: Done,
    /// What is done for this request is noted as part of this span.
    pub span: tracing::Span,
}

/// Where the image is.
#[derive(Clone, PartialEq, Eq)]
pub enum Image {
    /// To be downloaded.
    At(ImageRef),
    /// Here.
    Bytes(Vec<u8>),
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(reference) => reference.fmt(f),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// Is called with the outcome, exactly once: whoever drops it, a thread that panics too, tells a failure.
pub struct Done {
    tell: Option<Box<dyn FnOnce(Outcome) + Send>>,
    wanted: Option<Box<dyn Fn() -> bool + Send>>,
}

impl Done {
    /// Calls `tell` with the outcome, on a thread of the engine that should not be held up: hand it on.
    pub fn new(tell: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self { tell: Some(Box::new(tell)), wanted: None }
    }

    /// Stages ask `wanted` before they begin; work that nobody wants any more is left out.
    #[must_use]
    pub fn while_wanted(mut self, wanted: impl Fn() -> bool + Send + 'static) -> Self {
        self.wanted = Some(Box::new(wanted));
        self
    }

    /// Whether somebody still waits for the outcome.
    pub fn is_wanted(&self) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted())
    }

    /// Tells the outcome.
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

/// A request that was not taken. It is given back: nobody was told anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// As many requests are under way as the engine may hold; try again later.
    #[error("full: as many requests are under way as there may be")]
    Full(Box<Request>),
    /// The engine is being stopped.
    #[error("the worker is stopping")]
    Stopping(Box<Request>),
    /// There is no such task.
    #[error("there is no task '{}'; there is {known}", request.task)]
    NoTask {
        /// What was asked.
        request: Box<Request>,
        /// The tasks there are, separated by commas.
        known: String,
    },
}

impl Rejected {
    /// What was asked.
    pub fn into_request(self) -> Request {
        match self {
            Self::Full(request) | Self::Stopping(request) | Self::NoTask { request, .. } => *request,
        }
    }
}
