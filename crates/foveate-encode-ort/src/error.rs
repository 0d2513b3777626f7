//! ONNX Runtime's errors as an encoder's.

use std::fmt::Display;

use foveate_encode::{EncodeError, Graph};

/// Returns the error for an unusable graph.
pub(crate) fn malformed(graph: &Graph, problem: impl Display) -> EncodeError {
    EncodeError::Model(format!("{}: {problem}", graph.name).into())
}

/// Converts ONNX Runtime's error, in one line.
pub(crate) fn engine(error: &ort::Error) -> EncodeError {
    EncodeError::Engine(one_line(error).into())
}

/// Returns an error's message without line breaks.
pub(crate) fn one_line(error: &impl Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
