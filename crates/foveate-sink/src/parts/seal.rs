//! The way of rows, failures and inputs into a run's parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use super::frame::FrameKind;
use super::run::{LocalWork, OpenRun};
use super::segment::{NewSegment, PartRows, Segment, SegmentEnd, sealed_name};
use super::{PartFiles, PartFormat, StoredPart};
use crate::commit::PlannedMove;
use crate::failures::push_failure;
use crate::publish::remove_if_there;
use crate::site::name_of;
use crate::{
    Failure, InputRecord, Layout, ManifestFile, ManifestPart, Rows, SinkError, Watermark, publish, sidecar, sync_file,
    sync_folder,
};

impl OpenRun {
    pub(super) fn take_rows(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.taken.check_rows(rows, self.options.columns.len())?;
        let dim = self.claim.settings.dim;
        let mut start = 0;
        while start < rows.index.len() {
            let part = self.part_of(rows.index[start]);
            let end = self.part_end(part);
            let count = rows.index[start..].partition_point(|&index| index < end || end == u64::MAX);
            self.steps.step("append rows");
            let block = PartRows { rows, range: start..start + count, dim, element: self.options.element };
            let mut scratch = std::mem::take(&mut self.scratch);
            self.writer(part)?.rows(block, &mut scratch)?;
            self.scratch = scratch;
            start += count;
        }
        self.taken.rows(rows);
        Ok(())
    }

    pub(super) fn take_failures(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.taken.check_failures(failures)?;
        let mut line = String::new();
        for Failure { index, id, stage, reason, bytes } in failures {
            line.clear();
            push_failure(&mut line, id, stage.name(), reason, *bytes);
            self.writer(self.part_of(*index))?.failures(&line, 1)?;
        }
        self.failed += failures.len() as u64;
        self.taken.failures(failures);
        Ok(())
    }

    pub(super) fn take_inputs(&mut self, inputs: &[InputRecord]) -> Result<(), SinkError> {
        let mut line = String::new();
        for input in inputs {
            line.clear();
            input.push_line(&mut line);
            let writer = self.writer(self.part_of(self.next_input))?;
            writer.inputs(&line)?;
            writer.end.place = input.place;
            self.next_input += 1;
        }
        Ok(())
    }

    /// Publishes what was taken since the last commit, and seals the parts that the watermark has passed.
    pub(super) fn commit(&mut self, watermark: Watermark, format: &mut dyn PartFormat) -> Result<(), SinkError> {
        self.taken.check_watermark(watermark.index)?;
        if !self.taken.is_news(watermark.index) {
            return Ok(());
        }
        if watermark.index > self.watermark.index {
            // The last segment ends at the watermark.
            self.writer(self.part_of(watermark.index - 1))?;
        }
        let mut start = self.watermark.index;
        for (part, mut writer) in std::mem::take(&mut self.open) {
            let end = self.part_end(part).min(watermark.index);
            let place = if end == watermark.index { watermark.place } else { writer.end.place };
            writer.end = SegmentEnd { run: self.id.clone(), start, end, place, ..writer.end };
            self.steps.step("publish segment");
            let segment = self.publish(writer, &format!("part-{part:05}-{start:012}.seg"))?;
            self.pending.push(segment);
            start = end;
        }
        sync_folder(self.local.folder())?;
        self.settled(watermark);
        self.seal_complete(format)
    }

    /// Everything below the watermark is durable.
    fn settled(&mut self, watermark: Watermark) {
        self.watermark = watermark;
        self.next_input = watermark.index;
        self.taken.commit(watermark.index);
    }

    /// Encodes all parts that the watermark has passed.
    pub(super) fn seal_complete(&mut self, format: &mut dyn PartFormat) -> Result<(), SinkError> {
        if self.upload.0.as_ref().is_some_and(JoinHandle::is_finished) {
            self.upload.settle()?;
        }
        while let Some(first) = self.pending.first() {
            let part = first.end.part;
            if self.part_end(part) > self.watermark.index {
                break;
            }
            self.seal(part, format)?;
        }
        Ok(())
    }

    /// Seals the last part, which need not be full.
    pub(super) fn seal_rest(&mut self, format: &mut dyn PartFormat) -> Result<(), SinkError> {
        while let Some(first) = self.pending.first() {
            self.seal(first.end.part, format)?;
        }
        Ok(())
    }

    /// Encodes a part, and replaces its segments by one that has the part's files.
    pub(super) fn seal(&mut self, part: u64, format: &mut dyn PartFormat) -> Result<(), SinkError> {
        let count = self.pending.iter().take_while(|segment| segment.end.part == part).count();
        let segments: Vec<Segment> = self.pending.drain(..count).collect();
        let rows = segments.iter().map(|segment| segment.end.rows).sum();
        let mut sealed = ManifestPart { part, rows, files: Vec::new() };
        // Without segments, it is the only part of an output without rows.
        if rows > 0 || segments.is_empty() {
            self.steps.step("encode part");
            sealed.files = self.encode(part, rows, &segments, format)?;
        }
        let first = segments.first().map_or(self.watermark.index, |first| first.end.start);
        let last = segments.last().map(|last| last.end.clone()).unwrap_or_default();
        let mut writer = NewSegment::create(self.local.folder(), part)?;
        for segment in &segments {
            segment.lines(FrameKind::Failures, &mut |lines| writer.failures(text(segment, lines)?, 0))?;
            segment.lines(FrameKind::Inputs, &mut |lines| writer.inputs(text(segment, lines)?))?;
        }
        writer.end = SegmentEnd {
            run: self.id.clone(),
            part,
            start: first,
            end: last.end.max(first),
            place: last.place,
            rows: 0,
            failed: segments.iter().map(|segment| segment.end.failed).sum(),
            sealed: Some(sealed),
        };
        self.publish_sealed(writer)?;
        for segment in segments {
            self.steps.step("remove segment");
            remove_if_there(&segment.path)?;
        }
        Ok(())
    }

    /// Records a complete part: from then on it has its files.
    fn publish_sealed(&mut self, writer: NewSegment) -> Result<(), SinkError> {
        let name = sealed_name(writer.end.part);
        self.steps.step("publish sealed part");
        let segment = self.publish(writer, &name)?;
        sync_folder(self.local.folder())?;
        if let LocalWork::Temporary(folder) = &self.local {
            let files = segment.end.sealed.iter().flat_map(|part| &part.files).map(|file| file.name.clone());
            let files: Vec<PathBuf> = files.map(|name| folder.path().join(name)).filter(|path| path.exists()).collect();
            let output = self.site.output.clone();
            let work = self.site.work.clone();
            let path = segment.path.clone();
            self.upload.settle()?;
            self.upload.0 = Some(thread::spawn(move || {
                for file in files {
                    output.take(&file, &name_of(&file))?;
                }
                let record = fs::read(&path).map_err(SinkError::io("read", &path))?;
                work.create(&name, record.into())
            }));
        }
        self.sealed.push(segment);
        Ok(())
    }

    /// Encodes rows to a part's files in the work in progress.
    fn encode(
        &mut self,
        part: u64,
        rows: u64,
        segments: &[Segment],
        format: &mut dyn PartFormat,
    ) -> Result<Vec<ManifestFile>, SinkError> {
        let vectors = self.local.folder().join(self.site.part_name(part, format.extension()));
        let sidecars: Vec<PathBuf> = format.sidecars().iter().map(|name| sidecar(&vectors, name)).collect();
        let staged =
            PartFiles { vectors: temporary(&vectors), sidecars: sidecars.iter().map(|path| temporary(path)).collect() };
        let stored = StoredPart {
            segments,
            rows,
            dim: self.claim.settings.dim,
            element: self.options.element,
            columns: &self.options.columns,
        };
        let written: Vec<&PathBuf> = std::iter::once(&staged.vectors).chain(&staged.sidecars).collect();
        for path in &written {
            remove_if_there(path)?;
        }
        format.encode(&stored, &self.claim.settings, &staged)?;
        let names = std::iter::once(&vectors).chain(&sidecars);
        written.into_iter().zip(names).map(|(from, to)| self.take_file(from, to)).collect()
    }

    /// Gives a complete file its name in the work in progress.
    fn take_file(&mut self, from: &Path, to: &Path) -> Result<ManifestFile, SinkError> {
        sync_file(from)?;
        let file = ManifestFile::describe(from, to)?;
        self.steps.step("publish part");
        publish(from, to)?;
        Ok(file)
    }

    pub(super) fn adopt(
        &mut self,
        part: &ManifestPart,
        is_later: bool,
        format: &mut dyn PartFormat,
    ) -> Result<(), SinkError> {
        if !self.open.is_empty() || self.adopting.is_some() || self.site.layout == Layout::File {
            return Err(SinkError::Misuse("a part is adopted between commits, in a folder".to_owned()));
        }
        self.seal_rest(format)?;
        let mut adopted = part.clone();
        if is_later {
            adopted.part = self.part_of(self.watermark.index);
            let old = self.site.part_name(part.part, "");
            let new = self.site.part_name(adopted.part, "");
            for file in &mut adopted.files {
                let rest = file.name.strip_prefix(&old).unwrap_or_default();
                let to = format!("{new}{rest}");
                let from = std::mem::replace(&mut file.name, to.clone());
                self.adopted.push(PlannedMove { is_later, from, to });
            }
        }
        let number = adopted.part;
        self.adopting = Some(number);
        self.writer(number)?.end.sealed = Some(adopted);
        Ok(())
    }

    /// Seals the part that was adopted, with the records that came since.
    pub(super) fn commit_adopted(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        if let Some((_, mut writer)) = self.open.pop_first() {
            let start = self.watermark.index;
            let Watermark { index: end, place } = watermark;
            writer.end = SegmentEnd { run: self.id.clone(), start, end, place, ..writer.end };
            self.publish_sealed(writer)?;
        }
        self.settled(watermark);
        self.adopting = None;
        Ok(())
    }

    /// The path to which the caller writes the file of the next part.
    pub(super) fn next_file(&self, extension: &str) -> PathBuf {
        temporary(&self.local.folder().join(self.site.part_name(self.origin().1, extension)))
    }

    /// Makes a part of a file that the caller has written to [`Self::next_file`], or of failures alone.
    pub(super) fn seal_file(&mut self, file: Option<(&str, u64)>, watermark: Watermark) -> Result<(), SinkError> {
        let part = self.origin().1;
        let mut sealed = ManifestPart { part, ..ManifestPart::default() };
        if let Some((extension, rows)) = file {
            let to = self.local.folder().join(self.site.part_name(part, extension));
            let written = self.take_file(&temporary(&to), &to)?;
            sealed = ManifestPart { part, rows, files: vec![written] };
        } else if watermark.index == self.watermark.index {
            return Ok(());
        }
        self.writer(part)?.end.sealed = Some(sealed);
        self.commit_adopted(watermark)
    }
}

fn temporary(path: &Path) -> PathBuf {
    path.with_file_name(format!("new-{}", name_of(path)))
}

fn text<'a>(segment: &Segment, lines: &'a [u8]) -> Result<&'a str, SinkError> {
    std::str::from_utf8(lines).map_err(|error| SinkError::damaged(&segment.path, error))
}
