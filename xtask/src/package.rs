//! `cargo package` of every published crate: what a registry would get.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use toml::Value;

use crate::cargo::{cargo, succeed, target};
use crate::tree::Tree;

/// Largest package, in bytes. The kernels of `foveate-encode-fused` are 0.3 MB; a fixture that slips in is often more.
const MAX_BYTES: u64 = 500_000;

/// Packages the crates and returns their archives, uncommitted changes included. `verify` builds each from its package
/// alone, which compiles everything once more.
pub(crate) fn run(root: &Path, verify: bool) -> Result<Vec<PathBuf>> {
    let tree = Tree::load(root)?;
    let mut command = cargo(root);
    // Its warnings say that tests are left out, which `exclude` asks for. Offline, because earlier commands fetched the
    // index; to ask for it once more takes a minute.
    command.args(["package", "--workspace", "--quiet", "--locked", "--offline", "--allow-dirty"]);
    command.args((!verify).then_some("--no-verify"));
    let folder = target(root).join("package");
    let mut archives = Vec::new();
    for package in &tree.packages {
        match package.is_published() {
            true => archives.push(folder.join(format!("{}-{}.crate", package.name, version(&tree)?))),
            // Unlike `cargo publish`, it does not leave them out by itself.
            false => drop(command.args(["--exclude", &package.name])),
        }
    }
    succeed(&mut command)?;
    println!("{}", summary(&archives)?);
    Ok(archives)
}

/// The workspace's version.
pub(crate) fn version(tree: &Tree) -> Result<&str> {
    let package = tree.manifest["workspace"].get("package");
    package.and_then(|package| package.get("version")).and_then(Value::as_str).context("the workspace has no version")
}

/// Number and size of the archives, each of which must be small.
fn summary(archives: &[PathBuf]) -> Result<String> {
    let mut sizes = Vec::new();
    for archive in archives {
        let bytes = fs::metadata(archive).with_context(|| format!("cargo left no {}", archive.display()))?.len();
        sizes.push((bytes, archive.file_name().unwrap_or_default().display()));
    }
    let total: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    let (largest, name) = sizes.iter().max_by_key(|(bytes, _)| *bytes).context("no crate is published")?;
    ensure!(*largest <= MAX_BYTES, "{name} has {largest} bytes, more than {MAX_BYTES}; exclude what is generated");
    Ok(format!("{} crates, {} kB; the largest is {name}, {} kB", sizes.len(), total / 1000, largest / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_archive_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let archive = |name: &str, len: u64| {
            let path = folder.path().join(name);
            fs::write(&path, vec![0; usize::try_from(len).unwrap()]).unwrap();
            path
        };
        let mut archives = vec![archive("a-0.1.0.crate", 1000), archive("b-0.1.0.crate", 2000)];
        let said = summary(&archives);
        archives.push(archive("c-0.1.0.crate", MAX_BYTES + 1));
        let refused = summary(&archives);
        assert_eq!(said.unwrap(), "2 crates, 3 kB; the largest is b-0.1.0.crate, 2 kB");
        assert!(refused.unwrap_err().to_string().starts_with("c-0.1.0.crate has 500001 bytes"));
    }
}
