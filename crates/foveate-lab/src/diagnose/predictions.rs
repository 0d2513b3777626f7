//! The fitted model's prediction for each remedy, and its verification.

use foveate_core::error_chain;

use super::interval::{Interval, median_of};
use super::options::{DiagnoseOptions, Verify};
use super::remedies::{Attempt, Facts, REMEDIES, Remedy, Vectors};
use super::sample::{Around, Sample, images_for, least_images, sample};
use crate::{Calibration, Lab, LabError, LentEncoder, Output, PhotoSet, Prediction, Setting, Table, schema};

/// Among settings that differ by less than this, the first is chosen, which changes the least.
const ALIKE: f64 = 1.01;

/// The remedies, the most promising first.
#[derive(Clone, Debug)]
pub(super) struct Remedies {
    rows: Vec<Row>,
    /// Measured throughput of the current setting.
    now: f64,
}

/// One remedy for these photos on this machine.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) remedy: &'static Remedy,
    pub(super) change: String,
    outcome: Result<Expected, String>,
    /// The throughput with it, and the conclusion, if it was tried.
    measured: Option<(Interval, Effect)>,
}

impl Row {
    /// Returns true if vectors with the remedy differ from those without, be it a little.
    fn changes_vectors(&self) -> bool {
        const SAME_PIXELS: [&str; 2] = ["exact", "turbojpeg"];
        let keeps_pixels = |expected: &Expected| SAME_PIXELS.contains(&expected.setting.decoder.as_str());
        let is_kept = self.remedy.name == "decoder" && self.outcome.as_ref().is_ok_and(keeps_pixels);
        self.remedy.vectors != Vectors::Same && !is_kept
    }

    fn why(&self) -> String {
        let mark = if self.changes_vectors() { "changes the vectors: " } else { "" };
        format!("{mark}{}", self.remedy.why)
    }
}

/// The expected effect of a remedy.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) setting: Setting,
    /// The photos, if they are read from elsewhere.
    photos: Option<PhotoSet>,
    /// Images per second.
    pub(super) rate: f64,
    /// The limiting factor afterwards.
    pub(super) limit: String,
}

/// A job with a remedy.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its setting.
    pub setting: Setting,
    /// Its photos, if the remedy puts them elsewhere.
    pub photos: Option<PhotoSet>,
}

/// The fewest rounds whose median has a 95 % interval: of five samples, the least and the most.
const LEAST_ROUNDS: usize = 5;

/// Remedies to try in one diagnosis until one gains.
const MOST_TRIES: usize = 3;

/// The measured effect of one remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// The change.
    pub change: String,
    /// Images per second before.
    pub before: Interval,
    /// Images per second after.
    pub after: Interval,
    /// After ÷ before.
    pub times: Interval,
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
        let over = |of: &dyn Fn(&[usize]) -> f64| Interval::over_rounds(rounds, 1, seed, of);
        let rate = over(&|rounds| median_of(after, rounds));
        let times = over(&|rounds| median_of(after, rounds) / median_of(before, rounds));
        Self {
            change,
            before: over(&|rounds| median_of(before, rounds)),
            after: rate,
            times,
            predicted,
            error: predicted / rate.value - 1.0,
            effect: Effect::of(times, rounds),
        }
    }
}

/// The conclusion from the interval of a remedy's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The job is faster with the remedy.
    Gain,
    /// The job is slower with the remedy.
    Loss,
    /// The interval holds both, or there are too few rounds for one.
    Unclear,
}

impl Effect {
    fn of(times: Interval, rounds: usize) -> Self {
        match times {
            _ if rounds < LEAST_ROUNDS => Self::Unclear,
            Interval { low, .. } if low > 1.0 => Self::Gain,
            Interval { high, .. } if high < 1.0 => Self::Loss,
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
    /// look like a gain or a loss.
    pub(super) fn rank(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        facts: &Facts<'_>,
        now: f64,
        output: &Output,
    ) -> Result<Self, LabError> {
        let base = std::slice::from_ref(facts.setting);
        let mut model =
            Model { lab, photos, calibration: Calibration::measure_into(lab, photos, base, output)?, scale: 1.0 };
        model.scale = now / model.calibration.predict(facts.setting)?.images_per_second;
        let mut rows = Vec::new();
        for remedy in REMEDIES {
            for attempt in remedy.attempts(facts) {
                let (change, outcome) = match attempt {
                    Attempt::Advice(what, reason) => (what.to_owned(), Err(reason)),
                    Attempt::Cannot(setting, reason) => (facts.setting.values_of(&setting), Err(reason)),
                    Attempt::Try(settings) => model.best(facts.setting, settings)?,
                    Attempt::Tar(what) => (what.to_owned(), model.in_tar(facts.setting)?),
                    Attempt::SmallTar(what) => (what.to_owned(), model.in_small_tar(facts.setting)?),
                };
                rows.push(Row { remedy, change, outcome, measured: None });
            }
        }
        Ok(Self::in_order(rows, now))
    }

    /// Puts first what keeps the vectors, the best of each kind before the others.
    fn in_order(mut rows: Vec<Row>, now: f64) -> Self {
        let rate = |row: &Row| row.outcome.as_ref().map_or(0.0, |expected| expected.rate);
        rows.sort_by(|a, b| a.changes_vectors().cmp(&b.changes_vectors()).then(rate(b).total_cmp(&rate(a))));
        Self { rows, now }
    }

    /// Returns the applicable remedies that keep the vectors nearly unchanged, with their expected effects, those first
    /// that keep them exactly. What was tried is not among them: of that, the effect is known.
    pub(super) fn promising(&self) -> impl Iterator<Item = (&Row, &Expected)> {
        let usable = self.rows.iter().filter(|row| row.remedy.vectors != Vectors::Other && row.measured.is_none());
        usable.filter_map(|row| row.outcome.as_ref().ok().map(|expected| (row, expected)))
    }

    /// Returns what the remedy called `name` is expected to bring, if it applies and was not tried.
    pub(super) fn expected(&self, name: &str) -> Option<(&Row, &Expected)> {
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

    /// Applies a remedy and measures it, alternating with the current setting. Returns the job with it, too, if it
    /// gained; `None` if the best is not expected to gain anything.
    pub(super) fn verify(
        &mut self,
        lab: &Lab<'_>,
        photos: &PhotoSet,
        setting: &Setting,
        options: &DiagnoseOptions,
        which: &Verify,
    ) -> Result<Option<(Verified, Option<Applied>)>, LabError> {
        let mut tried = None;
        let tries = if *which == Verify::All { MOST_TRIES } else { 1 };
        for _ in 0..tries {
            match self.try_one(lab, photos, setting, options, which)? {
                Some(done @ (_, Some(_))) => return Ok(Some(done)),
                Some(done) => tried = Some(done),
                None => break,
            }
        }
        Ok(tried)
    }

    fn try_one(
        &mut self,
        lab: &Lab<'_>,
        photos: &PhotoSet,
        setting: &Setting,
        options: &DiagnoseOptions,
        which: &Verify,
    ) -> Result<Option<(Verified, Option<Applied>)>, LabError> {
        let Some(at) = self.find(which)? else { return Ok(None) };
        let row = &mut self.rows[at];
        let expected = row.outcome.clone().map_err(LabError::Setting)?;
        let after = (expected.photos.as_ref().unwrap_or(photos), &expected.setting);
        let [before, after] = side_by_side(lab, [(photos, setting), after], options)?;
        let verified = Verified::of(row.change.clone(), &before, &after, expected.rate, lab.seed);
        row.measured = Some((verified.after, verified.effect));
        let applied = (verified.effect == Effect::Gain)
            .then(|| Applied { setting: expected.setting.clone(), photos: expected.photos.clone() });
        Ok(Some((verified, applied)))
    }

    fn find(&self, which: &Verify) -> Result<Option<usize>, LabError> {
        let at = |wanted: &Row| self.rows.iter().position(|row| std::ptr::eq(row, wanted));
        match which {
            Verify::Best | Verify::All => {
                let best = self.promising().max_by(|(_, a), (_, b)| a.rate.total_cmp(&b.rate));
                let best = best.filter(|(_, expected)| self.times(expected) > 1.0);
                Ok(best.and_then(|(row, _)| at(row)))
            }
            Verify::Named(name) => {
                let named = self.rows.iter().filter(|row| row.remedy.name == name || row.change == *name);
                let named: Vec<&Row> = named.collect();
                let usable = named.iter().find(|row| row.outcome.is_ok());
                match (usable.or(named.first()), named.first().map(|row| &row.outcome)) {
                    (Some(row), _) if row.outcome.is_ok() => Ok(at(row)),
                    (_, Some(Err(reason))) => {
                        Err(LabError::Setting(format!("remedy '{name}' does not apply: {reason}")))
                    }
                    _ => Err(LabError::Setting(format!("no remedy '{name}'; there are {}", names()))),
                }
            }
        }
    }

    /// Returns the rows of [`schema::REMEDIES`].
    pub(super) fn table(&self, photos: &PhotoSet) -> Table {
        let mut table = Table::new(&schema::REMEDIES);
        for (at, row) in self.rows.iter().enumerate() {
            table.push([
                ("photos", photos.name.as_str().into()),
                ("step", 0_usize.into()),
                ("remedy", row.remedy.name.into()),
                ("stage", row.remedy.stage.into()),
                ("change", row.change.as_str().into()),
                ("now", self.now.into()),
                ("why", row.why().into()),
            ]);
            match &row.outcome {
                Err(reason) => table.set(at, "status", format!("n/a ({reason})").into()),
                Ok(expected) => {
                    table.set(at, "status", "ok".into());
                    table.set(at, "predicted", expected.rate.into());
                    table.set(at, "times", self.times(expected).into());
                    if let Some((measured, effect)) = row.measured {
                        table.set(at, "measured", measured.value.into());
                        table.set(at, "measured_low", measured.low.into());
                        table.set(at, "measured_high", measured.high.into());
                        table.set(at, "error", (expected.rate / measured.value - 1.0).into());
                        table.set(at, "effect", effect.name().into());
                    }
                }
            }
        }
        table
    }
}

fn names() -> String {
    REMEDIES.iter().map(|remedy| remedy.name).collect::<Vec<_>>().join(", ")
}

/// The fitted model, extended by what each query needs.
struct Model<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    calibration: Calibration,
    /// Measured ÷ predicted rate of the current setting.
    scale: f64,
}

impl Model<'_> {
    /// Returns the best of several settings, and the change that leads to it; the first one's error if none works.
    fn best(&mut self, from: &Setting, settings: Vec<Setting>) -> Result<(String, Result<Expected, String>), LabError> {
        let (mut best, mut first_reason): (Option<Expected>, _) = (None, None);
        let first_change = settings.first().map(|setting| from.values_of(setting)).unwrap_or_default();
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
            Some(best) => (from.values_of(&best.setting), Ok(best)),
            None => (first_change, Err(first_reason.unwrap_or_else(|| "there is nothing to try".to_owned()))),
        })
    }

    fn expect(&mut self, setting: &Setting) -> Result<Expected, LabError> {
        let known = self.calibration.predict(setting);
        let prediction = match known {
            Ok(prediction) => prediction,
            Err(_) => {
                self.calibration.extend(self.lab, self.photos, std::slice::from_ref(setting))?;
                self.calibration.predict(setting)?
            }
        };
        Ok(self.expected(setting, None, prediction))
    }

    /// Returns what reading the photos from one tar would bring; otherwise why that cannot be told.
    fn in_tar(&self, setting: &Setting) -> Result<Result<Expected, String>, LabError> {
        let packed = match self.photos.in_tar(self.lab.rig, &self.lab.scratch.join("tar")) {
            Ok(packed) => packed,
            Err(error) => return Ok(Err(error_chain(&error))),
        };
        let prediction = self.calibration.read_from(self.lab, &packed)?.predict(setting)?;
        Ok(Ok(self.expected(setting, Some(packed), prediction)))
    }

    /// Returns what smaller photos in one tar would bring; otherwise why that cannot be told.
    fn in_small_tar(&self, setting: &Setting) -> Result<Result<Expected, String>, LabError> {
        let (rig, folder) = (self.lab.rig, self.lab.scratch.join("small"));
        let small = match self.photos.small(rig, &folder).and_then(|small| small.in_tar(rig, &folder)) {
            Ok(small) => small,
            Err(error) => return Ok(Err(error_chain(&error))),
        };
        let prediction = self.calibration.prepared_from(self.lab, &small, setting)?.predict(setting)?;
        Ok(Ok(self.expected(setting, Some(small), prediction)))
    }

    fn expected(&self, setting: &Setting, photos: Option<PhotoSet>, prediction: Prediction) -> Expected {
        let rate = prediction.images_per_second * self.scale;
        Expected { setting: setting.clone(), photos, rate, limit: prediction.limit }
    }
}

/// Measures the rates of two settings, each with its photos, in rounds and in alternating order.
fn side_by_side(
    lab: &Lab<'_>,
    [before, after]: [(&PhotoSet, &Setting); 2],
    options: &DiagnoseOptions,
) -> Result<[Vec<f64>; 2], LabError> {
    let job = |(photos, setting)| RemedyRun::new(lab, photos, setting, options);
    let jobs = [job(before)?, job(after)?];
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
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
    images: u64,
}

impl<'a> RemedyRun<'a> {
    fn new(
        lab: &'a Lab<'a>,
        photos: &'a PhotoSet,
        setting: &'a Setting,
        options: &'a DiagnoseOptions,
    ) -> Result<Self, LabError> {
        let images = least_images(setting);
        let mut job = Self { lab, photos, setting, options, encoder: lab.encoder(setting)?, images };
        job.images = options.images_stored(images_for(options.seconds, &job.run()?, setting), photos, setting)?;
        Ok(job)
    }

    fn run(&self) -> Result<Sample, LabError> {
        if self.options.cold {
            self.photos.forget()?;
        }
        let checked = self.lab.sink(&Output::Sink(self.options.sink.clone()), self.photos)?;
        let around = Around::of(self.lab, self.setting, &self.encoder, self.options.cold);
        let around = around.stored(self.photos, self.setting)?;
        sample(self.lab, &checked, self.images, around, |sink, images| {
            let source = self.photos.stored(self.setting, images)?;
            Ok(self.lab.pipeline(self.setting, source, Box::new(self.encoder.clone()), sink))
        })
    }
}

#[cfg(test)]
impl Remedies {
    /// Creates remedies from their names in the checklist, settings and expected rates.
    pub(super) fn of(now: f64, rows: &[(&str, Setting, f64)]) -> Self {
        let row = |(name, setting, rate): &(&str, Setting, f64)| Row {
            remedy: REMEDIES.iter().find(|remedy| remedy.name == *name).unwrap_or(&REMEDIES[0]),
            change: Setting::plain().values_of(setting),
            outcome: Ok(Expected { setting: setting.clone(), photos: None, rate: *rate, limit: "forward".to_owned() }),
            measured: None,
        };
        Self { rows: rows.iter().map(row).collect(), now }
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
        self.rows[0].measured = Some((verified.after, verified.effect));
        verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_vectors_is_marked_and_comes_after_the_rest() {
        let exact = Setting { decoder: "exact".to_owned(), ..Setting::plain() };
        let zune = Setting { decoder: "zune".to_owned(), ..Setting::plain() };
        let rows = [
            ("dtype", exact.clone(), 90.0),
            ("more workers", exact.clone(), 20.0),
            ("decoder", zune, 50.0),
            ("decoder", exact, 40.0),
        ];
        let expected = [("decoder", false), ("more workers", false), ("dtype", true), ("decoder", true)];
        assert_eq!(Remedies::of(10.0, &rows).recommended(), expected);
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
        assert_eq!(effect(&[120.0, 118.0]), Effect::Unclear, "two samples have no interval");
    }
}
