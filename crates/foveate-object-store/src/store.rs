use std::sync::Arc;

use foveate_source::blob::Blob;
use foveate_source::store::{Object, ReadAhead, Store, Version};
use foveate_source::{Fetch, FetchError, Item, SourceError};

use crate::address::BucketPlace;
use crate::ahead::ObjectsAhead;
use crate::blob::ObjectBlob;
use crate::core::Core;
use crate::list;
use crate::read::Alone;

/// All stores that this crate knows.
pub(crate) struct ObjectStores {
    pub(crate) core: Arc<Core>,
}

impl ObjectStores {
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Arc::new(core) }
    }
}

impl Store for ObjectStores {
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Object) -> Result<(), SourceError>) -> Result<(), SourceError> {
        let place = BucketPlace::parse(prefix).map_err(|error| SourceError::Invalid(error.to_string()))?;
        let bucket = self.core.block_on(self.core.bucket(&place)).map_err(|error| list::failed(prefix, error))?;
        self.core.block_on(list::list(&self.core, bucket.pages.as_ref(), &place, each))
    }

    fn find(&self, address: &str) -> Result<Option<Object>, FetchError> {
        let place = BucketPlace::parse(address)?;
        if place.key.is_empty() {
            return Ok(None);
        }
        let mut object = Object { address: address.to_owned(), version: Default::default() };
        let found = self.core.block_on(async { self.core.target(&object).await?.examine().await });
        match found {
            Ok(found) => {
                object.version = found;
                Ok(Some(object))
            }
            // It is the prefix of others, perhaps.
            Err(FetchError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn refusal(&self, address: &str) -> Option<String> {
        let place = BucketPlace::parse(address).and_then(|place| place.path());
        place.err().map(|error| error.to_string())
    }

    fn open(&self, object: &Object) -> Result<Arc<dyn Blob>, FetchError> {
        let target = self.core.block_on(self.core.target(object))?;
        Ok(Arc::new(ObjectBlob::open(&self.core, target)?))
    }

    fn read_ahead(&self) -> Box<dyn ReadAhead> {
        Box::new(ObjectsAhead::new(&self.core))
    }

    fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(ObjectFetch { core: Arc::clone(&self.core) })
    }
}

/// Reads single objects.
struct ObjectFetch {
    core: Arc<Core>,
}

impl ObjectFetch {
    fn object(item: &Item) -> Object {
        let address = String::from_utf8_lossy(&item.locator).into_owned();
        Object { address, version: item.version.clone() }
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

    fn version(&mut self, item: &Item) -> Version {
        let object = Self::object(item);
        let examined = self.core.block_on(async { self.core.target(&object).await?.examine().await });
        examined.unwrap_or_default()
    }
}
