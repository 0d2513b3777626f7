use std::io;
use std::path::PathBuf;

use foveate_core::Size;
use foveate_encode::Pooling;

use crate::HubError;

/// Reason that a model could not be opened. Every message is one line with the file or address, the problem and, if
/// there is one and no cause follows, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A tensor is missing.
    #[error("checkpoint has no tensor '{0}'")]
    MissingTensor(String),
    /// A tensor's shape is not the expected one.
    #[error("tensor '{name}' has shape {found:?}, but {expected:?} is needed")]
    TensorShape {
        /// Name of the tensor.
        name: String,
        /// The expected shape.
        expected: Vec<usize>,
        /// The actual shape.
        found: Vec<usize>,
    },
    /// A file of the model cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// A file of the model is malformed.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which part of it is wrong, how, and the remedy.
        problem: String,
    },
    /// The requested model is neither a card, nor a folder, nor a hub repository.
    #[error("no model '{spec}': {problem}")]
    Unknown {
        /// The model as the user gave it.
        spec: String,
        /// The reason that it is none of these, and the alternatives.
        problem: String,
    },
    /// The model cannot take images of this size.
    #[error("an input of {size} pixels is not a whole number of {patch}x{patch} patches")]
    InputSize {
        /// The requested size.
        size: Size,
        /// Side of the model's patch in pixels.
        patch: usize,
    },
    /// The model takes images of one size only.
    #[error("an input of {size} pixels: this model's positions are for {only}, and its library does not change them")]
    FixedSize {
        /// The requested size.
        size: Size,
        /// The size that it takes.
        only: Size,
    },
    /// The model has no such token or head.
    #[error("pooling '{}': the model has no {missing}; its own is '{}'", pooling.name(), own.name())]
    Pooling {
        /// The requested pooling.
        pooling: Pooling,
        /// The part that it lacks.
        missing: &'static str,
        /// The pooling of the model's own vector.
        own: Pooling,
    },
    /// The model is for other inputs.
    #[error("this model has no {0}")]
    Lacks(&'static str),
    /// The model cannot be written as an ONNX file.
    #[error("as ONNX: {0}")]
    Onnx(String),
    /// The model could not be fetched.
    #[error(transparent)]
    Hub(#[from] HubError),
}

impl ModelError {
    pub(crate) fn malformed(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Malformed { path: path.into(), problem: problem.into() }
    }

    pub(crate) fn read(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        Self::Read { path: path.into(), cause }
    }
}
