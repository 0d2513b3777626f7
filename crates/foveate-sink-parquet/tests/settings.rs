//! Settings and columns: what is refused, and what compression does.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::path::Path;

use foveate_sink::parts::PartSink;
use foveate_sink::{Existing, Rows, RunManifest, SinkError, SinkOptions, SinkRegistry, VectorSink, Watermark};
use foveate_sink_parquet::ParquetFormat;

fn registry() -> SinkRegistry {
    let mut registry = SinkRegistry::new("sink", &["parquet"]);
    foveate_sink_parquet::register(&mut registry).unwrap();
    registry
}

fn compressed(compression: &str, options: &SinkOptions) -> SinkOptions {
    let setting = (!compression.is_empty()).then(|| ("compression".to_owned(), compression.to_owned()));
    SinkOptions { settings: setting.into_iter().collect(), ..options.clone() }
}

#[test]
fn other_settings_are_refused() {
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

#[test]
fn compression_shrinks_files_and_is_part_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let plain = written("", folder.path());
    assert!(plain.len() > 6400 * 4, "{} bytes hold every component", plain.len());
    for compression in ["snappy", "lz4", "zstd", "zstd:19"] {
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
