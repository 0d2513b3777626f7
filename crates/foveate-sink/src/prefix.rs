//! Object stores, as places of outputs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use foveate_core::{Health, Registry, named_backend};

use crate::SinkError;

/// The objects below one prefix of an object store. Each appears whole or not at all. Requests are repeated within, as
/// long as that makes sense.
pub trait Prefix: fmt::Debug + Send + Sync {
    /// The address that all objects' addresses begin with. It ends in a slash.
    fn address(&self) -> &str;

    /// Creates an object. Returns `false` and changes nothing if there is one of this name; a repeated request may have
    /// created it.
    fn create(&self, name: &str, content: Bytes) -> Result<bool, SinkError>;

    /// Replaces an object whose content is `old`. Returns `false` and changes nothing if it has another or is gone; a
    /// repeated request may have replaced it.
    fn exchange(&self, name: &str, old: &[u8], content: Bytes) -> Result<bool, SinkError>;

    /// Creates an object, or replaces the one of this name.
    fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError>;

    /// Reads an object; `None` if there is none.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError>;

    /// Lists the objects whose names begin with `start`, with their lengths.
    fn list(&self, start: &str) -> Result<BTreeMap<String, u64>, SinkError>;

    /// Removes an object that may already be gone.
    fn remove(&self, name: &str) -> Result<(), SinkError>;
}

type Open = dyn Fn(&str, &BTreeMap<String, String>) -> Result<Arc<dyn Prefix>, SinkError> + Send + Sync;

/// A named kind of store.
pub struct PrefixBackend {
    name: &'static str,
    about: &'static str,
    schemes: &'static [&'static str],
    health: fn() -> Health,
    open: Box<Open>,
}

impl PrefixBackend {
    /// A store called `name`, for addresses with these `schemes` (`s3` of `s3://bucket/key`). `open` gets an address
    /// and the settings that only the store understands, by name.
    pub fn new<F>(name: &'static str, about: &'static str, schemes: &'static [&'static str], open: F) -> Self
    where
        F: Fn(&str, &BTreeMap<String, String>) -> Result<Arc<dyn Prefix>, SinkError> + Send + Sync + 'static,
    {
        Self { name, about, schemes, health: Health::all_rust, open: Box::new(open) }
    }

    /// The schemes of its addresses.
    pub fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    /// Opens the prefix at `address`, with or without a slash at its end. Makes no request yet.
    ///
    /// # Errors
    /// If the address or a setting is invalid.
    pub fn open(&self, address: &str, settings: &BTreeMap<String, String>) -> Result<Arc<dyn Prefix>, SinkError> {
        (self.open)(address, settings)
    }
}

named_backend!(PrefixBackend);

/// The stores for outputs that are compiled into a program.
pub type PrefixRegistry = Registry<PrefixBackend>;
