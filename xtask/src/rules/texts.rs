//! Rules for other text files.

use crate::rules::{TidyFinding, line};
use crate::tree::Tree;

/// The changelog has a section for unreleased changes.
pub(crate) fn changelog(tree: &Tree) -> Vec<TidyFinding> {
    let has_section = tree.file("CHANGELOG.md").is_some_and(|file| file.text.contains("\n## [Unreleased]"));
    if has_section { Vec::new() } else { vec![TidyFinding::new("CHANGELOG.md", "needs a section `## [Unreleased]`")] }
}

/// A commit's subject says what changes, in one line of a log.
pub(crate) fn commit_subjects(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (hash, subject) in &tree.commits {
        if !(10..=72).contains(&subject.chars().count()) {
            let message = format!("the subject '{subject}' has to have 10 to 72 characters; `git commit --amend`");
            findings.push(TidyFinding::new(format!("commit {hash}"), message));
        }
    }
    findings
}

/// No published file contains a path of a developer's machine.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<TidyFinding> {
    // Assembled here so that this file does not match.
    let needles =
        [concat!("/wo", "rk/main"), concat!("/wo", "rk/shared"), concat!("/ro", "ot/"), concat!("/tmp/", "bash_jobs")];
    let mut findings = Vec::new();
    for file in &tree.files {
        for needle in needles {
            for (at, _) in file.text.match_indices(needle) {
                let message = format!("'{needle}' is a path of one machine; say it relative to the workspace");
                findings.push(TidyFinding::new(format!("{}:{}", file.path, line(&file.text, at)), message));
            }
        }
    }
    findings
}

/// The project's cargo configuration holds only aliases and the include of what `cargo xtask setup` writes. Each
/// machine configures its own registry mirrors.
pub(crate) fn cargo_config(tree: &Tree) -> Vec<TidyFinding> {
    const CONFIG: &str = ".cargo/config.toml";
    let config: toml::Table = tree.file(CONFIG).and_then(|file| file.text.parse().ok()).unwrap_or_default();
    let foreign = config.keys().filter(|key| !["alias", "include"].contains(&key.as_str()));
    foreign.map(|key| TidyFinding::new(CONFIG, format!("[{key}] does not belong here, but on the machine"))).collect()
}

/// The guide's table of features is the facade's manifest, in other words.
pub(crate) fn feature_table(tree: &Tree) -> Vec<TidyFinding> {
    const GUIDE: &str = "docs/backends.md";
    /// Parts of other features.
    const UNLISTED: [&str; 4] = ["default", "cli", "worker", "extra"];
    let Some(guide) = tree.file(GUIDE) else { return Vec::new() };
    let Some(facade) = tree.packages.iter().find(|package| package.name == "foveate") else { return Vec::new() };
    let defaults = facade.features.get("default").map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    for feature in facade.features.keys().filter(|feature| !UNLISTED.contains(&feature.as_str())) {
        let is_default = defaults.contains(feature);
        let mut cells = guide.text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let of_feature = cells.find(|cell| cell.split(['`', ',', ' ']).any(|word| word == feature));
        if of_feature.is_none_or(|cell| cell.contains("(default)") != is_default) {
            let mark = if is_default { " as (default)" } else { "" };
            findings.push(TidyFinding::new(GUIDE, format!("the table of features lacks `{feature}`{mark}")));
        }
    }
    findings
}

/// Columns of a line of prose.
const WIDTH: usize = 120;
/// Written by programs.
const GENERATED: [&str; 2] = ["benches/runs/", "crates/foveate-report/SCHEMA.md"];

/// Comments and Markdown keep to [`WIDTH`] columns; rustfmt sees to code. Tables and code blocks may be wider.
pub(crate) fn width(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !GENERATED.iter().any(|path| file.path.starts_with(path))) {
        let lines: Vec<(usize, &str)> = match file.path.rsplit('.').next() {
            Some("md") => prose(&file.text),
            Some("rs") => numbered(&file.text).filter(|(_, line)| line.trim_start().starts_with("//")).collect(),
            _ => continue,
        };
        for (number, _) in lines.iter().filter(|(_, line)| line.chars().count() > WIDTH) {
            findings
                .push(TidyFinding::new(format!("{}:{number}", file.path), format!("is wider than {WIDTH} columns")));
        }
    }
    findings
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// The lines of a Markdown file outside of tables and code blocks, without those that are one figure's link.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in numbered(text) {
        let start = line.trim_start();
        let is_link = start.starts_with('[') && line.trim_end_matches([',', '.']).ends_with("\")");
        if start.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !is_link && !line.starts_with('|') {
            lines.push((number, line));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file, file};

    #[test]
    fn wide_prose_is_found_and_wide_code_is_not() {
        let long = "x".repeat(119);
        for (path, text, is_wide) in [
            ("docs/a.md", format!("{long}xx"), true),
            ("docs/a.md", format!("{long}é"), false),
            ("docs/a.md", format!("| {long}\n```sh\n{long}xx\n```"), false),
            ("src/a.rs", format!("fn f() {{}}\n    // {long}"), true),
            ("src/a.rs", format!("let x = \"{long}\";"), false),
        ] {
            let mut tree = fake::tree();
            add_file(&mut tree, path, &text);
            match is_wide {
                true => assert_finds(width, &tree, "is wider than 120 columns"),
                false => assert!(width(&tree).is_empty(), "{text}"),
            }
        }
    }

    #[test]
    fn a_changelog_without_unreleased_is_found() {
        let mut tree = fake::tree();
        file(&mut tree, "CHANGELOG.md").text = "# Changelog\n".to_owned();
        assert_finds(changelog, &tree, "## [Unreleased]");
    }

    #[test]
    fn short_and_long_commit_subjects_are_found() {
        for (subject, is_wrong) in [("x", true), ("123456789", true), ("1234567890", false), (&"x".repeat(73), true)] {
            let mut tree = fake::tree();
            tree.commits.push(("abc".to_owned(), subject.to_owned()));
            match is_wrong {
                true => assert_finds(commit_subjects, &tree, "commit abc: the subject"),
                false => assert!(commit_subjects(&tree).is_empty()),
            }
        }
    }

    #[test]
    fn a_machine_path_is_found() {
        let mut tree = fake::tree();
        add_file(&mut tree, "docs.md", concat!("see\n/wo", "rk/main/target"));
        assert_finds(machine_paths, &tree, "docs.md:2");
    }

    #[test]
    fn a_feature_that_the_guide_lacks_is_found() {
        let mut tree = fake::tree();
        let facade = tree.packages.iter_mut().find(|package| package.name == "foveate").unwrap();
        facade.features = [("default", vec!["npy"]), ("npy", vec![]), ("lmdb", vec![])]
            .map(|(name, parts)| (name.to_owned(), parts.into_iter().map(str::to_owned).collect()))
            .into();
        add_file(&mut tree, "docs/backends.md", "| feature | brings |\n|---|---|\n| `npy` (default) | sink |\n");
        assert_finds(feature_table, &tree, "lacks `lmdb`");
        file(&mut tree, "docs/backends.md").text += "| `lmdb` (default) | sink |\n";
        assert_finds(feature_table, &tree, "lacks `lmdb`");
    }

    #[test]
    fn another_registry_is_found() {
        let mut tree = fake::tree();
        file(&mut tree, ".cargo/config.toml").text = "[alias]\n[source.crates-io]\nreplace-with = \"x\"\n".to_owned();
        assert_finds(cargo_config, &tree, "[source] does not belong here");
    }
}
