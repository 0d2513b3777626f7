use super::{ConfigDefaults, Family, activation, vit};
use crate::keys::Keys;
use crate::layout::{Layout, Stored};
use crate::network::{Activation, Network};
use crate::{ModelError, Resampler};

/// The plain vision transformer.
pub(super) const FAMILY: Family = Family {
    name: "ViT",
    reference: "transformers' ViTModel, class token",
    model_types: &["vit"],
    network,
    layout: &Layout {
        prefixes: &["vit."],
        own: &["embeddings.", "encoder.", "layernorm."],
        // Of masked image modelling.
        unused: &["embeddings.mask_token"],
        names: &[
            ("encoder.layer.{}.norm1", Stored::At("encoder.layer.{}.layernorm_before")),
            ("encoder.layer.{}.norm2", Stored::At("encoder.layer.{}.layernorm_after")),
            ("encoder.layer.{}.mlp.fc1", Stored::At("encoder.layer.{}.intermediate.dense")),
            ("encoder.layer.{}.mlp.fc2", Stored::At("encoder.layer.{}.output.dense")),
        ],
    },
    resampler: Resampler::Torchvision,
};

fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let mut network =
        vit(keys, ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 16, epsilon: 1e-12 })?;
    network.mlp_hidden = keys.integer("intermediate_size", Some(3072), 1..=1 << 20)?;
    network.activation = activation(keys, Activation::Gelu)?;
    Ok(network)
}
