use crate::family::{ConfigDefaults, Family, mlp_of_ratio, only_gelu, vit};
use crate::keys::Keys;
use crate::layout::NameTable;
use crate::network::{Activation, Interpolation, Network};
use crate::{ModelError, PixelLibrary};

const REGISTERS: &str = "dinov2_with_registers";

/// DINOv2, with or without registers.
pub(super) const FAMILY: Family = Family {
    name: "DINOv2",
    reference: "transformers' Dinov2Model and Dinov2WithRegistersModel",
    model_types: &["dinov2", REGISTERS],
    network,
    layout: &NameTable {
        prefixes: &["dinov2.", "dinov2_with_registers."],
        own: &["embeddings.", "encoder.", "layernorm."],
        unused: &[],
        names: &[],
    },
    resampler: PixelLibrary::NearPillow,
    text: None,
};

/// The two configs' defaults differ in the patch size alone. The model with registers interpolates with antialiasing.
fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let with_registers = keys.text("model_type")? == Some(REGISTERS);
    only_gelu(keys)?;
    let patch_size = if with_registers { 16 } else { 14 };
    let mut network = vit(keys, ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size, epsilon: 1e-6 })?;
    let swiglu = keys.flag("use_swiglu_ffn", Some(false))?;
    network.mlp_hidden = mlp_of_ratio(keys, network.hidden_size, swiglu)?;
    network.layer_scale = true;
    network.mask_token = true;
    if swiglu {
        network.activation = Activation::GatedSilu;
    }
    if with_registers {
        network.num_register_tokens = keys.integer("num_register_tokens", Some(4), 0..=1 << 12)?;
    }
    if let Some(table) = &mut network.positions {
        table.interpolation = if with_registers { Interpolation::BicubicAntialias } else { Interpolation::Bicubic };
    }
    Ok(network)
}
