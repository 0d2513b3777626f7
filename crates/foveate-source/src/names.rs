//! Which names count: not hidden ones, not what systems leave behind, and the user's choice.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

use crate::id::to_path;

/// Folders in which NAS boxes, cameras and systems keep small copies, deleted files and former states. Those whose
/// names begin with a dot (`.Trash-1000`, `.thumbnails`, `.@__thumb`) are hidden anyway.
pub const SYSTEM_FOLDERS: [&str; 14] = [
    "@eaDir",
    "@Recycle",
    "@Recently-Snapshot",
    "@tmp",
    "#recycle",
    "#snapshot",
    "$RECYCLE.BIN",
    "RECYCLER",
    "RECYCLED",
    "System Volume Information",
    "THMBNL",
    "Network Trash Folder",
    "Temporary Items",
    "__MACOSX",
];

/// The names that folders, prefixes and containers contribute.
#[derive(Clone, Debug, Default)]
pub struct NameFilter {
    include: Vec<String>,
    exclude: Vec<String>,
    /// `None` if all names are included.
    included: Option<PathGlobs>,
    excluded: PathGlobs,
    /// Names of folders that are included although systems leave them behind, or hidden names.
    returned: Vec<GlobMatcher>,
}

impl PartialEq for NameFilter {
    fn eq(&self, other: &Self) -> bool {
        (&self.include, &self.exclude) == (&other.include, &other.exclude)
    }
}

impl Eq for NameFilter {}

/// Reason that a name does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    Hidden,
    System,
    Excluded,
}

impl NameFilter {
    /// Takes what matches one of `include`, if there are any, and none of `exclude`.
    ///
    /// A glob without a slash is that of a file's or folder's name at any depth. One with a slash is that of a path
    /// below the input, or as it is given. A folder's is its whole content's. Case does not matter. A glob of `include`
    /// that names what is left out by default (`@eaDir`, `.thumbnails`, or `*`) takes that back, and restricts nothing.
    ///
    /// # Errors
    /// If one is no glob.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, String> {
        let mut filter = Self { include: include.to_vec(), exclude: exclude.to_vec(), ..Self::default() };
        let mut restricting = Vec::new();
        for pattern in include {
            match returned(pattern)? {
                Some(name) => filter.returned.push(name),
                None => restricting.push(pattern.clone()),
            }
        }
        filter.included = if restricting.is_empty() { None } else { Some(PathGlobs::new(&restricting)?) };
        filter.excluded = PathGlobs::new(exclude)?;
        Ok(filter)
    }

    /// The globs as text; empty if there are none.
    pub(crate) fn text(&self) -> String {
        if self.include.is_empty() && self.exclude.is_empty() {
            return String::new();
        }
        format!("include {:?} exclude {:?}", self.include, self.exclude)
    }

    fn is_returned(&self, name: &Path) -> bool {
        self.returned.iter().any(|glob| glob.is_match(name))
    }

    /// Returns the reason that an entry of a folder does not count, if any. `below` is its path below the input.
    pub(crate) fn leaves_out(&self, path: &Path, below: &Path, is_folder: bool) -> Option<LeftOut> {
        let name = below.file_name().unwrap_or_default();
        if is_hidden(name.as_encoded_bytes()) && !self.is_returned(Path::new(name)) {
            return Some(LeftOut::Hidden);
        }
        if is_folder && is_system(name.as_encoded_bytes()) && !self.is_returned(Path::new(name)) {
            return Some(LeftOut::System);
        }
        self.excludes(path, below, is_folder).then_some(LeftOut::Excluded)
    }

    /// Returns the reason that a file found without a walk does not count, if any: its folders' names decide, too.
    pub(crate) fn leaves_out_file(&self, path: &Path, below: &Path) -> Option<LeftOut> {
        let mut folders: Vec<&Path> = below.ancestors().skip(1).filter(|folder| folder.file_name().is_some()).collect();
        folders.reverse();
        let of_folder = folders.into_iter().find_map(|folder| self.leaves_out(folder, folder, true));
        of_folder.or_else(|| self.leaves_out(path, below, false))
    }

    /// Returns true if the user leaves out an input that is named or listed, a container or a folder say.
    pub(crate) fn excludes(&self, path: &Path, below: &Path, holds_others: bool) -> bool {
        let is_included = self.included.as_ref().is_none_or(|globs| holds_others || globs.is_match(path, below));
        !is_included || self.excluded.is_match(path, below)
    }

    /// Returns true if a container's member with this name counts.
    pub fn takes_member(&self, name: &[u8]) -> bool {
        let path = to_path(name);
        self.leaves_out_file(&path, &path).is_none()
    }
}

/// Returns true if a name is hidden: it begins with a dot.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && ![&b"."[..], b".."].contains(&name)
}

fn is_system(name: &[u8]) -> bool {
    SYSTEM_FOLDERS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// The name that a glob takes back, if it is of that kind.
fn returned(pattern: &str) -> Result<Option<GlobMatcher>, String> {
    let parts: Vec<&str> = pattern.split('/').filter(|part| !["", ".", "*", "**"].contains(part)).collect();
    if parts.is_empty() {
        return Ok(Some(glob("*")?.compile_matcher()));
    }
    for part in parts {
        let name = glob(part)?.compile_matcher();
        if is_hidden(part.as_bytes()) || SYSTEM_FOLDERS.iter().any(|known| name.is_match(known)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn glob(pattern: &str) -> Result<Glob, String> {
    let built = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).case_insensitive(true).build();
    built.map_err(|error| format!("'{pattern}' is not a valid pattern: {}", error.kind()))
}

/// Globs of paths.
#[derive(Clone, Debug, Default)]
struct PathGlobs {
    /// For paths below the input.
    below: GlobSet,
    /// For paths as they are given.
    given: GlobSet,
}

impl PathGlobs {
    fn new(patterns: &[String]) -> Result<Self, String> {
        let mut below = GlobSetBuilder::new();
        let mut given = GlobSetBuilder::new();
        for pattern in patterns {
            let pattern = pattern.trim_end_matches('/');
            let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
            glob(pattern)?; // so that an error names what was typed
            if pattern.contains('/') {
                given.add(glob(pattern)?).add(glob(&format!("{pattern}/**"))?);
                let relative = pattern.trim_start_matches('/');
                below.add(glob(relative)?).add(glob(&format!("{relative}/**"))?);
            } else {
                below.add(glob(&format!("**/{pattern}"))?).add(glob(&format!("**/{pattern}/**"))?);
            }
        }
        Ok(Self {
            below: below.build().map_err(|error| error.to_string())?,
            given: given.build().map_err(|error| error.to_string())?,
        })
    }

    fn is_match(&self, path: &Path, below: &Path) -> bool {
        let path = path.strip_prefix(".").unwrap_or(path);
        // An archive's names may be absolute.
        let below = below.strip_prefix("/").unwrap_or(below);
        self.below.is_match(below) || self.given.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> NameFilter {
        let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
        NameFilter::new(&owned(include), &owned(exclude)).unwrap()
    }

    fn takes(filter: &NameFilter, below: &str) -> bool {
        filter.leaves_out_file(&Path::new("photos").join(below), Path::new(below)).is_none()
    }

    #[test]
    fn systems_leave_folders_behind() {
        let all = filter(&[], &[]);
        let back = filter(&["@eaDir", "*/.thumbnails/*"], &[]);
        for left in ["@eaDir/a.jpg", "x/#Recycle/y/a.jpg", "$RECYCLE.BIN/S-1-5/a.jpg", ".thumbnails/a.jpg", "x/._a.jpg"]
        {
            assert!(!takes(&all, left), "{left}");
            assert!(takes(&filter(&["*"], &[]), left) || left.contains("/."), "{left}");
        }
        assert!(takes(&all, "recycle/@eaDir.jpg") && takes(&all, "a.jpg"));
        assert!(takes(&back, "@eaDir/a.jpg") && takes(&back, "x/.thumbnails/a.jpg") && takes(&back, "a.jpg"));
        assert!(!takes(&back, "#recycle/a.jpg"));
    }

    #[test]
    fn the_user_chooses_by_name_or_path() {
        let drafts = filter(&[], &["draft*", "2023/", "photos/2024/raw/**"]);
        for (below, expected) in [
            ("a.jpg", true),
            ("x/Draft 1.jpg", false),
            ("drafts/a.jpg", false),
            ("2023/a.jpg", false),
            ("x/2023/a.jpg", false),
            ("2024/a.jpg", true),
            ("2024/raw/x/a.jpg", false),
        ] {
            assert_eq!(takes(&drafts, below), expected, "{below}");
        }
        let some = filter(&["*.PNG", "2024/*"], &["bad*"]);
        for (below, expected) in
            [("a.png", true), ("x/a.png", true), ("2024/a.jpg", true), ("a.jpg", false), ("2024/bad.jpg", false)]
        {
            assert_eq!(takes(&some, below), expected, "{below}");
        }
        assert!(!takes(&some, "@eaDir/a.png"), "it restricts, and takes nothing back");
        assert!(NameFilter::new(&[], &["a[".to_owned()]).unwrap_err().contains("'a['"));
    }
}
