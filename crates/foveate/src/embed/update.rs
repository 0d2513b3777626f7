//! Updates: only what an output does not have yet, folded into it.

use std::sync::{Arc, Mutex};

use foveate_core::lock;
use foveate_pipeline::{Cancel, Changes, KnownInputs, Pipeline, Progress, RunError, RunReport};
use foveate_sink::{Existing, Fold, InputRecord, Published, RunManifest, SinkError, StoredRun};
use foveate_source::{Delivery, Source};

use super::Backends;

/// What an update does with its run's output.
pub(super) struct UpdateRun {
    pub(super) backends: Arc<Backends>,
    pub(super) sink: String,
    pub(super) fold: Fold,
    /// Describes the result.
    pub(super) manifest: RunManifest,
    pub(super) known: Arc<Mutex<KnownInputs>>,
    /// The output as it is.
    pub(super) published: Published,
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
        if pipeline.source.extent().count() == Some(0) && self.changes().is_empty() {
            self.fold.discard()?;
            return Ok(RunReport::without_items(self.changes(), self.published));
        }
        let settled = match self.fold.make_room(backend, manifest)? {
            Some(later) if has_all(&later, pipeline.source.as_mut())? => true,
            Some(_) => {
                self.fold.discard()?;
                pipeline.source.rewind()?;
                false
            }
            None => false,
        };
        let mut report = match settled {
            true => RunReport::without_items(self.changes(), self.published.clone()),
            false => pipeline.run(manifest, Existing::Resume, cancel, progress)?,
        };
        if report.published.is_none() {
            return Ok(report);
        }
        if let Some(later) = StoredRun::complete(&self.fold.later())? {
            lock(&self.known).learn(&later)?;
        }
        lock(&self.known).check()?;
        let changes = self.changes();
        let published = if changes.is_empty() {
            self.fold.discard()?;
            self.published
        } else {
            let known = Arc::clone(&self.known);
            let keep = |record: &InputRecord| lock(&known).keep(record);
            let take = |record: &InputRecord| lock(&known).take(record);
            self.fold.run(backend, &self.manifest, &keep, &take)?
        };
        (report.changes, report.published) = (Some(changes), Some(published));
        Ok(report)
    }

    fn changes(&self) -> Changes {
        lock(&self.known).changes()
    }
}

/// Returns true if a run has exactly the items of `source`, which is at its end then.
fn has_all(run: &StoredRun, source: &mut dyn Source) -> Result<bool, RunError> {
    let mut fetch = source.open_fetch()?;
    source.rewind()?;
    for record in run.inputs()?.map(|inputs| inputs.read()).transpose()?.into_iter().flatten() {
        let record = record?;
        let Some(Delivery { item, .. }) = source.deliver()? else { return Ok(false) };
        if item.id != record.id || foveate_pipeline::stamp_of(fetch.as_mut(), &item) != record.stamp {
            return Ok(false);
        }
    }
    Ok(source.deliver()?.is_none())
}
