//! open_clip's layout: open_clip_config.json has the sizes and the recipe, open_clip_model.safetensors both towers.

use foveate_core::Size;
use foveate_encode::Pooling;
use serde_json::{Map, Value, json};

use super::{names, text, timm};
use crate::family::{Family, NetworkSizes, plain, square_side};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, Network, Projection};
use crate::{ModelError, PixelLibrary, Preprocess};

const CLIP: Family = Family {
    name: "CLIP",
    reference: "open_clip's encode_image",
    model_types: &[],
    network,
    layout: &NameTable {
        prefixes: &[],
        own: &["visual."],
        unused: &[],
        names: &[
            ("visual.", names::OPEN_CLIP_BLOCKS),
            (
                "visual.",
                &[
                    ("embeddings.cls_token", StoredAt::At("class_embedding")),
                    ("embeddings.patch_embeddings.projection", StoredAt::At("conv1")),
                    ("embeddings.norm", StoredAt::At("ln_pre")),
                    ("layernorm", StoredAt::At("ln_post")),
                    ("head.projection.weight", StoredAt::Transposed("proj")),
                ],
            ),
        ],
    },
    resampler: PixelLibrary::Pillow,
    text: Some(&text::OPEN_CLIP),
};

/// Reads a config: CLIP's own tower, or PE-Core, which is timm's.
pub(super) fn read(keys: &Keys<'_>) -> Result<(&'static Family, Network), ModelError> {
    let model = keys.object("model_cfg")?;
    let vision = model.object("vision_cfg")?;
    match vision.text("timm_model_name")? {
        None => Ok((&CLIP, network(&model)?)),
        Some(name) if name.contains("pe_core") => Ok((&timm::PE_CORE, pe_core(&model, &vision, name)?)),
        Some(name) => {
            let problem = format!("is '{name}'; of timm's towers, vit_pe_core_* are supported");
            Err(vision.error("timm_model_name", problem))
        }
    }
}

/// Reads CLIP's own tower. The key `quick_gelu` is beside `vision_cfg`.
fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let vision = keys.object("vision_cfg")?;
    for key in ["attentional_pool", "no_ln_pre", "final_ln_after_pool"] {
        vision.only(key, false)?;
    }
    let width = vision.integer("width", Some(768), 1..=1 << 16)?;
    let head = vision.integer("head_width", Some(64), 1..=1 << 16)?;
    let patch_size = square_side(&vision, "patch_size", 16)?;
    let side = square_side(&vision, "image_size", 224)? / patch_size;
    let ratio = vision.number("mlp_ratio", Some(4.0), 0.01..=64.0)?;
    let mut network = plain(NetworkSizes {
        hidden_size: width,
        layers: vision.integer("layers", Some(12), 1..=4096)?,
        heads: (width / head).max(1),
        mlp_hidden: (width as f64 * ratio) as usize,
        patch_size,
        side,
    });
    network.patch_bias = false;
    network.stem_norm = true;
    network.layer_norm_eps = 1e-5;
    if keys.flag("quick_gelu", Some(false))? {
        network.activation = Activation::QuickGelu;
    }
    let outputs = keys.integer("embed_dim", None, 1..=1 << 16)?;
    network.projection = Some(Projection { outputs, has_bias: false });
    network.pooling = Pooling::Head;
    Ok(network)
}

/// Reads a tower of timm, whose sizes are in its name and in `timm_model_args`.
fn pe_core(model: &Keys<'_>, vision: &Keys<'_>, name: &str) -> Result<Network, ModelError> {
    let side = square_side(vision, "image_size", 224)?;
    let mut config = Map::new();
    config.insert("architecture".to_owned(), Value::from(name));
    config.insert("num_classes".to_owned(), Value::from(model.integer("embed_dim", None, 1..=1 << 16)?));
    config.insert("model_args".to_owned(), vision.get("timm_model_args").cloned().unwrap_or_else(|| json!({})));
    config.insert("pretrained_cfg".to_owned(), json!({ "input_size": [3, side, side] }));
    (timm::PE_CORE.network)(&model.with(config))
}

/// Reads the recipe. The input is as large as the positions are for.
pub(super) fn recipe(keys: &Keys<'_>, network: &Network) -> Result<Preprocess, ModelError> {
    let keys = keys.object("preprocess_cfg")?;
    let side = network.positions.map_or(0, |table| table.grid.width * network.patch_size);
    let input = Size::square(side as u32);
    let shortest_edge = match keys.text("resize_mode")? {
        None | Some("shortest") => Some(input.width),
        Some("squash") => None,
        Some(other) => {
            return Err(keys.error("resize_mode", format!("is '{other}'; supported are shortest and squash")));
        }
    };
    Preprocess::of_pillow(&keys, shortest_edge, input)
}
