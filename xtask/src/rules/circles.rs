//! Import cycles among the files of a crate.

use std::collections::BTreeSet;

use crate::modules::{Edges, Modules};
use crate::rules::Finding;
use crate::tree::{Package, TextFile, Tree};

/// Forbids import cycles among the files of a crate. `mod` and `pub use` alone are not imports.
pub(crate) fn import_circles(tree: &Tree) -> Vec<Finding> {
    tree.packages.iter().flat_map(|package| circles_of(tree, package)).collect()
}

fn circles_of(tree: &Tree, package: &Package) -> Vec<Finding> {
    let roots = ["lib.rs", "main.rs"].map(|name| format!("{}/src/{name}", package.dir));
    let roots = roots.iter().filter_map(|root| tree.file(root));
    roots.flat_map(|root| circles_from(&tree.files, root)).collect()
}

fn circles_from(files: &[TextFile], root: &TextFile) -> Vec<Finding> {
    let edges = Modules::load(files, root).edges();
    let circles = circles(&edges);
    circles.iter().map(|circle| Finding::new(*circle.first().unwrap_or(&""), message(circle, &edges))).collect()
}

/// The sets of files that import each other, directly or not.
fn circles<'a>(edges: &Edges<'a>) -> BTreeSet<BTreeSet<&'a str>> {
    let files: BTreeSet<&str> = edges.keys().map(|(from, _)| *from).collect();
    let reached = |from: &'a str| reachable(edges, from);
    let circle = |file: &&'a str| -> BTreeSet<&'a str> {
        reached(file).into_iter().filter(|other| reached(other).contains(file)).collect()
    };
    files.iter().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// The files that a file imports, directly or not; it includes the file itself only if it is in a cycle.
fn reachable<'a>(edges: &Edges<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let next = edges.keys().filter(|(importer, _)| *importer == file).map(|(_, imported)| *imported);
        open.extend(next.filter(|imported| found.insert(*imported)));
    }
    found
}

fn message(circle: &BTreeSet<&str>, edges: &Edges<'_>) -> String {
    let within = edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    let lines = within.map(|((from, to), names)| {
        format!("\n    {} -> {}: {}", short(from), short(to), names.iter().cloned().collect::<Vec<_>>().join(", "))
    });
    let lines: String = lines.collect();
    format!("{} files import each other; move what is shared into a file that imports neither:{lines}", circle.len())
}

/// A path relative to the crate's sources.
fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file, file};

    fn tree(a: &str, b: &str) -> Tree {
        let mut tree = fake::tree();
        file(&mut tree, "crates/foveate-decode/src/lib.rs").text = "//! x\nmod a;\nmod b;\nmod c;\n".to_owned();
        add_file(&mut tree, "crates/foveate-decode/src/a.rs", a);
        add_file(&mut tree, "crates/foveate-decode/src/b.rs", b);
        add_file(&mut tree, "crates/foveate-decode/src/c.rs", "use crate::a::A;\npub struct C;");
        tree
    }

    #[test]
    fn two_files_that_import_each_other_are_found() {
        let tree = tree("use super::b::B;\npub struct A;", "use super::a::A;\nuse super::c::C;\npub struct B;");
        assert_finds(import_circles, &tree, "src/a.rs: 3 files import each other");
        assert_finds(import_circles, &tree, "\n    a.rs -> b.rs: B\n    b.rs -> a.rs: A\n    b.rs -> c.rs: C");
    }

    #[test]
    fn imports_without_a_circle_are_fine() {
        let findings = import_circles(&tree("pub struct A;", "use super::a::A;\npub struct B;"));
        assert!(findings.is_empty(), "{findings:?}");
    }
}
