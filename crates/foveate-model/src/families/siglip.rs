use super::text;
use crate::family::{ConfigDefaults, Family, activation, vit};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, Network, ProbeShape};
use crate::{ModelError, PixelLibrary};
use foveate_encode::Pooling;

/// The names of `vision_model` in `transformers`, CLIP's and SigLIP's.
pub(super) const NAMES: &[(&str, StoredAt)] = &[
    ("embeddings.patch_embeddings.projection", StoredAt::At("vision_model.embeddings.patch_embedding")),
    ("embeddings.position_embeddings", StoredAt::At("vision_model.embeddings.position_embedding.weight")),
    ("encoder.layer.{}.norm1", StoredAt::At("vision_model.encoder.layers.{}.layer_norm1")),
    ("encoder.layer.{}.attention.attention.query", StoredAt::At("vision_model.encoder.layers.{}.self_attn.q_proj")),
    ("encoder.layer.{}.attention.attention.key", StoredAt::At("vision_model.encoder.layers.{}.self_attn.k_proj")),
    ("encoder.layer.{}.attention.attention.value", StoredAt::At("vision_model.encoder.layers.{}.self_attn.v_proj")),
    ("encoder.layer.{}.attention.output.dense", StoredAt::At("vision_model.encoder.layers.{}.self_attn.out_proj")),
    ("encoder.layer.{}.norm2", StoredAt::At("vision_model.encoder.layers.{}.layer_norm2")),
    ("encoder.layer.{}.mlp", StoredAt::At("vision_model.encoder.layers.{}.mlp")),
    ("layernorm", StoredAt::At("vision_model.post_layernorm")),
    ("head.probe", StoredAt::At("vision_model.head.probe")),
    ("head.attention.query.weight", StoredAt::Part("vision_model.head.attention.in_proj_weight", 0, 3)),
    ("head.attention.key.weight", StoredAt::Part("vision_model.head.attention.in_proj_weight", 1, 3)),
    ("head.attention.value.weight", StoredAt::Part("vision_model.head.attention.in_proj_weight", 2, 3)),
    ("head.attention.query.bias", StoredAt::Part("vision_model.head.attention.in_proj_bias", 0, 3)),
    ("head.attention.key.bias", StoredAt::Part("vision_model.head.attention.in_proj_bias", 1, 3)),
    ("head.attention.value.bias", StoredAt::Part("vision_model.head.attention.in_proj_bias", 2, 3)),
    ("head.attention.output", StoredAt::At("vision_model.head.attention.out_proj")),
    ("head.norm", StoredAt::At("vision_model.head.layernorm")),
    ("head.mlp", StoredAt::At("vision_model.head.mlp")),
    ("embeddings.cls_token", StoredAt::At("vision_model.embeddings.class_embedding")),
    // The library's own spelling.
    ("embeddings.norm", StoredAt::At("vision_model.pre_layrnorm")),
    ("head.projection", StoredAt::At("visual_projection")),
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
        names: &[NAMES],
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
