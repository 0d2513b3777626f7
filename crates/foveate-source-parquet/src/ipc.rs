//! Arrow IPC: messages with record batches, in both layouts.
//!
//! A file begins with a magic number and is read by its footer, because polars writes no schema message before the
//! batches. Anything else is a stream: `datasets` caches streams under the name of files.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, Message, MessageHeader, MetadataVersion, Schema, root_as_footer, root_as_message};
use arrow_schema::Fields;
use foveate_source::FetchError;
use foveate_source::blob::Blob;

use crate::choice::Choice;
use crate::fault::{damaged, len_of};
use crate::table::BatchReader;

/// The start and the end of a file.
const MAGIC: &[u8; 6] = b"ARROW1";

/// Most bytes of a record batch, which is read as a whole.
const MOST_BATCH: u64 = 2 << 30;

/// The batches of a file.
pub(crate) struct IpcBatches {
    messages: IpcMessages,
    decoder: FileDecoder,
    /// Rows before the next message.
    rows: u64,
}

impl IpcBatches {
    pub(crate) fn open(
        blob: &Arc<dyn Blob>,
        choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
    ) -> Result<(Self, Choice), FetchError> {
        let len = len_of(blob.as_ref())?;
        let mut magic = [0; MAGIC.len()];
        blob.read_at(0, &mut magic[..len.min(MAGIC.len() as u64) as usize])?;
        let mut messages = IpcMessages { blob: Arc::clone(blob), len, first: 0, blocks: None, at: 0, passed: 0 };
        let (decoder, choice) =
            if magic == *MAGIC { messages.begin_file(choose)? } else { messages.begin_stream(choose)? };
        Ok((Self { messages, decoder, rows: 0 }, choice))
    }

    /// Reads the message with this head. Only a record batch gives something.
    fn read(&mut self, head: &MessageHead) -> Result<Option<RecordBatch>, FetchError> {
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

impl BatchReader for IpcBatches {
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
            self.messages.rewind();
            self.rows = 0;
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

fn decoder(
    schema: Schema<'_>,
    version: MetadataVersion,
    choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
) -> Result<(FileDecoder, Choice), FetchError> {
    if !schema.endianness().equals_to_target_endianness() {
        return Err(FetchError::Refused("it was written by a machine with another order of bytes".to_owned()));
    }
    let schema = Arc::new(try_fb_to_schema(schema).map_err(damaged)?);
    let (columns, choice) = choose(schema.fields())?.project();
    Ok((FileDecoder::new(schema, version).with_projection(columns), choice))
}

/// The messages after the schema.
struct IpcMessages {
    blob: Arc<dyn Blob>,
    len: u64,
    /// The place of the first one.
    first: u64,
    /// The place of each one, if it is a file: dictionaries first.
    blocks: Option<Vec<u64>>,
    /// The place of the next one.
    at: u64,
    passed: usize,
}

/// A message without its body.
struct MessageHead {
    /// Its metadata.
    metadata: Vec<u8>,
    /// Bytes before its body: a prefix and the metadata.
    len: u64,
    body: u64,
}

impl IpcMessages {
    fn begin_stream(
        &mut self,
        choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
    ) -> Result<(FileDecoder, Choice), FetchError> {
        let head = self.head()?.ok_or_else(|| damaged("it has no schema: it is no Arrow file"))?;
        let message = head.message()?;
        let schema = message.header_as_schema().ok_or_else(|| damaged("its first message is no schema"))?;
        let decoder = decoder(schema, message.version(), choose)?;
        self.pass(&head);
        self.first = self.at;
        Ok(decoder)
    }

    fn begin_file(
        &mut self,
        choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
    ) -> Result<(FileDecoder, Choice), FetchError> {
        const CUT: &str = "it has no footer: it was cut short";
        let mut end = [0; 4 + MAGIC.len()];
        let before = self.len.checked_sub(end.len() as u64).ok_or_else(|| damaged(CUT))?;
        self.blob.read_at(before, &mut end)?;
        let (len, magic) = end.split_at(4);
        let len = u32::from_le_bytes(std::array::from_fn(|i| len[i]));
        let start = before.checked_sub(len.into()).filter(|_| magic == MAGIC).ok_or_else(|| damaged(CUT))?;
        let mut footer = vec![0; len as usize];
        self.blob.read_at(start, &mut footer)?;
        let footer = root_as_footer(&footer).map_err(damaged)?;
        let schema = footer.schema().ok_or_else(|| damaged("its footer has no schema"))?;
        let mut blocks = Vec::new();
        for block in [footer.dictionaries(), footer.recordBatches()].into_iter().flatten().flatten() {
            let place = u64::try_from(block.offset()).ok().filter(|&at| at < start);
            blocks.push(place.ok_or_else(|| damaged("its footer names a place outside of it"))?);
        }
        self.blocks = Some(blocks);
        self.rewind();
        decoder(schema, footer.version(), choose)
    }

    /// The head of the next message, or `None` at the end. Memory is taken for no more than the file has.
    fn head(&self) -> Result<Option<MessageHead>, FetchError> {
        const CONTINUES: u32 = u32::MAX;
        let Some(left) = self.len.checked_sub(self.at).filter(|&left| left > 0) else { return Ok(None) };
        let mut start = [0; 8];
        self.blob.read_at(self.at, &mut start[..left.min(8) as usize])?;
        let [first, second] = [0, 4].map(|at: usize| u32::from_le_bytes(std::array::from_fn(|i| start[at + i])));
        let (prefix, metadata) = if first == CONTINUES { (8, second) } else { (4, first) };
        if metadata == 0 && left >= prefix && self.blocks.is_none() {
            return Ok(None);
        }
        let len = prefix + u64::from(metadata);
        if len <= left && i32::try_from(len).is_ok() {
            let mut metadata = vec![0; metadata as usize];
            self.blob.read_at(self.at + prefix, &mut metadata)?;
            let head = MessageHead { metadata, len, body: 0 };
            let body = u64::try_from(head.message()?.bodyLength()).map_err(damaged)?;
            if body <= left - len {
                return Ok(Some(MessageHead { body, ..head }));
            }
        }
        Err(damaged(format!("it ends within the message at byte {}", self.at)))
    }

    /// The whole message. It can be as large as the file, so there is a limit.
    fn read(&self, head: &MessageHead) -> Result<Buffer, FetchError> {
        if head.body > MOST_BATCH {
            let why = format!("a record batch has {} bytes, more than {MOST_BATCH}; write smaller ones", head.body);
            return Err(FetchError::Refused(why));
        }
        let mut bytes = vec![0; (head.len + head.body) as usize];
        self.blob.read_at(self.at, &mut bytes)?;
        Ok(Buffer::from(bytes))
    }

    fn pass(&mut self, head: &MessageHead) {
        self.passed += 1;
        self.at = match &self.blocks {
            Some(blocks) => blocks.get(self.passed).copied().unwrap_or(self.len),
            None => self.at + head.len + head.body,
        };
    }

    fn rewind(&mut self) {
        self.passed = 0;
        self.at = match &self.blocks {
            Some(blocks) => blocks.first().copied().unwrap_or(self.len),
            None => self.first,
        };
    }
}

impl MessageHead {
    fn message(&self) -> Result<Message<'_>, FetchError> {
        root_as_message(&self.metadata).map_err(damaged)
    }

    /// Checks the inflated size that the buffers of a compressed `body` claim, because the library takes memory for it.
    fn check_inflated(&self, body: &[u8]) -> Result<(), FetchError> {
        let message = self.message()?;
        let batch = match message.header_as_dictionary_batch() {
            Some(dictionary) => dictionary.data(),
            None => message.header_as_record_batch(),
        };
        let buffers = batch.filter(|batch| batch.compression().is_some()).and_then(|batch| batch.buffers());
        let mut bytes = 0u64;
        for buffer in buffers.into_iter().flatten() {
            // A buffer begins with its length, or with -1 if it is not compressed.
            let start = usize::try_from(buffer.offset()).ok().and_then(|offset| body.get(offset..)?.first_chunk());
            let claim = start.map_or(0, |start| i64::from_le_bytes(*start));
            bytes = bytes.saturating_add(u64::try_from(claim).unwrap_or(0));
        }
        match bytes {
            bytes if bytes > MOST_BATCH => Err(damaged(format!(
                "a record batch claims to inflate to {bytes} bytes, more than {MOST_BATCH}; write smaller ones"
            ))),
            _ => Ok(()),
        }
    }

    /// The rows of a record batch; `None` for another message.
    fn rows(&self) -> Result<Option<u64>, FetchError> {
        let Some(batch) = self.message()?.header_as_record_batch() else { return Ok(None) };
        u64::try_from(batch.length()).map(Some).map_err(damaged)
    }
}
