//! A disk that loses power: which states a run's calls may have left behind.
//!
//! The model is the strict reading of POSIX. A file's content is certain once the file is synced, a name once its
//! folder is synced. Before, each change may or may not be there, whatever became of the others. A write may be torn,
//! or may have left its length but not its bytes. A rename is atomic, as on every journaling file system.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::trace::{CallKind, FileCall};
use super::tree::{FolderTree, TreeEntry};

/// Which of the changes that were not synced survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// None.
    Strict,
    /// Every name, and no data.
    Names,
    /// Every name, and every file's length, but zeros for data.
    Zeros,
    /// All data, and no name.
    Data,
    /// Some, by a seed of its own.
    Random(u64),
}

impl Crash {
    pub(super) const FIXED: [Self; 4] = [Self::Strict, Self::Names, Self::Zeros, Self::Data];
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict => write!(f, "strict"),
            Self::Names => write!(f, "names"),
            Self::Zeros => write!(f, "zeros"),
            Self::Data => write!(f, "data"),
            Self::Random(seed) => write!(f, "random-{seed}"),
        }
    }
}

/// The disk while calls are replayed.
#[derive(Default)]
pub(super) struct Disk {
    files: Vec<Vec<ContentChange>>,
    by_inode: HashMap<u64, usize>,
    /// The view of a process.
    seen: BTreeMap<PathBuf, DiskName>,
    namings: Vec<Naming>,
}

/// Target of a name: a folder, or one of [`Disk::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskName {
    Folder,
    File(usize),
}

/// A change of a file's content.
struct ContentChange {
    edit: Edit,
    is_durable: bool,
}

enum Edit {
    Write { offset: usize, data: Vec<u8> },
    Truncate { len: usize },
}

/// A change of names, one or (a rename) two at once.
struct Naming {
    edits: Vec<(PathBuf, Option<DiskName>)>,
    is_durable: bool,
}

impl Disk {
    /// A disk with a durable tree on it.
    pub(super) fn new(tree: &FolderTree) -> Self {
        let mut disk = Self::default();
        for (path, entry) in tree.iter() {
            let name = match entry {
                TreeEntry::Folder => DiskName::Folder,
                TreeEntry::File(data) => disk.add_file(vec![ContentChange::durable(0, data.clone())]),
            };
            disk.name(vec![(path.clone(), Some(name))]);
        }
        disk.namings.iter_mut().for_each(|naming| naming.is_durable = true);
        disk
    }

    fn add_file(&mut self, changes: Vec<ContentChange>) -> DiskName {
        self.files.push(changes);
        DiskName::File(self.files.len() - 1)
    }

    fn name(&mut self, edits: Vec<(PathBuf, Option<DiskName>)>) {
        apply(&mut self.seen, &edits);
        self.namings.push(Naming { edits, is_durable: false });
    }

    /// Replays a call.
    pub(super) fn replay(&mut self, call: &FileCall) -> Result<()> {
        // A file without a name (`folder/#7 (deleted)`) leaves nothing.
        if call.result < 0 || call.path.to_string_lossy().ends_with(" (deleted)") {
            return Ok(());
        }
        match call.kind {
            CallKind::Open { truncates, creates } => self.open(call, truncates, creates)?,
            CallKind::Write { offset, is_synced } => {
                let edit = Edit::Write { offset, data: call.data.clone() };
                self.file(call)?.push(ContentChange { edit, is_durable: is_synced });
            }
            CallKind::Truncate { len } => {
                self.file(call)?.push(ContentChange { edit: Edit::Truncate { len }, is_durable: false });
            }
            CallKind::Sync { is_folder: false } => {
                self.file(call)?.iter_mut().for_each(|change| change.is_durable = true);
            }
            CallKind::Sync { is_folder: true } => self.sync_folder(&call.path),
            CallKind::Rename => {
                let name = self.named(&call.path)?;
                ensure!(name != DiskName::Folder, "renamed folders are not modelled");
                self.name(vec![(call.path.clone(), None), (call.to.clone(), Some(name))]);
            }
            CallKind::Link => {
                let name = self.named(&call.path)?;
                self.name(vec![(call.to.clone(), Some(name))]);
            }
            CallKind::Unlink | CallKind::Rmdir => self.name(vec![(call.path.clone(), None)]),
            CallKind::Mkdir => self.name(vec![(call.path.clone(), Some(DiskName::Folder))]),
            CallKind::Map => {}
        }
        Ok(())
    }

    fn open(&mut self, call: &FileCall, truncates: bool, creates: bool) -> Result<()> {
        if creates {
            let name = self.add_file(Vec::new());
            self.name(vec![(call.path.clone(), Some(name))]);
        }
        // The folder itself is not among the names.
        if let Some(DiskName::File(file)) = self.seen.get(&call.path) {
            self.by_inode.insert(call.inode, *file);
            if truncates && !creates {
                self.files[*file].push(ContentChange { edit: Edit::Truncate { len: 0 }, is_durable: false });
            }
        }
        Ok(())
    }

    fn named(&self, path: &Path) -> Result<DiskName> {
        self.seen.get(path).copied().with_context(|| format!("{} has no name in the model", path.display()))
    }

    fn file(&mut self, call: &FileCall) -> Result<&mut Vec<ContentChange>> {
        let file = self.by_inode.get(&call.inode);
        let file = file.with_context(|| format!("{} was not opened in the model", call.path.display()))?;
        Ok(&mut self.files[*file])
    }

    fn sync_folder(&mut self, folder: &Path) {
        for naming in &mut self.namings {
            naming.is_durable |= naming.edits.iter().any(|(path, _)| path.parent() == Some(folder));
        }
    }

    /// The tree after a power loss now.
    pub(super) fn after(&self, crash: Crash) -> FolderTree {
        let mut random = fastrand::Rng::with_seed(if let Crash::Random(seed) = crash { seed } else { 0 });
        let mut names = BTreeMap::new();
        for naming in &self.namings {
            let survives = match crash {
                Crash::Strict | Crash::Data => false,
                Crash::Names | Crash::Zeros => true,
                Crash::Random(_) => random.u64(..2) == 0,
            };
            if naming.is_durable || survives {
                apply(&mut names, &naming.edits);
            }
        }
        let files: Vec<Vec<u8>> = self.files.iter().map(|changes| content(changes, crash, &mut random)).collect();
        let mut entries = Vec::new();
        for (path, name) in &names {
            let mut above = path.ancestors().skip(1).take_while(|folder| *folder != Path::new(""));
            if above.all(|folder| names.get(folder) == Some(&DiskName::Folder)) {
                let entry = match name {
                    DiskName::Folder => TreeEntry::Folder,
                    DiskName::File(file) => TreeEntry::File(files[*file].clone()),
                };
                entries.push((path.clone(), entry));
            }
        }
        entries.into_iter().collect()
    }
}

impl ContentChange {
    fn durable(offset: usize, data: Vec<u8>) -> Self {
        Self { edit: Edit::Write { offset, data }, is_durable: true }
    }
}

/// Changes names. A folder that is made or removed has nothing in it.
fn apply(names: &mut BTreeMap<PathBuf, DiskName>, edits: &[(PathBuf, Option<DiskName>)]) {
    for (path, name) in edits {
        if !matches!(name, Some(DiskName::File(_))) {
            names.retain(|other, _| !other.starts_with(path));
        }
        match name {
            Some(name) => names.insert(path.clone(), *name),
            None => names.remove(path),
        };
    }
}

/// A file's bytes after a power loss.
fn content(changes: &[ContentChange], crash: Crash, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ContentChange { edit, is_durable } in changes {
        let luck = match crash {
            _ if *is_durable => Luck::Whole,
            Crash::Strict | Crash::Names => Luck::Lost,
            Crash::Data => Luck::Whole,
            Crash::Zeros => Luck::Zeros,
            Crash::Random(_) => match random.u64(..5) {
                0 => Luck::Zeros,
                1 => Luck::Torn(random.u64(..64) as usize * 512),
                2 => Luck::Lost,
                _ => Luck::Whole,
            },
        };
        edit.apply(&mut bytes, luck);
    }
    bytes
}

/// The fate of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Luck {
    Whole,
    /// Its length arrived, its bytes did not.
    Zeros,
    /// So many of its bytes arrived.
    Torn(usize),
    Lost,
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>, luck: Luck) {
        match (self, luck) {
            (_, Luck::Lost) => {}
            (Self::Truncate { len }, _) => bytes.resize(*len, 0),
            (Self::Write { offset, data }, _) => {
                let data = if let Luck::Torn(len) = luck { &data[..data.len().min(len)] } else { data };
                let end = offset + data.len();
                bytes.resize(bytes.len().max(end), 0);
                if luck != Luck::Zeros {
                    bytes[*offset..end].copy_from_slice(data);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CallKind, path: &str, to: &str, data: &[u8]) -> FileCall {
        FileCall { kind, result: 0, inode: 7, path: path.into(), to: to.into(), data: data.to_vec() }
    }

    fn disk(calls: &[FileCall]) -> Disk {
        let mut disk = Disk::new(&FolderTree::default());
        calls.iter().for_each(|call| disk.replay(call).unwrap());
        disk
    }

    /// A disk after a folder with a file was made, and after `calls`.
    fn disk_with_folder(calls: &[FileCall]) -> Disk {
        let mut disk = disk(&[call(CallKind::Mkdir, "d", "", b""), call(CREATE, "d/a", "", b"")]);
        calls.iter().for_each(|call| disk.replay(call).unwrap());
        disk
    }

    fn names(tree: &FolderTree) -> Vec<&str> {
        tree.iter().map(|(path, _)| path.to_str().unwrap()).collect()
    }

    const CREATE: CallKind = CallKind::Open { truncates: true, creates: true };
    const WRITE: CallKind = CallKind::Write { offset: 0, is_synced: false };

    #[test]
    fn data_and_names_are_lost_until_both_are_synced() {
        let mut disk = disk(&[call(CREATE, "a", "", b""), call(WRITE, "a", "", b"xyz")]);
        let found = |disk: &Disk, crash| match disk.after(crash).get(Path::new("a")) {
            Some(TreeEntry::File(data)) => Some(data.clone()),
            _ => None,
        };
        assert_eq!(found(&disk, Crash::Strict), None);
        assert_eq!(found(&disk, Crash::Names), Some(Vec::new()));
        assert_eq!(found(&disk, Crash::Zeros), Some(vec![0; 3]));
        disk.replay(&call(CallKind::Sync { is_folder: false }, "a", "", b"")).unwrap();
        assert_eq!(found(&disk, Crash::Strict), None, "a file's sync does not cover its name");
        disk.replay(&call(CallKind::Sync { is_folder: true }, "", "", b"")).unwrap();
        assert_eq!(found(&disk, Crash::Strict), Some(b"xyz".to_vec()));
    }

    #[test]
    fn a_rename_is_atomic_across_folders() {
        let mut disk = disk_with_folder(&[
            call(CallKind::Sync { is_folder: true }, "", "", b""),
            call(CallKind::Sync { is_folder: true }, "d", "", b""),
            call(CallKind::Rename, "d/a", "b", b""),
        ]);
        assert_eq!(names(&disk.after(Crash::Strict)), ["d", "d/a"]);
        disk.replay(&call(CallKind::Sync { is_folder: true }, "", "", b"")).unwrap();
        assert_eq!(names(&disk.after(Crash::Strict)), ["b", "d"]);
    }

    #[test]
    fn a_folder_that_was_not_synced_into_its_parent_takes_its_files_along() {
        let disk = disk_with_folder(&[call(CallKind::Sync { is_folder: true }, "d", "", b"")]);
        assert!(names(&disk.after(Crash::Strict)).is_empty());
        assert_eq!(names(&disk.after(Crash::Names)), ["d", "d/a"]);
    }
}
