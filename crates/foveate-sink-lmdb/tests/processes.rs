//! Several processes: readers during the run, killed writers, files that lost their end, and too little memory.
//!
//! The other process is this test binary again, with the name of one of the [`CHILDREN`] and, in [`OUTPUT`], a path.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use foveate_core::Stage;
use foveate_sink::{Existing, Failure, Rows, RunManifest, SinkError, SinkOptions, VectorSink, Watermark};
use foveate_sink_lmdb::{LmdbSink, Vectors};
use foveate_testkit::{python, run, trials};

/// A child process's name, and what it does to the environment at a path.
type Role = (&'static str, fn(&Path));

const CHILDREN: [Role; 3] = [("write", write), ("append", append_and_wait), ("read", read_twice)];
const OUTPUT: &str = "FOVEATE_TEST_LMDB_OUTPUT";

fn main() -> ExitCode {
    if let Some(output) = std::env::var_os(OUTPUT) {
        let name = std::env::args().nth(1).unwrap();
        let (_, child) = CHILDREN.into_iter().find(|(child, _)| *child == name).unwrap();
        child(Path::new(&output));
        return ExitCode::SUCCESS;
    }
    run(trials![
        another_process_reads_a_snapshot_while_more_is_committed,
        python_reads_a_snapshot_while_more_is_committed,
        killed_between_append_and_commit,
        killed_at_any_moment,
        a_torn_commit_never_happened,
        a_cut_file_is_read_whole_or_refused,
        little_address_space_is_enough,
    ])
}

const DIM: usize = 384;
const BLOCK: u64 = 1000;
const BLOCKS: u64 = 12;

fn options(output: &Path) -> SinkOptions {
    SinkOptions::new(output)
}

fn manifest() -> RunManifest {
    RunManifest { dim: DIM, ..RunManifest::default() }
}

fn id(index: u64) -> String {
    // Neither in source order nor all different.
    format!("photos/{:05}.jpg", index * 7919 % (BLOCK * BLOCKS - 17))
}

fn failed(index: u64) -> bool {
    index % 10 == 3
}

fn vector(index: u64) -> Vec<f32> {
    (0..DIM as u64).map(|at| (index * 31 + at) as f32).collect()
}

/// Appends one block of outcomes.
fn take(sink: &mut dyn VectorSink, block: u64) {
    let items = block * BLOCK..(block + 1) * BLOCK;
    let index: Vec<u64> = items.clone().filter(|&index| !failed(index)).collect();
    let ids: Vec<String> = index.iter().map(|&index| id(index)).collect();
    let vectors: Vec<f32> = index.iter().flat_map(|&index| vector(index)).collect();
    let side = vec![9; ids.len()];
    let rows =
        Rows { index: &index, id: &ids, vectors: &vectors, width: &side, height: &side, xxh3: &index, columns: &[] };
    sink.append(&rows).unwrap();
    let failures = items.filter(|&index| failed(index)).map(|index| Failure {
        index,
        id: id(index),
        stage: Stage::Decode,
        reason: "broken".to_owned(),
        bytes: None,
    });
    sink.fail(&failures.collect::<Vec<_>>()).unwrap();
}

/// Continues a run to its end, reporting its progress.
fn write_all(output: &Path, say: &mut dyn FnMut(u64)) {
    let mut sink = LmdbSink::new(options(output));
    let Watermark { index: from, .. } = match sink.begin(&manifest(), Existing::Resume) {
        // The previous process was killed when only the cleanup was left.
        Err(SinkError::AlreadyComplete(_)) => return,
        begun => begun.unwrap(),
    };
    for block in from / BLOCK..BLOCKS {
        take(&mut sink, block);
        sink.commit(Watermark::from((block + 1) * BLOCK)).unwrap();
        say((block + 1) * BLOCK);
    }
    sink.finish().unwrap();
}

/// Checks that every row below the watermark is there, complete and in order, and none above it.
fn check_stored(vectors: &Vectors) -> u64 {
    let watermark = vectors.watermark().unwrap();
    let mut expected = (0..watermark).filter(|&index| !failed(index));
    let all = vectors.for_each(|row| {
        let index = expected.next().expect("a row beyond the watermark");
        assert_eq!((row.index, &row.id), (index, &id(index)));
        assert!(row.vector == vector(index), "row {index}");
        Ok::<(), SinkError>(())
    });
    all.unwrap();
    assert_eq!(expected.next(), None, "a row below the watermark is missing");
    watermark
}

struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts this binary as the child `name`, with `output`.
    fn run(name: &str, output: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(name);
        Self::start(command, output)
    }

    fn start(mut command: Command, output: &Path) -> Self {
        let mut child = command.env(OUTPUT, output).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// The next number that the child prints after `word`; `None` at its end.
    fn heard(&mut self, word: &str) -> Option<u64> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(word) {
                return Some(rest.trim().parse().unwrap());
            }
            line.clear();
        }
        None
    }

    fn go_on(&mut self) {
        self.input.write_all(b"go on\n").unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn ends_well(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

fn say(word: &str, number: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word} {number}").unwrap();
    out.flush().unwrap();
}

fn wait() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn write(output: &Path) {
    write_all(output, &mut |watermark| say("stored", watermark));
}

fn append_and_wait(output: &Path) {
    let mut sink = LmdbSink::new(options(output));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    take(&mut sink, 0);
    sink.commit(Watermark::from(BLOCK)).unwrap();
    take(&mut sink, 1);
    say("appended", 2 * BLOCK);
    wait();
}

fn read_twice(staging: &Path) {
    let vectors = Vectors::open(staging).unwrap();
    let mut rows = 0;
    let all = vectors.for_each(|_| {
        if rows == 0 {
            say("first row of", vectors_below(BLOCK));
            wait();
        }
        rows += 1;
        Ok::<(), SinkError>(())
    });
    all.unwrap();
    say("snapshot", rows);
    say("now", check_stored(&vectors));
}

fn vectors_below(watermark: u64) -> u64 {
    (0..watermark).filter(|&index| !failed(index)).count() as u64
}

fn another_process_reads_a_snapshot_while_more_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("x.lmdb");
    let mut sink = LmdbSink::new(options(&output));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    take(&mut sink, 0);
    sink.commit(Watermark::from(BLOCK)).unwrap();
    let mut reader = Other::run("read", &dir.path().join("x.lmdb.partial"));
    reader.heard("first row of").unwrap();
    for block in 1..6 {
        take(&mut sink, block);
        sink.commit(Watermark::from((block + 1) * BLOCK)).unwrap();
    }
    reader.go_on();
    assert_eq!(reader.heard("snapshot"), Some(vectors_below(BLOCK)), "what was there when it began to read");
    assert_eq!(reader.heard("now"), Some(6 * BLOCK), "and then everything");
    reader.ends_well();
}

fn python_reads_a_snapshot_while_more_is_committed() {
    let script = "
import lmdb, os, sys
env = lmdb.open(os.environ['FOVEATE_TEST_LMDB_OUTPUT'], readonly=True, max_dbs=4, map_size=1 << 40)
db = env.open_db(b'vectors', create=False)
with env.begin(db) as txn:
    print('before', txn.stat(db)['entries'], flush=True)
    sys.stdin.readline()
    print('snapshot', sum(1 for _ in txn.cursor()), flush=True)
with env.begin(db) as txn:
    print('now', sum(1 for _ in txn.cursor()), flush=True)
";
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("x.lmdb");
    let mut sink = LmdbSink::new(options(&output));
    sink.begin(&manifest(), Existing::Resume).unwrap();
    take(&mut sink, 0);
    sink.commit(Watermark::from(BLOCK)).unwrap();
    let mut command = python(&["lmdb"]);
    command.args(["-c", script]);
    let mut reader = Other::start(command, &dir.path().join("x.lmdb.partial"));
    let before = reader.heard("before").unwrap();
    assert_eq!(before, vectors_below(BLOCK));
    take(&mut sink, 1);
    sink.commit(Watermark::from(2 * BLOCK)).unwrap();
    reader.go_on();
    assert_eq!(reader.heard("snapshot"), Some(before));
    assert_eq!(reader.heard("now"), Some(vectors_below(2 * BLOCK)));
    reader.ends_well();
}

fn killed_between_append_and_commit() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("x.lmdb");
    let mut writer = Other::run("append", &output);
    assert_eq!(writer.heard("appended"), Some(2 * BLOCK));
    let second = LmdbSink::new(options(&output)).begin(&manifest(), Existing::Resume);
    assert!(matches!(second, Err(SinkError::Locked(_))), "{second:?}");
    writer.kill();
    assert_eq!(check_stored(&Vectors::open(&dir.path().join("x.lmdb.partial")).unwrap()), BLOCK);
    let found = LmdbSink::new(options(&output)).begin(&manifest(), Existing::Resume).unwrap();
    assert_eq!(found, Watermark::from(BLOCK));
}

/// Commits take most of the writer's time, so most kills hit one.
fn killed_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, output) = (dir.path().join("whole.lmdb"), dir.path().join("x.lmdb"));
    let start = std::time::Instant::now();
    write_all(&whole, &mut |_| {});
    let time = start.elapsed();
    let expected = std::fs::read(&whole).unwrap();
    let (mut kills, mut lowest) = (0, 0);
    for round in 0_u32.. {
        let mut writer = Other::run("write", &output);
        // A pseudo-random moment, later in each round so that the end is reached.
        std::thread::sleep(time * (round * 37 % 23) / 60 + Duration::from_millis(u64::from(round)));
        if writer.child.try_wait().unwrap().is_some() {
            writer.ends_well();
            break;
        }
        writer.child.kill().unwrap();
        writer.child.wait().unwrap();
        kills += 1;
        while let Some(stored) = writer.heard("stored") {
            lowest = stored;
        }
        if output.exists() {
            break;
        }
        if let Ok(vectors) = Vectors::open(&dir.path().join("x.lmdb.partial")) {
            let found = check_stored(&vectors);
            assert!(found >= lowest, "{lowest} were committed, {found} are there");
        } else {
            assert_eq!(lowest, 0, "what was committed can be opened");
        }
    }
    eprintln!("killed {kills} times");
    assert!(kills > 3, "killed {kills} times only");
    if dir.path().join("x.lmdb.partial").exists() {
        write_all(&output, &mut |_| {});
    }
    assert!(std::fs::read(&output).unwrap() == expected, "as if it had never been killed");
    assert_eq!(check_stored(&Vectors::open(&output).unwrap()), BLOCK * BLOCKS);
}

/// A power failure in the middle of a commit: some of its pages reached the disk, the one that makes them valid did
/// not.
fn a_torn_commit_never_happened() {
    const PAGE: usize = 4096;
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("x.lmdb");
    let data = dir.path().join("x.lmdb.partial/data.mdb");
    let commit = |block: u64| {
        let mut sink = LmdbSink::new(options(&output));
        sink.begin(&manifest(), Existing::Resume).unwrap();
        take(&mut sink, block);
        sink.commit(Watermark::from((block + 1) * BLOCK)).unwrap();
        drop(sink);
        std::fs::read(&data).unwrap()
    };
    let mut before = commit(0);
    for block in 1..4 {
        let after = commit(block);
        for seed in 1..6_usize {
            let mut torn = before.clone();
            torn.resize(before.len().max(after.len()), 0);
            for (number, page) in after.chunks(PAGE).enumerate().skip(2) {
                if (number * 2_654_435_761 / 97).wrapping_mul(seed) % 3 != 0 {
                    torn[number * PAGE..][..page.len()].copy_from_slice(page);
                }
            }
            std::fs::write(&data, &torn).unwrap();
            let vectors = Vectors::open(&dir.path().join("x.lmdb.partial")).unwrap();
            assert_eq!(check_stored(&vectors), block * BLOCK, "the commit before");
        }
        std::fs::write(&data, &after).unwrap();
        before = after;
    }
    write_all(&output, &mut |_| {});
    assert_eq!(check_stored(&Vectors::open(&output).unwrap()), BLOCK * BLOCKS);
}

/// A file that was cut short, or whose last pages a power failure took: nothing is read from behind its end, which
/// would kill the process, and no row is lost without a word.
fn a_cut_file_is_read_whole_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (output, staging) = (dir.path().join("x.lmdb"), dir.path().join("x.lmdb.partial"));
    let whole = |file: &Path, watermark: u64, reopen: &dyn Fn() -> Result<u64, SinkError>| {
        let bytes = std::fs::read(file).unwrap();
        let (near, far) = ((1..40).map(|pages| pages * 4096), (1..40).map(|part| part * bytes.len() / 40));
        for cut in near.chain(far).chain([1, bytes.len() - 5000, bytes.len()]) {
            std::fs::write(file, &bytes[..bytes.len() - cut]).unwrap();
            match reopen() {
                Ok(found) => assert_eq!(found, watermark, "without {cut} bytes"),
                Err(error) => assert!(matches!(error, SinkError::Damaged { .. }), "without {cut} bytes: {error:?}"),
            }
        }
        std::fs::write(file, &bytes).unwrap();
    };
    for block in 0..3 {
        let mut sink = LmdbSink::new(options(&output));
        sink.begin(&manifest(), Existing::Resume).unwrap();
        take(&mut sink, block);
        sink.commit(Watermark::from((block + 1) * BLOCK)).unwrap();
        drop(sink);
        let data = staging.join("data.mdb");
        whole(&data, (block + 1) * BLOCK, &|| Ok(check_stored(&Vectors::open(&staging)?)));
        whole(&data, (block + 1) * BLOCK, &|| {
            Ok(LmdbSink::new(options(&output)).begin(&manifest(), Existing::Resume)?.index)
        });
    }
    write_all(&output, &mut |_| {});
    whole(&output, BLOCK * BLOCKS, &|| Ok(check_stored(&Vectors::open(&output)?)));
}

fn little_address_space_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("x.lmdb");
    let mut command = Command::new("sh");
    // 600 MB: far from a TiB, and not a multiple of what is needed.
    command.args(["-c", "ulimit -v 600000 && exec \"$0\" write"]);
    command.arg(std::env::current_exe().unwrap());
    let mut writer = Other::start(command, &output);
    assert_eq!(writer.heard("stored"), Some(BLOCK));
    while writer.heard("stored").is_some() {}
    writer.ends_well();
    assert_eq!(check_stored(&Vectors::open(&output).unwrap()), BLOCK * BLOCKS);
}
