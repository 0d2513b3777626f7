//! The format: one part is one Arrow IPC file.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, Metadata, Schema};
use foveate_core::catch_panic;
use foveate_sink::parts::{PartFiles, PartFormat, StoredPart};
use foveate_sink::{ActOnRow, RunManifest, Shape, SinkError, SinkOptions, VectorReader, column_kinds};

use crate::table::{check_names, check_schema, each_row, metadata, record_batch, schema};

/// Rows per record batch: a reader that does not map the file holds one in memory.
const BATCH: usize = 4096;

/// The first bytes of an Arrow IPC file; a stream, which other programs name `.arrow` too, does not.
const MAGIC: &[u8] = b"ARROW1";

/// `x.arrow`: the columns of [`table`](crate::table), with the manifest in the schema's metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrowFormat;

impl PartFormat for ArrowFormat {
    fn name(&self) -> &'static str {
        "arrow"
    }

    fn extension(&self) -> &'static str {
        "arrow"
    }

    fn check_columns(&self, options: &SinkOptions) -> Result<(), SinkError> {
        check_names(&options.columns)
    }

    fn encode(&mut self, part: &StoredPart<'_>, manifest: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let path = &files.vectors;
        let schema = schema(part.dim(), part.element(), part.columns(), &column_kinds(&manifest.fingerprint))?;
        let described = Schema::clone(&schema).with_metadata(metadata(manifest).into_iter().collect::<Metadata>());
        let file = File::create(path).map_err(SinkError::io("create", path))?;
        let mut writer = FileWriter::try_new_buffered(file, &described).map_err(|error| failed(path, error))?;
        let mut rows = part.reader();
        while let Some(block) = rows.next_block(BATCH)? {
            let batch = record_batch(&schema, block, part).map_err(|error| failed(path, error))?;
            writer.write(&batch).map_err(|error| failed(path, error))?;
        }
        writer.finish().map_err(|error| failed(path, error))
    }
}

/// Converts the library's error. An operating-system error keeps its kind, so that a full disk is reported as such.
fn failed(path: &Path, error: ArrowError) -> SinkError {
    match error {
        ArrowError::IoError(_, source) => SinkError::io("write", path)(source),
        error => SinkError::Format { path: path.to_owned(), source: error.into() },
    }
}

impl VectorReader for ArrowFormat {
    fn manifest(&self, path: &Path) -> Result<Option<RunManifest>, SinkError> {
        let Some(file) = open(path)? else { return Ok(None) };
        let schema = file.schema();
        let json = schema.metadata().get("foveate.manifest");
        json.map(|json| serde_json::from_str(json)).transpose().map_err(|error| SinkError::damaged(path, error))
    }

    fn for_each(&self, path: &Path, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
        let Some(mut file) = open(path)? else {
            return Err(SinkError::damaged(path, "it does not begin like an Arrow IPC file"));
        };
        check_schema(path, &file.schema(), shape)?;
        while let Some(batch) = guarded(path, || file.next().transpose())? {
            each_row(path, &batch, shape, act)?;
        }
        Ok(())
    }
}

/// Opens a file; `None` if it is not an Arrow IPC file.
fn open(path: &Path) -> Result<Option<FileReader<BufReader<File>>>, SinkError> {
    let mut file = BufReader::new(File::open(path).map_err(SinkError::opening(path))?);
    let mut magic = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(SinkError::io("read", path))?;
    if magic != MAGIC {
        return Ok(None);
    }
    guarded(path, || FileReader::try_new(file, None)).map(Some)
}

/// Reads with the library, which panics at many kinds of damage to lengths and offsets.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, SinkError> {
    let read = catch_panic(read).map_err(|message| SinkError::damaged(path, message))?;
    read.map_err(|error| SinkError::damaged(path, error))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float32Array, RecordBatch};
    use arrow_ipc::writer::StreamWriter;
    use foveate_sink::parts::PartSink;
    use foveate_sink::{ColumnKinds, Element, Existing, Rows, VectorSink, Watermark};

    use super::*;

    const SHAPE: Shape = Shape { dim: 2, element: Element::F32, columns: Vec::new(), column_kinds: ColumnKinds::new() };

    /// Writes two rows, and returns the file's bytes.
    fn written(path: &Path) -> Vec<u8> {
        let mut sink = PartSink::new(SinkOptions::new(path), ArrowFormat);
        sink.begin(&RunManifest { dim: 2, ..RunManifest::default() }, Existing::Resume).unwrap();
        let id = ["a.jpg".to_owned(), "b.jpg".to_owned()];
        let rows = Rows {
            index: &[0, 1],
            id: &id,
            vectors: &[0.5, -1.0, 2.0, 0.25],
            width: &[1, 2],
            height: &[3, 4],
            xxh3: &[5, 6],
            columns: &[],
        };
        sink.append(&rows).unwrap();
        sink.commit(Watermark::from(2)).unwrap();
        sink.finish().unwrap();
        std::fs::read(path).unwrap()
    }

    /// The number of rows that are read, if the file is not refused.
    fn rows(path: &Path) -> Result<usize, SinkError> {
        let mut count = 0;
        ArrowFormat.manifest(path)?;
        ArrowFormat.for_each(path, &SHAPE, &mut |_| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    #[test]
    fn files_and_streams_of_other_programs_have_no_manifest_and_no_vectors() {
        let folder = tempfile::tempdir().unwrap();
        let embedding = std::sync::Arc::new(Float32Array::from(vec![0.5]));
        let batch = RecordBatch::try_from_iter([("embedding", embedding as _)]).unwrap();
        let file = folder.path().join("file.arrow");
        let mut writer = FileWriter::try_new(File::create(&file).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let stream = folder.path().join("stream.arrow");
        let mut writer = StreamWriter::try_new(File::create(&stream).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let empty = folder.path().join("empty.arrow");
        std::fs::write(&empty, "").unwrap();
        for path in [file, stream, empty] {
            assert_eq!(ArrowFormat.manifest(&path).unwrap(), None);
            assert!(matches!(rows(&path), Err(SinkError::Damaged { .. })), "{}", path.display());
        }
    }

    #[test]
    fn a_damaged_file_is_refused_and_ends_no_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.arrow");
        let whole = written(&path);
        assert_eq!(rows(&path).unwrap(), 2);
        for len in (0..whole.len()).step_by(7) {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(rows(&path).is_err(), "cut to {len} bytes");
        }
        // Damage to a component is seen by the file's hash alone; no damage may panic.
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x80;
            std::fs::write(&path, bytes).unwrap();
            drop(rows(&path));
        }
    }
}
