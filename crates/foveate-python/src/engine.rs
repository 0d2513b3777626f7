use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use arrow_buffer::Buffer;
use foveate::cli::EmbedCall;
use foveate::collect::{Collected, CollectedRow, MemorySink};
use foveate::core::lock;
use foveate::dinov2::OpenOptions;
use foveate::embed::{Backends, EmbedOptions};
use foveate::encode::Threads;
use foveate::pipeline::{Cancel, Progress};
use foveate::{Embedder, source};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::batch::{Batch, batch};
use crate::capsule::arrow_error;
use crate::columns::Column;
use crate::errors::{chain, failed, usage};
use crate::images::{Image, Images};
use crate::interrupt::interruptible;
use crate::process::{Opened, Owned, opened};

/// An embedder of lists and columns. It opens its model in the first call, once in each process.
#[pyclass(frozen, module = "foveate._foveate")]
pub(crate) struct Engine {
    args: Vec<OsString>,
    options: EmbedOptions,
    /// Locked only together with the interpreter's lock, so that no fork finds it locked.
    opened: Mutex<Option<Owned<Arc<Opened>>>>,
}

/// An item without a vector: its name, the stage that failed, and the reason.
type Failure = (String, &'static str, String);

#[pymethods]
impl Engine {
    /// Takes the arguments of `foveate embed` that concern the embedding, as `--name=value`.
    #[new]
    fn new(args: Vec<OsString>) -> PyResult<Self> {
        let nothing = ["nothing", "--output=nothing.npy", "--max-unreadable=off"].map(OsString::from);
        let call = EmbedCall::parse(args.iter().cloned().chain(nothing).collect()).map_err(usage)?;
        let options = EmbedOptions { inputs: Vec::new(), ..call.options() };
        Ok(Self { args, options, opened: Mutex::new(None) })
    }

    /// Number of components of a vector; opens the model.
    fn dim(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.run(py, Vec::new())?.dim)
    }

    /// Embeds images: `None`, paths, encoded bytes, or `(width, height, rgb)`. Returns `[n, dim]` f32 as bytes, with
    /// NaN for images without a vector, then `dim` and the failures.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        images: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyByteArray>, usize, Vec<Option<Failure>>)> {
        let extracted = images.iter().enumerate().map(|(index, image)| Image::extract(image, index));
        let Embedded { dim, vectors, failures, .. } = self.run(py, extracted.collect::<PyResult<_>>()?)?;
        let vectors = Buffer::from_vec(vectors);
        let bytes = PyByteArray::new_with(py, vectors.len(), |bytes| {
            bytes.copy_from_slice(&vectors);
            Ok(())
        })?;
        Ok((bytes, dim, failures))
    }

    /// Embeds the images of an Arrow array, or of column `image` of an Arrow table.
    fn embed_arrow(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyAny>,
        image: &str,
    ) -> PyResult<(Batch, Vec<Option<Failure>>)> {
        let column = Column::import(images, image)?;
        let Embedded { dim, vectors, is_there, failures } = self.run(py, column.images()?)?;
        let errors =
            failures.iter().map(|failure| failure.as_ref().map(|(_, stage, reason)| format!("{stage}: {reason}")));
        let batch = batch(dim, vectors, is_there, errors.collect(), None).map_err(arrow_error)?;
        Ok((batch.into(), failures))
    }
}

/// The outcomes of a call, in its order.
#[derive(Default)]
struct Embedded {
    dim: usize,
    /// `[n, dim]`
    vectors: Vec<f32>,
    /// Whether there is a vector.
    is_there: Vec<bool>,
    failures: Vec<Option<Failure>>,
}

impl Engine {
    fn run(&self, py: Python<'_>, images: Vec<Option<Image>>) -> PyResult<Embedded> {
        let opened = self.opened(py);
        let cancel = Cancel::default();
        let embedded = interruptible(
            py,
            &cancel,
            || Ok(()),
            || {
                // A cancelled call raises what cancelled it.
                let Some(_turn) = opened.turn.take(&cancel) else { return Ok(Embedded::default()) };
                let mut embedder = lock(&opened.embedder);
                let embedder = match &mut *embedder {
                    Some(embedder) => embedder,
                    closed => closed.insert(open(&self.options)?),
                };
                embed(embedder, &self.options, images, &cancel)
            },
        )?;
        embedded.map_err(failed)
    }

    fn opened(&self, py: Python<'_>) -> Arc<Opened> {
        let mut mine = lock(&self.opened);
        if let Some(opened) = mine.as_mut().and_then(Owned::get) {
            return Arc::clone(opened);
        }
        let new = opened(py, &self.args, &self.options.device);
        *mine = Some(Owned::new(Arc::clone(&new)));
        new
    }
}

/// Opens the model on threads of its own: in a fork, rayon's usual ones are dead.
fn open(options: &EmbedOptions) -> Result<Embedder, String> {
    let threads = Threads::start(options.encoder_threads).map_err(chain)?;
    let open = || Embedder::open(options, &Arc::new(Backends::compiled()), &OpenOptions::from_env());
    threads.run(|| open().map_err(chain))
}

/// Embeds the images that are there.
fn embed(
    embedder: &mut Embedder,
    options: &EmbedOptions,
    images: Vec<Option<Image>>,
    cancel: &Cancel,
) -> Result<Embedded, String> {
    let mut embedded = Embedded::empty(embedder.dim(), images.len());
    let (rows, images): (Vec<_>, Vec<_>) =
        images.into_iter().enumerate().filter_map(|(row, image)| Some((row, image?))).unzip();
    if !images.is_empty() {
        let reader = options.list(|_| ()).map_err(chain)?;
        let sink = MemorySink::default();
        let source: Box<dyn source::Source> = Box::new(Images::new(images, reader));
        embedder.run(source, Box::new(sink.clone()), cancel, &Progress::default()).map_err(chain)?;
        embedded.fill(&rows, sink.take());
    }
    Ok(embedded)
}

impl Embedded {
    fn empty(dim: usize, images: usize) -> Self {
        Self { dim, vectors: vec![f32::NAN; images * dim], is_there: vec![false; images], failures: vec![None; images] }
    }

    /// Puts the outcome of item `i` into row `rows[i]`.
    fn fill(&mut self, rows: &[usize], collected: Collected) {
        for CollectedRow { index, vector, .. } in collected.rows {
            let row = rows[index as usize];
            self.vectors[row * self.dim..][..self.dim].copy_from_slice(&vector);
            self.is_there[row] = true;
        }
        for failure in collected.failures {
            self.failures[rows[failure.index as usize]] = Some((failure.id, failure.stage.name(), failure.reason));
        }
    }
}
