use std::time::Duration;

use crate::Output;

/// The work on images, such as embedding them. A task has two methods; the worker handles queues, downloads, batches,
/// retries, callbacks and metrics.
///
/// A task with several batches under way on a device implements [`LanedTask`](crate::LanedTask) instead.
pub trait Task: Send + Sync + 'static {
    /// A prepared image.
    type Prepared: Send + 'static;

    /// Prepares an image, on the CPU. Several threads call it at once.
    ///
    /// # Errors
    /// [`TaskError`], about this image. A panic counts as a permanent error.
    fn preprocess(&self, picture: &Picture<'_>) -> Result<Self::Prepared, TaskError>;

    /// Processes a batch of at least one and at most [`Batching::max`] images. Returns one output per image, in order.
    ///
    /// # Errors
    /// [`TaskError`], about the whole batch. The engine then retries each of its images once, alone, as it does after a
    /// panic or a wrong number of outputs.
    fn process(&self, batch: &[Self::Prepared]) -> Result<Vec<Output>, TaskError>;
}

/// A downloaded or uploaded image, and its job's data.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The job's id.
    pub id: &'a str,
    /// The file's bytes, unvalidated; at most as many as the worker allows.
    pub bytes: &'a [u8],
    /// The job's own JSON, if any.
    pub metadata: Option<&'a str>,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TaskError {
    /// The stage within the task (`decode`, `resize`), if it is more precise than `preprocess` or `process`.
    pub stage: Option<&'static str>,
    /// The reason in one line.
    pub reason: String,
    /// Whether a retry may succeed.
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
    /// How long the first image of a batch waits for more.
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
