//! Makes one output of several, which stay as they are.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::fold::{Copy, each_id};
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
}

impl<'a> Merge<'a> {
    /// Reads the ids of complete runs, each with its reader; only of runs without a record of inputs, that takes
    /// reading the vectors. Meanwhile it holds a set of 128-bit hashes: 20 to 39 bytes for each row and failure.
    /// Afterwards, 8 bytes remain for each duplicate.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if there is no memory for the rows that the manifests count.
    pub fn new(runs: &'a [StoredRun], readers: &'a [&'a dyn VectorReader]) -> Result<Self, SinkError> {
        let count: u64 = runs.iter().map(|run| run.manifest.rows + run.manifest.failures).sum();
        let mut ids = HashSet::new();
        ids.try_reserve(usize::try_from(count).unwrap_or(usize::MAX))
            .map_err(|error| SinkError::damaged(Path::new("manifest.json"), format!("{count} inputs: {error}")))?;
        let (mut duplicates, mut failures, mut next) = (Vec::new(), Vec::new(), 0_u64);
        for (run, reader) in runs.iter().zip(readers) {
            each_id(run, *reader, &mut |id, is_row| {
                let hash = xxh3_128(id.as_bytes());
                match is_row {
                    false => failures.push((next, hash)),
                    true if !ids.insert(hash) => duplicates.push(next),
                    true => {}
                }
                next += 1;
            })?;
        }
        // All rows are known by now.
        duplicates.extend(failures.into_iter().filter(|&(_, hash)| !ids.insert(hash)).map(|(number, _)| number));
        duplicates.sort_unstable();
        Ok(Self { runs, readers, duplicates })
    }

    /// Number of rows and failures that are left out.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.len() as u64
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
