//! Labels of images.

use std::path::{Path, PathBuf};

use foveate::source::FetchError;

use super::console;
use super::exit::Usage;
use super::side_table::{SideTable, read_side_table};
use super::tables::{column, column_named, names_of};

/// Names of a column with labels, in any case.
pub(crate) const LABEL_NAMES: [&str; 5] = ["label", "labels", "class", "category", "target"];

/// The labels of names, which are ids or ends of ids.
pub(crate) struct Labels {
    table: SideTable,
    path: PathBuf,
}

impl Labels {
    /// Reads a table with a column of images and one of labels; see [`read_column`](Self::read_column).
    pub(crate) fn read(path: &Path) -> Result<Self, Usage> {
        Self::read_column(path, None)
    }

    /// Reads a table with a column of images, and one of labels, which has this name or a usual one. An empty cell is
    /// no label.
    pub(crate) fn read_column(path: &Path, name: Option<&str>) -> Result<Self, Usage> {
        let mut table = read_side_table(path, None, "read the labels in", &mut |columns| {
            let label = match name {
                Some(name) => column(columns, name)?,
                None => column_named(columns, &LABEL_NAMES).ok_or_else(|| {
                    let known = LABEL_NAMES.join(", ");
                    let all = names_of(columns);
                    FetchError::NoColumn(format!("it needs a column of labels, called {known}; it has {all}"))
                })?,
            };
            Ok(vec![label])
        })?;
        table.retain(|values| values[0].is_some());
        Ok(Self { table, path: path.to_owned() })
    }

    /// The labels in a column of the images' own output.
    #[cfg(any(feature = "search", test))]
    pub(crate) fn of_column<'a>(name: &str, rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { table: SideTable::of(name, rows), path: PathBuf::from(name) }
    }

    /// Returns the label of an image whose id is a name in the table, or whose path ends in one; the longest counts.
    pub(crate) fn of(&self, id: &str) -> Option<&str> {
        self.table.row(id)?.1[0].as_deref()
    }

    /// Says how many labels are of none of these images, and how many of the images have no label.
    ///
    /// # Errors
    /// Usage if no image has a label.
    pub(crate) fn tell<'a>(&self, ids: impl Iterator<Item = &'a str> + Clone) -> Result<(), Usage> {
        let matches = self.table.matches(ids.clone());
        console::say!("note: {}", self.table.tell("label", &matches));
        self.table.check(&self.path, &matches, ids.clone().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_belong_to_the_ends_of_paths() {
        let rows = [("a/x.jpg", "apple"), ("x.jpg", "any"), ("y.jpg", "pear"), ("", "none")];
        let labels = Labels::of_column("label", rows);
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
            "file,label\nä.jpg,x\nä.jpg,x\n".as_bytes(),
            &utf16,
        ] {
            let labels = read(table).unwrap();
            let len = labels.table.matches(std::iter::empty()).unused;
            assert_eq!((labels.of("d/a\u{308}.jpg"), labels.of("ä.jpg"), len), (Some("x"), Some("x"), 1));
            assert_eq!((labels.of("b.jpg"), labels.of("d/")), (None, None), "an empty cell is no label");
        }
        for (table, why) in [
            (&b"a;b\n1;2\n"[..], "it has a, b"),
            (b"file,label\n\xff,x", "neither UTF-8 nor UTF-16"),
            (b"file,label\na,x\na,y\n", "'a' twice, with the label x and y; leave one"),
        ] {
            let error = anyhow::Error::from(read(table).err().unwrap());
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
    }
}
