use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foveate_encode::{Encoder, EncoderSpec};
use foveate_pipeline::{Cancel, Pipeline, Progress, RunReport};
use foveate_profile::card::{CardSampler, CardUse, Cards};
use foveate_profile::process;
use foveate_sink::{Existing, RunManifest, SinkOptions, VectorSink};
use foveate_source::Source;

use crate::stats::median;
use crate::wrap::{CheckedSink, LentEncoder};
use crate::{Cell, LabError, PhotoSet, Rig, Setting, StandIn};

/// Receives an experiment's progress, for display.
pub trait Watch: Sync {
    /// Reports the step that begins.
    fn doing(&self, what: &str);

    /// Reports what the user should read, such as how long the next steps take.
    fn note(&self, _what: &str) {}

    /// Returns what has disturbed the measurement so far, if anything did.
    fn disturbed(&self) -> Option<String> {
        None
    }
}

/// The environment of experiments: the rig, a folder for their output, and a way to stop them.
pub struct Lab<'a> {
    /// The backends.
    pub rig: &'a dyn Rig,
    /// Folder for the outputs of runs, which are removed again.
    pub scratch: &'a Path,
    /// Checked between any two samples.
    pub cancel: &'a Cancel,
    /// Receives the progress.
    pub watch: &'a dyn Watch,
    /// Seed of the random choices.
    pub seed: u64,
}

/// The destination of a run's vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// This sink, on disk.
    Sink(String),
    /// None: the vectors are checked and dropped.
    Discard,
}

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The engine's report.
    pub report: RunReport,
    /// Images per second: all images ÷ the time from the first item to the last commit.
    pub rate: f64,
    /// Processor time of the process ÷ (wall time × cores), 0..=1, if the system reports it.
    pub cpu_busy: Option<f64>,
    /// Use of the forward's cards, if there are any that the driver has figures for.
    pub cards: Option<CardUse>,
    /// Each photo's vector, by its number, if the run kept them.
    pub vectors: BTreeMap<u64, Vec<f32>>,
}

impl Lab<'_> {
    /// Fails after the user has asked to stop.
    ///
    /// # Errors
    /// [`LabError::Interrupted`].
    pub fn go_on(&self) -> Result<(), LabError> {
        if self.cancel.is_cancelled() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Opens the setting's encoder, to be lent to runs.
    ///
    /// # Errors
    /// Fails if it cannot be opened.
    pub fn encoder(&self, setting: &Setting) -> Result<LentEncoder, LabError> {
        Ok(LentEncoder::new(self.open_encoder(setting)?))
    }

    /// Opens the setting's encoder, or the one without cost, [`StandIn::FREE`], with inputs and outputs of the usual
    /// one.
    pub(crate) fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, LabError> {
        if setting.encoder != StandIn::FREE {
            return Ok(self.rig.open_encoder(setting)?);
        }
        let usual = self.rig.open_encoder(&Setting { batch: 1, ..self.rig.base() })?;
        Ok(StandIn::free(EncoderSpec { max_batch: setting.batch, ..usual.spec().clone() }))
    }

    /// Builds the setting's pipeline over `source`, as in a plain run.
    ///
    /// # Errors
    /// Fails if the output cannot be opened.
    pub fn pipeline(
        &self,
        setting: &Setting,
        source: Box<dyn Source>,
        encoder: Box<dyn Encoder>,
        sink: Box<dyn VectorSink>,
    ) -> Pipeline {
        Pipeline {
            source,
            preprocessors: self.rig.preprocessors(setting),
            encoders: vec![encoder],
            sink,
            config: self.rig.config(setting),
        }
    }

    /// Embeds `images` of `photos`, read from their original places, and checks every row.
    ///
    /// # Errors
    /// [`LabError::Run`] if the run stops, [`LabError::Work`] if a row is missing or wrong.
    pub fn run(
        &self,
        setting: &Setting,
        photos: &PhotoSet,
        images: u64,
        encoder: &LentEncoder,
        output: &Output,
    ) -> Result<Run, LabError> {
        let sink = self.sink(output, photos)?;
        let source = photos.stored(setting, images)?;
        let pipeline = self.pipeline(setting, source, Box::new(encoder.clone()), Box::new(sink.clone()));
        let run = self.carry_out(pipeline, &sink, images)?;
        Ok(Run { vectors: sink.vectors(), ..run })
    }

    /// Opens a sink that checks the rows for `output`.
    ///
    /// # Errors
    /// Fails if it cannot be opened.
    pub fn sink(&self, output: &Output, photos: &PhotoSet) -> Result<CheckedSink, LabError> {
        Ok(CheckedSink::new(self.open_output(output)?, photos.photos.len()))
    }

    pub(crate) fn open_output(&self, output: &Output) -> Result<Option<Box<dyn VectorSink>>, LabError> {
        match output {
            Output::Discard => Ok(None),
            Output::Sink(name) => Ok(Some(self.rig.open_sink(name, &SinkOptions::new(self.output_folder()))?)),
        }
    }

    /// Runs `pipeline`, whose sink is `sink`, to the end of its `images`.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub fn carry_out(&self, pipeline: Pipeline, sink: &CheckedSink, images: u64) -> Result<Run, LabError> {
        let run = self.start(pipeline, self.cancel)?;
        sink.check(images).map_err(LabError::Work)?;
        Ok(run)
    }

    /// Runs `pipeline` until `stop` is set, and checks that at least `images` of its items came through.
    pub(crate) fn carry_out_until(
        &self,
        stop: &Cancel,
        pipeline: Pipeline,
        sink: &CheckedSink,
        images: u64,
    ) -> Result<Run, LabError> {
        let run = self.start(pipeline, stop)?;
        sink.check_at_least(images).map_err(LabError::Work)?;
        Ok(run)
    }

    fn start(&self, mut pipeline: Pipeline, cancel: &Cancel) -> Result<Run, LabError> {
        self.go_on()?;
        // A few photos stand for many: each of them is work.
        pipeline.config.recent_bytes = 0;
        pipeline.config.cache = None;
        let dim = pipeline.encoders.first().map_or(0, |encoder| encoder.spec().dim);
        let manifest = RunManifest { dim, ..RunManifest::default() };
        let before = process::processor_time();
        let cards = self.cards().ok().map(CardSampler::start);
        let report = pipeline.run(&manifest, Existing::Overwrite, cancel, &Progress::default())?;
        let busy = process::processor_time().zip(before).map(|(after, before)| after.saturating_sub(before));
        let cards = cards.and_then(CardSampler::finish);
        self.clear_output();
        self.go_on()?;
        let rate = report.throughput();
        let wall = report.wall;
        Ok(Run {
            rate,
            cpu_busy: busy.map(|busy| share(busy, wall, self.rig.context().cores)),
            cards,
            vectors: BTreeMap::new(),
            report,
        })
    }

    /// Returns the images of a run of about `seconds`, by a first short one that also warms everything up. The result
    /// is a multiple of the batch size, at least two batches.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub fn images_for(
        &self,
        seconds: f64,
        setting: &Setting,
        photos: &PhotoSet,
        encoder: &LentEncoder,
    ) -> Result<u64, LabError> {
        let batch = setting.batch as u64;
        let first = self.run(setting, photos, 2 * batch, encoder, &Output::Discard)?;
        Ok(((first.rate * seconds / batch as f64).round() as u64).max(2) * batch)
    }

    /// Finds the NVIDIA cards of the forward.
    ///
    /// # Errors
    /// The reason why there are no figures of them.
    pub fn cards(&self) -> Result<Cards, String> {
        Cards::find(&self.rig.context().device)
    }

    fn output_folder(&self) -> PathBuf {
        self.scratch.join("output/")
    }

    /// Outputs of runs are not needed. If one cannot be removed, the next run overwrites it.
    fn clear_output(&self) {
        let _ = std::fs::remove_dir_all(self.output_folder());
    }
}

/// Returns the columns of the forward's cards: the median share of time over several runs, and the most memory.
pub(crate) fn card_columns(used: impl IntoIterator<Item = Option<CardUse>>) -> [(&'static str, Cell); 2] {
    let used: Vec<CardUse> = used.into_iter().flatten().collect();
    let busy: Vec<f64> = used.iter().map(|used| used.busy).collect();
    let bytes = used.iter().map(|used| used.memory_bytes).max();
    [("device_busy", median(&busy).into()), ("device_memory_mb", bytes.map(|bytes| bytes as f64 / 1e6).into())]
}

fn share(busy: Duration, wall: Duration, cores: usize) -> f64 {
    busy.as_secs_f64() / (wall.as_secs_f64() * cores.max(1) as f64).max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_the_median_share_and_the_most_memory_of_the_runs_that_have_figures() {
        let used = |busy, memory_bytes| Some(CardUse { busy, memory_bytes });
        let [busy, memory] = card_columns([used(0.2, 3_000_000), None, used(0.9, 5_000_000), used(0.4, 4_000_000)]);
        assert_eq!((busy, memory), (("device_busy", 0.4.into()), ("device_memory_mb", 5.0.into())));
        assert!(card_columns([None]).iter().all(|(_, cell)| *cell == Cell::Empty));
    }
}
