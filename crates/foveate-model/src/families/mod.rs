//! Families of image encoders. Each is a file with a config's keys, the switches of its [`Network`], the names of its
//! tensors, and the defaults of its image processor.

mod clip;
mod dinov2;
mod dinov3;
mod open_clip;
mod siglip;
mod timm;
mod tips;
mod vit;

use std::path::Path;

use foveate_core::CHANNELS;
use serde_json::{Map, Value};

use crate::keys::Keys;
use crate::layout::Layout;
use crate::network::{Activation, AttentionBias, Grid, Interpolation, Network, PositionTable};
use crate::{ModelError, Preprocess, Resampler};
use foveate_encode::Pooling;

/// A family in the layout of one library.
#[derive(Debug)]
pub struct Family {
    /// The family's name.
    pub name: &'static str,
    /// The class whose vectors are the reference.
    pub reference: &'static str,
    /// The values of `model_type` in config.json, the first for an absent `vision_config`.
    pub(crate) model_types: &'static [&'static str],
    /// Reads the network from config.json.
    pub(crate) network: fn(&Keys<'_>) -> Result<Network, ModelError>,
    pub(crate) layout: &'static Layout,
    /// The library whose pixels the reference has.
    pub(crate) resampler: Resampler,
}

/// Every family that is supported.
const FAMILIES: [&Family; 6] =
    [&dinov2::FAMILY, &dinov3::FAMILY, &siglip::FAMILY, &clip::FAMILY, &tips::FAMILY, &vit::FAMILY];

/// `model_type`s whose models embed images in a way that no engine here computes, and why.
const REFUSED: [(&str, &str); 2] = [
    ("siglip2", "gives each image its own number of patches (NaFlex); take a checkpoint of fixed size"),
    ("siglip2_vision_model", "gives each image its own number of patches (NaFlex); take a checkpoint of fixed size"),
];

/// Families are the entries of one list.
impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Family {
    /// Every family, the oldest first.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FAMILIES.into_iter()
    }

    /// Reads a config.json, with `recipe` the preprocessor_config.json beside it; or another library's config, which has
    /// the recipe itself. `recipe` is asked for only if it is needed.
    pub(crate) fn describe(
        json: &[u8],
        path: &Path,
        recipe: impl FnOnce(Resampler) -> Result<Preprocess, ModelError>,
    ) -> Result<(&'static Self, Network, Preprocess), ModelError> {
        let keys = Keys::parse(json, path)?;
        if keys.get("model_cfg").is_some() {
            let (family, network, preprocess) = open_clip::read(&keys)?;
            check_sizes(&keys, &network)?;
            return Ok((family, network, preprocess));
        }
        let (family, network) = Self::of_keys(&keys)?;
        let preprocess = if Self::has_recipe(&keys) { timm::recipe(&keys)? } else { recipe(family.resampler)? };
        Ok((family, network, preprocess))
    }

    /// The same of a file's bytes.
    pub(crate) fn has_recipe_in(json: &[u8]) -> bool {
        Keys::parse(json, Path::new("")).is_ok_and(|keys| Self::has_recipe(&keys))
    }

    /// Returns true if a config.json has the recipe, as timm's do.
    fn has_recipe(keys: &Keys<'_>) -> bool {
        keys.get("architecture").is_some()
    }

    /// Parses a config.json: the family is that of its `model_type`. `path` is for messages.
    ///
    /// Absent keys take the defaults of the family's class in `transformers` (5.23).
    ///
    /// # Errors
    /// [`ModelError::Malformed`], naming the key, for anything that is not such a config. This includes switches that
    /// no engine computes, and sizes beyond any model's.
    pub fn of_json(json: &[u8], path: &Path) -> Result<(&'static Self, Network), ModelError> {
        Self::of_keys(&Keys::parse(json, path)?)
    }

    /// Like [`Self::of_json`], from keys that are already parsed.
    pub(crate) fn of_map(map: Map<String, Value>, path: &Path) -> Result<(&'static Self, Network), ModelError> {
        Self::of_keys(&Keys::new(map, path))
    }

    fn of_keys(keys: &Keys<'_>) -> Result<(&'static Self, Network), ModelError> {
        if Self::has_recipe(keys) {
            let family = timm::family(keys)?;
            let network = (family.network)(keys)?;
            check_sizes(keys, &network)?;
            return Ok((family, network));
        }
        let Some(model_type) = keys.text("model_type")? else {
            return Err(keys.error("model_type", format!("is missing; it must be one of {}", model_types())));
        };
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == model_type) {
            return Err(keys.error("model_type", format!("is '{model_type}', which {reason}")));
        }
        if model_type.ends_with("text_model") {
            return Err(keys.error("model_type", format!("is '{model_type}': a tower for text, without images")));
        }
        let Some(family) = FAMILIES.iter().find(|family| family.model_types.contains(&model_type)) else {
            return Err(keys.error("model_type", format!("is '{model_type}'; supported are {}", model_types())));
        };
        let network = (family.network)(keys)?;
        check_sizes(keys, &network)?;
        Ok((family, network))
    }
}

fn model_types() -> String {
    FAMILIES.iter().flat_map(|family| family.model_types).copied().collect::<Vec<_>>().join(", ")
}

fn check_sizes(keys: &Keys<'_>, network: &Network) -> Result<(), ModelError> {
    let (hidden, heads) = (network.hidden_size, network.num_attention_heads);
    if !hidden.is_multiple_of(heads) {
        let problem = format!("is {heads}, which does not divide 'hidden_size' {hidden}");
        return Err(keys.error("num_attention_heads", problem));
    }
    if network.rotary.is_some() && !network.head_size().is_multiple_of(4) {
        let problem = format!("makes heads {} wide; rotary positions need a multiple of 4", network.head_size());
        return Err(keys.error("num_attention_heads", problem));
    }
    match network.positions {
        Some(table) if table.grid.patches() == 0 => Err(keys.error("image_size", "is smaller than 'patch_size'")),
        _ => Ok(()),
    }
}

/// The defaults of a config class.
struct ConfigDefaults {
    hidden_size: usize,
    layers: usize,
    heads: usize,
    patch_size: usize,
    epsilon: f64,
}

/// Reads what all families have: a transformer with a class token and a table of positions, GELU, and every bias. The
/// families change the rest. The width of the MLP is that of `intermediate_size`, by default four times a token's.
fn vit(keys: &Keys<'_>, defaults: ConfigDefaults) -> Result<Network, ModelError> {
    match keys.integer("num_channels", Some(CHANNELS), 1..=1 << 16)? {
        CHANNELS => {}
        other => return Err(keys.error("num_channels", format!("is {other}; only RGB (3) is supported"))),
    }
    let hidden_size = keys.integer("hidden_size", Some(defaults.hidden_size), 1..=1 << 16)?;
    let patch_size = square_side(keys, "patch_size", defaults.patch_size)?;
    let side = square_side(keys, "image_size", 224)? / patch_size;
    Ok(Network {
        hidden_size,
        num_hidden_layers: keys.integer("num_hidden_layers", Some(defaults.layers), 1..=4096)?,
        num_attention_heads: keys.integer("num_attention_heads", Some(defaults.heads), 1..=1 << 16)?,
        mlp_hidden: keys.integer("intermediate_size", Some(4 * hidden_size), 1..=1 << 20)?,
        patch_size,
        patch_bias: true,
        class_token: true,
        num_register_tokens: 0,
        mask_token: false,
        positions: Some(PositionTable {
            grid: Grid { height: side, width: side },
            class_row: true,
            interpolation: Interpolation::Refused,
        }),
        rotary: None,
        stem_norm: false,
        attention_bias: AttentionBias::all(keys.flag("qkv_bias", Some(true))?),
        layer_scale: false,
        activation: Activation::Gelu,
        layer_norm_eps: keys.number("layer_norm_eps", Some(defaults.epsilon), 0.0..=1.0)?,
        probe: None,
        projection: None,
        pooling: Pooling::Cls,
    })
}

/// Reads `hidden_act`.
fn activation(keys: &Keys<'_>, default: Activation) -> Result<Activation, ModelError> {
    match keys.text("hidden_act")? {
        None => Ok(default),
        Some("gelu") => Ok(Activation::Gelu),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Activation::GeluTanh),
        Some("quick_gelu") => Ok(Activation::QuickGelu),
        Some(other) => {
            let problem = format!("is '{other}'; supported are gelu, gelu_pytorch_tanh and quick_gelu");
            Err(keys.error("hidden_act", problem))
        }
    }
}

/// Refuses an activation but the exact GELU.
fn only_gelu(keys: &Keys<'_>) -> Result<(), ModelError> {
    match activation(keys, Activation::Gelu)? {
        Activation::Gelu => Ok(()),
        other => Err(keys.error("hidden_act", format!("is '{}'; only the exact 'gelu' is supported", other.name()))),
    }
}

/// `int(hidden_size * mlp_ratio)`; SwiGLU keeps two thirds of it, rounded up to a multiple of 8.
fn mlp_of_ratio(keys: &Keys<'_>, hidden_size: usize, swiglu: bool) -> Result<usize, ModelError> {
    let ratio = keys.number("mlp_ratio", Some(4.0), 0.0..=64.0)?;
    let full = (hidden_size as f64 * ratio) as usize;
    let hidden = if swiglu { ((full as f64 * 2.0 / 3.0) as usize).next_multiple_of(8) } else { full };
    if hidden == 0 {
        return Err(keys.error("mlp_ratio", format!("is {ratio}, which leaves the MLP empty")));
    }
    Ok(hidden)
}

/// Reads a side in pixels, given as one number or as two equal ones.
fn square_side(keys: &Keys<'_>, key: &str, default: usize) -> Result<usize, ModelError> {
    const RANGE: std::ops::RangeInclusive<usize> = 1..=1 << 14;
    match keys.get(key) {
        Some(Value::Array(sides)) => match sides.as_slice() {
            [height, width] if height == width => keys.to_integer(key, height, RANGE),
            _ => Err(keys.error(key, "is not one number or two equal ones; only square is supported")),
        },
        _ => keys.integer(key, Some(default), RANGE),
    }
}
