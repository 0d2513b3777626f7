//! Tables that say more of images: labels, and the columns of `merge --join`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, bail};
use foveate::core::ColumnKind;
use foveate::source::FetchError;
use foveate::source::container::{ChooseColumns, TableColumn};
use unicode_normalization::UnicodeNormalization;

use super::exit::Usage;
use super::summary::counted;
use super::tables::{ID_NAMES, column, id_column, names_of, open_table};

/// A table in memory: its rows by the image that each is of, which it names by the whole id or the end of one. Names
/// are compared in Unicode's form NFC, because file systems differ.
pub(crate) struct SideTable {
    /// The name of the column with the images.
    pub(crate) key: String,
    /// The other columns.
    pub(crate) columns: Vec<TableColumn>,
    rows: HashMap<String, Box<[Option<String>]>>,
}

/// The columns that join a side table with a collection.
#[derive(Default)]
pub(crate) struct SideMatches {
    pub(crate) images: usize,
    /// Images with a row that names their whole id.
    whole: usize,
    /// Images with a row that names the end of their id.
    ends: usize,
    /// Rows that are of no image.
    pub(crate) unused: usize,
    /// Images whose name without its extension has a row.
    stems: usize,
    /// The end of the ids of several images, if any is.
    ambiguous: Option<String>,
}

impl SideMatches {
    pub(crate) fn matched(&self) -> usize {
        self.whole + self.ends
    }
}

impl SideTable {
    /// Reads the column of images, which is `key` or has a usual name, and the others that `takes` returns. A row that
    /// is there twice counts once.
    ///
    /// # Errors
    /// If a column is missing, or two rows of an image differ.
    pub(crate) fn read(path: &Path, key: Option<&str>, takes: &mut ChooseColumns<'_>) -> anyhow::Result<Self> {
        let mut key_name = String::new();
        let mut columns = Vec::new();
        let mut table = open_table(path, &mut |all| {
            let key = match key {
                Some(name) => column(all, name)?,
                None => id_column(all).ok_or_else(|| {
                    let known = ID_NAMES.join(", ");
                    let all = names_of(all);
                    FetchError::NoColumn(format!("it needs a column of images, called {known}; it has {all}"))
                })?,
            };
            let mut chosen = vec![key];
            chosen.extend(takes(all)?.into_iter().filter(|&at| at != key));
            if chosen.len() == 1 {
                let why = format!("it has no other column than '{}', which names the images", all[key].name);
                return Err(FetchError::NoColumn(why));
            }
            key_name.clone_from(&all[key].name);
            columns = chosen[1..].iter().map(|&at| all[at].clone()).collect();
            Ok(chosen)
        })?;
        let mut rows: HashMap<String, Box<[Option<String>]>> = HashMap::new();
        while table.advance()? {
            let Some(name) = table.text(0)?.filter(|name| !name.is_empty()) else { continue };
            let values = (1..=columns.len()).map(|at| table.text(at)).collect::<Result<Box<[_]>, _>>()?;
            match rows.entry(name.nfc().collect()) {
                Entry::Vacant(entry) => drop(entry.insert(values)),
                Entry::Occupied(before) if *before.get() == values => {}
                Entry::Occupied(before) => {
                    let differing = (0..columns.len()).find(|&at| before.get()[at] != values[at]).unwrap_or(0);
                    let first = before.get()[differing].as_deref().unwrap_or("nothing");
                    let second = values[differing].as_deref().unwrap_or("nothing");
                    let column = &columns[differing].name;
                    bail!(
                        "it has the id '{name}' twice, with the {column} {first} and {second}; leave one of its rows"
                    );
                }
            }
        }
        let mut found = Self { key: key_name, columns, rows };
        found.settle_kinds();
        Ok(found)
    }

    /// Keeps a type only if each value is of it, and finds those of a table in text.
    fn settle_kinds(&mut self) {
        for (at, column) in self.columns.iter_mut().enumerate() {
            let values: Vec<&String> = self.rows.values().filter_map(|row| row[at].as_ref()).collect();
            let fits = |kind: &ColumnKind| !values.is_empty() && values.iter().all(|value| kind.holds(value));
            let declared = Some(column.kind).filter(|&kind| kind != ColumnKind::Text);
            let candidates = match declared {
                Some(kind) => vec![kind],
                None if column.is_vector => Vec::new(),
                None => vec![ColumnKind::Integer, ColumnKind::Float, ColumnKind::Boolean],
            };
            column.kind = candidates.into_iter().find(fits).unwrap_or(ColumnKind::Text);
        }
    }

    /// Makes a table of one column from ids and values.
    #[cfg(any(feature = "search", test))]
    pub(crate) fn of<'a>(name: &str, rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let column = TableColumn { name: name.to_owned(), kind: ColumnKind::Text, is_vector: false };
        let rows = rows.into_iter().map(|(id, value)| (id.nfc().collect(), Box::from([Some(value.to_owned())])));
        Self { key: "id".to_owned(), columns: vec![column], rows: rows.collect() }
    }

    /// Keeps the rows for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&[Option<String>]) -> bool) {
        self.rows.retain(|_, values| keep(values));
    }

    /// Returns the row of an image, and its name there: the whole id, or else the longest of its ends.
    pub(crate) fn row(&self, id: &str) -> Option<(&str, &[Option<String>])> {
        let id: String = id.nfc().collect();
        let ends = id.match_indices(['/', '\\']).map(|(at, _)| &id[at + 1..]);
        let mut names = std::iter::once(id.as_str()).chain(ends).filter(|name| !name.is_empty());
        let (name, values) = names.find_map(|name| self.rows.get_key_value(name))?;
        Some((name, values))
    }

    /// Compares the table with the ids of a collection.
    pub(crate) fn matches<'a>(&self, ids: impl Iterator<Item = &'a str>) -> SideMatches {
        let mut found = SideMatches::default();
        let mut used = HashSet::new();
        for id in ids {
            found.images += 1;
            let Some((name, _)) = self.row(id) else {
                let stem =
                    Path::new(id).file_stem().is_some_and(|stem| self.rows.contains_key(&*stem.to_string_lossy()));
                found.stems += usize::from(stem);
                continue;
            };
            // Forms of Unicode have other lengths, but an end is no whole id.
            let is_whole = id.nfc().eq(name.chars());
            found.whole += usize::from(is_whole);
            found.ends += usize::from(!is_whole);
            if !used.insert(name) && !is_whole {
                found.ambiguous.get_or_insert_with(|| name.to_owned());
            }
        }
        found.unused = self.rows.len() - used.len();
        found
    }

    /// Says how much belongs together, in a sentence about `what`, such as "label".
    pub(crate) fn tell(&self, what: &str, matches: &SideMatches) -> String {
        let SideMatches { images, whole, ends, unused, ambiguous, .. } = matches;
        let rows = counted(self.rows.len() as u64, what);
        let without = images - whole - ends;
        let mut told = format!(
            "{unused} of {rows} found no image, and {without} of {images} images have no {what}; {whole} are named by \
             their whole ids, and {ends} by the ends of them"
        );
        if let Some(name) = ambiguous {
            told.push_str(&format!(", of which '{name}' is that of several images"));
        }
        told
    }

    /// Refuses a table that has nothing of any image.
    pub(crate) fn check(&self, path: &Path, matches: &SideMatches, id: Option<&str>) -> Result<(), Usage> {
        let (Some(id), Some(name)) = (id, self.rows.keys().min()) else { return Ok(()) };
        if matches.matched() > 0 {
            return Ok(());
        }
        let hint = match matches.stems > 0 {
            true => "its names lack the files' extensions, which ids have",
            false => "a name is a whole id or the end of one after a slash; another column may have them",
        };
        Err(Usage::from(anyhow::anyhow!(
            "{} names none of the images: its column '{}' has names such as '{name}', and the images' ids are such as \
             '{id}'; {hint}",
            path.display(),
            self.key
        )))
    }
}

/// Reads a side table for a command that says `what` it cannot do otherwise.
pub(crate) fn read_side_table(
    path: &Path,
    key: Option<&str>,
    what: &str,
    takes: &mut ChooseColumns<'_>,
) -> Result<SideTable, Usage> {
    SideTable::read(path, key, takes).with_context(|| format!("cannot {what} {}", path.display())).map_err(Usage::from)
}
