//! Stores vectors by id in LMDB, crash-safe, with only foveate's sink, and reads them back.

use std::error::Error;

use foveate_sink::parts::PartSink;
use foveate_sink::{Existing, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_sink_lmdb::{LmdbFormat, LmdbVectors};

const DIM: usize = 4;

/// Stands for the source of your vectors.
fn embed(item: u64) -> [f32; DIM] {
    std::array::from_fn(|component| (item * 10 + component as u64) as f32)
}

/// Stores the items from `first` to `end` and commits them.
fn store(sink: &mut dyn VectorSink, first: u64, end: u64) -> Result<(), SinkError> {
    for item in first..end {
        sink.append(&Rows {
            index: &[item], // the place in your source: it only has to increase
            id: &[format!("items/{item}")],
            vectors: &embed(item),
            width: &[640],
            height: &[480],
            xxh3: &[0],
            columns: &[],
        })?;
    }
    sink.commit(end.into()) // durable when this returns
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("foveate-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let output = folder.join("vectors.lmdb");
    // Decides whether a later call continues this run or is refused.
    let manifest = RunManifest {
        dim: DIM,
        fingerprint: [("model".to_owned(), "example".to_owned())].into(),
        ..RunManifest::default()
    };

    let mut sink = PartSink::new(SinkOptions::new(&output), LmdbFormat);
    sink.begin(&manifest, Existing::Resume)?;
    store(&mut sink, 0, 3)?;
    drop(sink); // interrupted: the program ends here, or is killed

    // The same run continues after the last commit.
    let mut sink = PartSink::new(SinkOptions::new(&output), LmdbFormat);
    let Watermark { index: next, .. } = sink.begin(&manifest, Existing::Resume)?;
    assert_eq!(next, 3);

    assert!(!output.exists(), "the file appears when it is complete");
    store(&mut sink, next, 5)?;
    let published = sink.finish()?;
    assert_eq!((published.rows, &published.files[0]), (5, &output));

    let vectors = LmdbVectors::open(&output)?;
    assert_eq!(vectors.get("items/4")?[0].vector, embed(4));
    let mut items = 0;
    vectors.for_each(|row| {
        assert_eq!(row.vector, embed(row.index));
        items += 1;
        Ok::<(), SinkError>(())
    })?;
    println!("{}: {items} vectors of {DIM} components", output.display());
    assert_eq!(items, 5);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
