//! The commands that search vectors, on those of photos.
#![cfg(unix)]
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{PHOTOS, Ran, TINY, embed, foveate, run, tree};
use foveate::backends;
use foveate::sink::StoredRun;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Photos, one of them under two names, one cut, one turned into noise, and their vectors.
struct Collection(TempDir);

impl Collection {
    fn new() -> Self {
        let collection = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(collection.path("photos")).unwrap();
        let mut originals: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
        originals.sort_by_key(|path| (fs::metadata(path).unwrap().len(), path.clone()));
        for (number, original) in originals.iter().take(10).enumerate() {
            fs::copy(original, collection.path(&format!("photos/{number:02}.jpg"))).unwrap();
        }
        fs::copy(&originals[3], collection.path("photos/03 copy.jpg")).unwrap();
        // The same picture in another file: what follows the end of a JPEG is not read.
        let padded = [fs::read(&originals[5]).unwrap(), vec![0; 100]].concat();
        fs::write(collection.path("photos/05 padded.jpg"), padded).unwrap();
        collection
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn embed(&self, folder: &str, output: &str, more: &[&str]) {
        run(embed(&self.path(output)).arg(self.path(folder)).args(more)).expect(0);
    }

    fn search(&self, command: &str, inputs: &[&str], more: &[&str]) -> Ran {
        let inputs = inputs.iter().map(|input| self.path(input));
        run(foveate().current_dir(self.0.path()).arg(command).args(inputs).args(more))
    }

    /// The ids and vectors of an output.
    fn vectors(&self, output: &str) -> Vec<(String, Vec<f32>)> {
        let mut found = Vec::new();
        for mut run in StoredRun::find(&self.path(output)).unwrap() {
            let sinks = backends::sinks();
            let sink = sinks.get(&run.manifest.format).unwrap();
            let mut add = |row: &foveate::sink::StoredRow<'_>| {
                found.push((row.id.to_owned(), row.vector.to_vec()));
                Ok(())
            };
            run.rows(sink.reader().unwrap(), &mut add).unwrap();
        }
        found
    }

    fn csv(&self, name: &str) -> Vec<Vec<String>> {
        let mut lines = csv::Reader::from_path(self.path(name)).unwrap();
        lines.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
    }
}

fn name(id: &str) -> &str {
    Path::new(id).file_name().unwrap().to_str().unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Writes a `.npy` file as NumPy does.
fn write_array(path: &Path, values: &[f32], dim: usize) {
    let shape = format!("({}, {dim})", values.len() / dim);
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(path, [start, data].concat()).unwrap();
}

#[test]
fn neighbours_of_any_output_are_those_of_every_pair() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    collection.embed("photos", "v.npy", &[]);
    for shard in ["0/2", "1/2"] {
        collection.embed("photos", "shards/", &["--shard", shard]);
    }
    let vectors = collection.vectors("v.parquet");
    let mut expected = Vec::new();
    for (id, vector) in &vectors {
        let mut others: Vec<_> = vectors.iter().filter(|(other, _)| other != id).collect();
        others.sort_by(|a, b| cosine(vector, &b.1).total_cmp(&cosine(vector, &a.1)));
        let ranked = others.into_iter().take(4).enumerate();
        expected.extend(ranked.map(|(rank, (other, found))| {
            vec![id.clone(), other.clone(), (rank + 1).to_string(), (cosine(vector, found) as f32).to_string()]
        }));
    }
    for input in ["v.parquet", "v.npy", "shards"] {
        let ran =
            collection.search("neighbors", &[input], &["-k", "4", "-o", "knn.csv", "--overwrite", "--json"]).expect(0);
        assert_eq!((&ran.json()["rows"], &ran.json()["pairs"]), (&12.into(), &66.into()));
        let mut found = collection.csv("knn.csv");
        for (found, expected) in found.iter_mut().zip(&expected) {
            let [score, exact] = [&found[3], &expected[3]].map(|score| score.parse::<f32>().unwrap());
            assert!((score - exact).abs() <= 1e-6, "{found:?} {expected:?}");
            found[3].clone_from(&expected[3]);
        }
        // Equal files may come in another order than here, where the sort does not know the rows.
        found.sort();
        let mut expected = expected.clone();
        expected.sort();
        assert_eq!(found, expected, "{input}");
    }
    let queries = ["--queries", "v.npy", "-k", "1", "-o", "own.csv", "--quiet"];
    assert!(collection.search("neighbors", &["v.parquet"], &queries).expect(0).stdout.is_empty());
    let own = collection.csv("own.csv");
    assert!(own.len() == 12 && own.iter().all(|row| row[3].parse::<f32>().unwrap() > 0.999_999), "{own:?}");
}

#[test]
fn duplicates_are_grouped_and_nothing_is_deleted() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    let options = ["--threshold", "0.9999", "-o", "groups.csv"];
    let ran = collection.search("duplicates", &["v.parquet"], &options).expect(0);
    assert!(
        ran.stdout.contains("has 2 groups of 12 rows") && ran.stdout.contains("2 images would be removed"),
        "{ran:?}"
    );
    let groups: Vec<Vec<String>> = collection.csv("groups.csv");
    let told: Vec<_> =
        groups.iter().map(|row| (row[0].as_str(), name(&row[1]), row[2].as_str(), row[4].as_str())).collect();
    assert_eq!(
        told,
        [
            ("0", "03 copy.jpg", "true", "kept"),
            ("0", "03.jpg", "false", "same bytes"),
            ("1", "05 padded.jpg", "true", "kept"),
            ("1", "05.jpg", "false", "near"),
        ]
    );
    let complete = ["--threshold", "0.9999", "-o", "complete.csv", "--linkage", "complete"];
    collection.search("duplicates", &["v.parquet"], &complete).expect(0);
    assert_eq!(collection.csv("complete.csv"), groups);
    let list = ["--threshold", "0.9999", "-o", "groups.parquet", "--list-removable"];
    let listed = collection.search("duplicates", &["v.parquet"], &list).expect(0).stdout;
    assert_eq!(listed.lines().map(name).collect::<Vec<_>>(), ["03.jpg", "05.jpg"]);
    assert!(fs::read(collection.path("groups.parquet")).unwrap().ends_with(b"PAR1"));
    assert_eq!(fs::read_dir(collection.path("photos")).unwrap().count(), 12);

    // With the images, equal pixels are told from near ones.
    let photos = collection.path("photos").display().to_string();
    let page = ["--threshold", "0.9999", "-o", "pixels.csv", "--html", "groups.html", "--images", &photos];
    collection.search("duplicates", &["v.parquet"], &page).expect(0);
    let groups = collection.csv("pixels.csv");
    let reason = |wanted: &str| groups.iter().find(|row| name(&row[1]) == wanted).unwrap()[4].clone();
    assert_eq!([reason("05.jpg"), reason("03.jpg")], ["same pixels", "same bytes"]);
    assert!(groups.iter().filter(|row| row[4] == "same pixels").count() == 1, "{groups:?}");
    let page = fs::read_to_string(collection.path("groups.html")).unwrap();
    assert!(page.matches("data:image/jpeg;base64,").count() >= groups.len() && !page.contains("no picture"));

    // New photos against the old ones.
    fs::create_dir(collection.path("new")).unwrap();
    fs::copy(collection.path("photos/07.jpg"), collection.path("new/again.jpg")).unwrap();
    fs::copy(collection.path("photos/07.jpg"), collection.path("new/again 2.jpg")).unwrap();
    collection.embed("new", "new.npy", &[]);
    let against = ["--against", "v.parquet", "--threshold", "0.9999", "-o", "known.csv", "--json"];
    let ran = collection.search("duplicates", &["new.npy"], &against).expect(0);
    assert_eq!((&ran.json()["groups"], &ran.json()["removable"]), (&1.into(), &2.into()));
    let known = collection.csv("known.csv");
    let told: Vec<_> = known.iter().map(|row| (name(&row[1]), row[2].as_str(), row[4].as_str())).collect();
    assert_eq!(
        told,
        [("07.jpg", "true", "kept"), ("again 2.jpg", "false", "same bytes"), ("again.jpg", "false", "same bytes")]
    );
}

#[test]
fn what_is_similar_to_a_photo_is_found() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &["--pooling", "mean", "--normalize", "l2"]);
    let vectors = collection.vectors("v.parquet");
    let nearest = |id: &str, others: &dyn Fn(&str) -> bool| -> Vec<String> {
        let of = &vectors.iter().find(|(other, _)| other == id).unwrap().1;
        let mut all: Vec<_> = vectors.iter().filter(|(id, _)| others(id)).collect();
        all.sort_by(|a, b| cosine(of, &b.1).total_cmp(&cosine(of, &a.1)));
        all.into_iter().take(3).map(|(id, _)| id.clone()).collect()
    };
    fs::create_dir(collection.path("asked")).unwrap();
    fs::copy(collection.path("photos/07.jpg"), collection.path("asked/a.jpg")).unwrap();
    fs::write(collection.path("asked/b.jpg"), "no image").unwrap();
    let photos = collection.path("photos").display().to_string();
    let options = ["--query", "asked", "-k", "3", "--json", "--html", "similar.html", "--images", &photos];
    let ran = collection.search("similar", &["v.parquet"], &options).expect(3);
    assert!(ran.stderr.contains("b.jpg is no query: decode: "), "{}", ran.stderr);
    let found = ran.json();
    let ids = |found: &serde_json::Value| -> Vec<String> {
        found.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let seventh = collection.path("photos/07.jpg").display().to_string();
    assert_eq!(ids(&found[0]["similar"]), nearest(&seventh, &|_| true));
    assert_eq!(fs::read_to_string(collection.path("similar.html")).unwrap().matches("base64,").count(), 4);
    let of_id = ["--id", &seventh, "-k", "3", "--json"];
    let found = collection.search("similar", &["v.parquet"], &of_id).expect(0).json();
    assert_eq!(ids(&found[0]["similar"]), nearest(&seventh, &|id| id != seventh));

    // A copy of the file alone says what made it, too.
    fs::create_dir(collection.path("copy")).unwrap();
    fs::copy(collection.path("v.parquet"), collection.path("copy/x.parquet")).unwrap();
    let options = ["--query", "asked/a.jpg", "-k", "1", "-o", "one.csv"];
    collection.search("similar", &["copy/x.parquet"], &options).expect(0);
    assert_eq!((&*collection.csv("one.csv")[0][1], &*collection.csv("one.csv")[0][2]), (&*seventh, "1"));
    let other = ["--query", "asked/a.jpg", "--model", "seeded:dinov2-small"];
    collection
        .search("similar", &["v.parquet"], &other)
        .expect_error(2, "cannot be compared with these vectors: other weights");
    collection.search("similar", &["v.parquet"], &["--id", "nobody"]).expect_error(2, "no vector has the id 'nobody'");
    let words = ["--text", "a cat", "--model", TINY];
    collection.search("similar", &["v.parquet"], &words).expect_error(1, "this model has no text tower");
}

#[test]
fn clusters_and_samples_have_their_images() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    let page = ["-k", "3", "-o", "c.csv", "--json", "--html", "c.html", "--images", "photos"];
    let ran = collection.search("clusters", &["v.parquet"], &page);
    assert_eq!((&ran.json()["clusters"], &ran.json()["rows"]), (&3.into(), &12.into()));
    let rows = collection.csv("c.csv");
    assert_eq!(rows.len(), 12);
    for cluster in ["0", "1", "2"] {
        let mut members: Vec<(u32, f32)> = rows
            .iter()
            .filter(|row| row[1] == cluster)
            .map(|row| (row[2].parse().unwrap(), row[3].parse().unwrap()))
            .collect();
        members.sort_by_key(|member| member.0);
        assert!(members.iter().map(|member| member.0).eq(1..=members.len() as u32), "{rows:?}");
        assert!(members.is_sorted_by(|a, b| a.1 >= b.1), "{rows:?}");
    }
    let auto = collection.search("clusters", &["v.parquet"], &["-k", "auto", "-o", "auto.csv"]).expect(0);
    assert!(auto.stderr.contains("note: -k auto is 2, the square root of half of 12 images"), "{}", auto.stderr);
    let many = collection.search("clusters", &["v.parquet"], &["-k", "12", "-o", "many.csv"]).expect(0);
    assert!(
        many.stderr.contains("note: 10 clusters instead of 12: further clusters would be empty"),
        "{}",
        many.stderr
    );
    let few = collection.search("sample", &["v.parquet"], &["-n", "99", "-o", "few.csv"]).expect(0);
    assert!(few.stderr.contains("note: 12 images instead of 99: there are 12 images with a vector"), "{}", few.stderr);
    let share = collection.search("sample", &["v.parquet"], &["-n", "10%", "-o", "share.csv", "--json"]).expect(0);
    assert_eq!(share.json()["chosen"], 2);
    collection.search("sample", &["v.parquet"], &["-n", "101%", "-o", "x.csv"]).expect_error(2, "at most 100%");
    for by in ["spread", "clusters"] {
        collection.search("sample", &["v.parquet"], &["-n", "4", "--by", by, "-o", "s.csv", "--overwrite"]).expect(0);
        let chosen = collection.csv("s.csv");
        let mut ids: Vec<_> = chosen.iter().map(|row| &row[0]).collect();
        ids.dedup();
        assert_eq!((ids.len(), chosen[0][2].is_empty()), (4, by == "spread"), "{chosen:?}");
    }
    fs::create_dir(collection.path("links")).unwrap();
    std::os::unix::fs::symlink("../photos/00.jpg", collection.path("links/00.jpg")).unwrap();
    collection.embed("links", "links.parquet", &[]);
    let outputs = ["v.parquet", "links.parquet"];
    let ran = collection.search("sample", &outputs, &["-n", "13", "-o", "all.csv"]).expect(0);
    assert!(ran.stderr.contains("note: 1 name of files that are in the sample already left out"), "{}", ran.stderr);
    assert_eq!(collection.csv("all.csv").len(), 12);
}

/// A collection that was moved, packed or mirrored after it was embedded.
#[test]
fn pictures_are_found_where_the_collection_is_now() {
    let collection = Collection::new();
    let done = |arguments: &[&str]| run(foveate().current_dir(collection.path("")).args(arguments)).expect(0);
    let embedded = |input: &str, output: &str, more: &[&str]| {
        done(&[&["embed", "--model", TINY, input, "-o", output], more].concat());
    };
    embedded("photos", "folder.parquet", &[]);
    done(&["pack", "photos", "-o", "shards"]);
    done(&["pack", "photos", "-o", "tables", "--format", "parquet"]);
    embedded("shards/*.tar", "packed.parquet", &["--id-column", "id"]);
    embedded("shards/*.tar", "members.parquet", &[]);
    fs::create_dir_all(collection.path("moved/tars")).unwrap();
    fs::rename(collection.path("photos"), collection.path("moved/pictures")).unwrap();
    fs::copy(collection.path("shards/00000.tar"), collection.path("moved/tars/00000.tar")).unwrap();
    let page = |vectors: &str, images: &[&str]| {
        let mut arguments = vec!["-n", "12", "-o", "s.csv", "--html", "s.html", "--overwrite"];
        images.iter().for_each(|images| arguments.extend(["--images", images]));
        collection.search("sample", &[vectors], &arguments)
    };
    for (vectors, images) in [
        ("folder.parquet", "moved"),
        ("folder.parquet", "shards"),
        ("folder.parquet", "shards/*.tar"),
        ("folder.parquet", "tables"),
        ("packed.parquet", "moved/pictures"),
        ("packed.parquet", "tables/*.parquet"),
        ("packed.parquet", "moved/tars/*.tar"),
        ("members.parquet", "moved/tars/00000.tar"),
    ] {
        let ran = page(vectors, &[images]).expect(0);
        let html = fs::read_to_string(collection.path("s.html")).unwrap();
        assert_eq!((html.matches("<img").count(), html.matches("not the bytes").count()), (12, 0), "{images}: {ran:?}");
        let is_folder = images.starts_with("moved") && !images.ends_with("tar");
        assert_eq!(html.contains("href=\"./moved/pictures/03%20copy.jpg\""), is_folder, "{vectors} {images}");
    }
    // Another file of that name is shown as such, and one name in two places is nobody's.
    fs::create_dir(collection.path("moved/again")).unwrap();
    fs::rename(collection.path("moved/pictures/00.jpg"), collection.path("moved/pictures/01.jpg")).unwrap();
    fs::copy(collection.path("moved/pictures/02.jpg"), collection.path("moved/again/02.jpg")).unwrap();
    let ran = page("folder.parquet", &["moved"]).expect(0);
    assert!(
        ran.stderr.contains("2 of 12 pictures are missing (such as photos/00.jpg; 1 of them fit several"),
        "{ran:?}"
    );
    assert_eq!(fs::read_to_string(collection.path("s.html")).unwrap().matches("not the bytes").count(), 1);
    // Nearly all missing is no page; the table is written.
    fs::remove_file(collection.path("s.html")).unwrap();
    fs::remove_file(collection.path("s.csv")).unwrap();
    fs::create_dir(collection.path("other")).unwrap();
    fs::copy(collection.path("moved/pictures/02.jpg"), collection.path("other/x.jpg")).unwrap();
    let commands: [(&str, &[&str]); 4] = [
        ("sample", &["-n", "12"]),
        ("clusters", &["-k", "2"]),
        ("duplicates", &[]),
        ("similar", &["--id", "photos/02.jpg"]),
    ];
    for (command, more) in commands {
        let arguments = [more, &["-o", "t.csv", "--html", "t.html", "--images", "other", "--overwrite"]].concat();
        let ran = collection.search(command, &["folder.parquet"], &arguments);
        ran.expect_error(1, "while --images has images such as other/x.jpg); name with --images where");
        assert!(fs::remove_file(collection.path("t.csv")).is_ok() && !collection.path("t.html").exists(), "{command}");
        let nowhere = [more, &["-o", "t.csv", "--html", "t.html"]].concat();
        collection.search(command, &["folder.parquet"], &nowhere).expect_error(2, "--html t.html needs --images");
        let absent = [&nowhere[..], &["--images", "absent"]].concat();
        collection.search(command, &["folder.parquet"], &absent).expect_error(2, "cannot read absent");
        assert!(!collection.path("t.csv").exists(), "{command}");
    }
}

#[test]
fn a_page_shows_pairs_groups_and_a_selection() {
    let collection = Collection::new();
    let odd = "photos/05 <\"'\u{202e}&\r\nx.jpg";
    fs::copy(collection.path("photos/05.jpg"), collection.path(odd)).unwrap();
    run(foveate().current_dir(collection.path("")).args(["embed", "--model", TINY, "photos", "-o", "v.parquet"]))
        .expect(0);
    fs::write(collection.path("labels.csv"), "file,label\n03.jpg,</script><b>\n").unwrap();
    let arguments = ["-o", "g.csv", "--html", "g.html", "--images", "photos", "--labels", "labels.csv"];
    let more = ["--threshold", "0.6", "--linkage", "complete"];
    let ran = collection.search("duplicates", &["v.parquet"], &["-o", "g.csv", "--labels", "labels.csv"]);
    ran.expect_error(2, "labels are shown on a page; name it with --html");
    collection.search("duplicates", &["v.parquet"], &[&arguments[..], &more].concat()).expect(0);
    let page = fs::read_to_string(collection.path("g.html")).unwrap();
    // Each set of two is one block.
    let pairs: Vec<&str> = page.split("<div class=\"pair\">").skip(1).collect();
    assert!(
        pairs.iter().all(|pair| pair.split("</div>").next().unwrap().matches("<figure").count() == 2)
            && pairs.len() > 4
    );
    // The groups, by their least scores; the kept image comes first, and what is removable is selected.
    let groups: Vec<&str> = page.split("<section><header><h2>Group ").skip(1).collect();
    let rows = collection.csv("g.csv");
    let mut least = Vec::new();
    for group in &groups {
        let number = group.split(':').next().unwrap();
        let of: Vec<_> = rows.iter().filter(|row| row[0] == number).collect();
        least.push(of.iter().map(|row| row[3].parse::<f64>().unwrap()).fold(1.0, f64::min));
        assert_eq!(group.matches(" checked>").count(), of.iter().filter(|row| row[7] == "true").count(), "{number}");
        assert!(group.split("<figure").nth(1).unwrap().starts_with(" class=\"marked\""), "{number}");
    }
    assert!(least.len() > 1 && least.is_sorted() && least[0] < 1.0, "{least:?}");
    for shown in [
        "value=\"photos/05 &lt;&quot;'\u{202e}&amp;&#13;&#10;x.jpg\"",
        "<em><bdi>&lt;/script&gt;&lt;b&gt;</bdi></em>",
        "href=\"./photos/05%20%3C%22%27%E2%80%AE%26%0D%0Ax.jpg\"",
        " px, ",
        " kB</span>",
        ", same pixels</b>",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    assert_eq!(
        (page.matches("</script>").count(), page.matches("src=\"data:").count()),
        (1, page.matches("src=").count())
    );
}

#[test]
fn labels_judge_vectors() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    collection.embed("photos", "mean.npy", &["--pooling", "mean"]);
    let labels = "file,label\nphotos/03.jpg,a\nphotos/03 copy.jpg,a\n05.jpg,b\n05 padded.jpg,b\n00.jpg,c\n";
    fs::write(collection.path("labels.csv"), labels).unwrap();
    let found = collection.search("eval", &["v.parquet", "mean.npy"], &["--labels", "labels.csv", "--json"]).expect(0);
    let found = found.json();
    assert_eq!((&found[0]["labelled"], &found[0]["rows"], &found[0]["classes"]), (&5.into(), &4.into(), &2.into()));
    for name in ["recall@1", "mAP@R"] {
        assert_eq!(found[1]["figures"][name]["mean"], 1.0, "{found}");
        assert_eq!(found[1]["changes"][name]["mean"], 0.0, "{found}");
    }
    fs::write(collection.path("other.csv"), "file,label\nx.jpg,a\n").unwrap();
    collection.search("eval", &["v.parquet"], &["--labels", "other.csv"]).expect_error(2, "names none of the images");
    // Keys of another program lack the extension; contradictions are no labels.
    fs::write(collection.path("stems.csv"), "id,label\n03,a\n05,b\n").unwrap();
    let stems = ["--labels", "stems.csv"];
    collection.search("eval", &["v.parquet"], &stems).expect_error(2, "its names lack the files' extensions");
    fs::write(collection.path("twice.csv"), "file,label\n03.jpg,a\n03.jpg,b\n").unwrap();
    let twice = ["--labels", "twice.csv"];
    collection.search("eval", &["v.parquet"], &twice).expect_error(2, "'03.jpg' twice, with the label a and b");
    // The output's own column has the same labels.
    run(foveate().arg("merge").arg(collection.path("v.parquet")).arg("-o").arg(collection.path("own.parquet")))
        .expect(0);
    let missing = ["--label-column", "label"];
    collection
        .search("eval", &["own.parquet"], &missing)
        .expect_error(2, "carry no column 'label' along; they carry none");
    let mut merge = foveate();
    merge.arg("merge").arg(collection.path("v.parquet")).arg("--join").arg(collection.path("labels.csv"));
    let joined = run(merge.arg("-o").arg(collection.path("labelled.parquet"))).expect(0);
    assert!(joined.stderr.contains("0 are named by their whole ids, and 5 by the ends of them"), "{}", joined.stderr);
    let own = collection.search("eval", &["labelled.parquet"], &["--label-column", "label", "--json"]).expect(0).json();
    assert_eq!(own[0]["figures"], found[0]["figures"]);
}

#[test]
fn vectors_of_other_programs_are_searched() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    let vectors = collection.vectors("v.parquet");
    let dim = vectors[0].1.len();
    write_array(
        &collection.path("plain.npy"),
        &vectors.iter().flat_map(|(_, vector)| vector.clone()).collect::<Vec<_>>(),
        dim,
    );
    let ran = collection.search("neighbors", &["plain.npy"], &["-k", "2", "-o", "knn.csv"]).expect(0);
    assert!(ran.stderr.contains("do not say what made them"), "{}", ran.stderr);
    collection.search("neighbors", &["v.parquet"], &["-k", "2", "-o", "ours.csv"]).expect(0);
    let number = |id: &str| vectors.iter().position(|(other, _)| other == id).unwrap().to_string();
    let ours = collection.csv("ours.csv");
    let ours: Vec<_> =
        ours.iter().map(|row| vec![number(&row[0]), number(&row[1]), row[2].clone(), row[3].clone()]).collect();
    assert_eq!(collection.csv("knn.csv"), ours);
    // The table of neighbours has no vectors.
    collection.search("neighbors", &["v.parquet"], &["-k", "2", "-o", "knn.parquet"]).expect(0);
    collection.search("neighbors", &["knn.parquet"], &["-o", "x.csv"]).expect_error(2, "score) has lists of");
    let image = ["--query", "photos/07.jpg"];
    collection.search("similar", &["plain.npy"], &image).expect_error(2, "do not say what made them; --model names");
    let with_model = [&image[..], &["--model", TINY, "-k", "3", "--json"]].concat();
    let found = collection.search("similar", &["plain.npy"], &with_model).expect(0).json();
    let ours = collection.search("similar", &["v.parquet"], &[&image[..], &["-k", "3", "--json"]].concat());
    let of = |found: &serde_json::Value| {
        let similar = found[0]["similar"].as_array().unwrap().clone();
        similar.into_iter().map(|one| one["score"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of(&found), of(&ours.expect(0).json()));
    collection.embed("photos", "wide.npy", &["--pooling", "cls+mean"]);
    // Equal numbers of rows are no equal images.
    fs::copy(collection.path("plain.npy"), collection.path("old.npy")).unwrap();
    let own = ["--against", "plain.npy", "-o", "known.csv"];
    collection.search("duplicates", &["plain.npy"], &own).expect_error(2, "plain.npy is on both sides");
    let against = ["--against", "old.npy", "--threshold", "0.9999", "--trust-ids", "-o", "known.csv", "--json"];
    let ran = collection.search("duplicates", &["plain.npy"], &against).expect(0);
    assert_eq!(ran.json()["removable"], vectors.len(), "{ran:?}");
    let queries = ["--queries", "wide.npy", "-o", "x.csv"];
    collection.search("neighbors", &["plain.npy"], &queries).expect_error(2, "vectors of 64 and of 128 dimensions");
}

#[test]
fn ids_of_other_programs_are_never_invented_in_silence() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    let vectors = collection.vectors("v.parquet");
    let dim = vectors[0].1.len();
    let all: Vec<f32> = vectors.iter().flat_map(|(_, vector)| vector.clone()).collect();
    write_array(&collection.path("plain.npy"), &all, dim);
    let names: Vec<String> = (0..vectors.len()).map(|number| format!("photo {number}")).collect();
    let searched = |input: &str, more: &[&str]| {
        let options = [&["-k", "1", "-o", "knn.csv", "--overwrite"], more].concat();
        let ran = collection.search("neighbors", &[input], &options).expect(0);
        let ids: Vec<String> = collection.csv("knn.csv").into_iter().map(|row| row[0].clone()).collect();
        (ids, ran.stderr)
    };
    // An array has no ids, unless a file has them.
    let numbers: Vec<String> = (0..vectors.len()).map(|number| number.to_string()).collect();
    let (ids, said) = searched("plain.npy", &[]);
    assert!(ids == numbers && said.contains("it has no ids, so rows have their numbers; --ids names"), "{said}");
    fs::write(collection.path("names.txt"), names.join("\n")).unwrap();
    assert_eq!(searched("plain.npy", &["--ids", "names.txt"]).0, names);
    fs::write(collection.path("few.txt"), names[1..].join("\n")).unwrap();
    let few = ["--ids", "few.txt", "-o", "x.csv"];
    collection.search("neighbors", &["plain.npy"], &few).expect_error(2, "--ids has fewer ids than there are rows");
    fs::write(collection.path("many.txt"), [names.join("\n"), "one more".to_owned()].join("\n")).unwrap();
    let many = ["--ids", "many.txt", "-o", "x.csv"];
    collection.search("neighbors", &["plain.npy"], &many).expect_error(2, "--ids has 1 more ids than there are rows");
    // CSV: a column of lists, and a column for each number. A caption is no id.
    let lists: Vec<String> = vectors.iter().map(|(_, vector)| format!("\"{vector:?}\"")).collect();
    let mut table = String::from("caption,key,emb\n");
    let mut wide = format!("key,{}\n", (0..dim).map(|at| at.to_string()).collect::<Vec<_>>().join(","));
    for (number, (_, vector)) in vectors.iter().enumerate() {
        table.push_str(&format!("the same,{},{}\n", names[number], lists[number]));
        let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
        wide.push_str(&format!("{},{}\n", names[number], numbers.join(",")));
    }
    fs::write(collection.path("table.csv"), table.replace(",key,", ",product,")).unwrap();
    fs::write(collection.path("wide.csv"), wide).unwrap();
    let (ids, said) = searched("table.csv", &[]);
    assert!(ids == numbers && said.contains("known to have ids (caption, product)"), "{said}");
    let (ids, said) = searched("table.csv", &["--id-column", "product"]);
    assert!(ids == names && said.contains("ids are from 'product'"), "{said}");
    assert_eq!(searched("wide.csv", &[]).0, names);
    // The index of pandas has no name.
    let indexed = fs::read_to_string(collection.path("wide.csv")).unwrap().replacen("key,", ",", 1);
    fs::write(collection.path("indexed.csv"), indexed).unwrap();
    assert_eq!(searched("indexed.csv", &[]).0, names);
    fs::write(collection.path("hole.csv"), table.replace("photo 3,", ",")).unwrap();
    collection
        .search("neighbors", &["hole.csv"], &["-o", "x.csv"])
        .expect_error(2, "hole.csv: row 4 has no id in 'key'");
    // NumPy's archives and safetensors.
    let mut strings = Vec::new();
    for name in &names {
        let units = name.chars().chain(std::iter::repeat('\0')).take(9);
        strings.extend(units.flat_map(|unit| u32::from(unit).to_le_bytes()));
    }
    let header = format!("{{'descr': '<U9', 'fortran_order': False, 'shape': ({},), }}\n", names.len());
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    fs::write(collection.path("ids.npy"), [start, strings].concat()).unwrap();
    assert_eq!(searched("plain.npy", &["--ids", "ids.npy"]).0, names);
    let mut archive = rawzip::ZipArchiveWriter::new(fs::File::create(collection.path("x.npz")).unwrap());
    for (name, file) in [("vectors.npy", "plain.npy"), ("ids.npy", "ids.npy")] {
        let (mut entry, config) = archive.new_file(name).start().unwrap();
        let mut writer = config.wrap(&mut entry);
        std::io::Write::write_all(&mut writer, &fs::read(collection.path(file)).unwrap()).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    let (ids, said) = searched("x.npz", &[]);
    assert!(ids == names && said.contains("ids are from 'ids'"), "{said}");
    let bytes: Vec<u8> = all.iter().flat_map(|x| x.to_le_bytes()).collect();
    let header =
        format!(r#"{{"emb":{{"dtype":"F32","shape":[{},{dim}],"data_offsets":[0,{}]}}}}"#, vectors.len(), bytes.len());
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    fs::write(collection.path("x.safetensors"), [start, bytes].concat()).unwrap();
    assert_eq!(searched("x.safetensors", &["--ids", "names.txt"]).0, names);
    // Some of the rows.
    fs::write(collection.path("some.txt"), "photo 2\nphoto 5\nabsent\n").unwrap();
    let (ids, said) = searched("x.npz", &["--ids-from", "some.txt"]);
    assert!(ids == ["photo 2", "photo 5"] && said.contains("1 of 3 ids in --ids-from are not there"), "{said}");
    // What they are.
    for (file, ids) in [("x.npz", "ids are from 'ids'"), ("x.safetensors", "(emb)"), ("wide.csv", "ids are from 'key'")]
    {
        let shown = run(foveate().arg("inspect").arg(collection.path(file)).arg("--json")).expect(0).json();
        let rows = vectors.len();
        assert_eq!((&shown["rows"], &shown["dims"][0], &shown["zero_rows"]), (&rows.into(), &dim.into(), &0.into()));
        assert!(shown["ids"].as_str().unwrap().contains(ids), "{shown}");
    }
}

#[test]
fn tables_are_lines_too_and_a_full_disk_leaves_nothing_behind() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    let ran = collection.search("neighbors", &["v.parquet"], &["-k", "1", "-o", "-"]).expect(0);
    assert!(ran.stdout.starts_with("id,neighbor,rank,score\n") && ran.stdout.lines().count() == 13, "{}", ran.stdout);
    assert!(ran.stderr.contains("- has the 1 nearest of 12 rows"), "{}", ran.stderr);
    for (name, options) in [("x.jsonl", &[][..]), ("x.jsonl", &["--overwrite"])] {
        collection.search("neighbors", &["v.parquet"], &[&["-k", "1", "-o", name], options].concat()).expect(0);
    }
    let lines = fs::read_to_string(collection.path("x.jsonl")).unwrap();
    for (line, row) in lines.lines().zip(ran.stdout.lines().skip(1)) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let names = ["id", "neighbor", "rank"].map(|name| object[name].to_string().replace('"', ""));
        let (before, score) = row.rsplit_once(',').unwrap();
        assert_eq!((names.join(",").as_str(), object["score"].as_f64()), (before, score.parse().ok()));
    }
    for output in ["full.csv", "full.jsonl", "full.parquet"] {
        let mut command = std::process::Command::new("sh");
        let limited = r#"trap '' XFSZ; ulimit -f 1; exec "$0" neighbors v.parquet -k 11 -o "$1""#;
        command.current_dir(collection.path("")).args(["-c", limited, env!("CARGO_BIN_EXE_foveate"), output]);
        let ran = run(&mut command).expect(1);
        assert!(ran.stderr.contains("File too large") && !ran.stderr.contains("damaged"), "{}", ran.stderr);
        let left = fs::read_dir(collection.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("full")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_image_is_named_by_the_end_of_its_id() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    let found = collection.search("similar", &["v.parquet"], &["--id", "03.jpg", "-k", "1", "--json"]).expect(0).json();
    assert_eq!(name(found[0]["similar"][0]["id"].as_str().unwrap()), "03 copy.jpg");
    collection.search("similar", &["v.parquet"], &["--id", "padded"]).expect_error(2, "did you mean /");
    collection.search("similar", &["v.parquet"], &[]).expect_error(2, "--query <IMAGE>|--id <ID>");
}

#[test]
fn only_files_of_searches_are_replaced_and_only_when_told() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    collection.embed("photos", "other.parquet", &[]);
    let key = collection.path("photos/07.jpg").display().to_string();
    let commands: [(&str, &[&str]); 5] = [
        ("neighbors", &[]),
        ("duplicates", &[]),
        ("similar", &["--id", &key]),
        ("clusters", &["-k", "2"]),
        ("sample", &["-n", "2"]),
    ];
    fs::write(collection.path("own.csv"), "id,label\n07.jpg,cat\n").unwrap();
    fs::write(collection.path("own.html"), "<!doctype html>").unwrap();
    fs::write(collection.path("cut.parquet"), "PAR1").unwrap();
    fs::copy(collection.path("v.parquet"), collection.path("alone.parquet")).unwrap();
    // The output of an interrupted run, and one whose file is away.
    run(embed(&collection.path("begun.parquet"))
        .arg(collection.path("photos"))
        .args(["--max-failures", "0"])
        .arg(collection.path("own.csv")))
    .expect(3);
    fs::copy(collection.path("_v.parquet.manifest.json"), collection.path("_away.parquet.manifest.json")).unwrap();
    let before = tree(&collection.path(""));
    for (command, more) in commands {
        let search = |files: &[&str]| collection.search(command, &["v.parquet"], &[more, files].concat());
        for overwrite in [&[][..], &["--overwrite"]] {
            for name in ["alone.parquet", "own.csv", "cut.parquet"] {
                search(&[&["-o", name][..], overwrite].concat()).expect_error(2, "no search wrote it; name another");
            }
            for name in ["other.parquet", "begun.parquet", "away.parquet"] {
                search(&[&["-o", name][..], overwrite].concat()).expect_error(2, "belongs to an output of that name");
            }
            if command != "neighbors" {
                for name in ["alone.parquet", "own.html", "own.csv"] {
                    let ran =
                        search(&[&["-o", "new.csv", "--html", name, "--images", "photos"][..], overwrite].concat());
                    ran.expect_error(2, "no search wrote it; name another");
                }
                search(&["-o", "new.csv", "--html", "new.csv"]).expect_error(2, "cannot write two files");
                search(&["-o", "new.csv", "--html", "v.parquet"]).expect_error(2, "name another place");
            }
        }
        assert!(tree(&collection.path("")) == before, "{command} has changed a file");
        let html = if command == "neighbors" { &[][..] } else { &["--html", "x.html", "--images", "photos"] };
        for table in ["x.csv", "x.parquet"] {
            search(&[&["-o", table][..], html].concat()).expect(0);
            search(&["-o", table]).expect_error(2, "already exists; pass --overwrite to replace it");
            let written = fs::read(collection.path(table)).unwrap();
            search(&[&["-o", table, "--overwrite"][..], html].concat()).expect(0);
            assert_eq!(fs::read(collection.path(table)).unwrap(), written);
            fs::remove_file(collection.path(table)).unwrap();
            if command != "neighbors" {
                search(&[&["-o", "x.csv"], html].concat()).expect_error(2, "x.html already exists; pass --overwrite");
                fs::remove_file(collection.path("x.html")).unwrap();
            }
        }
        assert!(tree(&collection.path("")) == before, "{command} has left a file");
    }
}

#[test]
fn outputs_belong_together_by_what_decides_a_vector() {
    let collection = Collection::new();
    let (photos, elsewhere) = (collection.path("photos"), collection.path("elsewhere"));
    fs::create_dir(collection.path("more")).unwrap();
    fs::copy(collection.path("photos/07.jpg"), collection.path("more/again.jpg")).unwrap();
    std::os::unix::fs::symlink(TINY, &elsewhere).unwrap();
    let slash = format!("{TINY}/");
    let job = |model: &str, folder: &str, output: &str, more: &[&str]| {
        let mut command = foveate();
        command.args(["embed", "--model", model, "-o"]).arg(collection.path(output)).arg(collection.path(folder));
        run(command.args(more))
    };
    job(TINY, "photos", "v.parquet", &[]).expect(0);
    let limits = ["--allow-truncated", "--max-pixels", "1000000", "--max-bytes", "1000000"];
    for model in [&slash, elsewhere.to_str().unwrap()] {
        job(model, "more", "w.parquet", &[&limits[..], &["--overwrite"]].concat()).expect(0);
        let found = ["-k", "1", "-o", "knn.csv", "--overwrite"];
        collection.search("neighbors", &["v.parquet", "w.parquet"], &found).expect(0);
        collection.search("merge", &["v.parquet", "w.parquet"], &["-o", "all.parquet", "--overwrite"]).expect(0);
        let merged = run(foveate().args(["inspect", "--json"]).arg(collection.path("all.parquet"))).expect(0).json();
        assert!(merged["model"].as_str().is_some_and(|model| Path::new(model).exists()), "{merged}");
        fs::copy(photos.join("07.jpg"), photos.join(format!("{}.jpg", model.len()))).unwrap();
        let updated = job(model, "photos", "v.parquet", &[&limits[..], &["--update", "--json"]].concat()).expect(0);
        assert_eq!(updated.json()["update"]["added"], 1);
        job(model, "photos", "v.parquet", &["--update", "--pooling", "mean"]).expect_error(2, "pooling: cls → mean");
    }
    // A cosine is that of vectors of any length, a product is not.
    job(TINY, "more", "l2.parquet", &["--normalize", "l2"]).expect(0);
    collection.search("neighbors", &["v.parquet", "l2.parquet"], &["-o", "l2.csv"]).expect(0);
    for (command, more) in [("neighbors", &["-o", "x.csv", "--metric", "dot"][..]), ("merge", &["-o", "x.npy"])] {
        collection.search(command, &["v.parquet", "l2.parquet"], more).expect_error(2, "normalize: off → l2");
    }
}

#[test]
fn arrays_that_have_lost_their_ids_are_told() {
    let collection = Collection::new();
    collection.embed("photos", "v.npy", &[]);
    let search = |input: &str| collection.search("neighbors", &[input], &["-k", "2", "-o", "knn.csv", "--overwrite"]);
    fs::copy(collection.path("v.npy"), collection.path("copy.npy")).unwrap();
    let ran = search("copy.npy").expect(0);
    assert!(ran.stderr.contains("copy.npy: it has no ids, so rows have their numbers; --ids"), "{}", ran.stderr);
    let ids = ["-k", "2", "-o", "knn.csv", "--overwrite", "--ids", "v.npy.ids.csv"];
    collection.search("neighbors", &["copy.npy"], &ids).expect(0);
    assert!(collection.csv("knn.csv")[0][0].ends_with(".jpg"));
    fs::copy(collection.path("v.npy.ids.csv"), collection.path("copy.npy.ids.csv")).unwrap();
    search("copy.npy").expect_error(2, "_copy.npy.manifest.json is missing; if it was copied or renamed");
    fs::copy(collection.path("_v.npy.manifest.json"), collection.path("_copy.npy.manifest.json")).unwrap();
    search("copy.npy").expect(0);
    assert!(collection.csv("knn.csv")[0][0].ends_with(".jpg"));
    fs::remove_file(collection.path("copy.npy.ids.csv")).unwrap();
    search("copy.npy").expect_error(1, "copy.npy.ids.csv is missing");
}

#[test]
fn the_memory_that_is_announced_bounds_what_is_taken() {
    let collection = Collection::new();
    let (rows, dim) = (20_000, 64);
    let mut random = fastrand::Rng::with_seed(1);
    for name in ["noise.npy", "new.npy"] {
        let values: Vec<f32> = (0..rows * dim).map(|_| random.f32() - 0.5).collect();
        write_array(&collection.path(name), &values, dim);
    }
    let id = |row: usize| format!("/collections/{}/{row:06}.jpg\n", "long name ".repeat(10));
    fs::write(collection.path("one.txt"), (0..rows).map(id).collect::<String>()).unwrap();
    fs::write(collection.path("both.txt"), (0..2 * rows).map(id).collect::<String>()).unwrap();
    let searches: [(&str, &[&str]); 7] = [
        ("neighbors", &["-k", "100"]),
        ("neighbors", &["-k", "10", "--queries", "new.npy"]),
        ("duplicates", &["--threshold", "0.4"]),
        ("duplicates", &["--threshold", "0.4", "--against", "new.npy"]),
        ("clusters", &["-k", "200"]),
        ("sample", &["-n", "10%"]),
        ("sample", &["-n", "500", "--by", "clusters"]),
    ];
    for (command, more) in searches {
        let ids = if more.contains(&"new.npy") { "both.txt" } else { "one.txt" };
        let options = ["--ids", ids, "-o", "x.parquet", "--overwrite", "--json"];
        let ran = collection.search(command, &["noise.npy"], &[more, &options].concat()).expect(0);
        let [announced, taken] = ["memory_bytes", "peak_resident_bytes"].map(|name| ran.json()[name].as_u64().unwrap());
        assert!(taken <= announced && announced < 3 * taken, "{command} {more:?}: {taken} of {announced}");
        assert!(ran.stderr.contains("; at most about "), "{}", ran.stderr);
        assert_eq!(
            ran.json()["chosen"].as_u64().unwrap_or(2000),
            if more.len() > 2 && command == "sample" { 500 } else { 2000 }
        );
    }
}

#[test]
fn an_interrupted_search_continues_and_parts_make_the_whole() {
    let collection = Collection::new();
    let (rows, dim) = (60_000, 64);
    let mut random = fastrand::Rng::with_seed(1);
    let values: Vec<f32> = (0..rows * dim).map(|_| random.f32() - 0.5).collect();
    write_array(&collection.path("noise.npy"), &values, dim);
    let dry = collection.search("neighbors", &["noise.npy"], &["-k", "3", "-o", "dry.csv", "--dry-run", "--json"]);
    let predicted = dry.expect(0).json()["predicted"].clone();
    assert_eq!((&predicted[0]["rows"], predicted.as_array().unwrap().len()), (&60_000.into(), 4));
    assert!(!collection.path("dry.csv").exists());
    let arguments = ["neighbors", "noise.npy", "-k", "3", "--threads", "1", "-o", "whole.csv"];
    let mut command = foveate();
    command.current_dir(collection.path("")).args(arguments).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The search, which takes half a second or more, begins after this line.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("of memory")));
    std::thread::sleep(Duration::from_millis(100));
    let pid = Pid::from_raw(child.id().cast_signed());
    let interrupted = kill(pid, Signal::SIGINT).is_ok() && child.wait().unwrap().code() == Some(130);
    assert!(interrupted && !collection.path("whole.csv").exists());
    let state = collection.path("_whole.csv.state").exists();
    let ran = run(foveate().current_dir(collection.path("")).args(arguments)).expect(0);
    assert_eq!(ran.stderr.contains("continuing: "), state, "{}", ran.stderr);
    assert!(!collection.path("_whole.csv.state").exists());
    // A part compares its rows with all others, each pair twice.
    let mut parts = Vec::new();
    for shard in ["0/3", "1/3", "2/3"] {
        collection
            .search("neighbors", &["noise.npy"], &["-k", "3", "--shard", shard, "-o", "part.csv", "--overwrite"])
            .expect(0);
        parts.extend(collection.csv("part.csv"));
    }
    assert!(parts == collection.csv("whole.csv") && parts.len() == 3 * rows);
}

#[test]
fn what_cannot_work_is_said_before_anything_is_read() {
    let collection = Collection::new();
    collection.embed("photos", "v.parquet", &[]);
    collection.embed("photos", "mean.npy", &["--pooling", "mean"]);
    let refused = |inputs: &[&str], more: &[&str], why: &str| {
        let ran = collection.search("neighbors", inputs, more).expect(2);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    };
    refused(&["v.parquet"], &["-o", "knn.txt"], "knn.txt: name an output x.parquet, x.csv or x.jsonl");
    refused(&["missing"], &["-o", "knn.csv"], "there is no such output");
    fs::create_dir(collection.path("_begun.parquet.partial")).unwrap();
    refused(&["begun.parquet"], &["-o", "knn.csv"], "begun.parquet: it is unfinished; repeat the command");
    refused(&["photos"], &["-o", "knn.csv"], "it has no manifest of foveate");
    refused(&["v.parquet"], &["-o", "v.parquet"], "name another place");
    refused(&["v.parquet", "mean.npy"], &["-o", "knn.csv"], "search outputs with the same settings");
    refused(&["v.parquet"], &["--queries", "mean.npy", "-o", "knn.csv"], "search outputs with the same settings");
    refused(&["v.parquet"], &["-k", "0", "-o", "knn.csv"], "'0'");
    refused(&["v.parquet", "v.parquet"], &["-o", "knn.csv"], "two rows with the id");
    fs::write(collection.path("empty.parquet"), "").unwrap();
    let ran = collection.search("neighbors", &["empty.parquet"], &["-o", "knn.csv"]);
    assert!(ran.code == 1 && ran.stderr.contains("empty.parquet"), "{}", ran.stderr);
    fs::write(collection.path("empty.npy"), "").unwrap();
    let ran = collection.search("neighbors", &["empty.npy"], &["-o", "knn.csv"]);
    assert!(ran.code == 1 && ran.stderr.contains("empty.npy"), "{}", ran.stderr);
    let ran = collection.search("duplicates", &["v.parquet"], &["--threshold", "1.5", "-o", "x.csv"]).expect(2);
    assert!(ran.stderr.contains("1.5"), "{}", ran.stderr);
    assert!(!collection.path("knn.csv").exists() && !collection.path("x.csv").exists());
}
