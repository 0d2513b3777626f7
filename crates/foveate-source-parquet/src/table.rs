//! Rows as members.

use std::ops::Range;
use std::time::SystemTime;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use bytes::Bytes;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerOptions, Member, MemberContent, MemberName, Members};
use foveate_source::store::{Version, normal_address, scheme_of};

use crate::choice::{BYTES, Choice, PATH, holds_paths};
use crate::fault::{damaged, guarded};
use crate::guess::{MOST_PATH, in_base64, is_base64};
use crate::text::text;

/// Batches of a file's rows, in order.
pub(crate) trait BatchReader: Send {
    /// The next batch, or `None` at the file's end. Batches do not depend on the rows that were skipped before.
    fn next(&mut self) -> Result<Option<RecordBatch>, FetchError>;

    /// Continues with the batch that holds row `row` of the file. Returns the number of its first row; that of the
    /// file's end if there are fewer rows.
    fn seek(&mut self, row: u64) -> Result<u64, FetchError>;
}

/// A file's rows.
pub(crate) struct TableMembers {
    batches: Box<dyn BatchReader>,
    choice: Choice,
    max_bytes: u64,
    /// The prefix of relative paths.
    folder: String,
    modified: Option<SystemTime>,
    batch: Option<RecordBatch>,
    /// The next row in the batch, and in the file.
    at: usize,
    row: u64,
    /// The next image within the row, if rows have lists of images.
    place: usize,
}

impl TableMembers {
    pub(crate) fn new(
        batches: Box<dyn BatchReader>,
        choice: Choice,
        blob: &dyn Blob,
        options: &ContainerOptions,
    ) -> Self {
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
            place: 0,
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

    /// Makes the next image one of the current row; false at the end. Rows with empty lists have none.
    fn advance_to_image(&mut self) -> Result<bool, FetchError> {
        while self.advance()? {
            let Some(batch) = &self.batch else { break };
            if self.place < images(batch.column(self.choice.image), self.at).1.len() {
                return Ok(true);
            }
            (self.at, self.row, self.place) = (self.at + 1, self.row + 1, 0);
        }
        Ok(false)
    }

    fn member(&self, batch: &RecordBatch) -> Result<Member, FetchError> {
        let columns = self.choice.columns.iter().map(|&column| text(batch.column(column), self.at));
        let columns = columns.collect::<Result<_, _>>()?;
        let (column, places) = images(batch.column(self.choice.image), self.at);
        let is_one = !self.choice.is_list || batch.column(self.choice.image).is_null(self.at);
        let place = if is_one { String::new() } else { format!("/{}", self.place) };
        let (name, content) = match self.id(batch)? {
            RowId::Text(id) => {
                (MemberName::Id(format!("{id}{place}")), self.content(column, places.start + self.place))
            }
            RowId::Null => (self.number(&place), self.fault("id")),
            RowId::NoColumn => (self.number(&place), self.content(column, places.start + self.place)),
        };
        let version = match &content {
            MemberContent::Here(bytes) => Version { len: Some(bytes.len() as u64), modified: self.modified, tag: None },
            _ => Version::default(),
        };
        Ok(Member { name, content, version, columns })
    }

    fn id(&self, batch: &RecordBatch) -> Result<RowId, FetchError> {
        let Some(column) = self.choice.id else { return Ok(RowId::NoColumn) };
        let id = text(batch.column(column), self.at)?.filter(|id| !id.is_empty());
        Ok(id.map_or(RowId::Null, RowId::Text))
    }

    fn number(&self, place: &str) -> MemberName {
        MemberName::Key(format!("{}{place}", self.row).into_bytes())
    }

    fn fault(&self, what: &str) -> MemberContent {
        MemberContent::Failed(damaged(format!("no {what} in row {}", self.row)))
    }

    fn content(&self, column: &dyn Array, at: usize) -> MemberContent {
        let found = match column.as_struct_opt() {
            Some(parts) => self.part(parts, BYTES, at).or_else(|| self.part(parts, PATH, at)),
            None => self.cell(column, at),
        };
        found.unwrap_or_else(|| self.fault("image"))
    }

    fn part(&self, parts: &StructArray, name: &str, at: usize) -> Option<MemberContent> {
        parts.is_valid(at).then(|| self.cell(parts.column_by_name(name)?, at)).flatten()
    }

    /// The image, or the path of the image; `None` for a null.
    fn cell(&self, column: &dyn Array, at: usize) -> Option<MemberContent> {
        if column.is_null(at) {
            return None;
        }
        if !holds_paths(column.data_type()) {
            return self.image(column, at);
        }
        let path = text(column, at).ok().flatten().filter(|path| !path.is_empty())?;
        let row = self.row;
        Some(match path.len() {
            _ if is_base64(&path) => MemberContent::Failed(damaged(in_base64(&format!("the text in row {row}")))),
            bytes if bytes > MOST_PATH => {
                MemberContent::Failed(damaged(format!("the text in row {row} is no path: it has {bytes} bytes")))
            }
            _ => MemberContent::At(self.resolve(&path).into_bytes()),
        })
    }

    fn image(&self, column: &dyn Array, at: usize) -> Option<MemberContent> {
        let (value, buffers) = match column.data_type() {
            DataType::Binary => {
                let array = column.as_binary::<i32>();
                (array.value(at), std::slice::from_ref(array.values()))
            }
            DataType::LargeBinary => {
                let array = column.as_binary::<i64>();
                (array.value(at), std::slice::from_ref(array.values()))
            }
            DataType::BinaryView => {
                let array = column.as_binary_view();
                (array.value(at), array.data_buffers().as_ref())
            }
            _ => return None,
        };
        let bytes = value.len() as u64;
        let limit = self.max_bytes;
        if bytes > limit {
            return Some(MemberContent::Failed(FetchError::TooLarge { bytes, limit }));
        }
        Some(MemberContent::Here(share(value, buffers)))
    }

    /// A path in the file's folder, unless it is absolute or an address.
    fn resolve(&self, path: &str) -> String {
        let path = normal_address(path);
        if scheme_of(path.as_bytes()).is_some() || path.starts_with(std::path::is_separator) {
            path.into_owned()
        } else {
            format!("{}{path}", self.folder)
        }
    }
}

impl Members for TableMembers {
    fn next(&mut self) -> Result<Option<Member>, FetchError> {
        guarded(|| {
            if !self.advance_to_image()? {
                return Ok(None);
            }
            let member = self.batch.as_ref().map(|batch| self.member(batch)).transpose();
            self.place += 1;
            member
        })
    }

    /// The last row to skip is read, because its place may be that of an error which ends the file. Rows with lists are
    /// all read, because they tell how many images they have.
    fn skip(&mut self, count: u64) -> Result<(), FetchError> {
        guarded(|| {
            let mut left = count;
            if !self.choice.is_list && self.place <= 1 && count > 0 {
                // The row before was given, or none.
                let last = self.row + self.place as u64 + count - 1;
                (self.batch, self.at, self.place) = (None, 0, 0);
                self.row = self.batches.seek(last)?;
                left = (last + 1).saturating_sub(self.row);
            }
            while left > 0 && self.advance_to_image()? {
                (self.place, left) = (self.place + 1, left - 1);
            }
            Ok(())
        })
    }
}

/// A row's id.
enum RowId {
    NoColumn,
    /// A null, or an empty text.
    Null,
    Text(String),
}

/// The column with the images of row `row`, and their places there: the row's own, or those of its list's elements.
fn images(column: &ArrayRef, row: usize) -> (&dyn Array, Range<usize>) {
    match column.data_type() {
        // A null is a row without its image, and an empty list one without images.
        _ if column.is_null(row) => (column, row..row + 1),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            (list.values(), offsets[row] as usize..offsets[row + 1] as usize)
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let offsets = list.value_offsets();
            (list.values(), offsets[row] as usize..offsets[row + 1] as usize)
        }
        DataType::FixedSizeList(..) => {
            let list = column.as_fixed_size_list();
            (list.values(), list.value_offset_at(row)..list.value_offset_at(row + 1))
        }
        _ => (column, row..row + 1),
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
