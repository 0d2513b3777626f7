//! Which stage holds a job back: the job as it is, with its threads and queues, with its data cached at one depth after
//! the other. Where the throughput drops, the stage that was added is to blame; where it never does, the forward is.

mod depth;
mod interval;
mod ladder;

use crate::{Lab, LabError, PhotoSet, Setting, Table};

use self::ladder::Ladder;
pub use depth::Depth;
pub use interval::Interval;

/// How a diagnosis is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples at each depth, one a round; 5 or more give an interval that deserves its 95 %.
    pub rounds: usize,
    /// About how long a sample takes, in seconds; never less than three batches.
    pub seconds: f64,
    /// The least drop of throughput that matters, 0..1.
    pub least_drop: f64,
    /// Most bytes of decoded pixels in memory; photos beyond are left out.
    pub most_bytes: u64,
    /// The output's registry name.
    pub sink: String,
}

/// What a diagnosis found.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// [`schema::DIAGNOSIS`](crate::schema::DIAGNOSIS).
    pub ladder: Table,
}

/// Runs `setting` on `photos` at every depth.
///
/// # Errors
/// When a backend cannot be opened, a run stops or its work is not right.
pub fn run(lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting, options: &Options) -> Result<Diagnosis, LabError> {
    let photos = photos.within(options.most_bytes);
    let ladder = Ladder::measure(lab, &photos, setting, options)?;
    let culprit = ladder.drops().into_iter().filter(|drop| drop.significant);
    let culprit = culprit.max_by(|a, b| a.part.value.total_cmp(&b.part.value));
    Ok(Diagnosis { ladder: ladder.table(culprit.map(|drop| drop.depth)) })
}
