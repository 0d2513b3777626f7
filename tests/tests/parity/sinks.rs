//! Every compiled sink with all suites of its trait. Other libraries read the output back.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{Array, RecordBatch, StringArray};
use arrow_ipc::reader::FileReader;
use foveate::backends::sinks;
use foveate_sink::conformance::{
    COLUMNS, Probe, Stored, StoredColumns, Subject, columns_are_refused, crash_at_every_step, read_elsewhere, run,
    run_in_store, unknown_settings_are_refused,
};
use foveate_sink::parts::{PartFormat, PartSink};
use foveate_sink::{Existing, Published, RunManifest, SinkBackend, SinkOptions, VectorSink, sidecar};
use foveate_sink_arrow::ArrowFormat;
use foveate_sink_npy::NpyFormat;
use foveate_sink_parquet::ParquetFormat;
use foveate_testkit::{Resource, Trial, by_length};
use foveate_tests::trial::{Outcome, trial};
use half::f16;
use npyz::{NpyFile, NpyHeader};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

/// Properties of a sink beyond its backend.
struct Format {
    /// Opens it with a probe.
    probed: fn(&SinkOptions, Probe) -> Box<dyn VectorSink>,
    /// Reads one of its files.
    read: fn(&Path) -> Stored,
    read_columns: Option<fn(&Path) -> StoredColumns>,
    /// The settings that it has; the suites run with each of them.
    settings: &'static [Setting],
    /// True if its outputs may be in an object store.
    in_stores: bool,
}

type Setting = &'static [(&'static str, &'static str)];

/// Every codec of Parquet, and none.
const COMPRESSIONS: &[Setting] = &[
    &[],
    &[("compression", "snappy")],
    &[("compression", "lz4")],
    &[("compression", "zstd")],
    &[("compression", "none")],
    &[("compression", "zstd:19")],
];

fn format(name: &str) -> Option<Format> {
    let plain = |probed, read, in_stores| Format { probed, read, read_columns: None, settings: &[&[]], in_stores };
    match name {
        "npy" => Some(plain(|options, probe| probed(options, NpyFormat, probe), read_npy, true)),
        "parquet" => Some(Format {
            probed: |options, probe| probed(options, ParquetFormat::new(options).unwrap(), probe),
            read: |path| vectors_of(parquet_batches(path)),
            read_columns: Some(|path| columns_of(parquet_batches(path))),
            settings: COMPRESSIONS,
            in_stores: true,
        }),
        "arrow" => Some(Format {
            probed: |options, probe| probed(options, ArrowFormat, probe),
            read: |path| vectors_of(arrow_batches(path)),
            read_columns: Some(|path| columns_of(arrow_batches(path))),
            settings: &[&[]],
            in_stores: true,
        }),
        #[cfg(feature = "native")]
        "lmdb" => Some(plain(|options, probe| probed(options, foveate_sink_lmdb::LmdbFormat, probe), read_lmdb, false)),
        _ => None,
    }
}

fn probed<F: PartFormat + 'static>(options: &SinkOptions, format: F, probe: Probe) -> Box<dyn VectorSink> {
    Box::new(PartSink::new(options.clone(), format).with_probe(probe))
}

type Check = fn(&SinkBackend, &Format);

pub(super) fn trials() -> Vec<Trial> {
    let (names, mut trials) = super::backends("sink", &sinks());
    let checks: [(&str, Check); 5] = [
        ("conformance", conforms),
        ("refusals", refuses),
        ("other-readers", others_read_it),
        ("crashes", makes_a_crash_at_any_step_good),
        ("store", conforms_in_a_store),
    ];
    for (name, (what, check)) in names.iter().flat_map(|name| checks.map(|check| (name.clone(), check))) {
        trials.push(trial(format!("sink::{name}::{what}"), move || {
            let format = format(&name).ok_or_else(|| {
                Outcome::Ignored(format!("these tests know {name} only with -F foveate-tests/native"))
            })?;
            if what == "store" && !format.in_stores {
                return Err(Outcome::Ignored(format!("{name} has no outputs in object stores")));
            }
            check(sinks().get(&name)?, &format);
            Ok(())
        }));
    }
    trials
}

fn with(setting: Setting, options: &SinkOptions) -> SinkOptions {
    let settings = setting.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    SinkOptions { settings, ..options.clone() }
}

fn with_subject(backend: &SinkBackend, format: &Format, setting: Setting, check: impl FnOnce(&Subject<'_>)) {
    let extension = backend.extension();
    let is_data = |file: &&PathBuf| file.extension().is_some_and(|found| found == extension);
    let read_columns = format.read_columns.map(|read| {
        move |published: &Published| published.files.iter().filter(is_data).flat_map(|file| read(file)).collect()
    });
    check(&Subject {
        open: &|options| backend.open(&with(setting, options)).unwrap(),
        read: &|published| published.files.iter().filter(is_data).flat_map(|file| (format.read)(file)).collect(),
        read_columns: read_columns.as_ref().map(|read| read as &dyn Fn(&Published) -> StoredColumns),
        extension,
    });
}

/// Uses memory if possible: the suites sync thousands of files.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn conforms(backend: &SinkBackend, format: &Format) {
    for setting in format.settings {
        with_subject(backend, format, setting, |subject| run(subject, scratch().path()));
    }
}

/// A sink refuses what it cannot do when it is opened, and when it begins.
fn refuses(backend: &SinkBackend, format: &Format) {
    unknown_settings_are_refused(|options| backend.open(options));
    assert_eq!(backend.has_columns(), format.read_columns.is_some());
    if !backend.has_columns() {
        columns_are_refused(|options| backend.open(options));
        columns_are_refused(|options| {
            let mut sink = (format.probed)(options, Box::new(|_| {}));
            sink.begin(&RunManifest { dim: 1, ..RunManifest::default() }, Existing::Resume)?;
            Ok(sink)
        });
    }
}

/// With one setting of each codec: every reader is restarted for every file.
fn others_read_it(backend: &SinkBackend, format: &Format) {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/parity/readers/read_{}.py", backend.extension()));
    if backend.extension() == "lmdb" {
        drop(foveate_testkit::program(Resource::LmdbUtils, "mdb_stat"));
    }
    for setting in format.settings.iter().take(4) {
        with_subject(backend, format, setting, |subject| {
            if let Err(reason) = read_elsewhere(subject, &script, scratch().path()) {
                Resource::Python.missing(reason);
            }
        });
    }
}

fn makes_a_crash_at_any_step_good(backend: &SinkBackend, format: &Format) {
    // The steps do not depend on the codec.
    for setting in by_length(&format.settings[..1], format.settings) {
        let open = |options: &SinkOptions, probe| (format.probed)(&with(setting, options), probe);
        crash_at_every_step(&open, backend.extension(), columns(format), scratch().path());
    }
}

fn conforms_in_a_store(backend: &SinkBackend, format: &Format) {
    with_subject(backend, format, &[], |subject| run_in_store(subject, scratch().path()));
}

fn columns(format: &Format) -> &'static [&'static str] {
    if format.read_columns.is_some() { &COLUMNS } else { &[] }
}

fn parquet_batches(path: &Path) -> impl Iterator<Item = RecordBatch> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    reader.map(Result::unwrap)
}

fn arrow_batches(path: &Path) -> impl Iterator<Item = RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap)
}

fn vectors_of(batches: impl Iterator<Item = RecordBatch>) -> Stored {
    let mut rows = Stored::new();
    for batch in batches {
        let (ids, vectors) = (batch["id"].as_string::<i32>(), batch["embedding"].as_fixed_size_list());
        for row in 0..batch.num_rows() {
            let values = vectors.value(row);
            let vector = match values.as_primitive_opt::<Float32Type>() {
                Some(values) => values.values().to_vec(),
                None => values.as_primitive::<Float16Type>().values().iter().map(|value| value.to_f32()).collect(),
            };
            rows.push((ids.value(row).to_owned(), vector));
        }
    }
    rows
}

fn columns_of(batches: impl Iterator<Item = RecordBatch>) -> StoredColumns {
    let mut rows = StoredColumns::new();
    for batch in batches {
        let columns = COLUMNS.map(|name| batch[name].as_string::<i32>().clone());
        let value = |column: &StringArray, row| column.is_valid(row).then(|| column.value(row).to_owned());
        rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| value(column, row)).collect()));
    }
    rows
}

/// Reads single or half precision; ids from the CSV file beside the array.
fn read_npy(path: &Path) -> Stored {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let header = NpyHeader::from_reader(&mut rest).unwrap();
    let &[count, dim] = header.shape() else { panic!("two dimensions") };
    assert_eq!(rest.len() as u64, count * dim * header.dtype().num_bytes().unwrap() as u64, "{}", path.display());
    let vectors: Vec<f32> = match NpyFile::with_header(header, rest).try_data::<f32>() {
        Ok(values) => values.map(Result::unwrap).collect(),
        Err(array) => array.into_vec::<f16>().unwrap().into_iter().map(f16::to_f32).collect(),
    };
    let mut ids = csv::Reader::from_path(sidecar(path, "ids.csv")).unwrap();
    let ids: Vec<String> = ids.records().map(|record| record.unwrap()[0].to_owned()).collect();
    assert_eq!(ids.len() as u64, count);
    ids.into_iter().zip(vectors.chunks(dim as usize).map(<[f32]>::to_vec)).collect()
}

#[cfg(feature = "native")]
fn read_lmdb(path: &Path) -> Stored {
    let (vectors, mut rows) = (foveate_sink_lmdb::LmdbVectors::open(path).unwrap(), Stored::new());
    let all = vectors.for_each(|row| {
        rows.push((row.id, row.vector));
        Ok::<(), foveate_sink::SinkError>(())
    });
    all.unwrap();
    assert_eq!(vectors.count().unwrap(), rows.len() as u64);
    rows
}
