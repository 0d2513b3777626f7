//! Shares a number of threads among sites, so that a slow or dead one does not block the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::lock;

/// A site whose items take longer than this is slow.
const SLOW: Duration = Duration::from_secs(2);
/// How often a thread without work looks for sites that have become slow.
const TICK: Duration = Duration::from_millis(200);
/// Sites whose pace is remembered without any item.
const REMEMBERED: usize = 4_096;
/// The weight of an item in its site's pace.
const WEIGHT: f64 = 0.25;

/// Items of sites that wait for threads. Sites take turns. A site that has proven fast may use as many threads as its
/// items say. The threads of all others have three bounds, so that whoever comes later finds one:
///
/// - half of the threads for a site that is alone, beyond the quarter that it has otherwise;
/// - five eighths for the quarters of several sites;
/// - three quarters for the first thread of each site.
pub(crate) struct Shares<T> {
    threads: usize,
    /// Most waiting items of all slow sites together.
    room: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// Sites with items.
    sites: HashMap<String, Site<T>>,
    /// Sites with waiting items, in the order of their turns.
    turns: VecDeque<String>,
    /// The weighted mean of each site's times, in seconds.
    paces: HashMap<String, f64>,
    number: u64,
    closed: bool,
}

struct Site<T> {
    /// Most threads at once.
    most: usize,
    waiting: VecDeque<T>,
    /// Number and start of each item under way.
    active: Vec<(u64, Instant)>,
}

/// What a thread has to do next.
pub(crate) enum Next<'a, T> {
    /// Work on this item, and then drop its turn.
    Item(T, Turn<'a, T>),
    /// Return these items: their site is slow, and too many wait for it.
    Excess(Vec<T>),
}

/// An item's use of a thread, until it is dropped.
pub(crate) struct Turn<'a, T> {
    shares: &'a Shares<T>,
    site: String,
    number: u64,
}

impl<T> Shares<T> {
    /// Shares `threads` threads. At most `room` items wait for slow sites.
    pub(crate) fn new(threads: usize, room: usize) -> Self {
        let state =
            State { sites: HashMap::new(), turns: VecDeque::new(), paces: HashMap::new(), number: 0, closed: false };
        Self { threads: threads.max(1), room, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item of `site`, which may use at most `most` threads. Returns the item if this is closed.
    pub(crate) fn push(&self, site: &str, most: usize, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        let entry = state.sites.entry(site.to_owned());
        let entry = entry.or_insert_with(|| Site { most, waiting: VecDeque::new(), active: Vec::new() });
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
                return Some(Next::Item(item, Turn { shares: self, site, number }));
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

    /// The number of items of slow sites, waiting or under way.
    pub(crate) fn stalled(&self) -> usize {
        let (state, now) = (self.lock(), Instant::now());
        state.slow(now).map(|(_, site)| site.waiting.len() + site.active.len()).sum()
    }

    /// Whether a site is slow, and has its share of the waiting items.
    pub(crate) fn is_full(&self, site: &str) -> bool {
        let (state, now) = (self.lock(), Instant::now());
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

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

impl<T> State<T> {
    /// Takes the first item whose site has a thread left.
    fn begin(&mut self, threads: usize, now: Instant) -> Option<(String, u64, T)> {
        let is_others = |(name, _): &(&String, &Site<T>)| !self.is_fast(name, now);
        let others: usize = self.sites.iter().filter(is_others).map(|(_, site)| site.active.len()).sum();
        let has_thread = |name: &String| {
            let Some(site) = self.sites.get(name) else { return false };
            let active = site.active.len();
            active < site.most && (self.is_fast(name, now) || others < self.bound(name, active, threads))
        };
        let place = self.turns.iter().position(has_thread)?;
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

    /// Most threads of all sites that have not proven fast, for one of them that has `active` threads to get another.
    fn bound(&self, name: &str, active: usize, threads: usize) -> usize {
        let left_over = match active {
            0 => threads / 4,
            _ if active < threads / 4 => threads * 3 / 8,
            // Nobody knows yet how long its items take, or others need the threads more.
            _ if !self.paces.contains_key(name) || self.turns.len() > 1 => return 0,
            _ => threads / 2,
        };
        (threads - left_over).max(1)
    }

    fn end(&mut self, name: &str, number: u64) {
        let Some(site) = self.sites.get_mut(name) else { return };
        let Some(place) = site.active.iter().position(|(other, _)| *other == number) else { return };
        let took = site.active.swap_remove(place).1.elapsed().as_secs_f64();
        if site.active.is_empty() && site.waiting.is_empty() {
            self.sites.remove(name);
        }
        if self.paces.len() >= REMEMBERED && !self.paces.contains_key(name) {
            self.paces.clear();
        }
        self.paces.entry(name.to_owned()).and_modify(|pace| *pace += (took - *pace) * WEIGHT).or_insert(took);
    }

    fn is_fast(&self, name: &str, now: Instant) -> bool {
        self.paces.contains_key(name) && !self.is_slow(name, now)
    }

    /// Whether a site's items took long, or half of those under way do.
    fn is_slow(&self, name: &str, now: Instant) -> bool {
        let stuck = |site: &Site<T>| {
            let stuck = site.active.iter().filter(|(_, since)| now.saturating_duration_since(*since) > SLOW).count();
            stuck > 0 && 2 * stuck >= site.active.len()
        };
        self.paces.get(name).is_some_and(|pace| *pace > SLOW.as_secs_f64()) || self.sites.get(name).is_some_and(stuck)
    }

    fn slow(&self, now: Instant) -> impl Iterator<Item = (&String, &Site<T>)> {
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

impl<T> Drop for Turn<'_, T> {
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
    fn next<'a>(shares: &'a Shares<&'static str>, turns: &mut Vec<Turn<'a, &'static str>>) -> Option<&'static str> {
        let (site, number, item) = shares.lock().begin(shares.threads, Instant::now())?;
        turns.push(Turn { shares, site, number });
        Some(item)
    }

    fn push(shares: &Shares<&'static str>, site: &'static str, count: usize) {
        (0..count).for_each(|_| shares.push(site, 6, site).unwrap());
    }

    /// Makes the items under way as old as this.
    fn age(shares: &Shares<&'static str>, by: Duration) {
        let mut state = shares.lock();
        let times = state.sites.values_mut().flat_map(|site| site.active.iter_mut());
        times.for_each(|(_, since)| *since = since.checked_sub(by).unwrap());
    }

    #[test]
    fn sites_take_turns_and_one_that_is_not_proven_has_a_quarter() {
        let (shares, mut turns) = (Shares::new(8, 100), Vec::new());
        push(&shares, "a", 5);
        push(&shares, "b", 5);
        let taken: Vec<_> = std::iter::from_fn(|| next(&shares, &mut turns)).collect();
        assert_eq!(taken, ["a", "b", "a", "b"], "two of eight threads each");
        drop(turns.remove(0));
        assert_eq!((next(&shares, &mut turns), next(&shares, &mut turns)), (Some("a"), Some("a")), "a is fast now");
    }

    #[test]
    fn a_thread_is_left_for_a_site_that_works() {
        let (shares, mut turns) = (Shares::new(8, 100), Vec::new());
        push(&shares, "good", 1);
        assert_eq!(next(&shares, &mut turns), Some("good"));
        turns.clear();
        for site in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            push(&shares, site, 3);
        }
        assert_eq!(std::iter::from_fn(|| next(&shares, &mut turns)).count(), 6, "six of eight threads");
        push(&shares, "good", 3);
        assert_eq!(next(&shares, &mut turns), Some("good"));
        assert_eq!(next(&shares, &mut turns), Some("good"));
    }

    #[test]
    fn a_slow_site_that_is_alone_has_half_of_the_threads() {
        let (shares, mut turns) = (Shares::new(8, 100), Vec::new());
        let take = |turns: &mut _| std::iter::from_fn(|| next(&shares, turns)).collect::<Vec<_>>();
        push(&shares, "slow", 20);
        assert_eq!(take(&mut turns).len(), 2, "nobody knows it");
        age(&shares, 2 * SLOW);
        turns.remove(0);
        assert_eq!((take(&mut turns).len(), turns.len()), (3, 4), "four of eight threads");
        push(&shares, "b", 9);
        push(&shares, "c", 9);
        assert_eq!(take(&mut turns), ["b", "c"], "there is a thread for each of two others");
        age(&shares, 2 * SLOW);
        turns.retain(|turn| turn.site != "slow");
        assert_eq!(take(&mut turns), ["slow", "b", "c"], "while others wait, it has its turn and no more");
    }

    #[test]
    fn too_many_items_of_a_slow_site_are_returned() {
        let (shares, mut turns) = (Shares::new(8, 4), Vec::new());
        push(&shares, "slow", 10);
        while next(&shares, &mut turns).is_some() {}
        assert_eq!((shares.stalled(), shares.is_full("slow")), (0, false), "nobody knows that yet");
        age(&shares, 2 * SLOW);
        assert_eq!((shares.stalled(), shares.waiting(), shares.is_full("slow")), (10, 8, true));
        let Some(Next::Excess(excess)) = shares.pop() else { panic!("no excess") };
        assert_eq!((excess.len(), shares.waiting(), shares.stalled()), (4, 4, 6));
        turns.clear();
        assert!(shares.lock().is_slow("slow", Instant::now()), "its pace is remembered");
        assert_eq!((shares.close().len(), shares.push("x", 1, "x"), shares.pop().is_none()), (4, Err("x"), true));
    }
}
