//! `--trace FILE`: a timeline for Perfetto or chrome://tracing.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use foveate::profile::Trace;

use super::own_file::OwnFile;

/// Maximum number of events that a trace holds, some tens of megabytes; later events are only counted.
const MOST_EVENTS: usize = 1_000_000;

/// Returns a trace if a path is given.
pub(crate) fn new(path: Option<&Path>) -> Option<Trace> {
    path.map(|_| Trace::new(MOST_EVENTS))
}

/// The file of a trace. It may take the place of an earlier one.
pub(crate) fn file(path: &Path) -> OwnFile<'_> {
    let is_own = |_: &Path, start: &str| start.is_empty() || start.starts_with(Trace::START);
    OwnFile { path, maker: "`--trace`", is_own, overwrite: true }
}

/// Writes the trace and describes its content.
pub(crate) fn write(path: &Path, trace: &Trace) -> anyhow::Result<String> {
    // Something else may be there since the command began.
    file(path).check()?;
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        trace.write_json(&mut file)?;
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    let left_out = match trace.dropped() {
        0 => String::new(),
        dropped => format!(", {dropped} later ones left out"),
    };
    Ok(format!("{} events in {}{left_out}", trace.events(), path.display()))
}
