//! The input of the rules: the workspace's packages and text files, loaded once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

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

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dir: String,
    pub(crate) description: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// Its Cargo.toml, without the values that cargo inherits.
    pub(crate) manifest: toml::Table,
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) optional: bool,
    /// True if the package belongs to this workspace.
    pub(crate) ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
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
        let metadata = metadata(root)?;
        let root_dir = text(&metadata, "workspace_root")?.to_owned();
        let packages: Vec<Package> = list(&metadata, "packages")
            .iter()
            .map(|package| Package::load(package, &root_dir))
            .collect::<Result<_>>()?;
        let ids: BTreeMap<&str, &str> = list(&metadata, "packages")
            .iter()
            .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
            .collect();
        let default_members = list(&metadata, "workspace_default_members")
            .iter()
            .filter_map(|id| ids.get(id.as_str()?).map(|name| (*name).to_owned()))
            .collect();
        Ok(Self {
            packages,
            default_members,
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
    fn load(package: &Value, root: &str) -> Result<Self> {
        let manifest_path = text(package, "manifest_path")?;
        let dir = Path::new(manifest_path).parent().and_then(|dir| dir.strip_prefix(root).ok());
        let dir = dir.and_then(Path::to_str).context("a package outside of the workspace")?.replace('\\', "/");
        let features = package["features"].as_object().into_iter().flatten();
        Ok(Self {
            name: text(package, "name")?.to_owned(),
            dir,
            description: package["description"].as_str().map(str::to_owned),
            dependencies: list(package, "dependencies").iter().map(Dependency::load).collect::<Result<_>>()?,
            features: features.map(|(name, on)| (name.clone(), strings(on))).collect(),
            manifest: read_toml(Path::new(manifest_path))?,
        })
    }

    pub(crate) fn is_published(&self) -> bool {
        self.manifest["package"].get("publish").and_then(toml::Value::as_bool) != Some(false)
    }
}

impl Dependency {
    fn load(dependency: &Value) -> Result<Self> {
        let kind = match dependency["kind"].as_str() {
            None => Kind::Normal,
            Some("dev") => Kind::Dev,
            Some("build") => Kind::Build,
            Some(other) => bail!("unknown kind of dependency '{other}'"),
        };
        Ok(Self {
            name: text(dependency, "name")?.to_owned(),
            kind,
            optional: dependency["optional"].as_bool().unwrap_or(false),
            ours: dependency["path"].is_string(),
        })
    }
}

fn metadata(root: &Path) -> Result<Value> {
    let output = crate::cargo::cargo(root)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Every file that git tracks or would add; build outputs are left out.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        // In containers, the checkout often belongs to another user; listing its files is harmless.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot start git, which lists the project's files")?;
    if !output.status.success() {
        bail!("git ls-files failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
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
    crate::cargo::succeed(Command::new("git").current_dir(copy).args(["init", "--quiet"]))
}

fn commits(root: &Path) -> Vec<(String, String)> {
    let range = format!("{CHECKED_SINCE}..HEAD");
    let log = ["-c", "safe.directory=*", "log", "--no-merges", "--format=%h %s", &range];
    let output = Command::new("git").current_dir(root).args(log).output().ok().filter(|output| output.status.success());
    let lines = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
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

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no '{key}'"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
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
            ("foveate-dinov2", &["foveate-core", "foveate-encode"]),
            ("foveate-decode-zune", &["foveate-core", "foveate-decode"]),
            ("foveate-encode-fused", &["foveate-core", "foveate-encode", "foveate-dinov2"]),
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
            features: BTreeMap::new(),
            manifest: text.parse().unwrap(),
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
        Dependency { name: name.to_owned(), kind: Kind::Normal, optional: false, ours: true }
    }

    pub(crate) fn theirs(name: &str) -> Dependency {
        Dependency { ours: false, ..ours(name) }
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
