//! A trace's content and output, without a viewer.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foveate_profile::{StageProfiler, Trace};
use support::{json, read};

/// Runs `work` on a thread called `name`.
fn on_thread(name: &str, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).unwrap().join().unwrap();
    });
}

#[test]
fn lanes_come_in_the_order_a_reader_expects() {
    let profiler = StageProfiler::traced(["x"], Trace::new(100));
    for name in ["worker 10", "writer", "worker 9", "main", "a \"quoted\\\n\u{1} näme"] {
        on_thread(name, || drop(profiler.span(0)));
    }
    let trace = profiler.trace().unwrap();
    trace.span_on("cuda:0", "forward", Instant::now(), Duration::from_micros(3));
    on_thread("only counters", || trace.counter("queue", 1));

    let read = read(&json(trace));
    let names: Vec<&str> = read.lanes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["main", "a \"quoted\\\n\u{1} näme", "worker 9", "worker 10", "writer", "cuda:0"]);
    assert!(read.lanes.iter().all(|(_, slices)| slices.len() == 1));
    assert_eq!(read.counters["queue"].len(), 1);
    let spans = trace.spans();
    assert_eq!(spans.len(), names.len(), "no counters");
    let device = spans.iter().find(|span| span.track == "cuda:0").unwrap();
    assert_eq!((device.name, device.duration), ("forward", Duration::from_micros(3)));
}

#[test]
fn threads_of_one_name_or_one_after_the_other_keep_lanes_of_their_own() {
    let profiler = StageProfiler::traced(["x"], Trace::new(10_000));
    for _ in 0..20 {
        on_thread("worker", || drop(profiler.span(0)));
    }
    let lanes = read(&json(profiler.trace().unwrap())).lanes;
    assert_eq!(lanes.len(), 20);
    let starts: Vec<u64> = lanes.iter().map(|(_, slices)| slices[0].start).collect();
    assert!(starts.is_sorted(), "earlier threads come first: {starts:?}");
    assert_eq!(profiler.totals()[0].count, 20);
}

#[test]
fn a_device_that_does_two_things_at_once_gets_two_lanes() {
    let trace = Trace::new(100);
    let start = Instant::now();
    let at = |micros| start + Duration::from_micros(micros);
    for (name, from, micros) in [("forward", 0, 100), ("kernel", 0, 60), ("copy", 80, 40), ("forward", 100, 50)] {
        trace.span_on("device", name, at(from), Duration::from_micros(micros));
    }
    let lanes = read(&json(&trace)).lanes;
    let summary: Vec<_> = lanes
        .iter()
        .map(|(name, slices)| (name.as_str(), slices.iter().map(|s| (s.name.as_str(), s.depth)).collect::<Vec<_>>()))
        .collect();
    let first = ("device", vec![("forward", 0), ("kernel", 1), ("forward", 0)]);
    assert_eq!(summary, [first, ("device", vec![("copy", 0)])]);
    assert_eq!(lanes[1].1[0].duration, 40_000);
}

#[test]
fn of_two_spans_with_the_same_times_the_later_one_is_outside() {
    let trace = Trace::new(100);
    let start = Instant::now();
    for name in ["kernel", "forward"] {
        trace.span_on("device", name, start, Duration::from_micros(3));
    }
    let [(_, slices)] = &read(&json(&trace)).lanes[..] else { panic!("one lane") };
    let nested: Vec<_> = slices.iter().map(|slice| (slice.name.as_str(), slice.depth)).collect();
    assert_eq!(nested, [("forward", 0), ("kernel", 1)]);
}

#[test]
fn what_lies_before_the_trace_is_cut_off() {
    let before = Instant::now();
    std::thread::sleep(Duration::from_millis(5));
    let trace = Trace::new(100);
    trace.span_on("device", "early", before, Duration::from_millis(1));
    trace.span_on("device", "across", before, Duration::from_secs(1));
    let slices = &read(&json(&trace)).lanes[0].1;
    assert_eq!((slices[0].name.as_str(), slices[0].start), ("across", 0));
    assert!(slices[0].duration <= 995_000_000, "{slices:?}");
    assert_eq!((slices[1].name.as_str(), slices[1].start, slices[1].duration), ("early", 0, 0));
}

#[test]
fn a_full_trace_counts_what_it_drops() {
    let profiler = StageProfiler::traced(["x"], Trace::new(10));
    let trace = profiler.trace().unwrap();
    (0..25).for_each(|_| drop(profiler.span(0)));
    trace.counter("queue", 1);
    trace.span_on("device", "x", Instant::now(), Duration::ZERO);
    assert_eq!((trace.events(), trace.dropped()), (10, 17));
    assert_eq!(profiler.totals()[0].count, 25);
    let read = read(&json(trace));
    assert_eq!((read.lanes.len(), read.lanes[0].1.len(), read.dropped), (1, 10, 17));

    let none = Trace::new(0);
    none.counter("queue", 1);
    assert_eq!((none.events(), none.dropped()), (0, 1));
    assert!(support::read(&json(&none)).lanes.is_empty());
}

#[test]
fn many_threads_fill_a_trace_and_not_more() {
    let (max, each, threads) = (20_000, 5_000, 8);
    let profiler = StageProfiler::traced(["x"], Trace::new(max));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..each).for_each(|_| drop(profiler.span(0))));
        }
    });
    let trace = profiler.trace().unwrap();
    let (held, dropped) = (trace.events(), trace.dropped());
    // A thread may reserve room for 63 events that it did not use.
    assert!(held <= max && held >= max - threads * 63, "{held}");
    assert_eq!(held as u64 + dropped, (each * threads) as u64);
    let slices: usize = read(&json(trace)).lanes.iter().map(|(_, slices)| slices.len()).sum();
    assert_eq!(slices, held);
}

#[test]
fn a_trace_is_read_while_threads_write_to_it() {
    let profiler = StageProfiler::traced(["outer", "inner"], Trace::new(20_000));
    let trace = profiler.trace().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut turn = 0;
                while !done.load(Ordering::Relaxed) {
                    let _outer = profiler.span(0);
                    drop(profiler.span(1));
                    turn += 1;
                    trace.counter("turn", turn);
                }
            });
        }
        let mut last = 0;
        for _ in 0..10 {
            let json = json(trace);
            let read = read(&json);
            let slices: usize = read.lanes.iter().map(|(_, slices)| slices.len()).sum();
            let events = slices + read.counters.get("turn").map_or(0, Vec::len);
            assert!(events >= last && events <= 20_000);
            last = events;
            let [outer, inner] = &profiler.totals()[..] else { panic!("two stages") };
            assert!(inner.count + 3 >= outer.count && outer.own <= outer.busy);
        }
        done.store(true, Ordering::Relaxed);
    });
}
