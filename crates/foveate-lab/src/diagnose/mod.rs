//! Which stage holds a job back: the job as it is, with its threads and queues, with its data cached at one depth after
//! the other. Where the throughput drops, the stage that was added is to blame; where it never does, the forward is.
//!
//! Every depth runs the same [`Pipeline`](foveate_pipeline::Pipeline) with the same readers, workers, queues and batches;
//! stages that are not to work are replaced by ones that hand over what is cached. All depths are sampled in each round, in
//! an order of its own, so that a machine that becomes slower meanwhile is no stage's fault.

mod checklist;
mod depth;
mod interval;
mod ladder;
mod remedies;
mod verdict;

use crate::{Lab, LabError, Output, PhotoSet, Setting, Table, schema};

use self::checklist::Facts;
pub use self::checklist::{REMEDIES, Remedy};
pub use self::depth::Depth;
pub use self::interval::Interval;
use self::ladder::Ladder;
use self::remedies::Remedies;
pub use self::remedies::Verified;
pub use self::verdict::Verdict;
use self::verdict::{Finding, Findings};

/// How a diagnosis is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples at each depth, one a round. With five the interval of a median is their range.
    pub rounds: usize,
    /// About how long a sample takes, in seconds; never less than three batches.
    pub seconds: f64,
    /// The least drop of throughput that matters, 0..1.
    pub least_drop: f64,
    /// Most bytes of decoded pixels in memory; photos beyond are left out.
    pub most_bytes: u64,
    /// The output's registry name.
    pub sink: String,
    /// Whether the system is asked to forget the photos' files before each sample that reads them. Such a sample reads a
    /// photo once at most, so it is short.
    pub cold: bool,
    /// Whether the checklist is gone through, which measures every backend that it names.
    pub remedies: bool,
    /// Which remedy is tried.
    pub verify: Option<Verify>,
}

/// Which remedy is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The one that is expected to gain the most and leaves the vectors about what they are.
    Best,
    /// The one of this name, or with these command-line options.
    Named(String),
}

impl Options {
    /// Seven rounds of a second, 5 %, a gigabyte of pixels, the checklist without a trial.
    pub fn new(sink: impl Into<String>) -> Self {
        let sink = sink.into();
        Self {
            rounds: 7,
            seconds: 1.0,
            least_drop: 0.05,
            most_bytes: 1 << 30,
            sink,
            cold: false,
            remedies: true,
            verify: None,
        }
    }

    /// The same in less time: five rounds of a third of a second.
    #[must_use]
    pub fn quick(self) -> Self {
        Self { rounds: 5, seconds: 0.3, ..self }
    }

    fn check(&self) -> Result<(), LabError> {
        let wrong = |what: &str| Err(LabError::Setting(what.to_owned()));
        if self.rounds == 0 {
            return wrong("a diagnosis needs at least one round");
        }
        if !(0.0..1.0).contains(&self.least_drop) {
            return wrong("the least drop that matters is a part of the throughput, 0 or more and less than 1");
        }
        if self.verify.is_some() && !self.remedies {
            return wrong("a remedy can be tried only with the checklist");
        }
        Ok(())
    }
}

/// What a diagnosis found.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// [`schema::DIAGNOSIS`].
    pub ladder: Table,
    /// [`schema::REMEDIES`], the most promising first; without rows when they were not asked for.
    pub remedies: Table,
    /// What it comes to.
    pub verdict: Verdict,
    /// What became of the remedy tried.
    pub verified: Option<Verified>,
}

/// Runs `setting` on `photos` at every depth, names what holds it back and what should help.
///
/// # Errors
/// [`LabError::Setting`] for options that make no sense and a remedy to be tried that does not apply,
/// and for cold reads of fewer photos than three batches or from where they cannot be had;
/// [`LabError::Photos`] for a photo that this setting cannot decode; when a backend of the setting cannot be opened or a run
/// of it stops; [`LabError::Work`] when a vector is missing or, with anything cached, another than without.
pub fn run(lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting, options: &Options) -> Result<Diagnosis, LabError> {
    options.check()?;
    let used = photos.within(options.most_bytes);
    let ladder = Ladder::measure(lab, &used, setting, options)?;
    let mut remedies = match options.remedies {
        true => Some(rank(lab, &used, setting, options, &ladder)?),
        false => None,
    };
    let verified = match (&mut remedies, &options.verify) {
        (Some(remedies), Some(which)) => remedies.verify(lab, &used, setting, options, which)?,
        _ => None,
    };
    let finding = Finding::of(&ladder, options.least_drop);
    let findings = Findings {
        finding,
        ladder: &ladder,
        remedies: remedies.as_ref(),
        verified: verified.as_ref(),
        photos: [&used, photos],
        batch: setting.batch,
        cold: options.cold,
    };
    Ok(Diagnosis {
        ladder: ladder.table(finding.culprit()),
        verdict: findings.verdict(),
        remedies: remedies.map_or_else(|| Table::new(&schema::REMEDIES), |remedies| remedies.table(&used)),
        verified,
    })
}

fn rank(
    lab: &Lab<'_>,
    photos: &PhotoSet,
    setting: &Setting,
    options: &Options,
    ladder: &Ladder,
) -> Result<Remedies, LabError> {
    let facts = Facts {
        rig: lab.rig,
        setting,
        cores: lab.rig.context().cores.max(1),
        on_host: ladder.on_host(),
        mean_bytes: photos.mean_bytes(),
    };
    let now = ladder.rate(ladder.whole()).value;
    Remedies::rank(lab, photos, &facts, now, &Output::Sink(options.sink.clone()))
}
