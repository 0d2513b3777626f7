use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::Output;
use crate::memory_budget::MemoryShare;

/// The work on images, such as embedding them. The worker handles queues, downloads, batches, retries, callbacks and
/// metrics.
pub trait Task: Send + Sync + 'static {
    /// A prepared image.
    type Prepared: Send + 'static;
    /// The state of one processing thread: [`InTurn`] if the work on a batch is one function.
    type Lane: TaskLane<Prepared = Self::Prepared>;

    /// Returns the output of a file that needs no work, such as one that a cache knows. It is not prepared then.
    fn known(&self, received: &Received<'_>) -> Option<Output> {
        let _ = received;
        None
    }

    /// Prepares an image, on the CPU. Several threads call it at once.
    ///
    /// # Errors
    /// [`TaskError`], about this image. A panic counts as a permanent error.
    fn prepare(&self, received: Received<'_>) -> Result<Self::Prepared, TaskError>;

    /// Returns true if the task takes texts, too.
    fn takes_texts(&self) -> bool {
        false
    }

    /// Prepares a text, as [`Self::prepare`] does an image. Called only if the task takes texts.
    ///
    /// # Errors
    /// [`TaskError`], about this text.
    fn prepare_text(&self, text: &str) -> Result<Self::Prepared, TaskError> {
        let _ = text;
        Err(TaskError::image("this task takes no texts"))
    }

    /// Returns one more lane, or `None` if there are no more. The engine asks for [`Batching::lanes`] lanes.
    fn lane(self: Arc<Self>) -> Option<Self::Lane>;
}

/// Batches under way on one thread. They are collected in the order of their submission.
pub trait TaskLane: Send + 'static {
    /// A prepared image.
    type Prepared: Send + 'static;

    /// Most batches under way at once, at least 1.
    fn depth(&self) -> usize;

    /// Starts a batch of at least one and at most [`Batching::max`] images.
    ///
    /// # Errors
    /// [`TaskError`], about the whole batch. An error or a panic also loses the other batches under way. The engine
    /// then calls [`Self::abandon`] and retries each image of all of them once, alone.
    fn submit(&mut self, batch: &[Self::Prepared]) -> Result<(), TaskError>;

    /// Waits for the oldest batch, and returns the result of each of its images, in order.
    ///
    /// # Errors
    /// As [`Self::submit`]. A wrong number of results counts as an error, too.
    fn collect(&mut self) -> Result<Vec<Result<Output, TaskError>>, TaskError>;

    /// Abandons the batches under way, so that the lane can be used again.
    fn abandon(&mut self);
}

/// A lane that processes each batch with one function, as soon as it is submitted.
pub struct InTurn<P> {
    process: Box<Process<P>>,
    outputs: Vec<Output>,
}

type Process<P> = dyn FnMut(&[P]) -> Result<Vec<Output>, TaskError> + Send;

impl<P> InTurn<P> {
    /// `process` returns one output per image, in order, or an error about the whole batch. The engine then retries
    /// each of the batch's images once, alone, as it does after a panic or a wrong number of outputs.
    pub fn new(process: impl FnMut(&[P]) -> Result<Vec<Output>, TaskError> + Send + 'static) -> Self {
        Self { process: Box::new(process), outputs: Vec::new() }
    }
}

impl<P: Send + 'static> TaskLane for InTurn<P> {
    type Prepared = P;

    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self, batch: &[P]) -> Result<(), TaskError> {
        self.outputs = (self.process)(batch)?;
        Ok(())
    }

    fn collect(&mut self) -> Result<Vec<Result<Output, TaskError>>, TaskError> {
        Ok(self.outputs.drain(..).map(Ok).collect())
    }

    fn abandon(&mut self) {
        self.outputs.clear();
    }
}

/// A downloaded or uploaded image, and its job's data.
pub struct Received<'a> {
    /// The job's id.
    pub id: &'a str,
    /// The file, unvalidated; at most as large as the worker allows.
    pub file: File,
    /// The job's own JSON, if any.
    pub metadata: Option<&'a str>,
}

/// A file in memory. A downloaded file counts against the engine's byte limit until it is dropped.
pub struct File {
    pub(crate) bytes: Vec<u8>,
    pub(crate) share: Option<MemoryShare>,
}

impl File {
    /// A file, with its share of the byte limit if it was downloaded.
    pub(crate) fn new(bytes: Vec<u8>, share: Option<MemoryShare>) -> Self {
        Self { bytes, share }
    }
}

impl Deref for File {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The reason why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TaskError {
    /// The stage within the task (`decode`, `resize`), if it is more precise than `preprocess` or `process`.
    pub stage: Option<&'static str>,
    /// The reason in one line.
    pub reason: String,
    /// True if a retry may succeed.
    pub transient: bool,
}

impl TaskError {
    /// An error of the image, which every retry would repeat.
    pub fn image(reason: impl Into<String>) -> Self {
        Self { stage: None, reason: reason.into(), transient: false }
    }

    /// An error of the machine: a retry, perhaps on another machine, may succeed.
    pub fn machine(reason: impl Into<String>) -> Self {
        Self { stage: None, reason: reason.into(), transient: true }
    }

    /// Names the stage within the task.
    #[must_use]
    pub fn at(self, stage: &'static str) -> Self {
        Self { stage: Some(stage), ..self }
    }
}

/// The size and the delay of dynamic batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Most images in a batch, at least 1.
    pub max: usize,
    /// The longest wait of a batch's first image for more.
    pub delay: Duration,
    /// Threads that process batches, each with its own lane.
    pub lanes: usize,
}

impl Default for Batching {
    /// 32 images, 10 ms, one lane.
    fn default() -> Self {
        Self { max: 32, delay: Duration::from_millis(10), lanes: 1 }
    }
}
