//! Recorded files that were measured before the last change of what they measure.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::links::{CsvTable, figures};
use crate::cargo::git;
use crate::rules::TidyFinding;
use crate::tree::{Tree, paths};

/// The table that says what each recorded file measures.
const MEASURED: &str = "benches/measured.toml";

/// One entry of the table.
#[derive(Deserialize)]
struct MeasuredFiles {
    /// Ends of the recorded files' paths, or folders (`/NAME/`).
    files: Vec<String>,
    /// Pathspecs of git: a commit that touches one makes the files stale.
    #[serde(default)]
    sources: Vec<String>,
    /// In place of sources, of files that a machine measured which is not at hand: the commit that was measured, or
    /// that recorded them if the run did not say. Every document that cites them names it.
    of: Option<String>,
}

fn subjects(text: &str) -> Result<Vec<MeasuredFiles>> {
    let table: toml::Table = text.parse().context(MEASURED)?;
    let mut subjects = Vec::new();
    for (name, entry) in table {
        let subject: MeasuredFiles = entry.try_into().with_context(|| format!("{MEASURED}: {name}"))?;
        ensure!(subject.sources.is_empty() == subject.of.is_some(), "{MEASURED}: {name}: either `sources` or `of`");
        subjects.push(subject);
    }
    Ok(subjects)
}

fn subject<'a>(subjects: &'a [MeasuredFiles], path: &str) -> Option<&'a MeasuredFiles> {
    subjects.iter().find(|subject| {
        subject.files.iter().any(|file| path.ends_with(file.as_str()) || file.ends_with('/') && path.contains(file))
    })
}

/// Every file that a document cites is in the table. A document names the commit of what cannot be measured anew.
pub(crate) fn unlisted(tree: &Tree) -> Vec<TidyFinding> {
    let text = tree.file(MEASURED).map_or("", |file| file.text.as_str());
    let subjects = match subjects(text) {
        Ok(subjects) => subjects,
        Err(problem) => return vec![TidyFinding::new(MEASURED, format!("{problem:#}"))],
    };
    let mut problems = BTreeSet::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for path in figures(&file.text).iter().map(|figure| figure.path(&file.path)) {
            let Some(subject) = subject(&subjects, &path) else {
                let is_recorded = tree.file(&path).is_some();
                problems.extend(is_recorded.then(|| (MEASURED, format!("no entry says what {path} measures"))));
                continue;
            };
            let commit = subject.of.as_ref().filter(|commit| !file.text.contains(*commit));
            problems.extend(commit.map(|commit| (&*file.path, format!("{path} was measured on {commit}: say so"))));
        }
    }
    problems.into_iter().map(|(path, problem)| TidyFinding::new(path, problem)).collect()
}

/// Returns a line for each recorded file with a stale row: its path, and why.
pub(crate) fn list(root: &Path) -> Result<Vec<String>> {
    let subjects = subjects(&std::fs::read_to_string(root.join(MEASURED)).context(MEASURED)?)?;
    let mut lines = Vec::new();
    for path in paths(root)? {
        let is_recorded = path.starts_with("benches/") || path.starts_with("examples/");
        let Some(subject) = subject(&subjects, &path).filter(|subject| is_recorded && subject.of.is_none()) else {
            continue;
        };
        let table = CsvTable::parse(&std::fs::read_to_string(root.join(&path))?);
        let mut commits: Vec<&str> = table.rows.iter().map(|row| table.cell(row, "commit").unwrap_or("")).collect();
        commits.sort_unstable();
        commits.dedup();
        for commit in commits {
            lines.extend(why_stale(root, commit, &subject.sources).map(|why| format!("{path}: {why}")));
        }
    }
    Ok(lines)
}

/// Returns why rows of `commit` are stale, if they are.
fn why_stale(root: &Path, commit: &str, sources: &[String]) -> Option<String> {
    if commit.is_empty() {
        return Some("its rows name no commit".to_owned());
    }
    if let Some(clean) = commit.strip_suffix('+') {
        return Some(format!("measured on sources that differed from {clean}"));
    }
    let range = format!("{commit}..HEAD");
    let mut args = vec!["log", "--format=%h %s", &range, "--"];
    args.extend(sources.iter().map(String::as_str));
    let Ok(log) = git(root, &args) else {
        return Some(format!("measured on {commit}, which is no commit here"));
    };
    let last = log.lines().next()?;
    Some(format!("measured on {commit}; {} commits have changed it, the last is {last}", log.lines().count()))
}

/// Fails if a recorded file is stale.
pub(crate) fn refuse(root: &Path) -> Result<()> {
    let stale = list(root)?;
    ensure!(
        stale.is_empty(),
        "figures were measured before the last change of what they measure:\n{}",
        stale.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file};

    #[test]
    fn a_cited_file_has_an_entry() {
        let mut tree = fake::tree();
        add_file(&mut tree, "benches/runs/new.csv", "rate\n1\n");
        add_file(&mut tree, "docs/page.md", "[1](../benches/runs/new.csv \"rate\")");
        assert_finds(unlisted, &tree, "no entry says what benches/runs/new.csv measures");
        add_file(&mut tree, MEASURED, "[new]\nfiles = [\"runs/new.csv\"]\nsources = [\"crates/a\"]\n");
        assert!(unlisted(&tree).is_empty());
    }

    #[test]
    fn a_document_names_the_commit_of_what_cannot_be_measured_anew() {
        let mut tree = fake::tree();
        add_file(&mut tree, "benches/runs/gpu.csv", "rate\n1\n");
        add_file(&mut tree, MEASURED, "[gpu]\nfiles = [\"runs/gpu.csv\"]\nof = \"97d9ece7\"\n");
        add_file(&mut tree, "docs/gpu.md", "[1](../benches/runs/gpu.csv \"rate\"), on 97d9ece7");
        assert!(unlisted(&tree).is_empty());
        add_file(&mut tree, "docs/page.md", "[1](../benches/runs/gpu.csv \"rate\")");
        assert_finds(unlisted, &tree, "benches/runs/gpu.csv was measured on 97d9ece7: say so");
        assert!(subjects("[gpu]\nfiles = [\"gpu.csv\"]\n").is_err());
    }

    #[test]
    fn rows_are_stale_after_a_change_of_what_they_measure() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let git = |args: &[&str]| git(root, args).unwrap().trim().to_owned();
        let commit = |path: &str| {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), path).unwrap();
            git(&["add", "."]);
            git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", path]);
            git(&["rev-parse", "--short=12", "HEAD"])
        };
        git(&["init", "-q"]);
        let before = commit("a/src/lib.rs");
        let after = commit("a/src/more.rs");
        commit("b/src/lib.rs");
        let why = |commit: &str| why_stale(root, commit, &["a/src".to_owned()]).unwrap_or_default();
        assert_eq!(why(&after), "");
        assert!(why(&before).contains("1 commits have changed it") && why(&before).ends_with("a/src/more.rs"));
        assert!(why("").contains("no commit") && why(&format!("{after}+")).contains("differed"));
        assert!(why("0123456789ab").contains("no commit here"));
    }
}
