//! The databases' keys and values, byte by byte. The README is the reference.

use foveate_sink::Element;
use sha2::{Digest, Sha256};

/// The databases of an environment, by name.
pub(crate) const VECTORS: &str = "vectors";
pub(crate) const ORDER: &str = "order";
pub(crate) const META: &str = "meta";

/// Key of the run's manifest in `meta`.
pub(crate) const MANIFEST: &[u8] = b"manifest";

/// Longest key in LMDB's default build.
pub(crate) const MAX_KEY: usize = 511;

const MAGIC: [u8; 4] = *b"FVEC";
const VERSION: u8 = 1;
/// Bytes of a value before the id (if it has one).
const FIXED: usize = 44;
/// First byte of a stand-in key.
const NO_ID: u8 = 0;

/// Returns true if an id can be a key itself.
pub(crate) fn is_key(id: &[u8]) -> bool {
    (1..=MAX_KEY).contains(&id.len()) && id[0] != NO_ID
}

/// The common prefix of the stand-in keys of all rows with this id.
pub(crate) fn stand_in_prefix(id: &[u8]) -> [u8; 33] {
    let mut key = [NO_ID; 33];
    key[1..].copy_from_slice(&Sha256::digest(id));
    key
}

/// The key of a row whose id cannot be one: too long, empty, with a zero first byte, or used by an earlier row.
pub(crate) fn stand_in(id: &[u8], index: u64) -> [u8; 41] {
    let mut key = [0; 41];
    key[..33].copy_from_slice(&stand_in_prefix(id));
    key[33..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The fields of a value other than its id and its vector.
pub(crate) struct Head {
    pub(crate) element: Element,
    pub(crate) dim: usize,
    pub(crate) index: u64,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) xxh3: u64,
}

/// Replaces `out` by the value of a row, with its `id` if its key is a stand-in.
pub(crate) fn push_value(out: &mut Vec<u8>, head: &Head, id: &[u8], vector: &[u8]) {
    let vector_at = (FIXED + id.len()).next_multiple_of(4);
    out.clear();
    out.extend(MAGIC);
    out.extend([VERSION, code(head.element), 0, 0]);
    for field in [vector_at as u32, head.dim as u32, head.width, head.height] {
        out.extend(field.to_le_bytes());
    }
    out.extend(head.index.to_le_bytes());
    out.extend(head.xxh3.to_le_bytes());
    out.extend((id.len() as u32).to_le_bytes());
    out.extend(id);
    out.resize(vector_at, 0);
    out.extend(vector);
}

const fn code(element: Element) -> u8 {
    match element {
        Element::F32 => 1,
        Element::F16 => 2,
    }
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub(crate) element: Element,
    pub(crate) index: u64,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) xxh3: u64,
    /// Empty unless the key is a stand-in.
    pub(crate) id: &'a [u8],
    /// Little-endian components.
    pub(crate) vector: &'a [u8],
}

impl<'a> Value<'a> {
    /// Reads a value; the error says what is wrong with it.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.len() < FIXED || bytes[..4] != MAGIC {
            return Err("it does not begin as a vector's value does".to_owned());
        }
        if bytes[4] != VERSION {
            return Err(format!("its version is {}, but this program reads {VERSION}", bytes[4]));
        }
        let element = match bytes[5] {
            1 => Element::F32,
            2 => Element::F16,
            other => return Err(format!("there is no element type {other}")),
        };
        let vector_at = u32_at(bytes, 8) as usize;
        let dim = u32_at(bytes, 12) as usize;
        let id_len = u32_at(bytes, 40) as usize;
        let id = bytes.get(FIXED..FIXED.saturating_add(id_len.min(vector_at)));
        let vector = bytes.get(vector_at..vector_at.saturating_add(dim.saturating_mul(element.bytes())));
        match (id, vector) {
            (Some(id), Some(vector)) if id.len() == id_len && FIXED + id_len <= vector_at => Ok(Self {
                element,
                index: u64_at(bytes, 24),
                width: u32_at(bytes, 16),
                height: u32_at(bytes, 20),
                xxh3: u64_at(bytes, 32),
                id,
                vector,
            }),
            _ => Err(format!("{} bytes do not hold what its header says", bytes.len())),
        }
    }

    /// The id of the row with key `key`.
    pub(crate) fn id_of(&self, key: &'a [u8]) -> &'a [u8] {
        if key.first() == Some(&NO_ID) { self.id } else { key }
    }

    /// The components.
    pub(crate) fn floats(&self) -> Vec<f32> {
        self.element.floats(self.vector)
    }
}

/// Reads a little-endian field of the head.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Reads a longer field of the head.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn value(id: &str, element: Element, has_id: bool) -> Vec<u8> {
        let values = [0.5_f32, -2.0, 1e9];
        let vector: Vec<u8> = match element {
            Element::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Element::F16 => values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
        };
        let head = Head { element, dim: 3, index: 7, width: 640, height: 480, xxh3: 99 };
        let mut out = b"before".to_vec();
        push_value(&mut out, &head, if has_id { id.as_bytes() } else { b"" }, &vector);
        out
    }

    #[test]
    fn values_come_back() {
        for id in ["", "a", "photos/ż.jpg", &"long/".repeat(200)] {
            for has_id in [true, false] {
                let bytes = value(id, Element::F32, has_id);
                let read = Value::parse(&bytes).unwrap();
                assert_eq!((read.index, read.width, read.height, read.xxh3), (7, 640, 480, 99));
                assert_eq!(read.id, if has_id { id.as_bytes() } else { b"" });
                assert_eq!(read.floats(), [0.5, -2.0, 1e9]);
                assert_eq!((bytes.len() - read.vector.len()) % 4, 0, "the vector is aligned within the value");
            }
        }
        let bytes = value("a", Element::F16, false);
        assert_eq!(Value::parse(&bytes).unwrap().floats(), [0.5, -2.0, f32::INFINITY]);
    }

    #[test]
    fn the_bytes_are_those_of_the_readme() {
        let bytes = value("abc", Element::F32, true);
        assert_eq!(&bytes[..8], b"FVEC\x01\x01\0\0");
        assert_eq!(bytes[8..12], 48_u32.to_le_bytes(), "the vector's offset");
        assert_eq!(bytes[12..16], 3_u32.to_le_bytes());
        assert_eq!((&bytes[16..20], &bytes[20..24]), (&640_u32.to_le_bytes()[..], &480_u32.to_le_bytes()[..]));
        assert_eq!((&bytes[24..32], &bytes[32..40]), (&7_u64.to_le_bytes()[..], &99_u64.to_le_bytes()[..]));
        assert_eq!(&bytes[40..48], b"\x03\0\0\0abc\0");
        assert_eq!(bytes[48..52], 0.5_f32.to_le_bytes());
        assert_eq!(bytes.len(), 60);
    }

    #[test]
    fn no_damaged_value_is_read_or_panics() {
        let whole = value("abc", Element::F32, true);
        for len in 0..whole.len() {
            assert!(Value::parse(&whole[..len]).is_err(), "{len}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(value) = Value::parse(&damaged) {
                    assert!(value.vector.len() <= 12 && value.id.len() <= 4, "byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn stand_ins_never_meet_ids_or_each_other() {
        assert!(!is_key(b"") && !is_key(b"\0a") && !is_key(&[b'a'; 512]));
        assert!(is_key(b"a") && is_key(&[b'a'; 511]) && is_key("ż".as_bytes()));
        let keys = [stand_in(b"", 0), stand_in(b"", 1), stand_in(b"a", 0), stand_in(b"\0a", 0)];
        for (i, key) in keys.iter().enumerate() {
            assert!(!is_key(key));
            assert!(keys[..i].iter().all(|other| other != key));
        }
        assert_eq!(stand_in(b"a", 258)[33..], [0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
