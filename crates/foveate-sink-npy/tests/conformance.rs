//! The conformance suite for sinks, and crashes at every step.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::fs::File;
use std::io::Seek;
use std::path::Path;
use std::process::ExitCode;

use foveate_sink::conformance::{
    Stored, Subject, columns_are_refused, crash_at_every_request, crash_at_every_step, read_elsewhere, run,
    run_in_store, run_out_of_space, unknown_settings_are_refused,
};
use foveate_sink::parts::{PartSink, PrefixSink};
use foveate_sink::{Existing, Layout, Published, RunManifest, SinkRegistry, VectorSink, sidecar};
use foveate_sink_npy::NpyFormat;
use foveate_testkit::{Resource, trials};
use half::f16;
use npyz::NpyFile;
use tempfile::TempDir;

fn main() -> ExitCode {
    foveate_testkit::run(trials![
        it_is_a_sink,
        it_has_no_settings,
        it_has_no_columns,
        others_read_files_and_folders,
        a_full_disk_is_made_good,
        a_crash_at_any_step_is_made_good,
        it_is_a_sink_in_a_store,
        a_crash_at_any_request_is_made_good,
    ])
}

fn read(published: &Published) -> Stored {
    let arrays = published.files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "npy"));
    arrays.flat_map(|file| read_one(file)).collect()
}

fn read_one(array: &Path) -> Stored {
    let mut file = File::open(array).unwrap();
    let header = npyz::NpyHeader::from_reader(&mut file).unwrap();
    let (length, &[count, dim]) = (file.stream_position().unwrap(), header.shape()) else { panic!("two dimensions") };
    let bytes = header.dtype().num_bytes().unwrap() as u64;
    let vectors = floats(npyz::NpyFile::with_header(header.clone(), &mut file));
    let mut ids = csv::Reader::from_path(sidecar(array, "ids.csv")).unwrap();
    let rows: Stored = ids
        .records()
        .map(|record| record.unwrap()[0].to_owned())
        .zip(vectors.chunks(dim as usize).map(<[f32]>::to_vec))
        .collect();
    assert_eq!(rows.len() as u64, count, "{}", array.display());
    assert_eq!(file.metadata().unwrap().len(), length + count * dim * bytes, "{}", array.display());
    rows
}

/// An array's values in single or half precision.
fn floats(array: NpyFile<&mut File>) -> Vec<f32> {
    match array.try_data::<f32>() {
        Ok(values) => values.map(Result::unwrap).collect(),
        Err(array) => array.into_vec::<f16>().unwrap().into_iter().map(f16::to_f32).collect(),
    }
}

fn registry() -> SinkRegistry {
    let mut registry = SinkRegistry::new("sink", &["npy"]);
    foveate_sink_npy::register(&mut registry).unwrap();
    registry
}

fn with_subject(check: impl FnOnce(&Subject<'_>)) {
    let registry = registry();
    check(&Subject {
        open: &|options| registry.get("npy").unwrap().open(options).unwrap(),
        read: &read,
        read_columns: None,
        extension: "npy",
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
    unknown_settings_are_refused(|options| registry().get("npy").unwrap().open(options));
}

fn it_has_no_columns() {
    columns_are_refused(|options| registry().get("npy").unwrap().open(options));
    columns_are_refused(|options| {
        let mut sink = PartSink::new(options.clone(), NpyFormat);
        sink.begin(&RunManifest { dim: 1, ..RunManifest::default() }, Existing::Resume)?;
        Ok(Box::new(sink))
    });
}

fn others_read_files_and_folders() {
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
        &|options, probe| Box::new(PartSink::new(options.clone(), NpyFormat).with_probe(probe)),
        "npy",
        &[],
        scratch().path(),
    );
}

fn it_is_a_sink_in_a_store() {
    with_subject(|subject| run_in_store(subject, scratch().path()));
}

fn a_crash_at_any_request_is_made_good() {
    crash_at_every_request(
        &|options, probe| {
            let prefix = options.prefix.clone().unwrap();
            Box::new(PrefixSink::new(prefix, options.clone(), NpyFormat).with_probe(probe))
        },
        "npy",
        &[],
        scratch().path(),
    );
}
