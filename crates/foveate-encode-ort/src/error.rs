//! What ONNX Runtime says, as errors of an encoder.

use std::fmt::Display;

use foveate_encode::{EncodeError, Graph};

/// A graph that cannot be used.
pub(crate) fn malformed(graph: &Graph, problem: impl Display) -> EncodeError {
    EncodeError::Model(format!("{}: {problem}", graph.name).into())
}

/// What ONNX Runtime says, in one line.
pub(crate) fn engine(error: &ort::Error) -> EncodeError {
    EncodeError::Engine(one_line(error).into())
}

/// An error's words without line breaks.
pub(crate) fn one_line(error: &impl Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
