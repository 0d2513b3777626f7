//! The conformance suite for sinks, and crashes at every step.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{Array, FixedSizeListArray, StringArray};
use foveate_sink::conformance::{
    COLUMNS, Stored, StoredColumns, Subject, crash_at_every_request, crash_at_every_step, read_elsewhere, run,
    run_in_store, run_out_of_space, unknown_settings_are_refused,
};
use foveate_sink::parts::{PartSink, PrefixSink};
use foveate_sink::{
    Existing, Layout, Published, Rows, RunManifest, SinkError, SinkOptions, SinkRegistry, VectorSink, Watermark,
};
use foveate_sink_parquet::ParquetFormat;
use foveate_testkit::{Resource, by_length, trials};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

fn main() -> ExitCode {
    foveate_testkit::run(trials![
        it_is_a_sink,
        other_settings_are_refused,
        others_read_files_and_folders,
        a_full_disk_is_made_good,
        a_crash_at_any_step_is_made_good,
        compression_shrinks_files_and_is_part_of_the_run,
        it_is_a_sink_in_a_store,
        a_crash_at_any_request_is_made_good,
    ])
}

fn read(published: &Published) -> Stored {
    let is_data = |file: &&std::path::PathBuf| file.extension().is_some_and(|extension| extension == "parquet");
    published.files.iter().filter(is_data).flat_map(|file| read_one(file)).collect()
}

fn read_columns(published: &Published) -> StoredColumns {
    let is_data = |file: &&std::path::PathBuf| file.extension().is_some_and(|extension| extension == "parquet");
    let mut rows = StoredColumns::new();
    for path in published.files.iter().filter(is_data) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
        for batch in reader.map(Result::unwrap) {
            let columns = COLUMNS.map(|name| batch[name].as_string::<i32>().clone());
            let value = |column: &StringArray, row| column.is_valid(row).then(|| column.value(row).to_owned());
            rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| value(column, row)).collect()));
        }
    }
    rows
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

/// Every compression; the empty one stands for no setting.
const COMPRESSIONS: &[&str] = &["", "none", "snappy", "lz4", "zstd", "zstd:19"];

fn registry() -> SinkRegistry {
    let mut registry = SinkRegistry::new("sink", &["parquet"]);
    foveate_sink_parquet::register(&mut registry).unwrap();
    registry
}

fn compressed(compression: &str, options: &SinkOptions) -> SinkOptions {
    let setting = (!compression.is_empty()).then(|| ("compression".to_owned(), compression.to_owned()));
    SinkOptions { settings: setting.into_iter().collect(), ..options.clone() }
}

fn with_subject(compression: &str, check: impl FnOnce(&Subject<'_>)) {
    let registry = registry();
    check(&Subject {
        open: &|options| registry.get("parquet").unwrap().open(&compressed(compression, options)).unwrap(),
        read: &read,
        read_columns: Some(&read_columns),
        extension: "parquet",
        layouts: &[Layout::File, Layout::Folder],
        cuts_parts: true,
    });
}

/// Uses memory if possible: the suite syncs thousands of files.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn it_is_a_sink() {
    for compression in COMPRESSIONS {
        with_subject(compression, |subject| run(subject, scratch().path()));
    }
}

fn other_settings_are_refused() {
    unknown_settings_are_refused(|options| registry().get("parquet").unwrap().open(options));
    let gzip = compressed("gzip", &SinkOptions::new("nowhere"));
    assert!(matches!(registry().get("parquet").unwrap().open(&gzip), Err(SinkError::Unsupported(_))));
    for columns in [&["width"][..], &["a", "a"], &[""]] {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        let options = SinkOptions { columns, ..SinkOptions::new("nowhere") };
        assert!(matches!(registry().get("parquet").unwrap().open(&options), Err(SinkError::Unsupported(_))));
        let mut sink = PartSink::new(options, ParquetFormat::default());
        let refused = sink.begin(&RunManifest { dim: 1, ..RunManifest::default() }, Existing::Resume);
        assert!(matches!(refused, Err(SinkError::Unsupported(_))), "{refused:?}");
    }
    assert!(registry().get("parquet").unwrap().has_columns());
}

fn others_read_files_and_folders() {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py"));
    // One of each codec: every reader is restarted for every file.
    for compression in COMPRESSIONS.iter().filter(|name| !["none", "zstd:19"].contains(name)) {
        with_subject(compression, |subject| {
            if let Err(reason) = read_elsewhere(subject, script, scratch().path()) {
                Resource::Python.missing(reason);
            }
        });
    }
}

fn a_full_disk_is_made_good() {
    with_subject("", |subject| {
        if let Err(reason) = run_out_of_space(subject, scratch().path()) {
            Resource::Mount.missing(reason);
        }
    });
}

fn a_crash_at_any_step_is_made_good() {
    // The steps do not depend on the codec.
    for compression in by_length(&["zstd"][..], COMPRESSIONS) {
        crash_at_every_step(
            &|options, probe| {
                let options = compressed(compression, options);
                let format = ParquetFormat::new(&options).unwrap();
                Box::new(PartSink::new(options, format).with_probe(probe))
            },
            "parquet",
            if compression.is_empty() { &[] } else { &COLUMNS },
            scratch().path(),
        );
    }
}

/// Writes repetitive vectors, so that every codec can compress something; returns the file's bytes.
fn written(compression: &str, folder: &Path) -> Vec<u8> {
    let options = compressed(compression, &SinkOptions::new(folder.join("x.parquet")));
    let mut sink = registry().get("parquet").unwrap().open(&options).unwrap();
    sink.begin(&RunManifest { dim: 64, ..RunManifest::default() }, Existing::Overwrite).unwrap();
    let id: Vec<String> = (0..100).map(|i| format!("photos/{i}.jpg")).collect();
    let vectors: Vec<f32> = (0..6400).map(|i| (i % 16) as f32).collect();
    let index: Vec<u64> = (0..100).collect();
    let (side, xxh3) = ([1; 100], [1; 100]);
    sink.append(&Rows {
        index: &index,
        id: &id,
        vectors: &vectors,
        width: &side,
        height: &side,
        xxh3: &xxh3,
        columns: &[],
    })
    .unwrap();
    sink.commit(Watermark::from(100)).unwrap();
    std::fs::read(&sink.finish().unwrap().files[0]).unwrap()
}

fn compression_shrinks_files_and_is_part_of_the_run() {
    let folder = scratch();
    let plain = written("", folder.path());
    assert!(plain.len() > 6400 * 4, "{} bytes hold every component", plain.len());
    for compression in COMPRESSIONS.iter().filter(|name| !["", "none"].contains(name)) {
        let len = written(compression, folder.path()).len();
        assert!(len < plain.len() / 2, "{compression}: {len} of {} bytes", plain.len());
    }
    // An interrupted run must not continue with another compression.
    let options = SinkOptions::new(folder.path().join("y.parquet"));
    let begin = |compression| {
        let mut sink = registry().get("parquet").unwrap().open(&compressed(compression, &options)).unwrap();
        sink.begin(&RunManifest { dim: 64, ..RunManifest::default() }, Existing::Resume).map(drop)
    };
    begin("snappy").unwrap();
    let error = begin("lz4").unwrap_err().to_string();
    assert!(error.contains("sink.compression: snappy → lz4"), "{error}");
    begin("snappy").unwrap();
}

fn it_is_a_sink_in_a_store() {
    with_subject("", |subject| run_in_store(subject, scratch().path()));
}

fn a_crash_at_any_request_is_made_good() {
    crash_at_every_request(
        &|options, probe| {
            let (prefix, format) = (options.prefix.clone().unwrap(), ParquetFormat::new(options).unwrap());
            Box::new(PrefixSink::new(prefix, options.clone(), format).with_probe(probe))
        },
        "parquet",
        &COLUMNS,
        scratch().path(),
    );
}
