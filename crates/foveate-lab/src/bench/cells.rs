//! The parts that the experiments share: their effort, their photos, and the rows of their tables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use foveate_core::error_chain;

use crate::stats::{Spread, mean, median, quantile};
use crate::{Candidate, Cell, Lab, LabError, LentEncoder, Output, PhotoSet, Setting, Table};

/// The time that an experiment may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Images of one sample; `None` for about as many as take [`Self::seconds`].
    pub images: Option<u64>,
    /// Approximate length of one sample in seconds. A single batch may take longer; stages that work image by image
    /// take a quarter.
    pub seconds: f64,
    /// Samples of each cell, at least 1.
    pub samples: usize,
    /// Sweeps of [`all`](super::all) then have fewer steps, and fewer photo sets where two add little to one.
    pub quick: bool,
    /// A script that measures other libraries in turns with our decoders and resizers, such as `benches/peers.py`.
    pub peers: Option<PathBuf>,
}

impl Effort {
    /// Returns five samples of three seconds.
    pub fn usual() -> Self {
        Self { images: None, seconds: 3.0, samples: 5, quick: false, peers: None }
    }

    /// Returns two samples of one second: enough for a first answer.
    pub fn quick() -> Self {
        Self { images: None, seconds: 1.0, samples: 2, quick: true, peers: None }
    }

    /// Returns true if samples are fewer or shorter than usual.
    pub fn is_quick(&self) -> bool {
        let usual = Self::usual();
        self.quick || self.seconds < usual.seconds || self.samples < usual.samples
    }

    /// Returns the images of a sample of a stage that takes `seconds` per image.
    pub(crate) fn images_at(&self, seconds: f64) -> usize {
        let fitting = (self.seconds / 4.0 / seconds.max(1e-7)).ceil() as u64;
        self.images.unwrap_or(fitting).max(1) as usize
    }

    /// Returns the images of a run's sample, after a first run that warms everything up.
    pub(crate) fn images_of_run(
        &self,
        lab: &Lab<'_>,
        setting: &Setting,
        photos: &PhotoSet,
        encoder: &LentEncoder,
    ) -> Result<u64, LabError> {
        match self.images {
            None => lab.images_for(self.seconds, setting, photos, encoder),
            Some(images) => {
                let first = images.min(2 * setting.batch as u64);
                lab.run(setting, photos, first, encoder, &Output::Discard).map(|_| images)
            }
        }
    }
}

/// The photos at the sizes that results depend on: as given, and small.
#[derive(Clone)]
pub struct Sets {
    /// The sets to measure with.
    pub usable: Vec<PhotoSet>,
    /// Name of each unavailable set, and the reason.
    pub missing: Vec<(String, String)>,
}

impl Sets {
    /// Loads at most `most` of the rig's photos, and writes small copies of them to the lab's scratch folder.
    ///
    /// # Errors
    /// [`LabError::Photos`] if there are none to measure with.
    pub fn load(lab: &Lab<'_>, most: usize) -> Result<Self, LabError> {
        let mut sets = Self::as_given(lab, most)?;
        lab.watch.doing("making small photos");
        match sets.usable[0].small(lab.rig, &lab.scratch.join("small")) {
            Ok(small) => sets.usable.push(small),
            Err(LabError::Photos(reason)) => sets.missing.push(("small".to_owned(), reason)),
            Err(error) => return Err(error),
        }
        Ok(sets)
    }

    /// Loads at most `most` of the rig's photos, without small copies.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn as_given(lab: &Lab<'_>, most: usize) -> Result<Self, LabError> {
        lab.watch.doing("reading photos");
        Ok(Self { usable: vec![PhotoSet::load(lab.rig, most)?], missing: Vec::new() })
    }

    /// Returns the first set only.
    pub(crate) fn first(&self) -> Self {
        Self { usable: self.usable[..self.usable.len().min(1)].to_vec(), missing: Vec::new() }
    }

    /// Adds a row for each unavailable set.
    pub(crate) fn push_missing(&self, table: &mut Table) {
        for (name, reason) in &self.missing {
            table.push([("photos", name.as_str().into()), ("status", not_available(reason).into())]);
        }
    }
}

/// The result of a cell; `Err` holds the reason why it has no figures.
pub(crate) type Attempt<T> = Result<T, String>;

/// Converts an error to the reason why one cell has no figures, unless the error ends the experiment.
pub(crate) fn attempt<T>(lab: &Lab<'_>, result: Result<T, LabError>) -> Result<Attempt<T>, LabError> {
    lab.go_on()?;
    match result {
        Err(LabError::Interrupted) => Err(LabError::Interrupted),
        other => Ok(other.map_err(|error| error_chain(&error))),
    }
}

/// Returns the candidate's name, or its problem.
pub(crate) fn usable(candidate: &Candidate) -> Attempt<&str> {
    candidate.problem.clone().map_or(Ok(candidate.name.as_str()), Err)
}

/// Returns the sink of a plain run.
pub(crate) fn usual_output(lab: &Lab<'_>) -> Output {
    let sink = lab.rig.sinks().into_iter().find(|sink| sink.problem.is_none());
    sink.map_or(Output::Discard, |sink| Output::Sink(sink.name))
}

pub(crate) fn wrong(what: impl std::fmt::Display) -> LabError {
    LabError::Work(what.to_string())
}

/// Formats a reason as the text of `status`, on one line.
pub(crate) fn not_available(reason: &str) -> String {
    format!("n/a ({})", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A row under construction.
pub(crate) type Row = BTreeMap<&'static str, Cell>;

/// Builds the row of a cell: its identity, and its figures or the reason why it has none.
pub(crate) fn row<T>(
    identity: impl IntoIterator<Item = (&'static str, Cell)>,
    cell: &Attempt<T>,
    figures: impl FnOnce(&T) -> Row,
) -> Row {
    let mut row: Row = identity.into_iter().collect();
    match cell {
        Ok(cell) => {
            row.insert("status", "ok".into());
            row.extend(figures(cell));
        }
        Err(reason) => drop(row.insert("status", not_available(reason).into())),
    }
    row
}

/// Returns the columns of the rates of several samples, each of about so many images.
pub(crate) fn rates(images: usize, rates: &[f64]) -> Row {
    let spread = Spread::of(rates);
    Row::from([
        ("samples", rates.len().into()),
        ("images", images.into()),
        ("images_per_second", spread.map(|spread| spread.median).into()),
        ("images_per_second_min", spread.map(|spread| spread.min).into()),
        ("images_per_second_max", spread.map(|spread| spread.max).into()),
    ])
}

/// Returns the columns of several times in milliseconds.
pub(crate) fn times(ms: &[f64]) -> Row {
    Row::from([("p50_ms", median(ms).into()), ("p90_ms", quantile(ms, 0.9).into()), ("mean_ms", mean(ms).into())])
}

/// The difference of two images, sample by sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PixelDifference {
    pub(crate) largest: u8,
    sum: u64,
    samples: u64,
    /// True if some images had different sizes and were not compared.
    pub(super) other_size: bool,
}

impl PixelDifference {
    pub(crate) fn add(&mut self, a: &[u8], b: &[u8]) {
        if a.len() != b.len() {
            self.other_size = true;
            return;
        }
        for (a, b) in a.iter().zip(b) {
            let difference = a.abs_diff(*b);
            self.largest = self.largest.max(difference);
            self.sum += u64::from(difference);
        }
        self.samples += a.len() as u64;
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.samples.max(1) as f64
    }
}

impl From<PixelDifference> for Cell {
    fn from(difference: PixelDifference) -> Self {
        match difference {
            PixelDifference { other_size: true, .. } => "another size".into(),
            PixelDifference { largest: 0, .. } => "exact".into(),
            PixelDifference { largest, .. } => u64::from(largest).into(),
        }
    }
}

/// Returns the first of `rates` (in order) that is within 5 % of the best; `None` stands for a cell without figures.
/// If only the last is, more may give more, and there is none.
pub(crate) fn first_near_best(rates: &[Option<f64>]) -> Option<usize> {
    let best = rates.iter().flatten().copied().reduce(f64::max)?;
    let first = rates.iter().position(|rate| rate.is_some_and(|rate| rate >= 0.95 * best))?;
    (rates.len() == 1 || first + 1 < rates.len()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_first_within_five_percent_of_the_best() {
        assert_eq!(first_near_best(&[Some(10.0), Some(19.1), Some(20.0), Some(18.0)]), Some(1));
        assert_eq!(first_near_best(&[Some(10.0), Some(18.9), Some(20.0)]), None);
        assert_eq!(first_near_best(&[None, Some(5.0), None]), Some(1));
        assert_eq!((first_near_best(&[None, None]), first_near_best(&[])), (None, None));
    }

    #[test]
    fn differences_are_told_by_the_largest() {
        let told = |pairs: &[(&[u8], &[u8])]| {
            let mut difference = PixelDifference::default();
            pairs.iter().for_each(|(a, b)| difference.add(a, b));
            (Cell::from(difference), difference.mean())
        };
        assert_eq!(told(&[(&[1, 2], &[1, 2]), (&[9], &[9])]), ("exact".into(), 0.0));
        assert_eq!(told(&[(&[1, 2], &[4, 2]), (&[9, 0], &[8, 0])]), (3_u64.into(), 1.0));
        assert_eq!(told(&[(&[1, 2], &[1])]).0, "another size".into());
    }

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(not_available("no such\n  thing"), "n/a (no such thing)");
    }

    #[test]
    fn images_of_a_sample_follow_the_time_unless_told() {
        let effort = Effort { seconds: 2.0, ..Effort::quick() };
        assert_eq!(effort.images_at(0.01), 50);
        assert_eq!(effort.images_at(10.0), 1);
        assert_eq!(Effort { images: Some(7), ..effort }.images_at(0.01), 7);
    }
}
