use std::io;
use std::path::PathBuf;

use foveate_core::Size;

use crate::HubError;

/// Why a model could not be had. Every message is one line that names the file or address, what is wrong with it and,
/// where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A tensor is absent.
    #[error("checkpoint has no tensor '{0}'")]
    MissingTensor(String),
    /// A tensor has another shape than the one asked for.
    #[error("tensor '{name}' has shape {found:?}, but {expected:?} is needed")]
    TensorShape {
        /// Name of the tensor.
        name: String,
        /// The shape asked for.
        expected: Vec<usize>,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// A file of the model cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// A file of the model is there but is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which part of it, what is wrong with it, and what would help.
        problem: String,
    },
    /// What the user asked for is neither a card, nor a folder, nor a hub repository.
    #[error("no model '{spec}': {problem}")]
    Unknown {
        /// What the user asked for.
        spec: String,
        /// Why it cannot be one, and what can.
        problem: String,
    },
    /// The model cannot take images of this size.
    #[error("an input of {size} pixels is not a whole number of {patch}x{patch} patches")]
    InputSize {
        /// The size asked for.
        size: Size,
        /// Side of the model's patch in pixels.
        patch: usize,
    },
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
