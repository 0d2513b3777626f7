//! The same photos as a folder, tar shards, a zip archive, Parquet files and objects: the same vectors, and the same
//! promises.
#![cfg(unix)]
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
#[cfg(feature = "object-store")]
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use std::time::Instant;

use crate::common::kills::kill_until_done;
use crate::common::packed::Packed;
use crate::common::{PHOTOS, assert_same_tree, csv, embed, npy_rows, run};
#[cfg(feature = "object-store")]
use foveate_testkit::proxy::{Act, proxy};
use foveate_testkit::{Trial, by_length, python, trials};

pub(crate) fn trials() -> Vec<Trial> {
    let trials = trials![
        every_kind_of_input_gives_the_folders_vectors,
        killed_runs_continue_in_the_middle_of_a_container,
        standard_input_is_a_tar,
        shards_of_containers_make_up_the_whole,
        columns_travel_into_the_output,
        arrow_files_hold_the_rows_of_parquet_and_are_read_like_them,
        misspelt_columns_are_refused_before_the_model_is_opened,
        shards_of_img2dataset_and_folders_of_hugging_face_are_read_as_they_are,
        names_of_other_tools_are_refused_with_the_remedy,
        odd_containers_have_one_outcome,
        a_container_cut_short_loses_only_what_is_missing,
        a_dry_run_and_a_repeated_run_know_containers,
    ];
    #[cfg(feature = "object-store")]
    let trials = [
        trials,
        trials![
            objects_give_the_folders_vectors_and_resume,
            credentials_that_expire_stop_the_run_and_nothing_has_failed,
            credentials_that_are_not_renewed_stop_the_run_and_nothing_has_failed,
            urls_that_are_signed_anew_continue_a_run_and_tell_no_secret,
        ],
    ]
    .into_iter()
    .flatten()
    .collect();
    trials
}

/// Small photos, and one file that is none.
fn packed() -> Packed {
    Packed::new(|folder| {
        for photo in fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()) {
            if fs::metadata(&photo).unwrap().len() < 60_000 {
                fs::copy(&photo, folder.join(photo.file_name().unwrap())).unwrap();
            }
        }
        fs::write(folder.join("20_no_photo.jpg"), "not a photo").unwrap();
    })
}

impl Packed {
    /// A job over these inputs, to `output` in this folder.
    fn job(&self, inputs: &[&str], output: &str) -> Command {
        let mut command = embed(&self.0.path().join(output));
        command.args(inputs.iter().map(|name| self.path(name))).args(["--json", "--batch", "4"]);
        command
    }

    /// Vectors and reasons of a finished output.
    fn outcome(&self, output: &str) -> (Vec<Vec<f32>>, Vec<String>) {
        let path = self.0.path().join(output);
        let failures = csv(&foveate::sink::record_of(&path, "failures.csv"));
        (npy_rows(&path, 64), failures.into_iter().map(|failure| failure["reason"].clone()).collect())
    }

    fn photos(&self) -> u64 {
        fs::read_dir(self.0.path().join("photos")).unwrap().count() as u64
    }
}

fn every_kind_of_input_gives_the_folders_vectors() {
    let packed = packed();
    run(&mut packed.job(&["photos"], "folder.npy")).expect(0);
    let expected = packed.outcome("folder.npy");
    assert_eq!((expected.0.len() as u64, expected.1.len()), (packed.photos() - 1, 1));
    for input in ["all.tar", "all.tar.gz", "all.zip", "all.parquet"] {
        let output = format!("{input}.npy");
        let summary = run(&mut packed.job(&[input], &output)).expect(0).json();
        assert_eq!((&summary["inputs"], &summary["failures"]), (&packed.photos().into(), &1.into()), "{input}");
        assert!(packed.outcome(&output) == expected, "{input}");
    }
    // The order is the inputs'.
    run(&mut packed.job(&["0.tar", "1.tar"], "shards.npy")).expect(0);
    let (mut shards, mut folder) = (packed.outcome("shards.npy").0, expected.0);
    shards.sort_by(|a, b| a.partial_cmp(b).unwrap());
    folder.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert!(shards == folder);
}

fn killed_runs_continue_in_the_middle_of_a_container() {
    let packed = packed();
    for inputs in [&["0.tar", "photos", "1.tar"][..], &["all.tar.gz"], &["all.zip"], &["all.parquet"]] {
        let (calm, wild) = (packed.0.path().join("calm"), packed.0.path().join("wild"));
        fs::create_dir(&calm).unwrap();
        fs::create_dir(&wild).unwrap();
        let job = |folder: &str| {
            let mut command = packed.job(inputs, &format!("{folder}/x.parquet"));
            command.args(["--part-items", "16"]);
            command
        };
        let started = Instant::now();
        run(&mut job("calm")).expect(0);
        kill_until_done(&wild, started.elapsed(), by_length(2, 8), |_| job("wild"));
        assert_same_tree(&calm, &wild);
        fs::remove_dir_all(calm).unwrap();
        fs::remove_dir_all(wild).unwrap();
    }
}

fn standard_input_is_a_tar() {
    let packed = packed();
    run(&mut packed.job(&["all.tar"], "file.npy")).expect(0);
    for tar in ["all.tar", "all.tar.gz"] {
        let mut command = embed(&packed.0.path().join("in.npy"));
        command.args(["-", "--overwrite"]).stdin(Stdio::from(fs::File::open(packed.path(tar)).unwrap()));
        run(&mut command).expect(0);
        assert!(packed.outcome("in.npy") == packed.outcome("file.npy"), "{tar}");
    }
}

fn shards_of_containers_make_up_the_whole() {
    let packed = packed();
    let inputs = ["0.tar", "1.tar", "all.zip"];
    run(&mut packed.job(&inputs, "whole.npy")).expect(0);
    let whole = packed.outcome("whole.npy");
    let mut parts = (Vec::new(), Vec::new());
    for shard in ["0/2", "1/2"] {
        run(packed.job(&inputs, "part.npy").args(["--shard", shard])).expect(0);
        let (vectors, reasons) = packed.outcome(&format!("part-0000{}-of-00002.npy", &shard[..1]));
        parts.0.extend(vectors);
        parts.1.extend(reasons);
    }
    assert!(parts == whole);
    let limited = |shard: &str| {
        let summary = run(packed.job(&inputs, "limited.npy").args(["--shard", shard, "--limit", "3"])).expect(0).json();
        summary["inputs"].as_u64().unwrap()
    };
    assert_eq!((limited("0/2"), limited("1/2")), (1, 2), "each shard takes its share");
    for (name, words) in [("x.npy", &["--shard", "0/4", "--limit", "3"][..]), ("y.npy", &["--shard", "0/7"])] {
        assert_eq!(run(packed.job(&inputs, name).args(words)).expect(0).json()["vectors"], 0);
    }
    run(packed.job(&inputs, "z.npy").args(["--limit", "0"])).expect_error(2, "leaves none of 3");
}

const CAPTIONS: &str = "
import sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
for row in table.select(table.column_names[5:]).to_pylist():
    print(*row.values(), sep='|')";

fn columns_travel_into_the_output() {
    let packed = packed();
    let captions = |output: &str| {
        let printed = python(&["pyarrow"]).args(["-c", CAPTIONS]).arg(packed.path(output)).output().unwrap();
        String::from_utf8(printed.stdout).unwrap()
    };
    run(packed.job(&["0.tar"], "tar.parquet").args(["--columns", "original_width,caption,url"])).expect(0);
    assert!(
        captions("tar.parquet").starts_with("640|photo 05_chelsea_420_odd.jpg|None\n"),
        "{}",
        captions("tar.parquet")
    );
    run(packed.job(&["all.parquet"], "table.parquet").args(["--columns", "caption,label"])).expect(0);
    assert!(captions("table.parquet").starts_with("photo 05_chelsea_420_odd.jpg|0\n"), "{}", captions("table.parquet"));
    for (inputs, output, says) in [
        ("0.tar", "x.npy", "sink npy cannot store columns; parquet, arrow can"),
        ("photos", "x.parquet", "no input can carry columns along"),
        ("0.tar", "y.parquet", "embedding"),
    ] {
        let columns = if says == "embedding" { "embedding" } else { "caption" };
        run(packed.job(&[inputs], output).args(["--columns", columns])).expect_error(2, says);
        assert!(!Path::new(&packed.path(output)).exists());
    }
}

/// Maps the second file, and compares it with the first.
const SAME_ROWS: &str = "
import sys, pyarrow as pa, pyarrow.parquet as pq
table, mapped = pq.read_table(sys.argv[1]), pa.ipc.open_file(pa.memory_map(sys.argv[2])).read_all()
assert table.num_rows > 0 and table.schema.field('embedding').type == mapped.schema.field('embedding').type
assert table.to_pylist() == mapped.to_pylist()";

fn arrow_files_hold_the_rows_of_parquet_and_are_read_like_them() {
    let packed = packed();
    let same = |table: &str, mapped: &str| {
        let mut python = python(&["pyarrow"]);
        let compared = python.args(["-c", SAME_ROWS]).args([packed.path(table), packed.path(mapped)]).status().unwrap();
        assert!(compared.success(), "{mapped} holds other rows than {table}");
    };
    for output in ["x.parquet", "x.arrow"] {
        run(packed.job(&["0.tar"], output).args(["--columns", "caption,url", "--out-dtype", "f16"])).expect(0);
        run(packed.job(&["1.tar"], &format!("more-{output}")).args(["--columns", "caption,url", "--out-dtype", "f16"]))
            .expect(0);
    }
    same("x.parquet", "x.arrow");
    let of = |command: &str, output: &str| {
        let mut job = crate::common::foveate();
        job.arg(command).arg(packed.path(output));
        job
    };
    let inspected = run(of("inspect", "x.arrow").args(["--check", "--json"])).expect(0).json();
    assert_eq!(inspected["format"], "arrow", "{inspected}");
    let nearest = |output: &str| {
        let table = packed.path(&format!("{output}.csv"));
        run(of("neighbors", output).args(["-k", "2", "-o"]).arg(&table)).expect(0);
        fs::read_to_string(table).unwrap()
    };
    let expected = nearest("x.parquet");
    assert_eq!(nearest("x.arrow"), expected);
    for (input, output) in [("x.arrow", "both.parquet"), ("x.parquet", "both.arrow")] {
        run(of("merge", input).arg(packed.path(&format!("more-{input}"))).arg("-o").arg(packed.path(output))).expect(0);
    }
    same("both.parquet", "both.arrow");
    // The file says what it is without its records, and damage is found.
    fs::copy(packed.path("x.arrow"), packed.path("copy.arrow")).unwrap();
    assert_eq!(nearest("copy.arrow"), expected);
    let mut bytes = fs::read(packed.path("x.arrow")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(packed.path("x.arrow"), bytes).unwrap();
    run(of("inspect", "x.arrow").arg("--check")).expect_error(1, "x.arrow");
}

fn misspelt_columns_are_refused_before_the_model_is_opened() {
    let packed = packed();
    for (inputs, option, says) in [
        (
            &["all.parquet"][..],
            ["--columns", "captoin"],
            "no column 'captoin'; its columns are image (struct), caption",
        ),
        (&["photos", "all.parquet"], ["--image-column", "img"], "all.parquet: it has no column 'img'"),
        (&["all.parquet"], ["--id-column", "key"], "all.parquet: it has no column 'key'"),
        (&["all.parquet"], ["--image-column", "label"], "'label' holds neither images nor paths"),
        (&["0.tar"], ["--image-column", "key"], "no input is a table with a column 'key'"),
    ] {
        let mut command = packed.job(inputs, "x.parquet");
        // An error of the model would come later.
        run(command.args(option).args(["--model", "no/such/model"])).expect_error(2, says);
    }
    // What a tar's members have is known only by reading them.
    for (option, name) in [("--columns", "captoin,caption"), ("--id-column", "captoin")] {
        let mut command = packed.job(&["0.tar", "1.tar"], "x.parquet");
        run(command.args([option, name])).expect_error(2, "none of its first 11 images has captoin in the JSON");
    }
}

/// Writes shards as img2dataset does, and a dataset as Hugging Face does. Arguments: the folder with the photos, the
/// folder to write to.
const DATASETS: &str = r#"
import io, json, os, sys, tarfile
import polars, pyarrow as pa, pyarrow.parquet as pq
photos, out = sys.argv[1:]
names = sorted(name for name in os.listdir(photos) if "no_photo" not in name)
data = {name: open(os.path.join(photos, name), "rb").read() for name in names}
os.makedirs(f"{out}/shards")
os.makedirs(f"{out}/hub/data")
for shard in range(2):
    rows = []
    with tarfile.open(f"{out}/shards/{shard:05}.tar", "w") as tar:
        for n, name in enumerate(names[shard::2]):
            key = f"{shard:05}{n:04}"
            failed = n == 1
            row = {"url": "http://h/" + name, "key": key, "status": "failed_to_download" if failed else "success",
                   "error_message": "HTTP Error 404" if failed else None, "original_width": None if failed else 64}
            rows.append(row)
            if not failed:
                for end, content in [("jpg", data[name]), ("txt", name.encode()), ("json", json.dumps(row).encode())]:
                    info = tarfile.TarInfo(f"{key}.{end}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    pq.write_table(pa.Table.from_pylist(rows), f"{out}/shards/{shard:05}.parquet")
    with open(f"{out}/shards/{shard:05}_stats.json", "w") as stats:
        json.dump({"count": len(rows), "status_dict": {"success": len(rows) - 1}}, stats)
image = pa.array([{"bytes": data[name], "path": name} for name in names])
table = pa.table({"image": image, "label": pa.array(range(len(names)))})
half = len(names) // 2
for n, part in enumerate([table.slice(0, half), table.slice(half)]):
    pq.write_table(part, f"{out}/hub/data/train-{n:05}-of-00002.parquet")
# Zstandard is the default of polars.
polars.from_arrow(table).write_parquet(f"{out}/polars.parquet")
polars.from_arrow(table).write_ipc(f"{out}/polars.arrow", compression="zstd")
assert pq.read_metadata(f"{out}/polars.parquet").row_group(0).column(0).compression == "ZSTD"
"#;

fn shards_of_img2dataset_and_folders_of_hugging_face_are_read_as_they_are() {
    let packed = packed();
    let written =
        python(&["pyarrow", "polars"]).args(["-c", DATASETS]).arg(packed.path("photos")).arg(packed.path("")).status();
    assert!(written.unwrap().success());
    let photos = packed.photos() - 1;
    let inputs = |input: &str, output: &str| {
        let summary = run(&mut packed.job(&[input], output)).expect(0).json();
        assert_eq!(summary["failures"], 0, "{summary}");
        summary["inputs"].as_u64().unwrap()
    };
    // Each shard has lost one photo, of which only its table knows.
    assert_eq!(inputs("shards/*.tar", "pattern.npy"), photos - 2);
    assert_eq!(inputs("shards/{00000..00001}.tar", "braces.npy"), photos - 2);
    assert!(packed.outcome("braces.npy") == packed.outcome("pattern.npy"));
    assert_eq!(inputs("hub/data/train-*.parquet", "hub.npy"), photos);
    assert_eq!(inputs("polars.parquet", "polars.npy"), photos);
    assert_eq!(inputs("polars.arrow", "ipc.npy"), photos);
    for (folder, says) in [("shards", "4 containers of images"), ("hub", "2 containers of images")] {
        run(&mut packed.job(&[folder], "x.npy")).expect_error(2, says);
    }
    let missing = packed.job(&["shards/{00000..00003}.tar"], "missing.npy").args(["--strict"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(3), "a shard that is missing is a failure");
    let columns = ["--columns", "key,url,txt,original_width,error_message"];
    run(packed.job(&["shards/*.tar"], "columns.parquet").args(columns)).expect(0);
}

fn names_of_other_tools_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for (input, says) in [
        (
            "hf://datasets/owner/name/data/*.parquet",
            "name the files: https://huggingface.co/datasets/OWNER/NAME/resolve",
        ),
        ("pipe:aws s3 cp s3://bucket/00000.tar -", "`COMMAND | foveate embed -`"),
        ("{0..99999999}.tar", "it stands for 100000000 names, more than 1000000"),
    ] {
        run(embed(&folder.path().join("x.npy")).arg(input)).expect_error(2, says);
    }
    // In a list it is the failure of its line.
    let list = folder.path().join("list");
    fs::write(&list, format!("hf://datasets/a/b/c.parquet\r\n\r\n{PHOTOS}/01_astronaut_420.jpg\r\n# none\n")).unwrap();
    run(embed(&folder.path().join("list.npy")).arg("--from-list").arg(&list)).expect(0);
    let failures = csv(&folder.path().join("_list.npy.failures.csv"));
    let ids: Vec<_> = failures.iter().map(|failure| failure["id"].as_str()).collect();
    assert_eq!(ids, ["hf://datasets/a/b/c.parquet", "# none"]);
}

/// Writes containers that surprise. Arguments: a photo, the folder to write to.
const ODD: &str = r#"
import gzip, io, os, sys, tarfile, zipfile
import pyarrow as pa, pyarrow.parquet as pq
photo, out = open(sys.argv[1], "rb").read(), sys.argv[2]
def tar(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
tar(f"{out}/empty.tar", [])
tar(f"{out}/one.tar", [("a.jpg", photo)])
tar(f"{out}/nested.tar", [("inner.tar", open(f"{out}/one.tar", "rb").read()), ("b.jpg", photo)])
zipfile.ZipFile(f"{out}/empty.zip", "w").close()
pq.write_table(pa.table({"image": pa.array([], pa.binary())}), f"{out}/empty.parquet")
open(f"{out}/zero.tar", "w").close()
open(f"{out}/zero.zip", "w").close()
open(f"{out}/zero.parquet", "w").close()
gzip.open(f"{out}/photo.jpg.gz", "wb").write(photo)
gzip.open(f"{out}/zipped.tar", "wb").write(open(f"{out}/one.tar", "rb").read())
os.mkdir(f"{out}/folder.tar")
open(f"{out}/folder.tar/a.jpg", "wb").write(photo)
os.symlink(out, f"{out}/folder.tar/loop")
"#;

fn odd_containers_have_one_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let photo = format!("{PHOTOS}/01_astronaut_420.jpg");
    assert!(python(&["pyarrow"]).args(["-c", ODD, &photo]).arg(folder.path()).status().unwrap().success());
    let mut number = 0;
    let mut counts = |names: &[&str]| {
        number += 1;
        let mut command = embed(&folder.path().join(format!("{number}.npy")));
        let ran = run(command.args(names.iter().map(|name| folder.path().join(name))).args([&photo, "--json"]));
        let summary = ran.expect(0).json();
        (summary["vectors"].as_u64().unwrap() - 1, summary["failures"].as_u64().unwrap())
    };
    // Vectors and failures, beside a photo.
    for (names, expected) in [
        (&["empty.tar", "empty.zip", "empty.parquet"][..], (0, 0)),
        (&["zero.tar", "zero.zip", "zero.parquet"], (0, 3)),
        (&["nested.tar"], (1, 0)),
        (&["one.tar", "one.tar", "zipped.tar"], (3, 0)),
        (&["photo.jpg.gz"], (0, 1)),
        (&["folder.tar"], (1, 1)),
    ] {
        assert_eq!(counts(names), expected, "{names:?}");
    }
}

fn a_container_cut_short_loses_only_what_is_missing() {
    let packed = packed();
    let whole = fs::read(packed.path("all.tar")).unwrap();
    fs::write(packed.path("cut.tar"), &whole[..whole.len() / 2]).unwrap();
    fs::write(packed.path("none.tar"), "not a tar").unwrap();
    run(&mut packed.job(&["all.tar"], "whole.npy")).expect(0);
    run(&mut packed.job(&["1.tar"], "after.npy")).expect(0);
    let (whole, after) = (packed.outcome("whole.npy").0, packed.outcome("after.npy"));
    for cut in ["cut.tar", "none.tar", "missing.tar"] {
        // A path that was typed is checked before anything else, a listed one is an input with an outcome.
        let list = packed.path("list");
        fs::write(&list, format!("{}\n{}\n", packed.path(cut).display(), packed.path("1.tar").display())).unwrap();
        let output = format!("{cut}.npy");
        let mut command = packed.job(&[], &output);
        run(command.arg("--from-list").arg(&list)).expect(0);
        let (vectors, reasons) = packed.outcome(&output);
        let (readable, others) = vectors.split_at(vectors.len() - after.0.len());
        assert!(whole.starts_with(readable) && others == after.0, "{cut}: {reasons:?}");
        assert_eq!((readable.is_empty(), reasons.len()), (cut != "cut.tar", 1 + after.1.len()), "{cut}: {reasons:?}");
    }
}

fn a_dry_run_and_a_repeated_run_know_containers() {
    let packed = packed();
    let dry = run(packed.job(&["all.zip", "photos"], "x.npy").arg("--dry-run")).expect(0).json();
    assert_eq!((&dry["inputs"], &dry["kinds"]["zip"]), (&serde_json::Value::Null, &1.into()), "{dry}");
    let first = run(&mut packed.job(&["all.zip"], "x.npy")).expect(0).json();
    let again = run(&mut packed.job(&["all.zip"], "x.npy")).expect(0).json();
    assert_eq!((&again["status"], &again["inputs"]), (&"already complete".into(), &first["inputs"]));
    let other = fs::read(packed.path("all.parquet")).unwrap();
    fs::write(packed.path("all.zip"), other).unwrap();
    run(&mut packed.job(&["all.zip"], "x.npy")).expect_error(2, "inputs");
}

#[cfg(feature = "object-store")]
fn objects_give_the_folders_vectors_and_resume() {
    let packed = packed();
    let server = foveate_testkit::brokers::AwsServer::start();
    packed.upload(&server.endpoint());
    let job = |input: &str, output: &str| {
        let mut command = embed(&packed.0.path().join(output));
        command
            .args([input, "--json", "--batch", "4", "--store-option"])
            .arg(format!("endpoint={}", server.endpoint()));
        command.args(["--store-option", "region=eu-central-1"]);
        command.envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]);
        command
    };
    run(&mut packed.job(&["photos"], "folder.npy")).expect(0);
    let inputs = ["s3://photos/p/", "s3://photos/p/*.jpg", "s3://photos/packed/all.tar", "s3://photos/packed/*.zip"];
    for input in inputs.into_iter().chain(["s3://photos/packed/all.parquet"]) {
        run(job(input, "x.npy").arg("--overwrite")).expect(0);
        assert!(packed.outcome("x.npy") == packed.outcome("folder.npy"), "{input}");
    }
    let wild = packed.0.path().join("wild");
    fs::create_dir(&wild).unwrap();
    let started = Instant::now();
    run(&mut job("s3://photos/packed/all.tar", "calm.npy")).expect(0);
    kill_until_done(&wild, started.elapsed(), by_length(2, 6), |_| job("s3://photos/packed/all.tar", "wild/x.npy"));
    assert!(packed.outcome("wild/x.npy") == packed.outcome("calm.npy"));
    run(&mut job("s3://photos/nothing/", "none.npy")).expect_error(2, "no object has this name or prefix");
    let mut gone = crate::common::foveate();
    gone.args(["embed", "--model", crate::common::TINY, "-o"]).arg(packed.path("gone.npy")).arg("s3://nobody/p/");
    gone.envs([("AWS_ENDPOINT_URL", "http://127.0.0.1:1"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]);
    let refused = run(&mut gone);
    assert!(refused.code != 0 && refused.stderr.contains("s3://nobody"), "{}", refused.stderr);
}

/// Runs `job` over objects, of which a store refuses the last three because of the credentials, until they `are_good`
/// again.
#[cfg(feature = "object-store")]
fn stops_and_continues(packed: &Packed, job: impl Fn() -> Command, told: &str, are_good: &AtomicBool) {
    run(&mut packed.job(&["photos"], "folder.npy")).expect(0);
    for _ in 0..2 {
        run(&mut job()).expect_error(1, told);
    }
    are_good.store(true, SeqCst);
    let done = run(&mut job()).expect(0).json();
    assert!(done["session"]["resumed"].as_u64().unwrap() > 0, "{done}");
    assert_eq!(done["vectors"], packed.photos() - 1, "{done}");
    assert!(packed.outcome("x.npy") == packed.outcome("folder.npy"));
}

/// A job that reads the photos from a store, one request at a time, for 2 seconds after a failure.
#[cfg(feature = "object-store")]
fn job_over_objects(packed: &Packed, endpoint: &str) -> Command {
    let mut command = embed(&packed.0.path().join("x.npy"));
    command.args(["s3://photos/p/", "--json", "--batch", "4", "--requests", "1", "--store-option", "retry-for=2"]);
    command.args(["--store-option", "region=eu-central-1", "--store-option"]).arg(format!("endpoint={endpoint}"));
    command
}

#[cfg(feature = "object-store")]
fn credentials_that_expire_stop_the_run_and_nothing_has_failed() {
    let (packed, server) = (packed(), foveate_testkit::brokers::AwsServer::start());
    packed.upload(&server.endpoint());
    let are_good = Arc::new(AtomicBool::new(false));
    let (last, renewed) = (packed.photos() as usize - 3, Arc::clone(&are_good));
    // The first request is for the listing.
    let endpoint = proxy(&server.endpoint(), move |number, request| {
        match number > last && !request.starts_with(b"GET /photos?") && !renewed.load(SeqCst) {
            true => Act::Refuse("400 Bad Request", "ExpiredToken"),
            false => Act::Pass,
        }
    });
    let job = || {
        let mut job = job_over_objects(&packed, &endpoint);
        job.envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]);
        job
    };
    stops_and_continues(&packed, job, "400 Bad Request: ExpiredToken", &are_good);
}

#[cfg(feature = "object-store")]
fn credentials_that_are_not_renewed_stop_the_run_and_nothing_has_failed() {
    let (packed, server) = (packed(), foveate_testkit::brokers::AwsServer::start());
    packed.upload(&server.endpoint());
    let are_good = Arc::new(AtomicBool::new(false));
    let renewed = Arc::clone(&are_good);
    // Credentials that have to be renewed for each request.
    let last = packed.photos() as usize - 3;
    let renewals = proxy("", move |number, _| match number > last && !renewed.load(SeqCst) {
        true => Act::Refuse("403 Forbidden", "Expired"),
        false => Act::Answer(
            br#"{"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": "2026-01-01T00:00:00Z"}"#
                .into(),
        ),
    });
    let job = || {
        let mut job = job_over_objects(&packed, &server.endpoint());
        job.env_remove("AWS_ACCESS_KEY_ID").env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &renewals);
        job
    };
    stops_and_continues(&packed, job, "no credentials: ", &are_good);
}

#[cfg(feature = "object-store")]
fn urls_that_are_signed_anew_continue_a_run_and_tell_no_secret() {
    let packed = packed();
    let photos = packed.0.path().join("photos");
    let endpoint = proxy("", move |number, request| {
        let asked = String::from_utf8_lossy(request);
        let (name, signature) = asked.split(' ').nth(1).and_then(|path| path.split_once('?')).unwrap();
        match signature == "signature=SECRET-02" || number < 8 {
            true => Act::Answer(fs::read(photos.join(name.trim_start_matches('/'))).unwrap()),
            false => Act::Refuse("403 Forbidden", "Request has expired"),
        }
    });
    let list = packed.0.path().join("list");
    let mut names: Vec<_> =
        fs::read_dir(packed.path("photos")).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    let mut job = embed(&packed.0.path().join("x.npy"));
    job.args(["--json", "--batch", "4", "--requests", "1", "--store-option", "retry-for=1", "--from-list"]).arg(&list);
    let mut session = |signature: &str| {
        let host = endpoint.replace("http://", "http://user:SECRET-00@");
        let url = |name: &std::ffi::OsString| format!("{host}/{}?signature={signature}\n", name.to_str().unwrap());
        fs::write(&list, names.iter().map(url).collect::<String>()).unwrap();
        let ran = run(&mut job);
        assert!(!ran.stdout.contains("SECRET") && !ran.stderr.contains("SECRET"), "{ran:?}");
        ran
    };
    session("SECRET-01").expect_error(1, "403 Forbidden");
    let done = session("SECRET-02").expect(0).json();
    assert!(done["session"]["resumed"].as_u64().unwrap() > 0, "{done}");
    run(&mut packed.job(&["photos"], "folder.npy")).expect(0);
    assert!(packed.outcome("x.npy") == packed.outcome("folder.npy"));
    fs::remove_file(&list).unwrap();
    for (path, content) in crate::common::tree(packed.0.path()) {
        assert!(!content.windows(6).any(|part| part == b"SECRET"), "{}", path.display());
    }
    let ids = fs::read_to_string(packed.path("_x.npy.inputs.csv")).unwrap();
    assert!(ids.contains(&format!("{endpoint}/{}", names[0].to_str().unwrap())), "{ids}");
}
