//! Import cycles among the files of a crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, Path, UseTree, Visibility};

use crate::rules::TidyFinding;
use crate::tree::{Package, TextFile, Tree};

/// For a pair of files, the names that the first imports from the second.
type Edges<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<String>>;

/// A chain of re-exports longer than this is a `use` that names itself.
const DEPTH: usize = 16;

/// Forbids import cycles among the files of a crate. `mod` and `pub use` alone are not imports.
pub(crate) fn import_circles(tree: &Tree) -> Vec<TidyFinding> {
    tree.packages.iter().flat_map(|package| circles_of(tree, package)).collect()
}

fn circles_of(tree: &Tree, package: &Package) -> Vec<TidyFinding> {
    let roots = ["lib.rs", "main.rs"].map(|name| format!("{}/src/{name}", package.dir));
    let roots = roots.iter().filter_map(|root| tree.file(root));
    roots.flat_map(|root| circles_from(&tree.files, root)).collect()
}

fn circles_from(files: &[TextFile], root: &TextFile) -> Vec<TidyFinding> {
    let mut modules = Modules::default();
    modules.add(files, root, 0);
    let edges = modules.edges();
    circles(&edges)
        .iter()
        .map(|circle| TidyFinding::new(*circle.first().unwrap_or(&""), message(circle, &edges)))
        .collect()
}

/// The modules of one crate without test modules; the first one is the root.
#[derive(Default)]
struct Modules<'a>(Vec<SourceModule<'a>>);

/// One file, and what its code names.
struct SourceModule<'a> {
    path: &'a str,
    parent: usize,
    children: BTreeMap<String, usize>,
    imports: Imports,
}

impl<'a> Modules<'a> {
    /// Adds a file and those that its `mod` declarations name.
    fn add(&mut self, files: &'a [TextFile], file: &'a TextFile, parent: usize) -> usize {
        let mut imports = file.parsed().map(Imports::of).unwrap_or_default();
        let at = self.0.len();
        let declared = std::mem::take(&mut imports.modules);
        self.0.push(SourceModule { path: &file.path, parent, children: BTreeMap::new(), imports });
        let folder = match file.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
            _ => file.path.trim_end_matches(".rs"),
        };
        for name in declared {
            let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            if let Some(child) = files.iter().find(|file| places.contains(&file.path)) {
                let child = self.add(files, child, at);
                self.0[at].children.insert(name, child);
            }
        }
        at
    }

    fn edges(&self) -> Edges<'a> {
        let mut edges = Edges::new();
        for (from, module) in self.0.iter().enumerate() {
            let Imports { uses, paths, .. } = &module.imports;
            let own =
                uses.iter().filter(|(alias, (_, is_public))| !is_public || paths.iter().any(|path| path[0] == **alias));
            for path in own.map(|(_, (path, _))| path).chain(paths.iter().filter(|path| path.len() > 1)) {
                if let Some((to, name)) = self.definer(from, path, DEPTH).filter(|(to, _)| *to != from) {
                    edges.entry((module.path, self.0[to].path)).or_default().insert(name);
                }
            }
        }
        edges
    }

    /// The module whose file defines `path` as used in module `from`, and its name there. `None` if another crate
    /// defines it, or if it is a module: only items within modules count.
    fn definer(&self, from: usize, path: &[String], depth: usize) -> Option<(usize, String)> {
        let (first, rest) = path.split_first()?;
        let module = &self.0[from];
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (0, rest),
            "self" => (from, rest),
            "super" => (module.parent, rest),
            _ if module.children.contains_key(first) || module.imports.uses.contains_key(first) => (from, path),
            _ => return None,
        };
        while let Some((name, after)) = rest.split_first() {
            let module = &self.0[at];
            let child = module.children.get(name);
            match module.imports.uses.get(name).filter(|_| depth > 0) {
                // A function may have the same name as its module, but contains no items.
                Some((import, _)) if child.is_none() || after.is_empty() => {
                    return self.definer(at, &[import, after].concat(), depth - 1);
                }
                _ if name == "super" => at = module.parent,
                _ => match child {
                    Some(child) => at = *child,
                    None => return Some((at, name.clone())),
                },
            }
            rest = after;
        }
        None
    }
}

/// Declarations, imports and names of one file, without its tests.
#[derive(Default)]
pub(crate) struct Imports {
    /// Modules that are files.
    modules: Vec<String>,
    /// The path behind each imported name, and whether it is exported again.
    uses: BTreeMap<String, (Vec<String>, bool)>,
    paths: Vec<Vec<String>>,
    /// Inline modules around the place that is read. Within one of them, one `super` is the file itself.
    inline: usize,
}

impl Imports {
    pub(crate) fn of(file: &syn::File) -> Self {
        let mut imports = Self::default();
        imports.visit_file(file);
        imports
    }

    /// The first word of the path behind an imported name.
    pub(crate) fn first_of(&self, name: &str) -> Option<&String> {
        self.uses.get(name)?.0.first()
    }

    fn import(&mut self, mut path: Vec<String>, tree: &UseTree, is_public: bool) {
        let (name, alias) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(path, &tree.tree, is_public);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(path.clone(), tree, is_public));
            }
            UseTree::Name(name) => (name.ident.to_string(), None),
            UseTree::Rename(name) => (name.ident.to_string(), Some(name.rename.to_string())),
            UseTree::Glob(_) => ("*".to_owned(), None),
        };
        // `self` in a group is the module before the braces.
        path.extend(Some(name).filter(|name| name != "self"));
        let alias = alias.or(path.last().cloned()).unwrap_or_default();
        let path = self.outside(path);
        self.uses.insert(alias, (path, is_public));
    }

    /// `path` as it would be written outside of inline modules.
    fn outside(&self, path: Vec<String>) -> Vec<String> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let dropped = supers.min(self.inline);
        let own = (dropped > 0 && dropped == supers).then(|| "self".to_owned());
        own.into_iter().chain(path.into_iter().skip(dropped)).collect()
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        match &module.content {
            None => self.modules.push(module.ident.to_string()),
            Some(_) => {
                self.inline += 1;
                visit::visit_item_mod(self, module);
                self.inline -= 1;
            }
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(Vec::new(), &item.tree, !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.paths.push(self.outside(names));
        visit::visit_path(self, path);
    }
}

/// Returns true if an item is compiled for tests alone.
pub(crate) fn is_test_item(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(is_test_code)
}

/// Returns true for `#[cfg(…)]` with the word `test`, but not for `#[cfg(not(test))]`.
pub(crate) fn is_test_code(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg")
        && !condition.starts_with("not")
        && condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

/// The sets of files that import each other, directly or not.
fn circles<'a>(edges: &Edges<'a>) -> BTreeSet<BTreeSet<&'a str>> {
    let mut circles = BTreeSet::new();
    for file in edges.keys().map(|(from, _)| *from).collect::<BTreeSet<_>>() {
        let mut circle = reachable(edges, file);
        circle.retain(|other| reachable(edges, other).contains(file));
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles
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
    let mut lines = String::new();
    for ((from, to), names) in edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to)) {
        let names = names.iter().cloned().collect::<Vec<_>>().join(", ");
        lines += &format!("\n    {} -> {}: {names}", short(from), short(to));
    }
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
        file(&mut tree, "crates/foveate-decode/src/lib.rs").text =
            "//! x\nmod a;\nmod b;\nmod c;\npub use a::A;\n".to_owned();
        add_file(&mut tree, "crates/foveate-decode/src/a.rs", a);
        add_file(&mut tree, "crates/foveate-decode/src/b.rs", b);
        add_file(&mut tree, "crates/foveate-decode/src/c.rs", "use crate::a::A;\npub struct C;");
        tree
    }

    #[test]
    fn files_that_import_each_other_are_found_through_re_exports_and_inline_modules() {
        for a in ["use crate::A;", "use super::{a::A as T};", "fn f() -> super::A {}", "mod d { use super::super::A; }"]
        {
            let b = format!("{a}\nuse super::c::C;\npub struct B;");
            let tree = tree("use super::b::B;\npub struct A;", &b);
            assert_finds(import_circles, &tree, "src/a.rs: 3 files import each other");
            assert_finds(import_circles, &tree, "\n    a.rs -> b.rs: B\n    b.rs -> a.rs: A\n    b.rs -> c.rs: C");
        }
    }

    #[test]
    fn imports_without_a_circle_and_those_of_tests_are_fine() {
        let a = "pub struct A;\nuse std::fmt;\n// crate::b::B\n#[cfg(test)]\nmod tests { use crate::b::B; }\n\
                 #[cfg(test)]\nuse crate::b::B;";
        let findings = import_circles(&tree(a, "use super::a::A;\npub struct B;"));
        assert!(findings.is_empty(), "{findings:?}");
    }
}
