use super::cells::{Attempt, Effort, first_near_best, rates, row};
use super::forward::{EncoderRun, PreparedPixels, identity, visit_all};
use super::memory::columns_of_forward;
use crate::stats::median;
use crate::{Lab, LabError, PhotoSet, Setting, Table, schema};

/// Measures the usual encoder at growing batch sizes: throughput and peak memory.
///
/// Each batch size has its own encoder, opened for that size. The sizes are measured from the smallest to the largest,
/// then back. The memory of each size is that of a separate process, with the model and one batch: a process keeps
/// what others needed before.
///
/// # Errors
/// Fails if the photos cannot be prepared; [`LabError::Interrupted`].
pub fn batch_sweep(lab: &Lab<'_>, photos: &PhotoSet, batches: &[usize], effort: &Effort) -> Result<Table, LabError> {
    let pixels = PreparedPixels::prepare(lab, photos, batches.iter().copied().max().unwrap_or(1))?;
    let mut batches = batches.to_vec();
    batches.sort_unstable();
    batches.dedup();
    let settings: Vec<Setting> = batches.iter().map(|&batch| Setting { batch, ..lab.rig.base() }).collect();
    let mut cells: Vec<Attempt<EncoderRun>> = settings.iter().map(|_| Ok(EncoderRun::default())).collect();
    let upwards: Vec<usize> = (0..cells.len()).collect();
    let downwards: Vec<usize> = upwards.iter().rev().copied().collect();
    for order in [upwards, downwards] {
        visit_all(lab, &pixels, &settings, &mut cells, &order, effort)?;
    }
    let mut table = Table::new(&schema::BATCH_SWEEP);
    for (setting, cell) in settings.iter().zip(&cells) {
        table.push(row(identity(setting), cell, |cell| {
            let mut columns = rates(cell.images, &cell.rates);
            columns.insert("batch_p50_ms", median(&cell.ms()).into());
            columns.insert("forward_ms", cell.forward_ms().into());
            columns.extend(columns_of_forward(lab.rig, setting));
            columns
        }));
    }
    let medians: Vec<Option<f64>> = cells.iter().map(|cell| cell.as_ref().ok().and_then(EncoderRun::rate)).collect();
    if let Some(knee) = first_near_best(&medians) {
        table.set(knee, "knee", true.into());
    }
    Ok(table)
}
