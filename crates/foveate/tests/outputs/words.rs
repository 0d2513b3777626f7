//! Texts beside images, with a small CLIP whose goldens its own library made.
use std::fs;
use std::path::Path;

use crate::common::{Ran, TINY, csv, foveate, run};
use foveate_testkit::{Trial, data, trials};
use serde_json::Value;

pub(crate) fn trials() -> Vec<Trial> {
    trials![texts_find_their_images, an_empty_text_is_a_failure_and_a_repeated_command_ends_at_once]
}

fn embed_text(folder: &Path, input: &str, more: &[&str]) -> Ran {
    let model = data("families/clip-gelu");
    run(foveate().current_dir(folder).args(["embed-text", input, "--model"]).arg(model).args(more))
}

/// The order of images is that of the library's logits, for each of two texts.
fn texts_find_their_images() {
    let folder = tempfile::tempdir().unwrap();
    let model = data("families/clip-gelu");
    let golden: Value = serde_json::from_slice(&fs::read(model.join("golden.json")).unwrap()).unwrap();
    let photos = golden["photos"].as_array().unwrap().iter().map(|photo| data(photo.as_str().unwrap()));
    let images = ["-o", "images.parquet", "-q", "--model"];
    run(foveate().current_dir(folder.path()).arg("embed").args(photos).args(images).arg(&model)).expect(0);
    let sentences = [golden["texts"][0].as_str().unwrap(), golden["texts"][2].as_str().unwrap()];

    let asked = ["--text", sentences[0], "--text", sentences[1], "-k", "12", "--json"];
    let found = run(foveate().current_dir(folder.path()).args(["similar", "images.parquet"]).args(asked)).expect(0);
    let found = found.json();
    assert_eq!((&found[0]["query"], &found[1]["query"]), (&sentences[0].into(), &sentences[1].into()));

    let table = format!("id,caption\nfirst,\"{}\"\nsecond,\"{}\"\n", sentences[0], sentences[1]);
    fs::write(folder.path().join("captions.csv"), table).unwrap();
    embed_text(folder.path(), "captions.csv", &["-o", "texts.parquet"]).expect(0);
    let nearest = ["neighbors", "images.parquet", "--queries", "texts.parquet", "-k", "12", "-o", "nearest.csv"];
    run(foveate().current_dir(folder.path()).args(nearest)).expect(0);
    let rows = csv(&folder.path().join("nearest.csv"));
    let of_first: Vec<&str> =
        rows.iter().filter(|row| row["id"] == "first").map(|row| row["neighbor"].as_str()).collect();
    let similar: Vec<&str> =
        found[0]["similar"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(of_first, similar);

    let others = ["-o", "others.parquet", "--model"];
    let texts = ["embed-text", "captions.csv"];
    let other = data("families/clip-quickgelu");
    run(foveate().current_dir(folder.path()).args(texts).args(others).arg(other)).expect(0);
    let mixed = ["neighbors", "images.parquet", "--queries", "others.parquet", "-k", "1", "-o", "x.csv"];
    run(foveate().current_dir(folder.path()).args(mixed)).expect_error(2, "other weights");
    let words = ["embed-text", "captions.csv", "-o", "y.parquet", "--model", TINY];
    run(foveate().current_dir(folder.path()).args(words)).expect_error(1, "this model has no text tower");
}

fn an_empty_text_is_a_failure_and_a_repeated_command_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lines.txt"), "a cat\n\n  \na dog\n").unwrap();
    embed_text(folder.path(), "lines.txt", &["-o", "t.parquet"]).expect(3);
    let failures = fs::read_to_string(folder.path().join("_t.parquet.failures.csv")).unwrap();
    assert!(failures.contains("lines.txt:2") && failures.contains("lines.txt:3"), "{failures}");
    assert!(failures.contains("empty text"), "{failures}");
    let again = embed_text(folder.path(), "lines.txt", &["-o", "t.parquet"]).expect(0);
    assert!(again.stderr.contains("complete already"), "{}", again.stderr);
    embed_text(folder.path(), "lines.txt", &["-o", "t.npy"]).expect(3);
    embed_text(folder.path(), "lines.txt", &["-o", "u.parquet", "--column", "x"]).expect_error(2, "line by line");
    embed_text(folder.path(), "absent.txt", &["-o", "u.parquet"]).expect_error(2, "cannot read absent.txt");
    let long = vec!["word"; 200].join(" ");
    fs::write(folder.path().join("long.txt"), long).unwrap();
    let cut = embed_text(folder.path(), "long.txt", &["-o", "long.parquet"]).expect(0);
    assert!(cut.stderr.contains("1 text cut to what the model takes"), "{}", cut.stderr);
}
