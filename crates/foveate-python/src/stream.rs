//! Whole jobs as streams of record batches.

use std::convert::Infallible;
use std::ffi::OsString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use foveate::cli::EmbedCall;
use foveate::collect::{Collected, MemorySink};
use foveate::core::lock;
use foveate::embed::{Backends, Settings};
use foveate::pipeline::Cancel;
use foveate::sink::{Existing, Failure, InputRecord, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate::source::Source;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::batch::{PyBatch, batch, schema};
use crate::capsule::{export_schema, export_stream};
use crate::errors::{chain, failed, usage};
use crate::interrupt::INTERVAL;
use crate::process::OwnedByProcess;
use crate::said::{Said, Teller};

/// Finished batches that wait for the reader.
const AHEAD: usize = 2;

/// The job's messages: batches, and last the error that ended it.
type Message = Result<RecordBatch, String>;

/// A job's outcomes as record batches, in the order of its inputs. It stops when it is closed or dropped.
#[pyclass(frozen, module = "foveate")]
pub(crate) struct Batches {
    schema: SchemaRef,
    /// `None` once it is exhausted, closed, or handed to another library, and while a call waits.
    job: Mutex<Option<OwnedByProcess<StreamJob>>>,
    cancel: Cancel,
    teller: Teller,
}

/// The reader's end of a running job.
struct StreamJob {
    batches: Receiver<Message>,
    cancel: Cancel,
}

impl Drop for StreamJob {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl StreamJob {
    /// Waits for a message until the job is cancelled, and calls `each` at intervals.
    fn next<E>(&mut self, mut each: impl FnMut() -> Result<(), E>) -> Result<Option<Message>, E> {
        while !self.cancel.is_cancelled() {
            match self.batches.recv_timeout(INTERVAL) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => each()?,
            }
        }
        Ok(None)
    }

    /// Waits without the interpreter's lock, except while signal handlers run and `teller` speaks.
    fn next_in_python(&mut self, py: Python<'_>, teller: &Teller) -> PyResult<Option<Message>> {
        let job = Mutex::new(self);
        let message = py
            .detach(|| lock(&job).next(|| Python::attach(|py| py.check_signals().and_then(|()| teller.pass_on(py)))))?;
        if message.is_some() { teller.pass_on(py) } else { teller.end(py) }?;
        Ok(message)
    }
}

#[pymethods]
impl Batches {
    /// Starts `foveate embed` with these arguments, without an output. Calls `progress` as a job does, while a batch is
    /// waited for.
    #[new]
    #[pyo3(signature = (args, progress=None))]
    fn new(py: Python<'_>, args: Vec<OsString>, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let nothing = OsString::from("--output=nothing.npy");
        let call = EmbedCall::parse([nothing].into_iter().chain(args).collect()).map_err(usage)?;
        let (sender, batches) = sync_channel(AHEAD);
        let cancel = Cancel::default();
        let cancelled = cancel.clone();
        let teller = Teller::new(progress);
        let said = teller.said();
        let mut job = StreamJob { batches, cancel: cancel.clone() };
        let started = thread::Builder::new().name("embed".to_owned()).spawn(move || {
            if let Err(reason) = run(&call, &sender, &cancelled, &said) {
                let _ = sender.send(Err(reason));
            }
        });
        started.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        // The first batch is empty and has the schema.
        let first = job.next_in_python(py, &teller)?;
        let first = first.unwrap_or_else(|| Err("this is a defect: no schema".to_owned()));
        Ok(Self {
            schema: first.map_err(failed)?.schema(),
            job: Mutex::new(Some(OwnedByProcess::new(job))),
            cancel,
            teller,
        })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        let Some(mut owned) = self.take() else { return Ok(None) };
        let Some(job) = owned.get() else { return Err(foreign()) };
        let Some(message) = job.next_in_python(py, &self.teller)? else { return Ok(None) };
        let batch = message.map_err(failed)?;
        *lock(&self.job) = Some(owned);
        Ok(Some(batch.into()))
    }

    /// Stops the job, also from another thread. Its remaining batches are lost.
    fn close(&self) {
        self.cancel.cancel();
        drop(lock(&self.job).take());
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(&self, _kind: Bound<'_, PyAny>, _error: Bound<'_, PyAny>, _trace: Bound<'_, PyAny>) {
        self.close();
    }

    /// The batches' schema as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.schema)
    }

    /// The remaining batches as a stream; a requested schema is ignored, as the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        export_stream(py, Box::new(Reader { schema: Arc::clone(&self.schema), job: self.take() }))
    }
}

impl Batches {
    /// The job, if batches may be left.
    fn take(&self) -> Option<OwnedByProcess<StreamJob>> {
        lock(&self.job).take()
    }
}

fn foreign() -> PyErr {
    failed("this stream belongs to the process that was forked".to_owned())
}

/// The remaining batches, read by another library.
struct Reader {
    schema: SchemaRef,
    job: Option<OwnedByProcess<StreamJob>>,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Ok(message) = self.job.as_mut()?.get()?.next(|| Ok::<_, Infallible>(()));
        Some(message?.map_err(|reason| ArrowError::ExternalError(reason.into())))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Runs the job into `batches`.
fn run(call: &EmbedCall, batches: &SyncSender<Message>, cancel: &Cancel, said: &Said) -> Result<(), String> {
    let listing = call.list()?;
    let backends = Arc::new(Backends::compiled());
    let options = Settings { existing: Existing::Overwrite, ..call.options() };
    let collected = MemorySink::default();
    let sink = Channel { collected, dim: 0, published: Published::default(), batches: batches.clone() };
    let count = listing.extent().count();
    let job = options.prepare_into(Box::new(listing), Box::new(sink), &backends, &said.model_options());
    said.begin(count);
    job.map_err(chain)?.run(cancel, &said.counts).map(drop).map_err(chain)
}

/// A sink whose batches another thread takes. If that one is gone, the job is cancelled, and batches are lost.
struct Channel {
    collected: MemorySink,
    dim: usize,
    /// The counts of what was sent so far.
    published: Published,
    batches: SyncSender<Message>,
}

impl VectorSink for Channel {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.dim = manifest.dim;
        let _ = self.batches.send(Ok(RecordBatch::new_empty(schema(self.dim, true))));
        self.collected.begin(manifest, existing)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        Ok(0)
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.collected.append(rows)
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.collected.fail(failures)
    }

    /// The engine records inputs after their rows and failures.
    fn record(&mut self, _: &[InputRecord]) -> Result<(), SinkError> {
        let collected = self.collected.take();
        self.published.rows += collected.rows.len() as u64;
        self.published.failures += collected.failures.len() as u64;
        let _ = self.batches.send(batch_of(self.dim, collected).map_err(|error| error.to_string()));
        Ok(())
    }

    fn commit(&mut self, _: Watermark) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        Ok(std::mem::take(&mut self.published))
    }
}

/// A batch of these outcomes in the order of the source.
fn batch_of(dim: usize, collected: Collected) -> Result<RecordBatch, ArrowError> {
    let Collected { rows, failures } = collected;
    let mut outcomes: Vec<_> = rows.into_iter().map(|row| (row.index, row.id, Ok(row.vector))).collect();
    outcomes.extend(failures.into_iter().map(|failure| (failure.index, failure.id.clone(), Err(failure))));
    outcomes.sort_unstable_by_key(|(index, ..)| *index);
    let mut ids = Vec::new();
    let mut vectors = Vec::with_capacity(outcomes.len() * dim);
    let mut errors = Vec::new();
    for (_, id, outcome) in outcomes {
        ids.push(id);
        match &outcome {
            Ok(vector) => vectors.extend_from_slice(vector),
            Err(_) => vectors.extend(std::iter::repeat_n(f32::NAN, dim)),
        }
        errors.push(outcome.err().map(|Failure { stage, reason, .. }| format!("{stage}: {reason}")));
    }
    let is_there = errors.iter().map(Option::is_none).collect();
    batch(dim, vectors, is_there, errors, Some(ids))
}
