//! Names of tensors that the image encoder and the text tower of a model share.

use crate::layout::StoredAt;

/// The names of positions and blocks in `vision_model` and `text_model` of `transformers`, CLIP's and SigLIP's.
pub(super) const TRANSFORMERS_BLOCKS: &[(&str, StoredAt)] = &[
    ("embeddings.position_embeddings", StoredAt::At("embeddings.position_embedding.weight")),
    ("encoder.layer.{}.norm1", StoredAt::At("encoder.layers.{}.layer_norm1")),
    ("encoder.layer.{}.attention.attention.query", StoredAt::At("encoder.layers.{}.self_attn.q_proj")),
    ("encoder.layer.{}.attention.attention.key", StoredAt::At("encoder.layers.{}.self_attn.k_proj")),
    ("encoder.layer.{}.attention.attention.value", StoredAt::At("encoder.layers.{}.self_attn.v_proj")),
    ("encoder.layer.{}.attention.output.dense", StoredAt::At("encoder.layers.{}.self_attn.out_proj")),
    ("encoder.layer.{}.norm2", StoredAt::At("encoder.layers.{}.layer_norm2")),
    ("encoder.layer.{}.mlp", StoredAt::At("encoder.layers.{}.mlp")),
];

/// The names of both towers' positions and blocks in open_clip.
pub(super) const OPEN_CLIP_BLOCKS: &[(&str, StoredAt)] = &[
    ("embeddings.position_embeddings", StoredAt::At("positional_embedding")),
    ("encoder.layer.{}.norm1", StoredAt::At("transformer.resblocks.{}.ln_1")),
    ("encoder.layer.{}.attention.attention.query.weight", StoredAt::Part(IN_PROJ, 0, 3)),
    ("encoder.layer.{}.attention.attention.key.weight", StoredAt::Part(IN_PROJ, 1, 3)),
    ("encoder.layer.{}.attention.attention.value.weight", StoredAt::Part(IN_PROJ, 2, 3)),
    ("encoder.layer.{}.attention.attention.query.bias", StoredAt::Part(IN_PROJ_BIAS, 0, 3)),
    ("encoder.layer.{}.attention.attention.key.bias", StoredAt::Part(IN_PROJ_BIAS, 1, 3)),
    ("encoder.layer.{}.attention.attention.value.bias", StoredAt::Part(IN_PROJ_BIAS, 2, 3)),
    ("encoder.layer.{}.attention.output.dense", StoredAt::At("transformer.resblocks.{}.attn.out_proj")),
    ("encoder.layer.{}.norm2", StoredAt::At("transformer.resblocks.{}.ln_2")),
    ("encoder.layer.{}.mlp.fc1", StoredAt::At("transformer.resblocks.{}.mlp.c_fc")),
    ("encoder.layer.{}.mlp.fc2", StoredAt::At("transformer.resblocks.{}.mlp.c_proj")),
];
const IN_PROJ: &str = "transformer.resblocks.{}.attn.in_proj_weight";
const IN_PROJ_BIAS: &str = "transformer.resblocks.{}.attn.in_proj_bias";
