//! What others make of our files: pyarrow, DuckDB and polars.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::path::PathBuf;
use std::process::Command;

use foveate_sink::parts::PartSink;
use foveate_sink::{Element, Existing, Layout, Rows, RunManifest, SinkOptions, VectorSink, Watermark};
use foveate_sink_parquet::ParquetFormat;

/// Ten rows; `readers.py` expects the same.
fn write(options: SinkOptions) -> Vec<PathBuf> {
    let mut sink = PartSink::new(options, ParquetFormat);
    let fingerprint = [("model".to_owned(), "tiny".to_owned())].into();
    sink.begin(&RunManifest { dim: 4, fingerprint, ..RunManifest::default() }, Existing::Refuse).unwrap();
    let index: Vec<u64> = (0..10).collect();
    let id: Vec<String> = index.iter().map(|i| format!("photos/{i}, \"ż\".jpg")).collect();
    let vectors: Vec<f32> = (0..40).map(|i| i as f32 * 0.1).collect();
    let xxh3: Vec<u64> = index.iter().map(|i| i * 7).collect();
    let (width, height) = ([100; 10], [200; 10]);
    let rows = Rows { index: &index, id: &id, vectors: &vectors, width: &width, height: &height, xxh3: &xxh3 };
    sink.append(&rows).unwrap();
    sink.commit(Watermark(10)).unwrap();
    let files = sink.finish().unwrap().files;
    files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "parquet")).collect()
}

fn read_elsewhere(element: Element, files: &[PathBuf]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py");
    let Ok(output) = Command::new("python3").arg(script).arg(element.name()).args(files).output() else {
        eprintln!("SKIPPED: there is no python3");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let erred = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(77) => eprintln!("SKIPPED: {said}"),
        code => assert_eq!(code, Some(0), "{said}{erred}"),
    }
}

#[test]
fn others_read_single_and_spliced_files_and_folders() {
    let scratch = tempfile::tempdir().unwrap();
    for element in [Element::F32, Element::F16] {
        for (output, layout) in [("x.parquet", Layout::File), ("x", Layout::Folder)] {
            for part_items in [4, 100] {
                let output = scratch.path().join(format!("{}-{part_items}-{output}", element.name()));
                let files = write(SinkOptions { element, layout, part_items, ..SinkOptions::new(output) });
                assert_eq!(files.len(), if layout == Layout::Folder && part_items == 4 { 3 } else { 1 });
                read_elsewhere(element, &files);
            }
        }
    }
}
