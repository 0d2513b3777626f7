//! Object stores: objects with addresses, listed by prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foveate_core::{Health, Registry, known_settings, named_backend};

pub use crate::address::{local_path, normal_address, public, scheme_of};
use crate::blob::Blob;
use crate::fetch::DEFAULT_MAX_BYTES;
use crate::id::id_of;
pub use crate::version::Version;
use crate::{Fetch, FetchError, Item, SourceError};

/// Settings of reading a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Largest object that is an image, in bytes.
    pub max_bytes: u64,
    /// Whole objects that are requested at a time.
    pub requests: usize,
    /// Bytes that are read ahead of the job.
    pub read_ahead_bytes: u64,
    /// Longest time without progress before a request counts as failed.
    pub timeout: Duration,
    /// Longest time for one object, with all attempts; `None` for as long as attempts make sense.
    pub deadline: Option<Duration>,
    /// Headers of requests to web servers.
    pub headers: WebHeaders,
    /// Most redirects of a request to a web server.
    pub max_redirects: u32,
    /// Settings that only the store understands (`region` of `s3`), by name; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
            requests: Self::DEFAULT_REQUESTS,
            read_ahead_bytes: 256 << 20,
            timeout: Duration::from_secs(30),
            deadline: None,
            headers: WebHeaders::default(),
            max_redirects: Self::DEFAULT_REDIRECTS,
            settings: BTreeMap::new(),
        }
    }
}

impl StoreOptions {
    /// The default for [`requests`](Self::requests): at 0.1 s a request, 640 objects per second.
    pub const DEFAULT_REQUESTS: usize = 64;

    /// The default for [`max_redirects`](Self::max_redirects); browsers follow 20.
    pub const DEFAULT_REDIRECTS: u32 = 10;

    /// Returns the settings, after checking that every name is in `known`.
    ///
    /// # Errors
    /// [`SourceError::Invalid`], which names the unknown setting and lists the known ones.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, SourceError> {
        known_settings(&self.settings, known).map_err(SourceError::Invalid)
    }
}

/// Headers that a user adds to requests. `Debug` does not show their values, which may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WebHeaders(Vec<(String, String)>);

impl WebHeaders {
    /// These headers, by name and value.
    pub fn new(headers: Vec<(String, String)>) -> Self {
        Self(headers)
    }

    /// The headers.
    pub fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }
}

impl fmt::Debug for WebHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// An object as a store lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its address, with the scheme.
    pub address: String,
    /// The version of its content.
    pub version: Version,
}

impl Object {
    /// Returns the object that a listing's `item` is; `None` for a file or a container's member.
    pub fn of(item: &Item) -> Option<Self> {
        scheme_of(&item.locator)?;
        // A member has its container's address and another id.
        let is_object = item.id == id_of(&item.locator);
        let address = String::from_utf8_lossy(&item.locator).into_owned();
        is_object.then(|| Self { address, version: item.version.clone() })
    }
}

/// A kind of store, opened. It knows the buckets of every address of its schemes.
pub trait Store: Send + Sync {
    /// Calls `each` for every object whose address begins with `prefix`, which ends in a slash, in the byte order of
    /// their keys.
    ///
    /// # Errors
    /// If listing fails after retries, or `each` does. A store that cannot list says so.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError>;

    /// Returns the object at `address`, or `None` if there is none.
    ///
    /// # Errors
    /// If the store does not answer, or refuses to.
    fn find(&self, address: &str) -> Result<Option<Object>, FetchError>;

    /// Returns the reason that nothing at `address` can be read, if the address alone tells it. Listings record it as a
    /// fault.
    fn refusal(&self, _address: &str) -> Option<String> {
        None
    }

    /// Opens an object for reading in pieces. If its version has a tag or a length, another content is
    /// [`FetchError::Changed`].
    ///
    /// # Errors
    /// If it cannot be read.
    fn open(&self, object: &Object) -> Result<Arc<dyn Blob>, FetchError>;

    /// Starts to read whole objects in a given order, many at a time.
    fn read_ahead(&self) -> Box<dyn ReadAhead>;

    /// A reader of single objects, whose [locators](crate::Item::locator) are addresses.
    fn fetch(&self) -> Box<dyn Fetch>;
}

/// Reads objects ahead. They come in the order in which they were asked for.
pub trait ReadAhead: Send {
    /// Returns true if another object may be asked for now. Always true if none is waiting to be taken.
    fn has_room(&self) -> bool;

    /// Begins to read an object.
    fn ask(&mut self, object: Object);

    /// Waits for the object that was asked for first, of those not taken yet. The version is what the answer with the
    /// bytes said.
    ///
    /// # Errors
    /// The error of that object, after retries.
    fn take(&mut self) -> Result<(Bytes, Version), FetchError>;
}

type Open = dyn Fn(&StoreOptions) -> Result<Arc<dyn Store>, SourceError> + Send + Sync;

/// A named kind of store.
pub struct StoreBackend {
    name: &'static str,
    about: &'static str,
    schemes: &'static [&'static str],
    health: fn() -> Health,
    open: Box<Open>,
}

impl StoreBackend {
    /// A store called `name`, for addresses with these `schemes` (`s3` of `s3://bucket/key`).
    pub fn new<F>(name: &'static str, about: &'static str, schemes: &'static [&'static str], open: F) -> Self
    where
        F: Fn(&StoreOptions) -> Result<Arc<dyn Store>, SourceError> + Send + Sync + 'static,
    {
        Self { name, about, schemes, health: Health::all_rust, open: Box::new(open) }
    }

    /// Its addresses' schemes.
    pub fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    /// Opens the store, without contacting it yet.
    ///
    /// # Errors
    /// If the options are invalid, or a requirement of the backend is missing.
    pub fn open(&self, options: &StoreOptions) -> Result<Arc<dyn Store>, SourceError> {
        (self.open)(options)
    }
}

named_backend!(StoreBackend);

/// The stores compiled into a program.
pub type StoreRegistry = Registry<StoreBackend>;

/// Returns the store of addresses with this scheme.
///
/// # Errors
/// [`SourceError::NoStore`], which says what to do.
pub fn store_of<'a>(stores: &'a StoreRegistry, scheme: &str) -> Result<&'a StoreBackend, SourceError> {
    stores.iter().find(|store| store.schemes().contains(&scheme)).ok_or_else(|| {
        let schemes: Vec<_> = stores.iter().flat_map(StoreBackend::schemes).copied().collect();
        let remedy = match scheme {
            "hf" => "name the files: https://huggingface.co/datasets/OWNER/NAME/resolve/main/FILE".to_owned(),
            "file" => "that names another machine; mount its folder and name the path".to_owned(),
            "http" | "https" => "rebuild with `-F web`, or download the images first".to_owned(),
            "s3" | "gs" | "az" | "abfs" | "abfss" => {
                "rebuild with `-F object-store`, or download the images first".to_owned()
            }
            _ if schemes.is_empty() => "download the images first".to_owned(),
            _ => format!("there are {}", schemes.join(", ")),
        };
        SourceError::NoStore { scheme: scheme.to_owned(), remedy }
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn an_item_is_an_object_a_file_or_a_member() {
        let item = |id: &str, locator: &str| Item { id: id.to_owned(), locator: locator.into(), ..Item::default() };
        let version = Version { len: Some(7), modified: Some(UNIX_EPOCH), tag: None };
        let object = Object::of(&Item { version: version.clone(), ..item("s3://b/a.jpg", "s3://b/a.jpg") });
        assert_eq!(object, Some(Object { address: "s3://b/a.jpg".to_owned(), version }));
        assert_eq!(Object::of(&item("a.jpg", "a.jpg")), None);
        assert_eq!(Object::of(&item("s3://b/a.tar/0.jpg", "s3://b/a.tar")), None);
    }
}
