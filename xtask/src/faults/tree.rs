//! A folder's content in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Every folder and file below a folder, by relative path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FolderTree(BTreeMap<PathBuf, TreeEntry>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TreeEntry {
    Folder,
    File(Vec<u8>),
}

impl TreeEntry {
    /// The bytes of a file that has any.
    pub(super) fn data(&self) -> Option<&Vec<u8>> {
        match self {
            Self::File(data) if !data.is_empty() => Some(data),
            _ => None,
        }
    }
}

impl FromIterator<(PathBuf, TreeEntry)> for FolderTree {
    fn from_iter<I: IntoIterator<Item = (PathBuf, TreeEntry)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl FolderTree {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))? {
                let path = entry?.path();
                let name = path.strip_prefix(folder)?.to_owned();
                if path.is_dir() {
                    tree.0.insert(name, TreeEntry::Folder);
                    folders.push(path);
                } else {
                    tree.0.insert(name, TreeEntry::File(fs::read(&path)?));
                }
            }
        }
        Ok(tree)
    }

    /// Writes the tree into an empty folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        for (name, entry) in self.iter() {
            match entry {
                TreeEntry::Folder => fs::create_dir(folder.join(name))?,
                TreeEntry::File(data) => fs::write(folder.join(name), data)?,
            }
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> Iter<'_, PathBuf, TreeEntry> {
        self.0.iter()
    }

    pub(super) fn get(&self, path: &Path) -> Option<&TreeEntry> {
        self.0.get(path)
    }

    /// Adds the entries of `other`, which win.
    pub(super) fn and(&self, other: &Self) -> Self {
        let mut tree = self.clone();
        tree.0.extend(other.0.clone());
        tree
    }

    /// Names of the files that `other` has, too.
    pub(super) fn common_files(&self, other: &Self) -> Vec<String> {
        let common = self.iter().filter(|(path, entry)| **entry != TreeEntry::Folder && other.0.contains_key(*path));
        common.map(|(path, _)| path.display().to_string()).collect()
    }

    /// The tree without work in progress.
    pub(super) fn finished(&self) -> Self {
        let mut tree = self.clone();
        tree.0.retain(|path, _| {
            !path.iter().any(|name| {
                let name = name.to_string_lossy();
                name == ".foveate" || name.ends_with(".partial") || name.ends_with(".update")
            })
        });
        tree
    }

    /// The tree with another output that has the files of `from`.
    pub(super) fn with_copy(&self, from: &str, to: &str) -> Self {
        let mut tree = self.clone();
        for (path, entry) in self.finished().0 {
            tree.0.insert(path.to_string_lossy().replace(from, to).into(), entry);
        }
        tree
    }

    /// The NumPy output `name` in no order: each line of its tables is a name, and each vector follows its line.
    pub(super) fn outcomes(&self, name: &str) -> Result<Self> {
        let mut outcomes: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        let array = self.bytes_of(name)?;
        let begin = 10 + usize::from(u16::from_le_bytes([array[8], array[9]]));
        for table in [format!("{name}.ids.csv"), format!("_{name}.failures.csv"), format!("_{name}.inputs.csv")] {
            let text = String::from_utf8(self.bytes_of(&table)?.clone())?;
            let vectors = if table.ends_with("ids.csv") { &array[begin..] } else { &[] };
            let size = vectors.len() / text.lines().skip(1).count().max(1);
            for (at, line) in text.lines().skip(1).enumerate() {
                let outcome = outcomes.entry(Path::new(&table).join(line)).or_default();
                // A second line of the same content is seen, too.
                outcome.push(b'+');
                outcome.extend(&vectors[at * size..(at + 1) * size]);
            }
        }
        Ok(outcomes.into_iter().map(|(line, data)| (line, TreeEntry::File(data))).collect())
    }

    fn bytes_of(&self, name: &str) -> Result<&Vec<u8>> {
        self.get(Path::new(name)).and_then(TreeEntry::data).with_context(|| format!("{name} is missing or empty"))
    }

    pub(super) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    /// Fails with the difference, if `other` differs, after the words `said`.
    pub(super) fn expect(&self, other: &Self, said: &str) -> Result<()> {
        let difference = self.difference(other).unwrap_or_default();
        ensure!(difference.is_empty(), "{said} {difference}");
        Ok(())
    }

    /// Describes missing, additional and different files of `other`; `None` if the trees are equal.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let mut all = Vec::new();
        for path in self.0.keys().filter(|path| !other.0.contains_key(*path)) {
            all.push(format!("{} is missing", path.display()));
        }
        for (path, _) in other.iter().filter(|(path, entry)| self.get(path) != Some(entry)) {
            let what = if self.get(path).is_some() { "has other bytes" } else { "should not be there" };
            all.push(format!("{} {what}", path.display()));
        }
        (!all.is_empty()).then(|| all.join(", "))
    }
}
