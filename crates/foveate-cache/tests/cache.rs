//! What a cache keeps, and what it must not return.
// A test's panic is its report.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use foveate_cache::{Cache, CacheError};
use foveate_core::Size;
use foveate_pipeline::{Known, Recall};
use lmdb::{Cursor, Database, Environment, EnvironmentFlags, Transaction, WriteFlags};

const LARGE: u64 = 64 << 20;

fn settings(model: &str) -> BTreeMap<String, String> {
    [("model".to_owned(), model.to_owned())].into()
}

fn open(folder: &Path, bytes: u64) -> Cache {
    Cache::open(folder, bytes, &settings("one")).unwrap()
}

fn known(content: u128) -> Known {
    let vector = (0..384).map(|at| content as f32 + at as f32 / 512.0).collect();
    Known { size: Size::new(content as u32, 7), vector }
}

fn fill(cache: &Cache, contents: impl Iterator<Item = u128>) {
    contents.for_each(|content| cache.remember(content, known(content)));
}

/// Opens the file without the cache, and calls `change` with the entries' databases.
fn raw(folder: &Path, change: impl Fn(&Environment, Database)) {
    let env = Environment::new().set_flags(EnvironmentFlags::NO_TLS).set_max_dbs(2).open(folder).unwrap();
    for name in ["0", "1"] {
        change(&env, env.open_db(Some(name)).unwrap());
    }
}

#[test]
fn entries_outlive_the_cache_and_belong_to_their_settings() {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path(), LARGE), 0..100);
    let (cache, same) = (open(folder.path(), LARGE), open(folder.path(), LARGE));
    let other = Cache::open(folder.path(), LARGE, &settings("two")).unwrap();
    for content in 0..100 {
        assert_eq!(cache.recall(content), Some(known(content)));
        assert_eq!((same.recall(content), other.recall(content)), (Some(known(content)), None));
    }
    assert_eq!(cache.recall(100), None);
    drop((cache, same));
    fill(&other, 200..201);
    drop(other);
    let other = Cache::open(folder.path(), LARGE, &settings("two")).unwrap();
    assert_eq!((other.recall(200), other.recall(0)), (Some(known(200)), None));
}

#[test]
fn a_damaged_entry_is_a_miss_and_can_be_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path(), LARGE), 0..2);
    raw(folder.path(), |env, database| {
        let mut transaction = env.begin_rw_txn().unwrap();
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut cursor = transaction.open_ro_cursor(database).unwrap();
        entries
            .extend(cursor.iter_start().map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())));
        drop(cursor);
        for (at, (key, mut value)) in entries.into_iter().enumerate() {
            if at == 0 {
                value[900] ^= 1
            } else {
                value.truncate(5)
            }
            transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
        }
        transaction.commit().unwrap();
    });
    let cache = open(folder.path(), LARGE);
    assert_eq!((cache.recall(0), cache.recall(1)), (None, None));
    fill(&cache, 0..2);
    drop(cache);
    let cache = open(folder.path(), LARGE);
    assert_eq!((cache.recall(0), cache.recall(1)), (Some(known(0)), Some(known(1))));
}

#[test]
fn the_least_recently_used_go_first_and_the_file_is_bounded() {
    const SMALL: u64 = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    for round in 1..20_u128 {
        // About a third of a generation, and one entry that every round uses.
        let cache = open(folder.path(), SMALL);
        if round > 1 {
            assert_eq!(cache.recall(0), Some(known(0)), "round {round}");
        }
        fill(&cache, std::iter::once(0).filter(|_| round == 1));
        fill(&cache, round * 1_000..round * 1_000 + 250);
        drop(cache);
        assert!(fs::metadata(folder.path().join("data.mdb")).unwrap().len() <= SMALL);
    }
    let cache = open(folder.path(), SMALL);
    let kept = |round: u128| (0..250).filter(|at| cache.recall(round * 1_000 + at).is_some()).count();
    assert_eq!((kept(1), kept(10), kept(19)), (0, 0, 250), "the first rounds and the last");
    assert!(kept(18) > 0, "the older generation is of use");
}

#[test]
fn what_is_no_intact_cache_is_refused_with_a_remedy() {
    let refused = |folder: &Path| {
        let error = Cache::open(folder, LARGE, &settings("one")).unwrap_err();
        assert!(matches!(error, CacheError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("delete it, or use another folder"), "{error}");
    };
    let foreign = tempfile::tempdir().unwrap();
    let env = Environment::new().open(foreign.path()).unwrap();
    let mut transaction = env.begin_rw_txn().unwrap();
    transaction.put(env.open_db(None).unwrap(), b"a", b"b", WriteFlags::empty()).unwrap();
    transaction.commit().unwrap();
    drop(env);
    refused(foreign.path());

    let garbage = tempfile::tempdir().unwrap();
    fs::write(garbage.path().join("data.mdb"), vec![7; 100_000]).unwrap();
    refused(garbage.path());

    let cut = tempfile::tempdir().unwrap();
    fill(&open(cut.path(), LARGE), 0..1_000);
    let file = fs::File::options().write(true).open(cut.path().join("data.mdb")).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    refused(cut.path());

    let error = Cache::open(cut.path(), 1_000, &settings("one")).unwrap_err();
    assert!(matches!(error, CacheError::TooSmall { .. }), "{error}");
}

/// The folder of a process that another test starts, and its first content.
const TASK: &str = "FOVEATE_CACHE_TEST";

#[test]
fn one_of_several_processes() {
    let alone = tempfile::tempdir().unwrap();
    let task = std::env::var(TASK).unwrap_or_else(|_| format!("0 {}", alone.path().display()));
    let (first, folder) = task.split_once(' ').unwrap();
    let contents = || first.parse().unwrap()..first.parse::<u128>().unwrap() + 500;
    fill(&open(Path::new(folder), LARGE), contents());
    let cache = open(Path::new(folder), LARGE);
    assert!(contents().all(|content| cache.recall(content) == Some(known(content))));
}

#[test]
fn several_processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), LARGE);
    let start = |first| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "one_of_several_processes"]);
        command.env(TASK, format!("{first} {}", folder.path().display())).spawn().unwrap()
    };
    let processes = [1_000, 2_000].map(start);
    fill(&cache, 0..500);
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let stored = |first| (first..first + 500).filter(|&of| cache.recall(of).is_some()).count();
    assert_eq!([1_000, 2_000].map(stored), [500; 2], "what others stored while this one was open");
    drop(cache);
    let cache = open(folder.path(), LARGE);
    assert!((0..500).all(|content| cache.recall(content) == Some(known(content))));
}
