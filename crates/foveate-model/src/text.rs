use std::path::{Path, PathBuf};

use foveate_encode::Pooling;

use crate::family::Family;
use crate::hub;
use crate::keys::Keys;
use crate::open::{ModelPlace, SEEDED, config_of, fetched, read, verified};
use crate::{Card, Checkpoint, LogitScale, ModelError, Network, OpenOptions, SeededWeights, TextLibrary, TextModel};

/// The files that tokenizers are read from, in a repository that has them.
const TOKENIZER_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "spiece.model",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "bpe_simple_vocab_16e6.txt.gz",
];

impl TextModel {
    /// Finds the text tower of the model that `spec` names, as [`Model::open`](crate::Model::open) finds the image
    /// encoder; a model from the hub with the files of its tokenizer.
    ///
    /// # Errors
    /// [`ModelError::Lacks`] if the model embeds images alone, else as there.
    pub fn open(spec: &str, options: &OpenOptions<'_>) -> Result<Self, ModelError> {
        match ModelPlace::of(spec)? {
            ModelPlace::Seeded(name) => Self::seeded(name),
            ModelPlace::Folder(folder) => Self::from_folder(folder),
            ModelPlace::Hub(repository) => {
                let snapshot = fetched(&repository, options)?;
                hub::fetch_present(&repository, &snapshot, &TOKENIZER_FILES, &options.hub, options.progress)?;
                let contents = verified(&repository, &snapshot, options, TextContents::load, |found| &found.weights)?;
                Ok(contents.into_model(spec.to_owned(), Some(snapshot.commit), snapshot.folder))
            }
        }
    }

    /// Reads the text tower from a folder with the files of [`Model::from_folder`](crate::Model::from_folder).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        Ok(TextContents::load(folder)?.into_model(folder.display().to_string(), None, folder.to_owned()))
    }

    /// Returns the shape of a card's text tower with generated weights, without a tokenizer.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] if there is no such card, [`ModelError::Lacks`] if it describes no text tower.
    pub fn seeded(name: &str) -> Result<Self, ModelError> {
        let card = Card::get(name)?;
        let lacks = ModelError::Lacks("text tower in its card");
        let Some(network) = card.text else { return Err(lacks) };
        let Some(tower) = card.family.text else { return Err(lacks) };
        Ok(Self {
            name: format!("{SEEDED}{name}"),
            revision: None,
            family: card.family,
            weights: Box::new(SeededWeights::new(&network)),
            network,
            pooling: card.network.pooling,
            library: tower.library,
            logits: None,
            folder: None,
        })
    }
}

/// What a folder's files say of the text tower.
struct TextContents {
    family: &'static Family,
    network: Network,
    pooling: Pooling,
    library: TextLibrary,
    logits: Option<LogitScale>,
    weights: Checkpoint,
}

impl TextContents {
    fn load(folder: &Path) -> Result<Self, ModelError> {
        let path = config_of(folder)?;
        let keys = Keys::parse(&read(&path)?, &path)?;
        let (family, images) = Family::of_keys(&keys)?;
        let tower = family.text.ok_or(ModelError::Lacks("text tower"))?;
        let network = (tower.network)(&keys)?;
        let weights = Checkpoint::open(folder, &network, tower.layout)?;
        let logits = logit_scale(&weights)?;
        Ok(Self { family, network, pooling: images.pooling, library: tower.library, logits, weights })
    }

    fn into_model(self, name: String, revision: Option<String>, folder: PathBuf) -> TextModel {
        let Self { family, network, pooling, library, logits, weights } = self;
        let weights = Box::new(weights);
        TextModel { name, revision, family, network, weights, pooling, library, logits, folder: Some(folder) }
    }
}

/// Reads the scale of logits, whose logarithm CLIP and SigLIP store, and TIPSv2 its inverse.
fn logit_scale(weights: &Checkpoint) -> Result<Option<LogitScale>, ModelError> {
    let bias = weights.scalar("logit_bias")?.map(f64::from);
    let logarithm = weights.scalar("logit_scale")?;
    let temperature = weights.scalar("temperature")?;
    let scale = logarithm.map(|value| f64::from(value).exp()).or(temperature.map(|value| f64::from(value).recip()));
    Ok(scale.map(|scale| LogitScale { scale, bias }))
}
