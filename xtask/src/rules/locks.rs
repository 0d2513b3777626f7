//! The lock files of every workspace in the repository.

use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::rules::TidyFinding;
use crate::tree;

/// Returns a finding for each committed Cargo.lock that no longer fits its manifests. A new dependency of a crate
/// changes the locks of all workspaces that use it (fuzz targets, peers), which no build of the main workspace shows.
pub(crate) fn stale(root: &Path) -> Result<Vec<TidyFinding>> {
    let mut findings = Vec::new();
    for path in tree::paths(root)?.into_iter().filter(|path| path.ends_with("Cargo.lock")) {
        let manifest = path.replace("Cargo.lock", "Cargo.toml");
        let mut command = cargo(root);
        command.args(["metadata", "--locked", "--quiet", "--format-version", "1", "--manifest-path", &manifest]);
        let output = command.output().context("cannot start cargo")?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let reason = stderr.lines().next().unwrap_or_default();
            let message = format!("{reason}; run `cargo update --workspace --manifest-path {manifest}`");
            findings.push(TidyFinding::new(path, message));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_without_a_new_dependency_is_found() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("Cargo.toml", "[package]\nname = \"a\"\n[dependencies]\nb = { path = \"b\" }\n"),
            ("Cargo.lock", "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.0.0\"\n"),
            ("src/lib.rs", ""),
            ("b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("b/src/lib.rs", ""),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        crate::cargo::git(root.path(), &["init", "-q"]).unwrap();
        let findings = stale(root.path()).unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].message.contains("--manifest-path Cargo.toml"), "{}", findings[0].message);
    }
}
