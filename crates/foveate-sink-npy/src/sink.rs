//! The format: a header before the rows, and a CSV with everything else.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;

use foveate_sink::parts::{PartFiles, PartFormat, RowBlock, StoredPart};
use foveate_sink::{RunManifest, SinkError, push_csv_field};

use crate::header::NpyHeader;

/// Rows held in memory at a time.
const BLOCK: usize = 4096;

/// `x.npy` with one row per vector, and `x.npy.ids.csv` whose line `i + 2` belongs to row `i`.
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

    fn encode(&mut self, part: &StoredPart<'_>, _: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let [ids] = &files.sidecars[..] else {
            return Err(SinkError::Misuse(format!("{} sidecars, not one", files.sidecars.len())));
        };
        let mut vectors = File::create(&files.vectors).map_err(SinkError::io("create", &files.vectors))?;
        let mut lines = File::create(ids).map_err(SinkError::io("create", ids))?;
        let header = NpyHeader { element: part.element(), rows: part.rows(), dim: part.dim() as u64 };
        vectors.write_all(&header.to_bytes()).map_err(SinkError::io("write", &files.vectors))?;
        lines.write_all(b"id,width,height,xxh3\n").map_err(SinkError::io("write", ids))?;
        let mut text = String::new();
        let mut rows = part.reader();
        while let Some(block) = rows.next_block(BLOCK)? {
            vectors.write_all(block.vectors()).map_err(SinkError::io("write", &files.vectors))?;
            text.clear();
            push_lines(&mut text, block);
            lines.write_all(text.as_bytes()).map_err(SinkError::io("write", ids))?;
        }
        Ok(())
    }
}

fn push_lines(lines: &mut String, block: &RowBlock) {
    let others = block.width().iter().zip(block.height()).zip(block.xxh3());
    for (id, ((width, height), xxh3)) in block.ids().zip(others) {
        push_csv_field(lines, id);
        writeln!(lines, ",{width},{height},{xxh3:016x}").expect("text in memory takes any line");
    }
}
