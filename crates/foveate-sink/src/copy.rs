//! Copies what runs have stored to a sink.

use crate::entries::{InputOutcome, entries, outcomes};
use crate::{
    Failure, InputRecord, Published, RowBuffer, SinkError, StoredFailure, StoredRow, StoredRun, VectorReader,
    VectorSink, Watermark,
};

/// Rows, or records, between two calls of a sink.
const BLOCK: usize = 1024;
/// Items between two commits.
const COMMIT: u64 = 65_536;

/// Decides what becomes of an input of the output: its record from now on, or `None` if its row or failure goes.
pub type Keep<'a> = dyn Fn(&InputRecord) -> Option<InputRecord> + 'a;

/// Adds the further columns of the row with this id to its values.
pub type Join<'a> = dyn Fn(&str, &mut Vec<Option<String>>) + 'a;

/// Copies rows, failures and records of inputs to a sink.
pub(crate) struct Copy<'a> {
    sink: &'a mut dyn VectorSink,
    /// The sink has what lies below this index.
    start: u64,
    next: u64,
    rows: RowBuffer,
    failures: Vec<Failure>,
    inputs: Vec<InputRecord>,
    join: Option<&'a Join<'a>>,
}

impl<'a> Copy<'a> {
    pub(crate) fn new(sink: &'a mut dyn VectorSink, start: u64) -> Self {
        let rows = RowBuffer::default();
        Self { sink, start, next: 0, rows, failures: Vec::new(), inputs: Vec::new(), join: None }
    }

    pub(crate) fn with_join(self, join: Option<&'a Join<'a>>) -> Self {
        Self { join, ..self }
    }

    /// Copies the parts for which `has` returns true, by their numbers in the manifest's order.
    pub(crate) fn add(
        &mut self,
        run: &StoredRun,
        reader: &dyn VectorReader,
        has: &dyn Fn(usize) -> bool,
        keep: &Keep<'_>,
    ) -> Result<(), SinkError> {
        outcomes(run, reader, has, &mut |record, outcome| match outcome {
            Ok(row) => self.take_row(row, keep(&record)),
            Err(failure) => self.take_record(&record, failure, keep),
        })
    }

    /// Takes the parts for which `has` returns true as they are, each with its records.
    pub(crate) fn adopt(
        &mut self,
        run: &StoredRun,
        is_later: bool,
        has: &dyn Fn(usize) -> bool,
        keep: &Keep<'_>,
    ) -> Result<(), SinkError> {
        let mut adopted = None;
        self.commit()?;
        for entry in entries(run)? {
            let InputOutcome { part, record, failure } = entry?;
            if !has(part) {
                continue;
            }
            if adopted != Some(part)
                && let Some(whole) = run.manifest.parts.get(part).filter(|part| part.rows > 0)
            {
                self.commit()?;
                self.sink.adopt(whole, is_later)?;
                adopted = Some(part);
            }
            let Some(record) = keep(&record) else { continue };
            if let Some(failure) = failure {
                self.failures.push(failure.at(self.next));
            }
            self.next += 1;
            self.inputs.push(record);
            if self.inputs.len() >= BLOCK {
                self.flush()?;
            }
        }
        self.commit()
    }

    /// Takes a row or a failure as it is.
    pub(crate) fn take_outcome(
        &mut self,
        record: InputRecord,
        outcome: Result<&StoredRow<'_>, StoredFailure>,
    ) -> Result<(), SinkError> {
        match outcome {
            Ok(row) => self.take_row(row, Some(record)),
            Err(failure) => self.take_record(&record, failure, &|record| Some(record.clone())),
        }
    }

    fn take_row(&mut self, row: &StoredRow<'_>, record: Option<InputRecord>) -> Result<(), SinkError> {
        let Some(record) = record else { return Ok(()) };
        let mut columns = row.columns.to_vec();
        self.join.iter().for_each(|join| join(row.id, &mut columns));
        if self.next >= self.start {
            self.rows.push(self.next, &StoredRow { columns: &columns, ..*row });
        }
        self.take(record)
    }

    fn take_record(&mut self, record: &InputRecord, failure: StoredFailure, keep: &Keep<'_>) -> Result<(), SinkError> {
        let Some(record) = keep(record) else { return Ok(()) };
        if self.next >= self.start {
            self.failures.push(failure.at(self.next));
        }
        self.take(record)
    }

    /// Takes the record of the next index, whose row or failure is there.
    fn take(&mut self, record: InputRecord) -> Result<(), SinkError> {
        self.next += 1;
        if self.next <= self.start {
            return Ok(());
        }
        self.inputs.push(record);
        if self.inputs.len() >= BLOCK {
            self.flush()?;
        }
        if self.next.is_multiple_of(COMMIT) { self.commit() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if !self.rows.is_empty() {
            self.sink.append(&self.rows.rows())?;
        }
        if !self.failures.is_empty() {
            self.sink.fail(&self.failures)?;
        }
        self.sink.record(&self.inputs)?;
        self.rows.clear();
        self.failures.clear();
        self.inputs.clear();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        if self.next > self.start { self.sink.commit(Watermark::from(self.next)) } else { Ok(()) }
    }

    pub(crate) fn finish(mut self) -> Result<Published, SinkError> {
        self.commit()?;
        self.sink.finish()
    }
}
