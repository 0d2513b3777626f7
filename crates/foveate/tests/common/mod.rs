//! Runs the binary as a user would.

// Each test file uses only some of these functions.
#![allow(dead_code)]

pub(crate) mod bucket;
pub(crate) mod kills;
pub(crate) mod packed;
pub(crate) mod rows;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/tiny");
pub(crate) const PHOTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/goldens/photos");
pub(crate) const CONFORMANCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/conformance");

/// `foveate embed` with the tiny model, commits at every batch, and nothing on a terminal.
pub(crate) fn embed(output: &Path) -> Command {
    let mut command = foveate();
    command.args(["embed", "--model", TINY, "--commit-every", "0", "-o"]).arg(output);
    command
}

/// Returns the binary's command, isolated from this machine's hub settings and array jobs.
pub(crate) fn foveate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foveate"));
    let foreign = |name: &str| ["HF_", "SLURM_", "JOB_COMPLETION"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars().filter(|(name, _)| foreign(name)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// The results of a run of the binary.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Panics with the whole output unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn expect_error(self, code: i32, text: &str) {
        let ran = self.expect(code);
        assert!(ran.stderr.contains(text), "no '{text}' in: {}", ran.stderr);
    }

    /// Parses the summary of `--json`.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

pub(crate) fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

/// Waits for the end of a child that a signal stops. One that hangs is killed, and the test fails.
#[track_caller]
pub(crate) fn ended(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    panic!("it hangs: {:?}", child.wait());
}

/// Returns every file below `folder`: its relative path and its bytes.
pub(crate) fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Panics, naming the files, unless both trees hold the same files with the same bytes.
#[track_caller]
pub(crate) fn assert_same_tree(left: &Path, right: &Path) {
    let (left, right) = (tree(left), tree(right));
    let names = |tree: &BTreeMap<PathBuf, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right));
    for (name, bytes) in &left {
        assert!(bytes == &right[name], "{} differs", name.display());
    }
}

/// Writes a list of `count` paths for `--from-list`: the fixture photos and damaged files, repeated.
pub(crate) fn long_list(folder: &Path, count: usize) -> PathBuf {
    let mut files: Vec<PathBuf> =
        fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_small(path)).collect();
    files.push(folder.join("absent.jpg"));
    files.sort();
    let lines: Vec<String> = (0..count).map(|i| files[i % files.len()].display().to_string()).collect();
    let list = folder.join("list.txt");
    fs::write(&list, lines.join("\n")).unwrap();
    list
}

fn is_small(path: &Path) -> bool {
    fs::metadata(path).unwrap().len() < 60_000
}

/// Reads a CSV file's rows as maps from column to value; the fields here contain no commas.
pub(crate) fn csv(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| header.iter().map(|h| (*h).to_owned()).zip(line.split(',').map(str::to_owned)).collect();
    lines.map(row).collect()
}

/// Reads a file's rows: f32 vectors of width `dim`.
pub(crate) fn npy_rows(path: &Path, dim: usize) -> Vec<Vec<f32>> {
    let bytes = fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values: Vec<f32> = bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    values.chunks_exact(dim).map(<[f32]>::to_vec).collect()
}

/// Returns the vectors of texts, as `embed-text` makes them with the model in `model`, of `dim` numbers each.
pub(crate) fn text_vectors(folder: &Path, model: &Path, texts: &[&str], dim: usize) -> Vec<Vec<f32>> {
    fs::write(folder.join("texts.txt"), texts.join("\n")).unwrap();
    let embed = ["embed-text", "texts.txt", "-o", "texts.npy", "-q", "--model"];
    run(foveate().current_dir(folder).args(embed).arg(model)).expect(0);
    npy_rows(&folder.join("texts.npy"), dim)
}

/// Two pictures with equal XXH3: a lane of 8 bytes that equals the hash's secret in its lower half is only added to a
/// sum, so that one picture may have the higher half of another lane.
pub(crate) fn forged_pair() -> [Vec<u8>; 2] {
    let image = image::RgbImage::from_fn(20, 15, |x, y| image::Rgb([9 * x as u8, 13 * y as u8, 99]));
    let mut bmp = Vec::new();
    image.write_to(&mut std::io::Cursor::new(&mut bmp), image::ImageFormat::Bmp).unwrap();
    [[0x00, 0xff], [0xff, 0x00]].map(|halves| {
        let mut forged = bmp.clone();
        // The first lanes of the stripes 3 and 5, with the secret's halves there.
        for (at, secret, half) in [(192, [0x72, 0x40, 0xa4, 0xa4], 0), (320, [0x82, 0x5a, 0xd0, 0x7d], 1)] {
            forged[at..at + 4].copy_from_slice(&secret);
            forged[at + 4..at + 8].fill(halves[half]);
        }
        forged
    })
}
