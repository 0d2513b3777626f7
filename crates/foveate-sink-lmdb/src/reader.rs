//! Reads the sink's output.

use std::path::Path;

use foveate_core::BoxError;
use foveate_sink::{ActOnRow, RunManifest, Shape, SinkError, StoredRow, VectorReader};
use lmdb::{Cursor, Error, RoTransaction, Transaction};

use crate::LmdbFormat;
use crate::layout::{MANIFEST, Value, is_key, stand_in_prefix};
use crate::store::{LmdbEnvironment, failed};

/// Stored vectors, open for reading.
#[derive(Debug)]
pub struct LmdbVectors {
    store: LmdbEnvironment,
}

/// One vector and its image's properties.
#[derive(Clone, Debug, PartialEq)]
pub struct LmdbRow {
    /// The item's id.
    pub id: String,
    /// Position in the source.
    pub index: u64,
    /// Width of the image in pixels, after orientation.
    pub width: u32,
    /// Height of the image in pixels, after orientation.
    pub height: u32,
    /// XXH3-64 of the file's bytes.
    pub xxh3: u64,
    /// The vector, `[dim]`; f16 components are widened.
    pub vector: Vec<f32>,
}

impl LmdbVectors {
    /// Opens a finished `x.lmdb` without creating other files, so it may be on a read-only disk.
    pub fn open(path: &Path) -> Result<Self, SinkError> {
        Ok(Self { store: LmdbEnvironment::open(path)? })
    }

    /// The run's manifest.
    pub fn manifest(&self) -> Result<RunManifest, SinkError> {
        let snapshot = self.store.read()?;
        let json = snapshot.get(self.store.meta, &MANIFEST).map_err(|_| self.damaged("it has no manifest"))?;
        serde_json::from_slice(json).map_err(|error| self.damaged(format!("its manifest: {error}")))
    }

    /// Number of vectors.
    pub fn count(&self) -> Result<u64, SinkError> {
        let stat = self.store.read()?.stat(self.store.order).map_err(|error| self.failed(error))?;
        Ok(stat.entries() as u64)
    }

    /// The vectors of this id, in source order: none, one, or several if the source had the id more than once.
    pub fn get(&self, id: &str) -> Result<Vec<LmdbRow>, SinkError> {
        let snapshot = self.store.read()?;
        let mut rows = Vec::new();
        if is_key(id.as_bytes()) {
            match snapshot.get(self.store.vectors, &id) {
                Ok(value) => rows.push(self.row(id.as_bytes(), value)?),
                Err(Error::NotFound) => return Ok(rows),
                Err(error) => return Err(self.failed(error)),
            }
        }
        let prefix = stand_in_prefix(id.as_bytes());
        let mut cursor = snapshot.open_ro_cursor(self.store.vectors).map_err(|error| self.failed(error))?;
        for entry in cursor.iter_from(prefix) {
            let (key, value) = entry.map_err(|error| self.failed(error))?;
            if !key.starts_with(&prefix) {
                break;
            }
            rows.push(self.row(key, value)?);
        }
        Ok(rows)
    }

    /// Calls `act` with every row, in source order; stops early if `act` returns an error.
    pub fn for_each<E: From<SinkError>>(&self, mut act: impl FnMut(LmdbRow) -> Result<(), E>) -> Result<(), E> {
        let snapshot = self.store.read()?;
        let mut cursor = snapshot.open_ro_cursor(self.store.order).map_err(|error| self.failed(error))?;
        for entry in cursor.iter_start() {
            let (_, key) = entry.map_err(|error| self.failed(error))?;
            act(self.row_at(&snapshot, key)?)?;
        }
        Ok(())
    }

    fn row_at(&self, snapshot: &RoTransaction<'_>, key: &[u8]) -> Result<LmdbRow, SinkError> {
        let value = snapshot.get(self.store.vectors, &key).map_err(|error| self.failed(error))?;
        self.row(key, value)
    }

    fn row(&self, key: &[u8], value: &[u8]) -> Result<LmdbRow, SinkError> {
        let value = Value::parse(value).map_err(|reason| self.damaged(format!("a value: {reason}")))?;
        let id = std::str::from_utf8(value.id_of(key)).map_err(|error| self.damaged(format!("an id: {error}")))?;
        Ok(LmdbRow {
            id: id.to_owned(),
            index: value.index,
            width: value.width,
            height: value.height,
            xxh3: value.xxh3,
            vector: value.floats(),
        })
    }

    fn failed(&self, error: Error) -> SinkError {
        failed("read", &self.store.path)(error)
    }

    fn damaged(&self, reason: impl Into<BoxError>) -> SinkError {
        SinkError::damaged(&self.store.path, reason)
    }
}

impl VectorReader for LmdbFormat {
    fn manifest(&self, path: &Path) -> Result<Option<RunManifest>, SinkError> {
        LmdbVectors::open(path)?.manifest().map(Some)
    }

    fn for_each(&self, path: &Path, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
        LmdbVectors::open(path)?.for_each(|LmdbRow { id, width, height, xxh3, vector, .. }| {
            if vector.len() != shape.dim {
                let reason = format!("{id} has {} components, not {}", vector.len(), shape.dim);
                return Err(SinkError::damaged(path, reason));
            }
            act(&StoredRow { id: &id, vector: &vector, width, height, xxh3, columns: &[] })
        })
    }
}
