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
/// How often a thread without work looks for sites that have become slow.
const TICK: Duration = Duration::from_millis(200);
/// Sites whose pace is remembered without any item.
const REMEMBERED: usize = 4_096;
/// The weight of an item in its site's pace.
const WEIGHT: f64 = 0.25;

/// Items of sites that wait for threads. Sites take turns. No site has more than a quarter of the threads, however fast
/// it was, and one without any finished item has a single thread. Further bounds keep a thread free for a site that
/// comes later:
///
/// - the last eighth of the threads is for the first thread of sites that have proven fast;
/// - the other sites together have five eighths beyond the first thread of each.
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

    /// The number of items, waiting or under way, of slow sites and of several that have not answered their first yet.
    pub(crate) fn stalled(&self) -> usize {
        let (state, now) = (self.lock(), Instant::now());
        let items = |site: &Site<T>| site.waiting.len() + site.active.len();
        let slow: usize = state.slow(now).map(|(_, site)| items(site)).sum();
        let is_unanswered = |(name, site): &(&String, &Site<T>)| {
            let is_late = |(_, since): &(u64, Instant)| now.saturating_duration_since(*since) > UNANSWERED;
            !state.paces.contains_key(*name) && !state.is_slow(name, now) && site.active.iter().any(is_late)
        };
        let unanswered: Vec<usize> = state.sites.iter().filter(is_unanswered).map(|(_, site)| items(site)).collect();
        let is_several = unanswered.len() >= SEVERAL;
        slow + if is_several { unanswered.into_iter().sum::<usize>().min(2 * self.room) } else { 0 }
    }

    /// Returns true if a site is slow, and has its share of the waiting items.
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
        let active = |(_, site): (&String, &Site<T>)| site.active.len();
        let all: usize = self.sites.iter().map(active).sum();
        let others: usize = self.sites.iter().filter(|(name, _)| !self.is_fast(name, now)).map(active).sum();
        // Bounds of a few threads leave at least one.
        let below = |active: usize, bound: usize| active < bound.max(1);
        let has_thread = |name: &String| {
            let Some(site) = self.sites.get(name) else { return false };
            let most = if self.paces.contains_key(name) { threads / 4 } else { 1 };
            let has_room = match (site.active.is_empty(), self.is_fast(name, now)) {
                (true, true) => all < threads,
                (true, false) => below(others, threads - threads / 8),
                (false, true) => below(all, threads - threads / 8),
                (false, false) => below(others, threads * 5 / 8),
            };
            site.active.len() < site.most && below(site.active.len(), most) && has_room
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

    fn take<'a>(shares: &'a Shares<&'static str>, turns: &mut Vec<Turn<'a, &'static str>>) -> Vec<&'static str> {
        std::iter::from_fn(|| next(shares, turns)).collect()
    }

    /// Finishes an item of each site at once.
    fn prove(shares: &Shares<&'static str>, sites: &[&'static str]) {
        for site in sites {
            push(shares, site, 1);
            assert_eq!(next(shares, &mut Vec::new()), Some(*site));
        }
    }

    #[test]
    fn sites_take_turns_and_none_has_more_than_a_quarter() {
        let (shares, mut turns) = (Shares::new(8, 100), Vec::new());
        push(&shares, "a", 9);
        push(&shares, "b", 9);
        assert_eq!(take(&shares, &mut turns), ["a", "b"], "one each while nobody knows them");
        turns.clear();
        assert_eq!(take(&shares, &mut turns), ["a", "b", "a", "b"], "two of eight threads, however fast");
    }

    #[test]
    fn a_thread_is_left_for_a_site_that_works() {
        let (shares, mut turns) = (Shares::new(8, 100), Vec::new());
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
        let (shares, mut turns) = (Shares::new(16, 100), Vec::new());
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
        let (shares, mut turns) = (Shares::new(16, 100), Vec::new());
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
            let (shares, mut turns) = (Shares::new(threads, 100), Vec::new());
            push(&shares, "a", 3);
            assert_eq!(take(&shares, &mut turns), ["a"]);
            turns.clear();
            assert_eq!(take(&shares, &mut turns), ["a"], "a quarter is at least one");
        }
    }

    #[test]
    fn items_of_sites_that_do_not_answer_their_first_one_stall_early() {
        let (shares, mut turns) = (Shares::new(8, 10), Vec::new());
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
        let (shares, mut turns) = (Shares::new(8, 4), Vec::new());
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
