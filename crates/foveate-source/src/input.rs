//! Inputs, which stand for images.

use std::fs;
use std::path::{Path, PathBuf};

use crate::id::to_bytes;
use crate::list::{is_standard_input, open_list};
use crate::pattern::{Pattern, has_wildcard};
use crate::store::scheme_of;
use crate::{Separator, SourceError};

/// A command-line argument that stands for images.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A file, a container, a folder (searched for images, recursively), or a pattern: a path that does not exist and
    /// contains one of `*?[{`. An address (`s3://bucket/prefix/`) is the same in a store. `-` is a container on
    /// standard input.
    ///
    /// Patterns: `*` and `?` match within a name, `**` any number of folders, `[a-z]` one character, `{jpg,png}` one of
    /// several. Hidden names match only if the pattern has the dot. Matched folders are searched for images. A range
    /// (`{00000..00146}.tar`) stands for all its names, whether they exist or not.
    Path(PathBuf),
    /// A file of paths; `-` is standard input. There is no quoting, no comments and no patterns. Every entry is an
    /// input that is checked only when it is read.
    List(PathBuf, Separator),
    /// A CSV file, and the name of its column of paths. It may have commas, semicolons or tabs, and be UTF-16 with a
    /// byte order mark. Names match in any case if none does exactly.
    Table(PathBuf, String),
}

impl Input {
    /// Checks that this input exists, without listing it. A listing turns a missing path into one failed item; a
    /// program calls this first for a path that a user typed.
    ///
    /// # Errors
    /// If the path does not exist, a folder or a list cannot be opened, or a pattern is invalid. Only listing finds a
    /// pattern that matches nothing.
    pub fn check(&self) -> Result<(), SourceError> {
        match self {
            Self::Path(path) if scheme_of(&to_bytes(path)).is_some() || path.as_os_str() == "-" => Ok(()),
            Self::Path(path) => check_path(path),
            Self::List(path, _) | Self::Table(path, _) if is_standard_input(path) => Ok(()),
            Self::List(path, _) | Self::Table(path, _) => check_list(path),
        }
    }
}

fn check_path(path: &Path) -> Result<(), SourceError> {
    let read = match fs::metadata(path) {
        Ok(data) if data.is_dir() => fs::read_dir(path).map(drop),
        Ok(_) => Ok(()),
        Err(error) => match path.to_str().filter(|text| has_wildcard(text)) {
            Some(text) => {
                return Pattern::new(text)
                    .map(drop)
                    .map_err(|reason| SourceError::Invalid(format!("{text}: {reason}")));
            }
            None => Err(error),
        },
    };
    read.map_err(|source| SourceError::Io { action: format!("read {}", path.display()), source })
}

/// A pipe is not opened, because it can be read only once.
fn check_list(path: &Path) -> Result<(), SourceError> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => Err(SourceError::Invalid(format!("the list {} is a folder", path.display()))),
        Ok(data) if !data.is_file() => Ok(()),
        _ => open_list(path).map(drop),
    }
}
