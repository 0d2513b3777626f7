//! Object addresses, and the allowed ones.

use foveate_source::{FetchError, SourceError};
use object_store::path::Path;

const SCHEME: &str = "s3://";

/// An object's address. The key is not unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) bucket: String,
    pub(crate) key: Path,
}

impl Address {
    pub(crate) fn parse(locator: &[u8]) -> Result<Self, FetchError> {
        let refused = |problem: &str| {
            let shown: String =
                String::from_utf8_lossy(locator).chars().take(200).flat_map(char::escape_debug).collect();
            FetchError::Refused(format!("'{shown}' {problem}; it has to look like s3://bucket/key"))
        };
        let text = std::str::from_utf8(locator).map_err(|_| refused("is not text"))?;
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| refused("is no address of an object"))?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_bucket(bucket) {
            return Err(refused("names no bucket"));
        }
        if key.is_empty() {
            return Err(refused("names no key"));
        }
        // S3 allows such keys, but proxies and libraries change them.
        let key =
            strict_path(key).ok_or_else(|| refused("has a key with an empty, . or .. part or a control character"))?;
        Ok(Self { bucket: bucket.to_owned(), key })
    }
}

/// An allowed bucket, or an allowed folder in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) bucket: String,
    folder: Path,
}

impl Allowed {
    pub(crate) fn parse(text: &str) -> Result<Self, SourceError> {
        let bad =
            || SourceError::Invalid(format!("'{text}' may not be allowed; write s3://bucket or s3://bucket/folder"));
        let rest = text.strip_prefix(SCHEME).ok_or_else(bad)?;
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let folder = folder.strip_suffix('/').filter(|folder| !folder.is_empty()).unwrap_or(folder);
        if !is_bucket(bucket) || folder.contains('*') {
            return Err(bad());
        }
        let folder = if folder.is_empty() { Path::ROOT } else { strict_path(folder).ok_or_else(bad)? };
        Ok(Self { bucket: bucket.to_owned(), folder })
    }

    /// Compares whole parts of keys: the folder `a` has `a/b`, but not `ab`.
    pub(crate) fn covers(&self, address: &Address) -> bool {
        self.bucket == address.bucket && address.key.prefix_matches(&self.folder) && address.key != self.folder
    }
}

fn strict_path(key: &str) -> Option<Path> {
    // The library would silently drop such parts.
    let edges = key.starts_with('/') || key.ends_with('/');
    Path::parse(key).ok().filter(|_| !edges)
}

fn is_bucket(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (3..=255).contains(&name.len()) && name.bytes().all(is_plain) && !name.contains("..") && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(locator: &str) -> String {
        Address::parse(locator.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_taken_as_they_stand() {
        for key in ["a", "a/b.jpg", "a b/ü#1?x=%2e%2E&~[1].jpg", "...", "a/..b", "\\..\\b"] {
            let address = Address::parse(format!("s3://bucket/{key}").as_bytes()).unwrap();
            assert_eq!((address.bucket.as_str(), address.key.as_ref()), ("bucket", key));
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
        assert!(Address::parse(b"s3://bucket/\xff").unwrap_err().to_string().contains("is not text"));
    }

    #[test]
    fn folders_are_whole_parts() {
        let covers = |allowed: &str, locator: &str| {
            Allowed::parse(allowed).unwrap().covers(&Address::parse(locator.as_bytes()).unwrap())
        };
        assert!(covers("s3://bucket", "s3://bucket/a") && covers("s3://bucket/", "s3://bucket/a/b"));
        assert!(!covers("s3://bucket", "s3://bucket2/a") && !covers("s3://bucket2", "s3://bucket/a"));
        for allowed in ["s3://bucket/a/b", "s3://bucket/a/b/"] {
            assert!(covers(allowed, "s3://bucket/a/b/c") && covers(allowed, "s3://bucket/a/b/c/d"));
            assert!(!covers(allowed, "s3://bucket/a/bc") && !covers(allowed, "s3://bucket/a/b"));
            assert!(!covers(allowed, "s3://bucket/c/a/b/c") && !covers(allowed, "s3://bucket/A/b/c"));
        }
    }

    #[test]
    fn what_may_not_be_allowed_is_told() {
        for text in
            ["", "*", "bucket", "s3://", "s3://*", "s3:///a", "s3://bucket/a*", "s3://bucket/../a", "s3://bucket//"]
        {
            let message = format!("'{text}' may not be allowed; write s3://bucket or s3://bucket/folder");
            assert_eq!(Allowed::parse(text).unwrap_err().to_string(), message);
        }
    }
}
