//! Makes one output of several, which stay as they are.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::copy::Copy;
use crate::entries::{each_id, outcomes};
use crate::{
    Existing, InputRecord, Join, Published, RunManifest, SinkBackend, SinkError, SinkOptions, StoredFailure, StoredRow,
    StoredRun, VectorReader,
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
    /// The numbers of what is taken, in this order, instead of all but the duplicates.
    chosen: Option<Vec<u64>>,
}

/// A row or failure that a merge can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeCandidate<'a> {
    /// Its number: all runs' rows and failures are counted, from 0.
    pub number: u64,
    /// The item's id, which no other candidate has.
    pub id: &'a str,
    /// It is a row, and no failure.
    pub is_row: bool,
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
        let mut duplicates = Vec::new();
        let mut failures = Vec::new();
        let mut next = 0_u64;
        let mut conflicts = 0;
        let mut conflict = None;
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
        Ok(Self { runs, readers, duplicates, conflicts, conflict, chosen: None })
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

    /// Calls `act` with all rows and failures that are no duplicates, in order. Only of runs without a record of
    /// inputs, that takes reading the vectors.
    ///
    /// # Errors
    /// Those of damaged runs.
    pub fn each_candidate(&self, act: &mut dyn FnMut(MergeCandidate<'_>)) -> Result<(), SinkError> {
        let mut number = 0;
        for (run, reader) in self.runs.iter().zip(self.readers) {
            each_id(run, *reader, &mut |id, content| {
                if self.duplicates.binary_search(&number).is_err() {
                    act(MergeCandidate { number, id, is_row: content.is_some() });
                }
                number += 1;
            })?;
        }
        Ok(())
    }

    /// Takes the candidates with these numbers, in this order, instead of all.
    pub fn choose(&mut self, numbers: Vec<u64>) {
        self.chosen = Some(numbers);
    }

    /// A digest of the runs' manifests, in their order, and of what was chosen.
    pub fn digest(&self) -> String {
        let mut digests: String = self.runs.iter().map(|run| run.manifest.digest()).collect();
        if let Some(chosen) = &self.chosen {
            let bytes: Vec<u8> = chosen.iter().flat_map(|number| number.to_le_bytes()).collect();
            digests.push_str(&format!("{:016x}", xxh3_64(&bytes)));
        }
        format!("{:016x}", xxh3_64(digests.as_bytes()))
    }

    /// Writes the output of `options`, which `manifest` describes: the runs in their order, each in its own, or what
    /// was chosen. That is kept in a file in the system's folder of temporary files if its order is another one.
    /// Continues an interrupted merge. `join` adds values to those of the rows' columns.
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
        if let Some(chosen) = self.chosen.as_ref().filter(|chosen| !chosen.is_sorted()) {
            let places: HashMap<u64, u64> = chosen.iter().copied().zip(0..).collect();
            let mut held = HeldOutcomes::new(manifest.dim, chosen.len())?;
            let mut number = 0;
            for (run, reader) in self.runs.iter().zip(self.readers) {
                outcomes(run, *reader, &|_| true, &mut |record, outcome| {
                    number += 1;
                    places.get(&(number - 1)).map_or(Ok(()), |&place| held.put(place, record, outcome))
                })?;
            }
            held.copy_to(&mut copy)?;
            return copy.finish();
        }
        let next = Cell::new(0);
        for (run, reader) in self.runs.iter().zip(self.readers) {
            copy.add(run, *reader, &|_| true, &|record| {
                let number = next.replace(next.get() + 1);
                let is_taken = match &self.chosen {
                    Some(chosen) => chosen.binary_search(&number).is_ok(),
                    None => self.duplicates.binary_search(&number).is_err(),
                };
                is_taken.then(|| record.clone())
            })?;
        }
        copy.finish()
    }
}

/// Rows and failures that come in another order than they go. The vectors are in a file.
struct HeldOutcomes {
    file: File,
    /// Bytes of a vector.
    stride: u64,
    rest: Vec<Option<HeldOutcome>>,
}

/// A row without its vector, or a failure.
struct HeldOutcome {
    record: InputRecord,
    width: u32,
    height: u32,
    xxh3: u64,
    columns: Vec<Option<String>>,
    failure: Option<StoredFailure>,
}

impl HeldOutcomes {
    fn new(dim: usize, count: usize) -> Result<Self, SinkError> {
        let file = tempfile::tempfile().map_err(SinkError::io("create a file in", &std::env::temp_dir()))?;
        Ok(Self { file, stride: 4 * dim as u64, rest: (0..count).map(|_| None).collect() })
    }

    fn put(
        &mut self,
        place: u64,
        record: InputRecord,
        outcome: Result<&StoredRow<'_>, StoredFailure>,
    ) -> Result<(), SinkError> {
        let held = match outcome {
            Ok(row) => {
                let bytes: Vec<u8> = row.vector.iter().flat_map(|number| number.to_le_bytes()).collect();
                let written = self.file.seek(SeekFrom::Start(place * self.stride));
                let written = written.and_then(|_| self.file.write_all(&bytes));
                written.map_err(SinkError::io("write a file in", &std::env::temp_dir()))?;
                let StoredRow { width, height, xxh3, columns, .. } = *row;
                HeldOutcome { record, width, height, xxh3, columns: columns.to_vec(), failure: None }
            }
            Err(failure) => {
                HeldOutcome { record, width: 0, height: 0, xxh3: 0, columns: Vec::new(), failure: Some(failure) }
            }
        };
        self.rest[place as usize] = Some(held);
        Ok(())
    }

    fn copy_to(mut self, copy: &mut Copy<'_>) -> Result<(), SinkError> {
        let mut bytes = vec![0; self.stride as usize];
        for (place, held) in self.rest.into_iter().enumerate() {
            let Some(HeldOutcome { record, width, height, xxh3, columns, failure }) = held else { continue };
            if let Some(failure) = failure {
                copy.take_outcome(record, Err(failure))?;
                continue;
            }
            let read = self.file.seek(SeekFrom::Start(place as u64 * self.stride));
            let read = read.and_then(|_| self.file.read_exact(&mut bytes));
            read.map_err(SinkError::io("read a file in", &std::env::temp_dir()))?;
            let vector: Vec<f32> = bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
            let id = record.id.clone();
            let row = StoredRow { id: &id, vector: &vector, width, height, xxh3, columns: &columns };
            copy.take_outcome(record, Ok(&row))?;
        }
        Ok(())
    }
}
