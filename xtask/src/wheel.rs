//! `cargo xtask wheel`: the Python wheel, and its tests in fresh virtual environments.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{forget_package, succeed, target};
use crate::readme;

const MATURIN: &str = "maturin==1.16.0";
/// What the tests import.
const TEST_PACKAGES: [&str; 6] = ["pytest", "mypy", "pyarrow", "polars", "duckdb", "pillow"];
/// Largest wheel, in bytes.
const MAX_BYTES: u64 = 25_000_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Test the wheel in a fresh virtual environment: pytest, mypy, the README's lines
    #[arg(long)]
    test: bool,
    /// Interpreters of the tests [default: $PYTHON, or python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Vec<PathBuf>,
}

impl Args {
    /// Builds and tests with the default interpreter.
    pub(crate) fn tested() -> Self {
        Self { test: true, python: Vec::new() }
    }
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let default = || PathBuf::from(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    let pythons = if args.python.is_empty() { vec![default()] } else { args.python.clone() };
    let wheel = build(root, &pythons[0])?;
    for python in pythons.iter().filter(|_| args.test) {
        test(root, python, &wheel)?;
    }
    Ok(())
}

/// Why no wheel can be built here, if so.
pub(crate) fn missing() -> Option<&'static str> {
    let python = Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
    (!python.is_ok_and(|status| status.success())).then_some("python3 with venv and pip is missing")
}

/// Builds the only wheel of target/wheels.
fn build(root: &Path, python: &Path) -> Result<PathBuf> {
    let wheels = target(root).join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let tools = environment(root, python, "tools", [MATURIN.into()])?;
    let mut maturin = Command::new(tools.join("bin/maturin"));
    forget_package(maturin.current_dir(root.join("crates/foveate-python")));
    succeed(maturin.args(["build", "--release", "--locked", "--compatibility", "pypi", "--out"]).arg(&wheels))?;
    let wheel = fs::read_dir(&wheels)?.next().context("maturin has built no wheel")??;
    let bytes = wheel.metadata()?.len();
    println!("{}: {:.1} MB", wheel.file_name().display(), bytes as f64 / 1e6);
    ensure!(bytes <= MAX_BYTES, "the wheel is larger than {} MB", MAX_BYTES / 1_000_000);
    Ok(wheel.path())
}

/// Tests the installed wheel, not the source tree.
fn test(root: &Path, python: &Path, wheel: &Path) -> Result<()> {
    let packages = TEST_PACKAGES.into_iter().map(OsString::from).chain([wheel.into()]);
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
fn environment(
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
