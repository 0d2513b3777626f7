//! Listings with containers and stores, of a format and a store that are as small as their traits allow.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use foveate_source::blob::{Blob, MemoryBlob};
use foveate_source::conformance::{check, check_shards, enumerate, read};
use foveate_source::container::{
    ContainerBackend, ContainerOptions, ContainerRegistry, Member, MemberContent, MemberName, Members,
};
use foveate_source::store::{Object, ReadAhead, Store, StoreBackend, StoreOptions, StoreRegistry, Version};
use foveate_source::{Content, Fetch, FetchError, Input, Item, Listing, ListingBuilder, Source, SourceError};
use tempfile::TempDir;

/// A text file; each line is a member with the line as its name and its bytes. Some lines mean something else.
struct Lines(std::io::Lines<BufReader<Box<dyn std::io::Read + Send>>>);

impl Members for Lines {
    fn next(&mut self) -> Result<Option<Member>, FetchError> {
        let Some(line) = self.0.next().transpose()? else { return Ok(None) };
        let content = match line.as_str() {
            "damaged" => return Err(FetchError::Damaged("a damaged line".to_owned())),
            "away" => return Err(FetchError::Unreachable("the store is away".to_owned())),
            "panic" => panic!("a defect in the format"),
            "bad" => MemberContent::Failed(FetchError::TooLarge { bytes: 9, limit: 3 }),
            line => match line.strip_prefix("at ") {
                Some(path) => MemberContent::At(path.as_bytes().to_vec()),
                None => MemberContent::Here(line.to_owned().into()),
            },
        };
        let columns = Box::new([(line != "no value").then(|| line.len().to_string())]);
        Ok(Some(Member { name: MemberName::Key(line.into_bytes()), content, version: Version::default(), columns }))
    }
}

fn formats() -> Arc<ContainerRegistry> {
    let mut formats = ContainerRegistry::new("container", &["lines"]);
    let open = |blob: Arc<dyn Blob>, _: &ContainerOptions| {
        let members: Box<dyn Members> = Box::new(Lines(BufReader::new(blob.stream(0)?).lines()));
        Ok(members)
    };
    formats.register(ContainerBackend::new("lines", "a test", &["lines", "lines.gz"], open).with_columns()).unwrap();
    Arc::new(formats)
}

/// A folder with these files.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(root.path().join(name), text).unwrap();
    }
    root
}

fn listing(root: &TempDir, names: &[&str]) -> ListingBuilder<'static> {
    let inputs: Vec<_> = names.iter().map(|name| Input::Path(root.path().join(name))).collect();
    Listing::builder().inputs(inputs).containers(formats(), ContainerOptions::default())
}

/// Ids without the folder, and bytes or reasons.
fn outcomes(root: &TempDir, source: &mut dyn Source) -> Vec<(String, Result<String, String>)> {
    let folder = format!("{}/", root.path().display());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    read(source).into_iter().map(|(item, bytes)| (item.id.replace(&folder, ""), bytes.map(text))).collect()
}

fn ok(id: &str, text: &str) -> (String, Result<String, String>) {
    (id.to_owned(), Ok(text.to_owned()))
}

fn failed(id: &str, reason: &str) -> (String, Result<String, String>) {
    (id.to_owned(), Err(reason.to_owned()))
}

fn mixed() -> TempDir {
    let many: String = (0..300).map(|i| format!("photo {i}\n")).collect();
    tree(&[
        ("a.jpg", "a"),
        ("one.lines", "x\ny\nbad\nz\n"),
        ("empty.lines", ""),
        ("two.LINES.gz", "u\nv\ndamaged\nlost\n"),
        ("panics.lines", "p\npanic\nlost\n"),
        ("many.lines", &many),
    ])
}

const MIXED: [&str; 7] =
    ["a.jpg", "one.lines", "empty.lines", "two.LINES.gz", "missing.lines", "panics.lines", "many.lines"];

#[test]
fn members_come_in_order_each_with_one_outcome() {
    let root = mixed();
    let mut listing = listing(&root, &MIXED).build().unwrap();
    assert_eq!((listing.total(), listing.extent().end), (7, None));
    let found = outcomes(&root, &mut listing);
    assert_eq!(
        found[..5],
        [
            ok("a.jpg", "a"),
            ok("one.lines/x", "x"),
            ok("one.lines/y", "y"),
            failed("one.lines/bad", "9 bytes, more than the limit of 3 for one file"),
            ok("one.lines/z", "z"),
        ]
    );
    assert_eq!(
        found[5..8],
        [ok("two.LINES.gz/u", "u"), ok("two.LINES.gz/v", "v"), failed("two.LINES.gz", "a damaged line"),]
    );
    assert_eq!(found[8], failed("missing.lines", "No such file or directory (os error 2)"));
    assert_eq!(found[9..11], [ok("panics.lines/p", "p"), failed("panics.lines", "a defect in the format")]);
    assert_eq!(found[11..].len(), 300);
    assert_eq!(found[310], ok("many.lines/photo 299", "photo 299"));
}

#[test]
fn a_listing_with_containers_conforms_from_every_place() {
    let root = mixed();
    check(|| Box::new(listing(&root, &MIXED).build().unwrap()));
    let whole = enumerate(&mut listing(&root, &MIXED).build().unwrap());
    for (done, after) in whole.iter().enumerate() {
        let mut resumed = listing(&root, &MIXED).build().unwrap();
        resumed.seek(done as u64 + 1, after.place).unwrap();
        assert_eq!(enumerate(&mut resumed), whole[done + 1..], "after {after}");
    }
}

#[test]
fn shards_divide_the_files() {
    let root = mixed();
    for count in [1, 2, 3, 7, 9] {
        let shards = (0..count).map(|i| Box::new(listing(&root, &MIXED).shard(i, count).build().unwrap()) as _);
        check_shards(&mut listing(&root, &MIXED).build().unwrap(), shards.collect());
    }
}

#[test]
fn shards_share_a_limit() {
    let root = mixed();
    let ids = |shard: Option<(u32, u32)>, limit: u64| -> Vec<String> {
        let whole = listing(&root, &MIXED).limit(limit);
        let source = shard.map_or(whole, |(index, count)| listing(&root, &MIXED).limit(limit).shard(index, count));
        enumerate(&mut source.build().unwrap()).into_iter().map(|item| item.id).collect()
    };
    let (first, second) = (ids(Some((0, 2)), 5), ids(Some((1, 2)), 5));
    assert_eq!((first.len(), second.len()), (2, 3), "each has its share");
    assert_eq!(first, ids(None, 2), "of its own items");
    assert!(second[0].ends_with("two.LINES.gz/u"), "{second:?}");
    let none = listing(&root, &MIXED).limit(1).shard(0, 2).build().unwrap();
    assert_eq!(none.extent().count(), Some(0), "a share may be nothing");
    let none = listing(&root, &["one.lines"]).shard(0, 2).build().unwrap();
    assert_eq!(none.extent().count(), Some(0), "so may a shard");
}

#[test]
fn a_limit_counts_members() {
    let root = mixed();
    for limit in [0, 1, 3, 8, 311, 400] {
        let mut listing = listing(&root, &MIXED).limit(limit).build().unwrap();
        assert_eq!(enumerate(&mut listing).len() as u64, limit.min(311));
        assert!(limit == 0 || listing.part().contains(&format!("first {limit} of")));
    }
}

#[test]
fn storage_that_is_away_stops_the_run_and_loses_no_member() {
    let root = tree(&[("a.lines", "x\naway\n"), ("b.lines", "y\n")]);
    let mut source = listing(&root, &["a.lines", "b.lines"]).build().unwrap();
    let first = source.deliver().unwrap().unwrap();
    assert!(matches!(first.content, Content::Read(_)));
    let error = source.deliver().unwrap_err();
    assert!(matches!(error, SourceError::Interrupted { .. }) && error.to_string().contains("a.lines"), "{error}");
    fs::write(root.path().join("a.lines"), "x\nback\n").unwrap();
    let mut again = listing(&root, &["a.lines", "b.lines"]).build().unwrap();
    again.seek(1, first.item.place).unwrap();
    assert_eq!(outcomes(&root, &mut again), [ok("a.lines/back", "back"), ok("b.lines/y", "y")]);
}

#[test]
fn the_hash_changes_with_a_container_but_not_with_a_photo() {
    let root = tree(&[("a.jpg", "a"), ("a.lines", "x\n")]);
    let hash = || listing(&root, &["a.jpg", "a.lines"]).build().unwrap().listing_hash();
    let before = hash();
    fs::write(root.path().join("a.jpg"), "other").unwrap();
    assert_eq!(hash(), before);
    fs::write(root.path().join("a.lines"), "x\ny\n").unwrap();
    assert_ne!(hash(), before);
}

#[test]
fn members_elsewhere_are_read_there() {
    let root = tree(&[("b.jpg", "elsewhere")]);
    let path = root.path().join("b.jpg").display().to_string();
    fs::write(root.path().join("a.lines"), format!("at {path}\nat {path}.none\n")).unwrap();
    let found = read(&mut listing(&root, &["a.lines"]).build().unwrap());
    assert_eq!(found[0].1.as_deref(), Ok(&b"elsewhere"[..]));
    let reason = found[1].1.as_ref().unwrap_err();
    assert!(reason.starts_with(&format!("{path}.none: No such file")), "{reason}");
}

#[test]
fn folders_stand_for_images_and_say_what_else_there_is() {
    let root = mixed();
    let mut listing = listing(&root, &[""]).build().unwrap();
    assert_eq!((listing.extent().end, listing.stats().skipped_containers), (Some(1), 5));
    assert_eq!(outcomes(&root, &mut listing), [ok("a.jpg", "a")]);
    let pattern = self::listing(&root, &["*.lines"]).build().unwrap();
    assert_eq!(pattern.total(), 4);
}

#[test]
fn columns_need_an_input_that_has_them() {
    let root = mixed();
    let options = || ContainerOptions { columns: vec!["length".to_owned()], ..ContainerOptions::default() };
    let built = |names: &[&str]| listing(&root, names).containers(formats(), options()).build();
    let error = built(&["a.jpg"]).unwrap_err();
    assert_eq!(error.to_string(), "no input can carry columns along (length)");
    let mut listing = built(&["a.jpg", "one.lines"]).unwrap();
    assert_eq!(listing.columns(), ["length"]);
    let columns: Vec<_> = enumerate(&mut listing).into_iter().map(|item| item.columns.to_vec()).collect();
    assert_eq!(columns[..2], [vec![], vec![Some("1".to_owned())]]);
}

/// Objects by address. Reading ahead has room for three.
#[derive(Clone)]
struct Shelf {
    objects: Arc<BTreeMap<String, String>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Shelf {
    fn new(objects: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { objects: Arc::new(objects.into_iter().collect()), asked: Arc::default() }
    }

    fn object(&self, address: &str) -> Object {
        let len = self.objects.get(address).map(|text| text.len() as u64);
        Object { address: address.to_owned(), version: Version { len, ..Version::default() } }
    }

    fn read(&self, address: &str) -> Result<Bytes, FetchError> {
        let text = self.objects.get(address).filter(|text| *text != "gone");
        text.map(|text| text.clone().into()).ok_or_else(|| FetchError::NotFound(address.to_owned()))
    }

    fn registry(&self) -> Arc<StoreRegistry> {
        let mut stores = StoreRegistry::new("store", &["shelf"]);
        let shelf = self.clone();
        let open = move |_: &StoreOptions| Ok(Arc::new(shelf.clone()) as Arc<dyn Store>);
        stores.register(StoreBackend::new("shelf", "a test", &["shelf"], open)).unwrap();
        Arc::new(stores)
    }
}

impl Store for Shelf {
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        self.objects.keys().filter(|key| key.starts_with(prefix)).try_for_each(|key| each(self.object(key)))
    }
    fn find(&self, address: &str) -> Result<Option<Object>, FetchError> {
        Ok(self.objects.contains_key(address).then(|| self.object(address)))
    }
    fn open(&self, object: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        self.read(&object.address).map(|bytes| Arc::new(MemoryBlob::new(&object.address, bytes)) as _)
    }
    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        Box::new(Asked { shelf: self.clone(), waiting: Default::default() })
    }
    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(self.clone())
    }
}

impl Fetch for Shelf {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        out.extend_from_slice(&self.read(&String::from_utf8_lossy(&item.locator))?);
        Ok(())
    }
    fn version(&mut self, item: &Item) -> Version {
        item.version.clone()
    }
}

struct Asked {
    shelf: Shelf,
    waiting: std::collections::VecDeque<Object>,
}

impl ReadAhead for Asked {
    fn has_room(&self) -> bool {
        self.waiting.len() < 3
    }
    fn ask(&mut self, object: Object) {
        assert!(self.has_room(), "asked for {} without room", object.address);
        self.shelf.asked.lock().unwrap().push(object.address.clone());
        self.waiting.push_back(object);
    }
    fn take(&mut self) -> Result<(Bytes, Version), FetchError> {
        let bytes = self.shelf.read(&self.waiting.pop_front().unwrap().address)?;
        Ok((bytes, Version { tag: Some("answered".to_owned()), ..Version::default() }))
    }
}

fn shelf() -> Shelf {
    let photos =
        (0..20).map(|i| (format!("shelf://b/p/{i:02}.jpg"), if i == 7 { "gone".into() } else { i.to_string() }));
    let others = [("shelf://b/p/notes.txt", "n"), ("shelf://b/p/s.lines", "m0\nm1\n"), ("shelf://b/q.jpg", "q")];
    Shelf::new(photos.chain(others.map(|(key, text)| (key.to_owned(), text.to_owned()))))
}

fn stored(shelf: &Shelf, addresses: &[&str]) -> ListingBuilder<'static> {
    let inputs: Vec<_> = addresses.iter().map(|address| Input::Path(address.into())).collect();
    let stores = Listing::builder().inputs(inputs).stores(shelf.registry(), StoreOptions::default());
    stores.containers(formats(), ContainerOptions::default())
}

#[test]
fn objects_below_a_prefix_are_read_ahead_in_order() {
    let shelf = shelf();
    let mut source = stored(&shelf, &["shelf://b/p"]).build().unwrap();
    assert_eq!(
        (source.extent(), source.stats().skipped_other, source.stats().skipped_containers),
        ((0..20).into(), 1, 1)
    );
    let found = read(&mut source);
    assert_eq!(found[3], (found[3].0.clone(), Ok(b"3".to_vec())));
    assert_eq!(found[7].1, Err("not found: shelf://b/p/07.jpg".to_owned()));
    let ids: Vec<_> = found.iter().map(|(item, _)| item.id.clone()).collect();
    assert_eq!(*shelf.asked.lock().unwrap(), ids, "each object is asked for once, in order");
    check(|| Box::new(stored(&shelf, &["shelf://b/p/"]).build().unwrap()));
}

#[test]
fn addresses_are_objects_prefixes_patterns_and_containers() {
    let shelf = shelf();
    let ids = |addresses: &[&str]| -> Vec<String> {
        enumerate(&mut stored(&shelf, addresses).build().unwrap()).into_iter().map(|item| item.id).collect()
    };
    assert_eq!(ids(&["shelf://b/q.jpg"]), ["shelf://b/q.jpg"]);
    assert_eq!(ids(&["shelf://b/*/0[01].jpg"]), ["shelf://b/p/00.jpg", "shelf://b/p/01.jpg"]);
    assert_eq!(ids(&["shelf://b/p/*.lines"]), ["shelf://b/p/s.lines/m0", "shelf://b/p/s.lines/m1"]);
    assert_eq!(ids(&["shelf://b/"]).len(), 21);
    let mut missing = stored(&shelf, &["shelf://b/none", "shelf://b/*.none"]).build().unwrap();
    let faults: Vec<_> = enumerate(&mut missing).into_iter().map(|item| item.fault.unwrap()).collect();
    assert_eq!(faults, ["no object has this name or prefix", "the pattern matches nothing"]);
    let error = stored(&shelf, &["other://b/"]).build().unwrap_err().to_string();
    assert_eq!(error, "no store for other:// addresses; there are shelf");
}

#[test]
fn files_objects_and_containers_mix() {
    let (shelf, root) = (shelf(), mixed());
    let list = root.path().join("list");
    fs::write(&list, format!("SHELF://b/q.jpg\n{}\nshelf://b/p/s.lines\n", root.path().join("a.jpg").display()))
        .unwrap();
    let build = || {
        let inputs = [Input::Path("shelf://b/p/".into()), Input::List(list.clone(), Default::default())];
        stored(&shelf, &[]).inputs(inputs).build().unwrap()
    };
    let found = read(&mut build());
    assert_eq!(found.len(), 24);
    assert_eq!((&found[20].1, &found[21].1), (&Ok(b"q".to_vec()), &Ok(b"a".to_vec())));
    assert_eq!(found[23].0.id, "shelf://b/p/s.lines/m1");
    check(|| Box::new(build()));
}

#[test]
fn objects_that_rows_name_are_read_ahead() {
    let shelf = shelf();
    let rows: String = (0..9).map(|i| format!("at shelf://b/p/{i:02}.jpg\n")).collect();
    let root = tree(&[("rows.lines", &format!("{rows}here\nat shelf://b/q.jpg\n"))]);
    let build = |limit| {
        let inputs = [Input::Path(root.path().join("rows.lines"))];
        stored(&shelf, &[]).inputs(inputs).limit(limit).build().unwrap()
    };
    let asked = || std::mem::take(&mut *shelf.asked.lock().unwrap()).len();
    let found: Vec<_> = read(&mut build(100)).into_iter().map(|(_, bytes)| bytes).collect();
    let texts = ["0", "1", "2", "3", "4", "5", "6", "gone", "8", "here", "q"];
    let expected = texts.map(|text| match text {
        "gone" => Err("not found: shelf://b/p/07.jpg".to_owned()),
        text => Ok(text.as_bytes().to_vec()),
    });
    assert_eq!((found, asked()), (expected.to_vec(), 10));
    // As many at a time as the store has room for, and no more than there are items.
    for (limit, expected) in [(100, 3), (2, 2)] {
        let first = build(limit).deliver().unwrap().unwrap();
        assert!(matches!(first.content, Content::Read(bytes) if bytes == "0"));
        assert_eq!(asked(), expected);
    }
    assert_eq!((enumerate(&mut build(100)).len(), asked()), (11, 0), "names alone take no request");
    check(|| Box::new(build(100)));
}
