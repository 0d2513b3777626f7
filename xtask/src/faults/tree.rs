//! A folder's content in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Every folder and file below a folder, by relative path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Folder,
    File(Vec<u8>),
}

impl Entry {
    /// The bytes of a file that has any.
    pub(super) fn data(&self) -> Option<&Vec<u8>> {
        match self {
            Self::File(data) if !data.is_empty() => Some(data),
            _ => None,
        }
    }
}

impl FromIterator<(PathBuf, Entry)> for Tree {
    fn from_iter<I: IntoIterator<Item = (PathBuf, Entry)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl Tree {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))? {
                let path = entry?.path();
                let name = path.strip_prefix(folder)?.to_owned();
                if path.is_dir() {
                    tree.0.insert(name, Entry::Folder);
                    folders.push(path);
                } else {
                    tree.0.insert(name, Entry::File(fs::read(&path)?));
                }
            }
        }
        Ok(tree)
    }

    /// Writes the tree into an empty folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        for (name, entry) in self.iter() {
            match entry {
                Entry::Folder => fs::create_dir(folder.join(name))?,
                Entry::File(data) => fs::write(folder.join(name), data)?,
            }
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> Iter<'_, PathBuf, Entry> {
        self.0.iter()
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Entry> {
        self.0.get(path)
    }

    /// Adds the entries of `other`, which win.
    pub(super) fn and(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).map(|(path, entry)| (path.clone(), entry.clone())).collect()
    }

    /// Names of the files that `other` has, too.
    pub(super) fn common_files(&self, other: &Self) -> Vec<String> {
        let is_common = |(path, entry): &(&PathBuf, &Entry)| **entry != Entry::Folder && other.0.contains_key(*path);
        self.iter().filter(is_common).map(|(path, _)| path.display().to_string()).collect()
    }

    /// The tree without work in progress.
    pub(super) fn finished(&self) -> Self {
        let is_work = |path: &Path| {
            path.iter().any(|name| {
                let name = name.to_string_lossy();
                name == ".foveate" || name.ends_with(".partial") || name.ends_with(".update")
            })
        };
        let kept = self.iter().filter(|(path, _)| !is_work(path));
        kept.map(|(path, entry)| (path.clone(), entry.clone())).collect()
    }

    /// The tree with another output that has the files of `from`.
    pub(super) fn with_copy(&self, from: &str, to: &str) -> Self {
        let copy = |path: &PathBuf| PathBuf::from(path.to_string_lossy().replace(from, to));
        let copied: Self = self.finished().iter().map(|(path, entry)| (copy(path), entry.clone())).collect();
        self.and(&copied)
    }

    /// The NumPy output `name` in no order: each line of its tables is a name, and each vector follows its line.
    pub(super) fn outcomes(&self, name: &str) -> Result<Self> {
        let file = |name: &str| {
            let data = self.get(Path::new(name)).and_then(Entry::data);
            data.with_context(|| format!("{name} is missing or empty"))
        };
        let mut outcomes: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        let array = file(name)?;
        let begin = 10 + usize::from(u16::from_le_bytes([array[8], array[9]]));
        for table in [format!("{name}.ids.csv"), format!("_{name}.failures.csv"), format!("_{name}.inputs.csv")] {
            let text = String::from_utf8(file(&table)?.clone())?;
            let vectors = if table.ends_with("ids.csv") { &array[begin..] } else { &[] };
            let size = vectors.len() / text.lines().skip(1).count().max(1);
            for (at, line) in text.lines().skip(1).enumerate() {
                let outcome = outcomes.entry(Path::new(&table).join(line)).or_default();
                // A second line of the same content is seen, too.
                outcome.push(b'+');
                outcome.extend(&vectors[at * size..(at + 1) * size]);
            }
        }
        Ok(outcomes.into_iter().map(|(line, data)| (line, Entry::File(data))).collect())
    }

    pub(super) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    /// What `other` lacks, has beside, or has otherwise; `None` if they are equal.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let absent = |(path, _): &(&PathBuf, &Entry)| !other.0.contains_key(*path);
        let lacking = self.iter().filter(absent).map(|(path, _)| format!("{} is missing", path.display()));
        let more = other.iter().filter_map(|(path, entry)| match self.get(path) {
            None => Some(format!("{} should not be there", path.display())),
            Some(own) if own != entry => Some(format!("{} has other bytes", path.display())),
            _ => None,
        });
        let all: Vec<String> = lacking.chain(more).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}
