//! Texts beside images, with a small CLIP whose goldens its own library made.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Ran, TINY, csv, foveate, run};
use foveate_testkit::{Trial, data, trials};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        texts_find_their_images,
        an_empty_text_is_a_failure_and_a_repeated_command_ends_at_once,
        labels_have_the_probabilities_of_the_library,
        captions_are_scored_and_evaluated,
        what_labels_cannot_be_is_refused,
    ]
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

/// A family's images, with the library's logits for some of its texts.
struct Photographed {
    folder: TempDir,
    model: PathBuf,
    photos: Vec<PathBuf>,
    texts: Vec<String>,
    /// `[photos][texts]`
    logits: Vec<Vec<f64>>,
}

impl Photographed {
    fn new(family: &str, texts: &[usize]) -> Self {
        let model = data("families").join(family);
        let golden: Value = serde_json::from_slice(&fs::read(model.join("golden.json")).unwrap()).unwrap();
        let mut archive = npyz::npz::NpzArchive::open(model.join("golden.npz")).unwrap();
        let array = archive.by_name("logits_per_image").unwrap().unwrap();
        assert_eq!(array.order(), npyz::Order::Fortran, "one text after the other");
        let by_text: Vec<f32> = array.into_vec().unwrap();
        let texts_of = texts.iter().map(|&text| golden["texts"][text].as_str().unwrap().to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut table = "file,caption\n".to_owned();
        let photos: Vec<PathBuf> =
            golden["photos"].as_array().unwrap().iter().map(|photo| data(photo.as_str().unwrap())).collect();
        for (number, photo) in photos.iter().enumerate() {
            let text = golden["texts"][texts[number % texts.len()]].as_str().unwrap();
            table.push_str(&format!("{},\"{text}\"\n", photo.display()));
        }
        fs::write(folder.path().join("photos.csv"), table).unwrap();
        let logit = |photo: usize, text: usize| f64::from(by_text[text * photos.len() + photo]);
        let logits = (0..photos.len()).map(|photo| texts.iter().map(|&text| logit(photo, text)).collect()).collect();
        let made = Self { folder, model, photos, texts: texts_of, logits };
        let embed = ["-o", "plain.parquet", "-q", "--model"];
        let folder = made.folder.path();
        run(foveate().current_dir(folder).arg("embed").args(&made.photos).args(embed).arg(&made.model)).expect(0);
        made.run(&["merge", "plain.parquet", "--join", "photos.csv", "-o", "v.parquet"], false).expect(0);
        made
    }

    fn run(&self, arguments: &[&str], names_model: bool) -> Ran {
        let model = names_model.then_some(&self.model);
        run(foveate().current_dir(self.folder.path()).args(arguments).args(model))
    }

    /// The number of the photo with an id.
    fn number(&self, id: &str) -> usize {
        self.photos.iter().position(|photo| photo.to_str() == Some(id)).unwrap()
    }

    fn rows(&self, table: &str) -> Vec<BTreeMap<String, String>> {
        let mut lines = csv::Reader::from_path(self.folder.path().join(table)).unwrap();
        lines.deserialize().map(Result::unwrap).collect()
    }
}

fn labels_have_the_probabilities_of_the_library() {
    for (family, is_softmax) in [("clip-gelu", true), ("siglip", false)] {
        let photos = Photographed::new(family, &[0, 2, 4, 7]);
        fs::write(photos.folder.path().join("labels.txt"), format!("{}\n\n", photos.texts.join("\n"))).unwrap();
        let labels = ["label", "v.parquet", "--labels", "labels.txt", "--template", "{}", "-k", "4"];
        let told = photos.run(&[&labels[..], &["-o", "l.csv", "--json"]].concat(), false).expect(0);
        assert_eq!(told.json()["labelled"], photos.logits.len());
        let rows = photos.rows("l.csv");
        assert_eq!(rows.len(), 4 * photos.logits.len());
        for rows in rows.chunks_exact(4) {
            let logits = &photos.logits[photos.number(&rows[0]["id"])];
            let mut expected: Vec<(f64, &String)> = Vec::new();
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            for (logit, text) in logits.iter().zip(&photos.texts) {
                expected.push((if is_softmax { logit.exp() / sum } else { 1.0 / (1.0 + (-logit).exp()) }, text));
            }
            expected.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (row, (probability, text)) in rows.iter().zip(expected) {
                let found: f64 = row["score"].parse().unwrap();
                assert!((found - probability).abs() < 1e-4, "{family} {row:?}: {probability}");
                assert_eq!(&row["label"], text, "{family} {row:?}");
            }
        }
        // All are below 1, so that every image has the other label.
        let none = ["--threshold", "1", "--none", "none of these", "-o", "n.csv"];
        photos.run(&[&labels[..], &none].concat(), false).expect(0);
        let rows = photos.rows("n.csv");
        assert_eq!(rows.len(), photos.logits.len());
        assert!(rows.iter().all(|row| row["label"] == "none of these" && row["score"].is_empty()), "{rows:?}");
        let mut page = vec!["-o", "p.parquet", "--html", "p.html"];
        for photo in &photos.photos {
            page.extend(["--images", photo.to_str().unwrap()]);
        }
        photos.run(&[&labels[..], &page].concat(), false).expect(0);
        let page = fs::read_to_string(photos.folder.path().join("p.html")).unwrap();
        assert!(page.contains("data:image/jpeg;base64,") && page.contains("images</h2>"), "{family}");
    }
}

fn captions_are_scored_and_evaluated() {
    let photos = Photographed::new("siglip", &[0, 2, 4, 7]);
    photos.run(&["align", "v.parquet", "--column", "caption", "-o", "a.csv"], false).expect(0);
    photos.run(&["embed-text", "photos.csv", "-o", "t.parquet", "--model"], true).expect(0);
    photos.run(&["align", "v.parquet", "--texts", "t.parquet", "-o", "b.csv"], false).expect(0);
    let rows = photos.rows("a.csv");
    assert_eq!(rows, photos.rows("b.csv"));
    assert_eq!(rows.len(), photos.logits.len());
    // A logit grows with the cosine, so that both have one order.
    let mut by_score: Vec<usize> = (0..rows.len()).collect();
    by_score.sort_by(|&a, &b| rows[a]["score"].parse::<f64>().unwrap().total_cmp(&rows[b]["score"].parse().unwrap()));
    let mut by_logit: Vec<usize> = (0..rows.len()).collect();
    let logit = |row: usize| {
        let photo = photos.number(&rows[row]["id"]);
        photos.logits[photo][photo % 4]
    };
    by_logit.sort_by(|&a, &b| logit(a).total_cmp(&logit(b)));
    assert_eq!(by_score, by_logit);
    let least = rows[by_score[9]]["score"].clone();
    photos.run(&["align", "v.parquet", "--column", "caption", "-o", "c.csv", "--threshold", &least], false).expect(0);
    assert!((2..=3).contains(&photos.rows("c.csv").len()), "those from {least} on, which is rounded");

    let told = photos.run(&["eval", "v.parquet", "--captions", "photos.csv", "--json"], false).expect(0);
    let told = told.json();
    assert_eq!((&told[0]["captions"], &told[0]["images"]), (&12.into(), &12.into()));
    let mut right = 0;
    for (image, logits) in photos.logits.iter().enumerate() {
        let best = (0..4).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        // Of three equal texts, that of the first row comes first.
        let firsts = rows.iter().map(|row| photos.number(&row["id"])).filter(|photo| photo % 4 == best);
        right += usize::from(firsts.take(1).any(|first| first == image));
    }
    let found = told[0]["figures"]["image → text recall@1"]["mean"].as_f64().unwrap();
    assert!((found - right as f64 / 12.0).abs() < 1e-9, "{found}, not {right} of 12");
}

fn what_labels_cannot_be_is_refused() {
    let photos = Photographed::new("clip-gelu", &[0, 2]);
    let folder = photos.folder.path();
    fs::write(folder.join("twice.txt"), "cat\ndog\n cat\n").unwrap();
    fs::write(folder.join("empty.txt"), "\n").unwrap();
    fs::write(folder.join("prompts.csv"), "label,prompt\ncat,a cat\ncat,a kitten\ndog,a dog\n").unwrap();
    for (more, why) in [
        (&["--labels", "twice.txt"][..], "has the label 'cat' twice, the second time in row 3"),
        (&["--labels", "empty.txt"], "has no label"),
        (&["--labels", "photos.csv"], "it needs a column of labels"),
        (&["--labels", "prompts.csv", "--template", "a {}"], "no --template is applied"),
        (&["--labels", "prompts.csv", "--none", "x"], "below --threshold"),
        (&["--labels", "prompts.csv", "--model", TINY], "no text tower"),
    ] {
        let ran = photos.run(&[&["label", "v.parquet", "-o", "x.csv"], more].concat(), false);
        assert!(ran.stderr.contains(why), "{more:?}: {}", ran.stderr);
    }
    photos.run(&["label", "v.parquet", "--labels", "prompts.csv", "-o", "x.csv"], false).expect(0);
    assert!(photos.rows("x.csv").iter().all(|row| row["label"] == "cat" || row["label"] == "dog"));
    let similar = ["similar", "v.parquet", "--text", "a cat"];
    photos.run(&[&similar[..], &["--minus", "a cat"]].concat(), false).expect_error(2, "leaves nothing");
    let found = photos.run(&[&similar[..], &["--minus", "snow", "--json"]].concat(), false).expect(0);
    assert_eq!(found.json()[0]["query"], "a cat − snow");
    photos.run(&["similar", "v.parquet", "--id", "x", "--minus", "snow"], false).expect_error(2, "no vector has");
    fs::write(folder.join("asked.txt"), "a cat\na dog\n").unwrap();
    let found = photos.run(&["similar", "v.parquet", "--texts", "asked.txt", "--json"], false).expect(0);
    assert_eq!(found.json().as_array().unwrap().len(), 2);
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
