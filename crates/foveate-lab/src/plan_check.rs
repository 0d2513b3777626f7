//! Compares the model's predictions with runs that it has not seen.

use std::collections::BTreeMap;

use crate::stats::{Spread, median};
use crate::{Calibration, Lab, LabError, LentEncoder, Output, PhotoSet, Rig, Setting, Table, schema};

/// What is run, and how thoroughly.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanCheckOptions {
    /// The settings to predict and run; [`settings`] returns a good choice.
    pub settings: Vec<Setting>,
    /// Runs of each setting, in successive rounds.
    pub rounds: usize,
    /// Seconds of one run; it has at least [`FEWEST_BATCHES`].
    pub seconds: f64,
}

/// Minimum batches of a run: with fewer, a run is only start and end.
pub const FEWEST_BATCHES: u64 = 3;

/// The comparison.
#[derive(Clone, Debug)]
pub struct Check {
    /// The rows, [`schema::PLAN`].
    pub table: Table,
    /// Median of |predicted ÷ measured − 1|.
    pub median_error: f64,
}

/// Returns at least a dozen settings that differ in decoder, scale, workers, batch and threads; with fewer decoders,
/// each has more settings.
pub fn settings(rig: &dyn Rig) -> Vec<Setting> {
    let base = rig.base();
    let cores = rig.context().cores.max(1);
    let usable = rig.decoders().into_iter().filter(|candidate| candidate.problem.is_none());
    let decoders: Vec<String> = usable.map(|candidate| candidate.name).take(3).collect();
    // Numbers of threads that fit the cores, that exceed them, and a single thread.
    let shapes = [
        (0, 8, 1),
        (1, 16, 1),
        (2, 4, 1),
        (1, 8, cores),
        (2, 16, cores),
        (2 * cores, 8, cores),
        (0, 16, cores),
        (1, 4, cores),
        (2, 32, 1),
        (4, 32, cores),
        (0, 4, 1),
        (cores, 8, 1),
    ];
    let each = 12_usize.div_ceil(decoders.len().max(1));
    let mut settings = Vec::new();
    for (n, decoder) in decoders.iter().enumerate() {
        for at in 0..each {
            let (workers, batch, threads) = shapes[(n * each + at) % shapes.len()];
            let decoder = decoder.clone();
            settings.push(Setting { decoder, workers, batch, threads, ..base.clone() });
        }
    }
    settings
}

/// Measures the parts, predicts every setting, and only then runs each, in rounds.
///
/// # Errors
/// The errors of [`Calibration::measure`] and [`Lab::run`].
pub fn run(lab: &Lab<'_>, photos: &PhotoSet, options: &PlanCheckOptions) -> Result<Check, LabError> {
    let calibration = Calibration::measure(lab, photos, &options.settings)?;
    let plans: Result<Vec<Planned<'_>>, LabError> =
        options.settings.iter().map(|setting| Planned::new(&calibration, setting, options.seconds)).collect();
    let mut plans = plans?;
    let encoders = encoders(lab, &options.settings)?;
    for round in 0..options.rounds {
        lab.watch.doing(&format!("round {} of {}", round + 1, options.rounds));
        for planned in &mut plans {
            let encoder = &encoders[&encoder_of(planned.setting)];
            let run = lab.run(planned.setting, photos, planned.images, encoder, &Output::Discard)?;
            planned.measured.push(run.rate);
        }
    }
    let mut table = Table::new(&schema::PLAN);
    plans.iter().for_each(|planned| planned.add_to(&mut table, photos));
    let errors: Vec<f64> = (0..table.len()).filter_map(|row| table.number(row, "error")).map(f64::abs).collect();
    let median_error = median(&errors).unwrap_or(f64::NAN);
    Ok(Check { table, median_error })
}

/// One setting, its prediction, and its measurement.
struct Planned<'a> {
    setting: &'a Setting,
    images: u64,
    predicted: f64,
    limit: String,
    measured: Vec<f64>,
}

impl<'a> Planned<'a> {
    fn new(calibration: &Calibration, setting: &'a Setting, seconds: f64) -> Result<Self, LabError> {
        let prediction = calibration.predict(setting)?;
        let batches = (prediction.images_per_second * seconds / setting.batch as f64).round() as u64;
        let images = batches.max(FEWEST_BATCHES) * setting.batch as u64;
        let predicted = prediction.over(images);
        Ok(Self { setting, images, predicted, limit: prediction.limit, measured: Vec::new() })
    }

    fn add_to(&self, table: &mut Table, photos: &PhotoSet) {
        let measured = Spread::of(&self.measured).map(|spread| spread.median);
        let figures = [
            ("photos", photos.name.as_str().into()),
            ("images", self.images.into()),
            ("samples", self.measured.len().into()),
            ("predicted", self.predicted.into()),
            ("measured", measured.into()),
            ("error", measured.map(|measured| self.predicted / measured - 1.0).into()),
            ("limit", self.limit.as_str().into()),
        ];
        table.push(self.setting.columns().into_iter().chain(figures));
    }
}

type EncoderOf = (String, &'static str, usize);

fn encoder_of(setting: &Setting) -> EncoderOf {
    (setting.encoder.clone(), setting.dtype.name(), setting.threads)
}

/// Opens one encoder for all settings that differ only in their batch size.
fn encoders(lab: &Lab<'_>, settings: &[Setting]) -> Result<BTreeMap<EncoderOf, LentEncoder>, LabError> {
    let mut largest: BTreeMap<EncoderOf, &Setting> = BTreeMap::new();
    for setting in settings {
        let entry = largest.entry(encoder_of(setting)).or_insert(setting);
        if setting.batch > entry.batch {
            *entry = setting;
        }
    }
    largest.into_iter().map(|(key, setting)| Ok((key, lab.encoder(setting)?))).collect()
}
