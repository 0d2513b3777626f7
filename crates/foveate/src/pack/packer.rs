//! The threads of a job, and the order of its images.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use foveate_core::Stage;
use foveate_model::OpenOptions;
use foveate_pipeline::{Cancel, Progress, Queue, RunError, check_storage};
use foveate_sink::{Failure, OutputManifest, SinkError, StoredRun, Watermark};
use foveate_source::{Content, Item, Source};

use super::drift;
use super::options::{PackError, PackOptions};
use super::shards::Shards;
use super::shrink::Shrink;
use super::work::{Outcome, Worker};
use crate::collect::Sample;
use crate::embed::Backends;

/// A job that has not begun, or has come to its end before.
pub enum Begun {
    /// The shards are complete.
    Complete(Box<OutputManifest>),
    /// There are images to pack.
    Pack(Box<Packer>),
}

/// Writes shards.
pub struct Packer {
    options: PackOptions,
    shards: Shards,
    shrink: Option<Shrink>,
    /// The latest inputs with their places, if none of them could be read. They are failures once a later one can be.
    streak: Vec<(Failure, u64)>,
    /// Those of them that were tried. The others are failures of the listing, which tell nothing of the storage.
    tried: u64,
}

impl PackOptions {
    /// Looks at the output's folder: the job begins there, continues, or is complete. `source` is that of
    /// [`Settings::list`](crate::embed::Settings::list). Loads the model if photos are resized.
    ///
    /// # Errors
    /// If the folder holds another job's output, another process writes there, or the model cannot be opened.
    pub fn begin(
        self,
        source: &dyn Source,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<Begun, PackError> {
        self.check()?;
        let mut fingerprint = self.fingerprint(source);
        let shrink = self.resize.map(|resize| self.shrink(resize, backends, model, &mut fingerprint)).transpose()?;
        match Shards::begin(&self, fingerprint, self.job.existing) {
            Err(error @ SinkError::AlreadyComplete(_)) => {
                let complete = StoredRun::packed(&self.job.output).map_err(RunError::from)?;
                let complete = complete.map(|shards| Begun::Complete(Box::new(shards.manifest)));
                complete.ok_or_else(|| RunError::from(error).into())
            }
            Err(error) => Err(RunError::from(error).into()),
            Ok(shards) => {
                Ok(Begun::Pack(Box::new(Packer { options: self, shards, shrink, streak: Vec::new(), tried: 0 })))
            }
        }
    }
}

/// An image on its way to a worker, which answers with its outcome.
struct Job {
    item: Item,
    content: Content,
    reply: SyncSender<Outcome>,
}

/// Ends the workers however the packing ends.
struct Ends<'a>(&'a Queue<Job>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Packer {
    /// Packs the images that earlier sessions left. Returns false if it was cancelled before the end. `progress` counts
    /// images as rows. At most two images for each thread are in memory, besides those that the source reads ahead.
    ///
    /// # Errors
    /// [`RunError`]. The same job continues after the last complete shard.
    pub fn run(&mut self, source: &mut dyn Source, cancel: &Cancel, progress: &Progress) -> Result<bool, PackError> {
        let Watermark { index, place } = self.shards.settled();
        if index > source.extent().start {
            source.seek(index, place).map_err(RunError::from)?;
        }
        progress.first.store(index.max(source.extent().start), Relaxed);
        let threads = self.options.workers.max(1);
        let queue = Queue::new("pack", 2 * threads, u64::MAX, None);
        let workers =
            (0..threads).map(|_| Worker::open(source, self.shrink.as_ref())).collect::<Result<Vec<_>, RunError>>()?;
        let complete = thread::scope(|scope| {
            let _ends = Ends(&queue);
            for (number, mut worker) in workers.into_iter().enumerate() {
                let name = format!("preprocess {number}");
                let queue = &queue;
                let spawned = thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || {
                    while let Some(Job { item, content, reply }) = queue.pop() {
                        // The receiver is gone after an error.
                        let _ = reply.send(worker.outcome(&item, content));
                    }
                });
                spawned.map_err(|source| RunError::Thread { name, source })?;
            }
            let is_over = self.feed(source, &queue, 2 * threads, cancel, progress)?;
            let Some((first, _)) = self.streak.first().filter(|_| is_over && self.options.job.max_unreadable.is_some())
            else {
                return Ok(is_over);
            };
            check_storage(source, self.streak.len() as u64, first)?;
            self.streak.clear();
            self.tried = 0;
            let Watermark { index, place } = self.shards.settled();
            source.seek(index, place)?;
            self.feed(source, &queue, 2 * threads, cancel, progress)
        })?;
        if complete {
            self.end_streak(progress)?;
            self.shards.close().map_err(RunError::from)?;
        }
        Ok(complete)
    }

    /// Embeds a sample of the inputs as they are and as they are packed, and notes the cosines for the manifest.
    ///
    /// # Errors
    /// [`PackError::Drift`]. Images that fail are left out.
    pub fn measure_drift(
        &mut self,
        sample: Sample,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
        cancel: &Cancel,
    ) -> Result<(), PackError> {
        let worker = Worker::open(&sample, self.shrink.as_ref())?;
        self.shards.drift(drift::measure(sample, worker, &self.options.job, backends, model, cancel)?);
        Ok(())
    }

    /// Publishes shards, failures and manifest, after [`Self::run`] came to the end. Returns also what could not be
    /// removed of the work in progress.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn finish(self) -> Result<(OutputManifest, Option<String>), PackError> {
        Ok(self.shards.finish().map_err(RunError::from)?)
    }

    /// Hands items to the workers and takes their outcomes, in the source's order.
    fn feed(
        &mut self,
        source: &mut dyn Source,
        queue: &Queue<Job>,
        most: usize,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<bool, RunError> {
        let mut under_way: VecDeque<(Item, Receiver<Outcome>)> = VecDeque::new();
        let mut is_over = false;
        loop {
            while !is_over && under_way.len() < most && !cancel.is_cancelled() {
                let Some(delivery) = source.deliver()? else {
                    is_over = true;
                    break;
                };
                let (reply, outcome) = sync_channel(1);
                under_way.push_back((delivery.item.clone(), outcome));
                let job = Job { item: delivery.item, content: delivery.content, reply };
                // Only this thread closes the queue.
                let _ = queue.push(job, 0);
            }
            let Some((item, outcome)) = under_way.pop_front().filter(|_| !cancel.is_cancelled()) else {
                return Ok(is_over && !cancel.is_cancelled());
            };
            let Ok(outcome) = outcome.recv() else {
                return Err(RunError::Panicked { stage: Stage::Read, message: format!("packing {}", item.id) });
            };
            self.settle(&item, outcome, progress)?;
        }
    }

    fn settle(&mut self, item: &Item, outcome: Outcome, progress: &Progress) -> Result<(), RunError> {
        match outcome {
            Outcome::Unreadable(failure) => {
                self.streak.push((failure, item.place));
                self.tried += 1;
                if self.options.job.max_unreadable.is_some_and(|most| self.tried > most) {
                    let first = Box::new(self.streak.swap_remove(0).0);
                    return Err(RunError::Unreadable { count: self.tried, first });
                }
                return Ok(());
            }
            Outcome::Failed(failure) if failure.stage == Stage::List && !self.streak.is_empty() => {
                self.streak.push((failure, item.place));
                return Ok(());
            }
            Outcome::Stopped(error) => return Err(error),
            Outcome::Failed(failure) => {
                self.end_streak(progress)?;
                self.shards.fail(&failure)?;
                progress.failures.fetch_add(1, Relaxed);
            }
            Outcome::Photo { bytes, extension } => {
                self.end_streak(progress)?;
                self.shards.add(item, &bytes, &extension)?;
                progress.rows.fetch_add(1, Relaxed);
                progress.bytes.fetch_add(bytes.len() as u64, Relaxed);
            }
        }
        self.shards.settle(item.index, item.place);
        Ok(())
    }

    fn end_streak(&mut self, progress: &Progress) -> Result<(), RunError> {
        self.tried = 0;
        for (failure, place) in std::mem::take(&mut self.streak) {
            self.shards.fail(&failure)?;
            self.shards.settle(failure.index, place);
            progress.failures.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}
