use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use foveate_core::Size;

/// A model in one of the forms that encoder backends accept. The trait crates know no architecture: the program
/// defines the type of its checkpoints, `C`, and registers backends for that type.
#[derive(Debug)]
pub enum AnyModel<C> {
    /// A checkpoint: the backend builds the network itself.
    Checkpoint(Arc<C>),
    /// A network that comes with its weights.
    Graph(Graph),
}

impl<C> AnyModel<C> {
    /// The model's form.
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
    /// Returns the format of files with this extension.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension {
            "onnx" => Some(Self::Onnx),
            "pt" | "ts" | "torchscript" => Some(Self::TorchScript),
            _ => None,
        }
    }

    /// The name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Onnx => "ONNX",
            Self::TorchScript => "TorchScript",
        }
    }
}

/// A network with its weights, as one file that an engine reads itself, and the facts that the file lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The model's name as the user gave it; for messages.
    pub name: String,
    /// The file's format.
    pub format: GraphFormat,
    /// The file's location.
    pub source: GraphSource,
    /// Size of the input images.
    pub input: Size,
    /// Mean of each channel, of samples scaled to 0..=1. Not used by a graph that takes u8.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, of samples scaled to 0..=1. Not used by a graph that takes u8.
    pub std: [f32; 3],
    /// Tokens between the class token and the patches, if known.
    pub registers: Option<usize>,
}

/// A graph's location.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphSource {
    /// In a file, with external weights beside it if the format has them.
    File(PathBuf),
    /// In memory.
    Memory(Arc<[u8]>),
}
