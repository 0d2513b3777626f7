//! Ceilings on the size of each crate and on habits that make it hard to read, which may only fall.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{Expr, ImplItem, Item, Local, Pat};

use crate::rules::TidyFinding;
use crate::rules::circles::{is_test_code, is_test_item};
use crate::tree::Tree;

const FILE: &str = "xtask/ceilings.toml";
const HEADER: &str = "# The most that each crate may have, and how often a name may be that of another type, too. `cargo xtask tidy --lower`
# writes what is left after a crate has shrunk. To raise a number is an edit here, for the review to see.
#
# lines: of Rust, tests included. closures, tuples: `let name = |…|` and `let (a, b) = (x, y)` outside of tests.
# repeated: types outside of tests whose name another one has already. most: types of one name.

";
/// For the types of all crates together.
const TYPES: &str = "types";
/// Lines of a crate that has no ceilings yet, and so no closures and no tuples: enough for a small backend.
const NEW_CRATE: usize = 600;
/// Distance of a ceiling above the truth before it has to fall: a share of it, and so many at least. Without this
/// room, every change that takes a line away would have to lower a ceiling.
const SHARE: usize = 50;
const LINES: usize = 20;
const OTHERS: usize = 2;

/// For a crate's folder or [`TYPES`], what is counted and how much of it there is.
type Counts = BTreeMap<String, BTreeMap<String, usize>>;

/// No crate grows beyond its ceilings, and those that are too high fall.
pub(crate) fn ceilings(tree: &Tree) -> Vec<TidyFinding> {
    let ceilings = match parse(tree.file(FILE).map_or("", |file| &file.text)) {
        Ok(ceilings) => ceilings,
        Err(error) => return vec![TidyFinding::new(FILE, format!("{error:#}"))],
    };
    let mut findings = Vec::new();
    for (place, counted) in counts(tree, &ceilings) {
        for (what, count) in counted {
            let ceiling = ceiling(&ceilings, &place, &what);
            let room = (count / SHARE).max(if what == "lines" { LINES } else { OTHERS });
            let advice = if count > ceiling {
                "make it shorter, or raise the number here in a commit that says why"
            } else if ceilings.contains_key(&place) && ceiling > count + room {
                "`cargo xtask tidy --lower` writes what is left"
            } else {
                continue;
            };
            let message = format!("{place} has {count} {what}, and its ceiling is {ceiling}; {advice}");
            findings.push(TidyFinding::new(FILE, message));
        }
    }
    findings
}

/// Writes the ceilings that the crates of `root` still need. Raises none.
pub(crate) fn lower(root: &Path, tree: &Tree) -> Result<()> {
    let ceilings = parse(tree.file(FILE).map_or("", |file| &file.text))?;
    let mut text = HEADER.to_owned();
    for (place, counted) in counts(tree, &ceilings) {
        if counted.get("lines") == Some(&0) {
            continue;
        }
        let mut numbers = Vec::new();
        for (what, count) in counted {
            numbers.push(format!("{what} = {}", count.min(ceiling(&ceilings, &place, &what))));
        }
        writeln!(text, "\"{place}\" = {{ {} }}", numbers.join(", "))?;
    }
    fs::write(root.join(FILE), text).with_context(|| format!("cannot write {FILE}"))
}

fn parse(text: &str) -> Result<Counts> {
    toml::from_str(text).context("not a table of ceilings")
}

fn ceiling(ceilings: &Counts, place: &str, what: &str) -> usize {
    match ceilings.get(place) {
        Some(own) => own.get(what).copied().unwrap_or(0),
        None if what == "lines" => NEW_CRATE,
        None => 0,
    }
}

/// Counts of each crate, zeros for those that only the ceilings know.
fn counts(tree: &Tree, ceilings: &Counts) -> Counts {
    let mut crates: BTreeMap<String, Habits> =
        ceilings.keys().map(|place| (place.clone(), Habits::default())).collect();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        let habits = crates.entry(crate_of(&file.path)).or_default();
        habits.lines += file.text.lines().count();
        if !is_test_file(&file.path)
            && let Some(parsed) = file.parsed()
        {
            habits.visit_file(parsed);
            for name in std::mem::take(&mut habits.types) {
                *names.entry(name).or_default() += 1;
            }
        }
    }
    crates.remove(TYPES);
    let mut counts = Counts::new();
    for (place, Habits { lines, closures, tuples, .. }) in crates {
        let counted = [("lines", lines), ("closures", closures), ("tuples", tuples)];
        counts.insert(place, counted.map(|(what, count)| (what.to_owned(), count)).into());
    }
    let repeated = names.values().sum::<usize>() - names.len();
    let most = names.values().copied().max().unwrap_or(0);
    counts.insert(TYPES.to_owned(), [("repeated".to_owned(), repeated), ("most".to_owned(), most)].into());
    counts
}

/// The folder of a file's package.
fn crate_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let depth = if ["crates", "examples"].contains(&parts[0]) { 2 } else { 1 };
    parts[..depth.min(parts.len())].join("/")
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| ["tests", "benches", "examples", "fuzz"].contains(&part))
}

/// Counts of a crate's files, without their tests.
#[derive(Default)]
struct Habits {
    lines: usize,
    closures: usize,
    tuples: usize,
    types: Vec<String>,
}

impl<'ast> Visit<'ast> for Habits {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test_item(item) {
            return;
        }
        self.types.extend(match item {
            Item::Struct(item) => Some(item.ident.to_string()),
            Item::Enum(item) => Some(item.ident.to_string()),
            Item::Trait(item) => Some(item.ident.to_string()),
            Item::Union(item) => Some(item.ident.to_string()),
            _ => None,
        });
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Fn(method) if method.attrs.iter().any(is_test_code) => {}
            _ => visit::visit_impl_item(self, item),
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        match (&local.pat, local.init.as_ref().map(|init| &*init.expr)) {
            (Pat::Ident(_), Some(Expr::Closure(_))) => self.closures += 1,
            (Pat::Tuple(_), Some(Expr::Tuple(_))) => self.tuples += 1,
            _ => {}
        }
        visit::visit_local(self, local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file};

    const LIB: &str = "crates/new/src/lib.rs";

    fn tree(ceilings: &str, source: &str) -> Tree {
        let mut tree = fake::tree();
        add_file(&mut tree, FILE, ceilings);
        add_file(&mut tree, LIB, source);
        tree
    }

    #[test]
    fn what_grows_beyond_a_ceiling_is_found() {
        let closure = "fn f() {\n    let g = |x| x;\n}\n";
        let tuple = "fn f() {\n    let (a, b) = (1, 2);\n}\n";
        let types = "struct A;\nmod b {\n    enum A {}\n}\n";
        for (ceilings, source, expected) in [
            ("\"crates/new\" = { lines = 2 }", "fn f() {\n}\n\n", "crates/new has 3 lines, and its ceiling is 2"),
            ("", &"\n".repeat(601), "crates/new has 601 lines, and its ceiling is 600"),
            ("", closure, "crates/new has 1 closures, and its ceiling is 0"),
            ("", tuple, "crates/new has 1 tuples, and its ceiling is 0"),
            ("types = { most = 2 }", types, "types has 1 repeated, and its ceiling is 0"),
            ("types = { repeated = 1, most = 1 }", types, "types has 2 most, and its ceiling is 1"),
            ("types = 3", "", "not a table of ceilings"),
        ] {
            assert_finds(super::ceilings, &tree(ceilings, source), expected);
        }
        let tests = "#[cfg(test)]\nmod tests {\n    fn f() {\n        let g = |x| x;\n    }\n}\n";
        assert!(super::ceilings(&tree("", tests)).is_empty(), "tests may have their closures");
    }

    #[test]
    fn ceilings_fall_and_never_rise() {
        let sources = "\n".repeat(980);
        assert!(super::ceilings(&tree("\"crates/new\" = { lines = 999 }", &sources)).is_empty());
        let high = "\"crates/new\" = { lines = 1001, closures = 2, tuples = 0 }\n\"crates/gone\" = { lines = 30 }\n";
        let mut tree = tree(high, &sources);
        let said: Vec<String> = super::ceilings(&tree).into_iter().map(|finding| finding.message).collect();
        assert!(said.len() == 2 && said[0].contains("has 0 lines") && said[1].contains("has 980 lines"), "{said:?}");

        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("xtask")).unwrap();
        let lowered = |tree: &Tree| {
            lower(folder.path(), tree).unwrap();
            fs::read_to_string(folder.path().join(FILE)).unwrap()
        };
        let text = lowered(&tree);
        assert!(text.contains("\"crates/new\" = { closures = 0, lines = 980, tuples = 0 }") && !text.contains("gone"));
        let low = text.replace("980", "970");
        fake::file(&mut tree, FILE).text = low.clone();
        assert_eq!(lowered(&tree), low);
    }
}
