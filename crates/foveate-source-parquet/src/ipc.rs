//! Arrow IPC: messages with record batches, in both layouts.
//!
//! A file is a stream after a magic number and before a footer, so both are read as streams. `datasets` caches streams
//! under the name of files.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, CompressionType, Message, MessageHeader, root_as_message};
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::ContainerOptions;

use crate::choice::Choice;
use crate::fault::{ZSTD, compressed, damaged, len_of};
use crate::table::Batches;

/// What a file begins with, padded with zeros to a multiple of 8 bytes: in practice 8 or 64.
const MAGIC: &[u8] = b"ARROW1";
const MOST_MAGIC: u64 = 64;

/// Most bytes of a record batch, which is read as a whole.
const MOST_BATCH: u64 = 2 << 30;

/// The batches of a file.
pub(crate) struct IpcBatches {
    messages: Messages,
    decoder: FileDecoder,
    /// Where the first message after the schema begins.
    first: u64,
    /// Rows before the next message.
    rows: u64,
}

impl IpcBatches {
    pub(crate) fn open(blob: &Arc<dyn Blob>, options: &ContainerOptions) -> Result<(Self, Choice), FetchError> {
        let len = len_of(blob.as_ref())?;
        let at = start_of(blob.as_ref(), len)?;
        let mut messages = Messages { blob: Arc::clone(blob), len, at };
        let head = messages.head()?.ok_or_else(|| damaged("it has no schema: it is no Arrow file"))?;
        let message = head.message()?;
        let schema = message.header_as_schema().ok_or_else(|| damaged("its first message is no schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(FetchError::Refused("it was written by a machine with another order of bytes".to_owned()));
        }
        let schema = Arc::new(try_fb_to_schema(schema).map_err(damaged)?);
        let (columns, choice) = Choice::new(schema.fields(), options)?.project();
        let decoder = FileDecoder::new(schema, message.version()).with_projection(columns);
        messages.pass(&head);
        let first = messages.at;
        Ok((Self { messages, decoder, first, rows: 0 }, choice))
    }

    /// Reads the message with this head. Only a record batch gives something.
    fn read(&mut self, head: &Head) -> Result<Option<RecordBatch>, FetchError> {
        let bytes = self.messages.read(head)?;
        let block = Block::new(0, head.len as i32, head.body as i64);
        head.check_inflated(&bytes[head.len as usize..])?;
        match head.message()?.header_type() {
            MessageHeader::RecordBatch => self.decoder.read_record_batch(&block, &bytes).map_err(damaged),
            MessageHeader::DictionaryBatch => {
                self.decoder.read_dictionary(&block, &bytes).map(|()| None).map_err(damaged)
            }
            _ => Ok(None),
        }
    }
}

impl Batches for IpcBatches {
    fn next(&mut self) -> Result<Option<RecordBatch>, FetchError> {
        while let Some(head) = self.messages.head()? {
            let rows = head.rows()?.unwrap_or(0);
            let batch = self.read(&head)?;
            self.messages.pass(&head);
            self.rows = self.rows.saturating_add(rows);
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    fn seek(&mut self, row: u64) -> Result<u64, FetchError> {
        if row < self.rows {
            (self.messages.at, self.rows) = (self.first, 0);
        }
        while let Some(head) = self.messages.head()? {
            match head.rows()? {
                Some(rows) if row < self.rows.saturating_add(rows) => break,
                Some(rows) => self.rows = self.rows.saturating_add(rows),
                None => drop(self.read(&head)?),
            }
            self.messages.pass(&head);
        }
        Ok(self.rows)
    }
}

/// A file's messages.
struct Messages {
    blob: Arc<dyn Blob>,
    len: u64,
    /// Where the next one begins.
    at: u64,
}

/// A message without its body.
struct Head {
    /// Its metadata.
    metadata: Vec<u8>,
    /// Bytes before its body: a prefix and the metadata.
    len: u64,
    body: u64,
}

impl Messages {
    /// The head of the next message, or `None` at the end. Memory is taken for no more than the file has.
    fn head(&self) -> Result<Option<Head>, FetchError> {
        const CONTINUES: u32 = u32::MAX;
        let Some(left) = self.len.checked_sub(self.at).filter(|&left| left > 0) else { return Ok(None) };
        let cut = || damaged(format!("it ends within the message at byte {}", self.at));
        let mut start = [0; 8];
        self.blob.read_at(self.at, &mut start[..left.min(8) as usize])?;
        let [first, second] = [0, 4].map(|at: usize| u32::from_le_bytes(std::array::from_fn(|i| start[at + i])));
        let (prefix, metadata) = if first == CONTINUES { (8, second) } else { (4, first) };
        if metadata == 0 && left >= prefix {
            return Ok(None);
        }
        let len = prefix + u64::from(metadata);
        let rest = left.checked_sub(len).filter(|_| i32::try_from(len).is_ok()).ok_or_else(cut)?;
        let mut metadata = vec![0; metadata as usize];
        self.blob.read_at(self.at + prefix, &mut metadata)?;
        let head = Head { metadata, len, body: 0 };
        let body = u64::try_from(head.message()?.bodyLength()).map_err(damaged)?;
        if body > rest {
            return Err(cut());
        }
        Ok(Some(Head { body, ..head }))
    }

    /// The whole message. It can be as large as the file, so there is a limit.
    fn read(&self, head: &Head) -> Result<Buffer, FetchError> {
        if head.body > MOST_BATCH {
            let why = format!("a record batch has {} bytes, more than {MOST_BATCH}; write smaller ones", head.body);
            return Err(FetchError::Refused(why));
        }
        let mut bytes = vec![0; (head.len + head.body) as usize];
        self.blob.read_at(self.at, &mut bytes)?;
        Ok(Buffer::from(bytes))
    }

    fn pass(&mut self, head: &Head) {
        self.at += head.len + head.body;
    }
}

impl Head {
    fn message(&self) -> Result<Message<'_>, FetchError> {
        root_as_message(&self.metadata).map_err(damaged)
    }

    /// Checks what the buffers of a compressed `body` claim to inflate to, because the library takes memory for that.
    fn check_inflated(&self, body: &[u8]) -> Result<(), FetchError> {
        let message = self.message()?;
        let dictionary = || message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let batch = message.header_as_record_batch().or_else(dictionary);
        let buffers = batch.filter(|batch| batch.compression().is_some()).and_then(|batch| batch.buffers());
        // A buffer begins with its length, or with -1 if it is not compressed.
        let claim = |offset: i64| {
            let start = body.get(usize::try_from(offset).ok()?..)?.first_chunk()?;
            u64::try_from(i64::from_le_bytes(*start)).ok()
        };
        let claims = buffers.into_iter().flatten().filter_map(|buffer| claim(buffer.offset()));
        match claims.fold(0, u64::saturating_add) {
            bytes if bytes > MOST_BATCH => Err(damaged(format!(
                "a record batch claims to inflate to {bytes} bytes, more than {MOST_BATCH}; write smaller ones"
            ))),
            _ => Ok(()),
        }
    }

    /// The rows of a record batch; `None` for another message.
    fn rows(&self) -> Result<Option<u64>, FetchError> {
        let Some(batch) = self.message()?.header_as_record_batch() else { return Ok(None) };
        let is_zstd = batch.compression().is_some_and(|compression| compression.codec() == CompressionType::ZSTD);
        if is_zstd && !cfg!(feature = "zstd") {
            return Err(compressed(ZSTD.0, ZSTD.1));
        }
        u64::try_from(batch.length()).map(Some).map_err(damaged)
    }
}

/// Where the first message begins.
fn start_of(blob: &dyn Blob, len: u64) -> Result<u64, FetchError> {
    let mut start = vec![0; (len.min(MOST_MAGIC + 8)) as usize];
    blob.read_at(0, &mut start)?;
    if !start.starts_with(MAGIC) {
        return Ok(0);
    }
    let words = start.chunks(8).skip(1).take_while(|word| word.iter().all(|&byte| byte == 0));
    Ok(8 + 8 * words.count() as u64)
}
