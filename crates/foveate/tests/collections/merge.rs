//! `foveate merge`: shards, segments and overlapping outputs become one.
#![cfg(unix)]
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::kills::{random_moments, signal, start};
use crate::common::rows::{assert_same_rows, rows};
use crate::common::{PHOTOS, Ran, assert_same_tree, embed, foveate, run, tree};
use foveate::backends;
use foveate::core::{Backend, Stage};
use foveate::sink::{Existing, Failure, RowBuffer, RunManifest, SinkOptions, StoredRow, StoredRun, Watermark};
use foveate::source::blob::FileBlob;
use foveate::source::container::NewMember;
use foveate_testkit::by_length;
use tempfile::TempDir;

/// A folder of photos, one of which fails.
struct Photos(TempDir);

impl Photos {
    fn new() -> Self {
        let photos = Self(tempfile::tempdir().unwrap());
        fs::create_dir(photos.path("photos")).unwrap();
        let mut originals: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
        originals.sort_by_key(|path| (fs::metadata(path).unwrap().len(), path.clone()));
        for (number, original) in originals.iter().take(12).enumerate() {
            fs::copy(original, photos.path(&format!("photos/{number:02}.jpg"))).unwrap();
        }
        fs::write(photos.path("photos/05 zeros.jpg"), [0; 9]).unwrap();
        photos
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn embed(&self, output: &str, more: &[&str]) -> Ran {
        let mut command = embed(&self.path(output));
        run(command.arg(self.path("photos")).args(["--part-items", "4", "--batch", "4", "--json"]).args(more))
    }

    fn merge(&self, inputs: &[&str], output: &str, more: &[&str]) -> Ran {
        let inputs: Vec<_> = inputs.iter().map(|input| self.path(input)).collect();
        run(merge(&inputs, &self.path(output)).args(["--part-items", "4", "--json"]).args(more))
    }
}

fn merge(inputs: &[PathBuf], output: &Path) -> Command {
    let mut command = foveate();
    command.arg("merge").args(inputs).arg("-o").arg(output);
    command
}

fn counts(ran: &Ran) -> [u64; 4] {
    ["inputs", "vectors", "failures", "duplicates"].map(|name| ran.json()[name].as_u64().unwrap())
}

#[test]
fn shards_become_the_output_of_a_run_without_shards() {
    for sink in backends::sinks().iter().map(Backend::name) {
        for name in [format!("x.{sink}"), "out".to_owned()] {
            let photos = Photos::new();
            let [shards, fresh, all] = ["shards", "fresh", "all"].map(|folder| format!("{folder}/{name}"));
            for shard in 0..4 {
                photos.embed(&shards, &["--sink", sink, "--shard", &format!("{shard}/4")]).expect(0);
            }
            photos.embed(&fresh, &["--sink", sink]).expect(0);
            let input = if name == "out" { &shards } else { "shards" };
            let merged = photos.merge(&[input], &all, &["--sink", sink]).expect(0);
            assert_eq!(counts(&merged), [13, 12, 1, 0]);
            assert_same_tree(&photos.path("fresh"), &photos.path("all"));
            let again = photos.merge(&[input], &all, &["--sink", sink]).expect(0);
            assert_eq!((&again.json()["status"], counts(&again)), (&"already complete".into(), [13, 12, 1, 0]));

            // It is that run's output for other commands, too.
            assert_eq!(photos.embed(&all, &["--sink", sink]).expect(0).json()["status"], "already complete");
            fs::copy(photos.path("photos/00.jpg"), photos.path("photos/new.jpg")).unwrap();
            let update = photos.embed(&all, &["--sink", sink, "--update"]).expect(0);
            assert_eq!((&update.json()["update"]["kept"], &update.json()["update"]["added"]), (&13.into(), &1.into()));

            let manifest = match name.as_str() {
                "out" => "shards/out/_manifest-00002-of-00004.json".to_owned(),
                _ => format!("shards/x-00002-of-00004.{sink}"),
            };
            if name != "out" {
                photos.embed(&format!("shards/y.{sink}"), &["--shard", "0/4"]).expect(0);
                photos.merge(&[input], "other.npy", &[]).expect_error(2, "it holds shards of several runs");
                fs::remove_file(photos.path(&format!("shards/y-00000-of-00004.{sink}"))).unwrap();
            }
            fs::remove_file(photos.path(&manifest)).unwrap();
            photos.merge(&[input], "other.npy", &[]).expect_error(2, "shard 2/4 is missing");
        }
    }
}

#[test]
fn shards_without_inputs_are_complete_and_empty() {
    let photos = Photos::new();
    let limit = ["--limit", "2"];
    for name in ["x.npy", "out"] {
        let [shards, fresh, all] = ["shards", "fresh", "all"].map(|folder| format!("{folder}/{name}"));
        for shard in 0..4 {
            for _ in 0..2 {
                photos.embed(&shards, &[&limit[..], &["--shard", &format!("{shard}/4")]].concat()).expect(0);
            }
        }
        photos.embed(&fresh, &limit).expect(0);
        photos.merge(&[if name == "out" { &shards } else { "shards" }], &all, &[]).expect(0);
        assert_same_rows(&photos.path(&fresh), &photos.path(&all));
        ["shards", "fresh", "all"].iter().for_each(|folder| fs::remove_dir_all(photos.path(folder)).unwrap());
    }
}

#[test]
fn a_shard_whose_inputs_all_fail_gives_its_failures() {
    for name in ["x.parquet", "out"] {
        let photos = Photos::new();
        for number in 0..3 {
            fs::write(photos.path(&format!("photos/{number:02}.jpg")), [0; 9]).unwrap();
        }
        let [shards, fresh, all] = ["shards", "fresh", "all"].map(|folder| format!("{folder}/{name}"));
        let input = if name == "out" { &shards } else { "shards" };
        for shard in ["1/4", "2/4", "3/4"] {
            photos.embed(&shards, &["--shard", shard]).expect(0);
        }
        photos.merge(&[input], &all, &[]).expect_error(2, "shard 0/4 is missing");
        for _ in 0..2 {
            photos.embed(&shards, &["--shard", "0/4"]).expect_error(3, "none of 3 inputs gave a vector");
        }
        photos.embed(&fresh, &[]).expect(0);
        assert_eq!(counts(&photos.merge(&[input], &all, &[]).expect(0)), [13, 9, 4, 0]);
        assert_same_tree(&photos.path("fresh"), &photos.path("all"));
    }
}

#[test]
fn shards_of_containers_become_the_output_of_a_run_without_shards() {
    let photos = Photos::new();
    let tars = photos.path("tars");
    run(foveate().arg("pack").arg(photos.path("photos")).arg("-o").arg(&tars).args(["--shard-size", "40k"])).expect(0);
    fs::write(tars.join("00001.tar"), "damaged").unwrap();
    let embed = |output: &str, more: &[&str]| {
        let mut command = embed(&photos.path(output));
        run(command.arg(tars.join("*.tar")).args(["--part-items", "4", "--id-column", "id", "--json"]).args(more))
    };
    for shard in ["0/3", "1/3", "2/3"] {
        embed("shards", &["--shard", shard]).expect(0);
        embed("few", &["--shard", shard, "--limit", "6"]).expect(0);
    }
    embed("fresh", &[]).expect(0);
    photos.merge(&["shards"], "all", &[]).expect(0);
    assert_same_tree(&photos.path("fresh"), &photos.path("all"));
    assert_eq!(embed("all", &[]).expect(0).json()["status"], "already complete");
    // Two of each shard are not the first six of all.
    photos.merge(&["few"], "some", &[]).expect(0);
    embed("some", &["--limit", "6"]).expect_error(2, "merged:");
}

#[test]
fn the_first_row_of_an_id_wins_and_a_row_beats_a_failure() {
    let photos = Photos::new();
    let before = fs::read(photos.path("photos/03.jpg")).unwrap();
    fs::write(photos.path("photos/03.jpg"), [1; 9]).unwrap();
    photos.embed("first.npy", &["--limit", "8"]).expect(0);
    fs::write(photos.path("photos/03.jpg"), before).unwrap();
    photos.embed("second", &[]).expect(0);
    for (inputs, name) in [(["first.npy", "second"], "all.parquet"), (["second", "first.npy"], "all")] {
        let merged = photos.merge(&inputs, name, &[]).expect(0);
        assert_eq!(counts(&merged), [21, 12, 1, 8]);
        assert_same_rows(&photos.path(name), &photos.path("second"));
        assert_eq!(photos.merge(&inputs, name, &[]).expect(0).json()["status"], "already complete");
        // A merged output is one like any other.
        assert_eq!(
            counts(&photos.merge(&[name, "second"], &format!("{name} again.npy"), &[]).expect(0)),
            [26, 12, 1, 13]
        );
    }
    fs::copy(photos.path("photos/00.jpg"), photos.path("photos/new.jpg")).unwrap();
    assert_eq!(photos.embed("all", &["--update"]).expect(0).json()["update"]["added"], 1);
    photos.merge(&["first.npy"], "all.parquet", &[]).expect_error(2, "of another job: merged:");
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let photos = Photos::new();
    photos.embed("cls.parquet", &[]).expect(0);
    photos.embed("mean.npy", &["--pooling", "mean"]).expect(0);
    photos.embed("half.npy", &["--out-dtype", "f16"]).expect(0);
    photos.embed("begun", &["--strict"]).expect(3);
    let refused = |inputs: &[&str], output: &str, more: &[&str], why: &str| {
        let before = tree(photos.0.path());
        photos.merge(inputs, output, more).expect_error(2, why);
        assert_eq!(tree(photos.0.path()), before);
    };
    refused(&["cls.parquet", "mean.npy"], "all", &[], "mean.npy: pooling: cls → mean; merge outputs with the same");
    refused(&["begun"], "all", &[], "is unfinished; repeat the command that wrote it");
    refused(&["absent"], "all", &[], "there is no such output");
    refused(&["photos"], "all", &[], "it has no manifest of foveate");
    refused(&["cls.parquet"], "cls.parquet", &["--overwrite"], "name another place");
    refused(&["half.npy"], "all.npy", &["--out-dtype", "f32"], "its vectors are f16 and stay so");
    refused(&["cls.parquet", "half.npy"], "all.npy", &[], "pass --out-dtype f16");

    // Rounded once, whoever rounds.
    photos.merge(&["cls.parquet"], "all/half.npy", &["--out-dtype", "f16"]).expect(0);
    assert_eq!(fs::read(photos.path("all/half.npy")).unwrap(), fs::read(photos.path("half.npy")).unwrap());
    assert_eq!(photos.merge(&["half.npy"], "same", &[]).expect(0).json()["duplicates"], 0);
    assert_same_rows(&photos.path("same"), &photos.path("half.npy"));
}

#[test]
fn columns_of_a_table_are_joined_by_id() {
    let photos = Photos::new();
    photos.embed("x.npy", &[]).expect(0);
    let found = rows(&photos.path("x.npy"));
    let known: Vec<&str> = found.iter().filter(|(_, row)| row.is_ok()).map(|(id, _)| id.as_str()).take(5).collect();
    let table = |name: &str, ids: &[&str]| {
        let file = File::create(photos.path(name)).unwrap();
        let formats = backends::containers();
        let writer = formats.get("parquet").unwrap().create(Box::new(file), &["caption".to_owned()]);
        let mut writer = writer.unwrap().unwrap();
        for (number, id) in ids.iter().enumerate() {
            let (key, columns) = (number.to_string(), [Some(format!("caption of {id}"))]);
            let member = NewMember { key: &key, extension: "jpg", id, bytes: b"JPEG", columns: &columns };
            writer.add(&member).unwrap();
        }
        writer.finish().unwrap();
        photos.path(name).display().to_string()
    };
    let captions = table("captions.parquet", &[&known[..], &["unknown"]].concat());
    let join = ["--join", &captions];
    let joined = photos.merge(&["x.npy"], "all.parquet", &join).expect(0);
    assert_eq!((counts(&joined), &joined.json()["unmatched"]), ([13, 12, 1, 0], &7.into()));
    let mut runs = StoredRun::find(&photos.path("all.parquet")).unwrap();
    let (sinks, mut captions) = (backends::sinks(), 0);
    let stored = runs[0].rows(sinks.get("parquet").unwrap().reader().unwrap(), &mut |row| {
        let expected = known.contains(&row.id).then(|| format!("caption of {}", row.id));
        captions += usize::from(expected.is_some());
        assert_eq!(row.columns.last(), Some(&expected));
        Ok(())
    });
    assert_eq!((stored.unwrap(), captions), (12, 5));
    // The columns are kept by another merge, which finds them in all runs or none.
    photos.merge(&["all.parquet"], "same", &[]).expect(0);
    photos.merge(&["all.parquet", "x.npy"], "mixed", &[]).expect_error(2, "joined: ");
    photos.merge(&["all.parquet"], "other.npy", &[]).expect_error(2, "cannot store columns");
    photos.merge(&["x.npy"], "all.parquet", &[&join[..], &["--on", "key"]].concat()).expect_error(2, "no column 'key'");
    let twice = table("twice.parquet", &["a", "b", "a"]);
    photos.merge(&["x.npy"], "twice", &["--join", &twice]).expect_error(2, "it has the id 'a' twice");
    let unknown = table("unknown.parquet", &["unknown"]);
    photos.merge(&["x.npy"], "none", &["--join", &unknown]).expect_error(2, "names none of the images");
    // Types stay, of CSV too, where ends of ids suffice; a number with leading zeros is text.
    let csv = photos.path("facts.csv");
    fs::write(&csv, "file;code;price;count;sold\n00.jpg;007;1.5;3;true\n01.jpg;008;2;4;false\n02.jpg;;;;\n").unwrap();
    let csv = csv.display().to_string();
    photos.merge(&["x.npy"], "facts.parquet", &["--join", &csv]).expect(0);
    let own = photos.path("own.csv").display().to_string();
    fs::write(&own, "file,width,label\n00.jpg,1,a\n").unwrap();
    photos.merge(&["x.npy"], "own.parquet", &["--join", &own]).expect_error(2, "'width': every output has one of that");
    photos.merge(&["x.npy"], "own.parquet", &["--join", &own, "--columns", "label"]).expect(0);
    photos.merge(&["facts.parquet"], "facts.arrow", &[]).expect(0);
    for output in ["facts.parquet", "facts.arrow"] {
        let formats = backends::containers();
        let blob = FileBlob::open(&photos.path(output), output).unwrap();
        let mut kinds = Vec::new();
        let mut opened = formats.get("parquet").unwrap().open_rows(Arc::new(blob), &mut |columns| {
            kinds = columns.iter().rev().take(4).map(|column| column.kind.name()).collect();
            Ok((columns.len() - 4..columns.len()).collect())
        });
        assert_eq!(kinds, ["boolean", "integer", "float", "text"], "{output}");
        let table = opened.as_mut().unwrap().as_mut().unwrap();
        let mut values = Vec::new();
        while table.advance().unwrap() {
            values.extend((0..4).map(|at| table.text(at).unwrap()));
        }
        let texts: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
        assert_eq!(texts, ["007", "1.5", "3", "true", "008", "2.0", "4", "false"], "{output}");
    }
}

#[test]
fn a_list_of_ids_says_what_is_taken_and_in_which_order() {
    let photos = Photos::new();
    photos.embed("x.parquet", &[]).expect(0);
    let ids = |output: &str| {
        let mut found = Vec::new();
        for mut run in StoredRun::find(&photos.path(output)).unwrap() {
            let sinks = backends::sinks();
            let reader = sinks.get(&run.manifest.format).unwrap().reader().unwrap();
            run.rows(reader, &mut |row| {
                found.push((row.id.to_owned(), row.vector.to_vec()));
                Ok(())
            })
            .unwrap();
        }
        found
    };
    let all = ids("x.parquet");
    let failed = photos.path("photos/05 zeros.jpg").display().to_string();
    let wanted = [&all[7].0, &all[2].0, &failed, &all[9].0].map(String::as_str);
    let list = photos.path("list.txt").display().to_string();
    fs::write(&list, [wanted.join("\n"), "absent".to_owned()].join("\r\n")).unwrap();
    let ran = photos.merge(&["x.parquet"], "some.parquet", &["--ids-from", &list]).expect(0);
    assert_eq!((counts(&ran), &ran.json()["left_out"]), ([13, 3, 1, 0], &9.into()));
    assert!(ran.stderr.contains("warning: 1 of 5 ids in --ids-from are in none"), "{}", ran.stderr);
    assert_eq!(ids("some.parquet"), [all[2].clone(), all[7].clone(), all[9].clone()]);
    let order = ["--ids-from", &list, "--order", "list"];
    photos.merge(&["x.parquet"], "order.npy", &order).expect(0);
    assert_eq!(ids("order.npy"), [all[7].clone(), all[2].clone(), all[9].clone()]);
    run(foveate().arg("inspect").arg(photos.path("order.npy")).arg("--check")).expect(0);
    // Another choice is another output.
    photos.merge(&["x.parquet"], "order.npy", &order[..2]).expect_error(2, "merged");
    // Whatever came first, rows are in one order by id.
    photos.merge(&["order.npy", "x.parquet"], "sorted.parquet", &["--order", "id"]).expect(0);
    let mut sorted = all.clone();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(ids("sorted.parquet"), sorted);
    fs::write(&list, "nothing\n").unwrap();
    photos.merge(&["x.parquet"], "none", &order).expect_error(2, "they are such as 'nothing'");
    photos.merge(&["x.parquet"], "none", &["--order", "list"]).expect_error(2, "--ids-from names it");
}

#[test]
fn duplicates_with_another_content_are_counted_apart() {
    let photos = Photos::new();
    photos.embed("old", &[]).expect(0);
    let names = ["photos/03.jpg", "photos/04.jpg"].map(|name| photos.path(name));
    fs::copy(photos.path("photos/00.jpg"), &names[0]).unwrap();
    fs::copy(photos.path("photos/01.jpg"), &names[1]).unwrap();
    photos.embed("new", &[]).expect(0);
    let merged = photos.merge(&["new", "old"], "all", &[]).expect(0);
    assert_eq!((counts(&merged), &merged.json()["conflicts"]), ([26, 12, 1, 13], &2.into()));
    assert!(merged.stderr.contains("2 of the duplicates have another content"), "{}", merged.stderr);
    assert_same_rows(&photos.path("all"), &photos.path("new"));
}

/// Writes outputs as a worker's segments are: without a record of inputs. Half of each one's ids are the one's before.
fn segments(folder: &Path, count: u64, rows: u64) {
    let sinks = backends::sinks();
    let fingerprint = [("model".to_owned(), "none".to_owned())].into();
    let manifest = RunManifest { dim: 4, fingerprint, ..RunManifest::default() };
    for segment in 0..count {
        let options = SinkOptions::new(folder.join(format!("default-{segment:06}.parquet")));
        let mut sink = sinks.get("parquet").unwrap().open(&options).unwrap();
        sink.begin(&manifest, Existing::Refuse).unwrap();
        let mut buffer = RowBuffer::default();
        for index in 0..rows {
            let id = format!("id {}", segment * rows / 2 + index);
            let vector = [segment as f32, index as f32, 0.5, -1.0];
            buffer.push(index, &StoredRow { id: &id, vector: &vector, width: 1, height: 2, xxh3: 3, columns: &[] });
        }
        sink.append(&buffer.rows()).unwrap();
        let id = "failed".to_owned();
        sink.fail(&[Failure { index: rows, id, stage: Stage::Read, reason: "gone".to_owned(), bytes: None }]).unwrap();
        sink.commit(Watermark::from(rows + 1)).unwrap();
        sink.finish().unwrap();
    }
}

#[test]
fn segments_are_merged_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["segments", "all.npy"].map(|name| folder.path().join(name));
    segments(&input, 3, 100);
    fs::create_dir(input.join("_default-000009.parquet.partial")).unwrap();
    let merge = |output: &Path| run(merge(std::slice::from_ref(&input), output).arg("--json"));
    let merged = merge(&output).expect(0);
    assert_eq!(counts(&merged), [303, 200, 1, 102]);
    assert!(merged.stderr.contains("default-000009.parquet is unfinished and left out"), "{}", merged.stderr);
    let found = rows(&output);
    let first = |id: &str| f32::from_bits(found[id].as_ref().unwrap().0[0]);
    assert_eq!((first("id 99"), first("id 100"), first("id 199")), (0.0, 1.0, 2.0));
    assert_eq!(found["failed"], Err("gone".to_owned()));

    merge(&input.join("all.npy")).expect_error(2, "name another place");
    fs::remove_file(input.join("_default-000001.parquet.manifest.json")).unwrap();
    merge(&output).expect_error(2, "_default-000001.parquet.manifest.json is missing");
}

#[test]
fn a_merge_that_is_killed_anywhere_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    segments(&path("segments"), 4, 50_000);
    for name in ["out", "x.parquet"] {
        let [calm, wild] = ["calm", "wild"].map(path);
        let job = |folder: &Path| {
            let mut command = merge(&[path("segments")], &folder.join(name));
            command.args(["--part-items", "30000"]);
            command
        };
        let started = Instant::now();
        run(&mut job(&calm)).expect(0);
        let mut moments = random_moments(started.elapsed() + Duration::from_millis(20));
        for _ in 0..by_length(8, 60) {
            let mut child = start(&mut job(&wild));
            sleep(moments.next().unwrap());
            signal(&child, "KILL");
            if child.wait().unwrap().success() {
                assert_same_tree(&calm, &wild);
                fs::remove_dir_all(&wild).unwrap();
            }
        }
        run(&mut job(&wild)).expect(0);
        assert_same_tree(&calm, &wild);
        [calm, wild].iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
}
