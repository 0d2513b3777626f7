//! Reads outputs back: ids and vectors, in stored order.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use foveate::sink::Published;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::Result;

/// A row of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The item's id.
    pub id: String,
    /// Its vector, `[dim]`.
    pub vector: Vec<f32>,
}

/// Reads every row of a finished output of f32 vectors.
///
/// # Errors
/// If a file does not match its extension, or no sink has its extension.
pub fn read(published: &Published) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in &published.files {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => rows.extend(parquet(file)?),
            Some("npy") => rows.extend(npy(file)?),
            Some("lmdb") => rows.extend(lmdb(file)?),
            Some("csv" | "json") => {} // ids, failures, manifests
            _ => return Err(format!("nothing here reads {}", file.display()).into()),
        }
    }
    Ok(rows)
}

fn parquet(path: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()? {
        let batch = batch?;
        let (ids, vectors) = (batch["id"].as_string::<i32>(), batch["embedding"].as_fixed_size_list());
        for row in 0..batch.num_rows() {
            let vector = vectors.value(row).as_primitive::<Float32Type>().values().to_vec();
            rows.push(Row { id: ids.value(row).to_owned(), vector });
        }
    }
    Ok(rows)
}

fn npy(path: &Path) -> Result<Vec<Row>> {
    let array = npyz::NpyFile::new(File::open(path)?)?;
    let &[rows, dim] = array.shape() else { return Err(format!("{} has no rows", path.display()).into()) };
    let values = array.into_vec::<f32>()?;
    let mut ids = csv::Reader::from_path(foveate_sink::sidecar(path, "ids.csv"))?;
    let ids: Vec<String> = ids.records().map(|record| Ok(record?[0].to_owned())).collect::<Result<_>>()?;
    if ids.len() as u64 != rows {
        return Err(format!("{} ids of {rows} vectors", ids.len()).into());
    }
    let vectors = values.chunks_exact(usize::try_from(dim)?.max(1));
    Ok(ids.into_iter().zip(vectors).map(|(id, vector)| Row { id, vector: vector.to_vec() }).collect())
}

#[cfg(feature = "lmdb")]
fn lmdb(path: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    foveate_sink_lmdb::Vectors::open(path)?.for_each(|row| -> Result<()> {
        rows.push(Row { id: row.id, vector: row.vector });
        Ok(())
    })?;
    Ok(rows)
}

#[cfg(not(feature = "lmdb"))]
fn lmdb(_: &Path) -> Result<Vec<Row>> {
    Err("this build cannot read LMDB".into())
}

#[cfg(test)]
mod tests {
    use foveate::embed::Backends;
    use foveate::sink::{Existing, Rows, RunManifest, SinkOptions, Watermark};

    use super::*;

    #[test]
    fn every_compiled_sink_is_read_back() {
        let wanted: Vec<Row> =
            (0..5).map(|i| Row { id: format!("photo {i}"), vector: vec![i as f32, 0.5, -1.0] }).collect();
        let id: Vec<String> = wanted.iter().map(|row| row.id.clone()).collect();
        let vectors: Vec<f32> = wanted.iter().flat_map(|row| row.vector.clone()).collect();
        let rows = Rows {
            index: &[0, 1, 2, 3, 4],
            id: &id,
            vectors: &vectors,
            width: &[1; 5],
            height: &[1; 5],
            xxh3: &[0; 5],
            columns: &[],
        };
        for backend in Backends::compiled().sinks.iter() {
            let folder = tempfile::tempdir().unwrap();
            let output = folder.path().join(format!("x.{}", backend.extension()));
            let mut sink = backend.open(&SinkOptions::new(output)).unwrap();
            sink.begin(&RunManifest { dim: 3, ..RunManifest::default() }, Existing::Refuse).unwrap();
            sink.append(&rows).unwrap();
            sink.commit(Watermark::from(5)).unwrap();
            let published = sink.finish().unwrap();
            drop(sink);
            assert_eq!(read(&published).unwrap(), wanted, "{}", backend.extension());
        }
    }

    #[test]
    fn unknown_files_are_refused() {
        let published = Published { files: vec!["x.bin".into()], ..Published::default() };
        assert!(read(&published).is_err());
    }
}
