//! The format: a header before the rows, and a CSV with everything else.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use foveate_sink::parts::{PartFiles, PartFormat, RowBlock, StoredPart};
use foveate_sink::{RunManifest, SinkError, push_csv_field};

use crate::header::NpyHeader;

/// Rows of the ids file held in memory at a time.
const BLOCK: usize = 4096;

/// `x.npy` with one row per vector, and `x.npy.ids.csv` whose line `i + 2` belongs to row `i`.
///
/// Because the rows of a `.npy` file are raw, the file that collects them during the run *becomes* the output: its
/// header is filled in at the end and it gets its final name. Vectors are written once and never copied, except on a
/// file system without hard links, where they are copied once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NpyFormat;

impl PartFormat for NpyFormat {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn extension(&self) -> &'static str {
        "npy"
    }

    fn sidecars(&self) -> &'static [&'static str] {
        &["ids.csv"]
    }

    fn free_bytes(&self) -> u64 {
        NpyHeader::LEN as u64
    }

    fn assembles(&self) -> bool {
        false
    }

    fn encode(&mut self, part: &StoredPart<'_>, _: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let header = NpyHeader { element: part.element(), rows: part.rows(), dim: part.dim() as u64 };
        write_header(part.vector_file(), header)?;
        link_or_copy(part.vector_file(), &files.vectors)?;
        let [ids] = &files.sidecars[..] else {
            return Err(SinkError::Misuse(format!("{} sidecars, not one", files.sidecars.len())));
        };
        write_ids(part, ids)
    }

    fn assemble(&mut self, _: &[PathBuf], _: &RunManifest, _: &Path) -> Result<(), SinkError> {
        Err(SinkError::Misuse("npy files are not put together from parts".to_owned()))
    }
}

/// Writes the header into the free bytes; a repeated attempt writes the same bytes.
fn write_header(path: &Path, header: NpyHeader) -> Result<(), SinkError> {
    let mut file = File::options().write(true).open(path).map_err(SinkError::io("open", path))?;
    file.seek(SeekFrom::Start(0)).map_err(SinkError::io("seek in", path))?;
    file.write_all(&header.to_bytes()).map_err(SinkError::io("write", path))
}

fn link_or_copy(from: &Path, to: &Path) -> Result<(), SinkError> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(|_| ()).map_err(SinkError::io("write", to))
}

fn write_ids(part: &StoredPart<'_>, path: &Path) -> Result<(), SinkError> {
    let mut file = File::create(path).map_err(SinkError::io("create", path))?;
    let mut lines = String::from("id,width,height,xxh3\n");
    let mut rows = part.reader()?;
    while let Some(block) = rows.next_block(BLOCK)? {
        push_lines(&mut lines, block);
        file.write_all(lines.as_bytes()).map_err(SinkError::io("write", path))?;
        lines.clear();
    }
    file.write_all(lines.as_bytes()).map_err(SinkError::io("write", path))
}

fn push_lines(lines: &mut String, block: &RowBlock) {
    let others = block.width().iter().zip(block.height()).zip(block.xxh3());
    for (id, ((width, height), xxh3)) in block.ids().zip(others) {
        push_csv_field(lines, id);
        writeln!(lines, ",{width},{height},{xxh3:016x}").expect("text in memory takes any line");
    }
}
