//! Simulated time: the next end among waits with a fixed duration and work that shares cores.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The end of a task, ordered for a heap. Equal times end in the order in which they began.
#[derive(Clone, Copy, Debug)]
struct End {
    at: f64,
    began: u64,
    task: Task,
}

/// A started task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Task {
    /// Its thread.
    pub(crate) thread: usize,
    /// Its group of threads.
    pub(crate) group: usize,
    /// Cores that it wants; 0 while it waits for something else.
    pub(crate) cores: f64,
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.began.cmp(&self.began))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for End {}

pub(crate) const GROUPS: usize = 4;

/// Waits end at a clock time. Work ends at a *virtual* time, which advances at the speed that sharing leaves to each
/// task, so that no end has to move when the number of tasks changes.
pub(crate) struct Clock {
    now: f64,
    virtual_now: f64,
    cores: f64,
    interference: f64,
    /// Cores wanted by each group.
    wanted: [f64; GROUPS],
    waits: BinaryHeap<End>,
    work: BinaryHeap<End>,
    begun: u64,
    core_seconds: f64,
}

impl Clock {
    /// `cores` may be infinite: then tasks do not slow each other.
    pub(crate) fn new(cores: f64, interference: f64) -> Self {
        Self {
            now: 0.0,
            virtual_now: 0.0,
            cores,
            interference,
            wanted: [0.0; GROUPS],
            waits: BinaryHeap::new(),
            work: BinaryHeap::new(),
            begun: 0,
            core_seconds: 0.0,
        }
    }

    pub(crate) fn now(&self) -> f64 {
        self.now
    }

    /// Core seconds in use so far; slowed work counts with the core time that it takes.
    pub(crate) fn core_seconds(&self) -> f64 {
        self.core_seconds
    }

    /// Begins a task that takes `seconds` if nothing slows it.
    pub(crate) fn begin(&mut self, task: Task, seconds: f64) {
        self.begun += 1;
        let end = |at| End { at, began: self.begun, task };
        if task.cores > 0.0 {
            self.work.push(end(self.virtual_now + seconds));
            self.wanted[task.group] += task.cores;
        } else {
            self.waits.push(end(self.now + seconds));
        }
    }

    /// Advances to the next end, and returns its task.
    pub(crate) fn next(&mut self) -> Option<Task> {
        let speed = self.speed();
        let wait = self.waits.peek().map(|end| end.at);
        let work = self.work.peek().map(|end| self.now + (end.at - self.virtual_now).max(0.0) / speed);
        let work_is_next = match (wait, work) {
            (None, None) => return None,
            (Some(wait), Some(work)) => work <= wait,
            (wait, _) => wait.is_none(),
        };
        let to = if work_is_next { work } else { wait }.unwrap_or(self.now).max(self.now);
        self.core_seconds += self.wanted.iter().sum::<f64>().min(self.cores) * (to - self.now);
        self.virtual_now += (to - self.now) * speed;
        self.now = to;
        let end = if work_is_next { self.work.pop() } else { self.waits.pop() }?;
        if work_is_next {
            self.virtual_now = self.virtual_now.max(end.at);
            self.wanted[end.task.group] -= end.task.cores;
        }
        if self.work.is_empty() {
            // No core work runs, so accumulated rounding errors can be reset.
            self.wanted = [0.0; GROUPS];
            self.virtual_now = 0.0;
        }
        Some(end.task)
    }

    /// Progress of work per second, at most 1.
    fn speed(&self) -> f64 {
        let wanted: f64 = self.wanted.iter().sum();
        if wanted <= 0.0 {
            return 1.0;
        }
        let others = (wanted - self.wanted.iter().copied().fold(0.0, f64::max)) / wanted;
        (self.cores / wanted).min(1.0) / (1.0 + self.interference * others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(thread: usize, cores: f64) -> Task {
        Task { thread, group: thread % GROUPS, cores }
    }

    #[test]
    fn three_share_two_cores_until_one_is_done() {
        let mut clock = Clock::new(2.0, 0.0);
        clock.begin(task(0, 1.0), 4.0);
        clock.begin(task(1, 1.0), 4.0);
        clock.begin(task(2, 1.0), 2.0);
        clock.begin(task(3, 0.0), 1.0);
        let ends: Vec<(usize, f64)> = std::iter::from_fn(|| clock.next().map(|t| (t.thread, clock.now()))).collect();
        let expected = [(3, 1.0), (2, 3.0), (0, 5.0), (1, 5.0)];
        for ((thread, at), (expected_thread, expected_at)) in ends.iter().zip(expected) {
            assert_eq!(*thread, expected_thread);
            assert!((at - expected_at).abs() < 1e-12, "{ends:?}");
        }
        assert!((clock.core_seconds() - 10.0).abs() < 1e-12, "nothing is lost");
    }

    #[test]
    fn with_cores_enough_everything_takes_its_time() {
        let mut clock = Clock::new(f64::INFINITY, 0.0);
        [3.0, 1.0, 2.0].into_iter().enumerate().for_each(|(thread, seconds)| clock.begin(task(thread, 1.0), seconds));
        let ends: Vec<f64> = std::iter::from_fn(|| clock.next().map(|_| clock.now())).collect();
        assert_eq!(ends, [1.0, 2.0, 3.0]);
    }
}
