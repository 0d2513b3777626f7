use std::path::PathBuf;

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The folder holds none of the files that a report needs.
    #[error(
        "no results in {folder}; looked for {looked_for}; `foveate bench all` makes them",
        folder = folder.display()
    )]
    Nothing {
        /// The folder.
        folder: PathBuf,
        /// The names of the files, as text.
        looked_for: String,
    },
    /// A result file has an invalid value.
    #[error("{path}, line {line}, {column}: {problem}; made by another version or edited, `foveate {made_by}` makes it anew",
        path = path.display(), column = column_of(column))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line in the file, counted from 1.
        line: u64,
        /// Name of the column; empty if the whole line is invalid.
        column: String,
        /// The problem.
        problem: String,
        /// The command that recreates the file, without its arguments: `bench decoders`.
        made_by: &'static str,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {path}: {cause}", path = path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
}

fn column_of(column: &str) -> String {
    if column.is_empty() { "the whole line".to_owned() } else { format!("column `{column}`") }
}
