//! Rules for crates that are published. `cargo package` and the registry find some violations late, and others never.

use toml::Value;

use crate::lex::{code, line, words};
use crate::rules::Finding;
use crate::rules::manifests::{from_workspace, manifest_of};
use crate::tree::{Kind, Package, TextFile, Tree};

/// The part of crates.io's list that our crates use. The registry drops other categories with a warning.
const CATEGORIES: [&str; 20] = [
    "api-bindings",
    "asynchronous",
    "command-line-utilities",
    "compression",
    "computer-vision",
    "concurrency",
    "database",
    "development-tools::debugging",
    "development-tools::profiling",
    "development-tools::testing",
    "encoding",
    "filesystem",
    "hardware-support",
    "multimedia::encoding",
    "multimedia::images",
    "network-programming",
    "science",
    "visualization",
    "web-programming::http-client",
    "web-programming::http-server",
];
/// Links to the workspace's files, so that every package holds its licences.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A published package says what it is, holds its licences, and needs published packages alone.
pub(crate) fn metadata(tree: &Tree) -> Vec<Finding> {
    let published = tree.packages.iter().filter(|package| package.is_published());
    published
        .flat_map(|package| {
            let problems = [fields(package), lists(package), licenses(tree, package), unpublished(tree, package)];
            problems.into_iter().flatten().map(|problem| Finding::new(manifest_of(package), problem))
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

/// Keywords and categories, with the registry's limits.
fn lists(package: &Package) -> Vec<String> {
    let strings = |key: &str| -> Vec<&str> {
        let list = package.manifest["package"].get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let (keywords, categories) = (strings("keywords"), strings("categories"));
    let mut problems = Vec::new();
    if !(1..=5).contains(&keywords.len()) || !keywords.iter().all(|keyword| is_keyword(keyword)) {
        problems.push("needs one to five `keywords` of at most 20 letters, digits and hyphens".to_owned());
    }
    if !(1..=5).contains(&categories.len()) {
        problems.push("needs one to five `categories`".to_owned());
    }
    let unknown = categories.into_iter().filter(|category| !CATEGORIES.contains(category));
    problems.extend(unknown.map(|category| {
        format!("'{category}' is not in CATEGORIES (xtask's packaging.rs); add it if crates.io has it")
    }));
    problems
}

fn is_keyword(word: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_+".contains(c);
    word.len() <= 20 && word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(is_allowed)
}

fn licenses(tree: &Tree, package: &Package) -> Vec<String> {
    let missing = LICENSES.into_iter().filter(|name| tree.file(&format!("{}/{name}", package.dir)).is_none());
    missing.map(|name| format!("its licence is missing: `ln -s ../../{name} {}/`", package.dir)).collect()
}

/// Dependencies that the registry will not have. Tests may need them: cargo leaves dev-dependencies without a version
/// out of the package.
fn unpublished(tree: &Tree, package: &Package) -> Vec<String> {
    let needed = package.dependencies.iter().filter(|dependency| dependency.ours && dependency.kind != Kind::Dev);
    let unpublished =
        needed.filter(|dependency| tree.package(&dependency.name).is_some_and(|package| !package.is_published()));
    unpublished.map(|dependency| format!("depends on {}, which is not published", dependency.name)).collect()
}

/// In `[workspace.dependencies]`, published packages have the workspace's version, and others none.
pub(crate) fn versions(tree: &Tree) -> Vec<Finding> {
    let version = tree.manifest["workspace"].get("package").and_then(|package| package.get("version"));
    let dependencies = tree.manifest["workspace"].get("dependencies").and_then(Value::as_table);
    let ours = dependencies.into_iter().flatten().filter_map(|(name, value)| Some((tree.package(name)?, value)));
    ours.filter_map(|(package, value)| {
        let expected = version.filter(|_| package.is_published());
        let problem = match expected {
            Some(version) => format!("say `version = {version}` at {}, which is published", package.name),
            None => format!("leave out the version of {}, which is not published", package.name),
        };
        (value.get("version") != expected).then(|| Finding::new("Cargo.toml", problem))
    })
    .collect()
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
    use crate::tree::fake::{self, file, ours, package};

    fn insert(tree: &mut Tree, key: &str, value: impl Into<Value>) {
        let table = package(tree, "foveate-decode").manifest["package"].as_table_mut().unwrap();
        table.insert(key.to_owned(), value.into());
    }

    #[test]
    fn missing_metadata_is_found() {
        for (key, value, expected) in [
            ("keywords", Value::Array(Vec::new()), "needs one to five `keywords`"),
            ("keywords", vec!["more than one word"].into(), "needs one to five `keywords`"),
            ("categories", vec!["images"].into(), "'images' is not in CATEGORIES"),
            ("repository", "https://example.invalid/fork".into(), "say `repository.workspace = true`"),
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
    fn a_dependency_that_is_not_published_is_found() {
        let mut tree = fake::tree();
        insert(&mut tree, "publish", false);
        package(&mut tree, "foveate-decode-zune").dependencies.retain(|dependency| dependency.name == "foveate-decode");
        package(&mut tree, "foveate-pipeline").dependencies.clear();
        assert_finds(metadata, &tree, "depends on foveate-decode, which is not published");

        let of_tests = crate::tree::Dependency { kind: Kind::Dev, ..ours("foveate-decode") };
        package(&mut tree, "foveate-decode-zune").dependencies = vec![of_tests];
        assert!(metadata(&tree).is_empty());
    }

    #[test]
    fn versions_of_published_packages_are_the_workspaces() {
        let mut tree = fake::tree();
        let table = |version: &str| -> toml::Table {
            let text =
                format!("[workspace]\npackage.version = \"1.2.0\"\ndependencies.foveate-decode = {{ {version} }}");
            text.parse().unwrap()
        };
        tree.manifest = table("version = \"1.2.0\"");
        assert!(versions(&tree).is_empty());
        tree.manifest = table("version = \"1.1.0\"");
        assert_finds(versions, &tree, "say `version = \"1.2.0\"` at foveate-decode");
        insert(&mut tree, "publish", false);
        assert_finds(versions, &tree, "leave out the version of foveate-decode");
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
