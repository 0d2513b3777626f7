#![doc = include_str!("../README.md")]
//!
//! # How it is built
//!
//! The crate is a thin layer over the facade. `foveate::cli::EmbedCall` parses options, so that Python and the command
//! line share one table of them. A call's images are a source of the pipeline and memory is its sink; decoding overlaps
//! with the forward, as in a job. `unsafe` is in `capsule.rs` alone, where arrays of other libraries are taken over.
//!
//! The adapters are Python: an engine hands over a batch of Arrow, and gets it back with two more columns. `_tables.py`
//! is what they share.
//!
//! The module works in any Python from 3.10 on (`abi3`). `cargo xtask wheel` builds it, and `cargo xtask wheel --test`
//! tests it. Tests of an engine that is not installed are skipped. With `FOVEATE_TESTS=full` the engines are installed,
//! which takes minutes and 6 GB, and a missing one fails; Spark needs Java 17. `cargo xtask ci --full` does that.

mod batch;
mod capsule;
mod columns;
mod engine;
mod errors;
mod images;
mod interrupt;
mod job;
mod process;
mod said;
mod search;
mod stream;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The compiled half of the package `foveate`, which is its only user.
#[pymodule]
mod _foveate {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::PyBatch;
    #[pymodule_export]
    use crate::command_line;
    #[pymodule_export]
    use crate::engine::PyEngine;
    #[pymodule_export]
    use crate::errors::FoveateError;
    #[pymodule_export]
    use crate::job::embed;
    #[pymodule_export]
    use crate::search::{classify, clusters, duplicates, evaluate, neighbors, spread_out};
    #[pymodule_export]
    use crate::stream::Batches;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        foveate::cli::silence_caught_panics();
        crate::process::watch_forks(module)?;
        module.add("__version__", foveate::VERSION)
    }
}

/// Runs the `foveate` command line and returns its exit code. Takes over the handling of signals.
#[pyfunction]
fn command_line(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| foveate::cli::main(args))
}
