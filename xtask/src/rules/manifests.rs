//! Rules for Cargo.toml files.

use toml::Value;

use crate::rules::Finding;
use crate::rules::layers::{Role, role};
use crate::tree::{Package, Tree};

/// Backend crates that need a library or a tool beyond the Rust toolchain.
pub(crate) const NATIVE: [&str; 6] = [
    "foveate-decode-opencv",
    "foveate-decode-turbojpeg",
    "foveate-encode-ort",
    "foveate-encode-tch",
    "foveate-resize-opencv",
    "foveate-sink-lmdb",
];
/// Crates that need only Rust, but whose libraries are too large for the default build: candle, a broker's client, and
/// two cloud SDKs, one of which is in the wheel. The SDKs also turn on features in shared dependencies, which are then
/// built a second time.
pub(crate) const HEAVY: [&str; 5] =
    ["foveate-encode-candle", "foveate-python", "foveate-queue-nats", "foveate-queue-sqs", "foveate-object-store"];
/// The fields that every package inherits from the workspace.
const INHERITED: [&str; 4] = ["version", "edition", "rust-version", "license"];

pub(crate) fn manifest_of(package: &Package) -> String {
    format!("{}/Cargo.toml", package.dir)
}

/// A folder's name is its package's name; the tests carry the project's prefix.
pub(crate) fn folder_name(tree: &Tree) -> Vec<Finding> {
    let expected = |package: &Package| match package.name.as_str() {
        "foveate-tests" => "tests".to_owned(),
        "xtask" => "xtask".to_owned(),
        name => format!("crates/{name}"),
    };
    let wrong = tree.packages.iter().filter(|package| package.dir != expected(package));
    wrong
        .map(|package| {
            let message = format!("package {} belongs into the folder {}", package.name, expected(package));
            Finding::new(manifest_of(package), message)
        })
        .collect()
}

/// Version, edition, minimum Rust and licence come from the workspace.
pub(crate) fn inheritance(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        for key in INHERITED {
            let inherits = package.manifest.get("package").and_then(|table| table.get(key)).is_some_and(from_workspace);
            if !inherits {
                findings.push(Finding::new(manifest_of(package), format!("say `{key}.workspace = true`")));
            }
        }
    }
    findings
}

/// Only the root Cargo.toml states third-party versions.
pub(crate) fn workspace_versions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        for table in dependency_tables(&package.manifest) {
            // Tests may need the package itself with another feature, or one that is published later. Only by path:
            // cargo leaves dev-dependencies without a version out of the package.
            let by_path = |value: &Value| value.get("path").is_some() && value.get("version").is_none();
            for (name, _) in table.iter().filter(|(_, value)| !from_workspace(value) && !by_path(value)) {
                let message =
                    format!("put {name}'s version into [workspace.dependencies] and say `{name}.workspace = true`");
                findings.push(Finding::new(manifest_of(package), message));
            }
        }
    }
    findings
}

pub(crate) fn from_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// `[dependencies]`, `[dev-dependencies]` and `[build-dependencies]`, also of targets.
fn dependency_tables(manifest: &toml::Table) -> Vec<&toml::Table> {
    let tables = |table: &'_ toml::Table| -> Vec<_> {
        ["dependencies", "dev-dependencies", "build-dependencies"]
            .into_iter()
            .filter(|key| table.contains_key(*key))
            .collect()
    };
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let owners = targets.filter_map(|(_, value)| value.as_table()).chain([manifest]);
    owners.flat_map(|owner| tables(owner).into_iter().filter_map(|key| owner[key].as_table())).collect()
}

/// A bare `cargo build` or `cargo test` covers exactly the crates that build with only the Rust toolchain.
pub(crate) fn default_members(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let name = package.name.as_str();
        // xtask has its alias.
        let plain = !NATIVE.contains(&name) && !HEAVY.contains(&name) && role(name) != Some(Role::Tool);
        let listed = tree.default_members.iter().any(|member| member == name);
        if plain && !listed {
            findings.push(Finding::new("Cargo.toml", format!("add \"{}\" to default-members", package.dir)));
        } else if listed && !plain {
            let message = format!("{name} does not belong into default-members (native or large library, or tool)");
            findings.push(Finding::new("Cargo.toml", message));
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
    fn a_licence_of_its_own_is_found() {
        let mut tree = fake::tree();
        let table = package(&mut tree, "foveate-decode").manifest["package"].as_table_mut().unwrap();
        table.insert("license".to_owned(), "MIT".into());
        assert_finds(inheritance, &tree, "license.workspace = true");
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
