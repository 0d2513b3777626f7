//! An LMDB environment with the format's databases.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use foveate_sink::SinkError;
use lmdb::{
    Cursor, Database, DatabaseFlags, Environment, EnvironmentFlags, Error, RoTransaction, RwTransaction, Transaction,
    WriteFlags,
};

use crate::layout::{META, ORDER, VECTORS};

/// Map sizes to begin with: the first that the system permits (`ulimit -v`). A full map doubles, so that the size
/// recorded in the file follows from the content.
const MAPS: [usize; 3] = [16 << 20, 1 << 23, 1 << 20];
/// Bytes per transaction; LMDB keeps as much in memory.
const CHUNK: usize = 8 << 20;

/// An open environment and its databases.
#[derive(Debug)]
pub(crate) struct LmdbEnvironment {
    env: Environment,
    pub(crate) path: PathBuf,
    pub(crate) vectors: Database,
    pub(crate) order: Database,
    pub(crate) meta: Database,
}

impl LmdbEnvironment {
    /// Creates a file for this process alone: no lock file, and not durable before [`sync`](Self::sync).
    pub(crate) fn create(file: &Path) -> Result<Self, SinkError> {
        let flags = EnvironmentFlags::NO_SUB_DIR
            | EnvironmentFlags::NO_LOCK
            | EnvironmentFlags::NO_SYNC
            | EnvironmentFlags::NO_META_SYNC;
        let mut builder = Environment::new();
        builder.set_flags(flags).set_max_dbs(3);
        let mut env = builder.set_map_size(MAPS[0]).open(file);
        for size in &MAPS[1..] {
            match env {
                Err(Error::Other(code)) if is_out_of_memory(code) => env = builder.set_map_size(*size).open(file),
                _ => break,
            }
        }
        let env = env.map_err(write_failed("open", file))?;
        for name in [VECTORS, ORDER, META] {
            env.create_db(Some(name), DatabaseFlags::empty()).map_err(write_failed("create", file))?;
        }
        Self::with_databases(env, file)
    }

    /// Opens a finished file for reading, without a lock file.
    pub(crate) fn open(file: &Path) -> Result<Self, SinkError> {
        let flags = EnvironmentFlags::NO_SUB_DIR | EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_LOCK;
        // Without a size of its own, the reader uses the writer's.
        let env = Environment::new().set_flags(flags | EnvironmentFlags::NO_TLS).set_max_dbs(3).open(file);
        Self::with_databases(env.map_err(failed("open", file))?, file)
    }

    fn with_databases(env: Environment, path: &Path) -> Result<Self, SinkError> {
        let vectors = database(&env, path, VECTORS)?;
        let order = database(&env, path, ORDER)?;
        let meta = database(&env, path, META)?;
        Ok(Self { env, path: path.to_owned(), vectors, order, meta })
    }

    /// Runs `act` in one transaction and commits it. If the map is full, doubles it and runs `act` again in a new
    /// transaction.
    pub(crate) fn write<T>(&self, act: impl Fn(&mut RwTransaction<'_>) -> lmdb::Result<T>) -> Result<T, SinkError> {
        loop {
            let attempt = self.env.begin_rw_txn().and_then(|mut transaction| {
                let result = act(&mut transaction)?;
                transaction.commit()?;
                Ok(result)
            });
            match attempt {
                Err(Error::MapFull) => self.grow()?,
                Err(error) => return Err(write_failed("write", &self.path)(error)),
                Ok(result) => return Ok(result),
            }
        }
    }

    /// Doubles the map; no transaction may be open.
    fn grow(&self) -> Result<(), SinkError> {
        let size = self.env.info().map_err(failed("inspect", &self.path))?.map_size();
        let grown = size.checked_mul(2).ok_or(Error::MapFull).and_then(|size| self.env.set_map_size(size));
        grown.map_err(|error| SinkError::Format {
            path: self.path.clone(),
            source: format!("its map of {size} bytes is full and cannot grow: {error}").into(),
        })
    }

    /// A snapshot.
    pub(crate) fn read(&self) -> Result<RoTransaction<'_>, SinkError> {
        self.env.begin_ro_txn().map_err(failed("read", &self.path))
    }

    /// Makes the file durable.
    pub(crate) fn sync(&self) -> Result<(), SinkError> {
        self.env.sync(true).map_err(write_failed("sync", &self.path))
    }
}

/// Opens a database of the file at `path`.
fn database(env: &Environment, path: &Path, name: &str) -> Result<Database, SinkError> {
    match env.open_db(Some(name)) {
        Err(Error::NotFound | Error::Incompatible) => {
            Err(SinkError::damaged(path, format!("it has no database called {name}")))
        }
        result => result.map_err(failed("open", path)),
    }
}

fn is_out_of_memory(code: i32) -> bool {
    io::Error::from_raw_os_error(code).kind() == io::ErrorKind::OutOfMemory
}

/// Returns true if the disk has less than a megabyte left.
fn is_full(folder: &Path) -> bool {
    let probe = folder.join("probe");
    let full = match fs::write(&probe, vec![1; 1 << 20]) {
        Ok(()) => false,
        Err(error) => matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded),
    };
    let _ = fs::remove_file(&probe); // clearing the folder removes it too
    full
}

/// Converts LMDB's errors of writing, for `map_err`. LMDB reports "input/output error" after a short write, which is
/// how a disk that fills up first shows.
fn write_failed(action: &'static str, path: &Path) -> impl Fn(Error) -> SinkError {
    move |error| match failed(action, path)(error) {
        SinkError::Io { .. } if is_full(path.parent().unwrap_or(Path::new("."))) => {
            SinkError::NoSpace { path: path.to_owned(), source: io::ErrorKind::StorageFull.into() }
        }
        error => error,
    }
}

/// Converts LMDB's errors, for `map_err`.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl Fn(Error) -> SinkError {
    move |error| match error {
        Error::Other(code) if code > 0 => SinkError::io(action, path)(io::Error::from_raw_os_error(code)),
        Error::Invalid | Error::VersionMismatch => SinkError::damaged(path, "it is not a database of LMDB 0.9"),
        Error::Corrupted | Error::PageNotFound => SinkError::damaged(path, error),
        _ => SinkError::Format { path: path.to_owned(), source: format!("LMDB cannot {action} it: {error}").into() },
    }
}

/// Copies the rows from `from` to the empty `to`, each database in key order. Every page is then as full as possible,
/// and equal content gives equal bytes, whatever its history.
pub(crate) fn copy_sorted(from: &LmdbEnvironment, to: &LmdbEnvironment) -> Result<(), SinkError> {
    copy_database(from, from.vectors, to, to.vectors)?;
    copy_database(from, from.order, to, to.order)
}

fn copy_database(
    from: &LmdbEnvironment,
    source: Database,
    to: &LmdbEnvironment,
    target: Database,
) -> Result<(), SinkError> {
    let snapshot = from.read()?;
    let mut cursor = snapshot.open_ro_cursor(source).map_err(failed("read", &from.path))?;
    let mut entries = cursor.iter_start();
    let mut chunk: Vec<(&[u8], &[u8])> = Vec::new();
    loop {
        chunk.clear();
        let mut bytes = 0;
        while bytes < CHUNK
            && let Some(entry) = entries.next()
        {
            let (key, value) = entry.map_err(failed("read", &from.path))?;
            bytes += key.len() + value.len();
            chunk.push((key, value));
        }
        if chunk.is_empty() {
            return Ok(());
        }
        to.write(|transaction| {
            chunk.iter().try_for_each(|(key, value)| transaction.put(target, key, value, WriteFlags::APPEND))
        })?;
    }
}
