//! The suite that every sink passes, and crashes at every step.

use std::fs::File;
use std::path::Path;

use foveate_sink::conformance::{Stored, Subject, crash_at_every_step, run};
use foveate_sink::parts::PartSink;
use foveate_sink::{Layout, Published, SinkRegistry};
use foveate_sink_npy::{NpyFormat, NpyHeader};

fn read(published: &Published) -> Stored {
    let arrays = published.files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "npy"));
    arrays.flat_map(|file| read_one(file)).collect()
}

fn read_one(array: &Path) -> Stored {
    let mut file = File::open(array).unwrap();
    let header = NpyHeader::read(&mut file).unwrap();
    let vectors = header.read_vectors(&mut file).unwrap();
    let mut ids = csv::Reader::from_path(array.with_extension("ids.csv")).unwrap();
    let rows: Stored = ids
        .records()
        .map(|record| record.unwrap()[0].to_owned())
        .zip(vectors.chunks(header.dim as usize).map(<[f32]>::to_vec))
        .collect();
    assert_eq!(rows.len() as u64, header.rows, "{}", array.display());
    assert_eq!(file.metadata().unwrap().len(), (NpyHeader::LEN + header.data_len().unwrap()) as u64);
    rows
}

#[test]
fn it_is_a_sink() {
    let mut registry = SinkRegistry::new("sink", &["npy"]);
    foveate_sink_npy::register(&mut registry).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let subject = Subject {
        open: &|options| registry.get("npy").unwrap().open(options).unwrap(),
        read: &read,
        extension: "npy",
        layouts: &[Layout::File, Layout::Folder],
    };
    run(&subject, scratch.path());
}

#[test]
fn a_crash_at_any_step_is_made_good() {
    let scratch = tempfile::tempdir().unwrap();
    crash_at_every_step(
        &|options, probe| Box::new(PartSink::new(options.clone(), NpyFormat).with_probe(probe)),
        "npy",
        scratch.path(),
    );
}
