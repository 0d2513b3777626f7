#![doc = include_str!("../README.md")]

mod ahead;
mod blob;
mod site;

use std::sync::Arc;

use foveate_core::RegistryError;
use foveate_net::{Client, ClientOptions, RequestHeaders};
use foveate_source::store::{Object, ReadAhead, Store, StoreBackend, StoreOptions, StoreRegistry, Version, public};
use foveate_source::{Fetch, FetchError, Item, SourceError};

use crate::ahead::WebAhead;
use crate::blob::WebBlob;
use crate::site::WebSites;

/// Opens all web servers. Makes no request yet.
///
/// # Errors
/// [`SourceError`] if a header is impossible, or the system has no certificates.
pub fn open(options: &StoreOptions) -> Result<Arc<dyn Store>, SourceError> {
    let mut headers = RequestHeaders::default();
    for (name, value) in options.headers.iter() {
        headers.add(name, value).map_err(|error| SourceError::Invalid(error.to_string()))?;
    }
    let window = options.timeout;
    let longest = std::time::Duration::from_secs(24 * 3600);
    let client = Client::new(ClientOptions {
        trusted: true,
        headers,
        max_redirects: options.max_redirects,
        max_bytes: options.max_bytes,
        answer_timeout: window,
        timeout: options.deadline.unwrap_or(longest),
        min_rate: LEAST_PROGRESS / window.as_secs().max(1),
        window,
        per_host: options.requests.max(1),
        ..ClientOptions::default()
    });
    let client = client.map_err(|error| SourceError::Invalid(error.to_string()))?;
    let web = WebSites::new(client, options);
    let web = web.map_err(|error| SourceError::Invalid(format!("no thread for requests ({error})")))?;
    Ok(Arc::new(WebFiles { web: Arc::new(web) }))
}

/// Bytes that have to come within the time limit, so that a trickle ends too.
const LEAST_PROGRESS: u64 = 64 << 10;

/// Adds this backend under the name `web`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut StoreRegistry) -> Result<(), RegistryError> {
    registry.register(StoreBackend::new("web", "files of web servers (http://, https://)", &["http", "https"], open))
}

/// Files of web servers.
struct WebFiles {
    web: Arc<WebSites>,
}

impl Store for WebFiles {
    fn list(&self, prefix: &str, _: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        let shown = String::from_utf8_lossy(&public(prefix.as_bytes())).into_owned();
        let why = format!("{shown}: a web server's files cannot be listed; name them one by one");
        Err(SourceError::Invalid(why))
    }

    fn find(&self, address: &str) -> Result<Option<Object>, FetchError> {
        let version = self.web.runtime().block_on(self.web.examine(address))?;
        Ok(Some(Object { address: address.to_owned(), version }))
    }

    fn open(&self, object: &Object) -> Result<Arc<dyn foveate_source::blob::Blob>, FetchError> {
        Ok(Arc::new(WebBlob::open(&self.web, object)?))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        Box::new(WebAhead::new(&self.web, self.web.requests))
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(WebFetch { web: Arc::clone(&self.web) })
    }
}

/// Reads single files.
struct WebFetch {
    web: Arc<WebSites>,
}

impl Fetch for WebFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        let address = String::from_utf8_lossy(&item.locator);
        self.web.runtime().block_on(self.web.get(&address, &item.version, &mut |_| true, out)).map(drop)
    }

    fn version(&mut self, item: &Item) -> Version {
        let address = String::from_utf8_lossy(&item.locator);
        self.web.runtime().block_on(self.web.examine(&address)).unwrap_or_default()
    }
}
