//! The whole job with every backend.

use super::cells::{Effort, Row, attempt, row, wrong};
use super::job_sweep::{Encoders, MeasuredJob};
use super::rounds;
use crate::{Candidate, Lab, LabError, Output, PhotoSet, Setting, Table, schema};
use foveate_encode::DType;
use foveate_preprocess::DecodeScale;

/// The most by which the least cosine of a photo's vector may differ from 1. Other decoders, resizers and precisions
/// stay far within it; another recipe or a wrong channel order does not.
const MOST_DRIFT: f64 = 0.05;

/// One combination of backends.
#[derive(Clone)]
struct MatrixCell {
    /// The reasons that it is measured.
    axes: Vec<&'static str>,
    setting: Setting,
    sink: String,
}

impl MatrixCell {
    fn name(&self) -> String {
        format!("{} to {}", self.setting, self.sink)
    }
}

/// Measures the whole job, files to a finished output, under every backend that is compiled in: one axis at a time
/// around the job's own setting, and every decoder with every resizer; or under every combination of decoder, resizer,
/// encoder and sink, if `is_cross`. The vectors of each are compared with those of the job's own setting.
///
/// # Errors
/// Fails if the job's own setting fails, or a combination's vectors are far from its vectors; then the table tells
/// which. [`LabError::Interrupted`].
pub fn matrix(lab: &Lab<'_>, photos: &PhotoSet, is_cross: bool, effort: &Effort) -> Result<Table, LabError> {
    let candidates = BackendCandidates::of(lab);
    let pinned = MatrixCell { axes: vec!["pinned"], setting: lab.rig.base(), sink: candidates.first_sink()? };
    let cells = if is_cross { candidates.combinations(pinned) } else { candidates.around(lab, pinned) };
    let mut encoders = Encoders::default();
    let mut jobs = Vec::new();
    for cell in &cells {
        lab.watch.doing(&format!("matrix: warming up {}", cell.name()));
        let job = match candidates.problem(cell) {
            Some(problem) => Err(problem),
            None => {
                let job = MeasuredJob::open(lab, photos, &cell.setting, &mut encoders, effort);
                attempt(lab, job.map(|job| job.to(Output::Sink(cell.sink.clone()))))?
            }
        };
        jobs.push(job);
    }
    let named = |job: &MeasuredJob<'_>| format!("matrix: {}", job.setting);
    rounds::sample(lab, effort.samples, &mut jobs, named, |job| job.sample(lab))?;
    let pinned = jobs[0].as_ref().map_err(wrong)?;
    let mut table = Table::new(&schema::MATRIX);
    for (cell, job) in cells.iter().zip(&jobs) {
        let mut identity = Row::from(cell.setting.columns());
        identity.insert("axis", cell.axes.join(" ").into());
        identity.insert("photos", photos.name.as_str().into());
        identity.insert("sink", cell.sink.as_str().into());
        table.push(row(identity, job, |job| {
            let mut columns = job.columns();
            columns.insert("cpu_busy", job.cpu_busy().into());
            columns.insert("times_pinned", job.times(pinned).into());
            let drift = job.drift(pinned);
            columns.insert("drift", drift.into());
            if drift.is_none_or(|drift| drift > MOST_DRIFT) {
                columns.insert("status", "wrong vectors".into());
            }
            columns
        }));
    }
    Ok(table)
}

/// The backends of each stage, those that cannot be used here too.
struct BackendCandidates {
    decoders: Vec<Candidate>,
    resizers: Vec<Candidate>,
    encoders: Vec<Candidate>,
    sinks: Vec<Candidate>,
}

impl BackendCandidates {
    fn of(lab: &Lab<'_>) -> Self {
        let mut decoders = lab.rig.decoders();
        decoders.extend(lab.rig.batched_decoders());
        Self { decoders, resizers: lab.rig.resizers(), encoders: lab.rig.encoders(), sinks: lab.rig.sinks() }
    }

    fn first_sink(&self) -> Result<String, LabError> {
        let sink = self.sinks.iter().find(|sink| sink.problem.is_none());
        sink.map(|sink| sink.name.clone()).ok_or_else(|| wrong("this build has no sink that works"))
    }

    /// The problem of the first backend of a cell that cannot be used.
    fn problem(&self, MatrixCell { setting, sink, .. }: &MatrixCell) -> Option<String> {
        for (candidates, name) in [
            (&self.decoders, &setting.decoder),
            (&self.resizers, &setting.resizer),
            (&self.encoders, &setting.encoder),
            (&self.sinks, sink),
        ] {
            let problem = candidates.iter().find(|candidate| candidate.name == *name)?.problem.as_ref();
            if let Some(problem) = problem {
                return Some(format!("{name}: {problem}"));
            }
        }
        None
    }

    /// The cells around the pinned one, each once.
    fn around(&self, lab: &Lab<'_>, pinned: MatrixCell) -> Vec<MatrixCell> {
        let base = pinned.clone();
        let mut cells = vec![pinned];
        for Candidate { name: decoder, .. } in &self.decoders {
            let setting = Setting { decoder: decoder.clone(), ..base.setting.clone() };
            add(&mut cells, "decoder", &base, setting.clone());
            if lab.rig.open_decoder(decoder).is_ok_and(|decoder| decoder.capability().scaled) {
                add(&mut cells, "decode-scale", &base, Setting { scale: DecodeScale::Fast, ..setting });
            }
        }
        for Candidate { name: resizer, .. } in &self.resizers {
            let setting = Setting { resizer: resizer.clone(), ..base.setting.clone() };
            add(&mut cells, "resizer", &base, setting.clone());
            for Candidate { name: decoder, .. } in &self.decoders {
                add(&mut cells, "pair", &base, Setting { decoder: decoder.clone(), ..setting.clone() });
            }
        }
        for Candidate { name: encoder, .. } in &self.encoders {
            for dtype in DType::ALL {
                let setting = Setting { encoder: encoder.clone(), dtype, ..base.setting.clone() };
                add(&mut cells, "encoder+dtype", &base, setting);
            }
        }
        for Candidate { name: sink, .. } in &self.sinks {
            add(&mut cells, "sink", &MatrixCell { sink: sink.clone(), ..base.clone() }, base.setting.clone());
        }
        cells
    }

    /// Every combination of decoder, resizer, encoder and sink, the pinned one first.
    fn combinations(&self, pinned: MatrixCell) -> Vec<MatrixCell> {
        let base = pinned.clone();
        let mut cells = vec![pinned];
        for Candidate { name: decoder, .. } in &self.decoders {
            for Candidate { name: resizer, .. } in &self.resizers {
                for Candidate { name: encoder, .. } in &self.encoders {
                    for Candidate { name: sink, .. } in &self.sinks {
                        let setting = Setting {
                            decoder: decoder.clone(),
                            resizer: resizer.clone(),
                            encoder: encoder.clone(),
                            ..base.setting.clone()
                        };
                        add(&mut cells, "cross", &MatrixCell { sink: sink.clone(), ..base.clone() }, setting);
                    }
                }
            }
        }
        cells
    }
}

/// Adds a cell, or its axis to the cell that is the same.
fn add(cells: &mut Vec<MatrixCell>, axis: &'static str, base: &MatrixCell, setting: Setting) {
    match cells.iter_mut().find(|cell| cell.setting == setting && cell.sink == base.sink) {
        Some(cell) => cell.axes.push(axis),
        None => cells.push(MatrixCell { axes: vec![axis], setting, sink: base.sink.clone() }),
    }
}
