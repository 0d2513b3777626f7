//! Updates: only what an output does not have yet, folded into it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use foveate_core::lock;
use foveate_pipeline::{Cancel, Changes, EarlierRows, KnownInputs, Pipeline, Progress, Recall, RunError, RunReport};
use foveate_sink::{Existing, Fold, Published, RunManifest, SinkError, StoredRun};
use foveate_source::{Delivery, Source};

use super::Backends;
use super::changes_file::ChangesFile;

/// The part of an update that changes its run's output.
pub(super) struct UpdateRun {
    pub(super) backends: Arc<Backends>,
    pub(super) sink: String,
    pub(super) fold: Fold,
    /// Describes the result.
    pub(super) manifest: RunManifest,
    /// Settings that are others than the result's.
    pub(super) retried_with: Option<String>,
    pub(super) known: Arc<Mutex<KnownInputs>>,
    /// The output as it is.
    pub(super) published: Published,
    /// The file of changed inputs.
    pub(super) changes_file: Option<PathBuf>,
}

/// The changes that an update would make.
#[derive(Debug)]
pub struct UpdatePreview {
    /// Its findings.
    pub changes: Changes,
    /// The reason that it would stop instead.
    pub refusal: Option<RunError>,
}

impl UpdateRun {
    /// Embeds what the pipeline's source selects, as the run that `manifest` describes, and folds it in.
    pub(super) fn run(
        mut self,
        mut pipeline: Pipeline,
        manifest: &RunManifest,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<RunReport, RunError> {
        let backends = Arc::clone(&self.backends);
        let backend = backends.sinks.get(&self.sink).map_err(|error| SinkError::Unsupported(error.to_string()))?;
        match pipeline.source.extent().end {
            Some(_) => lock(&self.known).check()?,
            // Containers' members are known when they are read.
            None => lock(&self.known).check_folders()?,
        }
        if pipeline.source.extent().count() == Some(0) && self.changes().is_empty() {
            self.fold.clear()?;
            self.write_changes(None)?.map_or(Ok(()), ChangesFile::publish)?;
            return Ok(RunReport::without_items(self.changes(), self.published));
        }
        let mut earlier = EarlierRows::new(&self.fold.scratch())?;
        let settled = match self.fold.make_room(backend, manifest, &mut |record, row| earlier.add(record, row))? {
            Some(later) if has_all(&later, pipeline.source.as_mut())? => true,
            Some(later) => {
                self.fold.discard(backend, later, &mut |record, row| earlier.add(record, row))?;
                pipeline.source.rewind()?;
                false
            }
            None => false,
        };
        let mut report = if settled {
            RunReport::without_items(self.changes(), self.published.clone())
        } else {
            self.fold.rows_of(backend, &|record| lock(&self.known).may_return(record), &mut |record, row| {
                earlier.add(record, row)
            })?;
            pipeline.config.earlier = (!earlier.is_empty()).then(|| Arc::new(earlier) as Arc<dyn Recall>);
            pipeline.run(manifest, Existing::Resume, cancel, progress)?
        };
        if report.published.is_none() {
            return Ok(report);
        }
        let later = self.fold.complete_later()?;
        if let Some(later) = &later {
            lock(&self.known).learn(later)?;
        }
        lock(&self.known).check()?;
        if let (Some(settings), Some(later)) = (&self.retried_with, &later) {
            let rows = later.manifest.rows;
            note_retried(&mut self.manifest, rows, settings);
        }
        let changes_file = self.write_changes(later.as_ref())?;
        let changes = self.changes();
        let published = if changes.is_empty() {
            self.fold.clear()?;
            self.published
        } else {
            let known = &self.known;
            self.fold
                .run(backend, &self.manifest, &|record| lock(known).keep(record), &|record| lock(known).take(record))?
        };
        changes_file.map_or(Ok(()), ChangesFile::publish)?;
        report.changes = Some(changes);
        report.published = Some(published);
        Ok(report)
    }

    /// Reads the source to its end without embedding anything. Writes the file of changes, and nothing else.
    pub(super) fn preview(self, source: &mut dyn Source, cancel: &Cancel) -> Result<UpdatePreview, RunError> {
        let mut file = self.changes_file.as_deref().map(ChangesFile::create).transpose()?;
        while let Some(Delivery { item, .. }) = source.deliver()? {
            if cancel.is_cancelled() {
                return Ok(UpdatePreview { changes: self.changes(), refusal: None });
            }
            if let Some(file) = &mut file {
                file.push_embedded(&item.id, &lock(&self.known))?;
            }
        }
        let known = lock(&self.known);
        if let Some(mut file) = file {
            file.push_others(&known)?;
            file.publish()?;
        }
        Ok(UpdatePreview { changes: known.changes(), refusal: known.check().err() })
    }

    /// Writes which inputs changed to a file that is not published yet.
    fn write_changes(&self, later: Option<&StoredRun>) -> Result<Option<ChangesFile>, RunError> {
        let Some(path) = &self.changes_file else { return Ok(None) };
        let known = lock(&self.known);
        let mut file = ChangesFile::create(path)?;
        if let Some(embedded) = later.map(StoredRun::inputs).transpose()?.flatten() {
            for record in embedded.read()? {
                file.push_embedded(&record?.id, &known)?;
            }
        }
        file.push_others(&known)?;
        Ok(Some(file))
    }

    fn changes(&self) -> Changes {
        lock(&self.known).changes()
    }
}

/// Notes how many rows were made with other settings, after those of earlier retries.
fn note_retried(manifest: &mut RunManifest, rows: u64, settings: &str) {
    if rows > 0 {
        let note = format!("{rows} {} with {settings}", if rows == 1 { "row" } else { "rows" });
        let notes = manifest.info.entry(RunManifest::RETRIED.to_owned()).or_default();
        let between = if notes.is_empty() { "" } else { "; " };
        *notes = format!("{notes}{between}{note}");
    }
}

/// Returns true if a run has exactly the items of `source`, which is at its end then.
fn has_all(run: &StoredRun, source: &mut dyn Source) -> Result<bool, RunError> {
    let mut fetch = source.open_fetch()?;
    source.rewind()?;
    for record in run.inputs()?.map(|inputs| inputs.read()).transpose()?.into_iter().flatten() {
        let record = record?;
        let Some(Delivery { item, .. }) = source.deliver()? else { return Ok(false) };
        let stamp = foveate_pipeline::stamp_of(fetch.as_mut(), &item);
        // What could not be read has nothing to compare, or what it had.
        let is_same = record.stamp.is_same(&stamp) || record.xxh3.is_none() && record.stamp == stamp;
        if item.id != record.id || !is_same {
            return Ok(false);
        }
    }
    Ok(source.deliver()?.is_none())
}
