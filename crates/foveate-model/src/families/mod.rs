//! Families of image encoders. Each is a file with a config's keys, the switches of its [`Network`], the names of its
//! tensors, and the defaults of its image processor.

mod clip;
mod dinov2;
mod dinov3;
mod ijepa;
mod names;
mod open_clip;
mod siglip;
mod text;
mod timm;
mod tips;
mod vit;

use std::path::Path;

use crate::family::Family;
use crate::keys::Keys;
use crate::network::Network;
use crate::{ModelError, PixelLibrary, Preprocess};

/// Every family that is supported.
const FAMILIES: [&Family; 7] =
    [&dinov2::FAMILY, &dinov3::FAMILY, &siglip::FAMILY, &clip::FAMILY, &tips::FAMILY, &vit::FAMILY, &ijepa::FAMILY];

/// `model_type`s whose models embed images in a way that no engine here computes, and why.
const REFUSED: [(&str, &str); 2] = [
    ("siglip2", "gives each image its own number of patches (NaFlex); take a checkpoint of fixed size"),
    ("siglip2_vision_model", "gives each image its own number of patches (NaFlex); take a checkpoint of fixed size"),
];

impl Family {
    /// Reads a config.json, with `recipe` the preprocessor_config.json beside it; or another library's config, which
    /// has the recipe itself. `recipe` is asked for only if it is needed.
    pub(crate) fn describe(
        keys: &Keys<'_>,
        recipe: impl FnOnce(PixelLibrary) -> Result<Preprocess, ModelError>,
    ) -> Result<(&'static Self, Network, Preprocess), ModelError> {
        let (family, network) = Self::of_keys(keys)?;
        let preprocess = if keys.get("model_cfg").is_some() {
            open_clip::recipe(keys, &network)?
        } else if Self::has_recipe(keys) {
            timm::recipe(keys)?
        } else {
            recipe(family.resampler)?
        };
        Ok((family, network, preprocess))
    }

    /// Returns true if the bytes of a config.json have the recipe, as timm's do.
    pub(crate) fn has_recipe_in(json: &[u8]) -> bool {
        Keys::parse(json, Path::new("")).is_ok_and(|keys| Self::has_recipe(&keys))
    }

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

    pub(crate) fn of_keys(keys: &Keys<'_>) -> Result<(&'static Self, Network), ModelError> {
        let (family, network) = if keys.get("model_cfg").is_some() {
            open_clip::read(keys)?
        } else {
            let family = if Self::has_recipe(keys) { timm::family(keys)? } else { Self::of_model_type(keys)? };
            (family, (family.network)(keys)?)
        };
        check_sizes(keys, &network)?;
        Ok((family, network))
    }

    fn of_model_type(keys: &Keys<'_>) -> Result<&'static Self, ModelError> {
        let Some(model_type) = keys.text("model_type")? else {
            return Err(keys.error("model_type", format!("is missing; it must be one of {}", model_types())));
        };
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == model_type) {
            return Err(keys.error("model_type", format!("is '{model_type}', which {reason}")));
        }
        if model_type.ends_with("text_model") {
            return Err(keys.error("model_type", format!("is '{model_type}': a tower for text, without images")));
        }
        FAMILIES
            .into_iter()
            .find(|family| family.model_types.contains(&model_type))
            .ok_or_else(|| keys.error("model_type", format!("is '{model_type}'; supported are {}", model_types())))
    }
}

fn model_types() -> String {
    FAMILIES.iter().flat_map(|family| family.model_types).copied().collect::<Vec<_>>().join(", ")
}

fn check_sizes(keys: &Keys<'_>, network: &Network) -> Result<(), ModelError> {
    let hidden = network.hidden_size;
    let heads = network.num_attention_heads;
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
