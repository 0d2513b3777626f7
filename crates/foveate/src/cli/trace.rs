//! `--trace FILE`: a timeline for Perfetto or chrome://tracing.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use foveate::profile::Trace;

/// Events that a trace may hold, some tens of megabytes; later ones are counted only.
const MOST_EVENTS: usize = 1_000_000;

/// A trace, if one was asked for.
pub(crate) fn new(path: Option<&Path>) -> Option<Trace> {
    path.map(|_| Trace::new(MOST_EVENTS))
}

/// Writes it, and says what is in it.
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
