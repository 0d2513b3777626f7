//! timm's layout: config.json has the architecture's name, what differs from it, and the recipe.

use foveate_core::Size;
use foveate_encode::Pooling;

use super::text;
use crate::family::{Family, NetworkSizes, plain, square_side};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, AttentionBias, Network, ProbeShape, Projection, Rotary};
use crate::{ModelError, PixelLibrary, Preprocess};

/// Every family that is read in this layout, by a word of the architecture's name.
pub(super) const FAMILIES: [(&str, &Family); 3] = [("dinov2", &DINOV2), ("dinov3", &DINOV3), ("core", &PE_CORE)];

const NAMES: [(&str, StoredAt); 27] = [
    ("embeddings.cls_token", StoredAt::At("cls_token")),
    ("embeddings.register_tokens", StoredAt::At("reg_token")),
    ("embeddings.position_embeddings", StoredAt::At("pos_embed")),
    ("embeddings.patch_embeddings.projection", StoredAt::At("patch_embed.proj")),
    ("embeddings.norm", StoredAt::At("norm_pre")),
    ("encoder.layer.{}.attention.attention.query.weight", StoredAt::Part("blocks.{}.attn.qkv.weight", 0, 3)),
    ("encoder.layer.{}.attention.attention.key.weight", StoredAt::Part("blocks.{}.attn.qkv.weight", 1, 3)),
    ("encoder.layer.{}.attention.attention.value.weight", StoredAt::Part("blocks.{}.attn.qkv.weight", 2, 3)),
    ("encoder.layer.{}.attention.attention.query.bias", StoredAt::Part("blocks.{}.attn.qkv.bias", 0, 3)),
    ("encoder.layer.{}.attention.attention.key.bias", StoredAt::Part("blocks.{}.attn.qkv.bias", 1, 3)),
    ("encoder.layer.{}.attention.attention.value.bias", StoredAt::Part("blocks.{}.attn.qkv.bias", 2, 3)),
    ("encoder.layer.{}.attention.output.dense", StoredAt::At("blocks.{}.attn.proj")),
    ("encoder.layer.{}.layer_scale1.lambda1", StoredAt::At("blocks.{}.ls1.gamma")),
    ("encoder.layer.{}.layer_scale2.lambda1", StoredAt::At("blocks.{}.ls2.gamma")),
    ("encoder.layer.{}.mlp.weights_in", StoredAt::Joined("blocks.{}.mlp.fc1_g", "blocks.{}.mlp.fc1_x")),
    ("encoder.layer.{}.mlp.weights_out", StoredAt::At("blocks.{}.mlp.fc2")),
    ("encoder.layer.{}.", StoredAt::At("blocks.{}.")),
    ("layernorm", StoredAt::At("norm")),
    ("head.probe", StoredAt::At("attn_pool.latent")),
    ("head.attention.query", StoredAt::At("attn_pool.q")),
    ("head.attention.key.weight", StoredAt::Part("attn_pool.kv.weight", 0, 2)),
    ("head.attention.value.weight", StoredAt::Part("attn_pool.kv.weight", 1, 2)),
    ("head.attention.key.bias", StoredAt::Part("attn_pool.kv.bias", 0, 2)),
    ("head.attention.value.bias", StoredAt::Part("attn_pool.kv.bias", 1, 2)),
    ("head.attention.output", StoredAt::At("attn_pool.proj")),
    ("head.projection", StoredAt::At("head")),
    ("head.", StoredAt::At("attn_pool.")),
];
/// The attention of DINOv3 has biases of its own for queries and values, and its LayerScale another name.
const DINOV3_NAMES: [(&str, StoredAt); 4] = [
    ("encoder.layer.{}.attention.attention.query.bias", StoredAt::At("blocks.{}.attn.q_bias")),
    ("encoder.layer.{}.attention.attention.value.bias", StoredAt::At("blocks.{}.attn.v_bias")),
    ("encoder.layer.{}.layer_scale1.lambda1", StoredAt::At("blocks.{}.gamma_1")),
    ("encoder.layer.{}.layer_scale2.lambda1", StoredAt::At("blocks.{}.gamma_2")),
];
const OWN: &[&str] = &["cls_token", "reg_token", "pos_embed", "patch_embed.", "norm_pre.", "blocks.", "norm."];

const DINOV2: Family = Family {
    name: "DINOv2",
    reference: "timm's vit_*_dinov2, class token",
    model_types: &[],
    network: dinov2,
    layout: &NameTable { prefixes: &[], own: OWN, unused: &["mask_token"], names: &[("", &NAMES)] },
    resampler: PixelLibrary::Pillow,
    text: None,
};

const DINOV3: Family = Family {
    name: "DINOv3",
    reference: "timm's vit_*_dinov3, class token",
    model_types: &[],
    network: dinov3,
    layout: &NameTable {
        prefixes: &[],
        own: OWN,
        unused: &["mask_token"],
        names: &[("", &DINOV3_NAMES), ("", &NAMES)],
    },
    resampler: PixelLibrary::Pillow,
    text: None,
};

pub(super) const PE_CORE: Family = Family {
    name: "PE-Core",
    reference: "timm's vit_pe_core_*, open_clip's PE-Core-*",
    model_types: &[],
    network: pe_core,
    layout: &NameTable {
        prefixes: &["visual.trunk."],
        own: &["cls_token", "pos_embed", "patch_embed.", "norm_pre.", "blocks.", "norm.", "attn_pool.", "head."],
        unused: &[],
        names: &[("", &NAMES)],
    },
    resampler: PixelLibrary::Pillow,
    text: Some(&text::OPEN_CLIP),
};

/// Width, blocks and heads by a word of the architecture's name.
const SIZES: [(&str, [usize; 3]); 8] = [
    ("tiny", [192, 12, 3]),
    ("small", [384, 12, 6]),
    ("base", [768, 12, 12]),
    ("large", [1024, 24, 16]),
    ("huge", [1280, 32, 20]),
    ("giant", [1536, 40, 24]),
    ("gigantic", [1536, 50, 16]),
    ("7b", [4096, 40, 32]),
];

/// Finds the family of an architecture.
pub(super) fn family(keys: &Keys<'_>) -> Result<&'static Family, ModelError> {
    let architecture = keys.text("architecture")?.unwrap_or_default();
    let found = FAMILIES.iter().find(|(word, _)| words(architecture).any(|known| known == *word));
    found.map(|(_, family)| *family).ok_or_else(|| {
        let problem =
            format!("is '{architecture}'; of timm's, vit_*_dinov2, vit_*_dinov3 and vit_pe_core_* are supported");
        keys.error("architecture", problem)
    })
}

fn words(architecture: &str) -> impl Iterator<Item = &str> {
    architecture.split('_')
}

/// Reads what the three have in common.
fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let architecture = keys.text("architecture")?.unwrap_or_default();
    let Some((_, [hidden, layers, heads])) =
        SIZES.iter().find(|(size, _)| words(architecture).any(|word| word == *size))
    else {
        return Err(keys.error("architecture", format!("is '{architecture}', of which no size is known")));
    };
    let args = keys.object("model_args")?;
    let recipe = keys.object("pretrained_cfg")?;
    let patch = words(architecture).find_map(|word| word.strip_prefix("patch")?.parse().ok());
    let patch_size = square_side(&args, "patch_size", patch.unwrap_or(16))?;
    let side = input(&recipe)?.width as usize / patch_size;
    let hidden_size = args.integer("embed_dim", Some(*hidden), 1..=1 << 16)?;
    let is_gated = words(architecture).any(|word| matches!(word, "plus" | "7b"));
    let ratio = args.number("mlp_ratio", Some(if architecture.contains("7b") { 2.0 } else { 4.0 }), 0.01..=64.0)?;
    let mut network = plain(NetworkSizes {
        hidden_size,
        layers: args.integer("depth", Some(*layers), 1..=4096)?,
        heads: args.integer("num_heads", Some(*heads), 1..=1 << 16)?,
        mlp_hidden: (hidden_size as f64 * ratio) as usize,
        patch_size,
        side,
    });
    network.layer_scale = true;
    if is_gated {
        network.activation = Activation::GatedSilu;
    }
    Ok(network)
}

/// With registers, the table has no row for the class token.
fn dinov2(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let mut network = network(keys)?;
    let architecture = keys.text("architecture")?.unwrap_or_default();
    if architecture.contains("giant") {
        return Err(keys.error("architecture", "has a packed SwiGLU; take facebook/dinov2-giant, the same weights"));
    }
    if let Some(registers) = words(architecture).find_map(|word| word.strip_prefix("reg")?.parse().ok()) {
        network.num_register_tokens = registers;
        if let Some(table) = &mut network.positions {
            table.class_row = false;
        }
    }
    Ok(network)
}

/// timm pools by the mean unless told otherwise; the class token is Meta's.
fn dinov3(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let mut network = network(keys)?;
    let has_bias = keys.text("architecture")?.is_some_and(|architecture| architecture.ends_with("qkvb"));
    network.attention_bias = AttentionBias { query: has_bias, key: false, value: has_bias };
    network.num_register_tokens = 4;
    network.positions = None;
    network.rotary = Some(Rotary::Relative { theta: 100.0 });
    network.layer_norm_eps = 1e-5;
    Ok(network)
}

/// The largest has no class token. Indices of patches begin behind it.
fn pe_core(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let mut network = network(keys)?;
    let args = keys.object("model_args")?;
    let has_class = !keys.text("architecture")?.is_some_and(|architecture| architecture.contains("gigantic"));
    network.class_token = has_class;
    if let Some(table) = &mut network.positions {
        table.class_row = has_class;
    }
    network.patch_bias = false;
    network.stem_norm = true;
    network.layer_scale = false;
    network.layer_norm_eps = 1e-5;
    network.rotary = Some(Rotary::Absolute { theta: 10_000.0, first: usize::from(has_class) });
    let ratio = args.number("attn_pool_mlp_ratio", Some(4.0), 0.01..=64.0)?;
    network.probe = Some(ProbeShape { heads: 8, mlp_hidden: (network.hidden_size as f64 * ratio) as usize });
    let outputs = keys.integer("num_classes", Some(0), 0..=1 << 16)?;
    network.projection = (outputs > 0).then_some(Projection { outputs, has_bias: true });
    network.pooling = Pooling::Head;
    Ok(network)
}

/// Reads the recipe: the shorter side to the input's, divided by `crop_pct`, then the centre.
pub(super) fn recipe(keys: &Keys<'_>) -> Result<Preprocess, ModelError> {
    let keys = keys.object("pretrained_cfg")?;
    if let Some(mode) = keys.text("crop_mode")?.filter(|mode| *mode != "center") {
        return Err(keys.error("crop_mode", format!("is '{mode}'; only center is supported")));
    }
    let crop = input(&keys)?;
    let part = keys.number("crop_pct", Some(0.875), 0.01..=1.0)?;
    Preprocess::of_pillow(&keys, Some((f64::from(crop.width) / part).floor() as u32), crop)
}

/// The input's size: channels, height and width.
fn input(keys: &Keys<'_>) -> Result<Size, ModelError> {
    let Some(value) = keys.get("input_size") else { return Ok(Size::square(224)) };
    match value.as_array().map(Vec::as_slice) {
        Some([_, height, width]) if height == width => {
            Ok(Size::square(keys.to_integer("input_size", width, 1..=1 << 14)? as u32))
        }
        _ => Err(keys.error("input_size", format!("is {value}, not channels and a square"))),
    }
}
