//! The conformance suite for every sink, whatever it writes. Failures panic and state what was expected.
//!
//! A backend's test calls [`run`] with a [`Subject`], and [`run_in_store`] if it writes to object stores, which are
//! folders there. A sink that announces its steps, as [`PartSink`](crate::parts::PartSink) does, also calls
//! [`crash_at_every_step`]. `cargo xtask faults` attacks the whole program in more ways: kills at any call, full disks,
//! power losses, damaged files.

#![expect(clippy::unwrap_used, reason = "a suite of tests: what goes wrong must panic")]

mod bench;
mod crashes;
mod elsewhere;
mod files;
mod sample;
mod store;
mod subject;
mod writers;

use std::collections::BTreeMap;
use std::path::Path;

use bench::SinkBench;
pub use crashes::crash_at_every_step;
pub use elsewhere::read_elsewhere;
use subject::with_columns;
pub use subject::{COLUMNS, Stored, StoredColumns, Subject};

use crate::{Layout, SinkError, SinkOptions, VectorSink};

/// Called with a step's name before every step that changes the disk.
pub type Probe = Box<dyn FnMut(&'static str) + Send>;

/// Runs the whole suite below `scratch`, an empty folder.
pub fn run(subject: &Subject<'_>, scratch: &Path) {
    for layout in LAYOUTS {
        let scratch = scratch.join(format!("{layout:?}"));
        let bench = SinkBench { subject, layout, columns: &[], in_store: false, scratch };
        bench.holds_everywhere();
        bench.two_writers_are_one_too_many();
    }
}

/// Runs the suite with outputs in an object store, which is a folder below `scratch`.
pub fn run_in_store(subject: &Subject<'_>, scratch: &Path) {
    let bench =
        SinkBench { subject, layout: Layout::Folder, columns: &[], in_store: true, scratch: scratch.join("store") };
    bench.holds_everywhere();
    bench.two_writers_do_no_harm();
    bench.a_writer_of_other_bytes_is_refused();
    bench.any_request_may_go_wrong();
    bench.a_commit_that_comes_too_late_is_refused();
}

/// Checks that a sink refuses columns by name when it is opened; `open` is its backend's.
pub fn columns_are_refused(open: impl FnOnce(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError>) {
    is_refused(open(&with_columns(SinkOptions::new("nowhere"), &COLUMNS)), "(caption, a url)");
}

/// Checks that a sink refuses unknown settings by name when it is opened; `open` is its backend's.
pub fn unknown_settings_are_refused(open: impl FnOnce(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError>) {
    let settings = BTreeMap::from([("no-such-setting".to_owned(), "1".to_owned())]);
    is_refused(open(&SinkOptions { settings, ..SinkOptions::new("nowhere") }), "'no-such-setting'");
}

fn is_refused(opened: Result<Box<dyn VectorSink>, SinkError>, says: &str) {
    match opened {
        Err(SinkError::Unsupported(reason)) => assert!(reason.contains(says), "{reason}"),
        Err(error) => panic!("not SinkError::Unsupported: {error}"),
        Ok(_) => panic!("{says} was ignored"),
    }
}

const LAYOUTS: [Layout; 2] = [Layout::File, Layout::Folder];
