//! Rules for Rust sources.

use crate::lex::{code, line, words};
use crate::rules::Finding;
use crate::rules::layers::{Role, role};
use crate::tree::{Kind, Package, TextFile, Tree};

/// Packages that may contain `unsafe`, and why. Everywhere else the workspace's `forbid` holds.
const UNSAFE: &[(&str, &str)] = &[
    ("foveate-encode-tch", "nothing links to libtorch's CUDA half, so that programs start without it: it is loaded"),
    ("foveate-cuda", "the driver and cuBLASLt are C libraries, loaded at run time"),
    ("foveate-search", "files that use detected instructions, and one that maps a file"),
    ("foveate-encode-fused", "files for CUDA kernels, for AMX, and one that calls code for detected instructions"),
    ("foveate-decode-extra", "libheif is a C library, loaded at run time"),
    ("foveate-decode-nvjpeg", "nvJPEG is a C library, loaded at run time, and its kernels take untyped arguments"),
    ("foveate-worker", "one call of the C library tells its heap to give large allocations back"),
    ("foveate-python", "Arrow arrays of other libraries are taken over by pointers; one file does it"),
    ("foveate-cuda-emulator", "it stands in for C libraries, and is loaded as they are"),
];

/// Prefixes of lines that begin a public item or field, and so belong to a signature.
const PUBLIC: [&str; 8] =
    ["pub fn", "pub const", "pub static", "pub type", "pub struct", "pub enum", "pub trait", "pub use"];

/// A crate whose types may be public: spans pass between crates, and no other type can represent them.
const VOCABULARY: &str = "tracing";

/// Trait crates and core expose no third-party types: replacing a library must not be a breaking change. The check is
/// approximate, because it reads lines and not types, and may miss violations.
pub(crate) fn foreign_types(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        if !matches!(role(&package.name), Some(Role::Trait | Role::Leaf | Role::Model)) {
            continue;
        }
        let foreign = foreign_crates(package);
        for file in tree.rust_files(package).filter(|file| file.path.contains("/src/")) {
            findings.extend(foreign_in(file, &foreign));
        }
    }
    findings
}

fn foreign_crates(package: &Package) -> Vec<String> {
    let theirs = package.dependencies.iter().filter(|dependency| !dependency.ours && dependency.kind != Kind::Dev);
    let names = theirs.map(|dependency| dependency.name.replace('-', "_"));
    names.filter(|name| name != VOCABULARY).collect()
}

fn foreign_in(file: &TextFile, foreign: &[String]) -> Vec<Finding> {
    let code = code(&file.text);
    let imported = imported_names(&code, foreign);
    let mut findings = Vec::new();
    for (number, text) in code.lines().enumerate() {
        let text = text.trim_start();
        if !is_public(text) {
            continue;
        }
        let through_path = foreign.iter().find(|name| text.contains(&format!("{name}::")));
        let through_import = imported.iter().find(|name| words(text, name).next().is_some());
        if let Some(name) = through_path.or(through_import) {
            let message =
                format!("'{name}' of a third-party crate shows in a public signature; wrap it in a type of ours");
            findings.push(Finding::new(format!("{}:{}", file.path, number + 1), message));
        }
    }
    findings
}

/// Whether a line begins a public item, or is a public field (`pub name: Type`).
fn is_public(line: &str) -> bool {
    let field = line.strip_prefix("pub ").and_then(|rest| rest.split_once(':'));
    PUBLIC.iter().any(|start| line.starts_with(start))
        || field.is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

/// Names that `use foreign::…` brings into scope; derives are not types.
fn imported_names(code: &str, foreign: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines().filter_map(|line| line.trim_start().strip_prefix("use ")) {
        let Some((first, rest)) = line.split_once("::") else { continue };
        if !foreign.iter().any(|name| name == first.trim()) {
            continue;
        }
        let parts = rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|part| !part.is_empty());
        names.extend(parts.filter(|part| part.starts_with(char::is_uppercase)).map(str::to_owned));
    }
    names.retain(|name| !["Serialize", "Deserialize"].contains(&name.as_str()));
    names
}

/// Every package inherits the workspace's lints, which forbid `unsafe`; only the named ones may deny it instead.
pub(crate) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let finding = |package: &Package| {
        let allowed = UNSAFE.iter().any(|(name, _)| *name == package.name);
        let message = match allowed {
            true => "its [lints] must equal the workspace's, but for unsafe_code = \"deny\"",
            false => "say `[lints] workspace = true`",
        };
        let wrong = !has_lints(tree, package, allowed);
        wrong.then(|| Finding::new(format!("{}/Cargo.toml", package.dir), message))
    };
    tree.packages.iter().filter_map(finding).collect()
}

fn has_lints(tree: &Tree, package: &Package, unsafe_allowed: bool) -> bool {
    let Some(lints) = package.manifest.get("lints").and_then(|lints| lints.as_table()) else { return false };
    // Packages that may use `unsafe` need not.
    let inherits = lints.get("workspace").and_then(toml::Value::as_bool) == Some(true);
    if inherits || !unsafe_allowed {
        return inherits;
    }
    let workspace =
        tree.manifest.get("workspace").and_then(|table| table.get("lints")).and_then(|lints| lints.as_table());
    let mut expected = workspace.cloned().unwrap_or_default();
    if let Some(rust) = expected.get_mut("rust").and_then(|rust| rust.as_table_mut()) {
        rust.insert("unsafe_code".to_owned(), "deny".into());
    }
    *lints == expected
}

/// Forbids notes about unfinished work; clippy forbids its macros.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let note = concat!("FIX", "ME");
    let notes = |file: &TextFile| {
        let at = words(&file.text, note).map(|at| format!("{}:{}", file.path, line(&file.text, at)));
        at.map(|at| Finding::new(at, format!("a {note} must not stay; fix it or open an issue"))).collect::<Vec<_>>()
    };
    tree.files.iter().filter(|file| file.path.ends_with(".rs")).flat_map(notes).collect()
}

/// Every library crate describes itself in its README, in its description and at the top of its root file.
pub(crate) fn crate_docs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| package.dir.starts_with("crates/")) {
        if tree.file(&format!("{}/README.md", package.dir)).is_none() {
            findings.push(Finding::new(&package.dir, "has no README.md: what it is, and one runnable example"));
        }
        if package.description.as_deref().is_none_or(str::is_empty) {
            findings.push(Finding::new(format!("{}/Cargo.toml", package.dir), "has no description"));
        }
        let root = format!("{}/src/lib.rs", package.dir);
        let documented = |file: &TextFile| file.text.starts_with("//!") || file.text.starts_with("#![doc");
        if !tree.file(&root).is_some_and(documented) {
            findings.push(Finding::new(root, "must begin with `//!` documentation of the crate"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file, file, package, theirs};

    const LIB: &str = "crates/foveate-decode/src/lib.rs";

    #[test]
    fn foreign_types_in_signatures_are_found() {
        for public in [
            "pub fn f(x: image::Rgb) {}",
            "pub use image::Rgb;",
            "use image::{Rgb, imageops};\npub fn f() -> Option<Rgb> {}",
            "struct S {\n    pub pixel: image::Rgb,\n}",
        ] {
            let mut tree = fake::tree();
            package(&mut tree, "foveate-decode").dependencies.push(theirs("image"));
            file(&mut tree, LIB).text = format!("//! x\n{public}\n");
            assert_finds(foreign_types, &tree, "shows in a public signature");
        }
    }

    #[test]
    fn foreign_types_inside_are_fine() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").dependencies.extend([theirs("image"), theirs("serde")]);
        file(&mut tree, LIB).text = "//! x\nuse image::Rgb;\nuse serde::Serialize;\nfn f(x: Rgb) {}\n\
            pub(crate) fn g(x: Rgb) {}\n#[derive(Serialize)]\npub struct S(u8);\n// pub fn h(x: image::Rgb)\n"
            .to_owned();
        assert!(foreign_types(&tree).is_empty());
    }

    #[test]
    fn lints_of_its_own_are_found() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").manifest.remove("lints");
        assert_finds(unsafe_code, &tree, "say `[lints] workspace = true`");
    }

    #[test]
    fn an_allowed_package_keeps_the_other_lints() {
        let mut tree = fake::tree();
        let lints: toml::Table = "[lints.rust]\nunsafe_code = \"deny\"\nmissing_docs = \"warn\"".parse().unwrap();
        package(&mut tree, "foveate-decode").manifest.insert("lints".to_owned(), lints["lints"].clone());
        let accepted = |tree: &Tree| has_lints(tree, tree.package("foveate-decode").unwrap(), true);
        assert!(accepted(&tree));
        let lints = package(&mut tree, "foveate-decode").manifest["lints"]["rust"].as_table_mut().unwrap();
        lints.remove("missing_docs");
        assert!(!accepted(&tree));
    }

    #[test]
    fn notes_about_unfinished_work_are_found() {
        let mut tree = fake::tree();
        file(&mut tree, LIB).text = concat!("//! x\n// FIX", "ME later\n").to_owned();
        assert_finds(unfinished, &tree, "lib.rs:2");
    }

    #[test]
    fn undocumented_crates_are_found() {
        let mut tree = fake::tree();
        tree.files.retain(|file| file.path != "crates/foveate-decode/README.md");
        assert_finds(crate_docs, &tree, "crates/foveate-decode: has no README.md");

        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").description = None;
        assert_finds(crate_docs, &tree, "has no description");

        let mut tree = fake::tree();
        file(&mut tree, LIB).text = "fn f() {}\n".to_owned();
        assert_finds(crate_docs, &tree, "must begin with `//!`");
        add_file(&mut tree, "unrelated.rs", "");
        assert_eq!(crate_docs(&tree).len(), 1);
    }
}
