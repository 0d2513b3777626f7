use super::{names, text};
use crate::family::{ConfigDefaults, Family, activation, vit};
use crate::keys::Keys;
use crate::layout::{NameTable, NamesBelow, StoredAt};
use crate::network::{Activation, Network, ProbeShape};
use crate::{ModelError, PixelLibrary};
use foveate_encode::Pooling;

/// The other names in `vision_model`.
const REST: &[(&str, StoredAt)] = &[
    ("embeddings.patch_embeddings.projection", StoredAt::At("embeddings.patch_embedding")),
    ("layernorm", StoredAt::At("post_layernorm")),
    ("head.probe", StoredAt::At("head.probe")),
    ("head.attention.query.weight", StoredAt::Part("head.attention.in_proj_weight", 0, 3)),
    ("head.attention.key.weight", StoredAt::Part("head.attention.in_proj_weight", 1, 3)),
    ("head.attention.value.weight", StoredAt::Part("head.attention.in_proj_weight", 2, 3)),
    ("head.attention.query.bias", StoredAt::Part("head.attention.in_proj_bias", 0, 3)),
    ("head.attention.key.bias", StoredAt::Part("head.attention.in_proj_bias", 1, 3)),
    ("head.attention.value.bias", StoredAt::Part("head.attention.in_proj_bias", 2, 3)),
    ("head.attention.output", StoredAt::At("head.attention.out_proj")),
    ("head.norm", StoredAt::At("head.layernorm")),
    ("head.mlp", StoredAt::At("head.mlp")),
    ("embeddings.cls_token", StoredAt::At("embeddings.class_embedding")),
    // The library's own spelling.
    ("embeddings.norm", StoredAt::At("pre_layrnorm")),
];
/// The names of the image encoder, CLIP's and SigLIP's.
pub(super) const NAMES: &[NamesBelow] = &[
    ("vision_model.", names::TRANSFORMERS_BLOCKS),
    ("vision_model.", REST),
    ("", &[("head.projection", StoredAt::At("visual_projection"))]),
];

/// SigLIP, and SigLIP 2 of fixed size, whose checkpoints have the same class.
pub(super) const FAMILY: Family = Family {
    name: "SigLIP",
    reference: "transformers' SiglipVisionModel, pooler_output",
    model_types: &["siglip", "siglip_vision_model"],
    network,
    layout: &NameTable {
        prefixes: &[],
        own: &["vision_model."],
        unused: &["vision_model.embeddings.position_ids"],
        names: NAMES,
    },
    resampler: PixelLibrary::Torchvision,
    text: Some(&text::SIGLIP),
};

fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let nested = keys.object("vision_config")?;
    let keys = if keys.text("model_type")? == Some("siglip") { &nested } else { keys };
    keys.only("vision_use_head", true)?;
    let mut network =
        vit(keys, ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 16, epsilon: 1e-6 })?;
    network.mlp_hidden = keys.integer("intermediate_size", Some(3072), 1..=1 << 20)?;
    network.class_token = false;
    if let Some(table) = &mut network.positions {
        table.class_row = false;
    }
    network.activation = activation(keys, Activation::GeluTanh)?;
    network.probe = Some(ProbeShape { heads: network.num_attention_heads, mlp_hidden: network.mlp_hidden });
    network.pooling = Pooling::Head;
    Ok(network)
}
