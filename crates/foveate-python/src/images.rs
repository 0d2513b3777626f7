//! The caller's images as a source, which takes them one by one while the pipeline works.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use foveate::core::Size;
use foveate::decode::raw;
use foveate::pipeline::Cancel;
use foveate::source::store::normal_address;
use foveate::source::{Addressed, Content, Delivery, Extent, Fetch, Item, Listing, Source, SourceError};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::interrupt::{INTERVAL, Wake};

/// A row's image as the caller has it.
#[derive(Clone)]
pub(crate) enum GivenImage {
    /// None, which has neither vector nor error.
    Nothing,
    /// Its name in errors, and the reason why it cannot be an image.
    Refused(String, String),
    /// Its name in errors, and an encoded image, or pixels in its place.
    Bytes(String, Bytes),
    /// A path or an address.
    Path(PathBuf),
}

impl GivenImage {
    /// Takes what the Python half makes of image `index`: `None`, a path, encoded bytes, `(width, height, rgb)`, or the
    /// exception that says why it is none of them.
    pub(crate) fn extract(given: &Bound<'_, PyAny>, index: usize) -> Self {
        if given.is_none() {
            return Self::Nothing;
        }
        let refused = |reason| Self::Refused(name(index), reason);
        if let Ok(bytes) = given.extract::<PyBackedBytes>() {
            return Self::Bytes(name(index), Bytes::from_owner(bytes));
        }
        if let Ok((width, height, rgb)) = given.extract::<(u32, u32, PyBackedBytes)>() {
            return match raw::encode(Size::new(width, height), &rgb) {
                Some(pixels) => Self::Bytes(name(index), pixels.into()),
                None => refused(format!("{} bytes are not RGB of {width}x{height}", rgb.len())),
            };
        }
        let kind = given.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string());
        if given.is_instance_of::<PyException>() {
            let reason = given.str().map(|reason| reason.to_string()).unwrap_or_default();
            return refused(if reason.is_empty() { kind } else { reason });
        }
        let path = given.extract().map(Self::Path);
        path.unwrap_or_else(|_| refused(format!("{kind} is no image; pass a path, bytes or an array")))
    }
}

/// The name in errors of image `index` of a list.
fn name(index: usize) -> String {
    format!("image {index}")
}

/// Images that wait for the source, so that it need not wait for the interpreter's lock.
const AHEAD: usize = 4;

/// The caller's end of a source of images.
pub(crate) struct GivenImages {
    /// `None` once the last image was passed on.
    images: Option<Sender<GivenImage>>,
    passed: usize,
    taken: Arc<AtomicUsize>,
}

impl GivenImages {
    /// Number of images so far.
    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    /// Passes images on until enough of them wait. `next` gets the number of those before.
    pub(crate) fn fill(&mut self, mut next: impl FnMut(usize) -> PyResult<Option<GivenImage>>) -> PyResult<()> {
        while let Some(images) = self.images.as_ref().filter(|_| self.passed < self.taken.load(SeqCst) + AHEAD) {
            // Without a receiver, the run has failed, and its error says more.
            let passed = next(self.passed)?.is_some_and(|image| images.send(image).is_ok());
            self.passed += usize::from(passed);
            self.images = self.images.take().filter(|_| passed);
        }
        Ok(())
    }
}

/// The images of a [`GivenImages`], in its order.
pub(crate) struct Images {
    incoming: Incoming,
    delivered: u64,
    end: Option<u64>,
    /// Lists nothing; it reads paths and addresses.
    reader: Listing,
    /// Reads addresses ahead.
    addressed: Addressed,
}

/// The source's end of a [`GivenImages`].
struct Incoming {
    images: Receiver<GivenImage>,
    count: u64,
    taken: Arc<AtomicUsize>,
    cancel: Cancel,
    wake: Wake,
}

/// Returns a feed, and what makes a source of its images, which are `count` if it is known.
pub(crate) fn feed(
    count: Option<usize>,
    cancel: &Cancel,
) -> (GivenImages, impl FnOnce(Listing, Wake) -> Images + use<>) {
    let (sender, images) = channel();
    let feed = GivenImages { images: Some(sender), passed: 0, taken: Arc::default() };
    let taken = Arc::clone(&feed.taken);
    let cancel = cancel.clone();
    let end = count.map(|count| count as u64);
    (feed, move |reader, wake| {
        let addressed = reader.addressed();
        Images { incoming: Incoming { images, count: 0, taken, cancel, wake }, delivered: 0, end, reader, addressed }
    })
}

impl Incoming {
    /// The next image, unread. `None` at the end, and if none is here unless it `waits`.
    fn next(&mut self, waits: bool) -> Option<Delivery> {
        let image = loop {
            match self.images.recv_timeout(if waits { INTERVAL } else { Duration::ZERO }) {
                Ok(image) => break image,
                Err(RecvTimeoutError::Timeout) if waits && !self.cancel.is_cancelled() => {}
                Err(_) => return None,
            }
        };
        self.taken.fetch_add(1, SeqCst);
        (self.wake)();
        let item = Item { index: self.count, ..Item::default() };
        self.count += 1;
        Some(match image {
            // Without an id, unlike all failures.
            GivenImage::Nothing => Delivery::unread(Item { fault: Some(String::new()), ..item }),
            GivenImage::Refused(id, reason) => Delivery::unread(Item { id, fault: Some(reason), ..item }),
            GivenImage::Bytes(id, bytes) => Delivery { item: Item { id, ..item }, content: Content::Read(bytes) },
            GivenImage::Path(path) => {
                let address = path.to_str().map(|text| normal_address(text).into_owned());
                let locator = address.map_or_else(|| path.clone(), PathBuf::from).into_os_string().into_encoded_bytes();
                let id = path.display().to_string();
                Delivery::unread(Item { id, locator, ..item })
            }
        })
    }
}

impl Source for Images {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        Ok(self.deliver()?.map(|delivery| delivery.item))
    }

    /// Waits for an image only if none is being read.
    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Self { incoming, delivered, .. } = self;
        let delivery = self.addressed.deliver(u64::MAX, &mut || Ok(incoming.next(incoming.count == *delivered)))?;
        self.delivered += u64::from(delivery.is_some());
        Ok(delivery)
    }

    fn extent(&self) -> Extent {
        Extent { start: 0, end: self.end }
    }

    /// A run begins at the first image, and images are not read again.
    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        match index == self.delivered {
            true => Ok(()),
            false => Err(SourceError::Invalid(format!("image {index} was due, but they are at {}", self.delivered))),
        }
    }

    fn listing_hash(&self) -> String {
        "images in memory".to_owned()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        self.reader.open_fetch()
    }
}
