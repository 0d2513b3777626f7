use crate::family::{ConfigDefaults, Family, activation, vit};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, Network};
use crate::{ModelError, PixelLibrary};

/// The plain vision transformer.
pub(super) const FAMILY: Family = Family {
    name: "ViT",
    reference: "transformers' ViTModel, class token",
    model_types: &["vit"],
    network,
    layout: &NameTable {
        prefixes: &["vit."],
        own: OWN,
        // Of masked image modelling.
        unused: &["embeddings.mask_token"],
        names: &[("", NAMES)],
    },
    resampler: PixelLibrary::Torchvision,
    text: None,
};

pub(super) const OWN: &[&str] = &["embeddings.", "encoder.", "layernorm."];
pub(super) const NAMES: &[(&str, StoredAt)] = &[
    ("encoder.layer.{}.norm1", StoredAt::At("encoder.layer.{}.layernorm_before")),
    ("encoder.layer.{}.norm2", StoredAt::At("encoder.layer.{}.layernorm_after")),
    ("encoder.layer.{}.mlp.fc1", StoredAt::At("encoder.layer.{}.intermediate.dense")),
    ("encoder.layer.{}.mlp.fc2", StoredAt::At("encoder.layer.{}.output.dense")),
];

pub(super) fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let mut network =
        vit(keys, ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 16, epsilon: 1e-12 })?;
    network.mlp_hidden = keys.integer("intermediate_size", Some(3072), 1..=1 << 20)?;
    network.activation = activation(keys, Activation::Gelu)?;
    Ok(network)
}
