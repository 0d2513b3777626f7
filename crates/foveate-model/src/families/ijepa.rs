use foveate_encode::Pooling;

use super::vit;
use crate::family::Family;
use crate::keys::Keys;
use crate::layout::NameTable;
use crate::network::Network;
use crate::{ModelError, PixelLibrary};

/// I-JEPA: a ViT without a class token, whose vector is the patches' mean.
pub(super) const FAMILY: Family = Family {
    name: "I-JEPA",
    reference: "transformers' IJepaModel, mean of its tokens",
    model_types: &["ijepa"],
    network,
    layout: &NameTable {
        prefixes: &["ijepa."],
        own: vit::OWN,
        unused: &["embeddings.mask_token"],
        names: &[("", vit::NAMES)],
    },
    resampler: PixelLibrary::Torchvision,
    text: None,
};

fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let mut network = vit::network(keys)?;
    network.class_token = false;
    network.pooling = Pooling::Mean;
    if let Some(table) = &mut network.positions {
        table.class_row = false;
    }
    Ok(network)
}
