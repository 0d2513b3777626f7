use std::path::Path;

use crate::{Card, Checkpoint, Config, Model, ModelError, OpenOptions, Preprocess, SeededWeights};

/// What `seeded:` models start with.
const SEEDED: &str = "seeded:";

impl Model {
    /// Finds the model that `spec` names, in this order:
    ///
    /// - `seeded:NAME`: the shape of a model card with generated weights (see [`SeededWeights`]); no file, no network;
    /// - an existing folder in Hugging Face layout (see [`Self::from_folder`]);
    /// - `owner/name` or `owner/name@revision`: a repository of the Hugging Face hub, through its shared cache. A model
    ///   card's repository is fetched at the card's revision, any other at `main`.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] for anything else, [`ModelError::Hub`] when the hub or the cache does not have it, and
    /// the errors of [`Self::from_folder`].
    pub fn open(spec: &str, options: &OpenOptions<'_>) -> Result<Self, ModelError> {
        if let Some(name) = spec.strip_prefix(SEEDED) {
            return Self::seeded(name);
        }
        let path = Path::new(spec);
        if path.is_dir() {
            return Self::from_folder(path);
        }
        let _ = options;
        Err(ModelError::Unknown { spec: spec.to_owned(), problem: String::new() })
    }

    /// The shape and recipe of the model card `name`, with generated weights.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] when there is no such card.
    pub fn seeded(name: &str) -> Result<Self, ModelError> {
        let card = Card::get(name)?;
        let weights = Box::new(SeededWeights::new(&card.config));
        Ok(Self {
            name: format!("{SEEDED}{name}"),
            revision: None,
            config: card.config,
            preprocess: card.preprocess,
            weights,
        })
    }

    /// Reads a folder with config.json, preprocessor_config.json, and model.safetensors or the shards listed in
    /// model.safetensors.index.json.
    ///
    /// # Errors
    /// [`ModelError::Read`] and [`ModelError::Malformed`], naming file and key, when one of them is missing, is not what
    /// it should be, or does not fit the others.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let (config, preprocess) = (folder.join("config.json"), folder.join("preprocessor_config.json"));
        let config = Config::from_json(&read(&config)?, &config)?;
        let recipe = Preprocess::from_json(&read(&preprocess)?, &preprocess)?;
        config.grid(recipe.crop).map_err(|error| ModelError::malformed(&preprocess, error.to_string()))?;
        let weights = Box::new(Checkpoint::open(folder, &config)?);
        Ok(Self { name: folder.display().to_string(), revision: None, config, preprocess: recipe, weights })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|cause| ModelError::read(path, cause))
}
