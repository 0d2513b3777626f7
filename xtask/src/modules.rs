//! The modules of a crate and their imports of each other: enough of Rust's name resolution to find import cycles.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::Imports;
use crate::tree::TextFile;

/// For a pair of files, the names that the first imports from the second.
pub(crate) type Edges<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<String>>;

/// A chain of re-exports longer than this is a `use` that names itself.
const DEPTH: usize = 16;

/// The modules of one crate without test modules; the first one is the root.
pub(crate) struct Modules<'a>(Vec<Module<'a>>);

/// One file.
struct Module<'a> {
    path: &'a str,
    parent: usize,
    children: BTreeMap<String, usize>,
    imports: Imports,
}

impl<'a> Modules<'a> {
    /// Follows the `mod` declarations from the file `root`.
    pub(crate) fn load(files: &'a [TextFile], root: &'a TextFile) -> Self {
        let mut modules = Self(Vec::new());
        modules.add(files, root, 0);
        modules
    }

    fn add(&mut self, files: &'a [TextFile], file: &'a TextFile, parent: usize) -> usize {
        let at = self.0.len();
        let mut imports = Imports::parse(&file.text);
        let declared = std::mem::take(&mut imports.modules);
        self.0.push(Module { path: &file.path, parent, children: BTreeMap::new(), imports });
        let folder = folder(&file.path);
        for name in declared {
            let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            if let Some(child) = files.iter().find(|file| places.contains(&file.path)) {
                let child = self.add(files, child, at);
                self.0[at].children.insert(name, child);
            }
        }
        at
    }

    /// The names that each file's code uses from other files. Declarations and re-exports alone do not count.
    pub(crate) fn edges(&self) -> Edges<'a> {
        let mut edges = Edges::new();
        for (from, module) in self.0.iter().enumerate() {
            for path in module.imports.taken() {
                if let Some((to, name)) = self.definer(from, path, DEPTH)
                    && to != from
                {
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
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (0, rest),
            "self" => (from, rest),
            "super" => (self.0[from].parent, rest),
            name if self.0[from].knows(name) => (from, path),
            _ => return None,
        };
        while let Some((name, after)) = rest.split_first() {
            let module = &self.0[at];
            let child = module.children.get(name);
            match module.imports.of(name).filter(|_| depth > 0) {
                // A function may have the same name as its module, but contains no items.
                Some(import) if child.is_none() || after.is_empty() => {
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

impl Module<'_> {
    fn knows(&self, name: &str) -> bool {
        self.children.contains_key(name) || self.imports.of(name).is_some()
    }
}

/// The folder of the child modules of the file `path`.
fn folder(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
        _ => path.trim_end_matches(".rs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| TextFile { path: format!("src/{path}"), text: (*text).to_owned() };
        let files: Vec<TextFile> = files.iter().map(file).collect();
        let modules = Modules::load(&files, &files[0]);
        let name = |path: &str| path.trim_start_matches("src/").trim_end_matches(".rs").to_owned();
        let said = |((from, to), names): (&(&str, &str), &BTreeSet<String>)| {
            format!("{} -> {}: {}", name(from), name(to), names.iter().cloned().collect::<Vec<_>>().join(" "))
        };
        modules.edges().iter().map(said).collect()
    }

    #[test]
    fn an_import_points_at_the_file_that_defines_the_name() {
        let root = "mod a;\nmod b;\npub use a::inner::Thing;\n";
        let a = "pub(crate) mod inner;\nmod tests;\n";
        for b in [
            "use crate::Thing;",
            "use super::{a::inner::Thing as T};",
            "use crate::a;\nfn f() -> a::inner::Thing {}",
            "fn f() { x(super::Thing::new()) }",
            "mod c { use super::super::Thing; }",
        ] {
            let files = [("lib.rs", root), ("a/mod.rs", a), ("a/inner.rs", "pub struct Thing;"), ("b.rs", b)];
            assert_eq!(edges(&files), ["b -> a/inner: Thing"], "{b}");
        }
    }

    #[test]
    fn a_parent_that_uses_its_child_and_is_used_by_it_points_both_ways() {
        let child = ("a.rs", "use super::Shared;\npub fn f(x: Shared) {}");
        let lone = edges(&[("lib.rs", "mod a;\npub use a::f;\npub struct Shared;"), child]);
        assert_eq!(lone, ["a -> lib: Shared"]);
        for parent in ["pub use a::f;\nfn g() { f(1) }", "fn g() { a::f(1) }", "use a::f;\nfn g() { x.map(f) }"] {
            let root = format!("mod a;\npub struct Shared;\n{parent}");
            assert_eq!(edges(&[("lib.rs", &root), child]), ["a -> lib: Shared", "lib -> a: f"], "{parent}");
        }
    }

    #[test]
    fn tests_comments_and_other_crates_are_no_edges() {
        let a = "use std::fmt;\nuse other::B;\n// crate::b::B\nfn f() -> fmt::Result { B::new(\"crate::b::B\") }\n\
            #[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n#[cfg(test)]\nuse crate::b::C;";
        assert!(edges(&[("lib.rs", "mod a;\nmod b;"), ("a.rs", a), ("b.rs", "pub struct B;")]).is_empty());
    }
}
