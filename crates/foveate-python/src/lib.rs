#![doc = include_str!("../README.md")]

mod batch;
mod capsule;
mod columns;
mod engine;
mod errors;
mod images;
mod interrupt;
mod job;
mod process;
mod stream;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The compiled half of the package `foveate`, which is its only user.
#[pymodule]
mod _foveate {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::command_line;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::errors::FoveateError;
    #[pymodule_export]
    use crate::job::embed;
    #[pymodule_export]
    use crate::stream::Batches;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        foveate::cli::silence_worker_panics();
        module.add("__version__", foveate::VERSION)
    }
}

/// Runs the `foveate` command line and returns its exit code. Takes over the handling of signals.
#[pyfunction]
fn command_line(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| foveate::cli::main(args))
}
