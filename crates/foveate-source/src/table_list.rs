//! Lists that are tables: CSV files, of which one column has the paths.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::list::is_standard_input;
use crate::{SourceError, text_of};

/// Names under which tables have paths.
const PATHS: [&str; 12] = [
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_path",
    "image_url",
    "path",
    "paths",
    "uri",
    "url",
];

/// Bytes of a list that tell whether it is a table.
const START: u64 = 64 << 10;

/// Refuses a list of lines that is a table, because each of its lines would be a path that does not exist.
///
/// # Errors
/// If its first line is a table's header, or its name a table's and its first line no path.
pub(crate) fn check_is_list(list: &Path) -> Result<(), SourceError> {
    if is_standard_input(list) || !fs::metadata(list).is_ok_and(|data| data.is_file()) {
        return Ok(());
    }
    let mut start = Vec::new();
    // What cannot be read is told when it is read as a list.
    if fs::File::open(list).and_then(|file| file.take(START).read_to_end(&mut start)).is_err() {
        return Ok(());
    }
    let text = text_of(&start).unwrap_or_else(|| String::from_utf8_lossy(&start).into_owned());
    let line = text.lines().next().unwrap_or_default().trim();
    let delimiter = delimiter_of(line);
    if line.contains("://") || Path::new(line).exists() {
        return Ok(());
    }
    let columns: Vec<_> = line.split(char::from(delimiter)).map(|name| name.trim().trim_matches('"')).collect();
    let column = columns.iter().find(|name| PATHS.contains(&name.to_ascii_lowercase().as_str()));
    let is_named =
        list.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv") || end.eq_ignore_ascii_case("tsv"));
    match (column, columns.len()) {
        (Some(column), 2..) => Err(is_table(list, &columns, column)),
        (Some(column), _) if is_named => Err(is_table(list, &columns, column)),
        (None, 2..) if is_named => Err(is_table(list, &columns, "NAME")),
        _ => Ok(()),
    }
}

fn is_table(list: &Path, columns: &[&str], column: &str) -> SourceError {
    let list = list.display();
    let columns = columns.iter().take(9).map(|name| name.chars().take(40).collect::<String>());
    let columns = columns.collect::<Vec<_>>().join(", ");
    SourceError::Invalid(format!(
        "the list {list} is a table (columns: {columns}); name the column with the paths: --path-column {column}"
    ))
}

/// Calls `each` with the paths in a column of a table, in order. Empty cells have none.
///
/// # Errors
/// If the table cannot be read or has no such column, or `each` fails.
pub(crate) fn each_path(
    table: &Path,
    column: &str,
    each: &mut dyn FnMut(&str) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let mut bytes = Vec::new();
    let read = if is_standard_input(table) {
        io::stdin().read_to_end(&mut bytes)
    } else {
        fs::File::open(table).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|source| SourceError::Io { action: format!("read the table {}", table.display()), source })?;
    let text = text_of(&bytes).ok_or_else(|| invalid(table, "is neither UTF-8 nor UTF-16; convert it"))?;
    let delimiter = delimiter_of(text.lines().next().unwrap_or_default());
    let mut rows = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(text.as_bytes());
    let headers = rows.headers().map_err(|error| invalid(table, &format!("is damaged: {error}")))?.clone();
    let exact = headers.iter().position(|name| name == column);
    let at = exact.or_else(|| headers.iter().position(|name| name.trim().eq_ignore_ascii_case(column.trim())));
    let at = at.ok_or_else(|| {
        let known = headers.iter().take(9).collect::<Vec<_>>().join(", ");
        invalid(table, &format!("has no column '{column}'; it has {known}"))
    })?;
    for row in rows.records() {
        let row = row.map_err(|error| invalid(table, &format!("is damaged: {error}")))?;
        if let Some(path) = row.get(at).filter(|path| !path.trim().is_empty()) {
            each(path)?;
        }
    }
    Ok(())
}

fn invalid(table: &Path, why: &str) -> SourceError {
    SourceError::Invalid(format!("the table {} {why}", table.display()))
}

/// Returns the delimiter of the names in a table's first line: spreadsheets of many countries write semicolons.
pub fn delimiter_of(line: &str) -> u8 {
    // Of equally many, the last one counts.
    let delimiters = [b'\t', b';', b','].into_iter();
    delimiters.max_by_key(|delimiter| line.bytes().filter(|byte| byte == delimiter).count()).unwrap_or(b',')
}
