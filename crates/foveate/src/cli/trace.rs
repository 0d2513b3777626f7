//! `--trace FILE`: a timeline for Perfetto or chrome://tracing.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use foveate::profile::Trace;

/// Maximum number of events that a trace holds, some tens of megabytes; later events are only counted.
const MOST_EVENTS: usize = 1_000_000;

/// Returns a trace if a path is given.
pub(crate) fn new(path: Option<&Path>) -> Option<Trace> {
    path.map(|_| Trace::new(MOST_EVENTS))
}

/// Writes the trace and describes its content.
pub(crate) fn write(path: &Path, trace: &Trace) -> anyhow::Result<String> {
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
