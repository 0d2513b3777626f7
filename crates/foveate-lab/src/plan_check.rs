//! Compares the model's predictions with runs that it has not seen.

use std::collections::BTreeMap;
use std::time::Duration;

use foveate_plan::{Bottleneck, Place};

use crate::stats::median;
use crate::{Calibration, Lab, LabError, LentEncoder, Output, PhotoSet, Rig, Setting, StandIn, Table, schema};

/// The runs of a check, and their thoroughness.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanCheckOptions {
    /// The settings to predict and run; [`settings`] returns a good choice.
    pub settings: Vec<Setting>,
    /// Settings for the same photos on a web server of this machine. Its answers take so long that the settings'
    /// requests in flight read half as fast as the other stages work, at most; [`settings_for_the_web`] returns a good
    /// choice.
    pub on_the_web: Vec<Setting>,
    /// Successive rounds: in each, the parts are measured, and every setting is predicted and run.
    pub rounds: usize,
    /// Seconds of one run; it has at least [`FEWEST_BATCHES`].
    pub seconds: f64,
}

/// Minimum batches of a run: with fewer, a run is only start and end.
pub const FEWEST_BATCHES: u64 = 3;
/// Share of the other stages' rate that requests to the web server read at most.
const SLOWER: f64 = 0.5;
/// Minimum latency of the web server in seconds, far above this machine's own time for a request.
const LEAST_LATENCY: f64 = 0.02;

/// The comparison.
#[derive(Clone, Debug)]
pub struct PlanCheck {
    /// The rows, [`schema::PLAN`].
    pub table: Table,
    /// Median of |predicted ÷ measured − 1|.
    pub median_error: f64,
    /// The largest of these errors.
    pub worst_error: f64,
}

/// Returns ten settings: six with the job's forward, and four with one that takes no time. They differ in decoder,
/// workers, batch and threads.
pub fn settings(rig: &dyn Rig) -> Vec<Setting> {
    let base = rig.base();
    let cores = rig.context().cores.max(1);
    // Numbers of threads that fit the cores, that exceed them, and a single thread.
    let shapes = [(0, 8, 1), (1, 16, 1), (1, 8, cores), (2, 16, cores), (2 * cores, 8, cores), (1, 4, cores)];
    let free = free(&base);
    let own = shapes.map(|(workers, batch, threads)| Setting { workers, batch, threads, ..base.clone() });
    let rest = [(0, 8), (1, 16), (cores, 8), (2 * cores, 16)];
    let rest = rest.map(|(workers, batch)| Setting { workers, batch, ..free.clone() });
    let usable = rig.decoders().into_iter().filter(|candidate| candidate.problem.is_none());
    let decoders: Vec<String> = usable.map(|candidate| candidate.name).take(3).collect();
    let decoders = decoders.iter().cycle().cloned();
    own.into_iter().chain(rest).zip(decoders).map(|(setting, decoder)| Setting { decoder, ..setting }).collect()
}

/// Returns four settings with few requests in flight, and a forward that takes no time.
pub fn settings_for_the_web(rig: &dyn Rig) -> Vec<Setting> {
    let free = free(&rig.base());
    let cores = rig.context().cores.max(1);
    let shapes = [(1, 1, 4), (2, cores, 4), (3, 1, 8), (4, cores, 8)];
    shapes.map(|(requests, workers, batch)| Setting { requests, workers, batch, ..free.clone() }).into()
}

fn free(base: &Setting) -> Setting {
    Setting { encoder: StandIn::FREE.to_owned(), threads: 1, ..base.clone() }
}

/// Measures the parts, predicts every setting, and only then runs each: all of it anew in every round, since a
/// machine's speed may change between rounds.
///
/// # Errors
/// The errors of [`Calibration::measure`] and [`Lab::run`].
pub fn run(lab: &Lab<'_>, photos: &PhotoSet, options: &PlanCheckOptions) -> Result<PlanCheck, LabError> {
    let PlanCheckOptions { settings, on_the_web, rounds, seconds } = options;
    let all = [settings.as_slice(), on_the_web].concat();
    let mut calibration = Calibration::measure(lab, photos, &all)?;
    let mut latency = LEAST_LATENCY;
    for setting in on_the_web {
        latency = latency.max(setting.requests as f64 / (SLOWER * calibration.predict(setting)?.images_per_second));
    }
    let web = photos.on_the_web(Duration::from_secs_f64(latency))?;
    let mut plans: Vec<Planned<'_>> = settings.iter().map(|setting| Planned::new(photos, setting)).collect();
    plans.extend(on_the_web.iter().map(|setting| Planned::new(&web, setting)));
    for round in 0..*rounds {
        lab.watch.doing(&format!("round {} of {rounds}", round + 1));
        if round > 0 {
            calibration = Calibration::measure(lab, photos, &all)?;
        }
        let from_web = calibration.read_from(lab, &web)?;
        for (number, planned) in plans.iter_mut().enumerate() {
            planned.predict(if number < settings.len() { &calibration } else { &from_web }, *seconds)?;
        }
        let encoders = encoders(lab, &all)?;
        for planned in &mut plans {
            let encoder = &encoders[&encoder_of(planned.setting)];
            let run = lab.run(planned.setting, planned.photos, planned.images, encoder, &Output::Discard)?;
            planned.measured.push(run.rate);
        }
    }
    let mut table = Table::new(&schema::PLAN);
    plans.iter().for_each(|planned| planned.add_to(&mut table));
    let errors: Vec<f64> = (0..table.len()).filter_map(|row| table.number(row, "error")).map(f64::abs).collect();
    let median_error = median(&errors).unwrap_or(f64::NAN);
    let worst_error = errors.into_iter().fold(f64::NAN, f64::max);
    Ok(PlanCheck { table, median_error, worst_error })
}

/// One setting, its predictions and measurements: one of each per round.
struct Planned<'a> {
    photos: &'a PhotoSet,
    setting: &'a Setting,
    /// Images of each run, by the first prediction; `regime` and `limit` are the first one's, too.
    images: u64,
    regime: &'static str,
    limit: String,
    predicted: Vec<f64>,
    measured: Vec<f64>,
}

impl<'a> Planned<'a> {
    fn new(photos: &'a PhotoSet, setting: &'a Setting) -> Self {
        let limit = String::new();
        let predicted = Vec::new();
        let measured = Vec::new();
        Self { photos, setting, images: 0, regime: "", limit, predicted, measured }
    }

    fn predict(&mut self, calibration: &Calibration, seconds: f64) -> Result<(), LabError> {
        let prediction = calibration.predict(self.setting)?;
        if self.predicted.is_empty() {
            let batch = self.setting.batch as u64;
            let batches = (prediction.images_per_second * seconds / batch as f64).round() as u64;
            self.images = batches.max(FEWEST_BATCHES) * batch;
            self.regime = regime(&prediction.model.bound);
            self.limit.clone_from(&prediction.limit);
        }
        self.predicted.push(prediction.over(self.images));
        Ok(())
    }

    fn add_to(&self, table: &mut Table) {
        let predicted = median(&self.predicted);
        let measured = median(&self.measured);
        let error = predicted.zip(measured).map(|(predicted, measured)| predicted / measured - 1.0);
        let figures = [
            ("photos", self.photos.name.as_str().into()),
            ("requests", self.photos.is_in_store().then_some(self.setting.requests).into()),
            ("images", self.images.into()),
            ("samples", self.measured.len().into()),
            ("sample_seconds", measured.map(|rate| self.images as f64 / rate).into()),
            ("predicted", predicted.into()),
            ("measured", measured.into()),
            ("error", error.into()),
            ("regime", self.regime.into()),
            ("limit", self.limit.as_str().into()),
        ];
        table.push(self.setting.columns().into_iter().chain(figures));
    }
}

/// Returns the wall that a prediction's bound belongs to.
fn regime(bound: &Bottleneck) -> &'static str {
    let (Bottleneck::Stage { stage: name }
    | Bottleneck::Cores { largest: name }
    | Bottleneck::Sequential { largest: name }) = bound;
    match Place::ALL.into_iter().find(|place| place.name() == name) {
        Some(Place::Worker) => "transform",
        Some(Place::Encoder) => "compute",
        Some(Place::Reader | Place::Writer) | None => "storage",
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
