//! `cargo xtask gpu-bundle`: packs everything that the CUDA check needs on a machine with a GPU and without Rust.
//!
//! `gpu/README.md` says what the check measures. A trained model, labelled photos and photos of the usual size come
//! from the shared data set, if present. They must not be redistributed; the archive says so.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, succeed, target};
use crate::setup::entries;

const FEATURES: &str = "cli,exact,zune,image,fir,cuda,turbojpeg,nvjpeg,parquet,npy";
/// The archive's largest size in bytes.
const MOST: u64 = 64_000_000;
/// Packages with device tests, and the name of their test program.
const DEVICE_TESTS: [(&str, &str); 3] =
    [("foveate-cuda", "device"), ("foveate-encode-fused", "cuda"), ("foveate-decode-nvjpeg", "cuda")];
const NAME: &str = "foveate-gpu";
/// The packed scripts, in `xtask/gpu`; the other scripts there test these.
const SCRIPTS: [&str; 11] = [
    "README.md",
    "check.sh",
    "common.py",
    "checks.py",
    "numerics.py",
    "transformers_side.py",
    "forward.py",
    "torch_forward.py",
    "end_to_end.py",
    "baseline.py",
    "table.py",
];
const MODELS: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];
/// The packed files of a model's folder; the same network in other formats is left out.
const MODEL_FILES: [&str; 3] = ["config.json", "preprocessor_config.json", "model.safetensors"];
const SHARED: &str = "../shared/data";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Test the scripts that travel, and build nothing
    #[arg(long)]
    check: bool,
    /// A third of the photos
    #[arg(long)]
    slim: bool,
    /// Features of the program
    #[arg(long, value_name = "LIST", default_value = FEATURES)]
    features: String,
}

impl Args {
    /// Takes every nth labelled photo, and at most so many large ones: `(n, most)`.
    fn sample(&self) -> (usize, usize) {
        if self.slim { (3, 8) } else { (1, 24) }
    }
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    check(root)?;
    if args.check {
        return Ok(());
    }
    let target = target(root).join("gpu-bundle");
    let bundle = Bundle::empty(target.join(NAME))?;
    let binary = build(root, &target, &args.features)?;
    bundle.fill(root, &binary, args)?;
    bundle.add_device_tests(root, &target)?;
    let archive = bundle.pack(&root.join("target").join(format!("{NAME}.tar.gz")))?;
    let bytes = fs::metadata(&archive)?.len();
    println!("\n{}\n{}: {}", bundle.sizes()?, shown(root, &archive), megabytes(bytes));
    ensure!(bytes < MOST, "the archive is larger than {}; --slim makes it smaller", megabytes(MOST));
    Ok(())
}

/// Runs the scripts' own tests, which need no device, and checks that they are the scripts that the archive expects.
fn check(root: &Path) -> Result<()> {
    let scripts = root.join("xtask/gpu");
    for name in SCRIPTS {
        ensure!(scripts.join(name).is_file(), "xtask/gpu/{name} is not there");
    }
    succeed(Command::new("bash").arg("-n").arg(scripts.join("check.sh")))?;
    for path in entries(&scripts).iter().filter(|path| path.extension().is_some_and(|extension| extension == "py")) {
        let parses = "import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])";
        succeed(Command::new("python3").args(["-c", parses]).arg(path))?;
    }
    succeed(Command::new("python3").arg("-B").arg(scripts.join("pure_test.py")))
}

/// Builds and strips the program. It contains no path of this machine, neither of sources nor of libraries.
fn build(root: &Path, target: &Path, features: &str) -> Result<PathBuf> {
    let home = cargo_home()?;
    let mut flags = vec![remapped(root, "."), remapped(&home, "cargo")];
    // A registry's folder is named after its host. The last matching prefix wins.
    flags.extend(entries(&home.join("registry/src")).iter().map(|folder| remapped(folder, "crates")));
    let folder = target.join("build");
    let mut cargo = cargo(root);
    cargo.args(["build", "--release", "-p", "foveate", "--no-default-features"]);
    cargo.args(["--features", features]).arg("--target-dir").arg(&folder);
    // Replaces the flags that `cargo xtask setup` wrote, which name this machine's folders.
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    succeed(&mut cargo)?;
    let binary = target.join("foveate");
    succeed(Command::new("strip").arg("-o").arg(&binary).arg(folder.join("release/foveate")))?;
    let code = fs::read(&binary)?;
    for path in [root, &home] {
        let path = path.as_os_str().as_encoded_bytes();
        ensure!(!code.windows(path.len()).any(|window| window == path), "the program names a folder of this machine");
    }
    Ok(binary)
}

fn cargo_home() -> Result<PathBuf> {
    let own = env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"))).context("where is cargo's home?")
}

fn remapped(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}={to}", from.display())
}

/// The folder to pack.
struct Bundle {
    folder: PathBuf,
}

impl Bundle {
    /// Creates an empty folder; removes an earlier run's.
    fn empty(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    fn fill(&self, root: &Path, binary: &Path, args: &Args) -> Result<()> {
        self.copy(binary, "bin/foveate")?;
        for name in SCRIPTS {
            self.copy(&root.join("xtask/gpu").join(name), name)?;
        }
        let fixtures = root.join("tests/fixtures");
        for model in MODELS {
            self.copy_model(&fixtures.join("models").join(model), model)?;
            let goldens = format!("goldens/embeddings_{model}.safetensors");
            self.copy(&fixtures.join(&goldens), &goldens)?;
        }
        self.copy(&fixtures.join("goldens/seeded_embeddings.safetensors"), "goldens/seeded_embeddings.safetensors")?;
        for crop in entries(&fixtures.join("goldens/crop_hf_pil")) {
            self.copy_into(&crop, "goldens/crop_hf_pil")?;
        }
        self.copy_tree(&fixtures.join("conformance"), "conformance")?;
        self.copy_tree(&root.join("examples/photos"), "examples")?;
        let shared = root.join(SHARED);
        let (every, photos) = args.sample();
        let photos = self.add_photos(root, &shared, photos)?;
        let labelled = self.add_labelled(&shared, every)?;
        let built = format!("{}features {}\n{photos}{labelled}", commit(root)?, args.features);
        Ok(fs::write(self.folder.join("BUILT"), built)?)
    }

    /// Adds the programs of the tests that run on a device. Unlike the program, they name this machine's folders.
    fn add_device_tests(&self, root: &Path, target: &Path) -> Result<()> {
        for (package, test) in DEVICE_TESTS {
            let mut cargo = cargo(root);
            cargo.args(["test", "--release", "--no-run", "--message-format", "json", "-p", package, "--test", test]);
            cargo.args(if package == "foveate-encode-fused" { &["--features", "cuda"][..] } else { &[] });
            let output = cargo.arg("--target-dir").arg(target.join("build")).stderr(Stdio::inherit()).output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            let program = executable(&said).with_context(|| format!("{package}'s tests were not built"))?;
            let to = self.folder.join("tests").join(package);
            fs::create_dir_all(to.parent().unwrap_or(&self.folder))?;
            succeed(Command::new("strip").arg("-o").arg(&to).arg(program))?;
        }
        Ok(())
    }

    /// Adds photos of about 1000 pixels from the shared data set if present, or else the quick start's.
    fn add_photos(&self, root: &Path, shared: &Path, most: usize) -> Result<String> {
        let is_usual = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("wl_"));
        let mut photos = entries(&shared.join("photos"));
        photos.retain(is_usual);
        let (manifest, origin) = match photos.is_empty() {
            false => (shared.join("photos/MANIFEST.csv"), "the shared data set's; do not pass on"),
            true => {
                photos = entries(&root.join("examples/photos"));
                (root.join("examples/photos.csv"), "examples/photos")
            }
        };
        // Neighbours in the list are crops of one picture, so the sample is spread over the whole list.
        let count = most.min(photos.len());
        let chosen: Vec<_> = (0..count).map(|at| &photos[at * photos.len() / count]).collect();
        chosen.iter().try_for_each(|photo| self.copy_into(photo, "photos"))?;
        self.copy(&manifest, "photos.csv")?;
        Ok(format!("{} photos: {origin}\n", chosen.len()))
    }

    /// Adds a trained model and every `every`th labelled photo, if the shared data set is present.
    fn add_labelled(&self, shared: &Path, every: usize) -> Result<String> {
        let (weights, labelled) = (shared.join("weights/vit-tiny-patch16-224"), shared.join("labelled"));
        if !weights.is_dir() || !labelled.is_dir() {
            return Ok("no labelled photos\n".to_owned());
        }
        self.copy_model(&weights, "vit-tiny")?;
        let photos = entries(&labelled).into_iter().filter(|path| path.is_dir()).flat_map(|folder| entries(&folder));
        let chosen: Vec<PathBuf> = photos.step_by(every).collect();
        for photo in &chosen {
            let name = photo.strip_prefix(&labelled)?;
            self.copy(photo, &format!("labelled/{}", name.display()))?;
        }
        self.copy(&labelled.join("MANIFEST.csv"), "labelled/labels.csv")?;
        Ok(format!("{} labelled photos and the ViT-Tiny: the shared data set's; do not pass on\n", chosen.len()))
    }

    fn copy_model(&self, from: &Path, name: &str) -> Result<()> {
        MODEL_FILES.iter().try_for_each(|file| self.copy_into(&from.join(file), &format!("models/{name}")))
    }

    fn copy_tree(&self, from: &Path, name: &str) -> Result<()> {
        if !from.is_dir() {
            return self.copy(from, name);
        }
        let part = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        entries(from).iter().try_for_each(|path| self.copy_tree(path, &format!("{name}/{}", part(path))))
    }

    fn copy_into(&self, from: &Path, folder: &str) -> Result<()> {
        let name = from.file_name().context("a path without a name")?;
        self.copy(from, &format!("{folder}/{}", name.display()))
    }

    fn copy(&self, from: &Path, name: &str) -> Result<()> {
        let to = self.folder.join(name);
        fs::create_dir_all(to.parent().unwrap_or(&self.folder))?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    }

    /// Packs reproducibly: sorted, without owners and times.
    fn pack(&self, archive: &Path) -> Result<PathBuf> {
        fs::create_dir_all(archive.parent().context("the archive is in no folder")?)?;
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
        tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -n -9"]).arg("--file").arg(archive);
        succeed(tar.arg("--directory").arg(self.folder.parent().unwrap_or(&self.folder)).arg(NAME))?;
        Ok(archive.to_owned())
    }

    /// The size of each part before packing, one per line.
    fn sizes(&self) -> Result<String> {
        let mut lines = String::new();
        for part in entries(&self.folder).iter().filter(|part| part.is_dir()) {
            let name = part.file_name().unwrap_or_default().to_string_lossy().into_owned();
            writeln!(lines, "{name:<10} {:>9}", megabytes(size(part)?))?;
        }
        Ok(lines + &fs::read_to_string(self.folder.join("BUILT"))?)
    }
}

/// The path of the test program that cargo's messages name.
fn executable(messages: &str) -> Option<&str> {
    let of_test = messages.lines().find(|line| line.contains(r#""kind":["test"]"#))?;
    of_test.split_once(r#""executable":""#)?.1.split('"').next()
}

fn size(path: &Path) -> Result<u64> {
    match path.is_dir() {
        true => entries(path).iter().map(|path| size(path)).sum(),
        false => Ok(fs::metadata(path)?.len()),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// The commit that the program was built from.
fn commit(root: &Path) -> Result<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").current_dir(root).args(args).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = if git(&["status", "--porcelain"])?.is_empty() { "" } else { ", with changes" };
    Ok(format!("commit {}{changed}\n", git(&["rev-parse", "HEAD"])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_pass_their_own_tests() {
        check(&crate::cargo::root()).unwrap();
    }

    #[test]
    fn test_programs_are_found_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"cuda"},"executable":"/t/release/deps/cuda-1f"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some("/t/release/deps/cuda-1f"));
        assert_eq!(executable(r#"{"reason":"build-finished","success":false}"#), None);
    }

    #[test]
    fn what_is_packed_twice_is_the_same() {
        let scratch = env::temp_dir().join(format!("foveate-gpu-bundle-{}", std::process::id()));
        let bundle = Bundle::empty(scratch.join(NAME)).unwrap();
        let pack = |name: &str| fs::read(bundle.pack(&scratch.join(name)).unwrap()).unwrap();
        fs::write(bundle.folder.join("b"), "b").unwrap();
        fs::write(bundle.folder.join("a"), "a").unwrap();
        let first = pack("1.tar.gz");
        fs::write(bundle.folder.join("b"), "b").unwrap();
        assert!(pack("2.tar.gz") == first, "the archive depends on more than its files");
        fs::write(bundle.folder.join("b"), "c").unwrap();
        assert!(pack("3.tar.gz") != first, "the archive does not depend on its files");
        fs::remove_dir_all(&scratch).unwrap();
    }
}
