//! An LMDB environment with two generations of entries, and the thread that writes to it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foveate_pipeline::Known;
use lmdb::{Database, DatabaseFlags, Environment, EnvironmentFlags, Error, RwTransaction, Transaction, WriteFlags};

use crate::CacheError;
use crate::entry::{Key, parse};

/// The smallest size: a few pages for each part.
const LEAST: u64 = 1 << 20;
/// Threads of all processes that may read at once.
const READERS: u32 = 1024;
/// Entries that may wait for the writer.
const WAITING: usize = 4096;
/// Most entries of a transaction.
const BATCH: usize = 1000;
/// Longest time that an entry waits for others.
const DELAY: Duration = Duration::from_millis(200);

/// The databases of the generations.
const GENERATIONS: [&str; 2] = ["0", "1"];
/// Key of the format's version in the unnamed database.
const FORMAT: &[u8] = b"foveate-cache";
const VERSION: &[u8] = b"1";
/// Key of the younger generation's number.
const YOUNGER: &[u8] = b"younger";

/// An open folder.
pub(crate) struct Store {
    pub(crate) folder: PathBuf,
    data: Arc<Data>,
    /// `None` only while it is dropped.
    jobs: Option<SyncSender<Job>>,
    writer: Option<JoinHandle<()>>,
}

enum Job {
    Put(Key, Vec<u8>),
    /// Moves an entry from the older generation to the younger.
    Keep(Key),
}

struct Data {
    env: Environment,
    unnamed: Database,
    generations: [Database; 2],
    /// Pages of a full generation.
    most_pages: usize,
    /// Entries per transaction. Each may copy a page, and pages are free only two transactions later.
    batch: usize,
}

impl Store {
    pub(crate) fn open(folder: PathBuf, bytes: u64) -> Result<Self, CacheError> {
        if bytes < LEAST {
            return Err(CacheError::TooSmall { bytes, least: LEAST });
        }
        let data = Arc::new(Data::open(&folder, bytes)?);
        let (jobs, waiting) = sync_channel(WAITING);
        let (writer, at) = (Arc::clone(&data), folder.display().to_string());
        let thread = std::thread::Builder::new().name("cache".to_owned());
        let thread = thread.spawn(move || writer.write_all(&waiting, &at));
        let writer = thread.map_err(|source| CacheError::Open { path: folder.clone(), source })?;
        Ok(Self { folder, data, jobs: Some(jobs), writer: Some(writer) })
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Known> {
        let (known, is_old) = self.data.get(key)?;
        if is_old {
            self.send(Job::Keep(*key));
        }
        Some(known)
    }

    pub(crate) fn put(&self, key: Key, value: Vec<u8>) {
        self.send(Job::Put(key, value));
    }

    /// Drops the job if the writer is behind or has given up: it would only have saved work.
    fn send(&self, job: Job) {
        let _ = self.jobs.as_ref().map(|jobs| jobs.try_send(job));
    }
}

impl Drop for Store {
    /// Waits for what is to be written.
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl Data {
    fn open(folder: &Path, bytes: u64) -> Result<Self, CacheError> {
        let failed = failed(folder);
        // Data is durable before it is referred to, so that a power failure damages nothing; the last transactions may
        // be lost.
        let flags = EnvironmentFlags::NO_META_SYNC | EnvironmentFlags::NO_TLS | EnvironmentFlags::NO_READAHEAD;
        let map = usize::try_from(bytes).unwrap_or(usize::MAX) / LEAST as usize * LEAST as usize;
        let mut env = Environment::new();
        env.set_flags(flags).set_max_dbs(2).set_max_readers(READERS).set_map_size(map);
        let env = env.open(folder).map_err(&failed)?;
        let page = env.stat().map_err(&failed)?.page_size() as usize;
        let length = fs::metadata(folder.join("data.mdb")).map_err(|error| failed(os(&error)))?.len();
        // Reading behind a file's end would kill the process.
        if length < (env.info().map_err(&failed)?.last_pgno() as u64 + 1) * page as u64 {
            return Err(failed(Error::Corrupted));
        }
        let unnamed = env.open_db(None).map_err(&failed)?;
        Self::mark(&env, unnamed).map_err(&failed)?;
        let generation = |name| env.create_db(Some(name), DatabaseFlags::empty()).map_err(&failed);
        let generations = [generation(GENERATIONS[0])?, generation(GENERATIONS[1])?];
        let (most_pages, batch) = (map / page * 3 / 8, (map / page / 64).clamp(1, BATCH));
        Ok(Self { env, unnamed, generations, most_pages, batch })
    }

    /// Makes an empty environment a cache, or checks that it is one.
    fn mark(env: &Environment, unnamed: Database) -> lmdb::Result<()> {
        let mut transaction = env.begin_rw_txn()?;
        match transaction.get(unnamed, &FORMAT).map(<[u8]>::to_vec) {
            Ok(version) if version == VERSION => return Ok(()),
            Err(Error::NotFound) if env.stat()?.entries() == 0 => {}
            Ok(_) | Err(Error::NotFound) => return Err(Error::Invalid),
            Err(error) => return Err(error),
        }
        transaction.put(unnamed, &FORMAT, &VERSION, WriteFlags::empty())?;
        transaction.commit()
    }

    /// The number of the younger generation.
    fn younger(&self, transaction: &impl Transaction) -> usize {
        usize::from(transaction.get(self.unnamed, &YOUNGER).is_ok_and(|number| number == [1]))
    }

    /// Returns an entry, and whether it is in the older generation. A damaged one is none.
    fn get(&self, key: &Key) -> Option<(Known, bool)> {
        let transaction = self.env.begin_ro_txn().ok()?;
        let younger = self.younger(&transaction);
        let entry = |generation: usize| parse(key, transaction.get(self.generations[generation], key).ok()?);
        match entry(younger) {
            Some(known) => Some((known, false)),
            None => entry(1 - younger).map(|known| (known, true)),
        }
    }

    /// Runs the writer's thread until no more jobs can come, or writing fails.
    fn write_all(&self, jobs: &Receiver<Job>, folder: &str) {
        while let Ok(first) = jobs.recv() {
            let (mut batch, deadline) = (vec![first], Instant::now() + DELAY);
            while batch.len() < self.batch
                && let Ok(next) = jobs.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                batch.push(next);
            }
            if let Err(error) = self.write(&batch) {
                tracing::warn!(folder, %error, "the cache takes no more entries");
                return;
            }
        }
    }

    fn write(&self, batch: &[Job]) -> lmdb::Result<()> {
        match self.store(batch) {
            // Readers may hold pages that would be free. The next batch finds room; this one only saves work.
            Err(Error::MapFull) => {
                let mut transaction = self.env.begin_rw_txn()?;
                self.turn(&mut transaction)?;
                transaction.commit()
            }
            result => result,
        }
    }

    fn store(&self, batch: &[Job]) -> lmdb::Result<()> {
        let mut transaction = self.env.begin_rw_txn()?;
        let stat = transaction.stat(self.generations[self.younger(&transaction)])?;
        if stat.branch_pages() + stat.leaf_pages() + stat.overflow_pages() >= self.most_pages {
            self.turn(&mut transaction)?;
        }
        let younger = self.younger(&transaction);
        for job in batch {
            let (key, value) = match job {
                Job::Put(key, value) => (key, value.clone()),
                Job::Keep(key) => match transaction.get(self.generations[1 - younger], key) {
                    Ok(value) => (key, value.to_vec()),
                    Err(Error::NotFound) => continue,
                    Err(error) => return Err(error),
                },
            };
            transaction.put(self.generations[younger], key, &value, WriteFlags::empty())?;
        }
        transaction.commit()
    }

    /// Drops the older generation; an empty one is the younger from now on.
    fn turn(&self, transaction: &mut RwTransaction<'_>) -> lmdb::Result<()> {
        let next = 1 - self.younger(transaction);
        transaction.clear_db(self.generations[next])?;
        transaction.put(self.unnamed, &YOUNGER, &[next as u8], WriteFlags::empty())
    }
}

/// Converts LMDB's errors, for `map_err`.
fn failed(folder: &Path) -> impl Fn(Error) -> CacheError {
    move |error| {
        let path = folder.to_owned();
        match error {
            Error::Other(code) if code > 0 => CacheError::Open { path, source: io::Error::from_raw_os_error(code) },
            Error::Invalid | Error::VersionMismatch | Error::Incompatible | Error::Corrupted | Error::PageNotFound => {
                CacheError::Damaged { path, reason: error.to_string() }
            }
            _ => CacheError::Open { path, source: io::Error::other(error) },
        }
    }
}

fn os(error: &io::Error) -> Error {
    Error::Other(error.raw_os_error().unwrap_or_default())
}
