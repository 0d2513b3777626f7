//! The record of messages that were in a decoder when a worker died. It outlives the workers of its machine.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::lock;

/// The file with one number for each death: 8 bytes, little endian.
const DEATHS: &str = "deaths";
/// The extension of the files with the numbers that are in a process's decoders. A live process locks its file.
const MARKS: &str = "decoding";
/// Most deaths that are remembered. Later ones replace the older half.
const REMEMBERED: u64 = 1 << 16;
/// The interval at which a worker looks for others that died.
const LOOK: Duration = Duration::from_secs(1);

/// Names a message. None is 0.
pub(super) type MessageNumber = u64;
const FREE: MessageNumber = 0;

/// Remembers in a folder which messages were in a decoder when their worker died. All workers of a machine may share a
/// folder.
pub struct DeathRecord {
    folder: PathBuf,
    own: Mutex<OwnMarks>,
    known: Mutex<KnownDeaths>,
}

struct OwnMarks {
    file: File,
    path: PathBuf,
    /// The messages in decoders, or free places.
    places: Vec<MessageNumber>,
}

struct KnownDeaths {
    /// Bytes of the file that were counted.
    read: u64,
    counts: HashMap<MessageNumber, u32>,
    looked: Instant,
}

impl DeathRecord {
    /// Opens the record in `folder`, which is made if it is missing, and counts the deaths of earlier workers.
    ///
    /// # Errors
    /// If the folder cannot be made or written to.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut deaths = locked_deaths(folder)?;
        collect(folder, &mut deaths)?;
        let nanos = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let path = folder.join(format!("{}-{nanos}.{MARKS}", std::process::id()));
        let file = File::create_new(&path)?;
        // Before another worker can look: a file that is not locked is of one that died.
        file.lock()?;
        let own = Mutex::new(OwnMarks { file, path, places: Vec::new() });
        let known = Mutex::new(KnownDeaths { read: 0, counts: HashMap::new(), looked: Instant::now() });
        Ok(Self { folder: folder.to_owned(), own, known })
    }

    /// Records that a message comes into a decoder (`is_in`), or has left it.
    pub(super) fn note(&self, message: MessageNumber, is_in: bool) {
        let (before, after) = if is_in { (FREE, message) } else { (message, FREE) };
        lock(&self.own).replace(before, after);
    }

    /// How many workers died with this message in a decoder.
    pub(super) fn deaths(&self, message: MessageNumber) -> u32 {
        let mut known = lock(&self.known);
        if let Err(error) = known.read_more(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "cannot read which messages ended their workers");
        }
        known.counts.get(&message).copied().unwrap_or_default()
    }
}

impl OwnMarks {
    fn replace(&mut self, before: MessageNumber, after: MessageNumber) {
        let place = self.places.iter().position(|number| *number == before).unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(FREE);
        }
        self.places[place] = after;
        // Without its mark, a message has as many deliveries as any.
        let _ =
            self.file.seek(SeekFrom::Start(8 * place as u64)).and_then(|_| self.file.write_all(&after.to_le_bytes()));
    }
}

impl KnownDeaths {
    fn read_more(&mut self, folder: &Path) -> io::Result<()> {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            collect(folder, &mut locked_deaths(folder)?)?;
        }
        let mut file = File::open(folder.join(DEATHS))?;
        let len = file.metadata()?.len();
        if len < self.read {
            (self.read, self.counts) = (0, HashMap::new());
        }
        if len > self.read {
            file.seek(SeekFrom::Start(self.read))?;
            for number in numbers(&mut file)? {
                *self.counts.entry(number).or_default() += 1;
                self.read += 8;
            }
        }
        Ok(())
    }
}

impl Drop for DeathRecord {
    fn drop(&mut self) {
        let own = lock(&self.own);
        // A worker that ends by itself has left nothing in its decoders, or has given it back.
        let _ = fs::remove_file(&own.path);
    }
}

/// The file of deaths, locked until it is dropped.
fn locked_deaths(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).read(true).append(true).open(folder.join(DEATHS))?;
    file.lock()?;
    Ok(file)
}

/// Counts what was in the decoders of workers that died, and forgets old deaths.
fn collect(folder: &Path, deaths: &mut File) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != MARKS) {
            continue;
        }
        let mut marks = File::open(&path)?;
        if marks.try_lock().is_ok() {
            let dead: Vec<u8> =
                numbers(&mut marks)?.into_iter().filter(|number| *number != FREE).flat_map(u64::to_le_bytes).collect();
            deaths.write_all(&dead)?;
            fs::remove_file(&path)?;
        }
    }
    if deaths.metadata()?.len() > 8 * REMEMBERED {
        let all = fs::read(folder.join(DEATHS))?;
        deaths.set_len(0)?;
        deaths.write_all(&all[all.len() / 16 * 8..])?;
    }
    Ok(())
}

/// The whole numbers of a file, from its position on.
fn numbers(file: &mut File) -> io::Result<Vec<MessageNumber>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends a record as SIGKILL does: its file stays, and its lock goes.
    fn kill(record: DeathRecord) {
        let DeathRecord { own, .. } = &record;
        lock(own).path = PathBuf::new();
        drop(record);
    }

    #[test]
    fn what_was_in_a_decoder_at_each_death_is_counted_by_every_worker_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let watcher = DeathRecord::open(folder.path()).unwrap();
        for death in 1..=3 {
            let worker = DeathRecord::open(folder.path()).unwrap();
            for message in [1, 2, 3] {
                worker.note(message, true);
            }
            worker.note(2, false);
            worker.note(4, true);
            worker.note(1, false);
            assert_eq!(watcher.deaths(3), death - 1, "it lives");
            kill(worker);
            let next = DeathRecord::open(folder.path()).unwrap();
            for (message, deaths) in [(1, 0), (2, 0), (3, death), (4, death), (5, 0)] {
                assert_eq!((next.deaths(message), watcher.deaths(message)), (deaths, deaths), "{message}");
            }
        }
        let worker = DeathRecord::open(folder.path()).unwrap();
        worker.note(9, true);
        drop(worker);
        assert_eq!(DeathRecord::open(folder.path()).unwrap().deaths(9), 0, "it ended by itself");
        let worker = DeathRecord::open(folder.path()).unwrap();
        worker.note(9, true);
        kill(worker);
        std::thread::sleep(LOOK);
        assert_eq!(watcher.deaths(9), 1, "without another worker's start");
    }

    #[test]
    fn old_deaths_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let numbers = (1..=REMEMBERED + 2).flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        fs::write(folder.path().join(DEATHS), numbers).unwrap();
        let record = DeathRecord::open(folder.path()).unwrap();
        assert_eq!((record.deaths(1), record.deaths(REMEMBERED + 2)), (0, 1));
        assert!(fs::metadata(folder.path().join(DEATHS)).unwrap().len() <= 4 * REMEMBERED + 8);
    }
}
