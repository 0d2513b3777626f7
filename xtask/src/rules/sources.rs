//! Rules for Rust sources.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{
    Expr, ExprClosure, ExprReturn, Field, Ident, ImplItem, Item, ItemFn, ItemImpl, Macro, Path, UseTree, Visibility,
};

use crate::rules::circles::{Imports, is_test_item};
use crate::rules::layers::MAP;
use crate::rules::{TidyFinding, line};
use crate::tree::{Package, Tree};

/// A crate whose types may be public: spans pass between crates, and no other type can represent them.
const VOCABULARY: &str = "tracing";

/// Trait crates and core expose no third-party types: replacing a library must not be a breaking change. The check is
/// approximate: it sees functions, public fields, constants, aliases and re-exports, but neither the methods of traits
/// nor the variants of enums.
pub(crate) fn foreign_types(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        if !matches!(MAP.layer(&package.name), Some("core" | "trait" | "leaf" | "model")) {
            continue;
        }
        let theirs = package.shipped().filter(|dependency| !dependency.ours() && dependency.name != VOCABULARY);
        let foreign: BTreeSet<String> = theirs.map(|dependency| dependency.name.replace('-', "_")).collect();
        for file in tree.rust_files(package).filter(|file| file.path.contains("/src/")) {
            let Some(parsed) = file.parsed() else { continue };
            let imports = Imports::of(parsed);
            let mut public = PublicNames::default();
            public.visit_file(parsed);
            for name in public.0 {
                let origin = imports.first_of(&name).unwrap_or(&name);
                if foreign.contains(origin) {
                    let message = format!(
                        "'{name}' of a third-party crate shows in a public signature; wrap it in a type of ours"
                    );
                    findings.push(TidyFinding::new(&file.path, message));
                }
            }
        }
    }
    findings
}

/// The first words of the paths in public signatures, fields and re-exports.
#[derive(Default)]
struct PublicNames(BTreeSet<String>);

impl PublicNames {
    fn is_public(visibility: &Visibility) -> bool {
        matches!(visibility, Visibility::Public(_))
    }
}

impl<'ast> Visit<'ast> for PublicNames {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            _ if is_test_item(item) => {}
            Item::Fn(item) if Self::is_public(&item.vis) => self.visit_signature(&item.sig),
            Item::Const(item) if Self::is_public(&item.vis) => self.visit_type(&item.ty),
            Item::Static(item) if Self::is_public(&item.vis) => self.visit_type(&item.ty),
            Item::Type(item) if Self::is_public(&item.vis) => visit::visit_item_type(self, item),
            Item::Struct(item) => item.fields.iter().for_each(|field| self.visit_field(field)),
            Item::Use(item) if Self::is_public(&item.vis) => {
                if let UseTree::Path(path) = &item.tree {
                    self.0.insert(path.ident.to_string());
                }
            }
            Item::Mod(item) => visit::visit_item_mod(self, item),
            Item::Impl(item) => self.visit_item_impl(item),
            _ => {}
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        for item in &item.items {
            match item {
                ImplItem::Fn(method) if Self::is_public(&method.vis) => self.visit_signature(&method.sig),
                ImplItem::Const(constant) if Self::is_public(&constant.vis) => self.visit_type(&constant.ty),
                _ => {}
            }
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if Self::is_public(&field.vis) {
            self.visit_type(&field.ty);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.0.extend(path.segments.first().map(|first| first.ident.to_string()));
        visit::visit_path(self, path);
    }
}

/// Forbids tests that return before they have asserted anything: where a resource is missing they pass, although they
/// checked nothing. Trials of foveate-testkit say what they miss.
pub(crate) fn silent_passes(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let mut functions = BTreeMap::new();
        let mut trials = BTreeSet::new();
        for file in tree.rust_files(package) {
            let mut tests = Tests::default();
            if let Some(parsed) = file.parsed() {
                tests.visit_file(parsed);
            }
            trials.extend(tests.trials);
            functions.insert(&file.path, tests.silent);
        }
        for (path, silent) in functions {
            for (name, _) in silent.iter().filter(|(name, is_test)| *is_test || trials.contains(name)) {
                let message = format!(
                    "{name} passes without having checked anything; make it a trial of foveate-testkit, which says what is \
                     missing"
                );
                findings.push(TidyFinding::new(path, message));
            }
        }
    }
    findings
}

/// Functions of a file that may be tests.
#[derive(Default)]
struct Tests {
    /// The names in lists `trials![…]`.
    trials: Vec<String>,
    /// Functions that return without an assertion, and whether they have `#[test]`.
    silent: Vec<(String, bool)>,
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let mut body = Body::default();
        body.visit_block(&item.block);
        if body.is_silent {
            let is_test = item.attrs.iter().any(|attribute| attribute.path().is_ident("test"));
            self.silent.push((item.sig.ident.to_string(), is_test));
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if call.path.is_ident("trials") {
            let names = call.tokens.to_string();
            self.trials.extend(names.split(',').filter_map(|path| Some(path.rsplit("::").next()?.trim().to_owned())));
        }
    }
}

/// The order of assertions and returns of a function.
#[derive(Default)]
struct Body {
    has_asserted: bool,
    is_silent: bool,
}

impl<'ast> Visit<'ast> for Body {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.has_asserted |= ident.to_string().contains("assert");
    }

    fn visit_expr_return(&mut self, value: &'ast ExprReturn) {
        let is_success = match value.expr.as_deref() {
            None => true,
            Some(Expr::Call(call)) => {
                let is_ok = matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Ok"));
                is_ok && matches!(call.args.first(), Some(Expr::Tuple(unit)) if unit.elems.is_empty())
            }
            Some(_) => false,
        };
        self.is_silent |= is_success && !self.has_asserted;
    }

    /// A closure's return is not the test's end.
    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}
}

/// Every package inherits the workspace's lints, which forbid `unsafe`; only the named ones may deny it instead.
pub(crate) fn unsafe_code(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let may_be_unsafe = MAP.may_be_unsafe(&package.name);
        if !has_lints(tree, package, may_be_unsafe) {
            let message = match may_be_unsafe {
                true => "its [lints] must equal the workspace's, but for unsafe_code = \"deny\"",
                false => "say `[lints] workspace = true`",
            };
            findings.push(TidyFinding::new(package.manifest_path(), message));
        }
    }
    findings
}

fn has_lints(tree: &Tree, package: &Package, unsafe_allowed: bool) -> bool {
    let Some(lints) = package.manifest.get("lints").and_then(|lints| lints.as_table()) else { return false };
    // Packages that may use `unsafe` need not.
    let inherits = lints.get("workspace").and_then(toml::Value::as_bool) == Some(true);
    if inherits || !unsafe_allowed {
        return inherits;
    }
    let workspace =
        tree.manifest.get("workspace").and_then(|table| table.get("lints")).and_then(|lints| lints.as_table());
    let mut expected = workspace.cloned().unwrap_or_default();
    if let Some(rust) = expected.get_mut("rust").and_then(|rust| rust.as_table_mut()) {
        rust.insert("unsafe_code".to_owned(), "deny".into());
    }
    *lints == expected
}

/// Forbids notes about unfinished work; clippy forbids its macros.
pub(crate) fn unfinished(tree: &Tree) -> Vec<TidyFinding> {
    let note = concat!("FIX", "ME");
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        for (at, _) in file.text.match_indices(note) {
            let place = format!("{}:{}", file.path, line(&file.text, at));
            findings.push(TidyFinding::new(place, format!("a {note} must not stay; fix it or open an issue")));
        }
    }
    findings
}

/// Every library crate describes itself in its README and in its description. rustc asks for its documentation.
pub(crate) fn crate_docs(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| package.dir.starts_with("crates/")) {
        if tree.file(&format!("{}/README.md", package.dir)).is_none() {
            findings.push(TidyFinding::new(&package.dir, "has no README.md: what it is, and one runnable example"));
        }
        if package.description.as_deref().is_none_or(str::is_empty) {
            findings.push(TidyFinding::new(package.manifest_path(), "has no description"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, add_file, file, package, theirs};

    const LIB: &str = "crates/foveate-decode/src/lib.rs";

    #[test]
    fn foreign_types_in_signatures_are_found() {
        for public in [
            "pub fn f(x: image::Rgb) {}",
            "pub use image::Rgb;",
            "use image::{Rgb, imageops};\npub fn f() -> Option<Rgb> {}",
            "struct S {\n    pub pixel: image::Rgb,\n}",
        ] {
            let mut tree = fake::tree();
            package(&mut tree, "foveate-decode").dependencies.push(theirs("image"));
            file(&mut tree, LIB).text = format!("//! x\n{public}\n");
            assert_finds(foreign_types, &tree, "shows in a public signature");
        }
    }

    #[test]
    fn foreign_types_inside_are_fine() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").dependencies.extend([theirs("image"), theirs("serde")]);
        file(&mut tree, LIB).text = "//! x\nuse image::Rgb;\nuse serde::Serialize;\nfn f(x: Rgb) {}\n\
            pub(crate) fn g(x: Rgb) {}\n#[derive(Serialize)]\npub struct S(u8);\n// pub fn h(x: image::Rgb)\n"
            .to_owned();
        assert!(foreign_types(&tree).is_empty());
    }

    #[test]
    fn lints_of_its_own_are_found() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").manifest.remove("lints");
        assert_finds(unsafe_code, &tree, "say `[lints] workspace = true`");
    }

    #[test]
    fn an_allowed_package_keeps_the_other_lints() {
        let mut tree = fake::tree();
        let lints: toml::Table = "[lints.rust]\nunsafe_code = \"deny\"\nmissing_docs = \"warn\"".parse().unwrap();
        package(&mut tree, "foveate-decode").manifest.insert("lints".to_owned(), lints["lints"].clone());
        let accepted = |tree: &Tree| has_lints(tree, tree.package("foveate-decode").unwrap(), true);
        assert!(accepted(&tree));
        let lints = package(&mut tree, "foveate-decode").manifest["lints"]["rust"].as_table_mut().unwrap();
        lints.remove("missing_docs");
        assert!(!accepted(&tree));
    }

    #[test]
    fn notes_about_unfinished_work_are_found() {
        let mut tree = fake::tree();
        file(&mut tree, LIB).text = concat!("//! x\n// FIX", "ME later\n").to_owned();
        assert_finds(unfinished, &tree, "lib.rs:2");
    }

    #[test]
    fn undocumented_crates_are_found() {
        let mut tree = fake::tree();
        tree.files.retain(|file| file.path != "crates/foveate-decode/README.md");
        assert_finds(crate_docs, &tree, "crates/foveate-decode: has no README.md");

        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").description = None;
        assert_finds(crate_docs, &tree, "has no description");
    }

    fn with_test(test: &str) -> Tree {
        let mut tree = fake::tree();
        add_file(&mut tree, "crates/foveate-decode/tests/t.rs", test);
        tree
    }

    #[test]
    fn a_test_that_returns_without_its_resource_is_found() {
        for body in [
            "let Some(x) = find() else { return };\n    assert!(x);",
            "if missing() {\n        return;\n    }\n    assert_eq!(1, 1);",
            "let Ok(x) = load() else { return Ok(()) };\n    assert!(x);",
            "let Ok(x) = load() else { return };\n    x.unwrap();",
        ] {
            let test = format!("#[test]\n#[cfg(unix)]\nfn t() {{\n    {body}\n}}\n");
            assert_finds(silent_passes, &with_test(&test), "tests/t.rs: t passes without having checked anything");
        }
    }

    #[test]
    fn so_is_a_trial_in_another_file_than_its_list() {
        let mut tree = with_test("fn t() {\n    let Some(x) = find() else { return };\n    assert!(x);\n}\n");
        assert!(silent_passes(&tree).is_empty(), "a helper may return");
        add_file(&mut tree, "crates/foveate-decode/tests/main.rs", "fn main() {\n    run(trials![t::a, t::t])\n}\n");
        assert_finds(silent_passes, &tree, "tests/t.rs: t passes");
    }

    #[test]
    fn tests_that_have_checked_something_or_return_a_value_are_fine() {
        for body in [
            "if inside() {\n        assert!(right());\n        return;\n    }",
            "let double = |x: u8| { return x * 2; };\n    assert_eq!(double(1), 2);",
            "// return;\n    assert!(\"return;\".len() > 1);",
        ] {
            let findings = silent_passes(&with_test(&format!("#[test]\nfn t() {{\n    {body}\n}}\n")));
            assert!(findings.is_empty(), "{body}: {findings:?}");
        }
    }
}
