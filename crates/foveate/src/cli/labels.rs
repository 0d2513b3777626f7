//! Labels of images, from a CSV file.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use foveate::source::{delimiter_of, text_of};
use unicode_normalization::UnicodeNormalization;

use super::console;
use super::exit::Usage;
use super::summary::counted;

/// Names of the column with the images, in any case. `file_name` is that of Hugging Face's `imagefolder`.
const NAMES: [&str; 7] = ["id", "file", "file_name", "filename", "path", "file_path", "image"];
const LABELS: [&str; 2] = ["label", "labels"];

/// The labels of names, which are ends of ids. Both are compared in Unicode's form NFC, because file systems differ.
pub(crate) struct Labels(HashMap<String, String>);

impl Labels {
    /// Reads the columns of images and of labels. Of a name that is there twice, the first label counts; an empty cell
    /// is none.
    pub(crate) fn read(path: &Path) -> Result<Self, Usage> {
        Self::of_file(path)
            .with_context(|| format!("cannot read the labels in {}", path.display()))
            .map_err(Usage::from)
    }

    fn of_file(path: &Path) -> anyhow::Result<Self> {
        let text =
            text_of(&std::fs::read(path)?).ok_or_else(|| anyhow!("it is neither UTF-8 nor UTF-16; convert it"))?;
        let mut table = csv::ReaderBuilder::new();
        let table = table.delimiter(delimiter_of(text.lines().next().unwrap_or_default()));
        let mut table = table.trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
        let headers: Vec<String> = table.headers()?.iter().map(str::to_lowercase).collect();
        let column = |names: &[&str]| names.iter().find_map(|name| headers.iter().position(|header| header == name));
        let (Some(name), Some(label)) = (column(&NAMES), column(&LABELS)) else {
            let headers = headers.join(", ");
            bail!("it needs a column {} and a column {}; it has {headers}", NAMES.join(" or "), LABELS.join(" or "));
        };
        let mut labels = HashMap::new();
        for record in table.records() {
            let record = record?;
            let name: String = record.get(name).unwrap_or_default().nfc().collect();
            let label = record.get(label).unwrap_or_default();
            if !name.is_empty() && !label.is_empty() {
                labels.entry(name).or_insert_with(|| label.to_owned());
            }
        }
        Ok(Self(labels))
    }

    /// Returns the label of an image whose id is a name in the file, or whose path ends in one; the longest counts.
    pub(crate) fn of(&self, id: &str) -> Option<&str> {
        self.found(id).map(|(_, label)| label)
    }

    fn found(&self, id: &str) -> Option<(&str, &str)> {
        let id: String = id.nfc().collect();
        let ends = id.match_indices(['/', '\\']).map(|(at, _)| &id[at + 1..]);
        let mut names = std::iter::once(id.as_str()).chain(ends).filter(|name| !name.is_empty());
        let (name, label) = names.find_map(|name| self.0.get_key_value(name))?;
        Some((name, label))
    }

    /// Says how many labels are of none of these images, and how many of the images have no label.
    pub(crate) fn tell<'a>(&self, ids: impl Iterator<Item = &'a str>) {
        let mut used = HashSet::new();
        let mut images = 0;
        let mut without = 0;
        for id in ids {
            images += 1;
            match self.found(id) {
                Some((name, _)) => drop(used.insert(name)),
                None => without += 1,
            }
        }
        let unused = self.0.len() - used.len();
        let labels = counted(self.0.len() as u64, "label");
        console::say!("note: {unused} of {labels} found no image, and {without} of {images} images have no label");
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Labels {
    fn from(labels: [(&str, &str); N]) -> Self {
        Self(labels.into_iter().map(|(name, label)| (name.to_owned(), label.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_belong_to_the_ends_of_paths() {
        let labels = Labels::from([("a/x.jpg", "apple"), ("x.jpg", "any"), ("y.jpg", "pear"), ("", "none")]);
        assert_eq!(labels.of("photos/a/x.jpg"), Some("apple"));
        assert_eq!(labels.of("a/x.jpg"), Some("apple"));
        assert_eq!(labels.of("photos/ba/x.jpg"), Some("any"));
        assert_eq!(labels.of("photos/yy.jpg"), None);
        assert_eq!(labels.of("photos/"), None);
    }

    #[test]
    fn tables_are_read_as_other_programs_write_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.csv");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Labels::read(&path)
        };
        let utf16: Vec<u8> = "\u{feff}Path\tLabel\r\nä.jpg\tx\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for table in [
            "file,label\nä.jpg,x\n".as_bytes(),
            "\u{feff}File_Name;LABEL;note\nä.jpg;x;\"a;b\"\nb.jpg;;\n;x;\n".as_bytes(),
            "n,filename , labels\n1,a\u{308}.jpg , x\n".as_bytes(),
            &utf16,
        ] {
            let labels = read(table).unwrap();
            assert_eq!((labels.of("d/a\u{308}.jpg"), labels.of("ä.jpg"), labels.0.len()), (Some("x"), Some("x"), 1));
            assert_eq!((labels.of("b.jpg"), labels.of("d/")), (None, None), "an empty cell is no label");
        }
        for (table, why) in [(&b"a;b\n1;2\n"[..], "it has a, b"), (b"file,label\n\xff,x", "neither UTF-8 nor UTF-16")] {
            let error = anyhow::Error::from(read(table).err().unwrap());
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
    }
}
