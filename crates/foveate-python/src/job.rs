use std::ffi::OsString;
use std::time::Duration;

use foveate::cli::EmbedCall;
use foveate::embed::{Backends, Settings};
use foveate::model::Model;
use foveate::pipeline::Cancel;
use pyo3::prelude::*;

use crate::errors::{chain, failed, usage};
use crate::interrupt::interruptible;
use crate::said::{Said, Teller};

/// Time for which an interrupted job finishes its batches in flight. Before it has begun, it has nothing to finish.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `foveate embed` with these arguments. Calls `progress(settled, inputs, failures)` at intervals; `inputs` is
/// `None` if it is not known. Returns what `--json` prints.
#[pyfunction]
#[pyo3(signature = (args, progress=None))]
pub(crate) fn embed(py: Python<'_>, args: Vec<OsString>, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let call = EmbedCall::parse(args).map_err(usage)?;
    let cancel = Cancel::default();
    let cancelled = cancel.clone();
    let teller = Teller::new(progress);
    let said = teller.said();
    let patience = || if teller.said().has_begun() { PATIENCE } else { Duration::ZERO };
    let run = move |_| {
        download(&call.options(), &said)?;
        call.run(&cancelled, &said.counts, |items| said.begin(items.count()))
    };
    let summary = interruptible(py, &cancel, patience, || teller.pass_on(py), run)?.map_err(failed)?;
    teller.end(py)?;
    Ok(summary)
}

/// Downloads the model if it is missing, and says how far it is. The job opens it without a word.
fn download(options: &Settings, said: &Said) -> Result<(), String> {
    options.check_backends(&Backends::compiled()).map_err(chain)?;
    Model::download(&options.model.network.model, &said.model_options()).map_err(chain)
}
