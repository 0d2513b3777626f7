//! A run's inputs beside what became of each.

use crate::{ActOnRow, InputRecord, Shape, SinkError, StoredFailure, StoredRow, StoredRun, VectorReader};

/// An input of a run, and what became of it.
pub(crate) struct Entry {
    /// Number of its part in the manifest's order; of a failure, the part of the row before.
    pub(crate) part: usize,
    pub(crate) record: InputRecord,
    pub(crate) failure: Option<StoredFailure>,
}

/// A run's inputs, in the order in which they were stored.
pub(crate) fn entries(run: &StoredRun) -> Result<impl Iterator<Item = Result<Entry, SinkError>> + use<>, SinkError> {
    let mut failures = run.failures()?.peekable();
    let rows: Vec<u64> = run.manifest.parts.iter().map(|part| part.rows).collect();
    let (mut part, mut used) = (0, 0);
    let records = run.inputs()?.map(|inputs| inputs.read()).transpose()?;
    Ok(records.into_iter().flatten().map(move |record| {
        let record = record?;
        let is_next =
            |failure: &Result<StoredFailure, _>| failure.as_ref().is_ok_and(|failure| failure.id == record.id);
        let failure = failures.next_if(is_next).transpose()?;
        if failure.is_none() {
            while rows.get(part).is_some_and(|&rows| used == rows) {
                (part, used) = (part + 1, 0);
            }
            used += 1;
        }
        Ok(Entry { part, record, failure })
    }))
}

/// Calls `act` with the id of each row and failure, in the order in which an update and a merge take all, and with the
/// hash of a row's content.
pub(crate) fn each_id(
    run: &StoredRun,
    reader: &dyn VectorReader,
    act: &mut impl FnMut(&str, Option<u64>),
) -> Result<(), SinkError> {
    if run.has_inputs() {
        return entries(run)?.try_for_each(|entry| {
            let Entry { record, failure, .. } = entry?;
            act(&record.id, if failure.is_none() { Some(record.xxh3.unwrap_or_default()) } else { None });
            Ok(())
        });
    }
    unrecorded(run, reader, &mut |record, outcome| {
        act(&record.id, outcome.ok().map(|row| row.xxh3));
        Ok(())
    })
}

/// Gets a row, or a failure, with the record of its input.
pub(crate) type ActOnOutcome<'a> =
    dyn FnMut(InputRecord, Result<&StoredRow<'_>, StoredFailure>) -> Result<(), SinkError> + 'a;

/// Calls `act` with each row of a run without a record of its inputs, then with each failure.
pub(crate) fn unrecorded(
    run: &StoredRun,
    reader: &dyn VectorReader,
    act: &mut ActOnOutcome<'_>,
) -> Result<(), SinkError> {
    let shape = Shape::of(&run.manifest)?;
    let record = |id: &str, xxh3| InputRecord { id: id.to_owned(), stamp: None, xxh3, place: 0 };
    for part in &run.manifest.parts {
        run.part_rows(part, &shape, reader, &mut |row| act(record(row.id, Some(row.xxh3)), Ok(row)))?;
    }
    run.failures()?.try_for_each(|failure| failure.and_then(|failure| act(record(&failure.id, None), Err(failure))))
}

impl StoredRun {
    /// Calls `act` with each row as [`Self::rows`] does, and checks that rows and failures are exactly those of the
    /// recorded inputs.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also for an input without a row or failure, and for a row or failure without an input.
    pub fn checked_rows(&mut self, reader: &dyn VectorReader, act: &mut ActOnRow<'_>) -> Result<u64, SinkError> {
        let [record, _failures] = &self.manifest.records[..] else { return self.rows(reader, act) };
        let path = self.records_path(&record.name);
        if self.inputs()?.is_none() {
            return self.rows(reader, act);
        }
        let (mut entries, mut failures) = (entries(self)?, 0);
        let mut next_row = || {
            for entry in entries.by_ref() {
                let Entry { record, failure, .. } = entry?;
                if failure.is_none() {
                    return Ok(Some(record));
                }
                failures += 1;
            }
            Ok::<_, SinkError>(None)
        };
        let rows = self.rows(reader, &mut |row| match next_row()? {
            Some(record) if record.id == row.id && record.xxh3 == Some(row.xxh3) => act(row),
            Some(record) => Err(SinkError::damaged(&path, format!("the row of {} is that of {}", record.id, row.id))),
            None => Err(SinkError::damaged(&path, format!("{} has a row, but is no input", row.id))),
        })?;
        if let Some(record) = next_row()? {
            return Err(SinkError::damaged(&path, format!("{} has neither a row nor a failure", record.id)));
        }
        match self.manifest.failures == failures {
            true => Ok(rows),
            false => Err(SinkError::damaged(
                &path,
                format!("{failures} of its inputs failed, but {} failures were recorded", self.manifest.failures),
            )),
        }
    }
}
