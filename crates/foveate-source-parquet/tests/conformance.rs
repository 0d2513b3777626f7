//! Files written here, by the library and by hand, read as containers and as part of a listing.

#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Int64Array, LargeBinaryArray, LargeListArray, ListArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::Field;
use foveate_source::blob::{Blob, FileBlob, MemoryBlob, StandardInput};
use foveate_source::conformance::{check, check_container, check_shards, read};
use foveate_source::container::{
    ContainerBackend, ContainerOptions, ContainerRegistry, Member, MemberContent, MemberName,
};
use foveate_source::{FetchError, Input, Listing, Source};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use tempfile::TempDir;

/// Rows of most files here.
const ROWS: usize = 23;

fn registry() -> ContainerRegistry {
    let mut registry = ContainerRegistry::new("container", &["parquet"]);
    foveate_source_parquet::register(&mut registry).unwrap();
    registry
}

fn with_format(use_it: impl FnOnce(&ContainerBackend)) {
    use_it(registry().get("parquet").unwrap());
}

fn options(image: Option<&str>, id: Option<&str>, columns: &[&str]) -> ContainerOptions {
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let columns = columns.iter().map(|&name| name.to_owned()).collect();
    ContainerOptions { image_column: owned(image), id_column: owned(id), columns, ..ContainerOptions::default() }
}

fn open(path: &Path) -> Arc<dyn Blob> {
    Arc::new(FileBlob::open(path, path.to_str().unwrap()).unwrap())
}

/// Reads what there is, and the error that ends it.
fn members(path: &Path, options: &ContainerOptions) -> (Vec<Member>, Option<FetchError>) {
    let mut all = Vec::new();
    let formats = registry();
    let mut members = match formats.get("parquet").unwrap().open(open(path), options) {
        Ok(members) => members,
        Err(error) => return (all, Some(error)),
    };
    loop {
        match members.next() {
            Ok(Some(member)) => all.push(member),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        }
    }
}

fn sound(path: &Path, options: &ContainerOptions) -> Vec<Member> {
    let (members, error) = members(path, options);
    assert!(error.is_none(), "{error:?}");
    members
}

fn refusal(path: &Path, options: &ContainerOptions) -> String {
    members(path, options).1.expect("it cannot be read").to_string()
}

fn content(member: &Member) -> Result<Vec<u8>, String> {
    match &member.content {
        MemberContent::Here(bytes) => Ok(bytes.to_vec()),
        MemberContent::At(path) => Err(format!("at {}", String::from_utf8_lossy(path))),
        MemberContent::Failed(error) => Err(error.to_string()),
    }
}

/// The image of row `row`: a null, a tiny one, and others of a few kilobytes.
fn image(row: usize) -> Option<Vec<u8>> {
    match row % 7 {
        3 => None,
        4 => Some(b"tiny".to_vec()),
        _ => Some((0..row * 97).map(|byte| (byte * row) as u8).collect()),
    }
}

fn images() -> Vec<Option<Vec<u8>>> {
    (0..ROWS).map(image).collect()
}

/// Columns `image` of the kind that `make` makes, `caption` and `number`.
fn table(image: ArrayRef) -> RecordBatch {
    let caption: ArrayRef =
        Arc::new((0..ROWS).map(|row| (row % 5 > 0).then(|| format!("no. {row}, żółw"))).collect::<StringArray>());
    let number: ArrayRef = Arc::new((0..ROWS as i64).map(|row| row * -3).collect::<Int64Array>());
    RecordBatch::try_from_iter_with_nullable([
        ("caption", caption, true),
        ("image", image, true),
        ("number", number, true),
    ])
    .unwrap()
}

fn binary() -> ArrayRef {
    Arc::new(images().iter().map(Option::as_deref).collect::<BinaryArray>())
}

/// As Hugging Face's `datasets` stores images: here every other one lies beside the table.
fn hugging_face() -> ArrayRef {
    let images = images().into_iter().enumerate();
    let bytes: ArrayRef = Arc::new(images.map(|(row, image)| image.filter(|_| row % 2 == 0)).collect::<BinaryArray>());
    let path: ArrayRef = Arc::new((0..ROWS).map(|row| Some(format!("photos/{row}.jpg"))).collect::<StringArray>());
    let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    Arc::new(StructArray::from(vec![(field("bytes", &bytes), bytes.clone()), (field("path", &path), path.clone())]))
}

fn writer() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_max_row_group_row_count(Some(9)).set_data_page_size_limit(2000)
}

fn write_parquet(path: &Path, table: &RecordBatch, properties: WriterPropertiesBuilder) {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, table.schema(), Some(properties.build())).unwrap();
    writer.write(table).unwrap();
    writer.close().unwrap();
}

fn write_ipc(path: &Path, table: &RecordBatch, is_stream: bool, compression: Option<CompressionType>) {
    let file = File::create(path).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let rows = table.num_rows();
    let batches = (0..rows).step_by(5).map(|start| table.slice(start, 5.min(rows - start)));
    if is_stream {
        let mut writer = StreamWriter::try_new_with_options(file, &table.schema(), options).unwrap();
        batches.for_each(|batch| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(file, &table.schema(), options).unwrap();
        batches.for_each(|batch| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    }
}

/// The same table in every layout.
fn layouts(folder: &Path) -> Vec<PathBuf> {
    let path = |name: &str| folder.join(name);
    let written = |name: &str, image: ArrayRef, properties| {
        write_parquet(&path(name), &table(image), properties);
        path(name)
    };
    let images = images();
    let images: Vec<Option<&[u8]>> = images.iter().map(Option::as_deref).collect();
    let mut files = vec![
        written("plain.parquet", binary(), writer().set_dictionary_enabled(false)),
        written("dictionary.PARQUET", binary(), writer()),
        written("one-group.parquet", binary(), WriterProperties::builder()),
        written("snappy.parquet", binary(), writer().set_compression(Compression::SNAPPY)),
        written("gzip.parquet", binary(), writer().set_compression(Compression::GZIP(Default::default()))),
        written("lz4.parquet", binary(), writer().set_compression(Compression::LZ4_RAW)),
        written("zstd.parquet", binary(), writer().set_compression(Compression::ZSTD(Default::default()))),
        written("v2.parquet", binary(), writer().set_writer_version(WriterVersion::PARQUET_2_0)),
        written("large.parquet", Arc::new(LargeBinaryArray::from(images.clone())), writer()),
        written("view.parquet", Arc::new(BinaryViewArray::from(images.clone())), writer()),
    ];
    for (name, is_stream, compression) in [
        ("file.arrow", false, None),
        ("stream.arrow", true, None),
        ("lz4.feather", false, Some(CompressionType::LZ4_FRAME)),
        ("zstd.feather", false, Some(CompressionType::ZSTD)),
    ] {
        write_ipc(&path(name), &table(binary()), is_stream, compression);
        files.push(path(name));
    }
    write_ipc(&path("view.arrow"), &table(Arc::new(BinaryViewArray::from(images))), true, None);
    files.push(path("view.arrow"));
    files
}

#[test]
fn every_layout_has_the_same_rows() {
    let folder = TempDir::new().unwrap();
    for path in layouts(folder.path()) {
        let at = path.display();
        let read = sound(&path, &options(None, None, &["number", "caption"]));
        assert_eq!(read.len(), ROWS, "{at}");
        for (row, member) in read.iter().enumerate() {
            assert_eq!(member.name, MemberName::Key(row.to_string().into_bytes()), "{at}");
            assert_eq!(content(member), image(row).ok_or(format!("no image in row {row}")), "{at}");
            assert_eq!(member.version.is_known(), image(row).is_some());
            let caption = (row % 5 > 0).then(|| format!("no. {row}, żółw"));
            assert_eq!(*member.columns, [Some((row as i64 * -3).to_string()), caption], "{at}");
        }
    }
}

#[test]
fn every_layout_is_a_container() {
    let folder = TempDir::new().unwrap();
    for path in layouts(folder.path()) {
        with_format(|format| {
            check_container(format, || open(&path), &options(None, None, &["caption"]));
            check_container(format, || open(&path), &options(Some("image"), Some("number"), &[]));
        });
    }
}

#[test]
fn ids_come_from_a_column() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &table(binary()), writer());
    let read = sound(&path, &options(None, Some("number"), &[]));
    assert_eq!(read[2].name, MemberName::Id("-6".to_owned()));
    let read = sound(&path, &options(None, Some("caption"), &[]));
    assert_eq!(read[1].name, MemberName::Id("no. 1, żółw".to_owned()));
    assert_eq!(read[5].name, MemberName::Key(b"5".to_vec()), "a null");
    assert_eq!(content(&read[5]), Err("no id in row 5".to_owned()));
}

#[test]
fn images_may_lie_beside_the_table() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &table(hugging_face()), writer());
    let beside = |row: usize| Err(format!("at {}/photos/{row}.jpg", folder.path().display()));
    for (row, member) in sound(&path, &options(None, None, &[])).iter().enumerate() {
        let expected = image(row).filter(|_| row % 2 == 0).map_or_else(|| beside(row), Ok);
        assert_eq!(content(member), expected, "row {row}");
    }
    let paths: ArrayRef = Arc::new(StringArray::from(vec!["a.jpg", "/abs/b.jpg", "HTTPS://host/c.jpg?d=1"]));
    let only = RecordBatch::try_from_iter([("url", paths)]).unwrap();
    write_parquet(&path, &only, writer());
    let read: Vec<_> =
        sound(&path, &options(None, None, &[])).iter().map(|member| content(member).unwrap_err()).collect();
    let beside = format!("at {}/a.jpg", folder.path().display());
    assert_eq!(read, [beside.as_str(), "at /abs/b.jpg", "at https://host/c.jpg?d=1"]);
}

#[test]
fn names_that_are_missing_are_listed() {
    let folder = TempDir::new().unwrap();
    for (name, write) in [
        ("x.parquet", &(|path: &Path| write_parquet(path, &table(binary()), writer())) as &dyn Fn(&Path)),
        ("x.arrow", &|path: &Path| write_ipc(path, &table(binary()), false, None)),
    ] {
        let path = folder.path().join(name);
        write(&path);
        for options in [
            options(Some("photo"), None, &[]),
            options(None, Some("photo"), &[]),
            options(None, None, &["caption", "photo"]),
        ] {
            let error = refusal(&path, &options);
            assert!(error.contains("no column 'photo'; its columns are caption (text), image (binary)"), "{error}");
        }
        let error = refusal(&path, &options(Some("number"), None, &[]));
        assert!(error.contains("'number' holds neither images nor paths, but Int64"), "{error}");
    }
}

#[test]
fn large_images_are_failures() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &table(binary()), writer());
    let options = ContainerOptions { max_bytes: 500, ..ContainerOptions::default() };
    for (row, member) in sound(&path, &options).iter().enumerate() {
        let is_large = image(row).is_some_and(|image| image.len() > 500);
        assert_eq!(matches!(member.content, MemberContent::Failed(FetchError::TooLarge { .. })), is_large, "row {row}");
    }
}

#[test]
fn files_without_rows_are_empty() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &table(binary()).slice(0, 0), writer());
    assert!(sound(&path, &options(None, None, &[])).is_empty(), "no row group");
    let path = folder.path().join("x.arrow");
    let file = File::create(&path).unwrap();
    FileWriter::try_new(file, &table(binary()).schema()).unwrap().finish().unwrap();
    assert!(sound(&path, &options(None, None, &[])).is_empty(), "no record batch");
}

#[test]
fn other_files_are_refused() {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in [
        ("x.parquet", &b""[..]),
        ("x.parquet", b"PAR1"),
        ("x.parquet", b"no table at all"),
        ("x.arrow", b""),
        ("x.arrow", b"no table at all"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        assert!(
            matches!(members(&path, &options(None, None, &[])), (none, Some(FetchError::Damaged(_))) if none.is_empty())
        );
    }
    fs::write(folder.path().join("x.parquet"), b"PAR1 secret \x08\0\0\0PARE").unwrap();
    assert!(refusal(&folder.path().join("x.parquet"), &options(None, None, &[])).contains("encrypted"));
    with_format(|format| {
        let refused = format.open(Arc::new(StandardInput::default()), &options(None, None, &[])).map(drop);
        assert!(matches!(refused, Err(FetchError::Refused(_))));
    });
}

#[test]
fn memory_is_not_taken_for_what_a_buffer_claims() {
    const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.arrow");
    write_ipc(&path, &table(binary()), true, Some(CompressionType::LZ4_FRAME));
    let mut bytes = fs::read(&path).unwrap();
    let frame = bytes.windows(4).position(|four| four == LZ4_FRAME).expect("a compressed buffer");
    bytes[frame - 8..frame].copy_from_slice(&(13_u64 << 40).to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let reason = refusal(&path, &options(None, None, &[]));
    assert!(reason.starts_with("a record batch claims to inflate to 14293651161088 bytes"), "{reason}");
}

#[test]
fn a_page_that_grows_too_much_is_refused_before_it_does() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    let written = |bytes: usize| {
        let zeros = vec![0; bytes];
        let image: ArrayRef = Arc::new(BinaryArray::from(vec![&zeros[..]]));
        let gzip = writer().set_compression(Compression::GZIP(Default::default())).set_dictionary_enabled(false);
        write_parquet(&path, &RecordBatch::try_from_iter([("image", image)]).unwrap(), gzip);
        members(&path, &options(None, None, &[]))
    };
    let (read, error) = written(63 << 20);
    assert!(error.is_none() && content(&read[0]).unwrap().len() == 63 << 20, "{error:?}");
    let (read, error) = written(65 << 20);
    let reason = error.unwrap().to_string();
    assert!(read.is_empty() && reason.contains("a page of ") && reason.contains("says that it has 6815"), "{reason}");
}

#[test]
fn a_batch_of_more_than_two_gib_is_refused_without_reading_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.arrow");
    write_ipc(&path, &table(binary()), true, None);
    let mut bytes = fs::read(&path).unwrap();
    // The second message, after the schema, has a body of this length.
    let schema = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize + 8;
    let head = u32::from_le_bytes(bytes[schema + 4..schema + 8].try_into().unwrap()) as usize;
    let metadata = schema + 8..schema + 8 + head;
    let body = arrow_ipc::root_as_message(&bytes[metadata.clone()]).unwrap().bodyLength();
    let at = bytes[metadata.clone()].windows(8).position(|eight| eight == body.to_le_bytes()).unwrap();
    let larger = (2_i64 << 30) + 8;
    bytes[metadata.start + at..][..8].copy_from_slice(&larger.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(3 << 30).unwrap();
    let reason = refusal(&path, &options(None, None, &[]));
    assert_eq!(reason, "a record batch has 2147483656 bytes, more than 2147483648; write smaller ones");
}

/// A file in a store, which counts its requests.
struct Stored {
    bytes: MemoryBlob,
    state: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Default)]
struct Requests {
    count: usize,
    under_way: usize,
    /// True if two were under way at once.
    are_parallel: bool,
}

impl Blob for Stored {
    fn name(&self) -> &str {
        self.bytes.name()
    }

    fn len(&self) -> Option<u64> {
        self.bytes.len()
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    /// A large request waits until there is a second one.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        let mut state = self.state.lock().unwrap();
        (state.count, state.under_way) = (state.count + 1, state.under_way + 1);
        state.are_parallel |= state.under_way > 1;
        self.changed.notify_all();
        if out.len() > 1 << 20 {
            state = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.are_parallel).unwrap().0;
        }
        state.under_way -= 1;
        drop(state);
        self.bytes.read_at(offset, out)
    }

    fn stream(&self, _: u64) -> Result<Box<dyn std::io::Read + Send>, FetchError> {
        unreachable!("a table is read in pieces")
    }
}

/// Time that a request waits for another: only a failing test takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn row_groups_in_a_store_are_read_ahead() {
    const EACH: usize = 3 << 20;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    // Each row group has two images, whose pages cross the requests' edges, and captions.
    let photo = |row: usize| vec![row as u8; EACH + row];
    let images: Vec<_> = (0..9).map(photo).collect();
    let image: ArrayRef = Arc::new(BinaryArray::from_iter_values(&images));
    let caption: ArrayRef = Arc::new(StringArray::from_iter_values((0..9).map(|row| format!("no. {row}"))));
    let table = RecordBatch::try_from_iter([("image", image), ("caption", caption)]).unwrap();
    let groups = |rows: usize| writer().set_max_row_group_row_count(Some(rows)).set_dictionary_enabled(false);
    for rows in [2, 9] {
        write_parquet(&path, &table, groups(rows));
        let bytes = MemoryBlob::new("s3://bucket/x.parquet", fs::read(&path).unwrap());
        let stored = Arc::new(Stored { bytes: bytes.clone(), state: Mutex::default(), changed: Condvar::new() });
        let options = options(None, None, &["caption"]);
        with_format(|format| {
            let mut members = format.open(Arc::clone(&stored) as _, &options).unwrap();
            for row in 0..9 {
                let member = members.next().unwrap().unwrap();
                assert!(content(&member) == Ok(photo(row)), "row {row}");
                assert_eq!(*member.columns, [Some(format!("no. {row}"))]);
            }
            assert!(members.next().unwrap().is_none());
        });
        let state = stored.state.lock().unwrap();
        assert!(state.are_parallel, "a request waited in vain for another");
        // The footer; images in windows of 8 MiB at the most; the captions of each row group.
        assert!(state.count <= 1 + 2 * 9_usize.div_ceil(rows) + 4, "{} requests", state.count);
        with_format(|format| check_container(format, || Arc::new(bytes.clone()), &options));
    }
}

#[test]
fn a_store_that_fails_while_reading_ahead_is_told() {
    struct Failing(MemoryBlob, u64);
    impl Blob for Failing {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn len(&self) -> Option<u64> {
            self.0.len()
        }
        fn modified(&self) -> Option<SystemTime> {
            None
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
            match self.1 {
                from if offset >= from => Err(FetchError::Unreachable("reset".to_owned())),
                _ => self.0.read_at(offset, out),
            }
        }
        fn stream(&self, _: u64) -> Result<Box<dyn std::io::Read + Send>, FetchError> {
            unreachable!("a table is read in pieces")
        }
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &table(binary()), writer().set_dictionary_enabled(false));
    let bytes = fs::read(&path).unwrap();
    let failing = Failing(MemoryBlob::new("s3://bucket/x.parquet", bytes), 3000);
    with_format(|format| {
        let mut members = format.open(Arc::new(failing), &options(None, None, &[])).unwrap();
        let error = (0..ROWS).find_map(|_| members.next().err());
        assert!(matches!(error, Some(FetchError::Unreachable(_))), "{error:?}");
    });
}

#[test]
fn columns_that_the_first_table_lacks_are_refused_by_the_listing() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_parquet(&path("a.parquet"), &table(binary()), writer());
    let other: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..]]));
    write_parquet(&path("other.parquet"), &RecordBatch::try_from_iter([("photo", other)]).unwrap(), writer());
    fs::write(path("bad.parquet"), "no table").unwrap();
    fs::write(path("a.jpg"), "photo").unwrap();
    let listing = |names: &[&str], options: ContainerOptions| {
        let inputs = names.iter().map(|name| Input::Path(path(name)));
        Listing::builder().inputs(inputs).containers(Arc::new(registry()), options).build()
    };
    for options in [
        options(Some("photo"), None, &[]),
        options(None, Some("photo"), &[]),
        options(None, None, &["caption", "photo"]),
    ] {
        let error = listing(&["a.jpg", "a.parquet", "other.parquet"], options).unwrap_err().to_string();
        assert!(error.contains("a.parquet: it has no column 'photo'; its columns are caption (text)"), "{error}");
    }
    let paths: ArrayRef = Arc::new(StringArray::from(vec!["gone/1.jpg", "gone/2.jpg"]));
    write_parquet(&path("paths.parquet"), &RecordBatch::try_from_iter([("file", paths)]).unwrap(), writer());
    let error = listing(&["paths.parquet"], options(None, None, &[])).unwrap_err().to_string();
    assert!(
        error.contains("taken for paths of images by its values, but none of its first 2 files is there"),
        "{error}"
    );
    assert_eq!(listing(&["paths.parquet"], options(Some("file"), None, &[])).unwrap().extent().count(), None);
    // Another table without the column is a failure of its own.
    let mut mixed = listing(&["a.parquet", "other.parquet"], options(None, None, &["caption"])).unwrap();
    let read = read(&mut mixed);
    assert!(read.len() == ROWS + 1 && read[ROWS].1.as_ref().unwrap_err().contains("no column 'caption'"));
    assert!(listing(&["bad.parquet"], options(None, Some("number"), &[])).is_ok(), "damage has an outcome later");
    let error = listing(&["a.jpg"], options(None, Some("number"), &[])).unwrap_err();
    assert_eq!(error.to_string(), "no input is a table with a column 'number'");
}

/// The sequence of outcomes: contents, and at the end perhaps an error.
fn outcomes(path: &Path, skip: u64) -> Vec<Result<Vec<u8>, String>> {
    let formats = registry();
    let run = || -> Result<Vec<Result<Vec<u8>, String>>, FetchError> {
        let mut members = formats.get("parquet").unwrap().open(open(path), &options(None, None, &["caption"]))?;
        members.skip(skip)?;
        let mut all = Vec::new();
        loop {
            match members.next() {
                Ok(Some(member)) => all.push(content(&member)),
                Ok(None) => return Ok(all),
                Err(error) => {
                    all.push(Err(error.to_string()));
                    return Ok(all);
                }
            }
        }
    };
    match run() {
        Ok(all) => all,
        Err(error) if skip == 0 => vec![Err(error.to_string())],
        Err(_) => Vec::new(),
    }
}

/// Resuming relies on this for damaged files, too: skipping any number of outcomes gives the rest.
#[test]
fn damage_has_one_outcome_and_skipping_gives_the_rest() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    let table = table(binary()).slice(0, ROWS);
    for (name, properties) in [
        ("x.parquet", writer().set_dictionary_enabled(false)),
        ("y.parquet", writer().set_compression(Compression::SNAPPY)),
    ] {
        let path = path.with_file_name(name);
        write_parquet(&path, &table, properties);
        check_damaged(&path);
    }
    let path = folder.path().join("x.arrow");
    write_ipc(&path, &table, false, None);
    check_damaged(&path);
}

fn check_damaged(path: &Path) {
    let whole = fs::read(path).unwrap();
    // Places all over the file, and each of the last ones, where the footer is.
    let places = (0..whole.len()).step_by(211).chain(whole.len().saturating_sub(300)..whole.len());
    let damaged = path.with_extension(format!("damaged.{}", path.extension().unwrap().to_str().unwrap()));
    for at in places {
        for damage in [0xff, 0x80, 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= damage;
            fs::write(&damaged, bytes).unwrap();
            let all = outcomes(&damaged, 0);
            let count = all.len() as u64;
            for skip in [1, count / 2, count.saturating_sub(1), count, count + 1] {
                let rest = &all[skip.min(count) as usize..];
                assert!(outcomes(&damaged, skip) == rest, "byte {at} ^ {damage}, {skip} of {count} skipped");
            }
        }
    }
    for len in (0..whole.len()).step_by(97) {
        fs::write(&damaged, &whole[..len]).unwrap();
        let all = outcomes(&damaged, 0);
        assert!(all.last().is_some_and(Result::is_err), "cut to {len}");
    }
}

#[test]
fn a_listing_reads_files_and_tables() {
    let folder = TempDir::new().unwrap();
    let photos = folder.path().join("photos");
    fs::create_dir(&photos).unwrap();
    for row in (0..ROWS).filter(|row| row % 4 != 0) {
        fs::write(photos.join(format!("{row}.jpg")), format!("file {row}")).unwrap();
    }
    write_parquet(&folder.path().join("a.parquet"), &table(binary()), writer());
    write_parquet(&folder.path().join("b.parquet"), &table(hugging_face()), writer());
    let list = |shard: Option<(u32, u32)>| -> Box<dyn Source> {
        let inputs = ["a.parquet", "photos", "b.parquet"].map(|name| Input::Path(folder.path().join(name)));
        let mut listing =
            Listing::builder().inputs(inputs).containers(Arc::new(registry()), options(None, None, &["caption"]));
        if let Some((index, count)) = shard {
            listing = listing.shard(index, count);
        }
        Box::new(listing.build().unwrap())
    };
    check(|| list(None));
    check_shards(list(None).as_mut(), (0..3).map(|index| list(Some((index, 3)))).collect());
    let read = read(list(None).as_mut());
    let at = |id: &str| {
        let id = format!("{}/{id}", folder.path().display());
        read.iter().find(|(item, _)| item.id == id).map(|(_, bytes)| bytes.clone()).unwrap()
    };
    assert_eq!(at("a.parquet/5"), Ok(image(5).unwrap()));
    assert_eq!(at("photos/5.jpg"), Ok(b"file 5".to_vec()));
    assert_eq!(at("b.parquet/5"), Ok(b"file 5".to_vec()));
    assert_eq!(at("b.parquet/6"), Ok(image(6).unwrap()));
    assert!(at("a.parquet/3").unwrap_err().contains("no image in row 3"));
}

#[test]
fn compression_that_is_not_built_in_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &table(binary()), writer());
    let bytes = fs::read(&path).unwrap();
    // The footer's columns say 0 (uncompressed) after their paths; another codec there is enough to be refused.
    let as_codec = |codec: u8| -> Vec<u8> {
        let mut bytes = bytes.clone();
        let path = b"\x18\x05image\x15\x00";
        let places: Vec<_> =
            bytes.windows(path.len()).enumerate().filter(|(_, at)| at == path).map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "the footer has another layout");
        places.iter().for_each(|at| bytes[at + path.len() - 1] = codec << 1);
        bytes
    };
    fs::write(&path, as_codec(4)).unwrap();
    assert!(refusal(&path, &options(None, None, &[])).contains("Brotli, which this program cannot read"));
}

/// Rows of two images, of one, of none, a null, and one whose second image is a null.
fn lists() -> [ArrayRef; 3] {
    let bytes = || [Some("a"), Some("b"), Some("c"), Some("d"), None, Some("f")];
    let paths = StringArray::from(vec![Some("beside/f.jpg"); 6]);
    let binary: ArrayRef = Arc::new(bytes().into_iter().map(|text| text.map(str::as_bytes)).collect::<BinaryArray>());
    let field = |name: &str, array: &dyn Array| Arc::new(Field::new(name, array.data_type().clone(), true));
    let parts = [(field("bytes", &binary), Arc::clone(&binary)), (field("path", &paths), Arc::new(paths) as ArrayRef)];
    let parts: ArrayRef = Arc::new(StructArray::from(parts.to_vec()));
    let nulls = NullBuffer::from(vec![true, true, true, false, true, true]);
    let list = |values: &ArrayRef| -> ArrayRef {
        let offsets = OffsetBuffer::from_lengths([2, 1, 0, 0, 2, 1]);
        Arc::new(ListArray::new(field("item", values), offsets, Arc::clone(values), Some(nulls.clone())))
    };
    let large = LargeListArray::new(
        field("item", &binary),
        OffsetBuffer::from_lengths([2, 1, 0, 0, 2, 1]),
        Arc::clone(&binary),
        Some(nulls.clone()),
    );
    [list(&binary), list(&parts), Arc::new(large)]
}

#[test]
fn a_row_may_have_a_list_of_images() {
    let folder = TempDir::new().unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(10..16));
    for (kind, images) in lists().into_iter().enumerate() {
        let rows =
            RecordBatch::try_from_iter_with_nullable([("n", Arc::clone(&numbers), false), ("pictures", images, true)]);
        let rows = rows.unwrap();
        let parquet = folder.path().join(format!("{kind}.parquet"));
        write_parquet(&parquet, &rows, writer().set_max_row_group_row_count(Some(2)));
        let arrow = folder.path().join(format!("{kind}.arrow"));
        write_ipc(&arrow, &rows, false, None);
        for path in [parquet, arrow] {
            let members = sound(&path, &options(None, None, &["n"]));
            let seen = members.iter().map(|member| match &member.name {
                MemberName::Key(key) => (String::from_utf8_lossy(key).into_owned(), content(member)),
                MemberName::Id(id) => panic!("{id}"),
            });
            let seen: Vec<_> = seen.collect();
            let beside = Err(format!("at {}/beside/f.jpg", folder.path().display()));
            let second = if kind == 1 { beside } else { Err("no image in row 4".to_owned()) };
            let here = |text: &str| Ok(text.as_bytes().to_vec());
            let expected = [
                ("0/0", here("a")),
                ("0/1", here("b")),
                ("1/0", here("c")),
                ("3", Err("no image in row 3".to_owned())),
                ("4/0", here("d")),
                ("4/1", second),
                ("5/0", here("f")),
            ];
            assert_eq!(seen, expected.map(|(name, content)| (name.to_owned(), content)), "{}", path.display());
            assert_eq!(members[1].columns[0].as_deref(), Some("10"));
            let named = sound(&path, &options(Some("pictures"), Some("n"), &[]));
            assert_eq!(named[1].name, MemberName::Id("10/1".to_owned()));
            with_format(|format| check_container(format, || open(&path), &options(None, None, &["n"])));
        }
    }
}

#[test]
fn text_is_a_path_only_if_its_values_look_so() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.parquet");
    let write = |columns: &[(&str, [&str; 3])]| {
        let arrays =
            columns.iter().map(|(name, values)| (*name, Arc::new(StringArray::from(values.to_vec())) as ArrayRef));
        write_parquet(&path, &RecordBatch::try_from_iter(arrays).unwrap(), writer());
    };
    let guess = |columns: &[(&str, [&str; 3])]| -> Result<String, String> {
        write(columns);
        match members(&path, &options(None, None, &[])) {
            (_, Some(error)) => Err(error.to_string()),
            (members, None) => Ok(content(&members[0]).unwrap_err()),
        }
    };
    let caption = ("caption", ["a cat", "a dog.", "a.b"]);
    let pages = ("page", ["https://host/1", "https://host/2", "https://host/3"]);
    let photos = ("photo", ["https://host/1.jpg?w=3", "https://host/2.JPG", ""]);
    let more = ("image", ["1.png", "2.png", "3.png"]);
    assert_eq!(guess(&[caption, pages, photos]), Ok("at https://host/1.jpg?w=3".to_owned()));
    assert_eq!(guess(&[caption, pages]), Ok("at https://host/1".to_owned()));
    assert_eq!(guess(&[more, photos]), Ok(format!("at {}/1.png", folder.path().display())), "the usual name");
    let error = guess(&[("other", more.1), photos]).unwrap_err();
    assert!(error.starts_with("several columns look like paths of images: other (text), photo (text)"), "{error}");
    let error = guess(&[caption]).unwrap_err();
    assert!(error.starts_with("no column has images, or values that look like their paths: caption (text)"), "{error}");
    let encoded = format!("/9j/{}", "A".repeat(170_000));
    let encoded = ("image", [encoded.as_str(); 3]);
    let error = guess(&[caption, encoded]).unwrap_err();
    assert!(error.starts_with("column 'image' is images in base64, which are not read"), "{error}");
    let named = sound(&path, &options(Some("image"), None, &[]));
    assert!(content(&named[2]).unwrap_err().starts_with("the text in row 2 is images in base64"));
    let endless = "x".repeat(20_000);
    write(&[("file", [endless.as_str(), "a.jpg", ""])]);
    let named = sound(&path, &options(Some("file"), None, &[]));
    let beside = format!("at {}/a.jpg", folder.path().display());
    let reasons = ["the text in row 0 is no path: it has 20000 bytes", &beside, "no image in row 2"];
    assert_eq!([0, 1, 2].map(|row: usize| content(&named[row]).unwrap_err()), reasons);
}
