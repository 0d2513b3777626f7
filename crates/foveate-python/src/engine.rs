use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foveate::Embedder;
use foveate::cli::EmbedCall;
use foveate::collect::{Collected, CollectedRow, MemorySink};
use foveate::core::{Stage, lock};
use foveate::embed::{Backends, EmbedError, Settings};
use foveate::encode::{EncoderOptions, Threads};
use foveate::model::Model;
use foveate::pipeline::Cancel;
use foveate::texts::TextEmbedder;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyIterator};

use crate::batch::{PyBatch, as_bytes, batch};
use crate::capsule::arrow_error;
use crate::columns::ImageColumn;
use crate::errors::{chain, failed, usage};
use crate::images::{GivenImage, feed};
use crate::interrupt::interruptible;
use crate::process::{OpenedEmbedder, OwnedByProcess, opened};
use crate::said::{Said, Teller};

/// An embedder of lists and columns. It opens its model in the first call, once in each process.
#[pyclass(frozen, module = "foveate._foveate", name = "Engine")]
pub(crate) struct PyEngine {
    args: Vec<OsString>,
    options: Settings,
    /// Locked only together with the interpreter's lock, so that no fork finds it locked.
    opened: Mutex<Option<OwnedByProcess<Arc<OpenedEmbedder>>>>,
}

/// An item without a vector: its name, the stage that failed, and the reason.
type Failure = (String, &'static str, String);

#[pymethods]
impl PyEngine {
    /// Takes the arguments of `foveate embed` that concern the embedding, as `--name=value`, and the most seconds for
    /// an address.
    #[new]
    #[pyo3(signature = (args, timeout=None))]
    fn new(args: Vec<OsString>, timeout: Option<f64>) -> PyResult<Self> {
        let deadline = timeout.map(Duration::try_from_secs_f64).transpose();
        let deadline = deadline.map_err(|error| usage(format!("invalid value for 'timeout': {error}")))?;
        let nothing = ["nothing", "--output=nothing.npy", "--max-unreadable=off"].map(OsString::from);
        let call = EmbedCall::parse(args.iter().cloned().chain(nothing).collect()).map_err(usage)?;
        let mut options = Settings { deadline, ..call.options() };
        options.inputs.inputs.clear();
        check(&options).map_err(usage)?;
        Ok(Self { args, options, opened: Mutex::new(None) })
    }

    /// Number of components of a vector; opens the model.
    fn dim(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.run(py, Some(0), None, |_| Ok(None))?.dim)
    }

    /// Embeds the images of an iterator, as [`GivenImage::extract`] takes them; `count` is their number if it is known.
    /// Calls `progress` as a job does. Returns `[n, dim]` f32 as bytes, with NaN for images without a vector, then
    /// `dim` and the failures.
    #[pyo3(signature = (images, count, progress=None))]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        images: &Bound<'py, PyIterator>,
        count: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyByteArray>, usize, Vec<Option<Failure>>)> {
        let Embedded { dim, vectors, failures, .. } = self.run(py, count, progress, extracted(images))?;
        Ok((as_bytes(py, &vectors)?, dim, failures))
    }

    /// Embeds the images of an iterator into a batch.
    fn embed_batch(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyIterator>,
        count: Option<usize>,
    ) -> PyResult<(PyBatch, Vec<Option<Failure>>)> {
        self.run(py, count, None, extracted(images))?.into_batch()
    }

    /// Embeds texts by the model's text tower, as [`embed`](Self::embed) embeds images. `None` is a row without an
    /// error.
    fn embed_text<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<Option<String>>,
    ) -> PyResult<(Bound<'py, PyByteArray>, usize, Vec<Option<Failure>>)> {
        let normalize = self.options.model.normalize;
        let (dim, vectors, failures) = self.with_texts(py, move |embedder, cancel| {
            let dim = embedder.dim();
            let mut vectors = vec![f32::NAN; texts.len() * dim];
            let mut failures = vec![None; texts.len()];
            let mut rows = Vec::new();
            for (row, text) in texts.iter().enumerate() {
                match text.as_deref().map(str::trim) {
                    None => {}
                    Some("") => failures[row] = Some((row.to_string(), Stage::Read.name(), "empty text".to_owned())),
                    Some(_) => rows.push(row),
                }
            }
            for rows in rows.chunks(TEXTS).take_while(|_| !cancel.is_cancelled()) {
                let some: Vec<&str> = rows.iter().filter_map(|&row| texts[row].as_deref()).collect();
                let embedded = embedder.embed(&some, normalize).map_err(chain)?;
                for (&row, vector) in rows.iter().zip(embedded.vectors.chunks_exact(dim)) {
                    vectors[row * dim..][..dim].copy_from_slice(vector);
                }
                for row in embedded.not_finite.into_iter().map(|at| rows[at]) {
                    let reason = "the vector has a component that is infinite or not a number";
                    vectors[row * dim..][..dim].fill(f32::NAN);
                    failures[row] = Some((row.to_string(), Stage::Encode.name(), reason.to_owned()));
                }
            }
            Ok((dim, vectors, failures))
        })?;
        Ok((as_bytes(py, &vectors)?, dim, failures))
    }

    /// The scale and the bias of the model's logits, if its weights have them; opens the text tower.
    fn logits(&self, py: Python<'_>) -> PyResult<Option<(f64, Option<f64>)>> {
        self.with_texts(py, |embedder, _| Ok(embedder.logits().map(|logits| (logits.scale, logits.bias))))
    }

    /// Embeds the images of an Arrow array or stream, or of column `image` of Arrow tables.
    fn embed_arrow(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyAny>,
        image: &str,
    ) -> PyResult<(PyBatch, Vec<Option<Failure>>)> {
        let mut column = ImageColumn::import(images, image)?;
        self.run(py, column.len(), None, |_| column.next(py))?.into_batch()
    }
}

fn extracted(images: &Bound<'_, PyIterator>) -> impl FnMut(usize) -> PyResult<Option<GivenImage>> {
    let mut images = images.clone();
    move |row| images.next().map(|given| Ok(GivenImage::extract(&given?, row))).transpose()
}

/// The outcomes of a call, in its order.
#[derive(Default)]
struct Embedded {
    dim: usize,
    /// `[n, dim]`
    vectors: Vec<f32>,
    /// True where there is a vector.
    is_there: Vec<bool>,
    failures: Vec<Option<Failure>>,
}

/// Texts that are embedded between two looks at the signals.
const TEXTS: usize = 64;
/// Time for which an interrupted call waits for its batch in flight.
const PATIENCE: Duration = Duration::from_secs(1);

impl PyEngine {
    /// Embeds the images that `next` returns for rows 0, 1, …
    fn run(
        &self,
        py: Python<'_>,
        count: Option<usize>,
        progress: Option<Py<PyAny>>,
        mut next: impl FnMut(usize) -> PyResult<Option<GivenImage>>,
    ) -> PyResult<Embedded> {
        let opened = self.opened(py);
        let options = self.options.clone();
        let cancel = Cancel::default();
        let cancelled = cancel.clone();
        let teller = Teller::new(progress);
        let said = teller.said();
        let (mut feed, images) = feed(count, &cancel);
        let work = move |wake| {
            // A cancelled call raises what cancelled it.
            let Some(_turn) = opened.turn.take(&cancelled) else { return Ok(Default::default()) };
            let mut embedder = lock(&opened.embedder);
            let embedder = match &mut *embedder {
                Some(embedder) => embedder,
                closed => closed.insert(open(&options, &said)?),
            };
            if count == Some(0) {
                return Ok((embedder.dim(), Collected::default()));
            }
            let source = images(options.list(|_| ()).map_err(chain)?, wake);
            let sink = MemorySink::default();
            said.begin(count.map(|count| count as u64));
            let run = embedder.run(Box::new(source), Box::new(sink.clone()), &cancelled, &said.counts);
            run.map(|_| (embedder.dim(), sink.take())).map_err(chain)
        };
        let outcome =
            interruptible(py, &cancel, || PATIENCE, || teller.pass_on(py).and_then(|()| feed.fill(&mut next)), work)?;
        let (dim, collected) = outcome.map_err(failed)?;
        teller.end(py)?;
        Ok(Embedded::new(dim, feed.passed(), collected))
    }

    /// Does `work` with the text tower, which the first call opens.
    fn with_texts<T: Default + Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut TextEmbedder, &Cancel) -> Result<T, String> + Send + 'static,
    ) -> PyResult<T> {
        let opened = self.opened(py);
        let options = self.options.clone();
        let cancel = Cancel::default();
        let cancelled = cancel.clone();
        let teller = Teller::new(None);
        let said = teller.said();
        let done = interruptible(
            py,
            &cancel,
            || PATIENCE,
            || teller.pass_on(py),
            move |_| {
                // A cancelled call raises what cancelled it.
                let Some(_turn) = opened.turn.take(&cancelled) else { return Ok(T::default()) };
                let mut texts = lock(&opened.texts);
                let embedder = match &mut *texts {
                    Some(embedder) => embedder,
                    closed => closed.insert(open_texts(&options, &said)?),
                };
                work(embedder, &cancelled)
            },
        )?;
        done.map_err(failed)
    }

    fn opened(&self, py: Python<'_>) -> Arc<OpenedEmbedder> {
        let mut mine = lock(&self.opened);
        if let Some(opened) = mine.as_mut().and_then(OwnedByProcess::get) {
            return Arc::clone(opened);
        }
        let new = opened(py, &self.args, &self.options.engine.device);
        *mine = Some(OwnedByProcess::new(Arc::clone(&new)));
        new
    }
}

/// Checks names before the first call. The model's folder and the GPU may be those of the machine where the embedder
/// goes.
fn check(options: &Settings) -> Result<(), String> {
    Model::check_name(&options.model.network.model).map_err(chain)?;
    match options.check_backends(&Backends::compiled()) {
        Err(EmbedError::Device { device, .. }) if device.starts_with("cuda") => Ok(()),
        checked => checked.map_err(chain),
    }
}

/// Opens the model on its own threads: in a fork, rayon's usual ones are dead.
fn open(options: &Settings, said: &Said) -> Result<Embedder, String> {
    let threads = Threads::start(options.threads()).map_err(chain)?;
    threads.run(|| Embedder::open(options, &Arc::new(Backends::compiled()), &said.model_options()).map_err(chain))
}

/// Opens the text tower. Its vectors are in the space of the images' usual pooling.
fn open_texts(options: &Settings, said: &Said) -> Result<TextEmbedder, String> {
    let model = &options.model;
    let dtype = model.dtype.unwrap_or_default();
    // Of several devices, texts take the first.
    let device = options.engine.device.split(',').next().unwrap_or_default().to_owned();
    let encoder = EncoderOptions { dtype, device, threads: options.threads(), ..EncoderOptions::default() };
    let embedder = TextEmbedder::open(&model.network.model, &encoder, &said.model_options()).map_err(chain)?;
    let own = &embedder.manifest(model.normalize).fingerprint["pooling"];
    match model.pooling {
        Some(pooling) if pooling.name() != own => {
            Err(format!("texts are in the space of pooling={own}, not of {}; leave pooling out", pooling.name()))
        }
        _ => Ok(embedder),
    }
}

impl Embedded {
    fn into_batch(self) -> PyResult<(PyBatch, Vec<Option<Failure>>)> {
        let Self { dim, vectors, is_there, failures } = self;
        let errors =
            failures.iter().map(|failure| failure.as_ref().map(|(_, stage, reason)| format!("{stage}: {reason}")));
        let batch = batch(dim, vectors, is_there, errors.collect(), None).map_err(arrow_error)?;
        Ok((batch.into(), failures))
    }

    fn new(dim: usize, count: usize, collected: Collected) -> Self {
        let mut embedded = Self {
            dim,
            vectors: vec![f32::NAN; count * dim],
            is_there: vec![false; count],
            failures: vec![None; count],
        };
        for CollectedRow { index, vector, .. } in collected.rows {
            let row = index as usize;
            embedded.vectors[row * dim..][..dim].copy_from_slice(&vector);
            embedded.is_there[row] = true;
        }
        for failure in collected.failures.into_iter().filter(|failure| !failure.id.is_empty()) {
            // Images are not listed: what cannot be one could not be decoded.
            let stage = if failure.stage == Stage::List { Stage::Decode } else { failure.stage };
            embedded.failures[failure.index as usize] = Some((failure.id, stage.name(), failure.reason));
        }
        embedded
    }
}
