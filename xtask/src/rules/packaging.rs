//! Rules for crates that are published, which `cargo package` does not check.

#[cfg(test)]
use toml::Value;

use crate::rules::Finding;
use crate::rules::manifests::{from_workspace, manifest_of};
use crate::tree::{Package, Tree};

/// Links to the workspace's files, so that every package holds its licences.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A published package says what it is, and holds its licences.
pub(crate) fn metadata(tree: &Tree) -> Vec<Finding> {
    let published = tree.packages.iter().filter(|package| package.is_published());
    published
        .flat_map(|package| {
            let problems = fields(package).into_iter().chain(licenses(tree, package));
            problems.map(|problem| Finding::new(manifest_of(package), problem)).collect::<Vec<_>>()
        })
        .collect()
}

fn fields(package: &Package) -> Vec<String> {
    let table = &package.manifest["package"];
    let inherited = ["repository", "exclude"].into_iter().filter(|key| !table.get(key).is_some_and(from_workspace));
    let mut problems: Vec<_> =
        inherited.map(|key| format!("say `{key}.workspace = true`, or `publish = false`")).collect();
    if package.description.is_none() {
        problems.push("needs a `description`".to_owned());
    }
    problems
}

fn licenses(tree: &Tree, package: &Package) -> Vec<String> {
    let missing = LICENSES.into_iter().filter(|name| tree.file(&format!("{}/{name}", package.dir)).is_none());
    missing.map(|name| format!("its licence is missing: `ln -s ../../{name} {}/`", package.dir)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, package};

    fn insert(tree: &mut Tree, key: &str, value: impl Into<Value>) {
        let table = package(tree, "foveate-decode").manifest["package"].as_table_mut().unwrap();
        table.insert(key.to_owned(), value.into());
    }

    #[test]
    fn missing_metadata_is_found() {
        for (key, value, expected) in [
            ("repository", Value::from("https://example.invalid/fork"), "say `repository.workspace = true`"),
            ("exclude", vec!["/src"].into(), "say `exclude.workspace = true`"),
        ] {
            let mut tree = fake::tree();
            insert(&mut tree, key, value);
            assert_finds(metadata, &tree, expected);
            insert(&mut tree, "publish", false);
            assert!(metadata(&tree).iter().all(|finding| !finding.message.contains(expected)));
        }
    }

    #[test]
    fn a_missing_licence_is_found() {
        let mut tree = fake::tree();
        tree.files.retain(|file| file.path != "crates/foveate-decode/LICENSE-MIT");
        assert_finds(metadata, &tree, "ln -s ../../LICENSE-MIT crates/foveate-decode/");
    }
}
