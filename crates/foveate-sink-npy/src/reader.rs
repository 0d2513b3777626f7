//! Reads the sink's output.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use foveate_sink::{ActOnRow, Shape, SinkError, StoredRow, VectorReader, sidecar};

use crate::NpyFormat;
use crate::header::NpyHeader;

impl VectorReader for NpyFormat {
    fn for_each(&self, path: &Path, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
        let Shape { dim, element, .. } = *shape;
        let file = File::open(path).map_err(SinkError::opening(path))?;
        let len = file.metadata().map_err(SinkError::io("inspect", path))?.len();
        let mut vector = vec![0; dim * element.bytes()];
        let rows = len.saturating_sub(NpyHeader::LEN as u64) / vector.len() as u64;
        let header = NpyHeader { element, rows, dim: dim as u64 };
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut found = [0; NpyHeader::LEN];
        // A header has one form only, so that comparing replaces parsing.
        let whole = NpyHeader::LEN as u64 + rows * vector.len() as u64;
        if len != whole || file.read_exact(&mut found).is_err() || found != header.to_bytes() {
            let reason = format!("its header is not that of {rows} rows of {dim} {}", element.name());
            return Err(SinkError::damaged(path, reason));
        }
        let ids = sidecar(path, "ids.csv");
        let lines = File::open(&ids).map_err(SinkError::opening(&ids))?;
        let mut lines = csv::Reader::from_reader(BufReader::new(lines));
        let mut line = csv::StringRecord::new();
        let mut count = 0;
        while lines.read_record(&mut line).map_err(|error| SinkError::damaged(&ids, error))? {
            count += 1;
            if count <= rows {
                file.read_exact(&mut vector).map_err(SinkError::io("read", path))?;
                let [width, height] = [1, 2].map(|at| line.get(at).and_then(|text| text.parse().ok()));
                let xxh3 = line.get(3).and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let (Some(id), Some(width), Some(height), Some(xxh3)) = (line.get(0), width, height, xxh3) else {
                    return Err(SinkError::damaged(&ids, format!("line {} is no row", count + 1)));
                };
                let vector = &element.floats(&vector);
                act(&StoredRow { id, vector, width, height, xxh3, columns: &[] })?;
            }
        }
        match count == rows {
            true => Ok(()),
            false => Err(SinkError::damaged(&ids, format!("it has {count} lines for {rows} rows"))),
        }
    }
}
