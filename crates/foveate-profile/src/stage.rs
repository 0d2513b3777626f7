use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::histogram::add_alone;
use crate::thread::{self, PerThread};
use crate::{Histogram, Trace};

/// Times spent in a fixed set of named stages, summed over every thread that reports to it.
///
/// Each thread writes to numbers of its own, so threads do not slow each other down; a span takes neither locks nor
/// memory, apart from a thread's first one in a profiler. [`totals`](Self::totals) adds the threads up at any time; what
/// threads that still run are just recording may be counted in one figure and not yet in another.
#[derive(Debug)]
pub struct StageProfiler {
    names: Vec<&'static str>,
    threads: PerThread<Clocks>,
    trace: Option<Trace>,
}

/// What one thread measured.
#[derive(Debug)]
struct Clocks {
    /// Nanoseconds of the finished spans directly inside of the innermost open one.
    inside: AtomicU64,
    stages: Box<[Clock]>,
}

/// Aligned so that those of two threads share no pair of cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Clock {
    busy: AtomicU64,
    own: AtomicU64,
    max: AtomicU64,
    histogram: Histogram,
}

/// What one stage cost.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTotals {
    /// The stage's name.
    pub name: &'static str,
    /// Spans recorded.
    pub count: u64,
    /// Time in them, summed over threads. A span inside of another of the same stage counts twice.
    pub busy: Duration,
    /// Time in them and in no span inside of them, summed over threads: over all stages this adds up to the time that
    /// threads spent in any span.
    pub own: Duration,
    /// Median span, within 6.25 %.
    pub p50: Duration,
    /// 90th percentile, within 6.25 %.
    pub p90: Duration,
    /// 99th percentile, within 6.25 %.
    pub p99: Duration,
    /// The longest span.
    pub max: Duration,
}

impl StageTotals {
    /// Mean length of a span; zero when there was none.
    pub fn mean(&self) -> Duration {
        let nanos = self.busy.as_nanos().checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl StageProfiler {
    /// A profiler of these stages; elsewhere they are named by their place in the list.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self { names: names.into_iter().collect(), threads: PerThread::default(), trace: None }
    }

    /// A profiler that also puts every span into `trace`, on the lane of its thread.
    pub fn traced(names: impl IntoIterator<Item = &'static str>, trace: Trace) -> Self {
        Self { trace: Some(trace), ..Self::new(names) }
    }

    /// Where the spans go one by one, if they do.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Times what happens on this thread until the span is dropped. Panics when `stage` is out of range.
    ///
    /// A span that is opened while another one of this profiler is open on the same thread is inside of it. Spans are to
    /// end in the opposite order of their start, as scopes make them do, unwinding panics included; otherwise the
    /// [`own`](StageTotals::own) times of those that overlap are only roughly right.
    #[inline]
    pub fn span(&self, stage: usize) -> Span<'_> {
        let name = self.names[stage];
        let place = thread::slot().map(|slot| self.clocks(slot));
        let outside = place.map_or(0, |clocks| clocks.inside.load(Relaxed));
        if let Some(clocks) = place {
            clocks.inside.store(0, Relaxed);
        }
        Span { profiler: self, place, stage, name, outside, start: Instant::now(), this_thread: PhantomData }
    }

    /// Adds a span that was timed elsewhere (on a device, say): it is inside of no other, and not in the trace. Panics
    /// when `stage` is out of range.
    pub fn record(&self, stage: usize, duration: Duration) {
        let nanos = nanos(duration);
        thread::with_lease(|lease| self.clocks(lease.slot).stages[stage].add(nanos, nanos));
    }

    /// What every stage cost so far, in the order given to [`new`](Self::new).
    pub fn totals(&self) -> Vec<StageTotals> {
        self.names.iter().enumerate().map(|(stage, name)| self.totals_of(stage, name)).collect()
    }

    #[inline]
    fn clocks(&self, slot: usize) -> &Clocks {
        let clocks =
            || Clocks { inside: AtomicU64::new(0), stages: self.names.iter().map(|_| Clock::default()).collect() };
        self.threads.get_or_init(slot, clocks)
    }

    fn totals_of(&self, stage: usize, name: &'static str) -> StageTotals {
        let all = Clock::default();
        self.threads.iter().for_each(|clocks| all.merge(&clocks.stages[stage]));
        let max = Duration::from_nanos(all.max.load(Relaxed));
        // The middle of the longest span's bucket may lie above it.
        let quantile = |q| all.histogram.quantile(q).min(max);
        StageTotals {
            name,
            count: all.histogram.count(),
            busy: Duration::from_nanos(all.busy.load(Relaxed)),
            own: Duration::from_nanos(all.own.load(Relaxed)),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max,
        }
    }
}

impl Clock {
    /// Only the thread that owns the clock may call this.
    #[inline]
    fn add(&self, nanos: u64, own: u64) {
        add_alone(&self.busy, nanos);
        add_alone(&self.own, own);
        if nanos > self.max.load(Relaxed) {
            self.max.store(nanos, Relaxed);
        }
        self.histogram.record_alone(nanos);
    }

    fn merge(&self, other: &Self) {
        self.histogram.merge(&other.histogram);
        add_alone(&self.busy, other.busy.load(Relaxed));
        add_alone(&self.own, other.own.load(Relaxed));
        self.max.fetch_max(other.max.load(Relaxed), Relaxed);
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A running measurement; dropping it records it. It stays on its thread:
///
/// ```compile_fail
/// fn sent<T: Send>(_: T) {}
/// sent(foveate_profile::StageProfiler::new(["a"]).span(0));
/// ```
#[derive(Debug)]
#[must_use = "a span measures until it is dropped"]
pub struct Span<'a> {
    profiler: &'a StageProfiler,
    /// Nothing in the destructors that run when a thread has ended.
    place: Option<&'a Clocks>,
    stage: usize,
    name: &'static str,
    /// What `Clocks::inside` was, for the span that this one is inside of.
    outside: u64,
    start: Instant,
    this_thread: PhantomData<*const ()>,
}

impl Drop for Span<'_> {
    #[inline]
    fn drop(&mut self) {
        let duration = self.start.elapsed();
        let nanos = nanos(duration);
        match self.place {
            Some(clocks) => {
                let own = nanos.saturating_sub(clocks.inside.load(Relaxed));
                clocks.stages[self.stage].add(nanos, own);
                clocks.inside.store(self.outside.saturating_add(nanos), Relaxed);
            }
            None => self.profiler.record(self.stage, duration),
        }
        if let Some(trace) = &self.profiler.trace {
            trace.span(self.name, self.start, duration);
        }
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
