//! Outputs in an object store: the files of a local folder, whoever writes them and however often they are interrupted.
#![cfg(unix)]
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::bucket::Bucket;
use crate::common::kills::{random_moments, signal, start};
use crate::common::rows::assert_same_rows;
use crate::common::{PHOTOS, assert_same_tree, embed, foveate, run, tree};
use foveate_testkit::proxy::{Act, proxy};
use foveate_testkit::{Trial, by_length, python, trials};
use serde_json::json;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        a_store_gets_the_files_of_a_folder,
        a_killed_run_continues_within_a_tar,
        two_processes_make_one_output,
        a_collection_lives,
        an_object_that_changed_next_to_a_container_is_noticed,
        another_job_is_refused_and_may_overwrite,
        a_complete_output_is_checked,
        shards_write_to_one_prefix,
        shards_are_merged_from_a_store_and_to_one,
        a_commit_that_comes_too_late_is_refused,
        a_store_that_fails_and_loses_answers_gets_every_file,
        a_store_that_stops_to_take_parts_stops_the_run,
        a_store_without_conditions_needs_a_setting,
        what_a_store_cannot_hold_is_refused,
        objects_that_are_gone_keep_their_duplicates,
    ]
}

/// A copy is listed as long as the object with the same picture is there, with the bytes that were embedded.
fn objects_that_are_gone_keep_their_duplicates() {
    let bucket = Bucket::new();
    let photos: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    for (key, photo) in [("a.jpg", 0), ("b.jpg", 0), ("c.jpg", 1), ("d.jpg", 1)] {
        bucket.ask("PUT", &format!("/bucket/in/{key}"), &photos[photo]);
    }
    run(bucket.command("v.parquet").arg("s3://bucket/in/")).expect(0);
    let listed = || {
        let mut command = foveate();
        command.envs(bucket.server.environment()).arg("duplicates").arg(bucket.path("v.parquet"));
        run(command.args(["--list-removable", "--overwrite", "-o"]).arg(bucket.path("g.csv"))).expect(0)
    };
    assert_eq!(listed().stdout, "s3://bucket/in/b.jpg\ns3://bucket/in/d.jpg\n");
    bucket.ask("DELETE", "/bucket/in/a.jpg", b"");
    let ran = listed();
    assert_eq!(ran.stdout, "s3://bucket/in/d.jpg\n");
    assert!(ran.stderr.contains("not where its id says, such as s3://bucket/in/a.jpg"), "{}", ran.stderr);
    bucket.ask("PUT", "/bucket/in/c.jpg", &photos[2]);
    let ran = listed();
    assert!(ran.stdout.is_empty() && ran.stderr.contains("changed since it was embedded"), "{ran:?}");
}

fn a_store_gets_the_files_of_a_folder() {
    let bucket = Bucket::new();
    for sink in ["parquet", "npy"] {
        let address = format!("s3://bucket/deep/{sink}/");
        let local = run(bucket.job(30, sink).args(["--sink", sink])).expect(0).json();
        let temporary = bucket.path(&format!("{sink}-temporary"));
        fs::create_dir(&temporary).unwrap();
        let mut job = bucket.job(30, &address);
        let remote = run(job.args(["--sink", sink, "--staging"]).arg(&temporary)).expect(0).json();
        assert_eq!((&local["vectors"], &local["failures"]), (&remote["vectors"], &remote["failures"]));
        assert!(remote["failures"].as_u64() > Some(0), "{remote}");
        let files = remote["files"].as_array().unwrap();
        assert!(files.contains(&format!("{address}_manifest.json").into()), "{remote}");
        assert_same_tree(&bucket.path(sink), &bucket.download(&format!("deep/{sink}/"), &format!("{sink}-got")));
        assert_eq!(fs::read_dir(temporary).unwrap().count(), 0, "nothing stays on this machine");
    }
    let script = "import sys, duckdb, polars, pyarrow.dataset as ds
folder, rows = sys.argv[1], int(sys.argv[2])
assert ds.dataset(folder).count_rows() == rows
assert polars.scan_parquet(folder, hidden_file_prefix='_').collect().height == rows
assert duckdb.sql(f\"select count(*) from read_parquet('{folder}/')\").fetchall()[0][0] == rows";
    let rows = run(&mut bucket.job(30, "parquet")).expect(0).json()["vectors"].to_string();
    let mut readers = python(&["duckdb", "polars", "pyarrow"]);
    readers.args(["-c", script]).arg(bucket.path("parquet-got")).arg(rows);
    assert!(readers.status().unwrap().success());
}

/// Kills a job at random moments, each time as if its machine were lost, and continues it on another.
fn kill_until_done(bucket: &Bucket, prefix: &str, kills: u32, job: impl Fn() -> Command) {
    let elsewhere = |mut command: Command, machine: &TempDir| {
        command.env("TMPDIR", machine.path());
        command
    };
    let started = Instant::now();
    let machine = tempfile::tempdir().unwrap();
    run(&mut elsewhere(job(), &machine)).expect(0);
    let (whole, mut hits) = (started.elapsed(), 0);
    bucket.remove_all(prefix);
    for moment in random_moments(whole) {
        let machine = tempfile::tempdir().unwrap();
        let mut child = start(&mut elsewhere(job(), &machine));
        thread::sleep(moment);
        signal(&child, "KILL");
        if child.wait().unwrap().success() {
            bucket.remove_all(prefix);
            continue;
        }
        hits += 1;
        if hits == kills {
            break;
        }
    }
    run(&mut elsewhere(job(), &machine)).expect(0);
}

fn a_killed_run_continues_within_a_tar() {
    let bucket = Bucket::new();
    let tar = bucket.path("photos.tar.gz");
    let packed =
        Command::new("tar").args(["-czf"]).arg(&tar).args(["-C", crate::common::PHOTOS, "."]).status().unwrap();
    assert!(packed.success());
    let job = |output: &str| {
        let mut command = bucket.command(output);
        command.arg(&tar);
        command
    };
    run(&mut job("calm")).expect(0);
    kill_until_done(&bucket, "wild/", by_length(3, 12), || job("s3://bucket/wild/"));
    assert_same_tree(&bucket.path("calm"), &bucket.download("wild/", "wild"));
}

fn two_processes_make_one_output() {
    let bucket = Bucket::new();
    run(&mut bucket.job(40, "one")).expect(0);
    let children = [0, 1].map(|_| start(&mut bucket.job(40, "s3://bucket/two/")));
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // One that was slower may have found the other's output complete.
    assert_same_tree(&bucket.path("one"), &bucket.download("two/", "two"));
}

/// Places of photos, and of their vectors.
struct Collection<'a> {
    bucket: &'a Bucket,
    inputs: &'static str,
    output: &'static str,
}

impl Collection<'_> {
    fn is_local(&self) -> bool {
        !self.inputs.contains("://")
    }

    fn put(&self, name: &str, photo: &Path) {
        let content = fs::read(photo).unwrap();
        match self.is_local() {
            true => fs::write(self.bucket.path(self.inputs).join(name), content).unwrap(),
            false => drop(self.bucket.ask("PUT", &format!("/bucket/in/{name}"), &content)),
        }
    }

    fn remove(&self, name: &str) {
        match self.is_local() {
            true => fs::remove_file(self.bucket.path(self.inputs).join(name)).unwrap(),
            false => drop(self.bucket.ask("DELETE", &format!("/bucket/in/{name}"), b"")),
        }
    }

    fn job(&self, output: &str, more: &[&str]) -> Command {
        let mut command = self.bucket.command(output);
        match self.is_local() {
            true => command.arg(self.bucket.path(self.inputs)),
            false => command.arg(self.inputs),
        };
        command.args(more);
        command
    }

    /// Updates the output after it was killed on the way, and compares it with a fresh run.
    fn update(&self, moments: &mut dyn Iterator<Item = Duration>) -> serde_json::Value {
        let update = ["--update", "--prune"];
        for moment in moments.take(by_length(1, 5)) {
            let mut child = start(&mut self.job(self.output, &update));
            thread::sleep(moment);
            signal(&child, "KILL");
            child.wait().unwrap();
        }
        run(&mut self.job(self.output, &update)).expect(0);
        let again = run(&mut self.job(self.output, &update)).expect(0).json();
        run(&mut self.job("fresh", &["--overwrite"])).expect(0);
        match self.is_local() {
            true => assert_same_rows(&self.bucket.path(self.output), &self.bucket.path("fresh")),
            false => {
                assert_eq!(self.bucket.names("u/.foveate/"), [""; 0]);
                let updated = self.bucket.download("u/", "updated");
                assert_same_rows(&updated, &self.bucket.path("fresh"));
                fs::remove_dir_all(updated).unwrap();
            }
        }
        again
    }
}

/// Photos are added, changed, renamed, copied and removed, and every update is killed on its way. Then they are packed.
fn a_collection_lives() {
    let bucket = Bucket::new();
    let mut photos: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
    photos.sort();
    for (inputs, output) in [("photos", "out"), ("s3://bucket/in/", "s3://bucket/u/")] {
        let collection = Collection { bucket: &bucket, inputs, output };
        fs::create_dir_all(bucket.path("photos")).unwrap();
        photos.iter().take(20).enumerate().for_each(|(n, photo)| collection.put(&format!("{n:02}.jpg"), photo));
        collection.put("empty.jpg", Path::new("/dev/null"));
        let started = Instant::now();
        let first = run(&mut collection.job(output, &["--update"])).expect(0).json();
        assert_eq!(first["update"], serde_json::Value::Null, "an ordinary run");
        let mut moments = random_moments(started.elapsed());
        collection.put("21.jpg", &photos[21]);
        collection.put("22.jpg", &photos[22]);
        assert_eq!(collection.update(&mut moments)["update"]["kept"], 23);
        collection.put("03.jpg", &photos[23]);
        collection.update(&mut moments);
        collection.put("renamed.jpg", &photos[5]);
        collection.remove("05.jpg");
        collection.update(&mut moments);
        collection.put("copy.jpg", &photos[6]);
        collection.update(&mut moments);
        collection.remove("12.jpg");
        collection.remove("empty.jpg");
        assert_eq!(collection.update(&mut moments)["update"]["kept"], 22);

        let of = |name: &str| bucket.path(&format!("{name} {}", inputs.len()));
        let mut pack = foveate();
        pack.args(["pack", "-q", "--shard-size", "300k", "-o"]).arg(of("shards")).envs(bucket.server.environment());
        match collection.is_local() {
            true => pack.arg(bucket.path(inputs)),
            false => pack.arg(inputs),
        };
        run(&mut pack).expect(0);
        let packed = of("packed");
        run(embed(&packed).arg(of("shards").join("*.tar")).args(["--id-column", "id"])).expect(0);
        assert_same_rows(&packed, &bucket.path("fresh"));

        let shards =
            if collection.is_local() { of("halves").display().to_string() } else { "s3://bucket/s/".to_owned() };
        ["0/2", "1/2"].iter().for_each(|shard| drop(run(&mut collection.job(&shards, &["--shard", shard])).expect(0)));
        let mut merge = foveate();
        let merged = bucket.path(&format!("{}.parquet", inputs.len()));
        merge.arg("merge").arg(&shards).arg("-o").arg(&merged).envs(bucket.server.environment());
        run(&mut merge).expect(0);
        assert_same_rows(&merged, &bucket.path("fresh"));
    }
    let shown =
        run(foveate().args(["inspect", "s3://bucket/u/", "--check", "--json"]).envs(bucket.server.environment()));
    assert_eq!(shown.expect(0).json()["rows"], 22);
}

fn an_object_that_changed_next_to_a_container_is_noticed() {
    let bucket = Bucket::new();
    let collection = Collection { bucket: &bucket, inputs: "s3://bucket/in/", output: "out" };
    let photo = |name: &str| Path::new(PHOTOS).join(name);
    let [first, second] = ["01_astronaut_420.jpg", "23_thumb_256.jpg"];
    let tar = bucket.path("c.tar");
    let mut command = Command::new("tar");
    assert!(command.arg("-C").arg(PHOTOS).arg("-cf").arg(&tar).arg(first).status().unwrap().success());
    collection.put("a.jpg", &photo(first));
    collection.put("b.jpg", &photo(second));
    collection.put("c.tar", &tar);
    let job = || run(&mut collection.job("out", &[]));
    job().expect(0);
    assert_eq!(job().expect(0).json()["status"], "already complete");
    collection.put("b.jpg", &photo(first));
    job().expect_error(2, "1 photo changed: s3://bucket/in/b.jpg");
}

fn another_job_is_refused_and_may_overwrite() {
    let bucket = Bucket::new();
    let address = "s3://bucket/vectors/";
    let mean = |extra: &[&str]| run(bucket.job(30, address).args(["--pooling", "mean"]).args(extra));
    let mut child = start(&mut bucket.job(30, address));
    while !bucket.names("vectors/").iter().any(|name| name.ends_with("/claim")) {
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "KILL");
    child.wait().unwrap();
    mean(&[]).expect_error(2, "holds an interrupted run of another job: pooling: cls → mean");
    run(&mut bucket.job(30, address)).expect(0);
    mean(&[]).expect_error(2, "is the complete output of another job: pooling: cls → mean");
    mean(&["--overwrite"]).expect(0);
    run(&mut bucket.job(30, address)).expect_error(2, "pooling: mean → cls");
    run(bucket.job(30, "mean").args(["--pooling", "mean"])).expect(0);
    // Its parts have numbers that those of the replaced output had not, and the same bytes.
    let contents = |folder: &Path| {
        let files = tree(folder).into_iter().filter(|(path, _)| !path.ends_with("_manifest.json"));
        files.map(|(_, bytes)| bytes).collect::<Vec<_>>()
    };
    assert!(contents(&bucket.path("mean")) == contents(&bucket.download("vectors/", "got")));
    // A shorter run leaves nothing of a longer one.
    run(bucket.job(10, address).arg("--overwrite")).expect(0);
    run(&mut bucket.job(10, "short")).expect(0);
    assert!(contents(&bucket.path("short")) == contents(&bucket.download("vectors/", "got-short")));
    assert_eq!(bucket.names("vectors/").len(), std::fs::read_dir(bucket.path("short")).unwrap().count());
}

fn a_complete_output_is_checked() {
    let bucket = Bucket::new();
    let job = || bucket.job(30, "s3://bucket/v/");
    let fresh = run(job().arg("--dry-run")).expect(0).json();
    assert_eq!((&fresh["state"], bucket.names("v/").len()), (&"new".into(), 0));
    let first = run(&mut job()).expect(0).json();
    let again = run(&mut job()).expect(0).json();
    assert_eq!((&again["status"], &again["vectors"]), (&"already complete".into(), &first["vectors"]));
    assert_eq!(run(job().arg("--dry-run")).expect(0).json()["state"], "complete");
    run(job().arg("--check")).expect(0);
    run(job().arg("--strict")).expect_error(3, "more than the limit");
    let mut part = bucket.ask("GET", "/bucket/v/part-00000.parquet", b"");
    part[100] ^= 1;
    bucket.ask("PUT", "/bucket/v/part-00000.parquet", &part);
    run(&mut job()).expect(0);
    run(job().arg("--check")).expect_error(1, "part-00000.parquet is damaged");
    bucket.ask("DELETE", "/bucket/v/part-00000.parquet", b"");
    run(&mut job()).expect_error(2, "part-00000.parquet is missing: ");
    // A photo that changed makes another job of it.
    bucket.ask("PUT", "/bucket/v/part-00000.parquet", &part);
    let list = bucket.path("list.txt");
    let (copy, paths) = (bucket.path("copy.jpg"), fs::read_to_string(&list).unwrap());
    fs::copy(paths.lines().nth(1).unwrap(), &copy).unwrap();
    fs::write(&list, format!("{paths}\n{}", copy.display())).unwrap();
    let job = |output: &str| {
        let mut command = bucket.command(output);
        command.arg("--from-list").arg(&list);
        command
    };
    run(&mut job("s3://bucket/v/")).expect_error(2, "added");
}

fn shards_write_to_one_prefix() {
    let bucket = Bucket::new();
    let job = |output: &str, shard: &str| {
        let mut command = bucket.job(40, output);
        command.args(["--shard", shard]);
        command
    };
    let shards = ["0/3", "1/3", "2/3"];
    shards.iter().for_each(|shard| drop(run(&mut job("local", shard)).expect(0)));
    for child in shards.map(|shard| start(&mut job("s3://bucket/shards/", shard))) {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_same_tree(&bucket.path("local"), &bucket.download("shards/", "got"));
    run(&mut job("s3://bucket/shards/", "0/2")).expect_error(2, "divides the inputs otherwise");
    run(&mut bucket.job(40, "s3://bucket/shards/")).expect_error(2, "divides the inputs otherwise");
}

fn shards_are_merged_from_a_store_and_to_one() {
    let bucket = Bucket::new();
    for shard in ["0/3", "1/3", "2/3"] {
        run(bucket.job(15, "s3://bucket/shards/").args(["--shard", shard])).expect(0);
    }
    run(&mut bucket.job(15, "whole")).expect(0);
    let merge = |output: &str| {
        let mut command = foveate();
        command.args(["merge", "s3://bucket/shards/", "--part-items", "8", "--json", "-o", output]);
        run(command.envs(bucket.server.environment()))
    };
    let local = bucket.path("merged");
    merge(local.to_str().unwrap()).expect(0);
    assert_same_tree(&bucket.path("whole"), &local);
    for status in ["complete", "already complete"] {
        assert_eq!(merge("s3://bucket/merged/").expect(0).json()["status"], status);
    }
    assert_same_tree(&local, &bucket.download("merged/", "got"));
    merge("s3://bucket/shards").expect_error(2, "name another place");
    bucket.ask("DELETE", "/bucket/shards/_manifest-00001-of-00003.json", b"");
    merge("s3://bucket/merged/").expect_error(2, "shard 1/3 is missing");
}

/// Another writer commits at the last moment, and then nobody does, but the answer is lost.
fn a_commit_that_comes_too_late_is_refused() {
    const MANIFEST: &str = "/bucket/v/_manifest.json";
    let bucket = Arc::new(Bucket::new());
    run(&mut bucket.job(10, "s3://bucket/v/")).expect(0);
    let mut theirs: serde_json::Value = serde_json::from_slice(&bucket.ask("GET", MANIFEST, b"")).unwrap();
    theirs["info"]["by"] = "another".into();
    let theirs = theirs.to_string().into_bytes();
    let is_commit = |request: &[u8]| request.starts_with(format!("PUT {MANIFEST} ").as_bytes());
    let (store, rival) = (Arc::clone(&bucket), theirs.clone());
    let late = proxy(&bucket.server.endpoint(), move |_, request| {
        if is_commit(request) {
            store.ask("PUT", MANIFEST, &rival);
        }
        Act::Pass
    });
    let commits = AtomicUsize::new(0);
    let lost = proxy(&bucket.server.endpoint(), move |_, request| {
        let is_first = is_commit(request) && commits.fetch_add(1, Relaxed) == 0;
        if is_first { Act::Lose } else { Act::Pass }
    });
    let over = |endpoint: &str| {
        let mut job = bucket.job(20, "s3://bucket/v/");
        run(job.args(["--overwrite", "--output-store-option", &format!("endpoint={endpoint}")]))
    };
    over(&late).expect_error(1, "another command replaced s3://bucket/v/ while this one was at work; repeat this");
    assert!(bucket.ask("GET", MANIFEST, b"") == theirs);
    let inspect = || run(foveate().args(["inspect", "s3://bucket/v/", "--json"]).envs(bucket.server.environment()));
    assert_eq!(inspect().expect(0).json()["inputs"], 10);
    over(&lost).expect(0);
    assert_eq!(inspect().expect(0).json()["inputs"], 20);
}

fn a_store_that_fails_and_loses_answers_gets_every_file() {
    let bucket = Bucket::new();
    let faults = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let counts = Arc::clone(&faults);
    let endpoint = proxy(&bucket.server.endpoint(), move |number, request| match number % 4 {
        1 => {
            counts[0].fetch_add(1, Relaxed);
            Act::Refuse("503 Slow Down", "SlowDown")
        }
        3 if request.starts_with(b"PUT") => {
            counts[1].fetch_add(1, Relaxed);
            Act::Lose
        }
        _ => Act::Pass,
    });
    run(&mut bucket.job(30, "calm")).expect(0);
    run(bucket.job(30, "s3://bucket/v/").args(["--output-store-option", &format!("endpoint={endpoint}")])).expect(0);
    assert!(faults.iter().all(|count| count.load(Relaxed) > 0), "{faults:?}");
    assert_same_tree(&bucket.path("calm"), &bucket.download("v/", "got"));
}

fn a_store_that_stops_to_take_parts_stops_the_run() {
    let bucket = Bucket::new();
    let forbidden = |_: usize, request: &[u8]| match request.starts_with(b"PUT /bucket/v/part-00001") {
        true => Act::Refuse("403 Forbidden", "AccessDenied"),
        false => Act::Pass,
    };
    let endpoint = proxy(&bucket.server.endpoint(), forbidden);
    run(bucket.job(30, "s3://bucket/v/").args(["--output-store-option", &format!("endpoint={endpoint}")]))
        .expect_error(
            1,
            "AccessDenied); look at the credentials, their rights and the region; mend that and run the same command",
        );
    assert!(bucket.names("v/").contains(&"part-00000.parquet".to_owned()), "what was complete stays");
    let told = |command: &str, args: &[&str]| run(foveate().arg(command).args(args).envs(bucket.server.environment()));
    let inspect = || told("inspect", &["s3://bucket/v/", "--check", "--json"]);
    let shown = inspect().expect(0).json();
    let counts = ["rows", "failures", "settled", "inputs"].map(|key| shown[key].as_u64().unwrap());
    assert_eq!((&shown["state"], &counts[2..]), (&"unfinished".into(), &[8, 30][..]), "{shown}");
    assert!(counts[0] > 0 && counts[0] + counts[1] == 8, "{shown}");
    let bytes = bucket.ask("GET", "/bucket/v/part-00000.parquet", b"");
    assert_eq!(shown["files"], json!([{ "path": "s3://bucket/v/part-00000.parquet", "bytes": bytes.len() }]));
    bucket.ask("PUT", "/bucket/v/part-00000.parquet", b"other");
    inspect().expect_error(1, "s3://bucket/v/part-00000.parquet is damaged");
    bucket.ask("PUT", "/bucket/v/part-00000.parquet", &bytes);
    let merged = bucket.path("merged.parquet");
    let merge = told("merge", &["s3://bucket/v/", "-o", merged.to_str().unwrap()]);
    merge.expect_error(2, "s3://bucket/v/ is unfinished; repeat the command that wrote it");
    let resumed = run(&mut bucket.job(30, "s3://bucket/v/")).expect(0).json();
    assert_eq!(resumed["session"]["resumed"], 8);
    run(&mut bucket.job(30, "calm")).expect(0);
    assert_same_tree(&bucket.path("calm"), &bucket.download("v/", "got"));
}

fn a_store_without_conditions_needs_a_setting() {
    let bucket = Bucket::new();
    run(&mut bucket.job(30, "calm")).expect(0);
    let conditional = |request: &[u8]| request.windows(13).any(|name| name == b"if-none-match");
    let ignores = proxy(&bucket.server.endpoint(), |_, _| Act::Force);
    let refuses = proxy(&bucket.server.endpoint(), move |_, request| match conditional(request) {
        true => Act::Refuse("501 Not Implemented", "NotImplemented"),
        false => Act::Pass,
    });
    for (number, endpoint) in [ignores, refuses].iter().enumerate() {
        let prefix = format!("v{number}/");
        let job = || {
            let mut job = bucket.job(30, &format!("s3://bucket/{prefix}"));
            job.args(["--output-store-option", &format!("endpoint={endpoint}")]);
            job
        };
        run(&mut job()).expect_error(2, "conditional-writes=false");
        assert_eq!(bucket.names(&prefix), [""; 0]);
        run(job().args(["--output-store-option", "conditional-writes=false"])).expect(0);
        assert_same_tree(&bucket.path("calm"), &bucket.download(&prefix, &format!("got{number}")));
    }
}

fn what_a_store_cannot_hold_is_refused() {
    let bucket = Bucket::new();
    let refused = |output: &str, extra: &[&str], says: &str| {
        let mut job = crate::common::foveate();
        // There is no such model, so nothing was opened before the refusal.
        job.args(["embed", crate::common::PHOTOS, "--model", "seeded:no-such-card", "-o", output]).args(extra);
        run(job.envs(bucket.server.environment())).expect_error(2, says);
    };
    refused("s3://bucket/x.parquet", &[], "end it in a slash");
    refused("https://host/vectors/", &[], "this build can write to s3://");
    refused("s3://nobody/v/", &[], "there is no such bucket");
    refused("s3://bucket/v/", &["--output-store-option", "colour=red"], "setting 'colour'");
    refused("s3://bucket/v/", &["--sink", "npy", "--columns", "caption"], "cannot store columns");
    refused("s3://bucket/a//b/", &[], "has a key with an empty");
    refused("local/", &["--staging", "."], "--staging is for an output in a store");
    #[cfg(feature = "lmdb")]
    refused("s3://bucket/v/", &["--sink", "lmdb"], "write Parquet or npy");
    #[cfg(feature = "nats")]
    run(crate::common::foveate().args(["worker", "--queue", "nats://127.0.0.1:1/q", "-o", "s3://bucket/v/"]))
        .expect_error(2, "a worker writes a folder of segments");
    // Credentials are nowhere to be found.
    let mut nobody = bucket.job(10, "s3://bucket/v/");
    nobody.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    nobody.env("HOME", bucket.root.path()).env("AWS_EC2_METADATA_DISABLED", "true");
    run(&mut nobody).expect_error(2, "s3://bucket/v/");
    assert_eq!(bucket.names(""), [""; 0]);
}
