use foveate_core::Stage;

use super::cells::{Attempt, Effort, Row, Sets, first_near_best, rates, row, usual_output};
use super::rounds;
use crate::run::card_columns;
use crate::stats::{Spread, median};
use crate::wrap::cosine;
use crate::{Cell, Lab, LabError, LentEncoder, Output, PhotoSet, Run, Setting, Table, schema};

/// Share of the time above which a busy encoder is the limit.
const SATURATED: f64 = 0.95;

/// Measures the whole job with a growing number of workers, files to a finished output. `encoder_bound` marks the rows
/// in which the encoder is busy 95 % of the time. More workers cannot help there.
///
/// # Errors
/// Fails if the encoder cannot be opened or runs with the usual setting fail; [`LabError::Interrupted`].
pub fn worker_sweep(lab: &Lab<'_>, sets: &Sets, workers: &[usize], effort: &Effort) -> Result<Table, LabError> {
    let mut table = Table::new(&schema::WORKER_SWEEP);
    let base = lab.rig.base();
    let encoder = lab.encoder(&base)?;
    let mut workers = workers.to_vec();
    workers.sort_unstable();
    workers.dedup();
    for photos in &sets.usable {
        lab.watch.doing(&format!("worker sweep, {}: warming up", photos.name));
        let images = effort.images_of_run(lab, &base, photos, &encoder)?;
        let cell = |&workers: &usize| {
            Ok(SweepRun::new(Setting { workers, ..base.clone() }, photos, images, &encoder, usual_output(lab)))
        };
        let mut cells: Vec<Attempt<SweepRun<'_>>> = workers.iter().map(cell).collect();
        let what = |job: &SweepRun<'_>| format!("worker sweep, {}: {} workers", photos.name, job.setting.workers);
        rounds::sample(lab, effort.samples, &mut cells, what, |job| job.sample(lab))?;
        push(&mut table, photos, &base, &workers, &cells);
    }
    sets.push_missing(&mut table);
    Ok(table)
}

fn push(table: &mut Table, photos: &PhotoSet, base: &Setting, workers: &[usize], cells: &[Attempt<SweepRun<'_>>]) {
    let first = table.len();
    for (&workers, cell) in workers.iter().zip(cells) {
        let mut identity = Row::from(Setting { workers, ..base.clone() }.columns());
        identity.insert("photos", photos.name.as_str().into());
        table.push(row(identity, cell, |job| {
            let mut columns = job.columns();
            columns.insert("cpu_busy", job.cpu_busy().into());
            columns.insert("encoder_bound", (job.encoder_busy() >= Some(SATURATED)).into());
            columns
        }));
    }
    let medians: Vec<Option<f64>> = cells.iter().map(|cell| cell.as_ref().ok().and_then(SweepRun::rate)).collect();
    if let Some(plateau) = first_near_best(&medians) {
        table.set(first + plateau, "plateau", true.into());
    }
}

/// A whole job, measured end to end.
pub(super) struct SweepRun<'a> {
    pub(super) setting: Setting,
    photos: &'a PhotoSet,
    images: u64,
    encoder: LentEncoder,
    output: Output,
    runs: Vec<Run>,
}

impl<'a> SweepRun<'a> {
    pub(super) fn new(
        setting: Setting,
        photos: &'a PhotoSet,
        images: u64,
        encoder: &LentEncoder,
        output: Output,
    ) -> Self {
        Self { setting, photos, images, encoder: encoder.clone(), output, runs: Vec::new() }
    }

    pub(super) fn sample(&mut self, lab: &Lab<'_>) -> Result<(), LabError> {
        self.runs.push(lab.run(&self.setting, self.photos, self.images, &self.encoder, &self.output)?);
        Ok(())
    }

    /// Returns the median rate.
    pub(super) fn rate(&self) -> Option<f64> {
        self.spread().map(|rates| rates.median)
    }

    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.values(|run| Some(run.rate)))
    }

    /// Returns the median share of the time that the encoder computed.
    pub(super) fn encoder_busy(&self) -> Option<f64> {
        let busy =
            |run: &Run| run.report.stages.iter().find(|stage| stage.stage == Stage::Encode).map(|s| s.utilization);
        median(&self.values(busy))
    }

    /// Returns 1 − the least cosine of a photo's vector and that of another job.
    pub(super) fn drift(&self, other: &Self) -> Option<f64> {
        let (vectors, others) = (&self.runs.first()?.vectors, &other.runs.first()?.vectors);
        let cosines = vectors.iter().filter_map(|(photo, vector)| Some(cosine(vector, others.get(photo)?)));
        cosines.reduce(f64::min).map(|least| (1.0 - least).max(0.0))
    }

    fn cpu_busy(&self) -> Option<f64> {
        median(&self.values(|run| run.cpu_busy))
    }

    pub(super) fn card_columns(&self) -> [(&'static str, Cell); 2] {
        card_columns(self.runs.iter().map(|run| run.cards))
    }

    /// Returns the limiting stage of the run with the median rate.
    fn limit(&self) -> Option<&'static str> {
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        runs.get(runs.len() / 2)?.report.bottleneck().map(|stage| stage.stage.name())
    }

    /// Returns the columns of a job's figures.
    pub(super) fn columns(&self) -> Row {
        let mut columns = rates(self.images as usize, &self.values(|run| Some(run.rate)));
        columns.extend([("encoder_busy", self.encoder_busy().into()), ("limit", self.limit().into())]);
        columns
    }

    fn values(&self, value: impl Fn(&Run) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(value).collect()
    }
}
