use crate::family::{ConfigDefaults, Family, only_gelu, vit};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, AttentionBias, Network, Rotary};
use crate::{ModelError, PixelLibrary};

/// DINOv3's vision transformers.
pub(super) const FAMILY: Family = Family {
    name: "DINOv3",
    reference: "transformers' DINOv3ViTModel",
    model_types: &["dinov3_vit"],
    network,
    layout: &NameTable {
        prefixes: &["model.", "dinov3_vit."],
        own: &["embeddings.", "layer.", "norm."],
        unused: &[],
        names: &[(
            "",
            &[
                ("embeddings.patch_embeddings.projection", StoredAt::At("embeddings.patch_embeddings")),
                ("encoder.layer.{}.attention.attention.query", StoredAt::At("layer.{}.attention.q_proj")),
                ("encoder.layer.{}.attention.attention.key", StoredAt::At("layer.{}.attention.k_proj")),
                ("encoder.layer.{}.attention.attention.value", StoredAt::At("layer.{}.attention.v_proj")),
                ("encoder.layer.{}.attention.output.dense", StoredAt::At("layer.{}.attention.o_proj")),
                ("encoder.layer.{}.mlp.fc1", StoredAt::At("layer.{}.mlp.up_proj")),
                ("encoder.layer.{}.mlp.fc2", StoredAt::At("layer.{}.mlp.down_proj")),
                ("encoder.layer.{}.mlp.weights_in", StoredAt::Joined("layer.{}.mlp.gate_proj", "layer.{}.mlp.up_proj")),
                ("encoder.layer.{}.mlp.weights_out", StoredAt::At("layer.{}.mlp.down_proj")),
                ("encoder.layer.{}.", StoredAt::At("layer.{}.")),
                ("layernorm", StoredAt::At("norm")),
            ],
        )],
    },
    resampler: PixelLibrary::Torchvision,
    text: None,
};

/// Positions are rotations alone, so that any size is taken. Keys have no bias unless the config says so.
fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let defaults = ConfigDefaults { hidden_size: 384, layers: 12, heads: 6, patch_size: 16, epsilon: 1e-5 };
    let mut network = vit(keys, defaults)?;
    for key in ["proj_bias", "mlp_bias", "apply_layernorm"] {
        keys.only(key, true)?;
    }
    network.activation = match keys.flag("use_gated_mlp", Some(false))? {
        false => {
            only_gelu(keys)?;
            Activation::Gelu
        }
        true => match keys.text("hidden_act")? {
            Some("silu") => Activation::GatedSilu,
            other => {
                let other = other.unwrap_or("gelu");
                return Err(keys.error("hidden_act", format!("is '{other}'; gated MLPs are computed with 'silu'")));
            }
        },
    };
    network.attention_bias = AttentionBias {
        query: keys.flag("query_bias", Some(true))?,
        key: keys.flag("key_bias", Some(false))?,
        value: keys.flag("value_bias", Some(true))?,
    };
    network.num_register_tokens = keys.integer("num_register_tokens", Some(0), 0..=1 << 12)?;
    network.layer_scale = true;
    network.mask_token = true;
    network.positions = None;
    network.rotary = Some(Rotary::Relative { theta: keys.number("rope_theta", Some(100.0), 1.0..=1e9)? });
    Ok(network)
}
