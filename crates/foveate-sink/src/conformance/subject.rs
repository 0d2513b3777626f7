//! A sink under test, and the options of its runs.

use std::path::Path;

use crate::{Layout, Published, SinkOptions, VectorSink};

/// A finished output read back: id and vector of each row, in order.
pub type Stored = Vec<(String, Vec<f32>)>;

/// Values of [`COLUMNS`], row by row.
pub type StoredColumns = Vec<Vec<Option<String>>>;

/// The columns that items carry along in the suite's runs with columns.
pub const COLUMNS: [&str; 2] = ["caption", "a url"];

/// A sink under test.
pub struct Subject<'a> {
    /// Makes a sink.
    pub open: &'a dyn Fn(&SinkOptions) -> Box<dyn VectorSink>,
    /// Reads the published output, preferably without the sink's own code.
    pub read: &'a dyn Fn(&Published) -> Stored,
    /// Reads the columns of the published output, if the sink can store any.
    pub read_columns: Option<&'a dyn Fn(&Published) -> StoredColumns>,
    /// Extension of its single-file outputs.
    pub extension: &'static str,
}

pub(super) const PART: u64 = 5;

pub(super) fn options(folder: &Path, extension: &str, layout: Layout) -> SinkOptions {
    let output = match layout {
        Layout::File => folder.join(format!("x.{extension}")),
        Layout::Folder => folder.join("x"),
    };
    SinkOptions { layout, part_items: PART, ..SinkOptions::new(output) }
}

pub(super) fn with_columns(options: SinkOptions, columns: &[&str]) -> SinkOptions {
    SinkOptions { columns: columns.iter().map(|&name| name.to_owned()).collect(), ..options }
}
