use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The folder holds none of the files that a report is made from.
    #[error(
        "no results in {folder}; looked for {looked_for}; `foveate bench all` makes them",
        folder = folder.display()
    )]
    Nothing {
        /// The folder.
        folder: PathBuf,
        /// The names of the files, in words.
        looked_for: String,
    },
    /// A file of results says something that it cannot mean.
    #[error("{path}, line {line}, {column}: {problem}; made by another version or edited, `foveate {made_by}` makes it anew",
        path = path.display(), column = column_of(column))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line in it, the first being 1.
        line: u64,
        /// Name of the column; empty where the whole line is meant.
        column: String,
        /// What is wrong.
        problem: String,
        /// The command that makes the file anew, without its arguments: `bench decoders`.
        made_by: &'static str,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {path}: {cause}", path = path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A figure cannot be drawn: a defect of this crate, since what is in the files has been checked.
    #[error("figure {figure} cannot be drawn: {cause}; this is a defect, please report it with the CSV files")]
    Figure {
        /// Which.
        figure: &'static str,
        /// Why.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn column_of(column: &str) -> String {
    if column.is_empty() { "the whole line".to_owned() } else { format!("column `{column}`") }
}
