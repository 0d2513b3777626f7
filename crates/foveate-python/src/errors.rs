use std::error::Error;

use foveate::core::error_chain;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(foveate, FoveateError, PyException, "A job, a model or a device failed; the message says why.");

/// The exception for a call that failed as a whole.
pub(crate) fn failed(reason: String) -> PyErr {
    FoveateError::new_err(in_python(&reason))
}

/// The exception for options that cannot be parsed.
pub(crate) fn usage(reason: String) -> PyErr {
    PyValueError::new_err(in_python(&reason))
}

/// An error with its causes on one line.
pub(crate) fn chain(error: impl Error + 'static) -> String {
    error_chain(&error)
}

/// A message of the command line for callers of functions: options are keywords, and each cause is said once.
fn in_python(reason: &str) -> String {
    let reason = once(reason);
    let keywords = Python::attach(|py| -> PyResult<String> {
        py.import("foveate._options")?.call_method1("in_python", (reason,))?.extract()
    });
    keywords.unwrap_or_else(|_| reason.to_owned())
}

/// Cuts off causes that the text before them contains.
fn once(mut text: &str) -> &str {
    let repeats =
        |text: &str| text.match_indices(": ").map(|(at, _)| at).find(|&at| text[..at].contains(&text[at + 2..]));
    while let Some(at) = repeats(text) {
        text = &text[..at];
    }
    text
}
