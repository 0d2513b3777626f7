use std::path::Path;

use crate::family::Family;
use crate::hub::{self, Repository};
use crate::keys::Keys;
use crate::open::{SEEDED, config_of, fetched, read, unknown};
use crate::{Card, Checkpoint, ModelError, OpenOptions, SeededWeights, TextModel};

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
        if let Some(name) = spec.strip_prefix(SEEDED) {
            return Self::seeded(name);
        }
        let path = Path::new(spec);
        if path.is_dir() {
            return Self::from_folder(path);
        }
        let Some(repository) = Repository::parse(spec) else { return Err(unknown(spec)) };
        let snapshot = fetched(&repository, options)?;
        hub::fetch_present(&repository, &snapshot, &TOKENIZER_FILES, &options.hub, options.progress)?;
        let mut model = Self::from_folder(&snapshot.folder)?;
        model.name = spec.to_owned();
        model.revision = Some(snapshot.commit);
        Ok(model)
    }

    /// Reads the text tower from a folder with the files of [`Model::from_folder`](crate::Model::from_folder).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let path = config_of(folder)?;
        let keys = Keys::parse(&read(&path)?, &path)?;
        let (family, images) = Family::of_keys(&keys)?;
        let tower = family.text.ok_or(ModelError::Lacks("text tower"))?;
        let network = (tower.network)(&keys)?;
        Ok(Self {
            name: folder.display().to_string(),
            revision: None,
            family,
            weights: Box::new(Checkpoint::open(folder, &network, tower.layout)?),
            network,
            pooling: images.pooling,
            library: tower.library,
            folder: Some(folder.to_owned()),
        })
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
            folder: None,
        })
    }
}
