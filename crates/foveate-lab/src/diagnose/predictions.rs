//! The fitted model's prediction for each remedy, and its verification.

use std::time::Instant;

use foveate_core::error_chain;
use foveate_preprocess::DecodeScale;
use serde::{Deserialize, Serialize};

use super::interval::{BootstrapInterval, median_of};
use super::known::{KnownChange, Measurements, TRIAL};
use super::options::{DiagnoseOptions, FEWEST_BATCHES, FEWEST_ROUNDS, Verify};
use super::remedies::{Facts, REMEDIES, Remedy, RemedyAttempt, VectorEffect};
use super::sample::{Around, Length, TimedSample, images_for, sample};
use crate::{Calibration, Lab, LabError, LentEncoder, Output, PhotoSet, Prediction, Setting, Table, schema};

/// Among settings that differ by less than this, the first is chosen, which changes the least.
const ALIKE: f64 = 1.01;

/// The remedies, the most promising first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Remedies {
    rows: Vec<RankedRemedy>,
    /// The rows that were tried, in order.
    tried: Vec<usize>,
    /// Measured throughput of the current setting.
    now: f64,
}

/// One remedy for these photos on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RankedRemedy {
    #[serde(with = "by_name")]
    pub(super) remedy: &'static Remedy,
    pub(super) change: String,
    /// Its effect on the vectors of the current setting.
    vectors: VectorEffect,
    outcome: Result<Expected, String>,
    /// The result, if it was tried.
    measured: Option<Verified>,
}

impl RankedRemedy {
    /// Another decoder keeps the vectors if it and the one of `from` both give libjpeg-turbo's pixels, which
    /// `is_exact` says of a decoder's name.
    fn new(
        from: &Setting,
        remedy: &'static Remedy,
        change: String,
        outcome: Result<Expected, String>,
        is_exact: impl Fn(&str) -> bool,
    ) -> Self {
        let mut vectors = remedy.vectors;
        if let Ok(Expected { setting, .. }) = &outcome
            && remedy.name == "decoder"
            && [from, setting].iter().all(|of| of.scale == DecodeScale::Exact && is_exact(&of.decoder))
        {
            vectors = VectorEffect::Same;
        }
        Self { remedy, change, vectors, outcome, measured: None }
    }

    /// Returns the expected images per second; 0 if the remedy does not apply.
    fn rate(&self) -> f64 {
        self.outcome.as_ref().map_or(0.0, |expected| expected.rate)
    }

    fn why(&self) -> String {
        let mark = if self.vectors == VectorEffect::Same { "" } else { "changes the vectors: " };
        format!("{mark}{}", self.remedy.why)
    }
}

/// The expected effect of a remedy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Expected {
    pub(super) setting: Setting,
    place: PhotoPlace,
    /// The model's prediction, images per second.
    predicted: f64,
    /// An earlier measurement of the same change.
    pub(super) known: Option<KnownChange>,
    /// Images per second: the current rate times what was measured before, or else what is predicted.
    pub(super) rate: f64,
    /// The limiting factor afterwards.
    pub(super) limit: String,
}

/// The place of the photos with a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum PhotoPlace {
    /// Unchanged.
    Same,
    /// In a tar.
    Tar,
    /// In a tar, at a smaller size.
    SmallTar,
}

impl PhotoPlace {
    /// Puts the photos there; `None` if they stay where they are.
    fn put(self, lab: &Lab<'_>, photos: &PhotoSet) -> Result<Option<PhotoSet>, LabError> {
        let rig = lab.rig;
        let folder = lab.scratch.join("small");
        match self {
            Self::Same => Ok(None),
            Self::Tar => photos.in_tar(rig, &lab.scratch.join("tar")).map(Some),
            Self::SmallTar => photos.small(rig, &folder)?.in_tar(rig, &folder).map(Some),
        }
    }
}

/// A job with a remedy.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its setting.
    pub setting: Setting,
    /// Its photos, if the remedy puts them elsewhere.
    pub photos: Option<PhotoSet>,
}

/// The reason of a backend that was not measured.
const NO_TIME: &str = "no time left in the budget to measure it";

/// The measured effect of one remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// The change.
    pub change: String,
    /// Images per second before.
    pub before: BootstrapInterval,
    /// Images per second after.
    pub after: BootstrapInterval,
    /// Samples of either.
    pub rounds: usize,
    /// After ÷ before.
    pub times: BootstrapInterval,
    /// The model's prediction, images per second.
    pub predicted: f64,
    /// Predicted ÷ measured − 1.
    pub error: f64,
    /// The conclusion.
    pub effect: Effect,
}

impl Verified {
    /// Concludes from the rates before and after `change`, one of each per round.
    fn of(change: String, before: &[f64], after: &[f64], predicted: f64, seed: u64) -> Self {
        let rounds = before.len();
        let times = BootstrapInterval::over_rounds(rounds, 1, seed, |at| median_of(after, at) / median_of(before, at));
        let [before, after] =
            [before, after].map(|rates| BootstrapInterval::over_rounds(rounds, 1, seed, |at| median_of(rates, at)));
        Self {
            change,
            before,
            after,
            rounds,
            times,
            predicted,
            error: predicted / after.value - 1.0,
            effect: Effect::of(times),
        }
    }
}

/// The conclusion from the interval of a remedy's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The job is faster with the remedy.
    Gain,
    /// The job is slower with the remedy.
    Loss,
    /// The interval holds both.
    Unclear,
}

impl Effect {
    fn of(times: BootstrapInterval) -> Self {
        match times {
            BootstrapInterval { low, .. } if low > 1.0 => Self::Gain,
            BootstrapInterval { high, .. } if high < 1.0 => Self::Loss,
            _ => Self::Unclear,
        }
    }

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gain => "gain",
            Self::Loss => "loss",
            Self::Unclear => "unclear",
        }
    }
}

impl Remedies {
    /// Measures what the remedies introduce, and asks the model for predictions. `now` is the throughput of the current
    /// setting. A prediction is `now` times the change that the model expects, so that effects outside the model do not
    /// look like a gain or a loss. After `seconds`, no further measurement begins.
    pub(super) fn rank(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        facts: &Facts<'_>,
        now: f64,
        (known, output): (&Measurements, &Output),
        seconds: f64,
    ) -> Result<Self, LabError> {
        let started = Instant::now();
        let calibration = Calibration::measure_into(lab, photos, std::slice::from_ref(facts.setting), output)?;
        let scale = now / calibration.predict(facts.setting)?.images_per_second;
        let mut model =
            RemedyModel { lab, photos, from: facts.setting, calibration, now, scale, known, started, seconds };
        let mut rows = Vec::new();
        let mut remedies: Vec<&'static Remedy> = REMEDIES.iter().collect();
        remedies.sort_by_key(|remedy| remedy.stage != facts.limit);
        for remedy in remedies {
            for attempt in remedy.attempts(facts) {
                let (change, outcome) = match attempt {
                    RemedyAttempt::Advice(what, reason) => (what.to_owned(), Err(reason)),
                    RemedyAttempt::Cannot(setting, reason) => (facts.setting.values_of(&setting), Err(reason)),
                    RemedyAttempt::Try(settings) => model.best(settings)?,
                    RemedyAttempt::Tar(what) => (what.to_owned(), model.elsewhere(PhotoPlace::Tar, what)?),
                    RemedyAttempt::SmallTar(what) => (what.to_owned(), model.elsewhere(PhotoPlace::SmallTar, what)?),
                };
                rows.push(RankedRemedy::new(facts.setting, remedy, change, outcome, |decoder| {
                    facts.rig.open_decoder(decoder).is_ok_and(|decoder| decoder.capability().exact_jpeg)
                }));
            }
        }
        Ok(Self::in_order(rows, now))
    }

    /// Puts first what keeps the vectors, the best of each kind before the others.
    fn in_order(mut rows: Vec<RankedRemedy>, now: f64) -> Self {
        rows.sort_by(|a, b| {
            let kept = (b.vectors == VectorEffect::Same).cmp(&(a.vectors == VectorEffect::Same));
            kept.then(b.rate().total_cmp(&a.rate()))
        });
        Self { rows, tried: Vec::new(), now }
    }

    /// Returns the applicable remedies that keep the vectors nearly unchanged, with their expected effects, those first
    /// that keep them exactly. What was tried is not among them: of that, the effect is known.
    pub(super) fn promising(&self) -> impl Iterator<Item = (&RankedRemedy, &Expected)> {
        let usable = self.rows.iter().filter(|row| row.vectors != VectorEffect::Other && row.measured.is_none());
        usable.filter_map(|row| row.outcome.as_ref().ok().map(|expected| (row, expected)))
    }

    /// Returns what the remedy called `name` is expected to bring, if it applies and was not tried.
    pub(super) fn expected(&self, name: &str) -> Option<(&RankedRemedy, &Expected)> {
        let row = self.rows.iter().find(|row| row.remedy.name == name && row.measured.is_none())?;
        Some((row, row.outcome.as_ref().ok()?))
    }

    /// Returns why the remedy called `name` does not apply, if it does not.
    pub(super) fn refused(&self, name: &str) -> Option<&str> {
        let row = self.rows.iter().find(|row| row.remedy.name == name)?;
        row.outcome.as_ref().err().map(String::as_str)
    }

    /// Returns the ratio of the `expected` rate to the current one.
    pub(super) fn times(&self, expected: &Expected) -> f64 {
        expected.rate / self.now
    }

    /// Returns the number of remedies that there was no time to measure.
    pub(super) fn without_time(&self) -> usize {
        self.rows.iter().filter(|row| row.outcome.as_ref().is_err_and(|reason| reason == NO_TIME)).count()
    }

    /// Returns the number of remedies tried.
    pub(super) fn trials(&self) -> usize {
        self.tried.len()
    }

    /// Returns the result of the last trial.
    pub(super) fn verified(&self) -> Option<&Verified> {
        self.rows[*self.tried.last()?].measured.as_ref()
    }

    /// Returns the job with the remedy that was tried last, if it gained.
    pub(super) fn applied(&self, lab: &Lab<'_>, photos: &PhotoSet) -> Result<Option<Applied>, LabError> {
        let gained = self.verified().is_some_and(|verified| verified.effect == Effect::Gain);
        match self.tried.last().map(|&at| &self.rows[at].outcome) {
            Some(Ok(expected)) if gained => {
                Ok(Some(Applied { setting: expected.setting.clone(), photos: expected.place.put(lab, photos)? }))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn change(&self, row: usize) -> &str {
        &self.rows[row].change
    }

    /// Returns the row to try next; `None` if a remedy gained, enough were tried, or no other is expected to gain.
    pub(super) fn next_trial(&self, which: &Verify, options: &DiagnoseOptions) -> Result<Option<usize>, LabError> {
        let gained = self.verified().is_some_and(|verified| verified.effect == Effect::Gain);
        if gained || self.trials() >= options.most_tries() { Ok(None) } else { self.find(which) }
    }

    /// Applies a remedy and measures it, alternating with the current setting.
    pub(super) fn try_out(
        &mut self,
        at: usize,
        lab: &Lab<'_>,
        photos: &PhotoSet,
        setting: &Setting,
        options: &DiagnoseOptions,
    ) -> Result<(), LabError> {
        let row = &mut self.rows[at];
        let expected = row.outcome.clone().map_err(LabError::Setting)?;
        let moved = expected.place.put(lab, photos)?;
        let after = (moved.as_ref().unwrap_or(photos), &expected.setting);
        let [before, after] = side_by_side(lab, [(photos, setting), after], options)?;
        row.measured = Some(Verified::of(row.change.clone(), &before, &after, expected.predicted, lab.seed));
        self.tried.push(at);
        Ok(())
    }

    fn find(&self, which: &Verify) -> Result<Option<usize>, LabError> {
        let wanted = match which {
            Verify::Best | Verify::All => {
                let best = self.promising().max_by(|(_, a), (_, b)| a.rate.total_cmp(&b.rate));
                let Some((row, _)) = best.filter(|(_, expected)| self.times(expected) > 1.0) else { return Ok(None) };
                row
            }
            Verify::Named(name) => {
                let mut refused = None;
                let mut named = self.rows.iter().filter(|row| row.remedy.name == name || row.change == *name);
                let usable = named.find(|row| {
                    refused = refused.or(row.outcome.as_ref().err());
                    row.outcome.is_ok()
                });
                usable.ok_or_else(|| {
                    LabError::Setting(match refused {
                        Some(reason) => format!("remedy '{name}' does not apply: {reason}"),
                        None => format!("no remedy '{name}'; there are {}", names()),
                    })
                })?
            }
        };
        Ok(self.rows.iter().position(|row| std::ptr::eq(row, wanted)))
    }

    /// Returns the rows of [`schema::REMEDIES`].
    pub(super) fn table(&self, photos: &PhotoSet, setting: &Setting) -> Table {
        let mut table = Table::new(&schema::REMEDIES);
        for (at, row) in self.rows.iter().enumerate() {
            table.push([
                ("photos", photos.name.as_str().into()),
                ("step", 0_usize.into()),
                ("setting", setting.to_string().into()),
                ("remedy", row.remedy.name.into()),
                ("stage", row.remedy.stage.into()),
                ("change", row.change.as_str().into()),
                ("now", self.now.into()),
                ("vectors", row.vectors.name().into()),
                ("why", row.why().into()),
            ]);
            let expected = match &row.outcome {
                Err(reason) => {
                    table.set(at, "status", format!("n/a ({reason})").into());
                    continue;
                }
                Ok(expected) => expected,
            };
            table.set(at, "status", "ok".into());
            table.set(at, "predicted", expected.predicted.into());
            table.set(at, "times", (expected.predicted / self.now).into());
            if let Some(verified) = &row.measured {
                table.set(at, "samples", verified.rounds.into());
                table.set(at, "measured", verified.after.value.into());
                table.set(at, "measured_times", verified.times.value.into());
                table.set(at, "measured_times_low", verified.times.low.into());
                table.set(at, "measured_times_high", verified.times.high.into());
                table.set(at, "measured_low", verified.after.low.into());
                table.set(at, "measured_high", verified.after.high.into());
                table.set(at, "error", verified.error.into());
                table.set(at, "effect", verified.effect.name().into());
                table.set(at, "source", TRIAL.into());
                continue;
            }
            if let Some(known) = &expected.known {
                table.set(at, "measured", known.rate.into());
                table.set(at, "measured_times", known.times.into());
                table.set(at, "error", (expected.predicted / expected.rate - 1.0).into());
                table.set(at, "source", known.file.as_str().into());
            }
        }
        table
    }
}

fn names() -> String {
    REMEDIES.iter().map(|remedy| remedy.name).collect::<Vec<_>>().join(", ")
}

/// The fitted model, extended by what each query needs.
struct RemedyModel<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    from: &'a Setting,
    calibration: Calibration,
    /// Measured rate of the current setting.
    now: f64,
    /// That rate ÷ the predicted one.
    scale: f64,
    known: &'a Measurements,
    started: Instant,
    /// Seconds after which no measurement begins.
    seconds: f64,
}

impl RemedyModel<'_> {
    /// Returns the best of several settings, and the change that leads to it; the first one's error if none works.
    fn best(&mut self, settings: Vec<Setting>) -> Result<(String, Result<Expected, String>), LabError> {
        let mut best: Option<Expected> = None;
        let mut first_reason = None;
        let first_change = settings.first().map(|setting| self.from.values_of(setting)).unwrap_or_default();
        for setting in settings {
            match self.expect(&setting) {
                Ok(expected) if best.as_ref().is_none_or(|best| expected.rate > ALIKE * best.rate) => {
                    best = Some(expected)
                }
                Ok(_) => {}
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) => first_reason = first_reason.or(Some(error_chain(&error))),
            }
        }
        Ok(match best {
            Some(best) => (self.from.values_of(&best.setting), Ok(best)),
            None => (first_change, Err(first_reason.unwrap_or_else(|| "there is nothing to try".to_owned()))),
        })
    }

    fn is_late(&self) -> bool {
        self.started.elapsed().as_secs_f64() >= self.seconds
    }

    fn expect(&mut self, setting: &Setting) -> Result<Expected, LabError> {
        let known = self.calibration.predict(setting);
        let prediction = match known {
            Ok(prediction) => prediction,
            Err(_) if self.is_late() => return Err(LabError::Setting(NO_TIME.to_owned())),
            Err(_) => {
                self.calibration.extend(self.lab, self.photos, std::slice::from_ref(setting))?;
                self.calibration.predict(setting)?
            }
        };
        Ok(self.expected(setting, PhotoPlace::Same, &self.from.values_of(setting), prediction))
    }

    /// Returns what reading the photos from another place would bring; otherwise why that cannot be told.
    fn elsewhere(&self, place: PhotoPlace, change: &str) -> Result<Result<Expected, String>, LabError> {
        if self.is_late() {
            return Ok(Err(NO_TIME.to_owned()));
        }
        let photos = match place.put(self.lab, self.photos) {
            Ok(photos) => photos.unwrap_or_else(|| self.photos.clone()),
            Err(error) => return Ok(Err(error_chain(&error))),
        };
        let calibration = match place {
            PhotoPlace::SmallTar => self.calibration.prepared_from(self.lab, &photos, self.from)?,
            _ => self.calibration.read_from(self.lab, &photos)?,
        };
        Ok(Ok(self.expected(self.from, place, change, calibration.predict(self.from)?)))
    }

    fn expected(&self, setting: &Setting, place: PhotoPlace, change: &str, prediction: Prediction) -> Expected {
        let predicted = prediction.images_per_second * self.scale;
        let known = self.known.of(self.from, setting, change);
        let rate = known.as_ref().map_or(predicted, |known| self.now * known.times);
        Expected { setting: setting.clone(), place, predicted, known, rate, limit: prediction.limit }
    }
}

/// Remedies in the journal, by name.
mod by_name {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{REMEDIES, Remedy};

    pub(super) fn serialize<S: Serializer>(remedy: &Remedy, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(remedy.name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<&'static Remedy, D::Error> {
        let name = String::deserialize(from)?;
        REMEDIES.iter().find(|remedy| remedy.name == name).ok_or_else(|| D::Error::custom("no such remedy"))
    }
}

/// Measures the rates of two settings, each with its photos, in rounds and in alternating order.
fn side_by_side(
    lab: &Lab<'_>,
    [before, after]: [(&PhotoSet, &Setting); 2],
    options: &DiagnoseOptions,
) -> Result<[Vec<f64>; 2], LabError> {
    let started = Instant::now();
    let budget = options.budget.as_secs_f64();
    let mut jobs = [RemedyRun::new(lab, before.0, before.1, options)?, RemedyRun::new(lab, after.0, after.1, options)?];
    let wanted: f64 = jobs.iter().map(|job| job.length.seconds).sum();
    let share = options.share(wanted, budget - started.elapsed().as_secs_f64());
    if share < 1.0 {
        jobs.iter_mut().for_each(|job| job.length = job.length.shortened(share));
    }
    let round_seconds: f64 = jobs.iter().map(|job| job.length.seconds).sum();
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        if round >= FEWEST_ROUNDS && started.elapsed().as_secs_f64() + round_seconds > budget {
            break;
        }
        lab.watch.doing(&format!("before and after, round {} of {}", round + 1, options.rounds));
        for turn in [round % 2, (round + 1) % 2] {
            rates[turn].push(jobs[turn].run()?.rate);
        }
    }
    Ok(rates)
}

/// The unchanged job with one setting.
struct RemedyRun<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    setting: &'a Setting,
    options: &'a DiagnoseOptions,
    encoder: LentEncoder,
    length: Length,
}

impl<'a> RemedyRun<'a> {
    fn new(
        lab: &'a Lab<'a>,
        photos: &'a PhotoSet,
        setting: &'a Setting,
        options: &'a DiagnoseOptions,
    ) -> Result<Self, LabError> {
        let batch = setting.batch as u64;
        let length = Length { images: FEWEST_BATCHES * batch, batch, seconds: 0.0 };
        let mut job = Self { lab, photos, setting, options, encoder: lab.encoder(setting)?, length };
        let started = Instant::now();
        let first = job.run()?;
        let ran = (length.images, started.elapsed().as_secs_f64());
        let images = options.images_stored(images_for(options.seconds, &first, setting), photos, setting)?;
        job.length = Length::of(images, setting, &first, ran);
        Ok(job)
    }

    fn run(&self) -> Result<TimedSample, LabError> {
        if self.options.cold {
            self.photos.forget()?;
        }
        let checked = self.lab.sink(&Output::Sink(self.options.sink.clone()), self.photos)?;
        let around = Around::of(self.lab, self.setting, &self.encoder, self.options.cold);
        let around = around.stored(self.photos, self.setting)?;
        sample(self.lab, &checked, self.length.images, around, |sink, images| {
            let source = self.photos.stored(self.setting, images)?;
            Ok(self.lab.pipeline(self.setting, source, Box::new(self.encoder.clone()), sink))
        })
    }
}

#[cfg(test)]
impl Remedies {
    /// Creates remedies for the setting `from`, from their names in the checklist, settings and expected rates.
    pub(super) fn of(from: &Setting, now: f64, rows: &[(&str, Setting, f64)]) -> Self {
        let row = |(name, setting, rate): &(&str, Setting, f64)| {
            let remedy = REMEDIES.iter().find(|remedy| remedy.name == *name).unwrap_or(&REMEDIES[0]);
            let setting = setting.clone();
            let limit = "forward".to_owned();
            let predicted = *rate;
            let expected = Expected { setting, place: PhotoPlace::Same, predicted, known: None, rate: *rate, limit };
            let change = from.values_of(&expected.setting);
            RankedRemedy::new(from, remedy, change, Ok(expected), |decoder| ["exact", "turbojpeg"].contains(&decoder))
        };
        Self { rows: rows.iter().map(row).collect(), tried: Vec::new(), now }
    }

    /// Returns the names in the order of recommendation, and whether they are marked as changing the vectors.
    fn recommended(self) -> Vec<(&'static str, bool)> {
        let rows = Self::in_order(self.rows, self.now).rows;
        rows.iter().map(|row| (row.remedy.name, row.why().starts_with("changes the vectors"))).collect()
    }

    /// Creates the result of a trial from its rates, one of each kind per round, as if the first remedy was tried.
    pub(super) fn tried(&mut self, before: &[f64], after: &[f64]) -> Verified {
        let predicted = self.rows[0].outcome.as_ref().map_or(0.0, |expected| expected.rate);
        let verified = Verified::of(self.rows[0].change.clone(), before, after, predicted, 1);
        self.rows[0].measured = Some(verified.clone());
        self.tried.push(0);
        verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_vectors_is_marked_and_comes_after_the_rest() {
        let with = |decoder: &str| Setting { decoder: decoder.to_owned(), ..Setting::plain() };
        let recommended = |from: &str, to: [&str; 2]| {
            let rows = [
                ("dtype", with(from), 90.0),
                ("more workers", with(from), 20.0),
                ("decoder", with(to[0]), 50.0),
                ("decoder", with(to[1]), 40.0),
            ];
            Remedies::of(&with(from), 10.0, &rows).recommended()
        };
        let kept = [("decoder", false), ("more workers", false), ("dtype", true), ("decoder", true)];
        assert_eq!(recommended("exact", ["zune", "turbojpeg"]), kept);
        assert_eq!(recommended("turbojpeg", ["image", "exact"]), kept);
        // From a decoder with other pixels, no decoder keeps the vectors.
        let changed = [("more workers", false), ("dtype", true), ("decoder", true), ("decoder", true)];
        assert_eq!(recommended("zune", ["turbojpeg", "exact"]), changed);
        assert_eq!(recommended("image", ["turbojpeg", "exact"]), changed);
    }

    #[test]
    fn an_effect_is_told_only_by_an_interval_on_one_side_of_no_change() {
        let effect = |after: &[f64]| {
            let before = vec![100.0; after.len()];
            Verified::of(String::new(), &before, after, 100.0, 1).effect
        };
        assert_eq!(effect(&[120.0, 118.0, 125.0, 119.0, 121.0]), Effect::Gain);
        assert_eq!(effect(&[78.0, 80.0, 81.0, 77.0, 79.0]), Effect::Loss);
        assert_eq!(effect(&[120.0, 118.0, 99.0, 119.0, 121.0]), Effect::Unclear);
        assert_eq!(effect(&[120.0, 118.0]), Effect::Gain);
        assert_eq!(effect(&[120.0, 105.0]), Effect::Unclear, "the interval of two samples is wide");
        assert_eq!(effect(&[120.0]), Effect::Unclear, "one sample has no interval");
    }
}
