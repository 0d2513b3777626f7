//! Tables of other programs, row by row: CSV, Parquet, Arrow.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use foveate::core::ColumnKind;
use foveate::source::blob::FileBlob;
use foveate::source::container::{ChooseColumns, TableColumn, TableRows, format_of};
use foveate::source::{FetchError, delimiter_of, text_of};

/// Names of a column with images, in any case. `file_name` is that of Hugging Face's `imagefolder`.
pub(crate) const ID_NAMES: [&str; 13] = [
    "id",
    "ids",
    "image_id",
    "file",
    "file_name",
    "filename",
    "path",
    "file_path",
    "filepath",
    "image_path",
    "image",
    "key",
    "url",
];

/// The first column with one of these names, in any case; earlier names come first.
pub(crate) fn column_named(columns: &[TableColumn], names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| columns.iter().position(|column| column.name.eq_ignore_ascii_case(name)))
}

/// The column with images: one with a usual name, or else the index that pandas writes.
pub(crate) fn id_column(columns: &[TableColumn]) -> Option<usize> {
    column_named(columns, &ID_NAMES).or_else(|| column_named(columns, &["", "__index_level_0__"]))
}

/// The column with this name.
pub(crate) fn column(columns: &[TableColumn], name: &str) -> Result<usize, FetchError> {
    columns.iter().position(|column| column.name == name).ok_or_else(|| {
        FetchError::NoColumn(format!("it has no column '{name}'; its columns are {}", names_of(columns)))
    })
}

/// Names for messages.
pub(crate) fn names_of(columns: &[TableColumn]) -> String {
    const MOST: usize = 20;
    let mut names: Vec<&str> = columns.iter().take(MOST).map(|column| column.name.as_str()).collect();
    if columns.len() > MOST {
        names.push("…");
    }
    names.join(", ")
}

/// Returns true if a file's name ends like that of a table in text.
pub(crate) fn is_csv(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    ["csv", "tsv", "txt"].iter().any(|known| extension == *known)
}

/// Opens a table to read the columns that `choose` returns: Parquet or Arrow by its name, otherwise CSV, separated by
/// commas, semicolons or tabs, in UTF-8 or UTF-16.
///
/// # Errors
/// Usage if it lacks a column, or is no table.
pub(crate) fn open_table(path: &Path, choose: &mut ChooseColumns<'_>) -> anyhow::Result<Box<dyn TableRows>> {
    let formats = foveate::backends::containers();
    let format = format_of(&formats, path.as_os_str().as_encoded_bytes());
    if let Some(format) = format.filter(|_| !is_csv(path)) {
        let blob = Arc::new(FileBlob::open(path, path.display().to_string())?);
        let opened = format.open_rows(blob, choose);
        return Ok(opened.ok_or_else(|| anyhow!("it is no table; name a CSV, Parquet or Arrow file"))??);
    }
    let text = text_of(&std::fs::read(path)?).ok_or_else(|| anyhow!("it is neither UTF-8 nor UTF-16; convert it"))?;
    let delimiter = delimiter_of(text.lines().next().unwrap_or_default());
    let mut reader = csv::ReaderBuilder::new();
    reader.delimiter(delimiter).trim(csv::Trim::All).flexible(true);
    let mut reader = reader.from_reader(Cursor::new(text.into_bytes()));
    let headers = reader.headers()?.clone();
    let mut first = csv::StringRecord::new();
    let has_rows = reader.read_record(&mut first)?;
    let mut columns = Vec::new();
    for (at, name) in headers.iter().enumerate() {
        // NumPy's arrays and lists, as pandas writes them.
        let is_vector = first.get(at).is_some_and(|cell| cell.starts_with('['));
        columns.push(TableColumn { name: name.to_owned(), kind: ColumnKind::Text, is_vector });
    }
    let chosen = choose(&columns)?;
    Ok(Box::new(CsvRows { reader, row: first, is_first: has_rows, chosen }))
}

struct CsvRows {
    reader: csv::Reader<Cursor<Vec<u8>>>,
    row: csv::StringRecord,
    /// The first row is read, but was not given.
    is_first: bool,
    chosen: Vec<usize>,
}

impl TableRows for CsvRows {
    fn advance(&mut self) -> Result<bool, FetchError> {
        if std::mem::take(&mut self.is_first) {
            return Ok(true);
        }
        self.reader.read_record(&mut self.row).map_err(|error| FetchError::Damaged(error.to_string()))
    }

    fn text(&self, column: usize) -> Result<Option<String>, FetchError> {
        Ok(self.row.get(self.chosen[column]).filter(|cell| !cell.is_empty()).map(str::to_owned))
    }

    fn numbers(&self, column: usize, out: &mut Vec<f32>) -> Result<(), FetchError> {
        out.clear();
        let cell = self.row.get(self.chosen[column]).unwrap_or_default();
        let inside = cell.trim_start_matches('[').trim_end_matches(']');
        for number in inside.split([',', ' ', '\n']).filter(|number| !number.is_empty()) {
            let line = self.row.position().map_or(0, csv::Position::line);
            out.push(
                number
                    .parse()
                    .map_err(|_| FetchError::Damaged(format!("line {line} has '{number:.40}', which is no number")))?,
            );
        }
        Ok(())
    }
}
