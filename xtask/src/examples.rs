//! `cargo xtask examples`: builds and runs every package of `examples/`, and checks each one's dependencies.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::{cargo, target};
use crate::setup::entries;

/// The limits on an example's dependencies, `[package.metadata.limits]` of its manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleLimits {
    /// Exactly the workspace crates that it builds.
    ours: Vec<String>,
    /// Third-party crates that it must not build.
    never: Vec<String>,
    /// Most packages that it builds, build dependencies included.
    most: usize,
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let build = SharedBuild::of_workspace(root)?;
    let packages = entries(&root.join("examples")).into_iter().filter(|folder| folder.join("Cargo.toml").exists());
    for package in packages {
        let start = Instant::now();
        let shown = package.strip_prefix(root).unwrap_or(&package).display();
        let limits = limits(&package).with_context(|| format!("{shown}/Cargo.toml"))?;
        // The versions that the workspace is tested with; cargo removes those that this package does not need.
        fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
        let tree = packages_of(&build.cargo(&package, &["tree", "-e", "normal,build", "--prefix", "none"])?);
        let problems = check(&limits, &tree);
        ensure!(problems.is_empty(), "{shown}: {}", problems.join("; "));
        print!("{}", build.cargo(&package, &["run", "--quiet", "--release"])?);
        println!("{shown}: ok, {} packages, {:.1} s", tree.len(), start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn limits(package: &Path) -> Result<ExampleLimits> {
    let manifest: toml::Table = fs::read_to_string(package.join("Cargo.toml"))?.parse()?;
    let metadata = manifest["package"].get("metadata").and_then(|metadata| metadata.get("limits"));
    Ok(metadata.context("say in [package.metadata.limits] what it may pull in")?.clone().try_into()?)
}

/// The package names in the output of `cargo tree --prefix none`, without the root package.
fn packages_of(tree: &str) -> BTreeSet<String> {
    tree.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The errors in an example's packages.
fn check(limits: &ExampleLimits, packages: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for name in packages.iter().filter(|name| *name == "foveate" || name.starts_with("foveate-")) {
        if !limits.ours.contains(name) {
            problems.push(format!("it pulls in {name}, which it has no use for"));
        }
    }
    for name in limits.ours.iter().filter(|name| !packages.contains(*name)) {
        problems.push(format!("it does not use {name}; take that out of its limits"));
    }
    for name in limits.never.iter().filter(|name| packages.contains(*name)) {
        problems.push(format!("it must not pull in {name} (`cargo tree -i {name}` there shows the way)"));
    }
    if packages.len() > limits.most {
        problems.push(format!("it pulls in {} packages, more than {}", packages.len(), limits.most));
    }
    problems
}

/// Lets examples reuse the dependencies that the workspace has built: its target folder and profile settings.
struct SharedBuild {
    target: PathBuf,
    codegen_units: String,
}

impl SharedBuild {
    fn of_workspace(root: &Path) -> Result<Self> {
        let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
        let units = &manifest["profile"]["release"]["codegen-units"];
        Ok(Self { target: target(root), codegen_units: units.to_string() })
    }

    /// Runs cargo in a package and returns its output.
    fn cargo(&self, package: &Path, args: &[&str]) -> Result<String> {
        let mut command = cargo(package);
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", &self.codegen_units);
        let output = command.args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.context("cannot start cargo")?;
        ensure!(
            output.status.success(),
            "cargo {} in {} failed ({})",
            args.join(" "),
            package.display(),
            output.status
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(packages: &[&str]) -> Vec<String> {
        let ours = ["foveate-core", "foveate-sink"].map(str::to_owned).to_vec();
        let limits = ExampleLimits { ours, never: vec!["candle-core".to_owned()], most: 4 };
        check(&limits, &packages.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn what_is_promised_passes() {
        assert!(problems(&["foveate-core", "foveate-sink", "half", "serde"]).is_empty());
    }

    #[test]
    fn what_is_pulled_in_beyond_the_promise_is_found() {
        for (extra, word) in [
            ("foveate-decode", "pulls in foveate-decode, which it has no use for"),
            ("foveate", "pulls in foveate, which"),
            ("candle-core", "must not pull in candle-core"),
        ] {
            let found = problems(&["foveate-core", "foveate-sink", extra]);
            assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
        }
        let found = problems(&["foveate-core", "foveate-sink", "a", "b", "c"]);
        assert!(found.len() == 1 && found[0].contains("5 packages, more than 4"), "{found:?}");
    }

    #[test]
    fn a_promise_about_a_crate_that_is_not_used_is_found() {
        assert!(problems(&["foveate-core"])[0].contains("does not use foveate-sink"));
    }

    #[test]
    fn packages_are_read_from_the_tree() {
        let tree = "example v0.0.0 (/x)\nfoveate-core v0.1.0 (/y)\nhalf v2.7.1\nhalf v2.7.1 (*)\nserde v1.0.229 (proc-macro)\n";
        assert_eq!(packages_of(tree).into_iter().collect::<Vec<_>>(), ["foveate-core", "half", "serde"]);
    }
}
