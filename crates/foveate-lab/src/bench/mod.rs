//! `foveate bench`: each stage compared with its alternatives, sweeps of batch size and workers, and the combined
//! effect of improvements.
//!
//! Every candidate has its row; one that cannot run says `n/a (reason)`. Candidates are sampled in rounds. The seed
//! decides each round's order, and every second round reverses it. So a machine that warms up, or is disturbed for a
//! while, affects all candidates alike. The figures are the samples' median and spread.

mod batch_sweep;
mod cells;
mod control;
mod copies;
mod decoders;
mod extrapolation;
mod forward;
mod headline;
mod job_sweep;
mod matrix;
mod memory;
mod peers;
mod ranking;
mod read;
mod resizers;
mod rounds;
mod sinks;
mod timeline;
mod worker;

pub use batch_sweep::batch_sweep;
pub use cells::{Effort, Sets};
pub use control::Control;
pub use copies::copies;
pub use decoders::decoders;
pub use extrapolation::extrapolation;
pub use forward::forward;
pub use headline::headline;
pub use job_sweep::{job_batch_sweep, worker_sweep};
pub use matrix::matrix;
pub use read::{OpenBlob, read};
pub use resizers::resizers;
pub use sinks::{SinkVectors, sinks};
pub use timeline::timeline;
pub use worker::{Service, worker};

use crate::tune::doublings;
use crate::{Lab, LabError, Table};

/// Batch size of [`forward`].
pub const FORWARD_BATCH: usize = 64;
/// Number of images that [`extrapolation`] projects to.
pub const TARGET: u64 = 1_000_000;

/// Returns the numbers of workers of [`worker_sweep`]: doubled up to twice the cores, and the cores themselves.
pub fn workers(lab: &Lab<'_>) -> Vec<usize> {
    let cores = lab.rig.context().cores.max(2);
    [0, cores, 2 * cores].into_iter().chain(doublings(2 * cores)).collect()
}

/// Returns the batch sizes of [`batch_sweep`] and [`job_batch_sweep`], the job's own among them.
pub fn batches(lab: &Lab<'_>, quick: bool) -> Vec<usize> {
    let usual: &[usize] = if quick { &[1, 8, 32, 64] } else { &[1, 8, 16, 32, 64, 128, 256] };
    usual.iter().copied().chain([lab.rig.base().batch]).collect()
}

/// Runs every experiment in turn, with `vectors` for the sinks. `each` receives each table as soon as it is complete.
///
/// # Errors
/// Fails if an experiment cannot run or `each` fails; [`LabError::Interrupted`].
pub fn all(
    lab: &Lab<'_>,
    sets: &Sets,
    vectors: &SinkVectors,
    effort: &Effort,
    each: &mut dyn FnMut(&Table) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let quick = effort.quick;
    let one = if quick { &sets.first() } else { sets };
    let forward_batch = if quick { 16 } else { FORWARD_BATCH };
    let photos = sets.usable.first().ok_or_else(|| LabError::Photos("no photos".to_owned()))?;
    each(&decoders(lab, sets, effort)?)?;
    each(&resizers(lab, sets, effort)?)?;
    each(&sinks(lab, vectors, effort)?)?;
    // Other libraries' forwards take minutes to open: `bench forward` measures them.
    let own = Effort { peers: None, ..effort.clone() };
    each(&forward(lab, photos, &[forward_batch], &own)?)?;
    each(&batch_sweep(lab, photos, &batches(lab, quick), effort)?)?;
    each(&job_batch_sweep(lab, &sets.first(), &batches(lab, quick), effort)?)?;
    each(&worker_sweep(lab, one, &workers(lab), effort)?)?;
    each(&headline(lab, sets, effort)?)?;
    each(&extrapolation(lab, one, TARGET, effort)?)
}
