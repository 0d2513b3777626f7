//! Single objects whose addresses are untrusted input.

use std::sync::Arc;

use crate::store::{Store, Version, scheme_of};
use crate::{Fetch, FetchError, Item, SourceError};

/// Reads single objects of a store, in allowed buckets and folders only.
#[derive(Clone)]
pub struct AllowedObjects {
    store: Arc<dyn Store>,
    allowed: Arc<[Allowed]>,
}

impl AllowedObjects {
    /// Objects below the addresses in `allow`: `s3://bucket`, or `s3://bucket/folder` for everything below it.
    ///
    /// # Errors
    /// [`SourceError::Invalid`] if there is none, or one is no address of a bucket or a folder.
    pub fn new(store: Arc<dyn Store>, allow: &[String]) -> Result<Self, SourceError> {
        let allowed: Arc<[Allowed]> = allow.iter().map(|text| Allowed::parse(text)).collect::<Result<_, _>>()?;
        match allowed.is_empty() {
            true => {
                Err(SourceError::Invalid("no bucket may be read; allow s3://bucket or s3://bucket/folder".to_owned()))
            }
            false => Ok(Self { store, allowed }),
        }
    }

    /// A reader whose items' [locators](Item::locator) are addresses. Addresses that are not allowed are
    /// [`FetchError::Refused`], without a request.
    pub fn fetch(&self) -> Box<dyn Fetch> {
        Box::new(AllowedFetch { fetch: self.store.fetch(), allowed: Arc::clone(&self.allowed) })
    }
}

struct AllowedFetch {
    fetch: Box<dyn Fetch>,
    allowed: Arc<[Allowed]>,
}

impl AllowedFetch {
    fn check(&self, locator: &[u8]) -> Result<(), FetchError> {
        let address = BucketAddress::parse(locator)?;
        if self.allowed.iter().any(|to| to.covers(&address)) {
            return Ok(());
        }
        let BucketAddress { scheme, bucket, key } = address;
        Err(FetchError::Refused(format!("{scheme}://{bucket}/{key} is not in a bucket or folder that may be read")))
    }
}

impl Fetch for AllowedFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        self.check(&item.locator)?;
        self.fetch.fetch(item, out)
    }

    fn version(&mut self, item: &Item) -> Version {
        match self.check(&item.locator) {
            Ok(()) => self.fetch.version(item),
            Err(_) => Version::default(),
        }
    }
}

/// An object's address. The key is not unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BucketAddress<'a> {
    scheme: &'a str,
    bucket: &'a str,
    key: &'a str,
}

impl<'a> BucketAddress<'a> {
    fn parse(locator: &'a [u8]) -> Result<Self, FetchError> {
        let text = std::str::from_utf8(locator).map_err(|_| refused(locator, "is not text"))?;
        let address = Self::split(text).ok_or_else(|| refused(locator, "is no address of an object"))?;
        if !is_bucket(address.bucket) {
            return Err(refused(locator, "names no bucket"));
        }
        if address.key.is_empty() {
            return Err(refused(locator, "names no key"));
        }
        // Stores allow such keys, but proxies and libraries change them.
        if !is_strict(address.key) {
            return Err(refused(locator, "has a key with an empty, . or .. part or a control character"));
        }
        Ok(address)
    }

    /// The parts of an address in a bucket; web servers have none.
    fn split(text: &'a str) -> Option<Self> {
        let scheme = scheme_of(text.as_bytes()).filter(|scheme| !["http", "https", "file"].contains(scheme))?;
        let rest = &text[scheme.len() + "://".len()..];
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Self { scheme, bucket, key })
    }
}

/// The error of an address that is none.
fn refused(locator: &[u8], problem: &str) -> FetchError {
    let shown: String = String::from_utf8_lossy(locator).chars().take(200).flat_map(char::escape_debug).collect();
    FetchError::Refused(format!("'{shown}' {problem}; it has to look like s3://bucket/key"))
}

/// An allowed bucket, or an allowed folder in one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allowed {
    scheme: String,
    bucket: String,
    /// Empty for the whole bucket; otherwise it ends in a slash.
    folder: String,
}

impl Allowed {
    fn parse(text: &str) -> Result<Self, SourceError> {
        if let Some(BucketAddress { scheme, bucket, key }) = BucketAddress::split(text) {
            let folder = key.strip_suffix('/').filter(|folder| !folder.is_empty()).unwrap_or(key);
            if is_bucket(bucket) && !folder.contains('*') && (folder.is_empty() || is_strict(folder)) {
                let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                return Ok(Self { scheme: scheme.to_owned(), bucket: bucket.to_owned(), folder });
            }
        }
        Err(SourceError::Invalid(format!("'{text}' may not be allowed; write s3://bucket or s3://bucket/folder")))
    }

    /// Compares whole parts of keys: the folder `a` has `a/b`, but not `ab`.
    fn covers(&self, address: &BucketAddress<'_>) -> bool {
        self.scheme == address.scheme && self.bucket == address.bucket && address.key.starts_with(&self.folder)
    }
}

fn is_strict(key: &str) -> bool {
    key.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.bytes().any(|byte| byte.is_ascii_control()))
}

fn is_bucket(name: &str) -> bool {
    (3..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        && !name.contains("..")
        && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(locator: &str) -> String {
        BucketAddress::parse(locator.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_taken_as_they_stand() {
        for key in ["a", "a/b.jpg", "a b/ü#1?x=%2e%2E&~[1].jpg", "...", "a/..b", "\\..\\b"] {
            let locator = format!("s3://bucket/{key}");
            let address = BucketAddress::parse(locator.as_bytes()).unwrap();
            assert_eq!((address.bucket, address.key), ("bucket", key));
        }
    }

    #[test]
    fn what_is_no_object_is_refused_and_shown() {
        let end = "; it has to look like s3://bucket/key";
        assert_eq!(refused("https://a/b"), format!("'https://a/b' is no address of an object{end}"));
        assert_eq!(refused("s3:/a/b"), format!("'s3:/a/b' is no address of an object{end}"));
        for bucket in ["", "ab", "a b", "u@bucket", "bucket:80", "..bucket", "a..b", "b%75cket", "büc"] {
            assert!(refused(&format!("s3://{bucket}/k")).contains("names no bucket"), "{bucket}");
        }
        assert!(refused("s3://bucket").contains("names no key") && refused("s3://bucket/").contains("names no key"));
        for key in ["/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\nb", "a\0"] {
            assert!(refused(&format!("s3://bucket/{key}")).contains("an empty, . or .. part or a control"), "{key:?}");
        }
        assert_eq!(
            refused("s3://bucket/\n"),
            format!("'s3://bucket/\\n' has a key with an empty, . or .. part or a control character{end}")
        );
        assert!(BucketAddress::parse(b"s3://bucket/\xff").unwrap_err().to_string().contains("is not text"));
    }

    #[test]
    fn folders_are_whole_parts() {
        let covers = |allowed: &str, locator: &str| {
            Allowed::parse(allowed).unwrap().covers(&BucketAddress::parse(locator.as_bytes()).unwrap())
        };
        assert!(covers("s3://bucket", "s3://bucket/a") && covers("s3://bucket/", "s3://bucket/a/b"));
        assert!(!covers("s3://bucket", "s3://bucket2/a") && !covers("s3://bucket2", "s3://bucket/a"));
        assert!(!covers("s3://bucket", "gs://bucket/a") && covers("gs://bucket", "gs://bucket/a"));
        for allowed in ["s3://bucket/a/b", "s3://bucket/a/b/"] {
            assert!(covers(allowed, "s3://bucket/a/b/c") && covers(allowed, "s3://bucket/a/b/c/d"));
            assert!(!covers(allowed, "s3://bucket/a/bc") && !covers(allowed, "s3://bucket/a/b"));
            assert!(!covers(allowed, "s3://bucket/c/a/b/c") && !covers(allowed, "s3://bucket/A/b/c"));
        }
    }

    #[test]
    fn what_may_not_be_allowed_is_told() {
        for text in [
            "",
            "*",
            "bucket",
            "s3://",
            "s3://*",
            "s3:///a",
            "s3://bucket/a*",
            "s3://bucket/../a",
            "s3://bucket//",
            "https://bucket",
        ] {
            let message = format!("'{text}' may not be allowed; write s3://bucket or s3://bucket/folder");
            assert_eq!(Allowed::parse(text).unwrap_err().to_string(), message);
        }
    }
}
