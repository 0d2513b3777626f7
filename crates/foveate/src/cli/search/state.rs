//! The state of a search, in a file beside its table.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use foveate::search::State;
use foveate::sink::record_of;

use crate::cli::console;

/// The file, as long as the table is not complete.
pub(super) struct StateFile {
    path: PathBuf,
    quiet: bool,
}

impl StateFile {
    pub(super) fn beside(table: &Path, quiet: bool) -> Self {
        Self { path: record_of(table, "state"), quiet }
    }

    /// Removes the file. The table is complete.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn try_save(&self, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let unfinished = self.path.with_extension("state-partial");
        let mut file = BufWriter::new(File::create(&unfinished)?);
        write(&mut file)?;
        file.into_inner()?.sync_all()?;
        fs::rename(&unfinished, &self.path)
    }
}

impl State for StateFile {
    fn load(&self) -> Option<Box<dyn Read + '_>> {
        Some(Box::new(BufReader::new(File::open(&self.path).ok()?)))
    }

    fn save(&self, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) {
        if let Err(error) = self.try_save(write) {
            let path = self.path.display();
            console::say!(
                "warning: cannot save the search's state in {path}: {error}; an interrupted search begins anew"
            );
        }
    }

    fn resumed(&self, share: Option<f64>) {
        match share {
            _ if self.quiet => {}
            Some(share) => console::say!("continuing: {:.0} % of the pairs are compared", 100.0 * share),
            None => console::say!("note: {} is of another search and is replaced", self.path.display()),
        }
    }
}
