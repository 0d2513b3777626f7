//! A run's inputs, each with its row or failure.

use std::path::PathBuf;

use crate::{ActOnRow, InputRecord, Shape, SinkError, Stamp, StoredFailure, StoredRow, StoredRun, VectorReader};

/// An input of a run, and what became of it.
pub(crate) struct InputOutcome {
    /// Number of its part in the manifest's order; of a failure, the part of the row before.
    pub(crate) part: usize,
    pub(crate) record: InputRecord,
    pub(crate) failure: Option<StoredFailure>,
}

/// A run's inputs, in the order in which they were stored.
pub(crate) fn entries(
    run: &StoredRun,
) -> Result<impl Iterator<Item = Result<InputOutcome, SinkError>> + use<>, SinkError> {
    let mut failures = run.failures()?.peekable();
    let rows: Vec<u64> = run.manifest.parts.iter().map(|part| part.rows).collect();
    let mut part = 0;
    let mut used = 0;
    let records = run.inputs()?.map(|inputs| inputs.read()).transpose()?;
    Ok(records.into_iter().flatten().map(move |record| {
        let record = record?;
        let failure =
            failures.next_if(|next| next.as_ref().is_ok_and(|failure| failure.id == record.id)).transpose()?;
        if failure.is_none() {
            while rows.get(part).is_some_and(|&rows| used == rows) {
                part += 1;
                used = 0;
            }
            used += 1;
        }
        Ok(InputOutcome { part, record, failure })
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
            let InputOutcome { record, failure, .. } = entry?;
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

/// Gets a row with the record of its input.
pub type ActOnRecordedRow<'a> = dyn FnMut(&InputRecord, &StoredRow<'_>) -> Result<(), SinkError> + 'a;

/// A run's inputs, read in step with its rows.
struct Beside<I> {
    entries: I,
    /// The record of the inputs.
    path: PathBuf,
}

impl<I: Iterator<Item = Result<InputOutcome, SinkError>>> Beside<I> {
    /// The next input that has a row, if there is one. `act` gets those before it, which failed.
    fn next(
        &mut self,
        act: &mut dyn FnMut(InputRecord, StoredFailure) -> Result<(), SinkError>,
    ) -> Result<Option<InputRecord>, SinkError> {
        for entry in self.entries.by_ref() {
            let InputOutcome { record, failure, .. } = entry?;
            match failure {
                None => return Ok(Some(record)),
                Some(failure) => act(record, failure)?,
            }
        }
        Ok(None)
    }

    /// The input of a row, which is the next one.
    fn of_row(
        &mut self,
        row: &StoredRow<'_>,
        act: &mut dyn FnMut(InputRecord, StoredFailure) -> Result<(), SinkError>,
    ) -> Result<InputRecord, SinkError> {
        match self.next(act)? {
            Some(record) if record.id == row.id => Ok(record),
            Some(record) => Err(self.damaged(format!("the row of {} is that of {}", record.id, row.id))),
            None => Err(self.damaged(format!("{} has a row, but is no input", row.id))),
        }
    }

    /// Passes the failures after the last row.
    fn end(
        &mut self,
        act: &mut dyn FnMut(InputRecord, StoredFailure) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        match self.next(act)? {
            Some(record) => Err(self.damaged(format!("{} has neither a row nor a failure", record.id))),
            None => Ok(()),
        }
    }

    fn damaged(&self, reason: String) -> SinkError {
        SinkError::damaged(&self.path, reason)
    }
}

/// Calls `act` with each row and each failure of those parts for which `has` returns true, by their numbers in the
/// manifest's order. Of a run without a record of its inputs, which has all parts, the failures come last.
pub(crate) fn outcomes(
    run: &StoredRun,
    reader: &dyn VectorReader,
    has: &dyn Fn(usize) -> bool,
    act: &mut ActOnOutcome<'_>,
) -> Result<(), SinkError> {
    if !run.has_inputs() {
        return unrecorded(run, reader, act);
    }
    let entries = entries(run)?.filter(|entry| entry.as_ref().map_or(true, |entry| has(entry.part)));
    let mut beside = Beside { entries, path: run.record_of_inputs() };
    let shape = Shape::of(&run.manifest)?;
    for (_, part) in run.manifest.parts.iter().enumerate().filter(|(number, _)| has(*number)) {
        run.part_rows(part, &shape, reader, &mut |row| {
            let record = beside.of_row(row, &mut |record, failure| act(record, Err(failure)))?;
            act(record, Ok(row))
        })?;
    }
    beside.end(&mut |record, failure| act(record, Err(failure)))
}

fn unrecorded(run: &StoredRun, reader: &dyn VectorReader, act: &mut ActOnOutcome<'_>) -> Result<(), SinkError> {
    each_row(run, reader, &mut |record, row| act(record.clone(), Ok(row)))?;
    for failure in run.failures()? {
        let failure = failure?;
        act(unknown(&failure.id, None), Err(failure))?;
    }
    Ok(())
}

/// Calls `act` with each row, and what it says about its input.
fn each_row(run: &StoredRun, reader: &dyn VectorReader, act: &mut ActOnRecordedRow<'_>) -> Result<(), SinkError> {
    let shape = Shape::of(&run.manifest)?;
    for part in &run.manifest.parts {
        run.part_rows(part, &shape, reader, &mut |row| act(&unknown(row.id, Some(row.xxh3)), row))?;
    }
    Ok(())
}

fn unknown(id: &str, xxh3: Option<u64>) -> InputRecord {
    InputRecord { id: id.to_owned(), stamp: Stamp::default(), xxh3, content: None, place: 0 }
}

impl StoredRun {
    /// Calls `act` with each row of the parts and the record of its input, in the order in which they were stored. If
    /// the records were left behind, no more is known of an input than its row says.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also if a row has no record, or a record neither a row nor a failure.
    pub fn recorded_rows(&self, reader: &dyn VectorReader, act: &mut ActOnRecordedRow<'_>) -> Result<(), SinkError> {
        if !self.has_inputs() || entries(self).is_err() {
            return each_row(self, reader, act);
        }
        outcomes(self, reader, &|_| true, &mut |record, outcome| match outcome {
            Ok(row) => act(&record, row),
            Err(_) => Ok(()),
        })
    }

    /// Calls `act` with each row as [`Self::rows`] does, and checks that rows and failures are exactly those of the
    /// recorded inputs.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] also for an input without a row or failure, and for a row or failure without an input.
    pub fn checked_rows(&mut self, reader: &dyn VectorReader, act: &mut ActOnRow<'_>) -> Result<u64, SinkError> {
        if self.inputs()?.is_none() {
            return self.rows(reader, act);
        }
        let recorded = self.manifest.failures;
        let mut failures = 0;
        let mut beside = Beside { entries: entries(self)?, path: self.record_of_inputs() };
        let mut count = |_, _| {
            failures += 1;
            Ok(())
        };
        let rows = self.rows(reader, &mut |row| match beside.of_row(row, &mut count)? {
            record if record.xxh3 == Some(row.xxh3) => act(row),
            record => Err(beside.damaged(format!("the row of {} is of another content", record.id))),
        })?;
        beside.end(&mut count)?;
        match recorded == failures {
            true => Ok(rows),
            false => {
                let reason = format!("{failures} of its inputs failed, but {recorded} failures were recorded");
                Err(beside.damaged(reason))
            }
        }
    }
}
