//! Shards on their way to the output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use foveate_sink::parts::FileParts;
use foveate_sink::{Existing, Failure, Layout, OutputManifest, RunManifest, SinkError, SinkOptions, Watermark};
use foveate_source::Item;
use foveate_source::container::{MemberWriter, NewMember};

use super::drift::Drift;
use super::options::PackOptions;

/// A shard in progress.
struct Open {
    path: PathBuf,
    writer: Box<dyn MemberWriter>,
    members: u64,
    bytes: u64,
}

/// Destination of images, one after the other.
pub(super) struct Shards {
    parts: FileParts,
    format: String,
    columns: Vec<String>,
    shard_bytes: u64,
    open: Option<Open>,
    /// Every input below was added or has failed.
    settled: Watermark,
}

impl Shards {
    pub(super) fn begin(
        options: &PackOptions,
        fingerprint: BTreeMap<String, String>,
        existing: Existing,
    ) -> Result<Self, SinkError> {
        let output = &options.job.output;
        let place =
            SinkOptions { layout: Layout::Folder, part_items: u64::MAX, packed: true, ..SinkOptions::new(output) };
        let settings = RunManifest { fingerprint, ..RunManifest::default() };
        let (parts, settled) = FileParts::begin(&place, settings, existing, &options.format)?;
        Ok(Self {
            parts,
            format: options.format.clone(),
            columns: options.job.rows.columns.clone(),
            shard_bytes: options.shard_bytes,
            open: None,
            settled,
        })
    }

    /// Every input below was added or has failed.
    pub(super) fn settled(&self) -> Watermark {
        self.settled
    }

    pub(super) fn add(&mut self, item: &Item, bytes: &[u8], extension: &str) -> Result<(), SinkError> {
        let len = bytes.len() as u64;
        if self.open.as_ref().is_some_and(|open| open.bytes + len > self.shard_bytes) {
            self.close()?;
        }
        let mut open = self.open.take().map_or_else(|| self.next(), Ok)?;
        let key = format!("{:09}", item.index);
        // Files have no columns.
        let nulls = vec![None; self.columns.len()];
        let columns = if item.columns.is_empty() { &nulls } else { &item.columns[..] };
        let member = NewMember { key: &key, extension, id: &item.id, bytes, columns };
        open.writer.add(&member).map_err(SinkError::io("write", &open.path))?;
        (open.members, open.bytes) = (open.members + 1, open.bytes + len);
        self.open = Some(open);
        Ok(())
    }

    pub(super) fn fail(&mut self, failure: &Failure) -> Result<(), SinkError> {
        self.parts.fail(failure)
    }

    /// Notes that this item was added or has failed, and so have all before it.
    pub(super) fn settle(&mut self, index: u64, place: u64) {
        self.settled = Watermark { index: index + 1, place };
    }

    /// Completes the shard in progress. Everything that was added or has failed is durable then.
    pub(super) fn close(&mut self) -> Result<(), SinkError> {
        let mut members = None;
        if let Some(open) = self.open.take() {
            open.writer.finish().map_err(SinkError::io("write", &open.path))?;
            members = Some(open.members);
        }
        self.parts.seal(members, self.settled)
    }

    /// Notes the drift for the manifest.
    pub(super) fn drift(&mut self, drift: Option<Drift>) {
        for (name, value) in drift.iter().flat_map(Drift::facts) {
            self.parts.note(name, value);
        }
    }

    /// Publishes shards, failures and manifest.
    pub(super) fn finish(self) -> Result<(OutputManifest, Option<String>), SinkError> {
        self.parts.finish()
    }

    /// Begins the next shard.
    fn next(&self) -> Result<Open, SinkError> {
        let path = self.parts.next_file();
        let file = File::create(&path).map_err(SinkError::io("create", &path))?;
        let formats = crate::backends::containers();
        let format = formats.get(&self.format).ok();
        let created = format.and_then(|format| format.create(Box::new(BufWriter::new(file)), &self.columns));
        let created = created.ok_or_else(|| SinkError::Unsupported(format!("shards of {}", self.format)))?;
        let writer = created.map_err(SinkError::io("write", &path))?;
        Ok(Open { path, writer, members: 0, bytes: 0 })
    }
}
