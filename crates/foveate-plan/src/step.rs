//! The accelerator's time for a batch.

use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::error::{at_least_one, not_negative, positive};

/// Seconds of one accelerator for a batch of a given size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A straight line.
    Linear(LinearStep),
    /// Measured points.
    Table(StepTable),
}

/// `overhead + batch × per_item`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearStep {
    /// Seconds of a step that do not depend on the batch.
    pub overhead: f64,
    /// Additional seconds for every image of the batch.
    pub per_item: f64,
}

/// Measured `(batch, seconds)` points, joined by straight lines.
///
/// Below the first point the line of the first two continues, but not below the first point's seconds per image (a
/// smaller batch is not cheaper per image). Beyond the last point the line of the last two continues. A single point is
/// taken as proportional to the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, f64)>", into = "Vec<(u32, f64)>")]
pub struct StepTable {
    points: Vec<(u32, f64)>,
}

impl StepTable {
    /// A table of points in any order.
    ///
    /// # Errors
    /// [`PlanError`] without points, with a batch of 0, a duplicate batch, or seconds that are not positive and finite.
    pub fn new(points: impl Into<Vec<(u32, f64)>>) -> Result<Self, PlanError> {
        let mut points = points.into();
        points.sort_by_key(|&(batch, _)| batch);
        for &(batch, seconds) in &points {
            at_least_one("a measured batch", batch)?;
            positive("the seconds of a measured batch", seconds)?;
        }
        if points.is_empty() {
            return Err(PlanError::Impossible("no batch was measured; measure at least one".to_owned()));
        }
        match points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(PlanError::Impossible(format!("batch {} is measured twice; keep one", pair[0].0))),
            None => Ok(Self { points }),
        }
    }

    /// The points, by batch.
    pub fn points(&self) -> &[(u32, f64)] {
        &self.points
    }

    /// Seconds of a batch.
    ///
    /// # Errors
    /// [`PlanError`] for a batch of 0.
    pub fn seconds(&self, batch: u32) -> Result<f64, PlanError> {
        Ok(self.at(at_least_one("the batch", batch)?))
    }

    fn at(&self, batch: f64) -> f64 {
        let (first, seconds) = self.points[0];
        let first = f64::from(first);
        if self.points.len() == 1 {
            return seconds * batch / first;
        }
        let above = self.points.partition_point(|&(b, _)| f64::from(b) < batch).clamp(1, self.points.len() - 1);
        let (x0, y0) = self.points[above - 1];
        let (x1, y1) = self.points[above];
        let line = y0 + (y1 - y0) * (batch - f64::from(x0)) / (f64::from(x1) - f64::from(x0));
        if batch < first { line.max(seconds * batch / first) } else { line.max(y0.min(y1)) }
    }
}

impl TryFrom<Vec<(u32, f64)>> for StepTable {
    type Error = PlanError;
    fn try_from(points: Vec<(u32, f64)>) -> Result<Self, PlanError> {
        Self::new(points)
    }
}

impl From<StepTable> for Vec<(u32, f64)> {
    fn from(table: StepTable) -> Self {
        table.points
    }
}

impl Step {
    /// Seconds of a batch.
    ///
    /// # Errors
    /// [`PlanError`] for a batch of 0, or a line that is negative, not finite, or zero at this batch.
    pub fn seconds(&self, batch: u32) -> Result<f64, PlanError> {
        let items = at_least_one("the batch", batch)?;
        let seconds = match self {
            Self::Linear(line) => {
                not_negative("the step's overhead", line.overhead)?;
                not_negative("the step's seconds per image", line.per_item)?;
                line.overhead + items * line.per_item
            }
            Self::Table(table) => table.at(items),
        };
        positive("the seconds of a step", seconds)
    }

    /// The step with every time multiplied by `factor`: another precision, another device.
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Linear(line) => {
                Self::Linear(LinearStep { overhead: line.overhead * factor, per_item: line.per_item * factor })
            }
            Self::Table(table) => {
                let points = table.points.iter().map(|&(batch, seconds)| (batch, seconds * factor)).collect();
                Self::Table(StepTable { points })
            }
        }
    }

    /// The step with `seconds` more for every image.
    pub(crate) fn with_more_per_item(&self, seconds: f64) -> Self {
        match self {
            Self::Linear(line) => Self::Linear(LinearStep { per_item: line.per_item + seconds, ..*line }),
            Self::Table(table) => {
                let mut table = table.clone();
                for (batch, step) in &mut table.points {
                    *step += seconds * f64::from(*batch);
                }
                Self::Table(table)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_through_its_points_and_on_beyond_them() {
        let step = Step::Table(StepTable::new([(64, 6.0), (8, 2.0), (16, 3.0)]).unwrap());
        let at = |batch| step.seconds(batch).unwrap();
        assert_eq!([at(8), at(16), at(64)], [2.0, 3.0, 6.0]);
        assert_eq!(at(12), 2.5);
        assert_eq!(at(40), 4.5);
        assert_eq!(at(128), 10.0, "the last line goes on");
        assert_eq!(at(4), 1.5, "the first line goes on");
        let steep = Step::Table(StepTable::new([(8, 2.0), (16, 8.0)]).unwrap());
        assert_eq!(steep.seconds(4), Ok(1.0), "but a smaller batch is not cheaper per image");
        assert_eq!(Step::Table(StepTable::new([(8, 2.0)]).unwrap()).seconds(24), Ok(6.0));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(StepTable::new([]).is_err());
        assert!(StepTable::new([(0, 1.0)]).is_err());
        assert!(StepTable::new([(1, f64::NAN)]).is_err());
        assert!(StepTable::new([(1, 1.0), (1, 2.0)]).is_err());
        let step = Step::Linear(LinearStep { overhead: 1.0, per_item: 0.1 });
        assert!(step.seconds(0).is_err());
        assert!(step.scaled(-1.0).seconds(1).is_err());
        assert!(serde_json::from_str::<StepTable>("[[0, 1.0]]").is_err(), "a file is checked like an argument");
    }
}
