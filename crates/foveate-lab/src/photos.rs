use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use foveate_core::{ImageViewMut, PixelBuf, Size, error_chain, lock};
use foveate_decode::DecodeHint;
use foveate_resize::{Filter, Geometry};
use foveate_source::store::{Object, Version, scheme_of};
use foveate_source::{Content, Delivery, Fetch, FileFetch, Input, Item, Source};

use crate::stats::median;
use crate::storage::{self, Supply};
use crate::store::{self, Stores};
use crate::wrap::{Cycle, KeyFetch, MemoryFetch, Objects, OpenFetch, Replay};
use crate::{LabError, Rig, Setting, tar, web};

/// Shorter side of the small photos that are made from larger ones.
pub(crate) const SMALL_SIDE: u32 = 256;
/// Quality of their JPEGs.
const SMALL_QUALITY: u8 = 90;
/// Maximum encoded bytes of a set, whose photos stay in memory for a whole experiment.
const MOST_BYTES: u64 = 1 << 30;

/// One photo that decodes.
#[derive(Clone, Debug)]
pub struct Photo {
    /// Its id.
    pub id: String,
    /// Its file's bytes.
    pub bytes: Arc<[u8]>,
    /// Its native size.
    pub size: Size,
}

/// Photos to measure with, in memory, and their sources.
#[derive(Clone)]
pub struct PhotoSet {
    /// Name in tables: origin and median size.
    pub name: String,
    /// The photos that decode, in the source's order.
    pub photos: Arc<[Photo]>,
    /// Id and reason of each photo that does not decode.
    pub left_out: Vec<(String, String)>,
    items: Arc<[Item]>,
    stored: PhotoSource,
    /// Threads that read files.
    readers: usize,
    /// Throughput of the photos' place, once that was measured.
    supply: Arc<OnceLock<Result<Supply, String>>>,
}

/// The ways to read the photos from their places.
#[derive(Clone)]
enum PhotoSource {
    /// One by one.
    Fetched(Arc<OpenFetch>),
    /// By their source, on the way.
    Delivered(Arc<Mutex<Box<dyn Source>>>),
    /// By their store, many at a time.
    Objects(Arc<Stores>),
}

impl PhotoSet {
    /// Returns a set without photos.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        let open_fetch: Arc<OpenFetch> = Arc::new(|| Ok(Box::new(FileFetch::new(0)) as _));
        let stored = PhotoSource::Fetched(open_fetch);
        Self {
            name: "none".to_owned(),
            photos: Arc::new([]),
            left_out: Vec::new(),
            items: Arc::new([]),
            stored,
            readers: 1,
            supply: Arc::default(),
        }
    }

    /// Reads and decodes the rig's photos, up to `most` photos or a gigabyte.
    ///
    /// # Errors
    /// [`LabError::Photos`] if there are none, or none of them decodes; it gives the first one's reason.
    pub fn load(rig: &dyn Rig, most: usize) -> Result<Self, LabError> {
        let mut source = rig.photos()?;
        let mut fetch = source.open_fetch()?;
        let mut decoder = (rig.decoder_opener(&rig.base()))()?;
        let mut pixels = PixelBuf::new(rig.preprocess(&rig.base()).limits);
        let mut photos = Vec::new();
        let mut items = Vec::new();
        let mut left_out = Vec::new();
        let mut total = 0;
        let mut bytes = Vec::new();
        let mut delivers = false;
        while photos.len() < most && total <= MOST_BYTES {
            let Some(Delivery { item, content }) = source.deliver()? else { break };
            delivers |= !matches!(content, Content::Unread);
            let read = read(fetch.as_mut(), &item, content, &mut bytes);
            let decoded = read.and_then(|()| {
                decoder.decode(&bytes, DecodeHint::default(), &mut pixels).map_err(|error| error_chain(&error))
            });
            match decoded {
                Ok(decoded) => {
                    total += bytes.len() as u64;
                    photos.push(Photo { id: item.id.clone(), bytes: bytes.as_slice().into(), size: decoded.native });
                    items.push(item);
                }
                Err(reason) => left_out.push((item.id, reason)),
            }
        }
        if photos.is_empty() {
            return Err(LabError::Photos(nothing(&left_out)));
        }
        let name = format!("as given, {}", describe(&photos));
        let stored = if let Some(stores) = store_of(rig, &items) {
            PhotoSource::Objects(Arc::new(stores))
        } else if delivers {
            PhotoSource::Delivered(Arc::new(Mutex::new(source)))
        } else {
            PhotoSource::Fetched(opener(source))
        };
        let readers = rig.base().readers;
        let supply = Arc::default();
        Ok(Self { name, photos: photos.into(), left_out, items: items.into(), stored, readers, supply })
    }

    /// Writes the same photos to `folder` as JPEG files of 256 pixels on the shorter side.
    ///
    /// # Errors
    /// [`LabError::Photos`] if they are about as small already.
    pub fn small(&self, rig: &dyn Rig, folder: &Path) -> Result<Self, LabError> {
        let large = self.photos.iter().filter(|photo| photo.size.min_side() > SMALL_SIDE * 5 / 4).count();
        if large * 2 < self.photos.len() {
            let what = format!("the photos are about {SMALL_SIDE} px already ({})", self.name);
            return Err(LabError::Photos(what));
        }
        std::fs::create_dir_all(folder).map_err(LabError::file(folder))?;
        let mut shrink = PhotoShrinker::new(rig)?;
        let mut photos = Vec::new();
        let mut files = Vec::new();
        for (index, photo) in self.photos.iter().enumerate() {
            let (bytes, size) = shrink.shrink(photo)?;
            let path = folder.join(format!("{index:05}.jpg"));
            std::fs::write(&path, &bytes).map_err(LabError::file(&path))?;
            photos.push(Photo { id: photo.id.clone(), bytes: bytes.into(), size });
            files.push(Input::Path(path));
        }
        let mut listing = rig.list(files)?;
        let mut items = Vec::new();
        while let Some(item) = listing.next_item()? {
            items.push(item);
        }
        let name = format!("small, {}", describe(&photos));
        Ok(Self {
            name,
            photos: photos.into(),
            left_out: self.left_out.clone(),
            items: items.into(),
            stored: PhotoSource::Fetched(opener(listing)),
            readers: self.readers,
            supply: Arc::default(),
        })
    }

    /// Writes the same photos to one tar in `folder`, to be read from there.
    ///
    /// # Errors
    /// [`LabError::Photos`] if the rig reads no tars.
    pub(crate) fn in_tar(&self, rig: &dyn Rig, folder: &Path) -> Result<Self, LabError> {
        let path = folder.join("photos.tar");
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| tar::write(self.photos.iter().map(|photo| &*photo.bytes), &path));
        written.map_err(|cause| LabError::File { path: path.clone(), cause })?;
        let mut source = rig.list(vec![Input::Path(path)])?;
        let mut items = Vec::new();
        while let Some(Delivery { item, content: Content::Read(_) }) = source.deliver()? {
            items.push(item);
        }
        if items.len() != self.photos.len() {
            return Err(LabError::Photos("this build reads no tar files".to_owned()));
        }
        let stored = PhotoSource::Delivered(Arc::new(Mutex::new(source)));
        Ok(Self { items: items.into(), stored, supply: Arc::default(), ..self.clone() })
    }

    /// Returns the same photos on a web server of this machine, each of whose answers takes about `latency`.
    ///
    /// # Errors
    /// [`LabError::Server`] if it cannot be started.
    pub(crate) fn on_the_web(&self, latency: Duration) -> Result<Self, LabError> {
        let bytes = self.photos.iter().map(|photo| Arc::clone(&photo.bytes)).collect();
        let (addresses, open) = web::serve(bytes, latency)?;
        let items = addresses.into_iter().zip(self.photos.iter()).zip(0..).map(|((address, photo), index)| {
            let version = Version { len: Some(photo.bytes.len() as u64), modified: Some(UNIX_EPOCH), tag: None };
            Item { index, id: address.clone(), locator: address.into(), version, ..Item::default() }
        });
        let items = items.collect();
        let stored = PhotoSource::Objects(Arc::new(Stores::new(open)));
        let name = format!("on a web server, {}", describe(&self.photos));
        Ok(Self { name, items, stored, supply: Arc::default(), ..self.clone() })
    }

    /// Returns `images` items that repeat the photos, read from their original places as a job with this setting would
    /// read them.
    ///
    /// A source that reads its photos on the way reads them again in each turn; one such source is read at a time.
    /// Objects of a store are read with the setting's requests in flight.
    ///
    /// # Errors
    /// Fails if the photos' store cannot be opened or measured.
    pub fn stored(&self, setting: &Setting, images: u64) -> Result<Box<dyn Source>, LabError> {
        let PhotoSource::Objects(stores) = &self.stored else { return Ok(self.in_turns(images)) };
        let objects = self.items.iter().filter_map(|item| Some((item.clone(), Object::of(item)?)));
        Ok(Box::new(Objects::new(stores.with(setting.requests)?, objects.collect(), images)))
    }

    /// Returns `images` items that repeat the photos in turns, each of which begins anew. Objects of a store are read
    /// one by one.
    pub(crate) fn in_turns(&self, images: u64) -> Box<dyn Source> {
        let items = Arc::clone(&self.items);
        match &self.stored {
            PhotoSource::Fetched(open_fetch) => Box::new(Cycle::new(items, images, Arc::clone(open_fetch))),
            PhotoSource::Delivered(source) => Box::new(Replay::new(Arc::clone(source), items, images)),
            PhotoSource::Objects(stores) => {
                let stores = Arc::clone(stores);
                Box::new(Cycle::new(items, images, Arc::new(move || Ok(stores.with(1)?.fetch()))))
            }
        }
    }

    /// Measures what the photos' place delivers, once for this set and its parts.
    pub(crate) fn supply(&self) -> Result<&Supply, LabError> {
        let measured = self.supply.get_or_init(|| {
            let supply = if let PhotoSource::Objects(stores) = &self.stored {
                store::measure(stores, &self.items.iter().filter_map(Object::of).collect::<Vec<_>>())
            } else {
                let (place, readers) = if self.is_delivered() { ("container", 1) } else { ("files", self.readers) };
                let images = self.photos.len() as u64;
                storage::of_files(place, readers, &|| self.forget().is_ok(), &|| self.in_turns(images))
            };
            supply.map_err(|error| error_chain(&error))
        });
        measured.as_ref().map_err(|why| LabError::Photos(why.clone()))
    }

    /// Returns true if the photos are read ahead, without reader threads: members of containers, and objects.
    pub(crate) fn is_delivered(&self) -> bool {
        !matches!(self.stored, PhotoSource::Fetched(_))
    }

    /// Returns true if the photos are objects of a store.
    pub(crate) fn is_in_store(&self) -> bool {
        matches!(self.stored, PhotoSource::Objects(_))
    }

    /// Returns `images` items that repeat the photos, with their bytes in memory.
    pub fn in_memory(&self, images: u64) -> Box<dyn Source> {
        let bytes: Arc<[Arc<[u8]>]> = self.photos.iter().map(|photo| Arc::clone(&photo.bytes)).collect();
        let open_fetch: Arc<OpenFetch> = Arc::new(move || Ok(Box::new(MemoryFetch::new(Arc::clone(&bytes))) as _));
        Box::new(Cycle::new(Arc::clone(&self.items), images, open_fetch))
    }

    /// Returns `images` items that repeat the photos, whose bytes hold only the item's number.
    pub(crate) fn keys(&self, images: u64) -> Box<dyn Source> {
        let open_fetch: Arc<OpenFetch> = Arc::new(|| Ok(Box::new(KeyFetch) as _));
        Box::new(Cycle::new(Arc::clone(&self.items), images, open_fetch))
    }

    /// Returns evenly spread photos, as many as have at most `most_bytes` bytes of pixels; at least one.
    pub(crate) fn within(&self, most_bytes: u64) -> Self {
        let mut count = self.photos.len();
        loop {
            let chosen = (0..count).map(move |at| at * self.photos.len() / count);
            let bytes: u64 = chosen.clone().map(|at| self.photos[at].size.pixels() * 3).sum();
            if count <= 1 || bytes <= most_bytes {
                return self.part(chosen);
            }
            // Nearly exact at once if the photos are alike.
            let fitting = (count as u128 * u128::from(most_bytes) / u128::from(bytes)) as usize;
            count = fitting.clamp(1, count - 1);
        }
    }

    /// Returns the photos at these places.
    fn part(&self, places: impl Iterator<Item = usize> + Clone) -> Self {
        let photos: Vec<Photo> = places.clone().map(|at| self.photos[at].clone()).collect();
        let items: Vec<Item> = places.map(|at| self.items[at].clone()).collect();
        Self { photos: photos.into(), items: items.into(), ..self.clone() }
    }

    /// Splits the photos at random into two halves that share no photo: of several with the same bytes, one is kept.
    /// The same `seed` splits them equally.
    #[must_use]
    pub fn halves(&self, seed: u64) -> [Self; 2] {
        let mut seen = BTreeSet::new();
        let mut places: Vec<usize> = (0..self.photos.len()).filter(|&at| seen.insert(&self.photos[at].bytes)).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut places);
        let rest = places.split_off(places.len().div_ceil(2));
        [places, rest].map(|mut half| {
            half.sort_unstable();
            self.part(half.into_iter())
        })
    }

    /// Returns true if photos were left out because the set is as large as memory allows.
    pub fn is_full(&self) -> bool {
        self.photos.iter().map(|photo| photo.bytes.len() as u64).sum::<u64>() > MOST_BYTES
    }

    /// Asks the system to drop the photos' files, or the containers that hold them, from its cache, so that the next
    /// read comes from storage.
    ///
    /// # Errors
    /// [`LabError::Setting`] if photos are not in files or the system does not support it (Linux does).
    pub fn forget(&self) -> Result<(), LabError> {
        let mut forgotten: Option<&[u8]> = None;
        for item in self.items.iter() {
            let why = if scheme_of(&item.locator).is_some() {
                Some("it is in an object store, whose caches are not this machine's".to_owned())
            } else if forgotten == Some(&item.locator) {
                // A container's photos follow each other.
                None
            } else {
                forget(&FileFetch::path(item)).err().map(|cause| cause.to_string())
            };
            if let Some(why) = why {
                return Err(LabError::Setting(format!("photos cannot be read cold: {}: {why}", item.id)));
            }
            forgotten = Some(&item.locator);
        }
        Ok(())
    }

    /// Returns the mean encoded bytes of a photo.
    pub fn mean_bytes(&self) -> f64 {
        let total: usize = self.photos.iter().map(|photo| photo.bytes.len()).sum();
        total as f64 / self.photos.len() as f64
    }

    /// Returns the mean native pixels of a photo.
    pub fn mean_pixels(&self) -> f64 {
        let total: u64 = self.photos.iter().map(|photo| photo.size.pixels()).sum();
        total as f64 / self.photos.len() as f64
    }
}

impl fmt::Debug for PhotoSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhotoSet").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(target_os = "linux")]
fn forget(file: &Path) -> std::io::Result<()> {
    use rustix::fs::{Advice, fadvise};
    let file = std::fs::File::open(file)?;
    // Only pages that are written back can be dropped. A file system that cannot sync has none to write.
    let _ = file.sync_data();
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &Path) -> std::io::Result<()> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "this system does not take such advice"))
}

/// Reads an item into `bytes`, or says why that fails.
fn read(fetch: &mut dyn Fetch, item: &Item, content: Content, bytes: &mut Vec<u8>) -> Result<(), String> {
    match &item.fault {
        Some(fault) => Err(fault.clone()),
        None => content.read_into(item, fetch, bytes).map_err(|error| error_chain(&error)),
    }
}

/// Returns the store of the photos, if all of them are objects of one kind of store.
fn store_of(rig: &dyn Rig, items: &[Item]) -> Option<Stores> {
    let scheme = scheme_of(&items.first()?.locator)?;
    let mut items = items.iter();
    let are_alike = items.all(|item| Object::of(item).is_some() && scheme_of(&item.locator) == Some(scheme));
    are_alike.then(|| Stores::new(rig.store_opener(scheme)))
}

fn opener(source: Box<dyn Source>) -> Arc<OpenFetch> {
    let source = Mutex::new(source);
    Arc::new(move || lock(&source).open_fetch())
}

/// Downscales large photos.
struct PhotoShrinker {
    decoder: Box<dyn foveate_decode::Decoder>,
    resizer: Box<dyn foveate_resize::Resizer>,
    pixels: PixelBuf,
}

impl PhotoShrinker {
    fn new(rig: &dyn Rig) -> Result<Self, LabError> {
        let base = rig.base();
        Ok(Self {
            decoder: (rig.decoder_opener(&base))()?,
            resizer: (rig.resizer_opener(&base))()?,
            pixels: PixelBuf::new(rig.preprocess(&base).limits),
        })
    }

    fn shrink(&mut self, photo: &Photo) -> Result<(Vec<u8>, Size), LabError> {
        self.decoder.decode(&photo.bytes, DecodeHint::default(), &mut self.pixels)?;
        let native = self.pixels.size();
        let scale = f64::from(SMALL_SIDE) / f64::from(native.width.min(native.height));
        let [width, height] =
            [native.width, native.height].map(|side| ((f64::from(side) * scale.min(1.0)).round() as u32).max(1));
        let size = Size::new(width, height);
        let plan = Geometry::Stretch { output: size, filter: Filter::Bicubic }.plan(native);
        let mut small = vec![0; size.rgb_len().unwrap_or(0)];
        if let Some(out) = ImageViewMut::new(&mut small, size) {
            self.resizer.resize(self.pixels.view(), &plan, out)?;
        }
        let mut jpeg = Vec::new();
        let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, SMALL_QUALITY);
        let encoded =
            image::ImageEncoder::write_image(encoder, &small, size.width, size.height, image::ExtendedColorType::Rgb8);
        encoded.map_err(|error| LabError::Photos(format!("{}: cannot be made small: {error}", photo.id)))?;
        Ok((jpeg, size))
    }
}

fn nothing(left_out: &[(String, String)]) -> String {
    match left_out.first() {
        None => "no photos: the folders and lists named are empty".to_owned(),
        Some((id, reason)) => {
            format!("none of the {} photos can be used; the first, {id}: {reason}", left_out.len())
        }
    }
}

/// Formats the median size and bytes.
fn describe(photos: &[Photo]) -> String {
    let values: [fn(&Photo) -> f64; 3] =
        [|photo| f64::from(photo.size.width), |photo| f64::from(photo.size.height), |photo| photo.bytes.len() as f64];
    let [width, height, bytes] =
        values.map(|value| median(&photos.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0));
    format!("{width:.0} x {height:.0} px, {:.0} kB", bytes / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_share_no_photo_and_no_bytes() {
        let photo = |at: usize| {
            let bytes = [(at % 20) as u8; 3].as_slice().into();
            Photo { id: at.to_string(), bytes, size: Size { width: 1, height: 1 } }
        };
        let item = |at: usize| Item { index: at as u64, id: at.to_string(), ..Item::default() };
        // The last three have the bytes of the first ones.
        let all =
            PhotoSet { photos: (0..23).map(photo).collect(), items: (0..23).map(item).collect(), ..PhotoSet::none() };
        let ids =
            |half: &PhotoSet| -> Vec<usize> { half.photos.iter().map(|photo| photo.id.parse().unwrap()).collect() };
        let halves = all.halves(1);
        let [choice, held_out] = [ids(&halves[0]), ids(&halves[1])];
        assert_eq!((choice.len(), held_out.len()), (10, 10));
        let both: BTreeSet<usize> = choice.iter().chain(&held_out).copied().collect();
        assert_eq!(both, (0..20).collect());
        assert!(halves.iter().all(|half| half.items.iter().zip(ids(half)).all(|(item, id)| item.id == id.to_string())));
        assert_eq!(ids(&all.halves(1)[0]), choice);
        assert_ne!(ids(&all.halves(2)[0]), choice);
    }
}
