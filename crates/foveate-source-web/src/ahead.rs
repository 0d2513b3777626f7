//! Files and parts of files in the order in which they are asked for, many requests at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use foveate_net::DownloadRoom;
use foveate_source::FetchError;
use foveate_source::store::{Object, ReadAhead, Version};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::site::WebSites;

/// Files that may wait for a request or to be taken.
const MOST_ASKED: usize = 4096;

/// Bytes read, their version, and the memory that was admitted for them.
type AheadAnswer = (Result<(Bytes, Version), FetchError>, u64);

/// A file or a part of it that is to be read.
struct AheadJob {
    number: u64,
    object: Object,
    part: Option<Range<u64>>,
    reply: oneshot::Sender<AheadAnswer>,
}

/// The memory of files that were read ahead.
#[derive(Default)]
struct AheadMemory {
    used: u64,
    /// The number of the file to be taken next, which gets memory in any case.
    turn: u64,
}

/// The consumer's side.
pub(crate) struct WebAhead {
    web: Arc<WebSites>,
    jobs: UnboundedSender<AheadJob>,
    memory: Arc<watch::Sender<AheadMemory>>,
    reading: AbortHandle,
    waiting: VecDeque<oneshot::Receiver<AheadAnswer>>,
    number: u64,
}

impl WebAhead {
    pub(crate) fn new(web: &Arc<WebSites>, most_requests: usize) -> Self {
        let (jobs, asked) = unbounded_channel();
        let memory = Arc::new(watch::Sender::default());
        let reader = AheadReader { web: Arc::clone(web), memory: Arc::clone(&memory) };
        let reading = web.runtime().spawn(reader.read_all(asked, most_requests)).abort_handle();
        Self { web: Arc::clone(web), jobs, memory, reading, waiting: VecDeque::new(), number: 0 }
    }

    /// Begins to read a file, or a part of it.
    pub(crate) fn begin(&mut self, object: Object, part: Option<Range<u64>>) {
        let (reply, answer) = oneshot::channel();
        self.waiting.push_back(answer);
        // Without a reader, taking the answer says so.
        let _ = self.jobs.send(AheadJob { number: self.number, object, part, reply });
        self.number += 1;
    }
}

impl ReadAhead for WebAhead {
    fn has_room(&self) -> bool {
        self.waiting.len() < MOST_ASKED
    }

    fn ask(&mut self, object: Object) {
        self.begin(object, None);
    }

    fn take(&mut self) -> Result<(Bytes, Version), FetchError> {
        let answer = self.waiting.pop_front().and_then(|answer| self.web.runtime().block_on(answer).ok());
        let Some((read, held)) = answer else {
            return Err(FetchError::Unreachable("reading from the web stopped".to_owned()));
        };
        self.memory.send_modify(|memory| {
            memory.used -= held;
            memory.turn += 1;
        });
        read
    }
}

impl Drop for WebAhead {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// The side of the requests.
#[derive(Clone)]
struct AheadReader {
    web: Arc<WebSites>,
    memory: Arc<watch::Sender<AheadMemory>>,
}

impl AheadReader {
    /// Reads files in the order of their numbers: the one whose turn it is must not wait for a place.
    async fn read_all(self, mut asked: UnboundedReceiver<AheadJob>, most_requests: usize) {
        let places = Arc::new(Semaphore::new(most_requests));
        let mut reading = JoinSet::new();
        while let Some(job) = asked.recv().await {
            let place = Arc::clone(&places).acquire_owned().await;
            let reader = self.clone();
            reading.spawn(async move {
                let mut room = AheadRoom {
                    memory: reader.memory,
                    number: job.number,
                    limit: reader.web.read_ahead_bytes,
                    held: 0,
                };
                let read = read(&reader.web, &job.object, job.part, &mut room).await;
                drop(place);
                // The consumer may be gone.
                let _ = job.reply.send((read, room.held));
            });
            while reading.try_join_next().is_some() {}
        }
    }
}

async fn read(
    web: &WebSites,
    Object { address, version }: &Object,
    part: Option<Range<u64>>,
    room: &mut AheadRoom,
) -> Result<(Bytes, Version), FetchError> {
    let mut bytes = Vec::new();
    let version = match part {
        Some(part) => web.part(address, version, part, &mut bytes).await,
        None => web.get(address, version, room, &mut bytes).await,
    }?;
    Ok((bytes.into(), version))
}

/// The memory of one file.
struct AheadRoom {
    memory: Arc<watch::Sender<AheadMemory>>,
    number: u64,
    /// Most bytes of all files.
    limit: u64,
    held: u64,
}

impl DownloadRoom for AheadRoom {
    async fn grow(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.held);
        let mut changes = self.memory.subscribe();
        loop {
            let taken = self.memory.send_if_modified(|memory| {
                let fits = self.number <= memory.turn || memory.used + more <= self.limit;
                memory.used += if fits { more } else { 0 };
                fits
            });
            if taken {
                self.held += more;
                return true;
            }
            if changes.changed().await.is_err() {
                return false;
            }
        }
    }
}
