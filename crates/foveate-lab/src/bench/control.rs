use super::cells::{Effort, usual_output};
use crate::cell::significant;
use crate::stats::Spread;
use crate::{Lab, LabError, PhotoSet, Table, schema};

/// Ratio of the fastest to the slowest control run from which on the machine counts as unsteady.
const UNSTEADY: f64 = 1.2;

/// The usual job, measured again after each experiment. Its rates would all be the same on a steady machine.
pub struct Control<'a> {
    photos: &'a PhotoSet,
    effort: Effort,
    /// Images of a run, once known: every run has the same.
    images: Option<u64>,
    /// The experiment before each run, and the run's rate.
    runs: Vec<(&'static str, f64)>,
}

impl<'a> Control<'a> {
    /// Prepares runs of the usual job on `photos`.
    pub fn new(photos: &'a PhotoSet, effort: &Effort) -> Self {
        Self { photos, effort: effort.clone(), images: None, runs: Vec::new() }
    }

    /// Runs the job once, after the experiment that makes the file `after`. The encoder is not kept, so that its memory
    /// does not count in the experiments.
    ///
    /// # Errors
    /// The errors of [`Lab::run`].
    pub fn sample(&mut self, lab: &Lab<'_>, after: &'static str) -> Result<(), LabError> {
        lab.watch.doing(&format!("control, after {after}"));
        let setting = lab.rig.base();
        let encoder = lab.encoder(&setting)?;
        let wanted = Effort { images: self.images.or(self.effort.images), ..self.effort.clone() };
        let images = wanted.images_of_run(lab, &setting, self.photos, &encoder)?;
        let run = lab.run(&setting, self.photos, images, &encoder, &usual_output(lab))?;
        self.images = Some(images);
        self.runs.push((after, run.rate));
        Ok(())
    }

    /// Returns [`schema::CONTROL`].
    pub fn table(&self) -> Table {
        let mut table = Table::new(&schema::CONTROL);
        let spread = self.spread();
        for &(after, rate) in &self.runs {
            table.push([
                ("photos", self.photos.name.as_str().into()),
                ("after", after.into()),
                ("samples", 1_usize.into()),
                ("images", self.images.into()),
                ("images_per_second", rate.into()),
                ("times_median", spread.map(|spread| rate / spread.median).into()),
            ]);
        }
        table
    }

    /// Returns the reason to doubt the whole run if the rates differ much.
    pub fn unsteady(&self) -> Option<String> {
        let Spread { min, max, .. } = self.spread()?;
        (max > UNSTEADY * min).then(|| {
            let [low, high] = [min, max].map(|rate| significant(rate, 3));
            format!("the same job ran at {low} to {high} images/s between the experiments")
        })
    }

    fn spread(&self) -> Option<Spread> {
        Spread::of(&self.runs.iter().map(|&(_, rate)| rate).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_differ_by_more_than_a_fifth_are_unsteady() {
        let photos = PhotoSet::none();
        let control = |rates: &[f64]| Control {
            runs: rates.iter().map(|&rate| ("x.csv", rate)).collect(),
            ..Control::new(&photos, &Effort::quick())
        };
        assert_eq!(control(&[13.3, 13.1, 12.0]).unsteady(), None);
        assert_eq!(control(&[]).unsteady(), None);
        let reason = control(&[13.3, 13.1, 6.6, 6.2, 5.7]).unsteady();
        assert_eq!(reason.as_deref(), Some("the same job ran at 5.70 to 13.3 images/s between the experiments"));
        let table = control(&[10.0, 8.0, 12.0]).table();
        let times = [0, 1, 2].map(|row| table.number(row, "times_median"));
        assert_eq!(times, [Some(1.0), Some(0.8), Some(1.2)]);
    }
}
