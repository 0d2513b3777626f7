//! The text towers of two-tower families.

use super::names;
use crate::ModelError;
use crate::family::{ConfigDefaults, NetworkSizes};
use crate::family::{TextTower, activation, of_words, plain, text_tower};
use crate::keys::Keys;
use crate::layout::{NameTable, NamesBelow, StoredAt};
use crate::network::{Activation, Network, PooledWord, Projection, TextLibrary, WordTable};

/// The names of `text_model` in `transformers` beside those of the blocks, CLIP's and SigLIP's.
const NAMES: NamesBelow = (
    "text_model.",
    &[
        ("embeddings.word_embeddings", StoredAt::At("embeddings.token_embedding.weight")),
        ("layernorm", StoredAt::At("final_layer_norm")),
    ],
);
/// The names in open_clip beside those of the blocks, and in TIPSv2, which took them over.
const OPEN_CLIP_NAMES: NamesBelow = (
    "",
    &[
        ("embeddings.word_embeddings", StoredAt::At("token_embedding.weight")),
        ("layernorm", StoredAt::At("ln_final")),
        ("head.projection.weight", StoredAt::Transposed("text_projection")),
    ],
);
const POSITION_IDS: &[&str] = &["text_model.embeddings.position_ids"];

/// CLIP in `transformers`' layout.
pub(super) const CLIP: TextTower = TextTower {
    network: clip,
    layout: &NameTable {
        prefixes: &[],
        own: &["text_model.", "text_projection."],
        unused: POSITION_IDS,
        names: &[
            ("", &[("head.projection", StoredAt::At("text_projection"))]),
            ("text_model.", names::TRANSFORMERS_BLOCKS),
            NAMES,
        ],
    },
    library: TextLibrary::Clip,
};

/// SigLIP, and SigLIP 2 of fixed size. The model sees the padding, and pools the last position.
pub(super) const SIGLIP: TextTower = TextTower {
    network: siglip,
    layout: &NameTable {
        prefixes: &[],
        own: &["text_model."],
        unused: POSITION_IDS,
        names: &[
            ("", &[("head.projection", StoredAt::At("text_model.head"))]),
            ("text_model.", names::TRANSFORMERS_BLOCKS),
            NAMES,
        ],
    },
    library: TextLibrary::Siglip,
};

/// TIPSv2, whose positions are sines and cosines.
pub(super) const TIPS: TextTower = TextTower {
    network: tips,
    layout: &NameTable {
        prefixes: &["text_encoder."],
        own: &["token_embedding.", "transformer.", "ln_final."],
        unused: &[],
        names: &[("", names::OPEN_CLIP_BLOCKS), OPEN_CLIP_NAMES],
    },
    library: TextLibrary::Tips,
};

/// CLIP and PE-Core in open_clip's layout.
pub(super) const OPEN_CLIP: TextTower = TextTower {
    network: open_clip,
    layout: &NameTable {
        prefixes: &["text."],
        own: &["token_embedding.", "positional_embedding", "transformer.", "ln_final.", "text_projection"],
        unused: &[],
        names: &[("", names::OPEN_CLIP_BLOCKS), OPEN_CLIP_NAMES],
    },
    library: TextLibrary::OpenClip,
};

/// The keys of the text tower. A model of images alone has none.
fn text_config<'a>(keys: &Keys<'a>) -> Result<Keys<'a>, ModelError> {
    match keys.text("model_type")? {
        Some(image) if image.ends_with("vision_model") => Err(ModelError::Lacks("text tower")),
        _ => keys.object("text_config"),
    }
}

fn clip(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let text = text_config(keys)?;
    // OpenAI's configs have a wrong id, 2, at which the library takes the largest one instead.
    let end = text.integer("eos_token_id", Some(49_407), 0..=1 << 24)? as u32;
    let words = WordTable {
        vocabulary: text.integer("vocab_size", Some(49_408), 1..=1 << 24)?,
        context: text.integer("max_position_embeddings", Some(77), 1..=1 << 12)?,
        scale: 1.0,
        sinusoids: false,
        causal: true,
        pooled: if end == 2 { PooledWord::Largest } else { PooledWord::First(end) },
    };
    let defaults = ConfigDefaults { hidden_size: 512, layers: 12, heads: 8, patch_size: 0, epsilon: 1e-5 };
    let mut network = text_tower(&text, &defaults, words)?;
    network.mlp_hidden = text.integer("intermediate_size", Some(2048), 1..=1 << 20)?;
    network.activation = activation(&text, Activation::QuickGelu)?;
    let outputs = keys.integer("projection_dim", Some(512), 1..=1 << 16)?;
    network.projection = Some(Projection { outputs, has_bias: false });
    Ok(network)
}

fn siglip(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let text = text_config(keys)?;
    let words = WordTable {
        vocabulary: text.integer("vocab_size", Some(32_000), 1..=1 << 24)?,
        context: text.integer("max_position_embeddings", Some(64), 1..=1 << 12)?,
        scale: 1.0,
        sinusoids: false,
        causal: false,
        pooled: PooledWord::Last,
    };
    let defaults = ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 0, epsilon: 1e-6 };
    let mut network = text_tower(&text, &defaults, words)?;
    network.mlp_hidden = text.integer("intermediate_size", Some(3072), 1..=1 << 20)?;
    network.activation = activation(&text, Activation::GeluTanh)?;
    let outputs = text.integer("projection_size", Some(network.hidden_size), 1..=1 << 16)?;
    network.projection = Some(Projection { outputs, has_bias: true });
    Ok(network)
}

fn tips(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let text = text_config(keys)?;
    let hidden = text.integer("hidden_size", Some(768), 1..=1 << 16)?;
    let is_scaled = text.flag("scale_sqrt_depth", Some(true))?;
    let words = WordTable {
        vocabulary: text.integer("vocab_size", Some(32_000), 1..=1 << 24)?,
        context: text.integer("max_position_embeddings", Some(64), 1..=1 << 12)?,
        scale: if is_scaled { (hidden as f64).sqrt() as f32 } else { 1.0 },
        sinusoids: true,
        causal: false,
        pooled: PooledWord::Mean,
    };
    let defaults = ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 0, epsilon: 1e-5 };
    let mut network = text_tower(&text, &defaults, words)?;
    network.mlp_hidden = text.integer("intermediate_size", Some(3072), 1..=1 << 20)?;
    network.activation = activation(&text, Activation::Relu)?;
    Ok(network)
}

/// The key `quick_gelu` is beside `text_cfg`.
fn open_clip(keys: &Keys<'_>) -> Result<Network, ModelError> {
    if keys.get("model_cfg").is_none() {
        return Err(ModelError::Lacks("text tower"));
    }
    let model = keys.object("model_cfg")?;
    let text = model.object("text_cfg")?;
    for key in ["embed_cls", "proj_bias"] {
        text.only(key, false)?;
    }
    for key in ["hf_model_name", "act_kwargs", "norm_kwargs"] {
        if let Some(value) = text.get(key) {
            return Err(text.error(key, format!("is {value}; open_clip's own text tower is supported")));
        }
    }
    let pooled = match text.text("pool_type")? {
        None | Some("argmax") => PooledWord::Largest,
        Some("last") => PooledWord::Last,
        Some(other) => return Err(text.error("pool_type", format!("is '{other}'; supported are argmax and last"))),
    };
    let width = text.integer("width", Some(512), 1..=1 << 16)?;
    let ratio = text.number("mlp_ratio", Some(4.0), 0.01..=64.0)?;
    let network = plain(NetworkSizes {
        hidden_size: width,
        layers: text.integer("layers", Some(12), 1..=4096)?,
        heads: text.integer("heads", Some(8), 1..=1 << 12)?,
        mlp_hidden: (width as f64 * ratio) as usize,
        patch_size: 0,
        side: 0,
    });
    let mut network = of_words(
        network,
        WordTable {
            vocabulary: text.integer("vocab_size", Some(49_408), 1..=1 << 24)?,
            context: text.integer("context_length", Some(77), 1..=1 << 12)?,
            scale: 1.0,
            sinusoids: false,
            causal: !text.flag("no_causal_mask", Some(false))?,
            pooled,
        },
    );
    network.layer_norm_eps = 1e-5;
    if model.flag("quick_gelu", Some(false))? {
        network.activation = Activation::QuickGelu;
    }
    let outputs = model.integer("embed_dim", None, 1..=1 << 16)?;
    network.projection = Some(Projection { outputs, has_bias: false });
    Ok(network)
}
