//! The caller's images as a source.

use std::path::PathBuf;

use bytes::Bytes;
use foveate::core::Size;
use foveate::decode::raw;
use foveate::source::{Content, Delivery, Extent, Fetch, Item, Listing, Source, SourceError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// An image as the caller has it.
pub(crate) enum Image {
    /// An encoded image, or pixels in its place, and what errors call it.
    Bytes(String, Bytes),
    /// A path or an address.
    Path(PathBuf),
}

impl Image {
    /// Takes what the Python half makes of an argument: `None`, a path, encoded bytes, or `(width, height, rgb)`.
    pub(crate) fn extract(given: &Bound<'_, PyAny>, index: usize) -> PyResult<Option<Self>> {
        let name = || format!("image {index}");
        if given.is_none() {
            return Ok(None);
        }
        if let Ok(bytes) = given.extract::<PyBackedBytes>() {
            return Ok(Some(Self::Bytes(name(), Bytes::from_owner(bytes))));
        }
        if let Ok((width, height, rgb)) = given.extract::<(u32, u32, PyBackedBytes)>() {
            let pixels = raw::encode(Size::new(width, height), &rgb);
            let pixels = pixels.ok_or_else(|| PyValueError::new_err(format!("{}: no {width}x{height} RGB", name())))?;
            return Ok(Some(Self::Bytes(name(), pixels.into())));
        }
        let path: PathBuf = given.extract().map_err(|_| {
            let kind = given.get_type();
            PyTypeError::new_err(format!("{} is {kind}; pass a path, bytes, a PIL image or an array", name()))
        })?;
        Ok(Some(Self::Path(path)))
    }

    fn item(&self, index: u64) -> Item {
        let (id, locator) = match self {
            Self::Bytes(name, _) => (name.clone(), Vec::new()),
            Self::Path(path) => (path.display().to_string(), path.as_os_str().as_encoded_bytes().to_vec()),
        };
        Item { index, id, locator, ..Item::default() }
    }
}

/// Images in the order of a list.
pub(crate) struct Images {
    images: Vec<Image>,
    next: usize,
    /// Lists nothing; it reads paths and addresses.
    reader: Listing,
}

impl Images {
    pub(crate) fn new(images: Vec<Image>, reader: Listing) -> Self {
        Self { images, next: 0, reader }
    }
}

impl Source for Images {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        Ok(self.deliver()?.map(|delivery| delivery.item))
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Some(image) = self.images.get(self.next) else { return Ok(None) };
        let item = image.item(self.next as u64);
        self.next += 1;
        Ok(Some(match image {
            Image::Bytes(_, bytes) => Delivery { item, content: Content::Read(bytes.clone()) },
            Image::Path(_) => Delivery::unread(item),
        }))
    }

    fn extent(&self) -> Extent {
        (0..self.images.len() as u64).into()
    }

    fn seek(&mut self, index: u64, _: u64) -> Result<(), SourceError> {
        self.next = usize::try_from(index).unwrap_or(usize::MAX);
        Ok(())
    }

    fn listing_hash(&self) -> String {
        "images in memory".to_owned()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        self.reader.open_fetch()
    }
}
