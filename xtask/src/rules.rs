//! The rules of `tidy`, grouped by what they check.

pub(crate) mod ceilings;
pub(crate) mod circles;
pub(crate) mod layers;
pub(crate) mod locks;
pub(crate) mod manifests;
pub(crate) mod sources;
pub(crate) mod texts;

/// One violation: where it is, and what to do about it.
#[derive(Debug)]
pub(crate) struct TidyFinding {
    /// A file, with `:line` if known.
    pub(crate) at: String,
    /// The fault, and the correct form.
    pub(crate) message: String,
}

/// Line number, from 1, of an offset.
fn line(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

impl TidyFinding {
    pub(crate) fn new(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at: at.into(), message: message.into() }
    }
}

/// Asserts that `rule` finds exactly one violation in `tree`, with `expected` in its message.
#[cfg(test)]
pub(crate) fn assert_finds(rule: fn(&crate::tree::Tree) -> Vec<TidyFinding>, tree: &crate::tree::Tree, expected: &str) {
    let findings = rule(tree);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let said = format!("{}: {}", findings[0].at, findings[0].message);
    assert!(said.contains(expected), "{said}");
}
