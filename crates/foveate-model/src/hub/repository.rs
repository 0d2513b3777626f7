/// A repository of the hub at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// `owner/name`.
    pub(crate) id: String,
    /// Branch, tag or commit, if the user gave one.
    pub(crate) revision: Option<String>,
}

impl Repository {
    /// Parses `owner/name` or `owner/name@revision`.
    pub(crate) fn parse(spec: &str) -> Option<Self> {
        let (id, revision) = match spec.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (spec, None),
        };
        let (owner, name) = id.split_once('/')?;
        let is_valid = is_name(owner) && is_name(name) && revision.is_none_or(is_revision);
        is_valid.then(|| Self { id: id.to_owned(), revision: revision.map(str::to_owned) })
    }
}

/// Returns true if the hub allows the name; it becomes part of a folder's name, with `--` between owner and name.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !name.starts_with(['.', '-'])
        && !name.contains("--")
        && !name.contains("..")
}

/// Returns true if every part of the revision is safe as a file or folder name.
fn is_revision(revision: &str) -> bool {
    revision.split('/').all(|part| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_an_owner_and_a_name_and_maybe_a_revision() {
        let parse = |spec: &str| Repository::parse(spec).map(|r| (r.id, r.revision));
        let small = || "facebook/dinov2-small".to_owned();
        assert_eq!(parse("facebook/dinov2-small"), Some((small(), None)));
        assert_eq!(parse("facebook/dinov2-small@v1.0"), Some((small(), Some("v1.0".to_owned()))));
        assert_eq!(parse("facebook/dinov2-small@refs/pr/7"), Some((small(), Some("refs/pr/7".to_owned()))));
        for spec in [
            "", "a", "a/", "/a", "a/b/c", "../b", "a/..", "a--b/c", "./b", "a/b@", "a/b@../x", "a/b@x//y", "a/b@/x",
            "a b/c", "a/b?c",
        ] {
            assert_eq!(parse(spec), None, "{spec:?}");
        }
    }
}
