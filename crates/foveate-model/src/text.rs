use std::path::{Path, PathBuf};

use crate::family::Family;
use crate::keys::Keys;
use crate::open::{config_of, read};
use crate::{Checkpoint, ModelError, Network, Weights};

/// The text tower of a model that embeds images and texts into the same space.
#[derive(Debug)]
pub struct TextModel {
    /// The model as the user gave it.
    pub name: String,
    /// The commit of a model from the hub.
    pub revision: Option<String>,
    /// The family, in the layout of one library.
    pub family: &'static Family,
    /// Architecture, with [`words`](Network::words).
    pub network: Network,
    /// The tensors.
    pub weights: Box<dyn Weights>,
    /// The folder with the tokenizer's files; `None` for generated weights.
    pub folder: Option<PathBuf>,
}

impl TextModel {
    /// Reads the text tower from a folder with the files of [`Model::from_folder`](crate::Model::from_folder).
    ///
    /// # Errors
    /// [`ModelError::Lacks`] if the model embeds images alone, else as there.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let path = config_of(folder)?;
        let keys = Keys::parse(&read(&path)?, &path)?;
        let (family, _) = Family::of_keys(&keys)?;
        let tower = family.text.ok_or(ModelError::Lacks("text tower"))?;
        let network = (tower.network)(&keys)?;
        Ok(Self {
            name: folder.display().to_string(),
            revision: None,
            family,
            weights: Box::new(Checkpoint::open(folder, &network, tower.layout)?),
            network,
            folder: Some(folder.to_owned()),
        })
    }
}
