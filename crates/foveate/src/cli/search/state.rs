//! The state of a search, in a file beside its table.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use foveate::search::SearchState;
use foveate::sink::record_of;

use super::table::is_stdout;
use crate::cli::console;

/// The file, as long as the table is not complete. A table on standard output has none.
pub(super) struct StateFile {
    path: Option<PathBuf>,
    quiet: bool,
}

impl StateFile {
    pub(super) fn beside(table: &Path, quiet: bool) -> Self {
        Self { path: (!is_stdout(table)).then(|| record_of(table, "state")), quiet }
    }

    /// Removes the file. The table is complete.
    pub(super) fn remove(&self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn try_save(path: &Path, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file)?;
    file.into_inner()?.sync_all()
}

impl SearchState for StateFile {
    fn load(&self) -> Option<Box<dyn Read + '_>> {
        Some(Box::new(BufReader::new(File::open(self.path.as_ref()?).ok()?)))
    }

    fn save(&self, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) {
        let Some(path) = &self.path else { return };
        let unfinished = path.with_extension("state-partial");
        if let Err(error) = try_save(&unfinished, write).and_then(|()| fs::rename(&unfinished, path)) {
            // A full disk has no room for half a state.
            let _ = fs::remove_file(&unfinished);
            let path = path.display();
            console::say!(
                "warning: cannot save the search's state in {path}: {error}; an interrupted search begins anew"
            );
        }
    }

    fn resumed(&self, share: Option<f64>) {
        match share {
            _ if self.quiet => {}
            Some(share) => console::say!("continuing: {:.0} % of the pairs are compared", 100.0 * share),
            None => {
                let path = self.path.as_deref().unwrap_or(Path::new("")).display();
                console::say!("note: {path} is of another search and is replaced");
            }
        }
    }
}
