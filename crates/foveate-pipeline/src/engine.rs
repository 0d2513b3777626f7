use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::lane::{Lane, batch_memory};
use foveate_core::Stage;
use foveate_encode::Encoder;
use foveate_preprocess::PreprocessorOpener;
use foveate_sink::{Existing, RunManifest, VectorSink, Watermark};
use foveate_source::{Extent, Source};

use crate::flow::{Passed, RunContext};
use crate::recall::Contents;
use crate::report::stage_reports;
use crate::stages::{self, BatchWriter, Progress};
use crate::{Cancel, Config, RunError, RunReport, changed_inputs};

/// A run's stages, one implementation each. The engine knows them only by their traits.
pub struct Pipeline {
    /// The items.
    pub source: Box<dyn Source>,
    /// Makes a preprocessor for each worker.
    pub preprocessors: PreprocessorOpener,
    /// The model, once for each device that encodes batches. All of them return the same vectors.
    pub encoders: Vec<Box<dyn Encoder>>,
    /// The output.
    pub sink: Box<dyn VectorSink>,
    /// The run's settings.
    pub config: Config,
}

impl Pipeline {
    /// Begins the output, or finds how far an interrupted run came.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), changed inputs of a complete output included.
    pub fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, RunError> {
        self.sink
            .begin(manifest, existing)
            .or_else(|error| Err(changed_inputs::explain(error, self.source.as_mut(), self.config.by_content)?.into()))
    }

    /// Runs to the end of the source, or until cancelled. Continues an interrupted run when `existing` allows it.
    ///
    /// Every item of the source ends as one row or one failure of the sink, in the source's order. The result depends
    /// neither on the number of workers nor on the number of interruptions.
    pub fn run(
        mut self,
        manifest: &RunManifest,
        existing: Existing,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<RunReport, RunError> {
        self.check()?;
        let done = self.begin(manifest, existing)?;
        let extent = self.source.extent();
        let first = done.index.max(extent.start);
        self.source.seek(first, done.place)?;

        let profiler = stages::profiler(self.config.trace.clone());
        let started = Instant::now();
        let contents = Contents::new(
            self.config.recent_bytes,
            self.config.earlier.clone(),
            self.config.cache.clone(),
            &self.encoders,
        );
        let contents = contents.as_ref();
        let encoders = std::mem::take(&mut self.encoders);
        let mut lanes: Vec<_> = encoders.into_iter().map(|encoder| Lane::new(encoder, self.config.normalize)).collect();
        let depths = lanes.iter().map(Lane::depth).sum();
        let memory = batch_memory(&mut lanes, self.preprocessors.granularity());
        let sink = self.sink.as_mut();
        let mut writer = BatchWriter::new(
            sink,
            &self.config,
            contents,
            &profiler,
            progress,
            extent.start,
            Watermark { index: first, ..done },
        )?;
        let config = &self.config;
        let preprocessors = &self.preprocessors;
        let run = RunContext { config, preprocessors, contents, profiler: &profiler, progress, cancel, depths, memory };
        let outcome = run.to_the_end(self.source.as_mut(), first, &mut lanes, &mut writer);
        // Batches finished before a fault are kept, unless the sink caused the fault.
        let committed = match &outcome {
            Err(RunError::Sink(_)) => Ok(()),
            _ => writer.commit(),
        };
        let Passed { queues, end } = outcome?;
        committed?;

        let rows = writer.rows;
        let failures = writer.failures;
        let settled = writer.committed();
        let recalled = writer.recalled;
        let failure_kinds = writer.failure_kinds;
        let wall = started.elapsed();
        let published = if end == Some(settled) {
            let published = self.sink.finish()?;
            check_counts(settled - extent.start, published.rows, published.failures)?;
            Some(published)
        } else if cancel.is_cancelled() {
            None
        } else {
            return Err(RunError::Accounting(format!("the run ended at item {settled}; the source's end is {end:?}")));
        };
        let mut totals = profiler.totals();
        let encode_parts = totals.split_off(Stage::ALL.len());
        Ok(RunReport {
            inputs: Extent { end: end.or(extent.end), ..extent }.count(),
            resumed: first - extent.start,
            rows,
            failures,
            failure_kinds,
            recalled,
            clipped: progress.clipped.load(Relaxed),
            settled: settled - extent.start,
            bytes: progress.bytes.load(Relaxed),
            wall,
            stages: stage_reports(totals, |stage| threads_of(stage, &self.config, lanes.len()), wall),
            encode_parts,
            queues,
            changes: None,
            published,
        })
    }

    fn check(&self) -> Result<(), RunError> {
        let config = &self.config;
        let Some(first) = self.encoders.first() else {
            return Err(RunError::Config("at least one encoder is needed".to_owned()));
        };
        let most = self.encoders.iter().map(|encoder| encoder.spec().max_batch).min().unwrap_or(0);
        if config.batch == 0 || config.batch > most {
            let problem = format!("batch must be 1 to {most} for this encoder, not {}", config.batch);
            return Err(RunError::Config(problem));
        }
        if config.workers > 0 && config.readers == 0 {
            return Err(RunError::Config("at least one reader thread is needed".to_owned()));
        }
        let input = first.spec().format();
        let dim = first.spec().dim;
        if self.encoders.iter().any(|encoder| encoder.spec().format() != input || encoder.spec().dim != dim) {
            return Err(RunError::Config("the encoders are not of the same model".to_owned()));
        }
        let output = self.preprocessors.output();
        if output != input {
            return Err(RunError::Config(format!("preprocessing gives {output} but the encoder takes {input}")));
        }
        Ok(())
    }
}

fn check_counts(inputs: u64, rows: u64, failures: u64) -> Result<(), RunError> {
    if rows + failures == inputs {
        return Ok(());
    }
    let counts = format!("{inputs} inputs, but {rows} vectors and {failures} failures");
    Err(RunError::Accounting(counts))
}

fn threads_of(stage: Stage, config: &Config, encoders: usize) -> usize {
    match stage {
        Stage::Read => config.readers.max(1),
        Stage::Decode | Stage::Resize => config.workers.max(1),
        Stage::Encode => encoders,
        _ => 1,
    }
}
