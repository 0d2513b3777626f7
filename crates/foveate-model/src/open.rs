use std::path::{Path, PathBuf};

use crate::checkpoint::OPEN_CLIP_CONFIG;
use crate::hub::{self, HubOptions, NoProgress, Progress, Repository, Snapshot};
use crate::keys::Keys;
use crate::{Card, Checkpoint, Family, Model, ModelError, Network, Preprocess, SeededWeights};

/// Options of [`Model::open`].
#[derive(Clone)]
pub struct OpenOptions<'a> {
    /// Access to the hub.
    pub hub: HubOptions,
    /// Receives the progress of downloads.
    pub progress: &'a dyn Progress,
}

impl OpenOptions<'static> {
    /// Describes the hub by the environment variables of Hugging Face's libraries, and discards progress.
    pub fn from_env() -> Self {
        Self { hub: HubOptions::from_env(), progress: &NoProgress }
    }
}

/// The prefix of `seeded:` models.
pub(crate) const SEEDED: &str = "seeded:";

impl Model {
    /// Finds the model that `spec` names, in this order:
    ///
    /// - `seeded:NAME`: the shape of a model card with generated weights (see [`SeededWeights`]); no file, no network;
    /// - an existing folder in Hugging Face layout (see [`Self::from_folder`]);
    /// - `owner/name` or `owner/name@revision`: a repository of the Hugging Face hub, through its shared cache. A model
    ///   card's repository is fetched at the card's commit, any other at `main`.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] for anything else, [`ModelError::Hub`] if the model cannot be fetched and is not in the
    /// cache, and the errors of [`Self::from_folder`].
    pub fn open(spec: &str, options: &OpenOptions<'_>) -> Result<Self, ModelError> {
        match ModelPlace::of(spec)? {
            ModelPlace::Seeded(name) => Self::seeded(name),
            ModelPlace::Folder(folder) => Self::from_folder(folder),
            ModelPlace::Hub(repository) => {
                let snapshot = fetched(&repository, options)?;
                let contents = verified(&repository, &snapshot, options, FolderContents::load, |found| &found.weights)?;
                Ok(contents.into_model(spec.to_owned(), Some(snapshot.commit)))
            }
        }
    }

    /// Checks what the name alone can tell of the model that `spec` names. Reads and downloads nothing; a folder with
    /// an absolute path may be missing here.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] if [`Self::open`] cannot find such a model anywhere.
    pub fn check_name(spec: &str) -> Result<(), ModelError> {
        if let Some(name) = spec.strip_prefix(SEEDED) {
            return Card::get(name).map(drop);
        }
        let path = Path::new(spec);
        let is_known = path.exists() || path.is_absolute() || Repository::parse(spec).is_some();
        is_known.then_some(()).ok_or_else(|| unknown(spec))
    }

    /// Downloads what [`Self::open`] would download, and opens nothing.
    ///
    /// # Errors
    /// [`ModelError::Hub`] if the model cannot be fetched and is not in the cache.
    pub fn download(spec: &str, options: &OpenOptions<'_>) -> Result<(), ModelError> {
        let is_remote = !spec.starts_with(SEEDED) && !Path::new(spec).exists();
        let repository = Repository::parse(spec).filter(|_| is_remote);
        repository.map_or(Ok(()), |repository| fetched(&repository, options).map(drop))
    }

    /// Returns the shape and recipe of the model card `name`, with generated weights.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] if there is no such card.
    pub fn seeded(name: &str) -> Result<Self, ModelError> {
        let card = Card::get(name)?;
        let weights = Box::new(SeededWeights::new(&card.network));
        Ok(Self {
            name: format!("{SEEDED}{name}"),
            revision: None,
            family: card.family,
            network: card.network,
            preprocess: card.preprocess,
            weights,
        })
    }

    /// Reads a folder with config.json, preprocessor_config.json, and model.safetensors or the shards listed in
    /// model.safetensors.index.json.
    ///
    /// # Errors
    /// [`ModelError::Read`] and [`ModelError::Malformed`], naming file and key, if one of them is missing, is
    /// malformed, or does not fit the others.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        Ok(FolderContents::load(folder)?.into_model(folder.display().to_string(), None))
    }
}

pub(crate) fn fetched(repository: &Repository, options: &OpenOptions<'_>) -> Result<Snapshot, ModelError> {
    let card = Card::get(&repository.id).ok();
    let pinned = card.as_ref().and_then(|card| card.revision.as_deref());
    let revision = repository.revision.as_deref().or(pinned).unwrap_or("main");
    let snapshot = hub::fetch(repository, revision, &options.hub, options.progress)?;
    if let Some(card) = &card {
        options.progress.published(card);
    }
    Ok(snapshot)
}

/// Loads a snapshot, and verifies its files: all of them if they cannot be loaded.
pub(crate) fn verified<T>(
    repository: &Repository,
    snapshot: &Snapshot,
    options: &OpenOptions<'_>,
    load: fn(&Path) -> Result<T, ModelError>,
    weights: fn(&T) -> &Checkpoint,
) -> Result<T, ModelError> {
    let contents = match load(&snapshot.folder) {
        Ok(contents) => contents,
        Err(error) => {
            hub::verify_all(repository, snapshot, &options.hub)?;
            return Err(error);
        }
    };
    let pinned = Card::get(&repository.id).ok().filter(|_| repository.revision.is_none());
    let pin = pinned.and_then(|card| card.sha256);
    hub::verify_loaded(repository, snapshot, &options.hub, pin.as_deref(), weights(&contents).files())?;
    Ok(contents)
}

/// What a model's name stands for.
pub(crate) enum ModelPlace<'a> {
    /// A card, whose weights are generated.
    Seeded(&'a str),
    Folder(&'a Path),
    Hub(Repository),
}

impl<'a> ModelPlace<'a> {
    pub(crate) fn of(spec: &'a str) -> Result<Self, ModelError> {
        if let Some(name) = spec.strip_prefix(SEEDED) {
            return Ok(Self::Seeded(name));
        }
        let path = Path::new(spec);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        Repository::parse(spec).map(Self::Hub).ok_or_else(|| unknown(spec))
    }
}

/// The contents of a folder's files.
struct FolderContents {
    family: &'static Family,
    network: Network,
    preprocess: Preprocess,
    weights: Checkpoint,
}

impl FolderContents {
    fn load(folder: &Path) -> Result<Self, ModelError> {
        let recipe = folder.join("preprocessor_config.json");
        let path = config_of(folder)?;
        let (family, network, preprocess) = Family::describe(&Keys::parse(&read(&path)?, &path)?, |resampler| {
            Preprocess::from_json(&read(&recipe)?, &recipe, resampler)
        })?;
        let path = if recipe.exists() { recipe } else { path };
        network.grid(preprocess.crop).map_err(|error| ModelError::malformed(&path, error.to_string()))?;
        let weights = Checkpoint::open(folder, &network, family.layout)?;
        Ok(Self { family, network, preprocess, weights })
    }

    fn into_model(self, name: String, revision: Option<String>) -> Model {
        let Self { family, network, preprocess, weights } = self;
        Model { name, revision, family, network, preprocess, weights: Box::new(weights) }
    }
}

/// The config of the model in `folder`.
pub(crate) fn config_of(folder: &Path) -> Result<PathBuf, ModelError> {
    let config = folder.join("config.json");
    let open_clip = folder.join(OPEN_CLIP_CONFIG);
    let path = if config.exists() || !open_clip.exists() { config } else { open_clip };
    if folder.is_dir() && !path.exists() {
        let problem = "it is missing: this folder has no model; name one with config.json, preprocessor_config.json \
                       and model.safetensors";
        return Err(ModelError::malformed(&path, problem.to_owned()));
    }
    Ok(path)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|cause| ModelError::read(path, cause))
}

/// Explains which forms `spec` could have had.
fn unknown(spec: &str) -> ModelError {
    let problem = match Card::get(spec) {
        Ok(card) => format!("did you mean {} (the hub's) or seeded:{spec} (generated)?", card.repository),
        Err(_) => "it is neither an existing folder, nor owner/name[@revision] of a hub repository, nor seeded:NAME"
            .to_owned(),
    };
    ModelError::Unknown { spec: spec.to_owned(), problem }
}
