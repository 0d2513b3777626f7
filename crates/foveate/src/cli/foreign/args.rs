//! Columns and arrays of other programs' files.

use std::fmt;
use std::path::PathBuf;

use clap::Args;

/// Columns and arrays of other programs' files.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ForeignArgs {
    /// The column, array or tensor of other programs' files with the vectors. Default: the only one with lists of
    /// numbers.
    #[arg(long, value_name = "NAME")]
    pub(crate) vector_column: Option<String>,

    /// The column, array or tensor of other programs' files with the ids, of any type. Default: the one called `id`,
    /// `file`, `path` or the like, or else the rows' numbers.
    #[arg(long, value_name = "NAME", conflicts_with = "ids")]
    pub(crate) id_column: Option<String>,

    /// A file with the ids of other programs' vectors, one for each row: lines of text, a CSV, Parquet or Arrow file
    /// with a column of ids, or a NumPy array. Repeatable, in the order of the vectors' files.
    #[arg(long, value_name = "FILE")]
    pub(crate) ids: Vec<PathBuf>,
}

/// Origin of vectors' ids.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IdSource {
    /// `--ids`.
    Files,
    /// The column or array with this name.
    Column(String),
    /// Nothing has ids; the names of what there is instead.
    Numbers(String),
}

impl fmt::Display for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => f.write_str("ids are those of --ids"),
            Self::Column(name) if name.is_empty() => f.write_str("ids are from the column without a name"),
            Self::Column(name) => write!(f, "ids are from '{name}'"),
            Self::Numbers(others) if others.is_empty() => f.write_str(
                "it has no ids, so rows have their numbers; --ids names a file with ids, such as the `.ids.csv` of \
                     foveate's own arrays",
            ),
            Self::Numbers(others) => write!(
                f,
                "none of its columns is known to have ids ({others}), so rows have their numbers; --id-column or --ids \
                 names them"
            ),
        }
    }
}

/// Gets a row's id, if the file has ids, and its vector, which is empty if there is none.
pub(crate) type ActOnVector<'a> = dyn FnMut(Option<&str>, &[f32]) -> anyhow::Result<()> + 'a;
