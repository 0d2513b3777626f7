//! The vectors that a cache keeps, and those that it must not return.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use foveate::cache::{Cache, CacheError};
use foveate_core::Size;
use foveate_pipeline::{ContentId, KnownVector, Recall};
use rusqlite::Connection;

const LARGE: u64 = 64 << 20;

fn settings(model: &str) -> BTreeMap<String, String> {
    [("model".to_owned(), model.to_owned())].into()
}

fn open(folder: &Path, bytes: u64) -> Cache {
    Cache::open(folder, bytes, &settings("one")).unwrap()
}

fn content(number: u64) -> ContentId {
    ContentId::of(&number.to_le_bytes())
}

fn known(content: u64) -> KnownVector {
    let vector = (0..384).map(|at| content as f32 + at as f32 / 512.0).collect();
    KnownVector { size: Size::new(content as u32, 7), vector }
}

fn fill(cache: &Cache, numbers: impl Iterator<Item = u64>) {
    numbers.for_each(|number| cache.remember(content(number), known(number)));
}

fn recall(cache: &Cache, number: u64) -> Option<KnownVector> {
    cache.recall(content(number))
}

#[test]
fn entries_outlive_the_cache_and_belong_to_their_settings() {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path(), LARGE), 0..100);
    let (cache, same) = (open(folder.path(), LARGE), open(folder.path(), LARGE));
    let other = Cache::open(folder.path(), LARGE, &settings("two")).unwrap();
    for content in 0..100 {
        assert_eq!(recall(&cache, content), Some(known(content)));
        assert_eq!((recall(&same, content), recall(&other, content)), (Some(known(content)), None));
    }
    assert_eq!(recall(&cache, 100), None);
    drop((cache, same));
    fill(&other, 200..201);
    drop(other);
    let other = Cache::open(folder.path(), LARGE, &settings("two")).unwrap();
    assert_eq!((recall(&other, 200), recall(&other, 0)), (Some(known(200)), None));
}

#[test]
fn a_damaged_entry_is_a_miss_and_can_be_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path(), LARGE), 0..2);
    let database = Connection::open(folder.path().join("vectors.sqlite")).unwrap();
    let entry = |id: u32| {
        database.query_row("SELECT entry FROM entries0 WHERE id = ?1", [id], |row| row.get::<_, Vec<u8>>(0)).unwrap()
    };
    let set = |id: u32, entry: &[u8]| {
        assert_eq!(database.execute("UPDATE entries0 SET entry = ?2 WHERE id = ?1", (id, entry)).unwrap(), 1);
    };
    let mut changed = entry(1);
    changed[900] ^= 1;
    set(1, &changed);
    set(2, &entry(2)[..5]);
    drop(database);
    let cache = open(folder.path(), LARGE);
    assert_eq!((recall(&cache, 0), recall(&cache, 1)), (None, None));
    fill(&cache, 0..2);
    drop(cache);
    let cache = open(folder.path(), LARGE);
    assert_eq!((recall(&cache, 0), recall(&cache, 1)), (Some(known(0)), Some(known(1))));
}

#[test]
fn the_least_recently_used_go_first_and_the_file_is_bounded() {
    const SMALL: u64 = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    for round in 1..20_u64 {
        // About a third of a generation, and one entry that every round uses.
        let cache = open(folder.path(), SMALL);
        if round > 1 {
            assert_eq!(recall(&cache, 0), Some(known(0)), "round {round}");
        }
        fill(&cache, std::iter::once(0).filter(|_| round == 1));
        fill(&cache, round * 1_000..round * 1_000 + 250);
        drop(cache);
        assert!(fs::metadata(folder.path().join("vectors.sqlite")).unwrap().len() <= SMALL);
    }
    let cache = open(folder.path(), SMALL);
    let kept = |round: u64| (0..250).filter(|at| recall(&cache, round * 1_000 + at).is_some()).count();
    assert_eq!((kept(1), kept(10), kept(19)), (0, 0, 250), "the first rounds and the last");
    assert!(kept(18) > 0, "the older generation is of use");
}

#[test]
fn what_is_no_cache_is_refused_with_a_remedy() {
    let refused = |folder: &Path| {
        let error = Cache::open(folder, LARGE, &settings("one")).unwrap_err();
        assert!(matches!(error, CacheError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("delete it, or use another folder"), "{error}");
    };
    let foreign = tempfile::tempdir().unwrap();
    let database = Connection::open(foreign.path().join("vectors.sqlite")).unwrap();
    database.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(database);
    refused(foreign.path());

    let garbage = tempfile::tempdir().unwrap();
    fs::write(garbage.path().join("vectors.sqlite"), vec![7; 100_000]).unwrap();
    refused(garbage.path());

    let error = Cache::open(garbage.path(), 1_000, &settings("one")).unwrap_err();
    assert!(matches!(error, CacheError::TooSmall { .. }), "{error}");
}

/// Whatever happens to the file: a refusal, a miss or the right vector, never the end of the process.
#[test]
fn no_damage_gives_a_wrong_vector_or_ends_the_process() {
    const ENTRIES: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path(), LARGE), 0..ENTRIES);
    let path = folder.path().join("vectors.sqlite");
    let whole = fs::read(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut hits = 0;
    for round in 0..400 {
        let mut damaged = whole.clone();
        match round % 4 {
            0 => damaged.truncate(random.usize(..whole.len())),
            1 => damaged[random.usize(..2 * 8192)] ^= 1 << random.u8(..8),
            2 => damaged[random.usize(..whole.len())] ^= 1 << random.u8(..8),
            _ => {
                let page = random.usize(..whole.len() / 8192) * 8192;
                damaged[page..page + 8192].fill(random.u8(..));
            }
        }
        fs::write(&path, damaged).unwrap();
        let Ok(cache) = Cache::open(folder.path(), LARGE, &settings("one")) else { continue };
        for number in 0..ENTRIES {
            match recall(&cache, number) {
                Some(found) => assert_eq!(found, known(number), "round {round}"),
                None => continue,
            }
            hits += 1;
        }
        fill(&cache, ENTRIES..ENTRIES + 2);
    }
    assert!(hits > 50 * ENTRIES, "{hits}: most of a damaged cache is of use");
}

/// The folder of a process that another test starts, and its first content.
const TASK: &str = "FOVEATE_CACHE_TEST";

#[test]
fn one_of_several_processes() {
    let alone = tempfile::tempdir().unwrap();
    let task = std::env::var(TASK).unwrap_or_else(|_| format!("0 {}", alone.path().display()));
    let (first, folder) = task.split_once(' ').unwrap();
    let contents = || first.parse().unwrap()..first.parse::<u64>().unwrap() + 500;
    fill(&open(Path::new(folder), LARGE), contents());
    let cache = open(Path::new(folder), LARGE);
    assert!(contents().all(|content| recall(&cache, content) == Some(known(content))));
}

#[test]
fn several_processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), LARGE);
    let start = |first| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cache::one_of_several_processes"]);
        command.env(TASK, format!("{first} {}", folder.path().display())).spawn().unwrap()
    };
    let processes = [1_000, 2_000].map(start);
    fill(&cache, 0..500);
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let stored = |first| (first..first + 500).filter(|&of| recall(&cache, of).is_some()).count();
    assert_eq!([1_000, 2_000].map(stored), [500; 2], "what others stored while this one was open");
    drop(cache);
    let cache = open(folder.path(), LARGE);
    assert!((0..500).all(|content| recall(&cache, content) == Some(known(content))));
}
