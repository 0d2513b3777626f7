//! A Parquet file's footer, checked before the library reads it.
//!
//! The library builds the schema by recursion, without a limit: a file of a few kilobytes could overflow the stack, and
//! that ends the process. So the depth is measured first, in Thrift's compact protocol.

use foveate_source::FetchError;
use foveate_source::blob::Blob;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::fault::{damaged, len_of};

/// Bytes that are read from a file's end at first: nearly always the whole footer.
const TAIL: u64 = 64 << 10;

/// The footer's length and magic number.
const END: u64 = 8;

/// Deepest schema.
const MOST_DEPTH: usize = 64;

/// Reads the footer.
pub(crate) fn read(blob: &dyn Blob) -> Result<ParquetMetaData, FetchError> {
    let len = len_of(blob)?;
    if len < END {
        return Err(damaged(format!("{len} bytes are no Parquet file")));
    }
    let mut tail = vec![0; len.min(TAIL) as usize];
    blob.read_at(len - tail.len() as u64, &mut tail)?;
    let (before, end) = tail.split_at(tail.len() - END as usize);
    let footer_len = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    match &end[4..] {
        b"PAR1" => {}
        b"PARE" => return Err(FetchError::Refused("it is encrypted, which this program cannot read".to_owned())),
        _ => return Err(damaged("it does not end as a Parquet file does: it is cut short, or of another format")),
    }
    let start = len.checked_sub(END + footer_len).ok_or_else(|| {
        damaged(format!("its footer would be {footer_len} bytes long, more than the whole file of {len}"))
    })?;
    let footer = match before.len().checked_sub(footer_len as usize) {
        Some(at) => before[at..].to_vec(),
        None => {
            let mut footer = vec![0; footer_len as usize];
            blob.read_at(start, &mut footer)?;
            footer
        }
    };
    check_depth(&footer).ok_or_else(|| damaged(format!("its schema is damaged, or more than {MOST_DEPTH} deep")))?;
    ParquetMetaDataReader::decode_metadata(&footer).map_err(damaged)
}

/// `None` if the schema in a footer is too deep, or cannot be read.
fn check_depth(footer: &[u8]) -> Option<()> {
    const SCHEMA: i16 = 2;
    let mut footer = Compact(footer);
    let mut id = 0;
    while let CompactField::Type(kind) = footer.field(&mut id)? {
        if (id, kind) == (SCHEMA, LIST) {
            return check_schema(&mut footer);
        }
        footer.skip(kind, MOST_DEPTH)?;
    }
    Some(())
}

/// The elements are in depth-first order, each with the number of its children.
fn check_schema(schema: &mut Compact<'_>) -> Option<()> {
    const CHILDREN: i16 = 5;
    let (count, _) = schema.list()?;
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..count {
        let mut id = 0;
        let mut children = 0;
        while let CompactField::Type(kind) = schema.field(&mut id)? {
            match (id, kind) {
                (CHILDREN, I32) => children = zigzag(schema.varint()?),
                _ => schema.skip(kind, MOST_DEPTH)?,
            }
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        open.push(u64::try_from(children).ok()?);
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > MOST_DEPTH {
            return None;
        }
    }
    Some(())
}

// Types of the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// A field's type, or the end of a struct.
pub(crate) enum CompactField {
    Type(u8),
    End,
}

/// Reads Thrift's compact protocol from the front of a slice; `None` where it breaks off.
pub(crate) struct Compact<'a>(pub(crate) &'a [u8]);

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The next field of a struct. `id` goes from that of the field before to its own.
    pub(crate) fn field(&mut self, id: &mut i16) -> Option<CompactField> {
        let head = self.byte()?;
        if head == 0 {
            return Some(CompactField::End);
        }
        *id = match head >> 4 {
            0 => zigzag(self.varint()?) as i16,
            step => id.wrapping_add(i16::from(step)),
        };
        Some(CompactField::Type(head & 0x0f))
    }

    /// A list's length, and its elements' type.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Some((count, head & 0x0f))
    }

    fn advance(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    pub(crate) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            I8 => self.advance(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.advance(8),
            BINARY => {
                let len = self.varint()?;
                self.advance(len)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            MAP => match self.varint()? {
                0 => Some(()),
                count => {
                    let kinds = self.byte()?;
                    (0..count).try_for_each(|_| {
                        self.skip_element(kinds >> 4, depth)?;
                        self.skip_element(kinds & 0x0f, depth)
                    })
                }
            },
            STRUCT => {
                let mut id = 0;
                while let CompactField::Type(kind) = self.field(&mut id)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Booleans take a byte within lists and maps; as fields they are in the field's type.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => self.advance(1),
            kind => self.skip(kind, depth),
        }
    }
}

pub(crate) fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with only a schema: each element has a name and this many children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xfc];
        let mut count = children.len();
        while count > 0x7f {
            bytes.push(count as u8 | 0x80);
            count >>= 7;
        }
        bytes.push(count as u8);
        for &children in children {
            // Fields 4, a name, and 5, the children.
            bytes.extend([0x48, 1, b'a', 0x15, children << 1, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn deep_schemas_are_refused_before_they_overflow_the_stack() {
        let chain = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert!(check_depth(&footer(&chain(MOST_DEPTH))).is_some());
        assert!(check_depth(&footer(&chain(MOST_DEPTH + 1))).is_none());
        assert!(check_depth(&footer(&chain(1_000_000))).is_none());
        assert!(check_depth(&footer(&[3, 1, 0, 0, 2, 0, 0])).is_some(), "wide, not deep");
    }

    #[test]
    fn every_cut_is_noticed_or_harmless() {
        let whole = footer(&[3, 1, 0, 0, 2, 0, 0]);
        let end = whole.len() - 1;
        for len in 0..end {
            assert!(check_depth(&whole[..len]).is_none(), "cut to {len}");
        }
    }
}
