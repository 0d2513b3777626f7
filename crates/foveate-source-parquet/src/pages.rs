//! Parquet: row groups, read page by page.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema};
use bytes::Bytes;
use foveate_core::lock;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::store::scheme_of;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use crate::ahead::{self, RowGroupsAhead};
use crate::choice::Choice;
use crate::fault::{compressed, damaged, len_of};
use crate::footer::{self, Compact, CompactField, zigzag};
use crate::table::BatchReader;

/// Bytes of a batch, about.
const BATCH_BYTES: u64 = 8 << 20;

/// Most rows of a batch.
const BATCH_ROWS: u64 = 8192;

/// A page that is larger than this and grows more than [`MOST_GROWTH`] times by decompression is refused: it has no
/// images.
const LARGE_PAGE: i64 = 64 << 20;
const MOST_GROWTH: i64 = 64;

/// Bytes that a page's header takes, nearly always.
const HEADER: usize = 4096;

/// The batches of a file.
pub(crate) struct ParquetBatches {
    pages: Pages,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// Rows of each row group.
    rows: Vec<u64>,
    /// The row group to begin next.
    next: usize,
    /// The row group being read, with its rows that are left.
    reading: Option<(ParquetRecordBatchReader, u64)>,
}

impl ParquetBatches {
    pub(crate) fn open(
        blob: &Arc<dyn Blob>,
        choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
    ) -> Result<(Self, Choice), FetchError> {
        let len = len_of(blob.as_ref())?;
        let metadata = Arc::new(footer::read(blob.as_ref())?);
        // The schema is the file's own, not the one that Arrow's writers add to it.
        let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = ArrowReaderMetadata::try_new(Arc::clone(&metadata), plain).map_err(damaged)?;
        let choice = choose(plain.schema().fields())?;
        let (roots, choice) = choice.project();
        let mask = ProjectionMask::roots(plain.parquet_schema(), roots);
        let views = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(in_place(plain.schema().fields()))));
        let views = ArrowReaderMetadata::try_new(Arc::clone(&metadata), views).map_err(damaged)?;
        let counts = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()));
        let rows = counts.collect::<Result<_, _>>().map_err(|_| damaged("a row group has less than no rows"))?;
        let is_remote = scheme_of(blob.name().as_bytes()).is_some();
        let parts = metadata.row_groups().iter().map(|group| {
            // A column that cannot be read is told when its row group begins.
            let columns = needed(group, &mask).filter_map(|column| range(column).ok());
            // A header is looked at as a whole, so more is read than it may have.
            columns.map(|column| column.start.min(len)..column.end.saturating_add(HEADER as u64).min(len)).collect()
        });
        let pages = Pages::new(Arc::clone(blob), len, is_remote.then(|| RowGroupsAhead::new(Arc::clone(blob), parts)));
        Ok((Self { pages, metadata: views, mask, rows, next: 0, reading: None }, choice))
    }

    /// Begins row group `group` at its row `row`, the first of a batch.
    fn begin(&mut self, group: usize, row: u64) -> Result<(), FetchError> {
        self.reading = None;
        self.next = group + 1;
        let about = self.metadata.metadata().row_group(group);
        needed(about, &self.mask).try_for_each(|column| range(column).map(drop))?;
        self.pages.ahead(|ahead| ahead.begin(group));
        let left = self.rows[group] - row;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.pages.clone(), self.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(self.mask.clone())
            .with_batch_size(self.batch_rows(group) as usize)
            .with_offset(row as usize)
            .with_limit(left as usize);
        let reader = builder.build().map_err(|error| self.pages.why(error))?;
        self.reading = Some((reader, left));
        Ok(())
    }

    /// Rows of a batch of this row group. It follows from the footer alone, so that batches do not depend on where
    /// reading began.
    fn batch_rows(&self, group: usize) -> u64 {
        let about = self.metadata.metadata().row_group(group);
        let mut bytes = 0u64;
        for column in needed(about, &self.mask) {
            bytes = bytes.saturating_add(column.compressed_size().max(column.uncompressed_size()).unsigned_abs());
        }
        let per_row = bytes / self.rows[group].max(1);
        (BATCH_BYTES / per_row.max(1)).clamp(1, BATCH_ROWS)
    }
}

impl BatchReader for ParquetBatches {
    fn next(&mut self) -> Result<Option<RecordBatch>, FetchError> {
        loop {
            if let Some((reader, left)) = self.reading.as_mut().filter(|(_, left)| *left > 0) {
                let batch = reader.next().transpose().map_err(|error| self.pages.why(error))?;
                let batch = batch.filter(|batch| batch.num_rows() > 0).ok_or_else(|| {
                    damaged(format!("row group {} has {left} rows less than the footer says", self.next - 1))
                })?;
                *left = left.saturating_sub(batch.num_rows() as u64);
                return Ok(Some(batch));
            }
            match self.rows.get(self.next) {
                None => return Ok(None),
                Some(0) => self.next += 1,
                Some(_) => self.begin(self.next, 0)?,
            }
        }
    }

    fn seek(&mut self, row: u64) -> Result<u64, FetchError> {
        let mut first = 0_u64;
        for group in 0..self.rows.len() {
            let end = first.saturating_add(self.rows[group]);
            if row < end {
                let batch = self.batch_rows(group);
                let skipped = (row - first) / batch * batch;
                self.pages.ahead(|ahead| ahead.restart(group));
                self.begin(group, skipped)?;
                return Ok(first + skipped);
            }
            first = end;
        }
        (self.reading, self.next) = (None, self.rows.len());
        Ok(first)
    }
}

/// The same fields, with values that stay where they are in the page: a value that occurs a million times is in memory
/// once.
fn in_place(fields: &Fields) -> Fields {
    fields.iter().map(|field| Arc::new(field_in_place(field))).collect()
}

fn field_in_place(field: &Field) -> Field {
    let kind = match field.data_type() {
        DataType::Binary => DataType::BinaryView,
        DataType::Utf8 => DataType::Utf8View,
        DataType::Struct(fields) => DataType::Struct(in_place(fields)),
        DataType::List(element) => DataType::List(Arc::new(field_in_place(element))),
        DataType::Map(entries, is_sorted) => DataType::Map(Arc::new(field_in_place(entries)), *is_sorted),
        other => other.clone(),
    };
    field.clone().with_data_type(kind)
}

/// The columns of a row group that are read.
fn needed<'a>(group: &'a RowGroupMetaData, mask: &'a ProjectionMask) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
    let columns = group.columns().iter().enumerate();
    columns.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, column)| column)
}

/// The bytes of a column within a row group, if this build can read them.
fn range(column: &ColumnChunkMetaData) -> Result<Range<u64>, FetchError> {
    check_codec(column.compression())?;
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    match (u64::try_from(start), u64::try_from(column.compressed_size())) {
        (Ok(start), Ok(len)) => Ok(start..start.saturating_add(len)),
        _ => Err(damaged(format!("column {} is {} bytes at {start}", column.column_path(), column.compressed_size()))),
    }
}

fn check_codec(codec: Compression) -> Result<(), FetchError> {
    match codec {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::LZ4
        | Compression::LZ4_RAW
        | Compression::ZSTD(_) => Ok(()),
        Compression::BROTLI(_) => Err(compressed("Brotli")),
        Compression::LZO => Err(compressed("LZO")),
    }
}

/// A file's bytes for the library.
#[derive(Clone)]
struct Pages(Arc<PagesOf>);

struct PagesOf {
    blob: Arc<dyn Blob>,
    len: u64,
    /// For a file in a store. Pages of a local file are read one by one.
    ahead: Option<Mutex<RowGroupsAhead>>,
    /// The error that kept bytes from being read. The library passes errors on as text.
    failed: Mutex<Option<FetchError>>,
}

impl Pages {
    fn new(blob: Arc<dyn Blob>, len: u64, ahead: Option<RowGroupsAhead>) -> Self {
        Self(Arc::new(PagesOf { blob, len, ahead: ahead.map(Mutex::new), failed: Mutex::default() }))
    }

    fn ahead<T>(&self, call: impl FnOnce(&mut RowGroupsAhead) -> T) -> Option<T> {
        self.0.ahead.as_ref().map(|ahead| call(&mut lock(ahead)))
    }

    /// The reason for an error of the library.
    fn why(&self, error: impl fmt::Display) -> FetchError {
        lock(&self.0.failed).take().unwrap_or_else(|| damaged(error))
    }

    fn read(&self, start: u64, len: u64) -> Result<Bytes, FetchError> {
        let end = start.saturating_add(len);
        if end > self.0.len {
            return Err(damaged(format!("it ends before byte {end}")));
        }
        let here = self.ahead(|ahead| ahead.read(start, len)).flatten();
        here.unwrap_or_else(|| ahead::read(self.0.blob.as_ref(), start..end))
    }

    /// Keeps the error for [`why`](Self::why).
    fn keep(&self, error: FetchError) -> io::Error {
        let text = error.to_string();
        *lock(&self.0.failed) = Some(error);
        io::Error::other(text)
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.0.len
    }
}

impl ChunkReader for Pages {
    type T = BufReader<PagesFrom>;

    /// Called for the header of the page at `start`.
    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let mut from = BufReader::with_capacity(HEADER, PagesFrom { pages: self.clone(), at: start });
        let header = io::BufRead::fill_buf(&mut from)?;
        match sizes(header) {
            Some((large, small)) if large > LARGE_PAGE && large / MOST_GROWTH > small => {
                Err(ParquetError::General(format!("a page of {small} bytes says that it has {large}")))
            }
            _ => Ok(from),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        Ok(self.read(start, length as u64).map_err(|error| self.keep(error))?)
    }
}

/// A page's length without and with compression, from the start of its header.
fn sizes(header: &[u8]) -> Option<(i64, i64)> {
    let mut header = Compact(header);
    let mut id = 0;
    let mut numbers = [0; 3];
    for number in &mut numbers {
        let CompactField::Type(_) = header.field(&mut id)? else { return None };
        *number = zigzag(header.varint()?);
    }
    (id == 3).then_some((numbers[1], numbers[2]))
}

/// A file's bytes from a place on.
struct PagesFrom {
    pages: Pages,
    at: u64,
}

impl Read for PagesFrom {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.pages.0.len.saturating_sub(self.at).min(out.len() as u64);
        let bytes = self.pages.read(self.at, len).map_err(|error| self.pages.keep(error))?;
        out[..bytes.len()].copy_from_slice(&bytes);
        self.at += len;
        Ok(bytes.len())
    }
}
