//! `cargo xtask gpu-bundle`: packs everything that the CUDA check needs on a machine with a GPU and without Rust.
//!
//! `gpu/README.md` says what the check measures. `gpu/bundle.py` packs; here is what cargo builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, cargo_home, executables, succeed, target};
use crate::setup::entries;

const FEATURES: &str = "cli,exact,zune,image,fir,cuda,turbojpeg,nvjpeg,parquet,npy";
/// Packages with device tests, and the name of their test program.
const DEVICE_TESTS: [(&str, &str); 3] =
    [("foveate-cuda", "device"), ("foveate-encode-fused", "cuda"), ("foveate-decode-nvjpeg", "cuda")];

#[derive(clap::Args)]
pub(crate) struct BundleArgs {
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

pub(crate) fn run(root: &Path, args: &BundleArgs) -> Result<()> {
    check(root)?;
    if args.check {
        return Ok(());
    }
    let target = target(root).join("gpu-bundle");
    let mut pack = Command::new("python3");
    pack.current_dir(root).args(["-B", "xtask/gpu/bundle.py", "--archive", "target/foveate-gpu.tar.gz", "--folder"]);
    pack.arg(&target).args(["--features", &args.features]).args(args.slim.then_some("--slim"));
    pack.arg("--program").arg(build(root, &target, &args.features)?);
    for (package, test) in DEVICE_TESTS {
        let mut cargo = cargo(root);
        cargo.args(["test", "--release", "--no-run", "--message-format", "json", "-p", package, "--test", test]);
        cargo.args(if package == "foveate-encode-fused" { &["--features", "cuda"][..] } else { &[] });
        let output = cargo.arg("--target-dir").arg(target.join("build")).stderr(Stdio::inherit()).output()?;
        let program = executables(&output.stdout).pop();
        let program = program.with_context(|| format!("{package}'s tests were not built"))?;
        pack.arg("--test").arg(format!("{package}={}", program.display()));
    }
    succeed(&mut pack)
}

/// Runs the scripts' own tests, which need no device.
fn check(root: &Path) -> Result<()> {
    let scripts = root.join("xtask/gpu");
    succeed(Command::new("bash").arg("-n").arg(scripts.join("check.sh")))?;
    for path in entries(&scripts).iter().filter(|path| path.extension().is_some_and(|extension| extension == "py")) {
        let parses = "import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])";
        succeed(Command::new("python3").args(["-c", parses]).arg(path))?;
    }
    succeed(Command::new("python3").arg("-B").arg(scripts.join("pure_test.py")))
}

/// Builds the program. It contains no path of this machine, neither of sources nor of libraries.
fn build(root: &Path, target: &Path, features: &str) -> Result<PathBuf> {
    let home = cargo_home()?;
    // A registry's folder is named after its host. The last matching prefix wins.
    let mut prefixes = vec![(root.to_owned(), "."), (home.clone(), "cargo")];
    prefixes.extend(entries(&home.join("registry/src")).into_iter().map(|folder| (folder, "crates")));
    let flags: Vec<String> =
        prefixes.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    let mut cargo = cargo(root);
    cargo.args(["build", "--release", "-p", "foveate", "--no-default-features", "--features", features]);
    cargo.args(["--config", "profile.release.strip=true", "--target-dir"]).arg(target.join("build"));
    // Replaces the flags that `cargo xtask setup` wrote, which name this machine's folders.
    succeed(cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")))?;
    let binary = target.join("build/release/foveate");
    let code = fs::read(&binary)?;
    for path in [root, &home] {
        let path = path.as_os_str().as_encoded_bytes();
        ensure!(!code.windows(path.len()).any(|window| window == path), "the program names a folder of this machine");
    }
    Ok(binary)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_scripts_pass_their_own_tests() {
        super::check(&crate::cargo::root()).unwrap();
    }
}
