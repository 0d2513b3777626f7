//! Rules for tests.

use std::collections::BTreeSet;

use crate::lex::{code, line, words};
use crate::rules::Finding;
use crate::tree::{Package, TextFile, Tree};

/// Forbids tests that return before they have asserted anything: where a resource is missing they pass, although they
/// checked nothing. Trials of foveate-testkit say what they miss.
pub(crate) fn silent_passes(tree: &Tree) -> Vec<Finding> {
    tree.packages.iter().flat_map(|package| silent_in(tree, package)).collect()
}

fn silent_in(tree: &Tree, package: &Package) -> Vec<Finding> {
    let files: Vec<(&TextFile, String)> = tree.rust_files(package).map(|file| (file, code(&file.text))).collect();
    let trials: BTreeSet<&str> = files.iter().flat_map(|(_, code)| trials(code)).collect();
    let in_file = |(file, code): &(&TextFile, String)| -> Vec<Finding> {
        let silent = tests(code, &trials).filter_map(|(start, body)| Some(start + silent_return(body)?));
        let at = |offset| format!("{}:{}", file.path, line(code, offset));
        silent.map(|offset| Finding::new(at(offset), MESSAGE)).collect()
    };
    files.iter().flat_map(in_file).collect()
}

const MESSAGE: &str = "this test passes without having checked anything; make it a trial of foveate-testkit, which says \
                       what is missing";

/// The names in lists `trials![…]`.
fn trials(code: &str) -> impl Iterator<Item = &str> {
    let lists = code.split("trials![").skip(1).filter_map(|rest| rest.split(']').next());
    lists.flat_map(|list| list.split(',')).filter_map(|path| path.trim().rsplit("::").next())
}

/// The offset and text of each test's body: functions with `#[test]`, and those named in `trials`.
fn tests<'a>(code: &'a str, trials: &'a BTreeSet<&str>) -> impl Iterator<Item = (usize, &'a str)> {
    words(code, "fn").filter_map(move |at| {
        let name = code[at + 2..].trim_start().split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
        let is_test = has_test_attribute(&code[..at]) || trials.contains(name);
        let start = at + code[at..].find('{')?;
        is_test.then(|| (start, block(&code[start..])))
    })
}

/// Returns true if `#[test]` is among the attributes at the end of `before`.
fn has_test_attribute(before: &str) -> bool {
    let mut rest = before.trim_end();
    while rest.ends_with(']') {
        let Some(start) = rest.rfind("#[") else { return false };
        if &rest[start..] == "#[test]" {
            return true;
        }
        rest = rest[..start].trim_end();
    }
    false
}

/// The text up to the brace that closes the first one.
fn block(code: &str) -> &str {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &code[..at];
        }
    }
    code
}

/// The offset of the first `return` of success before any assertion.
fn silent_return(body: &str) -> Option<usize> {
    let asserted = body.find("assert").unwrap_or(body.len());
    words(&body[..asserted], "return").find(|&at| {
        let value = body[at + "return".len()..].trim_start();
        [";", "}", "Ok(())"].iter().any(|success| value.starts_with(success))
    })
}

#[cfg(test)]
mod tests {
    use super::silent_passes;
    use crate::rules::assert_finds;
    use crate::tree::Tree;
    use crate::tree::fake::{self, add_file};

    fn tree(test: &str) -> Tree {
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
            assert_finds(silent_passes, &tree(&test), "passes without having checked anything");
        }
        assert_finds(silent_passes, &tree("#[test]\nfn t() {\n    return;\n}\n"), "tests/t.rs:3");
    }

    #[test]
    fn so_is_a_trial_in_another_file_than_its_list() {
        let mut tree = tree("fn t() {\n    let Some(x) = find() else { return };\n    assert!(x);\n}\n");
        assert!(silent_passes(&tree).is_empty(), "a helper may return");
        add_file(&mut tree, "crates/foveate-decode/tests/main.rs", "fn main() {\n    run(trials![t::a, t::t])\n}\n");
        assert_finds(silent_passes, &tree, "tests/t.rs:2");
    }

    #[test]
    fn tests_that_have_checked_something_or_return_a_value_are_fine() {
        for body in [
            "if inside() {\n        assert!(right());\n        return;\n    }",
            "let double = |x: u8| { return x * 2; };\n    assert_eq!(double(1), 2);",
            "// return;\n    assert!(\"return;\".len() > 1);",
        ] {
            let findings = silent_passes(&tree(&format!("#[test]\nfn t() {{\n    {body}\n}}\n")));
            assert!(findings.is_empty(), "{body}: {findings:?}");
        }
    }
}
