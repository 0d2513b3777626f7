//! Follows CONTRIBUTING's steps for adding a backend in a copy of the tree.
//!
//! A block of CONTRIBUTING under `<!-- backend: PATH -->` is a new file. A block under `<!-- backend: PATH after TEXT
//! -->` is inserted after the first line that begins with TEXT. A block under `<!-- backend: sh -->` is run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, shell, succeed, target};
use crate::tidy;
use crate::tree::copy_tree;

const PACKAGE: &str = "foveate-decode-toy-bmp";
/// The backend's code, which the example accesses through the facade's re-exports.
const CODE: &str = "examples/custom-backend/src/bmp.rs";

/// One block of CONTRIBUTING.
#[derive(Debug, PartialEq)]
struct GuideBlock<'a> {
    path: &'a str,
    after: Option<&'a str>,
    text: &'a str,
}

/// Adds the backend to a copy of the tree, runs the backend's conformance suite, compiles the facade with this backend
/// alone, and checks the copy's rules.
pub(crate) fn run(root: &Path) -> Result<()> {
    let copy = target(root).join("new-backend");
    copy_tree(root, &copy)?;
    let guide = fs::read_to_string(root.join("CONTRIBUTING.md"))?;
    for block in blocks(&guide)? {
        apply(&copy, &block).with_context(|| format!("CONTRIBUTING.md: the block of {}", block.path))?;
        println!("{}", block.path);
    }
    let code = fs::read_to_string(root.join(CODE))?.replace("foveate::", "foveate_");
    fs::write(copy.join("crates").join(PACKAGE).join("src/bmp.rs"), code)?;
    let facade = ["check", "--release", "-p", "foveate", "--no-default-features", "--features", "toy-bmp"];
    for args in [&["test", "--release", "-p", PACKAGE][..], &facade] {
        succeed(cargo(&copy).env("CARGO_TARGET_DIR", copy.join("target")).args(args))?;
    }
    // Last, because the first build writes the new crate into Cargo.lock, which tidy checks. Without the ceilings,
    // because the steps add a line to the facade, which may be at its own.
    tidy::run_except(&copy, "ceilings")
}

/// The marked blocks of the guide.
fn blocks(guide: &str) -> Result<Vec<GuideBlock<'_>>> {
    let sections = guide.split("<!-- backend: ").skip(1);
    let blocks: Vec<_> = sections.map(block).collect::<Option<_>>().context("a marker without a block follows")?;
    ensure!(!blocks.is_empty(), "CONTRIBUTING.md has no blocks for a backend");
    Ok(blocks)
}

fn block(section: &str) -> Option<GuideBlock<'_>> {
    let (marker, rest) = section.split_once(" -->\n```")?;
    let (_, text) = rest.split_once('\n')?;
    let (text, _) = text.split_once("\n```\n")?;
    let (path, after) = marker.split_once(" after ").map_or((marker, None), |(path, after)| (path, Some(after)));
    Some(GuideBlock { path, after, text })
}

fn apply(copy: &Path, block: &GuideBlock<'_>) -> Result<()> {
    if block.path == "sh" {
        return succeed(&mut shell(copy, block.text));
    }
    let path = copy.join(block.path);
    let Some(after) = block.after else {
        fs::create_dir_all(path.parent().unwrap_or(copy))?;
        return Ok(fs::write(&path, format!("{}\n", block.text))?);
    };
    let text = fs::read_to_string(&path)?;
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.iter().position(|line| line.trim_start().starts_with(after));
    let at = found.with_context(|| format!("no line begins with {after}"))? + 1;
    let lines = [&lines[..at], &[block.text], &lines[at..]].concat();
    Ok(fs::write(&path, lines.join("\n") + "\n")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_files_or_insertions() {
        let guide = "x\n<!-- backend: a/b.toml -->\n```toml\n[x]\ny = 1\n```\n<!-- backend: c.rs after \"z\" => -->\n```rust\nw\n```\n";
        let file = GuideBlock { path: "a/b.toml", after: None, text: "[x]\ny = 1" };
        let line = GuideBlock { path: "c.rs", after: Some("\"z\" =>"), text: "w" };
        assert_eq!(blocks(guide).unwrap(), [file, line]);
        assert!(blocks("nothing").is_err() && blocks("<!-- backend: a -->\nno block\n").is_err());
    }

    #[test]
    fn a_line_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut block = GuideBlock { path: "a/b", after: None, text: "one\n  two\nthree" };
        apply(folder, &block).unwrap();
        block = GuideBlock { after: Some("two"), text: "2.5", ..block };
        apply(folder, &block).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a/b")).unwrap(), "one\n  two\n2.5\nthree\n");
        block.after = Some("four");
        let error = apply(folder, &block).unwrap_err().to_string();
        assert_eq!(error, "no line begins with four");
    }
}
