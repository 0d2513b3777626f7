//! The files of a sequence, and what a run makes of each content.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use foveate::backends;
use foveate::source::container::NewMember;
use xxhash_rust::xxh3::xxh3_64;

use super::rules::{Content, Version, Versions};
use crate::common::rows::{Row, rows};
use crate::common::{embed, run};

const CONTENTS: u8 = 24;
pub(crate) const TAR: &str = "shards/t.tar";

impl Content {
    pub(crate) fn random(random: &mut Rng) -> Self {
        let number = random.u8(..CONTENTS);
        if random.u8(..5) == 0 { Self::Damaged(number) } else { Self::Image(number) }
    }

    /// The bytes of all are as long. An image is a bitmap of 8 by 8 pixels.
    pub(crate) fn bytes(self) -> Option<Vec<u8>> {
        let (number, magic) = match self {
            Self::Image(number) => (number, b"BM"),
            Self::Damaged(number) => (number, b"no"),
            Self::Unreadable => return None,
        };
        let mut bytes = magic.to_vec();
        for field in [246, 0, 54, 40, 8, 8, 24 << 16 | 1, 0, 192, 2835, 2835, 0, 0_u32] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(Rng::with_seed(number.into()).choose_multiple(0..=255, 192));
        Some(bytes)
    }
}

/// The row or the failure of each content. All damaged ones have the same.
pub(crate) struct Outcomes(Vec<(Content, Result<Row, String>)>);

impl Outcomes {
    /// Embeds each content once.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Versions::new();
        let contents = [Content::Damaged(0), Content::Unreadable].into_iter().chain((0..CONTENTS).map(Content::Image));
        for (number, content) in contents.enumerate() {
            files.insert(format!("photos/{number}.bmp"), Version { content, time: 0 });
        }
        write(folder.path(), &files, false);
        let output = folder.path().join("x.npy");
        run(embed(&output).current_dir(folder.path()).arg("photos")).expect(0);
        let mut outcomes = Vec::new();
        for (id, outcome) in rows(&output) {
            let content = files[&id].content;
            match &outcome {
                Ok(row) => assert_eq!(Some(row.3), content.bytes().map(|bytes| xxh3_64(&bytes))),
                Err(_) => assert!(!matches!(content, Content::Image(_))),
            }
            assert!(outcomes.iter().all(|(_, other)| *other != outcome), "{content:?} is as another");
            outcomes.push((content, outcome));
        }
        Self(outcomes)
    }

    /// Reads a complete output.
    pub(crate) fn read(&self, output: &Path) -> BTreeMap<String, Content> {
        let mut contents = BTreeMap::new();
        for (id, outcome) in rows(output) {
            let known = self.0.iter().find(|(_, known)| *known == outcome);
            let Some((content, _)) = known else { panic!("{id} has what no content has: {outcome:?}") };
            contents.insert(id, *content);
        }
        contents
    }
}

/// Writes the files of today anew, and the tar if it has other members.
pub(crate) fn write(root: &Path, files: &Versions, is_tar_new: bool) {
    let modified = |version: &Version| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + version.time);
    let _ = fs::remove_dir_all(root.join("photos"));
    for (id, version) in files.iter().filter(|(id, _)| id.starts_with("photos/")) {
        let path = root.join(id);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match version.content.bytes() {
            None => std::os::unix::fs::symlink("absent", &path).unwrap(),
            Some(bytes) => {
                fs::write(&path, bytes).unwrap();
                File::options().write(true).open(&path).unwrap().set_modified(modified(version)).unwrap();
            }
        }
    }
    let members: Vec<_> = files.iter().filter(|(id, _)| id.starts_with(TAR)).collect();
    if let Some((_, version)) = members.first().filter(|_| is_tar_new) {
        fs::create_dir_all(root.join("shards")).unwrap();
        let file = File::create(root.join(TAR)).unwrap();
        let formats = backends::containers();
        let mut tar = formats.get("tar").unwrap().create(Box::new(file), &[]).unwrap().unwrap();
        for (id, member) in &members {
            let key = id.trim_start_matches(TAR).trim_matches('/').trim_end_matches(".bmp");
            let bytes = member.content.bytes().unwrap();
            tar.add(&NewMember { key, extension: "bmp", id, bytes: &bytes, columns: &[] }).unwrap();
        }
        tar.finish().unwrap();
        let file = File::options().write(true).open(root.join(TAR)).unwrap();
        file.set_modified(modified(version)).unwrap();
    }
}
