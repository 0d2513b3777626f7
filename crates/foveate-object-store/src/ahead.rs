//! Whole objects in the order in which they are asked for, many requests at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foveate_source::FetchError;
use foveate_source::store::{Object, ReadAhead, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::core::Core;
use crate::errors::ReadFailure;
use crate::read::Course;

/// Objects that may wait for a request or to be taken.
const MOST_ASKED: usize = 4096;

/// Memory is counted in these.
const UNIT: u64 = 1024;

/// Memory for an object whose length is not known before the answer.
const UNKNOWN: u64 = 1 << 20;

/// Bytes read with their version, and the memory that they take.
type Answer = (Result<(Bytes, Version), FetchError>, Option<OwnedSemaphorePermit>);

struct AskedObject {
    number: u64,
    object: Object,
    reply: oneshot::Sender<Answer>,
}

/// The consumer's side.
pub(crate) struct ObjectsAhead {
    asked: mpsc::UnboundedSender<AskedObject>,
    waiting: VecDeque<oneshot::Receiver<Answer>>,
    number: u64,
    /// The number of the object to be taken next.
    turn: watch::Sender<u64>,
    reading: AbortHandle,
}

impl ObjectsAhead {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let (asked, asks) = mpsc::unbounded_channel();
        let (turn, turns) = watch::channel(0);
        let total = u32::try_from(core.options.read_ahead_bytes / UNIT).unwrap_or(u32::MAX).max(1);
        let reading = ReadLoop {
            core: Arc::clone(core),
            slots: Arc::new(Semaphore::new(core.options.requests)),
            memory: Arc::new(Semaphore::new(total as usize)),
            total,
            turns,
        };
        let reading = core.spawn(reading.run(asks)).abort_handle();
        Self { asked, waiting: VecDeque::new(), number: 0, turn, reading }
    }
}

impl ReadAhead for ObjectsAhead {
    fn has_room(&self) -> bool {
        self.waiting.len() < MOST_ASKED
    }

    fn ask(&mut self, object: Object) {
        let (reply, answer) = oneshot::channel();
        // Without a reader, the reply is dropped, and taking it says so.
        let _ = self.asked.send(AskedObject { number: self.number, object, reply });
        self.number += 1;
        self.waiting.push_back(answer);
    }

    fn take(&mut self) -> Result<(Bytes, Version), FetchError> {
        let answer = self.waiting.pop_front().and_then(|answer| answer.blocking_recv().ok());
        let stopped = "reading from the store stopped";
        let (bytes, memory) = answer.ok_or_else(|| FetchError::Unreachable(stopped.to_owned()))?;
        drop(memory);
        self.turn.send_modify(|turn| *turn += 1);
        bytes
    }
}

impl Drop for ObjectsAhead {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// The store's side.
struct ReadLoop {
    core: Arc<Core>,
    slots: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    total: u32,
    turns: watch::Receiver<u64>,
}

impl ReadLoop {
    async fn run(self, mut asks: mpsc::UnboundedReceiver<AskedObject>) {
        let mut flights = JoinSet::new();
        while let Some(asked) = asks.recv().await {
            let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
            // In order, so that the object to be taken next never lacks memory that later ones hold.
            let units = self.units(asked.object.version.len.unwrap_or(UNKNOWN));
            let memory = Arc::clone(&self.memory).acquire_many_owned(units).await.ok();
            let flight = ObjectRead {
                core: Arc::clone(&self.core),
                memory: Arc::clone(&self.memory),
                total: self.total,
                turns: self.turns.clone(),
                number: asked.number,
                held: memory,
                may_exceed: false,
            };
            flights.spawn(flight.run(asked.object, slot, asked.reply));
            while flights.try_join_next().is_some() {}
        }
    }

    fn units(&self, bytes: u64) -> u32 {
        units(bytes, self.total)
    }
}

/// One object on its way.
struct ObjectRead {
    core: Arc<Core>,
    memory: Arc<Semaphore>,
    total: u32,
    turns: watch::Receiver<u64>,
    number: u64,
    held: Option<OwnedSemaphorePermit>,
    /// The object is the next to be taken, so it is read however large it is.
    may_exceed: bool,
}

impl ObjectRead {
    async fn run(mut self, object: Object, slot: Option<OwnedSemaphorePermit>, reply: oneshot::Sender<Answer>) {
        let read = self.read(&object).await;
        drop(slot);
        // The consumer may be gone.
        let _ = reply.send((read, self.held));
    }

    async fn read(&mut self, object: &Object) -> Result<(Bytes, Version), FetchError> {
        let mut target = self.core.target(object).await?;
        loop {
            match target.whole(self).await {
                Err(ReadFailure::NoRoom) => {
                    let number = self.number;
                    // An error means that the reader is gone.
                    let _ = self.turns.wait_for(|turn| *turn >= number).await;
                    self.may_exceed = true;
                }
                Err(failure) => return Err(failure.into_error(&target.name)),
                Ok(bytes) => return Ok((bytes.into(), target.version)),
            }
        }
    }
}

impl Course for ObjectRead {
    fn has_room(&mut self, bytes: u64) -> bool {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u32;
        let more = units(bytes, self.total).saturating_sub(held);
        match Arc::clone(&self.memory).try_acquire_many_owned(more) {
            Ok(more) => {
                match &mut self.held {
                    Some(held) => held.merge(more),
                    None => self.held = Some(more),
                }
                true
            }
            Err(_) => self.may_exceed,
        }
    }
}

fn units(bytes: u64, total: u32) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, total)
}
