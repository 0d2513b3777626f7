//! Rows as members.

use std::time::SystemTime;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use bytes::Bytes;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerOptions, Member, MemberContent, MemberName, Members};
use foveate_source::store::{Version, normal_address, scheme_of};

use crate::choice::{BYTES, Choice, PATH};
use crate::fault::{damaged, guarded};
use crate::text::text;

/// Batches of a file's rows, in order.
pub(crate) trait Batches: Send {
    /// The next batch, or `None` at the file's end. Batches are the same whatever was skipped before.
    fn next(&mut self) -> Result<Option<RecordBatch>, FetchError>;

    /// Continues with the batch that holds row `row` of the file. Returns the number of its first row; that of the
    /// file's end if there are fewer rows.
    fn seek(&mut self, row: u64) -> Result<u64, FetchError>;
}

/// A file's rows.
pub(crate) struct Table<B> {
    batches: B,
    choice: Choice,
    max_bytes: u64,
    /// What precedes relative paths.
    folder: String,
    modified: Option<SystemTime>,
    batch: Option<RecordBatch>,
    /// The next row in the batch, and in the file.
    at: usize,
    row: u64,
}

impl<B: Batches> Table<B> {
    pub(crate) fn new(batches: B, choice: Choice, blob: &dyn Blob, options: &ContainerOptions) -> Self {
        let name = blob.name();
        let end = name.rfind(std::path::is_separator).map_or(0, |at| at + 1);
        Self {
            batches,
            choice,
            max_bytes: options.max_bytes,
            folder: name[..end].to_owned(),
            modified: blob.modified(),
            batch: None,
            at: 0,
            row: 0,
        }
    }

    /// Makes the next row one of the current batch; false at the end.
    fn advance(&mut self) -> Result<bool, FetchError> {
        while self.batch.as_ref().is_none_or(|batch| self.at >= batch.num_rows()) {
            (self.batch, self.at) = (None, 0);
            match self.batches.next()? {
                Some(batch) => self.batch = Some(batch),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn member(&self, batch: &RecordBatch) -> Result<Member, FetchError> {
        let columns = self.choice.columns.iter().map(|&column| text(batch.column(column), self.at));
        let columns = columns.collect::<Result<_, _>>()?;
        let (name, content) = match self.name(batch)? {
            Some(name) => (name, self.content(batch)),
            None => (self.number(), self.fault("id")),
        };
        let version = match &content {
            MemberContent::Here(bytes) => Version { len: Some(bytes.len() as u64), modified: self.modified, tag: None },
            _ => Version::default(),
        };
        Ok(Member { name, content, version, columns })
    }

    /// The row's own number, unless there is a column of ids; then `None` stands for a null.
    fn name(&self, batch: &RecordBatch) -> Result<Option<MemberName>, FetchError> {
        let Some(column) = self.choice.id else { return Ok(Some(self.number())) };
        Ok(text(batch.column(column), self.at)?.filter(|id| !id.is_empty()).map(MemberName::Id))
    }

    fn number(&self) -> MemberName {
        MemberName::Key(self.row.to_string().into_bytes())
    }

    fn fault(&self, what: &str) -> MemberContent {
        MemberContent::Failed(damaged(format!("no {what} in row {}", self.row)))
    }

    fn content(&self, batch: &RecordBatch) -> MemberContent {
        let column = batch.column(self.choice.image);
        let found = match column.as_struct_opt() {
            Some(parts) => self.part(parts, BYTES).or_else(|| self.part(parts, PATH)),
            None => self.cell(column),
        };
        found.unwrap_or_else(|| self.fault("image"))
    }

    fn part(&self, parts: &StructArray, name: &str) -> Option<MemberContent> {
        parts.is_valid(self.at).then(|| self.cell(parts.column_by_name(name)?)).flatten()
    }

    /// The image, or the path of the image; `None` for a null.
    fn cell(&self, column: &dyn Array) -> Option<MemberContent> {
        if column.is_null(self.at) {
            return None;
        }
        let text = match column.data_type() {
            DataType::Utf8 => column.as_string::<i32>().value(self.at),
            DataType::LargeUtf8 => column.as_string::<i64>().value(self.at),
            DataType::Utf8View => column.as_string_view().value(self.at),
            _ => return self.image(column),
        };
        Some(MemberContent::At(self.resolve(text).into_bytes()))
    }

    fn image(&self, column: &dyn Array) -> Option<MemberContent> {
        let (value, buffers) = match column.data_type() {
            DataType::Binary => {
                let array = column.as_binary::<i32>();
                (array.value(self.at), std::slice::from_ref(array.values()))
            }
            DataType::LargeBinary => {
                let array = column.as_binary::<i64>();
                (array.value(self.at), std::slice::from_ref(array.values()))
            }
            DataType::BinaryView => {
                let array = column.as_binary_view();
                (array.value(self.at), array.data_buffers().as_ref())
            }
            _ => return None,
        };
        let (bytes, limit) = (value.len() as u64, self.max_bytes);
        if bytes > limit {
            return Some(MemberContent::Failed(FetchError::TooLarge { bytes, limit }));
        }
        Some(MemberContent::Here(share(value, buffers)))
    }

    /// A path beside the file, unless it is absolute or an address.
    fn resolve(&self, path: &str) -> String {
        let path = normal_address(path);
        match scheme_of(path.as_bytes()).is_some() || path.starts_with(std::path::is_separator) {
            true => path.into_owned(),
            false => format!("{}{path}", self.folder),
        }
    }
}

impl<B: Batches> Members for Table<B> {
    fn next(&mut self) -> Result<Option<Member>, FetchError> {
        guarded(|| {
            if !self.advance()? {
                return Ok(None);
            }
            let member = self.batch.as_ref().map(|batch| self.member(batch)).transpose();
            (self.at, self.row) = (self.at + 1, self.row + 1);
            member
        })
    }

    /// The last row to skip is read, because its place may be that of an error which ends the file.
    fn skip(&mut self, count: u64) -> Result<(), FetchError> {
        let Some(last) = (self.row + count).checked_sub(1).filter(|_| count > 0) else { return Ok(()) };
        (self.batch, self.at) = (None, 0);
        guarded(|| {
            self.row = self.batches.seek(last)?;
            while self.row <= last && self.advance()? {
                (self.at, self.row) = (self.at + 1, self.row + 1);
            }
            Ok(())
        })
    }
}

/// Largest buffer that an image keeps in memory as a whole.
const MOST_KEPT: usize = 64 << 20;

/// Bytes of one of `buffers`, not copied unless they keep a large buffer in memory.
fn share(value: &[u8], buffers: &[Buffer]) -> Bytes {
    let places = buffers.iter().filter(|buffer| buffer.len() <= MOST_KEPT);
    let mut places =
        places.filter_map(|buffer| Some((buffer, (value.as_ptr() as usize).checked_sub(buffer.as_ptr() as usize)?)));
    match places.find(|(buffer, start)| start + value.len() <= buffer.len()) {
        Some((buffer, start)) => Bytes::from_owner(buffer.clone()).slice(start..start + value.len()),
        None => Bytes::copy_from_slice(value),
    }
}
