use super::text;
use crate::family::{ConfigDefaults, Family, mlp_of_ratio, only_gelu, vit};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, Interpolation, Network};
use crate::{ModelError, PixelLibrary};

/// TIPSv2. Its register is a second class token, which `--pooling register` selects.
pub(super) const FAMILY: Family = Family {
    name: "TIPSv2",
    reference: "transformers' Tipsv2VisionModel",
    model_types: &["tipsv2", "tipsv2_vision_model"],
    network,
    layout: &NameTable {
        prefixes: &["vision_encoder."],
        own: &["cls_token", "register_tokens", "pos_embed", "patch_embed.", "blocks.", "norm."],
        unused: &[],
        names: &[(
            "",
            &[
                ("embeddings.patch_embeddings.projection", StoredAt::At("patch_embed.proj")),
                ("embeddings.position_embeddings", StoredAt::At("pos_embed")),
                ("embeddings.", StoredAt::At("")),
                ("encoder.layer.{}.attention.attention.query", StoredAt::Part("blocks.{}.attn.qkv", 0, 3)),
                ("encoder.layer.{}.attention.attention.key", StoredAt::Part("blocks.{}.attn.qkv", 1, 3)),
                ("encoder.layer.{}.attention.attention.value", StoredAt::Part("blocks.{}.attn.qkv", 2, 3)),
                ("encoder.layer.{}.attention.output.dense", StoredAt::At("blocks.{}.attn.proj")),
                ("encoder.layer.{}.layer_scale1.lambda1", StoredAt::At("blocks.{}.ls1.gamma")),
                ("encoder.layer.{}.layer_scale2.lambda1", StoredAt::At("blocks.{}.ls2.gamma")),
                ("encoder.layer.{}.mlp.fc1", StoredAt::At("blocks.{}.mlp.c_fc")),
                ("encoder.layer.{}.mlp.fc2", StoredAt::At("blocks.{}.mlp.c_proj")),
                ("encoder.layer.{}.mlp.weights_in", StoredAt::At("blocks.{}.mlp.w12")),
                ("encoder.layer.{}.mlp.weights_out", StoredAt::At("blocks.{}.mlp.w3")),
                ("encoder.layer.{}.", StoredAt::At("blocks.{}.")),
                ("layernorm", StoredAt::At("norm")),
            ],
        )],
    },
    resampler: PixelLibrary::Torchvision,
    text: Some(&text::TIPS),
};

/// The image encoder's keys are in `vision_config`, or beside the rest in older files.
fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let nested = keys.object("vision_config")?;
    let keys = if keys.get("vision_config").is_some() { &nested } else { keys };
    only_gelu(keys)?;
    keys.only("apply_layernorm", true)?;
    let mut network =
        vit(keys, ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 14, epsilon: 1e-6 })?;
    let swiglu = keys.flag("use_swiglu_ffn", Some(false))?;
    network.mlp_hidden = mlp_of_ratio(keys, network.hidden_size, swiglu)?;
    network.num_register_tokens = keys.integer("num_register_tokens", Some(1), 0..=1 << 12)?;
    network.layer_scale = true;
    network.mask_token = true;
    if swiglu {
        network.activation = Activation::GatedSilu;
    }
    if let Some(table) = &mut network.positions {
        table.interpolation = Interpolation::BilinearAntialias;
    }
    Ok(network)
}
