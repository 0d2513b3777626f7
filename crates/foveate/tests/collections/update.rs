//! Updates: the rows of a run of everything, and only what is new is embedded.
#![cfg(unix)]
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::common::kills::{random_moments, signal, start};
use crate::common::rows::{assert_same_rows, rows};
use crate::common::{PHOTOS, Ran, assert_same_tree, embed, foveate, run, tree};
use foveate::backends;
use foveate::core::Backend;
use foveate_testkit::by_length;
use tempfile::TempDir;

/// A folder of photos, two of which fail.
struct Photos(TempDir);

impl Photos {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("photos")).unwrap();
        let photos = Self(folder);
        for entry in fs::read_dir(PHOTOS).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, photos.path(path.file_name().unwrap().to_str().unwrap())).unwrap();
        }
        for name in ["empty.jpg", "zeros.jpg"] {
            fs::write(photos.path(name), [0; 9].get(..if name == "empty.jpg" { 0 } else { 9 }).unwrap()).unwrap();
        }
        photos
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("photos").join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Adds, changes, renames, copies and removes photos.
    fn live(&self) {
        let names = self.names();
        fs::copy(self.path(&names[3]), self.path("new 1.jpg")).unwrap();
        fs::copy(self.path(&names[5]), self.path("new 2.jpg")).unwrap();
        fs::rename(self.path(&names[7]), self.path("renamed.jpg")).unwrap();
        fs::copy(self.path(&names[10]), self.path(&names[9])).unwrap();
        File::options().write(true).open(self.path(&names[9])).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::remove_file(self.path(&names[20])).unwrap();
        fs::remove_file(self.path("zeros.jpg")).unwrap();
    }

    fn job(&self, output: &Path) -> Command {
        let mut command = embed(output);
        command.arg(self.path("")).args(["--part-items", "8", "--batch", "4", "--json"]);
        command
    }

    /// Writes a tar of some photos beside them.
    fn tar(&self, name: &str, members: &[String]) {
        let mut command = Command::new("tar");
        command.arg("-C").arg(self.path("")).args(["--sort=name", "-cf"]).arg(self.0.path().join(name)).args(members);
        assert!(command.status().unwrap().success());
    }

    /// The same job on `photos.tar`.
    fn tar_job(&self, output: &Path) -> Command {
        let mut command = embed(output);
        command.arg(self.0.path().join("photos.tar")).args(["--part-items", "8", "--batch", "4", "--json"]);
        command
    }

    fn run(&self, output: &Path, more: &[&str]) -> Ran {
        run(self.job(output).args(more))
    }
}

fn vectors(ran: &Ran) -> [u64; 2] {
    ["computed", "from_output"].map(|name| ran.json()["session"][name].as_u64().unwrap())
}

fn changes(ran: &Ran) -> [u64; 4] {
    ["kept", "added", "changed", "gone"].map(|name| ran.json()["update"][name].as_u64().unwrap())
}

#[test]
fn an_update_gives_the_rows_of_a_fresh_run_in_every_format() {
    for sink in backends::sinks().iter().map(Backend::name) {
        for name in [format!("x.{sink}"), "out".to_owned()] {
            let photos = Photos::new();
            let (folder, fresh) = (photos.0.path().join("outputs"), photos.0.path().join(format!("fresh {name}")));
            let output = folder.join(&name);
            let more = ["--sink", sink, "--update"];
            let first = photos.run(&output, &more).expect(0);
            assert_eq!(first.json()["update"], serde_json::Value::Null, "an ordinary run");
            let before = tree(&folder);
            let all = photos.names().len() as u64;
            assert_eq!(changes(&photos.run(&output, &more).expect(0)), [all, 0, 0, 0]);
            assert_eq!(tree(&folder), before);

            photos.live();
            let kept = photos.run(&output, &more).expect(0);
            assert_eq!(changes(&kept), [all - 4, 3, 1, 3], "{sink}");
            assert_eq!(vectors(&kept), [3, 1], "the renamed photo is not computed again");
            let pruned = photos.run(&output, &[&more[..], &["--prune"]].concat()).expect(0);
            assert_eq!(changes(&pruned), [all, 0, 0, 3]);
            assert_eq!(pruned.json()["vectors"].as_u64().unwrap() + 1, photos.names().len() as u64);
            photos.run(&fresh, &["--sink", sink]).expect(0);
            assert_same_rows(&output, &fresh);
            // The plain command finds this job done.
            assert_eq!(photos.run(&output, &["--sink", sink]).expect(0).json()["status"], "already complete");
            if output.is_dir() {
                let same = tree(&folder).iter().filter(|(name, bytes)| before.get(*name) == Some(bytes)).count();
                assert!(same >= 1, "parts without a change keep their names and bytes");
                assert!(!output.join(".foveate").exists());
            }
        }
    }
}

/// Gives an output's records the names of earlier versions, without an underscore.
fn as_of_earlier_versions(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_prefix('_') else { continue };
        if name.ends_with("manifest.json") {
            let mut manifest = fs::read_to_string(&path).unwrap().replace("\"_", "\"");
            if name.contains(".parquet") {
                let former = "\"fingerprint\": {\n    \"sink.part_items\": \"8\",";
                manifest = manifest.replace("\"fingerprint\": {", former);
            }
            fs::write(&path, manifest).unwrap();
        }
        fs::rename(&path, folder.join(name)).unwrap();
    }
}

#[test]
fn outputs_of_earlier_versions_are_found_and_updated() {
    for name in ["x.parquet", "x.npy", "out"] {
        let photos = Photos::new();
        let folder = photos.0.path().join("outputs");
        let output = folder.join(name);
        photos.run(&output, &[]).expect(0);
        let place = if name == "out" { &output } else { &folder };
        as_of_earlier_versions(place);
        let marked = || tree(place).into_keys().filter(|path| path.to_str().unwrap().starts_with('_')).count();
        assert_eq!(marked(), 0);
        assert_eq!(photos.run(&output, &[]).expect(0).json()["status"], "already complete");
        run(foveate().arg("inspect").arg(&output).arg("--check")).expect(0);

        photos.live();
        photos.run(&output, &["--update", "--prune"]).expect(0);
        run(foveate().arg("inspect").arg(&output).arg("--check")).expect(0);
        let fresh = photos.0.path().join(format!("fresh {name}"));
        photos.run(&fresh, &[]).expect(0);
        assert_same_rows(&output, &fresh);
        let unmarked = tree(place).into_keys().filter(|path| path.to_str().unwrap().contains("manifest")).count();
        assert_eq!((marked(), unmarked), (3, 1));
    }
}

/// Copies the files of the output `was`, or renames them, as the files of the output `now`.
fn name_again(folder: &Path, was: &str, now: &str, act: impl Fn(&Path, &Path)) {
    for name in tree(folder).into_keys() {
        let text = name.to_str().unwrap();
        if text.trim_start_matches('_').starts_with(was) {
            act(&folder.join(text), &folder.join(text.replacen(was, now, 1)));
        }
    }
}

/// The files whose names have that of the output `name`, with their bytes.
fn files_of(folder: &Path, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    tree(folder).into_iter().filter(|(path, _)| path.to_str().unwrap().contains(name)).collect()
}

#[test]
fn an_output_is_its_own_name() {
    let copy = |from: &Path, to: &Path| assert!(fs::copy(from, to).is_ok());
    let check = |output: &Path| run(foveate().args(["inspect", "--check"]).arg(output));
    for sink in backends::sinks().iter().map(Backend::name) {
        let photos = Photos::new();
        let folder = photos.0.path().join("outputs");
        let [a, b, c] = ["a", "b", "c"].map(|stem| format!("{stem}.{sink}"));
        photos.run(&folder.join(&a), &[]).expect(0);
        name_again(&folder, &a, &b, copy);
        let before = files_of(&folder, &a);
        assert_eq!(photos.run(&folder.join(&b), &["--check"]).expect(0).json()["status"], "already complete");
        let found = run(foveate().args(["inspect", "--json"]).arg(folder.join(&b))).expect(0).json();
        let files = found["files"].as_array().unwrap().iter();
        let names: Vec<_> = files.map(|file| file["path"].as_str().unwrap()).collect();
        assert!(names.len() >= 3 && names.iter().all(|file| file.contains(&b)), "{names:?}");

        // The copy is checked and updated, and the original stays as it is.
        let whole = fs::read(folder.join(&b)).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        fs::write(folder.join(&b), damaged).unwrap();
        let ran = check(&folder.join(&b)).expect(1);
        assert!(ran.stderr.contains(&format!("{b} is damaged")), "{}", ran.stderr);
        check(&folder.join(&a)).expect(0);
        fs::write(folder.join(&b), whole).unwrap();
        photos.live();
        photos.run(&folder.join(&b), &["--update", "--prune"]).expect(0);
        assert_eq!(files_of(&folder, &a), before);
        check(&folder.join(&b)).expect(0);
        name_again(&folder, &b, &c, |from, to| fs::rename(from, to).unwrap());
        assert_eq!(photos.run(&folder.join(&c), &["--check"]).expect(0).json()["status"], "already complete");
        let fresh = photos.0.path().join(format!("fresh.{sink}"));
        photos.run(&fresh, &[]).expect(0);
        assert_same_rows(&folder.join(&c), &fresh);

        // A file without its records is told what it lacks, and never replaced.
        fs::copy(folder.join(&c), folder.join(&b)).unwrap();
        for more in [&[][..], &["--update"]] {
            let ran = photos.run(&folder.join(&b), more).expect(2);
            let lacks = format!("_{b}.manifest.json is missing: ");
            assert!(ran.stderr.contains(&lacks) && !ran.stderr.contains("--overwrite"), "{}", ran.stderr);
        }
        check(&folder.join(&b)).expect(if sink == "npy" { 2 } else { 1 });
        name_again(&folder, &c, &b, copy);
        for record in tree(&folder).into_keys().filter(|path| path.to_str().unwrap().contains(&format!("{b}."))) {
            let bytes = fs::read(folder.join(&record)).unwrap();
            fs::remove_file(folder.join(&record)).unwrap();
            let says = format!("{} is missing", record.display());
            let ran = photos.run(&folder.join(&b), &["--update"]).expect(2);
            assert!(ran.stderr.contains(&says) && !ran.stderr.contains("--overwrite"), "{}", ran.stderr);
            let ran = check(&folder.join(&b));
            assert!(ran.code > 0 && ran.stderr.contains(&says), "{}", ran.stderr);
            fs::write(folder.join(&record), bytes).unwrap();
        }
        check(&folder.join(&b)).expect(0);
    }
    // A folder's names do not have its own.
    let photos = Photos::new();
    let [out, moved] = ["out", "moved"].map(|name| photos.0.path().join(name));
    photos.run(&out, &[]).expect(0);
    fs::rename(&out, &moved).unwrap();
    photos.live();
    photos.run(&moved, &["--update", "--prune"]).expect(0);
    check(&moved).expect(0);
    assert!(!out.exists());
}

#[test]
fn an_update_that_is_killed_anywhere_leaves_the_old_output_or_the_new_one() {
    for (name, is_tar) in [("out", false), ("x.parquet", false), ("out", true)] {
        let photos = Photos::new();
        let [base, calm, wild] = ["base", "calm", "wild"].map(|folder| photos.0.path().join(folder));
        let job = |output: &Path| if is_tar { photos.tar_job(output) } else { photos.job(output) };
        photos.tar("photos.tar", &photos.names());
        run(&mut job(&base.join(name))).expect(0);
        photos.live();
        photos.tar("photos.tar", &photos.names());
        let copy = |to: &Path| {
            let _ = fs::remove_dir_all(to);
            assert!(Command::new("cp").arg("-a").arg(&base).arg(to).status().unwrap().success());
        };
        let update = |output: &Path| {
            let mut command = job(output);
            command.args(["--update", "--prune"]);
            command
        };
        copy(&calm);
        let started = Instant::now();
        run(&mut update(&calm.join(name))).expect(0);
        let mut moments = random_moments(started.elapsed() + Duration::from_millis(20));
        copy(&wild);
        for _ in 0..by_length(12, 60) {
            let mut child = start(&mut update(&wild.join(name)));
            std::thread::sleep(moments.next().unwrap());
            signal(&child, "KILL");
            if child.wait().unwrap().success() {
                assert_same_tree(&calm, &wild);
                copy(&wild);
            }
        }
        run(&mut update(&wild.join(name))).expect(0);
        assert_same_tree(&calm, &wild);
    }
}

#[test]
fn inputs_that_come_while_a_run_is_interrupted_are_embedded_by_an_update() {
    let photos = Photos::new();
    let [output, fresh] = ["out", "fresh"].map(|name| photos.0.path().join(name));
    photos.run(&output, &["--strict"]).expect(3);
    photos.live();
    photos.run(&output, &[]).expect_error(2, "removed");
    photos.run(&output, &["--update", "--prune"]).expect(0);
    photos.run(&fresh, &[]).expect(0);
    assert_same_rows(&output, &fresh);
}

#[test]
fn parts_that_an_update_fills_keep_their_numbers() {
    for is_failure in [false, true] {
        let photos = Photos::new();
        let [output, fresh] = ["out", "fresh"].map(|name| photos.0.path().join(name));
        photos.run(&output, &[]).expect(0);
        let names = photos.names();
        if is_failure {
            // All that is embedded fails, and fills a part.
            (0..8).for_each(|number| fs::write(photos.path(&format!("{number}.jpg")), "no photo").unwrap());
        } else {
            // The rows that stay of two parts fill one.
            for name in names[..4].iter().chain(&names[8..12]) {
                fs::copy(photos.path(&names[20]), photos.path(name)).unwrap();
            }
        }
        photos.run(&output, &["--update"]).expect(0);
        photos.run(&fresh, &[]).expect(0);
        assert_same_rows(&output, &fresh);
    }
}

#[test]
fn contents_are_compared_when_asked_for() {
    let photos = Photos::new();
    let output = photos.0.path().join("x.npy");
    photos.run(&output, &[]).expect(0);
    let all = photos.names().len() as u64;
    // The same length and time, another content; and another time, the same content.
    let [changed, touched] = [0, 1].map(|at| photos.path(&photos.names()[at]));
    let mut bytes = fs::read(&changed).unwrap();
    let modified = fs::metadata(&changed).unwrap().modified().unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&changed, bytes).unwrap();
    let set = |path: &Path, time| File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    set(&changed, modified);
    set(&touched, SystemTime::UNIX_EPOCH);
    assert_eq!(changes(&photos.run(&output, &["--update", "--by-content"]).expect(0)), [all - 1, 0, 1, 0]);
    assert_eq!(changes(&photos.run(&output, &["--update"]).expect(0)), [all, 0, 0, 0], "the new time was recorded");
}

#[test]
fn only_containers_that_changed_are_read_and_only_members_that_changed_are_embedded() {
    let photos = Photos::new();
    let folder = photos.0.path();
    let tar = |name: &str, members: &[String]| photos.tar(name, members);
    let names: Vec<String> = photos.names().into_iter().take(12).collect();
    tar("a.tar", &names[..6]);
    tar("b.tar", &names[6..]);
    let output = folder.join("out");
    let job = |more: &[&str]| {
        let mut command = embed(&output);
        command.args(["--json", "--batch", "4"]).args([folder.join("a.tar"), folder.join("b.tar")]).args(more);
        run(&mut command)
    };
    job(&[]).expect(0);
    assert_eq!(changes(&job(&["--update"]).expect(0)), [12, 0, 0, 0]);
    // Of a container with the old length and time, nothing is read.
    let first = folder.join("a.tar");
    let data = fs::metadata(&first).unwrap();
    fs::write(&first, vec![0; data.len() as usize]).unwrap();
    File::options().write(true).open(&first).unwrap().set_modified(data.modified().unwrap()).unwrap();
    fs::copy(photos.path(&names[0]), photos.path(&names[7])).unwrap();
    tar("b.tar", &[&names[6..], &["empty.jpg".to_owned()]].concat());
    assert_eq!(changes(&job(&["--update"]).expect(0)), [11, 1, 1, 0]);
    // The same members in a new file are compared once.
    tar("a.tar", &names[..6]);
    let recorded = || fs::read_to_string(output.join("_inputs.csv")).unwrap();
    let before = recorded();
    assert_eq!(changes(&job(&["--update"]).expect(0)), [13, 0, 0, 0]);
    assert_ne!(recorded(), before);
    let before = recorded();
    assert_eq!(changes(&job(&["--update"]).expect(0)), [13, 0, 0, 0]);
    assert_eq!(recorded(), before);
}

#[test]
fn a_plain_command_notices_a_file_that_changed_next_to_a_container() {
    let photos = Photos::new();
    let names = photos.names();
    photos.tar("photos.tar", &names[..6]);
    let [output, tar] = ["out", "photos.tar"].map(|name| photos.0.path().join(name));
    let again = |more: &[&str]| run(photos.job(&output).arg(&tar).args(more));
    again(&[]).expect(0);
    assert_eq!(again(&[]).expect(0).json()["status"], "already complete");
    let changed = photos.path(&names[9]);
    let modified = fs::metadata(&changed).unwrap().modified().unwrap();
    let set = |time| File::options().write(true).open(&changed).unwrap().set_modified(time).unwrap();
    set(SystemTime::UNIX_EPOCH);
    let message = format!("1 photo changed: {}", changed.display());
    again(&[]).expect_error(2, &message);
    again(&["--dry-run"]).expect_error(2, &message);
    assert_eq!(again(&["--by-content"]).expect(0).json()["status"], "already complete");
    set(modified);
    assert_eq!(again(&[]).expect(0).json()["status"], "already complete");
    // The rows of an update are in another order.
    set(SystemTime::UNIX_EPOCH);
    again(&["--update"]).expect(0);
    assert_eq!(again(&[]).expect(0).json()["status"], "already complete");
    fs::write(&changed, "other").unwrap();
    again(&[]).expect_error(2, &message);
}

#[test]
fn failures_are_tried_again_with_another_decoder() {
    let photos = Photos::new();
    let whole = fs::read(photos.path(&photos.names()[0])).unwrap();
    fs::write(photos.path("cut.jpg"), &whole[..whole.len() / 2]).unwrap();
    for name in ["out", "x.npy"] {
        let [output, fresh] = [name.to_owned(), format!("fresh {name}")].map(|name| photos.0.path().join(name));
        photos.run(&output, &["--retry-failures"]).expect_error(2, "no complete output");
        let first = photos.run(&output, &[]).expect(0);
        assert!(first.stderr.contains("; `--retry-failures --allow-truncated` accepts more"), "{}", first.stderr);
        let failed = first.json()["failures"].as_u64().unwrap();
        let again = photos.run(&output, &["--retry-failures", "--allow-truncated"]).expect(0);
        assert_eq!(again.json()["failures"].as_u64().unwrap(), failed - 1);
        assert_eq!(again.json()["session"]["vectors"], 1);
        photos.run(&fresh, &["--allow-truncated"]).expect(0);
        assert_same_rows(&output, &fresh);
        let inspect = |more: &[&str]| run(foveate().arg("inspect").args(more).arg(&output)).expect(0);
        let note = "1 row with allow_truncated: false → true";
        assert_eq!(inspect(&["--json"]).json()["retried"], note);
        assert!(inspect(&[]).stdout.contains(&format!("retried     {note}\n")));
        assert_eq!(photos.run(&output, &[]).expect(0).json()["status"], "already complete");
        photos.run(&output, &["--retry-failures", "--pooling", "mean"]).expect_error(2, "pooling: cls → mean");
        // An update and a merge keep the note, and a second retry adds its own.
        photos.run(&output, &["--retry-failures", "--max-bytes", "1G"]).expect(0);
        assert_eq!(inspect(&["--json"]).json()["retried"], note, "it gave no row");
        fs::copy(photos.path(&photos.names()[3]), photos.path("new.jpg")).unwrap();
        photos.run(&output, &["--update"]).expect(0);
        assert_eq!(inspect(&["--json"]).json()["retried"], note);
        fs::copy(photos.path(&photos.names()[4]), photos.path("empty.jpg")).unwrap();
        photos.run(&output, &["--retry-failures", "--max-pixels", "90M"]).expect(0);
        let retried = inspect(&["--json"]).json()["retried"].as_str().unwrap().to_owned();
        assert!(retried.starts_with(&format!("{note}; 1 row with max_pixels: ")), "{retried}");
        let merged = photos.0.path().join(format!("merged {name}.npy"));
        run(foveate().arg("merge").arg(&output).arg(&fresh).arg("-o").arg(&merged)).expect(0);
        let merged = run(foveate().args(["inspect", "--json"]).arg(&merged)).expect(0);
        assert_eq!(merged.json()["retried"], retried);
        fs::write(photos.path("empty.jpg"), "").unwrap();
        fs::remove_file(photos.path("new.jpg")).unwrap();
    }
}

#[test]
fn an_update_and_what_failed_are_one_command() {
    let photos = Photos::new();
    let whole = fs::read(photos.path(&photos.names()[0])).unwrap();
    fs::write(photos.path("cut.jpg"), &whole[..whole.len() / 2]).unwrap();
    let [output, fresh] = ["out", "fresh"].map(|name| photos.0.path().join(name));
    let before = photos.run(&output, &[]).expect(0).json();
    fs::copy(photos.path(&photos.names()[3]), photos.path("new.jpg")).unwrap();
    let both = photos.run(&output, &["--update", "--retry-failures", "--allow-truncated"]).expect(0).json();
    let count = |ran: &serde_json::Value, name: &str| ran[name].as_u64().unwrap();
    assert_eq!(count(&both, "vectors"), count(&before, "vectors") + 2, "{both}");
    assert_eq!(count(&both, "failures"), count(&before, "failures") - 1);
    photos.run(&fresh, &["--allow-truncated"]).expect(0);
    assert_same_rows(&output, &fresh);
}

#[test]
fn what_an_update_cannot_do_is_refused() {
    let photos = Photos::new();
    let output = photos.0.path().join("out");
    let twice = photos.path(&photos.names()[0]);
    let mut job = photos.job(&output);
    run(job.arg(&twice)).expect(0);
    run(photos.job(&output).arg(&twice).arg("--update")).expect_error(2, "two inputs have the id");
    photos.run(&output, &["--overwrite"]).expect(0);
    photos.run(&output, &["--update", "--pooling", "mean"]).expect_error(2, "pooling: cls → mean");
    photos.run(&output, &["--update", "--shard", "0/2"]).expect(2);
    photos.run(&output, &["--prune"]).expect(2);
    photos.run(&output, &["--update", "--max-removed", "100%"]).expect(2);
    assert_eq!(run(foveate().args(["inspect", "--check"]).arg(&output)).expect(0).stderr, "");
}

#[test]
fn an_update_whose_inputs_are_edited_after_a_kill_has_each_input_once() {
    let photos = Photos::new();
    let [output, fresh] = ["out", "fresh"].map(|name| photos.0.path().join(name));
    let names = photos.names();
    photos.run(&output, &[]).expect(0);
    let age = |name: &str| {
        File::options().write(true).open(photos.path(name)).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    for name in &names[8..16] {
        fs::copy(photos.path(&names[20]), photos.path(name)).unwrap();
    }
    fs::write(photos.path(&names[16]), "no photo").unwrap();
    photos.run(&output, &["--update", "--strict"]).expect(3);
    // Another selection: one input more at its beginning, two less, and a new one.
    fs::copy(photos.path(&names[21]), photos.path(&names[0])).unwrap();
    age(&names[0]);
    fs::remove_file(photos.path(&names[9])).unwrap();
    fs::remove_file(photos.path(&names[16])).unwrap();
    fs::copy(photos.path(&names[1]), photos.path("a new one.jpg")).unwrap();
    let ended = photos.run(&output, &["--update", "--prune"]).expect(0);
    assert_eq!(vectors(&ended), [2, 1], "what the killed update had settled is not computed again");
    photos.run(&fresh, &[]).expect(0);
    assert_same_rows(&output, &fresh);
}

#[test]
fn photos_with_another_time_are_read_and_not_computed_again() {
    let photos = Photos::new();
    let [output, fresh] = ["x.parquet", "fresh.parquet"].map(|name| photos.0.path().join(name));
    photos.run(&output, &[]).expect(0);
    for name in photos.names() {
        let file = File::options().write(true).open(photos.path(&name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let updated = photos.run(&output, &["--update"]).expect(0);
    assert_eq!(vectors(&updated)[0], 0);
    assert_eq!(changes(&updated)[2], photos.names().len() as u64);
    photos.run(&fresh, &[]).expect(0);
    assert_same_rows(&output, &fresh);
}

#[test]
fn an_input_that_cannot_be_read_now_keeps_what_the_output_has_of_it() {
    let photos = Photos::new();
    let folder = photos.0.path();
    let list = folder.join("list.txt");
    let lines: Vec<_> = photos.names().iter().map(|name| photos.path(name).display().to_string()).collect();
    fs::write(&list, lines.join("\n")).unwrap();
    for (name, more) in [("x.parquet", "--update"), ("out", "--by-content")] {
        let output = folder.join("outputs").join(name);
        let job = |more: &[&str]| {
            let mut command = embed(&output);
            run(command.arg("--from-list").arg(&list).args(["--json", "--batch", "4"]).args(more))
        };
        job(&[]).expect(0);
        let before = tree(&folder.join("outputs"));
        // The storage is away.
        fs::rename(photos.path(""), folder.join("away")).unwrap();
        let away = job(&["--update", more]).expect(0);
        assert_eq!(changes(&away), [lines.len() as u64, 0, 0, 0]);
        assert_eq!(away.json()["update"]["unreadable"], lines.len());
        assert_eq!(tree(&folder.join("outputs")), before);
        fs::rename(folder.join("away"), photos.path("")).unwrap();
        assert_eq!(job(&["--update"]).expect(0).json()["update"]["unreadable"], 0);
        assert_eq!(tree(&folder.join("outputs")), before);
    }
    // It changed, and is not readable any more: its old row and its old stamp stay, and the others are embedded.
    let output = folder.join("folder");
    photos.run(&output, &[]).expect(0);
    let before = rows(&output);
    let names = photos.names();
    fs::remove_file(photos.path(&names[3])).unwrap();
    std::os::unix::fs::symlink("absent", photos.path(&names[3])).unwrap();
    fs::copy(photos.path(&names[5]), photos.path("new.jpg")).unwrap();
    let again = photos.run(&output, &["--update", "--prune"]).expect(0);
    assert_eq!(changes(&again), [names.len() as u64, 1, 0, 0]);
    let after = rows(&output);
    assert!(before.iter().all(|(id, row)| after[id] == *row));
    assert_eq!(after.len(), before.len() + 1);
}

#[test]
fn the_failure_of_a_damaged_container_stays_as_long_as_its_damage() {
    let photos = Photos::new();
    let output = photos.0.path().join("out");
    let names = photos.names();
    photos.tar("photos.tar", &names[..8]);
    let tar = photos.0.path().join("photos.tar");
    let whole = fs::read(&tar).unwrap();
    fs::write(&tar, &whole[..whole.len() * 3 / 4]).unwrap();
    let job = |more: &[&str]| run(photos.tar_job(&output).args(more));
    let first = job(&[]).expect(0).json();
    assert_eq!(first["failures"], 1);
    for more in [&["--update"][..], &["--update", "--prune"]] {
        let again = job(more).expect(0).json();
        assert_eq!((&again["failures"], &again["vectors"]), (&first["failures"], &first["vectors"]));
        assert_eq!(rows(&output).len() as u64, first["inputs"].as_u64().unwrap());
    }
    fs::write(&tar, &whole).unwrap();
    let mended = job(&["--update"]).expect(0).json();
    assert_eq!((&mended["failures"], &mended["vectors"]), (&0.into(), &8.into()));
    assert_eq!(rows(&output).len(), 8);
}

#[test]
fn an_output_is_not_replaced_while_it_is_updated() {
    let photos = Photos::new();
    let [output, fresh] = ["out", "fresh"].map(|name| photos.0.path().join(name));
    photos.run(&output, &[]).expect(0);
    photos.live();
    let mut update = photos.job(&output);
    update.args(["--update", "--prune"]);
    let mut child = start(&mut update);
    while !output.join(".foveate/update/later/.foveate").exists() {
        if child.try_wait().unwrap().is_some() {
            photos.live();
            child = start(&mut update);
        }
    }
    signal(&child, "STOP");
    photos.run(&output, &["--overwrite", "--pooling", "mean"]).expect_error(1, "another process");
    signal(&child, "CONT");
    assert!(child.wait().unwrap().success());
    photos.run(&fresh, &[]).expect(0);
    assert_same_rows(&output, &fresh);
}

/// The work in progress of the run that makes the output in `folder`.
fn work_of(folder: &Path, name: &str) -> PathBuf {
    if name == "out" { folder.join("out/.foveate/run") } else { folder.join(format!("_{name}.partial")) }
}

fn write_plan(work: &Path, plan: &str) {
    let sum = xxhash_rust::xxh3::xxh3_64(plan.as_bytes());
    fs::write(work.join("commit"), format!("{sum:016x} {plan}\n")).unwrap();
}

/// Makes of the output before an update, and of the one after it, what is there if the update is interrupted after the
/// first `done` of its renames. Returns the plan.
fn interrupted_in_place(before: &Path, after: &Path, name: &str, done: usize) -> String {
    let is_folder = name == "out";
    let [old, new] = [before, after].map(|folder| if is_folder { folder.join(name) } else { folder.to_owned() });
    let manifest = if is_folder { "_manifest.json".to_owned() } else { format!("_{name}.manifest.json") };
    let work = work_of(before, name);
    let base = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&fs::read(old.join(&manifest)).unwrap()));
    let described: serde_json::Value = serde_json::from_slice(&fs::read(new.join(&manifest)).unwrap()).unwrap();
    fs::create_dir_all(&work).unwrap();
    let was = tree(&old);
    let mut files: Vec<_> = tree(&new).into_iter().filter(|(path, bytes)| was.get(path) != Some(bytes)).collect();
    // The file that means "complete" comes last.
    let main = if is_folder { &manifest } else { name };
    files.sort_by_key(|(path, _)| path.as_os_str() == main);
    let mut moves = Vec::new();
    for (number, (path, bytes)) in files.iter().enumerate() {
        moves.push(serde_json::json!({ "is_later": false, "from": path, "to": path }));
        fs::write(if number < done { old.join(path) } else { work.join(path) }, bytes).unwrap();
    }
    let remove: Vec<_> = was.into_keys().filter(|path| !new.join(path).exists()).collect();
    let plan = serde_json::json!({ "base": base, "moves": moves, "manifest": described, "remove": remove });
    write_plan(&work, &plan.to_string());
    plan.to_string()
}

#[test]
fn an_update_that_is_interrupted_between_its_renames_is_named_and_finished() {
    for name in ["x.parquet", "x.npy", "out"] {
        let photos = Photos::new();
        let [before, after, wild] = ["before", "after", "wild"].map(|folder| photos.0.path().join(folder));
        let copy = |from: &Path, to: &Path| {
            let _ = fs::remove_dir_all(to);
            assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
        };
        photos.run(&before.join(name), &[]).expect(0);
        copy(&before, &after);
        photos.live();
        photos.run(&after.join(name), &["--update", "--prune"]).expect(0);
        for (done, more) in [(0, &["--update"][..]), (1, &[]), (2, &["--update"]), (3, &[])] {
            copy(&before, &wild);
            interrupted_in_place(&wild, &after, name, done);
            run(foveate().arg("inspect").arg(wild.join(name))).expect_error(1, "is being put in place");
            photos.run(&wild.join(name), more).expect(0);
            assert_same_tree(&after, &wild);
        }
        // A stranger's plan.
        copy(&before, &wild);
        let plan = interrupted_in_place(&wild, &after, name, 0);
        let work = work_of(&wild, name);
        let victim = wild.join("mine.txt");
        fs::write(&victim, "mine").unwrap();
        let target = if name == "out" { "../mine.txt" } else { "mine.txt" };
        let removing = plan.replacen("\"remove\":[", &format!("\"remove\":[\"{target}\","), 1).replacen(",]", "]", 1);
        let moving = plan.replacen("\"from\":\"", "\"from\":\"../../", 1);
        for stranger in [removing, moving] {
            write_plan(&work, &stranger);
            photos.run(&wild.join(name), &["--update"]).expect_error(1, "is damaged");
            assert_eq!(fs::read(&victim).unwrap(), b"mine");
        }
    }
}

#[test]
fn an_update_that_would_remove_too_many_inputs_stops_before_it_changes_anything() {
    let photos = Photos::new();
    let names = photos.names();
    let all = names.len();
    for name in ["x.parquet", "out"] {
        let output = photos.0.path().join("outputs").join(name);
        photos.run(&output, &["--overwrite"]).expect(0);
    }
    names[..6].iter().for_each(|name| fs::remove_file(photos.path(name)).unwrap());
    for name in ["x.parquet", "out"] {
        let output = photos.0.path().join("outputs").join(name);
        let before = tree(&photos.0.path().join("outputs"));
        let prune = |more: &[&str]| photos.run(&output, &[&["--update", "--prune"], more].concat());
        let refused = format!("would remove 6 of the output's {all} inputs, more than the limit of 10%; ");
        prune(&[]).expect_error(2, &refused);
        prune(&["--max-removed", "5"]).expect_error(2, "more than the limit of 5; ");
        assert_eq!(tree(&photos.0.path().join("outputs")), before);
        let pruned = prune(&["--max-removed", "6"]).expect(0);
        assert_eq!(changes(&pruned), [all as u64 - 6, 0, 0, 6]);
    }
    // A container's members are known when it was read. What was embedded by then is kept.
    let output = photos.0.path().join("tar");
    let names = photos.names();
    photos.tar("photos.tar", &names[..10]);
    run(&mut photos.tar_job(&output)).expect(0);
    let before = rows(&output);
    photos.tar("photos.tar", &names[2..12]);
    let prune = |more: &[&str]| run(photos.tar_job(&output).args(["--update", "--prune"]).args(more));
    prune(&[]).expect_error(2, "would remove 2 of the output's 10 inputs");
    assert_eq!(rows(&output), before);
    let pruned = prune(&["--max-removed", "100%"]).expect(0);
    assert_eq!(changes(&pruned), [8, 2, 0, 2]);
    assert_eq!(pruned.json()["session"]["vectors"], 0, "they are embedded once");
}

#[test]
fn a_folder_that_became_empty_stops_an_update_that_prunes() {
    let photos = Photos::new();
    let names = photos.names();
    let [disk, away] = [photos.path("disk"), photos.0.path().join("away")];
    fs::create_dir_all(disk.join("2024/may")).unwrap();
    fs::copy(photos.path(&names[0]), disk.join("2024/may/one.jpg")).unwrap();
    fs::copy(photos.path(&names[1]), disk.join("two.jpg")).unwrap();
    let output = photos.0.path().join("out");
    photos.run(&output, &[]).expect(0);
    let before = tree(&output);
    fs::rename(&disk, &away).unwrap();
    fs::create_dir(&disk).unwrap();
    let refused = format!("{} is there but empty, as if its disk were not mounted", disk.display());
    photos.run(&output, &["--update", "--prune"]).expect_error(2, &refused);
    assert_eq!(tree(&output), before);
    // Nothing is lost without --prune, nor by a folder that is gone as a whole.
    assert_eq!(changes(&photos.run(&output, &["--update"]).expect(0)), [names.len() as u64, 0, 0, 2]);
    fs::remove_dir(&disk).unwrap();
    assert_eq!(changes(&photos.run(&output, &["--update", "--prune"]).expect(0))[3], 2);
    fs::rename(&away, &disk).unwrap();
    photos.run(&output, &["--update"]).expect(0);
    fs::remove_dir_all(&disk).unwrap();
    fs::create_dir(&disk).unwrap();
    let meant = ["--update", "--prune", "--max-removed", "100%"];
    assert_eq!(changes(&photos.run(&output, &meant).expect(0))[3], 2);
}

#[test]
fn inputs_that_are_spelled_in_another_way_are_not_added_a_second_time() {
    let photos = Photos::new();
    let names = photos.names();
    photos.tar("photos.tar", &names[..4]);
    for (inputs, output) in [("photos", "out"), ("photos.tar", "x.npy")] {
        let output = photos.0.path().join(output);
        let job = |folder: &str, more: &[&str]| {
            let mut command = embed(&output);
            command.current_dir(photos.0.path()).arg(format!("{folder}{inputs}")).args(["--json", "--batch", "4"]);
            run(command.args(more))
        };
        let all = job("", &[]).expect(0).json()["inputs"].as_u64().unwrap();
        let before = rows(&output);
        for more in [&["--update"][..], &["--update", "--prune", "--max-removed", "100%"]] {
            let refused = job("./", more).expect(2);
            assert!(refused.stderr.contains("; spell the inputs as before"), "{}", refused.stderr);
            let [known, listed] = ["", "./"].map(|folder| format!("{folder}{inputs}/{}", names[0]));
            let both = format!("the output has {known}, the inputs have {listed}; ");
            assert!(refused.stderr.contains(&both), "{}", refused.stderr);
        }
        assert_eq!(rows(&output), before);
        assert_eq!(changes(&job("", &["--update"]).expect(0)), [all, 0, 0, 0]);
    }
    // One common input is enough.
    let output = photos.0.path().join("out");
    for name in &names[1..] {
        fs::remove_file(photos.path(name)).unwrap();
    }
    let mut job = embed(&output);
    job.current_dir(photos.0.path()).args(["photos", "--json", "--update"]);
    assert_eq!(changes(&run(&mut job).expect(0)), [1, 0, 0, names.len() as u64 - 1]);
}

/// The lines of a file of changes, sorted, without the folder of their ids.
fn listed_changes(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    assert_eq!(header, "id,change");
    let mut lines: Vec<_> = lines.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn a_dry_run_shows_what_an_update_would_do_and_writes_nothing() {
    for name in ["out", "x.npy"] {
        let photos = Photos::new();
        let names = photos.names();
        let folder = photos.0.path().join("outputs");
        let output = folder.join(name);
        let file = photos.0.path().join(format!("{name}.csv"));
        let more = ["--changes", file.to_str().unwrap()];
        let dry = |more: &[&str]| photos.run(&output, &[&["--update", "--dry-run"], more].concat());
        // Without an output, everything is embedded.
        assert_eq!(dry(&[]).expect(0).json()["state"], "new");
        assert!(!output.exists());
        photos.run(&output, &[]).expect(0);
        let before = tree(&folder);
        assert_eq!(changes(&dry(&[]).expect(0)), [names.len() as u64, 0, 0, 0]);

        let kept = photos.path(&names[12]);
        let aside = photos.0.path().join("aside");
        photos.live();
        fs::rename(&kept, &aside).unwrap();
        std::os::unix::fs::symlink("absent", &kept).unwrap();
        let all = names.len() as u64;
        assert_eq!(changes(&dry(&[]).expect(0)), [all - 4, 3, 1, 3]);
        let preview = dry(&[&["--prune"], &more[..]].concat()).expect(0);
        assert_eq!(preview.json()["status"], "dry run");
        assert_eq!(preview.json()["update"]["unreadable"], 1);
        let text = run(embed(&output).arg(photos.path("")).args(["--update", "--prune", "--dry-run"])).expect(0);
        assert_eq!(text.stdout.lines().next(), Some("28 kept, 3 added, 1 changed or tried again, 3 removed"));
        assert_eq!(tree(&folder), before);
        for work in ["out/.foveate", "_x.npy.update", "_x.npy.partial"] {
            assert!(!folder.join(work).exists(), "{work} is left");
        }
        let shown = listed_changes(&file);
        let mut expected = vec![
            "new 1.jpg,added".to_owned(),
            "new 2.jpg,added".to_owned(),
            "renamed.jpg,added".to_owned(),
            format!("{},changed", names[9]),
            format!("{},unreadable", names[12]),
        ];
        expected.extend([&names[7], &names[20], "zeros.jpg"].map(|name| format!("{name},removed")));
        expected.sort();
        assert_eq!(shown, expected);
        // The real update finds the same.
        photos.run(&output, &[&["--update", "--prune"], &more[..]].concat()).expect_error(2, "exists, and is not");
        assert_eq!(tree(&folder), before);
        fs::remove_file(&file).unwrap();
        let real = photos.run(&output, &[&["--update", "--prune"], &more[..]].concat()).expect(0);
        assert_eq!(real.json()["update"], preview.json()["update"]);
        assert_eq!(listed_changes(&file), expected);
        fs::remove_file(&file).unwrap();
        photos.run(&output, &[&["--update", "--prune"], &more[..]].concat()).expect(0);
        assert_eq!(listed_changes(&file), [format!("{},unreadable", names[12])]);

        // A refusal comes with what it refuses.
        fs::remove_file(&file).unwrap();
        names[..6].iter().for_each(|name| fs::rename(photos.path(name), photos.0.path().join(name)).unwrap());
        let before = tree(&folder);
        let refused = dry(&[&["--prune"], &more[..]].concat()).expect(2);
        assert!(refused.stderr.contains("would remove 6 of"), "{}", refused.stderr);
        assert_eq!(changes(&refused)[3], 6);
        assert_eq!(listed_changes(&file).len(), 7);
        assert_eq!(tree(&folder), before);
    }
}

#[test]
fn a_dry_run_reads_containers_and_leaves_an_interrupted_update_as_it_is() {
    let photos = Photos::new();
    let names = photos.names();
    let [output, file] = ["out", "changes.csv"].map(|name| photos.0.path().join(name));
    let changes_to = ["--update", "--changes", file.to_str().unwrap()];
    photos.tar("photos.tar", &names[..10]);
    let job = |more: &[&str]| run(photos.tar_job(&output).args(more));
    job(&[&changes_to[..], &["--dry-run"]].concat()).expect_error(2, "leave out --changes");
    // Of an output that is not there yet, every input is added.
    job(&changes_to).expect(0);
    assert_eq!(listed_changes(&file), names[..10].iter().map(|name| format!("{name},added")).collect::<Vec<_>>());
    fs::remove_file(&file).unwrap();

    fs::copy(photos.path(&names[20]), photos.path(&names[3])).unwrap();
    fs::write(photos.path("no photo.jpg"), "no photo").unwrap();
    photos.tar("photos.tar", &[&names[1..10], &["no photo.jpg".to_owned()]].concat());
    job(&["--update", "--strict"]).expect(3);
    let before = tree(&output);
    assert!(before.keys().any(|path| path.starts_with(".foveate/update/later")));
    let preview = job(&[&changes_to[..], &["--prune", "--dry-run"]].concat()).expect(0);
    assert_eq!(changes(&preview), [8, 1, 1, 1]);
    let expected = [(&names[0], "removed"), (&names[3], "changed"), (&"no photo.jpg".to_owned(), "added")];
    let mut expected = expected.map(|(name, change)| format!("{name},{change}"));
    expected.sort();
    assert_eq!(listed_changes(&file), expected);
    assert_eq!(tree(&output), before);
    fs::remove_file(&file).unwrap();
    let real = job(&[&changes_to[..], &["--prune"]].concat()).expect(0);
    assert_eq!(real.json()["update"], preview.json()["update"]);
    assert_eq!(listed_changes(&file), expected);
}
