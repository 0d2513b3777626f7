//! Listings of stores, on a store of objects that are made up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use foveate_source::blob::Blob;
use foveate_source::conformance::check;
use foveate_source::store::{Object, ReadAhead, Store, StoreBackend, StoreOptions, StoreRegistry, Version};
use foveate_source::{Content, Fetch, FetchError, Input, Item, Listing, ListingBuilder, Source, SourceError};
use foveate_testkit::by_length;

/// So many objects, whose bytes are their addresses.
#[derive(Clone)]
struct MadeUp(u64);

impl MadeUp {
    fn object(number: u64) -> Object {
        let address = format!("made://bucket/photos/{:04}/{number:08}.jpg", number / 1000);
        let modified = Some(UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number));
        let tag = Some(format!("\"{:032x}\"", u128::from(number) * 0x9e37_79b9_7f4a_7c15));
        Object { version: Version { len: Some(address.len() as u64), modified, tag }, address }
    }

    fn bytes(address: &str) -> Result<Bytes, FetchError> {
        match address.starts_with("made://") {
            true => Ok(Bytes::copy_from_slice(address.as_bytes())),
            false => Err(FetchError::NotFound(address.to_owned())),
        }
    }
}

impl Store for MadeUp {
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        (0..self.0).map(Self::object).filter(|object| object.address.starts_with(prefix)).try_for_each(each)
    }

    fn find(&self, _: &str) -> Result<Option<Object>, FetchError> {
        Ok(None)
    }

    fn open(&self, object: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        Err(FetchError::NotFound(object.address.clone()))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        Box::new(Waiting::default())
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(Single)
    }
}

#[derive(Default)]
struct Waiting(VecDeque<Object>);

impl ReadAhead for Waiting {
    fn has_room(&self) -> bool {
        self.0.len() < 100
    }

    fn ask(&mut self, object: Object) {
        assert_eq!(object.version.len, Some(object.address.len() as u64), "the version is the listed one");
        self.0.push_back(object);
    }

    fn take(&mut self) -> Result<(Bytes, Version), FetchError> {
        MadeUp::bytes(&self.0.pop_front().unwrap().address).map(|bytes| (bytes, Version::default()))
    }
}

struct Single;

impl Fetch for Single {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        out.extend_from_slice(&MadeUp::bytes(&String::from_utf8_lossy(&item.locator))?);
        Ok(())
    }

    fn version(&mut self, item: &Item) -> Version {
        item.version.clone()
    }
}

fn listing(objects: u64, input: &str) -> Listing {
    builder(objects, input).build().unwrap()
}

fn builder(objects: u64, input: &str) -> ListingBuilder<'static> {
    let mut registry = StoreRegistry::new("store", &["made-up"]);
    let open = move |_: &StoreOptions| Ok(Arc::new(MadeUp(objects)) as Arc<dyn Store>);
    registry.register(StoreBackend::new("made-up", "a test", &["made"], open)).unwrap();
    let builder = Listing::builder().inputs([Input::Path(input.into())]);
    builder.stores(registry.into(), StoreOptions::default())
}

#[test]
fn a_kept_listing_has_the_versions_and_asks_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("listing");
    // As the second of two that list at a time finds it.
    let both = [0, 1].map(|_| {
        std::thread::spawn({
            let file = file.clone();
            move || builder(2500, "made://bucket/").kept(file).build().unwrap().listing_hash()
        })
    });
    let [first, second] = both.map(|one| one.join().unwrap());
    let mut again = builder(0, "made://bucket/").kept(&file).build().unwrap();
    assert_eq!((&first, again.listing_hash(), again.total()), (&second, first.clone(), 2500));
    again.seek(2499, 0).unwrap();
    let last = again.deliver().unwrap().unwrap().item;
    assert_eq!((&last.id, last.version), (&MadeUp::object(2499).address, MadeUp::object(2499).version));
}

#[test]
fn a_prefix_and_a_pattern_in_a_store_are_sources() {
    check(|| Box::new(listing(2500, "made://bucket/photos/0001/")));
    check(|| Box::new(listing(2500, "made://bucket/**/*7.jpg")));
    assert_eq!(listing(2500, "made://bucket/photos/0001/").total(), 1000);
    assert_eq!(listing(2500, "made://bucket/**/*7.jpg").total(), 250);
}

/// Bytes of this process in memory.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_flat_for_millions_of_objects() {
    let objects = by_length(200_000, 5_000_000);
    drop(listing(1000, "made://bucket/"));
    let before = resident();
    let mut listed = listing(objects, "made://bucket/");
    let after_listing = resident();
    assert_eq!((listed.total(), listed.is_on_disk()), (objects, true));
    listed.seek(objects - 1500, 0).unwrap();
    for number in objects - 1500..objects {
        let delivery = listed.deliver().unwrap().unwrap();
        let object = MadeUp::object(number);
        assert_eq!((delivery.item.index, &delivery.item.id), (number, &object.address));
        assert_eq!(delivery.item.version, object.version);
        assert!(matches!(delivery.content, Content::Read(bytes) if bytes == object.address.as_bytes()));
    }
    let grown = resident().max(after_listing).saturating_sub(before);
    assert!(grown < 32 << 20, "{objects} objects took {grown} bytes of memory");
}
