use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Histogram;

/// Times spent in a fixed set of named stages, summed over every thread that reports to it.
#[derive(Debug)]
pub struct StageProfiler {
    stages: Vec<StageClock>,
}

#[derive(Debug)]
struct StageClock {
    name: &'static str,
    nanos: AtomicU64,
    histogram: Histogram,
}

/// What one stage cost.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTotals {
    /// The stage's name.
    pub name: &'static str,
    /// Spans recorded.
    pub count: u64,
    /// Time in them, summed over threads.
    pub busy: Duration,
    /// Median span, within 6.25 %.
    pub p50: Duration,
    /// 90th percentile, within 6.25 %.
    pub p90: Duration,
    /// 99th percentile, within 6.25 %.
    pub p99: Duration,
}

impl StageProfiler {
    /// A profiler of these stages; elsewhere they are named by their place in the list.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let clock = |name| StageClock { name, nanos: AtomicU64::new(0), histogram: Histogram::default() };
        Self { stages: names.into_iter().map(clock).collect() }
    }

    /// Times what happens until the span is dropped. Panics when `stage` is out of range.
    pub fn span(&self, stage: usize) -> Span<'_> {
        Span { clock: &self.stages[stage], start: Instant::now() }
    }

    /// Adds a span that was timed elsewhere (on a device, say). Panics when `stage` is out of range.
    pub fn record(&self, stage: usize, duration: Duration) {
        self.stages[stage].add(duration);
    }

    /// What every stage cost so far, in the order given to [`new`](Self::new).
    pub fn totals(&self) -> Vec<StageTotals> {
        self.stages.iter().map(StageClock::totals).collect()
    }
}

impl StageClock {
    fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
        self.histogram.record(nanos);
    }

    fn totals(&self) -> StageTotals {
        StageTotals {
            name: self.name,
            count: self.histogram.count(),
            busy: Duration::from_nanos(self.nanos.load(Relaxed)),
            p50: self.histogram.quantile(0.5),
            p90: self.histogram.quantile(0.9),
            p99: self.histogram.quantile(0.99),
        }
    }
}

/// A running measurement; dropping it records it.
#[derive(Debug)]
#[must_use = "a span measures until it is dropped"]
pub struct Span<'a> {
    clock: &'a StageClock,
    start: Instant,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        self.clock.add(self.start.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_many_threads_add_up() {
        let profiler = StageProfiler::new(["decode", "encode"]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| drop(profiler.span(0))));
            }
        });
        profiler.record(1, Duration::from_millis(5));
        let totals = profiler.totals();
        assert_eq!((totals[0].name, totals[0].count), ("decode", 400));
        assert_eq!((totals[1].count, totals[1].busy), (1, Duration::from_millis(5)));
    }

    #[test]
    fn a_span_measures_until_it_is_dropped() {
        let profiler = StageProfiler::new(["sleep"]);
        let span = profiler.span(0);
        std::thread::sleep(Duration::from_millis(20));
        drop(span);
        assert!(profiler.totals()[0].busy >= Duration::from_millis(20));
    }
}
