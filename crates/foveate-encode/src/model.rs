use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use foveate_core::Size;

/// A model in one of the forms that encoder backends are opened with. The trait crates know no architecture: the program
/// says what its checkpoints are, `C`, and a backend is registered for that type.
#[derive(Debug)]
pub enum AnyModel<C> {
    /// A checkpoint: the backend builds the network itself.
    Checkpoint(Arc<C>),
    /// A network that comes with its weights.
    Graph(Graph),
}

impl<C> AnyModel<C> {
    /// Which of the forms it is.
    pub fn form(&self) -> ModelForm {
        match self {
            Self::Checkpoint(_) => ModelForm::Checkpoint,
            Self::Graph(graph) => ModelForm::Graph(graph.format),
        }
    }
}

/// The forms of [`AnyModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelForm {
    /// A checkpoint.
    Checkpoint,
    /// A network that comes with its weights, in this format.
    Graph(GraphFormat),
}

impl fmt::Display for ModelForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint => f.write_str("checkpoints"),
            Self::Graph(format) => write!(f, "{} graphs", format.name()),
        }
    }
}

/// A format of whole networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphFormat {
    /// ONNX.
    Onnx,
    /// TorchScript.
    TorchScript,
}

impl GraphFormat {
    /// The format that files with this extension have.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension {
            "onnx" => Some(Self::Onnx),
            "pt" | "ts" | "torchscript" => Some(Self::TorchScript),
            _ => None,
        }
    }

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Onnx => "ONNX",
            Self::TorchScript => "TorchScript",
        }
    }
}

/// A network with its weights, as one file that an engine reads itself, and what the file does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// What the user asked for; for messages.
    pub name: String,
    /// What the file is.
    pub format: GraphFormat,
    /// Where it is.
    pub source: GraphSource,
    /// Size of the input images.
    pub input: Size,
    /// Mean of each channel, of samples scaled to 0..=1. Not used by a graph that takes u8.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, of samples scaled to 0..=1. Not used by a graph that takes u8.
    pub std: [f32; 3],
    /// Tokens between the class token and the patches, where it is known.
    pub registers: Option<usize>,
}

/// Where a graph is.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphSource {
    /// In a file, with external weights beside it where the format has such.
    File(PathBuf),
    /// In memory.
    Memory(Arc<[u8]>),
}
