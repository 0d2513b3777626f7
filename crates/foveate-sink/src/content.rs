//! The identity of an input's bytes.

use std::fmt;

/// BLAKE3 of an input's bytes. Only equal bytes have equal ids: unlike a checksum, the hash of a picture cannot be
/// forged, so a vector of one may serve the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId([u8; 32]);

impl ContentId {
    /// The id of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(digits: &str) -> Option<Self> {
        blake3::Hash::from_hex(digits).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Display for ContentId {
    /// Writes 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}
