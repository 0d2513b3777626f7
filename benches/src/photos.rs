//! Selects the photos to measure.

use std::path::{Path, PathBuf};

use foveate::source::{Input, Listing, Source};

use crate::Result;

/// The committed photos.
pub fn examples() -> PathBuf {
    foveate_tests::data::root().join("examples/photos")
}

/// The photos that imitate the usual workload (about 1000 x 1000 pixels, 300 KB, baseline 4:2:0) if the shared data set
/// is present, or else [`examples`].
pub fn usual() -> PathBuf {
    foveate_testkit::find_data("photos").map_or_else(|_| examples(), |folder| folder.join("wl_*.jpg"))
}

/// The files of `from` (a file, a folder or a pattern), in order.
///
/// # Errors
/// If there are none, or one cannot be read.
pub fn list(from: &Path) -> Result<Vec<PathBuf>> {
    let mut listing = Listing::builder().inputs([Input::Path(from.to_owned())]).build()?;
    let mut files = Vec::new();
    while let Some(item) = listing.next_item()? {
        if let Some(fault) = item.fault {
            return Err(fault.into());
        }
        files.push(std::fs::canonicalize(&item.id)?);
    }
    if files.is_empty() { Err(format!("{}: no photos", from.display()).into()) } else { Ok(files) }
}

/// Writes a list of `images` lines that repeats `files`.
///
/// # Errors
/// If it cannot be written, or there are no files.
pub fn write_list(files: &[PathBuf], images: u64, list: &Path) -> Result<()> {
    if files.is_empty() {
        return Err("no photos".into());
    }
    let lines: Vec<String> =
        files.iter().cycle().take(images as usize).map(|file| file.display().to_string()).collect();
    Ok(std::fs::write(list, lines.join("\n"))?)
}

/// The last two parts of a path: enough to distinguish sets of photos, without this machine's folders.
pub fn short_name(path: &Path) -> String {
    let parts: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_repeat_the_photos_in_order() {
        let files = list(&examples()).unwrap();
        assert!(files.len() > 10 && files.is_sorted());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.txt");
        write_list(&files[..2], 5, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[1]), (5, lines[4], lines[3]));
        assert!(list(&folder.path().join("*.jpg")).is_err() && write_list(&[], 1, &path).is_err());
    }

    #[test]
    fn names_tell_nothing_of_the_machine() {
        assert_eq!(short_name(Path::new("/home/x/data/photos")), "data/photos");
        assert_eq!(short_name(Path::new("photos")), "photos");
    }
}
