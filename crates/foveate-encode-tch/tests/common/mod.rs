//! The tests' models as files.

use foveate_core::Size;
use foveate_encode::{Graph, GraphFormat, GraphSource};

use foveate_testkit::encoders::{fixtures, tiny};

/// The same model as TorchScript; the number of its registers is inferred.
pub(crate) fn tiny_script(name: &str) -> Graph {
    let model = tiny(name);
    Graph {
        name: name.to_owned(),
        format: GraphFormat::TorchScript,
        source: GraphSource::File(fixtures().join("models").join(name).join("model.torchscript.pt")),
        input: Size::square(224),
        mean: model.preprocess.mean,
        std: model.preprocess.std,
        registers: None,
    }
}
