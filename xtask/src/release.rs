//! `cargo xtask release VERSION`: prepares a release in a clone of the repository, and says how to publish it.
//!
//! The clone gets a commit with the version and the changelog, a tag, and everything that is built from this commit.
//! Nothing outside of the target folder is touched. The commands that it prints publish the release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, empty_folder, git, output, succeed, target};
use crate::tree::{self, Tree};
use crate::{figures, package, wheel};

/// Uploads wheels, and checks how PyPI will show them.
const TWINE: &str = "twine==6.2.0";
const UNRELEASED: &str = "## [Unreleased]\n";

#[derive(clap::Args)]
pub(crate) struct ReleaseArgs {
    /// MAJOR.MINOR.PATCH
    #[arg(value_parser = parse_version)]
    version: String,
    /// A wheel of this version that another machine built; repeat it for more [default: build one for this system]
    #[arg(long, value_name = "FILE")]
    wheel: Vec<PathBuf>,
    /// Prepare it even if recorded figures are older than what they measure
    #[arg(long)]
    allow_stale: bool,
}

fn parse_version(text: &str) -> Result<String, String> {
    let numbers: Vec<_> = text.split('.').map(str::parse::<u32>).collect();
    match numbers.len() == 3 && numbers.iter().all(Result::is_ok) {
        true => Ok(text.to_owned()),
        false => Err("a version is MAJOR.MINOR.PATCH, such as 0.2.0".to_owned()),
    }
}

pub(crate) fn run(root: &Path, args: &ReleaseArgs) -> Result<()> {
    args.wheel.iter().try_for_each(|wheel| check_name(wheel, &args.version))?;
    if !args.allow_stale {
        figures::refuse_stale(root)?;
    }
    let release = PreparedRelease::new(root, &args.version)?;
    release.commit()?;
    let wheels = release.artifacts(&args.wheel)?;
    println!("\nNothing was published. To publish, with tokens in CARGO_REGISTRY_TOKEN and TWINE_PASSWORD:");
    println!("{}", release.commands(&wheels));
    Ok(())
}

struct PreparedRelease<'a> {
    version: &'a str,
    /// The folder that is published.
    folder: PathBuf,
    /// The clone.
    source: PathBuf,
    twine: PathBuf,
}

impl<'a> PreparedRelease<'a> {
    fn new(root: &Path, version: &'a str) -> Result<Self> {
        let tagged = !git(root, &["tag", "--list", &format!("v{version}")])?.is_empty();
        ensure!(!tagged, "there is a tag v{version} already; choose the next version");
        let folder = target(root).join(format!("release-{version}"));
        empty_folder(&folder)?;
        let source = folder.join("source");
        git(root, &["clone", "--quiet", ".", text(&source)?])?;
        let tools = wheel::environment(root, &wheel::default_python(), "release", [TWINE.into()])?;
        Ok(Self { version, folder, source, twine: tools.join("bin/twine") })
    }

    /// Commits and tags the version and the changelog.
    fn commit(&self) -> Result<()> {
        let old = package::version(&Tree::load(&self.source)?)?.to_owned();
        self.edit("Cargo.toml", |manifest| bump(manifest, &old, self.version))?;
        let date = output(Command::new("date").arg("+%Y-%m-%d"))?;
        self.edit("CHANGELOG.md", |changelog| released(changelog, self.version, date.trim()))?;
        // Cargo writes the versions into the lock files.
        for lock in tree::paths(&self.source)?.iter().filter(|path| path.ends_with("Cargo.lock")) {
            let folder = self.source.join(lock.trim_end_matches("Cargo.lock"));
            output(cargo(&folder).args(["metadata", "--format-version", "1"]))?;
        }
        println!("{}", git(&self.source, &["diff", "--stat"])?);
        let message = format!("release: {}", self.version);
        let tag = format!("v{}", self.version);
        git(&self.source, &["commit", "--quiet", "--all", "--message", &message])?;
        git(&self.source, &["tag", "--annotate", &tag, "--message", &message])?;
        Ok(())
    }

    fn edit(&self, name: &str, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
        let path = self.source.join(name);
        let text = fs::read_to_string(&path)?;
        fs::write(&path, change(&text).with_context(|| name.to_owned())?)?;
        Ok(())
    }

    /// Builds wheels, packages, the wheels' bills of materials and the checksums. Returns the wheels.
    fn artifacts(&self, built: &[PathBuf]) -> Result<Vec<PathBuf>> {
        for archive in package::run(&self.source, false)? {
            self.take(&archive)?;
        }
        let python = wheel::default_python();
        let built = match built {
            [] => vec![wheel::portable(&self.source, &python, &self.folder)?],
            built => built.iter().map(|wheel| self.take(wheel)).collect::<Result<_>>()?,
        };
        succeed(Command::new(&self.twine).args(["check", "--strict"]).args(&built))?;
        const MATERIALS: &str = "import pathlib, sys, zipfile
for wheel in map(pathlib.Path, sys.argv[1:]):
    with zipfile.ZipFile(wheel) as archive:
        bill, = (name for name in archive.namelist() if name.endswith('.cyclonedx.json'))
        wheel.with_suffix('.cyclonedx.json').write_bytes(archive.read(bill))";
        succeed(Command::new(&python).args(["-c", MATERIALS]).args(&built))?;
        const SUMS: &str = "sha256sum *.crate *.whl *.json > SHA256SUMS && cat SHA256SUMS";
        succeed(Command::new("sh").current_dir(&self.folder).args(["-c", SUMS]))?;
        Ok(built)
    }

    /// Copies a file into the release's folder.
    fn take(&self, file: &Path) -> Result<PathBuf> {
        let to = self.folder.join(name(file)?);
        fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(to)
    }

    /// The commands that publish the release, to be run in the repository.
    fn commands(&self, wheels: &[PathBuf]) -> String {
        // `cargo xtask ci --full` has built each crate from its package.
        let wheels: Vec<_> = wheels.iter().map(|wheel| format!("'{}'", wheel.display())).collect();
        format!(
            "git pull --ff-only --tags '{source}' HEAD\n\
             cargo publish --workspace --locked --no-verify --manifest-path '{source}/Cargo.toml'\n\
             '{}' upload --username __token__ {}\n\
             git push --follow-tags",
            self.twine.display(),
            wheels.join(" "),
            source = self.source.display(),
        )
    }
}

/// The root manifest with another version, at the workspace and wherever it names a package of ours.
fn bump(manifest: &str, old: &str, new: &str) -> Result<String> {
    let [old, new] = [old, new].map(|version| format!("version = \"{version}\""));
    let (before, after) = manifest.split_once(&format!("\n{old}\n")).context("no line has the workspace's version")?;
    let mut lines = Vec::new();
    for line in after.lines() {
        lines.push(if line.starts_with("foveate") { line.replace(&old, &new) } else { line.to_owned() });
    }
    Ok(format!("{before}\n{new}\n{}\n", lines.join("\n")))
}

/// The changelog with the unreleased changes under a version.
fn released(changelog: &str, version: &str, date: &str) -> Result<String> {
    let (before, after) = changelog.split_once(UNRELEASED).context("there is no section `## [Unreleased]`")?;
    let changes = after.split("\n## ").next().unwrap_or_default();
    ensure!(!changes.trim().is_empty(), "nothing is under `## [Unreleased]`; say there what is new");
    Ok(format!("{before}{UNRELEASED}\n## [{version}] - {date}\n{after}"))
}

/// Checks whether a wheel is there and of the version, by its name.
fn check_name(wheel: &Path, version: &str) -> Result<()> {
    ensure!(wheel.is_file(), "there is no wheel {}", wheel.display());
    let name = name(wheel)?;
    let of_version = name.starts_with(&format!("foveate-{version}-")) && name.ends_with(".whl");
    ensure!(of_version, "{name} is no wheel of version {version}; build it from the release's commit");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn name(file: &Path) -> Result<&str> {
    text(Path::new(file.file_name().with_context(|| format!("{} is no file", file.display()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_this_workspace_can_be_raised() {
        let root = crate::cargo::root();
        let mut tree = Tree::load(&root).unwrap();
        let old = package::version(&tree).unwrap().to_owned();
        let raised = bump(&fs::read_to_string(root.join("Cargo.toml")).unwrap(), &old, "9.8.7").unwrap();
        tree.manifest = raised.parse().unwrap();
        assert_eq!(package::version(&tree).unwrap(), "9.8.7");
        assert!(bump(&raised, &old, "1.0.0").is_err());
    }

    #[test]
    fn versions_of_others_stay() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\n\
            foveate-core = { version = \"0.1.0\" }\nother = { version = \"0.1.0\" }\n";
        let raised = bump(manifest, "0.1.0", "0.2.0").unwrap();
        assert_eq!(raised.matches("0.2.0").count(), 2);
        assert!(raised.ends_with("other = { version = \"0.1.0\" }\n"));
    }

    #[test]
    fn unreleased_changes_go_under_the_version() {
        let changelog = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- x\n\n## [0.1.0] - 2026-01-01\n";
        let new = released(changelog, "0.2.0", "2026-02-02").unwrap();
        let start = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-02\n\n### Added\n\n- x\n\n## [0.1.0]";
        assert!(new.starts_with(start), "{new}");
        assert!(released(&new, "0.3.0", "2026-03-03").unwrap_err().to_string().contains("say there what is new"));
        assert!(released("# Changelog\n", "0.3.0", "2026-03-03").is_err());
    }

    #[test]
    fn versions_are_three_numbers() {
        assert_eq!(parse_version("0.2.0").unwrap(), "0.2.0");
        for wrong in ["0.2", "v0.2.0", "0.2.0-rc.1", ""] {
            assert!(parse_version(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wheels_of_other_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("foveate-0.2.0-cp310-abi3-any.whl");
        assert!(check_name(&wheel, "0.2.0").unwrap_err().to_string().starts_with("there is no wheel"));
        fs::write(&wheel, b"").unwrap();
        assert!(check_name(&wheel, "0.2.0").is_ok());
        let refused = check_name(&wheel, "0.1.0").unwrap_err().to_string();
        assert!(refused.contains("is no wheel of version 0.1.0"), "{refused}");
    }
}
