//! Vectors that were computed before, of contents that come again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Mutex;

use foveate_core::{Size, lock};
use foveate_sink::{ContentId, InputRecord, SinkError, StoredRow};

use crate::{KnownVector, Recall};

/// Rows of an output whose inputs are gone or changed, and those of an interrupted update of other inputs: a renamed
/// photo is read, but not computed again. The vectors are in a temporary file; 70 to 140 bytes for each stay in memory.
#[derive(Debug)]
pub struct EarlierRows {
    file: Mutex<BufWriter<File>>,
    /// Length of what was written: to ask the writer for its position would write out its buffer.
    len: u64,
    rows: HashMap<ContentId, EarlierRow>,
}

/// A vector's place in the file, and the size of its image.
#[derive(Debug)]
struct EarlierRow {
    start: u64,
    dim: usize,
    size: Size,
}

impl EarlierRows {
    /// None yet. Their file is in `folder`.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn new(folder: &Path) -> Result<Self, SinkError> {
        let file = tempfile::tempfile_in(folder).map_err(SinkError::io("create a file in", folder))?;
        Ok(Self { file: Mutex::new(BufWriter::new(file)), len: 0, rows: HashMap::new() })
    }

    /// Adds the row of an input. One of an older version, whose record has no more than a checksum, is left out.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, record: &InputRecord, row: &StoredRow<'_>) -> Result<(), SinkError> {
        let Some(content) = record.content else { return Ok(()) };
        let mut file = lock(&self.file);
        for component in row.vector {
            file.write_all(&component.to_le_bytes()).map_err(SinkError::io("write", Path::new("a temporary file")))?;
        }
        let size = Size::new(row.width, row.height);
        self.rows.insert(content, EarlierRow { start: self.len, dim: row.vector.len(), size });
        self.len += 4 * row.vector.len() as u64;
        Ok(())
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Recall for EarlierRows {
    fn recall(&self, content: ContentId) -> Option<KnownVector> {
        let row = self.rows.get(&content)?;
        let mut bytes = vec![0; 4 * row.dim];
        let mut file = lock(&self.file);
        file.seek(SeekFrom::Start(row.start)).ok()?;
        file.get_mut().read_exact(&mut bytes).ok()?;
        let vector = bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
        Some(KnownVector { size: row.size, vector })
    }

    fn remember(&self, _: ContentId, _: KnownVector) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_its_content() {
        let mut rows = EarlierRows::new(&std::env::temp_dir()).unwrap();
        for number in 0..20_u8 {
            let vector = [f32::from(number), -1.0];
            // Checksums can be forged, so equal ones mean nothing.
            let row = StoredRow { id: "id", vector: &vector, width: 3, height: 4, xxh3: 7, columns: &[] };
            let content = (number != 5).then(|| ContentId::of(&[number]));
            let record = InputRecord {
                id: "id".to_owned(),
                stamp: foveate_sink::Stamp::default(),
                xxh3: Some(7),
                content,
                place: 0,
            };
            rows.add(&record, &row).unwrap();
        }
        for number in [7, 0, 19] {
            let known = rows.recall(ContentId::of(&[number])).unwrap();
            assert_eq!(known, KnownVector { size: Size::new(3, 4), vector: vec![f32::from(number), -1.0] });
        }
        assert_eq!([5, 20].map(|number| rows.recall(ContentId::of(&[number]))), [None, None]);
    }
}
