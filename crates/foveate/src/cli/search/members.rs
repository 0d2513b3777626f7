//! The images of groups: which is kept, and which can be removed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::bail;
use foveate::sink::RecordedHash;
use foveate::source::store::scheme_of;
use foveate::source::{FileIdentity, NamedFile, path_of};

use super::files::ImageFile;
use super::sheet::Card;
use super::vectors::Loaded;

/// The reason that an image is in a group.
pub(super) const KEPT: &str = "kept";
pub(super) const SAME: &str = "same bytes";
pub(super) const SAME_PIXELS: &str = "same pixels";
pub(super) const NEAR: &str = "near";
/// Another name of a file that is in a group.
const SAME_FILE: &str = "same file";
/// Another entry of a file that is in a group.
const HARD_LINK: &str = "hard link";
/// A link to a file that is in no group.
const LINK: &str = "link";
/// Gray that was clipped: other pictures have this vector, too.
const CLIPPED: &str = "clipped";

/// An image in a group.
pub(super) struct Member {
    pub(super) id: String,
    /// The id is a row's number, which another image may have on the other side.
    pub(super) has_number: bool,
    pub(super) is_kept: bool,
    pub(super) score: f64,
    pub(super) reason: &'static str,
    pub(super) size: (u32, u32),
    pub(super) hash: Option<RecordedHash>,
    pub(super) file: ImageFile,
    /// Without it, another file still has the picture, and disk space is free.
    pub(super) is_removable: bool,
    /// Its gray in more than 8 bits, or in floats, was clipped to 8.
    pub(super) is_clipped: bool,
    /// The rules that chose it, if it is kept.
    pub(super) kept_by: String,
}

impl Loaded {
    /// Returns true if a row's file is known to have the bytes of the file of a row of `other`.
    pub(super) fn is_copy(&self, row: u32, other: &Self, of_other: u32) -> bool {
        let hash = self.hashes[row as usize];
        // A checksum can be forged.
        matches!(hash, Some(RecordedHash::Content(_))) && hash == other.hashes[of_other as usize]
    }

    pub(super) fn member(&self, row: u32, files: &HashMap<u32, ImageFile>, score: f64, reason: &'static str) -> Member {
        let id = self.ids[row as usize].to_string();
        let file = files.get(&row).cloned().unwrap_or_default();
        let size = self.sizes[row as usize];
        Member {
            id,
            has_number: self.has_numbers,
            is_kept: reason == KEPT,
            score,
            reason,
            size,
            hash: self.hashes[row as usize],
            file,
            is_removable: false,
            is_clipped: false,
            kept_by: String::new(),
        }
    }
}

impl Member {
    /// The path of its file, as it is now. Other images have ids: members of containers, objects, rows.
    pub(super) fn path(&self) -> PathBuf {
        let is_path = self.file.named.as_ref().is_none_or(NamedFile::is_whole);
        if let Some(NamedFile { path: Some(path), .. }) = &self.file.named
            && self.file.is_moved
            && is_path
        {
            return path.clone();
        }
        path_of(&self.id).filter(|_| is_path).unwrap_or_else(|| PathBuf::from(&self.id))
    }

    pub(super) fn card(&self) -> Card {
        let score = if self.is_kept { String::new() } else { format!("{:.4}, ", self.score) };
        Card {
            id: self.id.clone(),
            hash: self.hash,
            size: self.size,
            caption: format!("{score}{}", self.reason),
            is_marked: self.is_kept,
            is_picked: self.is_removable,
        }
    }
}

/// Files' evidence about groups.
#[derive(Default)]
pub(super) struct FileCounts {
    pub(super) same_file: usize,
    /// Hard and symbolic links.
    pub(super) free_nothing: usize,
    pub(super) removable: usize,
    pub(super) clipped: usize,
    /// Groups with an image that is not where its id says, and one such image.
    pub(super) unknown: usize,
    pub(super) one_unknown: Option<String>,
    /// Groups with a file that has changed, and one such file.
    pub(super) changed: usize,
    pub(super) one_changed: Option<String>,
}

/// Decides which images can be removed. A file stays with all its names if one of them is kept, is a symbolic link, or
/// is in `kept_elsewhere`: the picture or a name of it would be lost with the file. Of a group with a file that cannot
/// be looked at, nothing is removable, unless ids are trusted.
pub(super) fn settle(groups: &mut [Vec<Member>], kept_elsewhere: &[NamedFile], trust_ids: bool) -> FileCounts {
    let mut counts = FileCounts::default();
    // Of each file that stays, the entry of the name that says so.
    let mut stays: HashMap<FileIdentity, Option<PathBuf>> = HashMap::new();
    let kept = groups.iter().flatten().filter(|member| member.is_kept).filter_map(|member| member.file.named.as_ref());
    let links = groups.iter().flatten().filter_map(|member| member.file.named.as_ref()).filter(|file| file.is_link);
    for file in kept.chain(kept_elsewhere).chain(links) {
        stays.entry(file.identity.clone()).or_insert_with(|| entry_of(file));
    }
    // Of each file, its entries and how many names lead to each.
    let mut names: HashMap<FileIdentity, HashMap<Option<PathBuf>, usize>> = HashMap::new();
    for file in groups.iter().flatten().filter_map(|member| member.file.named.as_ref()) {
        *names.entry(file.identity.clone()).or_default().entry(entry_of(file)).or_default() += 1;
    }
    let named = groups.iter().flatten().filter(|member| !member.has_number);
    let kept_ids: HashSet<String> =
        named.filter(|member| member.is_kept).map(|member| spelled(&member.id).into()).collect();
    // Of each file that can be removed, the entry of its first name.
    let mut listed: HashMap<FileIdentity, Option<PathBuf>> = HashMap::new();
    for group in groups {
        let mut is_open = true;
        if let Some(member) = group.iter().find(|member| member.file.is_changed) {
            counts.changed += 1;
            counts.one_changed.get_or_insert_with(|| member.id.clone());
            is_open = false;
        } else if let Some(member) = group.iter().find(|member| member.file.named.is_none()) {
            counts.unknown += 1;
            counts.one_unknown.get_or_insert_with(|| member.id.clone());
            is_open = trust_ids;
        }
        let kept_is_clipped = group.iter().any(|member| member.is_kept && member.is_clipped);
        for member in group.iter_mut().filter(|member| !member.is_kept) {
            if member.reason == NEAR && (member.is_clipped || kept_is_clipped) {
                member.reason = CLIPPED;
                counts.clipped += 1;
                continue;
            }
            let Some(file) = &member.file.named else {
                if kept_ids.contains(&*spelled(&member.id)) {
                    member.reason = SAME_FILE;
                    counts.same_file += 1;
                    continue;
                }
                member.is_removable = is_open;
                counts.removable += usize::from(is_open);
                continue;
            };
            let entry = entry_of(file);
            let entries = &names[&file.identity];
            let of_another = match stays.get(&file.identity).or_else(|| listed.get(&file.identity)) {
                Some(first) if *first != entry => Some(HARD_LINK),
                None if entries.len() > 1 => Some(HARD_LINK),
                Some(_) if file.is_link && entries.values().sum::<usize>() == 1 => Some(LINK),
                Some(_) => Some(SAME_FILE),
                None => None,
            };
            match of_another {
                Some(reason) => {
                    member.reason = reason;
                    counts.same_file += usize::from(reason == SAME_FILE);
                    counts.free_nothing += usize::from(reason != SAME_FILE);
                }
                None => {
                    member.is_removable = is_open;
                    counts.removable += usize::from(is_open);
                    listed.insert(file.identity.clone(), entry);
                }
            }
        }
    }
    counts
}

/// Checks what is about to be told: no group loses its kept image with those that can be removed.
///
/// # Errors
/// Names the group and both images.
pub(super) fn check_kept(groups: &[Vec<Member>], trust_ids: bool) -> anyhow::Result<()> {
    let mut ids = HashSet::new();
    let mut files = HashSet::new();
    for member in groups.iter().flatten().filter(|member| member.is_removable) {
        ids.insert(spelled(&member.id));
        files.extend(member.file.named.as_ref().map(|file| &file.identity));
    }
    for (number, group) in groups.iter().enumerate() {
        let Some(removable) = group.iter().find(|member| member.is_removable) else { continue };
        let stays = group.iter().any(|member| {
            let is_there = match &member.file.named {
                Some(file) => !member.file.is_changed && !files.contains(&file.identity),
                None => trust_ids,
            };
            member.is_kept && is_there && (member.has_number || !ids.contains(&spelled(&member.id)))
        });
        if !stays {
            bail!(
                "cannot list group {number} of duplicates: with {} and others that seem removable, it would lose the \
                 picture that it keeps; nothing was written or printed; search without that image, and report this",
                removable.id
            );
        }
    }
    Ok(())
}

/// An id without the parts of a path that lead nowhere: `./a.jpg` and `b/../a.jpg` are one file wherever they are, or
/// may be.
pub(super) fn spelled(id: &str) -> Cow<'_, str> {
    let has_dots = id.starts_with("./") || id.contains("/.") || id.contains("//");
    if !has_dots || scheme_of(id.as_bytes()).is_some() {
        return id.into();
    }
    let mut path = PathBuf::new();
    for part in Path::new(id).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if path.file_name().is_some() => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned().into()
}

/// The directory entry that a name leads to, if its file has several.
fn entry_of(file: &NamedFile) -> Option<PathBuf> {
    let path = file.path.as_ref().filter(|_| file.entries > 1 && !file.is_member())?;
    fs::canonicalize(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_would_lose_its_picture_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let member =
            |name: &str, reason: &'static str| {
                let path = folder.path().join(name);
                fs::write(&path, name).unwrap();
                let file = ImageFile { named: NamedFile::at(&path), ..ImageFile::default() };
                let mut member =
                    Loaded { ids: vec![name.into()], hashes: vec![None], sizes: vec![(0, 0)], ..Loaded::default() }
                        .member(0, &HashMap::from([(0, file)]), 1.0, reason);
                member.is_removable = reason == SAME;
                member
            };
        let group = || vec![member("a.jpg", KEPT), member("b.jpg", SAME)];
        let other = || vec![member("c.jpg", KEPT), member("d.jpg", SAME)];
        assert!(check_kept(&[other(), group()], false).is_ok());
        let forgeries: [fn(&mut Vec<Member>); 5] = [
            |group| group[0].is_kept = false,
            |group| group[0].is_removable = true,
            |group| group[0].file.is_changed = true,
            |group| group[0].file.named = None,
            |group| group[1].file = group[0].file.clone(),
        ];
        for (number, forge) in forgeries.into_iter().enumerate() {
            let mut forged = group();
            forge(&mut forged);
            let refused = check_kept(&[other(), forged], false).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.starts_with("cannot list group 1")), "{number}");
        }
        // The kept image of one group is removable in another.
        assert!(check_kept(&[group(), vec![member("e.jpg", KEPT), member("a.jpg", SAME)]], false).is_err());
        let mut elsewhere = group();
        elsewhere[0].file.named = None;
        assert!(check_kept(&[elsewhere], true).is_ok(), "trusted by its id");
    }
}
