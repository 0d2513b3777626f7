//! Keys and values, byte by byte.

use foveate_core::Size;
use foveate_pipeline::Known;
use xxhash_rust::xxh3::Xxh3;

/// Settings, then content.
pub(crate) type Key = [u8; 32];

/// Bytes of a value before its vector: checksum, width, height.
const HEAD: usize = 16;

pub(crate) fn key(settings: u128, content: u128) -> Key {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&settings.to_be_bytes());
    key[16..].copy_from_slice(&content.to_be_bytes());
    key
}

pub(crate) fn value(key: &Key, known: &Known) -> Vec<u8> {
    let mut value = vec![0; 8];
    value.extend(known.size.width.to_le_bytes());
    value.extend(known.size.height.to_le_bytes());
    value.extend(known.vector.iter().flat_map(|component| component.to_le_bytes()));
    let checksum = checksum(key, &value[8..]);
    value[..8].copy_from_slice(&checksum.to_le_bytes());
    value
}

/// Reads a value; `None` if it is damaged.
pub(crate) fn parse(key: &Key, value: &[u8]) -> Option<Known> {
    let (sum, rest) = value.split_first_chunk()?;
    if value.len() < HEAD || u64::from_le_bytes(*sum) != checksum(key, rest) {
        return None;
    }
    let mut words = rest.chunks_exact(4).map(|word| <[u8; 4]>::try_from(word).unwrap_or_default());
    let (width, height) = (u32::from_le_bytes(words.next()?), u32::from_le_bytes(words.next()?));
    Some(Known { size: Size::new(width, height), vector: words.map(f32::from_le_bytes).collect() })
}

fn checksum(key: &Key, rest: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(key);
    hash.update(rest);
    hash.digest()
}
