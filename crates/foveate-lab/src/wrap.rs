//! Wrappers around stages: repeated photos, an encoder that outlives its run, a sink that checks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use foveate_core::{PixelBatch, VectorBuf, lock};
use foveate_encode::{
    Allocate, Batch, Collected, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Resident,
    host_allocator,
};
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate_source::store::{Object, ReadAhead, Store, Version};
use foveate_source::{Content, Delivery, Extent, Fetch, FetchError, Item, Source, SourceError};

pub(crate) type OpenFetch = dyn Fn() -> Result<Box<dyn Fetch>, SourceError> + Send + Sync;

/// Repeats items: item `i` is number `i % n`, with its own id.
pub(crate) struct Cycle {
    items: Arc<[Item]>,
    total: u64,
    next: u64,
    open_fetch: Arc<OpenFetch>,
}

impl Cycle {
    pub(crate) fn new(items: Arc<[Item]>, total: u64, open_fetch: Arc<OpenFetch>) -> Self {
        Self { items, total, next: 0, open_fetch }
    }
}

impl Source for Cycle {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        if self.next >= self.total {
            return Ok(None);
        }
        let turn = self.next / self.items.len() as u64;
        let at = self.next % self.items.len() as u64;
        let item = Item { index: self.next, ..repeated(self.items[at as usize].clone(), turn) };
        self.next += 1;
        Ok(Some(item))
    }

    fn extent(&self) -> Extent {
        (0..self.total).into()
    }

    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        self.next = index.min(self.total);
        Ok(())
    }

    fn listing_hash(&self) -> String {
        format!("{} photos over and over", self.items.len())
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        (self.open_fetch)()
    }
}

/// Repeats some items of a source that reads them on the way, each turn from the source again: item `i` is number
/// `i % n`, with its own id.
pub(crate) struct Replay {
    source: Arc<Mutex<Box<dyn Source>>>,
    items: Arc<[Item]>,
    total: u64,
    next: u64,
    /// True if the source continues with the next item, or one before it.
    is_placed: bool,
}

impl Replay {
    pub(crate) fn new(source: Arc<Mutex<Box<dyn Source>>>, items: Arc<[Item]>, total: u64) -> Self {
        Self { source, items, total, next: 0, is_placed: false }
    }

    /// Reads item number `at` from the source. Items that are not among these are passed over.
    fn read(&self, at: usize) -> Result<Delivery, SourceError> {
        let mut source = lock(&self.source);
        let wanted = &self.items[at];
        if at == 0 || !self.is_placed {
            source.seek(wanted.index, at.checked_sub(1).map_or(0, |before| self.items[before].place))?;
        }
        while let Some(delivery) = source.deliver()? {
            if delivery.item.index == wanted.index && delivery.item.id == wanted.id {
                return Ok(delivery);
            }
        }
        Err(SourceError::Invalid(format!("{} is not there any more", wanted.id)))
    }
}

impl Source for Replay {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        Ok(self.deliver()?.map(|delivery| delivery.item))
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        if self.next >= self.total {
            return Ok(None);
        }
        let turn = self.next / self.items.len() as u64;
        let at = self.next % self.items.len() as u64;
        let Delivery { item, content } = self.read(at as usize)?;
        let item = Item { index: self.next, ..repeated(item, turn) };
        self.next += 1;
        self.is_placed = true;
        Ok(Some(Delivery { item, content }))
    }

    fn extent(&self) -> Extent {
        (0..self.total).into()
    }

    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        self.next = index.min(self.total);
        self.is_placed = false;
        Ok(())
    }

    fn listing_hash(&self) -> String {
        format!("{} photos over and over", self.items.len())
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        lock(&self.source).open_fetch()
    }
}

/// Repeats objects of a store, which reads them ahead without a break between turns: item `i` is number `i % n`, with
/// its own id.
pub(crate) struct Objects {
    store: Arc<dyn Store>,
    ahead: Box<dyn ReadAhead>,
    objects: Arc<[(Item, Object)]>,
    total: u64,
    asked: u64,
    next: u64,
}

impl Objects {
    pub(crate) fn new(store: Arc<dyn Store>, objects: Arc<[(Item, Object)]>, total: u64) -> Self {
        let ahead = store.read_ahead();
        Self { store, ahead, objects, total, asked: 0, next: 0 }
    }

    /// Returns the number of the turn, and the object there, of item `index`.
    fn at(&self, index: u64) -> (u64, &(Item, Object)) {
        let objects = self.objects.len() as u64;
        (index / objects, &self.objects[(index % objects) as usize])
    }
}

impl Source for Objects {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        Ok(self.deliver()?.map(|delivery| delivery.item))
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        while self.asked < self.total && self.ahead.has_room() {
            let (_, (_, object)) = self.at(self.asked);
            let object = object.clone();
            self.ahead.ask(object);
            self.asked += 1;
        }
        if self.next >= self.total {
            return Ok(None);
        }
        let (turn, (item, _)) = self.at(self.next);
        let item = Item { index: self.next, ..repeated(item.clone(), turn) };
        self.next += 1;
        let content = self.ahead.take().map_or_else(Content::Failed, |(bytes, _)| Content::Read(bytes));
        Ok(Some(Delivery { item, content }))
    }

    fn extent(&self) -> Extent {
        (0..self.total).into()
    }

    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        let index = index.min(self.total);
        self.ahead = self.store.read_ahead();
        self.asked = index;
        self.next = index;
        Ok(())
    }

    fn listing_hash(&self) -> String {
        format!("{} photos over and over", self.objects.len())
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        Ok(self.store.fetch())
    }
}

/// Returns an item of a later turn, with a different id.
fn repeated(item: Item, turn: u64) -> Item {
    let id = if turn == 0 { item.id } else { format!("{}#{turn}", item.id) };
    Item { id, ..item }
}

/// Returns the bytes of photo `i % n` for item `i`.
pub(crate) struct MemoryFetch(Arc<[Arc<[u8]>]>);

impl MemoryFetch {
    pub(crate) fn new(photos: Arc<[Arc<[u8]>]>) -> Self {
        Self(photos)
    }
}

impl Fetch for MemoryFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        out.extend_from_slice(&self.0[item.index as usize % self.0.len()]);
        Ok(())
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

/// Number of bytes that [`KeyFetch`] returns.
pub(crate) const KEY_LEN: usize = 8;

/// Returns an item's number, little-endian, instead of its bytes.
pub(crate) struct KeyFetch;

impl Fetch for KeyFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        out.extend_from_slice(&item.index.to_le_bytes());
        Ok(())
    }

    fn version(&mut self, _: &Item) -> Version {
        Version::default()
    }
}

/// An encoder that several runs borrow in turn, because many experiments are shorter than the loading of a model.
#[derive(Clone)]
pub struct LentEncoder {
    spec: EncoderSpec,
    encoder: Arc<Mutex<Box<dyn Encoder>>>,
}

impl LentEncoder {
    /// Shares `encoder`.
    pub fn new(encoder: Box<dyn Encoder>) -> Self {
        Self { spec: encoder.spec().clone(), encoder: Arc::new(Mutex::new(encoder)) }
    }
}

impl Encoder for LentEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        lock(&self.encoder).encode(batch, out)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        let is_resident = lock(&self.encoder).resident().is_some();
        is_resident.then_some(self as _)
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        let overlaps = lock(&self.encoder).overlap().is_some();
        overlaps.then_some(self as _)
    }
}

impl Resident for LentEncoder {
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        resident(lock(&self.encoder).as_mut())?.encode_again(out)
    }
}

impl Overlap for LentEncoder {
    fn depth(&mut self) -> usize {
        lock(&self.encoder).overlap().map_or(1, |inner| inner.depth())
    }

    fn allocator(&mut self, place: Place) -> Allocate {
        lock(&self.encoder).overlap().map_or_else(host_allocator, |inner| inner.allocator(place))
    }

    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError> {
        overlap(lock(&self.encoder).as_mut())?.submit(batch)
    }

    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        overlap(lock(&self.encoder).as_mut())?.collect(out)
    }
}

/// Returns the batch that an encoder keeps on its device.
pub(crate) fn resident(encoder: &mut dyn Encoder) -> Result<&mut dyn Resident, EncodeError> {
    encoder.resident().ok_or_else(|| EncodeError::Batch("none is on a device".to_owned()))
}

/// Returns the wrapped encoder's overlapping interface.
pub(crate) fn overlap(encoder: &mut dyn Encoder) -> Result<&mut dyn Overlap, EncodeError> {
    encoder.overlap().ok_or_else(|| EncodeError::Unsupported("batches under way".to_owned()))
}

/// Passes rows on to another sink (or none) and checks them: every item once, in order, with finite vectors, and nearly
/// the same vector for the same photo.
#[derive(Clone)]
pub struct CheckedSink(Arc<Mutex<Checked>>);

struct Checked {
    inner: Option<Box<dyn VectorSink>>,
    photos: u64,
    next: u64,
    rows: u64,
    failures: Vec<Failure>,
    vectors: BTreeMap<u64, Vec<f32>>,
    problem: Option<String>,
}

/// Minimum cosine between the vectors of the same photo: half precision may depend slightly on the batch.
const SAME: f64 = 0.999;

impl CheckedSink {
    /// Checks rows of items that repeat `photos` photos.
    pub fn new(inner: Option<Box<dyn VectorSink>>, photos: usize) -> Self {
        Self(Arc::new(Mutex::new(Checked {
            inner,
            photos: photos.max(1) as u64,
            next: 0,
            rows: 0,
            failures: Vec::new(),
            vectors: BTreeMap::new(),
            problem: None,
        })))
    }

    /// Returns each photo's vector by the photo's number.
    pub(crate) fn vectors(&self) -> BTreeMap<u64, Vec<f32>> {
        lock(&self.0).vectors.clone()
    }

    /// Creates a sink for another run over the same photos, whose vectors must equal this one's.
    pub fn anew(&self, inner: Option<Box<dyn VectorSink>>) -> Self {
        let known = lock(&self.0);
        let fresh = Self::new(inner, known.photos as usize);
        lock(&fresh.0).vectors.clone_from(&known.vectors);
        fresh
    }

    /// Checks that exactly `images` items came through, with a vector each.
    ///
    /// # Errors
    /// Describes the mismatch.
    pub fn check(&self, images: u64) -> Result<(), String> {
        self.check_at_least(images)?;
        let rows = lock(&self.0).rows;
        if rows == images { Ok(()) } else { Err(format!("{rows} rows stored instead of {images}")) }
    }

    /// Checks that at least `images` items came through, each with a vector.
    pub(crate) fn check_at_least(&self, images: u64) -> Result<(), String> {
        let checked = lock(&self.0);
        if let Some(problem) = &checked.problem {
            return Err(problem.clone());
        }
        if let Some(failure) = checked.failures.first() {
            let count = checked.failures.len();
            return Err(format!(
                "{count} photos failed; the first, {} ({}): {}",
                failure.id, failure.stage, failure.reason
            ));
        }
        if checked.rows < images {
            return Err(format!("{} of {images} rows stored", checked.rows));
        }
        Ok(())
    }
}

impl Checked {
    fn look_at(&mut self, rows: &Rows<'_>) {
        let dim = rows.vectors.len().checked_div(rows.index.len()).unwrap_or(0).max(1);
        for (&index, vector) in rows.index.iter().zip(rows.vectors.chunks_exact(dim)) {
            if index != self.next {
                self.problem.get_or_insert_with(|| format!("row {index} where {} was due", self.next));
            }
            self.next = index + 1;
            self.rows += 1;
            if let Some(problem) = self.compare(index, vector) {
                self.problem.get_or_insert(problem);
            }
        }
    }

    fn compare(&mut self, index: u64, vector: &[f32]) -> Option<String> {
        if !vector.iter().all(|value| value.is_finite()) {
            return Some(format!("row {index} is not finite"));
        }
        let photo = index % self.photos;
        match self.vectors.get(&photo) {
            Some(first) if cosine(first, vector) < SAME => {
                Some(format!("row {index} is photo {photo} again, with another vector"))
            }
            Some(_) => None,
            None => {
                self.vectors.insert(photo, vector.to_vec());
                None
            }
        }
    }
}

/// Returns the cosine of the angle between two vectors; 1 if both are zero.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let [aa, bb, ab] =
        [(a, a), (b, b), (a, b)].map(|(a, b)| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>());
    let lengths = (aa * bb).sqrt();
    if lengths == 0.0 { f64::from(u8::from(a == b)) } else { ab / lengths }
}

impl VectorSink for CheckedSink {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        match &mut lock(&self.0).inner {
            Some(inner) => inner.begin(manifest, existing),
            None => Ok(Watermark::default()),
        }
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        lock(&self.0).inner.as_mut().map_or(Ok(0), |inner| inner.failures())
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let mut checked = lock(&self.0);
        checked.look_at(rows);
        checked.inner.as_mut().map_or(Ok(()), |inner| inner.append(rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        let mut checked = lock(&self.0);
        checked.failures.extend_from_slice(failures);
        checked.next = failures.last().map_or(checked.next, |failure| checked.next.max(failure.index + 1));
        checked.inner.as_mut().map_or(Ok(()), |inner| inner.fail(failures))
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        lock(&self.0).inner.as_mut().map_or(Ok(()), |inner| inner.commit(watermark))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let mut checked = lock(&self.0);
        let rows = checked.rows;
        let failures = checked.failures.len() as u64;
        let nowhere = Published { rows, failures, ..Published::default() };
        checked.inner.as_mut().map_or(Ok(nowhere), |inner| inner.finish())
    }
}
