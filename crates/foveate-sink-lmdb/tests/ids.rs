//! No id is lost, and no map is too small.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::path::Path;

use foveate_sink::parts::PartSink;
use foveate_sink::{Element, Existing, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_sink_lmdb::{LmdbFormat, LmdbRow, LmdbVectors};

const DIM: usize = 384;

fn manifest() -> RunManifest {
    RunManifest { dim: DIM, ..RunManifest::default() }
}

fn vector(index: u64) -> Vec<f32> {
    (0..DIM).map(|at| (index * 1000 + at as u64) as f32).collect()
}

/// Appends the items from `first` on in one call, and commits them.
fn store(sink: &mut dyn VectorSink, first: u64, ids: &[String]) {
    let index: Vec<u64> = (first..first + ids.len() as u64).collect();
    let vectors: Vec<f32> = index.iter().flat_map(|&index| vector(index)).collect();
    let (side, xxh3) = (vec![9; ids.len()], index.clone());
    let rows =
        Rows { index: &index, id: ids, vectors: &vectors, width: &side, height: &side, xxh3: &xxh3, columns: &[] };
    sink.append(&rows).unwrap();
    sink.commit(Watermark::from(first + ids.len() as u64)).unwrap();
}

fn rows(path: &Path) -> Vec<LmdbRow> {
    let mut rows = Vec::new();
    let all = LmdbVectors::open(path).unwrap().for_each(|row| {
        rows.push(row);
        Ok::<(), SinkError>(())
    });
    all.unwrap();
    rows
}

fn indexes(vectors: &LmdbVectors, id: &str) -> Vec<u64> {
    let rows = vectors.get(id).unwrap();
    assert!(rows.iter().all(|row| row.id == id && row.vector == vector(row.index)));
    rows.iter().map(|row| row.index).collect()
}

#[test]
fn every_id_is_kept_whatever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.lmdb");
    let long = |letter: &str, len: usize| letter.repeat(len);
    let ids: Vec<String> = ["z", "a", "", "\0", "\0zero", "manifest", "watermark", "vectors", "z", "z", "", "żółw"]
        .into_iter()
        .map(str::to_owned)
        .chain([long("k", 511), long("k", 512), long("k", 513), long("k", 512), long("k", 100_000), long("k", 511)])
        .collect();
    // Two by two, with a separate sink for each pair.
    for (pair, ids) in (0..).zip(ids.chunks(2)) {
        let mut sink = PartSink::new(SinkOptions::new(&path), LmdbFormat);
        assert_eq!(sink.begin(&manifest(), Existing::Resume).unwrap(), Watermark::from(pair * 2));
        store(&mut sink, pair * 2, ids);
    }
    let mut sink = PartSink::new(SinkOptions::new(&path), LmdbFormat);
    sink.begin(&manifest(), Existing::Resume).unwrap();
    assert_eq!(sink.finish().unwrap().rows, ids.len() as u64);

    let found: Vec<String> = rows(&path).into_iter().map(|row| row.id).collect();
    assert_eq!(found, ids, "in source order");
    let vectors = LmdbVectors::open(&path).unwrap();
    for id in &ids {
        let expected: Vec<u64> = (0..).zip(&ids).filter(|(_, other)| *other == id).map(|(at, _)| at).collect();
        assert_eq!(indexes(&vectors, id), expected, "{:?} ({} bytes)", &id[..id.len().min(9)], id.len());
    }
    assert!(vectors.get("nobody").unwrap().is_empty());
    assert!(vectors.get(&long("k", 600)).unwrap().is_empty());
}

#[test]
fn duplicates_within_a_commit_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.lmdb");
    let mut sink = PartSink::new(SinkOptions::new(&path), LmdbFormat);
    sink.begin(&manifest(), Existing::Resume).unwrap();
    store(&mut sink, 0, &["b", "b", "a", "b", "a"].map(str::to_owned));
    assert_eq!(sink.finish().unwrap().rows, 5);
    let vectors = LmdbVectors::open(&path).unwrap();
    assert_eq!((indexes(&vectors, "b"), indexes(&vectors, "a")), (vec![0, 1, 3], vec![2, 4]));
}

#[test]
fn a_full_map_grows_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let ids =
        |first: u64| -> Vec<String> { (first..first + 1000).map(|at| format!("{:08}", at * 7919 % 20_000)).collect() };
    let path = dir.path().join("x.lmdb");
    let mut sink = PartSink::new(SinkOptions::new(&path), LmdbFormat);
    sink.begin(&manifest(), Existing::Resume).unwrap();
    (0..20).for_each(|block| store(&mut sink, block * 1000, &ids(block * 1000)));
    sink.finish().unwrap();
    let bytes = std::fs::metadata(&path).unwrap().len() as usize;
    assert!(bytes > 20_000 * DIM * 4 && bytes < 20_000 * DIM * 4 * 4 / 3 + (1 << 20), "{bytes} bytes");
    let found = rows(&path);
    assert_eq!(found.len(), 20_000);
    for (at, row) in (0..).zip(&found) {
        assert!(row.index == at && row.vector == vector(at) && row.id == format!("{:08}", at * 7919 % 20_000));
    }
}

#[test]
fn vectors_wider_than_a_page_are_kept() {
    for (dim, element) in [(1, Element::F16), (1536, Element::F32), (3, Element::F32), (100_000, Element::F16)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lmdb");
        let mut sink = PartSink::new(SinkOptions { element, ..SinkOptions::new(&path) }, LmdbFormat);
        sink.begin(&RunManifest { dim, ..RunManifest::default() }, Existing::Resume).unwrap();
        let vectors: Vec<f32> = (0..dim * 2).map(|at| (at % 100) as f32).collect();
        let id = ["b".to_owned(), "a".to_owned()];
        let (side, xxh3) = ([1, 2], [3, 4]);
        let rows =
            Rows { index: &[0, 1], id: &id, vectors: &vectors, width: &side, height: &side, xxh3: &xxh3, columns: &[] };
        sink.append(&rows).unwrap();
        sink.commit(Watermark::from(2)).unwrap();
        sink.finish().unwrap();
        let found = components(&path);
        assert_eq!(found, vectors, "{dim} of {element:?}");
    }
}

fn components(path: &Path) -> Vec<f32> {
    rows(path).into_iter().flat_map(|row| row.vector).collect()
}

#[test]
fn a_file_that_is_no_database_is_respected_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.lmdb");
    std::fs::write(&path, "my thesis").unwrap();
    let error = PartSink::new(SinkOptions::new(&path), LmdbFormat).begin(&manifest(), Existing::Resume).unwrap_err();
    assert!(matches!(error, SinkError::Missing { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"my thesis");
    assert!(matches!(LmdbVectors::open(&path), Err(SinkError::Damaged { .. })));
}
