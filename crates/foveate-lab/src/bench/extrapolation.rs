use super::cells::{Attempt, Effort, Sets, attempt, not_available, usual_output};
use crate::order::order;
use crate::stats::{mean, prediction_interval};
use crate::{Lab, LabError, LentEncoder, PhotoSet, Setting, Table, schema};

/// Minimum number of samples for an estimate of their spread.
const LEAST_SAMPLES: usize = 4;
/// Length of the run that checks the projection, in multiples of a sample's longer run.
const LONGER: u64 = 10;
/// Ratio of a sample's longer run to its shorter one, in images.
const SHORTER: u64 = 4;
/// The assumptions of the projection.
const ASSUMPTIONS: &str = "more of the same photos, files in the system's cache, the machine as busy as now, samples \
                           normally distributed; what it costs to start and to end a run is left out";

/// Projects some samples to `target` images, on each set of photos, and checks the projection with a run ten times as
/// long.
///
/// A sample is two runs. Its time per image is the difference of their times ÷ the difference of their images. So start
/// and end, which a job pays for once, cancel out. The interval is the 95 % prediction interval for one more sample,
/// from Student's t: mean ± t · s · √(1 + 1/n). Rates are its inverse. A rate without an upper end (`high` is empty) is
/// too noisy to tell how fast the job can be.
///
/// # Errors
/// [`LabError::Setting`] for samples of fewer than two images. Fails if the encoder cannot be opened;
/// [`LabError::Interrupted`].
pub fn extrapolation(lab: &Lab<'_>, sets: &Sets, target: u64, effort: &Effort) -> Result<Table, LabError> {
    if effort.images.is_some_and(|images| images < 2) {
        return Err(LabError::Setting("an extrapolation needs samples of at least 2 images".to_owned()));
    }
    let mut table = Table::new(&schema::EXTRAPOLATION);
    let setting = lab.rig.base();
    let encoder = lab.encoder(&setting)?;
    for photos in &sets.usable {
        let result = Sampled::take(lab, &setting, photos, &encoder, effort);
        push(&mut table, photos, target, attempt(lab, result)?);
    }
    sets.push_missing(&mut table);
    Ok(table)
}

/// Returns the images per second at these seconds per image; `None` unless they are positive.
fn rate(seconds: Option<f64>) -> Option<f64> {
    seconds.filter(|&seconds| seconds > 0.0).map(f64::recip)
}

/// Returns the hours that `target` images take at these seconds per image.
fn hours(target: u64, seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| target as f64 * seconds.max(0.0) / 3600.0)
}

fn push(table: &mut Table, photos: &PhotoSet, target: u64, sampled: Attempt<Sampled>) {
    let name = ("photos", photos.name.as_str().into());
    let sampled = match sampled {
        Ok(sampled) => sampled,
        Err(reason) => return table.push([name, ("status", not_available(&reason).into())]),
    };
    let (least, most) = prediction_interval(&sampled.seconds).unzip();
    let middle = mean(&sampled.seconds);
    let long = sampled.long_rate.recip();
    let within = least.zip(most).map(|(least, most)| (least..=most).contains(&long));
    table.push([
        name,
        ("status", "ok".into()),
        ("images", sampled.images.into()),
        ("samples", sampled.seconds.len().into()),
        ("images_per_second", rate(middle).into()),
        ("low", rate(most).into()),
        ("high", rate(least).into()),
        ("target_images", target.into()),
        ("hours", hours(target, middle).into()),
        ("hours_low", hours(target, least).into()),
        ("hours_high", hours(target, most).into()),
        ("long_images", sampled.long_images.into()),
        ("long_images_per_second", sampled.long_rate.into()),
        ("within", within.into()),
        ("assumptions", ASSUMPTIONS.into()),
    ]);
}

/// Several samples, and one long run.
struct Sampled {
    images: u64,
    /// Seconds per image of each sample.
    seconds: Vec<f64>,
    long_images: u64,
    long_rate: f64,
}

impl Sampled {
    fn take(
        lab: &Lab<'_>,
        setting: &Setting,
        photos: &PhotoSet,
        encoder: &LentEncoder,
        effort: &Effort,
    ) -> Result<Self, LabError> {
        lab.watch.doing(&format!("extrapolation, {}: warming up", photos.name));
        let (longer, shorter) = lengths(effort.images_of_run(lab, setting, photos, encoder)?, setting, effort);
        let output = usual_output(lab);
        let mut seconds = Vec::new();
        let samples = effort.samples.max(LEAST_SAMPLES);
        for sample in 0..samples {
            lab.watch.doing(&format!("extrapolation, {}: sample {} of {samples}", photos.name, sample + 1));
            // The longer run comes first in half of the samples, in an order that the seed decides.
            let order = order(lab.seed, 2, sample).into_iter().map(|at| [longer, shorter][at]);
            let [mut long, mut short] = [0.0; 2];
            for images in order {
                let run = lab.run(setting, photos, images, encoder, &output)?;
                let wall = run.report.wall.as_secs_f64();
                if images == longer { long = wall } else { short = wall }
            }
            seconds.push(per_image([long, short], [longer, shorter]));
        }
        if mean(&seconds).is_none_or(|mean| mean <= 0.0) {
            let what = format!("{longer} images take no longer than {shorter}: too few, or the machine is too busy");
            return Err(LabError::Setting(what));
        }
        let long_images = LONGER * longer;
        lab.watch.doing(&format!("extrapolation, {}: a run of {long_images} images", photos.name));
        let long = lab.run(setting, photos, long_images, encoder, &output)?;
        Ok(Self { images: longer, seconds, long_images, long_rate: long.rate })
    }
}

/// Returns the seconds per image from two runs, both of which include the cost of start and end.
fn per_image([long, short]: [f64; 2], [longer, shorter]: [u64; 2]) -> f64 {
    (long - short) / (longer - shorter) as f64
}

/// Returns the images of a sample's longer and shorter run: whole batches, unless the user chose the number.
fn lengths(images: u64, setting: &Setting, effort: &Effort) -> (u64, u64) {
    if effort.images.is_some() {
        return (images, (images / SHORTER).max(1));
    }
    let batch = setting.batch as u64;
    let longer = images.max(SHORTER * batch);
    (longer, (longer / SHORTER / batch).max(1) * batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starting_costs_drops_out() {
        let run = |images: u64| 0.7 + 0.002 * images as f64;
        assert!((per_image([run(160), run(40)], [160, 40]) - 0.002).abs() < 1e-12);
    }

    #[test]
    fn both_runs_are_whole_batches_and_the_longer_is_longer() {
        let rig_batch = |batch| Setting { batch, ..Setting::plain() };
        for (images, batch) in [(64, 32), (128, 32), (1000, 8), (2, 1)] {
            let (longer, shorter) = lengths(images, &rig_batch(batch), &Effort::usual());
            assert!(longer > shorter && shorter > 0 && shorter % batch as u64 == 0, "{images}, {batch}");
            assert!(longer >= images);
        }
        let told = Effort { images: Some(2), ..Effort::usual() };
        assert_eq!(lengths(2, &rig_batch(32), &told), (2, 1));
    }
}
