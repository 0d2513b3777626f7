//! Shares a number of threads among sites, so that a slow or dead one does not block the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::lock;

/// A site whose items take longer than this is slow.
const SLOW: Duration = Duration::from_secs(2);
/// Sites without any finished item stall once their first ones take longer than this, if there are several: otherwise
/// many dead sites would fill the in-flight limit again and again until each is slow.
const UNANSWERED: Duration = Duration::from_millis(100);
const SEVERAL: usize = 4;
/// The interval at which a thread without work looks for sites that have become slow.
const TICK: Duration = Duration::from_millis(200);
/// Sites whose pace is remembered without any item.
const REMEMBERED: usize = 4_096;
/// The weight of an item in its site's pace.
const WEIGHT: f64 = 0.25;

/// Items of sites that wait for threads. Sites take turns. No site has more than a quarter of the threads, however fast
/// it was, and one without any finished item has a single thread. Further bounds ([`room_for`]) keep a thread free for
/// a site that comes later.
pub(crate) struct SiteQueue<T> {
    threads: usize,
    /// Most waiting items of all slow sites together.
    room: usize,
    state: Mutex<SiteQueueState<T>>,
    changed: Condvar,
}

struct SiteQueueState<T> {
    /// Sites with items.
    sites: HashMap<String, SiteItems<T>>,
    /// Sites with waiting items, in the order of their turns.
    turns: VecDeque<String>,
    /// The weighted mean of the times of each site's items, in seconds.
    times: HashMap<String, f64>,
    number: u64,
    closed: bool,
}

/// The speed of a site.
#[derive(Clone, Copy, PartialEq)]
enum SitePace {
    /// None of its items is finished.
    Unknown,
    Fast,
    Slow,
}

/// Returns the most threads in use with which a site may have one more. All sites count for one that is fast, and those
/// that are not fast for the others.
fn room_for(pace: SitePace, is_first: bool, threads: usize) -> usize {
    match (pace, is_first) {
        (SitePace::Fast, true) => threads,
        // The last eighth is for the first thread of sites that have proven fast: neither sites that were fast and hang
        // now nor any number of new ones take it.
        (SitePace::Fast, false) | (SitePace::Unknown | SitePace::Slow, true) => threads - threads / 8,
        // Beyond that, a quarter is for the first thread of each site.
        (SitePace::Unknown | SitePace::Slow, false) => threads * 5 / 8,
    }
}

struct SiteItems<T> {
    /// Most threads at once.
    most: usize,
    waiting: VecDeque<T>,
    /// Number and start of each item under way.
    active: Vec<(u64, Instant)>,
}

/// A thread's next task.
pub(crate) enum Next<'a, T> {
    /// Work on this item, and then drop its turn.
    Item(T, SiteTurn<'a, T>),
    /// Return these items: their site is slow, and too many wait for it.
    Excess(Vec<T>),
}

/// An item's use of a thread, until it is dropped.
pub(crate) struct SiteTurn<'a, T> {
    shares: &'a SiteQueue<T>,
    site: String,
    number: u64,
}

impl<T> SiteQueue<T> {
    /// Shares `threads` threads. At most `room` items wait for slow sites.
    pub(crate) fn new(threads: usize, room: usize) -> Self {
        let state = SiteQueueState {
            sites: HashMap::new(),
            turns: VecDeque::new(),
            times: HashMap::new(),
            number: 0,
            closed: false,
        };
        Self { threads: threads.max(1), room, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item of `site`, which may use at most `most` threads. Returns the item if this is closed.
    pub(crate) fn push(&self, site: &str, most: usize, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        let entry = state.sites.entry(site.to_owned());
        let entry = entry.or_insert_with(|| SiteItems { most, waiting: VecDeque::new(), active: Vec::new() });
        entry.waiting.push_back(item);
        if entry.waiting.len() == 1 {
            state.turns.push_back(site.to_owned());
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next thing to do; `None` once closed.
    pub(crate) fn pop(&self) -> Option<Next<'_, T>> {
        let mut state = self.lock();
        while !state.closed {
            let now = Instant::now();
            let excess = state.excess(self.room, now);
            if !excess.is_empty() {
                return Some(Next::Excess(excess));
            }
            if let Some((site, number, item)) = state.begin(self.threads, now) {
                return Some(Next::Item(item, SiteTurn { shares: self, site, number }));
            }
            state = match state.turns.is_empty() {
                true => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                false => self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        None
    }

    /// The number of waiting items.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().sites.values().map(|site| site.waiting.len()).sum()
    }

    /// The number of items, waiting or under way, of slow sites and of several that have not answered their first yet.
    pub(crate) fn stalled(&self) -> usize {
        let state = self.lock();
        let now = Instant::now();
        let mut slow = 0;
        let mut unanswered = 0;
        let mut unanswered_sites = 0;
        for (name, site) in &state.sites {
            let items = site.waiting.len() + site.active.len();
            let is_late = site.active.iter().any(|(_, since)| now.saturating_duration_since(*since) > UNANSWERED);
            match state.pace(name, now) {
                SitePace::Slow => slow += items,
                SitePace::Unknown if is_late => {
                    unanswered += items;
                    unanswered_sites += 1;
                }
                SitePace::Unknown | SitePace::Fast => {}
            }
        }
        slow + if unanswered_sites >= SEVERAL { unanswered.min(2 * self.room) } else { 0 }
    }

    /// Returns true if a site is slow, and has its share of the waiting items.
    pub(crate) fn is_full(&self, site: &str) -> bool {
        let state = self.lock();
        let now = Instant::now();
        let waiting = state.sites.get(site).map_or(0, |site| site.waiting.len());
        state.is_slow(site, now) && waiting >= state.room_of_each(self.room, now)
    }

    /// Lets no more items in or out, and returns those that wait.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        state.turns.clear();
        let left = state.sites.values_mut().flat_map(|site| site.waiting.drain(..)).collect();
        drop(state);
        self.changed.notify_all();
        left
    }

    fn lock(&self) -> MutexGuard<'_, SiteQueueState<T>> {
        lock(&self.state)
    }
}

impl<T> SiteQueueState<T> {
    /// Takes the first item whose site has a thread left.
    fn begin(&mut self, threads: usize, now: Instant) -> Option<(String, u64, T)> {
        let mut all = 0;
        let mut not_fast = 0;
        for (name, site) in &self.sites {
            all += site.active.len();
            not_fast += if self.pace(name, now) == SitePace::Fast { 0 } else { site.active.len() };
        }
        let place = self.turns.iter().position(|name| {
            let Some(site) = self.sites.get(name) else { return false };
            let pace = self.pace(name, now);
            // A site that answered fast once could otherwise take all threads and hang.
            let most = if self.times.contains_key(name) { threads / 4 } else { 1 };
            let used = if pace == SitePace::Fast { all } else { not_fast };
            let room = room_for(pace, site.active.is_empty(), threads);
            // Bounds of a few threads leave at least one.
            site.active.len() < site.most.min(most.max(1)) && used < room.max(1)
        })?;
        let name = self.turns.remove(place)?;
        let site = self.sites.get_mut(&name)?;
        let item = site.waiting.pop_front()?;
        self.number += 1;
        site.active.push((self.number, now));
        if !site.waiting.is_empty() {
            self.turns.push_back(name.clone());
        }
        Some((name, self.number, item))
    }

    fn end(&mut self, name: &str, number: u64) {
        let Some(site) = self.sites.get_mut(name) else { return };
        let Some(place) = site.active.iter().position(|(other, _)| *other == number) else { return };
        let took = site.active.swap_remove(place).1.elapsed().as_secs_f64();
        if site.active.is_empty() && site.waiting.is_empty() {
            self.sites.remove(name);
        }
        if self.times.len() >= REMEMBERED && !self.times.contains_key(name) {
            self.times.clear();
        }
        self.times.entry(name.to_owned()).and_modify(|time| *time += (took - *time) * WEIGHT).or_insert(took);
    }

    fn pace(&self, name: &str, now: Instant) -> SitePace {
        match self.times.get(name) {
            _ if self.is_slow(name, now) => SitePace::Slow,
            Some(_) => SitePace::Fast,
            None => SitePace::Unknown,
        }
    }

    /// Returns true if a site's items took long, or half of those under way do.
    fn is_slow(&self, name: &str, now: Instant) -> bool {
        let is_stuck = self.sites.get(name).is_some_and(|site| {
            let stuck = site.active.iter().filter(|(_, since)| now.saturating_duration_since(*since) > SLOW).count();
            stuck > 0 && 2 * stuck >= site.active.len()
        });
        is_stuck || self.times.get(name).is_some_and(|time| *time > SLOW.as_secs_f64())
    }

    fn slow(&self, now: Instant) -> impl Iterator<Item = (&String, &SiteItems<T>)> {
        self.sites.iter().filter(move |(name, _)| self.is_slow(name, now))
    }

    fn room_of_each(&self, room: usize, now: Instant) -> usize {
        (room / self.slow(now).count().max(1)).max(1)
    }

    /// Takes the latest items of slow sites that have more than their share of the room.
    fn excess(&mut self, room: usize, now: Instant) -> Vec<T> {
        let room = self.room_of_each(room, now);
        let full: Vec<String> =
            self.slow(now).filter(|(_, site)| site.waiting.len() > room).map(|(name, _)| name.clone()).collect();
        let mut excess = Vec::new();
        for name in full {
            excess.extend(self.sites.get_mut(&name).into_iter().flat_map(|site| site.waiting.drain(room..)));
        }
        excess
    }
}

impl<T> Drop for SiteTurn<'_, T> {
    fn drop(&mut self) {
        self.shares.lock().end(&self.site, self.number);
        // The site may have become fast, so that several threads have work.
        self.shares.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The site of the next item, which stays under way.
    fn next<'a>(
        shares: &'a SiteQueue<&'static str>,
        turns: &mut Vec<SiteTurn<'a, &'static str>>,
    ) -> Option<&'static str> {
        let (site, number, item) = shares.lock().begin(shares.threads, Instant::now())?;
        turns.push(SiteTurn { shares, site, number });
        Some(item)
    }

    fn push(shares: &SiteQueue<&'static str>, site: &'static str, count: usize) {
        (0..count).for_each(|_| shares.push(site, 6, site).unwrap());
    }

    /// Makes the items under way as old as this.
    fn age(shares: &SiteQueue<&'static str>, by: Duration) {
        let mut state = shares.lock();
        let times = state.sites.values_mut().flat_map(|site| site.active.iter_mut());
        times.for_each(|(_, since)| *since = since.checked_sub(by).unwrap());
    }

    fn take<'a>(shares: &'a SiteQueue<&'static str>, turns: &mut Vec<SiteTurn<'a, &'static str>>) -> Vec<&'static str> {
        std::iter::from_fn(|| next(shares, turns)).collect()
    }

    /// Finishes an item of each site at once.
    fn prove(shares: &SiteQueue<&'static str>, sites: &[&'static str]) {
        for site in sites {
            push(shares, site, 1);
            assert_eq!(next(shares, &mut Vec::new()), Some(*site));
        }
    }

    #[test]
    fn sites_take_turns_and_none_has_more_than_a_quarter() {
        let (shares, mut turns) = (SiteQueue::new(8, 100), Vec::new());
        push(&shares, "a", 9);
        push(&shares, "b", 9);
        assert_eq!(take(&shares, &mut turns), ["a", "b"], "one each while nobody knows them");
        turns.clear();
        assert_eq!(take(&shares, &mut turns), ["a", "b", "a", "b"], "two of eight threads, however fast");
    }

    #[test]
    fn a_thread_is_left_for_a_site_that_works() {
        let (shares, mut turns) = (SiteQueue::new(8, 100), Vec::new());
        prove(&shares, &["good"]);
        for site in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            push(&shares, site, 3);
        }
        assert_eq!(take(&shares, &mut turns).len(), 7, "seven of eight threads");
        push(&shares, "good", 3);
        assert_eq!(take(&shares, &mut turns), ["good"]);
    }

    #[test]
    fn sites_that_were_fast_and_hang_leave_a_thread_for_another() {
        let (shares, mut turns) = (SiteQueue::new(16, 100), Vec::new());
        let hostile = ["a", "b", "c", "d", "e"];
        prove(&shares, &hostile);
        prove(&shares, &["good"]);
        hostile.into_iter().for_each(|site| push(&shares, site, 6));
        assert_eq!(take(&shares, &mut turns).len(), 14);
        push(&shares, "good", 2);
        assert_eq!(take(&shares, &mut turns), ["good"]);
    }

    #[test]
    fn slow_sites_together_have_five_eighths_beyond_their_first_threads() {
        let (shares, mut turns) = (SiteQueue::new(16, 100), Vec::new());
        let slow = ["a", "b", "c", "d"];
        for site in slow {
            push(&shares, site, 1);
            take(&shares, &mut turns);
            age(&shares, 2 * SLOW);
            turns.clear();
        }
        slow.into_iter().for_each(|site| push(&shares, site, 6));
        assert_eq!(take(&shares, &mut turns).len(), 10);
        push(&shares, "new", 1);
        assert_eq!(take(&shares, &mut turns), ["new"]);
    }

    #[test]
    fn a_few_threads_are_shared_too() {
        for threads in 1..4 {
            let (shares, mut turns) = (SiteQueue::new(threads, 100), Vec::new());
            push(&shares, "a", 3);
            assert_eq!(take(&shares, &mut turns), ["a"]);
            turns.clear();
            assert_eq!(take(&shares, &mut turns), ["a"], "a quarter is at least one");
        }
    }

    #[test]
    fn items_of_sites_that_do_not_answer_their_first_one_stall_early() {
        let (shares, mut turns) = (SiteQueue::new(8, 10), Vec::new());
        push(&shares, "a", 20);
        take(&shares, &mut turns);
        age(&shares, 2 * UNANSWERED);
        assert_eq!(shares.stalled(), 0, "one alone keeps to the in-flight limit");
        ["b", "c", "d"].into_iter().for_each(|site| push(&shares, site, 1));
        take(&shares, &mut turns);
        assert_eq!(shares.stalled(), 0);
        age(&shares, 2 * UNANSWERED);
        assert_eq!((shares.stalled(), shares.is_full("a")), (20, false), "up to twice the room");
        turns.clear();
        take(&shares, &mut turns);
        age(&shares, 2 * UNANSWERED);
        assert_eq!(shares.stalled(), 0, "it has answered");
    }

    #[test]
    fn too_many_items_of_a_slow_site_are_returned() {
        let (shares, mut turns) = (SiteQueue::new(8, 4), Vec::new());
        push(&shares, "slow", 10);
        while next(&shares, &mut turns).is_some() {}
        assert_eq!((shares.stalled(), shares.is_full("slow")), (0, false), "nobody knows that yet");
        age(&shares, 2 * SLOW);
        assert_eq!((shares.stalled(), shares.waiting(), shares.is_full("slow")), (10, 9, true));
        let Some(Next::Excess(excess)) = shares.pop() else { panic!("no excess") };
        assert_eq!((excess.len(), shares.waiting(), shares.stalled()), (5, 4, 5));
        turns.clear();
        assert!(shares.lock().is_slow("slow", Instant::now()), "its pace is remembered");
        assert_eq!((shares.close().len(), shares.push("x", 1, "x"), shares.pop().is_none()), (4, Err("x"), true));
    }
}
