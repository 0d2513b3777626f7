//! Versions of the content of files and objects.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The version of an object's content; each part may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Length in bytes.
    pub len: Option<u64>,
    /// Time of the last modification.
    pub modified: Option<SystemTime>,
    /// The store's own mark of this content (S3's ETag).
    pub tag: Option<String>,
}

impl Version {
    /// The version of a file, from its file system.
    pub(crate) fn of_file(data: &fs::Metadata) -> Self {
        Self { len: Some(data.len()), modified: data.modified().ok(), tag: None }
    }

    /// Returns true if anything is known.
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }

    /// The same, with what `other` knows of the rest.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { len: self.len.or(other.len), modified: self.modified.or(other.modified), tag: self.tag.or(other.tag) }
    }

    /// One line of text, which [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        let len = self.len.map(|len| len.to_string()).unwrap_or_default();
        let modified = self.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map(|since| since.as_nanos().to_string()).unwrap_or_default();
        format!("{len} {modified} {}", self.tag.as_deref().unwrap_or_default())
    }

    /// Reads [`to_text`](Self::to_text). What is missing or no number is unknown.
    pub fn parse(text: &str) -> Self {
        let mut fields = text.splitn(3, ' ');
        let len = fields.next().and_then(|len| len.parse().ok());
        let nanos = fields.next().and_then(|nanos| nanos.parse().ok());
        let modified = nanos.map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos));
        Self { len, modified, tag: fields.next().filter(|tag| !tag.is_empty()).map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_back() {
        let modified = Some(UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789));
        let tag = Some("\"a b\"".to_owned());
        for version in [
            Version::default(),
            Version { len: Some(7), modified, tag: tag.clone() },
            Version { len: None, modified: None, tag },
        ] {
            assert_eq!(Version::parse(&version.to_text()), version);
        }
    }
}
