//! No id is lost, and no map is too small.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::path::Path;

use foveate_sink::{Element, Existing, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_sink_lmdb::{LmdbSink, Row, Vectors};

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

fn rows(path: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    let all = Vectors::open(path).unwrap().for_each(|row| {
        rows.push(row);
        Ok::<(), SinkError>(())
    });
    all.unwrap();
    rows
}

fn indexes(vectors: &Vectors, id: &str) -> Vec<u64> {
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
        let mut sink = LmdbSink::new(SinkOptions::new(&path));
        assert_eq!(sink.begin(&manifest(), Existing::Resume).unwrap(), Watermark::from(pair * 2));
        store(&mut sink, pair * 2, ids);
    }
    let mut sink = LmdbSink::new(SinkOptions::new(&path));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    assert_eq!(sink.finish().unwrap().rows, ids.len() as u64);

    let found: Vec<String> = rows(&path).into_iter().map(|row| row.id).collect();
    assert_eq!(found, ids, "in source order");
    let vectors = Vectors::open(&path).unwrap();
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
    let mut sink = LmdbSink::new(SinkOptions::new(&path));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    store(&mut sink, 0, &["b", "b", "a", "b", "a"].map(str::to_owned));
    assert_eq!(sink.finish().unwrap().rows, 5);
    let vectors = Vectors::open(&path).unwrap();
    assert_eq!((indexes(&vectors, "b"), indexes(&vectors, "a")), (vec![0, 1, 3], vec![2, 4]));
}

#[test]
fn a_full_map_grows_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let ids =
        |first: u64| -> Vec<String> { (first..first + 1000).map(|at| format!("{:08}", at * 7919 % 8000)).collect() };
    let write = |name: &str, map_size: Option<usize>| {
        let path = dir.path().join(name);
        let mut sink = LmdbSink::new(SinkOptions::new(&path));
        if let Some(bytes) = map_size {
            sink = sink.with_map_size(bytes);
        }
        sink.begin(&manifest(), Existing::Resume).unwrap();
        (0..8).for_each(|block| store(&mut sink, block * 1000, &ids(block * 1000)));
        sink.finish().unwrap();
        path
    };
    // One transaction of 1000 rows alone is twice the map, and the finished file outgrows its first map, too.
    let (small, roomy) = (write("small.lmdb", Some(1 << 20)), write("roomy.lmdb", None));
    let (small, roomy) = (std::fs::read(small).unwrap(), std::fs::read(roomy).unwrap());
    assert!(small.len() > 8000 * DIM * 4 && small.len() < 8000 * DIM * 4 * 4 / 3 + (1 << 20), "{} bytes", small.len());
    assert!(small == roomy, "the map that a run began with shows in what it wrote");
    let found = rows(&dir.path().join("small.lmdb"));
    assert_eq!(found.len(), 8000);
    for (at, row) in (0..).zip(&found) {
        assert!(row.index == at && row.vector == vector(at) && row.id == format!("{:08}", at * 7919 % 8000));
    }
}

#[test]
fn vectors_wider_than_a_page_are_kept() {
    for (dim, element) in [(1, Element::F16), (1536, Element::F32), (3, Element::F32), (100_000, Element::F16)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lmdb");
        let mut sink = LmdbSink::new(SinkOptions { element, ..SinkOptions::new(&path) });
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
    let error = LmdbSink::new(SinkOptions::new(&path)).begin(&manifest(), Existing::Resume).unwrap_err();
    assert!(matches!(error, SinkError::Exists(_)), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"my thesis");
    assert!(matches!(Vectors::open(&path), Err(SinkError::Damaged { .. })));

    let staging = dir.path().join("y.lmdb.partial");
    std::fs::create_dir(&staging).unwrap();
    std::fs::write(staging.join("data.mdb"), "not what this program wrote").unwrap();
    let error =
        LmdbSink::new(SinkOptions::new(dir.path().join("y.lmdb"))).begin(&manifest(), Existing::Resume).unwrap_err();
    assert!(matches!(error, SinkError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("y.lmdb.partial/data.mdb"), "{error}");
}

/// The system would kill a process that reads the missing pages of a mapped file.
#[test]
fn a_file_that_was_cut_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.lmdb");
    let mut sink = LmdbSink::new(SinkOptions::new(&path));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    store(&mut sink, 0, &["a", "b", "c", "d"].map(str::to_owned));
    sink.finish().unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for pages in (0..file.metadata().unwrap().len() / 4096).rev() {
        file.set_len(pages * 4096 + 9).unwrap();
        assert!(Vectors::open(&path).is_err(), "{pages} pages");
    }
}

/// Memory is bounded however rare commits are, and what was written ahead of one does not count.
#[test]
fn rows_ahead_of_their_commit_are_on_disk_and_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.lmdb");
    let ids: Vec<String> = (0..45_000).map(|n| n.to_string()).collect(); // 72 MB of rows
    let mut sink = LmdbSink::new(SinkOptions::new(&path));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    store(&mut sink, 0, &ids[..2]);
    let index: Vec<u64> = (2..ids.len() as u64).collect();
    let (side, vectors) = (vec![9; index.len()], vec![0.5; index.len() * DIM]);
    let rows = Rows {
        index: &index,
        id: &ids[2..],
        vectors: &vectors,
        width: &side,
        height: &side,
        xxh3: &index,
        columns: &[],
    };
    sink.append(&rows).unwrap();
    let staging = dir.path().join("x.lmdb.partial");
    assert!(std::fs::metadata(staging.join("data.mdb")).unwrap().len() > 64 << 20, "they are on disk");
    let vectors = Vectors::open(&staging).unwrap();
    assert_eq!((vectors.count().unwrap(), vectors.get("3").unwrap().len()), (2, 0));
    drop((vectors, sink)); // as if the process had been killed

    let mut sink = LmdbSink::new(SinkOptions::new(&path));
    assert_eq!(sink.begin(&manifest(), Existing::Resume).unwrap(), Watermark::from(2));
    store(&mut sink, 2, &ids[2..4]);
    assert_eq!(sink.finish().unwrap().rows, 4);
    assert_eq!(self::rows(&path).into_iter().map(|row| row.id).collect::<Vec<_>>(), ids[..4]);
}

/// A lock file describes the transactions of its own file; LMDB would apply it to another one.
#[test]
fn an_overwritten_output_loses_its_readers_lock_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, lock) = (dir.path().join("x.lmdb"), dir.path().join("x.lmdb-lock"));
    for ids in [["old", "older"], ["new", "newer"]] {
        let mut sink = LmdbSink::new(SinkOptions::new(&path));
        sink.begin(&manifest(), Existing::Overwrite).unwrap();
        assert_eq!(path.exists(), lock.exists(), "what is there stays until the new output is whole");
        store(&mut sink, 0, &ids.map(str::to_owned));
        sink.finish().unwrap();
        assert!(!lock.exists());
        assert_eq!(rows(&path).into_iter().map(|row| row.id).collect::<Vec<_>>(), ids);
        std::fs::write(&lock, "of a reader").unwrap();
    }
}
