//! The sampling in rounds.

use super::cells::{Attempt, attempt};
use crate::order::order;
use crate::{Lab, LabError};

/// Takes a sample of every working cell, `samples` times. A cell that fails keeps the reason and is sampled no more.
pub(super) fn sample<C>(
    lab: &Lab<'_>,
    samples: usize,
    cells: &mut [Attempt<C>],
    what: impl Fn(&C) -> String,
    mut take: impl FnMut(&mut C) -> Result<(), LabError>,
) -> Result<(), LabError> {
    for round in 0..samples.max(1) {
        for at in order(lab.seed, cells.len(), round) {
            if let Ok(cell) = &mut cells[at] {
                lab.watch.doing(&format!("{}, sample {} of {}", what(cell), round + 1, samples.max(1)));
                if let Err(reason) = attempt(lab, take(cell))? {
                    cells[at] = Err(reason);
                }
            }
        }
    }
    Ok(())
}
