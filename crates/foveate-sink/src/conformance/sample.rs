//! The suite's job.

use std::fs;

use foveate_core::Stage;

use super::subject::Stored;
use crate::{
    ContentId, Existing, Failure, InputRecord, Published, Rows, RunManifest, SinkError, Stamp, VectorSink, Watermark,
};

pub(super) const DIM: usize = 3;

/// The division of a job into calls.
#[derive(Clone, Copy)]
pub(super) struct CallSizes {
    /// Outcomes per round.
    pub(super) rows: usize,
    /// Rounds per commit.
    pub(super) commit_every: usize,
}

/// Parts are not of this size.
pub(super) const USUAL: CallSizes = CallSizes { rows: 4, commit_every: 1 };
pub(super) const SMALL: CallSizes = CallSizes { rows: 2, commit_every: 1 };

/// Outcomes that are delivered together.
pub(super) struct SampleRound {
    pub(super) from: u64,
    pub(super) to: u64,
    /// They are committed, with those before.
    pub(super) commits: bool,
}

/// A run with every kind of outcome: parts that are full, mixed, and without rows.
#[derive(Clone)]
pub(super) struct SampleRun {
    pub(super) manifest: RunManifest,
    pub(super) first: u64,
    /// The id of each item, and whether it gets a vector.
    pub(super) outcomes: Vec<(String, bool)>,
    /// The number of [`COLUMNS`](super::COLUMNS) that each item carries along.
    pub(super) columns: usize,
}

impl SampleRun {
    pub(super) fn new() -> Self {
        let awkward =
            ["plain.jpg", "a,b.jpg", "say \"hi\".jpg", "two\nlines.jpg", "żółw 🐢.jpg", " blanks ", "cr\r\n,"];
        let failed = [3, 10, 11, 12, 13, 14, 21];
        let outcomes = (0..24).map(|i| {
            let id = awkward.get(i).map_or_else(|| format!("photos/{i:04}.jpg"), |&id| id.to_owned());
            (id, !failed.contains(&i))
        });
        let fingerprint = [("model", "tiny"), ("recipe", "hf")];
        let manifest = RunManifest {
            dim: DIM,
            fingerprint: fingerprint.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            info: [("version".to_owned(), "0.1.0".to_owned())].into(),
        };
        Self { manifest, first: 0, outcomes: outcomes.collect(), columns: 0 }
    }

    /// The same inputs for another model, which is another job.
    pub(super) fn of_model(model: &str) -> Self {
        let mut job = Self::new();
        job.manifest.fingerprint.insert("model".into(), model.into());
        job
    }

    pub(super) fn end(&self) -> u64 {
        self.first + self.outcomes.len() as u64
    }

    fn vector(index: u64) -> Vec<f32> {
        (0..DIM as u64).map(|c| (index * 10 + c) as f32 * 0.37 - 4.0).collect()
    }

    /// Values of every kind: null, empty, long, and with characters that formats escape.
    pub(super) fn values(&self, index: u64) -> Vec<Option<String>> {
        let values = (0..self.columns as u64).map(|column| match (index + column) % 5 {
            0 => None,
            1 => Some(String::new()),
            2 => Some("a long caption ".repeat(20)),
            _ => Some(format!("żółw,\n\"{index}\"\0{column}")),
        });
        values.collect()
    }

    /// A source's place after the items below `index`.
    pub(super) fn watermark(&self, index: u64) -> Watermark {
        Watermark { index, place: if index == self.first { 0 } else { index << 32 | 7 } }
    }

    /// The items below `end` that get a vector, or those that do not.
    pub(super) fn items(&self, from: u64, end: u64, stored: bool) -> impl Iterator<Item = (u64, &String)> {
        let items = (self.first..end).zip(&self.outcomes).filter(move |(_, (_, is_stored))| *is_stored == stored);
        items.filter(move |(index, _)| *index >= from).map(|(index, (id, _))| (index, id))
    }

    pub(super) fn rows(&self) -> Stored {
        self.items(0, self.end(), true).map(|(index, id)| (id.clone(), Self::vector(index))).collect()
    }

    pub(super) fn failures(&self, end: u64) -> u64 {
        self.items(0, end, false).count() as u64
    }

    /// The rounds that deliver the outcomes from `from` on.
    pub(super) fn rounds(&self, from: u64, sizes: CallSizes) -> Vec<SampleRound> {
        let mut rounds = Vec::new();
        for (number, from) in (1..).zip((from..self.end()).step_by(sizes.rows)) {
            let to = self.end().min(from + sizes.rows as u64);
            rounds.push(SampleRound { from, to, commits: number % sizes.commit_every == 0 || to == self.end() });
        }
        rounds
    }

    pub(super) fn take(&self, sink: &mut dyn VectorSink, rounds: &[SampleRound]) -> Result<(), SinkError> {
        for &SampleRound { from, to, commits } in rounds {
            self.append(sink, from, to)?;
            sink.record(&self.inputs(from, to))?;
            self.fail(sink, from, to)?;
            if commits {
                sink.commit(self.watermark(to))?;
            }
        }
        Ok(())
    }

    pub(super) fn inputs(&self, from: u64, to: u64) -> Vec<InputRecord> {
        let records = (from..to).map(|index| InputRecord {
            id: self.outcomes[(index - self.first) as usize].0.clone(),
            stamp: Stamp { bytes: Some(index), modified_ns: Some(-1), etag: Some(!index) },
            xxh3: index.is_multiple_of(2).then_some(index),
            content: index.is_multiple_of(2).then(|| ContentId::of(&index.to_le_bytes())),
            place: self.watermark(index + 1).place,
        });
        records.collect()
    }

    pub(super) fn append(&self, sink: &mut dyn VectorSink, from: u64, to: u64) -> Result<(), SinkError> {
        let (index, id): (Vec<u64>, Vec<String>) =
            self.items(from, to, true).map(|(index, id)| (index, id.clone())).unzip();
        let vectors: Vec<f32> = index.iter().flat_map(|&index| Self::vector(index)).collect();
        let width: Vec<u32> = index.iter().map(|&index| 100 + index as u32).collect();
        let height: Vec<u32> = index.iter().map(|&index| 200 + index as u32).collect();
        let xxh3: Vec<u64> = index.iter().map(|&index| u64::MAX - index).collect();
        let columns: Vec<_> = index.iter().map(|&index| self.values(index).into_boxed_slice()).collect();
        sink.append(&Rows {
            index: &index,
            id: &id,
            vectors: &vectors,
            width: &width,
            height: &height,
            xxh3: &xxh3,
            columns: &columns,
        })
    }

    pub(super) fn fail(&self, sink: &mut dyn VectorSink, from: u64, to: u64) -> Result<(), SinkError> {
        let failures = self.items(from, to, false).map(|(index, id)| Failure {
            index,
            id: id.clone(),
            stage: Stage::Decode,
            reason: format!("broken, \"badly\" ({index})"),
            bytes: index.is_multiple_of(2).then_some(index),
        });
        sink.fail(&failures.collect::<Vec<_>>())
    }

    /// Begins, delivers the missing outcomes and finishes.
    pub(super) fn finish(
        &self,
        mut sink: Box<dyn VectorSink>,
        existing: Existing,
        sizes: CallSizes,
    ) -> Result<Published, SinkError> {
        let found = sink.begin(&self.manifest, existing)?;
        assert_eq!(found, self.watermark(found.index), "the place that was committed with the index");
        self.take(&mut *sink, &self.rounds(found.index, sizes))?;
        sink.finish()
    }

    /// Compares the published record of failures with the job's.
    pub(super) fn check_failures(&self, published: &Published) {
        let mut files = published.files.iter();
        let failures = files.find(|file| file.file_name().unwrap().to_string_lossy().contains("failures"));
        let text = fs::read(failures.expect("a failures file is always published")).unwrap();
        let mut lines = csv::Reader::from_reader(&text[..]);
        assert_eq!(lines.headers().unwrap(), vec!["id", "stage", "reason", "bytes"]);
        let found: Vec<[String; 4]> = lines.deserialize().map(Result::unwrap).collect();
        let expected = self.items(0, self.end(), false).map(|(index, id)| {
            let bytes = if index.is_multiple_of(2) { index.to_string() } else { String::new() };
            [id.clone(), "decode".into(), format!("broken, \"badly\" ({index})"), bytes]
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
