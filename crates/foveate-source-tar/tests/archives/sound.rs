//! Sound archives: what is read of them.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use crate::common::{add, blob, columns, ended, extension, file, gzip, header, outcomes, rest, stream, tar, zstd};
use foveate_source::FetchError;
use foveate_source::NameFilter;
use foveate_source::blob::{Blob, FileBlob};
use foveate_source::conformance::check_container;
use foveate_source::container::ContainerOptions;
use foveate_source_tar::format;
use tar::{Builder, EntryType};

/// Groups, plain images, failures, and members on both sides of every buffer.
fn varied() -> Vec<u8> {
    let (small, large) = (vec![b's'; 5_000], vec![b'l'; 300_000]);
    let mut archive = Builder::new(Vec::new());
    for number in 0..12 {
        add(&mut archive, &format!("{number}.json"), format!(r#"{{"caption": "number {number}"}}"#).as_bytes());
        add(&mut archive, &format!("{number}.jpg"), if number % 3 == 0 { &large } else { &small });
        add(&mut archive, &format!("{number}.seg.png"), b"mask");
        add(&mut archive, &format!("{number}.mp4"), if number % 2 == 0 { &large } else { &small });
        add(&mut archive, &format!("{number}.txt"), b"text");
    }
    add(&mut archive, "folder/huge.jpg", &vec![b'h'; 400_000]);
    archive.into_inner().unwrap()
}

#[test]
fn every_form_conforms() {
    let options = ContainerOptions { max_bytes: 350_000, ..columns(&["caption", "txt", "none"]) };
    let plain = varied();
    for bytes in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        let local = || Arc::new(FileBlob::open(file.path(), "x.tar").unwrap()) as Arc<_>;
        for options in [&options, &ContainerOptions::default()] {
            check_container(&format(), local, options);
            check_container(&format(), || stream(&bytes), options);
            assert_eq!(outcomes(local(), options), outcomes(blob(&plain), options));
        }
    }
    let outcomes = outcomes(blob(&plain), &options);
    assert_eq!(outcomes.len(), 25);
    assert_eq!(outcomes[0], "0.jpg=300000 bytes|number 0|text|-");
    assert_eq!(outcomes[24], "folder/huge.jpg!400000 bytes, more than the limit of 350000 for one file|-|-|-");
}

/// The content of every fixture, as `make.py` wrote it.
const FIXTURE: [&str; 6] = ["plain.jpg=plain", "prefix", "long", "größe/日本.jpg=utf-8", "7.jpg", "7.seg.png"];

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new("tests/fixtures").join(name)).unwrap()
}

#[test]
fn archives_of_python_and_gnu_tar_are_read() {
    let options = columns(&["caption", "url", "width", "similarity", "txt"]);
    let caption = |content: &str| format!("{content}|a \"cat\"|-|256|-|a cat");
    let nothing = |content: &str| format!("{content}|-|-|-|-|-");
    let prefix = format!("{}/{}/ustar-prefix.png=prefix", "d".repeat(60), "e".repeat(60));
    let long = format!("{}/{}/long.webp=long", "f".repeat(120), "g".repeat(120));
    let names = [FIXTURE[0], &prefix, &long, FIXTURE[3]];
    let groups = ["7.jpg=seven", "7.seg.png=mask"];
    let expected: Vec<String> = names.into_iter().map(nothing).chain(groups.map(caption)).collect();
    for name in ["python-pax.tar.gz", "python-gnu.tar.gz"] {
        assert_eq!(outcomes(stream(&fixture(name)), &options), expected, "{name}");
    }
    let mut sorted = expected;
    sorted.extend(
        [
            "z-hard.jpg=plain",
            "z-soft.jpg!not a regular file (a symbolic link)",
            "z-sparse.jpg!not a regular file (a sparse file, of which the archive has pieces)",
            "z-z.jpg=last",
        ]
        .map(nothing),
    );
    sorted.sort();
    for name in ["gnu.tar.zst", "gnu-pax.tar.zst"] {
        let mut found = outcomes(blob(&fixture(name)), &options);
        found.sort();
        assert_eq!(found, sorted, "{name}");
    }
}

#[test]
fn sidecars_belong_to_the_members_beside_them_with_the_same_key() {
    let bytes = tar(&[
        ("1.txt", b"before\r\n"),
        ("1.jpg", b"a"),
        ("2.jpg", b"b"),
        ("2.other.png", b"c"),
        ("2.cls", b"7\n"),
        ("2.txt", b"after"),
        ("3.jpg", b"d"),
        ("4.txt", b"of no image"),
        ("5.json", b"damaged"),
        ("5.jpg", b"e"),
        // Two samples with one key.
        ("6.jpg", b"f"),
        ("6.txt", b"first"),
        ("6.jpg", b"g"),
        ("6.txt", b"second"),
        ("v1.0/7.txt", b"elsewhere"),
        ("v1.0/8.jpg", b"h"),
    ]);
    let found = outcomes(stream(&bytes), &columns(&["txt", "cls"]));
    let groups = ["1.jpg=a|before|-", "2.jpg=b|after|7", "2.other.png=c|after|7", "3.jpg=d|-|-", "5.jpg=e|-|-"];
    assert_eq!(found[..5], groups);
    assert_eq!(found[5..], ["6.jpg=f|first|-", "6.jpg=g|second|-", "v1.0/8.jpg=h|-|-"]);
}

#[test]
fn a_field_of_the_sidecar_is_the_id_of_images_that_have_it() {
    let bytes = tar(&[
        ("1.jpg", b"a"),
        ("1.json", br#"{"id": "x/1", "txt": "t"}"#),
        ("2.jpg", b"b"),
        ("3.json", br#"{"id": 3, "txt": null}"#),
        ("3.jpg", b"c"),
    ]);
    for (names, groups) in [(&["txt"][..], ["#x/1=a|t", "2.jpg=b|-", "#3=c|-"]), (&[], ["#x/1=a", "2.jpg=b", "#3=c"])] {
        let options = ContainerOptions { id_column: Some("id".to_owned()), ..columns(names) };
        assert_eq!(outcomes(stream(&bytes), &options), groups);
        assert_eq!(rest(stream(&bytes), &options, 2), groups[2..]);
    }
}

#[test]
fn a_field_that_is_apart_from_every_image_is_absent() {
    let apart =
        tar(&[("1.jpg", b"1"), ("2.jpg", b"2"), ("1.json", br#"{"url": "a"}"#), ("2.json", br#"{"url": "b"}"#)]);
    let beside = tar(&[("1.jpg", b"1"), ("1.json", br#"{"url": null}"#)]);
    for (bytes, absent) in [(apart, &["url"][..]), (beside, &[])] {
        let mut members = format().open(blob(&bytes), &columns(&["url"])).unwrap();
        while members.next().unwrap().is_some() {}
        assert_eq!(members.absent(), absent);
    }
}

#[test]
fn large_sidecars_are_left_out_and_large_groups_do_not_wait() {
    let mut text = vec![b't'; 1 << 20];
    let image = vec![b'i'; 40 << 20];
    let files: [(&str, &[u8]); 4] = [("1.jpg", &image), ("1.b.jpg", &image), ("1.txt", b"late"), ("1.c.jpg", b"x")];
    let bytes = tar(&files);
    let options = columns(&["txt"]);
    let found = ["1.jpg=41943040 bytes|-", "1.b.jpg=41943040 bytes|-", "1.c.jpg=x|late"];
    for skip in 0..4 {
        assert_eq!(rest(blob(&bytes), &options, skip as u64), found[skip..], "after {skip}");
    }
    assert_eq!(outcomes(blob(&tar(&[("1.txt", &text), ("1.jpg", b"x")])), &options)[0].len(), 8 + (1 << 20));
    text.push(b't');
    assert_eq!(outcomes(blob(&tar(&[("1.txt", &text), ("1.jpg", b"x")])), &options), ["1.jpg=x|-"]);
}

#[test]
fn names_are_only_names() {
    let names: [&[u8]; 4] = [b"../../etc/a.jpg", b"/abs/b.jpg", b"\xff\xfe.jpg", b"back\\slash.jpg"];
    let hidden: [&[u8]; 4] = [b"./._a.jpg", b".git/a.jpg", b"__MACOSX/._b.jpg", b"folder.jpg/"];
    let mut blocks: Vec<_> = names.iter().chain(&hidden).map(|name| file(name, b"x")).collect();
    blocks.push(header(b"folder.jpg", 0, EntryType::Directory));
    blocks.push(file(b"././c.jpg", b"x"));
    let found = outcomes(blob(&ended(&blocks)), &ContainerOptions::default());
    let names = NameFilter::new(&["._*".to_owned()], &["abs/**".to_owned()]).unwrap();
    let chosen = outcomes(blob(&ended(&blocks)), &ContainerOptions { names, ..ContainerOptions::default() });
    assert_eq!(chosen, ["../../etc/a.jpg=x", "\u{fffd}\u{fffd}.jpg=x", "back\\slash.jpg=x", "._a.jpg=x", "c.jpg=x"]);
    let seen = ["../../etc/a.jpg=x", "/abs/b.jpg=x", "\u{fffd}\u{fffd}.jpg=x", "back\\slash.jpg=x", "c.jpg=x"];
    assert_eq!(found, seen);
}

/// A blob that counts what is read of it.
struct Counted {
    name: &'static str,
    bytes: Arc<dyn Blob>,
    opened: AtomicU64,
    read: Arc<AtomicU64>,
}

impl Blob for Counted {
    fn name(&self) -> &str {
        self.name
    }

    fn len(&self) -> Option<u64> {
        self.bytes.len()
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        self.bytes.read_at(offset, out)
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        self.opened.fetch_add(1, Relaxed);
        Ok(Box::new(CountedStream(self.bytes.stream(offset)?, Arc::clone(&self.read))))
    }
}

struct CountedStream(Box<dyn Read + Send>, Arc<AtomicU64>);

impl Read for CountedStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(out)?;
        self.1.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

#[test]
fn skipping_reads_headers_of_a_file_and_asks_a_store_once() {
    let image = vec![b'x'; 200_000];
    let names: Vec<String> = (0..100).map(|number| format!("{number}.jpg")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &*image)).collect();
    let bytes = tar(&files);
    for (name, most_opened, most_read) in [("x.tar", 110, 500_000), ("s3://bucket/x.tar", 1, bytes.len() as u64)] {
        let (opened, read) = (AtomicU64::new(0), Arc::default());
        let counted = Arc::new(Counted { name, bytes: blob(&bytes), opened, read });
        let mut members = format().open(Arc::clone(&counted) as _, &ContainerOptions::default()).unwrap();
        members.skip(99).unwrap();
        let (opened, read) = (counted.opened.load(Relaxed), counted.read.load(Relaxed));
        assert!(opened <= most_opened && read <= most_read, "{name}: {read} bytes of {opened} streams");
        assert!(members.next().unwrap().is_some() && members.next().unwrap().is_none());
    }
}

#[test]
fn lengths_and_times_are_the_headers() {
    let mut members = format().open(blob(&tar(&[("a.jpg", b"four")])), &ContainerOptions::default()).unwrap();
    let version = members.next().unwrap().unwrap().version;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    assert_eq!((version.len, version.modified), (Some(4), Some(modified)));
}

#[test]
fn archives_laid_end_to_end_are_one() {
    let (a, b) = (tar(&[("a.jpg", b"1")]), tar(&[("b.jpg", b"2")]));
    let both = [&a[..], &b].concat();
    let frames = [zstd(&a), b"\x5a\x2a\x4d\x18\x03\0\0\0xyz".to_vec(), zstd(&b)].concat();
    let split = [gzip(&both[..700]), gzip(&both[700..])].concat();
    for bytes in [both, [gzip(&a), gzip(&b)].concat(), split, frames] {
        assert_eq!(outcomes(stream(&bytes), &ContainerOptions::default()), ["a.jpg=1", "b.jpg=2"]);
    }
}

#[test]
fn what_follows_the_end_and_is_no_tar_is_ignored() {
    let whole = tar(&[("a.jpg", b"1")]);
    let garbage = [b'?'; 2000];
    for bytes in [
        [&whole[..], &garbage].concat(),
        [&whole[..], &garbage[..100]].concat(),
        [&gzip(&whole)[..], &garbage].concat(),
        [&gzip(&whole)[..], &[0; 600]].concat(),
        [&zstd(&whole)[..], &garbage].concat(),
    ] {
        assert_eq!(outcomes(stream(&bytes), &ContainerOptions::default()), ["a.jpg=1"]);
    }
    assert!(outcomes(blob(&tar(&[])), &ContainerOptions::default()).is_empty(), "an empty archive is sound");
}

#[test]
fn pax_headers_may_hold_any_bytes() {
    let records = b"19 SCHILY.xattr=\n\n\n24 path=pax/\xc3\xa4/name.jpg\n9 size=2\n";
    let global = extension(EntryType::XGlobalHeader, b"19 path=global.jpg\n");
    let blocks = [global, extension(EntryType::XHeader, records), header(b"short.txt", 0, EntryType::Regular)];
    let content = [b"hi".to_vec(), vec![0; 510]].concat();
    let bytes = ended(&[blocks.concat(), content, file(b"b.jpg", b"x")]);
    assert_eq!(outcomes(stream(&bytes), &ContainerOptions::default()), ["pax/ä/name.jpg=hi", "b.jpg=x"]);
}

#[test]
fn old_programs_signed_sums_are_taken() {
    let mut old = file(b"\xe4.jpg", b"x");
    let sum: i64 = old[..512]
        .iter()
        .enumerate()
        .map(|(at, &byte)| match at {
            148..156 => i64::from(b' '),
            _ => i64::from(byte.cast_signed()),
        })
        .sum();
    old[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(outcomes(blob(&ended(&[old])), &ContainerOptions::default()).len(), 1);
}

#[test]
fn blank_numbers_are_zeros() {
    let mut label = header(b"label", 0, EntryType::new(b'V'));
    for field in [100..108, 108..116, 116..124, 124..136, 136..148] {
        label[field].fill(b' ');
    }
    let mut empty = file(b"empty.jpg", b"");
    empty[124..136].fill(0);
    for block in [&mut label, &mut empty] {
        let mut sum = tar::Header::new_old();
        sum.as_mut_bytes().copy_from_slice(&block[..512]);
        sum.set_cksum();
        block[..512].copy_from_slice(sum.as_bytes());
    }
    let bytes = ended(&[label, empty, file(b"a.jpg", b"x")]);
    assert_eq!(outcomes(blob(&bytes), &ContainerOptions::default()), ["empty.jpg=", "a.jpg=x"]);
}

fn link(name: &str, target: &str) -> Vec<u8> {
    let mut link = tar::Header::new_gnu();
    link.set_path(name).unwrap();
    link.set_link_name(target).unwrap();
    link.set_entry_type(EntryType::Link);
    link.set_size(0);
    link.set_cksum();
    link.as_bytes().to_vec()
}

#[test]
fn a_hard_link_is_the_member_that_it_names() {
    let long = format!("{}/b.jpg", "folder/".repeat(30));
    let target = [long.as_bytes(), b"\0"].concat();
    let pax = format!("{} linkpath={long}\n", long.len() + 14);
    let blocks = [
        file(b"blob", b"one"),
        link("a.jpg", "./blob"),
        [extension(EntryType::GNULongName, &target), file(b"cut", b"two")].concat(),
        [extension(EntryType::GNULongLink, &target), link("c.jpg", "cut")].concat(),
        [extension(EntryType::XHeader, pax.as_bytes()), link("d.jpg", "cut")].concat(),
        link("e.jpg", "a.jpg"),
        link("f.jpg", "later.jpg"),
        file(b"later.jpg", b"three"),
        file(b"blob", b"four"),
        link("g.jpg", "blob"),
        link("h.jpg", "h.jpg"),
    ];
    let bytes = ended(&blocks);
    let missing =
        |name: &str| format!("not a regular file (a hard link to {name}, and no file before it is called so)");
    let expected = [
        "a.jpg=one".to_owned(),
        format!("{long}=two"),
        "c.jpg=two".to_owned(),
        "d.jpg=two".to_owned(),
        "e.jpg=one".to_owned(),
        format!("f.jpg!{}", missing("later.jpg")),
        "later.jpg=three".to_owned(),
        "g.jpg=four".to_owned(),
        format!("h.jpg!{}", missing("h.jpg")),
    ];
    let small = ContainerOptions { max_bytes: 3, ..ContainerOptions::default() };
    for bytes in [bytes.clone(), gzip(&bytes), zstd(&bytes)] {
        for skip in 0..expected.len() {
            assert_eq!(rest(blob(&bytes), &ContainerOptions::default(), skip as u64), expected[skip..], "{skip}");
        }
        let limited = outcomes(blob(&bytes), &small);
        assert_eq!(limited[7], "g.jpg!4 bytes, more than the limit of 3 for one file");
    }
    let streamed = outcomes(stream(&bytes), &ContainerOptions::default());
    let why = "a hard link to blob, and a stream does not go back; read the archive from a file";
    assert_eq!(streamed[0], format!("a.jpg!not a regular file ({why})"));
}
