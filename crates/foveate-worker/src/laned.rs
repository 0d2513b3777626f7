use std::ops::Deref;
use std::sync::Arc;

use crate::limits::Share;
use crate::{Output, Picture, Task, TaskError};

/// A task whose batches are submitted, and collected later, so that several are under way: for work that a device does
/// beside the host, as the encoder of [`Embed`](crate::Embed). A task that is a plain function is a [`Task`], which is one
/// of these by itself.
pub trait LanedTask: Send + Sync + 'static {
    /// An image that is ready to be processed.
    type Prepared: Send + 'static;
    /// What a thread that processes batches has for itself.
    type Lane: TaskLane<Prepared = Self::Prepared>;

    /// Makes an image ready. Called by several threads at once, the CPU's part of the work.
    ///
    /// # Errors
    /// [`TaskError`], about this image. A panic counts as one that trying again does not help.
    fn prepare(&self, received: Received<'_>) -> Result<Self::Prepared, TaskError>;

    /// One more lane; `None` when there are no more. The engine asks for as many as [`Batching::lanes`](crate::Batching).
    fn lane(self: Arc<Self>) -> Option<Self::Lane>;
}

/// Batches under way, on one thread: they are collected in the order in which they were submitted.
pub trait TaskLane: Send + 'static {
    /// An image that is ready to be processed.
    type Prepared: Send + 'static;

    /// Batches that may be under way at once, at least 1.
    fn depth(&self) -> usize;

    /// Begins with a batch, never empty, at most [`Batching::max`](crate::Batching) images.
    ///
    /// # Errors
    /// [`TaskError`], about the whole batch. Those under way are lost with it: each image of all of them is tried once more,
    /// alone, after [`Self::abandon`]. So it is after a panic.
    fn submit(&mut self, batch: &[Self::Prepared]) -> Result<(), TaskError>;

    /// Waits for the batch that was submitted first, and answers for each of its images, in its order.
    ///
    /// # Errors
    /// As [`Self::submit`]. Another number of answers than images counts as one, too.
    fn collect(&mut self) -> Result<Vec<Result<Output, TaskError>>, TaskError>;

    /// Gives up what is under way, so that the lane can be used again.
    fn abandon(&mut self);
}

/// An image as it was downloaded or sent, and what its job says of it.
pub struct Received<'a> {
    /// The job's id.
    pub id: &'a str,
    /// The file.
    pub file: File,
    /// The job's own JSON, if it has any.
    pub metadata: Option<&'a str>,
}

impl Received<'_> {
    /// The same, to look at.
    pub fn picture(&self) -> Picture<'_> {
        Picture { id: self.id, bytes: &self.file, metadata: self.metadata }
    }
}

/// A file in memory. What was downloaded counts against the engine's limit of bytes for as long as its file exists.
pub struct File {
    bytes: Vec<u8>,
    share: Option<Share>,
}

impl File {
    /// One with its share of the limit, if it was downloaded.
    pub(crate) fn new(bytes: Vec<u8>, share: Option<Share>) -> Self {
        Self { bytes, share }
    }

    pub(crate) fn is_downloaded(&self) -> bool {
        self.share.is_some()
    }
}

impl Deref for File {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The lane of a [`Task`]: a batch is processed when it is submitted.
pub struct InTurn<T: Task> {
    task: Arc<T>,
    outputs: Vec<Output>,
}

impl<T: Task> LanedTask for T {
    type Prepared = T::Prepared;
    type Lane = InTurn<T>;

    fn prepare(&self, received: Received<'_>) -> Result<T::Prepared, TaskError> {
        self.preprocess(&received.picture())
    }

    fn lane(self: Arc<Self>) -> Option<InTurn<T>> {
        Some(InTurn { task: self, outputs: Vec::new() })
    }
}

impl<T: Task> TaskLane for InTurn<T> {
    type Prepared = T::Prepared;

    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self, batch: &[T::Prepared]) -> Result<(), TaskError> {
        self.outputs = self.task.process(batch)?;
        Ok(())
    }

    fn collect(&mut self) -> Result<Vec<Result<Output, TaskError>>, TaskError> {
        Ok(self.outputs.drain(..).map(Ok).collect())
    }

    fn abandon(&mut self) {
        self.outputs.clear();
    }
}
