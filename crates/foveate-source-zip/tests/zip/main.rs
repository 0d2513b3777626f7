//! Sound and unsound archives: what each gives.

// A test reports by panicking.
#![allow(clippy::unwrap_used)]

mod archive;

use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, UNIX_EPOCH};

use foveate_source::blob::{Blob, FileBlob, StandardInput};
use foveate_source::conformance;
use foveate_source::container::{
    ContainerBackend, ContainerOptions, ContainerRegistry, Member, MemberContent, MemberName,
};
use foveate_source::{FetchError, Input, Listing, Source};

use self::archive::{File, Memory, end, zip};

fn formats() -> ContainerRegistry {
    let mut formats = ContainerRegistry::new("container", &["zip"]);
    foveate_source_zip::register(&mut formats).unwrap();
    formats
}

fn fixture() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mixed.zip").into()
}

fn with<T>(run: impl FnOnce(&ContainerBackend) -> T) -> T {
    run(formats().get("zip").unwrap())
}

fn options() -> ContainerOptions {
    ContainerOptions { max_bytes: 1 << 20, ..ContainerOptions::default() }
}

/// Members by name, each with its bytes or a reason; or a reason for the whole.
type Outcome = Result<Vec<(String, Result<Vec<u8>, String>)>, String>;

/// All members by name, each with its bytes or the reason why there are none; or the archive's own error.
fn read(bytes: Vec<u8>) -> Outcome {
    read_blob(Memory::new(bytes))
}

fn read_blob(blob: Arc<dyn Blob>) -> Outcome {
    let (members, end) = with(|zip| conformance::outcomes(zip, blob, &options(), 0));
    end.map_or_else(|| Ok(members.into_iter().map(seen).collect()), |error| Err(error.to_string()))
}

fn seen(member: Member) -> (String, Result<Vec<u8>, String>) {
    let MemberName::Key(key) = member.name else { panic!("a zip has keys") };
    let content = match member.content {
        MemberContent::Here(bytes) => Ok(bytes.to_vec()),
        MemberContent::Failed(error) => Err(error.to_string()),
        MemberContent::At(_) => panic!("a zip holds its members"),
    };
    (String::from_utf8_lossy(&key).into_owned(), content)
}

/// The reason why the only member of an archive failed.
fn only_failure(bytes: Vec<u8>) -> String {
    let members = read(bytes).unwrap();
    assert_eq!(members.len(), 1);
    members[0].1.clone().unwrap_err()
}

fn photos() -> Vec<File> {
    vec![
        File::stored("a.jpg", b"stored"),
        File::deflated("b.jpg", &[7; 5000]),
        File::stored("c.txt", b"no image"),
        File::deflated("d.webp", b""),
        File::stored("a.jpg", b"the same name again"),
    ]
}

#[test]
fn an_archive_of_pythons_gives_its_images_in_order() {
    let expected = [
        ("photos/a.jpg", b"stored bytes".to_vec()),
        ("photos/b.PNG", b"deflated bytes ".repeat(20)),
        ("photos/d.heic", b"foreign".to_vec()),
        ("café/empty.webp", Vec::new()),
    ];
    let blob = Arc::new(FileBlob::open(&fixture(), "mixed.zip").unwrap());
    let members = read_blob(blob).unwrap();
    assert_eq!(members, expected.map(|(name, bytes)| (name.to_owned(), Ok(bytes))));
}

#[test]
fn stored_and_deflated_archives_conform() {
    let bytes = zip(&photos());
    with(|format| {
        conformance::check_container(format, || Memory::new(bytes.clone()), &options());
        let columns = ContainerOptions { columns: vec!["caption".to_owned()], ..options() };
        conformance::check_container(format, || Memory::new(bytes.clone()), &columns);
        conformance::check_container(format, || Arc::new(FileBlob::open(&fixture(), "m").unwrap()), &options());
    });
}

#[test]
fn a_listing_of_archives_and_files_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("first.zip"), zip(&photos())).unwrap();
    std::fs::write(path("cut.ZIP"), &zip(&photos())[..40]).unwrap();
    std::fs::write(path("empty.zip"), zip(&[])).unwrap();
    std::fs::write(path("photo.jpg"), b"a photo").unwrap();
    std::fs::write(path("last.zip"), zip(&[photos(), photos()].concat())).unwrap();
    let inputs = ["first.zip", "cut.ZIP", "empty.zip", "photo.jpg", "last.zip"].map(|name| Input::Path(path(name)));
    let formats = Arc::new(formats());
    let listing = || Listing::builder().inputs(inputs.clone()).containers(Arc::clone(&formats), options());
    let open = || Box::new(listing().build().unwrap()) as Box<dyn Source>;
    conformance::check(open);
    for count in [1, 2, 3, 7] {
        let shard = |index| Box::new(listing().shard(index, count).build().unwrap()) as Box<dyn Source>;
        conformance::check_shards(open().as_mut(), (0..count).map(shard).collect());
    }
    let read = conformance::read(open().as_mut());
    assert_eq!(read.len(), 4 + 1 + 1 + 8);
    let (cut, reason) = &read[4];
    assert_eq!(cut.id, path("cut.ZIP").to_str().unwrap());
    assert!(reason.as_ref().unwrap_err().contains("there is no directory at its end"));
}

#[test]
fn archives_are_read_front_to_back_with_few_requests() {
    let photo = |number: usize| File::stored(&format!("{number}.jpg"), &[number as u8; 10_000]);
    let files: Vec<File> = (0..1000).map(photo).collect();
    let blob = Memory::new(zip(&files));
    assert_eq!(read_blob(Arc::clone(&blob) as _).unwrap().len(), 1000);
    assert_eq!((blob.reads.load(SeqCst), blob.streams.load(SeqCst)), (1, 1), "the directory, and all of its members");
    // A gap of more than a MiB is skipped.
    let files = [photo(1), File::stored("large.bin", &vec![0; 3 << 20]), photo(2)];
    let blob = Memory::new(zip(&files));
    assert_eq!(read_blob(Arc::clone(&blob) as _).unwrap().len(), 2);
    assert_eq!((blob.reads.load(SeqCst), blob.streams.load(SeqCst)), (1, 2));
}

#[test]
fn skipping_reads_the_directory_alone() {
    let blob = Memory::new(zip(&photos()));
    with(|format| format.open(Arc::clone(&blob) as _, &options()).unwrap().skip(3).unwrap());
    assert_eq!((blob.reads.load(SeqCst), blob.streams.load(SeqCst)), (1, 0));
}

#[test]
fn the_order_is_that_of_the_offsets() {
    let files = photos();
    let sorted = zip(&files);
    let offset = |name: &[u8]| sorted.windows(name.len()).position(|here| here == name).unwrap() as u32 - 30;
    let directory = [(&files[1], offset(b"b.jpg")), (&files[0], 0)];
    let archive = end(sorted[..sorted.len() - 22].to_vec(), &directory, b"");
    let names: Vec<_> = read(archive).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a.jpg", "b.jpg"]);
}

#[test]
fn members_have_the_times_of_the_archive() {
    let version = with(|zip| {
        let mut members = zip.open(Arc::new(FileBlob::open(&fixture(), "m").unwrap()), &options()).unwrap();
        members.next().unwrap().unwrap().version
    });
    let modified = UNIX_EPOCH + Duration::from_secs(1_714_979_290);
    assert_eq!((version.len, version.modified), (Some(12), Some(modified)), "2024-05-06 07:08:10");
}

#[test]
fn what_is_no_archive_or_cut_off_is_one_failure() {
    let whole = zip(&photos());
    for bytes in [&b""[..], b"PK", b"a photo's bytes, not a zip", &whole[..whole.len() - 1], &whole[..100]] {
        let error = read(bytes.to_vec()).unwrap_err();
        assert!(error.contains("not a zip archive, or it is cut off"), "{error}");
    }
    let error = read_blob(Arc::new(StandardInput::default())).unwrap_err();
    assert!(error.contains("give it as a file"), "{error}");
}

#[test]
fn an_archive_may_be_empty_prefixed_or_have_a_comment() {
    assert_eq!(read(zip(&[])), Ok(Vec::new()));
    let expected = read(zip(&photos())).unwrap();
    assert_eq!(expected.iter().filter(|(_, content)| content.is_ok()).count(), 4);
    let prefixed = [b"#!/bin/sh\n".to_vec(), zip(&photos())].concat();
    assert_eq!(read(prefixed).unwrap(), expected);
    let appended = [zip(&photos()), b"appended".to_vec()].concat();
    assert_eq!(read(appended).unwrap(), expected);
}

#[test]
fn records_in_a_comment_are_not_the_archives() {
    let files = [File::stored("a.jpg", b"stored")];
    let bytes = zip(&files);
    let body = bytes[..bytes.len() - 22 - 46 - 5].to_vec();
    let fakes = zip(&[]).repeat(2900);
    let archive = end(body, &[(&files[0], 0)], &[&fakes, b"end".as_slice()].concat());
    assert_eq!(read(archive).unwrap(), [("a.jpg".to_owned(), Ok(b"stored".to_vec()))]);
}

#[test]
fn directories_that_lack_records_are_damaged() {
    let mut fewer = zip(&photos());
    let count = fewer.len() - 22 + 10;
    fewer[count] = 9;
    assert_eq!(read(fewer).unwrap_err(), "its directory is damaged: 5 members of 9");
    let mut broken = zip(&photos());
    let second = broken.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    broken[second] = b'X';
    assert!(read(broken).unwrap_err().starts_with("its directory is damaged: "));
    let mut parts = zip(&photos());
    let disk = parts.len() - 22 + 4;
    parts[disk] = 3;
    assert_eq!(read(parts).unwrap_err(), "it is one part of an archive in several; join them first");
}

#[test]
fn lying_sizes_and_bombs_stop_where_the_directory_says() {
    let bomb = File { claimed: 10, ..File::deflated("bomb.jpg", &vec![0; 64 << 20]) };
    assert!(bomb.packed.len() < 100_000);
    assert_eq!(only_failure(zip(&[bomb])), "it has more bytes than the 10 of the directory");
    let fewer = File { claimed: 99, ..File::deflated("a.jpg", b"short") };
    assert_eq!(only_failure(zip(&[fewer])), "it has fewer bytes than the 99 of the directory");
    let large = File { claimed: u32::MAX - 1, ..File::deflated("a.jpg", b"short") };
    assert!(only_failure(zip(&[large])).contains("more than the limit of 1048576"));
    let limit = File::deflated("a.jpg", &vec![1; (1 << 20) + 1]);
    assert!(only_failure(zip(&[limit])).contains("1048577 bytes, more than the limit"));
}

#[test]
fn wrong_checksums_and_damaged_streams_fail_alone() {
    let wrong = File { crc: 1, ..File::stored("a.jpg", b"stored") };
    assert!(only_failure(zip(&[wrong])).contains("checksum"));
    let mut garbage = File::deflated("a.jpg", &[7; 5000]);
    garbage.packed.fill(0xff);
    assert!(only_failure(zip(&[garbage.clone()])).starts_with("it does not inflate: "));
    let members = read(zip(&[garbage, File::stored("b.jpg", b"sound")])).unwrap();
    assert_eq!(members[1].1, Ok(b"sound".to_vec()));
}

#[test]
fn encrypted_and_unknown_methods_say_so() {
    let encrypted = File { flags: 1, ..File::stored("a.jpg", b"secret") };
    assert_eq!(only_failure(zip(&[encrypted])), "it is encrypted");
    for (method, name) in [(93, "ZSTD"), (12, "BZIP2"), (999, "UNKNOWN")] {
        let file = File { method, ..File::stored("a.jpg", b"bytes") };
        let reason = only_failure(zip(&[file]));
        assert!(reason.contains(&format!("method {method} ({name})")), "{reason}");
    }
}

#[test]
fn members_that_share_bytes_fail_and_others_do_not() {
    let (kernel, other) = (File::stored("a.jpg", &[7; 1000]), File::stored("z.jpg", b"apart"));
    let mut bytes = zip(&[kernel.clone(), other.clone()]);
    let apart = 30 + 5 + 1000;
    bytes.truncate(apart + 30 + 5 + 5);
    let mut names: Vec<File> = (0..3).map(|n| File { name: format!("{n}.jpg").into(), ..kernel.clone() }).collect();
    names[2].packed.truncate(900);
    let directory = [(&names[0], 0), (&names[1], 0), (&names[2], 10), (&other, apart as u32)];
    let members = read(end(bytes, &directory, b"")).unwrap();
    let shared: Vec<bool> = members.iter().map(|(_, content)| content.is_err()).collect();
    assert_eq!(shared, [true, true, true, false]);
    assert!(members[0].1.as_ref().unwrap_err().contains("shares bytes"));
}

#[test]
fn offsets_beyond_the_archive_and_to_no_header_fail() {
    let file = File::stored("a.jpg", b"stored");
    let body = zip(std::slice::from_ref(&file))[..30 + 5 + 6].to_vec();
    let reason = |offset| only_failure(end(body.clone(), &[(&file, offset)], b""));
    assert_eq!(reason(1 << 30), "it lies beyond the end of the archive");
    assert_eq!(reason(3), "its header is damaged");
}

#[test]
fn names_are_bytes_and_never_paths() {
    let names: [&[u8]; 4] = [b"../../up.jpg", b"/etc/abs.jpg", b"caf\x82.jpg", br"win\dows.jpg"];
    let files = names.map(|name| File { name: name.to_vec(), ..File::stored("", b"photo") });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zip");
    std::fs::write(&path, zip(&files)).unwrap();
    let listing = Listing::builder().inputs([Input::Path(path.clone())]).containers(Arc::new(formats()), options());
    let items = conformance::enumerate(&mut listing.build().unwrap());
    let ids: Vec<_> = items.iter().map(|item| item.id.strip_prefix(path.to_str().unwrap()).unwrap()).collect();
    assert_eq!(ids, ["/../../up.jpg", "//etc/abs.jpg", r"/caf\x82.jpg", r"/win\\dows.jpg"]);
}

#[test]
fn zip64_archives_and_those_of_many_members_are_read() {
    let two = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/zip64.zip")).unwrap();
    let expected = [("a.jpg", b"zip64 extra"), ("b.png", b"zip64 extra")];
    assert_eq!(read(two).unwrap(), expected.map(|(name, bytes)| (name.to_owned(), Ok(bytes.to_vec()))));
    // More than 16 bits count, from a program that does not know of zip64.
    let files: Vec<File> = (0..70_000).map(|number| File::stored(&format!("{number}.jpg"), b"")).collect();
    let archive = zip(&files);
    assert_eq!(read(archive).unwrap().len(), 70_000);
}

#[test]
fn offsets_that_wrapped_at_4_gib_are_found() {
    let files = ["a.jpg", "big.bin", "b.jpg", "big.bin", "c.png"].map(|name| File::stored(name, name.as_bytes()));
    let places = [0, 1 << 20, (4 << 30) + 5, (5 << 30) + 1, (8 << 30) + 7];
    let in_directory = files.iter().zip(places.map(|place: u64| place as u32)).collect::<Vec<_>>();
    let mut directory = end(Vec::new(), &in_directory, b"");
    let start = (9_u64 << 30) + 3;
    let stated = directory.len() - 6..directory.len() - 2;
    directory[stated].copy_from_slice(&(start as u32).to_le_bytes());
    for are_there in [true, false] {
        let mut sparse = tempfile::NamedTempFile::new().unwrap();
        for (file, place) in files.iter().zip(places).filter(|_| are_there) {
            sparse.seek(SeekFrom::Start(place)).unwrap();
            sparse.write_all(&file.local()).unwrap();
        }
        sparse.seek(SeekFrom::Start(start)).unwrap();
        sparse.write_all(&directory).unwrap();
        let members = read_blob(Arc::new(FileBlob::open(sparse.path(), "x.zip").unwrap())).unwrap();
        let (names, contents): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        match are_there {
            true => {
                assert_eq!(names, ["a.jpg", "b.jpg", "c.png"]);
                assert_eq!(contents, ["a.jpg", "b.jpg", "c.png"].map(|name| Ok(name.as_bytes().to_vec())));
            }
            false => assert!(contents.len() == 3 && contents.iter().all(Result::is_err)),
        }
    }
}

/// A directory of more memory than is allowed, of which a test holds one record.
struct Endless {
    record: Vec<u8>,
    count: u64,
    end: Vec<u8>,
}

impl Endless {
    /// A zip64 archive of `count` members with names of the greatest length, which are all the same.
    fn new(count: u64) -> Self {
        let name = [vec![b'x'; usize::from(u16::MAX) - 4], b".jpg".to_vec()].concat();
        let file = File { name, ..File::stored("", b"") };
        let record = end(Vec::new(), &[(&file, 0)], b"");
        let record = record[..record.len() - 22].to_vec();
        let size = record.len() as u64 * count;
        let mut end = b"PK\x06\x06".to_vec();
        end.extend([44, count, count, size, 0].map(u64::to_le_bytes).concat());
        end.splice(12..12, [45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        end.extend(b"PK\x06\x07\0\0\0\0");
        end.extend(size.to_le_bytes());
        end.extend(b"\x01\0\0\0PK\x05\x06\0\0\0\0");
        end.extend([0xff; 12]);
        end.extend([0; 2]);
        Self { record, count, end }
    }

    fn directory(&self) -> u64 {
        self.record.len() as u64 * self.count
    }
}

impl Blob for Endless {
    fn name(&self) -> &str {
        "endless.zip"
    }

    fn len(&self) -> Option<u64> {
        Some(self.directory() + self.end.len() as u64)
    }

    fn modified(&self) -> Option<std::time::SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        let in_directory = usize::try_from(self.directory().saturating_sub(offset)).unwrap().min(out.len());
        let (records, end) = out.split_at_mut(in_directory);
        let mut at = (offset % self.record.len() as u64) as usize;
        let mut rest = records;
        while !rest.is_empty() {
            let count = rest.len().min(self.record.len() - at);
            rest[..count].copy_from_slice(&self.record[at..at + count]);
            (rest, at) = (&mut rest[count..], 0);
        }
        let start = (offset + in_directory as u64 - self.directory().min(offset + in_directory as u64)) as usize;
        end.copy_from_slice(&self.end[start..start + end.len()]);
        Ok(())
    }

    fn stream(&self, _: u64) -> Result<Box<dyn std::io::Read + Send>, FetchError> {
        unreachable!("the directory is read in pieces")
    }
}

#[test]
fn a_directory_that_takes_too_much_memory_is_refused() {
    let members = |count| with(|zip| zip.open(Arc::new(Endless::new(count)), &options()).map(drop));
    members(3).unwrap();
    let error = members(4200).unwrap_err();
    assert_eq!(error.to_string(), "its directory takes more than 256 MiB of memory; split it");
}

#[test]
fn storage_that_fails_is_not_the_members_fault() {
    struct Broken(Arc<Memory>);
    impl Blob for Broken {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn len(&self) -> Option<u64> {
            self.0.len()
        }
        fn modified(&self) -> Option<std::time::SystemTime> {
            None
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
            self.0.read_at(offset, out)
        }
        fn stream(&self, _: u64) -> Result<Box<dyn std::io::Read + Send>, FetchError> {
            Err(FetchError::Unreachable("no answer".to_owned()))
        }
    }
    let blob = Arc::new(Broken(Memory::new(zip(&photos()))));
    let error = with(|zip| zip.open(blob, &options()).unwrap().next().unwrap_err());
    assert!(matches!(error, FetchError::Unreachable(_)));
}
