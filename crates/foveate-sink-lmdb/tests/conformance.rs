//! The conformance suite for sinks, and crashes at every step.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::path::Path;
use std::process::ExitCode;

use foveate_sink::conformance::{
    Stored, Subject, columns_are_refused, crash_at_every_step, read_elsewhere, run, run_out_of_space,
    unknown_settings_are_refused,
};
use foveate_sink::parts::PartSink;
use foveate_sink::{Existing, Layout, Published, RunManifest, SinkError, SinkRegistry, VectorSink};
use foveate_sink_lmdb::{LmdbFormat, Vectors};
use foveate_testkit::{Resource, program, trials};
use tempfile::TempDir;

fn main() -> ExitCode {
    foveate_testkit::run(trials![
        it_is_a_sink,
        it_has_no_settings,
        it_has_no_columns,
        others_read_files_and_folders,
        a_full_disk_is_made_good,
        a_crash_at_any_step_is_made_good,
    ])
}

fn read(published: &Published) -> Stored {
    let mut rows = Stored::new();
    for file in published.files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "lmdb")) {
        let (vectors, before) = (Vectors::open(file).unwrap(), rows.len());
        let all = vectors.for_each(|row| {
            rows.push((row.id, row.vector));
            Ok::<(), SinkError>(())
        });
        all.unwrap();
        assert_eq!(vectors.count().unwrap(), (rows.len() - before) as u64);
    }
    rows
}

fn registry() -> SinkRegistry {
    let mut registry = SinkRegistry::new("sink", &["lmdb"]);
    foveate_sink_lmdb::register(&mut registry).unwrap();
    registry
}

fn with_subject(check: impl FnOnce(&Subject<'_>)) {
    let registry = registry();
    check(&Subject {
        open: &|options| registry.get("lmdb").unwrap().open(options).unwrap(),
        read: &read,
        read_columns: None,
        extension: "lmdb",
        layouts: &[Layout::File, Layout::Folder],
        cuts_parts: true,
    });
}

/// Uses memory if possible: the suite syncs thousands of files.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn it_is_a_sink() {
    with_subject(|subject| run(subject, scratch().path()));
}

fn it_has_no_settings() {
    unknown_settings_are_refused(|options| registry().get("lmdb").unwrap().open(options));
}

fn it_has_no_columns() {
    columns_are_refused(|options| registry().get("lmdb").unwrap().open(options));
    columns_are_refused(|options| {
        let mut sink = PartSink::new(options.clone(), LmdbFormat);
        sink.begin(&RunManifest { dim: 1, ..RunManifest::default() }, Existing::Resume)?;
        Ok(Box::new(sink))
    });
}

fn others_read_files_and_folders() {
    drop(program(Resource::LmdbUtils, "mdb_stat"));
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py"));
    with_subject(|subject| {
        if let Err(reason) = read_elsewhere(subject, script, scratch().path()) {
            Resource::Python.missing(reason);
        }
    });
}

fn a_full_disk_is_made_good() {
    with_subject(|subject| {
        if let Err(reason) = run_out_of_space(subject, scratch().path()) {
            Resource::Mount.missing(reason);
        }
    });
}

fn a_crash_at_any_step_is_made_good() {
    crash_at_every_step(
        &|options, probe| Box::new(PartSink::new(options.clone(), LmdbFormat).with_probe(probe)),
        "lmdb",
        &[],
        scratch().path(),
    );
}
