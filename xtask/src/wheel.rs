//! `cargo xtask wheel`: the Python wheel, and its tests in fresh virtual environments.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo_home, empty_folder, forget_package, python_runs, succeed, target};
use crate::readme;

const MATURIN: &str = "maturin==1.16.0";
/// A linker that knows the symbols of every glibc.
const ZIG: &str = "ziglang==0.17.1";
/// Unpacks and packs wheels, checksums included.
const WHEEL: &str = "wheel==0.48.0";
/// Systems that portable wheels run on: glibc 2.28 or newer, so RHEL 8, Debian 10, Ubuntu 20.04 and later.
const MANYLINUX: &str = "manylinux_2_28";
/// Imports of the tests.
const TEST_PACKAGES: [&str; 8] = ["pytest", "mypy", "pyarrow", "polars", "duckdb", "pillow", "pandas", "datasets"];
/// Imports of the engines' tests, in the long form: the wheel's extras, and these. They take minutes and 6 GB.
const EXTRAS: &str = "[daft,lancedb,ray,spark]";
const ENGINE_PACKAGES: [&str; 10] = [
    "webdataset",
    "nbconvert",
    "ipykernel",
    "faiss-cpu",
    "umap-learn",
    "usearch",
    "torch",
    "transformers",
    "open_clip_torch",
    "sentencepiece",
];
/// Largest wheel of a release, in bytes. One for checks is larger, because its dependencies are not optimized.
const MAX_BYTES: u64 = 25_000_000;

#[derive(clap::Args)]
pub(crate) struct WheelArgs {
    /// Test the wheel in a fresh virtual environment: pytest, mypy, the README's lines
    #[arg(long)]
    test: bool,
    /// Link for older systems, as releases are: manylinux_2_28. All dependencies are built anew
    #[arg(long)]
    portable: bool,
    /// Interpreters of the tests [default: $PYTHON, or python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Vec<PathBuf>,
}

pub(crate) fn run(root: &Path, args: &WheelArgs) -> Result<()> {
    let pythons = if args.python.is_empty() { vec![default_python()] } else { args.python.clone() };
    // The only wheel of the folder.
    let wheels = target(root).join("wheels");
    empty_folder(&wheels)?;
    let wheel = if args.portable { portable } else { native }(root, &pythons[0], &wheels)?;
    for python in pythons.iter().filter(|_| args.test) {
        test(root, python, &wheel)?;
    }
    Ok(())
}

/// The reason that no wheel can be built here, if any.
pub(crate) fn missing() -> Option<&'static str> {
    (!python_runs("import ensurepip, venv")).then_some("python3 with venv and pip is missing")
}

pub(crate) fn default_python() -> PathBuf {
    std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()).into()
}

/// Builds a wheel for systems like this one into a folder. It shares dependencies with other builds.
fn native(root: &Path, python: &Path, wheels: &Path) -> Result<PathBuf> {
    let mut maturin = maturin(root, &environment(root, python, "tools", [MATURIN.into()])?, wheels);
    succeed(maturin.args(["--compatibility", "pypi"]))?;
    built(wheels)
}

/// Builds a wheel for older systems into a folder. Maturin fails if it needs a newer symbol than they have. Only Linux
/// has a C library that differs so.
pub(crate) fn portable(root: &Path, python: &Path, wheels: &Path) -> Result<PathBuf> {
    if !cfg!(target_os = "linux") {
        return native(root, python, wheels);
    }
    let tools = environment(root, python, "portable", [MATURIN, ZIG, WHEEL].map(OsString::from))?;
    let mut maturin = maturin(root, &tools, wheels);
    maturin.args(["--zig", "--compatibility", MANYLINUX]).env("RUSTFLAGS", remapped(root)?);
    // Zig is a program of this environment's Python.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [tools.join("bin")].into_iter().chain(std::env::split_paths(&path));
    succeed(maturin.env("PATH", std::env::join_paths(path)?))?;
    let wheel = built(wheels)?;
    let bytes = fs::metadata(&wheel)?.len();
    ensure!(bytes <= MAX_BYTES, "the wheel is larger than {} MB", MAX_BYTES / 1_000_000);
    forget_root(root, &tools.join("bin/wheel"), &wheel)?;
    Ok(wheel)
}

/// Takes this machine's path out of a wheel's bill of materials, which names our crates by their folders.
fn forget_root(root: &Path, program: &Path, wheel: &Path) -> Result<()> {
    let folder = wheel.with_extension("unpacked");
    succeed(Command::new(program).arg("unpack").arg("--dest").arg(&folder).arg(wheel))?;
    let package = fs::read_dir(&folder)?.next().context("the wheel is empty")??;
    let bills = format!("{}.dist-info/sboms", package.file_name().display());
    for bill in fs::read_dir(package.path().join(bills))? {
        let bill = bill?.path();
        let root = format!("{}/", root.canonicalize()?.display());
        fs::write(&bill, fs::read_to_string(&bill)?.replace(&root, ""))?;
    }
    succeed(Command::new(program).arg("pack").arg("--dest-dir").arg(folder.with_file_name("")).arg(package.path()))?;
    Ok(fs::remove_dir_all(folder)?)
}

fn maturin(root: &Path, tools: &Path, wheels: &Path) -> Command {
    let mut maturin = Command::new(tools.join("bin/maturin"));
    forget_package(maturin.current_dir(root.join("crates/foveate-python")));
    maturin.args(["build", "--release", "--locked", "--out"]).arg(wheels);
    maturin
}

/// Flags of the compiler that keep this machine's paths out of panic messages. They replace those of
/// `.cargo/native.toml`, which hold a path of libtorch.
fn remapped(root: &Path) -> Result<OsString> {
    let cargo = cargo_home()?;
    let mut flags = OsString::new();
    for (from, to) in [(cargo.as_path(), "/cargo"), (root, "/foveate")] {
        flags.push(format!("--remap-path-prefix={}={to} ", from.display()));
    }
    Ok(flags)
}

/// The wheel of a folder.
fn built(wheels: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(wheels)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let wheel = wheel.context("maturin has built no wheel")?;
    println!("{}: {:.1} MB", wheel.display(), fs::metadata(&wheel)?.len() as f64 / 1e6);
    Ok(wheel)
}

/// Tests the installed wheel, not the source tree.
fn test(root: &Path, python: &Path, wheel: &Path) -> Result<()> {
    let is_full = std::env::var_os("FOVEATE_TESTS").is_some_and(|form| form == "full");
    let (extras, engines) = if is_full { (EXTRAS, &ENGINE_PACKAGES[..]) } else { ("", &[][..]) };
    let mut with_extras = wheel.as_os_str().to_owned();
    with_extras.push(extras);
    let packages = TEST_PACKAGES.iter().chain(engines).map(OsString::from).chain([with_extras]);
    let bin = environment(root, python, "test", packages)?.join("bin");
    let tests = root.join("crates/foveate-python/tests");
    succeed(Command::new(bin.join("mypy")).current_dir(&tests).args(["--strict", "--no-incremental", "sample.py"]))?;
    let mut pytest = Command::new(bin.join("pytest"));
    succeed(pytest.current_dir(&tests).args(["-q", "-p", "no:cacheprovider"]).env("PYTHONDONTWRITEBYTECODE", "1"))?;
    let lines = readme::program(root, "python")?;
    println!("{lines}");
    succeed(Command::new(bin.join("python")).current_dir(root).args(["-c", &lines]))
}

/// Makes a virtual environment anew, with `packages`.
pub(crate) fn environment(
    root: &Path,
    python: &Path,
    name: &str,
    packages: impl IntoIterator<Item = OsString>,
) -> Result<PathBuf> {
    let folder = target(root).join("python").join(name);
    succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    succeed(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages))?;
    Ok(folder)
}
