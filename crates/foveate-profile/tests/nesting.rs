//! Random nestings on several threads, with panics, compared with a plain model: the sum of the trace's single spans.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use foveate_profile::{StageProfiler, StageTotals, Trace};
use proptest::prelude::*;
use support::{Slice, json, read};

const STAGES: [&str; 4] = ["a", "b", "c", "d"];
const THREADS: [&str; 3] = ["worker 1", "worker 2", "worker 10"];

/// A span with nested spans.
#[derive(Clone, Debug)]
struct Node {
    stage: usize,
    work: u32,
    inside: Vec<Node>,
    panics: bool,
    /// True if it catches panics from inside.
    catches: bool,
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = (0..STAGES.len(), 0..200_u32, prop::bool::weighted(0.1)).prop_map(|(stage, work, panics)| Node {
        stage,
        work,
        inside: Vec::new(),
        panics,
        catches: false,
    });
    leaf.prop_recursive(5, 40, 4, |inner| {
        (inner.clone(), prop::collection::vec(inner, 0..4), any::<bool>()).prop_map(|(node, inside, catches)| Node {
            inside,
            catches,
            ..node
        })
    })
}

fn run(profiler: &StageProfiler, node: &Node) {
    let body = || {
        let _span = profiler.span(node.stage);
        (0..node.work).for_each(|i| _ = black_box(i));
        node.inside.iter().for_each(|inner| run(profiler, inner));
        if node.panics {
            // Unlike panic!, this prints nothing.
            resume_unwind(Box::new("planned"));
        }
    };
    if node.catches {
        let _ = catch_unwind(AssertUnwindSafe(body));
    } else {
        body();
    }
}

/// Appends the stage and depth of each span that [`run`] opens; returns whether a panic leaves `node`.
fn plan(node: &Node, depth: usize, spans: &mut Vec<(&'static str, usize)>) -> bool {
    spans.push((STAGES[node.stage], depth));
    let panicked = node.inside.iter().any(|inner| plan(inner, depth + 1, spans)) || node.panics;
    panicked && !node.catches
}

/// A stage's count, busy time, own time and longest span, from each thread's slices.
fn model(lanes: &[Vec<Slice>], stage: &str) -> (u64, u64, u64, u64) {
    let (mut count, mut busy, mut own, mut max) = (0, 0, 0, 0);
    for slices in lanes {
        for (at, slice) in slices.iter().enumerate().filter(|(_, slice)| slice.name == stage) {
            let inside = slices[at + 1..].iter().take_while(|inner| inner.depth > slice.depth);
            let children: u64 = inside.filter(|inner| inner.depth == slice.depth + 1).map(|inner| inner.duration).sum();
            count += 1;
            busy += slice.duration;
            own += slice.duration - children;
            max = max.max(slice.duration);
        }
    }
    (count, busy, own, max)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn figures(totals: &StageTotals) -> (u64, u64, u64, u64) {
    (totals.count, nanos(totals.busy), nanos(totals.own), nanos(totals.max))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn totals_are_those_of_a_plain_model(jobs in prop::collection::vec(prop::collection::vec(node(), 0..4), THREADS.len())) {
        let profiler = StageProfiler::traced(STAGES, Trace::new(1_000_000));
        std::thread::scope(|scope| {
            for (name, nodes) in THREADS.iter().zip(&jobs) {
                let profiler = &profiler;
                let work = move || for node in nodes {
                    let _ = catch_unwind(AssertUnwindSafe(|| run(profiler, node)));
                };
                std::thread::Builder::new().name((*name).to_owned()).spawn_scoped(scope, work).unwrap();
            }
        });

        let read = read(&json(profiler.trace().unwrap()));
        let mut all = Vec::new();
        for (name, nodes) in THREADS.iter().zip(&jobs) {
            let mut planned = Vec::new();
            nodes.iter().for_each(|node| { plan(node, 0, &mut planned); });
            let slices = read.lanes.iter().find(|(lane, _)| lane == name).map_or_else(Vec::new, |(_, slices)| slices.clone());
            let traced: Vec<_> = slices.iter().map(|slice| (slice.name.as_str(), slice.depth)).collect();
            prop_assert_eq!(traced, planned);
            all.push(slices);
        }
        for totals in profiler.totals() {
            prop_assert_eq!(figures(&totals), model(&all, totals.name), "{}", totals.name);
            prop_assert!(totals.p50 <= totals.p90 && totals.p90 <= totals.p99 && totals.p99 <= totals.max);
            let mean = totals.busy.as_secs_f64() / totals.count.max(1) as f64;
            prop_assert!((totals.mean().as_secs_f64() - mean).abs() < 2e-9);
        }
    }
}
