//! The work in progress of a run, read back.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::failures::FAILURES_HEADER;
use crate::inputs::INPUTS_HEADER;
use crate::parts::frame::FrameKind;
use crate::parts::segment::Segment;
use crate::place::SinkPlace;
use crate::site::{Claim, RunSite};
use crate::{RecordedInputs, SinkError};

/// The segments of a run that was interrupted, each from where the one before ends.
pub(crate) struct RestoredRun {
    pub(crate) sealed: Vec<Segment>,
    pub(crate) pending: Vec<Segment>,
}

/// All segments of the work in progress. Those of a store are copied to `local`, where those of a folder are.
pub(crate) fn segments(site: &RunSite, local: &Path) -> Result<Vec<Segment>, SinkError> {
    let mut found = Vec::new();
    for name in site.work.list()?.into_keys() {
        if !name.starts_with("part-") || !name.ends_with(".seg") {
            continue;
        }
        let path = local.join(&name);
        if let SinkPlace::Objects { .. } = site.work {
            // Another writer of this job may have finished meanwhile.
            let Some(content) = site.work.read(&name)? else { continue };
            fs::write(&path, content).map_err(SinkError::io("write", &path))?;
        }
        found.push(Segment::open(&path)?);
    }
    Ok(found)
}

/// Finds the segments of the run of `claim`.
pub(crate) fn restore(site: &RunSite, claim: &Claim, local: &Path, first: u64) -> Result<RestoredRun, SinkError> {
    let id = claim.settings.digest();
    let mut found = segments(site, local)?;
    // A sealed part comes before the segments that it replaces.
    found.sort_by_key(|segment| (segment.end.start, segment.end.sealed.is_none()));
    let mut restored = RestoredRun { sealed: Vec::new(), pending: Vec::new() };
    let mut next = first;
    for segment in found.into_iter().filter(|segment| segment.end.run == id) {
        if segment.end.start != next {
            continue;
        }
        next = segment.end.end;
        if segment.end.sealed.is_some() { &mut restored.sealed } else { &mut restored.pending }.push(segment);
    }
    Ok(restored)
}

/// Writes the header and the lines of `kind` of all segments. Returns their length and their hash.
pub(crate) fn write_lines<'a>(
    file: &File,
    path: &Path,
    kind: FrameKind,
    segments: impl Iterator<Item = &'a Segment>,
) -> Result<(u64, u64), SinkError> {
    let header = if kind == FrameKind::Inputs { INPUTS_HEADER } else { FAILURES_HEADER };
    let mut out = BufWriter::new(file);
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    let mut write = |lines: &[u8]| {
        hash.update(lines);
        bytes += lines.len() as u64;
        out.write_all(lines).map_err(SinkError::io("write", path))
    };
    write(header.as_bytes())?;
    for segment in segments {
        segment.lines(kind, &mut write)?;
    }
    out.flush().map_err(SinkError::io("write", path))?;
    Ok((bytes, hash.digest()))
}

impl RestoredRun {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.iter().chain(&self.pending)
    }

    /// The record of the inputs so far, in a temporary file in `folder`; `None` if it has none.
    pub(crate) fn inputs(&self, folder: &Path) -> Result<Option<RecordedInputs>, SinkError> {
        let file = tempfile::Builder::new().prefix("foveate-").tempfile_in(folder);
        let file = file.map_err(SinkError::io("create a file in", folder))?;
        let (bytes, _) = write_lines(file.as_file(), file.path(), FrameKind::Inputs, self.all())?;
        Ok(RecordedInputs::written(file.into_temp_path(), bytes, false))
    }
}
