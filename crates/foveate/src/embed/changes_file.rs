//! The file that says which inputs an update changes.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use foveate_pipeline::{InputChange, KnownInputs};
use foveate_sink::{AtomicFile, SinkError, push_csv_field};

/// A CSV file with a line for each input that an update does not keep as it is. It appears as a whole, and replaces no
/// other file.
pub(super) struct ChangesFile {
    path: PathBuf,
    file: BufWriter<AtomicFile>,
}

impl ChangesFile {
    pub(super) fn create(path: &Path) -> Result<Self, SinkError> {
        // It was not there when the command started, but an update may take hours.
        if path.exists() {
            return Err(SinkError::io("create", path)(std::io::ErrorKind::AlreadyExists.into()));
        }
        let mut file = Self { path: path.to_owned(), file: BufWriter::new(AtomicFile::create(path)?) };
        file.write("id,change\n")?;
        Ok(file)
    }

    pub(super) fn push(&mut self, id: &str, change: InputChange) -> Result<(), SinkError> {
        let mut line = String::new();
        push_csv_field(&mut line, id);
        self.write(&format!("{line},{}\n", change.name()))
    }

    /// Adds an input that is embedded.
    pub(super) fn push_embedded(&mut self, id: &str, known: &KnownInputs) -> Result<(), SinkError> {
        match known.change(id) {
            Some(change @ (InputChange::Added | InputChange::Changed)) => self.push(id, change),
            _ => Ok(()),
        }
    }

    /// Adds the output's inputs that are not embedded again and do not stay as they are.
    pub(super) fn push_others(&mut self, known: &KnownInputs) -> Result<(), SinkError> {
        for record in known.recorded()? {
            let id = record?.id;
            if let Some(change @ (InputChange::Removed | InputChange::Unreadable)) = known.change(&id) {
                self.push(&id, change)?;
            }
        }
        Ok(())
    }

    pub(super) fn publish(self) -> Result<(), SinkError> {
        let file = self.file.into_inner().map_err(|error| SinkError::io("write", &self.path)(error.into_error()))?;
        file.publish()
    }

    fn write(&mut self, text: &str) -> Result<(), SinkError> {
        self.file.write_all(text.as_bytes()).map_err(SinkError::io("write", &self.path))
    }
}
