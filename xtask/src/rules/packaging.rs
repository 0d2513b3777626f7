//! Rules for crates that are published, which `cargo package` does not check.

#[cfg(test)]
use toml::Value;

use crate::lex::{code, line, words};
use crate::rules::Finding;
use crate::rules::manifests::{from_workspace, manifest_of};
use crate::tree::{Package, TextFile, Tree};

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

/// Sources of a published package include no file from outside of the package: there is none once it is packaged.
pub(crate) fn included_files(tree: &Tree) -> Vec<Finding> {
    let published = tree.packages.iter().filter(|package| package.is_published());
    published
        .flat_map(|package| tree.rust_files(package).flat_map(|file| included_from_outside(package, file)))
        .collect()
}

fn included_from_outside(package: &Package, file: &TextFile) -> Vec<Finding> {
    let Some(path) = file.path.strip_prefix(&format!("{}/", package.dir)).filter(|path| path.starts_with("src/"))
    else {
        return Vec::new();
    };
    let code = code(&file.text);
    let macros = ["include", "include_str", "include_bytes"].into_iter().flat_map(|name| words(&code, name));
    // The first literal is the path, or its beginning in a `concat!`.
    let outside = macros.filter(|&at| {
        let included = file.text[at..].split('"').nth(1).unwrap_or_default();
        included.matches("../").count() > path.matches('/').count()
    });
    outside
        .map(|at| {
            let at = format!("{}:{}", file.path, line(&file.text, at));
            Finding::new(at, "includes a file from outside of its package; move the file into the package")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, file, package};

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

    #[test]
    fn an_included_file_from_outside_is_found() {
        for (included, is_outside) in [
            ("include_str!(\"../README.md\")", false),
            ("// include_str!(\"../../a\")", false),
            ("include_bytes!(\"../../a.bin\")", true),
            ("include_str!(concat!(\"../../models/\", $name))", true),
        ] {
            let mut tree = fake::tree();
            file(&mut tree, "crates/foveate-decode/src/lib.rs").text = format!("//! It.\n{included}\n");
            match is_outside {
                true => assert_finds(included_files, &tree, "src/lib.rs:2"),
                false => assert!(included_files(&tree).is_empty(), "{included}"),
            }
        }
    }
}
