//! The outcomes of inputs: lists in every form, folders that go away, listings that have no end.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::kills::committed;
use crate::common::{PHOTOS, embed, ended, run};

/// Makes `count` files of one photo in `folder`, and returns their paths in order.
fn copies(folder: &Path, count: usize) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let paths: Vec<_> = (0..count).map(|number| folder.join(format!("{number:04}.jpg"))).collect();
    fs::copy(format!("{PHOTOS}/01_astronaut_420.jpg"), &paths[0]).unwrap();
    paths[1..].iter().for_each(|path| fs::hard_link(&paths[0], path).unwrap());
    paths
}

/// Joins paths, each followed by `end`.
fn lines(paths: &[PathBuf], end: &str) -> String {
    paths.iter().map(|path| format!("{}{end}", path.display())).collect()
}

/// The ids column of an npy output's sidecar.
fn ids(folder: &Path) -> Vec<String> {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sidecar = files.find(|path| path.to_string_lossy().ends_with("ids.csv")).expect("a sidecar");
    fs::read_to_string(sidecar).unwrap().lines().skip(1).map(str::to_owned).collect()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn failures_of_earlier_sessions_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = copies(&folder.path().join("photos"), 40);
    fs::create_dir(folder.path().join("bad")).unwrap();
    for place in 0..20 {
        let bad = folder.path().join(format!("bad/{place}.jpg"));
        fs::write(&bad, "no image").unwrap();
        paths.insert(3 * place, bad);
    }
    let out = folder.path().join("x.npy");
    let mut job = embed(&out);
    job.args(["--batch", "4"]).args(&paths);
    for _ in 0..3 {
        let ran = run(job.args(["--max-failures", "5"])).expect(3);
        assert!(ran.stderr.contains("6 of 16 inputs failed, more than the limit of 5"), "{}", ran.stderr);
    }
    run(job.args(["--max-failures", "2"])).expect_error(3, "4 of 12 inputs failed, more than the limit of 2;");
    run(job.args(["--max-failures", "20"])).expect(0);
}

#[test]
fn a_folder_that_goes_away_stops_the_run_and_nothing_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (photos, away, out) = (folder.path().join("photos"), folder.path().join("away"), folder.path().join("out"));
    copies(&photos, 600);
    let mut job = embed(&out);
    job.args(["--batch", "4", "--json"]).arg(&photos);
    let child = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while committed(&out).len() < 3 {
        assert!(Instant::now() < deadline, "nothing is written");
        sleep(Duration::from_millis(2));
    }
    fs::rename(&photos, &away).unwrap();
    let stopped = child.wait_with_output().unwrap();
    let told = String::from_utf8(stopped.stderr).unwrap();
    assert_eq!(stopped.status.code(), Some(1), "{told}");
    assert!(told.contains("photos cannot be read any more: No such file"), "{told}");
    fs::rename(&away, &photos).unwrap();
    let resumed = run(&mut job).expect(0).json();
    assert_eq!((&resumed["vectors"], &resumed["failures"]), (&600.into(), &0.into()), "{resumed}");
    assert!(resumed["session"]["resumed"].as_u64().unwrap() > 0, "{resumed}");
}

#[test]
fn a_listed_disk_that_is_gone_stops_the_run_and_nothing_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, away, list) = (folder.path().join("disk"), folder.path().join("away"), folder.path().join("list"));
    let mut paths = copies(&folder.path().join("photos"), 20);
    paths.extend(copies(&disk, 150));
    paths.push(paths[0].clone());
    fs::write(&list, lines(&paths, "\n")).unwrap();
    fs::rename(&disk, &away).unwrap();
    let job = |name: &str| {
        let mut job = embed(&folder.path().join(name));
        job.arg("--json").arg("--from-list").arg(&list);
        job
    };
    for _ in 0..2 {
        run(&mut job("x.npy"))
            .expect_error(1, "inputs in a row cannot be read, as if their disk or store were gone; the first: ");
    }
    let off = run(job("off.npy").args(["--max-unreadable", "off"])).expect(0).json();
    assert_eq!((&off["vectors"], &off["failures"]), (&21.into(), &150.into()), "{off}");
    fs::rename(&away, &disk).unwrap();
    let resumed = run(&mut job("x.npy")).expect(0).json();
    assert_eq!((&resumed["failures"], &resumed["session"]["resumed"]), (&0.into(), &20.into()), "{resumed}");
}

#[test]
fn a_name_with_a_backslash_has_an_id_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    copies(&photos, 1);
    for name in [&br"bad\xff.jpg"[..], b"bad\xff.jpg"] {
        fs::hard_link(photos.join("0000.jpg"), photos.join(OsStr::from_bytes(name))).unwrap();
    }
    run(embed(&folder.path().join("x.npy")).arg(&photos)).expect(0);
    let ids = ids(folder.path());
    let ends = |end: &str| ids.iter().filter(|id| id.contains(end)).count();
    assert_eq!((ends(r"/bad\\xff.jpg"), ends(r"/bad\xff.jpg")), (1, 1), "{ids:?}");
}

#[test]
fn one_signal_ends_a_listing_that_waits_for_its_list() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["INT", "TERM", "HUP"] {
        let mut job = embed(&folder.path().join("x.npy"));
        let mut child = job.args(["--from-list", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // More than fits into a pipe, so that the program has begun to read when all is written.
        stdin.write_all("a.jpg\n".repeat(100_000).as_bytes()).unwrap();
        signal(&child, name);
        assert_eq!(ended(child).code(), Some(130), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_list_without_an_end_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut yes = Command::new("yes").arg("photo.jpg").stdout(Stdio::piped()).spawn().unwrap();
    let mut job = embed(&folder.path().join("x.npy"));
    job.args(["--from-list", "-", "--max-listing", "1M"]).stdin(Stdio::from(yes.stdout.take().unwrap()));
    run(&mut job).expect_error(2, "take more than 1000000 bytes; raise --max-listing");
    drop(job); // it holds the pipe that `yes` writes to
    yes.wait().unwrap();
}

#[test]
fn a_list_may_have_any_encoding_and_either_separator() {
    let folder = tempfile::tempdir().unwrap();
    let paths = copies(&folder.path().join("photos ü"), 3);
    let text = format!("\u{feff}{}\r\n  \r\n", lines(&paths, "\r\n"));
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let nul = lines(&paths, "\0");
    let lists: [(&str, &[u8], &[&str]); 3] =
        [("bom", text.as_bytes(), &[]), ("utf16", &utf16, &[]), ("nul", nul.as_bytes(), &["-0"])];
    let want: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    for (name, bytes, options) in lists {
        let place = folder.path().join(name);
        fs::create_dir(&place).unwrap();
        let list = folder.path().join(format!("{name}.txt"));
        fs::write(&list, bytes).unwrap();
        run(embed(&place.join("x.npy")).arg("--from-list").arg(&list).args(options)).expect(0);
        let found = ids(&place);
        assert!(found.len() == 3 && found.iter().zip(&want).all(|(id, path)| id.contains(path)), "{name}: {found:?}");
    }
    let nul = folder.path().join("nul.txt");
    run(embed(&folder.path().join("x.npy")).arg("--from-list").arg(&nul)).expect_error(2, "; pass -0 if NUL separates");
}

#[test]
fn images_that_no_decoder_reads_are_counted_as_images() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    copies(&photos, 1);
    for name in ["a.PSD", "b.psd", "c.cr2", "notes.txt"] {
        fs::write(photos.join(name), "").unwrap();
    }
    let ran = run(embed(&folder.path().join("x.npy")).arg(&photos).arg("--json")).expect(0);
    let left_out = json!({ "foreign": { "cr2": 1, "psd": 2 }, "containers": 0, "other": 1, "hidden": 0, "system": 0, "excluded": 0 });
    assert_eq!(ran.json()["left_out"], left_out);
    assert!(
        ran.stderr.contains("3 images that this build cannot read (1 .cr2, 2 .psd; convert them"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("1 files without an image's extension"), "{}", ran.stderr);
}

#[test]
fn shards_of_another_number_are_refused_in_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    copies(&photos, 4);
    let shard = |out: &str, shard: &str| run(embed(&folder.path().join(out)).arg(&photos).args(["--shard", shard]));
    for out in ["x.npy", "out/"] {
        shard(out, "0/2").expect(0);
        shard(out, "1/4").expect_error(2, "which is of another number of shards; choose another output");
        shard(out, "1/2").expect(0);
    }
    shard("y.npy", "1/4").expect(0);
    shard("y.npy", "0/0").expect_error(2, "there is at least one shard; 0/1 is all inputs");
}
