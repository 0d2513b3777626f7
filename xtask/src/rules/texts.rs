//! Rules for other text files.

use crate::lex::line;
use crate::rules::Finding;
use crate::tree::Tree;

/// The folder of the model cards.
const CARDS: &str = "crates/foveate-dinov2/models/";

/// The changelog has a section for unreleased changes.
pub(crate) fn changelog(tree: &Tree) -> Vec<Finding> {
    let has_section = tree.file("CHANGELOG.md").is_some_and(|file| file.text.contains("\n## [Unreleased]"));
    if has_section { Vec::new() } else { vec![Finding::new("CHANGELOG.md", "needs a section `## [Unreleased]`")] }
}

/// A commit's subject says what changes, in one line of a log.
pub(crate) fn commit_subjects(tree: &Tree) -> Vec<Finding> {
    let wrong = tree.commits.iter().filter(|(_, subject)| !(10..=72).contains(&subject.chars().count()));
    wrong
        .map(|(hash, subject)| {
            let message = format!("the subject '{subject}' has to have 10 to 72 characters; `git commit --amend`");
            Finding::new(format!("commit {hash}"), message)
        })
        .collect()
}

/// Model cards are TOML tables with a repository, a revision and a dimension.
pub(crate) fn model_cards(tree: &Tree) -> Vec<Finding> {
    let cards = tree.files.iter().filter(|file| file.path.starts_with(CARDS) && file.path.ends_with(".toml"));
    cards.filter_map(|card| check_card(&card.text).err().map(|problem| Finding::new(&card.path, problem))).collect()
}

fn check_card(text: &str) -> Result<(), String> {
    let card: toml::Table =
        text.parse().map_err(|error: toml::de::Error| format!("is no TOML: {}", error.message()))?;
    let string = |key: &str| card.get(key).and_then(toml::Value::as_str).ok_or(format!("needs a string `{key}`"));
    string("repository")?;
    string("revision")?;
    match card.get("dimension").and_then(toml::Value::as_integer) {
        Some(1..) => Ok(()),
        _ => Err("needs a positive `dimension`".to_owned()),
    }
}

/// No published file contains a path of a developer's machine.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    // Assembled here so that this file does not match.
    let needles =
        [concat!("/wo", "rk/main"), concat!("/wo", "rk/shared"), concat!("/ro", "ot/"), concat!("/tmp/", "bash_jobs")];
    let mut findings = Vec::new();
    for file in &tree.files {
        for needle in needles {
            findings.extend(file.text.match_indices(needle).map(|(at, _)| {
                let message = format!("'{needle}' is a path of one machine; say it relative to the workspace");
                Finding::new(format!("{}:{}", file.path, line(&file.text, at)), message)
            }));
        }
    }
    findings
}

/// Dependencies come from crates.io. The project's cargo configuration holds only aliases and the include of what
/// `cargo xtask setup` writes: each machine configures its own registry mirrors.
pub(crate) fn registries(tree: &Tree) -> Vec<Finding> {
    const CRATES_IO: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let mut findings = Vec::new();
    for lock in tree.files.iter().filter(|file| file.path.rsplit('/').next() == Some("Cargo.lock")) {
        let sources = lock.text.lines().enumerate().filter(|(_, line)| line.starts_with("source = "));
        findings.extend(sources.filter(|(_, line)| *line != CRATES_IO).map(|(number, _)| {
            Finding::new(
                format!("{}:{}", lock.path, number + 1),
                "a dependency that is not from crates.io; depend on a published version",
            )
        }));
    }
    let config = tree.file(".cargo/config.toml").and_then(|file| file.text.parse::<toml::Table>().ok());
    findings.extend(config.iter().flat_map(toml::Table::keys).filter(|key| !["alias", "include"].contains(&key.as_str())).map(|key| {
        Finding::new(
            ".cargo/config.toml",
            format!("[{key}] does not belong here; the project's configuration holds aliases, and includes what setup writes"),
        )
    }));
    findings
}

/// Columns of a line of prose.
const WIDTH: usize = 120;
/// Written by programs.
const GENERATED: [&str; 2] = ["benches/runs/", "crates/foveate-schema/SCHEMA.md"];

/// Comments and Markdown keep to [`WIDTH`] columns; rustfmt sees to code. Tables and code blocks may be wider.
pub(crate) fn width(tree: &Tree) -> Vec<Finding> {
    let own = tree.files.iter().filter(|file| !GENERATED.iter().any(|path| file.path.starts_with(path)));
    let wide = own.flat_map(|file| {
        let lines = if file.path.ends_with(".md") {
            prose(&file.text)
        } else if file.path.ends_with(".rs") {
            numbered(&file.text).filter(|(_, line)| line.trim_start().starts_with("//")).collect()
        } else {
            Vec::new()
        };
        lines.into_iter().filter(|(_, line)| line.chars().count() > WIDTH).map(|(number, _)| (&file.path, number))
    });
    wide.map(|(path, number)| Finding::new(format!("{path}:{number}"), format!("is wider than {WIDTH} columns")))
        .collect()
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// The lines of a Markdown file outside of tables and code blocks, without those that are one figure's link.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let keep = |(_, line): &(usize, &str)| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        let is_link = line.trim_start().starts_with('[') && line.trim_end_matches([',', '.']).ends_with("\")");
        !fence && !is_code && !line.starts_with('|') && !is_link
    };
    numbered(text).filter(keep).collect()
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
    fn broken_model_cards_are_found() {
        for (card, expected) in [
            ("repository = ", "is no TOML"),
            ("revision = \"main\"\ndimension = 384", "needs a string `repository`"),
            ("repository = \"a/b\"\nrevision = \"main\"\ndimension = 0", "needs a positive `dimension`"),
        ] {
            let mut tree = fake::tree();
            add_file(&mut tree, &format!("{CARDS}x.toml"), card);
            assert_finds(model_cards, &tree, expected);
        }
    }

    #[test]
    fn a_machine_path_is_found() {
        let mut tree = fake::tree();
        add_file(&mut tree, "docs.md", concat!("see\n/wo", "rk/main/target"));
        assert_finds(machine_paths, &tree, "docs.md:2");
    }

    #[test]
    fn another_registry_is_found() {
        let mut tree = fake::tree();
        file(&mut tree, "Cargo.lock").text = "[[package]]\nsource = \"git+https://example.invalid/x\"\n".to_owned();
        assert_finds(registries, &tree, "Cargo.lock:2");

        let mut tree = fake::tree();
        file(&mut tree, ".cargo/config.toml").text = "[alias]\n[source.crates-io]\nreplace-with = \"x\"\n".to_owned();
        assert_finds(registries, &tree, "[source] does not belong here");
    }
}
