//! `foveate pack`: shards give back the images, ids and columns that went in, however often their making was killed.
#![cfg(unix)]
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::common::kills::kill_until_done;
use crate::common::{PHOTOS, TINY, assert_same_tree, csv, embed, foveate, long_list, run, tree};
use foveate::backends::containers;
use foveate::core::PixelBuf;
use foveate::decode::{DecodeHint, DecoderOptions, ImageFormat, Orientation, orientation};
use foveate::embed::{Backends, Settings};
use foveate::source::container::NewMember;
use foveate::source::{Delivery, Input, Source};
use foveate_testkit::by_length;
use serde_json::Value;
use tempfile::TempDir;

fn pack(output: &Path, inputs: &[PathBuf]) -> Command {
    let mut command = foveate();
    command.arg("pack").args(inputs).arg("-o").arg(output);
    command
}

fn photo(name: &str) -> Vec<u8> {
    fs::read(format!("{PHOTOS}/{name}")).unwrap()
}

/// A folder of photos with one that is none, a shard with columns, and a list with a file that is not there.
fn inputs() -> (TempDir, Vec<PathBuf>) {
    let root = tempfile::tempdir().unwrap();
    let photos = root.path().join("photos");
    fs::create_dir(&photos).unwrap();
    for name in ["05_chelsea_420_odd.jpg", "08_rocket_portrait.jpg", "18_chelsea_exif5.jpg", "21_wide_2000x50.jpg"] {
        fs::write(photos.join(name), photo(name)).unwrap();
    }
    fs::write(photos.join("09_no_photo.jpg"), "not a photo").unwrap();
    let shard = root.path().join("captions.tar");
    let formats = containers();
    let columns = ["caption".to_owned(), "url".to_owned()];
    let out = Box::new(fs::File::create(&shard).unwrap());
    let mut writer = formats.get("tar").unwrap().create(out, &columns).unwrap().unwrap();
    for (key, caption) in [("1", Some("a \"cat\", 猫\n".to_owned())), ("2", None)] {
        let bytes = photo("15_clock_gray.jpg");
        let columns = [caption, Some("7".to_owned())];
        writer.add(&NewMember { key, extension: "jpg", id: "unused", bytes: &bytes, columns: &columns }).unwrap();
    }
    writer.finish().unwrap();
    (root, vec![photos, shard])
}

/// Id, columns and bytes of an image.
type Image = (String, Box<[Option<String>]>, Vec<u8>);

fn read(inputs: &[PathBuf], id_column: Option<&str>, columns: &[&str]) -> Vec<Image> {
    let inputs = inputs.iter().cloned().map(Input::Path).collect();
    let mut options = Settings::new(inputs, "", "");
    options.rows.columns = columns.iter().map(|&column| column.to_owned()).collect();
    options.rows.id_column = id_column.map(str::to_owned);
    let mut listing = options.list(|_| ()).unwrap();
    let mut fetch = listing.open_fetch().unwrap();
    let mut all = Vec::new();
    while let Some(Delivery { item, content }) = listing.deliver().unwrap() {
        let mut bytes = Vec::new();
        content.read_into(&item, fetch.as_mut(), &mut bytes).unwrap();
        let absent = || vec![None; 2].into_boxed_slice();
        all.push((item.id, if item.columns.is_empty() { absent() } else { item.columns }, bytes));
    }
    all
}

fn manifest(output: &Path) -> Value {
    serde_json::from_slice(&fs::read(output.join("_manifest.json")).unwrap()).unwrap()
}

fn gives_back_what_went_in(format: &str) {
    let (root, inputs) = inputs();
    let (list, shards) = (root.path().join("list"), root.path().join("shards"));
    fs::write(&list, "absent.jpg\n").unwrap();
    let mut job = pack(&shards, &inputs);
    job.args(["--columns", "caption,url", "--shard-size", "60K", "--format", format, "--from-list"]).arg(&list);
    run(&mut job).expect(0);
    let manifest = manifest(&shards);
    assert_eq!((&manifest["rows"], &manifest["failures"]), (&7.into(), &1.into()), "{manifest}");
    let shards_of_it = manifest["parts"].as_array().unwrap().iter();
    let names = shards_of_it.map(|shard| shard["files"][0]["name"].as_str().unwrap());
    let files: Vec<PathBuf> = names.map(|name| shards.join(name)).collect();
    assert!(files.len() > 1 && files[1].ends_with(format!("00001.{format}")), "{files:?}");
    let failures = csv(&shards.join("_failures.csv"));
    assert_eq!((failures.len(), failures[0]["id"].as_str(), failures[0]["stage"].as_str()), (1, "absent.jpg", "read"));
    let columns = ["caption", "url"];
    assert_eq!(read(&files, Some("id"), &columns), read(&inputs, None, &columns));
    // Vectors and ids of both.
    let vectors = |name: &str, inputs: &[PathBuf], options: &[&str]| {
        let folder = root.path().join(name);
        fs::create_dir(&folder).unwrap();
        run(embed(&folder.join("x.npy")).args(inputs).args(options)).expect(0);
        ["x.npy", "x.npy.ids.csv", "_x.npy.failures.csv"].map(|file| fs::read(folder.join(file)).unwrap())
    };
    assert!(vectors("packed", &files, &["--id-column", "id"]) == vectors("originals", &inputs, &[]));
    assert!(run(&mut job).expect(0).stdout.contains("is already complete: 8 inputs = 7 images"));
}

#[test]
fn tar_shards_give_back_what_went_in() {
    gives_back_what_went_in("tar");
}

#[test]
fn parquet_shards_give_back_what_went_in() {
    gives_back_what_went_in("parquet");
}

#[test]
fn neither_kills_nor_the_number_of_workers_change_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 300);
    let path = |name: &str| folder.path().join(name);
    // The second job continues in the middle of the first one's shards.
    for (inputs, id_column) in [(&list, None), (&path("calm 1/out/00001.tar"), Some("id"))] {
        let turn = if id_column.is_some() { 2 } else { 1 };
        let (calm, wild) = (path(&format!("calm {turn}")), path(&format!("wild {turn}")));
        let job = |output: &Path, workers: u32| {
            let mut command = pack(&output.join("out"), &[]);
            command.args(["--shard-size", ["2M", "100K"][turn - 1], "--workers", &workers.to_string()]);
            match id_column {
                None => command.arg("--from-list").arg(inputs),
                Some(name) => command.arg(inputs).args(["--id-column", name]),
            };
            command
        };
        for output in [&calm, &wild] {
            fs::create_dir(output).unwrap();
        }
        let started = Instant::now();
        run(&mut job(&calm, 1)).expect(0);
        assert!(calm.join("out/00002.tar").exists());
        kill_until_done(&wild, started.elapsed(), by_length(3, 10), |hit| job(&wild, 1 + hit % 4));
        assert_same_tree(&calm, &wild);
    }
}

#[test]
fn resized_photos_are_upright_and_as_small_as_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let photos = root.path().join("photos");
    fs::create_dir(&photos).unwrap();
    for name in ["03_coffee_420.jpg", "19_rocket_exif8.jpg", "22_tall_50x2000.jpg", "23_thumb_256.jpg"] {
        fs::write(photos.join(name), photo(name)).unwrap();
    }
    fs::write(photos.join("bad.jpg"), "not a photo").unwrap();
    let job = |name: &str, workers: &str| {
        let mut command = pack(&root.path().join(name), std::slice::from_ref(&photos));
        command.args(["--model", TINY, "--resize", "256", "--workers", workers]);
        command
    };
    let ran = run(&mut job("shards", "1")).expect(0);
    assert!(ran.stdout.contains("cosine of 4 photos' vectors before and after: min 0.9"), "{}", ran.stdout);
    run(&mut job("again", "4")).expect(0);
    assert_same_tree(&root.path().join("shards"), &root.path().join("again"));
    let manifest = manifest(&root.path().join("shards"));
    let fact = |name| manifest["info"][format!("drift_cosine_{name}")].as_str().unwrap().parse::<f64>().unwrap();
    let drift = ["min", "p1", "median"].map(fact);
    assert!(drift.is_sorted() && drift[0] > 0.9 && drift[2] < 1.0 + 1e-9, "{manifest}");
    let failures = csv(&root.path().join("shards/_failures.csv"));
    assert_eq!((failures.len(), failures[0]["stage"].as_str()), (1, "decode"));
    let packed = read(&[root.path().join("shards/00000.tar")], Some("id"), &[]);
    assert_eq!((&packed[2].2, &packed[3].2), (&photo("22_tall_50x2000.jpg"), &photo("23_thumb_256.jpg")), "copied");
    let sizes = packed[..2].iter().map(|(_, _, jpeg)| {
        let (mut pixels, backends) = (PixelBuf::default(), Backends::compiled());
        let mut decoder = backends.open_decoders(None, &DecoderOptions::default()).unwrap();
        decoder.decode(jpeg, DecodeHint::default(), &mut pixels).unwrap();
        assert_eq!(orientation(jpeg, ImageFormat::Jpeg), Orientation::Normal);
        (pixels.size().width, pixels.size().height)
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [(384, 256), (256, 383)]);
    run(job("no", "1").args(["--decode-scale", "fast"])).expect_error(2, "not at the decode scale fast; leave out");
    run(job("shards", "1").args(["--quality", "90"])).expect_error(2, "quality: 95 → 90; pass --overwrite");
}

#[test]
fn shards_of_another_job_are_refused() {
    let (root, inputs) = inputs();
    let shards = root.path().join("shards");
    run(&mut pack(&shards, &inputs)).expect(0);
    let mut other = pack(&shards, &inputs[..1]);
    run(&mut other).expect_error(2, "of another job: other inputs; pass --overwrite to replace it");
    run(other.arg("--overwrite")).expect(0);
    assert_eq!(manifest(&shards)["rows"], 5);
    fs::remove_file(shards.join("_manifest.json")).unwrap();
    for overwrite in [None, Some("--overwrite")] {
        run(pack(&shards, &inputs).args(overwrite))
            .expect_error(2, "it holds 00000.tar, and no manifest of foveate names it; remove it, or name another");
    }
    let zip =
        |column: &str| run(pack(&root.path().join("zip"), &inputs).args(["--format", "zip", "--columns", column]));
    zip("caption").expect_error(2, "shards of zip cannot be written, only those of tar, parquet");
    run(pack(&shards, &inputs).args(["--columns", "id"])).expect_error(2, "a shard has its own column 'id'");
    // A disk that is gone is no failure of its photos.
    let list = root.path().join("list");
    fs::write(&list, "absent.jpg\n".repeat(150)).unwrap();
    let gone = |most: &str| {
        let mut command = pack(&root.path().join("gone"), &inputs);
        run(command.args(["--max-unreadable", most, "--from-list"]).arg(&list))
    };
    gone("100").expect_error(1, "101 inputs in a row cannot be read");
    assert!(gone("off").expect(0).stdout.contains("157 inputs = 7 images in 1 shards"));
    fs::remove_file(root.path().join("gone/00000.tar")).unwrap();
    gone("off").expect_error(2, "00000.tar is missing");
    // A folder of vectors.
    let vectors = root.path().join("vectors");
    run(embed(&vectors).args(&inputs)).expect(0);
    for overwrite in [None, Some("--overwrite")] {
        let before = tree(&vectors);
        run(pack(&vectors, &inputs).args(overwrite))
            .expect_error(2, "vectors was made by `foveate embed`; name another");
        assert_eq!(tree(&vectors), before);
    }
}

#[test]
fn an_output_that_is_or_holds_an_input_is_refused() {
    let (root, _) = inputs();
    let path = |name: &str| root.path().join(name);
    let (photos, shards) = (path("photos"), path("shards"));
    run(&mut pack(&shards, std::slice::from_ref(&photos))).expect(0);
    fs::write(path("list"), "shards/00000.tar\n").unwrap();
    std::os::unix::fs::symlink(&shards, path("link")).unwrap();
    std::os::unix::fs::symlink(shards.join("00000.tar"), path("single.tar")).unwrap();
    fs::create_dir(path("both")).unwrap();
    fs::create_dir(path("both/photos")).unwrap();
    fs::copy(photos.join("08_rocket_portrait.jpg"), path("both/photos/a.jpg")).unwrap();
    let before = tree(root.path());
    let cases = [
        (vec!["photos"], "photos"),
        (vec!["photos/"], "shards/../photos"),
        (vec!["shards/*.tar"], "shards"),
        (vec!["{shards,none}/*.tar"], "shards"),
        (vec!["./shards/00000.tar"], "link/"),
        (vec!["link/00000.tar"], "shards"),
        (vec!["single.tar"], "shards"),
        (vec!["photos/../link/*.tar"], "shards/"),
        (vec!["--from-list", "list"], "shards"),
        (vec!["both/photos"], "both"),
        (vec!["both/photos/a.jpg"], "both/photos"),
    ];
    for command in ["pack", "embed"] {
        for (inputs, output) in &cases {
            let mut job = foveate();
            job.current_dir(root.path()).arg(command).args(inputs).args(["-o", output, "--overwrite"]);
            if command == "embed" {
                job.args(["--model", TINY]);
            }
            let ran = run(&mut job).expect(2);
            assert!(ran.stderr.contains("; name another "), "{command} {inputs:?} {output}: {}", ran.stderr);
            assert_eq!(tree(root.path()), before, "{command} {inputs:?} {output}");
        }
    }
    // Shards of another program.
    fs::create_dir(path("plain")).unwrap();
    fs::copy(shards.join("00000.tar"), path("plain/part-00000.tar")).unwrap();
    fs::write(path("list"), "plain/part-00000.tar\n").unwrap();
    let before = tree(root.path());
    for inputs in [&["plain/*.tar"][..], &["{plain,none}/*.tar"], &["--from-list", "list"]] {
        let job = ["embed", "--model", TINY, "-o", "plain/../plain", "--overwrite"];
        let ran = run(foveate().current_dir(root.path()).args(job).args(inputs)).expect(2);
        assert!(ran.stderr.contains("plain/../plain: it holds the input "), "{inputs:?}: {}", ran.stderr);
    }
    // One file.
    let file = ["embed", "shards/00000.tar", "-o", "single.tar", "--sink", "npy", "--overwrite", "--model", TINY];
    run(foveate().current_dir(root.path()).args(file)).expect_error(2, "name another ");
    assert_eq!(tree(root.path()), before);
    // An output within an input's folder holds none.
    run(foveate().current_dir(root.path()).args(["pack", ".", "-o", "photos/shards"])).expect(0);
    run(foveate().current_dir(root.path()).args(["pack", ".", "-o", "photos/shards"])).expect(0);
}

#[test]
fn only_shards_that_the_folder_records_are_replaced() {
    let (root, inputs) = inputs();
    let shards = root.path().join("shards");
    let job = |overwrite: bool| {
        let mut command = pack(&shards, &inputs);
        command.args(["--shard-size", if overwrite { "1M" } else { "60K" }]);
        command.args(overwrite.then_some("--overwrite"));
        command
    };
    // The user's own files.
    fs::create_dir(&shards).unwrap();
    for name in ["00007.tar", "00001.parquet", "_failures.csv"] {
        fs::write(shards.join(name), "mine").unwrap();
        for overwrite in [false, true] {
            let why = format!("it holds {name}, and no manifest of foveate names it; remove it, or name another");
            run(&mut job(overwrite)).expect_error(2, &why);
        }
        assert_eq!(tree(&shards), [(name.into(), b"mine".to_vec())].into());
        fs::remove_file(shards.join(name)).unwrap();
    }
    run(&mut job(false)).expect(0);
    let complete = tree(&shards);
    fs::write(shards.join("12345.jpg"), "mine").unwrap();
    run(&mut job(true)).expect_error(2, "it holds 12345.jpg, and no manifest");
    fs::remove_file(shards.join("12345.jpg")).unwrap();
    assert_eq!(tree(&shards), complete);
    // A stranger's record.
    let record = fs::read_to_string(shards.join("_manifest.json")).unwrap();
    fs::write(root.path().join("00000.tar"), "mine").unwrap();
    for name in ["../00000.tar", "12/../../00000.tar", "precious.txt", "/etc/00000.tar"] {
        fs::write(shards.join("precious.txt"), "mine").unwrap();
        fs::write(shards.join("_manifest.json"), record.replace("00000.tar", name)).unwrap();
        run(&mut job(true)).expect_error(1, "_manifest.json is damaged");
        assert!(root.path().join("00000.tar").exists() && shards.join("precious.txt").exists());
    }
    fs::remove_file(shards.join("precious.txt")).unwrap();
    fs::write(shards.join("_manifest.json"), record).unwrap();
    run(&mut job(true)).expect(0);
    assert_eq!(manifest(&shards)["parts"].as_array().unwrap().len(), 1);
    let names: Vec<_> = tree(&shards).into_keys().collect();
    assert_eq!(names, ["00000.tar", "_failures.csv", "_manifest.json"].map(PathBuf::from));
}

#[test]
fn a_kill_while_shards_are_replaced_leaves_none_behind() {
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 100);
    let job = |output: &Path, size: &str, overwrite: bool| {
        let mut command = pack(&output.join("out"), &[]);
        command.arg("--from-list").arg(&list).args(["--shard-size", size]).args(overwrite.then_some("--overwrite"));
        command
    };
    let [calm, wild] = ["calm", "wild"].map(|name| folder.path().join(name));
    for output in [&calm, &wild] {
        fs::create_dir(output).unwrap();
    }
    let started = Instant::now();
    run(&mut job(&calm, "1M", false)).expect(0);
    let calm_time = started.elapsed();
    for _ in 0..by_length(2, 10) {
        run(&mut job(&wild, "20K", true)).expect(0);
        kill_until_done(&wild, calm_time, 3, |_| job(&wild, "1M", true));
        assert_same_tree(&calm, &wild);
    }
}

#[test]
fn what_is_unreadable_at_the_end_is_a_failure_only_if_an_earlier_photo_can_be_read() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let photo = photo("23_thumb_256.jpg");
    let fill = |folder: &str, count: usize| {
        fs::create_dir(path(folder)).unwrap();
        (0..count).for_each(|n| fs::write(path(folder).join(format!("{n:02}.jpg")), &photo).unwrap());
    };
    fill("a", 20);
    let list: String = ["a", "b"].iter().flat_map(|f| (0..20).map(move |n| format!("{f}/{n:02}.jpg\n"))).collect();
    fs::write(path("list"), list).unwrap();
    let job = |output: &str, most: &str| {
        let mut command = foveate();
        command.current_dir(root.path()).args(["pack", "--from-list", "list", "--shard-size", "20K", "-o", output]);
        run(command.args(["--max-unreadable", most]))
    };
    for output in ["all", "tail", "back"] {
        job(output, "10").expect_error(1, "11 inputs in a row cannot be read");
        assert!(path(output).join(".foveate/run/00000.tar").exists());
    }
    // The whole disk is gone.
    fs::rename(path("a"), path("away")).unwrap();
    for output in ["all", "back", "new"] {
        job(output, "100").expect_error(1, "inputs in a row cannot be read, as if their disk or store were gone");
        assert!(!path(output).join("_manifest.json").exists());
    }
    job("all", "off").expect(0);
    assert!(manifest(&path("all"))["failures"].as_u64().unwrap() >= 20);
    // These photos alone.
    fs::rename(path("away"), path("a")).unwrap();
    job("tail", "100").expect(0);
    let counts =
        |output: &str| [&manifest(&path(output))["rows"], &manifest(&path(output))["failures"]].map(Value::clone);
    assert_eq!(counts("tail"), [20, 20].map(Value::from));
    // It is back.
    fill("b", 20);
    job("back", "100").expect(0);
    assert_eq!(counts("back"), [40, 0].map(Value::from));
    job("calm", "100").expect(0);
    assert_same_tree(&path("back"), &path("calm"));
}

#[test]
fn a_folder_that_is_gone_stops_the_job() {
    let (root, inputs) = inputs();
    let photos = &inputs[..1];
    let job = |output: &str| {
        let mut command = pack(&root.path().join(output), photos);
        run(command.arg("--listing").arg(root.path().join("kept")))
    };
    job("first").expect(0);
    fs::rename(&photos[0], root.path().join("away")).unwrap();
    fs::create_dir(&photos[0]).unwrap();
    job("second").expect_error(1, "photos is empty now; bring it back and run the same command again");
    fs::remove_dir(&photos[0]).unwrap();
    fs::rename(root.path().join("away"), &photos[0]).unwrap();
    job("second").expect(0);
    assert_same_tree(&root.path().join("first"), &root.path().join("second"));
}

#[test]
fn other_commands_name_a_folder_of_shards_and_leave_it() {
    let (root, inputs) = inputs();
    let shards = root.path().join("shards");
    let mut job = pack(&shards, &inputs);
    run(job.args(["--shard-size", "60K", "--format", "parquet"])).expect(0);
    let vectors = root.path().join("vectors.parquet");
    run(embed(&vectors).args(&inputs)).expect(0);
    // An interrupted job.
    let half = root.path().join("half");
    fs::write(root.path().join("list"), "absent.jpg\n".repeat(30)).unwrap();
    let mut stopped = pack(&half, &inputs);
    stopped.args(["--shard-size", "60K", "--max-unreadable", "20", "--from-list"]).arg(root.path().join("list"));
    run(&mut stopped).expect(1);
    let inspect = |path: &Path, more: &[&str]| run(foveate().arg("inspect").arg(path).args(more));
    let text = inspect(&shards, &["--check"]).expect(0).stdout;
    let count = manifest(&shards)["parts"].as_array().unwrap().len();
    for part in [
        format!("{count} parquet shards of `foveate pack`"),
        "7 = 7 images + 0 failures".to_owned(),
        format!("foveate embed '{}/*.parquet' --id-column id", shards.display()),
    ] {
        assert!(text.contains(&part), "no '{part}' in {text}");
    }
    let json = inspect(&shards, &["--json"]).expect(0).json();
    assert_eq!(
        (&json["made_by"], &json["state"], &json["shards"]),
        (&"pack".into(), &"complete".into(), &count.into())
    );
    assert_eq!((&json["images"], &json["failures"]), (&7.into(), &0.into()));
    let json = inspect(&half, &["--json"]).expect(0).json();
    assert_eq!((&json["made_by"], &json["state"]), (&"pack".into(), &"unfinished".into()));
    assert!(json["shards"].as_u64().unwrap() > 0, "{json}");
    let before = [tree(&shards), tree(&half)];
    for folder in [&shards, &half] {
        let name = folder.display().to_string();
        let all = root.path().join("all.parquet");
        let mut commands = vec![foveate(), foveate(), embed(folder), embed(folder), embed(folder), foveate()];
        commands[0].arg("merge").arg(folder).arg("-o").arg(&all);
        commands[1].arg("duplicates").arg(folder).arg("-o").arg(&all);
        commands[2].args(&inputs);
        commands[3].args(&inputs).arg("--overwrite");
        commands[4].args(&inputs).arg("--update");
        commands[5].arg("merge").arg(&vectors).args(["--overwrite", "-o"]).arg(folder);
        for mut command in commands {
            let ran = run(&mut command);
            let is_named =
                ran.stderr.contains(&name) && ran.stderr.contains("was made by `foveate pack`; name another");
            assert!(ran.code == 2 && is_named, "{command:?}: {} {}", ran.code, ran.stderr);
            assert!(!ran.stderr.contains("overwrite"), "{}", ran.stderr);
        }
    }
    let shard = shards.join("00000.parquet");
    run(embed(&shard).arg(&inputs[0]).arg("--overwrite"))
        .expect_error(2, "it is there, and no manifest of foveate names it");
    assert_eq!([tree(&shards), tree(&half)], before);
    fs::write(&shard, "damaged").unwrap();
    inspect(&shards, &["--check"]).expect_error(1, "00000.parquet is damaged");
}

#[test]
fn vectors_are_never_replaced_by_shards() {
    let (root, inputs) = inputs();
    let path = |name: &str| root.path().join(name);
    run(embed(&path("whole/")).args(&inputs)).expect(0);
    run(embed(&path("shard/")).args(&inputs).args(["--shard", "0/2"])).expect(0);
    run(foveate().arg("merge").arg(path("whole")).arg("-o").arg(path("merged/"))).expect(0);
    run(embed(&path("half/")).args(&inputs).arg("--strict")).expect(3);
    fs::write(path("bad.jpg"), "").unwrap();
    run(embed(&path("none/")).arg(path("bad.jpg"))).expect(3);
    for (name, says) in [
        ("whole", "was made by `foveate embed`"),
        ("shard", "would mix with it"),
        ("merged", "was made by `foveate merge`"),
        ("half", "was made by `foveate embed`"),
        ("none", "it holds _failures.csv"),
    ] {
        let before = tree(&path(name));
        for overwrite in [None, Some("--overwrite")] {
            run(pack(&path(name), &inputs).args(overwrite)).expect_error(2, says);
            assert_eq!(tree(&path(name)), before, "{name}");
        }
    }
}
