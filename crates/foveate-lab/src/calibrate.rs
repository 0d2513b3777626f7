//! The costs of a machine, photos and backends, measured briefly for the analytic model, and the model's predictions
//! for a setting.

mod forward;
mod probe;

use std::collections::{BTreeMap, BTreeSet};

use foveate_plan::{Configuration, Measured, Place, StageCost, StepFit};

use self::forward::{Company, ForwardFeed, ForwardTimes};
use self::probe::{Prober, StageProbe};
use crate::clock::Took;
use crate::storage::Supply;
use crate::{Lab, LabError, Output, PhotoSet, Setting};

/// Maximum seconds of a probe of reading, decoding and resizing.
const PROBE_SECONDS: f64 = 1.0;

/// Measured costs of everything that some settings mention.
///
/// The stages before and after the forward are measured in the engine itself: first one photo at a time, then with
/// every core busy. The forward is measured alone at several batch sizes, then beside workers. So a prediction is made
/// from parts, never from a run like the predicted one.
#[derive(Clone, Debug)]
pub struct Calibration {
    cores: u32,
    bytes_per_image: f64,
    prepare: BTreeMap<PrepareKey, PrepareCosts>,
    forward: BTreeMap<ForwardKey, ForwardTimes>,
    dim: usize,
    output: Output,
    /// Throughput of the photos' place, if they are read ahead.
    supply: Supply,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PrepareKey {
    decoder: String,
    scale: &'static str,
    resizer: String,
    recipe: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ForwardKey {
    encoder: String,
    dtype: &'static str,
    threads: usize,
}

/// The costs of everything except the forward, per image on one thread.
#[derive(Clone, Debug)]
struct PrepareCosts {
    read: Took,
    decode: Took,
    resize: Took,
    /// Listing, hashing, and the copy into the batch.
    other: Took,
    write: Took,
    /// Core seconds per image with every core decoding ÷ those with one, at least 1. Cores share more than time.
    crowding: f64,
}

/// The model's prediction for a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Throughput once the pipeline is full.
    pub images_per_second: f64,
    /// The limiting factor, in a few words.
    pub limit: String,
    /// The reason, in a sentence with numbers.
    pub why: String,
    /// The model's full prediction: loads by stage, utilization, start and end of a run.
    pub model: foveate_plan::Prediction,
}

impl Prediction {
    /// Returns the images per second of a run of `images`, including its start and end.
    pub fn over(&self, images: u64) -> f64 {
        self.model.images_per_second_over(images)
    }
}

/// The costs of a setting's stages, for tables and checklists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Milliseconds per image for reading, on one thread; `decode_ms` and `resize_ms` likewise.
    pub read_ms: f64,
    /// See `read_ms`.
    pub decode_ms: f64,
    /// See `read_ms`.
    pub resize_ms: f64,
    /// Milliseconds per image for listing, hashing and copying.
    pub other_ms: f64,
    /// Milliseconds for storing an image's vector.
    pub write_ms: f64,
    /// Ratio of the core time to prepare an image with every core busy to that with one, 1 or more.
    pub crowding: f64,
    /// Ratio by which work takes longer while workers and forward share the cores: see
    /// [`Measured::interference`](foveate_plan::Measured::interference).
    pub interference: f64,
    /// Share of an encoding taken by copies to and from a device, 0..=1.
    pub copy_share: f64,
}

impl Calibration {
    /// Measures the costs of `settings`, with vectors that are discarded. Takes some seconds for each of their
    /// decoders, resizers and forwards.
    ///
    /// # Errors
    /// Fails if a backend cannot be opened or fails; [`LabError::Interrupted`].
    pub fn measure(lab: &Lab<'_>, photos: &PhotoSet, settings: &[Setting]) -> Result<Self, LabError> {
        Self::measure_into(lab, photos, settings, &Output::Discard)
    }

    /// Measures with vectors stored in `output`.
    ///
    /// # Errors
    /// The errors of [`Self::measure`].
    pub fn measure_into(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        settings: &[Setting],
        output: &Output,
    ) -> Result<Self, LabError> {
        let mut calibration = Self {
            cores: lab.rig.context().cores.max(1) as u32,
            bytes_per_image: photos.mean_bytes(),
            prepare: BTreeMap::new(),
            forward: BTreeMap::new(),
            dim: 1,
            output: output.clone(),
            supply: supply(lab, photos)?,
        };
        calibration.extend(lab, photos, settings)?;
        Ok(calibration)
    }

    /// Returns the same costs with the photos read from where `photos`, which are read ahead, are.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub(crate) fn read_from(&self, lab: &Lab<'_>, photos: &PhotoSet) -> Result<Self, LabError> {
        let mut calibration = Self { supply: supply(lab, photos)?, ..self.clone() };
        calibration.prepare.values_mut().for_each(|prepare| prepare.read = Took::default());
        Ok(calibration)
    }

    /// Returns the same forward with the other stages measured on `photos`, which are read ahead.
    ///
    /// # Errors
    /// Fails if they cannot be read or prepared.
    pub(crate) fn prepared_from(&self, lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting) -> Result<Self, LabError> {
        let supply = supply(lab, photos)?;
        let bytes_per_image = photos.mean_bytes();
        let mut calibration = Self { supply, bytes_per_image, prepare: BTreeMap::new(), ..self.clone() };
        calibration.prepare(lab, photos, setting)?;
        Ok(calibration)
    }

    /// Creates a calibration from known costs, for everything that `settings` mention, without measuring.
    #[cfg(test)]
    pub(crate) fn known(cores: u32, costs: &KnownCosts, settings: &[Setting]) -> Self {
        let cost = |seconds| Took { seconds, cpu_seconds: 0.0 };
        let prepare = PrepareCosts {
            read: cost(costs.read),
            decode: cost(costs.decode),
            resize: cost(costs.resize),
            other: cost(0.0),
            write: cost(0.0),
            crowding: 1.0,
        };
        let forward = |batches: &BTreeSet<usize>| {
            let seconds = |batch: usize| costs.forward_call + costs.forward * batch as f64;
            ForwardTimes::known(batches.iter().map(|&batch| (batch, seconds(batch))))
        };
        Self {
            cores,
            bytes_per_image: 1e5,
            prepare: settings.iter().map(|setting| (PrepareKey::of(setting), prepare.clone())).collect(),
            forward: forwards(settings).into_iter().map(|(key, (_, batches))| (key, forward(&batches))).collect(),
            dim: 8,
            output: Output::Discard,
            supply: Supply::default(),
        }
    }

    /// Measures what `settings` mention and is not yet known.
    ///
    /// # Errors
    /// The errors of [`Self::measure`].
    pub fn extend(&mut self, lab: &Lab<'_>, photos: &PhotoSet, settings: &[Setting]) -> Result<(), LabError> {
        for (key, (setting, batches)) in forwards(settings) {
            let most = batches.iter().copied().max().unwrap_or(1);
            let encoder = lab.open_encoder(&Setting { batch: most, ..setting.clone() })?;
            let mut feed = ForwardFeed::new(encoder, most, self.cores);
            self.dim = feed.dim();
            let mut forward = self.forward.remove(&key).unwrap_or_default();
            forward.measure(lab, &mut feed, setting.threads, &batches)?;
            let same = settings.iter().filter(|setting| ForwardKey::of(setting) == key);
            same.into_iter().try_for_each(|setting| self.prepare(lab, photos, setting))?;
            if forward.interference.is_none() && setting.workers > 0 {
                let alone = self.prepare[&PrepareKey::of(&setting)].core_seconds(setting.workers, self.cores);
                forward.keep_company(&mut feed, &Company { lab, photos, setting: &setting }, alone)?;
            }
            self.forward.insert(key, forward);
        }
        Ok(())
    }

    fn prepare(&mut self, lab: &Lab<'_>, photos: &PhotoSet, setting: &Setting) -> Result<(), LabError> {
        let key = PrepareKey::of(setting);
        if self.prepare.contains_key(&key) {
            return Ok(());
        }
        let Setting { decoder, resizer, recipe, .. } = setting;
        lab.watch.doing(&format!("{decoder} ({}) and {resizer} ({recipe}) alone", setting.decode_scale()));
        let prober = Prober { lab, photos, output: &self.output, dim: self.dim };
        let alone = prober.alone(setting, PROBE_SECONDS)?;
        let crowded = match self.cores {
            1 => None,
            cores => Some(prober.crowded(setting, cores as usize, alone.images)?),
        };
        self.prepare.insert(key, PrepareCosts::of(&alone, crowded.as_ref()));
        Ok(())
    }

    /// Returns the model's input for the setting.
    ///
    /// # Errors
    /// [`LabError::Setting`] if a part of it was not measured.
    pub fn measured(&self, setting: &Setting) -> Result<Measured, LabError> {
        let prepare = self.prepared(setting)?;
        let forward = self.forward(setting)?;
        let crowding = prepare.crowding_of(setting.workers, self.cores);
        Ok(Measured {
            cores: self.cores,
            bytes_per_image: self.bytes_per_image,
            bytes_per_vector: (self.dim * size_of::<f32>()) as f64,
            stages: vec![
                stage("read", Place::Reader, prepare.read, 1.0),
                stage("decode", Place::Worker, prepare.decode, crowding),
                stage("resize", Place::Worker, prepare.resize, crowding),
                stage("other", Place::Worker, prepare.other, crowding),
                stage("write", Place::Writer, prepare.write, 1.0),
            ],
            forward: forward.costs(setting.threads, setting.batch),
            storage: self.supply.storage(setting.requests),
            interference: forward.interference.unwrap_or(0.0),
        })
    }

    /// Returns the analytic model's prediction for `setting`.
    ///
    /// # Errors
    /// The errors of [`Self::measured`]; [`LabError::Plan`] for a setting that cannot run.
    pub fn predict(&self, setting: &Setting) -> Result<Prediction, LabError> {
        let model = self.measured(setting)?.predict(&configuration(setting))?;
        let images_per_second = model.images_per_second;
        let limit = model.bound.to_string();
        let why = model.why.clone();
        Ok(Prediction { images_per_second, limit, why, model })
    }

    /// Returns the costs of the setting's stages.
    ///
    /// # Errors
    /// The errors of [`Self::measured`].
    pub fn costs(&self, setting: &Setting) -> Result<Costs, LabError> {
        let prepare = self.prepared(setting)?;
        let forward = self.forward(setting)?;
        Ok(Costs {
            read_ms: prepare.read.ms(),
            decode_ms: prepare.decode.ms(),
            resize_ms: prepare.resize.ms(),
            other_ms: prepare.other.ms(),
            write_ms: prepare.write.ms(),
            crowding: prepare.crowding,
            interference: forward.interference.unwrap_or(0.0),
            copy_share: forward.copy_share(),
        })
    }

    /// Fits the line `overhead + batch × per_item` to the setting's forwards; `None` if only one batch size was
    /// measured.
    ///
    /// # Errors
    /// The errors of [`Self::measured`].
    pub fn step(&self, setting: &Setting) -> Result<Option<StepFit>, LabError> {
        Ok(self.forward(setting)?.fit())
    }

    fn prepared(&self, setting: &Setting) -> Result<&PrepareCosts, LabError> {
        let Setting { decoder, resizer, recipe, .. } = setting;
        self.prepare.get(&PrepareKey::of(setting)).ok_or_else(|| {
            let scale = setting.decode_scale();
            LabError::Setting(format!("{decoder} ({scale}) with {resizer} ({recipe}) was not measured"))
        })
    }

    fn forward(&self, setting: &Setting) -> Result<&ForwardTimes, LabError> {
        let Setting { encoder, threads, .. } = setting;
        self.forward.get(&ForwardKey::of(setting)).ok_or_else(|| {
            let dtype = setting.dtype.name();
            LabError::Setting(format!("{encoder} {dtype} on {threads} threads was not measured"))
        })
    }
}

/// Seconds per image; `forward_call` is the part of a forward per batch.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownCosts {
    pub(crate) read: f64,
    pub(crate) decode: f64,
    pub(crate) resize: f64,
    pub(crate) forward: f64,
    pub(crate) forward_call: f64,
}

/// Measures what reads ahead of the job, if anything does.
fn supply(lab: &Lab<'_>, photos: &PhotoSet) -> Result<Supply, LabError> {
    if !photos.is_delivered() {
        return Ok(Supply::default());
    }
    lab.watch.doing("reading alone");
    photos.supply().cloned()
}

/// Returns the forwards that `settings` mention, each with its batch sizes and its setting with the most workers, which
/// shows the interference best.
fn forwards(settings: &[Setting]) -> BTreeMap<ForwardKey, (Setting, BTreeSet<usize>)> {
    let mut forwards = BTreeMap::new();
    for setting in settings {
        let (busiest, batches): &mut (Setting, BTreeSet<usize>) =
            forwards.entry(ForwardKey::of(setting)).or_insert_with(|| (setting.clone(), BTreeSet::new()));
        batches.insert(setting.batch);
        if setting.workers > busiest.workers {
            *busiest = setting.clone();
        }
    }
    forwards
}

fn configuration(setting: &Setting) -> Configuration {
    Configuration {
        readers: setting.readers as u32,
        workers: setting.workers as u32,
        batch: setting.batch as u32,
        prefetch: setting.prefetch as u32,
        forward_threads: setting.threads as u32,
        encoders: 1,
    }
}

impl PrepareKey {
    fn of(setting: &Setting) -> Self {
        let Setting { decoder, resizer, recipe, .. } = setting.clone();
        Self { decoder, scale: setting.decode_scale(), resizer, recipe }
    }
}

impl ForwardKey {
    fn of(setting: &Setting) -> Self {
        Self { encoder: setting.encoder.clone(), dtype: setting.dtype.name(), threads: setting.threads }
    }
}

impl PrepareCosts {
    fn of(alone: &StageProbe, crowded: Option<&StageProbe>) -> Self {
        let crowding = crowded.map_or(1.0, |crowded| core_seconds(crowded) / core_seconds(alone).max(1e-9)).max(1.0);
        let other = alone.other / alone.images as f64;
        Self {
            read: per_image(&alone.read, alone.images),
            decode: per_image(&alone.decode, alone.images),
            resize: per_image(&alone.resize, alone.images),
            other: Took { seconds: other, cpu_seconds: other },
            write: per_image(&alone.write, alone.images),
            crowding,
        }
    }

    /// Returns the crowding with `workers` workers on `cores` cores: none with one, the measured value with every core
    /// busy, and in proportion between.
    fn crowding_of(&self, workers: usize, cores: u32) -> f64 {
        let beside = workers.min(cores as usize).saturating_sub(1) as f64;
        1.0 + (self.crowding - 1.0) * beside / f64::from(cores.saturating_sub(1).max(1))
    }

    /// Returns the core seconds to decode and resize an image.
    fn core_seconds(&self, workers: usize, cores: u32) -> f64 {
        (self.decode.cpu_seconds + self.resize.cpu_seconds) * self.crowding_of(workers, cores)
    }
}

/// Returns the core seconds that workers spend on an image.
fn core_seconds(probe: &StageProbe) -> f64 {
    probe.decode.iter().chain(&probe.resize).map(|took| took.cpu_seconds).sum::<f64>() / probe.images as f64
}

/// Returns the mean cost of an image from the calls for `images` of them.
fn per_image(calls: &[Took], images: u64) -> Took {
    let images = images.max(1) as f64;
    Took {
        seconds: calls.iter().map(|took| took.seconds).sum::<f64>() / images,
        cpu_seconds: calls.iter().map(|took| took.cpu_seconds).sum::<f64>() / images,
    }
}

/// Returns a stage with `factor` times the core time and the same waiting time.
fn stage(name: &str, place: Place, Took { seconds, cpu_seconds }: Took, factor: f64) -> StageCost {
    let seconds = seconds + cpu_seconds * (factor - 1.0);
    StageCost { name: name.to_owned(), place, seconds, cpu_seconds: cpu_seconds * factor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_limits_one_worker_and_two_and_the_forward_limits_eight() {
        let costs = KnownCosts { read: 2e-3, decode: 16e-3, resize: 4e-3, forward: 7e-3, forward_call: 20e-3 };
        let base = Setting::plain();
        let setting = |workers, batch| Setting { workers, batch, ..base.clone() };
        let settings = [setting(0, 8), setting(1, 8), setting(2, 16), setting(8, 8), setting(8, 32)];
        let calibration = Calibration::known(2, &costs, &settings);
        for (setting, limit) in settings.iter().zip(["one thread", "workers", "workers", "forward", "forward"]) {
            let predicted = calibration.predict(setting).unwrap();
            assert!(predicted.limit.starts_with(limit), "{setting:?}: {predicted:?}");
        }
    }
}
