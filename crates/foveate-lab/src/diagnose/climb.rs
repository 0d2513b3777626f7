//! A diagnosis after the other, each of the job with what helped before.

use std::fmt;

use super::journal::Journal;
use super::{DiagnoseOptions, Diagnosis, Verify, step, unless_stopped};
use crate::{Lab, LabError, PhotoSet, Setting, Table, schema};

/// Maximum number of diagnoses.
const MOST: usize = 8;

/// The diagnoses of a job, each with the remedies that helped before it.
#[derive(Clone, Debug)]
pub struct Climb {
    /// The first is of the job as given.
    pub steps: Vec<ClimbStep>,
    /// The work that the user interrupted, if the climb did not end by itself.
    pub unfinished: Option<String>,
    /// Disturbance of the measurement before it was interrupted, if this climb continues one.
    pub disturbed: Option<String>,
}

/// One diagnosis, and the job that it is of.
#[derive(Clone, Debug)]
pub struct ClimbStep {
    /// The job's setting.
    pub setting: Setting,
    /// Its limit, and the remedies that were tried.
    pub diagnosis: Diagnosis,
}

impl Climb {
    /// Diagnoses `setting`, applies the most promising remedy that the measurement confirms, and diagnoses the result,
    /// until no remedy helps. If the user asks to stop, the complete steps are returned.
    ///
    /// # Errors
    /// The errors of [`run`](super::run).
    pub fn run(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        setting: &Setting,
        options: &DiagnoseOptions,
    ) -> Result<Self, LabError> {
        let options = DiagnoseOptions { remedies: true, verify: Some(Verify::All), ..options.clone() };
        let mut journal = Journal::open(lab, photos, setting, &options);
        let mut photos = photos.clone();
        let mut setting = setting.clone();
        let mut climb = Self { steps: Vec::new(), unfinished: None, disturbed: journal.disturbed() };
        while climb.steps.len() < MOST {
            let number = climb.steps.len();
            let diagnosis = step(lab, &photos, &setting, &options, (&mut journal, number));
            let Some(diagnosis) = unless_stopped(lab, diagnosis)? else {
                climb.unfinished = Some(format!("finding the limit at step {number}"));
                break;
            };
            let next = diagnosis.applied.clone();
            climb.unfinished.clone_from(&diagnosis.unfinished);
            climb.steps.push(ClimbStep { setting: setting.clone(), diagnosis });
            let Some(applied) = next else { break };
            setting = applied.setting;
            photos = applied.photos.unwrap_or(photos);
        }
        if climb.steps.is_empty() {
            return Err(LabError::Interrupted);
        }
        if climb.unfinished.is_none() {
            journal.complete();
        }
        Ok(climb)
    }

    /// Returns the ladders of all diagnoses, [`schema::DIAGNOSIS`].
    pub fn ladder(&self) -> Table {
        self.table(Table::new(&schema::DIAGNOSIS), |diagnosis| &diagnosis.ladder)
    }

    /// Returns the remedies of all diagnoses, [`schema::REMEDIES`].
    pub fn remedies(&self) -> Table {
        self.table(Table::new(&schema::REMEDIES), |diagnosis| &diagnosis.remedies)
    }

    fn table(&self, mut all: Table, of: fn(&Diagnosis) -> &Table) -> Table {
        for (number, step) in self.steps.iter().enumerate() {
            let first = all.len();
            all.append(of(&step.diagnosis));
            (first..all.len()).for_each(|row| all.set(row, "step", number.into()));
        }
        all
    }
}

/// The steps in a line each, and why there are no more.
impl fmt::Display for Climb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, ClimbStep { diagnosis, .. }) in self.steps.iter().enumerate() {
            let bound = &diagnosis.verdict.bound;
            match (&diagnosis.applied, &diagnosis.verified) {
                (Some(_), Some(verified)) => {
                    let change = &verified.change;
                    let times = verified.times;
                    writeln!(
                        f,
                        "step {number}: bound by {bound}; {change}: measured {:.2}x ({:.2} to {:.2})",
                        times.value, times.low, times.high
                    )?;
                }
                _ => {
                    let end = if self.unfinished.is_some() { "interrupted" } else { "no remedy gains more" };
                    writeln!(f, "step {number}: bound by {bound}; {end}")?;
                }
            }
        }
        Ok(())
    }
}
