//! Makes one output of several, which stay as they are.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::copy::Copy;
use crate::entries::each_id;
use crate::{
    Existing, InputRecord, Join, Published, RunManifest, SinkBackend, SinkError, SinkOptions, StoredRun, VectorReader,
};

/// Complete runs, and what of them goes into one output: the first row of each id, or the first failure of an id
/// without a row. All else is a duplicate.
pub struct Merge<'a> {
    runs: &'a [StoredRun],
    readers: &'a [&'a dyn VectorReader],
    /// Numbers of the duplicates, in order. All runs' rows and failures are counted, from 0.
    duplicates: Vec<u64>,
    /// Number of left-out rows whose content is another one than that of the row with this id.
    conflicts: u64,
    /// The id of the first of them.
    conflict: Option<String>,
}

impl<'a> Merge<'a> {
    /// Reads the ids of complete runs, each with its reader; only of runs without a record of inputs, that takes
    /// reading the vectors. Meanwhile it holds a table of hashes: 38 to 75 bytes for each row and failure.
    /// Afterwards, 8 bytes remain for each duplicate.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if there is no memory for the rows that the manifests count.
    pub fn new(runs: &'a [StoredRun], readers: &'a [&'a dyn VectorReader]) -> Result<Self, SinkError> {
        let count: u64 = runs.iter().map(|run| run.manifest.rows + run.manifest.failures).sum();
        let mut contents: HashMap<u128, u64> = HashMap::new();
        contents
            .try_reserve(usize::try_from(count).unwrap_or(usize::MAX))
            .map_err(|error| SinkError::damaged(Path::new("manifest.json"), format!("{count} inputs: {error}")))?;
        let (mut duplicates, mut failures, mut next) = (Vec::new(), Vec::new(), 0_u64);
        let (mut conflicts, mut conflict) = (0, None);
        for (run, reader) in runs.iter().zip(readers) {
            each_id(run, *reader, &mut |id, content| {
                let hash = xxh3_128(id.as_bytes());
                match content.map(|content| (content, contents.entry(hash))) {
                    None => failures.push((next, hash)),
                    Some((content, Entry::Vacant(entry))) => drop(entry.insert(content)),
                    Some((content, Entry::Occupied(first))) => {
                        duplicates.push(next);
                        if *first.get() != content {
                            conflicts += 1;
                            conflict.get_or_insert_with(|| id.to_owned());
                        }
                    }
                }
                next += 1;
            })?;
        }
        // All rows are known by now.
        failures.retain(|&(_, hash)| contents.insert(hash, 0).is_some());
        duplicates.extend(failures.into_iter().map(|(number, _)| number));
        duplicates.sort_unstable();
        Ok(Self { runs, readers, duplicates, conflicts, conflict })
    }

    /// Number of rows and failures that are left out.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.len() as u64
    }

    /// Number of rows that are left out although their content is another one than that of the first row with their id,
    /// and the first such id.
    pub fn conflicts(&self) -> (u64, Option<&str>) {
        (self.conflicts, self.conflict.as_deref())
    }

    /// A digest of the runs' manifests, in their order.
    pub fn digest(&self) -> String {
        let digests: String = self.runs.iter().map(|run| run.manifest.digest()).collect();
        format!("{:016x}", xxh3_64(digests.as_bytes()))
    }

    /// Writes the output of `options`, which `manifest` describes: the runs in their order, each in its own. Continues
    /// an interrupted merge. `join` adds values to those of the rows' columns.
    ///
    /// # Errors
    /// [`SinkError::AlreadyComplete`] if that was done before, and the errors of the sink and of damaged runs.
    pub fn run(
        &self,
        backend: &SinkBackend,
        options: &SinkOptions,
        manifest: &RunManifest,
        existing: Existing,
        join: Option<&Join<'_>>,
    ) -> Result<Published, SinkError> {
        let mut sink = backend.open(options)?;
        let start = sink.begin(manifest, existing)?.index;
        let mut copy = Copy::new(sink.as_mut(), start).with_join(join);
        let next = Cell::new(0);
        let keep = |record: &InputRecord| {
            let number = next.replace(next.get() + 1);
            self.duplicates.binary_search(&number).is_err().then(|| record.clone())
        };
        for (run, reader) in self.runs.iter().zip(self.readers) {
            copy.add(run, *reader, &|_| true, &keep)?;
        }
        copy.finish()
    }
}
