use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::histogram::add_alone;
use crate::thread::{self, PerThread};
use crate::track::nanos;
use crate::{Histogram, Trace};

/// Times spent in a fixed set of named stages, summed over all threads.
///
/// Each thread writes to its own counters, so threads do not slow each other down. A span takes neither locks nor
/// memory, except a thread's first one in a profiler. [`totals`](Self::totals) adds the threads up at any time. An
/// event recorded at that moment may be counted in one figure and not yet in another.
/// threads that still run are just recording may be counted in one figure and not yet in another.
#[derive(Debug)]
pub struct StageProfiler {
    names: Vec<&'static str>,
    threads: PerThread<Clocks>,
    trace: Option<Trace>,
}

/// One thread's measurements.
#[derive(Debug)]
struct Clocks {
    /// Nanoseconds of the finished spans directly inside the innermost open one.
    inside: AtomicU64,
    stages: Box<[ThreadClock]>,
}

/// Aligned so that two threads' clocks share no pair of cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadClock {
    busy: AtomicU64,
    own: AtomicU64,
    max: AtomicU64,
    histogram: Histogram,
}

/// One stage's measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTotals {
    /// The stage's name.
    pub name: &'static str,
    /// Number of recorded spans.
    pub count: u64,
    /// Time in its spans, summed over threads. A span inside another one of the same stage counts twice.
    pub busy: Duration,
    /// Time in its spans without spans nested in them, summed over threads. Over all stages this adds up to the
    /// threads' time in any span.
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
    /// Mean length of a span; zero without any.
    pub fn mean(&self) -> Duration {
        let nanos = self.busy.as_nanos().checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl StageProfiler {
    /// A profiler of these stages; other methods identify a stage by its index in the list.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self { names: names.into_iter().collect(), threads: PerThread::default(), trace: None }
    }

    /// A profiler that also puts every span into `trace`, on the track of its thread.
    pub fn traced(names: impl IntoIterator<Item = &'static str>, trace: Trace) -> Self {
        Self { trace: Some(trace), ..Self::new(names) }
    }

    /// The trace that receives the single spans, if any.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Times the work on this thread until the span is dropped. Panics if `stage` is out of range.
    ///
    /// A span opened while another one of this profiler is open on the same thread is nested in it. Spans must end in
    /// the opposite order of their start, which scopes guarantee, unwinding panics included. Otherwise the
    /// [`own`](StageTotals::own) times of the overlapping spans are only approximate.
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

    /// Adds a span that was timed elsewhere (on a device, say). It is not nested in another one and not in the trace.
    /// Panics if `stage` is out of range.
    pub fn record(&self, stage: usize, duration: Duration) {
        let nanos = nanos(duration);
        thread::with_lease(|lease| self.clocks(lease.slot).stages[stage].add(nanos, nanos));
    }

    /// Adds a span of this thread whose parts took `duration` in all, and puts it into the trace from `start` on. It is
    /// not nested in another one. Panics if `stage` is out of range.
    pub fn record_from(&self, stage: usize, start: Instant, duration: Duration) {
        self.record(stage, duration);
        if let Some(trace) = &self.trace {
            trace.span(self.names[stage], start, duration);
        }
    }

    /// Each stage's totals so far, in the order given to [`new`](Self::new).
    pub fn totals(&self) -> Vec<StageTotals> {
        self.names.iter().enumerate().map(|(stage, name)| self.totals_of(stage, name)).collect()
    }

    #[inline]
    fn clocks(&self, slot: usize) -> &Clocks {
        let clocks = || Clocks {
            inside: AtomicU64::new(0),
            stages: self.names.iter().map(|_| ThreadClock::default()).collect(),
        };
        self.threads.get_or_init(slot, clocks)
    }

    fn totals_of(&self, stage: usize, name: &'static str) -> StageTotals {
        let all = ThreadClock::default();
        self.threads.iter().for_each(|clocks| all.merge(&clocks.stages[stage]));
        let max = Duration::from_nanos(all.max.load(Relaxed));
        // The middle of the longest span's bucket may exceed the span.
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| all.histogram.quantile(q).min(max));
        StageTotals {
            name,
            count: all.histogram.count(),
            busy: Duration::from_nanos(all.busy.load(Relaxed)),
            own: Duration::from_nanos(all.own.load(Relaxed)),
            p50,
            p90,
            p99,
            max,
        }
    }
}

impl ThreadClock {
    /// Only the clock's own thread may call this.
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
    /// None in destructors that run after a thread has ended.
    place: Option<&'a Clocks>,
    stage: usize,
    name: &'static str,
    /// The value of `Clocks::inside` for the enclosing span.
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
        let totals = &profiler.totals()[0];
        assert!(totals.busy >= Duration::from_millis(20));
        assert_eq!([totals.own, totals.max, totals.mean()], [totals.busy; 3], "the only span");
        assert!(totals.p50 <= totals.max && totals.p50 >= totals.max - totals.max / 16, "{totals:?}");
    }

    #[test]
    fn what_was_not_measured_is_zero() {
        let totals = &StageProfiler::new(["never"]).totals()[0];
        assert_eq!(
            (totals.count, totals.mean(), totals.max, totals.p99),
            (0, Duration::ZERO, Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn time_inside_counts_for_the_inner_span_alone() {
        let profiler = StageProfiler::new(["outer", "inner"]);
        let (pause, elsewhere) = (Duration::from_millis(10), Duration::from_secs(1));
        {
            let _outer = profiler.span(0);
            for _ in 0..2 {
                let _inner = profiler.span(1);
                std::thread::sleep(pause);
            }
            // Neither a record nor another thread's span is nested in the span open here.
            profiler.record(1, elsewhere);
            std::thread::scope(|scope| _ = scope.spawn(|| drop(profiler.span(1))));
        }
        let [outer, inner] = &profiler.totals()[..] else { panic!("two stages") };
        assert_eq!((inner.count, inner.own), (4, inner.busy));
        assert!(outer.busy >= 2 * pause && outer.own <= outer.busy - 2 * pause, "{outer:?}");
        assert!(outer.own + inner.own >= outer.busy + elsewhere);
    }

    #[test]
    fn two_profilers_do_not_see_each_other() {
        let (one, other) = (StageProfiler::new(["a"]), StageProfiler::new(["b"]));
        {
            let _one = one.span(0);
            let _other = other.span(0);
        }
        for totals in [one.totals(), other.totals()].concat() {
            assert_eq!(totals.own, totals.busy, "{}", totals.name);
        }
    }

    #[test]
    fn spans_that_end_out_of_order_or_never_harm_no_later_ones() {
        let profiler = StageProfiler::new(["odd", "outer", "inner"]);
        let (first, second) = (profiler.span(0), profiler.span(0));
        drop(first);
        drop(second);
        std::mem::forget(profiler.span(0));
        {
            let _outer = profiler.span(1);
            std::mem::forget(profiler.span(0));
            let _inner = profiler.span(2);
            std::thread::sleep(Duration::from_millis(5));
        }
        let [odd, outer, inner] = &profiler.totals()[..] else { panic!("three stages") };
        assert_eq!((odd.count, outer.count, inner.count), (2, 1, 1));
        assert!(odd.own <= odd.busy);
        assert_eq!(outer.own, outer.busy - inner.busy);
    }

    #[test]
    fn threads_that_come_and_go_leave_no_memory_behind() {
        let profiler = StageProfiler::new(["a"]);
        for _ in 0..500 {
            std::thread::scope(|scope| _ = scope.spawn(|| drop(profiler.span(0))));
        }
        assert_eq!(profiler.totals()[0].count, 500);
        // Other tests run in parallel, so the slot may differ each time.
        assert!(profiler.threads.iter().count() < 64);
    }

    #[test]
    fn spans_count_even_in_the_destructors_of_a_thread() {
        use std::cell::OnceCell;
        use std::sync::Arc;

        struct Last(Arc<StageProfiler>);
        impl Drop for Last {
            fn drop(&mut self) {
                let _span = self.0.span(0);
                self.0.record(1, Duration::from_secs(1));
            }
        }
        // One is made before this thread's lease and one after it, so one of them is destroyed after the lease.
        thread_local! {
            static BEFORE: OnceCell<Last> = const { OnceCell::new() };
            static AFTER: OnceCell<Last> = const { OnceCell::new() };
        }
        let profiler = Arc::new(StageProfiler::traced(["late", "recorded"], Trace::new(1000)));
        let last = || Last(Arc::clone(&profiler));
        let set = |cell: &OnceCell<Last>, last| assert!(cell.set(last).is_ok());
        let (before, after) = (last(), last());
        let thread = std::thread::spawn(move || {
            BEFORE.with(|cell| set(cell, before));
            assert!(thread::slot().is_some());
            AFTER.with(|cell| set(cell, after));
        });
        thread.join().unwrap();
        let totals = profiler.totals();
        assert_eq!((totals[0].count, totals[1].busy), (2, Duration::from_secs(2)));
        assert_eq!(profiler.trace().unwrap().events(), 2);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_stage_that_does_not_exist_is_no_stage() {
        drop(StageProfiler::new(["only"]).span(1));
    }
}
