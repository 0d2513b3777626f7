//! `foveate duplicates --list-removable`: what it lists can be removed without losing a picture.
#![cfg(unix)]
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{PHOTOS, Ran, TINY, foveate, run};
use foveate_sink_parquet::{Column, TableWriter};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A folder in which commands run.
struct Workplace {
    folder: TempDir,
    photos: Vec<PathBuf>,
}

impl Workplace {
    fn new() -> Self {
        let mut photos: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
        photos.sort_by_key(|path| (fs::metadata(path).unwrap().len(), path.clone()));
        Self { folder: tempfile::tempdir().unwrap(), photos }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Copies a photo to a file.
    fn photo(&self, number: usize, name: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::copy(&self.photos[number], self.path(name)).unwrap();
    }

    fn link(&self, target: &str, name: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        symlink(target, self.path(name)).unwrap();
    }

    fn run(&self, folder: &str, arguments: &[&str]) -> Ran {
        // Names are any bytes.
        let Output { status, stdout, stderr } =
            foveate().current_dir(self.path(folder)).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
    }

    fn embed(&self, inputs: &[&str], output: &str) {
        let arguments = [&["embed", "--model", TINY, "--overwrite", "-o", output], inputs].concat();
        self.run("", &arguments).expect(0);
    }

    /// Images that can be removed, after a search of exact copies.
    fn removable(&self, arguments: &[&str]) -> (Vec<String>, String) {
        let options = ["--threshold", "0.99999", "-o", "g.csv", "--overwrite", "--list-removable"];
        let ran = self.run("", &[&["duplicates"], arguments, &options].concat()).expect(0);
        (ran.stdout.lines().map(str::to_owned).collect(), ran.stderr)
    }

    /// The reasons in the table, by id.
    fn reason(&self, id: &str) -> String {
        let mut lines = csv::Reader::from_path(self.path("g.csv")).unwrap();
        let rows: Vec<csv::StringRecord> = lines.records().map(Result::unwrap).collect();
        rows.iter()
            .find(|row| &row[1] == id)
            .map_or_else(|| format!("{id} is in no group: {rows:?}"), |row| row[4].into())
    }
}

#[test]
fn names_of_a_file_are_no_duplicates_of_each_other() {
    let work = Workplace::new();
    work.photo(0, "in/2024/0.jpg");
    work.photo(1, "in/2024/1.jpg");
    work.link("../2024/1.jpg", "in/0-best/top.jpg");
    work.link("../0-best/top.jpg", "in/3-again/link of a link.jpg");
    work.embed(&["in"], "v.parquet");
    let (listed, said) = work.removable(&["v.parquet"]);
    assert_eq!((listed, work.reason("in/2024/1.jpg").as_str()), (vec![], "kept"));
    assert!(said.contains("2 names of a file that has another one"), "{said}");
    assert_eq!(work.reason("in/0-best/top.jpg"), "same file");

    // A copy is removable, and the file with links is the one that stays.
    work.photo(1, "in/1-copy/a.jpg");
    // A link to a file elsewhere frees nothing, but it has the picture.
    work.photo(0, "elsewhere/0.jpg");
    work.link("../../elsewhere/0.jpg", "in/4-linked/0.jpg");
    work.embed(&["in"], "v.parquet");
    assert_eq!(work.removable(&["v.parquet"]).0, ["in/1-copy/a.jpg"]);
    assert_eq!(work.reason("in/4-linked/0.jpg"), "link");

    // A hard link frees nothing.
    fs::hard_link(work.path("in/2024/0.jpg"), work.path("in/2024/0 hard.jpg")).unwrap();
    work.embed(&["in"], "v.parquet");
    let (listed, said) = work.removable(&["v.parquet"]);
    assert_eq!(listed, ["in/1-copy/a.jpg"]);
    assert!(said.contains("2 links would free nothing"), "{said}");
    assert_eq!(work.reason("in/2024/0.jpg"), "hard link");
}

#[test]
fn equal_checksums_are_not_the_same_bytes() {
    let work = Workplace::new();
    fs::create_dir(work.path("in")).unwrap();
    for (name, bytes) in ["in/a.bmp", "in/b.bmp"].iter().zip(crate::common::forged_pair()) {
        fs::write(work.path(name), bytes).unwrap();
    }
    work.embed(&["in"], "v.parquet");
    assert!(work.removable(&["v.parquet"]).0.is_empty());
    work.run("", &["duplicates", "v.parquet", "--threshold", "0.01", "-o", "g.csv", "--overwrite"]).expect(0);
    assert_eq!(work.reason("in/b.bmp"), "near");
}

#[test]
fn a_folder_that_is_there_twice_has_each_file_once() {
    let work = Workplace::new();
    work.photo(0, "in/a.jpg");
    work.photo(0, "in/b.jpg");
    work.photo(1, "in/c.jpg");
    work.link("in", "all");
    let ran = work.run("", &["embed", "--model", TINY, "in", "all", "-o", "v.parquet"]).expect(0);
    assert!(ran.stderr.contains("note: 3 names by links or in folders that are named twice"), "{ran:?}");
    assert_eq!(work.removable(&["v.parquet"]).0, ["in/b.jpg"]);
    // However paths are spelled, in one output and in others.
    let absolute = work.path("in/./").display().to_string();
    work.embed(&[&absolute], "absolute.parquet");
    work.embed(&["in/../all"], "other.parquet");
    let (listed, _) = work.removable(&["absolute.parquet", "v.parquet", "other.parquet"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    // Against the same files under other names, there is nothing new.
    for new in ["absolute.parquet", "other.parquet", "v.parquet"] {
        let (listed, said) = work.removable(&[new, "--against", "v.parquet"]);
        assert_eq!(listed, [""; 0], "{new}: {said}");
    }
    // A file of a name that is on the other side, too, is kept there.
    work.embed(&["in/b.jpg"], "b.parquet");
    work.embed(&["in/a.jpg"], "a.parquet");
    assert_eq!(work.removable(&["v.parquet", "--against", "a.parquet"]).0, ["in/b.jpg"]);
    assert_eq!(work.removable(&["other.parquet", "--against", "b.parquet"]).0, ["in/../all/a.jpg"]);
}

/// A week's output has the images of the week before.
#[test]
fn old_images_are_told_by_identity_before_their_scores() {
    let work = Workplace::new();
    work.photo(0, "in/a.jpg");
    // The same picture in other bytes, which comes first.
    let padded = [fs::read(&work.photos[0]).unwrap(), vec![0; 100]].concat();
    fs::write(work.path("in/0 padded.jpg"), padded).unwrap();
    work.photo(1, "in/b.jpg");
    work.embed(&["in"], "mon.parquet");
    work.photo(0, "in/z.jpg");
    work.photo(0, "in/zz.jpg");
    work.photo(2, "in/new.jpg");
    work.link("b.jpg", "in/link.jpg");
    work.embed(&["in"], "tue.parquet");
    for more in [&[][..], &["--threshold", "1"]] {
        let arguments = ["duplicates", "tue.parquet", "--against", "mon.parquet", "-o", "g.csv", "--overwrite"];
        let ran = work.run("", &[&arguments, more, &["--list-removable"]].concat()).expect(0);
        assert_eq!(ran.stdout, "in/z.jpg\nin/zz.jpg\n", "{}", ran.stderr);
        assert_eq!((work.reason("in/z.jpg"), work.reason("in/a.jpg")), ("same bytes".into(), "kept".into()));
        assert_eq!(work.reason("in/link.jpg"), "same file");
    }
    assert!(work.removable(&["mon.parquet", "--against", "tue.parquet"]).0.is_empty());
}

#[test]
fn files_that_cannot_be_looked_at_are_not_listed() {
    let work = Workplace::new();
    for name in ["in/a.jpg", "in/b.jpg"] {
        work.photo(0, name);
    }
    work.photo(1, "in/c.jpg");
    work.photo(1, "in/d.jpg");
    work.embed(&["in"], "v.parquet");
    assert_eq!(work.removable(&["v.parquet"]).0, ["in/b.jpg", "in/d.jpg"]);
    let elsewhere = |more: &[&str]| {
        let vectors = work.path("v.parquet").display().to_string();
        fs::create_dir_all(work.path("else")).unwrap();
        let options = ["duplicates", &vectors, "-o", "g.csv", "--overwrite", "--list-removable"];
        work.run("else", &[&options, more].concat()).expect(0)
    };
    let ran = elsewhere(&[]);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("2 of 2 groups: not removable"), "{ran:?}");
    assert_eq!(elsewhere(&["--trust-ids"]).stdout, "in/b.jpg\nin/d.jpg\n");
    // Ids are trusted, and other spellings are no others.
    work.embed(&["./in/../in/./", "./in"], "w.parquet");
    let again = work.path("w.parquet").display().to_string();
    let listed = elsewhere(&["--trust-ids", &again]).stdout;
    assert!(listed.starts_with("in/b.jpg\n") && !listed.contains("a.jpg\n"), "{listed}");
    assert_eq!(elsewhere(&["--trust-ids", "--against", &again]).stdout, "");

    // The kept one is gone, dangling, or another picture by now.
    fs::remove_file(work.path("in/a.jpg")).unwrap();
    work.link("nowhere.jpg", "in/a.jpg");
    let (listed, said) = work.removable(&["v.parquet"]);
    assert!(listed == ["in/d.jpg"] && said.contains("1 of 2 groups: not removable"), "{listed:?} {said}");
    fs::write(work.path("in/c.jpg"), "another").unwrap();
    let (listed, said) = work.removable(&["v.parquet", "--trust-ids"]);
    assert!(listed == ["in/a.jpg"] && said.contains("changed since it was embedded, such as in/c.jpg"), "{said}");
    // Another time is no other picture.
    work.photo(1, "in/c.jpg");
    fs::File::open(work.path("in/c.jpg")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(work.removable(&["v.parquet"]).0, ["in/d.jpg"]);
}

/// A name alone says nothing about what can be removed.
#[test]
fn moved_files_are_those_with_the_recorded_bytes() {
    let work = Workplace::new();
    for name in ["in/a.jpg", "in/b.jpg"] {
        work.photo(0, name);
    }
    for name in ["in/c.jpg", "in/d.jpg"] {
        work.photo(1, name);
    }
    work.embed(&["in"], "v.parquet");
    fs::rename(work.path("in"), work.path("moved")).unwrap();
    assert!(work.removable(&["v.parquet"]).0.is_empty());
    assert_eq!(work.removable(&["v.parquet", "--images", "moved"]).0, ["moved/b.jpg", "moved/d.jpg"]);
    // Other times are no other files, and other bytes are.
    fs::File::open(work.path("moved/a.jpg")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::copy(&work.photos[2], work.path("moved/c.jpg")).unwrap();
    let (listed, said) = work.removable(&["v.parquet", "--images", "moved"]);
    assert!(listed == ["moved/b.jpg"] && said.contains("1 of 2 groups: not removable"), "{listed:?} {said}");
    // Both names of one file.
    fs::remove_file(work.path("moved/a.jpg")).unwrap();
    work.link("b.jpg", "moved/a.jpg");
    assert!(work.removable(&["v.parquet", "--images", "moved"]).0.is_empty());
}

#[test]
fn members_are_told_apart_by_their_container() {
    let work = Workplace::new();
    work.photo(0, "in/a.jpg");
    work.photo(0, "in/b.jpg");
    let pack = ["pack", "in", "-o", "packed", "--format", "tar"];
    work.run("", &pack).expect(0);
    let tar = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tar");
    let shard = fs::read_dir(work.path("packed")).unwrap().map(|entry| entry.unwrap().path()).find(tar).unwrap();
    let shard = shard.file_name().unwrap().to_str().unwrap().to_owned();
    work.link(&format!("packed/{shard}"), "again.tar");
    work.embed(&[&format!("packed/{shard}"), "again.tar"], "v.parquet");
    let (listed, _) = work.removable(&["v.parquet"]);
    // Of the two members, one; and it is no member by another name of the container.
    assert!(listed.len() == 1 && listed[0].starts_with(&format!("packed/{shard}/")), "{listed:?}");
    // Of a moved container, the path is not told, because it is that of all members.
    work.embed(&[&format!("packed/{shard}")], "w.parquet");
    fs::rename(work.path("packed").join(&shard), work.path(&shard)).unwrap();
    let (listed, said) = work.removable(&["w.parquet", "--images", &shard]);
    assert!(listed.len() == 1 && listed[0].starts_with(&format!("packed/{shard}/")), "{listed:?} {said}");
    fs::rename(work.path(&shard), work.path("packed").join(&shard)).unwrap();
    // A container that was written again may have other members.
    work.photo(1, "in/a.jpg");
    work.run("", &[&pack[..], &["--overwrite"]].concat()).expect(0);
    let (listed, said) = work.removable(&["v.parquet"]);
    assert!(listed.is_empty() && said.contains("has changed since it was embedded"), "{listed:?} {said}");
}

#[test]
fn rows_of_a_table_are_the_files_that_they_name() {
    let work = Workplace::new();
    work.photo(0, "in/a.jpg");
    work.photo(0, "in/b.jpg");
    work.link("a.jpg", "in/link.jpg");
    for (table, paths) in [("names.parquet", ["in/link.jpg", "in/a.jpg"]), ("files.parquet", ["in/a.jpg", "in/b.jpg"])]
    {
        let mut writer = TableWriter::new(&work.path(table), "test", &["name", "path"]);
        let text = |texts: [&str; 2]| Column::Text(texts.map(str::to_owned).into());
        writer.write(vec![text(["first", "second"]), text(paths)]).unwrap();
        writer.finish().unwrap();
        work.embed(&[table, "--image-column", "path"], "rows.parquet");
        let expected = if table == "names.parquet" { vec![] } else { vec!["files.parquet/1"] };
        assert_eq!(work.removable(&["rows.parquet"]).0, expected);
        // Ids of a column are no paths, but the table says which files they are.
        work.embed(&[table, "--image-column", "path", "--id-column", "name"], "named.parquet");
        assert_eq!(work.removable(&["named.parquet"]).0, [""; 0]);
        let expected = if table == "names.parquet" { vec![] } else { vec!["second"] };
        assert_eq!(work.removable(&["named.parquet", "--images", table]).0, expected);
    }
}

/// 10,000 near rows have 50 million pairs, which would be 800 MB.
#[test]
fn a_tight_cluster_takes_the_memory_of_its_rows() {
    let work = Workplace::new();
    let mut random = fastrand::Rng::with_seed(3);
    let base: Vec<f32> = (0..32).map(|_| random.f32() - 0.5).collect();
    let rows = (0..10_000 * 32).map(|at| base[at % 32] + 0.01 * random.f32());
    let bytes: Vec<u8> = rows.flat_map(f32::to_le_bytes).collect();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (10000, 32), }\n";
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    fs::write(work.path("tight.npy"), [start, bytes].concat()).unwrap();
    let limited = |kilobytes: u32, more: &str| {
        let search = format!("duplicates tight.npy --threads 1 -o g.csv --overwrite {more}");
        // Memory that is written to: native libraries map much more than they use.
        let line = format!("ulimit -d {kilobytes}; exec \"$0\" {search}");
        let foveate = foveate().get_program().to_owned();
        run(Command::new("sh").current_dir(work.path("")).arg("-c").arg(line).arg(foveate))
    };
    let ran = limited(600_000, "").expect(0);
    assert!(ran.stdout.contains("has 1 group of 10000 rows"), "{ran:?}");
    limited(2_000_000, "--linkage complete").expect_error(2, "raise --threshold, or take --linkage single");
}

#[test]
fn a_search_for_duplicates_ends_at_ctrl_c() {
    let work = Workplace::new();
    let bytes: Vec<u8> = (0..40_000 * 32).flat_map(|at| (1.0 + 1e-3 * (at % 7) as f32).to_le_bytes()).collect();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (40000, 32), }\n";
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    fs::write(work.path("tight.npy"), [start, bytes].concat()).unwrap();
    let mut command = foveate();
    command.args(["duplicates", "tight.npy", "-o", "g.csv"]).current_dir(work.path("")).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("of memory")));
    sleep(Duration::from_secs(1));
    let begun = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(20) && !work.path("g.csv").exists());
}

/// The guide's own lines, on a folder of names that a line cannot hold, beside innocent ones that a torn name would be.
#[test]
fn the_guides_lines_remove_what_can_be_removed() {
    let work = Workplace::new();
    let odd = [
        OsStr::from_bytes(b"in/0\nin/innocent.jpg"),
        OsStr::from_bytes(b"in/1 with space.jpg"),
        OsStr::from_bytes(b"in/2 'quote\".jpg"),
        OsStr::from_bytes(b"in/3 back\\slash.jpg"),
        OsStr::from_bytes(b"in/4 \xff\xfe.jpg"),
        OsStr::from_bytes(b"in/5 $(touch x).jpg"),
        OsStr::from_bytes(b"in/6.jpg\r.jpg"),
        OsStr::from_bytes(b"-rf.jpg"),
    ];
    fs::create_dir_all(work.path("in/0\nin")).unwrap();
    work.photo(1, "in/innocent.jpg");
    work.photo(0, "in/! kept.jpg");
    for name in odd {
        fs::copy(&work.photos[0], work.folder.path().join(name)).unwrap();
    }
    work.embed(&["in", "./-rf.jpg"], "vectors.parquet");
    let (lines, said) = work.removable(&["vectors.parquet"]);
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert!(said.contains("1 name with a line break left out, such as \"in/0\\nin/innocent.jpg\"; --null"), "{said}");
    work.run("", &["duplicates", "vectors.parquet", "-o", "g.csv", "--null"]).expect_error(2, "--list-removable");
    let guide = include_str!("../../../../docs/search.md");
    let lines: Vec<&str> = guide.lines().skip_while(|line| !line.ends_with("--null > removable")).take(2).collect();
    let program = Path::new(foveate().get_program()).parent().unwrap().to_owned();
    let path = std::env::join_paths([program, "/usr/bin".into(), "/bin".into()]).unwrap();
    let script = format!("set -e; rm -f g.csv groups.csv; {}", lines.join("\n"));
    let ran = run(Command::new("sh").current_dir(work.path("")).env("PATH", path).arg("-c").arg(script));
    assert_eq!(ran.code, 0, "{ran:?}");
    for name in odd {
        assert!(!work.folder.path().join(name).exists(), "{name:?}");
    }
    assert!(work.path("in/innocent.jpg").exists() && work.path("in/! kept.jpg").exists() && !work.path("x").exists());
}

#[test]
fn rules_choose_what_is_kept() {
    let work = Workplace::new();
    for (name, age) in [("in/a/1.jpg", 20), ("in/b/2.jpg", 30), ("in/c/3.png", 10)] {
        work.photo(0, name);
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
        fs::File::open(work.path(name)).unwrap().set_modified(time).unwrap();
    }
    work.embed(&["in"], "v.parquet");
    for (arguments, kept, by) in [
        (&[][..], "in/a/1.jpg", "first"),
        (&["--keep", "oldest"], "in/b/2.jpg", "oldest"),
        (&["--keep", "newest"], "in/c/3.png", "newest"),
        (&["--keep", "largest,lossless"], "in/c/3.png", "lossless"),
        (&["--prefer", "in/*/2.*"], "in/b/2.jpg", "prefer in/*/2.*"),
        (&["--prefer", "c/**", "--prefer", "*.jpg"], "in/c/3.png", "prefer c/**"),
        (&["--prefer", "*.jpg", "--keep", "oldest"], "in/b/2.jpg", "prefer *.jpg, oldest"),
    ] {
        let (listed, _) = work.removable(&[&["v.parquet"], arguments].concat());
        assert_eq!(listed.len(), 2);
        let mut table = csv::Reader::from_path(work.path("g.csv")).unwrap();
        let row = table.records().next().unwrap().unwrap();
        assert_eq!((&row[1], &row[2], &row[8]), (kept, "true", by), "{arguments:?}");
    }
    let with = |more: &[&str]| work.run("", &[&["duplicates", "v.parquet", "-o", "x.csv"], more].concat());
    with(&["--prefer", "[a"]).expect_error(2, "--prefer [a");
    with(&["--keep", "best"]).expect_error(2, "largest, oldest, newest, lossless, first");
    with(&["--keep", "oldest", "--against", "v.parquet"]).expect_error(2, "--against");
}

/// As radiology has them: five pictures that are white after clipping.
#[test]
fn clipped_gray_is_counted_and_is_no_duplicate() {
    let work = Workplace::new();
    fs::create_dir_all(work.path("in")).unwrap();
    for number in 0..3_u16 {
        let pixel = |x: u32, y: u32| image::Luma([1000 + 97 * number + (7 * x * y) as u16 % 999]);
        let picture = image::ImageBuffer::from_fn(64, 64, pixel);
        picture.save(work.path(&format!("in/{number}.png"))).unwrap();
    }
    let ran = work.run("", &["embed", "--model", TINY, "in", "-o", "v.parquet"]).expect(0);
    assert!(ran.stdout.contains("note: 3 images of gray in more than 8 bits"), "{ran:?}");
    for more in [&[][..], &["--compare-pixels"]] {
        let (listed, said) = work.removable(&[&["v.parquet"], more].concat());
        assert!(listed.is_empty() && said.contains("2 images 'clipped'"), "{listed:?} {said}");
        assert_eq!(work.reason("in/1.png"), "clipped");
    }
    // Equal bytes are equal pictures.
    fs::copy(work.path("in/1.png"), work.path("in/1 copy.png")).unwrap();
    work.embed(&["in"], "v.parquet");
    assert_eq!(work.removable(&["v.parquet", "--prefer", "1.png"]).0, ["in/1 copy.png"]);
}

#[test]
fn pages_show_nothing_that_only_an_id_names() {
    let work = Workplace::new();
    work.photo(0, "secret/a.jpg");
    work.photo(0, "secret/b.jpg");
    work.photo(1, "mine/c.jpg");
    work.photo(1, "mine/d.jpg");
    work.embed(&["secret", "mine"], "v.parquet");
    for command in [&["duplicates"][..], &["clusters", "-k", "2"], &["sample", "-n", "4"]] {
        let page = [command, &["v.parquet", "-o", "x.csv", "--html", "x.html", "--overwrite"]].concat();
        work.run("", &page).expect_error(2, "--html x.html needs --images INPUT");
        work.run("", &[&page[..], &["--images", "mine"]].concat()).expect(0);
        let page = fs::read_to_string(work.path("x.html")).unwrap();
        assert!(page.contains("base64,") && page.contains("no picture"), "{command:?}");
    }
    let ran = work.run("", &["similar", "v.parquet", "--query", "mine/c.jpg", "--html", "y.html"]).expect(0);
    assert!(ran.stderr.contains("y.html will have no pictures of these vectors; --images names"), "{ran:?}");
    // Comparing pixels shows nothing.
    work.run("", &["duplicates", "v.parquet", "-o", "p.csv", "--compare-pixels"]).expect(0);
}

#[test]
fn a_model_is_not_fetched_because_a_manifest_names_it() {
    let work = Workplace::new();
    work.photo(0, "in/a.jpg");
    work.embed(&["in"], "v.parquet");
    let manifest = fs::read_to_string(work.path("_v.parquet.manifest.json")).unwrap();
    fs::write(work.path("_v.parquet.manifest.json"), manifest.replace(TINY, "somebody/else")).unwrap();
    let similar = |more: &[&str]| work.run("", &[&["similar", "v.parquet", "--query", "in/a.jpg"], more].concat());
    similar(&[]).expect_error(2, "pass --model somebody/else to fetch it, or --model with a folder");
    similar(&["--model", TINY]).expect(0);
}
