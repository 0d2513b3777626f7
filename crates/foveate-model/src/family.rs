//! What families have in common.

use std::fmt;

use foveate_core::CHANNELS;
use foveate_encode::Pooling;
use serde_json::{Map, Value};

use crate::keys::Keys;
use crate::layout::NameTable;
use crate::network::{Activation, AttentionBias, Grid, Interpolation, Network, PositionTable, TextLibrary, WordTable};
use crate::{ModelError, PixelLibrary};

/// A family in the layout of one library.
pub struct Family {
    /// The family's name.
    pub name: &'static str,
    /// The class whose vectors are the reference.
    pub reference: &'static str,
    /// The values of `model_type` in config.json, the first for an absent `vision_config`.
    pub(crate) model_types: &'static [&'static str],
    /// Reads the network from config.json.
    pub(crate) network: fn(&Keys<'_>) -> Result<Network, ModelError>,
    pub(crate) layout: &'static NameTable,
    /// The library whose pixels the reference has.
    pub(crate) resampler: PixelLibrary,
    /// The text tower, if the family has one.
    pub(crate) text: Option<&'static TextTower>,
}

/// A family's text tower in the layout of one library.
#[derive(Debug)]
pub(crate) struct TextTower {
    /// Reads the network from config.json.
    pub(crate) network: fn(&Keys<'_>) -> Result<Network, ModelError>,
    pub(crate) layout: &'static NameTable,
    pub(crate) library: TextLibrary,
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Families are the entries of one list.
impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Family {
    /// The text tower that a card's table `text` describes, with the keys of `text_config`; `config` are the card's
    /// other keys.
    pub(crate) fn text_of_card(
        &self,
        text: Map<String, Value>,
        config: &Keys<'_>,
    ) -> Result<Option<Network>, ModelError> {
        let Some(tower) = self.text else { return Ok(None) };
        let mut map = Map::new();
        if let Some(outputs) = config.get("projection_dim") {
            map.insert("projection_dim".to_owned(), outputs.clone());
        }
        map.insert("text_config".to_owned(), Value::Object(text));
        (tower.network)(&config.with(map)).map(Some)
    }
}

/// The defaults of a config class.
pub(crate) struct ConfigDefaults {
    pub(crate) hidden_size: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) patch_size: usize,
    pub(crate) epsilon: f64,
}

/// Reads what all families have: a transformer with a class token and a table of positions, GELU, and every bias. The
/// families change the rest. The width of the MLP is that of `intermediate_size`, by default four times a token's.
pub(crate) fn vit(keys: &Keys<'_>, defaults: ConfigDefaults) -> Result<Network, ModelError> {
    match keys.integer("num_channels", Some(CHANNELS), 1..=1 << 16)? {
        CHANNELS => {}
        other => return Err(keys.error("num_channels", format!("is {other}; only RGB (3) is supported"))),
    }
    let patch_size = square_side(keys, "patch_size", defaults.patch_size)?;
    let side = square_side(keys, "image_size", 224)? / patch_size;
    let mut network = transformer(keys, &defaults, patch_size, side)?;
    network.attention_bias = AttentionBias::all(keys.flag("qkv_bias", Some(true))?);
    Ok(network)
}

/// Reads the sizes of the blocks. `side` is in patches.
fn transformer(
    keys: &Keys<'_>,
    defaults: &ConfigDefaults,
    patch_size: usize,
    side: usize,
) -> Result<Network, ModelError> {
    let hidden_size = keys.integer("hidden_size", Some(defaults.hidden_size), 1..=1 << 16)?;
    let mut network = plain(NetworkSizes {
        hidden_size,
        layers: keys.integer("num_hidden_layers", Some(defaults.layers), 1..=4096)?,
        heads: keys.integer("num_attention_heads", Some(defaults.heads), 1..=1 << 16)?,
        mlp_hidden: keys.integer("intermediate_size", Some(4 * hidden_size), 1..=1 << 20)?,
        patch_size,
        side,
    });
    network.layer_norm_eps = keys.number("layer_norm_eps", Some(defaults.epsilon), 0.0..=1.0)?;
    Ok(network)
}

/// The sizes of a network.
pub(crate) struct NetworkSizes {
    pub(crate) hidden_size: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) mlp_hidden: usize,
    pub(crate) patch_size: usize,
    /// Patches along a side of the positions' image.
    pub(crate) side: usize,
}

/// A transformer with a class token and a table of positions, GELU, every bias, and nothing else.
pub(crate) fn plain(sizes: NetworkSizes) -> Network {
    Network {
        hidden_size: sizes.hidden_size,
        num_hidden_layers: sizes.layers,
        num_attention_heads: sizes.heads,
        mlp_hidden: sizes.mlp_hidden,
        words: None,
        patch_size: sizes.patch_size,
        patch_bias: true,
        class_token: true,
        num_register_tokens: 0,
        mask_token: false,
        positions: Some(PositionTable {
            grid: Grid { height: sizes.side, width: sizes.side },
            class_row: true,
            interpolation: Interpolation::Refused,
        }),
        rotary: None,
        stem_norm: false,
        attention_bias: AttentionBias::all(true),
        layer_scale: false,
        activation: Activation::Gelu,
        layer_norm_eps: 1e-6,
        probe: None,
        projection: None,
        pooling: Pooling::Cls,
    }
}

/// Reads what the text towers of `transformers` have in common; `words` is the rest.
pub(crate) fn text_tower(keys: &Keys<'_>, defaults: &ConfigDefaults, words: WordTable) -> Result<Network, ModelError> {
    Ok(of_words(transformer(keys, defaults, 0, 0)?, words))
}

/// The same blocks for a text's words.
pub(crate) fn of_words(mut network: Network, words: WordTable) -> Network {
    network.words = Some(words);
    network.class_token = false;
    network.positions = None;
    network.pooling = Pooling::Head;
    network
}

/// Reads `hidden_act`.
pub(crate) fn activation(keys: &Keys<'_>, default: Activation) -> Result<Activation, ModelError> {
    match keys.text("hidden_act")? {
        None => Ok(default),
        Some("gelu") => Ok(Activation::Gelu),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Activation::GeluTanh),
        Some("quick_gelu") => Ok(Activation::QuickGelu),
        Some("relu") => Ok(Activation::Relu),
        Some(other) => {
            let problem = format!("is '{other}'; supported are gelu, gelu_pytorch_tanh, quick_gelu and relu");
            Err(keys.error("hidden_act", problem))
        }
    }
}

/// Refuses an activation but the exact GELU.
pub(crate) fn only_gelu(keys: &Keys<'_>) -> Result<(), ModelError> {
    match activation(keys, Activation::Gelu)? {
        Activation::Gelu => Ok(()),
        other => Err(keys.error("hidden_act", format!("is '{}'; only the exact 'gelu' is supported", other.name()))),
    }
}

/// `int(hidden_size * mlp_ratio)`; SwiGLU keeps two thirds of it, rounded up to a multiple of 8.
pub(crate) fn mlp_of_ratio(keys: &Keys<'_>, hidden_size: usize, swiglu: bool) -> Result<usize, ModelError> {
    let ratio = keys.number("mlp_ratio", Some(4.0), 0.0..=64.0)?;
    let full = (hidden_size as f64 * ratio) as usize;
    let hidden = if swiglu { ((full as f64 * 2.0 / 3.0) as usize).next_multiple_of(8) } else { full };
    if hidden == 0 {
        return Err(keys.error("mlp_ratio", format!("is {ratio}, which leaves the MLP empty")));
    }
    Ok(hidden)
}

/// Reads a side in pixels, given as one number or as two equal ones.
pub(crate) fn square_side(keys: &Keys<'_>, key: &str, default: usize) -> Result<usize, ModelError> {
    const RANGE: std::ops::RangeInclusive<usize> = 1..=1 << 14;
    match keys.get(key) {
        Some(Value::Array(sides)) => match sides.as_slice() {
            [height, width] if height == width => keys.to_integer(key, height, RANGE),
            _ => Err(keys.error(key, "is not one number or two equal ones; only square is supported")),
        },
        _ => keys.integer(key, Some(default), RANGE),
    }
}
