//! Checks that stop an update if inputs are gone, or have other names, because of a mistake and not because they
//! changed.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use foveate_source::store::scheme_of;

use super::{InputState, KnownInput, KnownInputs, Update, key};
use crate::RunError;

impl KnownInputs {
    /// Checks that the listing is of the output's inputs, and that they are not gone by mistake. Call it when the
    /// listing has shown all.
    ///
    /// # Errors
    /// [`RunError::NothingInCommon`], [`RunError::EmptyFolder`] and [`RunError::TooManyRemoved`].
    pub fn check(&self) -> Result<(), RunError> {
        let Update::Changes { prune, .. } = self.update else { return Ok(()) };
        let inputs = self.known().count() as u64;
        let gone = self.known().filter(|input| input.is_gone()).count() as u64;
        if inputs == gone
            && let (Some(known), Some(listed)) = (self.known_id.clone(), self.added_id.clone())
        {
            return Err(RunError::NothingInCommon { known, listed });
        }
        self.check_folders()?;
        if prune && self.max_removed.is_exceeded(gone, inputs, true) {
            return Err(RunError::TooManyRemoved { removed: gone, inputs, limit: self.max_removed });
        }
        Ok(())
    }

    /// Checks that the folders of inputs that are gone are not empty, as those of disks that are not mounted.
    /// Containers need not have been read.
    ///
    /// # Errors
    /// [`RunError::EmptyFolder`].
    pub fn check_folders(&self) -> Result<(), RunError> {
        let inputs = self.known().count() as u64;
        let may_lose_all = !self.max_removed.is_exceeded(inputs, inputs, true);
        let is_checked = matches!(self.update, Update::Changes { prune: true, .. }) && !may_lose_all;
        if !is_checked || !self.known().any(KnownInput::is_gone) {
            return Ok(());
        }
        let mut looked_up = HashSet::new();
        for record in self.recorded()? {
            let id = record?.id;
            let is_gone = self.inputs.get(&key(&id)).is_some_and(KnownInput::is_gone);
            let Some(parent) = Path::new(&id).parent().filter(|_| is_gone && scheme_of(id.as_bytes()).is_none()) else {
                continue;
            };
            if looked_up.contains(parent) {
                continue;
            }
            // The current folder is no folder of the inputs: its path, the last one here, is empty and never exists.
            let nearest = parent.ancestors().find(|folder| folder.exists());
            if let Some(folder) = nearest.filter(|folder| is_empty(folder)) {
                return Err(RunError::EmptyFolder { folder: folder.to_owned(), id });
            }
            looked_up.insert(parent.to_owned());
        }
        Ok(())
    }

    /// The output's inputs.
    fn known(&self) -> impl Iterator<Item = &KnownInput> {
        self.inputs.values().filter(|input| !matches!(input.state, InputState::Wanted { is_new: true, .. }))
    }
}

impl KnownInput {
    /// Returns true if the listing has neither the input nor, of a container's failure, the container.
    fn is_gone(&self) -> bool {
        self.state == InputState::Gone && !self.is_container
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}
