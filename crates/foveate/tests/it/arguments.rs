//! Arguments that cannot work are refused before expensive work starts: exit code 2, the name and the remedy in one
//! line, no model opened, nothing left on disk.
use std::fs;
use std::path::Path;
use std::process::Command;

use foveate::backends;
use foveate_testkit::by_length;

use crate::common::{PHOTOS, Ran, TINY, csv, embed, foveate, npy_rows, run, tree};

/// A hub model at a port where nothing listens: an attempt to open it gives another error.
const OUT_OF_REACH: [&str; 2] = ["--model", "nobody/nothing"];

/// Returns the commands that take images, each writing to `out`.
fn commands(out: &Path) -> Vec<Command> {
    let words: [&[&str]; 8] = [
        &["embed", "-o", "x.parquet"],
        &["verify"],
        &["profile", "-o", "run"],
        &["diagnose", "-o", "run"],
        &["tune", "-o", "run"],
        &["bench", "all", "-o", "run"],
        &["bench", "forward", "-o", "run"],
        &["bench", "worker", "-o", "run"],
    ];
    let command = |words: &&[&str]| in_folder(out, words, &OUT_OF_REACH);
    words.iter().map(command).collect()
}

fn in_folder(folder: &Path, words: &[&str], more: &[&str]) -> Command {
    let mut command = foveate();
    command.current_dir(folder).env("HF_ENDPOINT", "http://127.0.0.1:1").env("HF_HOME", folder.join("no-cache"));
    command.args(words).args(more);
    command
}

/// Runs a command that must be refused with `says` and leave `folder` unchanged.
#[track_caller]
fn refused(folder: &Path, command: &mut Command, says: &[&str]) {
    let before = tree(folder);
    let Ran { code, stdout, stderr } = run(command);
    assert_eq!((code, stdout.as_str(), stderr.lines().count()), (2, "", 1), "{command:?}: {stdout}{stderr}");
    says.iter().for_each(|text| assert!(stderr.contains(text), "{command:?}: no '{text}' in: {stderr}"));
    assert_eq!(tree(folder), before, "{command:?}");
}

/// Arguments, and what is said of them.
type Case = (&'static [&'static str], &'static [&'static str]);

/// Every command refuses every case. The short form takes all cases with the first command, and one with each other.
#[track_caller]
fn all_refuse(folder: &Path, cases: &[Case]) {
    for (row, command) in commands(folder).iter().enumerate() {
        for (column, (arguments, says)) in cases.iter().enumerate() {
            if by_length(row == 0 || column == row % cases.len(), true) {
                refused(folder, clone(command).args(*arguments), says);
            }
        }
    }
}

#[test]
fn inputs_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("empty")).unwrap();
    all_refuse(
        path,
        &[
            (&[PHOTOS, "photoz"], &["photoz", "No such file", "check the path"]),
            (&["photoz", "foto/x.jpg"], &["2 inputs cannot be read, the first", "photoz"]),
            (&["ftp://host/photos"], &["ftp://host/photos", "no store for ftp:// addresses"]),
            (&["--from-list", "absent.txt"], &["absent.txt", "No such file"]),
            (&["--from-list", "empty"], &["the list empty is a folder"]),
            (&["empty/*.jpg"], &["no inputs: empty/*.jpg: the pattern matches nothing"]),
            (&["empty"], &["no inputs: the folders and lists are empty"]),
        ],
    );
}

#[test]
fn names_that_this_build_does_not_have() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    all_refuse(
        path,
        &[
            (&[PHOTOS, "--device", "tpu"], &["device tpu unavailable: encoder fused runs on cpu", "foveate doctor"]),
            (&[PHOTOS, "--device", "cpu,cuda:99"], &["device cuda:99 unavailable", "foveate doctor"]),
            (&[PHOTOS, "--device", ","], &["names no device"]),
            (&[PHOTOS, "--decoder", "turbojpg"], &["there is no decoder 'turbojpg'"]),
            (&[PHOTOS, "--resizer", "bicubic"], &["there is no resizer 'bicubic'"]),
            (&[PHOTOS, "--encoder", "onnx"], &["there is no encoder 'onnx'"]),
            (&[PHOTOS, "--decoder-option", "backend=hardware"], &["this decoder has no settings"]),
            (
                &[PHOTOS, "--decoder", "zune", "--decode-scale", "fast"],
                &["decoder zune cannot decode at scale 'fast', exact", "`exact` as scale"],
            ),
            (&[PHOTOS, "--decoder", "image", "--decode-scale", "low"], &["decoder image cannot decode at scale 'low'"]),
        ],
    );
    let against = ["verify", PHOTOS, "--against", "device=tpu"];
    refused(path, &mut in_folder(path, &against, &OUT_OF_REACH), &["--against", "device tpu unavailable"]);
    let pair = ["profile", PHOTOS, "--pair", "exact+firr"];
    refused(path, &mut in_folder(path, &pair, &OUT_OF_REACH), &["there is no resizer 'firr'"]);
    let sink = ["tune", PHOTOS, "--sink", "csv"];
    refused(path, &mut in_folder(path, &sink, &OUT_OF_REACH), &["there is no sink 'csv'"]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("file"), "").unwrap();
    fs::create_dir(path.join("x.npy")).unwrap();
    let other_builds = if cfg!(feature = "lmdb") { "no sink writes" } else { "rebuild with `-F lmdb`" };
    let lmdb = if cfg!(feature = "lmdb") { "x.jsonl" } else { "x.lmdb" };
    let cases: [(&[&str], &[&str]); 16] = [
        (&["embed", PHOTOS, "-o", lmdb], &[other_builds]),
        (&["embed", PHOTOS, "-o", "y.parquet", "--sink", "npy"], &["cannot write y.parquet with sink npy", ".npy"]),
        (&["embed", PHOTOS, "-o", "y.PARQUET", "--sink", "npy"], &["cannot write y.PARQUET with sink npy"]),
        (&["embed", PHOTOS, "-o", "-"], &["cannot write to standard output", "-o vectors.parquet"]),
        (&["embed", PHOTOS, "-o", "file/x.npy"], &["file/x.npy", "file is not a folder"]),
        (&["embed", PHOTOS, "-o", "/proc/x.npy"], &["cannot write /proc/x.npy"]),
        (&["embed", PHOTOS, "-o", "/proc/new/"], &["cannot write to /proc/new/"]),
        (&["embed", PHOTOS, "-o", "file/"], &["cannot write to file/", "Not a directory"]),
        (&["embed", PHOTOS, "-o", "x.jsonl"], &["no sink writes '.jsonl' files", ".parquet"]),
        (&["embed", PHOTOS, "-o", "y.parquet", "--sink-option", "colour=red"], &["unknown setting 'colour'"]),
        (&["embed", PHOTOS, "-o", "y.parquet", "--trace", "no/trace.json"], &["no/trace.json"]),
        (&["verify", PHOTOS, "--csv", "no/figures.csv"], &["no/figures.csv"]),
        (&["verify", PHOTOS, "--labels", "absent.csv"], &["absent.csv"]),
        (&["profile", PHOTOS, "-o", "file"], &["cannot write to file"]),
        (&["bench", "all", PHOTOS, "-o", "/proc/run"], &["cannot write to /proc/run"]),
        (&["tune", PHOTOS, "--write", "no/foveate.toml"], &["no/foveate.toml"]),
    ];
    for (words, says) in cases {
        refused(path, &mut in_folder(path, words, &OUT_OF_REACH), says);
    }
    refused(path, &mut in_folder(path, &["bench", "sinks", "-o", "file"], &[]), &["cannot write to file"]);
    refused(path, &mut in_folder(path, &["report", "absent"], &[]), &["cannot read absent"]);
    refused(path, &mut in_folder(path, &["report", ".", "-o", "file"], &[]), &["cannot write to file"]);
    refused(path, &mut in_folder(path, &["plan", "--from", "absent"], &[]), &["cannot read absent"]);
    let configured = ["embed", PHOTOS, "-o", "y.npy", "--config", "absent.toml"];
    refused(path, &mut in_folder(path, &configured, &[]), &["absent.toml"]);
}

/// clap refuses these before anything else is checked. Its messages have several lines.
#[test]
fn values_that_mean_nothing_are_explained() {
    let cases: [(&[&str], &str); 7] = [
        (&["--endpoint-url", "http://h"], "write `--store-option endpoint=http://h`"),
        (&["--shard", "0/0"], "there is at least one shard"),
        (&["--shard", "3/3"], "it goes to 2"),
        (&["--commit-every=-1"], "expected a number of seconds from 0"),
        (&["--commit-every", "1e300"], "expected a number of seconds from 0"),
        (&["--max-failures", "many"], "a count (100) or a share (1%)"),
        (&["--batch", "0"], "a whole number from 1"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (words, says) in cases {
        run(in_folder(folder.path(), &["embed", PHOTOS, "-o", "x.npy"], words).arg("-q")).expect_error(2, says);
    }
    let option = ["--encoder", "fused", "--encoder-option", "speed=high", "-q", "--model", TINY];
    refused(folder.path(), &mut in_folder(folder.path(), &["embed", PHOTOS, "-o", "x.npy"], &option), &["'speed'"]);
    let config = folder.path().join("config.toml");
    fs::write(&config, "wrokers = 2").unwrap();
    refused(
        folder.path(),
        &mut in_folder(folder.path(), &["embed", PHOTOS, "-o", "x.npy", "--config", "config.toml"], &[]),
        &["'embed' has no option 'wrokers'"],
    );
}

/// A measuring command has the options that can change its result.
#[test]
fn options_that_cannot_change_a_measurement_are_unknown() {
    let of_jobs: [&[&str]; 4] = [&["profile"], &["diagnose"], &["tune"], &["bench", "headline"]];
    let of_stages: [&[&str]; 2] = [&["bench", "decoders"], &["bench", "resizers"]];
    let never =
        ["--columns=a", "--id-column=a", "--max-listing=1M", "--null", "--orientation=ignore", "--allow-truncated"];
    let encoding = ["--pooling=mean", "--normalize=l2", "--dtype=f16", "--batch=8", "--workers=2", "--sink=npy"];
    let encoding_never = encoding.iter().chain(&never);
    let cases = of_jobs.iter().flat_map(|words| never.map(|option| (words, option)));
    let cases =
        cases.chain(of_stages.iter().flat_map(|words| encoding_never.clone().map(move |&option| (words, option))));
    for (words, option) in cases {
        let name = option.split('=').next().unwrap_or_default();
        run(foveate().args(*words).args([PHOTOS, option])).expect_error(2, &format!("unexpected argument '{name}'"));
    }
    let help = run(foveate().args(["bench", "decoders", "--help"])).expect(0).stdout;
    let options = help.lines().filter(|line| line.trim_start().starts_with('-')).count();
    assert!((10..=21).contains(&options), "{options}: {help}");
}

#[cfg(feature = "nats")]
#[test]
fn services_are_checked_before_a_model_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("file"), "").unwrap();
    let bare = ["worker", "--queue", "nats://127.0.0.1:1/jobs"];
    let nats = [&bare[..], &["--callback-host", "example.com"]].concat();
    let refuse = |words: &[&str], says: &[&str]| refused(path, &mut in_folder(path, words, &OUT_OF_REACH), says);
    refuse(&[&nats[..], &["--device", "tpu"]].concat(), &["device tpu unavailable"]);
    refuse(&[&nats[..], &["-o", "file"]].concat(), &["cannot write to file"]);
    refuse(&[&nats[..], &["-o", "out", "--sink", "csv"]].concat(), &["there is no sink 'csv'"]);
    refuse(&[&nats[..], &["-o", "v.parquet"]].concat(), &["writes a folder of segments", "-o out/ --sink parquet"]);
    refuse(&bare, &["results have nowhere to go", "--callback-host", "-o"]);
    refuse(&[&bare[..], &["--callback-host", "http://x"]].concat(), &["--callback-host", "\"http://x\" is not a host"]);
    refuse(&["worker", "--queue", "amqp://host/jobs"], &["there is no queue 'amqp'"]);
    refuse(&["serve", "--encoder", "onnx"], &["there is no encoder 'onnx'"]);
    refuse(&["serve", "--api-keys", "absent"], &["cannot read absent"]);
    let enqueue = ["enqueue", "--queue", "nats://127.0.0.1:1/jobs", "photoz", "--base", "https://example.com"];
    refused(path, &mut in_folder(path, &enqueue, &[]), &["photoz", "No such file"]);
    let enqueue = |words: &[&str], says: &[&str]| {
        let words = [&["enqueue", "--queue", "nats://127.0.0.1:1/jobs"], words].concat();
        refused(path, &mut in_folder(path, &words, &[]), says);
    };
    enqueue(&["https://x/y", "--callback", "ftp://x/"], &["--callback ftp://x/: ftp: is neither http nor https"]);
    enqueue(&["https://x/y", "--callback", "x/y"], &["--callback x/y: not an address of the web"]);
    enqueue(&["gopher://x/y?key=secret"], &["gopher://x/y?…: no worker reads gopher://"]);
    enqueue(&["https://x/y", "--metadata", "{"], &["--metadata is not JSON"]);
}

#[test]
fn backends_that_are_not_compiled_in_are_named_with_their_feature() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let refuse = |words: &[&str], says: &[&str]| refused(path, &mut in_folder(path, words, &OUT_OF_REACH), says);
    for (name, address) in [("nats", "nats://localhost/jobs"), ("sqs", "sqs://jobs")] {
        if backends::queues().get(name).is_err() {
            let says = [format!("queue '{name}' is not compiled"), format!("rebuild with `-F {name}`")];
            refuse(&["worker", "--queue", address], &says.each_ref().map(String::as_str));
        }
    }
    if backends::stores().get("object-store").is_err() {
        refuse(&["serve", "--object-store", "s3://bucket"], &["s3://bucket", "rebuild with `-F object-store`"]);
        refuse(&["embed", PHOTOS, "-o", "s3://bucket/v/"], &["this build can write to no store", "-F object-store"]);
    }
}

/// A missing path in a list differs from a missing path on the command line: each line has its own outcome. A run
/// without any vector leaves no output that could pass for a complete one or block a retry of the same command.
#[test]
fn a_list_of_absent_files_is_a_run_that_failed_and_can_be_repeated() {
    for name in ["x.parquet", "x.npy", "folder"] {
        let folder = tempfile::tempdir().unwrap();
        let (photo, list) = (folder.path().join("photo.jpg"), folder.path().join("list.txt"));
        fs::write(&list, format!("{}\n{}\n", photo.display(), folder.path().join("other.jpg").display())).unwrap();
        let out = folder.path().join(name);
        let failures =
            if name == "folder" { out.join("_failures.csv") } else { foveate::sink::record_of(&out, "failures.csv") };
        let of_list = || {
            let mut command = embed(&out);
            command.arg("--from-list").arg(&list).arg("--json");
            command
        };
        let again = || run(of_list().args(["--max-unreadable", "off"]));

        // Nothing tells absent files from an absent disk.
        run(&mut of_list()).expect_error(1, "2 inputs in a row cannot be read");
        let mut ran = again().expect(3);
        for _ in 0..2 {
            assert!(ran.stderr.contains("none of 2 inputs gave a vector"), "{}", ran.stderr);
            assert!(ran.stderr.contains(&failures.display().to_string()), "{}", ran.stderr);
            assert_eq!((&ran.json()["status"], &ran.json()["failures"]), (&"failed".into(), &2.into()));
            assert_eq!(csv(&failures).len(), 2);
            assert_eq!(tree(folder.path()).len(), 2, "the list and the failures: {:?}", tree(folder.path()).keys());
            ran = again().expect(3);
        }

        fs::copy(format!("{PHOTOS}/23_thumb_256.jpg"), &photo).unwrap();
        assert_eq!(again().expect(0).json()["vectors"], 1);
        assert_eq!(csv(&failures).len(), 1);
        if name == "x.npy" {
            assert_eq!(npy_rows(&out, 64).len(), 1);
        }
    }
}

#[test]
fn an_overwritten_output_is_not_left_beside_the_failures_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (photo, out) = (folder.path().join("photo.jpg"), folder.path().join("x.npy"));
    fs::copy(format!("{PHOTOS}/23_thumb_256.jpg"), &photo).unwrap();
    run(embed(&out).arg(&photo)).expect(0);
    fs::write(&photo, "no photo").unwrap();
    run(embed(&out).arg(&photo)).expect_error(2, "1 photo changed");
    run(embed(&out).arg(&photo).arg("--overwrite")).expect(3);
    let left: Vec<_> = tree(folder.path()).into_keys().collect();
    assert_eq!(left, [Path::new("_x.npy.failures.csv"), Path::new("photo.jpg")]);
}

#[test]
fn a_model_that_is_not_there_is_another_matter() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = in_folder(folder.path(), &["embed", PHOTOS, "-o", "x.npy"], &OUT_OF_REACH);
    run(&mut command).expect_error(1, "out of reach");
    assert!(Path::new(TINY).is_dir() && !folder.path().join("x.npy").exists());
}

fn clone(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args()).current_dir(command.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy
}
