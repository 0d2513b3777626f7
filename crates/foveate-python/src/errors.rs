use std::error::Error;

use foveate::core::error_chain;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(foveate, FoveateError, PyException, "A job, a model or a device failed; the message says why.");

/// The exception for a call that failed as a whole.
pub(crate) fn failed(reason: String) -> PyErr {
    FoveateError::new_err(reason)
}

/// The exception for options that cannot be parsed.
pub(crate) fn usage(reason: String) -> PyErr {
    PyValueError::new_err(reason)
}

/// An error with its causes on one line.
pub(crate) fn chain(error: impl Error + 'static) -> String {
    error_chain(&error)
}
