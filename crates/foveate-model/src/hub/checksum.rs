use std::fs::File;
use std::io;

use sha1::{Digest, Sha1};

use crate::hash::{for_each_chunk, hex, sha256_of};

/// The checksum that the hub reports for a file, which is also the file's name in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Of the content, for files in large-file storage.
    Sha256(String),
    /// Of git's header and the content, for files in the repository itself.
    GitBlob(String),
}

impl Checksum {
    /// Parses an `ETag` or `X-Linked-Etag`; `None` if it is neither kind of checksum.
    pub(crate) fn from_etag(etag: &str) -> Option<Self> {
        let hex = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
        match hex.len() {
            _ if !is_hex(hex) => None,
            64 => Some(Self::Sha256(hex.to_owned())),
            40 => Some(Self::GitBlob(hex.to_owned())),
            _ => None,
        }
    }

    pub(crate) fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::GitBlob(_) => "git blob hash",
        }
    }

    /// Computes `file`'s checksum of this kind.
    pub(crate) fn of(&self, file: &mut File) -> io::Result<String> {
        match self {
            Self::Sha256(_) => sha256_of(file),
            Self::GitBlob(_) => {
                let mut hash = Sha1::new();
                hash.update(format!("blob {}\0", file.metadata()?.len()));
                for_each_chunk(file, |chunk| hash.update(chunk))?;
                Ok(hex(&hash.finalize()))
            }
        }
    }
}

/// Returns true if `text` is lower-case hexadecimal, and so also a safe file name.
pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_tell_the_kind_of_checksum() {
        let sha = "a".repeat(64);
        let git = "0".repeat(40);
        assert_eq!(Checksum::from_etag(&format!("\"{sha}\"")), Some(Checksum::Sha256(sha)));
        assert_eq!(Checksum::from_etag(&format!("W/\"{git}\"")), Some(Checksum::GitBlob(git)));
        for other in
            ["", "\"\"", "\"5d41402abc4b2a76b9719d911017c592\"", &"G".repeat(64), &format!("../{}", "a".repeat(61))]
        {
            assert_eq!(Checksum::from_etag(other), None, "{other}");
        }
    }

    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"hello\n").unwrap();
        let git = Checksum::GitBlob(String::new()).of(&mut file).unwrap();
        assert_eq!(git, "ce013625030ba8dba906f756967f9e9ca394464a");
        let sha = Checksum::Sha256(String::new()).of(&mut file).unwrap();
        assert_eq!(sha, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    }
}
