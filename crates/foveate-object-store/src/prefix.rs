//! Outputs: the objects below a prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foveate_sink::{Prefix, SinkError};
use foveate_source::store::{Object, Store, StoreOptions, Version};
use foveate_source::{FetchError, SourceError};
use futures_util::future::LocalBoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use crate::address::{BucketPlace, shown};
use crate::core::Core;
use crate::errors::ReadFailure;
use crate::read::Alone;
use crate::store::ObjectStores;

/// An upload that is slower than this, in bytes per second, is tried again.
const SLOWEST: u64 = 256 << 10;

/// A prefix of a bucket.
pub(crate) struct BucketPrefix {
    stores: ObjectStores,
    address: String,
}

/// Opens the prefix at `address`. Makes no request yet.
pub(crate) fn open(address: &str, settings: &BTreeMap<String, String>) -> Result<Arc<dyn Prefix>, SinkError> {
    let address = format!("{}/", address.trim_end_matches('/'));
    // Every part of the prefix has to be one of a key.
    let path = BucketPlace::parse(&format!("{address}x")).and_then(|place| place.path());
    path.map_err(|error| SinkError::Unsupported(error.to_string()))?;
    let options = StoreOptions { max_bytes: u64::MAX, settings: settings.clone(), ..StoreOptions::default() };
    let core = Core::new(&options).map_err(|error| SinkError::Unsupported(error.to_string()))?;
    Ok(Arc::new(BucketPrefix { stores: ObjectStores::new(core), address }))
}

/// One attempt of a request that changes an object, or reads one to change it.
type Attempt<'a, T> = LocalBoxFuture<'a, object_store::Result<T>>;

impl BucketPrefix {
    fn core(&self) -> &Core {
        &self.stores.core
    }

    fn object(&self, name: &str) -> Object {
        Object { address: format!("{}{name}", self.address), version: Version::default() }
    }

    /// Repeats `attempt` while that makes sense; each may take `time`.
    fn change<T>(
        &self,
        name: &str,
        time: Duration,
        attempt: impl for<'a> Fn(&'a dyn ObjectStore, &'a Path) -> Attempt<'a, T>,
    ) -> Result<T, FetchError> {
        let address = self.object(name).address;
        self.core().block_on(async {
            let place = BucketPlace::parse(&address)?;
            let path = place.path()?;
            let bucket = self.core().bucket(&place).await?;
            let mut attempts = self.core().attempts();
            loop {
                let request = attempt(bucket.objects.as_ref(), &path);
                match attempts.answer(&address, time, ReadFailure::of_change, request).await {
                    Ok(done) => return Ok(done),
                    Err(failure) => attempts.again(failure).await.map_err(|failure| failure.into_error(&address))?,
                }
            }
        })
    }

    /// Writes an object; `false` if `mode` has a condition that does not hold. An attempt whose answer was lost may
    /// have written it.
    fn put(&self, name: &str, content: Bytes, mode: PutMode) -> Result<bool, SinkError> {
        let time = self.core().options.timeout + Duration::from_secs(content.len() as u64 / SLOWEST);
        let put = self.change(name, time, |objects, path| {
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            let payload = PutPayload::from_bytes(content.clone());
            Box::pin(async move {
                match objects.put_opts(path, payload, options).await {
                    // S3 also says of a request that came at the same time as another that there is one already.
                    Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
                    Err(object_store::Error::Precondition { .. }) => Ok(false),
                    written => written.map(|_| true),
                }
            })
        });
        put.map_err(failed("write to"))
    }

    /// Reads an object and what names its version in a condition; `None` if there is none.
    fn version(&self, name: &str) -> Result<Option<(Bytes, UpdateVersion)>, SinkError> {
        let read = self.change(name, self.core().options.timeout, |objects, path| {
            Box::pin(async move {
                let found = match objects.get(path).await {
                    Err(object_store::Error::NotFound { .. }) => return Ok(None),
                    found => found?,
                };
                let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
                Ok(Some((found.bytes().await?, version)))
            })
        });
        read.map_err(failed("read from"))
    }

    fn is_there(&self, name: &str) -> Result<bool, SinkError> {
        let object = self.object(name);
        let found = self.core().block_on(async { self.core().target(&object).await?.examine().await });
        match found {
            Ok(_) => Ok(true),
            Err(FetchError::NotFound(_)) => Ok(false),
            Err(error) => Err(failed("read from")(error)),
        }
    }
}

impl Prefix for BucketPrefix {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, name: &str, content: Bytes) -> Result<bool, SinkError> {
        if self.core().is_conditional() {
            return self.put(name, content, PutMode::Create);
        }
        if self.is_there(name)? { Ok(false) } else { self.put(name, content, PutMode::Overwrite) }
    }

    fn exchange(&self, name: &str, old: &[u8], content: Bytes) -> Result<bool, SinkError> {
        match self.version(name)? {
            Some((found, version)) if found == old => {
                let is_conditional = self.core().is_conditional();
                self.put(name, content, if is_conditional { PutMode::Update(version) } else { PutMode::Overwrite })
            }
            _ => Ok(false),
        }
    }

    fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.put(name, content, PutMode::Overwrite).map(drop)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        let object = self.object(name);
        let read = self.core().block_on(async {
            let mut target = self.core().target(&object).await?;
            target.whole(&mut Alone).await.map_err(|failure| failure.into_error(&target.name))
        });
        match read {
            Ok(content) => Ok(Some(content)),
            Err(FetchError::NotFound(_)) => Ok(None),
            Err(error) => Err(failed("read from")(error)),
        }
    }

    fn list(&self, start: &str) -> Result<BTreeMap<String, u64>, SinkError> {
        let mut found = BTreeMap::new();
        let listed = self.stores.list(&self.object(start).address, &mut |Object { address, version }| {
            let name = address.strip_prefix(&self.address).unwrap_or_default();
            found.insert(name.to_owned(), version.len.unwrap_or_default());
            Ok(())
        });
        match listed {
            Ok(()) => Ok(found),
            // What failed is in the sink's error.
            Err(SourceError::Io { source, .. }) => Err(SinkError::Store { action: "list", source: source.into() }),
            Err(error) => Err(SinkError::Store { action: "list", source: error.into() }),
        }
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        let removed = self.change(name, self.core().options.timeout, |objects, path| {
            Box::pin(async move {
                match objects.delete(path).await {
                    // S3 alone takes it for a success.
                    Err(object_store::Error::NotFound { .. }) => Ok(()),
                    removed => removed,
                }
            })
        });
        removed.map_err(failed("remove from"))
    }
}

fn failed(action: &'static str) -> impl Fn(FetchError) -> SinkError {
    move |error| SinkError::Store { action, source: error.into() }
}

impl fmt::Debug for BucketPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BucketPrefix").field(&shown(&self.address)).finish()
    }
}
