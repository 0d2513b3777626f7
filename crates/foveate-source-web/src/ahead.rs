//! Files and parts of files in the order in which they are asked for, many requests at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use foveate_core::lock;
use foveate_source::FetchError;
use foveate_source::store::{Object, ReadAhead, Version};

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
    reply: SyncSender<AheadAnswer>,
}

/// The consumer's side. It starts a thread for each request that no idle thread takes, up to a limit.
pub(crate) struct WebAhead {
    desk: Arc<AheadDesk>,
    waiting: VecDeque<Receiver<AheadAnswer>>,
    number: u64,
}

/// The state that the threads share.
struct AheadDesk {
    web: Arc<WebSites>,
    most_threads: usize,
    state: Mutex<AheadState>,
    changed: Condvar,
}

#[derive(Default)]
struct AheadState {
    jobs: VecDeque<AheadJob>,
    threads: usize,
    idle: usize,
    /// Bytes of memory that files hold.
    used: u64,
    /// The number of the file to be taken next, which gets memory in any case.
    turn: u64,
    /// Nobody takes files any more.
    is_over: bool,
}

impl WebAhead {
    pub(crate) fn new(web: &Arc<WebSites>, most_threads: usize) -> Self {
        let desk = AheadDesk { web: Arc::clone(web), most_threads, state: Mutex::default(), changed: Condvar::new() };
        Self { desk: Arc::new(desk), waiting: VecDeque::new(), number: 0 }
    }

    /// Begins to read a file, or a part of it.
    pub(crate) fn begin(&mut self, object: Object, part: Option<Range<u64>>) {
        let (reply, answer) = sync_channel(1);
        self.waiting.push_back(answer);
        let mut state = lock(&self.desk.state);
        state.jobs.push_back(AheadJob { number: self.number, object, part, reply });
        self.number += 1;
        if state.idle < state.jobs.len() && state.threads < self.desk.most_threads {
            let desk = Arc::clone(&self.desk);
            // Without a thread, the others read it; without any, taking it says so.
            if thread::Builder::new().name("web".to_owned()).spawn(move || desk.work()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                state.jobs.clear();
            }
        }
        self.desk.changed.notify_all();
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
        let answer = self.waiting.pop_front().and_then(|answer| answer.recv().ok());
        let Some((read, held)) = answer else {
            return Err(FetchError::Unreachable("reading from the web stopped".to_owned()));
        };
        let mut state = lock(&self.desk.state);
        state.used -= held;
        state.turn += 1;
        self.desk.changed.notify_all();
        read
    }
}

impl Drop for WebAhead {
    fn drop(&mut self) {
        let mut state = lock(&self.desk.state);
        state.is_over = true;
        state.jobs.clear();
        self.desk.changed.notify_all();
    }
}

impl AheadDesk {
    /// Reads files until the reader is gone.
    fn work(&self) {
        loop {
            let mut state = lock(&self.state);
            state.idle += 1;
            let waited = self.changed.wait_while(state, |state| state.jobs.is_empty() && !state.is_over);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            let Some(job) = state.jobs.pop_front() else { return };
            drop(state);
            let mut held = 0;
            let read = self.read(&job, &mut held);
            // The consumer may be gone.
            let _ = job.reply.send((read, held));
        }
    }

    fn read(&self, job: &AheadJob, held: &mut u64) -> Result<(Bytes, Version), FetchError> {
        let Object { address, version } = &job.object;
        let mut bytes = Vec::new();
        let version = match &job.part {
            Some(part) => self.web.part(address, version, part.clone(), &mut bytes),
            None => self.web.get(address, version, &mut |wanted| self.admit(job.number, wanted, held), &mut bytes),
        }?;
        Ok((bytes.into(), version))
    }

    /// Waits for memory for file `number`, which holds `held` bytes. Returns false if the reader is gone.
    fn admit(&self, number: u64, wanted: u64, held: &mut u64) -> bool {
        let more = wanted.saturating_sub(*held);
        let waited = self.changed.wait_while(lock(&self.state), |state| {
            !state.is_over && number > state.turn && state.used + more > self.web.read_ahead_bytes
        });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return false;
        }
        state.used += more;
        *held += more;
        true
    }
}
