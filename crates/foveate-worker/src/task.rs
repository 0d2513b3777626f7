use std::time::Duration;

use crate::Output;

/// What is done with images: embedding them by a model, or something of your own. The two methods are all that differs
/// from task to task; queues, downloads, batches, retries, callbacks and metrics are the worker's.
///
/// A task that has several batches under way, on a device, is a [`LanedTask`](crate::LanedTask) instead.
pub trait Task: Send + Sync + 'static {
    /// An image that is ready to be processed.
    type Prepared: Send + 'static;

    /// Makes an image ready. Called by several threads at once, the CPU's part of the work.
    ///
    /// # Errors
    /// [`TaskError`], about this image. A panic counts as one that trying again does not help.
    fn preprocess(&self, picture: &Picture<'_>) -> Result<Self::Prepared, TaskError>;

    /// Answers for each image of a batch (never empty, at most [`Batching::max`] images), in its order.
    ///
    /// # Errors
    /// [`TaskError`], about the whole batch: each of its images is then tried once more, alone. So it is after a panic,
    /// or another number of answers than images.
    fn process(&self, batch: &[Self::Prepared]) -> Result<Vec<Output>, TaskError>;
}

/// An image as it was downloaded, and what its job says of it.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The job's id.
    pub id: &'a str,
    /// The file: whatever was at the address, at most as many bytes as the worker allows.
    pub bytes: &'a [u8],
    /// The job's own JSON, if it has any.
    pub metadata: Option<&'a str>,
}

/// Why a task could not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TaskError {
    /// The stage within the task (`decode`, `resize`), where it knows better than `preprocess` or `process`.
    pub stage: Option<&'static str>,
    /// The reason, one line.
    pub reason: String,
    /// Whether trying again later may help.
    pub transient: bool,
}

impl TaskError {
    /// The image is to blame: it will fail whenever it is tried.
    pub fn image(reason: impl Into<String>) -> Self {
        Self { stage: None, reason: reason.into(), transient: false }
    }

    /// The machine is to blame: another try, perhaps elsewhere, may succeed.
    pub fn machine(reason: impl Into<String>) -> Self {
        Self { stage: None, reason: reason.into(), transient: true }
    }

    /// The same, at a stage that is known better.
    #[must_use]
    pub fn at(self, stage: &'static str) -> Self {
        Self { stage: Some(stage), ..self }
    }
}

/// When a batch is full enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Most images in a batch, at least 1.
    pub max: usize,
    /// How long the first image of a batch waits for more.
    pub delay: Duration,
    /// Threads that process batches, each on a lane of its own.
    pub lanes: usize,
}

impl Default for Batching {
    /// 32 images, 10 ms, one lane.
    fn default() -> Self {
        Self { max: 32, delay: Duration::from_millis(10), lanes: 1 }
    }
}
