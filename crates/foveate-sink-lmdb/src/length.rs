//! A database file's length against what its newest transaction needs.
//!
//! LMDB maps the file, and the system would kill the process at the first page that is missing. LMDB does not write
//! free pages, so a whole file may be shorter than its meta page says: after a commit, and for ever if the power fails
//! then. So the missing pages have to be in the list of free pages, which this module reads without a map.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use foveate_sink::SinkError;

/// Checks that every page in use is within the file.
pub(crate) fn check(file: &Path) -> Result<(), SinkError> {
    // With 32 bits the fields have other places.
    if cfg!(not(target_pointer_width = "64")) {
        return Ok(());
    }
    let mut database = Database(File::open(file).map_err(SinkError::io("open", file))?);
    let mut seen = None;
    loop {
        let newest = database.newest().ok_or_else(|| SinkError::damaged(file, "it is not a database of LMDB 0.9"))?;
        let found = database.0.metadata().map_err(SinkError::io("inspect", file))?.len();
        let len = newest.last_page.saturating_add(1).saturating_mul(newest.page_size);
        if found >= len || database.lacks_only_free_pages(&newest, found / newest.page_size) {
            return Ok(());
        }
        // A writer may have reused the list's pages while this process read them.
        if seen == Some(newest.transaction) {
            return Err(SinkError::damaged(file, format!("{found} bytes long, but its pages take {len}")));
        }
        seen = Some(newest.transaction);
    }
}

/// A database file, read without a map. The layouts are those of LMDB 0.9's `mdb.c`, in the machine's byte order.
struct Database(File);

/// Bytes of a page before its content.
const HEADER: u64 = 16;

/// The fields of a meta page that say how long the file is, and where its free pages are listed.
struct Meta {
    page_size: u64,
    /// Root of the tree of free pages.
    free: u64,
    last_page: u64,
    transaction: u64,
}

impl Database {
    /// The newest transaction's meta page.
    fn newest(&mut self) -> Option<Meta> {
        let first = Meta::parse(&self.read(0, Meta::LEN)?)?;
        let second = Meta::parse(&self.read(first.page_size, Meta::LEN)?)?;
        Some(if second.transaction > first.transaction { second } else { first })
    }

    /// Whether every page from `end` on is free.
    fn lacks_only_free_pages(&mut self, newest: &Meta, end: u64) -> bool {
        self.free_pages(newest, end).is_some_and(|free| free.into_iter().eq(end..=newest.last_page))
    }

    /// The free pages from `end` on, in order. `None`: their tree is not whole.
    fn free_pages(&mut self, newest: &Meta, end: u64) -> Option<Vec<u64>> {
        const BRANCH: u16 = 1;
        const LEAF: u16 = 2;
        let (mut tree, mut seen, mut free) = (vec![newest.free], BTreeSet::new(), Vec::new());
        while let Some(page) = tree.pop() {
            let bytes = self.read(page.checked_mul(newest.page_size)?, newest.page_size)?;
            let kind = u16_at(&bytes, 10)?;
            let offsets = bytes.get(16..usize::from(u16_at(&bytes, 12)?))?;
            for offset in offsets.as_chunks().0 {
                let node = bytes.get(usize::from(u16::from_ne_bytes(*offset))..)?;
                match kind {
                    BRANCH => tree.push(child(node)?),
                    LEAF => free.extend(self.list(newest, node)?.into_iter().filter(|page| *page >= end)),
                    _ => return None,
                }
            }
            // A damaged tree may lead in a circle, or name pages without end.
            if !seen.insert(page) || free.len() as u64 > newest.last_page {
                return None;
            }
        }
        free.sort_unstable();
        Some(free)
    }

    /// The pages that a leaf's node lists: their number and they themselves, in the node or in pages of their own.
    fn list(&mut self, newest: &Meta, node: &[u8]) -> Option<Vec<u64>> {
        const ELSEWHERE: u16 = 1;
        let len = u32_at(node, 0)?;
        let data = node.get(8 + usize::from(u16_at(node, 6)?)..)?;
        let list = if u16_at(node, 4)? & ELSEWHERE == 0 {
            data.get(..usize::try_from(len).ok()?)?.to_owned()
        } else {
            let page = u64_at(data, 0)?.checked_mul(newest.page_size)?;
            self.read(page.checked_add(HEADER)?, len.into())?
        };
        let pages: Vec<u64> = list.as_chunks().0.iter().map(|page| u64::from_ne_bytes(*page)).collect();
        let (count, pages) = pages.split_first()?;
        Some(pages.get(..usize::try_from(*count).ok()?)?.to_owned())
    }

    /// So many bytes from a place on; `None` if they are not all there.
    fn read(&mut self, at: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.seek(SeekFrom::Start(at)).ok()?;
        // A length that is not true takes no more memory than the file has bytes.
        let read = (&self.0).take(len).read_to_end(&mut bytes).ok()?;
        (read as u64 == len).then_some(bytes)
    }
}

impl Meta {
    /// The page's header, magic and version, address, map size, two databases of 48 bytes, last page, transaction. The
    /// first database is the tree of free pages; its first field is the page size.
    const LEN: u64 = 152;
    const MAGIC: u32 = 0xBEEF_C0DE;

    fn parse(bytes: &[u8]) -> Option<Self> {
        let meta = Self {
            page_size: u32_at(bytes, 40)?.into(),
            free: u64_at(bytes, 80)?,
            last_page: u64_at(bytes, 136)?,
            transaction: u64_at(bytes, 144)?,
        };
        (u32_at(bytes, 16)? == Self::MAGIC && meta.page_size > 0).then_some(meta)
    }
}

/// The page below a branch's node: 48 bits in two fields.
fn child(node: &[u8]) -> Option<u64> {
    Some(u64::from(u32_at(node, 0)?) | u64::from(u16_at(node, 4)?) << 32)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lmdb::{Transaction, WriteFlags};

    use super::*;
    use crate::store::Store;

    /// A database whose last pages are free: a value of many pages came and went within its last transaction. Its list
    /// of free pages fills pages of its own.
    fn with_free_end(file: &Path, values: u64) -> Store {
        let store = Store::create_private(file, 64 << 20).unwrap();
        let key = |at: u64| at.to_be_bytes();
        for round in 0..3 {
            let put = store.write(|txn| {
                (0..values).try_for_each(|at| txn.put(store.vectors, &key(at), &[round; 3000], WriteFlags::empty()))
            });
            put.unwrap();
        }
        // More than fits into the pages that are free already.
        let large = vec![9; 100_000 + 16_384 * values as usize];
        let come_and_go = store.write(|txn| {
            (0..values).filter(|at| at % 2 == 1).try_for_each(|at| txn.del(store.vectors, &key(at), None))?;
            txn.put(store.vectors, b"large", &large, WriteFlags::empty())?;
            txn.del(store.vectors, b"large", None)
        });
        come_and_go.unwrap();
        store.sync().unwrap();
        store
    }

    /// Reads every value through the map.
    fn sum(file: &Path) -> Result<u64, SinkError> {
        let store = Store::open_quiet(file)?;
        let last = store.last_key(store.vectors)?.unwrap();
        let snapshot = store.read()?;
        let last = u64::from_be_bytes(last.try_into().unwrap());
        let values = (0..=last).step_by(2).map(|at| snapshot.get(store.vectors, &at.to_be_bytes()).unwrap());
        Ok(values.flatten().map(|byte| u64::from(*byte)).sum())
    }

    #[test]
    fn missing_pages_are_free_or_the_file_is_refused() {
        for values in [4, 40, 1000] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("x.lmdb");
            drop(with_free_end(&file, values));
            let whole = fs::read(&file).unwrap();
            let newest = Database(File::open(&file).unwrap()).newest().unwrap();
            assert!((whole.len() as u64) < (newest.last_page + 1) * newest.page_size, "LMDB left its end out");
            let expected = sum(&file).unwrap();
            let (mut read, mut refused) = (0, 0);
            let ends = (0..whole.len()).rev().step_by(whole.len() / 50);
            for end in ends.chain([0, 1, 4096, 4200, 8191, 8192]) {
                fs::write(&file, &whole[..end]).unwrap();
                match sum(&file) {
                    Ok(found) => {
                        assert_eq!(found, expected, "{end} of {} bytes", whole.len());
                        read += 1;
                    }
                    Err(SinkError::Damaged { .. }) => refused += 1,
                    Err(error) => panic!("{end} of {} bytes: {error:?}", whole.len()),
                }
            }
            assert!(read < refused, "{read} cut files were read, {refused} refused");
        }
    }

    #[test]
    fn a_damaged_list_of_free_pages_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.lmdb");
        drop(with_free_end(&file, 4));
        let whole = fs::read(&file).unwrap();
        let newest = Database(File::open(&file).unwrap()).newest().unwrap();
        let root = usize::try_from(newest.free * newest.page_size).unwrap();
        for at in (root..root + 4096).step_by(3) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            fs::write(&file, &damaged).unwrap();
            drop(check(&file));
        }
    }
}
