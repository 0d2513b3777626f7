use std::path::Path;

use foveate_models::CARDS;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::keys::Keys;
use crate::{Family, ModelError, Network, Preprocess};

/// A model card: the facts about a published model that need no network.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Hub repository, which is also the card's name (`facebook/dinov2-small`).
    pub repository: String,
    /// Commit to fetch by default; `None` for the newest.
    pub revision: Option<String>,
    /// SHA-256 of that commit's model.safetensors, if it is known.
    pub sha256: Option<String>,
    /// Licence of the weights as the repository states it, an SPDX identifier if there is one.
    pub licence: String,
    /// True if the hub wants the licence accepted first.
    pub gated: bool,
    /// Number of values in the checkpoint.
    pub parameters: usize,
    /// Length of the model's own vector.
    pub dimension: usize,
    /// The family, in the layout of one library.
    pub family: &'static Family,
    /// Architecture.
    pub network: Network,
    /// The recipe.
    pub preprocess: Preprocess,
    /// Architecture of the text tower, if the card describes one.
    pub text: Option<Network>,
}

/// The file's form. Its two tables have the keys of the hub's JSON files, and the same parsers read them. timm's config
/// has the recipe itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    repository: String,
    revision: Option<String>,
    sha256: Option<String>,
    licence: String,
    #[serde(default)]
    gated: bool,
    parameters: usize,
    dimension: usize,
    config: Map<String, Value>,
    #[serde(default)]
    preprocessor: Map<String, Value>,
    /// The keys of `text_config`.
    text: Option<Map<String, Value>>,
}

impl Card {
    /// The names of the cards without their owner (`dinov2-small`), by family, smallest model first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CARDS.iter().map(|(name, _)| *name)
    }

    /// Returns the card called `name`, with or without its owner (`facebook/dinov2-small`, `dinov2-small`).
    ///
    /// # Errors
    /// [`ModelError::Unknown`], which lists the existing cards.
    pub fn get(name: &str) -> Result<Self, ModelError> {
        let short = name.rsplit('/').next().unwrap_or(name);
        let known = CARDS.iter().find(|(known, _)| *known == short);
        let card = known.map(|(known, text)| Self::parse(text, Path::new(&format!("models/{known}.toml"))));
        match card.transpose()?.filter(|card| short == name || card.repository == name) {
            Some(card) => Ok(card),
            None => {
                let known: Vec<&str> = Self::names().collect();
                let problem = format!("there is no such model card; known: {}", known.join(", "));
                Err(ModelError::Unknown { spec: name.to_owned(), problem })
            }
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ModelError> {
        let file: CardFile = toml::from_str(text).map_err(|e| ModelError::malformed(path, e.message()))?;
        let config = Keys::new(file.config, path);
        let (family, network, preprocess) =
            Family::describe(&config, |resampler| Preprocess::from_map(file.preprocessor, path, resampler))?;
        let text = file.text.map(|text| family.text_of_card(text, &config)).transpose()?.flatten();
        Ok(Self {
            repository: file.repository,
            revision: file.revision,
            sha256: file.sha256,
            licence: file.licence,
            gated: file.gated,
            parameters: file.parameters,
            dimension: file.dimension,
            family,
            network,
            preprocess,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_agrees_with_itself() {
        for name in Card::names() {
            let card = Card::get(name).unwrap();
            assert!(card.repository.ends_with(&format!("/{name}")));
            assert_eq!(card.parameters, card.network.parameters(), "{name}");
            assert_eq!(card.dimension, card.network.dim(card.network.pooling).unwrap(), "{name}");
            assert!(card.network.grid(card.preprocess.crop).is_ok());
            if let Some(text) = &card.text {
                assert_eq!(text.dim(text.pooling).unwrap(), card.dimension, "{name}");
            }
            assert_eq!(Card::get(&card.repository).unwrap(), card);
        }
    }

    #[test]
    fn an_unknown_card_is_answered_with_the_known_ones() {
        let message = Card::get("dinov2-tiny").unwrap_err().to_string();
        assert!(message.starts_with("no model 'dinov2-tiny'") && message.contains("dinov2-small"), "{message}");
    }

    #[test]
    fn a_card_with_an_unknown_key_is_refused() {
        let text = CARDS[0].1.replace("licence =", "license =");
        let message = Card::parse(&text, Path::new("x.toml")).unwrap_err().to_string();
        assert!(message.contains("license"), "{message}");
    }
}
