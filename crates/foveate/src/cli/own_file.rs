//! Files that commands may replace at the places of their tables, pages and traces.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::anyhow;
use foveate::sink::{OutputNames, SinkOptions};

use crate::cli::exit::Usage;

/// Bytes of a file that tell what it is.
const START: u64 = 1024;

/// A file that a command writes at a place that the user names, and that is no output of vectors.
#[derive(Clone, Copy)]
pub(crate) struct OwnFile<'a> {
    pub(crate) path: &'a Path,
    /// The command that writes such files: "search", "trace".
    pub(crate) maker: &'static str,
    /// Returns true if a file with this beginning is one of these.
    pub(crate) is_own: fn(&Path, &str) -> bool,
    /// True if one of these may be replaced.
    pub(crate) overwrite: bool,
}

impl OwnFile<'_> {
    /// Checks that nothing is at the file's place, or a file of the same kind that may be replaced. What another
    /// command or the user made is never replaced.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        let path = self.path.display();
        // A file there would be taken for the output of an interrupted run, which replaces it in the end.
        let names = OutputNames::new(&SinkOptions::new(self.path));
        let manifest = Some(names.manifest()).filter(|manifest| manifest.exists());
        if let Some(found) = manifest.or_else(|| Some(names.staging()).filter(|staging| staging.is_dir())) {
            let found = found.display();
            return Err(anyhow!("cannot write {path}: {found} belongs to an output of that name; name another").into());
        }
        match start(self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(start) if !(self.is_own)(self.path, &start) => {
                Err(anyhow!("{path} already exists, and no {} wrote it; name another output", self.maker).into())
            }
            Ok(_) if self.overwrite => Ok(()),
            Ok(_) => Err(anyhow!("{path} already exists; pass --overwrite to replace it").into()),
            Err(error) => Err(anyhow!("cannot write {path}: {error}; name another output").into()),
        }
    }
}

/// The beginning of a file; nothing of a device or a pipe, which keeps nothing.
fn start(path: &Path) -> io::Result<String> {
    let mut start = Vec::new();
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_dir() {
        File::open(path)?.take(START).read_to_end(&mut start)?;
    }
    Ok(String::from_utf8_lossy(&start).into_owned())
}
