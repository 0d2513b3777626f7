//! The directory at an archive's end: which members are images, and where they are.

use std::io;

use foveate_source::blob::Blob;
use foveate_source::{FetchError, NameFilter};
use rawzip::{ErrorKind, ZipArchive, ZipLocator};

use crate::blob_reader::BlobReader;
use crate::entry::Entry;

/// Most bytes of memory for the entries of one directory: about three million photos.
const MOST_MEMORY: usize = 256 << 20;

/// Bytes of the directory that its parser has at hand: a record with three fields of the greatest length.
const RECORD: usize = 256 << 10;

const SIGNATURE: &[u8] = b"PK\x05\x06";
/// Length of the end record without its comment.
const END: usize = 22;

/// Reads the images' entries, in the order of their offsets.
pub(crate) fn read(blob: &dyn Blob, names: &NameFilter) -> Result<Vec<Entry>, FetchError> {
    let reader = BlobReader::new(blob)?;
    let archive = locate(&reader)?;
    let (mut entries, mut memory, mut count) = (Vec::new(), 0, 0_u64);
    let mut buffer = vec![0; RECORD];
    let mut records = archive.entries(&mut buffer);
    while let Some(record) = records.next_entry().map_err(damaged)? {
        count += 1;
        let Some(entry) = Entry::of_image(&record, names) else { continue };
        memory += entry.memory();
        if memory > MOST_MEMORY {
            let mib = MOST_MEMORY >> 20;
            return Err(FetchError::Refused(format!("its directory takes more than {mib} MiB of memory; split it")));
        }
        entries.push(entry);
    }
    check_count(count, archive.entries_hint())?;
    entries.sort_by_key(|entry| entry.offset);
    Entry::mark_overlaps(&mut entries);
    Ok(entries)
}

fn locate<'a>(reader: &'a BlobReader<'a>) -> Result<ZipArchive<&'a BlobReader<'a>>, FetchError> {
    let tail = reader.tail();
    let Some(at) = end_record(tail) else {
        let why = "it is not a zip archive, or it is cut off: there is no directory at its end";
        return Err(FetchError::Damaged(why.to_owned()));
    };
    if [4, 6].map(|field| u16_at(tail, at + field)).iter().any(|disk| ![0, u16::MAX].contains(disk)) {
        return Err(FetchError::Refused("it is one part of an archive in several; join them first".to_owned()));
    }
    // The search ends behind this record's signature, so that it finds this record.
    let end = reader.tail_start() + (at + SIGNATURE.len()) as u64;
    let mut buffer = vec![0; RECORD];
    ZipLocator::new().locate_in_reader(reader, &mut buffer, end).map_err(|(_, error)| damaged(error))
}

/// Returns the last record whose comment ends with the file. Comments may hold anything, records as well. Without such
/// a record, something was appended to the file, and the last record counts.
fn end_record(tail: &[u8]) -> Option<usize> {
    let records = || (0..(tail.len() + 1).saturating_sub(END)).rev().filter(|&at| tail[at..].starts_with(SIGNATURE));
    let ends_at = |at: usize| at + END + usize::from(u16_at(tail, at + 20));
    records().find(|&at| ends_at(at) == tail.len()).or_else(|| records().find(|&at| ends_at(at) < tail.len()))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Checks that no record is missing. Archives of more than 65535 members from old programs count in 16 bits.
fn check_count(found: u64, claimed: u64) -> Result<(), FetchError> {
    if found == claimed || (claimed <= u64::from(u16::MAX) && found & u64::from(u16::MAX) == claimed) {
        return Ok(());
    }
    Err(FetchError::Damaged(format!("its directory is damaged: {found} members of {claimed}")))
}

fn damaged(error: rawzip::Error) -> FetchError {
    match error.into_kind() {
        ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof => error.into(),
        kind => FetchError::Damaged(format!("its directory is damaged: {}", kind.to_string().to_lowercase())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(comment: &[u8]) -> Vec<u8> {
        let mut record = SIGNATURE.to_vec();
        record.extend([0; 16]);
        record.extend((comment.len() as u16).to_le_bytes());
        record.extend(comment);
        record
    }

    #[test]
    fn the_end_record_is_the_one_whose_comment_ends_the_file() {
        let fakes = [record(b"xx"), record(b""), b"PK\x05\x06".to_vec()].concat();
        for comment in [b"".as_slice(), b"photos of 2024", &fakes] {
            let tail = [b"before".as_slice(), &record(comment)].concat();
            assert_eq!(end_record(&tail), Some(6), "{comment:?}");
        }
        assert_eq!(end_record(&[record(b"a"), b"appended".to_vec()].concat()), Some(0));
        assert_eq!(end_record(&record(b"cut off")[..25]), None);
        assert_eq!(end_record(b""), None);
    }

    #[test]
    fn counts_agree_or_wrap_at_16_bits() {
        assert!(check_count(3, 3).is_ok() && check_count(70_000, 70_000).is_ok() && check_count(70_000, 4464).is_ok());
        assert!(check_count(3, 4).is_err() && check_count(4, 3).is_err() && check_count(70_000, 80_000).is_err());
    }
}
