//! An LMDB environment with the sink's four databases.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use foveate_sink::SinkError;
use foveate_sink::staging::DATABASE;
use lmdb::{
    Cursor, Database, DatabaseFlags, Environment, EnvironmentFlags, Error, RoTransaction, RwTransaction, Transaction,
    WriteFlags,
};

use crate::layout::{FAILURES, META, ORDER, VECTORS};
use crate::length;

/// Address space to reserve for a growing database. Only the used part takes disk or memory, and a reader that opened
/// the file never has to map it anew.
#[cfg(all(target_pointer_width = "64", not(windows)))]
pub(crate) const ROOMY_MAP: usize = 1 << 40;
/// On Windows a file is as long as its map, and 32-bit address space is small.
#[cfg(not(all(target_pointer_width = "64", not(windows))))]
pub(crate) const ROOMY_MAP: usize = 1 << 26;
/// Map sizes for systems that refuse the roomy one (`ulimit -v`): small, and doubled when full, so that the finished
/// file's map also fits.
const MODEST_MAPS: [usize; 3] = [1 << 26, 1 << 23, 1 << 20];

/// Length of LMDB's lock file for its default 126 readers.
const LOCK_LEN: u64 = 8192;

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// An open environment and its databases.
#[derive(Debug)]
pub(crate) struct Store {
    env: Environment,
    pub(crate) path: PathBuf,
    pub(crate) vectors: Database,
    pub(crate) order: Database,
    pub(crate) failures: Database,
    pub(crate) meta: Database,
}

impl Store {
    /// Creates a database file for this process alone: no lock file, and not durable before [`sync`](Self::sync).
    pub(crate) fn create_private(file: &Path, map_size: usize) -> Result<Self, SinkError> {
        let flags = EnvironmentFlags::NO_SUB_DIR
            | EnvironmentFlags::NO_LOCK
            | EnvironmentFlags::NO_SYNC
            | EnvironmentFlags::NO_META_SYNC;
        let env = open(file, flags, map_size)?;
        for name in [VECTORS, ORDER, FAILURES, META] {
            env.create_db(Some(name), DatabaseFlags::empty()).map_err(write_failed("create", file))?;
        }
        Self::with_databases(env, file)
    }

    /// Opens a folder's environment for writing, with LMDB's lock file, so that other processes can read it.
    pub(crate) fn open_shared(folder: &Path, map_size: usize) -> Result<Self, SinkError> {
        reserve_lock_file(&folder.join("lock.mdb"))?;
        length::check(&folder.join(DATABASE))?;
        let env = open(folder, EnvironmentFlags::NO_TLS, map_size)?;
        Self::with_databases(env, &folder.join(DATABASE))
    }

    /// Opens a database file that no process is writing, for reading, without creating or touching a lock file.
    pub(crate) fn open_quiet(file: &Path) -> Result<Self, SinkError> {
        length::check(file)?;
        let flags = EnvironmentFlags::NO_SUB_DIR | EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_LOCK;
        Self::open_to_read(file, flags | EnvironmentFlags::NO_TLS)
    }

    /// Opens a folder's environment for reading while another process may be writing to it.
    pub(crate) fn open_live(folder: &Path) -> Result<Self, SinkError> {
        length::check(&folder.join(DATABASE))?;
        Self::open_to_read(folder, EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS)
    }

    fn open_to_read(path: &Path, flags: EnvironmentFlags) -> Result<Self, SinkError> {
        // Without a size of its own, the reader uses the writer's.
        let env = Environment::new().set_flags(flags).set_max_dbs(4).open(path).map_err(failed("open", path))?;
        Self::with_databases(env, path)
    }

    fn with_databases(env: Environment, path: &Path) -> Result<Self, SinkError> {
        let get = |name| match env.open_db(Some(name)) {
            Err(Error::NotFound | Error::Incompatible) => {
                Err(SinkError::damaged(path, format!("it has no database called {name}")))
            }
            result => result.map_err(failed("open", path)),
        };
        let (vectors, order, failures, meta) = (get(VECTORS)?, get(ORDER)?, get(FAILURES)?, get(META)?);
        Ok(Self { env, path: path.to_owned(), vectors, order, failures, meta })
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

    /// Removes the rows and failures from place `first` in the source on, which were written ahead of their commit.
    pub(crate) fn remove_from(&self, first: u64) -> Result<(), SinkError> {
        for database in [self.order, self.failures] {
            loop {
                let entries = self.entries_from(database, first)?;
                if entries.is_empty() {
                    break;
                }
                self.write(|transaction| {
                    entries.iter().try_for_each(|(index, key)| {
                        if database == self.order {
                            transaction.del(self.vectors, key, None)?;
                        }
                        transaction.del(database, index, None)
                    })
                })?;
            }
        }
        Ok(())
    }

    /// A chunk of the entries of `order` or `failures` from place `first` on.
    fn entries_from(&self, database: Database, first: u64) -> Result<Vec<Entry>, SinkError> {
        const MOST: usize = 10_000;
        let snapshot = self.read()?;
        let mut cursor = snapshot.open_ro_cursor(database).map_err(failed("read", &self.path))?;
        let entries = cursor.iter_from(first.to_be_bytes()).take(MOST);
        let owned = entries.map(|entry| entry.map(|(key, value)| (key.to_owned(), value.to_owned())));
        owned.collect::<lmdb::Result<_>>().map_err(failed("read", &self.path))
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

    /// A snapshot of the state when it was taken, unaffected by later writes.
    pub(crate) fn read(&self) -> Result<RoTransaction<'_>, SinkError> {
        let snapshot = match self.env.begin_ro_txn() {
            // The writer's file outgrew this map; no transaction is open here, so it can be mapped anew.
            Err(Error::MapResized) => self.env.set_map_size(0).and_then(|()| self.env.begin_ro_txn()),
            result => result,
        };
        snapshot.map_err(failed("read", &self.path))
    }

    /// Number of entries.
    pub(crate) fn count(&self, database: Database) -> Result<u64, SinkError> {
        let stat = self.read()?.stat(database).map_err(failed("read", &self.path))?;
        Ok(stat.entries() as u64)
    }

    /// A copy of the value of a `meta` key.
    pub(crate) fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SinkError> {
        match self.read()?.get(self.meta, &key) {
            Ok(value) => Ok(Some(value.to_owned())),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(failed("read", &self.path)(error)),
        }
    }

    /// The greatest key.
    pub(crate) fn last_key(&self, database: Database) -> Result<Option<Vec<u8>>, SinkError> {
        let snapshot = self.read()?;
        let cursor = snapshot.open_ro_cursor(database).map_err(failed("read", &self.path))?;
        match cursor.get(None, None, lmdb_sys::MDB_LAST) {
            Ok((key, _)) => Ok(key.map(<[u8]>::to_owned)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(failed("read", &self.path)(error)),
        }
    }

    /// Makes a private database durable.
    pub(crate) fn sync(&self) -> Result<(), SinkError> {
        self.env.sync(true).map_err(write_failed("sync", &self.path))
    }
}

/// Opens an environment with a map of `map_size`, or with a smaller one.
fn open(path: &Path, flags: EnvironmentFlags, map_size: usize) -> Result<Environment, SinkError> {
    let attempt = |size| Environment::new().set_flags(flags).set_max_dbs(4).set_map_size(size).open(path);
    let mut result = attempt(map_size);
    for size in MODEST_MAPS.into_iter().filter(|&size| size < map_size) {
        match result {
            Err(Error::Other(code)) if is_out_of_memory(code) => result = attempt(size),
            _ => break,
        }
    }
    result.map_err(write_failed("open", path))
}

fn is_out_of_memory(code: i32) -> bool {
    io::Error::from_raw_os_error(code).kind() == io::ErrorKind::OutOfMemory
}

/// Whether the disk has less than a megabyte left.
fn is_full(folder: &Path) -> bool {
    let probe = folder.join("probe");
    let full = match fs::write(&probe, vec![1; 1 << 20]) {
        Ok(()) => false,
        Err(error) => matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded),
    };
    let _ = fs::remove_file(&probe); // clearing the folder removes it too
    full
}

/// Allocates the lock file's blocks. LMDB itself makes it sparse and writes to it through memory, so a full disk would
/// kill the process with a bus error instead of returning an error.
fn reserve_lock_file(path: &Path) -> Result<(), SinkError> {
    let len = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if len >= LOCK_LEN {
        return Ok(());
    }
    fs::write(path, [0; LOCK_LEN as usize]).map_err(SinkError::io("write", path))
}

/// Converts LMDB's errors of writing, for `map_err`. LMDB reports "input/output error" after a short write, which is
/// how a disk that fills up first shows.
fn write_failed(action: &'static str, path: &Path) -> impl Fn(Error) -> SinkError {
    move |error| match failed(action, path)(error) {
        SinkError::Io { .. } if is_full(if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) }) => {
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

/// Copies everything durable from `from` to the empty `to`, each database in key order. Every page is then as full as
/// possible, and equal content gives equal bytes, whatever its history.
pub(crate) fn copy_sorted(from: &Store, to: &Store) -> Result<(), SinkError> {
    for (source, target) in [(from.vectors, to.vectors), (from.order, to.order), (from.failures, to.failures)] {
        copy_database(from, source, to, target)?;
    }
    Ok(())
}

/// Bytes per transaction; LMDB keeps as much in memory.
const CHUNK: usize = 8 << 20;

fn copy_database(from: &Store, source: Database, to: &Store, target: Database) -> Result<(), SinkError> {
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
