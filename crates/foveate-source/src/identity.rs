//! Files behind names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::address::local_path;
use crate::id::path_of;
use crate::store::scheme_of;

/// A file, an object or a member of a container, regardless of the name that leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    node: FileNode,
    /// The rest of the id of a container's member, or its place.
    member: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FileNode {
    #[cfg(unix)]
    Inode {
        device: u64,
        inode: u64,
    },
    #[cfg(not(unix))]
    Path(PathBuf),
    Object(String),
}

/// A name, and the file that it leads to.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// Equal for all names of one file: spellings, symbolic links, hard links, bind mounts.
    pub identity: FileIdentity,
    /// The path of the file, or of the container; `None` for an address.
    pub path: Option<PathBuf>,
    /// The name itself is a symbolic link. Links in the folders above do not count.
    pub is_link: bool,
    /// Directory entries that the file has, where the system counts them.
    pub entries: u64,
}

impl NamedFile {
    /// The regular file at `path`; `None` if there is none.
    pub fn at(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let is_link = fs::symlink_metadata(path).ok()?.is_symlink();
        #[cfg(unix)]
        let (node, entries) = {
            use std::os::unix::fs::MetadataExt;
            (FileNode::Inode { device: data.dev(), inode: data.ino() }, data.nlink())
        };
        #[cfg(not(unix))]
        let (node, entries) = {
            let _ = data;
            (FileNode::Path(fs::canonicalize(path).ok()?), 1)
        };
        Some(Self { identity: FileIdentity { node, member: None }, path: Some(path.to_owned()), is_link, entries })
    }

    /// The file that is at an id now, or the member of the container there. An address is its object, unlooked at.
    /// `None` if there is nothing, as of the ids of another machine.
    pub fn of_id(id: &str) -> Option<Self> {
        let path = match scheme_of(id.as_bytes()) {
            Some("file") => local_path(id)?.into(),
            Some(_) => return Some(Self::object(id)),
            None => path_of(id)?,
        };
        if let Some(file) = Self::at(&path) {
            return Some(file);
        }
        let container = path.ancestors().skip(1).find_map(Self::at)?;
        let rest = path.strip_prefix(container.path.as_ref()?).ok()?;
        let member = rest.to_string_lossy().into_owned();
        Some(container.member(member))
    }

    pub(crate) fn object(address: &str) -> Self {
        let node = FileNode::Object(address.to_owned());
        Self { identity: FileIdentity { node, member: None }, path: None, is_link: false, entries: 1 }
    }

    pub(crate) fn member(mut self, member: String) -> Self {
        self.identity.member = Some(member);
        self.is_link = false;
        self
    }

    /// Returns true for a file that is an image by itself: no object and no member of a container.
    pub fn is_whole(&self) -> bool {
        self.path.is_some() && !self.is_member()
    }

    /// Returns true for a member of a container.
    pub fn is_member(&self) -> bool {
        self.identity.member.is_some()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_names_of_a_file_have_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("real")).unwrap();
        fs::write(path("real/a.jpg"), "a").unwrap();
        fs::write(path("real/b.jpg"), "a").unwrap();
        fs::write(path(r"real/c\.tar"), "c").unwrap();
        symlink("real", path("folder")).unwrap();
        symlink("folder/a.jpg", path("link.jpg")).unwrap();
        symlink("link.jpg", path("again.jpg")).unwrap();
        symlink("nothing", path("broken.jpg")).unwrap();
        fs::hard_link(path("real/a.jpg"), path("hard.jpg")).unwrap();
        let of = |name: &str| NamedFile::of_id(&format!("{}/{name}", folder.path().display()));
        let first = of("real/a.jpg").unwrap();
        assert_eq!((first.is_link, first.entries, first.is_member()), (false, 2, false));
        for (name, is_link) in [
            ("folder/a.jpg", false),
            ("real/../real/./a.jpg", false),
            ("link.jpg", true),
            ("again.jpg", true),
            ("hard.jpg", false),
        ] {
            let found = of(name).unwrap();
            assert_eq!((found.identity, found.is_link), (first.identity.clone(), is_link), "{name}");
        }
        assert_ne!(of("real/b.jpg").unwrap().identity, first.identity);
        assert!(["broken.jpg", "real", "absent.jpg"].iter().all(|name| of(name).is_none()));
        // An id doubles backslashes, so that it can name any byte.
        let [member, through_link] = [r"real/c\\.tar/x/0.jpg", r"folder/c\\.tar/x/0.jpg"].map(|id| of(id).unwrap());
        assert!(member.is_member() && member.identity == through_link.identity);
        assert_ne!(of(r"real/c\\.tar/x/1.jpg").unwrap().identity, member.identity);
        let address = NamedFile::of_id(&format!("file://{}/real/%61.jpg", folder.path().display())).unwrap();
        assert_eq!(address.identity, first.identity);
        let object = NamedFile::of_id("s3://bucket/a.jpg").unwrap();
        assert!(object.path.is_none() && object.identity != NamedFile::of_id("s3://bucket/b.jpg").unwrap().identity);
    }
}
