//! Finds the stage that limits a job: runs the job with its threads and queues, and its data cached at successive
//! depths. If the throughput drops at a depth, the stage added there is the culprit. If it never drops, the forward is
//! the limit.
//!
//! Every depth runs the same [`Pipeline`](foveate_pipeline::Pipeline) with the same readers, workers, queues and
//! batches. Stages that must not work are replaced by ones that return cached data. Each round samples all depths, in
//! its own order, so that a machine that slows down incriminates no stage. Rounds go on until the intervals decide, or
//! until [`DiagnoseOptions::most_rounds`] or [`DiagnoseOptions::budget`] ends them; the verdict says which.
//!
//! Running a depth (`job`) and drawing conclusions from the rates (`ladder`, `verdict`) are separate. The
//! conclusions are tested on rates that follow from known costs, without a clock.

mod climb;
mod depth;
mod interval;
mod job;
mod journal;
mod known;
mod ladder;
mod options;
mod predictions;
mod remedies;
mod sample;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::{Duration, Instant};

use crate::{Lab, LabError, Output, PhotoSet, Setting, Table, schema};

pub use self::climb::{Climb, ClimbStep};
pub use self::depth::CacheDepth;
pub use self::interval::BootstrapInterval;
use self::job::CachedJob;
use self::journal::{Journal, NotedDiagnosis};
use self::known::Measurements;
use self::ladder::{Ladder, about};
pub use self::options::{DiagnoseOptions, Verify};
use self::predictions::Remedies;
pub use self::predictions::{Applied, Effect, Verified};
use self::remedies::Facts;
pub use self::remedies::{REMEDIES, Remedy, VectorEffect};
pub use self::verdict::Verdict;
use self::verdict::{Finding, Findings};

/// The results of a diagnosis.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// [`schema::DIAGNOSIS`].
    pub ladder: Table,
    /// [`schema::REMEDIES`], the most promising first; empty unless requested.
    pub remedies: Table,
    /// The conclusion.
    pub verdict: Verdict,
    /// The result of the remedy that was tried last.
    pub verified: Option<Verified>,
    /// The job with that remedy, if it gained.
    pub applied: Option<Applied>,
    /// The work that the user interrupted, if anything is missing.
    pub unfinished: Option<String>,
    /// Disturbance of the measurement before it was interrupted, if this diagnosis continues one.
    pub disturbed: Option<String>,
}

/// Runs `setting` on `photos` at every depth. Names the limiting stage and the remedies. If the user asks to stop after
/// the stage was found, the result holds what is complete.
///
/// # Errors
/// [`LabError::Setting`] for invalid options, for a remedy that does not apply, and for cold reads of fewer photos than
/// three batches or from a place that does not support them. [`LabError::Photos`] for a photo that this setting cannot
/// decode. [`LabError::Work`] if a vector is missing or differs with cached data. Also fails if a backend of the
/// setting cannot be opened or one of its runs stops.
pub fn run(
    lab: &Lab<'_>,
    photos: &PhotoSet,
    setting: &Setting,
    options: &DiagnoseOptions,
) -> Result<Diagnosis, LabError> {
    let mut journal = Journal::open(lab, photos, setting, options);
    let diagnosis = step(lab, photos, setting, options, (&mut journal, 0))?;
    if diagnosis.unfinished.is_none() {
        journal.complete();
    }
    Ok(diagnosis)
}

/// Returns `None` in place of an error if the user asked to stop.
fn unless_stopped<T>(lab: &Lab<'_>, result: Result<T, LabError>) -> Result<Option<T>, LabError> {
    if result.is_err() && lab.cancel.is_cancelled() { Ok(None) } else { result.map(Some) }
}

/// Runs one diagnosis of several, without what the journal holds of it.
fn step(
    lab: &Lab<'_>,
    photos: &PhotoSet,
    setting: &Setting,
    options: &DiagnoseOptions,
    (journal, number): (&mut Journal, usize),
) -> Result<Diagnosis, LabError> {
    options.check()?;
    let started = Instant::now();
    let used = photos.within(options.most_bytes);
    let mut noted = match journal.step(number) {
        Some(noted) => noted,
        None => {
            lab.watch.doing("preparing what is cached");
            let mut job = CachedJob::new(lab, &used, setting, options)?;
            let ladder = Ladder::measure(&mut job, lab.watch, lab.seed, options)?;
            NotedDiagnosis { ladder, overlaps: job.overlaps(), remedies: None }
        }
    };
    journal.note(lab, number, &noted)?;
    let mut unfinished = None;
    if options.remedies && noted.remedies.is_none() {
        noted.remedies = unless_stopped(lab, rank(lab, &used, setting, options, (&noted, started.elapsed())))?;
        unfinished = noted.remedies.is_none().then(|| "measuring the costs of the remedies".to_owned());
        journal.note(lab, number, &noted)?;
    }
    while let (Some(which), Some(remedies)) = (&options.verify, &mut noted.remedies) {
        let Some(at) = remedies.next_trial(which, options)? else { break };
        let change = remedies.change(at).to_owned();
        lab.watch.note(&format!("trying {change}: about {}", about(noted.ladder.trial_seconds(options))));
        if unless_stopped(lab, remedies.try_out(at, lab, &used, setting, options))?.is_none() {
            unfinished = Some(format!("trying {change}"));
            break;
        }
        journal.note(lab, number, &noted)?;
    }
    let NotedDiagnosis { ladder, remedies, .. } = noted;
    let verified = remedies.as_ref().and_then(Remedies::verified).cloned();
    let applied = remedies.as_ref().map_or(Ok(None), |remedies| remedies.applied(lab, &used))?;
    let finding = Finding::of(&ladder);
    let findings = Findings {
        finding,
        ladder: &ladder,
        remedies: remedies.as_ref(),
        verified: verified.as_ref(),
        photos: [&used, photos],
        setting,
        cold: options.cold,
        in_store: used.is_in_store(),
    };
    Ok(Diagnosis {
        ladder: ladder.table(&used.name, setting, finding.culprit()),
        verdict: findings.verdict(),
        remedies: remedies.map_or_else(|| Table::new(&schema::REMEDIES), |remedies| remedies.table(&used, setting)),
        verified,
        applied,
        unfinished,
        disturbed: journal.disturbed(),
    })
}

fn rank(
    lab: &Lab<'_>,
    photos: &PhotoSet,
    setting: &Setting,
    options: &DiagnoseOptions,
    (NotedDiagnosis { ladder, overlaps, .. }, elapsed): (&NotedDiagnosis, Duration),
) -> Result<Remedies, LabError> {
    let facts = Facts {
        rig: lab.rig,
        setting,
        limit: Finding::of(ladder).culprit().unwrap_or(CacheDepth::OnDevice).adds(),
        cores: lab.rig.context().cores.max(1),
        on_host: ladder.on_host(),
        overlaps: *overlaps,
        mean_bytes: photos.mean_bytes(),
        is_delivered: photos.is_delivered(),
        store: if photos.is_in_store() { Some(photos.supply()?) } else { None },
    };
    let now = ladder.rate(ladder.whole()).value;
    let known = Measurements::read(options.folder.as_deref(), &photos.name, &lab.rig.context());
    Remedies::rank(
        lab,
        photos,
        &facts,
        now,
        (&known, &Output::Sink(options.sink.clone())),
        options.seconds_for_remedies(elapsed),
    )
}
