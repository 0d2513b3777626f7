//! Rows of a table of any content.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field};
use foveate_core::ColumnKind;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ChooseColumns, TableColumn, TableRows};

use crate::choice::{Choice, element};
use crate::fault::guarded;
use crate::open::open_batches;
use crate::table::BatchReader;
use crate::text::text;

/// Opens a file to read the columns that `choose` returns.
pub(crate) fn open(blob: Arc<dyn Blob>, choose: &mut ChooseColumns<'_>) -> Result<Box<dyn TableRows>, FetchError> {
    let (batches, choice) = open_batches(&blob, |fields| {
        let all: Vec<TableColumn> = fields.iter().map(|field| described(field)).collect();
        let columns = choose(&all)?;
        // There is no image, and the batches are of all columns that are named.
        Ok(Choice { image: columns.first().copied().unwrap_or(0), columns, ..Choice::default() })
    })?;
    Ok(Box::new(ChosenRows { batches, columns: choice.columns, batch: None, next: 0 }))
}

fn described(field: &Field) -> TableColumn {
    use DataType::{Boolean, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let kind = match field.data_type() {
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => ColumnKind::Integer,
        Float16 | Float32 | Float64 => ColumnKind::Float,
        Boolean => ColumnKind::Boolean,
        _ => ColumnKind::Text,
    };
    let is_vector = matches!(element(field.data_type()), Some(Float16 | Float32 | Float64 | Int8 | UInt8));
    TableColumn { name: field.name().clone(), kind, is_vector }
}

struct ChosenRows {
    batches: Box<dyn BatchReader>,
    /// Places of the chosen columns in the batches.
    columns: Vec<usize>,
    batch: Option<RecordBatch>,
    /// The row after the current one.
    next: usize,
}

impl ChosenRows {
    fn column(&self, column: usize) -> Result<&ArrayRef, FetchError> {
        let batch = self.batch.as_ref().ok_or_else(|| FetchError::Damaged("it has no such row".to_owned()))?;
        Ok(batch.column(self.columns[column]))
    }
}

impl TableRows for ChosenRows {
    fn advance(&mut self) -> Result<bool, FetchError> {
        while self.batch.as_ref().is_none_or(|batch| self.next >= batch.num_rows()) {
            self.next = 0;
            self.batch = guarded(|| self.batches.next())?;
            if self.batch.is_none() {
                return Ok(false);
            }
        }
        self.next += 1;
        Ok(true)
    }

    fn text(&self, column: usize) -> Result<Option<String>, FetchError> {
        text(self.column(column)?, self.next - 1)
    }

    fn numbers(&self, column: usize, out: &mut Vec<f32>) -> Result<(), FetchError> {
        out.clear();
        let lists = self.column(column)?;
        let row = self.next - 1;
        if lists.is_null(row) {
            return Ok(());
        }
        let list = match lists.data_type() {
            DataType::FixedSizeList(..) => lists.as_fixed_size_list().value(row),
            DataType::List(_) => lists.as_list::<i32>().value(row),
            _ => lists.as_list::<i64>().value(row),
        };
        match list.data_type() {
            DataType::Float16 => out.extend(list.as_primitive::<Float16Type>().values().iter().map(|x| x.to_f32())),
            DataType::Float32 => out.extend(list.as_primitive::<Float32Type>().values()),
            DataType::Float64 => out.extend(list.as_primitive::<Float64Type>().values().iter().map(|&x| x as f32)),
            DataType::Int8 => out.extend(list.as_primitive::<Int8Type>().values().iter().map(|&x| f32::from(x))),
            _ => out.extend(list.as_primitive::<UInt8Type>().values().iter().map(|&x| f32::from(x))),
        }
        if list.null_count() > 0 {
            (0..list.len()).filter(|&at| list.is_null(at)).for_each(|at| out[at] = f32::NAN);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use arrow_array::builder::{FixedSizeListBuilder, Float64Builder, Int8Builder, ListBuilder};
    use arrow_array::types::Int32Type;
    use arrow_array::{BinaryArray, DictionaryArray, Int64Array};
    use foveate_source::blob::FileBlob;
    use parquet::arrow::ArrowWriter;

    use super::*;

    #[test]
    fn columns_of_any_type_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut doubles = ListBuilder::new(Float64Builder::new());
        let mut bytes = FixedSizeListBuilder::new(Int8Builder::new(), 2);
        for row in 0..3_i8 {
            doubles.values().append_option((row != 1).then_some(0.5));
            doubles.append(row < 2);
            bytes.values().append_slice(&[row, -row]);
            bytes.append(true);
        }
        let names: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("c")].into_iter().collect();
        let columns: [(_, ArrayRef); 5] = [
            ("key", Arc::new(Int64Array::from(vec![7, 8, 9]))),
            ("doubles", Arc::new(doubles.finish())),
            ("bytes", Arc::new(bytes.finish())),
            ("name", Arc::new(names)),
            ("raw", Arc::new(BinaryArray::from(vec![&b"x"[..], b"y", b"\xff"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let [parquet, arrow] = ["x.parquet", "x.arrow"].map(|name| folder.path().join(name));
        let mut writer = ArrowWriter::try_new(File::create(&parquet).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let file = File::create(&arrow).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        for path in [parquet, arrow] {
            let blob = Arc::new(FileBlob::open(&path, path.display().to_string()).unwrap());
            let mut known = Vec::new();
            let mut rows = open(blob, &mut |columns| {
                known = columns.iter().map(|column| (column.kind, column.is_vector)).collect();
                Ok(vec![3, 1, 0, 2, 4])
            })
            .unwrap();
            let text = (ColumnKind::Text, false);
            let list = (ColumnKind::Text, true);
            assert_eq!(known, [(ColumnKind::Integer, false), list, list, text, text]);
            let mut found = Vec::new();
            let mut doubles = Vec::new();
            let mut bytes = Vec::new();
            while rows.advance().unwrap() {
                rows.numbers(1, &mut doubles).unwrap();
                rows.numbers(3, &mut bytes).unwrap();
                let texts: Vec<_> = [0, 2, 4].map(|at| rows.text(at).unwrap().unwrap_or_default()).to_vec();
                found.push(format!("{} {doubles:?} {bytes:?}", texts.join(" ")));
            }
            let expected = ["a 7 x [0.5] [0.0, 0.0]", " 8 y [NaN] [1.0, -1.0]", "c 9 ff [] [2.0, -2.0]"];
            assert_eq!(found, expected, "{}", path.display());
        }
    }
}
