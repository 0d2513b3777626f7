//! A store whose requests take their time, as many at once as it has in flight.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use foveate_lab::StoreOpener;
use foveate_source::blob::Blob;
use foveate_source::store::{Object, ReadAhead, Store, Version};
use foveate_source::{Content, Delivery, Extent, Fetch, FetchError, Item, Source, SourceError};

use super::{FakeSource, Work};

type Photos = Arc<[Vec<u8>]>;

pub(super) fn opener(photos: Photos, latency: f64, work: &Arc<Mutex<Work>>) -> StoreOpener {
    let latency = Duration::from_secs_f64(latency / 1e3);
    let work = Arc::clone(work);
    Arc::new(move |requests| {
        let photos = Arc::clone(&photos);
        let work = Arc::clone(&work);
        Ok(Arc::new(FakeStore { photos, latency, requests, work }) as _)
    })
}

/// The photos with addresses.
pub(super) struct Listed(pub(super) FakeSource);

impl Source for Listed {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        Ok(self.deliver()?.map(|delivery| delivery.item))
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Some(Delivery { item, content }) = self.0.deliver()? else { return Ok(None) };
        let id = format!("fake://photos/{}", item.index);
        let len = if let Content::Read(bytes) = &content { bytes.len() } else { 0 };
        let version = Version { len: Some(len as u64), modified: Some(UNIX_EPOCH), tag: None };
        let item = Item { locator: id.clone().into(), id, version, ..item };
        Ok(Some(Delivery { item, content }))
    }

    fn extent(&self) -> Extent {
        self.0.extent()
    }

    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        self.0.seek(index, after)
    }

    fn listing_hash(&self) -> String {
        self.0.listing_hash()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        self.0.open_fetch()
    }
}

#[derive(Clone)]
struct FakeStore {
    photos: Photos,
    latency: Duration,
    requests: usize,
    work: Arc<Mutex<Work>>,
}

impl FakeStore {
    fn bytes(&self, address: &str) -> Vec<u8> {
        let number: usize = address.rsplit('/').next().unwrap().parse().unwrap();
        self.photos[number].clone()
    }
}

impl Store for FakeStore {
    fn list(&self, _: &str, _: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        Err(SourceError::Invalid("it cannot list".to_owned()))
    }

    fn find(&self, _: &str) -> Result<Option<Object>, FetchError> {
        Ok(None)
    }

    fn open(&self, object: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        Ok(Arc::new(FakeBlob { bytes: self.bytes(&object.address), latency: self.latency }))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        let free = vec![Reverse(Instant::now()); self.requests].into();
        Box::new(FakeAhead { store: self.clone(), free, coming: VecDeque::new() })
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(self.clone())
    }
}

impl Fetch for FakeStore {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        thread::sleep(self.latency);
        *out = self.bytes(&item.id);
        Ok(())
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

/// Notes how many requests were in flight for each object.
struct FakeAhead {
    store: FakeStore,
    /// When each request in flight is free for the next object.
    free: BinaryHeap<Reverse<Instant>>,
    coming: VecDeque<(Instant, Vec<u8>)>,
}

impl ReadAhead for FakeAhead {
    fn has_room(&self) -> bool {
        self.coming.len() < 2 * self.store.requests
    }

    fn ask(&mut self, object: Object) {
        let Reverse(free) = self.free.pop().unwrap();
        let end = free.max(Instant::now()) + self.store.latency;
        self.free.push(Reverse(end));
        self.coming.push_back((end, self.store.bytes(&object.address)));
    }

    fn take(&mut self) -> Result<(Bytes, Version), FetchError> {
        let (end, bytes) = self.coming.pop_front().unwrap();
        thread::sleep(end.saturating_duration_since(Instant::now()));
        self.store.work.lock().unwrap().add("store", self.store.requests.to_string());
        Ok((bytes.into(), Version::default()))
    }
}

struct FakeBlob {
    bytes: Vec<u8>,
    latency: Duration,
}

impl Blob for FakeBlob {
    fn name(&self) -> &str {
        "fake"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn modified(&self) -> Option<SystemTime> {
        None
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FetchError> {
        thread::sleep(self.latency);
        out.copy_from_slice(&self.bytes[offset as usize..][..out.len()]);
        Ok(())
    }

    fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, FetchError> {
        Ok(Box::new(Cursor::new(self.bytes[offset as usize..].to_vec())))
    }
}
