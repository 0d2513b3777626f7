//! Outputs that lie apart from their inputs.

use std::fs;
use std::path::{Component, Path, PathBuf};

use foveate_source::{FileFetch, Input, Listing, Source, SourceError};

use super::store_address;

/// Refuses inputs that an output would replace: an output must neither be an input nor hold one.
pub struct ApartFrom<'a> {
    output: &'a Path,
    place: PathBuf,
    /// The folder of the latest item, which is usually that of the next one, and its place.
    folder: Option<(PathBuf, PathBuf)>,
}

impl<'a> ApartFrom<'a> {
    /// Looks up the place of `output`.
    pub fn new(output: &'a Path) -> Self {
        Self { output, place: place_of(output), folder: None }
    }

    /// Checks an input: a file, a folder, or an address.
    ///
    /// # Errors
    /// Says which input it is, and the remedy.
    pub fn check(&self, input: &Path) -> Result<(), String> {
        self.check_at(input, &place_of(input))
    }

    /// Returns true if the output lies directly in `folder`.
    pub fn lies_in(&self, folder: &Path) -> bool {
        folder.is_dir() && self.place.parent().is_some_and(|parent| parent == place_of(folder))
    }

    fn check_at(&self, input: &Path, place: &Path) -> Result<(), String> {
        if self.output.as_os_str().is_empty() || !place.starts_with(&self.place) {
            return Ok(());
        }
        let relation = if place == self.place { "is" } else { "holds" };
        let output = self.output.display();
        Err(format!("cannot write to {output}: it {relation} the input {}; name another place", input.display()))
    }

    /// Checks inputs as they were typed. Patterns and lists name more, which only listing tells.
    pub(super) fn check_typed(&self, inputs: &[Input]) -> Result<(), String> {
        inputs.iter().try_for_each(|input| match input {
            Input::Path(path) | Input::List(path, _) | Input::Table(path, _) if path.as_os_str() == "-" => Ok(()),
            Input::Path(path) => self.check(path),
            // A list in the output's folder is none of the output's files.
            Input::List(path, _) | Input::Table(path, _) if place_of(path) == self.place => self.check(path),
            Input::List(..) | Input::Table(..) => Ok(()),
        })
    }

    /// Checks every file, container and object of a listing.
    pub(super) fn check_listed(&mut self, listing: &mut Listing) -> Result<(), SourceError> {
        // What is not there yet holds nothing.
        let is_new = self.place.is_absolute() && fs::symlink_metadata(&self.place).is_err();
        if self.output.as_os_str().is_empty() || is_new {
            return Ok(());
        }
        let mut found = Ok(());
        listing.each_input(&mut |item, is_container| {
            if found.is_ok() {
                found = self.check_item(&FileFetch::path(&item), is_container);
            }
        })?;
        found.map_err(SourceError::Invalid)
    }

    fn check_item(&mut self, path: &Path, is_container: bool) -> Result<(), String> {
        let folder = path.parent().filter(|_| store_address(path).is_none());
        let (Some(folder), Some(name)) = (folder, path.file_name()) else { return self.check(path) };
        let place = match &self.folder {
            Some((known, place)) if known == folder => place.join(name),
            _ => {
                let place = place_of(folder);
                let file = place.join(name);
                self.folder = Some((folder.to_owned(), place));
                file
            }
        };
        // Only containers are what a command writes. Looking up every photo's link would take long on a network disk.
        if is_container { self.check(path) } else { self.check_at(path, &place) }
    }
}

/// The absolute path without links and `..`, also of what does not exist. An address stays as it is.
fn place_of(path: &Path) -> PathBuf {
    if store_address(path).is_some() {
        return path.to_owned();
    }
    if let Ok(place) = path.canonicalize() {
        return place;
    }
    let mut place = PathBuf::new();
    for component in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match component {
            // What is before it has no links any more.
            Component::ParentDir => drop(place.pop()),
            component => place.push(component),
        }
        place = place.canonicalize().unwrap_or(place);
    }
    place
}
