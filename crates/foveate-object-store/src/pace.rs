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

/// A rate that grows by this factor in a single step has grown. Less may be chance, and is measured for longer.
const CLEAR: f64 = 1.5;

/// Shortest step. A step has as many completions as there may be requests in flight, too.
const STEP: Duration = Duration::from_millis(125);

/// Steps that tell a worthwhile rate from chance.
const LONG: u32 = 8;

/// Steps without a change after the store asked for fewer requests.
const AFTER_THROTTLING: u32 = 32;

/// Steps between a trial of more requests that failed and the next one: at first, and at most.
const FIRST_REST: u32 = 16;
const LONGEST_REST: u32 = 128;

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
    /// Steps to the next trial.
    rest: u32,
    next_rest: u32,
}

impl Climb {
    fn new() -> Self {
        Self { limit: FIRST, before: None, rest: 0, next_rest: FIRST_REST }
    }

    /// Takes the rate of all `steps` under this limit, which was what held requests back.
    fn measured(&mut self, rate: Rate, steps: u32) {
        if let Some((smaller, old)) = self.before {
            let (growth, is_long) = (rate.ratio(old), steps >= LONG);
            match growth {
                ..1.0 => return self.fail(smaller),
                ..WORTH if is_long => return self.fail(smaller),
                ..CLEAR if !is_long => return,
                _ => (self.before, self.rest) = (None, 0),
            }
        }
        if steps >= self.rest && self.limit < MOST {
            self.before = Some((self.limit, rate));
            self.limit = (self.limit * 2).min(MOST);
        }
    }

    fn fail(&mut self, smaller: usize) {
        (self.limit, self.before) = (smaller, None);
        (self.rest, self.next_rest) = (self.next_rest, (self.next_rest * 2).min(LONGEST_REST));
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
    /// Steps that were measured.
    steps: u32,
    throttled: bool,
}

impl Window {
    fn new(settling: usize) -> Self {
        Self { settling, since: Instant::now(), objects: 0, bytes: 0, full: 0, steps: 0, throttled: false }
    }

    /// Steps that are over: each takes a time, and `limit` completions.
    fn steps_over(&self, limit: usize) -> u32 {
        let times = self.since.elapsed().as_nanos() / STEP.as_nanos();
        u32::try_from(times.min((self.objects / limit) as u128)).unwrap_or(u32::MAX)
    }

    /// Whether the limit was what held requests back.
    fn is_full(&self) -> bool {
        self.full * 10 >= self.objects * 9
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
        let limit = state.climb.limit;
        let steps = state.window.steps_over(limit);
        if steps == state.window.steps {
            return;
        }
        (state.window.steps, state.window.throttled) = (steps, false);
        match state.window.is_full() {
            true => {
                let rate = state.window.rate();
                state.climb.measured(rate, steps);
            }
            false => state.window = Window::new(0),
        }
        if state.climb.limit != limit {
            self.follow(&mut state, limit);
        }
    }

    /// Takes notice of an answer that asks for fewer requests, once in a step.
    pub(crate) fn throttled(&self) {
        let Some(state) = &self.state else { return };
        let mut state = lock(state);
        if !state.window.throttled {
            let old = state.climb.limit;
            state.climb.throttled();
            self.follow(&mut state, old);
            state.window.throttled = true;
        }
    }

    /// Gives as many slots as the limit now is, after `old`.
    fn follow(&self, state: &mut State, old: usize) {
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

    /// The usual limit in so many steps at a store with this many objects per second for a limit.
    fn settled(steps: usize, rate: impl Fn(usize) -> f64) -> usize {
        let mut climb = Climb::new();
        let (mut limits, mut sum, mut under) = (Vec::new(), 0.0, 0);
        for _ in 0..steps {
            let limit = climb.limit;
            (sum, under) = (sum + rate(limit), under + 1);
            let objects = sum / f64::from(under);
            climb.measured(Rate { objects, bytes: objects * 300_000.0 }, under);
            if climb.limit != limit {
                (sum, under) = (0.0, 0);
            }
            limits.push(climb.limit);
        }
        // Trials are rare: the usual limit counts.
        limits.sort_unstable();
        limits[limits.len() / 2]
    }

    #[test]
    fn the_limit_grows_to_what_the_store_can_do() {
        // 100 ms for each request, up to a ceiling.
        assert_eq!(settled(200, |limit| limit as f64 * 10.0), MOST);
        assert_eq!(settled(200, |limit| (limit as f64 * 10.0).min(1000.0)), 128);
        assert_eq!(settled(200, |_| 100.0), FIRST);
        // A store that suffers from more requests.
        assert_eq!(settled(200, |limit| if limit > 64 { 10.0 } else { limit as f64 }), 64);
    }

    #[test]
    fn a_rate_that_varies_is_no_growth() {
        for seed in 0..20 {
            let chance = std::cell::RefCell::new(fastrand::Rng::with_seed(seed));
            // Up to 30 % more or less in a step; 256 requests are slower than 128.
            let varied = |limit: usize| {
                let best = [320.0, 640.0, 1100.0, 900.0, 700.0, 500.0][(limit / FIRST).ilog2() as usize];
                best * (0.7 + 0.6 * chance.borrow_mut().f64())
            };
            assert_eq!(settled(1000, varied), 128, "seed {seed}");
        }
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
            tokio::time::sleep(STEP / 2).await;
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
