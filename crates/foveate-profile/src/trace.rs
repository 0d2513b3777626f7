use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chrome;
use crate::thread::{self, PerThread};
use crate::track::{Room, Track, TrackEvent, nanos};

/// Single events for a viewer: spans of threads, spans of other tracks (a device), and counters (a queue's length). It
/// is a handle: clones write to the same trace.
///
/// Each thread writes to its own memory, in pieces taken from the trace's capacity. Once the capacity is used up,
/// further events are discarded and counted as [dropped](Self::dropped).
#[derive(Clone, Debug)]
pub struct Trace(Arc<TraceTracks>);

#[derive(Debug)]
struct TraceTracks {
    origin: Instant,
    room: Room,
    /// Lanes of the successive threads that had the slot.
    threads: PerThread<Mutex<Vec<Track>>>,
    tracks: Mutex<Vec<Track>>,
}

/// One span of a [`Trace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpan {
    /// Name of the thread or track.
    pub track: String,
    /// Name of the stage.
    pub name: &'static str,
    /// Time from the start of the trace to that of the span.
    pub start: Duration,
    /// Length of the span.
    pub duration: Duration,
}

impl Trace {
    /// An empty trace of at most `max_events` events of 40 bytes each. Each thread reserves memory on demand, for up to
    /// 64 events at a time. With many threads, slightly fewer than `max_events` therefore fit.
    pub fn new(max_events: usize) -> Self {
        let room = Room::new(max_events);
        Self(Arc::new(TraceTracks {
            origin: Instant::now(),
            room,
            threads: PerThread::default(),
            tracks: Mutex::default(),
        }))
    }

    /// Records the current value of `track`, such as a queue's length.
    pub fn counter(&self, track: &'static str, value: u64) {
        let at = nanos(self.0.origin.elapsed());
        self.on_this_thread(TrackEvent::Counter { track, at, value });
    }

    /// Adds a span to a track that is not a thread, such as a device. Time before the trace was made is cut off. Spans
    /// of a track that overlap without nesting are drawn on several rows of that name.
    pub fn span_on(&self, track: &str, name: &'static str, start: Instant, duration: Duration) {
        let event = self.span_event(name, start, duration);
        let mut tracks = lock(&self.0.tracks);
        match tracks.iter_mut().find(|known| known.name == track) {
            Some(known) => known.push(event, &self.0.room),
            None => push_new(&mut tracks, || track.to_owned(), None, event, &self.0.room),
        }
    }

    /// Adds a span of the calling thread.
    pub(crate) fn span(&self, name: &'static str, start: Instant, duration: Duration) {
        self.on_this_thread(self.span_event(name, start, duration));
    }

    /// Number of events held.
    pub fn events(&self) -> usize {
        let tracks = self.0.threads.iter().chain([&self.0.tracks]);
        tracks.map(|tracks| lock(tracks).iter().map(Track::len).sum::<usize>()).sum()
    }

    /// Number of events that did not fit.
    pub fn dropped(&self) -> u64 {
        self.0.room.dropped()
    }

    /// Writes the events so far as a JSON object in Chrome's Trace Event Format, which <https://ui.perfetto.dev>,
    /// `chrome://tracing` and Speedscope open. Threads are sorted by name, the main one first; tracks follow. Threads
    /// may continue recording meanwhile.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        chrome::write(self.tracks(), self.dropped(), out)
    }

    /// The beginning of a file of [`Self::write_json`].
    pub const START: &str = chrome::START;

    /// The spans so far, track by track, in recording order. Counters are left out.
    pub fn spans(&self) -> Vec<TraceSpan> {
        let mut spans = Vec::new();
        for Track { name: track, pieces, .. } in self.tracks() {
            for event in pieces.iter().flatten() {
                if let TrackEvent::Span { name, start, duration } = *event {
                    let [start, duration] = [start, duration].map(Duration::from_nanos);
                    spans.push(TraceSpan { track: track.clone(), name, start, duration });
                }
            }
        }
        spans
    }

    fn tracks(&self) -> Vec<Track> {
        let threads = self.0.threads.iter().flat_map(|tracks| lock(tracks).clone());
        let mut tracks: Vec<Track> = threads.collect();
        tracks.extend(lock(&self.0.tracks).iter().cloned());
        tracks
    }

    fn span_event(&self, name: &'static str, start: Instant, duration: Duration) -> TrackEvent {
        let before = self.0.origin.saturating_duration_since(start);
        let start = nanos(start.saturating_duration_since(self.0.origin));
        TrackEvent::Span { name, start, duration: nanos(duration.saturating_sub(before)) }
    }

    fn on_this_thread(&self, event: TrackEvent) {
        let TraceTracks { threads, room, .. } = &*self.0;
        thread::with_lease(|lease| {
            let mut tracks = lock(threads.get_or_init(lease.slot, Mutex::default));
            match tracks.last_mut().filter(|track| track.thread == Some(lease.serial)) {
                Some(track) => track.push(event, room),
                None => push_new(&mut tracks, || thread_name(lease.serial), Some(lease.serial), event, room),
            }
        });
    }
}

fn thread_name(serial: u64) -> String {
    std::thread::current().name().map_or_else(|| format!("thread {serial}"), str::to_owned)
}

/// Adds a track only if its first event fits, because a track takes memory too.
fn push_new(
    tracks: &mut Vec<Track>,
    name: impl FnOnce() -> String,
    thread: Option<u64>,
    event: TrackEvent,
    room: &Room,
) {
    if let Some(mut piece) = room.take() {
        piece.push(event);
        tracks.push(Track { name: name(), thread, pieces: vec![piece] });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Code under these locks never leaves a track half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
