//! Vectors of other programs: Parquet, Arrow, CSV, NumPy, safetensors.

pub(crate) mod args;
mod array;
mod tensors;

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use foveate::source::FetchError;
use foveate::source::container::{TableColumn, TableRows};

use args::{ActOnVector, ForeignArgs, IdSource};

use super::exit::Usage;
use super::tables::{ID_NAMES, column, id_column, is_csv, names_of, open_table};

/// Endings of names of files that may have vectors.
const EXTENSIONS: [&str; 8] = ["parquet", "arrow", "feather", "csv", "tsv", "npy", "npz", "safetensors"];

/// Returns true if a file may have vectors of another program, by its name.
pub(crate) fn may_have_vectors(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    EXTENSIONS.iter().any(|known| extension == *known)
}

/// Reads the vectors of a file that another program wrote.
///
/// # Errors
/// Usage if it has no vectors, or several, or a row without an id in a column of ids.
pub(crate) fn read_vectors(path: &Path, args: &ForeignArgs, act: &mut ActOnVector<'_>) -> anyhow::Result<IdSource> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let read = match extension.to_str() {
        Some("npy") => array::read_file(path, act).map(|()| IdSource::Numbers(String::new())),
        Some("npz") => array::read_archive(path, args, act),
        Some("safetensors") => tensors::read(path, args, act),
        _ => read_table(path, args, act),
    };
    let source = read.map_err(|error| {
        let is_usage = error.is::<Usage>() || matches!(error.downcast_ref(), Some(FetchError::NoColumn(_)));
        let error = error.context(format!("cannot read {}", path.display()));
        if is_usage { Usage::from(error).into() } else { error }
    })?;
    Ok(if args.ids.is_empty() { source } else { IdSource::Files })
}

/// Reads the ids of `--ids` or `--ids-from`.
pub(crate) fn read_ids(path: &Path, id_column: Option<&str>) -> Result<Vec<String>, Usage> {
    let read = || -> anyhow::Result<Vec<String>> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        if extension == "npy" {
            return array::read_texts(path);
        }
        if may_have_vectors(path) {
            let mut ids = Vec::new();
            let mut table = open_table(path, &mut |columns| Ok(vec![the_id_column(columns, id_column)?]))?;
            while table.advance()? {
                ids.push(table.text(0)?.ok_or_else(|| anyhow!("row {} has no id", ids.len() + 1))?);
            }
            return Ok(ids);
        }
        let text = foveate::source::text_of(&std::fs::read(path)?);
        let text = text.ok_or_else(|| anyhow!("it is neither UTF-8 nor UTF-16; convert it"))?;
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    };
    read().with_context(|| format!("cannot read the ids in {}", path.display())).map_err(Usage::from)
}

/// The column of ids in a table that needs one.
fn the_id_column(columns: &[TableColumn], name: Option<&str>) -> Result<usize, FetchError> {
    match (name, columns) {
        (Some(name), _) => column(columns, name),
        (None, [_]) => Ok(0),
        (None, _) => id_column(columns).ok_or_else(|| {
            let names = names_of(columns);
            let known = ID_NAMES.join(", ");
            FetchError::NoColumn(format!("none of its columns ({names}) is called {known}; rename the one with ids"))
        }),
    }
}

/// Place of a row's vector.
enum VectorPlace {
    /// In one column.
    List,
    /// In the first so many columns.
    Columns(usize),
}

fn read_table(path: &Path, args: &ForeignArgs, act: &mut ActOnVector<'_>) -> anyhow::Result<IdSource> {
    let mut place = VectorPlace::List;
    let mut source = IdSource::Files;
    let mut table = open_table(path, &mut |columns| {
        let id = match &args.id_column {
            Some(name) => Some(column(columns, name)?),
            None if args.ids.is_empty() => id_column(columns),
            None => None,
        };
        let mut chosen = match vector_column(columns, args.vector_column.as_deref(), is_csv(path))? {
            Some(at) => vec![at],
            None => (0..columns.len()).filter(|&at| Some(at) != id).collect(),
        };
        if !columns[chosen[0]].is_vector {
            place = VectorPlace::Columns(chosen.len());
        }
        source = match id {
            Some(id) => IdSource::Column(columns[id].name.clone()),
            None => {
                let others = columns.iter().filter(|column| !column.is_vector).cloned().collect::<Vec<_>>();
                IdSource::Numbers(if matches!(place, VectorPlace::List) { names_of(&others) } else { String::new() })
            }
        };
        chosen.extend(id);
        Ok(chosen)
    })?;
    let id_at = match place {
        VectorPlace::List => 1,
        VectorPlace::Columns(count) => count,
    };
    let mut vector = Vec::new();
    let mut row = 0_u64;
    while table.advance()? {
        row += 1;
        match place {
            VectorPlace::List => table.numbers(0, &mut vector)?,
            VectorPlace::Columns(count) => one_by_one(table.as_ref(), count, row, &mut vector)?,
        }
        let id = if let IdSource::Column(name) = &source {
            let id = table.text(id_at)?.filter(|id| !id.is_empty());
            Some(id.ok_or_else(|| no_id(row, name))?)
        } else {
            None
        };
        act(id.as_deref(), &vector)?;
    }
    Ok(source)
}

fn no_id(row: u64, name: &str) -> Usage {
    anyhow!("row {row} has no id in '{name}'; fill it, or name another column with --id-column").into()
}

/// Reads a vector whose numbers have a column each.
fn one_by_one(table: &dyn TableRows, count: usize, row: u64, out: &mut Vec<f32>) -> anyhow::Result<()> {
    out.clear();
    for column in 0..count {
        let Some(cell) = table.text(column)? else { bail!("row {row} has no number in column {}", column + 1) };
        let number = cell.parse().map_err(|_| {
            Usage::from(anyhow!(
                "row {row} has '{cell:.40}', which is no number; --vector-column names a column with lists of numbers, and \
                 --id-column the one with ids; leave columns of text out"
            ))
        })?;
        out.push(number);
    }
    Ok(())
}

/// The column with lists of numbers; `None` if all columns of a CSV file are numbers of one vector.
fn vector_column(columns: &[TableColumn], name: Option<&str>, is_csv: bool) -> Result<Option<usize>, FetchError> {
    let vectors: Vec<usize> = (0..columns.len()).filter(|&at| columns[at].is_vector).collect();
    let names = names_of(&vectors.iter().map(|&at| columns[at].clone()).collect::<Vec<_>>());
    let refuse = |why: String| Err(FetchError::NoColumn(why));
    match (name, vectors.as_slice()) {
        (Some(name), _) => match column(columns, name)? {
            at if columns[at].is_vector => Ok(Some(at)),
            _ => refuse(format!("column '{name}' has no vectors; those that have are: {names}")),
        },
        (None, [one]) => Ok(Some(*one)),
        (None, []) if is_csv => {
            match columns.iter().all(|column| column.name.parse::<f64>().is_ok_and(|x| x % 1.0 != 0.0)) {
                true => refuse("its first line has no names of columns; add one, or save it as .npy".to_owned()),
                false => Ok(None),
            }
        }
        (None, []) => refuse(format!(
            "none of its columns ({}) has lists of f16, f32, f64, i8 or u8; name a file with vectors",
            names_of(columns)
        )),
        (None, _) => refuse(format!("several columns have vectors: {}; name one with --vector-column", names)),
    }
}
