//! The suite that every sink passes, and crashes at every step.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::fs::File;
use std::path::Path;

use arrow_array::FixedSizeListArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use foveate_sink::conformance::{Stored, Subject, crash_at_every_step, read_elsewhere, run, run_out_of_space};
use foveate_sink::parts::PartSink;
use foveate_sink::{Layout, Published, SinkRegistry};
use foveate_sink_parquet::ParquetFormat;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

fn read(published: &Published) -> Stored {
    let is_data = |file: &&std::path::PathBuf| file.extension().is_some_and(|extension| extension == "parquet");
    published.files.iter().filter(is_data).flat_map(|file| read_one(file)).collect()
}

fn read_one(path: &Path) -> Stored {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    let mut rows = Stored::new();
    for batch in reader.map(Result::unwrap) {
        let ids = batch["id"].as_string::<i32>();
        let vectors = batch["embedding"].as_fixed_size_list();
        rows.extend((0..batch.num_rows()).map(|row| (ids.value(row).to_owned(), vector(vectors, row))));
    }
    rows
}

fn vector(vectors: &FixedSizeListArray, row: usize) -> Vec<f32> {
    let values = vectors.value(row);
    match values.as_primitive_opt::<Float32Type>() {
        Some(values) => values.values().to_vec(),
        None => values.as_primitive::<Float16Type>().values().iter().map(|half| half.to_f32()).collect(),
    }
}

fn with_subject(check: impl FnOnce(&Subject<'_>)) {
    let mut registry = SinkRegistry::new("sink", &["parquet"]);
    foveate_sink_parquet::register(&mut registry).unwrap();
    check(&Subject {
        open: &|options| registry.get("parquet").unwrap().open(options).unwrap(),
        read: &read,
        extension: "parquet",
        layouts: &[Layout::File, Layout::Folder],
        cuts_parts: true,
    });
}

/// In memory where that is possible: the suite syncs thousands of files.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
fn it_is_a_sink() {
    with_subject(|subject| run(subject, scratch().path()));
}

#[test]
fn others_read_files_and_folders() {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py"));
    with_subject(|subject| {
        if let Err(reason) = read_elsewhere(subject, script, scratch().path()) {
            eprintln!("SKIPPED: {reason}");
        }
    });
}

#[test]
fn a_full_disk_is_made_good() {
    with_subject(|subject| {
        if let Err(reason) = run_out_of_space(subject, scratch().path()) {
            eprintln!("SKIPPED: {reason}");
        }
    });
}

#[test]
fn a_crash_at_any_step_is_made_good() {
    crash_at_every_step(
        &|options, probe| Box::new(PartSink::new(options.clone(), ParquetFormat).with_probe(probe)),
        "parquet",
        scratch().path(),
    );
}
