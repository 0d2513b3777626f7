//! Keys and entries, byte by byte.

use foveate_core::Size;
use foveate_pipeline::KnownVector;
use xxhash_rust::xxh3::xxh3_64;

/// BLAKE3 of the settings' hash and the content's.
pub(crate) type Key = [u8; 32];

/// The number under which an entry is found. The entry itself says whose it is.
pub(crate) fn number(key: &Key) -> i64 {
    let (first, _) = key.split_first_chunk().unwrap_or_else(|| unreachable!("a key has 32 bytes"));
    i64::from_le_bytes(*first)
}

/// XXH3-64 of the rest, key, width, height, vector.
pub(crate) fn entry(key: &Key, known: &KnownVector) -> Vec<u8> {
    let mut entry = vec![0; 8];
    entry.extend(key);
    entry.extend(known.size.width.to_le_bytes());
    entry.extend(known.size.height.to_le_bytes());
    entry.extend(known.vector.iter().flat_map(|component| component.to_le_bytes()));
    let checksum = xxh3_64(&entry[8..]);
    entry[..8].copy_from_slice(&checksum.to_le_bytes());
    entry
}

/// Reads an entry; `None` if it is damaged, or that of another key.
pub(crate) fn parse(key: &Key, entry: &[u8]) -> Option<KnownVector> {
    let (checksum, rest) = entry.split_first_chunk()?;
    if u64::from_le_bytes(*checksum) != xxh3_64(rest) {
        return None;
    }
    let mut words = rest.strip_prefix(key)?.as_chunks().0.iter();
    let width = u32::from_le_bytes(*words.next()?);
    let height = u32::from_le_bytes(*words.next()?);
    Some(KnownVector { size: Size::new(width, height), vector: words.map(|&word| f32::from_le_bytes(word)).collect() })
}
