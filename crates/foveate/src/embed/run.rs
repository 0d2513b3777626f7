//! A job that is ready to run.

use std::path::PathBuf;
use std::sync::Arc;

use foveate_model::OpenOptions;
use foveate_pipeline::{
    Cancel, Config, FailurePolicy, InputChange, Pipeline, Progress, RunError, RunReport, Update, UpdateSource,
};
use foveate_sink::{Existing, Fold, Layout, RunManifest, SinkError, SinkOptions, StoredRun, StoredState, VectorSink};
use foveate_source::container::ContainerOptions;
use foveate_source::{Extent, Listing, Source, SourceError};

use super::again::is_name_or_limit;
use super::changes_file::ChangesFile;
use super::update::{UpdatePreview, UpdateRun};
use super::{ApartFrom, Backends, EmbedError, OpenedJob, Settings};
use crate::collect::{MemorySink, Sample};

/// Settings that decide whether an input fails, so that trying it again may change them.
const OF_FAILURES: [&str; 3] = ["foveate", "decoder", "sink.first_index"];

impl Settings {
    /// Lists the inputs of this shard, up to the limit. `progress` receives the number found so far.
    ///
    /// # Errors
    /// [`SourceError::Invalid`] also for an output that is one of the inputs, or holds one.
    pub fn list(&self, progress: impl FnMut(u64)) -> Result<Listing, SourceError> {
        let mut apart = ApartFrom::new(&self.output);
        let inputs = self.inputs();
        apart.check_typed(&inputs).map_err(SourceError::Invalid)?;
        let settings = &self.inputs;
        let containers = ContainerOptions {
            max_bytes: settings.max_bytes,
            columns: self.rows.columns.clone(),
            image_column: settings.image_column.clone(),
            id_column: self.rows.id_column.clone(),
            names: settings.names(),
        };
        let mut builder = Listing::builder().inputs(inputs);
        builder = builder.max_bytes(settings.max_bytes).max_listing(self.rows.max_listing);
        builder = builder.containers(Arc::new(crate::backends::containers()), containers);
        builder = builder.stores(Arc::new(crate::backends::stores()), self.store_options());
        if let Some(shard) = self.shard {
            builder = builder.shard(shard.index, shard.count);
        }
        if let Some(limit) = settings.limit {
            builder = builder.limit(limit);
        }
        if self.max_unreadable.is_none() {
            builder = builder.accept_unreadable_folders();
        }
        if let Some(file) = &self.rows.listing {
            builder = builder.kept(file);
        }
        let mut listing = builder.progress(progress).build()?;
        apart.check_listed(&mut listing)?;
        Ok(listing)
    }

    /// Chooses the backends, loads the model, and assembles the job. Writes nothing. `source` is the result of
    /// [`list`](Self::list), or a source of the caller's own.
    pub fn prepare(
        &self,
        source: Box<dyn Source>,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<EmbedRun, EmbedError> {
        let backend = backends.sinks.get(&self.sink_name(&backends.sinks)?)?;
        let options = self.sink_options(source.extent().start)?;
        let run = self.prepare_into(source, backend.open(&options)?, backends, model)?;
        Ok(EmbedRun { output: Some(options), ..run })
    }

    /// Prepares a run of what `update` selects of the inputs that [`list`](Self::list) found. Where no output is, an
    /// update of changes is the run of all inputs.
    ///
    /// The result has the rows of a run of all inputs, in another order: those that the output had come first. It is
    /// there as a whole or not at all, and an interrupted update continues like any run.
    pub fn prepare_update(
        &self,
        listing: Listing,
        update: Update,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<EmbedRun, EmbedError> {
        let sink = self.sink_name(&backends.sinks)?;
        let backend = backends.sinks.get(&sink)?;
        let mut fold = Fold::open(self.sink_options(0)?)?;
        let retries = update == Update::Failures;
        let chosen = self.open(backends, model)?;
        let mut manifest = chosen.manifest(self, &listing);
        let base = fold.base(backend, &manifest, |name| {
            is_name_or_limit(name) || retries && (OF_FAILURES.contains(&name) || name.starts_with("decoder."))
        });
        let Some((base, digest)) = base? else {
            return match update {
                Update::Changes { .. } => {
                    let mut run = self.assemble(chosen, manifest, Box::new(listing), backend.open(fold.options())?)?;
                    run.output = Some(fold.options().clone());
                    run.added_file = self.changes_file.clone();
                    Ok(run)
                }
                Update::Failures => Err(EmbedError::NoOutput(self.output.clone())),
            };
        };
        let source = UpdateSource::new(listing, &base, update, self.max_removed).map_err(Box::new)?;
        let selection = source.selection().to_owned();
        let known = source.known();
        let later = backend.open(&fold.later()?)?;
        let mut run = self.assemble(chosen, manifest.clone(), Box::new(source), later)?;
        run.manifest.fingerprint.insert(RunManifest::UPDATE.to_owned(), digest);
        run.manifest.fingerprint.insert(format!("{}.selection", RunManifest::UPDATE), selection);
        let mut retried_with = None;
        if retries {
            let now = std::mem::replace(&mut manifest, base.manifest.clone().run());
            retried_with = other_settings(&manifest, &now);
        } else if let Some(earlier) = base.manifest.info.get(RunManifest::RETRIED) {
            manifest.info.insert(RunManifest::RETRIED.to_owned(), earlier.clone());
        }
        let published = base.manifest.published(&output_folder(fold.options()));
        let backends = Arc::clone(backends);
        let changes_file = self.changes_file.clone();
        run.update = Some(UpdateRun { backends, sink, fold, manifest, retried_with, known, published, changes_file });
        Ok(run)
    }

    /// Returns true if an update of the output is more than a run of all inputs: the output is complete, and no run
    /// that was interrupted there has to end first.
    ///
    /// # Errors
    /// If the output cannot be read, or an update is being put in place.
    pub fn can_be_updated(&self) -> Result<bool, EmbedError> {
        let options = self.sink_options(0)?;
        let begun = if options.prefix.is_some() { Vec::new() } else { StoredRun::find(&options.output)? };
        let is_begun = begun.iter().any(|run| run.state == StoredState::Unfinished);
        Ok(!is_begun && StoredRun::complete(&options)?.is_some())
    }

    /// Does the same with a sink of the caller's own; `output` and the other output options are ignored.
    pub fn prepare_into(
        &self,
        source: Box<dyn Source>,
        sink: Box<dyn VectorSink>,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<EmbedRun, EmbedError> {
        let chosen = self.open(backends, model)?;
        let manifest = chosen.manifest(self, source.as_ref());
        self.assemble(chosen, manifest, source, sink)
    }

    pub(super) fn assemble(
        &self,
        chosen: OpenedJob,
        manifest: RunManifest,
        source: Box<dyn Source>,
        sink: Box<dyn VectorSink>,
    ) -> Result<EmbedRun, EmbedError> {
        let cache = chosen.run_cache(self)?;
        let seeded = chosen.model.is_seeded();
        let OpenedJob { preprocessors, encoders, .. } = chosen;
        let pipeline = Pipeline { source, preprocessors, encoders, sink, config: Config { cache, ..self.config() } };
        let existing = self.existing;
        Ok(EmbedRun { pipeline, manifest, existing, seeded, output: None, update: None, added_file: None })
    }
}

/// Names the settings of `now` that are others than those of an output's rows; `None` if there are none. The model may
/// have another name, but not other weights.
fn other_settings(output: &RunManifest, now: &RunManifest) -> Option<String> {
    let mut output = output.clone();
    output.fingerprint.retain(|name, _| now.fingerprint.contains_key(name) || name.starts_with("decoder."));
    let mut settings = output.difference(now)?.settings;
    settings.retain(|setting| !setting.starts_with("model:"));
    (!settings.is_empty()).then(|| settings.join(", "))
}

fn output_folder(options: &SinkOptions) -> PathBuf {
    match options.layout {
        Layout::Folder => options.output.clone(),
        Layout::File => options.output.parent().map(PathBuf::from).unwrap_or_default(),
    }
}

/// A job that is ready to run.
pub struct EmbedRun {
    pipeline: Pipeline,
    pub(super) manifest: RunManifest,
    existing: Existing,
    seeded: bool,
    /// `None` for a sink of the caller's own.
    pub(super) output: Option<SinkOptions>,
    pub(super) update: Option<UpdateRun>,
    /// The file of changes of an update whose output is not there yet.
    added_file: Option<PathBuf>,
}

/// Content of an output's place before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputPlace {
    /// Nothing.
    Nothing,
    /// An interrupted run of the same job, which has settled the items below this index.
    Unfinished(u64),
    /// This job's complete output.
    Complete,
    /// An output or an interrupted run that the run would replace.
    Replaced,
}

impl EmbedRun {
    /// Returns the manifest that the output will hold.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// Adds a fact to the manifest that does not affect the vectors, and that resuming does not compare.
    pub fn add_info(&mut self, name: String, value: String) {
        self.manifest.info.insert(name, value);
    }

    /// Returns true if the weights were generated, so that the vectors are meaningless.
    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// Returns the indexes of the run's items, including those of its earlier sessions.
    pub fn inputs(&self) -> Extent {
        self.pipeline.source.extent()
    }

    /// Looks at the output's place as [`Self::run`] does, and leaves an output as it is.
    ///
    /// # Errors
    /// If the place holds what the run would refuse to continue or to replace.
    pub fn found(&mut self) -> Result<OutputPlace, RunError> {
        match &self.output {
            Some(output) if foveate_sink::staging::is_begun(output)? => {}
            _ => return Ok(OutputPlace::Nothing),
        }
        if self.existing == Existing::Overwrite {
            return Ok(OutputPlace::Replaced);
        }
        match self.pipeline.begin(&self.manifest, self.existing) {
            Ok(watermark) => Ok(OutputPlace::Unfinished(watermark.index)),
            Err(RunError::Sink(SinkError::AlreadyComplete(_))) => Ok(OutputPlace::Complete),
            Err(error) => Err(error),
        }
    }

    /// Finds out what the update would do. Reads containers that changed, and writes the file of changes alone.
    ///
    /// # Errors
    /// [`RunError::Config`] if this run is no update.
    pub fn preview(mut self, cancel: &Cancel) -> Result<UpdatePreview, RunError> {
        let Some(update) = self.update else { return Err(RunError::Config("only updates have a preview".to_owned())) };
        update.preview(self.pipeline.source.as_mut(), cancel)
    }

    /// Embeds a random sample of the inputs into memory, to measure the job's speed. Failures do not stop it.
    pub fn rehearse(mut self, size: u64, cancel: &Cancel) -> Result<RunReport, RunError> {
        self.pipeline.source = Box::new(Sample::draw(self.pipeline.source, size, 0)?);
        self.pipeline.sink = Box::new(MemorySink::default());
        self.pipeline.config.failures = FailurePolicy::Unlimited;
        self.pipeline.run(&self.manifest, Existing::Refuse, cancel, &Progress::default())
    }

    /// Runs the job; see [`Pipeline::run`].
    pub fn run(self, cancel: &Cancel, progress: &Progress) -> Result<RunReport, RunError> {
        match self.update {
            Some(update) => update.run(self.pipeline, &self.manifest, cancel, progress),
            None => {
                let report = self.pipeline.run(&self.manifest, self.existing, cancel, progress)?;
                if let (Some(path), Some(output), Some(_)) = (&self.added_file, &self.output, &report.published) {
                    let mut file = ChangesFile::create(path)?;
                    if let Some(inputs) = StoredRun::complete(output)?.map(|run| run.inputs()).transpose()?.flatten() {
                        for record in inputs.read()? {
                            file.push(&record?.id, InputChange::Added)?;
                        }
                    }
                    file.publish()?;
                }
                Ok(report)
            }
        }
    }
}
