//! Reads the sink's output.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use foveate_sink::{Element, SinkError, VectorReader, sidecar};

use crate::NpyFormat;
use crate::header::NpyHeader;

impl VectorReader for NpyFormat {
    fn for_each(
        &self,
        path: &Path,
        dim: usize,
        element: Element,
        act: &mut dyn FnMut(&str, &[f32]),
    ) -> Result<(), SinkError> {
        let read = |path: &Path| File::open(path).map_err(SinkError::io("open", path));
        let (file, ids) = (read(path)?, sidecar(path, "ids.csv"));
        let len = file.metadata().map_err(SinkError::io("inspect", path))?.len();
        let mut vector = vec![0; dim * element.bytes()];
        let rows = len.saturating_sub(NpyHeader::LEN as u64) / vector.len() as u64;
        let header = NpyHeader { element, rows, dim: dim as u64 };
        let (mut file, mut found) = (BufReader::with_capacity(1 << 20, file), [0; NpyHeader::LEN]);
        // A header has one form only, so that comparing replaces parsing.
        let whole = NpyHeader::LEN as u64 + rows * vector.len() as u64;
        if len != whole || file.read_exact(&mut found).is_err() || found != header.to_bytes() {
            let reason = format!("its header is not that of {rows} rows of {dim} {}", element.name());
            return Err(SinkError::damaged(path, reason));
        }
        let mut lines = csv::Reader::from_reader(BufReader::new(read(&ids)?));
        let (mut line, mut count) = (csv::StringRecord::new(), 0);
        while lines.read_record(&mut line).map_err(|error| SinkError::damaged(&ids, error))? {
            count += 1;
            if count <= rows {
                file.read_exact(&mut vector).map_err(SinkError::io("read", path))?;
                act(line.get(0).unwrap_or_default(), &element.floats(&vector));
            }
        }
        match count == rows {
            true => Ok(()),
            false => Err(SinkError::damaged(&ids, format!("it has {count} lines for {rows} rows"))),
        }
    }
}
