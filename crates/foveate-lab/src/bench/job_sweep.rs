//! The whole job, measured end to end with growing numbers of workers or images per batch.

use std::collections::BTreeMap;

use foveate_core::Stage;

use super::cells::{Attempt, Effort, Row, Sets, attempt, first_near_best, rates, row, usual_output};
use super::memory::columns_of_forward;
use super::ranking::Rankings;
use super::rounds;
use crate::run::card_columns;
use crate::stats::{Spread, median};
use crate::wrap::cosine;
use crate::{Cell, Lab, LabError, LentEncoder, Output, PhotoSet, Run, Setting, Table, schema};
use foveate_report::schema::Schema;

/// Share of the time above which a busy encoder is the limit.
const SATURATED: f64 = 0.95;

/// Measures the whole job with a growing number of workers, files to a finished output. `encoder_bound` marks the rows
/// in which the encoder is busy 95 % of the time. More workers cannot help there.
///
/// The job's own decoder and resizer come first, then the slowest ones, if they are slower.
///
/// # Errors
/// Fails if runs with the usual setting fail; [`LabError::Interrupted`].
pub fn worker_sweep(lab: &Lab<'_>, sets: &Sets, workers: &[usize], effort: &Effort) -> Result<Table, LabError> {
    sweep(lab, sets, &schema::WORKER_SWEEP, workers, |setting, workers| setting.workers = workers, effort)
}

/// Measures the whole job at growing batch sizes, each with an encoder opened for it, in the pairs of
/// [`worker_sweep`]. The job's own pair has the memory of the forward too, as in [`batch_sweep`](super::batch_sweep).
///
/// # Errors
/// The errors of [`worker_sweep`].
pub fn job_batch_sweep(lab: &Lab<'_>, sets: &Sets, batches: &[usize], effort: &Effort) -> Result<Table, LabError> {
    sweep(lab, sets, &schema::JOB_BATCH_SWEEP, batches, |setting, batch| setting.batch = batch, effort)
}

fn sweep(
    lab: &Lab<'_>,
    sets: &Sets,
    schema: &'static Schema,
    values: &[usize],
    change: fn(&mut Setting, usize),
    effort: &Effort,
) -> Result<Table, LabError> {
    let mut table = Table::new(schema);
    let mut encoders = Encoders::default();
    let what = schema.made_by.trim_start_matches("bench ").replace('-', " ");
    let base = lab.rig.base();
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    for photos in &sets.usable {
        lab.watch.doing(&format!("{what}, {}: ranking decoders and resizers", photos.name));
        lab.go_on()?;
        let mut pairs = vec![base.clone(), Rankings::measure(lab, photos)?.slow_pair(&base)];
        pairs.dedup_by_key(|pair| (pair.decoder.clone(), pair.resizer.clone()));
        let mut settings = Vec::new();
        let mut cells = Vec::new();
        for pair in &pairs {
            for &value in &values {
                let mut setting = pair.clone();
                change(&mut setting, value);
                lab.watch.doing(&format!("{what}, {}: warming up {setting}", photos.name));
                cells.push(attempt(lab, MeasuredJob::open(lab, photos, &setting, &mut encoders, effort))?);
                settings.push(setting);
            }
        }
        rounds::sample(
            lab,
            effort.samples,
            &mut cells,
            |job: &MeasuredJob<'_>| format!("{what}, {}: {}", photos.name, job.setting),
            |job| job.sample(lab),
        )?;
        let pairs = settings.chunks(values.len()).zip(cells.chunks(values.len()));
        for (at, (settings, cells)) in pairs.enumerate() {
            push(&mut table, lab, photos, settings, cells, at == 0);
        }
    }
    sets.push_missing(&mut table);
    Ok(table)
}

/// Adds the rows of one pair.
fn push(
    table: &mut Table,
    lab: &Lab<'_>,
    photos: &PhotoSet,
    settings: &[Setting],
    cells: &[Attempt<MeasuredJob<'_>>],
    is_own_pair: bool,
) {
    let with_memory = is_own_pair && table.schema().column("peak_memory_mb").is_some();
    let first = table.len();
    for (setting, cell) in settings.iter().zip(cells) {
        let mut identity = Row::from(setting.columns());
        identity.insert("photos", photos.name.as_str().into());
        table.push(row(identity, cell, |job| {
            let mut columns = job.columns();
            columns.insert("cpu_busy", job.cpu_busy().into());
            columns.insert("encoder_bound", (job.encoder_busy() >= Some(SATURATED)).into());
            if with_memory {
                columns.extend(columns_of_forward(lab.rig, setting));
            }
            columns
        }));
    }
    let medians: Vec<Option<f64>> = cells.iter().map(|cell| cell.as_ref().ok().and_then(MeasuredJob::rate)).collect();
    if let Some(plateau) = first_near_best(&medians) {
        table.set(first + plateau, "plateau", true.into());
    }
}

/// A whole job, measured end to end.
pub(super) struct MeasuredJob<'a> {
    pub(super) setting: Setting,
    photos: &'a PhotoSet,
    images: u64,
    encoder: LentEncoder,
    output: Output,
    runs: Vec<Run>,
}

impl<'a> MeasuredJob<'a> {
    /// Opens a setting's job with its own encoder, and warms it up.
    pub(super) fn open(
        lab: &Lab<'_>,
        photos: &'a PhotoSet,
        setting: &Setting,
        encoders: &mut Encoders,
        effort: &Effort,
    ) -> Result<Self, LabError> {
        let encoder = encoders.get(lab, setting)?;
        Self::warm(lab, photos, setting, &encoder, effort)
    }

    /// Warms up a setting's job with this encoder.
    pub(super) fn warm(
        lab: &Lab<'_>,
        photos: &'a PhotoSet,
        setting: &Setting,
        encoder: &LentEncoder,
        effort: &Effort,
    ) -> Result<Self, LabError> {
        let images = effort.images_of_run(lab, setting, photos, encoder)?;
        let setting = setting.clone();
        let encoder = encoder.clone();
        let output = usual_output(lab);
        Ok(Self { setting, photos, images, encoder, output, runs: Vec::new() })
    }

    /// Writes the vectors of its samples elsewhere.
    pub(super) fn to(self, output: Output) -> Self {
        Self { output, ..self }
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

    /// Returns the ratio of this job's rate to another's.
    pub(super) fn times(&self, other: &Self) -> Option<f64> {
        Some(self.rate()? / other.rate()?)
    }

    /// Returns 1 − the least cosine of a photo's vector and that of another job.
    pub(super) fn drift(&self, other: &Self) -> Option<f64> {
        let vectors = &self.runs.first()?.vectors;
        let others = &other.runs.first()?.vectors;
        let cosines = vectors.iter().filter_map(|(photo, vector)| Some(cosine(vector, others.get(photo)?)));
        cosines.reduce(f64::min).map(|least| (1.0 - least).max(0.0))
    }

    pub(super) fn cpu_busy(&self) -> Option<f64> {
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

/// Encoders, each opened once.
#[derive(Default)]
pub(super) struct Encoders(BTreeMap<(String, &'static str, usize, usize), LentEncoder>);

impl Encoders {
    pub(super) fn get(&mut self, lab: &Lab<'_>, setting: &Setting) -> Result<LentEncoder, LabError> {
        let key = (setting.encoder.clone(), setting.dtype.name(), setting.batch, setting.threads);
        if let Some(encoder) = self.0.get(&key) {
            return Ok(encoder.clone());
        }
        let encoder = lab.encoder(setting)?;
        self.0.insert(key, encoder.clone());
        Ok(encoder)
    }
}
