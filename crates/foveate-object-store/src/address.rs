//! Addresses of objects.

use foveate_source::FetchError;
use foveate_source::store::{public, scheme_of};
use object_store::path::Path;

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    S3,
    Google,
    Azure,
}

/// The schemes of all kinds.
pub(crate) const SCHEMES: [&str; 5] = ["s3", "gs", "az", "abfs", "abfss"];

/// The address of an object, or the common start of a prefix's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketPlace {
    pub(crate) kind: StoreKind,
    /// The bucket with its scheme (`s3://bucket`).
    pub(crate) root: String,
    /// The rest, not unescaped.
    pub(crate) key: String,
}

impl BucketPlace {
    /// # Errors
    /// [`FetchError::Refused`] if it is no address of a bucket.
    pub(crate) fn parse(address: &str) -> Result<Self, FetchError> {
        let scheme = scheme_of(address.as_bytes()).unwrap_or_default();
        let kind = match scheme {
            "s3" => Some(StoreKind::S3),
            "gs" => Some(StoreKind::Google),
            "az" | "abfs" | "abfss" => Some(StoreKind::Azure),
            _ => None,
        };
        let mut problem = "is no address of an object";
        if let Some(kind) = kind {
            let rest = &address[scheme.len() + 3..];
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            if is_bucket(bucket) {
                return Ok(Self { kind, root: format!("{scheme}://{bucket}"), key: key.to_owned() });
            }
            problem = "names no bucket";
        }
        let address = shown(address);
        Err(FetchError::Refused(format!("'{address}' {problem}; it has to look like s3://bucket/key")))
    }

    /// The object's path, with a key that libraries and proxies leave as it is.
    ///
    /// # Errors
    /// [`FetchError::Refused`] if there is no such key.
    pub(crate) fn path(&self) -> Result<Path, FetchError> {
        let mut problem = "names no key";
        if !self.key.is_empty() {
            problem = "has a key with an empty, . or .. part or a control character; copy it to another key";
            // The library would silently drop empty parts at the edges.
            let has_empty_edge = self.key.starts_with('/') || self.key.ends_with('/');
            if let Some(path) = Path::parse(&self.key).ok().filter(|_| !has_empty_edge) {
                return Ok(path);
            }
        }
        Err(FetchError::Refused(format!("'{}/{}' {problem}", self.root, self.key.escape_debug())))
    }

    /// The address of another key of its bucket.
    pub(crate) fn sibling(&self, key: &str) -> String {
        format!("{}/{key}", self.root)
    }
}

/// An address for messages: without what may be a secret, and without control characters.
pub(crate) fn shown(address: &str) -> String {
    const LONGEST: usize = 200;
    String::from_utf8_lossy(&public(address.as_bytes()))
        .chars()
        .take(LONGEST)
        .flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] })
        .collect()
}

/// Returns true for a bucket's name, or an Azure container with its account (`photos@account.dfs.core.windows.net`).
fn is_bucket(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'@' | b'$'))
        && !name.contains("..")
        && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str) -> String {
        BucketPlace::parse(address).and_then(|place| place.path()).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_taken_as_they_stand() {
        for key in ["a", "a/b.jpg", "a b/ü#1?x=%2e%2E&~[1].jpg", "...", "a/..b", "\\..\\b"] {
            for root in ["s3://bucket", "gs://bucket", "az://bucket", "abfss://c@account.dfs.core.windows.net"] {
                let place = BucketPlace::parse(&format!("{root}/{key}")).unwrap();
                assert_eq!((place.root.as_str(), place.path().unwrap().as_ref()), (root, key));
            }
        }
    }

    #[test]
    fn what_is_no_object_is_refused_and_shown() {
        let end = "; it has to look like s3://bucket/key";
        for address in ["ftp://a/b", "https://host/a.jpg"] {
            assert_eq!(refused(address), format!("'{address}' is no address of an object{end}"));
        }
        assert_eq!(refused("s3:/a/b"), format!("'s3:/a/b' is no address of an object{end}"));
        for bucket in ["", "a b", "bucket:80", "..bucket", "a..b", "b%75cket", "büc", "buck*"] {
            assert!(refused(&format!("s3://{bucket}/k")).contains("names no bucket"), "{bucket}");
        }
        assert!(refused("s3://bucket").contains("names no key") && refused("s3://bucket/").contains("names no key"));
        for key in ["/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\nb", "a\0"] {
            assert!(refused(&format!("s3://bucket/{key}")).contains("an empty, . or .. part or a control"), "{key:?}");
        }
    }

    #[test]
    fn addresses_are_shown_on_one_line() {
        assert_eq!(shown("s3://bucket/a?b\n"), "s3://bucket/a?b\\n");
    }
}
