//! The measurements of a diagnosis with trials, in a file, until it is complete.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ladder::Ladder;
use super::options::DiagnoseOptions;
use super::predictions::Remedies;
use crate::table::write_atomically;
use crate::{Context, Lab, LabError, PhotoSet, Setting};

/// The file's name.
const FILE: &str = "diagnosis.journal.json";

/// The measurements of one diagnosis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NotedDiagnosis {
    pub(super) ladder: Ladder,
    /// True if the encoder overlaps with the host.
    pub(super) overlaps: bool,
    /// The remedies, with the trials that ended.
    pub(super) remedies: Option<Remedies>,
}

/// The measurements of a job's diagnoses, each with the remedies that helped before it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    /// Path of the file; `None` without a folder or without trials, which take most of the time.
    #[serde(skip)]
    path: Option<PathBuf>,
    /// Identifies the job: setting, options, machine and photos.
    job: String,
    steps: Vec<NotedDiagnosis>,
    /// Disturbance of the measurement before it was interrupted.
    disturbed: Option<String>,
}

impl Journal {
    /// Opens the journal of this job, with what it holds if the same job was interrupted.
    pub(super) fn open(lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting, options: &DiagnoseOptions) -> Self {
        let context = Context { date: String::new(), ..lab.rig.context() };
        let ids: Vec<(&str, usize)> =
            photos.photos.iter().map(|photo| (photo.id.as_str(), photo.bytes.len())).collect();
        let job = format!("{setting:?} {options:?} {context:?} {} {ids:?}", lab.seed);
        let path = options.folder.as_ref().filter(|_| options.verify.is_some()).map(|folder| folder.join(FILE));
        let read = path.as_ref().and_then(|path| serde_json::from_slice::<Self>(&std::fs::read(path).ok()?).ok());
        match read.filter(|journal| journal.job == job) {
            Some(journal) => {
                let trials = journal.steps.iter().filter_map(|noted| noted.remedies.as_ref()).map(Remedies::trials);
                let diagnoses = journal.steps.len();
                let trials = trials.sum::<usize>();
                lab.watch.note(&format!(
                    "continuing an interrupted diagnosis: limits found {diagnoses}, remedies tried {trials}"
                ));
                Self { path, ..journal }
            }
            None => Self { path, job, ..Self::default() },
        }
    }

    /// Returns what was measured of this step, if anything was.
    pub(super) fn step(&self, number: usize) -> Option<NotedDiagnosis> {
        self.steps.get(number).cloned()
    }

    /// Returns what disturbed the measurement before it was interrupted.
    pub(super) fn disturbed(&self) -> Option<String> {
        self.disturbed.clone()
    }

    /// Keeps what was measured of a step.
    pub(super) fn note(&mut self, lab: &Lab<'_>, number: usize, noted: &NotedDiagnosis) -> Result<(), LabError> {
        let Some(path) = &self.path else { return Ok(()) };
        self.steps.truncate(number);
        self.steps.push(noted.clone());
        let disturbed = lab.watch.disturbed().or_else(|| self.disturbed.clone());
        let journal = Self { path: None, job: self.job.clone(), steps: self.steps.clone(), disturbed };
        write_atomically(path, || Ok(serde_json::to_vec(&journal)?))
    }

    /// Removes the file of a complete diagnosis. If it cannot be removed, the same command only repeats its results.
    pub(super) fn complete(&self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}
