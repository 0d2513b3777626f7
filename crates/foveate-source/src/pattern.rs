//! Path patterns, matched component by component during the walk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::names::is_hidden;

/// A pattern such as `photos/**/*.jpg`.
pub(crate) struct Pattern {
    /// The components before the first one with a wildcard; the walk starts there.
    pub(crate) base: PathBuf,
    components: Vec<PatternComponent>,
}

enum PatternComponent {
    /// `**`: any number of folders.
    AnyDepth,
    /// Matches one name.
    Name { matcher: GlobMatcher, names_hidden: bool },
}

/// The state of a match with the path so far: the components that may come next, in increasing order. An entry
/// equal to the pattern's length means a complete match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatternProgress(Vec<usize>);

/// Returns true if `text` contains a wildcard character.
pub(crate) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

impl Pattern {
    /// Parses a pattern; an error says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let split = text.split('/').take_while(|part| !has_wildcard(part)).map(|part| part.len() + 1).sum::<usize>();
        let (base, rest) = text.split_at(split.min(text.len()));
        let components = rest.split('/').filter(|part| !part.is_empty()).map(component).collect::<Result<_, _>>()?;
        Ok(Self { base: PathBuf::from(base), components })
    }

    /// The progress before the first name.
    pub(crate) fn start(&self) -> PatternProgress {
        self.close(vec![0])
    }

    /// Returns true if some component is written for names like this one: it begins with a dot if that does, or is the
    /// name itself.
    pub(crate) fn names(&self, name: &OsStr) -> bool {
        self.components.iter().any(|component| match component {
            PatternComponent::Name { matcher, names_hidden } => {
                (*names_hidden && is_hidden(name.as_encoded_bytes())) || name == matcher.glob().glob()
            }
            PatternComponent::AnyDepth => false,
        })
    }

    /// Advances by one name.
    pub(crate) fn step(&self, from: &PatternProgress, name: &OsStr) -> PatternProgress {
        let mut next = Vec::new();
        for &at in &from.0 {
            match self.components.get(at) {
                Some(PatternComponent::AnyDepth) if !is_hidden(name.as_encoded_bytes()) => next.push(at),
                Some(PatternComponent::Name { matcher, names_hidden })
                    if (*names_hidden || !is_hidden(name.as_encoded_bytes())) && matcher.is_match(Path::new(name)) =>
                {
                    next.push(at + 1);
                }
                _ => {}
            }
        }
        self.close(next)
    }

    /// Returns true if the path so far matches.
    pub(crate) fn is_match(&self, progress: &PatternProgress) -> bool {
        progress.0.last() == Some(&self.components.len())
    }

    /// Returns true if a longer path may match.
    pub(crate) fn can_go_on(&self, progress: &PatternProgress) -> bool {
        progress.0.first().is_some_and(|&at| at < self.components.len())
    }

    /// Adds the components reachable if `**` matches no folder.
    fn close(&self, mut at: Vec<usize>) -> PatternProgress {
        let mut i = 0;
        while i < at.len() {
            if matches!(self.components.get(at[i]), Some(PatternComponent::AnyDepth)) {
                at.push(at[i] + 1);
            }
            i += 1;
        }
        at.sort_unstable();
        at.dedup();
        PatternProgress(at)
    }
}

fn component(text: &str) -> Result<PatternComponent, String> {
    if text == "**" {
        return Ok(PatternComponent::AnyDepth);
    }
    let glob = GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| format!("not a valid pattern: {}", error.kind()))?;
    Ok(PatternComponent::Name { matcher: glob.compile_matcher(), names_hidden: text.starts_with('.') })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if `path`, below the pattern's base, matches; `None` if the walk would not get that far.
    fn matches(pattern: &str, path: &str) -> Option<bool> {
        let pattern = Pattern::new(pattern).unwrap();
        let mut progress = pattern.start();
        for name in path.split('/') {
            if !pattern.can_go_on(&progress) {
                return None;
            }
            progress = pattern.step(&progress, OsStr::new(name));
        }
        Some(pattern.is_match(&progress))
    }

    #[test]
    fn the_base_is_what_has_no_wildcard() {
        for (text, base) in
            [("a/b/*.jpg", "a/b/"), ("*.jpg", ""), ("/x/**/y", "/x/"), ("/*", "/"), ("a/b[1]/c.jpg", "a/")]
        {
            assert_eq!(Pattern::new(text).unwrap().base, Path::new(base), "{text}");
        }
    }

    #[test]
    fn names_match_within_one_component() {
        assert_eq!(matches("*.jpg", "a.jpg"), Some(true));
        assert_eq!(matches("*.jpg", "a.png"), Some(false));
        assert_eq!(matches("*.jpg", "d/a.jpg"), None);
        assert_eq!(matches("?[ab].{jpg,png}", "xa.png"), Some(true));
        assert_eq!(matches("*/2019/*", "x/2019/y"), Some(true));
        assert_eq!(matches("*/2019/*", "x/2020/y"), None);
    }

    #[test]
    fn two_stars_stand_for_any_number_of_folders() {
        for path in ["a.jpg", "x/a.jpg", "x/y/z/a.jpg"] {
            assert_eq!(matches("**/*.jpg", path), Some(true), "{path}");
            assert_eq!(matches("**", path), Some(true), "{path}");
            assert_eq!(matches("**/**/*.jpg", path), Some(true), "{path}");
        }
        assert_eq!(matches("**/b/*.jpg", "x/b/y/b/a.jpg"), Some(true));
        assert_eq!(matches("**/b/*.jpg", "x/b/y/a.jpg"), Some(false));
    }

    #[test]
    fn hidden_names_need_a_dot_in_the_pattern() {
        assert_eq!(matches("*.jpg", ".a.jpg"), Some(false));
        assert_eq!(matches(".*.jpg", ".a.jpg"), Some(true));
        assert_eq!(matches("**/a.jpg", ".git/a.jpg"), None);
    }

    #[test]
    fn a_broken_pattern_says_so() {
        assert!(Pattern::new("a/[b").err().unwrap().starts_with("not a valid pattern"));
    }
}
