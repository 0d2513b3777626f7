//! The directory at an archive's end: which members are images, and where they are.

use std::io;

use foveate_source::blob::Blob;
use foveate_source::{FetchError, NameFilter};
use rawzip::{ErrorKind, ZipArchive, ZipLocator};

use crate::blob_reader::BlobReader;
use crate::entry::{LOCAL_SIGNATURE, ZipEntry};

/// Most bytes of memory for the entries of one directory: about three million photos.
const MOST_MEMORY: usize = 256 << 20;

/// Bytes of the directory that its parser has at hand: a record with three fields of the greatest length.
const RECORD: usize = 256 << 10;

const SIGNATURE: &[u8] = b"PK\x05\x06";
/// Length of the end record without its comment.
const END: usize = 22;

/// Reads the images' entries, in the order of their offsets.
pub(crate) fn read(blob: &dyn Blob, names: &NameFilter) -> Result<Vec<ZipEntry>, FetchError> {
    let reader = BlobReader::new(blob)?;
    let (archive, stated) = locate(&reader)?;
    let base = archive.directory_offset().saturating_sub(stated.into());
    if base >= TURN && stated != u32::MAX {
        let entries = images(&archive, names, Some(OffsetTurns { base, turns: 0, last: 0 }))?;
        if are_headers(blob, &entries)? {
            return Ok(entries);
        }
    }
    images(&archive, names, None)
}

/// Reads the images' entries, whose offsets wrapped if there are `turns`.
fn images(
    archive: &ZipArchive<&BlobReader<'_>>,
    names: &NameFilter,
    mut turns: Option<OffsetTurns>,
) -> Result<Vec<ZipEntry>, FetchError> {
    let mut entries = Vec::new();
    let mut memory = 0;
    let mut count = 0_u64;
    let mut buffer = vec![0; RECORD];
    let mut records = archive.entries(&mut buffer);
    while let Some(record) = records.next_entry().map_err(damaged)? {
        count += 1;
        let claimed = record.local_header_offset();
        let offset = turns.as_mut().map_or(claimed, |turns| turns.offset(claimed));
        let Some(entry) = ZipEntry::of_image(&record, offset, names) else { continue };
        memory += entry.memory();
        if memory > MOST_MEMORY {
            let mib = MOST_MEMORY >> 20;
            return Err(FetchError::Refused(format!("its directory takes more than {mib} MiB of memory; split it")));
        }
        entries.push(entry);
    }
    check_count(count, archive.entries_hint())?;
    entries.sort_by_key(|entry| entry.offset);
    ZipEntry::mark_overlaps(&mut entries);
    Ok(entries)
}

/// An offset of 32 bits lacks a multiple of this.
const TURN: u64 = 1 << 32;

/// Some programs (macOS's for one) write archives of more than 4 GiB with offsets of 32 bits, that of the directory
/// included. A record with a smaller offset than the one before it is a turn later.
struct OffsetTurns {
    /// The number that the parser added to every offset, so that the directory's is right.
    base: u64,
    turns: u64,
    last: u64,
}

impl OffsetTurns {
    fn offset(&mut self, claimed: u64) -> u64 {
        let low = claimed - self.base;
        self.turns += u64::from(low < self.last);
        self.last = low;
        // What is not a whole turn was put before the archive.
        (self.base % TURN).saturating_add(low).saturating_add(self.turns.saturating_mul(TURN))
    }
}

/// Returns true if the first entry of each 4 GiB is where its offset says.
fn are_headers(blob: &dyn Blob, entries: &[ZipEntry]) -> Result<bool, FetchError> {
    for first in entries.chunk_by(|a, b| a.offset / TURN == b.offset / TURN).map(|turn| &turn[0]) {
        let mut signature = [0; LOCAL_SIGNATURE.len()];
        match blob.read_at(first.offset, &mut signature) {
            Ok(()) if signature == *LOCAL_SIGNATURE => {}
            Ok(()) | Err(FetchError::Damaged(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The archive, and the directory's offset as its end record has it.
fn locate<'a>(reader: &'a BlobReader<'a>) -> Result<(ZipArchive<&'a BlobReader<'a>>, u32), FetchError> {
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
    let archive = ZipLocator::new().locate_in_reader(reader, &mut buffer, end).map_err(|(_, error)| damaged(error))?;
    Ok((archive, u32::from(u16_at(tail, at + 18)) << 16 | u32::from(u16_at(tail, at + 16))))
}

/// Returns the last record whose comment ends with the file. Comments may hold anything, records as well. Without such
/// a record, something was appended to the file, and the last record counts.
fn end_record(tail: &[u8]) -> Option<usize> {
    let mut early = None;
    for at in (0..(tail.len() + 1).saturating_sub(END)).rev().filter(|&at| tail[at..].starts_with(SIGNATURE)) {
        let end = at + END + usize::from(u16_at(tail, at + 20));
        if end == tail.len() {
            return Some(at);
        }
        if end < tail.len() && early.is_none() {
            early = Some(at);
        }
    }
    early
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
