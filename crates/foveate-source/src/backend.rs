use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foveate_core::{Health, Registry, named_backend};

use crate::listing::DEFAULT_MAX_BYTES;
use crate::{Fetch, FetchError, SourceError};

/// Which objects of a store may be read, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// Allowed addresses: `s3://bucket`, or `s3://bucket/folder` for everything below it. All others are refused.
    pub allow: Vec<String>,
    /// Largest object, in bytes.
    pub max_bytes: u64,
    /// Longest time for one object, including all attempts.
    pub timeout: Duration,
    /// Settings that only the backend understands (`region` of `s3`), by name; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            max_bytes: DEFAULT_MAX_BYTES,
            timeout: Duration::from_secs(30),
            settings: BTreeMap::new(),
        }
    }
}

impl FetchOptions {
    /// Returns the settings, after checking that every name is in `known`.
    ///
    /// # Errors
    /// [`SourceError::Invalid`], which names the unknown setting and lists the known ones.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, SourceError> {
        match self.settings.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(&self.settings),
            Some(name) if known.is_empty() => Err(SourceError::Invalid(format!("setting '{name}': there are none"))),
            Some(name) => Err(SourceError::Invalid(format!("setting '{name}'; there are {}", known.join(", ")))),
        }
    }
}

/// Opens a reader, one per thread; readers may share connections.
pub type FetchOpener = Arc<dyn Fn() -> Result<Box<dyn Fetch>, FetchError> + Send + Sync>;
type Open = dyn Fn(&FetchOptions) -> Result<FetchOpener, SourceError> + Send + Sync;

/// A named kind of store that reads single objects by address ([`Item::locator`](crate::Item::locator)).
pub struct FetchBackend {
    name: &'static str,
    about: &'static str,
    schemes: &'static [&'static str],
    health: fn() -> Health,
    open: Box<Open>,
}

impl FetchBackend {
    /// A backend called `name`, for addresses with these `schemes` (`s3` of `s3://bucket/key`).
    pub fn new<F>(name: &'static str, about: &'static str, schemes: &'static [&'static str], open: F) -> Self
    where
        F: Fn(&FetchOptions) -> Result<FetchOpener, SourceError> + Send + Sync + 'static,
    {
        Self { name, about, schemes, health: Health::all_rust, open: Box::new(open) }
    }

    /// Its addresses' schemes.
    pub fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    /// Prepares readers, without contacting the store yet.
    ///
    /// # Errors
    /// If the options are invalid, or a requirement of the backend is missing.
    pub fn open(&self, options: &FetchOptions) -> Result<FetchOpener, SourceError> {
        (self.open)(options)
    }
}

named_backend!(FetchBackend);

/// The stores compiled into a program.
pub type FetchRegistry = Registry<FetchBackend>;

#[cfg(test)]
mod tests {
    use foveate_core::Backend as _;

    use super::*;
    use crate::{FileFetch, Item};

    #[test]
    fn a_backend_opens_readers_that_know_the_options() {
        let mut registry = FetchRegistry::new("store", &["files", "object-store"]);
        let open = |options: &FetchOptions| {
            options.settings(&[])?;
            let max_bytes = options.max_bytes;
            let opener: FetchOpener = Arc::new(move || Ok(Box::new(FileFetch::new(max_bytes))));
            Ok(opener)
        };
        registry.register(FetchBackend::new("files", "a test", &["file"], open)).unwrap();
        let backend = registry.get("files").unwrap();
        assert_eq!((backend.name(), backend.about(), backend.schemes()), ("files", "a test", &["file"][..]));

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 10]).unwrap();
        let locator = crate::id::to_bytes(file.path());
        let item = Item { index: 0, id: "a".to_owned(), locator, fault: None };
        let read = |max_bytes| {
            let mut out = Vec::new();
            let mut fetch = backend.open(&FetchOptions { max_bytes, ..FetchOptions::default() }).unwrap()().unwrap();
            fetch.fetch(&item, &mut out).map(|()| out)
        };
        assert_eq!(read(10).unwrap(), [7; 10]);
        assert!(matches!(read(9), Err(FetchError::TooLarge { .. })));
    }

    #[test]
    fn unknown_settings_are_told() {
        let options = FetchOptions { settings: [("regoin".into(), "x".into())].into(), ..FetchOptions::default() };
        let message = |known: &[&str]| options.settings(known).unwrap_err().to_string();
        assert_eq!(message(&["endpoint", "region"]), "setting 'regoin'; there are endpoint, region");
        assert_eq!(message(&[]), "setting 'regoin': there are none");
        assert!(options.settings(&["regoin"]).is_ok());
    }

    #[test]
    fn only_what_may_change_is_transient() {
        let io = |kind: std::io::ErrorKind| FetchError::Io(kind.into());
        assert!(
            FetchError::Unreachable(String::new()).is_transient() && io(std::io::ErrorKind::TimedOut).is_transient()
        );
        assert!(!io(std::io::ErrorKind::NotFound).is_transient());
        for error in [FetchError::NotFound(String::new()), FetchError::Refused(String::new())] {
            assert!(!error.is_transient());
        }
    }
}
