//! How many requests are in flight: as many as make the rate grow.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_core::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const FIRST: usize = 32;
const LEAST: usize = 4;
pub(crate) const MOST: usize = 1024;

/// The rate has to grow by this factor for more requests to stay.
const WORTH: f64 = 1.1;

/// Shortest time over which a rate is measured.
const SHORTEST_WINDOW: Duration = Duration::from_millis(250);

/// Windows without a change after the store asked for fewer requests.
const AFTER_THROTTLING: u32 = 16;

/// The most windows between two trials of more requests.
const LONGEST_REST: u32 = 64;

/// Completed work per second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    objects: f64,
    bytes: f64,
}

impl Rate {
    /// By which factor it is more than `other`: the geometric mean for objects and bytes, as sizes vary.
    fn ratio(self, other: Self) -> f64 {
        (self.objects / other.objects * ((self.bytes + 1.0) / (other.bytes + 1.0))).sqrt()
    }
}

/// Doubles the limit while that pays.
#[derive(Debug)]
struct Climb {
    limit: usize,
    /// The limit before the trial in progress, and the rate there.
    before: Option<(usize, Rate)>,
    /// Windows to the next trial.
    rest: u32,
    next_rest: u32,
}

impl Climb {
    fn new() -> Self {
        Self { limit: FIRST, before: None, rest: 0, next_rest: 8 }
    }

    /// Takes the rate of a window in which the limit was what held requests back.
    fn measured(&mut self, rate: Rate) {
        match self.before.take() {
            Some((smaller, old)) if rate.ratio(old) < WORTH => {
                self.limit = smaller;
                (self.rest, self.next_rest) = (self.next_rest, (self.next_rest * 2).min(LONGEST_REST));
            }
            _ if self.rest > 0 => self.rest -= 1,
            _ if self.limit < MOST => {
                self.before = Some((self.limit, rate));
                self.limit = (self.limit * 2).min(MOST);
            }
            _ => {}
        }
    }

    fn throttled(&mut self) {
        self.before = None;
        self.limit = (self.limit * 3 / 4).max(LEAST);
        self.rest = AFTER_THROTTLING;
    }
}

/// What was completed under one limit.
#[derive(Debug)]
struct Window {
    /// Completions that began under another limit.
    settling: usize,
    since: Instant,
    objects: usize,
    bytes: u64,
    /// Completions while an object waited for a slot.
    full: usize,
    throttled: bool,
}

impl Window {
    fn new(settling: usize) -> Self {
        Self { settling, since: Instant::now(), objects: 0, bytes: 0, full: 0, throttled: false }
    }

    fn rate(&self) -> Rate {
        let seconds = self.since.elapsed().as_secs_f64();
        Rate { objects: self.objects as f64 / seconds, bytes: self.bytes as f64 / seconds }
    }
}

struct State {
    climb: Climb,
    window: Window,
    /// Slots to take away once they are free.
    debt: usize,
}

/// Slots for requests in flight.
pub(crate) struct Pace {
    slots: Arc<Semaphore>,
    /// Whether something else than slots holds requests back. That slots are free tells nothing: many requests may end
    /// before the next ones can begin.
    is_idle: AtomicBool,
    /// `None` if the number is fixed.
    state: Option<Mutex<State>>,
}

impl Pace {
    pub(crate) fn new(fixed: Option<usize>) -> Self {
        let state = State { climb: Climb::new(), window: Window::new(0), debt: 0 };
        Self {
            is_idle: AtomicBool::new(true),
            slots: Arc::new(Semaphore::new(fixed.unwrap_or(FIRST).clamp(1, MOST))),
            state: fixed.is_none().then(|| Mutex::new(state)),
        }
    }

    /// Waits for a slot.
    pub(crate) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// Waits for what else a request needs.
    pub(crate) async fn idle<T>(&self, wait: impl Future<Output = T>) -> T {
        self.is_idle.store(true, Relaxed);
        let needed = wait.await;
        self.is_idle.store(false, Relaxed);
        needed
    }

    /// Gives a slot back, after a request that brought `bytes`, or none if it failed.
    pub(crate) fn done(&self, slot: Option<OwnedSemaphorePermit>, bytes: Option<u64>) {
        let Some(state) = &self.state else { return };
        let mut state = lock(state);
        let is_full = !self.is_idle.load(Relaxed);
        if state.debt > 0 {
            state.debt -= 1;
            slot.into_iter().for_each(OwnedSemaphorePermit::forget);
        }
        let Some(bytes) = bytes else { return };
        if state.window.settling > 0 {
            let settling = state.window.settling - 1;
            state.window = Window::new(settling);
            return;
        }
        state.window.objects += 1;
        state.window.bytes += bytes;
        state.window.full += usize::from(is_full);
        let Window { objects, full, since, .. } = state.window;
        if objects >= state.climb.limit && since.elapsed() >= SHORTEST_WINDOW {
            let rate = state.window.rate();
            self.change(&mut state, |climb| {
                if full * 10 >= objects * 9 {
                    climb.measured(rate);
                }
            });
        }
    }

    /// Takes notice of an answer that asks for fewer requests, once in a window.
    pub(crate) fn throttled(&self) {
        let Some(state) = &self.state else { return };
        let mut state = lock(state);
        if !state.window.throttled {
            self.change(&mut state, Climb::throttled);
            state.window.throttled = true;
        }
    }

    fn change(&self, state: &mut State, change: impl FnOnce(&mut Climb)) {
        let old = state.climb.limit;
        change(&mut state.climb);
        let new = state.climb.limit;
        let more = new.saturating_sub(old);
        self.slots.add_permits(more.saturating_sub(state.debt));
        state.debt = state.debt.saturating_sub(more);
        let fewer = old.saturating_sub(new);
        state.debt += fewer - self.slots.forget_permits(fewer);
        state.window = Window::new(if new == old { 0 } else { old });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after `windows` windows of a store with this many objects per second for a limit.
    fn settled(windows: usize, rate: impl Fn(usize) -> f64) -> usize {
        let mut climb = Climb::new();
        let mut limits = Vec::new();
        for _ in 0..windows {
            let objects = rate(climb.limit);
            climb.measured(Rate { objects, bytes: objects * 300_000.0 });
            limits.push(climb.limit);
        }
        // Trials are rare: the usual limit counts.
        limits.sort_unstable();
        limits[limits.len() / 2]
    }

    #[test]
    fn the_limit_grows_to_what_the_store_can_do() {
        // 100 ms for each request, up to a ceiling.
        assert_eq!(settled(100, |limit| limit as f64 * 10.0), MOST);
        assert_eq!(settled(100, |limit| (limit as f64 * 10.0).min(1000.0)), 128);
        assert_eq!(settled(100, |_| 100.0), FIRST);
        // A store that suffers from more requests.
        assert_eq!(settled(100, |limit| if limit > 64 { 10.0 } else { limit as f64 }), 64);
    }

    #[test]
    fn a_store_that_asks_for_fewer_gets_fewer_and_never_none() {
        let mut climb = Climb::new();
        climb.throttled();
        assert_eq!((climb.limit, climb.rest), (24, AFTER_THROTTLING));
        for _ in 0..20 {
            climb.throttled();
        }
        assert_eq!(climb.limit, LEAST);
    }

    #[tokio::test]
    async fn the_limit_grows_though_all_requests_end_at_once() {
        let pace = Pace::new(None);
        pace.idle(async {}).await;
        for _ in 0..4 {
            let mut slots = Vec::new();
            while pace.slots.available_permits() > 0 {
                slots.push(pace.slot().await);
            }
            tokio::time::sleep(SHORTEST_WINDOW / 2).await;
            for slot in slots {
                pace.done(slot, Some(1));
            }
        }
        assert!(pace.slots.available_permits() > FIRST);
    }

    #[tokio::test]
    async fn slots_follow_the_limit() {
        let pace = Pace::new(None);
        let mut slots = Vec::new();
        for _ in 0..FIRST {
            slots.push(pace.slot().await);
        }
        pace.throttled();
        pace.throttled(); // within the same window
        for slot in slots.drain(..) {
            pace.done(slot, None);
        }
        assert_eq!(pace.slots.available_permits(), 24);
        let fixed = Pace::new(Some(7));
        fixed.throttled();
        fixed.done(fixed.slot().await, Some(1));
        assert_eq!(fixed.slots.available_permits(), 7);
    }
}
