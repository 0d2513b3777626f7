//! [`LmdbFormat`]: an environment written from a finished part.

use foveate_sink::parts::{PartFiles, PartFormat, RowBlock, StoredPart};
use foveate_sink::staging::remove_if_there;
use foveate_sink::{RunManifest, SinkError};
use lmdb::{Error, RwTransaction, WriteFlags};

use crate::layout::{Head, MANIFEST, is_key, push_value, stand_in};
use crate::store::{LmdbEnvironment, copy_sorted};

/// Rows in memory, and in a transaction, at a time.
const BLOCK: usize = 4096;

/// `x.lmdb`: vectors by id, in an environment in a single file.
///
/// The rows are in the part store's log during the run. At a part's end they go into a temporary environment, whose
/// content is then copied in key order, so that the file is as small as possible and has the same bytes for the same
/// rows. An interrupted attempt begins anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct LmdbFormat;

impl PartFormat for LmdbFormat {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn extension(&self) -> &'static str {
        "lmdb"
    }

    fn encode(&mut self, part: &StoredPart<'_>, manifest: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let unsorted = files.vectors.with_extension("unsorted");
        remove_if_there(&unsorted)?;
        remove_if_there(&files.vectors)?;
        let rows = LmdbEnvironment::create(&unsorted)?;
        fill(&rows, part)?;
        let sorted = LmdbEnvironment::create(&files.vectors)?;
        copy_sorted(&rows, &sorted)?;
        let manifest = serde_json::to_vec(manifest).expect("a manifest is plain data and always has a JSON form");
        sorted.write(|transaction| transaction.put(sorted.meta, &MANIFEST, &manifest, WriteFlags::empty()))?;
        sorted.sync()?;
        drop(rows);
        remove_if_there(&unsorted)
    }
}

/// Puts a part's rows into an empty environment.
fn fill(store: &LmdbEnvironment, part: &StoredPart<'_>) -> Result<(), SinkError> {
    let mut rows = part.reader();
    let mut last = Vec::new();
    while let Some(block) = rows.next_block(BLOCK)? {
        last = store.write(|transaction| put(transaction, store, part, block, &last))?;
    }
    Ok(())
}

/// Puts a block's rows, and returns the greatest key after them. `last` is the one before.
fn put(
    transaction: &mut RwTransaction<'_>,
    store: &LmdbEnvironment,
    part: &StoredPart<'_>,
    block: &RowBlock,
    last: &[u8],
) -> lmdb::Result<Vec<u8>> {
    let mut last = last.to_owned();
    let mut value = Vec::new();
    let vectors = block.vectors().chunks_exact(part.dim() * part.element().bytes());
    for (row, (id, vector)) in block.ids().zip(vectors).enumerate() {
        let head = Head {
            element: part.element(),
            dim: part.dim(),
            index: block.index()[row],
            width: block.width()[row],
            height: block.height()[row],
            xxh3: block.xxh3()[row],
        };
        let id = id.as_bytes();
        let order = head.index.to_be_bytes();
        push_value(&mut value, &head, b"", vector);
        if is_key(id) && put_new(transaction, store, id, &value, &last)? {
            transaction.put(store.order, &order, &id, WriteFlags::APPEND)?;
            if id > last.as_slice() {
                last = id.to_owned();
            }
        } else {
            let key = stand_in(id, head.index);
            push_value(&mut value, &head, id, vector);
            transaction.put(store.vectors, &key, &value, WriteFlags::NO_OVERWRITE)?;
            transaction.put(store.order, &order, &key, WriteFlags::APPEND)?;
        }
    }
    Ok(last)
}

/// Puts a row under its id, unless an earlier row has that key.
fn put_new(
    transaction: &mut RwTransaction<'_>,
    store: &LmdbEnvironment,
    id: &[u8],
    value: &[u8],
    last: &[u8],
) -> lmdb::Result<bool> {
    // Beyond the last key LMDB need not search, and it fills the page before it starts another.
    let flags = if id > last { WriteFlags::APPEND } else { WriteFlags::NO_OVERWRITE };
    match transaction.put(store.vectors, &id, &value, flags) {
        Err(Error::KeyExist) => Ok(false),
        result => result.map(|()| true),
    }
}
