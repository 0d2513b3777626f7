//! Every compiled sink with its trait's suite; independent readers read the output back.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use foveate::backends::sinks;
use foveate_sink::conformance::{Stored, Subject, run};
use foveate_sink::{Layout, Published};
use foveate_testkit::{Resource, Trial, program};
use foveate_tests::trial::{Outcome, trial};
use half::f16;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

type Reader = fn(&Path) -> Stored;

/// The independent reader of a format.
fn reader(extension: &str) -> Option<Reader> {
    match extension {
        "parquet" => Some(read_parquet),
        "npy" => Some(read_npy),
        "lmdb" => Some(read_lmdb),
        _ => None,
    }
}

pub(super) fn trials() -> Vec<Trial> {
    let (names, mut trials) = super::backends("sink", &sinks());
    trials.extend(names.into_iter().map(|name| trial(format!("sink::{name}::conformance"), move || check(&name))));
    trials
}

fn check(name: &str) -> Result<(), Outcome> {
    let registry = sinks();
    let backend = registry.get(name)?;
    let extension = backend.extension();
    let reader =
        reader(extension).ok_or_else(|| Outcome::Ignored(format!("these tests have no reader for .{extension}")))?;
    let read = |published: &Published| -> Stored {
        let is_data = |file: &&std::path::PathBuf| file.extension().is_some_and(|found| found == extension);
        published.files.iter().filter(is_data).flat_map(|file| reader(file)).collect()
    };
    let open = |options: &_| backend.open(options).unwrap();
    let scratch = tempfile::tempdir()?;
    let layouts = &[Layout::File, Layout::Folder];
    let subject = Subject { open: &open, read: &read, read_columns: None, extension, layouts, cuts_parts: false };
    run(&subject, scratch.path());
    Ok(())
}

fn read_parquet(path: &Path) -> Stored {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    let mut rows = Stored::new();
    for batch in reader.map(Result::unwrap) {
        let (ids, vectors) = (batch["id"].as_string::<i32>(), batch["embedding"].as_fixed_size_list());
        for row in 0..batch.num_rows() {
            let values = vectors.value(row);
            let vector = match values.as_primitive_opt::<Float32Type>() {
                Some(values) => values.values().to_vec(),
                None => values.as_primitive::<Float16Type>().values().iter().map(|value| value.to_f32()).collect(),
            };
            rows.push((ids.value(row).to_owned(), vector));
        }
    }
    rows
}

/// Reads NumPy's format version 1.0, of two-dimensional little-endian f32 and f16 in C order; ids from the CSV file
/// beside it.
fn read_npy(path: &Path) -> Stored {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00");
    let header_end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!(header_end % 64, 0, "NumPy aligns the data");
    let (header, data) = (std::str::from_utf8(&bytes[10..header_end]).unwrap(), &bytes[header_end..]);
    assert!(header.contains("'fortran_order': False"), "{header}");
    let values: Vec<f32> = if header.contains("'descr': '<f4'") {
        data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
    } else {
        assert!(header.contains("'descr': '<f2'"), "{header}");
        data.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect()
    };
    let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
    let shape: Vec<usize> = shape.split(',').map(|side| side.trim().parse().unwrap()).collect();
    assert_eq!(values.len(), shape[0] * shape[1], "{header}");
    let mut ids = csv::Reader::from_path(foveate_sink::sidecar(path, "ids.csv")).unwrap();
    let ids: Vec<String> = ids.records().map(|record| record.unwrap()[0].to_owned()).collect();
    assert_eq!(ids.len(), shape[0]);
    ids.into_iter().zip(values.chunks(shape[1].max(1)).map(<[f32]>::to_vec)).collect()
}

/// Reads the dump of LMDB's own tool, assembled as the sink's README says.
fn read_lmdb(path: &Path) -> Stored {
    let vectors: HashMap<Vec<u8>, Vec<u8>> = dump(path, "vectors").into_iter().collect();
    let order = dump(path, "order");
    assert_eq!(order.len(), vectors.len());
    let rows = order.into_iter().map(|(_, key)| {
        let value = &vectors[&key];
        assert_eq!(value[..5], *b"FVEC\x01");
        let number = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().unwrap()) as usize;
        let id = if key[0] == 0 { value[44..44 + number(40)].to_vec() } else { key };
        let data = &value[number(8)..];
        let vector: Vec<f32> = match value[5] {
            1 => data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
            2 => data.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
            other => panic!("element type {other}"),
        };
        assert_eq!(vector.len(), number(12));
        (String::from_utf8(id).unwrap(), vector)
    });
    rows.collect()
}

/// The keys and values of one database, in key order.
fn dump(path: &Path, database: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let output = program(Resource::LmdbUtils, "mdb_dump").args(["-n", "-s", database]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The tool leaves a lock file beside the database, and the suite checks every file.
    let _ = std::fs::remove_file(path.with_extension("lmdb-lock"));
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, data) = text.split_once("HEADER=END\n").unwrap();
    let lines: Vec<&str> = data.strip_suffix("DATA=END\n").unwrap().lines().collect();
    lines.chunks(2).map(|pair| (unhex(pair[0]), unhex(pair[1]))).collect()
}

fn unhex(line: &str) -> Vec<u8> {
    let digits = line.trim_start().as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
