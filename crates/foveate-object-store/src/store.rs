use std::sync::Arc;

use foveate_source::blob::Blob;
use foveate_source::store::{Object, ReadAhead, Store};
use foveate_source::{Fetch, FetchError, Item, SourceError, Stamp};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};

use crate::address::{Kind, Place, shown};
use crate::ahead::Ahead;
use crate::blob::ObjectBlob;
use crate::core::Core;
use crate::errors::Failure;
use crate::keys;
use crate::read::{Alone, version};

/// All stores that this crate knows.
pub(crate) struct ObjectStores {
    pub(crate) core: Arc<Core>,
}

impl ObjectStores {
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Arc::new(core) }
    }

    /// One page of a listing, after retries.
    async fn page(
        &self,
        pages: &dyn PaginatedListStore,
        place: &Place,
        token: Option<String>,
    ) -> Result<PaginatedListResult, FetchError> {
        let name = shown(&place.sibling(&place.key));
        let mut attempts = self.core.attempts();
        loop {
            let options = PaginatedListOptions { page_token: token.clone(), ..PaginatedListOptions::default() };
            let request = pages.list_paginated(Some(&place.key), options);
            match attempts.answer(&name, self.core.options.timeout, Failure::of, request).await {
                Ok(page) => return Ok(page),
                Err(failure) => attempts.again(failure).await.map_err(|failure| failure.into_error(&name))?,
            }
        }
    }
}

impl Store for ObjectStores {
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        let failed =
            |error: FetchError| SourceError::Io { action: format!("list {}", shown(prefix)), source: error.into() };
        let place = Place::parse(prefix).map_err(|error| SourceError::Invalid(error.to_string()))?;
        let bucket = self.core.block_on(self.core.bucket(&place)).map_err(failed)?;
        let Some(pages) = bucket.pages else {
            let why = format!("{}: a web server's files cannot be listed; name them one by one", shown(prefix));
            return Err(SourceError::Invalid(why));
        };
        let (mut last, mut token) = (None::<String>, None);
        loop {
            let page = self.core.block_on(self.page(pages.as_ref(), &place, token.clone())).map_err(failed)?;
            for meta in page.result.objects {
                let key = keys::key(&meta.location);
                let address = place.sibling(&key);
                if last.as_ref().is_some_and(|last| last.as_str() >= key.as_ref()) {
                    return Err(SourceError::Invalid(disorder(&address)));
                }
                // An empty object whose key ends in a slash is a folder's placeholder.
                if meta.size > 0 || !key.ends_with('/') {
                    each(Object { address, version: version(&meta) })?;
                }
                last = Some(key.into_owned());
            }
            match page.page_token.filter(|next| !next.is_empty()) {
                None => return Ok(()),
                next if next == token => return Err(SourceError::Invalid(disorder(prefix))),
                next => token = next,
            }
        }
    }

    fn find(&self, address: &str) -> Result<Option<Object>, FetchError> {
        let place = Place::parse(address)?;
        if place.kind != Kind::Web && place.key.is_empty() {
            return Ok(None);
        }
        let mut object = Object { address: address.to_owned(), version: Default::default() };
        let found = self.core.block_on(async {
            // A signature in a URL is often for GET alone.
            self.core.target(&object).await?.examine(place.kind != Kind::Web).await
        });
        match found {
            Ok(found) => {
                object.version = found;
                Ok(Some(object))
            }
            // It is the prefix of others, perhaps.
            Err(FetchError::NotFound(_)) if place.kind != Kind::Web => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, object: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        let target = self.core.block_on(self.core.target(object))?;
        let head = Place::parse(&object.address)?.kind != Kind::Web;
        Ok(Arc::new(ObjectBlob::open(&self.core, target, head)?))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        Box::new(Ahead::new(&self.core))
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(ObjectFetch { core: Arc::clone(&self.core) })
    }
}

fn disorder(address: &str) -> String {
    let address = shown(address);
    format!("{address}: the store does not list in the order of keys; list its objects once and name them in a file")
}

/// Reads single objects.
struct ObjectFetch {
    core: Arc<Core>,
}

impl ObjectFetch {
    fn object(item: &Item) -> Object {
        let address = String::from_utf8_lossy(&item.locator).into_owned();
        let (len, modified) = item.stamp.unzip();
        Object { address, version: foveate_source::store::Version { len, modified, tag: None } }
    }
}

impl Fetch for ObjectFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        let object = Self::object(item);
        *out = self.core.block_on(async {
            let mut target = self.core.target(&object).await?;
            target.whole(&mut Alone).await.map_err(|failure| failure.into_error(&target.name))
        })?;
        Ok(())
    }

    fn stamp(&mut self, item: &Item) -> Option<Stamp> {
        let object = Self::object(item);
        let head = Place::parse(&object.address).ok()?.kind != Kind::Web;
        let examined = self.core.block_on(async { self.core.target(&object).await?.examine(head).await });
        examined.ok()?.stamp()
    }
}
