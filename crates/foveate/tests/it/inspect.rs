//! `foveate inspect`: complete and unfinished outputs of every format, damage, and what is no output.
use std::fs;
use std::path::Path;

use foveate::backends;
use foveate::core::Backend;
use serde_json::Value;

use crate::common::{PHOTOS, Ran, embed, foveate, run, tree};

fn inspect(output: &Path, more: &[&str]) -> Ran {
    run(foveate().arg("inspect").arg(output).args(more))
}

fn json(output: &Path, more: &[&str]) -> Value {
    inspect(output, &[&["--json"], more].concat()).expect(0).json()
}

/// Embeds the photos and one file that fails, in several parts.
fn job(output: &Path, more: &[&str]) -> Ran {
    let empty = output.parent().unwrap().join("empty.jpg");
    fs::write(&empty, "").unwrap();
    run(embed(output).arg(PHOTOS).arg(&empty).args(["--part-items", "8", "--batch", "4"]).args(more))
}

/// Inverts a bit in the middle of a file.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_format_and_layout_is_shown_alike_complete_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for sink in backends::sinks().iter().map(Backend::name) {
        for name in [format!("x.{sink}"), sink.to_owned()] {
            let output = folder.path().join(name);
            job(&output, &["--sink", sink, "--strict"]).expect(3);
            let before = tree(folder.path());
            let half = json(&output, &["--check"]);
            assert_eq!(tree(folder.path()), before);
            assert_eq!(
                (&half["state"], &half["inputs"], &half["failures"]),
                (&"unfinished".into(), &31.into(), &0.into())
            );
            assert_eq!((&half["rows"], &half["settled"]), (&28.into(), &28.into()), "of the last commit");

            job(&output, &["--sink", sink]).expect(0);
            let whole = json(&output, &["--check"]);
            assert_eq!(
                (&whole["state"], &whole["format"], &whole["checked"]),
                (&"complete".into(), &sink.into(), &true.into())
            );
            assert_eq!((&whole["inputs"], &whole["rows"], &whole["dim"]), (&31.into(), &30.into(), &64.into()));
            assert_eq!(whole["failure_reasons"][0]["reason"], "empty file (0 bytes)");
            assert_eq!(half["sample"], whole["sample"]);
            assert_eq!(half["fingerprint"], whole["fingerprint"]);
            let text = inspect(&output, &[]).expect(0).stdout;
            for part in ["complete", "31 = 30 vectors + 1 failures", "recipe      hf", "1 decode: empty file", "norms "]
            {
                assert!(text.contains(part), "no '{part}' in: {text}");
            }
            seen.push((whole["norms"].clone(), whole["sample"].clone()));
        }
    }
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
}

#[test]
fn the_guide_names_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.npy");
    job(&output, &[]).expect(0);
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/outputs.md")).unwrap();
    let (_, section) = guide.split_once("## Inspect an output").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `")).flat_map(|line| line.split('|').nth(1));
    let mut named: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    named.sort_unstable();
    let object = json(&output, &[]);
    assert_eq!(named, object.as_object().unwrap().keys().collect::<Vec<_>>());
}

#[test]
fn a_check_names_the_first_file_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (output, file, says) in [
        ("out", "out/part-00001.parquet", "its contents are not those that were written"),
        ("x.npy", "_x.npy.failures.csv", "its contents are not those that were written"),
        ("half", "half/.foveate/run/part-00002.parquet", "its contents are not those that were written"),
        ("half", "half/.foveate/run/part-00001.seg", "a frame does not match its checksum"),
        ("half", "half/.foveate/run/part-00003-000000000024.seg", "a frame does not match its checksum"),
    ] {
        let _ = fs::remove_dir_all(path(output));
        job(&path(output), if output == "half" { &["--strict"] } else { &["--overwrite"] });
        inspect(&path(output), &["--check"]).expect(0);
        damage(&path(file));
        let ran = inspect(&path(output), &["--check"]).expect(1);
        assert!(ran.stderr.contains(says) && ran.stderr.contains(&format!("{file} is damaged")), "{}", ran.stderr);
    }
    // Without --check, counts are compared.
    let lines = fs::read_to_string(path("x.npy.ids.csv")).unwrap();
    fs::write(path("x.npy.ids.csv"), lines.trim_end().rsplit_once('\n').unwrap().0).unwrap();
    inspect(&path("x.npy"), &[]).expect_error(1, "x.npy.ids.csv is damaged: it has 29 lines for 30 rows");
}

#[test]
fn a_check_finds_rows_that_are_not_those_of_the_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let photos: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [first, second, third] = [0, 1, 2].map(|photo| photos[photo].display().to_string());
    let outputs = [("x.npy", [&first, &second]), ("others.npy", [&first, &third]), ("twice.npy", [&first, &first])];
    for (output, inputs) in outputs {
        run(embed(&path(output)).args(inputs)).expect(0);
    }
    // Files that are whole, but of two outputs.
    let manifest = |name: &str| -> Value { serde_json::from_slice(&fs::read(path(name)).unwrap()).unwrap() };
    let mut mixed = manifest("_x.npy.manifest.json");
    let mut record = manifest("_others.npy.manifest.json")["records"][0].clone();
    record["name"] = "_x.npy.inputs.csv".into();
    mixed["records"][0] = record;
    fs::write(path("_x.npy.manifest.json"), mixed.to_string()).unwrap();
    fs::copy(path("_others.npy.inputs.csv"), path("_x.npy.inputs.csv")).unwrap();
    inspect(&path("x.npy"), &["--check"]).expect_error(1, &format!("the row of {third} is that of {second}"));
    assert_eq!(json(&path("others.npy"), &["--check"])["repeated_ids"], 0);
    assert_eq!(json(&path("twice.npy"), &["--check"])["repeated_ids"], 1, "it was listed twice");
}

#[test]
fn rows_that_are_not_finite_or_zero_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.npy");
    job(&output, &["--normalize", "l2"]).expect(0);
    let mut bytes = fs::read(&output).unwrap();
    bytes[128..132].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes[128 + 256..128 + 512].fill(0);
    fs::write(&output, bytes).unwrap();
    let found = json(&output, &[]);
    assert_eq!((&found["not_finite_rows"], &found["zero_rows"]), (&1.into(), &1.into()));
    let norm = |name: &str| found["norms"][name].as_f64().unwrap();
    assert_eq!(norm("least"), 0.0);
    assert!((norm("median") - 1.0).abs() < 1e-4 && (norm("most") - 1.0).abs() < 1e-6, "{found}");
}

#[test]
fn shards_add_up_and_missing_ones_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    job(&output, &["--shard", "0/2"]).expect(0);
    let one = json(&output, &[]);
    assert_eq!((&one["state"], &one["shards"], &one["inputs"]), (&"unfinished".into(), &2.into(), &Value::Null));
    job(&output, &["--shard", "1/2"]).expect(0);
    let both = json(&output, &["--check"]);
    assert_eq!((&both["state"], &both["inputs"], &both["rows"]), (&"complete".into(), &31.into(), &30.into()));
}

#[test]
fn a_copy_is_shown_by_its_own_manifest_and_what_is_no_output_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    job(&path("x.parquet"), &[]).expect(0);
    fs::copy(path("x.parquet"), path("copy.parquet")).unwrap();
    let copy = json(&path("copy.parquet"), &[]);
    assert_eq!((&copy["state"], &copy["rows"], &copy["failures"]), (&"alone".into(), &30.into(), &Value::Null));
    inspect(&path("copy.parquet"), &["--check"]).expect_error(1, "_copy.parquet.manifest.json is missing");

    fs::write(path("foreign.npy"), "no array").unwrap();
    fs::write(path("foreign.parquet"), "no table").unwrap();
    inspect(&path("foreign.npy"), &[]).expect_error(1, "it does not begin like a NumPy array");
    inspect(folder.path(), &[]).expect_error(2, "it has no manifest of foveate");
    inspect(&path("foreign.parquet"), &[]).expect_error(1, "foreign.parquet is damaged");
    inspect(&path("absent.parquet"), &[]).expect_error(2, "there is no such output; check the path");
    run(embed(&path("none.npy")).arg(path("empty.jpg"))).expect(3);
    inspect(&path("none.npy"), &[]).expect_error(2, "every input failed; the reasons are in");
}
