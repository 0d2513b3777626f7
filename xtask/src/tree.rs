//! The input of the rules: the workspace's packages and text files, loaded once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cargo::{cargo, git, output};

/// The workspace as the rules see it. Paths are relative to its root, with `/`.
pub(crate) struct Tree {
    pub(crate) packages: Vec<Package>,
    /// Names of the packages that a bare `cargo build` covers.
    pub(crate) default_members: Vec<String>,
    /// The root Cargo.toml.
    pub(crate) manifest: toml::Table,
    pub(crate) files: Vec<TextFile>,
    /// Hashes and subjects of the commits since [`CHECKED_SINCE`].
    pub(crate) commits: Vec<(String, String)>,
}

/// The last commit whose subject is not checked. A repository without it has no commits to check.
const CHECKED_SINCE: &str = "0f21834ee8d2";

/// A package, as `cargo metadata` describes it.
#[derive(Default, Deserialize)]
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    manifest_path: PathBuf,
    #[serde(skip)]
    pub(crate) dir: String,
    /// Its Cargo.toml, without the values that cargo inherits.
    #[serde(skip)]
    pub(crate) manifest: toml::Table,
}

#[derive(Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build` or nothing.
    pub(crate) kind: Option<String>,
    pub(crate) optional: bool,
    path: Option<String>,
}

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<Package>,
    workspace_default_members: Vec<String>,
    workspace_root: PathBuf,
}

pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
    parsed: OnceCell<Option<syn::File>>,
}

impl TextFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), parsed: OnceCell::new() }
    }

    /// The syntax of a Rust file, parsed once for all rules. `None` if it does not parse, and so does not compile.
    pub(crate) fn parsed(&self) -> Option<&syn::File> {
        self.parsed.get_or_init(|| syn::parse_file(&self.text).ok()).as_ref()
    }
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let said = output(cargo(root).args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let CargoMetadata { mut packages, workspace_default_members: defaults, workspace_root } =
            serde_json::from_str(&said)?;
        for package in &mut packages {
            let dir = package.manifest_path.parent().and_then(|dir| dir.strip_prefix(&workspace_root).ok());
            let dir = dir.and_then(Path::to_str).context("a package outside of the workspace")?;
            package.dir = dir.replace('\\', "/");
            package.manifest = read_toml(&package.manifest_path)?;
        }
        let default_members = packages.iter().filter(|package| defaults.contains(&package.id));
        Ok(Self {
            default_members: default_members.map(|package| package.name.clone()).collect(),
            packages,
            manifest: read_toml(&root.join("Cargo.toml"))?,
            files: files(root)?,
            commits: commits(root),
        })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Rust files of a package: its sources, tests, examples and build script.
    pub(crate) fn rust_files<'a>(&'a self, package: &'a Package) -> impl Iterator<Item = &'a TextFile> {
        self.files.iter().filter(move |file| {
            file.path.ends_with(".rs")
                && file.path.strip_prefix(package.dir.as_str()).is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

impl Package {
    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.dir)
    }

    /// A field of its manifest's `[package]`.
    pub(crate) fn field(&self, key: &str) -> Option<&toml::Value> {
        self.manifest.get("package").and_then(|table| table.get(key))
    }

    pub(crate) fn is_published(&self) -> bool {
        self.field("publish").and_then(toml::Value::as_bool) != Some(false)
    }

    /// Dependencies that users' programs include.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"))
    }
}

impl Dependency {
    /// Returns true if the package belongs to this workspace.
    pub(crate) fn ours(&self) -> bool {
        self.path.is_some()
    }
}

/// Every file that git tracks or would add; build outputs are left out.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>> {
    let listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    Ok(listed.split_terminator('\0').map(str::to_owned).collect())
}

/// Copies the files that git knows into a new repository, because tidy asks git for files. Build outputs in the copy
/// are kept.
pub(crate) fn copy_tree(root: &Path, copy: &Path) -> Result<()> {
    for entry in std::fs::read_dir(copy).into_iter().flatten() {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            std::fs::remove_dir_all(&path)?;
        }
    }
    for path in paths(root)? {
        let to = copy.join(&path);
        std::fs::create_dir_all(to.parent().unwrap_or(copy))?;
        // Files that are deleted but not committed yet are skipped, and so are links to folders.
        if root.join(&path).is_file() {
            std::fs::copy(root.join(&path), to)?;
        }
    }
    git(copy, &["init", "--quiet"]).map(drop)
}

fn commits(root: &Path) -> Vec<(String, String)> {
    let range = format!("{CHECKED_SINCE}..HEAD");
    let lines = git(root, &["log", "--no-merges", "--format=%h %s", &range]).unwrap_or_default();
    lines.lines().filter_map(|line| line.split_once(' ')).map(|(hash, subject)| (hash.into(), subject.into())).collect()
}

fn files(root: &Path) -> Result<Vec<TextFile>> {
    // Skips files that are not UTF-8, which are not text, and files that are deleted but not committed yet.
    let mut files = Vec::new();
    for path in paths(root)? {
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            files.push(TextFile::new(&path, &text));
        }
    }
    Ok(files)
}

fn read_toml(path: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("cannot parse {}", path.display()))
}

/// A small, well-kept workspace that every rule accepts; tests break one thing in it.
#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    const INHERITED: &str = "version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
        license.workspace = true\nrepository.workspace = true\nexclude.workspace = true\n\
        keywords = [\"x\"]\ncategories = [\"science\"]\n";

    pub(crate) fn tree() -> Tree {
        let mut tree = Tree {
            packages: Vec::new(),
            default_members: Vec::new(),
            manifest: "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nmissing_docs = \"warn\"".parse().unwrap(),
            files: Vec::new(),
            commits: vec![("0123abc".to_owned(), "core: name the limit in the error".to_owned())],
        };
        for (name, imports) in [
            ("foveate-core", &[][..]),
            ("foveate-profile", &[]),
            ("foveate-decode", &["foveate-core"]),
            ("foveate-encode", &["foveate-core"]),
            ("foveate-model", &["foveate-core", "foveate-encode"]),
            ("foveate-decode-zune", &["foveate-core", "foveate-decode"]),
            ("foveate-encode-fused", &["foveate-core", "foveate-encode", "foveate-model"]),
            ("foveate-pipeline", &["foveate-core", "foveate-decode", "foveate-encode", "foveate-profile"]),
            ("foveate", &["foveate-pipeline"]),
        ] {
            add_package(&mut tree, name, imports);
        }
        add_facade(&mut tree);
        add_file(&mut tree, "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n");
        add_file(&mut tree, "Cargo.lock", "");
        add_file(&mut tree, ".cargo/config.toml", "[alias]\nxtask = \"run\"\n");
        tree
    }

    fn add_package(tree: &mut Tree, name: &str, imports: &[&str]) {
        let dir = format!("crates/{name}");
        let text = format!("[package]\nname = \"{name}\"\ndescription = \"x\"\n{INHERITED}[lints]\nworkspace = true\n");
        tree.packages.push(Package {
            name: name.to_owned(),
            dir: dir.clone(),
            description: Some("x".to_owned()),
            dependencies: imports.iter().map(|import| ours(import)).collect(),
            manifest: text.parse().unwrap(),
            ..Package::default()
        });
        tree.default_members.push(name.to_owned());
        for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            add_file(tree, &format!("{dir}/{file}"), "x\n");
        }
        add_file(tree, &format!("{dir}/src/lib.rs"), "//! What it is.\n");
    }

    fn add_facade(tree: &mut Tree) {
        let table = "//! Facade.\nbackends! { foveate_decode_zune, foveate_encode_fused }\n";
        file(tree, "crates/foveate/src/lib.rs").text = table.to_owned();
        let facade = package(tree, "foveate");
        for (feature, name) in [("zune", "foveate-decode-zune"), ("fused", "foveate-encode-fused")] {
            facade.features.insert(feature.to_owned(), vec![format!("dep:{name}")]);
            facade.dependencies.push(Dependency { optional: true, ..ours(name) });
        }
    }

    pub(crate) fn ours(name: &str) -> Dependency {
        Dependency { path: Some(String::new()), ..theirs(name) }
    }

    pub(crate) fn theirs(name: &str) -> Dependency {
        Dependency { name: name.to_owned(), ..Dependency::default() }
    }

    pub(crate) fn package<'a>(tree: &'a mut Tree, name: &str) -> &'a mut Package {
        tree.packages.iter_mut().find(|package| package.name == name).unwrap()
    }

    pub(crate) fn file<'a>(tree: &'a mut Tree, path: &str) -> &'a mut TextFile {
        tree.files.iter_mut().find(|file| file.path == path).unwrap()
    }

    pub(crate) fn add_file(tree: &mut Tree, path: &str, text: &str) {
        tree.files.push(TextFile::new(path, text));
    }
}
