use std::ops::Deref;
use std::sync::Arc;

use crate::limits::Share;
use crate::{Output, Picture, Task, TaskError};

/// A task that submits batches and collects them later, so that several are under way on a device, as with the encoder
/// of [`Embed`](crate::Embed). Every [`Task`], which is a plain function, implements this trait.
pub trait LanedTask: Send + Sync + 'static {
    /// A prepared image.
    type Prepared: Send + 'static;
    /// The state of one processing thread.
    type Lane: TaskLane<Prepared = Self::Prepared>;

    /// Prepares an image, on the CPU. Several threads call it at once.
    ///
    /// # Errors
    /// [`TaskError`], about this image. A panic counts as a permanent error.
    fn prepare(&self, received: Received<'_>) -> Result<Self::Prepared, TaskError>;

    /// Returns one more lane, or `None` if there are no more. The engine asks for [`Batching::lanes`](crate::Batching)
    /// lanes.
    fn lane(self: Arc<Self>) -> Option<Self::Lane>;
}

/// Batches under way on one thread. They are collected in the order of their submission.
pub trait TaskLane: Send + 'static {
    /// A prepared image.
    type Prepared: Send + 'static;

    /// Most batches under way at once, at least 1.
    fn depth(&self) -> usize;

    /// Starts a batch of at least one and at most [`Batching::max`](crate::Batching) images.
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

/// A downloaded or uploaded image, and its job's data.
pub struct Received<'a> {
    /// The job's id.
    pub id: &'a str,
    /// The file.
    pub file: File,
    /// The job's own JSON, if any.
    pub metadata: Option<&'a str>,
}

impl Received<'_> {
    /// Borrows the image.
    pub fn picture(&self) -> Picture<'_> {
        Picture { id: self.id, bytes: &self.file, metadata: self.metadata }
    }
}

/// A file in memory. A downloaded file counts against the engine's byte limit until it is dropped.
pub struct File {
    bytes: Vec<u8>,
    share: Option<Share>,
}

impl File {
    /// A file, with its share of the byte limit if it was downloaded.
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

/// The lane of a [`Task`]: processes each batch as soon as it is submitted.
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
