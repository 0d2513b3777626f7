//! Reads traces back.

// Not every test file uses every item, and tests may unwrap.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;

use foveate_profile::Trace;
use serde_json::Value;

/// A span as a viewer shows it, with times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) duration: u64,
    /// Number of enclosing spans.
    pub(crate) depth: usize,
}

/// The content of a trace's JSON.
#[derive(Debug)]
pub(crate) struct Read {
    /// Lanes in the order in which a viewer shows them: name, and slices by start.
    pub(crate) lanes: Vec<(String, Vec<Slice>)>,
    /// Counters by name, each with its times and values.
    pub(crate) counters: BTreeMap<String, Vec<(u64, u64)>>,
    pub(crate) dropped: u64,
}

pub(crate) fn json(trace: &Trace) -> String {
    let mut out = Vec::new();
    trace.write_json(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Parses a trace's JSON, and checks the properties of every trace.
pub(crate) fn read(json: &str) -> Read {
    let object: Value = serde_json::from_str(json).unwrap();
    assert_eq!(object["displayTimeUnit"], "ms");
    let (mut lanes, mut order, mut counters) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
    for event in object["traceEvents"].as_array().unwrap() {
        assert_eq!(event["pid"], 1);
        let (name, lane) = (event["name"].as_str().unwrap().to_owned(), event["tid"].as_u64());
        match (event["ph"].as_str().unwrap(), name.as_str()) {
            ("M", "process_name") => assert!(!event["args"]["name"].as_str().unwrap().is_empty()),
            ("M", "thread_name") => {
                let name = event["args"]["name"].as_str().unwrap().to_owned();
                assert!(lanes.insert(lane.unwrap(), (name, Vec::new())).is_none(), "a lane has one name");
            }
            ("M", "thread_sort_index") => {
                order.insert(event["args"]["sort_index"].as_u64().unwrap(), lane.unwrap());
            }
            ("X", _) => lanes.get_mut(&lane.unwrap()).unwrap().1.push(slice(name, event)),
            ("C", _) => {
                counters.entry(name).or_default().push((nanos(&event["ts"]), event["args"]["value"].as_u64().unwrap()))
            }
            other => panic!("an event of an unknown kind: {other:?}"),
        }
    }
    assert_eq!(order.len(), lanes.len());
    let in_order = order.values().map(|lane| lanes.remove(lane).unwrap());
    let lanes = in_order.map(|(name, slices)| (name, nested(slices))).collect();
    Read { lanes, counters, dropped: object["otherData"]["dropped_events"].as_u64().unwrap() }
}

fn slice(name: String, event: &Value) -> Slice {
    Slice { name, start: nanos(&event["ts"]), duration: nanos(&event["dur"]), depth: 0 }
}

/// Converts microseconds with three decimals to whole nanoseconds.
fn nanos(micros: &Value) -> u64 {
    let nanos = micros.as_f64().unwrap() * 1000.0;
    assert!((nanos - nanos.round()).abs() < 1e-3, "{micros} is not in whole nanoseconds");
    nanos.round() as u64
}

/// Sets the depth of each slice in a lane; checks that slices are sorted by start, and nested or disjoint.
fn nested(mut slices: Vec<Slice>) -> Vec<Slice> {
    let (mut ends, mut last): (Vec<u64>, u64) = (Vec::new(), 0);
    for slice in &mut slices {
        assert!(slice.start >= last, "slices come in the order of their start");
        last = slice.start;
        ends.retain(|end| *end > slice.start);
        let end = slice.start + slice.duration;
        assert!(ends.iter().all(|outer| end <= *outer), "{slice:?} ends after what it is inside of: {ends:?}");
        slice.depth = ends.len();
        ends.push(end);
    }
    slices
}
