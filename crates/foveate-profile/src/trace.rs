use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chrome;
use crate::lane::{Event, Lane, Room, nanos};
use crate::thread::{self, PerThread};

/// Events one by one, for a viewer: spans of threads, spans of lanes that are no threads (a device), and counters (the
/// length of a queue). A handle: clones write to the same trace.
///
/// Each thread writes to memory of its own, in pieces that it takes from what the trace may hold at most. When that is
/// used up, further events are counted as [dropped](Self::dropped) and otherwise forgotten.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Instant,
    room: Room,
    /// Lanes of the threads that had the slot, one after the other.
    threads: PerThread<Mutex<Vec<Lane>>>,
    tracks: Mutex<Vec<Lane>>,
}

impl Trace {
    /// An empty trace of at most `max_events` events, each of 40 bytes. Memory is taken as events come, by each
    /// thread for up to 64 of them at a time; so, where many threads write, somewhat fewer than `max_events` fit.
    pub fn new(max_events: usize) -> Self {
        let room = Room::new(max_events);
        Self(Arc::new(Inner { origin: Instant::now(), room, threads: PerThread::default(), tracks: Mutex::default() }))
    }

    /// Says what `track` counts just now, such as a queue's length.
    pub fn counter(&self, track: &'static str, value: u64) {
        let at = nanos(self.0.origin.elapsed());
        self.on_this_thread(Event::Counter { track, at, value });
    }

    /// Adds a span to a lane that is no thread, such as a device. What lies before the trace was made is cut off. Spans of
    /// a lane that overlap without one inside of the other are drawn on several lanes of that name.
    pub fn span_on(&self, track: &str, name: &'static str, start: Instant, duration: Duration) {
        let event = self.span_event(name, start, duration);
        let mut tracks = lock(&self.0.tracks);
        match tracks.iter_mut().find(|lane| lane.name == track) {
            Some(lane) => lane.push(event, &self.0.room),
            None => push_new(&mut tracks, || track.to_owned(), None, event, &self.0.room),
        }
    }

    /// Adds a span of the calling thread.
    pub(crate) fn span(&self, name: &'static str, start: Instant, duration: Duration) {
        self.on_this_thread(self.span_event(name, start, duration));
    }

    /// Events held.
    pub fn events(&self) -> usize {
        let count = |lanes: &Mutex<Vec<Lane>>| lock(lanes).iter().map(Lane::len).sum::<usize>();
        self.0.threads.iter().map(count).sum::<usize>() + count(&self.0.tracks)
    }

    /// Events that did not fit.
    pub fn dropped(&self) -> u64 {
        self.0.room.dropped()
    }

    /// Writes the events so far as a JSON object in Chrome's Trace Event Format, which <https://ui.perfetto.dev>,
    /// `chrome://tracing` and Speedscope open. Threads come in the order of their names, the main one first, and tracks
    /// after them. Threads may go on recording meanwhile.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let threads = self.0.threads.iter().flat_map(|lanes| lock(lanes).clone());
        let mut lanes: Vec<Lane> = threads.collect();
        lanes.extend(lock(&self.0.tracks).iter().cloned());
        chrome::write(lanes, self.dropped(), out)
    }

    fn span_event(&self, name: &'static str, start: Instant, duration: Duration) -> Event {
        let before = self.0.origin.saturating_duration_since(start);
        let start = nanos(start.saturating_duration_since(self.0.origin));
        Event::Span { name, start, duration: nanos(duration.saturating_sub(before)) }
    }

    fn on_this_thread(&self, event: Event) {
        let Inner { threads, room, .. } = &*self.0;
        thread::with_lease(|lease| {
            let mut lanes = lock(threads.get_or_init(lease.slot, Mutex::default));
            match lanes.last_mut().filter(|lane| lane.thread == Some(lease.serial)) {
                Some(lane) => lane.push(event, room),
                None => push_new(&mut lanes, || thread_name(lease.serial), Some(lease.serial), event, room),
            }
        });
    }
}

fn thread_name(serial: u64) -> String {
    std::thread::current().name().map_or_else(|| format!("thread {serial}"), str::to_owned)
}

/// A lane costs memory too: it is made only when its first event fits.
fn push_new(lanes: &mut Vec<Lane>, name: impl FnOnce() -> String, thread: Option<u64>, event: Event, room: &Room) {
    if let Some(mut piece) = room.take() {
        piece.push(event);
        lanes.push(Lane { name: name(), thread, pieces: vec![piece] });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves a lane half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
