//! `cargo package` of every published crate: what a registry would get.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use toml::Value;

use crate::cargo::{cargo, succeed, target};
use crate::tree::Tree;

/// Largest package, in bytes. The kernels of `foveate-encode-fused` are 0.3 MB; a fixture that slips in is often more.
const MAX_BYTES: u64 = 500_000;

/// Whether cargo builds each crate from its package alone. It compiles everything once more.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Verify {
    Yes,
    No,
}

/// Packages the crates and returns their archives, uncommitted changes included.
pub(crate) fn run(root: &Path, verify: Verify) -> Result<Vec<PathBuf>> {
    let tree = Tree::load(root)?;
    let mut command = cargo(root);
    // Its warnings say that tests are left out, which `exclude` asks for. Offline, because earlier commands fetched the
    // index; to ask for it once more takes a minute.
    command.args(["package", "--quiet", "--locked", "--offline", "--allow-dirty"]).args(selection(&tree));
    if verify == Verify::No {
        command.arg("--no-verify");
    }
    succeed(&mut command)?;
    let archives = archives(root, &tree)?;
    println!("{}", summary(&archives)?);
    Ok(archives)
}

/// Arguments of cargo that select the published crates.
pub(crate) fn selection(tree: &Tree) -> Vec<OsString> {
    let excluded = tree.packages.iter().filter(|package| !package.is_published());
    let excluded = excluded.flat_map(|package| ["--exclude".into(), OsString::from(&package.name)]);
    [OsString::from("--workspace")].into_iter().chain(excluded).collect()
}

/// The workspace's version.
pub(crate) fn version(tree: &Tree) -> Result<&str> {
    let package = tree.manifest["workspace"].get("package");
    package.and_then(|package| package.get("version")).and_then(Value::as_str).context("the workspace has no version")
}

fn archives(root: &Path, tree: &Tree) -> Result<Vec<PathBuf>> {
    let (folder, version) = (target(root).join("package"), version(tree)?);
    let published = tree.packages.iter().filter(|package| package.is_published());
    Ok(published.map(|package| folder.join(format!("{}-{version}.crate", package.name))).collect())
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
    use crate::tree::fake::{self, package};

    #[test]
    fn packages_that_are_not_published_are_left_out() {
        let mut tree = fake::tree();
        let table = package(&mut tree, "foveate-decode").manifest["package"].as_table_mut().unwrap();
        table.insert("publish".to_owned(), false.into());
        assert_eq!(selection(&tree), ["--workspace", "--exclude", "foveate-decode"]);
    }

    #[test]
    fn a_large_archive_is_refused() {
        let folder = std::env::temp_dir().join(format!("foveate-package-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let archive = |name: &str, len: u64| {
            let path = folder.join(name);
            fs::write(&path, vec![0; usize::try_from(len).unwrap()]).unwrap();
            path
        };
        let mut archives = vec![archive("a-0.1.0.crate", 1000), archive("b-0.1.0.crate", 2000)];
        let said = summary(&archives);
        archives.push(archive("c-0.1.0.crate", MAX_BYTES + 1));
        let refused = summary(&archives);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(said.unwrap(), "2 crates, 3 kB; the largest is b-0.1.0.crate, 2 kB");
        assert!(refused.unwrap_err().to_string().starts_with("c-0.1.0.crate has 500001 bytes"));
    }
}
