//! `cargo xtask examples`: builds and runs every package of `examples/`, and checks each one's dependencies.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, target};

/// A package of `examples/`, and the limits on its dependencies.
struct Example {
    name: &'static str,
    /// Exactly the workspace crates that it builds.
    ours: &'static [&'static str],
    /// Third-party crates that it must not build.
    never: &'static [&'static str],
    /// Most packages that it builds, build dependencies included.
    most: usize,
}

/// Libraries that belong to one stage each, or to the command line.
const CANDLE: &str = "candle-core";
const PARQUET: &str = "parquet";
const HUB: &str = "ureq";
const COMMAND_LINE: &str = "clap";
const ASYNC: &str = "tokio";
const LMDB: &str = "lmdb-rkv";
const ONNX: &str = "ort";
const OPENCV: &str = "opencv";
const TORCH: &str = "tch";
const TURBOJPEG: &str = "turbojpeg";
const RESIZING: &str = "fast_image_resize";
const IMAGE: &str = "image";

const EXAMPLES: &[Example] = &[
    Example {
        name: "decode-and-resize",
        ours: &["foveate-core", "foveate-decode", "foveate-decode-turbojpeg", "foveate-resize", "foveate-resize-fir"],
        never: &[CANDLE, PARQUET, HUB, COMMAND_LINE, LMDB, ONNX, OPENCV, TORCH, IMAGE, "serde", "rayon"],
        most: 40,
    },
    Example {
        name: "encode-ort",
        ours: &["foveate-core", "foveate-encode", "foveate-encode-ort"],
        never: &[CANDLE, PARQUET, HUB, COMMAND_LINE, LMDB, OPENCV, TORCH, TURBOJPEG, RESIZING, IMAGE],
        most: 80,
    },
    Example {
        name: "sink-lmdb",
        ours: &["foveate-core", "foveate-sink", "foveate-sink-lmdb"],
        never: &[CANDLE, PARQUET, HUB, COMMAND_LINE, ONNX, OPENCV, TORCH, TURBOJPEG, RESIZING, IMAGE, "rayon"],
        most: 50,
    },
    Example {
        name: "custom-backend",
        ours: &[
            "foveate",
            "foveate-core",
            "foveate-decode",
            "foveate-dinov2",
            "foveate-encode",
            "foveate-lane",
            "foveate-pipeline",
            "foveate-preprocess",
            "foveate-profile",
            "foveate-resize",
            "foveate-resize-fir",
            "foveate-sink",
            "foveate-source",
        ],
        never: &[CANDLE, PARQUET, LMDB, ONNX, OPENCV, TORCH, TURBOJPEG, COMMAND_LINE, ASYNC],
        most: 130,
    },
    Example {
        name: "custom-task",
        ours: &[
            "foveate-core",
            "foveate-decode",
            "foveate-decode-zune",
            "foveate-encode",
            "foveate-lane",
            "foveate-net",
            "foveate-pipeline",
            "foveate-preprocess",
            "foveate-profile",
            "foveate-queue",
            "foveate-resize",
            "foveate-sink",
            "foveate-source",
            "foveate-worker",
        ],
        never: &[CANDLE, PARQUET, LMDB, ONNX, OPENCV, TORCH, TURBOJPEG, RESIZING, IMAGE, COMMAND_LINE, ASYNC],
        most: 140,
    },
];

pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("examples");
    check_table(&packages_in(&folder)?)?;
    let build = Build::of_workspace(root)?;
    for example in EXAMPLES {
        let start = Instant::now();
        let package = folder.join(example.name);
        // The versions that the workspace is tested with; cargo removes those that this package does not need.
        fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
        let tree = packages_of(&build.cargo(&package, &["tree", "-e", "normal,build", "--prefix", "none"])?);
        let problems = check(example, &tree);
        ensure!(problems.is_empty(), "examples/{}: {}", example.name, problems.join("; "));
        print!("{}", build.cargo(&package, &["run", "--quiet", "--release"])?);
        println!("examples/{}: ok, {} packages, {:.1} s", example.name, tree.len(), start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Names of the packages in a folder.
fn packages_in(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.join("Cargo.toml").exists() {
            names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(names)
}

/// Checks that the table and `examples/` list the same packages.
fn check_table(found: &BTreeSet<String>) -> Result<()> {
    let listed: BTreeSet<String> = EXAMPLES.iter().map(|example| example.name.to_owned()).collect();
    if let Some(name) = found.difference(&listed).next() {
        bail!("examples/{name} is not in the table of xtask's examples.rs: say there what it may pull in");
    }
    match listed.difference(found).next() {
        Some(name) => bail!("xtask's examples.rs lists examples/{name}, which is not there"),
        None => Ok(()),
    }
}

/// The package names in the output of `cargo tree --prefix none`, without the root package.
fn packages_of(tree: &str) -> BTreeSet<String> {
    tree.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The errors in an example's packages.
fn check(example: &Example, packages: &BTreeSet<String>) -> Vec<String> {
    let is_ours = |name: &&String| *name == "foveate" || name.starts_with("foveate-");
    let mut problems = Vec::new();
    for name in packages.iter().filter(is_ours).filter(|name| !example.ours.contains(&name.as_str())) {
        problems.push(format!("it pulls in {name}, which it has no use for"));
    }
    for name in example.ours.iter().filter(|name| !packages.contains(**name)) {
        problems.push(format!("it does not use {name}; take that out of the table"));
    }
    for name in example.never.iter().filter(|name| packages.contains(**name)) {
        problems.push(format!("it must not pull in {name} (`cargo tree -i {name}` there shows the way)"));
    }
    if packages.len() > example.most {
        problems.push(format!("it pulls in {} packages, more than {}", packages.len(), example.most));
    }
    problems
}

/// Lets examples reuse the dependencies that the workspace has built: its target folder and profile settings.
struct Build {
    target: PathBuf,
    codegen_units: String,
}

impl Build {
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

    const EXAMPLE: Example = Example { name: "x", ours: &["foveate-core", "foveate-sink"], never: &[CANDLE], most: 4 };

    fn problems(packages: &[&str]) -> Vec<String> {
        check(&EXAMPLE, &packages.iter().map(|name| (*name).to_owned()).collect())
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
            (CANDLE, "must not pull in candle-core"),
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

    #[test]
    fn an_example_without_a_promise_is_found_and_the_other_way_round() {
        let mut names: BTreeSet<String> = EXAMPLES.iter().map(|example| example.name.to_owned()).collect();
        check_table(&names).unwrap();
        names.insert("another".to_owned());
        assert!(check_table(&names).unwrap_err().to_string().contains("examples/another is not in the table"));
        names.remove("another");
        names.remove("sink-lmdb");
        assert!(check_table(&names).unwrap_err().to_string().contains("lists examples/sink-lmdb, which is not there"));
    }
}
