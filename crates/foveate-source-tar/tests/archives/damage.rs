//! Damaged archives: one outcome each, and skipping that counts it.

use std::io::Write;
use std::sync::Arc;

use crate::common::{
    Failing, NAME, blob, columns, ended, extension, file, gzip, header, outcomes, rest, stream, tar, zstd,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use foveate_source::FetchError;
use foveate_source::blob::MemoryBlob;
use foveate_source::container::ContainerOptions;
use foveate_source_tar::format;
use tar::EntryType;

/// The outcomes of `bytes`, the same from a blob and from a stream, with columns and without, and however many are
/// skipped.
fn checked(bytes: &[u8]) -> Vec<String> {
    let without = ContainerOptions::default();
    let found = outcomes(blob(bytes), &without);
    for options in [without, columns(&["caption"])] {
        let found = outcomes(blob(bytes), &options);
        assert_eq!(outcomes(stream(bytes), &options), found);
        for skip in 0..found.len() + 2 {
            let expected = &found[skip.min(found.len())..];
            assert_eq!(rest(blob(bytes), &options, skip as u64), expected, "a blob after {skip}");
            assert_eq!(rest(stream(bytes), &options, skip as u64), expected, "a stream after {skip}");
        }
    }
    found
}

fn three() -> Vec<u8> {
    tar(&[("1.jpg", b"one"), ("1.json", b"{}"), ("2.jpg", &[b'x'; 3000]), ("3.jpg", b"three")])
}

#[test]
fn an_archive_that_is_cut_short_ends_with_one_failure() {
    let whole = three();
    let ends = "it ends without an end-of-archive marker; it may be cut short";
    // Headers at 0, 1024, 2048 and 5632; the marker at 6656.
    for (len, images, reason) in [
        (100, 0, "it is no tar archive"),
        (514, 0, "it ends in the middle of 1.jpg"),
        (520, 1, ends),
        (1024, 1, ends),
        (1025, 1, ends),
        (1537, 1, "it ends in the middle of 1.json"),
        (2048, 1, ends),
        (2600, 1, "it ends in the middle of 2.jpg"),
        (5632, 2, ends),
        (6656, 3, ends),
    ] {
        let found = checked(&whole[..len]);
        assert_eq!((found.len(), found[images].as_str()), (images + 1, reason), "{len} bytes: {found:?}");
    }
    assert_eq!(checked(&whole[..6656 + 512]).len(), 3, "half a marker says where the end is");
}

#[test]
fn compressed_streams_that_are_cut_short_or_damaged_end_with_one_failure() {
    let noise: Vec<u8> = (0..500_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let whole = tar(&[("1.jpg", b"one"), ("2.jpg", &noise), ("3.jpg", b"three")]);
    for (name, packed) in [("gzip", gzip(&whole)), ("Zstandard", zstd(&whole))] {
        let half = checked(&packed[..packed.len() / 2]);
        assert_eq!(half, ["1.jpg=one".to_owned(), format!("its {name} stream is cut short")]);
        let mut damaged = packed.clone();
        let checksum = packed.len() - if name == "gzip" { 8 } else { 4 };
        damaged[checksum] ^= 1;
        let found = checked(&damaged);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[3].starts_with(&format!("its {name} stream is damaged")), "{found:?}");
        assert_eq!(checked(&packed[..9]).len(), 1);
    }
}

#[test]
fn what_is_no_tar_is_one_failure() {
    for (bytes, reason) in [
        (&b""[..], "it is empty"),
        (&[b'<'; 4000], "it is no tar archive"),
        (b"<html>", "it is no tar archive"),
        (b"PK\x03\x04....", "it is no tar but a zip; rename it to .zip"),
    ] {
        assert_eq!(checked(bytes), [reason]);
    }
    for (bytes, name, tool) in [(&b"\xfd7zXZ\0\0"[..], "xz", "xz"), (b"BZh91AY&SY", "bzip2", "bzip2")] {
        let again = format!("compress it with Zstandard: {tool} -dc <old | zstd >new.tar.zst");
        assert_eq!(checked(bytes), [format!("it is compressed with {name}, which is not read here; {again}")]);
    }
    assert_eq!(checked(&gzip(b"")), ["it is empty"]);
    assert_eq!(checked(&zstd(&[b'<'; 4000])), ["it is no tar archive"]);
}

#[test]
fn a_damaged_header_ends_the_archive() {
    let mut bytes = three();
    bytes[2048] ^= 1;
    assert_eq!(checked(&bytes), ["1.jpg=one", "a bad header before byte 2560"]);
    let pax = |records: &[u8]| ended(&[file(b"a.jpg", b"x"), extension(EntryType::XHeader, records), three()]);
    for records in [&b"x"[..], b"6 a=\n", b"999 path=x\n", b"3 \n", b"99999999999999999999 a=b\n", b"8 size=\n"] {
        let found = checked(&pax(records));
        assert!(found.len() == 2 && found[1].starts_with("a bad PAX header before byte "), "{found:?}");
    }
}

#[test]
fn lying_sizes_take_no_memory() {
    for size in [10_000, 200 << 20, 20_000_000_000, u64::MAX >> 1, u64::MAX] {
        let lie = ended(&[file(b"a.jpg", b"x"), header(b"b.jpg", size, EntryType::Regular), file(b"c.jpg", b"x")]);
        assert_eq!(checked(&lie), ["a.jpg=x", "it ends in the middle of b.jpg"], "{size}");
        let name = header(b"name", size, EntryType::GNULongName);
        let records = format!("{} size={size}\n", if size == 10_000 { 14 } else { size.to_string().len() + 9 });
        let pax = extension(EntryType::XHeader, records.as_bytes());
        for extended in [name, [pax, file(b"b.jpg", b"")].concat()] {
            let found = checked(&ended(&[file(b"a.jpg", b"x"), extended]));
            assert_eq!((found.len(), found[0].as_str()), (2, "a.jpg=x"), "{found:?}");
        }
    }
}

/// Zeros that a small stream becomes: `gigabytes` of them.
fn bomb(before: &[u8], gigabytes: u64, after: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(before).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..gigabytes << 10).for_each(|_| encoder.write_all(&zeros).unwrap());
    encoder.write_all(after).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_member_of_gigabytes_is_too_large_and_the_next_is_read() {
    let size = 2 << 30;
    let bytes = bomb(&header(b"a.jpg", size, EntryType::Regular), 2, &ended(&[file(b"b.jpg", b"x")]));
    let found = outcomes(stream(&bytes), &ContainerOptions::default());
    assert_eq!(found, ["a.jpg!2147483648 bytes, more than the limit of 268435456 for one file", "b.jpg=x"]);
}

#[test]
fn in_a_file_a_member_of_20_gb_is_not_read() {
    use std::io::{Seek, SeekFrom};
    let mut sparse = tempfile::NamedTempFile::new().unwrap();
    let size = 20_000_000_000;
    sparse.write_all(&header(b"a.jpg", size, EntryType::Regular)).unwrap();
    sparse.seek(SeekFrom::Start(512 + size.next_multiple_of(512))).unwrap();
    sparse.write_all(&ended(&[file(b"b.jpg", b"x")])).unwrap();
    let open = || Arc::new(foveate_source::blob::FileBlob::open(sparse.path(), "x.tar").unwrap());
    let found = outcomes(open(), &ContainerOptions::default());
    assert_eq!(found, ["a.jpg!20000000000 bytes, more than the limit of 268435456 for one file", "b.jpg=x"]);
    assert_eq!(rest(open(), &ContainerOptions::default(), 1), ["b.jpg=x"]);
}

#[test]
fn devices_and_unknown_kinds_are_failures_whatever_their_size() {
    let blocks = [
        header(b"a.jpg", 5, EntryType::Symlink),
        header(b"b.jpg", 1 << 40, EntryType::Char),
        header(b"c.jpg", 0, EntryType::Fifo),
        [header(b"d.jpg", 1, EntryType::new(b'Q')), vec![b'?'; 512]].concat(),
        file(b"e.jpg", b"x"),
    ];
    let found = checked(&ended(&blocks));
    assert_eq!(found[..2], ["a.jpg!not a regular file (a symbolic link)", "b.jpg!not a regular file (a device)"]);
    assert_eq!(
        found[2..4],
        ["c.jpg!not a regular file (a named pipe)", "d.jpg!not a regular file (of an unknown kind)"]
    );
    assert_eq!(found[4..], ["e.jpg=x"]);
}

#[test]
fn a_storage_that_fails_stops_the_reading_and_loses_no_column() {
    let plain = tar(&[("1.jpg", b"one"), ("2.jpg", b"two"), ("2.txt", b"text"), ("3.jpg", b"three")]);
    for (bytes, fails_at) in [(plain.clone(), 2048), (gzip(&plain), 30), (zstd(&plain), 60)] {
        let failing = Arc::new(Failing { bytes: MemoryBlob::new(NAME, bytes), at: fails_at });
        let mut error = None;
        if let Ok(mut members) = format().open(failing, &columns(&["txt"])) {
            loop {
                match members.next() {
                    Ok(Some(member)) => assert!(member.columns[0].is_none() && fails_at == 2048, "{member:?}"),
                    Ok(None) => break,
                    Err(found) => {
                        error = Some(found);
                        break;
                    }
                }
            }
        }
        assert!(matches!(&error, Some(FetchError::Unreachable(why)) if why == "connection reset"), "{error:?}");
    }
}
