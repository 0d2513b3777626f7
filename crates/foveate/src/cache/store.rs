//! A database with two generations of entries, and the thread that writes to it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foveate_core::lock;
use foveate_pipeline::KnownVector;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::cache::CacheError;
use crate::cache::entry::{Key, number, parse};

/// Name of the database in the folder. SQLite puts its log beside it.
const FILE: &str = "vectors.sqlite";
/// "fove": a database of any other program is left alone.
const APPLICATION: i32 = 0x666f_7665;
const VERSION: i32 = 1;
/// Holds five vectors of 384 components, or one of 2030.
const PAGE: u64 = 8192;
/// The smallest size: a few pages for each part.
const LEAST: u64 = 1 << 20;
/// Entries that may wait for the writer.
const WAITING: usize = 4096;
/// Most entries of a transaction.
const BATCH: u64 = 1000;
/// Longest time that an entry waits for others.
const DELAY: Duration = Duration::from_millis(200);
/// Longest wait for another process's transaction.
const BUSY: Duration = Duration::from_secs(5);
/// Bytes of an entry in the tables and their index beside its own.
const OVERHEAD: u64 = 64;

const SCHEMA: &str = "
    CREATE TABLE entries0 (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, entry BLOB NOT NULL);
    CREATE TABLE entries1 (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, entry BLOB NOT NULL);
    CREATE INDEX numbers0 ON entries0 (number);
    CREATE INDEX numbers1 ON entries1 (number);
    CREATE TABLE younger (generation INTEGER NOT NULL, bytes INTEGER NOT NULL);
    INSERT INTO younger VALUES (0, 0);";
const FIND: [&str; 2] =
    ["SELECT entry FROM entries0 WHERE number = ?1", "SELECT entry FROM entries1 WHERE number = ?1"];
const INSERT: [&str; 2] =
    ["INSERT INTO entries0 (number, entry) VALUES (?1, ?2)", "INSERT INTO entries1 (number, entry) VALUES (?1, ?2)"];
const CLEAR: [&str; 2] = ["DELETE FROM entries0", "DELETE FROM entries1"];

/// Whoever uses SQLite reads this lock. A fork that holds it finds none of SQLite's own locks taken by a thread that
/// the child does not have.
static IN_USE: RwLock<()> = RwLock::new(());

fn in_use() -> RwLockReadGuard<'static, ()> {
    IN_USE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no thread is inside the database library, and keeps all out as long as the value lives. A process that
/// forks beside running caches does so under it, or its child may find the library locked for ever.
pub fn pause() -> RwLockWriteGuard<'static, ()> {
    IN_USE.write().unwrap_or_else(PoisonError::into_inner)
}

/// An open folder.
pub(crate) struct CacheStore {
    path: PathBuf,
    pages: u64,
    /// Connections that no reader uses.
    readers: Mutex<Vec<Connection>>,
    /// `None` only while it is dropped.
    jobs: Option<SyncSender<CacheJob>>,
    writer: Option<JoinHandle<()>>,
}

enum CacheJob {
    Put(Key, Vec<u8>),
    /// Moves an entry from the older generation to the younger.
    Keep(Key, Vec<u8>),
}

impl CacheStore {
    pub(crate) fn open(folder: &Path, bytes: u64) -> Result<Self, CacheError> {
        if bytes < LEAST {
            return Err(CacheError::TooSmall { bytes, least: LEAST });
        }
        let path = folder.join(FILE);
        let pages = bytes / PAGE;
        let writer = {
            let _in_use = in_use();
            let mut connection = connect(&path, pages).map_err(|error| failed(folder, error))?;
            prepare(&mut connection, folder)?;
            CacheWriter { connection, pages, folder: folder.display().to_string() }
        };
        let (jobs, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("cache".to_owned());
        let thread = thread.spawn(move || writer.write_all(&waiting));
        let writer = thread.map_err(|source| CacheError::Open { path: folder.to_owned(), source })?;
        Ok(Self { path, pages, readers: Mutex::default(), jobs: Some(jobs), writer: Some(writer) })
    }

    /// Returns an entry. A damaged one is none, and so is one that cannot be read.
    pub(crate) fn get(&self, key: &Key) -> Option<KnownVector> {
        let _in_use = in_use();
        let free = lock(&self.readers).pop();
        let connection = free.map_or_else(|| connect(&self.path, self.pages), Ok).ok()?;
        let found = find(&connection, key);
        // A connection on which anything failed is not used again.
        let (known, entry) = found.ok()?;
        lock(&self.readers).push(connection);
        if let Some(entry) = entry {
            self.send(CacheJob::Keep(*key, entry));
        }
        known
    }

    pub(crate) fn put(&self, key: Key, entry: Vec<u8>) {
        self.send(CacheJob::Put(key, entry));
    }

    /// Drops the job if the writer is behind or has given up: it would only have saved work.
    fn send(&self, job: CacheJob) {
        let _ = self.jobs.as_ref().map(|jobs| jobs.try_send(job));
    }
}

impl Drop for CacheStore {
    /// Waits for what is to be written.
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.writer.take().map(JoinHandle::join);
        let _in_use = in_use();
        lock(&self.readers).clear();
    }
}

/// Opens the database. Its pages are never mapped: a damaged file is an error, and does not end the process.
fn connect(path: &Path, pages: u64) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "page_size", PAGE as i64)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // A power failure may lose the last transactions, and damages nothing.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // The log takes up to a quarter of the size: what is checkpointed at, and a transaction.
    connection.pragma_update(None, "wal_autocheckpoint", (pages / 16).clamp(8, 1000) as i64)?;
    connection.pragma_update(None, "max_page_count", (pages * 3 / 4) as i64)?;
    Ok(connection)
}

/// Makes an empty database a cache, or checks that it is one.
fn prepare(connection: &mut Connection, folder: &Path) -> Result<(), CacheError> {
    let is_ours = make(connection).map_err(|error| failed(folder, error))?;
    match is_ours {
        true => Ok(()),
        false => Err(CacheError::Damaged { path: folder.to_owned(), reason: "another program's database".to_owned() }),
    }
}

fn make(connection: &mut Connection) -> rusqlite::Result<bool> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_empty: bool = transaction.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if is_empty {
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.execute_batch(SCHEMA)?;
    }
    let application: i32 = transaction.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let is_ours = application == APPLICATION && version == VERSION;
    if is_ours {
        younger(&transaction)?;
    }
    transaction.commit()?;
    Ok(is_ours)
}

/// The younger generation, and the bytes of its entries.
fn younger(connection: &Connection) -> rusqlite::Result<(usize, u64)> {
    let mut statement = connection.prepare_cached("SELECT generation, bytes FROM younger")?;
    statement.query_row([], |row| Ok((usize::from(row.get::<_, bool>(0)?), row.get::<_, i64>(1)?.max(0) as u64)))
}

/// Returns the vector known under a key, and its entry if it is in the older generation.
fn find(connection: &Connection, key: &Key) -> rusqlite::Result<(Option<KnownVector>, Option<Vec<u8>>)> {
    let (younger, _) = younger(connection)?;
    for generation in [younger, 1 - younger] {
        let mut statement = connection.prepare_cached(FIND[generation])?;
        let mut rows = statement.query([number(key)])?;
        while let Some(row) = rows.next()? {
            let entry = row.get_ref(0)?.as_blob()?;
            if let Some(known) = parse(key, entry) {
                return Ok((Some(known), (generation != younger).then(|| entry.to_vec())));
            }
        }
    }
    Ok((None, None))
}

struct CacheWriter {
    connection: Connection,
    pages: u64,
    folder: String,
}

impl CacheWriter {
    /// Runs until no more jobs can come, or writing fails.
    fn write_all(mut self, jobs: &Receiver<CacheJob>) {
        let most = (self.pages / 64).clamp(1, BATCH) as usize;
        while let Ok(first) = jobs.recv() {
            let deadline = Instant::now() + DELAY;
            let mut batch = vec![first];
            while batch.len() < most
                && let Ok(next) = jobs.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                batch.push(next);
            }
            let _in_use = in_use();
            if let Err(error) = self.write(&batch) {
                tracing::warn!(folder = self.folder, %error, "the cache takes no more entries");
                break;
            }
        }
        let _in_use = in_use();
        drop(self.connection);
    }

    fn write(&mut self, batch: &[CacheJob]) -> rusqlite::Result<()> {
        match self.store(batch) {
            // Other processes may have filled it. The next batch finds room; this one only saves work.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                turn(&transaction)?;
                transaction.commit()
            }
            result => result,
        }
    }

    fn store(&mut self, batch: &[CacheJob]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Three eighths of what the tables may take.
        if younger(&transaction)?.1 >= self.pages * PAGE * 9 / 32 {
            turn(&transaction)?;
        }
        let (younger, mut bytes) = younger(&transaction)?;
        for job in batch {
            let (key, entry) = match job {
                CacheJob::Put(key, entry) => (key, entry),
                CacheJob::Keep(key, entry) if !has(&transaction, younger, key)? => (key, entry),
                CacheJob::Keep(..) => continue,
            };
            transaction.prepare_cached(INSERT[younger])?.execute(params![number(key), entry])?;
            bytes += entry.len() as u64 + OVERHEAD;
        }
        transaction.execute("UPDATE younger SET bytes = ?1", [bytes as i64])?;
        transaction.commit()
    }
}

/// Returns true if a generation has an entry under this key's number.
fn has(transaction: &Transaction<'_>, generation: usize, key: &Key) -> rusqlite::Result<bool> {
    let mut statement = transaction.prepare_cached(FIND[generation])?;
    Ok(statement.query_row([number(key)], |_| Ok(())).optional()?.is_some())
}

/// Drops the older generation; an empty one is the younger from now on.
fn turn(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let next = 1 - younger(transaction)?.0;
    transaction.execute(CLEAR[next], [])?;
    transaction.execute("UPDATE younger SET generation = ?1, bytes = 0", [next as i64])?;
    Ok(())
}

fn failed(folder: &Path, error: rusqlite::Error) -> CacheError {
    let path = folder.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            CacheError::Damaged { path, reason: error.to_string() }
        }
        // A table or a value that is not what it was.
        Some(ErrorCode::Unknown) | None => CacheError::Damaged { path, reason: error.to_string() },
        Some(_) => CacheError::Open { path, source: std::io::Error::other(error) },
    }
}
