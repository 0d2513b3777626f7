use std::path::Path;

use crate::hub::{self, HubOptions, NoProgress, Progress, Repository};
use crate::{Card, Checkpoint, Config, Model, ModelError, Preprocess, SeededWeights};

/// What [`Model::open`] may use besides the files it is pointed at.
#[derive(Clone)]
pub struct OpenOptions<'a> {
    /// How the hub is reached.
    pub hub: HubOptions,
    /// Told of downloads.
    pub progress: &'a dyn Progress,
}

impl OpenOptions<'static> {
    /// The hub as the environment variables of Hugging Face's libraries describe it, and no report of progress.
    pub fn from_env() -> Self {
        Self { hub: HubOptions::from_env(), progress: &NoProgress }
    }
}

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
        match Repository::parse(spec) {
            Some(repository) => Self::from_hub(spec, &repository, options),
            None => Err(unknown(spec)),
        }
    }

    fn from_hub(spec: &str, repository: &Repository, options: &OpenOptions<'_>) -> Result<Self, ModelError> {
        let revision = match &repository.revision {
            Some(revision) => revision.clone(),
            None => Card::get(&repository.id).map_or_else(|_| "main".to_owned(), |card| card.revision),
        };
        let snapshot = hub::fetch(repository, &revision, &options.hub, options.progress)?;
        let parts = match Parts::load(&snapshot.folder) {
            Ok(parts) => parts,
            Err(error) => {
                hub::verify_all(repository, &snapshot, &options.hub)?;
                return Err(error);
            }
        };
        hub::verify_loaded(repository, &snapshot, &options.hub, parts.weights.files())?;
        Ok(parts.into_model(spec.to_owned(), Some(snapshot.commit)))
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
        Ok(Parts::load(folder)?.into_model(folder.display().to_string(), None))
    }
}

/// What the files of a folder make.
struct Parts {
    config: Config,
    preprocess: Preprocess,
    weights: Checkpoint,
}

impl Parts {
    fn load(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join("config.json");
        let config = Config::from_json(&read(&path)?, &path)?;
        let path = folder.join("preprocessor_config.json");
        let preprocess = Preprocess::from_json(&read(&path)?, &path)?;
        config.grid(preprocess.crop).map_err(|error| ModelError::malformed(&path, error.to_string()))?;
        let weights = Checkpoint::open(folder, &config)?;
        Ok(Self { config, preprocess, weights })
    }

    fn into_model(self, name: String, revision: Option<String>) -> Model {
        let Self { config, preprocess, weights } = self;
        Model { name, revision, config, preprocess, weights: Box::new(weights) }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|cause| ModelError::read(path, cause))
}

/// Says what `spec` could have been.
fn unknown(spec: &str) -> ModelError {
    let problem = match Card::get(spec) {
        Ok(card) => format!("did you mean {} (the hub's) or seeded:{spec} (generated)?", card.repository),
        Err(_) => "it is neither an existing folder, nor owner/name[@revision] of a hub repository, nor seeded:NAME"
            .to_owned(),
    };
    ModelError::Unknown { spec: spec.to_owned(), problem }
}
