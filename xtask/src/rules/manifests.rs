//! Rules for Cargo.toml files.

use toml::Value;

use crate::rules::TidyFinding;
use crate::rules::layers::MAP;
use crate::tree::{Package, Tree};

/// The fields that every package inherits from the workspace, and more of those that are published.
const INHERITED: [&str; 4] = ["version", "edition", "rust-version", "license"];
const PUBLISHED: [&str; 2] = ["repository", "exclude"];
/// Links to the workspace's files, so that every published package holds its licences.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A folder's name is its package's name; models and tests carry the project's prefix.
pub(crate) fn folder_name(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let expected = match package.name.as_str() {
            "foveate-models" | "foveate-tests" => package.name.replace("foveate-", ""),
            "xtask" => "xtask".to_owned(),
            name => format!("crates/{name}"),
        };
        if package.dir != expected {
            let message = format!("package {} belongs into the folder {expected}", package.name);
            findings.push(TidyFinding::new(package.manifest_path(), message));
        }
    }
    findings
}

/// Version, edition, minimum Rust and licence come from the workspace, and what is published holds its licences.
pub(crate) fn inheritance(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let mut inherited = INHERITED.to_vec();
        if package.is_published() {
            inherited.extend(PUBLISHED);
            for name in LICENSES.iter().filter(|name| tree.file(&format!("{}/{name}", package.dir)).is_none()) {
                let message = format!("its licence is missing: `ln -s ../../{name} {}/`", package.dir);
                findings.push(TidyFinding::new(package.manifest_path(), message));
            }
        }
        for key in inherited.into_iter().filter(|key| !package.field(key).is_some_and(from_workspace)) {
            findings.push(TidyFinding::new(package.manifest_path(), format!("say `{key}.workspace = true`")));
        }
    }
    findings
}

/// Only the root Cargo.toml states third-party versions.
pub(crate) fn workspace_versions(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        for table in dependency_tables(&package.manifest) {
            // Tests may need the package itself with another feature, or one that is published later. Only by path:
            // cargo leaves dev-dependencies without a version out of the package.
            for (name, value) in table {
                let is_by_path = value.get("path").is_some() && value.get("version").is_none();
                if !is_by_path && !from_workspace(value) {
                    let message =
                        format!("put {name}'s version into [workspace.dependencies] and say `{name}.workspace = true`");
                    findings.push(TidyFinding::new(package.manifest_path(), message));
                }
            }
        }
    }
    findings
}

fn from_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// `[dependencies]`, `[dev-dependencies]` and `[build-dependencies]`, also of targets.
fn dependency_tables(manifest: &toml::Table) -> Vec<&toml::Table> {
    let mut tables = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    for owner in targets.filter_map(|(_, value)| value.as_table()).chain([manifest]) {
        for key in ["dependencies", "dev-dependencies", "build-dependencies"] {
            tables.extend(owner.get(key).and_then(Value::as_table));
        }
    }
    tables
}

/// A bare `cargo build` or `cargo test` covers exactly the crates that build with only the Rust toolchain.
pub(crate) fn default_members(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for Package { name, dir, .. } in &tree.packages {
        // xtask has its alias.
        let is_plain = !MAP.native.contains(name) && !MAP.heavy.contains(name) && name != "xtask";
        let is_listed = tree.default_members.contains(name);
        if is_plain && !is_listed {
            findings.push(TidyFinding::new("Cargo.toml", format!("add \"{dir}\" to default-members")));
        } else if is_listed && !is_plain {
            let message = format!("{name} does not belong into default-members (native or large library, or tool)");
            findings.push(TidyFinding::new("Cargo.toml", message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, package};

    #[test]
    fn a_folder_of_another_name_is_found() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").dir = "crates/decode".to_owned();
        assert_finds(folder_name, &tree, "belongs into the folder crates/foveate-decode");
    }

    #[test]
    fn fields_of_its_own_are_found() {
        for (key, value) in [("license", "MIT"), ("repository", "https://example.invalid/fork"), ("exclude", "/src")] {
            let mut tree = fake::tree();
            let table = package(&mut tree, "foveate-decode").manifest["package"].as_table_mut().unwrap();
            table.insert(key.to_owned(), value.into());
            assert_finds(inheritance, &tree, &format!("{key}.workspace = true"));
            let table = package(&mut tree, "foveate-decode").manifest["package"].as_table_mut().unwrap();
            table.insert("publish".to_owned(), false.into());
            assert_eq!(inheritance(&tree).len(), usize::from(key == "license"));
        }
    }

    #[test]
    fn a_missing_licence_is_found() {
        let mut tree = fake::tree();
        tree.files.retain(|file| file.path != "crates/foveate-decode/LICENSE-MIT");
        assert_finds(inheritance, &tree, "ln -s ../../LICENSE-MIT crates/foveate-decode/");
    }

    #[test]
    fn a_version_of_its_own_is_found() {
        for table in [
            "[dependencies]\nimage = \"0.25\"",
            "[target.'cfg(unix)'.dev-dependencies]\nimage = { version = \"0.25\" }",
        ] {
            let mut tree = fake::tree();
            package(&mut tree, "foveate-decode").manifest.extend(table.parse::<toml::Table>().unwrap());
            assert_finds(workspace_versions, &tree, "put image's version into [workspace.dependencies]");
        }
    }

    #[test]
    fn default_members_are_the_plain_crates() {
        let mut tree = fake::tree();
        tree.default_members.retain(|member| member != "foveate-decode-zune");
        assert_finds(default_members, &tree, "add \"crates/foveate-decode-zune\"");

        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode-zune").name = "foveate-encode-ort".to_owned();
        tree.default_members.push("foveate-encode-ort".to_owned());
        assert_finds(default_members, &tree, "foveate-encode-ort does not belong");
    }
}
