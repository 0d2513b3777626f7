//! The sampling in rounds.

use super::cells::{Attempt, attempt};
use super::peers::PeerLibrary;
use crate::order::order;
use crate::{Lab, LabError};

/// Takes a sample of every working cell, `samples` times. A cell that fails keeps the reason and is sampled no more.
pub(super) fn sample<C>(
    lab: &Lab<'_>,
    samples: usize,
    cells: &mut [Attempt<C>],
    what: impl Fn(&C) -> String,
    take: impl FnMut(&mut C) -> Result<(), LabError>,
) -> Result<(), LabError> {
    sample_with_peers(lab, samples, cells, what, take, &mut [], 0)
}

/// Samples cells as [`sample`] does, and `images` of each peer in the same rounds.
pub(super) fn sample_with_peers<C>(
    lab: &Lab<'_>,
    samples: usize,
    cells: &mut [Attempt<C>],
    what: impl Fn(&C) -> String,
    mut take: impl FnMut(&mut C) -> Result<(), LabError>,
    peers: &mut [Attempt<PeerLibrary>],
    images: usize,
) -> Result<(), LabError> {
    for round in 0..samples.max(1) {
        for at in order(lab.seed, cells.len() + peers.len(), round) {
            if let Some(at) = at.checked_sub(cells.len()) {
                lab.go_on()?;
                if let Ok(peer) = &mut peers[at]
                    && let Err(reason) = peer.sample(images)
                {
                    peers[at] = Err(reason);
                }
            } else if let Ok(cell) = &mut cells[at] {
                lab.watch.doing(&format!("{}, sample {} of {}", what(cell), round + 1, samples.max(1)));
                if let Err(reason) = attempt(lab, take(cell))? {
                    cells[at] = Err(reason);
                }
            }
        }
    }
    Ok(())
}
