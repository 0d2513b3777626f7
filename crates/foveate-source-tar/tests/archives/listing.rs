//! A listing over archives and files.

use std::fs;
use std::sync::Arc;

use crate::common::{gzip, tar, zstd};
use foveate_source::conformance::{check, check_shards, read};
use foveate_source::container::{ContainerOptions, ContainerRegistry};
use foveate_source::{Input, Listing, ListingBuilder, Source};
use tempfile::TempDir;

fn inputs() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let first = tar(&[("1.jpg", b"1"), ("1.txt", b"one"), ("2.jpg", b"2"), ("no.mp4", b"x")]);
    let second: Vec<(String, Vec<u8>)> = (0..40).map(|n| (format!("s/{n}.png"), vec![b'x'; n * 500])).collect();
    let second: Vec<(&str, &[u8])> = second.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let cut = &first[..first.len() / 2];
    let files: [(&str, &[u8]); 7] = [
        ("a.tar", &first),
        ("b.jpg", b"file"),
        ("c.tar.gz", &gzip(&tar(&second))),
        ("d.tar", cut),
        ("e.tar", b"no tar"),
        ("f.tzst", &zstd(&first)),
        ("g.png", b"file"),
    ];
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn builder(folder: &TempDir) -> ListingBuilder<'static> {
    let mut formats = ContainerRegistry::new("container", &["tar"]);
    foveate_source_tar::register(&mut formats).unwrap();
    let options = ContainerOptions { columns: vec!["txt".to_owned()], ..ContainerOptions::default() };
    Listing::builder().inputs([Input::Path(folder.path().join("*"))]).containers(Arc::new(formats), options)
}

fn boxed(builder: ListingBuilder<'_>) -> Box<dyn Source> {
    Box::new(builder.build().unwrap())
}

#[test]
fn archives_and_files_are_one_source() {
    let folder = inputs();
    check(|| boxed(builder(&folder)));
    let found = read(boxed(builder(&folder)).as_mut());
    let failed = found.iter().filter(|(_, bytes)| bytes.is_err()).count();
    assert_eq!((found.len(), failed), (2 + 1 + 40 + 2 + 1 + 2 + 1, 2));
    let (item, bytes) = &found[0];
    assert!(item.id.ends_with("/a.tar/1.jpg") && bytes.as_deref() == Ok(b"1"), "{item}");
    assert_eq!(item.columns[..], [Some("one".to_owned())]);
}

#[test]
fn shards_divide_the_archives() {
    let folder = inputs();
    for count in [1, 2, 3, 7, 9] {
        let shards = (0..count).map(|index| boxed(builder(&folder).shard(index, count))).collect();
        check_shards(boxed(builder(&folder)).as_mut(), shards);
    }
}
